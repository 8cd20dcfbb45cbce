// SPDX-License-Identifier: Apache-2.0
// Saves a small model of every role and rule, with numbers that don't depend on the world:
//
//   mxs run -n 4 -- make_checkpoint PATH STEP "ranks:4" [masters] [weights-only] [no-optimizer] [no-extras] [large:N]
//
// So what two worlds save must be equal, array by array.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <string>
#include <vector>

#include "matrixshard/matrixshard.hpp"

namespace {

struct Request {
  std::string path, world;
  uint64_t step_number = 0, large_count = 0;
  bool masters = false, weights_only = false, optimizer = true, extras = true;
};

Request read(int count, char **words) {
  if (count < 4) throw std::runtime_error("make_checkpoint PATH STEP WORLD [words]");
  Request request;
  request.path = words[1];
  request.step_number = std::strtoull(words[2], nullptr, 10);
  request.world = words[3];
  for (int i = 4; i < count; ++i) {
    const std::string word = words[i];
    if (word == "masters") request.masters = true;
    else if (word == "weights-only") request.weights_only = true;
    else if (word == "no-optimizer") request.optimizer = false;
    else if (word == "no-extras") request.extras = false;
    else if (word.rfind("large:", 0) == 0) request.large_count = std::strtoull(word.c_str() + 6, nullptr, 10);
    else throw std::runtime_error(word + " is not understood");
  }
  return request;
}

const int64_t three_blocks[] = {64, 64, 64};
const int64_t two_columns[] = {64, 32};

mxs_tensor tensor(const char *name, std::initializer_list<int64_t> shape, int32_t unit, mxs_rule rule) {
  mxs_tensor made = MXS_TENSOR_INIT;
  made.name = name;
  made.dtype = MXS_BF16;
  made.unit = unit;
  made.rule = rule;
  for (const int64_t side : shape) made.shape[made.dimension_count++] = side;
  return made;
}

// large_count: matrices of 16 MiB as fp32 more.
std::vector<mxs_tensor> tensors(uint64_t large_count) {
  static std::list<std::string> names;
  std::vector<mxs_tensor> all;
  for (uint64_t number = 0; number < large_count; ++number) {
    names.push_back(std::string("large.").append(std::to_string(number)));
    all.push_back(tensor(names.back().c_str(), {2048, 2048}, 0, MXS_RULE_ADAMW));
    all.back().role = MXS_ROLE_FLAT;
  }
  all.push_back(tensor("embed.weight", {257, 64}, 0, MXS_RULE_ADAMW));  // flat
  all.push_back(tensor("head.weight", {257, 64}, 0, MXS_RULE_ADAMW));
  all.back().tied_to = "embed.weight";
  all.push_back(tensor("layers.0.qkv", {192, 64}, 1, MXS_RULE_MUON));
  all.back().block_rows = three_blocks;
  all.back().block_count = 3;
  all.push_back(tensor("layers.0.up", {128, 64}, 1, MXS_RULE_MUON));
  all.push_back(tensor("layers.0.norm", {64}, 1, MXS_RULE_ADAMW));
  all.back().group = 2;
  all.push_back(tensor("layers.0.down", {64, 96}, 1, MXS_RULE_SHAMPOO));
  all.push_back(tensor("layers.1.experts", {4, 64, 32}, 2, MXS_RULE_SOAP));
  all.push_back(tensor("layers.1.fused", {48, 96}, 2, MXS_RULE_SHAMPOO));
  all.back().block_columns = two_columns;
  all.back().block_column_count = 2;
  all.push_back(tensor("layers.1.scale", {}, 2, MXS_RULE_ADAMW));
  all.back().dtype = MXS_F32;  // no master
  all.push_back(tensor("layers.1.nothing", {0, 8}, 2, MXS_RULE_ADAMW));
  all.push_back(tensor("layers.1.table", {999}, 2, MXS_RULE_FROZEN));
  return all;
}

// A small number of 8 bits, that bf16 holds.
float number_at(const std::string &name, uint64_t index) {
  uint64_t hash = 14695981039346656037u;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211u;
  hash = (hash ^ index) * 1099511628211u;
  return static_cast<float>(static_cast<int>(hash >> 40 & 0xff) - 128) / 64.0f;
}

void fill(mxs_view view, const std::string &name, uint64_t first) {
  for (uint64_t i = 0; view.dtype == MXS_F32 && i < view.bytes / 4; ++i)
    static_cast<float *>(view.data)[i] = number_at(name, first + i);
}

void fill_weights(const mxs::plan &plan, const std::vector<mxs::unit> &units) {
  for (uint64_t index = 0; index < mxs_plan_placement_count(plan.get()); ++index) {
    mxs_placement placement = MXS_PLACEMENT_INIT;
    mxs_tensor_info info = MXS_TENSOR_INFO_INIT;
    mxs::check(mxs_plan_placement(plan.get(), index, &placement));
    mxs::check(mxs_plan_tensor(plan.get(), placement.tensor, &info));
    mxs_unit *const unit = units[static_cast<size_t>(placement.unit)].get();
    mxs_view view = MXS_VIEW_INIT;
    mxs::check(mxs_unit_shard(unit, index, &view));
    if (view.dtype == MXS_F32) fill(view, info.name, placement.element_offset);
    else if (view.data) std::memset(view.data, 0x3f, view.bytes);
    mxs::check(mxs_unit_commit(unit, &view));
  }
}

// Numbers by element and by row lie as the tensor's do; those of a matrix are its own.
void fill_state(const mxs::plan &plan, mxs_optimizer *optimizer) {
  for (uint64_t index = 0; index < mxs_optimizer_state_count(optimizer); ++index) {
    mxs_state_info state = MXS_STATE_INFO_INIT;
    mxs_placement placement = MXS_PLACEMENT_INIT;
    mxs_tensor_info info = MXS_TENSOR_INFO_INIT;
    mxs::check(mxs_optimizer_state(optimizer, index, &state));
    mxs::check(mxs_plan_placement(plan.get(), state.placement, &placement));
    mxs::check(mxs_plan_tensor(plan.get(), placement.tensor, &info));
    const std::string part = state.name, name = std::string(info.name) + "." + part;
    if (part == "momentum" || part.rfind("exp_avg", 0) == 0)
      fill(state.view, name, placement.element_offset);
    else if (part == "second_momentum")
      fill(state.view, name, placement.element_offset / 64);  // both tensors of muon have 64 columns
    else
      fill(state.view, name + "." + std::to_string(placement.block), 0);
  }
}

void step_once(mxs_optimizer *optimizer, uint64_t step_number) {
  mxs_group_values groups[3] = {MXS_GROUP_VALUES_INIT, MXS_GROUP_VALUES_INIT, MXS_GROUP_VALUES_INIT};
  groups[2].lr = 0.25f;
  groups[2].weight_decay = 0;
  mxs_step step = MXS_STEP_INIT;
  step.groups = groups;
  step.group_count = 3;
  mxs::check(mxs_optimizer_step(optimizer, &step, nullptr));
  mxs::check(mxs_optimizer_set_step_number(optimizer, step_number));
}

mxs_extra_tensor extra(const char *name, const char *dtype, const void *data, std::initializer_list<int64_t> shape) {
  mxs_extra_tensor made = MXS_EXTRA_TENSOR_INIT;
  made.name = name;
  made.dtype = dtype;
  made.data = data;
  for (const int64_t side : shape) made.shape[made.dimension_count++] = side;
  return made;
}

void save(const Request &request, const std::vector<mxs::unit> &units, mxs_optimizer *optimizer) {
  static const float frequencies[5] = {1, 0.5f, 0.25f, 0.125f, 0.0625f};
  static const int64_t counter = 12345;
  static const unsigned char mask[3] = {1, 0, 1};
  const mxs_extra_tensor extras[] = {extra("rope.mask", "BOOL", mask, {3}), extra("rope.counter", "I64", &counter, {}),
                                     extra("rope.frequencies", "F32", frequencies, {5})};
  const std::string user = std::string("rank ").append(std::getenv("RANK") ? std::getenv("RANK") : "0");
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.masters = request.masters;
  options.weights_only = request.weights_only;
  options.user = user.data();
  options.user_bytes = user.size();
  if (request.extras) {
    options.extras = extras;
    options.extra_count = 3;
  }
  std::vector<mxs_unit *> handles;
  for (const mxs::unit &unit : units) handles.push_back(unit.get());
  mxs::check(mxs_checkpoint_save(request.path.c_str(), handles.data(), handles.size(), optimizer, &options));
}

void make(const Request &request) {
  const mxs::comm comm = mxs::make_comm();
  mxs_plan_options plan_options = MXS_PLAN_OPTIONS_INIT;
  plan_options.flat_bytes = 8192;
  const mxs::topology topology = mxs::make_topology(request.world.c_str());
  const mxs::plan plan = mxs::make_plan(tensors(request.large_count), topology, &plan_options);
  std::vector<mxs::unit> units;
  for (int32_t unit = 0; unit < 3; ++unit) units.push_back(mxs::make_unit(comm, plan, unit));
  fill_weights(plan, units);
  mxs::optimizer optimizer;
  if (request.optimizer) {
    mxs_muon_options muon = MXS_MUON_OPTIONS_INIT;
    muon.preset = MXS_PRESET_NORMUON;
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    options.muon_options = &muon;
    optimizer = mxs::make_optimizer(units, &options);
    step_once(optimizer.get(), request.step_number);
    fill_weights(plan, units);
    fill_state(plan, optimizer.get());
  }
  save(request, units, optimizer.get());
}

}  // namespace

int main(int count, char **words) {
  try {
    make(read(count, words));
    return 0;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "make_checkpoint: %s\n", error.what());
    return 1;
  }
}
