// SPDX-License-Identifier: Apache-2.0
// Splitting a comm: ranks of one colour get a comm of their own.
//
//   1 all ranks well?     what one refuses, all refuse
//   2 colours and keys    all ranks know all groups
//   3 rounds              each group makes its comm as any is made (comm_create.cpp), over a bootstrap whose exchanges
//                         go over the parent's agreements
//
// Groups need different numbers of exchanges: one has shm and ucx, the next is a single rank. An agreement is
// everybody's, so all ranks go on in lockstep until every group is done or has failed:
//
//   rank 0 (group A)   identity  address  settle   done      done
//   rank 1 (group A)   identity  address  settle   done      done      <- the first round in which all are done
//   rank 2 (group B)   identity  done     done     done      done         is the last
//   rank 3 (no colour) done      done     done     done      done
//
// Over agreements, not over the parent's bootstrap: a comm that was itself split off has no bootstrap that works for it
// alone any more, operations of the parent in flight make progress meanwhile, and a rank that dies or never comes fails
// the parent as it does in any call.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/status.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/secret.hpp"
#include "collective/comm.hpp"
#include "collective/process.hpp"

namespace mxs {

namespace {

// What a rank puts into one agreement.
struct Round {
  enum State : uint32_t { working = 1, done = 2 };
  State state;
  uint32_t bytes;  // of the exchange that this is a piece of
  std::byte data[1008];
};
static_assert(sizeof(Round) <= Comm::agreement_bytes_max);

class SplitRounds {
 public:
  explicit SplitRounds(Comm &parent) : parent_(parent), all_(static_cast<size_t>(parent.rank_count)) {}

  mxs_status run(const Round &mine) { return parent_.agree(&mine, all_.data(), sizeof mine, 0); }
  const Round &of(int parent_rank) const { return all_[static_cast<size_t>(parent_rank)]; }

  // This rank is done, with a comm or without; others may need its part in theirs.
  mxs_status serve() {
    const Round mine = {Round::done, 0, {}};
    for (;;) {
      const mxs_status status = run(mine);
      if (status != MXS_OK) return status;
      if (std::all_of(all_.begin(), all_.end(), [](const Round &round) { return round.state == Round::done; }))
        return MXS_OK;
    }
  }

 private:
  Comm &parent_;
  std::vector<Round> all_;
};

class SplitBootstrap final : public Bootstrap {
 public:
  SplitBootstrap(SplitRounds *rounds, const Comm &parent, const std::vector<int> &members, int rank, uint64_t number)
      : rounds_(rounds), members_(members), rank_(rank), name_(parent.bootstrap->name()),
        line_(parent.bootstrap->open_line(number, members)) {}

  int rank() const override { return rank_; }
  int rank_count() const override { return static_cast<int>(members_.size()); }
  const char *name() const override { return name_; }
  mxs_status all_gather(const void *source, void *target, size_t bytes) override;
  // The comm is made: from here on the parent is of no concern.
  void finish() { rounds_ = nullptr; }

  void announce_failure(mxs_status status, const char *sentence) override {
    Bootstrap::announce_failure(status, sentence);
    if (line_) line_->announce(status, sentence);
  }
  mxs_status check() override { return line_ ? line_->check() : MXS_OK; }
  std::unique_ptr<FailureLine> open_line(uint64_t number, const std::vector<int> &ranks) override {
    return line_ ? line_->open_line(number, ranks) : nullptr;
  }

 private:
  SplitRounds *rounds_;
  const std::vector<int> members_;  // ranks of the parent
  const int rank_;
  const char *const name_;
  const std::unique_ptr<FailureLine> line_;
};

mxs_status SplitBootstrap::all_gather(const void *source, void *target, size_t bytes) {
  if (!rounds_) return set_error(MXS_INTERNAL, "an exchange over the bootstrap of a split comm, after it was made");
  const auto *from = static_cast<const std::byte *>(source);
  auto *to = static_cast<std::byte *>(target);
  for (size_t offset = 0; offset < bytes; offset += sizeof Round::data) {
    const size_t piece_bytes = std::min(sizeof Round::data, bytes - offset);
    Round mine = {Round::working, static_cast<uint32_t>(bytes), {}};
    std::memcpy(mine.data, from + offset, piece_bytes);
    const mxs_status status = rounds_->run(mine);
    if (status != MXS_OK) return status;
    for (size_t member = 0; member < members_.size(); ++member) {
      const Round &theirs = rounds_->of(members_[member]);
      if (theirs.state != Round::working)
        return set_error(MXS_PEER_FAILED, "rank %d of the parent gave up while its group made a comm",
                         members_[member]);
      if (theirs.bytes != bytes)
        return set_error(MXS_MISMATCH, "rank %d of the parent exchanges %u bytes, rank %d %zu, while their group makes "
                         "a comm", members_[member], theirs.bytes, members_[static_cast<size_t>(rank_)], bytes);
      std::memcpy(to + member * bytes + offset, theirs.data, piece_bytes);
    }
  }
  return MXS_OK;
}

// What every rank says of itself; number: of its group's failure line, if it is the group's first.
struct Wish {
  int32_t color, key;
  uint64_t number;
};

// Ranks of the parent, by key, then by rank.
std::vector<int> group_of(const std::vector<Wish> &wishes, int32_t color) {
  std::vector<int> members;
  for (size_t rank = 0; rank < wishes.size(); ++rank)
    if (wishes[rank].color == color) members.push_back(static_cast<int>(rank));
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<size_t>(a)].key < wishes[static_cast<size_t>(b)].key;
  });
  return members;
}

