// SPDX-License-Identifier: Apache-2.0
// One set of units with its optimizer, in host or in CUDA memory, fed with numbers that every rank draws for itself.
// Two sides on one comm, one of each memory, are to have equal bits after equal calls: sums are in rank order.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "matrixshard/matrixshard.h"
#include "support/drawn_values.hpp"

namespace mxs::test {

struct SideTensor {
  const char *name;
  int unit;
  std::vector<int64_t> shape;
  mxs_dtype dtype;
  mxs_rule rule;
  int group;
  std::vector<int64_t> block_rows = {}, block_columns = {};
  bool transposed = false;
};

inline std::string told(const std::string &what, mxs_status status) {
  return what + ": " + mxs_status_name(status) + ", " + mxs_last_error();
}

// Copies between any memory, complete on return.
inline std::string copy_bytes(void *target, const void *source, uint64_t bytes) {
  const mxs_status status = mxs_copy(target, source, bytes, nullptr);
  return status == MXS_OK ? "" : told("mxs_copy", status);
}

class Side {
 public:
  explicit Side(mxs_memory_kind memory) : memory_(memory) {}
  Side(const Side &) = delete;
  ~Side() {
    mxs_optimizer_destroy(&optimizer);
    for (mxs_unit *&unit : units) {
      mxs_unit_wait_reduce(unit, nullptr);  // nothing in flight is destroyed
      mxs_unit_destroy(&unit);
    }
    mxs_plan_destroy(&plan);
  }

  std::string make(mxs_comm *comm, const std::vector<SideTensor> &model, const mxs_optimizer_options *options,
                   int unit_flags = MXS_RANK_ORDER) {
    model_ = model;
    std::string complaint = make_plan(comm);
    for (int index = 0; complaint.empty() && index < mxs_plan_unit_count(plan); ++index) {
      mxs_unit_options own = MXS_UNIT_OPTIONS_INIT;
      own.memory = memory_;
      own.flags = unit_flags;
      mxs_unit *unit = nullptr;
      const mxs_status status = mxs_unit_create(&unit, comm, plan, index, &own);
      if (status != MXS_OK) return told("mxs_unit_create", status);
      units.push_back(unit);
    }
    if (complaint.empty()) complaint = fill();
    if (!complaint.empty()) return complaint;
    const mxs_status status = mxs_optimizer_create(&optimizer, units.data(), units.size(), options);
    return status == MXS_OK ? "" : told("mxs_optimizer_create", status);
  }

  // First weights.
  std::string fill() {
    return over_shards([&](uint64_t, const mxs_placement &piece, mxs_unit *unit, const mxs_view &view) {
      std::vector<std::byte> bytes(view.bytes);
      for (uint64_t i = 0; i < view.bytes / dtype_bytes(view.dtype); ++i)
        write_value(bytes.data(), view.dtype, i, hashed(static_cast<uint64_t>(piece.tensor),
                                                        piece.element_offset + i, 99));
      const std::string complaint = copy_bytes(view.data, bytes.data(), bytes.size());
      if (!complaint.empty()) return complaint;
      const mxs_status status = mxs_unit_commit(unit, &view);
      return status == MXS_OK ? std::string() : told("mxs_unit_commit", status);
    });
  }

  // Of one micro-batch of every rank; `leave_out`: a tensor that has none. `spoiled`: an infinity in tensor 0.
  std::string reduce(int round, void *stream, int leave_out = -1, bool spoiled = false) {
    mxs_call call = MXS_CALL_INIT;
    call.stream = stream;
    for (size_t index = 0; index < units.size(); ++index) {
      for (size_t t = 0; t < model_.size(); ++t) {
        if (model_[t].unit != static_cast<int>(index) || model_[t].rule == MXS_RULE_FROZEN ||
            static_cast<int>(t) == leave_out)
          continue;
        mxs_view view = MXS_VIEW_INIT;
        mxs_status status = mxs_unit_gradient(units[index], static_cast<int32_t>(t), MXS_WRITE, &view);
        if (status != MXS_OK) return told("mxs_unit_gradient", status);
        std::vector<std::byte> bytes(view.bytes);
        for (uint64_t i = 0; i < view.bytes / dtype_bytes(view.dtype); ++i)
          write_value(bytes.data(), view.dtype, i,
                      hashed(t, i, static_cast<uint64_t>(round * 64 + rank) + 1000) * 2.0f);
        if (spoiled && t == 0) write_value(bytes.data(), view.dtype, 0, HUGE_VALF);
        const std::string complaint = copy_bytes(view.data, bytes.data(), bytes.size());
        if (!complaint.empty()) return complaint;
      }
      const mxs_status status = mxs_unit_reduce(units[index], &call);
      if (status != MXS_OK) return told("mxs_unit_reduce", status);
    }
    return "";
  }

