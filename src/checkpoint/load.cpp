// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load.hpp"

#include <algorithm>
#include <string>

#include "base/hash.hpp"
#include "base/status.hpp"
#include "checkpoint/load_reads.hpp"
#include "checkpoint/match.hpp"
#include "checkpoint/patience.hpp"
#include "collective/comm.hpp"

namespace mxs {

namespace {

// How a part of it went here. A failure anywhere is one everywhere.
mxs_status settle(const std::vector<Unit *> &units, mxs_status own, uint64_t timeout_ns = 0) {
  const mxs_status status = settle_over_ranks(units[0]->comm(), own, "mxs_checkpoint_load", timeout_ns);
  Comm *const replicas = units[0]->replicas();
  return replicas ? settle_over_ranks(*replicas, status, "mxs_checkpoint_load of another replica", timeout_ns)
                  : status;
}

// Before anything else goes over replicas: a reduce may be in flight there.
mxs_status wait_reduces(const std::vector<Unit *> &units) {
  for (Unit *unit : units) {
    const mxs_status status = unit->wait_reduce(0);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// What all ranks must pass alike.
struct Passed {
  uint64_t checkpoint, rest;
};

mxs_status compare_passed(Comm &comm, const Passed &mine, const char *whose) {
  std::vector<Passed> all(static_cast<size_t>(comm.rank_count));
  const mxs_status status = comm.agree(&mine, all.data(), sizeof mine, 0);
  if (status != MXS_OK) return status;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].checkpoint != all[0].checkpoint)
      return set_error(MXS_MISMATCH, "%s %zu loads another checkpoint than %s 0; all must open the same", whose, rank,
                       whose);
    if (all[rank].rest != all[0].rest)
      return set_error(MXS_MISMATCH, "%s %zu passes other units or flags to mxs_checkpoint_load than %s 0, or an "
                       "optimizer where that passes none", whose, rank, whose);
  }
  return MXS_OK;
}

class Loading {
 public:
  Loading(const OpenedCheckpoint &opened, const std::vector<Unit *> &units, Optimizer *optimizer,
          const mxs_load_options &options)
      : opened_(opened), units_(units), optimizer_(optimizer),
        stateful_(options.flags & MXS_LOAD_WEIGHTS_ONLY ? nullptr : optimizer), options_(options),
        comm_(units[0]->comm()) {}

  mxs_status run() {
    mxs_status status = wait_reduces(units_);
    if (status != MXS_OK) return status;
    status = settle(units_, check());
    if (status == MXS_OK) status = settle(units_, compare());
    if (status == MXS_OK) status = match();
    if (status != MXS_OK) return status;
    // From here on weights change. No rank reads this one's any more when all have come to the end of it.
    status = end_views();
    // An agreement holds no more.
    if (status == MXS_OK && optimizer_) status = optimizer_->set_step_number(optimizer_->step_number());
    status = settle(units_, status);
    if (status != MXS_OK) return status;
    status = fenced([&] { return read(); });
    status = settle(units_, finish(status), patience_of(options_.timeout_ns));
    if (status == MXS_OK && stateful_) status = stateful_->resume(opened_.manifest.step_number);
    if (status != MXS_OK && stateful_) stateful_->stop_after_failed_load();
    return status;
  }

 private:
  mxs_status check() const {
    for (const Unit *unit : units_) {
      const mxs_status status = unit->check_idle("mxs_checkpoint_load");
      if (status != MXS_OK) return status;
    }
    return MXS_OK;
  }

  mxs_status compare() const {
    std::vector<int> numbers = unit_numbers();
    Fingerprint rest;
    rest.add(static_cast<uint64_t>(options_.flags)).add(uint64_t{stateful_ != nullptr}).add(plan().fingerprint);
    for (const int number : numbers) rest.add(static_cast<uint64_t>(number));
    const Passed mine = {opened_.hash, rest.value()};
    const mxs_status status = compare_passed(comm_, mine, "rank");
    Comm *const replicas = units_[0]->replicas();
    if (!replicas) return status;
    const mxs_status other = compare_passed(*replicas, mine, "replica");
    return status == MXS_OK ? other : status;
  }

  const Plan &plan() const { return units_[0]->plan(); }

  std::vector<int> unit_numbers() const {
    std::vector<int> numbers;
    for (const Unit *unit : units_) numbers.push_back(unit->index());
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  }

  // Refusals are the same on all ranks, but for state that only its owner can look for.
  mxs_status match() {
    LoadMatch found;
    std::vector<std::vector<std::byte>> of_owners;
    mxs_status status = fenced([&] { return match_own(&found); });
    std::string sentence = status == MXS_OK ? "" : last_error_text();
    const mxs_status told = gather_over_ranks(comm_, new_state_blob(), &of_owners);
    if (told != MXS_OK) return told;
    if (options_.tell) tell(&found, of_owners);
    if (status != MXS_OK) set_error(status, "%s", sentence.c_str());
    return settle(units_, status);
  }

