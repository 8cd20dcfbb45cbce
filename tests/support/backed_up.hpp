// SPDX-License-Identifier: Apache-2.0
// For tests of backups: a model with every rule and kind of master, a rank that trains it, and what training without a
// failure gives after each step, byte by byte, values and state, whatever the pieces.
//
// Rank 0 gives the gradients and the others zeros, so that sums are exact in every world.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "matrixshard/matrixshard.h"
#include "support/drawn_values.hpp"
#include "support/world.hpp"

namespace mxs::test {

using Bytes = std::vector<std::byte>;

struct BackedUpTensor {
  const char *name;
  int unit;
  std::vector<int64_t> shape;
  mxs_dtype dtype, master;
  mxs_rule rule;
  int group;
  std::vector<int64_t> rows = {}, columns = {};
};

// "long" is cut into shares of 4,096 elements and more; the others are whole, or blocks.
inline const std::vector<BackedUpTensor> &backed_up_model() {
  static const std::vector<BackedUpTensor> tensors = {
      {"long", 0, {25000}, MXS_BF16, MXS_F32, MXS_RULE_ADAMW, 1},
      {"qkv", 0, {48, 24}, MXS_BF16, MXS_F32, MXS_RULE_MUON, 1, {16, 24, 8}},
      {"left", 0, {12, 30}, MXS_F32, MXS_F32, MXS_RULE_SHAMPOO, 0, {}, {10, 8, 12}},
      {"wide", 1, {17, 65}, MXS_F32, MXS_F32, MXS_RULE_SOAP, 2},
      {"experts", 1, {3, 9, 20}, MXS_BF16, MXS_BF16, MXS_RULE_MUON, 1},
      {"table", 1, {33, 20}, MXS_BF16, MXS_BF16, MXS_RULE_FROZEN, 0},
      {"outside", 1, {12, 8}, MXS_F16, MXS_F32, MXS_RULE_EXTERNAL, 0},
      {"hidden", 2, {20, 32}, MXS_BF16, MXS_BF16, MXS_RULE_MUON, 1},
      {"bias", 2, {7}, MXS_BF16, MXS_BF16, MXS_RULE_ADAMW, 1},
      {"short", 2, {9000}, MXS_F32, MXS_F32, MXS_RULE_ADAMW, 1},
      {"none", 2, {0, 4}, MXS_F32, MXS_F32, MXS_RULE_MUON, 1},
  };
  return tensors;
}
constexpr int backed_up_units = 3;

// By "tensor/values", "tensor/exp_avg": of whole tensors; state of a whole matrix by "tensor/factor_left@offset".
using Record = std::map<std::string, Bytes>;

class BackedUpRank {
 public:
  int rank = 0;
  mxs_comm *comm = nullptr;
  mxs_plan *plan = nullptr;
  std::vector<mxs_unit *> units;
  mxs_optimizer *optimizer = nullptr;
  int fixed_owner = 0;  // of all tensors that have one; 0: chosen
  bool backup = true, decomposes = true;  // false: muon steps what shampoo and soap do
  int64_t longer = 0;   // elements that "long" has more
  mxs_preset preset = MXS_PRESET_DEFAULT;
  mxs_backend backend = MXS_BACKEND_AUTO;

  BackedUpRank() = default;
  BackedUpRank(const BackedUpRank &) = delete;
  ~BackedUpRank() { clear(); }

  void clear() {
    mxs_optimizer_destroy(&optimizer);
    for (mxs_unit *&unit : units) mxs_unit_destroy(&unit);
    units.clear();
    mxs_plan_destroy(&plan);
  }

  // Weights are drawn; those of a rank that recovers are overwritten.
  std::string make(mxs_comm *its_comm, const mxs_plan *previous = nullptr, const int32_t *previous_ranks = nullptr) {
    comm = its_comm;
    mxs_comm_info info = MXS_COMM_INFO_INIT;
    if (mxs_comm_query(comm, &info) != MXS_OK) return failure("query");
    rank = info.rank;
    std::string complaint = make_plan(previous, previous_ranks);
    if (!complaint.empty()) return complaint;
    mxs_unit_options unit_options = MXS_UNIT_OPTIONS_INIT;
    unit_options.flags = MXS_RANK_ORDER;
    unit_options.slots = backed_up_units;
    for (int index = 0; index < backed_up_units; ++index) {
      units.push_back(nullptr);
      if (mxs_unit_create(&units.back(), comm, plan, index, &unit_options) != MXS_OK) return failure("unit");
    }
    mxs_shampoo_options shampoo = MXS_SHAMPOO_OPTIONS_INIT;
    mxs_soap_options soap = MXS_SOAP_OPTIONS_INIT;
    shampoo.interval = soap.interval = 2;
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    options.preset = preset;
    options.backend = backend;
    options.shampoo_options = &shampoo;
    options.soap_options = &soap;
    options.rounding = MXS_ROUND_STOCHASTIC;
    options.seed = 7;
    options.backup = backup;
    if (mxs_optimizer_create(&optimizer, units.data(), units.size(), &options) != MXS_OK) return failure("optimizer");
    return for_each_shard([](const mxs_placement &placement, mxs_view &view) {
      for (uint64_t i = 0; i < placement.element_count; ++i)
        write_value(view.data, view.dtype, i,
                    hashed(static_cast<uint64_t>(placement.tensor), placement.element_offset + i, 1u << 20));
      return std::string();
    });
  }

