// SPDX-License-Identifier: Apache-2.0
// A rank whose weights and state are functions of (tensor, element, version), and whose step number is the version:
// what a checkpoint of step N must have is known to everybody, whoever died meanwhile.
#pragma once

#include <cstring>
#include <string>

#include "support/trained.hpp"

namespace mxs::test {

// Pieces of one owner, and some that are cut over all ranks: about 2 MiB as a checkpoint.
inline Model versioned_model() {
  Model model = plain_model(3, MXS_BF16, 48, 160);
  mxs_tensor &table = model.add("table", 1, {200, 300}, MXS_BF16);
  table.rule = MXS_RULE_ADAMW;
  model.finish();
  return model;
}

class Versioned : public Trained {
 public:
  std::string prepare(mxs_comm *its_comm, Model model = versioned_model()) {
    model_ = std::move(model);
    model_.finish();
    plan_options.flat_bytes = 4096;
    return make_all(its_comm, model_, options_);
  }

  std::string become(uint64_t version) {
    const std::string complaint = fill(version);
    if (!complaint.empty()) return complaint;
    const std::string state_complaint =
        each_number([&](float *number, float value) { *number = value; }, version);
    if (!state_complaint.empty()) return state_complaint;
    return want(MXS_OK, mxs_optimizer_set_step_number(optimizer, version), "mxs_optimizer_set_step_number");
  }

  std::string is(uint64_t version) {
    if (mxs_optimizer_step_number(optimizer) != version)
      return "step " + std::to_string(mxs_optimizer_step_number(optimizer)) + ", not " + std::to_string(version);
    for (size_t index = 0; index < units.size(); index++) {
      const std::string complaint = gather_and_check(static_cast<int>(index), version);
      if (!complaint.empty()) return complaint;
    }
    bool equal = true;
    const std::string complaint = each_number(
        [&](float *number, float value) { equal = equal && std::memcmp(number, &value, sizeof value) == 0; }, version);
    return complaint.empty() && !equal ? "state isn't that of version " + std::to_string(version) : complaint;
  }

  mxs_status save(const std::string &path, const mxs_checkpoint_options &options, bool beside) {
    if (!beside) return mxs_checkpoint_save(path.c_str(), units.data(), units.size(), optimizer, &options);
    mxs_save *save = nullptr;
    const mxs_status started = mxs_save_start(&save, path.c_str(), units.data(), units.size(), optimizer, &options);
    if (started != MXS_OK) return started;
    const mxs_status status = mxs_save_wait(save, 0);
    error_ = mxs_last_error();
    mxs_save_destroy(&save);
    return status;
  }
  // Of the save that failed.
  std::string error(bool beside) const { return beside && !error_.empty() ? error_ : mxs_last_error(); }

  std::string load(const mxs_checkpoint *checkpoint) {
    return want(MXS_OK, mxs_checkpoint_load(checkpoint, units.data(), units.size(), optimizer, nullptr), "the load");
  }

 private:
  template <class Body>
  std::string each_number(Body &&body, uint64_t version) {
    for (uint64_t i = 0; i < mxs_optimizer_state_count(optimizer); i++) {
      mxs_state_info info = MXS_STATE_INFO_INIT;
      const mxs_status status = mxs_optimizer_state(optimizer, i, &info);
      if (status != MXS_OK) return failure("mxs_optimizer_state", status);
      const uint64_t first = inner().placements[info.placement].element_offset;
      const uint64_t part = std::strlen(info.name);
      auto *const numbers = static_cast<float *>(info.view.data);
      for (uint64_t at = 0; at < info.view.bytes / sizeof(float); at++)
        body(numbers + at, hashed(static_cast<uint64_t>(info.tensor) * 16 + part, first + at, version));
    }
    return "";
  }

  Model model_;
  TrainedOptions options_;
  std::string error_;
};

}  // namespace mxs::test
