// SPDX-License-Identifier: Apache-2.0
// Pieces of a tensor lie one after the other in it, under both plans, and are walked together as in plan/moves.cpp. A
// piece that is the same under both takes its state along as it is; others are cut, which only state by element allows.
#include "optimizer/recover_runs.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "plan/memory.hpp"

namespace mxs {
namespace {

struct OwnedPiece {
  int rank = 0;
  size_t index = 0;  // of the rank's pieces
  const PackedPiece *packed = nullptr;
  uint64_t begin = 0, end = 0;  // elements of the tensor
};

struct OwnedTensor {
  const Plan *plan = nullptr;
  const PlannedTensor *tensor = nullptr;
  std::vector<OwnedPiece> pieces;  // ascending
};

using Tensors = std::unordered_map<std::string_view, OwnedTensor>;

Tensors tensors_of(const RecoverSide &side) {
  Tensors tensors;
  for (const Unit *unit : *side.units)
    for (const int index : unit->plan().units[static_cast<size_t>(unit->index())].tensors) {
      const PlannedTensor &tensor = unit->plan().tensors[static_cast<size_t>(index)];
      tensors[tensor.name] = {&unit->plan(), &tensor, {}};
    }
  for (int rank = 0; rank < side.packed->rank_count(); ++rank) {
    const std::vector<PackedPiece> &pieces = side.packed->of(rank).pieces;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Plan &plan = (*side.units)[pieces[i].unit]->plan();
      const Placement &placement = plan.placements[pieces[i].placement];
      tensors[plan.tensors[static_cast<size_t>(placement.tensor)].name].pieces.push_back(
          {rank, i, &pieces[i], placement.element_offset, placement.element_offset + placement.element_count});
    }
  }
  for (auto &[name, tensor] : tensors)
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const OwnedPiece &a, const OwnedPiece &b) { return a.begin < b.begin; });
  return tensors;
}

std::string_view name_of_tie(const OwnedTensor &owned) {
  const int tied_to = owned.tensor->tied_to;
  return tied_to < 0 ? std::string_view() : owned.plan->tensors[static_cast<size_t>(tied_to)].name;
}

mxs_status differs(const OwnedTensor &now, const char *what) {
  return set_error(MXS_MISMATCH, "tensor \"%.200s\" has %s than in the optimizer that has failed; nothing changed",
                   now.tensor->name.c_str(), what);
}

mxs_status check_alike(const OwnedTensor &old, const OwnedTensor &now) {
  if (old.tensor->shape != now.tensor->shape) return differs(now, "another shape");
  if (old.tensor->dtype != now.tensor->dtype) return differs(now, "another dtype");
  if (old.tensor->master_dtype != now.tensor->master_dtype) return differs(now, "masters of another dtype");
  if (old.tensor->rule != now.tensor->rule) return differs(now, "another rule");
  return name_of_tie(old) == name_of_tie(now) ? MXS_OK : differs(now, "another tie");
}

bool same_part(const StatePart &a, const StatePart &b) {
  return a.name == b.name && a.scope == b.scope && a.dtype == b.dtype;
}

bool same_shape(const StatePart &a, const StatePart &b) {
  return same_part(a, b) && a.shape == b.shape && a.offset == b.offset && a.bytes == b.bytes;
}

class Runs {
 public:
  Runs(const std::vector<int> &source_of, std::vector<RecoverRun> *runs) : source_of_(source_of), runs_(*runs) {}

  mxs_status add(const OwnedTensor &old, const OwnedTensor &now) {
    const uint64_t width = dtype_bytes(now.tensor->master_dtype);  // of weights, where they are the masters
    for (size_t from = 0, to = 0; from < old.pieces.size() && to < now.pieces.size();) {
      const OwnedPiece &source = old.pieces[from], &target = now.pieces[to];
      const uint64_t begin = std::max(source.begin, target.begin), end = std::min(source.end, target.end);
      add_run(source, target, false, source.packed->values_offset + (begin - source.begin) * width,
              (begin - target.begin) * width, (end - begin) * width);
      const mxs_status status = add_state(now, source, target, begin, end);
      if (status != MXS_OK) return status;
      from += source.end == end;
      to += target.end == end;
    }
    return MXS_OK;
  }

 private:
  void add_run(const OwnedPiece &source, const OwnedPiece &target, bool is_state, uint64_t source_offset,
               uint64_t target_offset, uint64_t bytes) {
    if (bytes == 0) return;
    runs_.push_back({source_of_[static_cast<size_t>(source.rank)], target.rank, source.rank, source_offset,
                     target.index, is_state, target_offset, bytes});
  }

  mxs_status add_state(const OwnedTensor &now, const OwnedPiece &source, const OwnedPiece &target, uint64_t begin,
                       uint64_t end) {
    const StateShape *const from = source.packed->state, *const to = target.packed->state;
    if (!from && !to) return MXS_OK;
    if (!from || !to || from->parts.size() != to->parts.size() ||
        !std::equal(from->parts.begin(), from->parts.end(), to->parts.begin(), same_part))
      return differs(now, "other state");
    const bool whole = source.begin == target.begin && source.end == target.end;
    if (whole) {
      if (!std::equal(from->parts.begin(), from->parts.end(), to->parts.begin(), same_shape))
        return differs(now, "state of other matrices");
      add_run(source, target, true, source.packed->state_offset, 0, from->bytes);
      return MXS_OK;
    }
    for (size_t i = 0; i < from->parts.size(); ++i) {
      if (from->parts[i].scope != StateScope::element)
        return set_error(MXS_NOT_BUILT, "tensor \"%.200s\" is cut into other pieces than in the optimizer that has "
                         "failed, and its state \"%s\" belongs to whole ones; nothing changed: plan with "
                         "mxs_plan_options.previous", now.tensor->name.c_str(), from->parts[i].name.c_str());
      const uint64_t width = dtype_bytes(from->parts[i].dtype);
      add_run(source, target, true,
              source.packed->state_offset + from->parts[i].offset + (begin - source.begin) * width,
              to->parts[i].offset + (begin - target.begin) * width, (end - begin) * width);
    }
    return MXS_OK;
  }

  const std::vector<int> &source_of_;
  std::vector<RecoverRun> &runs_;
};

}  // namespace

mxs_status recover_runs(const RecoverSide &failed, const RecoverSide &now, const std::vector<int> &source_of,
                        std::vector<RecoverRun> *runs) {
  const Tensors old_tensors = tensors_of(failed), new_tensors = tensors_of(now);
  for (const auto &[name, tensor] : old_tensors)
    if (!new_tensors.count(name))
      return set_error(MXS_MISMATCH, "tensor \"%.200s\" is in the optimizer that has failed only; nothing changed",
                       tensor.tensor->name.c_str());
  Runs made(source_of, runs);
  for (const Unit *unit : *now.units)  // in an order that all ranks have
    for (const int index : unit->plan().units[static_cast<size_t>(unit->index())].tensors) {
      const std::string &name = unit->plan().tensors[static_cast<size_t>(index)].name;
      const auto found = old_tensors.find(name);
      if (found == old_tensors.end())
        return set_error(MXS_MISMATCH, "tensor \"%.200s\" is not in the optimizer that has failed; nothing changed",
                         name.c_str());
      const OwnedTensor &tensor = new_tensors.at(name);
      mxs_status status = check_alike(found->second, tensor);
      if (status == MXS_OK) status = made.add(found->second, tensor);
      if (status != MXS_OK) return status;
    }
  return MXS_OK;
}

}  // namespace mxs
