// SPDX-License-Identifier: Apache-2.0
// Saved plans. A text whose only fault is its fingerprint is read once more with the right one, as its forger would
// make it: what loads must be a plan with sound geometry, and must be written and read again as the same.
#include <cstring>

#include "fuzz.hpp"
#include "plan/saved.hpp"
#include "unit/plan/models.hpp"

using namespace mxs;

namespace {

mxs_status restore_as_forger(SavedPlan *saved, Plan *plan) {
  const mxs_status status = restore_plan(*saved, plan);
  if (status == MXS_OK) return status;
  static const char before[] = "but what the file holds has ";
  const char *found = std::strstr(last_error_text(), before);
  if (!found) return status;
  saved->fingerprint = std::strtoull(found + sizeof before - 1, nullptr, 16);
  const mxs_status again = restore_plan(*saved, plan);
  fuzz::promise(again == MXS_OK);
  return again;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  SavedPlan saved;
  Plan plan;
  if (saved_plan_from_json(fuzz::text_of(data, size), &saved) != MXS_OK) return 0;
  if (restore_as_forger(&saved, &plan) != MXS_OK) return 0;
  fuzz::promise(check_plan(plan).empty());
  std::string text;
  Plan again;
  fuzz::promise(plan_to_json(plan, &text) == MXS_OK && saved_plan_from_json(text, &saved) == MXS_OK &&
                restore_plan(saved, &again) == MXS_OK && again.fingerprint == plan.fingerprint);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  const auto add = [&seeds](const Model &model, const char *words) {
    Topology topology;
    Plan plan;
    std::string text;
    fuzz::promise(parse_topology(words, &topology) == MXS_OK &&
                  make_plan(model.tensors.data(), model.tensors.size(), topology, &model.options, &plan) == MXS_OK &&
                  plan_to_json(plan, &text) == MXS_OK);
    seeds.push_back(text);
  };
  Model shared;
  shared.add("asked", {512, 512}).co_owners = 3;
  shared.add("chosen", {2048, 2048});
  shared.add("cut", {64, 6, 64}, 1);
  shared.options.co_owners_max = 4;
  add(shared, "nodes:2 ranks:4");
  Model tied;
  tied.add("e", {300, 100}, 0, MXS_RULE_ADAMW);
  tied.add("h", {300, 100}, 0).tied_to = "e";
  tied.add_blocks("qkv", {64, 64, 64}, 64, 1).dtype = MXS_BF16;
  tied.options.flat_bytes = 1000;
  tied.options.rank_bytes_max = 2'000'000;
  add(tied, "ranks:3");
  for (unsigned seed = 0; seed < 4; ++seed) add(random_model(seed, 2), "ranks:2");
  return seeds;
}
