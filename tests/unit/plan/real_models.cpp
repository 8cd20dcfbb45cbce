// SPDX-License-Identifier: Apache-2.0
// How good plans of real models are: beside their lower bounds, and beside owners by longest processing time on
// elements, which is what frameworks do. Shapes are those of the published configurations in tests/data/models.
#include <map>
#include <set>

#include "matrixshard/model.h"
#include "models.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

std::string data_folder;

struct RealModel {
  mxs_model *model = nullptr;
  const mxs_tensor *tensors = nullptr;
  uint64_t tensor_count = 0;
  explicit RealModel(const char *name) {
    const std::string path = data_folder + "/" + name + ".json";
    if (mxs_model_load(&model, path.c_str(), nullptr) != MXS_OK ||
        mxs_model_tensors(model, &tensors, &tensor_count) != MXS_OK)
      print_error("%s: %s\n", name, last_error_text());
  }
  RealModel(const RealModel &) = delete;
  ~RealModel() { mxs_model_destroy(&model); }
};

struct Egress {
  uint64_t of_all = 0;     // the worst of all units
  uint64_t of_layers = 0;  // of units that have matrices of muon
};

// Every tensor of 2 dimensions whole, an embedding too, and each matrix of a stack; the largest first, to the rank with
// the fewest elements. Tails of a unit together.
Egress egress_by_elements(const RealModel &real, int rank_count) {
  struct Whole {
    uint64_t elements = 0, bytes = 0;
    int unit = 0;
  };
  std::vector<Whole> wholes;
  std::map<int, Whole> tails;
  std::vector<bool> is_layer(static_cast<size_t>(mxs_model_unit_count(real.model)));
  for (uint64_t index = 0; index < real.tensor_count; ++index) {
    const mxs_tensor &tensor = real.tensors[index];
    if (tensor.tied_to) continue;
    uint64_t elements = 1, count = 1;
    for (int d = 0; d < tensor.dimension_count; ++d) elements *= static_cast<uint64_t>(tensor.shape[d]);
    if (tensor.dimension_count == 3) count = static_cast<uint64_t>(tensor.shape[0]);
    const Whole whole = {elements / count, elements / count * dtype_bytes(tensor.dtype), tensor.unit};
    if (tensor.dimension_count >= 2 && tensor.rule != MXS_RULE_ADAMW) is_layer[static_cast<size_t>(tensor.unit)] = true;
    Whole &tail = tails[tensor.unit];
    tail.unit = tensor.unit;
    if (tensor.dimension_count < 2)
      tail.elements += whole.elements, tail.bytes += whole.bytes;
    else
      wholes.insert(wholes.end(), count, whole);
  }
  for (const auto &[unit, tail] : tails) wholes.push_back(tail);
  std::stable_sort(wholes.begin(), wholes.end(),
                   [](const Whole &a, const Whole &b) { return a.elements > b.elements; });
  std::set<std::pair<uint64_t, int>> ranks;
  for (int rank = 0; rank < rank_count; ++rank) ranks.insert({0, rank});
  std::map<std::pair<int, int>, uint64_t> sums;
  for (const Whole &whole : wholes) {
    const auto [elements, rank] = *ranks.begin();
    ranks.erase(ranks.begin());
    ranks.insert({elements + whole.elements, rank});
    sums[{whole.unit, rank}] += whole.bytes;
  }
  Egress egress;
  for (const auto &[place, bytes] : sums) {
    egress.of_all = std::max(egress.of_all, bytes);
    if (is_layer[static_cast<size_t>(place.first)]) egress.of_layers = std::max(egress.of_layers, bytes);
  }
  return egress;
}

uint64_t layers_egress(const Plan &plan) {
  std::vector<bool> is_layer(plan.units.size());
  for (const PlannedTensor &tensor : plan.tensors)
    if (tensor.has_matrices()) is_layer[static_cast<size_t>(tensor.unit)] = true;
  uint64_t worst = 0;
  for (size_t unit = 0; unit < plan.units.size(); ++unit)
    if (is_layer[unit]) worst = std::max(worst, plan.units[unit].egress.rank_worst);
  return worst;
}

double above(const Objective &objective) {
  if (objective.bound == 0) return 0;
  return 100.0 * (static_cast<double>(objective.worst) / static_cast<double>(objective.bound) - 1);
}

bool is_within(const Objective &objective, uint64_t percent) {
  return objective.worst <= objective.bound + objective.bound / 100 * percent;
}

