// SPDX-License-Identifier: Apache-2.0
// What a plan warns of, in which words, and what it doesn't warn of.
#include <functional>

#include "models.hpp"
#include "plan/stages.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

std::vector<std::string> warnings_of(const Model &model, int rank_count) {
  Plan plan;
  if (make(model, rank_count, &plan) != MXS_OK) return {std::string("refused: ").append(last_error_text())};
  return plan.warnings;
}

// Exactly one warning, which has all the words.
bool warns(const Model &model, std::initializer_list<const char *> words, int rank_count = 4) {
  const std::vector<std::string> found = warnings_of(model, rank_count);
  bool good = found.size() == 1;
  for (const char *word : words) good = good && found[0].find(word) != std::string::npos;
  if (!good) print_error("%zu warnings, \"%s\", wanted \"%s\"\n", found.size(),
                         found.empty() ? "" : found[0].c_str(), *words.begin());
  return good;
}

bool is_quiet(const Model &model, int rank_count = 4) {
  const std::vector<std::string> found = warnings_of(model, rank_count);
  if (!found.empty()) print_error("\"%s\"\n", found[0].c_str());
  return found.empty();
}

Model of(std::vector<int64_t> shape, mxs_rule rule, const std::string &name = "w", int count = 1) {
  Model model;
  for (int unit = 0; unit < count; ++unit)
    model.add(count == 1 ? name : numbered("layers.", unit).append(".").append(name), shape, 0, rule);
  return model;
}

bool ordinary_models_are_quiet() {
  return is_quiet(Model()) && is_quiet(gpt(3, 64)) && is_quiet(gpt(3, 64), 1) && is_quiet(gpt(3, 64), 8) &&
         is_quiet(of({8, 8}, MXS_RULE_MUON), 8) && is_quiet(of({0, 8}, MXS_RULE_SOAP)) &&
         is_quiet(of({64, 64}, MXS_RULE_SOAP)) && is_quiet(of({64, 64}, MXS_RULE_SHAMPOO)) &&
         is_quiet(of({50000, 64}, MXS_RULE_ADAMW, "model.embed_tokens.weight")) &&
         is_quiet(of({50000, 64}, MXS_RULE_ADAMW, "transformer.wte.weight")) &&
         is_quiet(of({256, 64}, MXS_RULE_ADAMW, "mlp.gate.weight")) && is_quiet(of({32, 64}, MXS_RULE_ADAMW)) &&
         is_quiet(of({8, 4, 3, 3}, MXS_RULE_AUTO));
}

bool rules_that_surprise_are_told() {
  Model asked = of({256, 256}, MXS_RULE_AUTO);
  asked.tensors[0].role = MXS_ROLE_FLAT;
  return warns(of({256, 256}, MXS_RULE_ADAMW), {"tensor \"w\" is a matrix but steps under adamw"}) &&
         warns(asked, {"tensor \"w\"", "adamw"}) &&
         warns(of({256, 256}, MXS_RULE_ADAMW, "mlp.gate_proj.weight"), {"gate_proj", "adamw"}) &&
         warns(of({128, 64, 3, 3}, MXS_RULE_AUTO), {"\"w\" has more than 3 dimensions"});
}

bool stacks_that_nothing_steps_are_told() {
  Model frozen = of({4, 64, 64}, MXS_RULE_FROZEN, "experts");
  frozen.add("q", {64, 64});
  Model alone = of({64, 64}, MXS_RULE_FROZEN, "mlp.experts.7.up.weight", 3);
  alone.add("q", {64, 64});
  return warns(frozen, {"tensor \"experts\" holds experts but is frozen: nothing steps them"}) &&
         warns(alone, {"3 tensors, the first of them \"layers.0.mlp.experts.7.up.weight\", hold experts", "frozen"}) &&
         warns(of({4, 64, 64}, MXS_RULE_EXTERNAL, "e"), {"\"e\" holds experts", "external"}) &&
         warns(of({64, 64}, MXS_RULE_FROZEN, "base"), {"no matrix is stepped", "\"base\" is frozen"});
}

bool eighty_layers_make_one_line() {
  return warns(of({256, 256}, MXS_RULE_ADAMW, "up", 80),
               {"80 tensors, the first of them \"layers.0.up\", are matrices"});
}

