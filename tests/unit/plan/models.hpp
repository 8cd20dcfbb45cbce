// SPDX-License-Identifier: Apache-2.0
// Models to plan, and a checker that proves a plan's geometry from nothing but the plan.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "plan/plan.hpp"

namespace mxs {

// "t7". Not "t" + to_string(7): gcc 12 warns falsely of overlap there (its bug 105651).
inline std::string numbered(const char *name, int64_t number) {
  return std::string(name).append(std::to_string(number));
}

class Model {
 public:
  Model() { tensors.reserve(4096); }  // references from add stay good
  mxs_tensor &add(const std::string &name, std::vector<int64_t> shape, int unit = 0, mxs_rule rule = MXS_RULE_AUTO) {
    mxs_tensor tensor = MXS_TENSOR_INIT;
    tensor.name = keep(name);
    tensor.dimension_count = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), tensor.shape);
    tensor.unit = unit;
    tensor.rule = rule;
    tensors.push_back(tensor);
    return tensors.back();
  }
  mxs_tensor &add_blocks(const std::string &name, std::vector<int64_t> rows, int64_t columns, int unit = 0,
                         mxs_rule rule = MXS_RULE_AUTO) {
    mxs_tensor &tensor = add(name, {std::accumulate(rows.begin(), rows.end(), int64_t{0}), columns}, unit, rule);
    cut_rows(&tensor, std::move(rows));
    return tensor;
  }
  void cut_rows(mxs_tensor *tensor, std::vector<int64_t> rows) {
    lengths_.push_back(std::move(rows));
    tensor->block_rows = lengths_.back().data();
    tensor->block_count = static_cast<int32_t>(lengths_.back().size());
  }
  void cut_columns(mxs_tensor *tensor, std::vector<int64_t> columns) {
    lengths_.push_back(std::move(columns));
    tensor->block_columns = lengths_.back().data();
    tensor->block_column_count = static_cast<int32_t>(lengths_.back().size());
  }
  const char *keep(const std::string &text) {
    texts_.push_back(text);
    return texts_.back().c_str();
  }

  std::vector<mxs_tensor> tensors;
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;

 private:
  std::deque<std::string> texts_;
  std::deque<std::vector<int64_t>> lengths_;
};

inline Topology world(int rank_count) {
  return topology_from_nodes(std::vector<uint64_t>(static_cast<size_t>(rank_count), 0));
}

inline mxs_status make(const Model &model, int rank_count, Plan *plan) {
  return make_plan(model.tensors.data(), model.tensors.size(), world(rank_count), &model.options, plan);
}

// A small GPT: bf16 weights, one unit per block, an embedding unit and a head unit.
inline Model gpt(int block_count, int64_t width) {
  Model model;
  const auto add = [&](const std::string &name, std::vector<int64_t> shape, int unit, mxs_rule rule) {
    model.add(name, std::move(shape), unit, rule).dtype = MXS_BF16;
  };
  add("embedding", {257, width}, 0, MXS_RULE_ADAMW);
  for (int block = 0; block < block_count; ++block) {
    const std::string prefix = numbered("block", block) + ".";
    add(prefix + "norm1", {width}, block + 1, MXS_RULE_AUTO);
    model.add_blocks(prefix + "qkv", {width, width, width}, width, block + 1).dtype = MXS_BF16;
    add(prefix + "proj", {width, width}, block + 1, MXS_RULE_AUTO);
    add(prefix + "norm2", {width}, block + 1, MXS_RULE_AUTO);
    add(prefix + "up", {4 * width, width}, block + 1, MXS_RULE_AUTO);
    add(prefix + "bias", {4 * width}, block + 1, MXS_RULE_AUTO);
    add(prefix + "down", {width, 4 * width}, block + 1, MXS_RULE_AUTO);
  }
  add("head", {50257, width}, block_count + 1, MXS_RULE_ADAMW);
  model.add("temperature", {}, block_count + 1);
  return model;
}

