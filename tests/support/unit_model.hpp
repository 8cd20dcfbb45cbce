// SPDX-License-Identifier: Apache-2.0
// A small model for tests of units: every role and dtype, frozen, tied and empty tensors, and a unit without any.
// Values are functions of (tensor, element, version), so that every rank knows what it must see.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "matrixshard/matrixshard.h"
#include "support/drawn_values.hpp"
#include "unit/unit.hpp"

namespace mxs::test {

inline std::string failure(const std::string &what, mxs_status status) {
  return what + ": " + mxs_status_name(status) + ", " + mxs_last_error();
}

// "" if a call gave the status that was wanted.
inline std::string want(mxs_status wanted, mxs_status status, const std::string &what) {
  if (status == wanted) return "";
  if (status == MXS_OK) return what + " is OK, not " + mxs_status_name(wanted);
  return failure(what + " is not " + mxs_status_name(wanted), status);
}

// Small whole numbers: exact in every dtype.
inline float weight_value(int tensor, uint64_t element, uint64_t version) {
  const uint64_t mixed = (element * 2654435761u + static_cast<uint64_t>(tensor) * 40503u + version * 7919u) >> 3;
  return static_cast<float>(static_cast<int>(mixed % 251) - 125);
}

// Many bits of mantissa: sums depend on their order.
inline float gradient_value(int tensor, uint64_t element, int rank, int round) {
  const uint64_t mixed = (element + 1) * 0x9e3779b97f4a7c15u ^
                         (static_cast<uint64_t>(tensor) + 3) * 0xbf58476d1ce4e5b9u ^
                         (static_cast<uint64_t>(rank * 64 + round) + 1) * 0x94d049bb133111ebu;
  const auto bits = static_cast<uint32_t>(mixed >> 40);
  return (static_cast<float>(bits) - 8388608.0f) / static_cast<float>(1 << (8 + mixed % 17));
}

struct Model {
  std::vector<std::string> names;
  std::vector<mxs_tensor> tensors;
  std::vector<int64_t> expert_rows;

  // Views of names are taken at the end: the strings must not move.
  mxs_tensor &add(const char *name, int unit, std::vector<int64_t> shape, mxs_dtype dtype = MXS_F32) {
    mxs_tensor tensor = MXS_TENSOR_INIT;
    tensor.unit = unit;
    tensor.dtype = dtype;
    tensor.dimension_count = static_cast<int32_t>(shape.size());
    for (size_t i = 0; i < shape.size(); i++) tensor.shape[i] = shape[i];
    names.push_back(name);
    tensors.push_back(tensor);
    return tensors.back();
  }

  void finish() {
    for (size_t i = 0; i < tensors.size(); i++) tensors[i].name = names[i].c_str();
  }
};

// unit_count blocks of four tensors each.
inline Model plain_model(int unit_count, mxs_dtype dtype = MXS_F32, int64_t rows = 24, int64_t columns = 40) {
  Model model;
  for (int unit = 0; unit < unit_count; unit++) {
    const std::string prefix = "block" + std::to_string(unit);
    model.add((prefix + ".qkv").c_str(), unit, {3 * rows, columns}, dtype);
    model.add((prefix + ".out").c_str(), unit, {rows, columns + 1}, dtype);
    model.add((prefix + ".norm").c_str(), unit, {columns}, dtype);
    model.add((prefix + ".up").c_str(), unit, {rows + 7, columns}, dtype);
  }
  model.finish();
  return model;
}

// Everything odd at once; unit 2 has no tensors, unit 3 has nothing but an empty and a frozen one.
inline Model odd_model() {
  Model model;
  model.add("embedding", 0, {611, 63}, MXS_BF16).rule = MXS_RULE_ADAMW;
  model.add("scale", 0, {});
  model.add("qkv", 1, {96, 33}, MXS_BF16);
  model.add("experts", 1, {5, 32, 64}, MXS_BF16);
  model.add("bias", 1, {33}, MXS_F16).gradient_dtype = MXS_F32;
  model.add("plain", 1, {17, 19}).gradient_dtype = MXS_BF16;
  model.add("same", 1, {64, 3}, MXS_BF16).master_dtype = MXS_BF16;
  model.add("nothing", 3, {0, 12});
  model.add("table", 3, {333, 40}).rule = MXS_RULE_FROZEN;
  model.add("head", 4, {41, 64}, MXS_F16);
  model.add("tied", 4, {41, 64}, MXS_F16).tied_to = "head";
  model.finish();
  return model;
}

// A rank's plan, comm and units. Units are destroyed in the order of their numbers, then the plan.
class Units {
 public:
  Units() = default;
  Units(const Units &) = delete;
  ~Units() {
    for (mxs_unit *&unit : units)
      if (unit) mxs_unit_destroy(&unit);
    mxs_plan_destroy(&plan);
  }