  template <class Body>
  std::string for_each_shard(Body &&body, bool commits = true) {
    for (uint64_t index = 0; index < mxs_plan_placement_count(plan); ++index) {
      mxs_placement placement = MXS_PLACEMENT_INIT;
      mxs_plan_placement(plan, index, &placement);
      mxs_unit *const unit = units[static_cast<size_t>(placement.unit)];
      mxs_view view = MXS_VIEW_INIT;
      if (mxs_unit_shard(unit, index, &view) != MXS_OK) return failure("shard");
      if (!view.data) continue;
      const std::string complaint = body(placement, view);
      if (!complaint.empty()) return complaint;
      if (commits && mxs_unit_commit(unit, &view) != MXS_OK) return failure("commit");
    }
    return "";
  }

  mxs_status backward(int turn, float value = 0) {
    for (int unit = backed_up_units - 1; unit >= 0; --unit) {
      for (size_t t = 0; t < backed_up_model().size(); ++t) {
        const BackedUpTensor &tensor = backed_up_model()[t];
        if (tensor.unit != unit || tensor.rule == MXS_RULE_FROZEN) continue;
        mxs_view view = MXS_VIEW_INIT;
        const mxs_status status =
            mxs_unit_gradient(units[static_cast<size_t>(unit)], static_cast<int32_t>(t), MXS_WRITE, &view);
        if (status != MXS_OK) return status;
        for (uint64_t i = 0; i < view.bytes / mxs_dtype_bytes(view.dtype); ++i)
          write_value(view.data, view.dtype, i, rank == 0 ? hashed(t, i, static_cast<uint64_t>(turn)) + value : 0.0f);
      }
      const mxs_status status = mxs_unit_reduce(units[static_cast<size_t>(unit)], nullptr);
      if (status != MXS_OK) return status;
    }
    return MXS_OK;
  }

  // Room for the values of a step.
  mxs_group_values groups[3] = {MXS_GROUP_VALUES_INIT, MXS_GROUP_VALUES_INIT, MXS_GROUP_VALUES_INIT};
  mxs_step values() {
    if (decomposes) groups[0].beta2 = 1.0f;  // shampoo's factors are sums
    groups[2].beta1 = groups[2].beta2 = 0.95f;
    mxs_step step = MXS_STEP_INIT;
    step.group_count = 3;
    step.groups = groups;
    step.clip_norm = 4.0f;
    return step;
  }

  mxs_status one_step(int turn) {
    const mxs_status status = backward(turn);
    const mxs_step step = values();
    return status == MXS_OK ? mxs_optimizer_step(optimizer, &step, nullptr) : status;
  }

  // Up to so many in all.
  std::string steps_to(uint64_t count) {
    while (mxs_optimizer_step_number(optimizer) < count)
      if (one_step(static_cast<int>(mxs_optimizer_step_number(optimizer))) != MXS_OK) return failure("step");
    return "";
  }

  // visit(key, offset within, data, bytes) of all that this rank owns. Looking at state is a change of it to a backup,
  // so with_state false is for where that matters.
  template <class Visit>
  std::string visit(Visit &&visit, bool with_state = true) {
    const auto name_of = [](int32_t tensor) {
      return std::string(backed_up_model()[static_cast<size_t>(tensor)].name).append("/");
    };
    std::string complaint = for_each_shard(
        [&](const mxs_placement &placement, mxs_view &view) {
          return visit(name_of(placement.tensor) + "values", placement.element_offset * mxs_dtype_bytes(view.dtype),
                       static_cast<std::byte *>(view.data), view.bytes);
        },
        false);
    for (uint64_t i = 0; with_state && complaint.empty() && i < mxs_optimizer_state_count(optimizer); ++i) {
      mxs_state_info info = MXS_STATE_INFO_INIT;
      if (mxs_optimizer_state(optimizer, i, &info) != MXS_OK) return failure("state");
      mxs_placement placement = MXS_PLACEMENT_INIT;
      mxs_plan_placement(plan, info.placement, &placement);
      const uint64_t width = mxs_dtype_bytes(info.view.dtype);
      const bool by_element = info.view.bytes == placement.element_count * width;
      std::string key = name_of(info.tensor) + info.name;
      if (!by_element) key.append("@").append(std::to_string(placement.element_offset));
      complaint = visit(key, by_element ? placement.element_offset * width : 0,
                        static_cast<std::byte *>(info.view.data), info.view.bytes);
    }
    return complaint;
  }

  std::string record(Record *record) {
    return visit([&](const std::string &key, uint64_t offset, const std::byte *data, uint64_t bytes) {
      Bytes &all = (*record)[key];
      if (all.size() < offset + bytes) all.resize(offset + bytes);
      std::copy_n(data, bytes, all.begin() + static_cast<ptrdiff_t>(offset));
      return std::string();
    });
  }

