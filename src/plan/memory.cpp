// SPDX-License-Identifier: Apache-2.0
// The byte counts of memory.hpp, and the prediction made of them.
#include "plan/memory.hpp"

#include <algorithm>
#include <span>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "plan/factors.hpp"
#include "plan/keepers.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

uint64_t to_pages(uint64_t bytes) { return align_up(bytes, pool_page_bytes); }

// No machine has so much; but a wrong count of slots must not wrap around to something small.
uint64_t times(int count, uint64_t bytes) {
  uint64_t product = bytes_max;
  return checked_multiply(static_cast<uint64_t>(count), bytes, &product) ? product : bytes_max;
}

// Of one rank in one unit.
struct UnitBytes {
  uint64_t weights = 0, masters = 0, gradients = 0;                          // as they are
  uint64_t weights_rounded = 0, masters_rounded = 0, gradients_rounded = 0;  // to pages, as they are allocated
};

std::span<const uint64_t> own_placements(const Plan &plan, int rank) {
  const std::vector<uint64_t> &begin = plan.index.placement_begin;
  const size_t first = begin[static_cast<size_t>(rank)], next = begin[static_cast<size_t>(rank) + 1];
  return std::span(plan.index.placements).subspan(first, next - first);
}

std::span<const RankSegment> own_segments(const Plan &plan, int rank) {
  const std::vector<uint64_t> &begin = plan.index.segment_begin;
  const size_t first = begin[static_cast<size_t>(rank)], next = begin[static_cast<size_t>(rank) + 1];
  return std::span(plan.index.segments).subspan(first, next - first);
}

void add_segment(const RankSegment &segment, UnitBytes *bytes) {
  bytes->weights += segment.bytes;
  bytes->weights_rounded += to_pages(segment.offset + segment.bytes) - align_down(segment.offset, pool_page_bytes);
}

void add_placement(const Plan &plan, const Placement &placement, UnitBytes *bytes) {
  const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(placement.tensor)];
  bytes->masters += master_bytes(tensor, placement.element_count);
  bytes->gradients += gradient_sum_bytes(tensor, placement.element_count);
}

void round_up(UnitBytes *bytes) {
  bytes->masters_rounded = to_pages(bytes->masters);
  bytes->gradients_rounded = to_pages(bytes->gradients);
}

// Units in which the rank owns something, ascending. A unit with a segment has a placement, too.
template <class Visit>
void for_each_own_unit(const Plan &plan, int rank, const Visit &visit) {
  const std::span<const uint64_t> placements = own_placements(plan, rank);
  const std::span<const RankSegment> segments = own_segments(plan, rank);
  for (size_t piece = 0, segment = 0; piece < placements.size();) {
    const int unit = plan.placements[placements[piece]].unit;
    UnitBytes bytes;
    for (; piece < placements.size() && plan.placements[placements[piece]].unit == unit; ++piece)
      add_placement(plan, plan.placements[placements[piece]], &bytes);
    for (; segment < segments.size() && segments[segment].unit == unit; ++segment)
      add_segment(segments[segment], &bytes);
    round_up(&bytes);
    visit(bytes);
  }
}

}  // namespace

uint64_t weight_bytes(const PlannedTensor &tensor, uint64_t element_count) {
  return element_count * dtype_bytes(tensor.dtype);
}

uint64_t master_bytes(const PlannedTensor &tensor, uint64_t element_count) {
  return tensor.master_dtype == tensor.dtype ? 0 : element_count * dtype_bytes(tensor.master_dtype);
}

uint64_t gradient_sum_bytes(const PlannedTensor &tensor, uint64_t element_count) {
  return tensor.frozen() ? 0 : element_count * sizeof(float);
}