// bytes_percent: how far the worst rank's bytes may be above their bound.
bool is_good(const char *name, const char *words, uint64_t bytes_percent, uint32_t bytes_weight = 0) {
  const RealModel real(name);
  Topology topology;
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
  options.bytes_weight = bytes_weight;
  Plan plan;
  if (parse_topology(words, &topology) != MXS_OK || real.tensor_count == 0 ||
      make_plan(real.tensors, real.tensor_count, topology, &options, &plan) != MXS_OK) {
    print_error("%s, %s: %s\n", name, words, last_error_text());
    return false;
  }
  size_t matrix_count = 0;
  for (const Placement &piece : plan.placements)
    matrix_count += plan.tensors[static_cast<size_t>(piece.tensor)].has_matrices();
  const Objective &step = plan.objectives[MXS_OBJECTIVE_STEP], &bytes = plan.objectives[MXS_OBJECTIVE_BYTES];
  const Objective &egress = plan.objectives[MXS_OBJECTIVE_EGRESS], &nic = plan.objectives[MXS_OBJECTIVE_NIC];
  const int rank_count = topology.rank_count();
  const Egress before = egress_by_elements(real, rank_count);
  const uint64_t layers = layers_egress(plan);
  const auto mib = [](uint64_t amount) { return static_cast<double>(amount) / (1 << 20); };
  print_message("# %-12s %-17s %6zu | step %+.3f%% bytes %+.3f%% egress %+.2f%% nic %+.2f%% | MiB of a unit %.1f, by "
                "elements %.1f | of a layer %.1f, %.1f\n",
                name, words, matrix_count, above(step), above(bytes), above(egress), above(nic), mib(egress.worst),
                mib(before.of_all), mib(layers), mib(before.of_layers));
  // Half of what elements give is out of reach where a layer is so large that its even share is more: then the bound
  // must be near (DeepSeek-V3 on 8 ranks).
  const bool outnumber = matrix_count >= 4 * static_cast<size_t>(rank_count);
  const bool good = (!outnumber || bytes_weight != 0 || is_within(step, 1)) && is_within(bytes, bytes_percent) &&
                    (2 * egress.worst <= before.of_all || is_within(egress, 10)) && is_within(nic, 3);
  if (!good) print_error("%s, %s: not as good as promised\n", name, words);
  return good;
}

bool dense_models_are_good(const char *name) {
  for (const char *words : {"ranks:8", "nodes:8 ranks:8", "nodes:64 ranks:8"})
    if (!is_good(name, words, 3)) return false;
  return true;
}

void gpt2_xl_is_near_its_bounds(void **) { assert_true(dense_models_are_good("gpt2-xl")); }
void llama_3_8b_is_near_its_bounds(void **) { assert_true(dense_models_are_good("llama-3-8b")); }
void llama_3_70b_is_near_its_bounds(void **) { assert_true(dense_models_are_good("llama-3-70b")); }
void qwen3_32b_is_near_its_bounds(void **) { assert_true(dense_models_are_good("qwen3-32b")); }

void deepseek_v3_is_near_its_bounds(void **) {
  assert_true(is_good("deepseek-v3", "ranks:8", 3));
  assert_true(is_good("deepseek-v3", "nodes:8 ranks:8", 3));
  assert_true(is_good("deepseek-v3", "nodes:256 ranks:8", 3));
}

// On 512 ranks the two bounds exclude each other: an output projection has the step of 30 experts, but the bytes of 8.
// Where the step is at its bound, ranks without one have 92 experts' bytes, 3.1 % above the mean, in whole experts 93.
void deepseek_v3_on_512_ranks_has_step_or_bytes_near_the_bound(void **) {
  assert_true(is_good("deepseek-v3", "nodes:64 ranks:8", 5));
  assert_true(is_good("deepseek-v3", "nodes:64 ranks:8", 3, 100'000'000));
}

}  // namespace

int main(int argc, char **argv) {
  data_folder = argc > 1 ? argv[1] : "tests/data/models";
  const CMUnitTest tests[] = {
      cmocka_unit_test(gpt2_xl_is_near_its_bounds),
      cmocka_unit_test(llama_3_8b_is_near_its_bounds),
      cmocka_unit_test(llama_3_70b_is_near_its_bounds),
      cmocka_unit_test(qwen3_32b_is_near_its_bounds),
      cmocka_unit_test(deepseek_v3_is_near_its_bounds),
      cmocka_unit_test(deepseek_v3_on_512_ranks_has_step_or_bytes_near_the_bound),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
