// SPDX-License-Identifier: Apache-2.0
// State: whose rules, presets and options are what they were, and which arrays then are a tensor's state.
//
// State by element or by row is known to all ranks. What belongs to a matrix is as its owner's stepper wants it; but if
// options are what they were and a tensor is cut into matrices as it was, it is there. What isn't there then is for the
// owner to find (match_matrix_parts), and to tell the others.
#include <algorithm>
#include <array>

#include "base/status.hpp"
#include "base/words.hpp"
#include "checkpoint/describe.hpp"
#include "checkpoint/match_work.hpp"
#include "plan/stages.hpp"

namespace mxs {

namespace {

std::string quoted(const std::string &name) { return std::string(1, '"').append(name, 0, 200).append(1, '"'); }

constexpr char anew[] = "; pass MXS_LOAD_OTHER_OPTIMIZER to take what fits and begin the rest anew";

uint64_t hash_of_rule(const OptionHashes &hashes, mxs_rule rule) {
  switch (rule) {
    case MXS_RULE_MUON: return hashes.muon;
    case MXS_RULE_SHAMPOO: return hashes.shampoo;
    case MXS_RULE_SOAP: return hashes.soap;
    default: return hashes.adamw;
  }
}

bool has_matrix_parts(const std::vector<StatePart> &parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const StatePart &part) { return part.scope == StateScope::matrix; });
}

// Are factors and rows of the one those of the other?
bool cut_alike(const Plan &saved_plan, const PlannedTensor &saved, const Plan &plan, const PlannedTensor &tensor) {
  if (saved.transposed != tensor.transposed || saved.has_matrices() != tensor.has_matrices()) return false;
  return saved.placement_count == tensor.placement_count &&
         std::equal(saved_plan.placements.begin() + static_cast<ptrdiff_t>(saved.placement_index),
                    saved_plan.placements.begin() +
                        static_cast<ptrdiff_t>(saved.placement_index + saved.placement_count),
                    plan.placements.begin() + static_cast<ptrdiff_t>(tensor.placement_index),
                    [](const Placement &a, const Placement &b) { return a.shape == b.shape; });
}

bool rows_alike(const PlannedTensor &saved, const PlannedTensor &tensor) {
  return saved.transposed == tensor.transposed && saved.block_columns == tensor.block_columns;
}

// "w.momentum" under the name that has the bytes.
std::string saved_array_name(const FiledArray &described, const PlannedTensor &tensor, const TensorMatch &match) {
  return match.saved_name + described.name.substr(tensor.name.size());
}

class StateMatch {
 public:
  explicit StateMatch(MatchWork *work)
      : work_(*work), manifest_(work->opened.manifest), allowed_(work->request.flags & MXS_LOAD_OTHER_OPTIMIZER) {}

  void run() {
    if (!manifest_.has_state) {
      work_.refuse(MXS_NOT_FOUND, work_.opened.path + " has no optimizer state; pass MXS_LOAD_WEIGHTS_ONLY to take its "
                                                      "weights alone");
      return;
    }
    if (manifest_.step_number > INT64_MAX)  // as mxs_optimizer_set_step_number
      work_.refuse(MXS_DAMAGED, work_.opened.path + " has the step number " + std::to_string(manifest_.step_number) +
                                    ", above 2^63 - 1");
    for (TensorMatch &match : work_.match->tensors) {
      const PlannedTensor &tensor = work_.plan.tensors[static_cast<size_t>(match.tensor)];
      check_rule(tensor, match);
      if (!has_state(tensor)) continue;
      match.has_state = true;
      some_anew_ = false;
      if (match.weights == no_array && match.master == no_array)
        match.new_state = true;  // refused for another reason, or allowed to be missing
      else
        find_parts(tensor, &match);
      if (match.new_state || some_anew_) work_.match->new_state.push_back(tensor.name);
    }
    check_rounding();
  }

 private:
  void refuse(mxs_status status, std::string sentence) {
    if (!allowed_) work_.refuse(status, std::move(sentence) + anew);
  }

  void check_rule(const PlannedTensor &tensor, const TensorMatch &match) {
    const PlannedTensor *const saved = work_.saved_tensor(match.saved_name);
    if (saved && saved->rule != tensor.rule)
      refuse(MXS_MISMATCH, "tensor " + quoted(tensor.name) + " has the rule " + rule_name(tensor.rule) +
                               " in the plan, but was saved in " + work_.opened.path + " under " +
                               rule_name(saved->rule));
    if (!has_state(tensor) || rule_checked_[static_cast<size_t>(tensor.rule)]) return;
    rule_checked_[static_cast<size_t>(tensor.rule)] = true;
    const LoadOptimizer &optimizer = *work_.request.optimizer;
    for (const ManifestRule &rule : manifest_.rules) {
      if (rule.rule != tensor.rule) continue;
      const mxs_preset preset = optimizer.preset_of(rule.rule);
      if (rule.preset == preset && rule.options == hash_of_rule(optimizer.options, rule.rule)) return;
      refuse(MXS_MISMATCH, std::string("rule ") + rule_name(rule.rule) + ": " + work_.opened.path +
                               " was saved with the preset " + mxs_preset_name(rule.preset) +
                               ", but this optimizer has " +
                               (rule.preset == preset ? std::string("other options of it")
                                                      : std::string("the preset ") + mxs_preset_name(preset)));
      return;
    }
    refuse(MXS_MISMATCH, std::string("rule ") + rule_name(tensor.rule) + ": nothing in " + work_.opened.path +
                             " was stepped under it, but tensor " + quoted(tensor.name) + " is");
  }

