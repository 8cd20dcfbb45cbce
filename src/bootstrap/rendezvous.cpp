// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rendezvous.hpp"

#include <algorithm>
#include <cstring>

#include "base/status.hpp"

namespace mxs {

namespace {

// What each rank tells the others.
struct Told {
  char address[56];  // INET6_ADDRSTRLEN and an interface's name
  int32_t port;
  uint32_t reserved;
};

}  // namespace

mxs_status Rendezvous::open(std::unique_ptr<Rendezvous> *result, Bootstrap &bootstrap, mxs_status own,
                            const std::string &address, uint64_t session,
                            const std::shared_ptr<const Secret> &secret) {
  auto made = std::make_unique<Rendezvous>();
  Socket listener;
  Told told_by_me{};
  if (own == MXS_OK && !address.empty() && address.size() < sizeof told_by_me.address) {
    int port = 0;
    own = listen_anywhere(&listener, address, &port, "a place for the living to meet after a failure");
    std::memcpy(told_by_me.address, address.c_str(), address.size());
    told_by_me.port = port;
  }
  made->listener_ = std::make_shared<const Socket>(std::move(listener));
  mxs_status status = bootstrap.settle(own);
  if (status != MXS_OK) return status;
  std::vector<Told> all(static_cast<size_t>(bootstrap.rank_count()));
  status = bootstrap.all_gather(&told_by_me, all.data(), sizeof told_by_me);
  if (status != MXS_OK) return status;
  for (Told &told : all) {
    told.address[sizeof told.address - 1] = '\0';
    made->places_.push_back({told.address, told.port});
  }
  made->sessions_ = {session};
  made->rank_ = bootstrap.rank();
  made->secret_ = secret;
  *result = std::move(made);
  return MXS_OK;
}

std::unique_ptr<Rendezvous> Rendezvous::of_members(const std::vector<int> &members, uint64_t session) const {
  auto made = std::make_unique<Rendezvous>();
  made->listener_ = listener_;
  for (const int member : members) made->places_.push_back(place(member));
  made->sessions_ = sessions_;
  made->secret_ = secret_;
  made->sessions_.push_back(session);
  made->rank_ = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
  return made;
}

}  // namespace mxs
