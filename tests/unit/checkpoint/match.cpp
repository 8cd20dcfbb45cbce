// SPDX-License-Identifier: Apache-2.0
// What a plan takes of a checkpoint, and what it refuses: every case of weights and masters, names that are tied,
// missing or more, rules and options that have changed, state of other blocks. No file is read.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../plan/models.hpp"
#include "checkpoint/describe.hpp"
#include "checkpoint/match.hpp"
#include "state_parts.hpp"
#include "support/complaints.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::expect;
using mxs::test::good;
using mxs::test::part_of;

namespace {

const std::vector<StatePart> &parts_of(mxs_rule rule) {
  static const std::vector<StatePart> muon = {part_of("momentum", StateScope::element),
                                              part_of("second_momentum", StateScope::row)};
  static const std::vector<StatePart> adamw = {part_of("exp_avg", StateScope::element),
                                               part_of("exp_avg_sq", StateScope::element)};
  static const std::vector<StatePart> soap = {part_of("exp_avg", StateScope::element),
                                              part_of("factor_left", StateScope::matrix)};
  return rule == MXS_RULE_MUON ? muon : rule == MXS_RULE_ADAMW ? adamw : soap;
}

LoadOptimizer optimizer() {
  LoadOptimizer result;
  result.parts_of = parts_of;
  result.preset_of = [](mxs_rule) { return MXS_PRESET_DEFAULT; };
  result.options.muon = 11, result.options.soap = 12, result.options.adamw = 13, result.options.shampoo = 14;
  result.options.rounding = 15;
  return result;
}

constexpr char saved_file[] = "model-00001-of-00001.safetensors";

// As a save of `plan` leaves it.
struct Saved {
  OpenedCheckpoint opened;

  void add(ManifestArray array) { opened.manifest.arrays.push_back(std::move(array)); }
  void remove(const std::string &name) {
    std::erase_if(opened.manifest.arrays, [&](const ManifestArray &array) { return array.name == name; });
  }
  ManifestArray &find(const std::string &name) {
    return *std::find_if(opened.manifest.arrays.begin(), opened.manifest.arrays.end(),
                         [&](const ManifestArray &array) { return array.name == name; });
  }
  void index() {
    opened.index_of_name.clear();
    for (size_t i = 0; i < opened.manifest.arrays.size(); ++i)
      opened.index_of_name.emplace(opened.manifest.arrays[i].name, i);
  }

  mxs_status save(const Model &model, bool masters = false, int rank_count = 3) {
    opened.path = "/saved";
    opened.has_manifest = true;
    opened.plan = std::make_unique<Plan>();
    const mxs_status status = make(model, rank_count, opened.plan.get());
    if (status != MXS_OK) return status;
    const Plan &plan = *opened.plan;
    Manifest &manifest = opened.manifest;
    manifest.files.push_back({saved_file, 0, 0, 0});
    manifest.masters = masters;
    manifest.has_state = true;
    manifest.rounding = 15;
    manifest.rules = {{MXS_RULE_MUON, MXS_PRESET_DEFAULT, 11},
                      {MXS_RULE_SOAP, MXS_PRESET_DEFAULT, 12},
                      {MXS_RULE_ADAMW, MXS_PRESET_DEFAULT, 13}};
    for (FiledArray &array : describe_model(plan, masters)) add(std::move(array));
    for (FiledArray &array : describe_optimizer(plan, masters, parts_of)) add(std::move(array));
    for (uint64_t number = 0; number < plan.placements.size(); ++number)
      if (plan.tensors[static_cast<size_t>(plan.placements[number].tensor)].rule == MXS_RULE_SOAP)
        add(describe_matrix_state(plan, number, part_of("factor_left", StateScope::matrix, {4, 4})));
    index();
    return MXS_OK;
  }
};

Model usual_model() {
  Model model;
  model.add("embedding", {61, 64}, 0, MXS_RULE_ADAMW).dtype = MXS_BF16;
  model.add("hidden", {32, 48}, 0, MXS_RULE_MUON).dtype = MXS_BF16;
  model.add("wide", {16, 48}, 1, MXS_RULE_SOAP);
  mxs_tensor &same = model.add("same", {8, 8}, 1, MXS_RULE_MUON);
  same.dtype = same.master_dtype = MXS_BF16;
  model.add("table", {5, 3}, 1, MXS_RULE_FROZEN).dtype = MXS_BF16;
  model.add("nothing", {0, 4}, 1);
  model.add("tied", {61, 64}, 0).tied_to = "embedding";
  model.tensors.back().dtype = MXS_BF16;
  return model;
}

mxs_tensor &tensor_of(Model *model, const std::string &name) {
  return *std::find_if(model->tensors.begin(), model->tensors.end(),
                       [&](const mxs_tensor &tensor) { return tensor.name == name; });
}

// A load of what `saved` has into a plan of `model`.
struct Load {
  Plan plan;
  LoadMatch match;
  mxs_status status = MXS_OK;