  void check_rounding() {
    if (manifest_.rounding != work_.request.optimizer->options.rounding)
      refuse(MXS_MISMATCH, work_.opened.path + " was saved with another rounding or seed than this optimizer's");
  }

  void find_parts(const PlannedTensor &tensor, TensorMatch *match) {
    const std::vector<StatePart> &parts = work_.request.optimizer->parts_of(tensor.rule);
    const PlannedTensor *const saved = work_.saved_tensor(match->saved_name);
    bool all = true;
    for (const StatePart &part : parts) {
      if (part.scope == StateScope::matrix) continue;
      match->parts.push_back(find_part(tensor, *match, part, saved));
      all = all && match->parts.back() != no_array;
    }
    some_anew_ = !all;
    if (has_matrix_parts(parts) && saved && !cut_alike(*work_.opened.plan, *saved, work_.plan, tensor)) {
      all = false;
      refuse(MXS_MISMATCH, "tensor " + quoted(tensor.name) + " is cut into other blocks than in " + work_.opened.path +
                               ", so that its state of whole matrices doesn't fit");
    }
    // NorMuon's rows are good without its momentum, and the other way round. Elsewhere half of it is worse than none:
    // a first moment over a second one that has just begun, averages in a basis that is forgotten.
    const bool parts_stand_alone = tensor.rule == MXS_RULE_MUON;
    const bool other_basis = saved && saved->rule != tensor.rule &&
                             has_matrix_parts(work_.request.optimizer->parts_of(saved->rule));
    if (other_basis || (!all && !parts_stand_alone)) match->new_state = true;
  }

  size_t find_part(const PlannedTensor &tensor, const TensorMatch &match, const StatePart &part,
                   const PlannedTensor *saved) {
    const FiledArray described = describe_state(work_.plan, static_cast<size_t>(match.tensor), part);
    const std::string name = saved_array_name(described, tensor, match);
    const size_t found = work_.find(name, MXS_ARRAY_STATE);
    if (found == no_array) {
      refuse(MXS_NOT_FOUND, "state " + quoted(name) + " is not in " + work_.opened.path);
      return no_array;
    }
    const ManifestArray &array = manifest_.arrays[found];
    const bool rows_differ = part.scope == StateScope::row && saved && !rows_alike(*saved, tensor);
    if (array.shape == described.shape && array.dtype == described.dtype && !rows_differ) return found;
    refuse(MXS_MISMATCH, "state " + quoted(name) + " is " + mxs_dtype_name(described.dtype) + " and " +
                             shape_text(described.shape) + " here, but " + array.dtype_word + " and " +
                             shape_text(array.shape) + " in " + work_.file_of(array) +
                             (rows_differ ? ", of other blocks" : ""));
    return no_array;
  }

  MatchWork &work_;
  const Manifest &manifest_;
  const bool allowed_;
  std::array<bool, MXS_RULE_SOAP + 1> rule_checked_ = {};
  bool some_anew_ = false;  // of the tensor that is looked at
};

}  // namespace

void match_state(MatchWork *work) { StateMatch(work).run(); }

mxs_status match_matrix_parts(const OpenedCheckpoint &opened, const Plan &plan, const TensorMatch &match,
                              uint64_t placement, const std::vector<StatePart> &parts, std::vector<size_t> *arrays) {
  const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(match.tensor)];
  arrays->assign(parts.size(), no_array);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].scope != StateScope::matrix) continue;
    const FiledArray described = describe_matrix_state(plan, placement, parts[i]);
    const std::string name = saved_array_name(described, tensor, match);
    const auto found = opened.index_of_name.find(name);
    if (found == opened.index_of_name.end())
      return set_error(MXS_NOT_FOUND, "state %s is not in %s%s", quoted(name).c_str(), opened.path.c_str(), anew);
    const ManifestArray &array = opened.manifest.arrays[found->second];
    if (array.kind != MXS_ARRAY_STATE || array.shape != described.shape || array.dtype != described.dtype)
      return set_error(MXS_MISMATCH, "state %s is %s and %s here, but %s and %s in %s/%s%s", quoted(name).c_str(),
                       mxs_dtype_name(described.dtype), shape_text(described.shape).c_str(), array.dtype_word.c_str(),
                       shape_text(array.shape).c_str(), opened.path.c_str(),
                       opened.manifest.files[array.file].name.c_str(), anew);
    (*arrays)[i] = found->second;
  }
  return MXS_OK;
}

}  // namespace mxs