  std::string make(mxs_comm *its_comm, const Model &model, const mxs_unit_options *options = nullptr) {
    comm = its_comm;
    mxs_topology *topology = nullptr;
    mxs_status status = mxs_comm_topology(comm, &topology);
    if (status != MXS_OK) return failure("mxs_comm_topology", status);
    status = mxs_plan_create(&plan, model.tensors.data(), model.tensors.size(), topology, &plan_options);
    mxs_topology_destroy(&topology);
    if (status != MXS_OK) return failure("mxs_plan_create", status);
    mxs_comm_info info = MXS_COMM_INFO_INIT;
    status = mxs_comm_query(comm, &info);
    if (status != MXS_OK) return failure("mxs_comm_query", status);
    rank = info.rank;
    rank_count = info.rank_count;
    mxs_unit_options own = MXS_UNIT_OPTIONS_INIT;
    if (options) own = *options;
    for (int index = 0; index < mxs_plan_unit_count(plan); index++) {
      mxs_unit *unit = nullptr;
      if (!own_slot_units.empty())
        own.own_slot = std::count(own_slot_units.begin(), own_slot_units.end(), index) != 0;
      status = mxs_unit_create(&unit, comm, plan, index, options || own.own_slot ? &own : nullptr);
      if (status != MXS_OK) return failure("mxs_unit_create " + std::to_string(index), status);
      units.push_back(unit);
    }
    return "";
  }

  const Plan &inner() const { return units[0]->plan(); }

  // Writes this rank's pieces, of all units or of one, through shard and commit.
  std::string fill(uint64_t version, int only = -1) {
    const Plan &planned = inner();
    for (uint64_t number = 0; number < planned.placements.size(); number++) {
      const Placement &piece = planned.placements[number];
      if (only >= 0 && piece.unit != only) continue;
      mxs_view view = MXS_VIEW_INIT;
      mxs_unit *unit = units[static_cast<size_t>(piece.unit)];
      mxs_status status = mxs_unit_shard(unit, number, &view);
      if (status != MXS_OK) return failure("mxs_unit_shard", status);
      if (piece.owner != rank && view.bytes) return "a piece that isn't owned has a view";
      for (uint64_t i = 0; i < view.bytes / dtype_bytes(view.dtype); i++)
        write_value(view.data, view.dtype, i, weight_value(piece.tensor, piece.element_offset + i, version));
      status = mxs_unit_commit(unit, &view);
      if (status != MXS_OK) return failure("mxs_unit_commit", status);
    }
    return "";
  }

  // A gathered unit must show every byte of every tensor.
  std::string check(int index, uint64_t version) {
    for (const int tensor : inner().units[static_cast<size_t>(index)].tensors) {
      const PlannedTensor &planned = inner().tensors[static_cast<size_t>(tensor)];
      mxs_view view = MXS_VIEW_INIT;
      const mxs_status status = mxs_unit_tensor(units[static_cast<size_t>(index)], tensor, &view);
      if (status != MXS_OK) return failure("mxs_unit_tensor", status);
      const int source = planned.tied_to >= 0 ? planned.tied_to : tensor;
      if (view.bytes != planned.element_count * dtype_bytes(planned.dtype)) return planned.name + " has wrong bytes";
      for (uint64_t i = 0; i < planned.element_count; i++)
        if (read_value(view.data, view.dtype, i) != weight_value(source, i, version))
          return planned.name + ", element " + std::to_string(i) + " is " +
                 std::to_string(read_value(view.data, view.dtype, i)) + ", not " +
                 std::to_string(weight_value(source, i, version));
    }
    return "";
  }

  std::string gather_and_check(int index, uint64_t version, int mode = MXS_FREE) {
    mxs_unit *unit = units[static_cast<size_t>(index)];
    mxs_status status = mxs_unit_gather(unit, nullptr);
    if (status != MXS_OK) return failure("mxs_unit_gather", status);
    status = mxs_unit_wait(unit, nullptr);
    if (status != MXS_OK) return failure("mxs_unit_wait", status);
    const std::string complaint = check(index, version);
    if (!complaint.empty()) return "unit " + std::to_string(index) + ", " + complaint;
    status = mxs_unit_release(unit, mode, nullptr);
    return status == MXS_OK ? "" : failure("mxs_unit_release", status);
  }

