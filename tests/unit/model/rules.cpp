// SPDX-License-Identifier: Apache-2.0
// Patterns, rules, units, and the door: what the public functions do with options, NULLs and bad numbers.
#include "base/words.hpp"
#include "models.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

std::string folder;  // of the configurations

std::string patterns_match_whole_names() {
  const struct {
    const char *pattern, *name;
    bool matches;
  } cases[] = {{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"**", "", true},
               {"?", "", false}, {"?", "a", true}, {"?", "ab", false}, {"?", "\xc3\xa4", true}, {"??", "\xc3\xa4",
                   false},
               {"abc", "abc", true}, {"abc", "ab", false}, {"ab", "abc", false}, {"a*c", "abbbc", true},
               {"a*c", "abbbcd", false}, {"*.weight", "a.b.weight", true}, {"*.weight", "a.b.weights", false},
               {"*ab*ab", "abab", true}, {"*ab*ab", "ab", false}, {"a*b*c*d", "axbxbxcxd", true},
               {"model.layers.?.mlp.*", "model.layers.7.mlp.up", true}, {"model.layers.?.mlp.*",
                   "model.layers.17.mlp.up", false},
               {"[a]", "a", false}, {"a.c", "abc", false}, {"*a", "\xc3\xa4" "a", true}};
  for (const auto &each : cases)
    if (pattern_matches(each.pattern, each.name) != each.matches) return words("%s %s", each.pattern, each.name);
  // A matcher that tries each star at each place would need 10^30 steps.
  std::string pattern;
  for (int star = 0; star < 50; ++star) pattern += "*a";
  return pattern_matches(pattern + "b", std::string(10'000, 'a')) ? "a trap matched" : "";
}

LoadedModel model_of(const std::vector<std::pair<std::string, std::vector<int64_t>>> &tensors) {
  LoadedModel model;
  model.kind = "list";
  for (const auto &[name, shape] : tensors) {
    model.tensors.emplace_back();
    model.tensors.back().name = name;
    model.tensors.back().shape = shape;
  }
  return model;
}

std::string rules_follow_names_and_shapes() {
  const struct {
    const char *name;
    std::vector<int64_t> shape;
    mxs_rule rule;
  } cases[] = {{"layers.0.q.weight", {8, 8}, MXS_RULE_MUON}, {"layers.0.experts.up", {4, 8, 8}, MXS_RULE_MUON},
               {"layers.0.q.bias", {8}, MXS_RULE_ADAMW}, {"layers.0.experts.up_bias", {4, 8}, MXS_RULE_ADAMW},
               {"layers.0.norm.weight", {8}, MXS_RULE_ADAMW}, {"layers.0.q_norm.weight", {4, 8}, MXS_RULE_ADAMW},
               {"layers.0.mlp.gate.weight", {4, 8}, MXS_RULE_ADAMW}, {"layers.0.mlp.gate_proj.weight", {4, 8},
                   MXS_RULE_MUON},
               {"layers.0.mlp.router.weight", {4, 8}, MXS_RULE_ADAMW}, {"embed_tokens.weight", {8, 8}, MXS_RULE_ADAMW},
               {"tok_embeddings.weight", {8, 8}, MXS_RULE_ADAMW}, {"output.weight", {8, 8}, MXS_RULE_ADAMW},
               {"layers.0.output.weight", {8, 8}, MXS_RULE_MUON}, {"wte", {8, 8}, MXS_RULE_ADAMW},
               {"lm_head.weight", {8, 8}, MXS_RULE_ADAMW}, {"layers.0.conv1d.weight", {8, 1, 4}, MXS_RULE_ADAMW},
               {"layers.0.column", {8, 1}, MXS_RULE_ADAMW}, {"layers.0.row", {1, 8}, MXS_RULE_ADAMW},
               {"layers.0.four", {2, 2, 2, 2}, MXS_RULE_ADAMW}, {"scalar", {}, MXS_RULE_ADAMW},
               {"layers.0.rotary_emb.inv_freq", {8}, MXS_RULE_FROZEN}};
  LoadedModel model;
  for (const auto &each : cases) {
    model.tensors.emplace_back();
    model.tensors.back().name = each.name;
    model.tensors.back().shape = each.shape;
  }
  ModelSettings settings;
  if (finish_model(settings, &model) != MXS_OK) return error_of("finish");
  for (size_t index = 0; index < model.tensors.size(); ++index)
    if (model.tensors[index].rule != cases[index].rule)
      return std::string(cases[index].name) + " gets " + rule_name(model.tensors[index].rule);
  return "";
}

std::string patterns_go_first() {
  LoadedModel model = model_of({{"l.0.a.weight", {8, 8}}, {"l.0.b.weight", {8, 8}}, {"l.1.a.weight", {8, 8}},
                                {"l.1.a.bias", {8}}});
  ModelSettings settings;
  settings.matrix_rule = MXS_RULE_SOAP;
  settings.master_dtype = MXS_BF16;
  settings.gradient_dtype = MXS_F32;
  settings.rules = {{"l.0.*", MXS_RULE_FROZEN, 0}, {"*.a.*", MXS_RULE_AUTO, 3}, {"l.0.a.*", MXS_RULE_ADAMW, 0}};
  if (finish_model(settings, &model) != MXS_OK) return error_of("finish");
  const mxs_rule rules[] = {MXS_RULE_FROZEN, MXS_RULE_FROZEN, MXS_RULE_SOAP, MXS_RULE_ADAMW};
  const int groups[] = {0, 0, 3, 3};
  for (size_t index = 0; index < 4; ++index) {
    const LoadedTensor &tensor = model.tensors[index];
    if (tensor.rule != rules[index] || tensor.group != groups[index]) return tensor.name;
    const bool frozen = tensor.rule == MXS_RULE_FROZEN;
    if (tensor.master_dtype != (frozen ? 0 : MXS_BF16) || tensor.gradient_dtype != (frozen ? 0 : MXS_F32))
      return "dtypes of " + tensor.name;
  }
  if (model.notes.back().find("l.0.a.*") == std::string::npos) return "no note about a pattern that changes nothing";
  settings.rules = {{"l.*", MXS_RULE_MUON, 0}, {"l.2.*", MXS_RULE_MUON, 0}};
  return expect(finish_model(settings, &model), MXS_NOT_FOUND, {"rules[1]", "l.2.*", "l.0.a.weight"});
}

std::string layers_are_counted_as_numbers() {
  LoadedModel model = model_of({{"h.10.w", {4, 4}}, {"h.9.w", {4, 4}}, {"ln_f.weight", {4}}, {"h.9.v", {4, 4}},
                                {"wte.weight", {4, 4}}, {"lm_head.weight", {5, 4}}, {"h.07.w", {4, 4}}, {"h.7.w", {4,
                                    4}}});
  if (finish_model(ModelSettings(), &model) != MXS_OK) return error_of("finish");
  const std::vector<std::string> units = {"wte", "h.07", "h.7", "h.9", "h.10", "lm_head"};
  if (model.unit_names != units) return "names of units";
  const int expected[] = {4, 3, 5, 3, 0, 5, 1, 2};
  for (size_t index = 0; index < model.tensors.size(); ++index)
    if (model.tensors[index].unit != expected[index]) return model.tensors[index].name;

  model = model_of({{"encoder.0.w", {4, 4}}, {"decoder.0.w", {4, 4}}, {"encoder.1.w", {4, 4}}, {"bridge", {4, 4}}});
  if (finish_model(ModelSettings(), &model) != MXS_OK) return error_of("two stacks");
  if (model.unit_names != std::vector<std::string>{"encoder.0", "encoder.1", "decoder.0", "bridge"})
      return "two stacks";

  model = model_of({{"a", {4, 4}}, {"b.weight", {4}}, {"c.7", {2}}});
  if (finish_model(ModelSettings(), &model) != MXS_OK) return error_of("no layers");
  if (model.unit_names != std::vector<std::string>{"model"} || model.tensors[2].unit != 0) return "no layers";
  return model.title == "list, 3 tensors, 22 parameters" ? "" : model.title;
}

std::string names_and_shapes_are_checked() {
  LoadedModel model;
  std::string wrong = expect(finish_model(ModelSettings(), &model), MXS_INVALID_ARGUMENT, {"no tensor"});
  const struct {
    std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;
    std::vector<std::string> said;
  } bad[] = {{{{"a", {1}}, {"", {1}}}, {"tensors[1]", "empty"}},
             {{{"a", {1}}, {"a", {1}}}, {"\"a\"", "two tensors"}},
             {{{std::string("a\0b", 3), {1}}}, {"zero byte"}},
             {{{"a", {2, -1}}}, {"\"a\"", "-1"}},
             {{{"a", {1, 1, 1, 1, 1, 1, 1, 1, 1}}}, {"\"a\"", "9 dimensions"}},
             {{{"a", {INT64_MAX, 2}}}, {"\"a\"", "2^62"}},
             {{{"a", {int64_t{1} << 61}}, {"b", {(int64_t{1} << 61) + 1}}}, {"\"b\"", "2^62"}}};
  for (const auto &each : bad) {
    model = model_of(each.tensors);
    if (wrong.empty()) wrong = expect(finish_model(ModelSettings(), &model), MXS_INVALID_ARGUMENT, each.said);
  }
  return wrong;
}

std::string the_door_refuses_what_is_wrong() {
  const std::string path = folder + "/llama-3-8b.json";
  mxs_model *model = nullptr;
  mxs_model_options options = MXS_MODEL_OPTIONS_INIT;
  mxs_model_rule rule = MXS_MODEL_RULE_INIT;
  const mxs_tensor *tensors = nullptr;
  uint64_t count = 0;
  std::string wrong;
  const auto refuse = [&](mxs_status status, const std::vector<std::string> &said,
      mxs_status wanted = MXS_INVALID_ARGUMENT) {
    if (wrong.empty()) wrong = expect(status, wanted, said);
    if (wrong.empty() && model) wrong = "the output was touched";
  };
  const auto load = [&] { return mxs_model_load(&model, path.c_str(), &options); };
  refuse(mxs_model_load(nullptr, path.c_str(), nullptr), {"model is NULL"});
  refuse(mxs_model_load(&model, nullptr, nullptr), {"path is NULL"});
  refuse(mxs_model_load(&model, "", nullptr), {"read"}, MXS_SYSTEM);
  refuse(mxs_model_load(&model, (folder + "/none.json").c_str(), nullptr), {"none.json"}, MXS_SYSTEM);
  refuse(mxs_model_load(&model, (folder + "/README.md").c_str(), nullptr), {"README.md", ".safetensors", ".csv"});
  options.size = 0;
  refuse(load(), {"options.size"});
  options = MXS_MODEL_OPTIONS_INIT;
  options.dtype = 99;
  refuse(load(), {"options.dtype", "99"});
  options = MXS_MODEL_OPTIONS_INIT;
  options.matrix_rule = -1;
  refuse(load(), {"options.matrix_rule", "-1"});
  options = MXS_MODEL_OPTIONS_INIT;
  options.reserved = 1;
  refuse(load(), {"options.reserved"});
  options = MXS_MODEL_OPTIONS_INIT;
  options.rule_count = 1;
  refuse(load(), {"options.rules", "NULL"});
  options.rules = &rule;
  refuse(load(), {"rules[0].pattern is NULL"});
  rule.pattern = "";
  refuse(load(), {"rules[0].pattern is empty"});
  rule.pattern = "*";
  rule.rule = 77;
  refuse(load(), {"rules[0].rule", "77"});
  rule.rule = MXS_RULE_ADAMW;
  rule.group = -1;
  refuse(load(), {"rules[0].group"});
  rule.group = 0;
  rule.size = 8;
  refuse(load(), {"options.rules"});
  rule.size = sizeof rule;
  options.rule_count = UINT64_MAX;
  refuse(load(), {"options.rules", "more than"});
  options.rule_count = 1;
  rule.pattern = "model.layers.99.*";
  refuse(load(), {"llama-3-8b.json", "model.layers.99.*"}, MXS_NOT_FOUND);
  refuse(mxs_model_tensors(nullptr, &tensors, &count), {"model is NULL"});
  if (!wrong.empty()) return wrong;
  if (mxs_model_unit_count(nullptr) || mxs_model_note_count(nullptr) || *mxs_model_title(nullptr) ||
      mxs_model_unit_name(nullptr, 0) || mxs_model_note(nullptr, 0))
    return "NULL has something";
  rule.pattern = "*";
  if (load() != MXS_OK) return error_of("load");
  wrong = expect(mxs_model_tensors(model, nullptr, &count), MXS_INVALID_ARGUMENT, {"tensors is NULL"});
  if (wrong.empty()) wrong = expect(mxs_model_tensors(model, &tensors, nullptr), MXS_INVALID_ARGUMENT,
      {"tensor_count"});
  if (wrong.empty() && mxs_model_note(model, mxs_model_note_count(model))) wrong = "a note too many";
  mxs_model_destroy(&model);
  mxs_model_destroy(&model);
  mxs_model_destroy(nullptr);
  return wrong;
}

// A model goes into a plan as it is: each tensor once, matrices where a rule wants them, each block of a fused weight
// one.
std::string plan_one(const char *name, uint64_t matrices_of_layer, uint64_t layers) {
  mxs_model_options options = MXS_MODEL_OPTIONS_INIT;
  options.gradient_dtype = MXS_F32;
  const Loaded loaded(folder + "/" + name + ".json", &options);
  if (loaded.status != MXS_OK) return error_of("load");
  mxs_topology *topology = nullptr;
  mxs_plan *plan = nullptr;
  if (mxs_topology_create(&topology, "nodes:2 ranks:4") != MXS_OK) return error_of("topology");
  const mxs_status status = mxs_plan_create(&plan, loaded.tensors, loaded.count, topology, nullptr);
  const int32_t units = mxs_plan_unit_count(plan);
  const uint64_t matrices = mxs_plan_matrix_count(plan);
  mxs_plan_destroy(&plan);
  mxs_topology_destroy(&topology);
  if (status != MXS_OK) return error_of("plan");
  if (units != mxs_model_unit_count(loaded.model)) return words("%s: %d units", name, units);
  if (matrices != matrices_of_layer * layers) return words("%s: %d matrices", name, static_cast<int>(matrices));
  return "";
}

std::string models_are_planned() {
  std::string wrong = plan_one("llama-3-8b", 7, 32);
  if (wrong.empty()) wrong = plan_one("gpt2-xl", 6, 48);
  return wrong.empty() ? plan_one("qwen2-7b", 7, 28) : wrong;
}

void patterns(void **) { assert_true(good(patterns_match_whole_names())); }
void names(void **) { assert_true(good(rules_follow_names_and_shapes())); }
void first(void **) { assert_true(good(patterns_go_first())); }
void layers(void **) { assert_true(good(layers_are_counted_as_numbers())); }
void checked(void **) { assert_true(good(names_and_shapes_are_checked())); }
void door(void **) { assert_true(good(the_door_refuses_what_is_wrong())); }
void planned(void **) { assert_true(good(models_are_planned())); }

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  folder = argv[1];
  const CMUnitTest tests[] = {
      {"patterns_match_whole_names", patterns, nullptr, nullptr, nullptr},
      {"rules_follow_names_and_shapes", names, nullptr, nullptr, nullptr},
      {"patterns_go_first", first, nullptr, nullptr, nullptr},
      {"layers_are_counted_as_numbers", layers, nullptr, nullptr, nullptr},
      {"names_and_shapes_are_checked", checked, nullptr, nullptr, nullptr},
      {"the_door_refuses_what_is_wrong", door, nullptr, nullptr, nullptr},
      {"models_are_planned", planned, nullptr, nullptr, nullptr},
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
