// SPDX-License-Identifier: Apache-2.0
// How the living ranks of a failed comm make a comm of their own.
//
//   1 meet        who lives, and who leads (bootstrap/meeting.hpp)
//   2 make        as any comm is made (comm_create.cpp), over a store of the connections that the meeting has left
//   3 settle      nobody has a comm that another could not make; if one died meanwhile, they meet again
//
// Nothing of the failed comm is used but its rendezvous, and what is known of its ranks: its links and its domain may
// be in any state, and stay as they are until it is destroyed.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "bootstrap/meeting.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/store.hpp"
#include "collective/comm.hpp"

namespace mxs {

namespace {

constexpr uint64_t second_ns = 1'000'000'000u;

mxs_status check_shrink(const Comm &failed, const mxs_comm_options &options) {
  if (!failed.failed()) return set_error(MXS_INVALID_ARGUMENT, "the comm has not failed; mxs_comm_abort fails it");
  if (options.bootstrap)
    return set_error(MXS_INVALID_ARGUMENT, "options.bootstrap is set, but the living find each other by the failed "
                     "comm; pass NULL");
  if (options.secret)
    return set_error(MXS_INVALID_ARGUMENT, "options.secret is set, but the living know each other by the secret of the "
                     "failed comm, and so do those that come late; pass NULL");
  for (int rank = 0; failed.rendezvous && rank < failed.rank_count; ++rank)
    if (failed.rendezvous->place(rank).address.empty())
      return set_error(MXS_NOT_BUILT, "rank %d has no address that other nodes know: a comm of callbacks has none by "
                       "itself; set MXS_INTERFACE on all ranks to the network interface by which the nodes reach each "
                       "other, before the comm is created", rank);
  return check_comm_options(options);
}

class Shrinking {
 public:
  Shrinking(Comm &failed, const mxs_comm_options &options)
      : failed_(failed), options_(inherit_options(failed, options)),
        deadline_ns_(now_ns() + std::min(options_.timeout_ns, Comm::timeout_max_ns)) {}

  mxs_status run(std::unique_ptr<Comm> *result);

 private:
  mxs_status make(std::unique_ptr<Comm> *result, const std::vector<int> &members,
                  std::vector<std::unique_ptr<Peer>> peers);

  Comm &failed_;
  const mxs_comm_options options_;
  const uint64_t deadline_ns_;
};

mxs_status Shrinking::make(std::unique_ptr<Comm> *result, const std::vector<int> &members,
                           std::vector<std::unique_ptr<Peer>> peers) {
  const auto rank = std::find(members.begin(), members.end(), failed_.rank) - members.begin();
  const uint64_t now = now_ns(), left_ns = deadline_ns_ > now ? deadline_ns_ - now : 0;
  std::unique_ptr<Bootstrap> own =
      make_store_bootstrap(failed_.bootstrap->name(), static_cast<int>(rank), static_cast<int>(members.size()),
                           std::move(peers), std::max(left_ns, second_ns));
  Bootstrap &bootstrap = *own;
  std::unique_ptr<Comm> comm;
  mxs_status status = fenced([&] {
    return create_comm_over(&comm, std::move(own), topology_of_ranks(failed_.topology, members), options_,
                            failed_.job);
  });
  if (status == MXS_OK) status = bootstrap.settle(MXS_OK);
  if (status != MXS_OK && comm && comm->tracer) comm->tracer->discard();
  if (status != MXS_OK) return status;
  failed_.mark("shrink", comm->session);
  comm->origins = members;
  comm->secret = failed_.secret;
  if (members.size() > 1) comm->rendezvous = failed_.rendezvous->of_members(members, comm->session);
  *result = std::move(comm);
  return MXS_OK;
}

// What a member that dies makes the others fail with depends on the moment. So they meet again, whatever it was: if one
// is missing now, without it; if all have come again, it was something else.
mxs_status Shrinking::run(std::unique_ptr<Comm> *result) {
  if (failed_.rank_count == 1) return make(result, {0}, {});
  Meeting meeting(*failed_.rendezvous, deadline_ns_);
  std::vector<int> members;
  mxs_status status = MXS_OK;
  std::string sentence;
  for (std::vector<int> before;; before = members) {
    std::vector<std::unique_ptr<Peer>> peers;
    const mxs_status missed = meeting.gather(&members, &peers);
    if (missed != MXS_OK) return missed;
    if (members == before) return set_error(status, "%s", sentence.c_str());
    status = make(result, members, std::move(peers));
    if (status == MXS_OK) break;
    if (now_ns() > deadline_ns_) return status;
    sentence = last_error_text();
    log_line(MXS_LOG_INFO, "shrink: rank %d meets the others again: %s", failed_.rank, sentence.c_str());
  }
  meeting.close();
  return MXS_OK;
}

}  // namespace

mxs_status shrink_comm(std::unique_ptr<Comm> *comm, Comm &failed, const mxs_comm_options &options) {
  const mxs_status status = check_shrink(failed, options);
  return status == MXS_OK ? Shrinking(failed, options).run(comm) : status;
}

}  // namespace mxs
