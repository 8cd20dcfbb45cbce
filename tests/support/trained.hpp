// SPDX-License-Identifier: Apache-2.0
// A rank that trains, and all numbers of all ranks put together, so that two worlds can be compared.
//
// Rank 0 gives the gradients and the others zeros: sums are exact, and equal in every world.
#pragma once

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "support/unit_model.hpp"

namespace mxs::test {

// Arrays by name, each put together of what ranks (threads) have of it.
class Assembly {
 public:
  // [offset, offset + bytes) of an array of whole_bytes; each byte comes once.
  std::string put(const std::string &name, uint64_t whole_bytes, uint64_t offset, const void *data, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    Array &array = arrays_[name];
    if (array.came.empty()) {
      array.bytes.resize(whole_bytes);
      array.came.resize(whole_bytes);
    }
    if (array.bytes.size() != whole_bytes || offset + bytes > whole_bytes) return name + " has another size";
    for (uint64_t at = offset; at < offset + bytes; at++)
      if (array.came[at]++) return name + ": byte " + std::to_string(at) + " comes twice";
    if (bytes) std::memcpy(array.bytes.data() + offset, data, bytes);
    return "";
  }

  // What differs first; other is what is expected. "": nothing. but: tensors whose numbers may be others.
  std::string difference(const Assembly &other, const std::vector<std::string> &but = {}) const {
    for (const auto &[name, array] : arrays_) {
      for (uint64_t at = 0; at < array.came.size(); at++)
        if (!array.came[at]) return name + ": nobody has byte " + std::to_string(at);
      const auto found = other.arrays_.find(name);
      if (found == other.arrays_.end()) return name + " wasn't there before";
      const std::vector<char> &expected = found->second.bytes;
      if (expected.size() != array.bytes.size()) return name + " has another size than before";
      const std::string tensor = name.substr(0, name.find_first_of(".("));
      if (std::count(but.begin(), but.end(), tensor.substr(0, tensor.find_last_not_of(' ') + 1))) continue;
      for (uint64_t at = 0; at < expected.size(); at++)
        if (expected[at] != array.bytes[at]) return name + " differs at byte " + std::to_string(at);
    }
    for (const auto &[name, array] : other.arrays_)
      if (!arrays_.count(name)) return name + " is gone";
    return "";
  }

  // Of names that end in `part`, those that have a byte that isn't zero.
  size_t count(const std::string &part) const {
    size_t found = 0;
    for (const auto &[name, array] : arrays_) {
      const std::string base = name.substr(0, name.find('@'));
      if (base.size() < part.size() || base.compare(base.size() - part.size(), part.size(), part) != 0) continue;
      for (const char byte : array.bytes)
        if (byte) {
          found++;
          break;
        }
    }
    return found;
  }

 private:
  struct Array {
    std::vector<char> bytes, came;
  };
  std::mutex mutex_;
  std::map<std::string, Array> arrays_;
};

// What an optimizer is made of. Not copied: options point into it.
struct TrainedOptions {
  TrainedOptions() = default;
  TrainedOptions(const TrainedOptions &) = delete;
  mxs_muon_options muon = MXS_MUON_OPTIONS_INIT;
  mxs_shampoo_options shampoo = MXS_SHAMPOO_OPTIONS_INIT;
  mxs_soap_options soap = MXS_SOAP_OPTIONS_INIT;
  mxs_optimizer_options all = MXS_OPTIMIZER_OPTIONS_INIT;
};

class Trained : public Units {
 public:
  ~Trained() { mxs_optimizer_destroy(&optimizer); }

  std::string make_all(mxs_comm *its_comm, const Model &model, TrainedOptions &options) {
    mxs_unit_options unit_options = MXS_UNIT_OPTIONS_INIT;
    unit_options.flags = MXS_RANK_ORDER;
    const std::string complaint = make(its_comm, model, &unit_options);
    if (!complaint.empty()) return complaint;
    options.all.muon_options = &options.muon;
    options.all.shampoo_options = &options.shampoo;
    options.all.soap_options = &options.soap;
    return want(MXS_OK, mxs_optimizer_create(&optimizer, units.data(), units.size(), &options.all), "the optimizer");
  }

  // round: which gradients.
  std::string train_step(int round) {
    for (size_t index = 0; index < units.size(); index++) {
      const std::string complaint = give_gradients(index, round);
      if (!complaint.empty()) return complaint;
    }
    mxs_group_values values[2] = {MXS_GROUP_VALUES_INIT, MXS_GROUP_VALUES_INIT};
    values[0].lr = 0.02f;
    values[1].lr = 0.003f;
    values[1].weight_decay = 0.1f;
    mxs_step step = MXS_STEP_INIT;
    step.groups = values;
    step.group_count = 2;
    step.gradient_scale = 0.5f;
    step.clip_norm = 3;
    mxs_verdict verdict = MXS_VERDICT_INIT;
    const std::string complaint = want(MXS_OK, mxs_optimizer_step(optimizer, &step, &verdict), "the step");
    return complaint.empty() && verdict.skipped ? "the step was skipped" : complaint;
  }

