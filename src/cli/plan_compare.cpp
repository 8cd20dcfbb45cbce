// SPDX-License-Identifier: Apache-2.0
// The same model under other placements: what ZeRO-3 slices, ZeRO-1 and DDP would hold, move and compute. Predicted by
// formulas (docs/planning.md has them); perf/train runs the same placements for real, at its own size.
//
//   slices    rows of every tensor on every rank, as FSDP2 cuts them; a step gathers each matrix everywhere, and every
//             rank steps all of them
//   alltoall  the same slices; a step brings each matrix to one rank (this plan's owner) and its update back
//   zero1     weights and gradients whole on every rank; this plan's owners have masters and state, step, and give the
//             weights to all
//   ddp       everything on every rank, and every rank steps everything
//
// Bytes and times of one tensor are the library's: each placement's rank is asked as a plan of one rank.
#include <algorithm>
#include <functional>

#include "cli/plan_slices.hpp"

namespace mxs_cli {

namespace {

// As the plan has decided, without owners.
mxs_tensor whole_tensor(const TensorFigures &tensor) {
  mxs_tensor whole = *tensor.given;
  whole.rule = tensor.info.rule;
  whole.fixed_owner = 0;
  whole.co_owners = 0;
  return whole;
}

// The rows that a rank has of it, padding included.
mxs_tensor sliced_tensor(const TensorFigures &tensor, int32_t rank_count) {
  mxs_tensor slice = whole_tensor(tensor);
  if (slice.dimension_count > 0) slice.shape[0] = part_of(slice.shape[0], rank_count);
  if (slice.dimension_count != 3) {
    slice.block_rows = slice.block_columns = nullptr;
    slice.block_count = slice.block_column_count = 0;
  }
  slice.whole_rows = slice.whole_columns = 0;
  return slice;
}

// What a rank alone would hold and compute of these tensors.
struct Alone {
  mxs_memory memory = MXS_MEMORY_INIT;
  uint64_t step_ns = 0;
  uint64_t weight_slot_bytes = 0, gradient_slot_bytes = 0;  // of the largest unit
  uint64_t gradient_bytes = 0;                              // of all units, in gradient dtypes
};

class Comparison {
 public:
  Comparison(const PlanRequest &request, const PlanFigures &figures)
      : request_(request), figures_(figures), ranks_(figures.rank_count), one_rank_(mxs::make_topology("ranks:1")) {
    whole_ = alone([](const TensorFigures &) { return true; }, whole_tensor);
  }

  ComparedPlacement owner() const;
  ComparedPlacement slices() const;
  ComparedPlacement alltoall() const;
  ComparedPlacement zero1() const;
  ComparedPlacement ddp() const;

 private:
  using Choice = std::function<bool(const TensorFigures &)>;
  using Change = std::function<mxs_tensor(const TensorFigures &)>;

  Alone alone(const Choice &choice, const Change &change) const;
  Change slicing() const {
    return [this](const TensorFigures &tensor) { return sliced_tensor(tensor, ranks_); };
  }
  void take_wire(ComparedPlacement *row) const;
  void rest_as_slices(const Alone &sliced, ComparedPlacement *row) const;
  uint64_t largest_padded_bytes() const;

