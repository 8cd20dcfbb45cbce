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

mxs_status Rendezvous::open(std::unique_ptr<Rendezvous> *result, Bootstrap &bootstrap, const std::string &address,
                            uint64_t session, const std::shared_ptr<const Secret> &secret) {
  auto made = std::make_unique<Rendezvous>();
  Told own{};
  mxs_status status = MXS_OK;
  if (!address.empty() && address.size() < sizeof own.address) {
    Socket listener;
    int port = 0;
    status = listen_anywhere(&listener, address, &port, "a place for the living to meet after a failure");
    std::memcpy(own.address, address.c_str(), address.size());
    own.port = port;
    made->listener_ = std::make_shared<const Socket>(std::move(listener));
  } else {
    made->listener_ = std::make_shared<const Socket>();
  }
  status = bootstrap.settle(status);
  if (status != MXS_OK) return status;
  std::vector<Told> all(static_cast<size_t>(bootstrap.rank_count()));
  status = bootstrap.all_gather(&own, all.data(), sizeof own);
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