namespace {

bool has_factors(mxs_rule rule) { return rule == MXS_RULE_SHAMPOO || rule == MXS_RULE_SOAP; }

// The matrices of one placement, side by side.
std::vector<FactorBlock> factor_blocks(const PlannedTensor &tensor, const std::vector<int64_t> &shape) {
  std::vector<FactorBlock> blocks;
  const auto add = [&](int64_t columns) {
    FactorBlock block;
    block.rows = shape[shape.size() - 2];
    block.columns = columns;
    blocks.push_back(block);
  };
  if (!tensor.has_column_blocks()) add(shape.back());
  else
    for (const int64_t columns : tensor.block_columns) add(columns);
  return blocks;
}

uint64_t all_factor_bytes(const PlannedTensor &tensor, const std::vector<int64_t> &shape) {
  return factor_state_bytes(factor_blocks(tensor, shape), 1, default_factor_rules(tensor.rule));
}

}  // namespace

uint64_t state_bytes(const PlannedTensor &tensor, const std::vector<int64_t> &shape, uint64_t element_count) {
  if (element_count == 0) return 0;
  if (has_factors(tensor.rule)) return all_factor_bytes(tensor, shape);
  const uint64_t part = align_up(element_count * sizeof(float), state_part_alignment);
  return tensor.rule == MXS_RULE_MUON ? part : tensor.rule == MXS_RULE_ADAMW ? 2 * part : 0;
}

uint64_t owned_bytes(const PlannedTensor &tensor, const std::vector<int64_t> &shape, uint64_t element_count) {
  uint64_t state = 0;
  if (has_factors(tensor.rule)) state = state_bytes(tensor, shape, element_count);
  if (tensor.rule == MXS_RULE_MUON) state = element_count * sizeof(float);
  if (tensor.rule == MXS_RULE_ADAMW) state = 2 * element_count * sizeof(float);
  return weight_bytes(tensor, element_count) + master_bytes(tensor, element_count) +
         gradient_sum_bytes(tensor, element_count) + state;
}

PoolSizes pool_sizes(const Plan &plan) {
  PoolSizes sizes;
  for (const PlannedUnit &planned : plan.units) {
    sizes.slot = std::max(sizes.slot, to_pages(planned.weights.bytes));
    sizes.gradient_slot = std::max(sizes.gradient_slot, to_pages(planned.gradients.bytes));
  }
  return sizes;
}

uint64_t replica_scratch_bytes(const Plan &plan, int rank) {
  uint64_t bytes = 0;
  for_each_own_unit(plan, rank, [&](const UnitBytes &unit) { bytes = std::max(bytes, unit.gradients_rounded); });
  return bytes;
}

int pool_slot_count(int asked) { return asked == 0 ? 2 : asked; }

PageRanges slot_pages(const Plan &plan, int rank) {
  PageRanges pages;
  for (const SlotPages &range : plan.index.slot_pages) {
    if (range.owner == rank) continue;
    if (pages.empty() || range.offset > pages.back().offset + pages.back().bytes)
      pages.push_back({range.offset, range.bytes});
    else
      pages.back().bytes += range.bytes;
  }
  return pages;
}

uint64_t slot_pages_bytes(const Plan &plan, int rank) {
  return plan.index.slot_bytes - plan.index.sole_slot_bytes[static_cast<size_t>(rank)];
}

uint64_t reference_counters_bytes(const Plan &plan) { return to_pages(plan.units.size() * reference_counter_bytes); }

