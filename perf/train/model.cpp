// SPDX-License-Identifier: Apache-2.0
// Which tensors are there, in which units, under which rule, and how do they begin?
#include "model.hpp"

#include <cmath>
#include <stdexcept>

#include "random.hpp"

namespace train {
namespace {

int add(Model *model, Tensor tensor) {
  model->tensors.push_back(std::move(tensor));
  return static_cast<int>(model->tensors.size()) - 1;
}

Tensor gain(const std::string &name, int unit, int64_t width) {
  Tensor tensor;
  tensor.name = name;
  tensor.dimensions = {width};
  tensor.unit = unit;
  return tensor;
}

// A hidden matrix. `spread` is sqrt(3) times the standard deviation: weights begin uniform.
Tensor matrix(const std::string &name, int unit, int64_t rows, int64_t columns, float deviation, mxs_rule rule) {
  Tensor tensor;
  tensor.name = name;
  tensor.dimensions = {rows, columns};
  tensor.unit = unit;
  tensor.rule = rule;
  tensor.spread = std::sqrt(3.0f) * deviation;
  return tensor;
}

// Embeddings and head step under AdamW and are cut evenly over all ranks.
Tensor table(const std::string &name, int unit, int64_t rows, int64_t columns, float deviation) {
  Tensor tensor = matrix(name, unit, rows, columns, deviation, MXS_RULE_ADAMW);
  tensor.role = MXS_ROLE_FLAT;
  return tensor;
}

void refuse_bad_shape(const Shape &shape) {
  if (shape.layers < 1 || shape.layers > 1000) throw std::runtime_error("--layers wants 1 to 1000");
  if (shape.width < 2 || shape.width > 65536) throw std::runtime_error("--width wants 2 to 65536");
  if (shape.heads < 1 || shape.width % shape.heads != 0)
    throw std::runtime_error("--heads " + std::to_string(shape.heads) + " doesn't divide --width " +
                             std::to_string(shape.width));
  if (shape.context < 1 || shape.context > 65536) throw std::runtime_error("--context wants 1 to 65536");
  if (shape.sequences < 1 || shape.sequences > 4096) throw std::runtime_error("--sequences wants 1 to 4096");
}

BlockTensors add_block(Model *model, int block) {
  const int64_t width = model->shape.width;
  const mxs_rule rule = model->shape.matrix_rule;
  const int unit = 1 + block;
  const std::string prefix = "block." + std::to_string(block) + ".";
  // Each block adds two terms to the residual stream; smaller beginnings keep its size independent of depth.
  const float inner = 0.02f, outer = 0.02f / std::sqrt(2.0f * static_cast<float>(model->shape.layers));
  BlockTensors tensors{};
  tensors.norm1 = add(model, gain(prefix + "norm1", unit, width));
  tensors.qkv = add(model, matrix(prefix + "qkv", unit, 3 * width, width, inner, rule));
  if (model->tensors.back().is_matrix()) model->tensors.back().block_rows = {width, width, width};  // q, k and v apart
  tensors.projection = add(model, matrix(prefix + "projection", unit, width, width, outer, rule));
  tensors.norm2 = add(model, gain(prefix + "norm2", unit, width));
  tensors.up = add(model, matrix(prefix + "up", unit, 4 * width, width, inner, rule));
  tensors.down = add(model, matrix(prefix + "down", unit, width, 4 * width, outer, rule));
  return tensors;
}

}  // namespace

Model make_model(const Shape &shape) {
  refuse_bad_shape(shape);
  Model model;
  model.shape = shape;
  model.token_embedding = add(&model, table("embedding.token", 0, vocabulary, shape.width, 0.02f));
  model.position_embedding = add(&model, table("embedding.position", 0, shape.context, shape.width, 0.02f));
  for (int block = 0; block < shape.layers; ++block) model.blocks.push_back(add_block(&model, block));
  model.head_unit = shape.tied ? 0 : static_cast<int>(shape.layers) + 1;
  model.unit_count = static_cast<int>(shape.layers) + (shape.tied ? 1 : 2);
  model.head_norm = add(&model, gain("head.norm", model.head_unit, shape.width));
  model.head = add(&model, table("head.weight", model.head_unit, vocabulary, shape.width, 0.02f));
  if (shape.tied) {
    model.tensors.back().tied_to = model.tensors[model.token_embedding].name;
    model.tensors.back().role = MXS_ROLE_AUTO;  // it has no bytes that could be flat
    model.head = model.token_embedding;
  }
  return model;
}

std::vector<int> Model::unit_tensors(int unit) const {
  std::vector<int> found;
  for (size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].unit == unit && tensors[t].tied_to.empty()) found.push_back(static_cast<int>(t));
  return found;
}

std::vector<mxs_tensor> Model::descriptions() const {
  std::vector<mxs_tensor> described;
  for (const Tensor &tensor : tensors) {
    mxs_tensor description = MXS_TENSOR_INIT;
    description.name = tensor.name.c_str();
    description.dtype = shape.dtype;
    description.master_dtype = MXS_F32;
    description.gradient_dtype = shape.gradient_dtype;
    description.dimension_count = static_cast<int32_t>(tensor.dimensions.size());
    for (size_t d = 0; d < tensor.dimensions.size(); ++d) description.shape[d] = tensor.dimensions[d];
    description.unit = tensor.unit;
    description.rule = tensor.rule;
    description.role = tensor.role;
    description.group = tensor.group();
    description.block_rows = tensor.block_rows.empty() ? nullptr : tensor.block_rows.data();
    description.block_count = static_cast<int32_t>(tensor.block_rows.size());
    description.tied_to = tensor.tied_to.empty() ? nullptr : tensor.tied_to.c_str();
    described.push_back(description);
  }
  return described;
}

PlanOwner Model::plan(mxs_comm *comm, uint64_t alignment, const mxs_plan *previous,
                      const std::vector<int32_t> &previous_ranks) const {
  mxs_topology *topology = nullptr;
  check(mxs_comm_topology(comm, &topology), "mxs_comm_topology");
  const TopologyOwner keep(topology);
  const std::vector<mxs_tensor> tensors = descriptions();
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
  options.alignment = alignment;
  options.previous = previous;
  options.previous_ranks = previous_ranks.empty() ? nullptr : previous_ranks.data();
  mxs_plan *plan = nullptr;
  check(mxs_plan_create(&plan, tensors.data(), tensors.size(), topology, &options), "mxs_plan_create");
  return PlanOwner(plan);
}

void initial_weights(const Tensor &tensor, uint64_t seed, uint64_t element_offset, uint64_t count, float *target) {
  const uint64_t key = mix(seed, hash_name(tensor.name));
  for (uint64_t i = 0; i < count; ++i)
    target[i] = tensor.spread == 0 ? 1.0f : tensor.spread * uniform(key, element_offset + i);
}

}  // namespace train