  Load(const Saved &saved, const Model &model, int flags = 0, bool with_optimizer = true,
       const LoadOptimizer &state = optimizer()) {
    status = make(model, 4, &plan);
    if (status != MXS_OK) return;
    LoadRequest request;
    request.plan = &plan;
    for (int unit = 0; unit < static_cast<int>(plan.units.size()); ++unit) request.units.push_back(unit);
    request.flags = flags;
    request.optimizer = with_optimizer ? &state : nullptr;
    status = match_checkpoint(saved.opened, request, &match);
  }

  const TensorMatch &of(const std::string &name) const {
    for (const TensorMatch &each : match.tensors)
      if (plan.tensors[static_cast<size_t>(each.tensor)].name == name) return each;
    static const TensorMatch none;
    return none;
  }
};

std::string name_of(const Saved &saved, size_t array) {
  return array == no_array ? "-" : saved.opened.manifest.arrays[array].name;
}

std::string joined(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names) text.append(text.empty() ? "" : " ").append(name);
  return text;
}

std::string compare(const std::string &what, const std::string &found, const std::string &wanted) {
  return found == wanted ? "" : what + " is \"" + found + "\", not \"" + wanted + "\"";
}

// weights and master as names of arrays, and whether the dtype counts as changed.
std::string check_sources(const Saved &saved, const Load &load, const std::string &tensor, const std::string &weights,
                          const std::string &master, bool changed) {
  const TensorMatch &found = load.of(tensor);
  std::string complaint = compare("weights", name_of(saved, found.weights), weights);
  if (complaint.empty()) complaint = compare("master", name_of(saved, found.master), master);
  if (complaint.empty()) complaint = compare("converted", joined(load.match.converted), changed ? tensor : "");
  return complaint.empty() ? "" : tensor + ": " + complaint;
}

std::string the_same_plan_takes_everything_inner() {
  std::string complaint;
  for (const bool masters : {false, true}) {
    Saved saved;
    if (saved.save(usual_model(), masters) != MXS_OK) return mxs_last_error();
    const Load load(saved, usual_model());
    complaint = expect(load.status, MXS_OK);
    if (!complaint.empty()) return complaint;
    complaint =
        check_sources(saved, load, "hidden", masters ? "-" : "hidden", masters ? "hidden" : "hidden.master", false);
    if (!complaint.empty()) return complaint;
    complaint = check_sources(saved, load, "wide", "wide", "-", false);
    if (!complaint.empty()) return complaint;
    complaint = check_sources(saved, load, "same", "same", "-", false);
    if (!complaint.empty()) return complaint;
    complaint = check_sources(saved, load, "nothing", "nothing", "-", false);
    if (!complaint.empty()) return complaint;
    if (load.match.tensors.size() != 6 || !load.match.missing.empty() || !load.match.extra.empty() ||
        !load.match.new_state.empty())
      return "something is missing, more or new";
    complaint = compare("parts", name_of(saved, load.of("hidden").parts[1]), "hidden.second_momentum");
    if (!complaint.empty()) return complaint;
    complaint = compare("parts", name_of(saved, load.of("embedding").parts[0]), "embedding.exp_avg");
    if (!complaint.empty()) return complaint;
    if (load.of("wide").parts.size() != 1) return "a matrix's own part is one that all ranks look for";
    if (load.of("table").has_state || load.of("nothing").has_state) return "state of what is never stepped";
    std::vector<size_t> arrays;
    const std::vector<StatePart> parts = {part_of("exp_avg", StateScope::element),
                                          part_of("factor_left", StateScope::matrix, {4, 4})};
    const TensorMatch &wide = load.of("wide");
    const uint64_t placement = load.plan.tensors[static_cast<size_t>(wide.tensor)].placement_index;
    complaint = expect(match_matrix_parts(saved.opened, load.plan, wide, placement, parts, &arrays), MXS_OK);
    if (!complaint.empty()) return complaint;
    complaint = compare("factor", name_of(saved, arrays[1]), "wide.factor_left");
    if (!complaint.empty()) return complaint;
    if (arrays[0] != no_array) return "a part by element is taken as one of a matrix";
  }
  return "";
}