  mxs_status match_own(LoadMatch *found) {
    LoadOptimizer state;
    LoadRequest request;
    request.plan = &plan();
    request.units = unit_numbers();
    request.flags = options_.flags;
    if (stateful_) {
      state.parts_of = [this](mxs_rule rule) -> const std::vector<StatePart> & { return stateful_->parts_of(rule); };
      state.preset_of = [this](mxs_rule rule) { return stateful_->preset_of(rule); };
      state.options = stateful_->options();
      request.optimizer = &state;
    }
    const mxs_status status = match_checkpoint(opened_, request, found);
    if (status != MXS_OK) return status;
    return list_reads(opened_, *found, units_, stateful_, options_.flags, &reads_);
  }

  std::vector<std::byte> new_state_blob() const {
    std::vector<int> tensors = reads_.new_state_tensors;
    std::sort(tensors.begin(), tensors.end());
    tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    const std::byte *const bytes = reinterpret_cast<const std::byte *>(tensors.data());
    return {bytes, bytes + tensors.size() * sizeof(int)};
  }

  void tell(LoadMatch *found, const std::vector<std::vector<std::byte>> &of_owners) const {
    std::vector<int> tensors;
    for (const std::vector<std::byte> &blob : of_owners)
      for (size_t at = 0; at + sizeof(int) <= blob.size(); at += sizeof(int)) {
        int tensor = 0;
        std::copy_n(blob.data() + at, sizeof tensor, reinterpret_cast<std::byte *>(&tensor));
        tensors.push_back(tensor);
      }
    std::sort(tensors.begin(), tensors.end());
    tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    for (const int tensor : tensors) found->new_state.push_back(plan().tensors[static_cast<size_t>(tensor)].name);
    const std::pair<int32_t, const std::vector<std::string> *> lists[] = {
        {MXS_LOAD_TOLD_MISSING, &found->missing},
        {MXS_LOAD_TOLD_EXTRA, &found->extra},
        {MXS_LOAD_TOLD_CONVERTED, &found->converted},
        {MXS_LOAD_TOLD_NEW_STATE, &found->new_state}};
    for (const auto &[what, names] : lists)
      for (const std::string &name : *names) options_.tell(options_.tell_context, what, name.c_str());
  }

  mxs_status read() {
    for (const OptimizedPiece *piece : reads_.new_states) {
      const mxs_status status = stateful_->init_state(*piece);
      if (status != MXS_OK) return status;
    }
    const std::vector<ReadRange> ranges = ranges_of(opened_, reads_.pieces, device_bytes_.get());
    uint64_t total = 0;
    for (const ReadRange &range : ranges) total += range.bytes;
    IoProgress progress;
    if (options_.progress)
      progress.go_on = [&](uint64_t done) {
        return options_.progress(options_.progress_context, std::min(done, total), total) == 0;
      };
    return read_ranges(opened_.path, ranges, !(options_.flags & MXS_LOAD_UNVERIFIED), &progress);
  }

  // Units in CUDA memory: what is still read of them is over before the copies begin.
  mxs_status end_views() {
    Device *const device = units_[0]->device();
    mxs_status status = device ? DeviceBytes::create(&device_bytes_, *device) : MXS_OK;
    for (Unit *unit : units_) {
      if (!device)
        unit->end_views();
      else if (status == MXS_OK)
        status = unit->end_views_stream(device_bytes_->stream());
    }
    return status;
  }

  mxs_status finish(mxs_status read) {
    for (Unit *unit : units_) {
      if (!device_bytes_) {
        unit->finish_step(true);
        continue;
      }
      const std::string sentence = read == MXS_OK ? "" : last_error_text();
      const mxs_status status = unit->finish_step(true, device_bytes_->stream());
      if (read == MXS_OK) read = status;
      else set_error(read, "%s", sentence.c_str());
    }
    return read;
  }

  const OpenedCheckpoint &opened_;
  const std::vector<Unit *> &units_;
  Optimizer *const optimizer_, *const stateful_;  // stateful_ nullptr: weights and masters alone
  const mxs_load_options &options_;
  Comm &comm_;
  LoadReads reads_;
  std::unique_ptr<DeviceBytes> device_bytes_;  // nullptr: host memory
};

}  // namespace

mxs_status refuse_load(const std::vector<Unit *> &units, mxs_status own) {
  const std::string sentence = last_error_text();
  const mxs_status failed = wait_reduces(units);
  return failed == MXS_OK ? settle(units, set_error(own, "%s", sentence.c_str())) : failed;
}

mxs_status load_checkpoint(const OpenedCheckpoint &opened, const std::vector<Unit *> &units, Optimizer *optimizer,
                           const mxs_load_options &options) {
  return Loading(opened, units, optimizer, options).run();
}

}  // namespace mxs