bool fixed_owners_that_make_a_rank_the_worst_are_told() {
  Model model;
  for (int i = 0; i < 8; ++i) model.add(numbered("w", i), {64, 64});
  Model fixed = model;
  for (int i = 0; i < 6; ++i) fixed.tensors[static_cast<size_t>(i)].fixed_owner = MXS_FIXED_OWNER(2);
  Model even = model;
  for (int i = 0; i < 8; ++i) even.tensors[static_cast<size_t>(i)].fixed_owner = MXS_FIXED_OWNER(i % 4);
  return warns(fixed, {"fixed owners make rank 2's step the longest"}) && is_quiet(even) && is_quiet(model);
}

bool pieces_that_make_an_owner_stand_out_are_told() {
  Model model = of({512, 512}, MXS_RULE_MUON, "small", 8);
  model.add("large", {4096, 512}, 1);
  for (int i = 0; i < 5; ++i) model.add(numbered("beside", i), {512, 1024}, 1);
  Model flat = of({64, 64}, MXS_RULE_MUON, "small", 8);  // bf16: 125 KiB, which 65,536 don't cut in two
  flat.add("embedding", {1000, 64}, 1, MXS_RULE_ADAMW);
  flat.tensors.back().dtype = MXS_BF16;
  return warns(model, {"tensor \"large\" alone needs", "more than an even share"}, 8) &&
         warns(flat, {"tensor \"embedding\" alone needs", "a smaller flat_bytes would cut it finer"}, 8);
}

bool units_that_wait_for_one_link_are_told() {
  Model model;
  for (int unit = 0; unit < 6; ++unit) {
    model.add(numbered("large", unit), {1024, 512}, unit);
    model.add(numbered("small", unit), {256, 512}, unit);
  }
  return warns(model, {"6 units, the first of them 0 with tensor \"large0\"", "link"}, 3) && is_quiet(model, 2);
}

bool blocks_off_the_alignment_are_told() {
  Model model;
  model.add("experts", {300, 63, 17}, 0);
  for (int i = 0; i < 4; ++i) model.add(numbered("w", i), {600, 600}, 0);
  const std::vector<std::string> found = warnings_of(model, 2);
  for (const std::string &sentence : found)
    if (sentence.find("\"experts\" has one owner for all blocks") != std::string::npos) return true;
  print_error("%zu warnings\n", found.size());
  return false;
}

bool the_report_ends_with_them() {
  Plan plan;
  if (make(of({256, 256}, MXS_RULE_ADAMW, "a\nb"), 2, &plan) != MXS_OK) return false;
  const std::string report = plan_report(plan);
  return plan.warnings.size() == 1 && report.find("\nwarning: tensor \"a?b\" is a matrix") != std::string::npos &&
         report.back() == '\n';
}

void ordinary_models_warn_of_nothing(void **) { assert_true(ordinary_models_are_quiet()); }
void a_rule_that_surprises_is_told(void **) { assert_true(rules_that_surprise_are_told()); }
void a_stack_that_nothing_steps_is_told(void **) { assert_true(stacks_that_nothing_steps_are_told()); }
void equal_surprises_make_one_line(void **) { assert_true(eighty_layers_make_one_line()); }
void a_fixed_owner_that_is_worst_is_told(void **) { assert_true(fixed_owners_that_make_a_rank_the_worst_are_told()); }
void a_piece_above_the_even_share_is_told(void **) { assert_true(pieces_that_make_an_owner_stand_out_are_told()); }
void a_unit_that_waits_for_one_link_is_told(void **) { assert_true(units_that_wait_for_one_link_are_told()); }
void blocks_that_share_an_owner_are_told(void **) { assert_true(blocks_off_the_alignment_are_told()); }
void the_report_ends_with_the_warnings(void **) { assert_true(the_report_ends_with_them()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ordinary_models_warn_of_nothing),    cmocka_unit_test(a_rule_that_surprises_is_told),
      cmocka_unit_test(a_stack_that_nothing_steps_is_told), cmocka_unit_test(equal_surprises_make_one_line),
      cmocka_unit_test(a_fixed_owner_that_is_worst_is_told), cmocka_unit_test(a_piece_above_the_even_share_is_told),
      cmocka_unit_test(a_unit_that_waits_for_one_link_is_told), cmocka_unit_test(blocks_that_share_an_owner_are_told),
      cmocka_unit_test(the_report_ends_with_the_warnings),
  };
  return cmocka_run_group_tests_name("plan warnings", tests, nullptr, nullptr);
}