  const PlanRequest &request_;
  const PlanFigures &figures_;
  const int32_t ranks_;
  const mxs::topology one_rank_;
  Alone whole_;
};

Alone Comparison::alone(const Choice &choice, const Change &change) const {
  std::vector<mxs_tensor> tensors;
  for (const TensorFigures &tensor : figures_.tensors)
    if (!tensor.is_tied() && choice(tensor)) tensors.push_back(change(tensor));
  mxs_plan_options options = request_.options;
  options.unit_count = static_cast<int32_t>(figures_.units.size());
  options.rank_bytes_max = 0;
  options.co_owners_max = 0;
  options.search_moves_max = 1;
  const mxs::plan plan = mxs::make_plan(tensors, one_rank_, &options);
  Alone result;
  mxs_rank_load load = MXS_RANK_LOAD_INIT;
  mxs::check(mxs_plan_rank(plan.get(), 0, &load));
  result.step_ns = load.step_ns;
  mxs_memory_options memory = request_.memory;
  memory.replicas = 0;
  mxs::check(mxs_plan_memory(plan.get(), 0, &memory, &result.memory));
  for (int32_t unit = 0; unit < options.unit_count; ++unit) {
    const uint64_t weights = mxs_layout_bytes(mxs::layout_of(plan, unit, MXS_WEIGHTS).get());
    const uint64_t gradients = mxs_layout_bytes(mxs::layout_of(plan, unit, MXS_GRADIENTS).get());
    result.weight_slot_bytes = std::max(result.weight_slot_bytes, weights);
    result.gradient_slot_bytes = std::max(result.gradient_slot_bytes, gradients);
    result.gradient_bytes += gradients;
  }
  return result;
}

void Comparison::take_wire(ComparedPlacement *row) const {
  row->local_bytes = figures_.wire.local_bytes;
  row->network_bytes = figures_.wire.network_bytes;
}

ComparedPlacement Comparison::owner() const {
  ComparedPlacement row;
  row.placement = "owner";
  row.note = "this plan";
  for (const RankFigures &rank : figures_.ranks) {
    row.rest_bytes = std::max(row.rest_bytes, rank.memory.rest);
    row.peak_bytes = std::max(row.peak_bytes, rank.memory.peak);
    row.step_ns = std::max(row.step_ns, rank.load.step_ns);
  }
  take_wire(&row);
  row.step_bytes = figures_.wire.matrix_step_bytes;
  return row;
}

uint64_t Comparison::largest_padded_bytes() const {
  uint64_t largest = 0;
  for (const TensorFigures &tensor : figures_.tensors)
    if (is_torn(tensor)) largest = std::max(largest, padded_bytes(tensor, ranks_));
  return largest;
}

// Slots hold whole units, brought together of all ranks' slices.
void Comparison::rest_as_slices(const Alone &sliced, ComparedPlacement *row) const {
  const uint64_t ranks = static_cast<uint64_t>(ranks_);
  const auto count_of = [](int32_t asked) { return static_cast<uint64_t>(asked ? asked : 2); };
  const uint64_t slot = saturating_product(ranks, sliced.weight_slot_bytes);
  const uint64_t gradient_slot = saturating_product(ranks, sliced.gradient_slot_bytes);
  row->rest_bytes = sliced.memory.rest - sliced.memory.slack;  // pages are this library's
  row->peak_bytes = row->rest_bytes;
  row->peak_bytes = saturating_sum(row->peak_bytes, saturating_product(count_of(request_.memory.slots), slot));
  row->peak_bytes =
      saturating_sum(row->peak_bytes, saturating_product(count_of(request_.memory.gradient_slots), gradient_slot));
}

ComparedPlacement Comparison::slices() const {
  ComparedPlacement row;
  row.placement = "slices";
  row.note = "a step gathers every matrix on every rank, and each steps all of them, one after the other";
  const Alone sliced = alone([](const TensorFigures &) { return true; }, slicing());
  rest_as_slices(sliced, &row);
  // One matrix at a time: its own rows' update in fp32, and the whole of it as it comes over the wire. The plan of one
  // rank has the rest: fp32 of the largest, and the products' workspace.
  const uint64_t largest = largest_padded_bytes();
  row.peak_bytes = saturating_sum(
      row.peak_bytes, whole_.memory.workspace + largest + 2 * largest / static_cast<uint64_t>(std::max(ranks_, 1)));
  row.step_ns = alone([](const TensorFigures &) { return true; },
                      [&](const TensorFigures &tensor) {
                        return is_torn(tensor) ? whole_tensor(tensor) : sliced_tensor(tensor, ranks_);
                      })
                    .step_ns;
  take_wire(&row);
  for (const TensorFigures &tensor : figures_.tensors)
    if (is_torn(tensor))
      row.step_bytes = saturating_sum(
          row.step_bytes, saturating_product(static_cast<uint64_t>(ranks_ - 1), padded_bytes(tensor, ranks_)));
  return row;
}

ComparedPlacement Comparison::alltoall() const {
  ComparedPlacement row;
  row.placement = "alltoall";
  row.note = "a step brings every matrix to its owner in this plan, and its update back, beside others' products";
  rest_as_slices(alone([](const TensorFigures &) { return true; }, slicing()), &row);
  uint64_t rows_bytes = 0;  // this rank's rows of all matrices, packed for the wire
  for (const TensorFigures &tensor : figures_.tensors) {
    if (!is_torn(tensor)) continue;
    const uint64_t part = padded_bytes(tensor, ranks_) / static_cast<uint64_t>(ranks_);
    rows_bytes += part;
    row.step_bytes =
        saturating_sum(row.step_bytes, saturating_product(2 * static_cast<uint64_t>(ranks_ - 1), part));
  }
  const std::vector<uint64_t> owned = torn_bytes_by_owner(figures_);
  uint64_t workspace = 0;
  for (const RankFigures &rank : figures_.ranks) {
    workspace = std::max(workspace, rank.memory.workspace + owned[static_cast<size_t>(rank.rank)]);
    row.step_ns = std::max(row.step_ns, rank.load.step_ns);
  }
  row.peak_bytes = saturating_sum(row.peak_bytes, workspace + rows_bytes);
  take_wire(&row);
  return row;
}

ComparedPlacement Comparison::zero1() const {
  ComparedPlacement row;
  row.placement = "zero1";
  row.note = "weights and gradients whole everywhere, masters and state with this plan's owners";
  const uint64_t everywhere = whole_.memory.weights + whole_.gradient_bytes;
  for (const RankFigures &rank : figures_.ranks) {
    const uint64_t rest = everywhere + rank.memory.masters + rank.memory.state;
    row.rest_bytes = std::max(row.rest_bytes, rest);
    row.peak_bytes = std::max(row.peak_bytes, rest + rank.memory.workspace);
    row.step_ns = std::max(row.step_ns, rank.load.step_ns);
  }
  add_reduces(figures_, &row.local_bytes, &row.network_bytes);
  const uint64_t others = static_cast<uint64_t>(ranks_ - 1);
  for (const TensorFigures &tensor : figures_.tensors)
    if (tensor.has_gradient())
      row.step_bytes = saturating_sum(
          row.step_bytes, saturating_product(others, tensor.element_count * mxs_dtype_bytes(tensor.dtype)));
  return row;
}

// Sums go to even shares, as in zero1, and from there to everybody.
ComparedPlacement Comparison::ddp() const {
  ComparedPlacement row = zero1();
  row.placement = "ddp";
  row.note = "everything whole everywhere, and every rank steps everything";
  row.rest_bytes = whole_.memory.weights + whole_.memory.masters + whole_.memory.state + whole_.gradient_bytes;
  row.peak_bytes = saturating_sum(row.rest_bytes, whole_.memory.workspace);
  row.step_ns = whole_.step_ns;
  row.step_bytes = 0;
  const uint64_t ranks = static_cast<uint64_t>(ranks_), nodes = static_cast<uint64_t>(figures_.node_count);
  row.local_bytes = saturating_sum(row.local_bytes, saturating_product(ranks - nodes, whole_.gradient_bytes));
  row.network_bytes = saturating_sum(row.network_bytes, saturating_product(nodes - 1, whole_.gradient_bytes));
  return row;
}

}  // namespace

std::vector<ComparedPlacement> compare_placements(const PlanRequest &request, const PlanFigures &figures) {
  const Comparison comparison(request, figures);
  std::vector<ComparedPlacement> rows = {comparison.owner()};
  for (const std::string &name : request.compare) {
    if (name == "slices") rows.push_back(comparison.slices());
    if (name == "alltoall") rows.push_back(comparison.alltoall());
    if (name == "zero1") rows.push_back(comparison.zero1());
    if (name == "ddp") rows.push_back(comparison.ddp());
  }
  return rows;
}

}  // namespace mxs_cli