  // Opens and fills every gradient of a unit but one in five, which counts as zero.
  std::string write_gradients(int index, int round, int flags) {
    for (const int tensor : inner().units[static_cast<size_t>(index)].tensors) {
      const PlannedTensor &planned = inner().tensors[static_cast<size_t>(tensor)];
      if (planned.frozen() || planned.tied_to >= 0 || tensor % 5 == 3) continue;
      mxs_view view = MXS_VIEW_INIT;
      const mxs_status status = mxs_unit_gradient(units[static_cast<size_t>(index)], tensor, flags, &view);
      if (status != MXS_OK) return failure("mxs_unit_gradient", status);
      if (view.dtype != planned.gradient_dtype) return planned.name + " has a gradient of the wrong dtype";
      for (uint64_t i = 0; i < planned.element_count; i++) {
        const float before = flags == MXS_ADD ? read_value(view.data, view.dtype, i) : 0.0f;
        write_value(view.data, view.dtype, i, before + gradient_value(tensor, i, rank, round));
      }
    }
    return "";
  }

  // What write_gradients gives, as the owner reads it.
  static float rounded_gradient(const PlannedTensor &planned, int tensor, uint64_t element, int from, int round) {
    if (tensor % 5 == 3) return 0.0f;
    uint32_t bits[2] = {0, 0};
    write_value(bits, planned.gradient_dtype, 0, gradient_value(tensor, element, from, round));
    return read_value(bits, planned.gradient_dtype, 0);
  }

  // The sums of this rank's pieces must be those of one process adding round by round, rank by rank. skipping_rank
  // took no part in the last round.
  std::string check_sums(int index, int round_count, int skipping_rank = -1) {
    for (const uint64_t number : inner().units[static_cast<size_t>(index)].placements) {
      const Placement &piece = inner().placements[number];
      const PlannedTensor &planned = inner().tensors[static_cast<size_t>(piece.tensor)];
      mxs_view view = MXS_VIEW_INIT;
      const mxs_status status = mxs_unit_shard_gradient(units[static_cast<size_t>(index)], number, &view);
      if (status != MXS_OK) return failure("mxs_unit_shard_gradient", status);
      const uint64_t elements = piece.owner == rank && !planned.frozen() ? piece.element_count : 0;
      if (view.bytes != elements * sizeof(float)) return planned.name + ": the summed gradient has wrong bytes";
      for (uint64_t i = 0; i < elements; i++) {
        float sum = 0.0f;
        for (int round = 0; round < round_count; round++)
          for (int from = 0; from < rank_count; from++) {
            if (from == skipping_rank && round == round_count - 1) sum += 0.0f;
            else sum += rounded_gradient(planned, piece.tensor, piece.element_offset + i, from, round);
          }
        const float found = static_cast<const float *>(view.data)[i];
        if (std::memcmp(&found, &sum, sizeof sum) != 0 && !(found == 0.0f && sum == 0.0f))
          return planned.name + ", element " + std::to_string(i) + " of the sum is " + std::to_string(found) +
                 ", not " + std::to_string(sum);
      }
    }
    return "";
  }

  // What an optimizer does with units, with weights of the next version for an update.
  std::string step(uint64_t version) {
    for (mxs_unit *unit : units) {
      mxs_status status = unit->check_idle("the step");
      if (status != MXS_OK) return failure("check_idle", status);
      status = unit->wait_reduce(0);
      if (status != MXS_OK) return failure("wait_reduce", status);
    }
    for (mxs_unit *unit : units) unit->end_views();
    const mxs_status status = mxs_comm_barrier(comm, nullptr);
    if (status != MXS_OK) return failure("mxs_comm_barrier", status);
    for (mxs_unit *unit : units) {
      for (const OwnedPlacement &owned : unit->owned()) {
        const Placement &piece = inner().placements[owned.placement];
        for (uint64_t i = 0; i < owned.element_count; i++) {
          const float value = weight_value(owned.tensor, piece.element_offset + i, version);
          write_value(owned.weights, owned.dtype, i, value);
          if (owned.master) write_value(owned.master, owned.master_dtype, i, value);
        }
      }
      unit->finish_step(true);
    }
    return "";
  }

  std::vector<int> own_slot_units;  // set before make; empty: as options say
  mxs_plan_options plan_options = MXS_PLAN_OPTIONS_INIT;  // likewise
  mxs_comm *comm = nullptr;
  mxs_plan *plan = nullptr;
  std::vector<mxs_unit *> units;
  int rank = 0, rank_count = 1;
};

}  // namespace mxs::test