// Anything goes: all rules, roles, dtypes; empty tensors, odd sizes, blocks, ties, fixed owners.
inline Model random_model(unsigned seed, int rank_count) {
  std::mt19937 random(seed);
  const auto below = [&random](int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); };
  Model model;
  const mxs_dtype dtypes[] = {MXS_F32, MXS_BF16, MXS_F16};
  const int count = static_cast<int>(1 + below(40)), unit_count = static_cast<int>(1 + below(5));
  for (int index = 0; index < count; ++index) {
    const std::string name = numbered("t", index);
    const int unit = static_cast<int>(below(unit_count));
    const int64_t kind = below(11);
    const int64_t scale = below(3) == 0 ? 64 : 7;
    mxs_tensor *tensor = nullptr;
    if (kind == 0) tensor = &model.add(name, {below(5000)}, unit);
    if (kind == 1) tensor = &model.add(name, {}, unit);
    if (kind == 2) tensor = &model.add(name, {below(9) * scale, 1 + below(9) * scale}, unit);
    if (kind == 3) tensor = &model.add(name, {below(5), 1 + below(5) * scale, scale * 4}, unit);
    if (kind == 4) tensor = &model.add_blocks(name, {scale * 2, scale, scale * 3}, scale * 4, unit);
    if (kind == 5) tensor = &model.add(name, {below(300), 1 + below(300)}, unit, MXS_RULE_ADAMW);
    if (kind == 6) tensor = &model.add(name, {below(3000), 1 + below(30)}, unit, MXS_RULE_FROZEN);
    if (kind == 7) tensor = &model.add(name, {1 + below(90), 1 + below(90)}, unit, MXS_RULE_EXTERNAL);
    if (kind == 8) tensor = &model.add(name, {below(5), scale * 6, scale * 2}, unit);
    if (kind == 8) model.cut_rows(tensor, {scale * 5, scale});
    if (kind == 9) tensor = &model.add(name, {below(9), scale * 4}, unit);
    if (kind == 9) model.cut_columns(tensor, {scale, 2 * scale, scale});
    if (kind == 10) tensor = &model.add(name, {below(5), scale, 12}, unit);
    if (kind == 10) model.cut_columns(tensor, {3, 9});
    if (kind >= 9) tensor->transposed = static_cast<int32_t>(below(2));
    if (kind >= 8 && below(2) == 0) tensor->whole_rows = tensor->shape[tensor->dimension_count - 2] * 3;
    if (kind >= 8 && below(2) == 0) tensor->whole_columns = tensor->shape[tensor->dimension_count - 1] * 2;
    tensor->dtype = dtypes[below(3)];
    if (below(3) == 0) tensor->gradient_dtype = dtypes[below(3)];
    if (below(4) == 0) tensor->master_dtype = tensor->dtype;
    if (kind == 6 && below(2) == 0) tensor->dtype = below(2) ? MXS_U8 : MXS_F64;
    if (kind == 6) tensor->master_dtype = 0;
    if (below(6) == 0) tensor->fixed_owner = MXS_FIXED_OWNER(static_cast<int32_t>(below(rank_count)));
    if (kind >= 5 && kind < 8 && tensor->fixed_owner == 0 && below(4) == 0)
      tensor->role = below(2) ? MXS_ROLE_FLAT : MXS_ROLE_TAIL;
    if (below(8) == 0) {
      const mxs_tensor other = *tensor;
      mxs_tensor &tied = model.add(name + ".tied", {}, unit);
      tied.dtype = other.dtype;
      tied.dimension_count = other.dimension_count;
      std::copy(other.shape, other.shape + other.dimension_count, tied.shape);
      tied.tied_to = other.name;
    }
  }
  const uint64_t alignments[] = {0, 64, 4096, 65536};
  model.options.alignment = alignments[below(4)];
  model.options.flat_bytes = below(2) ? 0 : 20000;
  if (below(2)) model.options.unit_count = unit_count + 2;
  return model;
}

// ---- the checker: "" or what is wrong ----