// One tensor, saved and loaded in all ways.
Model lone_model(mxs_dtype dtype, mxs_dtype master) {
  Model model;
  mxs_tensor &tensor = model.add("w", {16, 24}, 0, MXS_RULE_ADAMW);
  tensor.dtype = dtype;
  tensor.master_dtype = master;
  return model;
}

struct DtypeCase {
  mxs_dtype saved, saved_master;
  bool masters;
  mxs_dtype dtype, master;
  const char *weights_from, *master_from;
  bool changed, changed_without_state;
};

std::string check_dtype_case(const DtypeCase &each) {
  std::string complaint;
  Saved saved;
  if (saved.save(lone_model(each.saved, each.saved_master), each.masters) != MXS_OK) return mxs_last_error();
  for (const bool with_state : {false, true}) {
    const Model model = lone_model(each.dtype, each.master);
    const bool changed = with_state ? each.changed : each.changed_without_state;
    const Load strict(saved, model, 0, with_state);
    const std::vector<std::string> sentence = {"\"w\"", "MXS_LOAD_OTHER_DTYPES", "/saved/model-"};
    complaint = changed ? expect(strict.status, MXS_MISMATCH, sentence) : expect(strict.status, MXS_OK);
    if (!complaint.empty()) return complaint;
    const Load load(saved, model, MXS_LOAD_OTHER_DTYPES, with_state);
    complaint = expect(load.status, MXS_OK);
    if (!complaint.empty()) return complaint;
    complaint = check_sources(saved, load, "w", each.weights_from, each.master_from, changed);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

std::string weights_and_masters_come_from_where_they_lose_least_inner() {
  std::string complaint;
  const DtypeCase cases[] = {
      // saved                     into
      {MXS_BF16, MXS_F32, false, MXS_BF16, MXS_F32, "w", "w.master", false, false},
      {MXS_BF16, MXS_F32, true, MXS_BF16, MXS_F32, "-", "w", false, false},
      {MXS_BF16, MXS_BF16, false, MXS_BF16, MXS_F32, "w", "-", false, false},
      {MXS_BF16, MXS_F32, false, MXS_F32, MXS_F32, "w.master", "-", true, true},
      {MXS_BF16, MXS_F32, true, MXS_F32, MXS_F32, "w", "-", false, false},
      {MXS_BF16, MXS_F32, false, MXS_BF16, MXS_BF16, "w", "-", true, false},
      {MXS_BF16, MXS_F32, true, MXS_BF16, MXS_BF16, "w", "-", true, false},
      {MXS_BF16, MXS_F32, false, MXS_F16, MXS_F32, "-", "w.master", true, true},
      {MXS_BF16, MXS_F32, false, MXS_F16, MXS_F16, "w.master", "-", true, true},
      {MXS_F32, MXS_F32, false, MXS_BF16, MXS_F32, "-", "w", true, true},
      {MXS_F32, MXS_F32, false, MXS_BF16, MXS_BF16, "w", "-", true, true},
      {MXS_BF16, MXS_BF16, false, MXS_F32, MXS_F32, "w", "-", true, true},
      {MXS_BF16, MXS_F32, true, MXS_F16, MXS_F16, "w", "-", true, true},
  };
  int number = 0;
  for (const DtypeCase &each : cases) {
    complaint = check_dtype_case(each);
    if (!complaint.empty()) return "case " + std::to_string(number) + ": " + complaint;
    ++number;
  }
  return "";
}

std::string what_is_missing_is_made_of_the_other_inner() {
  std::string complaint;
  Saved saved;
  if (saved.save(usual_model()) != MXS_OK) return mxs_last_error();
  saved.remove("hidden.master");
  saved.remove("embedding");
  saved.index();
  const Load load(saved, usual_model());
  complaint = expect(load.status, MXS_OK);
  if (!complaint.empty()) return complaint;
  complaint = check_sources(saved, load, "hidden", "hidden", "-", false);
  if (!complaint.empty()) return complaint;
  complaint = check_sources(saved, load, "embedding", "-", "embedding.master", false);
  if (!complaint.empty()) return complaint;
  return "";
}

std::string step_numbers_beyond_all_steps_are_refused_inner() {
  Saved saved;
  if (saved.save(usual_model()) != MXS_OK) return mxs_last_error();
  saved.opened.manifest.step_number = uint64_t{1} << 63;
  const std::string complaint = expect(Load(saved, usual_model()).status, MXS_DAMAGED, {"9223372036854775808"});
  return complaint.empty() ? expect(Load(saved, usual_model(), 0, false).status, MXS_OK) : complaint;
}

std::string dtypes_of_others_are_refused_inner() {
  std::string complaint;
  Saved saved;
  if (saved.save(usual_model()) != MXS_OK) return mxs_last_error();
  saved.find("same").dtype = 0;
  saved.find("same").dtype_word = "F8_E4M3";
  const Load load(saved, usual_model(), MXS_LOAD_OTHER_DTYPES);
  complaint = expect(load.status, MXS_MISMATCH, {"\"same\" is bf16", "F8_E4M3", "doesn't convert"});
  if (!complaint.empty()) return complaint;
  return compare("converted", joined(load.match.converted), "");
}

std::string shapes_must_be_equal_inner() {
  std::string complaint;
  Saved saved;
  if (saved.save(usual_model()) != MXS_OK) return mxs_last_error();
  saved.find("wide").shape = {16, 49};
  const Load load(saved, usual_model(), ~0);
  complaint = expect(load.status, MXS_MISMATCH,
                     {"\"wide\" is (16, 48)", "(16, 49)", "/saved/model-00001-of-00001.safetensors"});
  if (!complaint.empty()) return complaint;
  saved.find("wide").shape = {};
  const Load scalar(saved, usual_model(), ~0);
  return expect(scalar.status, MXS_MISMATCH, {"but \"wide\" is ()"});
}

std::string missing_and_extra_tensors_are_listed_inner() {
  std::string complaint;
  Saved saved;
  Model model = usual_model();
  for (const char *name : {"more1", "more2", "more3", "more4", "more5", "more6"}) model.add(name, {4}, 1);
  if (saved.save(model) != MXS_OK) return mxs_last_error();
  ManifestArray buffer;
  buffer.name = "buffer", buffer.kind = MXS_ARRAY_EXTRA, buffer.dtype_word = "I64";
  saved.add(buffer);
  for (const char *name : {"hidden", "hidden.master", "same"}) saved.remove(name);
  saved.index();
  const Load strict(saved, usual_model());
  complaint = expect(strict.status, MXS_NOT_FOUND,
                     {"2 of the plan's tensors", "\"hidden\", \"same\"", "/saved", "MXS_LOAD_ALLOW_MISSING"});
  if (!complaint.empty()) return complaint;
  complaint = compare("missing", joined(strict.match.missing), "hidden same");
  if (!complaint.empty()) return complaint;
  complaint = compare("extra", joined(strict.match.extra), "more1 more2 more3 more4 more5 more6");
  if (!complaint.empty()) return complaint;
  const Load missing(saved, usual_model(), MXS_LOAD_ALLOW_MISSING);
  complaint = expect(missing.status, MXS_NOT_FOUND,
                     {"6 tensors of /saved", "\"more1\", \"more2\", \"more3\", \"more4\", \"more5\", ...",
                       "MXS_LOAD_ALLOW_EXTRA"});
  if (!complaint.empty()) return complaint;
  const Load load(saved, usual_model(), MXS_LOAD_ALLOW_MISSING | MXS_LOAD_ALLOW_EXTRA);
  complaint = expect(load.status, MXS_OK);
  if (!complaint.empty()) return complaint;
  complaint = check_sources(saved, load, "hidden", "-", "-", false);
  if (!complaint.empty()) return complaint;
  complaint = compare("new state", joined(load.match.new_state), "hidden same");
  if (!complaint.empty()) return complaint;
  return load.of("hidden").new_state && load.of("hidden").has_state ? "" : "state of what is missing isn't new";
}

std::string units_that_are_not_loaded_are_left_alone_inner() {
  std::string complaint;
  Saved saved;
  if (saved.save(usual_model()) != MXS_OK) return mxs_last_error();
  saved.remove("embedding");  // unit 0 lacks it, but is not asked
  saved.remove("embedding.master");
  saved.index();
  Plan plan;
  if (make(usual_model(), 2, &plan) != MXS_OK) return mxs_last_error();
  LoadRequest request;
  request.plan = &plan;
  request.units = {1};
  LoadMatch match;
  complaint = expect(match_checkpoint(saved.opened, request, &match), MXS_OK);
  if (!complaint.empty()) return complaint;
  if (match.tensors.size() != 4 || match.of_tensor[0] != no_array) return "tensors of another unit are matched";
  return match.extra.empty() ? "" : "tensors of another unit are extra";
}

std::string tied_tensors_are_found_by_either_name_inner() {
  std::string complaint;
  Model other = usual_model();  // where "tied" has the bytes
  tensor_of(&other, "embedding").tied_to = "tied";
  tensor_of(&other, "embedding").rule = MXS_RULE_AUTO;
  tensor_of(&other, "tied").tied_to = nullptr;
  tensor_of(&other, "tied").rule = MXS_RULE_ADAMW;
  Saved saved;
  if (saved.save(other) != MXS_OK) return mxs_last_error();
  const Load load(saved, usual_model());
  complaint = expect(load.status, MXS_OK);
  if (!complaint.empty()) return complaint;
  complaint = check_sources(saved, load, "embedding", "tied", "tied.master", false);
  if (!complaint.empty()) return complaint;
  complaint = compare("state", name_of(saved, load.of("embedding").parts[1]), "tied.exp_avg_sq");
  if (!complaint.empty()) return complaint;
  if (!load.match.extra.empty()) return "a tied name is extra";
  // Both are there: the own name, and the other is left out.
  Saved both;
  if (both.save(usual_model()) != MXS_OK) return mxs_last_error();
  ManifestArray copy = both.find("embedding");
  copy.name = copy.tensor = "tied";
  both.add(copy);
  both.index();
  const Load again(both, usual_model());
  complaint = expect(again.status, MXS_OK);
  if (!complaint.empty()) return complaint;
  return check_sources(both, again, "embedding", "embedding", "embedding.master", false);
}

std::string a_model_that_unties_takes_what_was_shared_inner() {
  Saved saved;
  if (saved.save(usual_model()) != MXS_OK) return mxs_last_error();
  Model other = usual_model();
  tensor_of(&other, "tied").tied_to = nullptr;
  tensor_of(&other, "tied").rule = MXS_RULE_ADAMW;
  const Load load(saved, other);
  std::string complaint = expect(load.status, MXS_OK);
  for (const char *name : {"embedding", "tied"}) {
    if (!complaint.empty()) return complaint;
    complaint = check_sources(saved, load, name, "embedding", "embedding.master", false);
    if (!complaint.empty()) return complaint;
    complaint = compare("state", name_of(saved, load.of(name).parts[1]), "embedding.exp_avg_sq");
  }
  if (!complaint.empty()) return complaint;
  if (!load.match.missing.empty() || !load.match.extra.empty()) return "names are missing or extra";
  // Without a plan nothing tells what was tied.
  saved.opened.plan.reset();
  saved.opened.has_manifest = false;
  saved.index();
  const Load unknown(saved, other);
  return unknown.match.missing == std::vector<std::string>{"tied"} ? "" : "a name is found that nothing ties";
}

std::string a_model_of_others_has_weights_alone_inner() {
  std::string complaint;
  Saved saved;
  if (saved.save(usual_model()) != MXS_OK) return mxs_last_error();
  std::erase_if(saved.opened.manifest.arrays,
                [](const ManifestArray &array) { return array.kind != MXS_ARRAY_WEIGHTS; });
  saved.opened.plan.reset();
  saved.opened.has_manifest = saved.opened.manifest.has_state = false;
  saved.index();
  const Load stateful(saved, usual_model());
  complaint = expect(stateful.status, MXS_NOT_FOUND, {"no optimizer state", "MXS_LOAD_WEIGHTS_ONLY"});
  if (!complaint.empty()) return complaint;
  const Load load(saved, usual_model(), 0, false);
  complaint = expect(load.status, MXS_OK);
  if (!complaint.empty()) return complaint;
  complaint = check_sources(saved, load, "hidden", "hidden", "-", false);
  if (!complaint.empty()) return complaint;
  // "hidden.master" of strangers is a tensor like any other.
  ManifestArray stranger = saved.find("hidden");
  stranger.name = "hidden.master";
  saved.add(stranger);
  saved.index();
  const Load extra(saved, usual_model(), 0, false);
  complaint = expect(extra.status, MXS_NOT_FOUND, {"\"hidden.master\""});
  if (!complaint.empty()) return complaint;
  return check_sources(saved, extra, "hidden", "hidden", "-", false);
}

std::string other_options_are_refused_unless_allowed_inner() {
  std::string complaint;
  Saved saved;
  if (saved.save(usual_model()) != MXS_OK) return mxs_last_error();
  LoadOptimizer options = optimizer();
  options.options.muon = 99;
  complaint = expect(Load(saved, usual_model(), 0, true, options).status, MXS_MISMATCH,
                     {"rule muon", "/saved", "other options", "MXS_LOAD_OTHER_OPTIMIZER"});
  if (!complaint.empty()) return complaint;
  options.preset_of = [](mxs_rule rule) { return rule == MXS_RULE_MUON ? MXS_PRESET_MOONLIGHT : MXS_PRESET_DEFAULT; };
  complaint = expect(Load(saved, usual_model(), 0, true, options).status, MXS_MISMATCH,
                     {"rule muon", mxs_preset_name(MXS_PRESET_DEFAULT), mxs_preset_name(MXS_PRESET_MOONLIGHT)});
  if (!complaint.empty()) return complaint;
  const Load load(saved, usual_model(), MXS_LOAD_OTHER_OPTIMIZER, true, options);
  complaint = expect(load.status, MXS_OK);
  if (!complaint.empty()) return complaint;
  complaint = compare("new state", joined(load.match.new_state), "");
  if (!complaint.empty()) return complaint;
  options = optimizer();
  options.options.rounding = 3;
  complaint = expect(Load(saved, usual_model(), 0, true, options).status, MXS_MISMATCH, {"another rounding or seed"});
  if (!complaint.empty()) return complaint;
  complaint = expect(Load(saved, usual_model(), MXS_LOAD_OTHER_OPTIMIZER, true, options).status, MXS_OK);
  if (!complaint.empty()) return complaint;
  options = optimizer();
  options.options.shampoo = 3;  // nothing is stepped under it
  return expect(Load(saved, usual_model(), 0, true, options).status, MXS_OK);
}

std::string other_rules_begin_anew_if_allowed_inner() {
  std::string complaint;
  Saved saved;
  if (saved.save(usual_model()) != MXS_OK) return mxs_last_error();
  Model model = usual_model();
  tensor_of(&model, "hidden").rule = MXS_RULE_ADAMW;
  tensor_of(&model, "wide").rule = MXS_RULE_MUON;
  complaint = expect(Load(saved, model).status, MXS_MISMATCH,
                     {"\"hidden\"", "rule adamw", "under muon", "MXS_LOAD_OTHER_OPTIMIZER"});
  if (!complaint.empty()) return complaint;
  const Load load(saved, model, MXS_LOAD_OTHER_OPTIMIZER);
  complaint = expect(load.status, MXS_OK);
  if (!complaint.empty()) return complaint;
  complaint = compare("new state", joined(load.match.new_state), "hidden wide");
  if (!complaint.empty()) return complaint;
  complaint = expect(Load(saved, model, 0, false).status, MXS_OK);
  if (!complaint.empty()) return complaint;
  // Averages that SOAP kept in its own basis are none of adamw's, whatever they are called.
  model = usual_model();
  tensor_of(&model, "wide").rule = MXS_RULE_ADAMW;
  const ManifestArray average = saved.find("wide.exp_avg");
  saved.add(average);
  saved.opened.manifest.arrays.back().name = "wide.exp_avg_sq";
  saved.index();
  const Load rotated(saved, model, MXS_LOAD_OTHER_OPTIMIZER);
  complaint = expect(rotated.status, MXS_OK);
  if (!complaint.empty()) return complaint;
  if (!rotated.of("wide").new_state) return "averages of another basis are taken";
  // A frozen tensor that is stepped from now on, and one that is no more.
  model = usual_model();
  tensor_of(&model, "table").rule = MXS_RULE_ADAMW;
  complaint = expect(Load(saved, model).status, MXS_MISMATCH, {"\"table\"", "under frozen"});
  if (!complaint.empty()) return complaint;
  model = usual_model();
  tensor_of(&model, "hidden").rule = MXS_RULE_FROZEN;
  complaint = expect(Load(saved, model).status, MXS_MISMATCH, {"\"hidden\"", "rule frozen"});
  if (!complaint.empty()) return complaint;
  return expect(Load(saved, model, MXS_LOAD_OTHER_OPTIMIZER).status, MXS_OK);
}

std::string state_that_is_not_there_begins_anew_if_allowed_inner() {
  std::string complaint;
  Saved saved;
  if (saved.save(usual_model()) != MXS_OK) return mxs_last_error();
  saved.remove("hidden.second_momentum");
  saved.find("embedding.exp_avg").shape = {64, 61};
  saved.index();
  const Load load(saved, usual_model(), MXS_LOAD_OTHER_OPTIMIZER);
  complaint = expect(load.status, MXS_OK);
  if (!complaint.empty()) return complaint;
  complaint = compare("new state", joined(load.match.new_state), "embedding hidden");
  if (!complaint.empty()) return complaint;
  if (load.of("hidden").new_state) return "momentum, which is there, begins anew";
  if (!load.of("embedding").new_state) return "a second moment is taken without its first";
  complaint = compare("momentum", name_of(saved, load.of("hidden").parts[0]), "hidden.momentum");
  if (!complaint.empty()) return complaint;
  complaint = compare("second", name_of(saved, load.of("hidden").parts[1]), "-");
  if (!complaint.empty()) return complaint;
  complaint = expect(Load(saved, usual_model()).status, MXS_MISMATCH,
                     {"\"embedding.exp_avg\"", "(61, 64)", "(64, 61)", "MXS_LOAD_OTHER_OPTIMIZER"});
  if (!complaint.empty()) return complaint;
  saved.find("embedding.exp_avg").shape = {61, 64};
  complaint = expect(Load(saved, usual_model()).status, MXS_NOT_FOUND, {"\"hidden.second_momentum\" is not in /saved"});
  if (!complaint.empty()) return complaint;
  // A matrix's averages without its bases are worth nothing.
  saved.remove("wide.exp_avg");
  saved.index();
  const Load half(saved, usual_model(), MXS_LOAD_OTHER_OPTIMIZER);
  return half.of("wide").new_state ? "" : "half of wide's state is taken";
}

std::string matrices_cut_otherwise_begin_anew_if_allowed_inner() {
  std::string complaint;
  Saved saved;
  Model model;
  model.add_blocks("qkv", {16, 16}, 32, 0, MXS_RULE_SOAP);
  if (saved.save(model) != MXS_OK) return mxs_last_error();
  complaint = expect(Load(saved, model).status, MXS_OK);
  if (!complaint.empty()) return complaint;
  Model other;
  other.add_blocks("qkv", {8, 24}, 32, 0, MXS_RULE_SOAP);
  complaint = expect(Load(saved, other).status, MXS_MISMATCH,
                     {"\"qkv\" is cut into other blocks", "MXS_LOAD_OTHER_OPTIMIZER"});
  if (!complaint.empty()) return complaint;
  const Load load(saved, other, MXS_LOAD_OTHER_OPTIMIZER);
  complaint = expect(load.status, MXS_OK);
  if (!complaint.empty()) return complaint;
  if (!load.of("qkv").new_state) return "state of other blocks is taken";
  // What only the owner can see.
  const Load same(saved, model);
  std::vector<size_t> arrays;
  const std::vector<StatePart> parts = {part_of("factor_left", StateScope::matrix, {5, 5})};
  complaint = expect(match_matrix_parts(saved.opened, same.plan, same.of("qkv"), 1, parts, &arrays), MXS_MISMATCH,
                     {"\"qkv.factor_left.1\"", "(5, 5)", "(4, 4)"});
  if (!complaint.empty()) return complaint;
  const std::vector<StatePart> absent = {part_of("basis_left", StateScope::matrix, {4, 4})};
  return expect(match_matrix_parts(saved.opened, same.plan, same.of("qkv"), 1, absent, &arrays), MXS_NOT_FOUND,
                {"\"qkv.basis_left.1\" is not in /saved"});
}

std::string rows_of_other_column_blocks_begin_anew_inner() {
  std::string complaint;
  const auto columns = [](std::vector<int64_t> lengths) {
    Model model;
    mxs_tensor &tensor = model.add("c", {12, 30}, 0, MXS_RULE_MUON);
    model.cut_columns(&tensor, std::move(lengths));
    return model;
  };
  Saved saved;
  if (saved.save(columns({10, 20})) != MXS_OK) return mxs_last_error();
  complaint = expect(Load(saved, columns({10, 20})).status, MXS_OK);
  if (!complaint.empty()) return complaint;
  complaint = expect(Load(saved, columns({20, 10})).status, MXS_MISMATCH, {"\"c.second_momentum\"", "of other blocks"});
  if (!complaint.empty()) return complaint;
  const Load load(saved, columns({20, 10}), MXS_LOAD_OTHER_OPTIMIZER);
  complaint = expect(load.status, MXS_OK);
  if (!complaint.empty()) return complaint;
  complaint = compare("momentum", name_of(saved, load.of("c").parts[0]), "c.momentum");
  if (!complaint.empty()) return complaint;
  return compare("rows", name_of(saved, load.of("c").parts[1]), "-");
}

void the_same_plan_takes_everything(void **) { assert_true(good(the_same_plan_takes_everything_inner())); }
void weights_and_masters_come_from_where_they_lose_least(void **) {
  assert_true(good(weights_and_masters_come_from_where_they_lose_least_inner()));
}
void what_is_missing_is_made_of_the_other(void **) { assert_true(good(what_is_missing_is_made_of_the_other_inner())); }
void step_numbers_beyond_all_steps_are_refused(void **) {
  assert_true(good(step_numbers_beyond_all_steps_are_refused_inner()));
}
void dtypes_of_others_are_refused(void **) { assert_true(good(dtypes_of_others_are_refused_inner())); }
void shapes_must_be_equal(void **) { assert_true(good(shapes_must_be_equal_inner())); }
void missing_and_extra_tensors_are_listed(void **) { assert_true(good(missing_and_extra_tensors_are_listed_inner())); }
void units_that_are_not_loaded_are_left_alone(void **) {
  assert_true(good(units_that_are_not_loaded_are_left_alone_inner()));
}
void tied_tensors_are_found_by_either_name(void **) {
  assert_true(good(tied_tensors_are_found_by_either_name_inner()));
}

void a_model_that_unties_takes_what_was_shared(void **) {
  assert_true(good(a_model_that_unties_takes_what_was_shared_inner()));
}
void a_model_of_others_has_weights_alone(void **) { assert_true(good(a_model_of_others_has_weights_alone_inner())); }
void other_options_are_refused_unless_allowed(void **) {
  assert_true(good(other_options_are_refused_unless_allowed_inner()));
}
void other_rules_begin_anew_if_allowed(void **) { assert_true(good(other_rules_begin_anew_if_allowed_inner())); }
void state_that_is_not_there_begins_anew_if_allowed(void **) {
  assert_true(good(state_that_is_not_there_begins_anew_if_allowed_inner()));
}
void matrices_cut_otherwise_begin_anew_if_allowed(void **) {
  assert_true(good(matrices_cut_otherwise_begin_anew_if_allowed_inner()));
}
void rows_of_other_column_blocks_begin_anew(void **) {
  assert_true(good(rows_of_other_column_blocks_begin_anew_inner()));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_same_plan_takes_everything),
      cmocka_unit_test(weights_and_masters_come_from_where_they_lose_least),
      cmocka_unit_test(what_is_missing_is_made_of_the_other),
      cmocka_unit_test(step_numbers_beyond_all_steps_are_refused),
      cmocka_unit_test(dtypes_of_others_are_refused),
      cmocka_unit_test(shapes_must_be_equal),
      cmocka_unit_test(missing_and_extra_tensors_are_listed),
      cmocka_unit_test(units_that_are_not_loaded_are_left_alone),
      cmocka_unit_test(tied_tensors_are_found_by_either_name),
      cmocka_unit_test(a_model_that_unties_takes_what_was_shared),
      cmocka_unit_test(a_model_of_others_has_weights_alone),
      cmocka_unit_test(other_options_are_refused_unless_allowed),
      cmocka_unit_test(other_rules_begin_anew_if_allowed),
      cmocka_unit_test(state_that_is_not_there_begins_anew_if_allowed),
      cmocka_unit_test(matrices_cut_otherwise_begin_anew_if_allowed),
      cmocka_unit_test(rows_of_other_column_blocks_begin_anew),
  };
  return cmocka_run_group_tests_name("matching a checkpoint", tests, nullptr, nullptr);
}