namespace {

uint64_t padded(int64_t side) { return align_up(static_cast<uint64_t>(side), 32); }

// Up to so many elements every backend has buffers for each thread.
uint64_t lanes(uint64_t n, uint64_t m, int thread_count) {
  return n * m <= uint64_t{1} << 19 ? static_cast<uint64_t>(thread_count) : 1;
}

// The reference: X, two squares and a panel of 128 columns in fp32. oneDNN: X twice and two squares in bf16, panels of
// A up to the diagonal, from 1,024 rows on in fp32, and scratch: at most so much a thread for n from 32 to 1,024 and m
// to 65,536 with oneDNN 2.6.3 on AMX, as mxs_orthogonalizer_workspace_bytes tells (529,280 for 32 x 4,096, 606,208 for
// 64 x 4,096, 475,136 for 1,024 x 4,096).
uint64_t onednn_workspace_bytes(uint64_t n, uint64_t m, int thread_count) {
  const uint64_t scratch = static_cast<uint64_t>(thread_count) * std::min<uint64_t>(160 * m + 8192, 1'310'720);
  const uint64_t reference = 4 * n * m + 8 * n * n + 512 * n;
  const uint64_t onednn = 4 * n * m + 4 * n * n + (n < 1024 ? 2 : 4) * (n * n * 9 / 16 + 256 * n);
  return std::max(lanes(n, m, thread_count) * reference, lanes(n, m, thread_count) * onednn + scratch);
}

// Exactly what src/kernels/tiles takes: X two or three times and A twice in bf16, for each thread where matrices are
// small; and each thread's sums.
uint64_t tiles_workspace_bytes(uint64_t n, uint64_t m, int thread_count) {
  const uint64_t threads = static_cast<uint64_t>(thread_count);
  const uint64_t sums = (m <= 1024 ? 32 : 144) * 4096 + 16'384;
  return lanes(n, m, thread_count) * ((n <= 512 ? 4 : 6) * n * m + 4 * n * n) + threads * sums;
}

// Exactly what src/kernels/linear_newton_schulz.cpp takes: X once and two squares in fp32, on the Gram matrix four, and
// a panel of 128 columns beside squares of less than 32 rows; for each thread where matrices are small.
uint64_t fp32_workspace_bytes(uint64_t n, uint64_t m, int thread_count) {
  return lanes(n, m, thread_count) * (4 * n * m + (m + 64 >= 2 * n ? 16 : 8) * n * n + (n <= 32 ? 512 * n : 0));
}

uint64_t workspace_bytes(uint64_t n, uint64_t m, int thread_count) {
  return std::max({onednn_workspace_bytes(n, m, thread_count), tiles_workspace_bytes(n, m, thread_count),
                   fp32_workspace_bytes(n, m, thread_count)});
}

uint64_t matrix_workspace_bytes(const Plan &plan, const Matrix &matrix, int thread_count) {
  const int co_owner_count = plan.placements[matrix.placement].co_owner_count;
  if (co_owner_count == 1) return newton_schulz_workspace_bytes(matrix.rows, matrix.columns, thread_count);
  const int64_t rows = plan.tensors[static_cast<size_t>(matrix.tensor)].shape[0];
  return co_owned_workspace_bytes(matrix.rows, rows, matrix.columns, co_owner_count, thread_count);
}

}  // namespace

uint64_t newton_schulz_workspace_bytes(int64_t rows, int64_t columns, int thread_count) {
  return workspace_bytes(padded(std::min(rows, columns)), padded(std::max(rows, columns)), thread_count);
}

uint64_t co_owned_workspace_bytes(int64_t share_rows, int64_t rows, int64_t columns, int co_owner_count,
                                  int thread_count) {
  const bool wide = rows < columns;
  const uint64_t n = padded(std::min(rows, columns));
  const uint64_t m = padded(wide ? (columns - 1) / co_owner_count + 1 : share_rows);
  // What src/kernels/shared.cpp takes, and tiles beside blocks of the lower half in fp32.
  const uint64_t fp32 = 4 * n * m + 8 * n * n + 512 * n;
  const uint64_t sums = static_cast<uint64_t>(thread_count) * ((std::max(n, m) <= 1024 ? 32 : 144) * 4096 + 16'384);
  const uint64_t tiles = (n <= 512 ? 4 : 6) * n * m + 4 * n * n + sums + 2 * n * n + 64 * n;
  return std::max(fp32, tiles) + (wide ? 8 * n * m : 0);
}

uint64_t muon_blocks_at_a_time(uint64_t elements, uint64_t block_count, int thread_count) {
  constexpr uint64_t small_elements = uint64_t{1} << 19, small_per_thread = 4;
  if (thread_count == 1 || elements > small_elements) return 1;
  return std::min(small_per_thread * static_cast<uint64_t>(thread_count), block_count);
}

uint64_t placement_workspace_bytes(const Plan &plan, const Placement &placement, int thread_count) {
  if (placement.element_count == 0) return 0;
  const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(placement.tensor)];
  if (has_factors(tensor.rule))
    return factor_workspace_bytes(factor_rooms(factor_blocks(tensor, placement.shape), 1,
                                               default_factor_rules(tensor.rule), thread_count));
  if (tensor.rule != MXS_RULE_MUON) return 0;
  uint64_t workspace = 0, update = 0;
  for (uint64_t index = 0; index < placement.matrix_count; ++index) {
    const Matrix &matrix = plan.matrices[placement.matrix_index + index];
    workspace = std::max(workspace, matrix_workspace_bytes(plan, matrix, thread_count));
    const uint64_t elements = static_cast<uint64_t>(matrix.rows) * static_cast<uint64_t>(matrix.columns);
    const uint64_t at_a_time = muon_blocks_at_a_time(elements, placement.matrix_count, thread_count);
    update = std::max(update, align_up(at_a_time * elements * sizeof(float), state_part_alignment));
  }
  return workspace + update;
}