// secret: the parent's, unless the options have one.
mxs_status check_split(int32_t color, const mxs_comm_options &options, std::shared_ptr<const Secret> *secret) {
  if (color < MXS_NO_COLOR)
    return set_error(MXS_INVALID_ARGUMENT, "color is %d, neither MXS_NO_COLOR (-1) nor at least 0", color);
  if (options.bootstrap)
    return set_error(MXS_INVALID_ARGUMENT, "options.bootstrap is set, but a comm is split over its parent; pass NULL");
  const mxs_status status = options.secret ? read_secret(secret, options.secret) : MXS_OK;
  return status == MXS_OK ? check_comm_options(options) : status;
}

// A place of its own at the address of the parent's.
mxs_status open_rendezvous(Comm &comm, const Comm &parent, SplitBootstrap &bootstrap) {
  if (comm.rank_count == 1) return MXS_OK;
  const std::string &address = parent.rendezvous->place(parent.rank).address;
  return Rendezvous::open(&comm.rendezvous, bootstrap, MXS_OK, address, comm.session, comm.secret);
}

mxs_status make_group(std::unique_ptr<Comm> *result, Comm &parent, SplitRounds *rounds,
                      const std::vector<Wish> &wishes, const std::shared_ptr<const Secret> &secret,
                      const mxs_comm_options &options, bool traced) {
  const std::vector<int> members = group_of(wishes, wishes[static_cast<size_t>(parent.rank)].color);
  const auto self = std::find(members.begin(), members.end(), parent.rank) - members.begin();
  const uint64_t number = wishes[static_cast<size_t>(members[0])].number;
  auto own = std::make_unique<SplitBootstrap>(rounds, parent, members, static_cast<int>(self), number);
  SplitBootstrap &bootstrap = *own;
  std::unique_ptr<Comm> comm;
  mxs_status status = fenced([&] {
    return create_comm_over(&comm, std::move(own), topology_of_ranks(parent.topology, members),
                            inherit_options(parent, options), parent.job, traced);
  });
  if (status != MXS_OK) return status;
  comm->origins = members;
  comm->secret = secret;
  status = open_rendezvous(*comm, parent, bootstrap);
  // Nobody has a comm that another of the group could not make.
  if (status == MXS_OK) status = bootstrap.settle(MXS_OK);
  if (status != MXS_OK && comm->tracer) comm->tracer->discard();
  if (status != MXS_OK) return status;
  bootstrap.finish();
  *result = std::move(comm);
  return MXS_OK;
}

}  // namespace

mxs_comm_options inherit_options(const Comm &parent, mxs_comm_options options) {
  if (!options.transport && !parent.forced_transport.empty()) options.transport = parent.forced_transport.c_str();
  if (options.timeout_ns == 0) options.timeout_ns = parent.timeout_ns;
  if (options.thread_count == 0) options.thread_count = parent.thread_count;
  if (options.progress == MXS_PROGRESS_CHOSEN) options.progress = parent.forced_progress;
  if (options.device == 0) options.device = parent.asked_device;
  return options;
}

mxs_status refuse_split(Comm &parent, mxs_status own) { return settle_over_ranks(parent, own, "mxs_comm_split"); }

mxs_status split_comm(std::unique_ptr<Comm> *result, Comm &parent, int32_t color, int32_t key,
                      const mxs_comm_options &options, bool traced) {
  std::shared_ptr<const Secret> secret = parent.secret;
  mxs_status status = refuse_split(parent, check_split(color, options, &secret));
  if (status != MXS_OK) return status;
  const Wish mine = {color, key, random_number() | 1};
  std::vector<Wish> wishes(static_cast<size_t>(parent.rank_count));
  status = parent.agree(&mine, wishes.data(), sizeof mine, 0);
  if (status != MXS_OK) return status;
  parent.bootstrap->watch();
  SplitRounds rounds(parent);
  std::unique_ptr<Comm> comm;
  mxs_status own = MXS_OK;
  if (color != MXS_NO_COLOR)
    own = fenced([&] { return make_group(&comm, parent, &rounds, wishes, secret, options, traced); });
  const std::string sentence = own == MXS_OK ? "" : last_error_text();
  status = rounds.serve();
  if (own != MXS_OK) return set_error(own, "%s", sentence.c_str());
  if (status != MXS_OK) return status;
  if (traced) parent.mark("split", comm ? comm->session : 0);
  *result = std::move(comm);
  return MXS_OK;
}

}  // namespace mxs
