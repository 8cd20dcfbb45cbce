// SPDX-License-Identifier: Apache-2.0
// A new optimizer filled from one whose comm has failed. Nothing is asked of the failed comm: its optimizer is memory.
//
//   tell     each rank tells which rank it was and which backups it has, its own and its wards'. Who is not told of is
//            lost, so it does not matter how the new comm came about
//   choose   the newest backup that all ranks' bytes exist of: alike everywhere, from what was told
//   match    tensors by name; which bytes go where (recover_runs.cpp). So far nothing has changed
//   move     in rounds of at most round_bytes in and out of each rank, by a reshard each; what stays here is copied
//   finish   weights are rounded from masters, the step number is set, and a first backup is made for the new comm
//
// Only copies are read, never what the failed optimizer works on: that may be in the middle of a step.
#include <algorithm>
#include <cstring>

#include "base/hash.hpp"
#include "base/status.hpp"
#include "kernels/kernels.hpp"
#include "optimizer/optimizer.hpp"
#include "optimizer/recover_runs.hpp"

namespace mxs {
namespace {

constexpr uint64_t round_bytes = uint64_t{16} << 20;

// As it travels.
struct Told {
  uint64_t session = 0, units = 0, step_number = 0;
  int64_t rank = 0, rank_count = 0;
  BackupTag own[2], of_wards[2];
};

bool has(const BackupTag (&tags)[2], uint64_t number) { return tags[0].number == number || tags[1].number == number; }

}  // namespace

class Recovery {
 public:
  Recovery(Optimizer &now, const Optimizer &failed) : now_(now), failed_(failed), comm_(now.comm_) {}

  // The same on all ranks.
  mxs_status tell();
  mxs_status choose();
  mxs_status match();
  // Changes units and state.
  mxs_status move();
  mxs_recovery result() const;
  uint64_t step_number() const { return chosen_.step_number; }

 private:
  mxs_status check_told() const;
  bool available(int old_rank, uint64_t number) const;
  mxs_status nothing_to_choose() const;
  const Topology &topology() const { return failed_.units_[0]->plan().topology; }
  const PackedRank &packed_of(int old_rank) const { return failed_.backup_->packed().of(old_rank); }
  const std::byte *copy_of(int old_rank) const;
  std::byte *place_of(const RecoverRun &run) const;
  mxs_status move_round(const std::vector<RecoverRun> &round);