struct Extents {
  uint64_t offset, bytes;
  int owner;
};

// Pieces lie within segments of their owners, none overlaps, and only alignment and element widths leave gaps.
inline std::string check_cover(const Layout &layout, std::vector<Extents> pieces, uint64_t alignment) {
  std::erase_if(pieces, [](const Extents &piece) { return piece.bytes == 0; });
  std::sort(pieces.begin(), pieces.end(), [](const Extents &a, const Extents &b) { return a.offset < b.offset; });
  size_t next = 0;
  for (size_t index = 0; index < layout.segments.size(); ++index) {
    const Segment &segment = layout.segments[index];
    if (segment.bytes == 0) return "an empty segment";
    if (segment.offset % alignment != 0) return "a segment begins off the alignment";
    if (next == pieces.size() || pieces[next].offset != segment.offset) return "a segment doesn't begin with a piece";
    uint64_t end = segment.offset;
    for (; next < pieces.size() && pieces[next].offset < segment.offset + segment.bytes; ++next) {
      if (pieces[next].owner != segment.owner) return "a piece lies in another rank's segment";
      if (pieces[next].offset < end) return "two pieces overlap";
      if (pieces[next].offset - end >= 8) return "a gap of more than an element inside a segment";
      end = pieces[next].offset + pieces[next].bytes;
    }
    if (end != segment.offset + segment.bytes) return "a segment doesn't end with its last piece";
  }
  return next == pieces.size() ? "" : "a piece lies outside all segments";
}

// Co-owners' rows: each has some, on a node of their own, ascending by rank.
inline std::string check_share(const Plan &plan, const PlannedTensor &tensor, uint64_t number) {
  const Placement &piece = plan.placements[tensor.placement_index + number];
  if (tensor.role != MXS_ROLE_MATRIX || tensor.rule != MXS_RULE_MUON) return "co-owners of what has no step to share";
  if (piece.co_owner_count != static_cast<int>(tensor.placement_count)) return "a wrong count of co-owners";
  if (piece.co_owner != static_cast<int>(number) || piece.block != 0) return "co-owners are not counted from 0";
  if (piece.shape.size() != 2 || piece.shape[0] < 1 || piece.shape[1] != tensor.shape[1]) return "a share isn't rows";
  if (number == 0) return "";
  const Placement &before = plan.placements[tensor.placement_index + number - 1];
  if (before.owner >= piece.owner) return "co-owners don't ascend";
  return plan.topology.same_node(before.owner, piece.owner) ? "" : "co-owners of several nodes";
}

inline std::string check_tensor_pieces(const Plan &plan, const PlannedTensor &tensor) {
  const uint64_t width = dtype_bytes(tensor.dtype), gradient_width = dtype_bytes(tensor.gradient_dtype);
  if (tensor.role == MXS_ROLE_TIED) return tensor.placement_count == 0 ? "" : "a tied tensor has placements";
  if (tensor.placement_count == 0) return "no placements";
  const Placement &first = plan.placements[tensor.placement_index];
  uint64_t elements = 0;
  for (uint64_t number = 0; number < tensor.placement_count; ++number) {
    const Placement &piece = plan.placements[tensor.placement_index + number];
    uint64_t volume = 1;
    for (const int64_t dimension : piece.shape) volume *= static_cast<uint64_t>(dimension);
    if (volume != piece.element_count) return "shape and element count of a piece differ";
    if (piece.element_offset != elements) return "pieces are not one after the other";
    if (piece.owner < 0 || piece.owner >= plan.topology.rank_count()) return "an owner outside the world";
    if (piece.co_owner_count > 1) {
      const std::string complaint = check_share(plan, tensor, number);
      if (!complaint.empty()) return complaint;
    } else if (piece.block != static_cast<int>(number) || piece.co_owner != 0) {
      return "blocks are not counted from 0";
    }
    if (tensor.role == MXS_ROLE_FLAT && piece.element_offset % 4096 != 0) return "a flat cut off the norm's chunks";
    if (piece.unit != tensor.unit) return "a piece in another unit";
    if (tensor.frozen() != (piece.gradient_offset == UINT64_MAX)) return "frozen and gradient disagree";
    elements += piece.element_count;
    if (piece.element_count == 0) continue;
    if (piece.weight_offset % width != 0) return "a weight off its element's alignment";
    if (first.element_count && piece.weight_offset != first.weight_offset + piece.element_offset * width)
      return "a tensor's weights are not contiguous";
    if (tensor.frozen()) continue;
    if (piece.gradient_offset % gradient_width != 0) return "a gradient off its element's alignment";
    if (first.element_count && piece.gradient_offset != first.gradient_offset + piece.element_offset * gradient_width)
      return "a tensor's gradients are not contiguous";
  }
  return elements == tensor.element_count ? "" : "pieces don't add up to the tensor";
}

