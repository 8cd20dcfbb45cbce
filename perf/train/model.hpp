// SPDX-License-Identifier: Apache-2.0
// Model: the tensors of a small GPT, as the planner and the layers see them.
//
//   unit 0        embedding.token, embedding.position
//   unit 1 + b    block b: norm1, qkv, projection, norm2, up, down
//   last unit     head.norm, head.weight
//
// Tied, the head's weight is the token embedding; the head then belongs to unit 0 and there is no last unit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "check.hpp"
#include "matrixshard/matrixshard.h"

namespace train {

constexpr int64_t vocabulary = 256;  // bytes

struct Shape {
  int64_t layers = 4, width = 256, heads = 4, context = 128, sequences = 1;
  bool tied = false;
  mxs_rule matrix_rule = MXS_RULE_MUON;  // of hidden matrices; the rest steps under adamw
  mxs_dtype dtype = MXS_BF16, gradient_dtype = MXS_BF16;

  int64_t tokens() const { return sequences * context; }  // of one micro-batch
  int64_t head_width() const { return width / heads; }
};

struct Tensor {
  std::string name;
  std::vector<int64_t> dimensions;
  int unit = 0;
  mxs_rule rule = MXS_RULE_ADAMW;
  mxs_role role = MXS_ROLE_AUTO;
  std::vector<int64_t> block_rows;  // empty: one matrix
  std::string tied_to;
  float spread = 0;  // weights begin in [-spread, spread); 0: at 1, as gains do

  int64_t rows() const { return dimensions.size() < 2 ? 1 : dimensions[0]; }
  int64_t columns() const { return dimensions.back(); }
  uint64_t count() const { return static_cast<uint64_t>(rows() * columns()); }
  bool is_matrix() const { return rule != MXS_RULE_ADAMW; }  // stepped as wholes
  int group() const { return is_matrix() ? 0 : 1; }
};

// Indices of one block's tensors.
struct BlockTensors {
  int norm1, qkv, projection, norm2, up, down;
};

struct Model {
  Shape shape;
  std::vector<Tensor> tensors;  // tied ones too
  std::vector<BlockTensors> blocks;
  int token_embedding = 0, position_embedding = 0, head_norm = 0;
  int head = 0;  // the tensor whose bytes the head reads: tied, the token embedding
  int unit_count = 0, head_unit = 0;

  // Tensors of a unit that have bytes of their own, in order.
  std::vector<int> unit_tensors(int unit) const;
  // For mxs_plan_create. Borrows names and block rows: the model must outlive it.
  std::vector<mxs_tensor> descriptions() const;
  // The library's plan of them for the ranks of a comm. alignment 0: the library's.
  // previous: of a comm that `comm` was shrunk from; previous_ranks: which rank of that each one was.
  PlanOwner plan(mxs_comm *comm, uint64_t alignment = 0, const mxs_plan *previous = nullptr,
                 const std::vector<int32_t> &previous_ranks = {}) const;
};

// Throws a sentence if the shape can't be built.
Model make_model(const Shape &shape);

// The first values of `count` elements of a tensor: a function of (seed, name, index), so that it doesn't matter who
// owns them. Element `element_offset` goes to target[0].
void initial_weights(const Tensor &tensor, uint64_t seed, uint64_t element_offset, uint64_t count, float *target);

}  // namespace train