  // All bytes that a rank has: weights of its shards and state, in the order of their numbers.
  std::string collect(std::vector<std::byte> *all) {
    all->clear();
    std::string complaint =
        over_shards([&](uint64_t, const mxs_placement &, mxs_unit *, const mxs_view &view) {
          return add_view(view, all);
        });
    for (uint64_t i = 0; complaint.empty() && i < mxs_optimizer_state_count(optimizer); ++i) {
      mxs_state_info info = MXS_STATE_INFO_INIT;
      const mxs_status status = mxs_optimizer_state(optimizer, i, &info);
      if (status != MXS_OK) return told("mxs_optimizer_state", status);
      if (info.view.memory != memory_) return std::string(info.name) + " is in another memory";
      all->insert(all->end(), reinterpret_cast<const std::byte *>(info.name),
                  reinterpret_cast<const std::byte *>(info.name) + std::strlen(info.name));
      complaint = add_view(info.view, all);
    }
    return complaint;
  }

  mxs_optimizer *optimizer = nullptr;
  mxs_plan *plan = nullptr;
  std::vector<mxs_unit *> units;
  int rank = 0;

 private:
  std::string make_plan(mxs_comm *comm) {
    mxs_comm_info info = MXS_COMM_INFO_INIT;
    mxs_status status = mxs_comm_query(comm, &info);
    if (status != MXS_OK) return told("mxs_comm_query", status);
    rank = info.rank;
    std::vector<mxs_tensor> tensors;
    for (const SideTensor &each : model_) {
      mxs_tensor tensor = MXS_TENSOR_INIT;
      tensor.name = each.name;
      tensor.unit = each.unit;
      tensor.dtype = each.dtype;
      tensor.rule = each.rule;
      tensor.group = each.group;
      if (!each.block_rows.empty()) tensor.block_rows = each.block_rows.data();
      tensor.block_count = static_cast<int32_t>(each.block_rows.size());
      if (!each.block_columns.empty()) tensor.block_columns = each.block_columns.data();
      tensor.block_column_count = static_cast<int32_t>(each.block_columns.size());
      tensor.transposed = each.transposed;
      tensor.dimension_count = static_cast<int32_t>(each.shape.size());
      for (size_t i = 0; i < each.shape.size(); ++i) tensor.shape[i] = each.shape[i];
      tensors.push_back(tensor);
    }
    mxs_topology *topology = nullptr;
    status = mxs_comm_topology(comm, &topology);
    if (status != MXS_OK) return told("mxs_comm_topology", status);
    status = mxs_plan_create(&plan, tensors.data(), tensors.size(), topology, nullptr);
    mxs_topology_destroy(&topology);
    return status == MXS_OK ? "" : told("mxs_plan_create", status);
  }

  static std::string add_view(const mxs_view &view, std::vector<std::byte> *all) {
    const size_t before = all->size();
    all->resize(before + view.bytes);
    return copy_bytes(all->data() + before, view.data, view.bytes);
  }

  template <class Body>
  std::string over_shards(Body &&body) {
    for (uint64_t number = 0; number < mxs_plan_placement_count(plan); ++number) {
      mxs_placement piece = MXS_PLACEMENT_INIT;
      mxs_status status = mxs_plan_placement(plan, number, &piece);
      if (status != MXS_OK) return told("mxs_plan_placement", status);
      if (piece.owner != rank) continue;
      mxs_unit *const unit = units[static_cast<size_t>(piece.unit)];
      mxs_view view = MXS_VIEW_INIT;
      status = mxs_unit_shard(unit, number, &view);
      if (status != MXS_OK) return told("mxs_unit_shard", status);
      const std::string complaint = body(number, piece, unit, view);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }

  const mxs_memory_kind memory_;
  std::vector<SideTensor> model_;
};

}  // namespace mxs::test