  // Everything this rank has: masters, weights as they are gathered (rank 0 tells), state.
  std::string tell(Assembly *all) {
    std::string complaint;
    for (uint64_t number = 0; number < inner().placements.size() && complaint.empty(); number++)
      complaint = tell_shard(number, all);
    for (size_t index = 0; index < units.size() && complaint.empty(); index++) complaint = tell_weights(index, all);
    for (uint64_t i = 0; i < mxs_optimizer_state_count(optimizer) && complaint.empty(); i++)
      complaint = tell_state(i, all);
    return complaint;
  }

  mxs_optimizer *optimizer = nullptr;

 private:
  std::string give_gradients(size_t index, int round) {
    bool given = false;
    for (const int tensor : inner().units[index].tensors) {
      const PlannedTensor &planned = inner().tensors[static_cast<size_t>(tensor)];
      if (rank != 0 || planned.frozen() || planned.tied_to >= 0 || planned.element_count == 0) continue;
      mxs_view view = MXS_VIEW_INIT;
      const mxs_status status = mxs_unit_gradient(units[index], tensor, MXS_WRITE, &view);
      if (status != MXS_OK) return failure("mxs_unit_gradient", status);
      for (uint64_t i = 0; i < planned.element_count; i++)
        write_value(view.data, view.dtype, i, hashed(static_cast<uint64_t>(tensor), i, static_cast<uint64_t>(round)));
      given = true;
    }
    return want(MXS_OK, given ? mxs_unit_reduce(units[index], nullptr) : mxs_unit_skip(units[index], nullptr),
                "the reduce of unit " + std::to_string(index));
  }

  std::string tell_shard(uint64_t number, Assembly *all) {
    const Placement &piece = inner().placements[number];
    const PlannedTensor &planned = inner().tensors[static_cast<size_t>(piece.tensor)];
    if (piece.owner != rank) return "";
    mxs_view view = MXS_VIEW_INIT;
    const mxs_status status = mxs_unit_shard(units[static_cast<size_t>(piece.unit)], number, &view);
    if (status != MXS_OK) return failure("mxs_unit_shard", status);
    const uint64_t width = dtype_bytes(view.dtype);
    return all->put(planned.name + " (shards)", planned.element_count * width, piece.element_offset * width, view.data,
                    view.bytes);
  }

  std::string tell_weights(size_t index, Assembly *all) {
    std::string complaint = want(MXS_OK, mxs_unit_gather(units[index], nullptr), "gather");
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait(units[index], nullptr), "wait");
    for (const int tensor : inner().units[index].tensors) {
      if (!complaint.empty() || rank != 0) break;
      mxs_view view = MXS_VIEW_INIT;
      complaint = want(MXS_OK, mxs_unit_tensor(units[index], tensor, &view), "mxs_unit_tensor");
      if (complaint.empty())
        complaint = all->put(inner().tensors[static_cast<size_t>(tensor)].name, view.bytes, 0, view.data, view.bytes);
    }
    if (!complaint.empty()) return complaint;
    return want(MXS_OK, mxs_unit_release(units[index], MXS_FREE, nullptr), "release");
  }

  // Numbers for each element are put together as the tensor is; others go by the first element of their placement.
  std::string tell_state(uint64_t index, Assembly *all) {
    mxs_state_info info = MXS_STATE_INFO_INIT;
    const mxs_status status = mxs_optimizer_state(optimizer, index, &info);
    if (status != MXS_OK) return failure("mxs_optimizer_state", status);
    const Placement &piece = inner().placements[info.placement];
    const PlannedTensor &planned = inner().tensors[static_cast<size_t>(info.tensor)];
    const std::string part = info.name;
    const std::string name = planned.name + "." + part;
    for (const char *each : {"momentum", "exp_avg", "exp_avg_sq", "graft_sq"})
      if (part == each) {
        const uint64_t width = dtype_bytes(info.view.dtype);
        if (info.view.bytes != piece.element_count * width) return name + " has wrong bytes";
        return all->put(name, planned.element_count * width, piece.element_offset * width, info.view.data,
                        info.view.bytes);
      }
    return all->put(name + "@" + std::to_string(piece.element_offset), info.view.bytes, 0, info.view.data,
                    info.view.bytes);
  }
};

}  // namespace mxs::test
