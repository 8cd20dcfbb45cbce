// SPDX-License-Identifier: Apache-2.0
// From one plan to another: which elements go from whom to whom.
//
//   source   |   r0   |   r1   |   r2   |     both plans' pieces of a tensor are walked from its first element on; a
//   target   |      r0     |     r1     |     run ends where either piece ends, and those whose rank stays are left out
//   moves              1>0      2>1
//
// Ranks may have other numbers in the target's world, or be gone from it: what a lost one had is listed with source -1.
//
// Each element is listed at most once, and only if its owner changes: no list between these two plans has fewer bytes.
#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "plan/plan.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

using IndexOfName = std::unordered_map<std::string_view, size_t>;

IndexOfName index_names(const Plan &plan) {
  IndexOfName index_of_name;
  index_of_name.reserve(plan.tensors.size());
  for (size_t index = 0; index < plan.tensors.size(); ++index)
    index_of_name.emplace(plan.tensors[index].name, index);
  return index_of_name;
}

std::string_view name_of_tie(const Plan &plan, const PlannedTensor &tensor) {
  return tensor.tied_to < 0 ? std::string_view() : plan.tensors[static_cast<size_t>(tensor.tied_to)].name;
}

// Are both the same parameter?
mxs_status check_alike(const Plan &source, const PlannedTensor &old, const Plan &target, const PlannedTensor &now) {
  const char *name = now.name.c_str();
  if (old.shape != now.shape)
    return set_error(MXS_MISMATCH, "tensor \"%.200s\" has shape %s in the source plan and %s in the target plan", name,
                     shape_text(old.shape).c_str(), shape_text(now.shape).c_str());
  if (old.dtype != now.dtype)
    return set_error(MXS_MISMATCH, "tensor \"%.200s\" has dtype %s in the source plan and %s in the target plan", name,
                     mxs_dtype_name(old.dtype), mxs_dtype_name(now.dtype));
  if (name_of_tie(source, old) != name_of_tie(target, now))
    return set_error(MXS_MISMATCH,
                     "tensor \"%.200s\" is tied to \"%.200s\" in the source plan and to \"%.200s\" in the target plan "
                     "(\"\": to none)",
                     name, std::string(name_of_tie(source, old)).c_str(),
                     std::string(name_of_tie(target, now)).c_str());
  return MXS_OK;
}

// Has the source plan a tensor that the target plan lacks? Called when it has more of them.
mxs_status find_left_over(const Plan &source, const Plan &target) {
  const IndexOfName in_target = index_names(target);
  for (const PlannedTensor &tensor : source.tensors)
    if (!in_target.count(tensor.name))
      return set_error(MXS_MISMATCH, "tensor \"%.200s\" is in the source plan only", tensor.name.c_str());
  return MXS_OK;
}

// Steps through the pieces of a tensor, which lie one after the other in it.
class Pieces {
 public:
  Pieces(const Plan &plan, const PlannedTensor &tensor)
      : plan_(plan), index_(tensor.placement_index), end_(tensor.placement_index + tensor.placement_count) {
    pass(0);
  }
  bool at_end() const { return index_ == end_; }
  uint64_t index() const { return index_; }
  int owner() const { return piece().owner; }
  uint64_t end() const { return piece().element_offset + piece().element_count; }
  void pass(uint64_t offset) {
    while (index_ != end_ && end() <= offset) ++index_;
  }

 private:
  const Placement &piece() const { return plan_.placements[index_]; }
  const Plan &plan_;
  uint64_t index_, end_;
};

void add_moves(const Plan &source, const PlannedTensor &old, const Plan &target, int index,
               const std::vector<int> *rank_now, std::vector<PlanMove> *moves) {
  const PlannedTensor &now = target.tensors[static_cast<size_t>(index)];
  Pieces from(source, old), to(target, now);
  for (uint64_t offset = 0; !from.at_end() && !to.at_end();) {
    const uint64_t end = std::min(from.end(), to.end());
    const int owner = rank_now ? (*rank_now)[static_cast<size_t>(from.owner())] : from.owner();
    if (owner != to.owner())
      moves->push_back({index, owner, to.owner(), from.index(), to.index(), offset, end - offset,
                        (end - offset) * dtype_bytes(now.dtype)});
    from.pass(end);
    to.pass(end);
    offset = end;
  }
}

// rank_now nullptr: the source's own numbers, whatever the target's world.
mxs_status find_moves(const Plan &source, const Plan &target, const std::vector<int> *rank_now,
                      std::vector<PlanMove> *moves) {
  const IndexOfName in_source = index_names(source);
  std::vector<PlanMove> result;
  for (size_t index = 0; index < target.tensors.size(); ++index) {
    const PlannedTensor &now = target.tensors[index];
    const auto found = in_source.find(now.name);
    if (found == in_source.end())
      return set_error(MXS_MISMATCH, "tensor \"%.200s\" is in the target plan only", now.name.c_str());
    const PlannedTensor &old = source.tensors[found->second];
    const mxs_status status = check_alike(source, old, target, now);
    if (status != MXS_OK) return status;
    add_moves(source, old, target, static_cast<int>(index), rank_now, &result);  // tied ones have no pieces
  }
  if (source.tensors.size() > target.tensors.size()) return find_left_over(source, target);
  *moves = std::move(result);
  return MXS_OK;
}

}  // namespace

mxs_status plan_moves(const Plan &source, const Plan &target, std::vector<PlanMove> *moves) {
  return find_moves(source, target, nullptr, moves);
}

mxs_status plan_moves_from(const Plan &source, const Plan &target, const std::vector<int> &rank_now,
                           std::vector<PlanMove> *moves) {
  return find_moves(source, target, &rank_now, moves);
}

mxs_status renumber_ranks(const int32_t *earlier_ranks, int rank_count, int earlier_count, const char *name,
                          std::vector<int> *rank_now) {
  std::vector<int> result(static_cast<size_t>(earlier_count), -1);
  for (int rank = 0; rank < rank_count; ++rank) {
    const int earlier = earlier_ranks ? earlier_ranks[rank] : rank < earlier_count ? rank : -1;
    if (earlier < -1 || earlier >= earlier_count)
      return set_error(MXS_INVALID_ARGUMENT, "%s[%d] is %d, neither -1 nor a rank of the earlier plan's %d", name, rank,
                       earlier, earlier_count);
    if (earlier < 0) continue;
    int &now = result[static_cast<size_t>(earlier)];
    if (now >= 0)
      return set_error(MXS_INVALID_ARGUMENT, "%s[%d] and [%d] are both %d: one rank can't be two", name, now, rank,
                       earlier);
    now = rank;
  }
  *rank_now = std::move(result);
  return MXS_OK;
}

}  // namespace mxs