  // "" if all that this rank owns is as recorded.
  std::string compare(const Record &record, bool with_state = true) {
    return visit(
        [&](const std::string &key, uint64_t offset, const std::byte *data, uint64_t bytes) {
          const auto found = record.find(key);
          if (found == record.end() || found->second.size() < offset + bytes) return key + " was not recorded";
          return std::equal(data, data + bytes, found->second.begin() + static_cast<ptrdiff_t>(offset))
                     ? std::string()
                     : key + " differs from the run without a failure";
        },
        with_state);
  }

  // Gathered weights against owners' masters: everybody's against what rank 0 of a record has.
  std::string compare_gathered(const Record &weights) {
    for (size_t t = 0; t < backed_up_model().size(); ++t) {
      const BackedUpTensor &tensor = backed_up_model()[t];
      mxs_unit *const unit = units[static_cast<size_t>(tensor.unit)];
      if (mxs_unit_gather(unit, nullptr) != MXS_OK || mxs_unit_wait(unit, nullptr) != MXS_OK) return failure("gather");
      mxs_view view = MXS_VIEW_INIT;
      if (mxs_unit_tensor(unit, static_cast<int32_t>(t), &view) != MXS_OK) return failure("tensor");
      const std::byte *const data = static_cast<const std::byte *>(view.data);
      const Bytes now(data, data + view.bytes);
      if (mxs_unit_release(unit, MXS_FREE, nullptr) != MXS_OK) return failure("release");
      const auto found = weights.find(tensor.name);
      if (found == weights.end() || found->second != now)
        return std::string("gathered weights of ") + tensor.name + " differ";
    }
    return "";
  }
  std::string record_gathered(Record *weights) {
    for (size_t t = 0; t < backed_up_model().size(); ++t) {
      const BackedUpTensor &tensor = backed_up_model()[t];
      mxs_unit *const unit = units[static_cast<size_t>(tensor.unit)];
      if (mxs_unit_gather(unit, nullptr) != MXS_OK || mxs_unit_wait(unit, nullptr) != MXS_OK) return failure("gather");
      mxs_view view = MXS_VIEW_INIT;
      if (mxs_unit_tensor(unit, static_cast<int32_t>(t), &view) != MXS_OK) return failure("tensor");
      const std::byte *const data = static_cast<const std::byte *>(view.data);
      (*weights)[tensor.name] = Bytes(data, data + view.bytes);
      if (mxs_unit_release(unit, MXS_FREE, nullptr) != MXS_OK) return failure("release");
    }
    return "";
  }

  static std::string failure(const std::string &what) { return what + ": " + mxs_last_error(); }

 private:
  std::string make_plan(const mxs_plan *previous, const int32_t *previous_ranks) {
    std::vector<mxs_tensor> tensors;
    for (const BackedUpTensor &described : backed_up_model()) {
      mxs_tensor tensor = MXS_TENSOR_INIT;
      tensor.name = described.name;
      tensor.unit = described.unit;
      tensor.dtype = described.dtype;
      tensor.master_dtype = described.master;
      tensor.rule = described.rule;
      if (!decomposes && (tensor.rule == MXS_RULE_SHAMPOO || tensor.rule == MXS_RULE_SOAP)) tensor.rule = MXS_RULE_MUON;
      tensor.group = described.group;
      tensor.dimension_count = static_cast<int32_t>(described.shape.size());
      std::copy(described.shape.begin(), described.shape.end(), tensor.shape);
      if (tensors.empty()) tensor.shape[0] += longer;
      tensor.block_rows = described.rows.empty() ? nullptr : described.rows.data();
      tensor.block_count = static_cast<int32_t>(described.rows.size());
      tensor.block_columns = described.columns.empty() ? nullptr : described.columns.data();
      tensor.block_column_count = static_cast<int32_t>(described.columns.size());
      tensor.fixed_owner = fixed_owner;
      tensors.push_back(tensor);
    }
    mxs_topology *topology = nullptr;
    if (mxs_comm_topology(comm, &topology) != MXS_OK) return failure("topology");
    mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
    options.flat_bytes = 8192;
    options.previous = previous;
    options.previous_ranks = previous_ranks;
    const mxs_status status = mxs_plan_create(&plan, tensors.data(), tensors.size(), topology, &options);
    mxs_topology_destroy(&topology);
    return status == MXS_OK ? "" : failure("plan");
  }
};

// What a run without a failure has after each step, from 0; and its gathered weights after the last.
struct Undisturbed {
  std::vector<Record> after;
  Record weights;

  std::string run(int steps) {
    return run_world(1, [&](int, mxs_comm *comm) {
      BackedUpRank rank;
      std::string complaint = rank.make(comm);
      after.resize(static_cast<size_t>(steps) + 1);
      for (int step = 0; complaint.empty() && step <= steps; ++step) {
        complaint = rank.steps_to(static_cast<uint64_t>(step));
        if (complaint.empty()) complaint = rank.record(&after[static_cast<size_t>(step)]);
      }
      return complaint.empty() ? rank.record_gathered(&weights) : complaint;
    });
  }
};

}  // namespace mxs::test
