// SPDX-License-Identifier: Apache-2.0
// Rendezvous: where the living ranks of a comm find each other once it has failed, and maybe its rank 0 is gone.
//
// Each rank listens, from the comm's making on, and knows where the others do. Nobody looks at who comes before there
// is a meeting (meeting.hpp): the kernel keeps them waiting, and refuses them once the process has ended. That is how
// the living tell the dead from those that are only late.
//
// A comm of the living goes on with the listener of the one that failed: whoever comes late meets somebody who can tell
// that the others have gone on, instead of nobody, which would look like death.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/socket.hpp"

namespace mxs {

class Rendezvous {
 public:
  // By rank. An empty address: not known.
  struct Place {
    std::string address;
    int port = 0;
  };

  // Collective over the bootstrap's ranks. own: how finding the address went. address: this rank's, in numbers; empty:
  // it has none that others know.
  static mxs_status open(std::unique_ptr<Rendezvous> *rendezvous, Bootstrap &bootstrap, mxs_status own,
                         const std::string &address, uint64_t session, const std::shared_ptr<const Secret> &secret);
  // Of the living: `members` of this one's ranks, this rank being one of them.
  std::unique_ptr<Rendezvous> of_members(const std::vector<int> &members, uint64_t session) const;

  int rank() const { return rank_; }
  int rank_count() const { return static_cast<int>(places_.size()); }
  uint64_t session() const { return sessions_.back(); }
  // Of comms that this one's ranks were once in.
  std::vector<uint64_t> former_sessions() const { return {sessions_.begin(), sessions_.end() - 1}; }
  const std::shared_ptr<const Secret> &secret() const { return secret_; }
  const Place &place(int rank) const { return places_[static_cast<size_t>(rank)]; }
  const std::shared_ptr<const Socket> &listener() const { return listener_; }

 private:
  std::shared_ptr<const Socket> listener_;
  std::vector<Place> places_;
  std::vector<uint64_t> sessions_;  // of this comm, and before it those it comes from
  int rank_ = 0;
  std::shared_ptr<const Secret> secret_;  // of the job; nullptr: none
};

}  // namespace mxs
