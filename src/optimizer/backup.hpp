// SPDX-License-Identifier: Apache-2.0
// Backup: what this rank owns on another rank as well. See "Backup." in include/matrixshard/optimizer.h; who keeps
// whom, and how many bytes: plan/keepers.hpp.
//
//   backup_bytes.cpp   where each piece lies in a rank's packed bytes, of any rank
//   backup.cpp         snapshots, the exchange, which backups are complete
//   recover.cpp        a new optimizer filled from one whose comm has failed
//   recover_runs.cpp   what goes where then
//
// Backups are numbered from 1, alike on all ranks, and take turns on two places: that of its own and that of the wards'
// bytes. Most are of the step that has just been done; they set off at its end, and the agreement of the next step
// waits for them. One is made anew before a step changes anything if some rank's agreement says that its bytes have
// changed since: before the first step, after a load or mxs_optimizer_set_step_number, after mxs_unit_commit or
// mxs_optimizer_state, whose view is writable. A second agreement then tells that it is everywhere. So from the first
// step after any of these on there is a backup with them. A commit between two steps leaves the backups from before it
// good; a load or set_step_number ends them at once, so that nobody goes back to before it.
//
// What two places are enough for: whoever begins backup n + 1 has been in an agreement that says that all ranks have n,
// so that n - 1, which it overwrites, is wanted by nobody.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "layout/layout.hpp"
#include "optimizer/exchange.hpp"
#include "optimizer/stepper.hpp"
#include "plan/keepers.hpp"
#include "unit/unit.hpp"

namespace mxs {

// What a stepper keeps for one placement.
struct StateShape {
  std::vector<StatePart> parts;
  uint64_t bytes = 0;
};

// A piece that some rank owns, in that rank's packed bytes.
struct PackedPiece {
  size_t unit = 0;         // its place in the optimizer
  uint64_t placement = 0;  // of that unit's plan
  int tensor = 0;
  uint64_t values_offset = 0, values_bytes = 0;  // masters, or weights where there are none
  uint64_t state_offset = 0;
  const StateShape *state = nullptr;             // nullptr: it has none
};
struct PackedRank {
  std::vector<PackedPiece> pieces;
  uint64_t bytes = 0;
};

// All ranks' packed bytes.
class PackedRanks {
 public:
  // state_of: what the rule keeps for a placement of a unit; *shape stays nullptr where nothing steps it here.
  using StateOf = std::function<mxs_status(Unit &unit, uint64_t placement, std::shared_ptr<const StateShape> *shape)>;
  mxs_status describe(const std::vector<Unit *> &units, int rank_count, const StateOf &state_of);

  const PackedRank &of(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  int rank_count() const { return static_cast<int>(ranks_.size()); }

 private:
  std::vector<PackedRank> ranks_;
  std::vector<std::shared_ptr<const StateShape>> shapes_;
};

// The first bytes of a copy.
struct BackupHead {
  uint64_t number = 0, step_number = 0;
  uint64_t disorder = 0;  // 1: that rank has left a tensor out of a step, or a load of it has failed
  uint64_t reserved[5] = {};
};
static_assert(sizeof(BackupHead) == backup_head_bytes);

// A complete copy: number 0 is none.
struct BackupTag {
  uint64_t number = 0, step_number = 0;
};

class Backup {
 public:
  // Where a piece of this rank lies at work.
  struct Live {
    std::byte *values = nullptr, *state = nullptr;
  };

  // Collective: makes the exchange. packed: of `comm`'s ranks; live: of this rank's pieces, in its order.
  static mxs_status create(std::unique_ptr<Backup> *backup, const MakeExchange &make, const Topology &topology,
                           int rank, PackedRanks packed, std::vector<Live> live);
  // What is in flight is waited for; a comm that has failed keeps the memory until peers can't reach it any more.
  ~Backup();

  bool alone() const { return packed_.rank_count() == 1; }
  uint64_t bytes() const { return memory_bytes_; }
  const PackedRanks &packed() const { return packed_; }
  const std::vector<int> &wards() const { return wards_; }

  // Until the one that has set off is here and there.
  mxs_status finish();
  // The comm has failed: what had come by then is as good as if it had been waited for.
  mxs_status finish_after_failure() { return in_flight_ && exchange_->complete() ? arrived() : MXS_OK; }
  // Copies the live bytes and sets off, when the one before has come.
  mxs_status begin(uint64_t step_number, bool in_disorder);
  // The latest that this rank has of its wards, complete.
  uint64_t kept() const { return kept_; }
  // None of those so far is good any more.
  void forget();

  // Of this rank's own bytes, and of its wards'; which are good, in no order.
  std::array<BackupTag, 2> own() const;
  std::array<BackupTag, 2> of_wards() const;
  // nullptr: it is in neither place. ward: one of wards().
  const std::byte *own_copy(uint64_t number) const;
  const std::byte *ward_copy(int ward, uint64_t number) const;
  // The live bytes as a copy has them. `copy` has room for this rank's packed bytes.
  void pack(std::byte *copy) const;
  const std::vector<Live> &live() const { return live_; }

 private:
  struct Place {
    std::byte *own = nullptr, *wards = nullptr;
    BackupTag own_tag, wards_tag;
  };

  Backup() = default;
  mxs_status take_memory();
  mxs_status make_exchange(const MakeExchange &make, const Topology &topology);
  Place &place_of(uint64_t number) { return places_[number % 2]; }
  const Place &place_of(uint64_t number) const { return places_[number % 2]; }
  mxs_status arrived();
  mxs_status read_heads(const Place &place, uint64_t *step_number, bool *in_disorder) const;

  int rank_ = 0;
  PackedRanks packed_;
  std::vector<Live> live_;
  std::vector<int> wards_;
  uint64_t own_bytes_ = 0, wards_bytes_ = 0, memory_bytes_ = 0;
  std::shared_ptr<std::byte> memory_;
  Place places_[2];
  std::unique_ptr<Exchange> exchange_;
  uint64_t number_ = 0, kept_ = 0, forgotten_ = 0;  // the latest; of the wards; those up to it are no good
  bool in_flight_ = false;
};

}  // namespace mxs