uint64_t step_workspace_bytes(const Plan &plan, int rank, int thread_count) {
  uint64_t workspace = 0;
  for (const uint64_t number : own_placements(plan, rank))
    workspace = std::max(workspace, placement_workspace_bytes(plan, plan.placements[number], thread_count));
  return workspace;
}

namespace {

struct SlotBytes {
  uint64_t shared = 0, own = 0;  // one slot of the pool; all units that have their own
};

// With nothing that has its own the index knows.
SlotBytes slot_bytes(const Plan &plan, int rank, const mxs_memory_options &options) {
  SlotBytes bytes;
  if (options.own_slot_unit_count == 0) {
    bytes.shared = slot_pages_bytes(plan, rank);
    return bytes;
  }
  const std::span<const int32_t> own(options.own_slot_units, static_cast<size_t>(options.own_slot_unit_count));
  std::vector<bool> has_own(plan.units.size(), false);
  for (const int32_t unit : own) has_own[static_cast<size_t>(unit)] = true;
  PageRanges shared;
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    const PageRanges pages = foreign_pages(plan.units[unit], rank);
    if (has_own[unit]) bytes.own += bytes_of(pages);
    else shared = united(shared, pages);
  }
  bytes.shared = bytes_of(shared);
  return bytes;
}

}  // namespace

mxs_memory predict_memory(const Plan &plan, int rank, const mxs_memory_options &options) {
  mxs_memory memory = MXS_MEMORY_INIT;
  for_each_own_unit(plan, rank, [&](const UnitBytes &bytes) {
    memory.weights += bytes.weights;
    memory.masters += bytes.masters;
    memory.gradients += bytes.gradients;
    memory.slack += bytes.weights_rounded - bytes.weights + bytes.masters_rounded - bytes.masters +
                    bytes.gradients_rounded - bytes.gradients;
  });
  for (const uint64_t index : own_placements(plan, rank)) {
    const Placement &placement = plan.placements[index];
    memory.state += state_bytes(plan.tensors[static_cast<size_t>(placement.tensor)], placement.shape,
                                placement.element_count);
  }
  memory.rest = memory.weights + memory.masters + memory.gradients + memory.state + memory.slack;

  if (options.by_reference) {
    memory.slots = reference_counters_bytes(plan);
  } else {
    const SlotBytes bytes = slot_bytes(plan, rank, options);
    memory.slots = times(pool_slot_count(options.slots), bytes.shared);
    memory.own_slots = bytes.own;
  }
  memory.gradient_slots = times(pool_slot_count(options.gradient_slots),
                                pool_sizes(plan).gradient_slot +
                                    (options.replicas ? replica_scratch_bytes(plan, rank) : 0));
  memory.workspace = step_workspace_bytes(plan, rank, std::max(options.thread_count, 1));
  memory.backup = options.backup ? backup_bytes(plan, rank) : 0;
  memory.peak = saturating_add(memory.rest + memory.slots + memory.own_slots + memory.backup,
                               saturating_add(memory.gradient_slots, memory.workspace));
  return memory;
}

}  // namespace mxs