// Matrices are listed in the order of placements, and those of one cover it.
inline std::string check_matrices(const Plan &plan) {
  uint64_t next = 0;
  for (size_t index = 0; index < plan.placements.size(); ++index) {
    const Placement &piece = plan.placements[index];
    if (!plan.tensors[static_cast<size_t>(piece.tensor)].has_matrices()) {
      if (piece.matrix_count != 0) return "what is no matrix has matrices";
      continue;
    }
    if (piece.matrix_index != next || piece.matrix_count == 0) return "matrices are not in the order of placements";
    uint64_t offset = piece.element_offset;
    for (; next < piece.matrix_index + piece.matrix_count; ++next) {
      const Matrix &matrix = plan.matrices[next];
      if (matrix.tensor != piece.tensor || matrix.placement != index || matrix.owner != piece.owner ||
          matrix.rows != piece.shape[0] || matrix.row_stride != piece.shape[1] || matrix.element_offset != offset)
        return "a matrix is not where its placement is";
      const bool is_first = next == 0 || plan.matrices[next - 1].tensor != matrix.tensor;
      if (matrix.block != (is_first || piece.co_owner_count > 1 ? 0 : plan.matrices[next - 1].block + 1))
        return "matrices are not counted within their tensor";
      offset += static_cast<uint64_t>(matrix.columns);
    }
    if (offset != piece.element_offset + static_cast<uint64_t>(piece.shape[1]))
      return "matrices don't cover a placement";
  }
  return next == plan.matrices.size() ? "" : "matrices of no placement";
}

inline std::string check_plan(const Plan &plan) {
  if (const std::string complaint = check_matrices(plan); !complaint.empty()) return complaint;
  std::vector<std::vector<Extents>> weights(plan.units.size()), gradients(plan.units.size());
  for (const PlannedTensor &tensor : plan.tensors) {
    const std::string complaint = check_tensor_pieces(plan, tensor);
    if (!complaint.empty()) return tensor.name + ": " + complaint;
  }
  for (const Placement &piece : plan.placements) {
    const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(piece.tensor)];
    const size_t unit = static_cast<size_t>(piece.unit);
    weights[unit].push_back({piece.weight_offset, piece.element_count * dtype_bytes(tensor.dtype), piece.owner});
    if (!tensor.frozen())
      gradients[unit].push_back(
          {piece.gradient_offset, piece.element_count * dtype_bytes(tensor.gradient_dtype), piece.owner});
  }
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    std::string complaint = check_cover(plan.units[unit].weights, weights[unit], plan.alignment);
    if (complaint.empty()) complaint = check_cover(plan.units[unit].gradients, gradients[unit], 64);
    if (!complaint.empty()) return "unit " + std::to_string(unit) + ": " + complaint;
    uint64_t last = 0;
    if (plan.units[unit].placements.size() != weights[unit].size()) return "a unit's list of placements is not whole";
    for (const uint64_t index : plan.units[unit].placements) {
      if (plan.placements[index].weight_offset < last) return "a unit's placements are not in layout order";
      last = plan.placements[index].weight_offset;
    }
  }
  return "";
}

}  // namespace mxs