  Optimizer &now_;
  const Optimizer &failed_;
  const OptimizerComm &comm_;
  std::vector<Told> told_;      // by rank of the new comm
  std::vector<int> new_rank_;   // by rank of the failed one; -1: it is lost
  BackupTag chosen_;
  std::vector<int> source_of_;  // by rank of the failed comm: who has its bytes
  std::vector<RecoverRun> runs_;
  std::vector<std::byte> alone_;  // a failed comm of one rank has no copies: what it works on
  struct Buffers {
    std::vector<std::byte> out, in;
  };
  std::shared_ptr<Buffers> buffers_ = std::make_shared<Buffers>();  // of a round
};

// Ranks of another comm may have other numbers and another count: all are looked at before one is believed.
mxs_status Recovery::check_told() const {
  std::vector<bool> taken(static_cast<size_t>(failed_.comm_.rank_count));
  for (size_t rank = 0; rank < told_.size(); ++rank) {
    const Told &told = told_[rank], &first = told_[0];
    if (told.session != first.session || told.rank_count != first.rank_count || told.units != first.units)
      return set_error(MXS_INVALID_ARGUMENT, "rank %zu recovers from an optimizer of another comm, or of other units, "
                       "than rank 0", rank);
  }
  for (const Told &told : told_) {
    if (told.rank < 0 || told.rank >= told.rank_count || taken[static_cast<size_t>(told.rank)])
      return set_error(MXS_INVALID_ARGUMENT, "two ranks recover from rank %lld of the failed comm",
                       static_cast<long long>(told.rank));
    taken[static_cast<size_t>(told.rank)] = true;
  }
  return MXS_OK;
}

mxs_status Recovery::tell() {
  Told mine;
  Backup &backup = *failed_.backup_;
  const mxs_status status = comm_.settle_recovery(backup.finish_after_failure());
  if (status != MXS_OK) return status;
  Fingerprint units;
  for (const Unit *unit : failed_.units_)
    units.add(unit->plan().fingerprint).add(static_cast<uint64_t>(unit->index()));
  mine.session = failed_.comm_.session;
  mine.units = units.value();
  mine.step_number = failed_.step_number_;
  mine.rank = failed_.comm_.rank;
  mine.rank_count = failed_.comm_.rank_count;
  std::copy_n(backup.own().begin(), 2, mine.own);
  std::copy_n(backup.of_wards().begin(), 2, mine.of_wards);
  // One rank has no keeper, and no copies; it can't have been lost either.
  if (backup.alone() && failed_.broken_.empty()) mine.own[0] = {1, failed_.step_number_};
  told_.resize(static_cast<size_t>(comm_.rank_count));
  return comm_.gather(&mine, told_.data(), sizeof mine);
}

bool Recovery::available(int old_rank, uint64_t number) const {
  if (packed_of(old_rank).bytes == 0) return true;
  const int now = new_rank_[static_cast<size_t>(old_rank)];
  if (now >= 0) return has(told_[static_cast<size_t>(now)].own, number);
  const int keeper = keeper_of(topology(), old_rank);
  const int kept_by = keeper < 0 ? -1 : new_rank_[static_cast<size_t>(keeper)];
  return kept_by >= 0 && has(told_[static_cast<size_t>(kept_by)].of_wards, number);
}

mxs_status Recovery::nothing_to_choose() const {
  constexpr char advice[] = "load a checkpoint";
  for (size_t rank = 0; rank < new_rank_.size(); ++rank) {
    const int keeper = keeper_of(topology(), static_cast<int>(rank));
    if (new_rank_[rank] >= 0 || keeper < 0 || new_rank_[static_cast<size_t>(keeper)] >= 0) continue;
    if (packed_of(static_cast<int>(rank)).bytes == 0) continue;
    return set_error(MXS_NOT_FOUND, "rank %zu of the failed comm and rank %d, which kept its backup, are both gone; %s",
                     rank, keeper, advice);
  }
  return set_error(MXS_NOT_FOUND, "no backup is complete on all ranks: none was made since the optimizer was made, a "
                   "checkpoint was loaded or the step number was set, which the next step would have done; %s", advice);
}

mxs_status Recovery::choose() {
  const uint64_t ranks_before = static_cast<uint64_t>(failed_.comm_.rank_count);
  const mxs_status status = check_told();
  if (status != MXS_OK) return status;
  new_rank_.assign(ranks_before, -1);
  for (int rank = 0; rank < comm_.rank_count; ++rank)
    new_rank_[static_cast<size_t>(told_[static_cast<size_t>(rank)].rank)] = rank;
  for (const Told &told : told_)
    for (const BackupTag &tag : {told.own[0], told.own[1], told.of_wards[0], told.of_wards[1]}) {
      bool everywhere = tag.number > chosen_.number;
      for (size_t rank = 0; rank < ranks_before && everywhere; ++rank)
        everywhere = available(static_cast<int>(rank), tag.number);
      if (everywhere) chosen_ = tag;
    }
  return chosen_.number == 0 ? nothing_to_choose() : MXS_OK;
}

mxs_status Recovery::match() {
  const char *const options = failed_.options().difference(now_.options());
  if (*options)
    return set_error(MXS_MISMATCH, "the new optimizer was made with %s than the one that has failed; nothing changed",
                     options);
  for (size_t rank = 0; rank < new_rank_.size(); ++rank) {
    const int keeper = keeper_of(topology(), static_cast<int>(rank));
    source_of_.push_back(new_rank_[rank] >= 0 || keeper < 0 ? new_rank_[rank]
                                                            : new_rank_[static_cast<size_t>(keeper)]);
  }
  mxs_status status = recover_runs({&failed_.units_, &failed_.backup_->packed()},
                                   {&now_.units_, &now_.backup_->packed()}, source_of_, &runs_);
  if (status != MXS_OK) return status;
  if (failed_.backup_->alone()) {
    alone_.resize(packed_of(0).bytes);
    failed_.backup_->pack(alone_.data());
  }
  // What is sent and comes in a round.
  uint64_t bytes_out = 0, bytes_in = 0;
  for (const RecoverRun &run : runs_) {
    if (run.source == run.target) continue;
    if (run.source == comm_.rank) bytes_out += run.bytes;
    if (run.target == comm_.rank) bytes_in += run.bytes;
  }
  buffers_->out.resize(std::min(bytes_out, round_bytes));
  buffers_->in.resize(std::min(bytes_in, round_bytes));
  return MXS_OK;
}

const std::byte *Recovery::copy_of(int old_rank) const {
  if (failed_.backup_->alone()) return alone_.data();
  if (old_rank == failed_.comm_.rank) return failed_.backup_->own_copy(chosen_.number);
  return failed_.backup_->ward_copy(old_rank, chosen_.number);
}

std::byte *Recovery::place_of(const RecoverRun &run) const {
  const Backup::Live &live = now_.backup_->live()[run.target_piece];
  return (run.is_state ? live.state : live.values) + run.target_offset;
}

mxs_status Recovery::move() {
  const size_t ranks = static_cast<size_t>(comm_.rank_count);
  std::vector<uint64_t> out(ranks), in(ranks);
  std::vector<RecoverRun> round;
  for (RecoverRun run : runs_) {
    if (run.source == run.target) {
      if (run.target == comm_.rank) std::memcpy(place_of(run), copy_of(run.old_owner) + run.source_offset, run.bytes);
      continue;
    }
    while (run.bytes > 0) {
      uint64_t &sent = out[static_cast<size_t>(run.source)], &got = in[static_cast<size_t>(run.target)];
      RecoverRun part = run;
      part.bytes = std::min({run.bytes, round_bytes - sent, round_bytes - got});
      if (part.bytes == 0) {
        const mxs_status status = move_round(round);
        if (status != MXS_OK) return status;
        round.clear();
        std::fill(out.begin(), out.end(), 0);
        std::fill(in.begin(), in.end(), 0);
        continue;
      }
      sent += part.bytes;
      got += part.bytes;
      round.push_back(part);
      run.source_offset += part.bytes;
      run.target_offset += part.bytes;
      run.bytes -= part.bytes;
    }
  }
  return round.empty() ? MXS_OK : move_round(round);
}

mxs_status Recovery::move_round(const std::vector<RecoverRun> &round) {
  std::vector<Segment> sources, targets;
  uint64_t offset = 0;
  std::byte *out = buffers_->out.data();
  for (const RecoverRun &run : round) {
    sources.push_back({run.source, offset, run.bytes});
    targets.push_back({run.target, offset, run.bytes});
    offset += run.bytes;
    if (run.source != comm_.rank) continue;
    std::memcpy(out, copy_of(run.old_owner) + run.source_offset, run.bytes);
    out += run.bytes;
  }
  Layout source, target;
  std::unique_ptr<Exchange> exchange;
  mxs_status status = make_layout(std::move(sources), comm_.rank_count, 1, &source);
  if (status == MXS_OK) status = make_layout(std::move(targets), comm_.rank_count, 1, &target);
  if (status == MXS_OK) status = comm_.make_exchange(&exchange, source, target);
  if (status != MXS_OK) return status;
  status = exchange->start(buffers_->out.data(), buffers_->in.data());
  if (status == MXS_OK) status = exchange->wait();
  if (status != MXS_OK) {
    exchange->keep(buffers_);
    return status;
  }
  const std::byte *in = buffers_->in.data();
  for (const RecoverRun &run : round) {
    if (run.target != comm_.rank) continue;
    std::memcpy(place_of(run), in, run.bytes);
    in += run.bytes;
  }
  return MXS_OK;
}

mxs_recovery Recovery::result() const {
  mxs_recovery result = MXS_RECOVERY_INIT;
  result.lost_count = static_cast<int32_t>(std::count(new_rank_.begin(), new_rank_.end(), -1));
  result.step_number = chosen_.step_number;
  for (const Told &told : told_) result.newest_step = std::max(result.newest_step, told.step_number);
  for (const RecoverRun &run : runs_) {
    if (run.target == comm_.rank && run.source != run.target) result.bytes_in += run.bytes;
    if (new_rank_[static_cast<size_t>(run.old_owner)] < 0) result.bytes_restored += run.bytes;
  }
  return result;
}

// What can be said before any other rank is asked.
mxs_status Optimizer::check_recover(const Optimizer *failed) const {
  if (failed == this) return set_error(MXS_INVALID_ARGUMENT, "an optimizer can't be recovered from itself");
  if (!backup_ || !failed->backup_)
    return set_error(MXS_INVALID_ARGUMENT, "%s optimizer was made without options.backup",
                     backup_ ? "the failed" : "the new");
  if (failed->comm_.session == comm_.session)
    return set_error(MXS_INVALID_ARGUMENT, "both optimizers are of one comm; make the new one's units on a comm of the "
                     "ranks that are alive (mxs_comm_shrink)");
  if (!failed->comm_.has_failed())
    return set_error(MXS_INVALID_ARGUMENT, "the comm of the optimizer to recover from has not failed; mxs_comm_abort "
                     "fails it");
  return check_idle("mxs_optimizer_recover");
}

mxs_status Optimizer::recover(mxs_status own, const Optimizer *failed, mxs_recovery *recovery) {
  for (Unit *unit : units_) {
    const mxs_status status = unit->wait_reduce(0);
    if (status != MXS_OK) return status;
  }
  if (own == MXS_OK) own = check_recover(failed);
  mxs_status status = comm_.settle_recovery(own);
  if (status != MXS_OK) return status;
  Recovery run(*this, *failed);
  status = run.tell();
  if (status == MXS_OK) status = run.choose();
  if (status != MXS_OK) return status;
  status = comm_.settle_recovery(fenced([&] { return run.match(); }));
  if (status != MXS_OK) return status;
  // No rank reads this one's weights any more when all have come to the end of it.
  for (Unit *unit : units_) unit->end_views();
  status = comm_.settle_recovery(MXS_OK);
  if (status != MXS_OK) return status;
  status = comm_.settle_recovery(fenced([&] { return run.move(); }));
  for (Unit *unit : units_) {
    for (const OwnedPlacement &owned : unit->owned())
      if (owned.master)
        kernels().narrow(owned.weights, owned.dtype, static_cast<const float *>(owned.master), owned.element_count);
    unit->finish_step(true);
  }
  if (status == MXS_OK) status = resume(run.step_number());
  if (status == MXS_OK) status = renew_backup();
  if (status != MXS_OK) {
    stop_after_failed_load("a recovery failed when it had begun to replace weights and state");
    return status;
  }
  *recovery = run.result();
  return MXS_OK;
}

}  // namespace mxs
