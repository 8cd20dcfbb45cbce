// SPDX-License-Identifier: Apache-2.0
// Matrices that ranks of a node share: how rows are cut, who gets them, when the planner shares at all.
#include "plan/co_owners.hpp"

#include <functional>
#include <numeric>
#include <set>

#include "models.hpp"
#include "plan/memory.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

Topology nodes(int node_count, int ranks_each) {
  std::vector<uint64_t> labels;
  for (int rank = 0; rank < node_count * ranks_each; ++rank) labels.push_back(static_cast<uint64_t>(rank / ranks_each));
  return topology_from_nodes(labels);
}

mxs_status make_on(const Model &model, const Topology &topology, Plan *plan) {
  return make_plan(model.tensors.data(), model.tensors.size(), topology, &model.options, plan);
}

uint64_t worst_ps(const Plan &plan) { return *std::max_element(plan.rank_step_ps.begin(), plan.rank_step_ps.end()); }

// The predicted worst step with and without sharing; 0: a plan failed or is unsound.
struct Compared {
  uint64_t whole = 0, shared = 0;
  Plan plan;
};

Compared compare(Model model, const Topology &topology, int co_owners_max) {
  Compared result;
  if (make_on(model, topology, &result.plan) != MXS_OK || !check_plan(result.plan).empty()) return {};
  result.whole = worst_ps(result.plan);
  model.options.co_owners_max = co_owners_max;
  if (make_on(model, topology, &result.plan) != MXS_OK || !check_plan(result.plan).empty()) return {};
  result.shared = worst_ps(result.plan);
  return result;
}

Model matrices(int count, int64_t rows, int64_t columns) {
  Model model;
  for (int index = 0; index < count; ++index)
    model.add(numbered("m", index), {rows, columns}, index).dtype = MXS_BF16;
  return model;
}

std::vector<int> owners_of(const Plan &plan, size_t tensor) {
  std::vector<int> owners;
  for (uint64_t number = 0; number < plan.tensors[tensor].placement_count; ++number)
    owners.push_back(plan.placements[plan.tensors[tensor].placement_index + number].owner);
  return owners;
}

bool four_matrices_are_shared_by_sixteen_ranks() {
  const Compared compared = compare(matrices(4, 16384, 4096), nodes(2, 8), 8);
  if (compared.whole == 0 || compared.shared == 0) return false;
  // Each by 4 of them: (20 m n^2 / 4 + 10 n^3) of (20 m n^2 + 10 n^3), so 1/3, and what the sums cost.
  std::set<int> owners;
  for (size_t tensor = 0; tensor < 4; ++tensor) {
    const std::vector<int> its = owners_of(compared.plan, tensor);
    if (its.size() != 4) return false;
    owners.insert(its.begin(), its.end());
  }
  const std::string &reason = compared.plan.tensors[0].reason;
  return owners.size() == 16 && compared.shared * 5 < compared.whole * 2 &&
         reason.find("shared by 4 ranks of node 0") != std::string::npos &&
         reason.find("one owner") == std::string::npos;
}

bool each_group_takes_the_node_that_has_least_to_do() {
  Model model = matrices(5, 8192, 2048);
  for (mxs_tensor &tensor : model.tensors) tensor.co_owners = 4;
  model.add("busy", {16384, 8192}).fixed_owner = MXS_FIXED_OWNER(1);  // on node 0, which has 5 ranks
  Plan plan;
  const Topology topology = topology_from_nodes({0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2});
  if (make_on(model, topology, &plan) != MXS_OK || !check_plan(plan).empty()) return false;
  // Node 0 without its rank 1 and node 1 take turns; node 2 is too small.
  const std::vector<int> first = {0, 2, 3, 4}, second = {5, 6, 7, 8};
  for (size_t tensor = 0; tensor < 5; ++tensor)
    if (owners_of(plan, tensor) != (tensor % 2 ? second : first)) return false;
  return true;
}

bool shares_are_even_and_cut_at_chunks() {
  for (const int asked : {2, 3, 5, 7, 8})
    for (const int64_t columns : {512, 1000, 1024, 4096, 5120, 11008})
      for (const mxs_dtype dtype : {MXS_F32, MXS_BF16})
        for (const uint64_t alignment : {64, 4096, 65536}) {
          Model model;
          model.options.alignment = alignment;
          mxs_tensor &tensor = model.add("m", {6007, columns});
          tensor.co_owners = asked;
          tensor.dtype = dtype;
          Plan plan;
          if (make_on(model, nodes(2, 8), &plan) != MXS_OK || !check_plan(plan).empty()) return false;
          const uint64_t chunk = std::max<uint64_t>(4096, alignment / dtype_bytes(dtype));
          const uint64_t step = chunk / std::gcd(chunk, static_cast<uint64_t>(columns));
          const uint64_t count = plan.placements.size();
          if (count != std::min<uint64_t>(divide_up(6007, step), static_cast<uint64_t>(asked))) return false;
          uint64_t rows = 0;
          for (const Placement &piece : plan.placements) {
            if (piece.element_offset % chunk != 0) return false;
            const uint64_t even = 6007 / count, own = static_cast<uint64_t>(piece.shape[0]);
            if (own + 2 * step < even || own > even + 2 * step) return false;
            rows += own;
          }
          if (rows != 6007) return false;
        }
  return true;
}

// Segments of weights and gradients end where shares do, so that each owner maps its own pages.
bool each_co_owner_has_a_segment() {
  Model model = matrices(1, 4096, 1024);
  model.tensors[0].co_owners = 4;
  Plan plan;
  if (make_on(model, nodes(1, 4), &plan) != MXS_OK || !check_plan(plan).empty()) return false;
  if (plan.units[0].weights.segments.size() != 4 || plan.units[0].gradients.segments.size() != 4) return false;
  for (int rank = 0; rank < 4; ++rank)
    if (plan.units[0].weights.owned_bytes(rank) != 2 * 1024 * 1024 || rank_load(plan, rank).matrix_count != 1 ||
        plan.rank_owned_bytes[static_cast<size_t>(rank)] != uint64_t{1024} * 1024 * (2 + 4 + 4 + 4))
      return false;
  return true;
}

bool shares_are_scaled_as_the_whole() {
  Model model = matrices(1, 4096, 1024);
  model.tensors[0].co_owners = 4;
  Plan plan;
  for (const int64_t whole_rows : {int64_t{0}, int64_t{8192}}) {
    model.tensors[0].whole_rows = whole_rows;
    if (make_on(model, nodes(1, 4), &plan) != MXS_OK || !check_plan(plan).empty()) return false;
    if (plan.matrices.size() != 4) return false;
    for (size_t number = 0; number < 4; ++number) {
      const Matrix &matrix = plan.matrices[number];
      if (matrix.rows != 1024 || matrix.columns != 1024 || matrix.placement != number) return false;
      if (matrix.scale_rows != (whole_rows ? whole_rows : 4096) || matrix.scale_columns != 1024) return false;
    }
  }
  return true;
}

bool costs_are_a_part_of_the_whole() {
  Model model = matrices(1, 4096, 1024);
  model.tensors[0].co_owners = 4;
  Plan plan;
  if (make_on(model, nodes(1, 4), &plan) != MXS_OK) return false;
  const double m = 4096, n = 1024;
  for (int rank = 0; rank < 4; ++rank)
    if (plan.rank_step_flops[static_cast<size_t>(rank)] != 20 * m * n * n / 4 + 10 * n * n * n + 12 * m * n / 4)
      return false;
  const StepWork tall = step_work(MXS_RULE_MUON, {4096, 1024}, 4), wide = step_work(MXS_RULE_MUON, {1024, 4096}, 4);
  // Sums of five Gram matrices: four are read and one is written, in fp32. Wide: X there and back, in and out.
  return tall.bytes == 4096 * 1024 * 36 / 4 + 5 * 4 * 1024 * 1024 * uint64_t{5} &&
         wide.bytes == tall.bytes + 16 * 1024 * 4096 / 4 && tall.flops == wide.flops &&
         plan.rank_step_ps[0] == step_ps(tall, PlanSettings{});
}

bool a_share_needs_its_own_workspace() {
  Model model = matrices(2, 4096, 1024);
  model.tensors[0].co_owners = 4;
  model.tensors[1].co_owners = 4;
  std::swap(model.tensors[1].shape[0], model.tensors[1].shape[1]);
  const uint64_t n = 1024, share = n * 1024;  // of 4 co-owners: X is square
  // X, two squares and a panel in fp32, which is more than tiles take here; wide: the exchange of rows for columns.
  const uint64_t tall = 4 * share + 8 * n * n + 512 * n, wide = tall + 8 * share;
  for (const size_t count : {1u, 2u}) {
    Plan plan;
    if (make_plan(model.tensors.data(), count, nodes(1, 4), &model.options, &plan) != MXS_OK) return false;
    for (int rank = 0; rank < 4; ++rank)
      if (predict_memory(plan, rank, MXS_MEMORY_OPTIONS_INIT).workspace != (count == 1 ? tall : wide) + 4 * share)
        return false;
  }
  return true;
}

bool few_rows_have_few_co_owners() {
  // 4,096 elements are 8 rows of 512: 3 ranges of 20 rows. 1001 columns: a cut every 4,096 rows.
  Model model;
  model.add("few", {20, 512}).co_owners = 8;
  model.add("one", {1000, 1001}).co_owners = 4;
  model.add("none", {0, 64}).co_owners = 2;
  Plan plan;
  if (make_on(model, nodes(2, 8), &plan) != MXS_OK || !check_plan(plan).empty()) return false;
  if (plan.tensors[0].placement_count != 3 || plan.placements[2].shape[0] != 4) return false;
  if (plan.tensors[1].placement_count != 1 || plan.tensors[2].placement_count != 1) return false;
  return plan.tensors[0].reason == "muon, since 2 dimensions make a matrix; shared by 3 ranks of node 0, not 8: rows "
                                   "can be cut only every 8" &&
         plan.tensors[1].reason == "muon, since 2 dimensions make a matrix; one owner has it whole, not 4 co-owners: "
                                   "rows can be cut only every 4096";
}

bool is_refused(const Model &model, const Topology &topology, mxs_status status, const char *words) {
  Plan plan;
  plan.fingerprint = 77;
  const mxs_status found = make_on(model, topology, &plan);
  if (found == status && plan.fingerprint == 77 && std::strstr(last_error_text(), words)) return true;
  print_error("status %d, not %d: %s\n", found, status, last_error_text());
  return false;
}

bool what_cannot_be_shared_is_refused() {
  const Topology topology = nodes(2, 4);
  const auto refused = [&](const char *words, const std::function<void(mxs_tensor *)> &change) {
    Model model = matrices(1, 4096, 1024);
    model.tensors[0].co_owners = 2;
    change(&model.tensors[0]);
    return is_refused(model, topology, MXS_INVALID_ARGUMENT, words);
  };
  Model blocks;
  blocks.add_blocks("qkv", {64, 64, 64}, 64).co_owners = 2;
  Model tied = matrices(1, 64, 64);
  mxs_tensor &other = tied.add("tied", {64, 64}, 0);
  other.dtype = MXS_BF16;
  other.tied_to = "m0";
  other.co_owners = 2;
  Model options = matrices(1, 64, 64);
  options.options.co_owners_max = -1;
  return refused("no node has more than 4 ranks", [](mxs_tensor *tensor) { tensor->co_owners = 5; }) &&
         refused("co_owners is -1, negative", [](mxs_tensor *tensor) { tensor->co_owners = -1; }) &&
         refused("rule adamw", [](mxs_tensor *tensor) { tensor->rule = MXS_RULE_ADAMW; }) &&
         refused("rule external", [](mxs_tensor *tensor) { tensor->rule = MXS_RULE_EXTERNAL; }) &&
         refused("rule frozen", [](mxs_tensor *tensor) { tensor->rule = MXS_RULE_FROZEN; }) &&
         refused("rule soap", [](mxs_tensor *tensor) { tensor->rule = MXS_RULE_SOAP; }) &&
         refused("fixed_owner gives all to rank 3",
                 [](mxs_tensor *tensor) { tensor->fixed_owner = MXS_FIXED_OWNER(3); }) &&
         refused("without blocks",
                 [](mxs_tensor *tensor) {
                   tensor->dimension_count = 3;
                   tensor->shape[2] = 64;
                 }) &&
         is_refused(blocks, topology, MXS_INVALID_ARGUMENT, "without blocks") &&
         is_refused(tied, topology, MXS_INVALID_ARGUMENT, "co_owners is set, but it is tied") &&
         is_refused(options, topology, MXS_INVALID_ARGUMENT, "co_owners_max is -1");
}

bool one_rank_shares_nothing() {
  Model model = matrices(1, 4096, 1024);
  const Compared compared = compare(model, world(1), 8);
  if (compared.whole == 0 || compared.whole != compared.shared) return false;
  model.tensors[0].co_owners = 2;
  if (!is_refused(model, world(1), MXS_INVALID_ARGUMENT, "no node has more than 1 rank")) return false;
  model.tensors[0].co_owners = 1;
  Plan plan;
  return make_on(model, world(1), &plan) == MXS_OK && check_plan(plan).empty();
}

bool a_budget_chooses_the_node_or_refuses() {
  // Rank 0 is full, so that four ranks are left on node 1 alone.
  const uint64_t share = uint64_t{1024} * 1024 * 14;
  Model model = matrices(1, 4096, 1024);
  model.tensors[0].co_owners = 4;
  model.add("idle", {2048, 1024}, 0, MXS_RULE_EXTERNAL).fixed_owner = MXS_FIXED_OWNER(0);  // no cost, 12 bytes each
  model.options.rank_bytes_max = uint64_t{2048} * 1024 * 8;
  Plan plan;
  if (make_on(model, nodes(2, 4), &plan) != MXS_OK || owners_of(plan, 0) != std::vector<int>{4, 5, 6, 7}) return false;
  const std::string needed = numbered("they would own ", static_cast<int64_t>(share));
  model.tensors.pop_back();
  model.options.rank_bytes_max = share;
  if (make_on(model, nodes(2, 4), &plan) != MXS_OK) return false;
  model.options.rank_bytes_max = share - 1;
  return is_refused(model, nodes(2, 4), MXS_OVER_BUDGET, needed.c_str());
}

// The co-owners find room from 14 MB on, the matrix beside them wants more: what is told works for both.
bool the_budget_that_a_refusal_tells_works() {
  Model model = matrices(2, 4096, 1024);
  model.tensors[0].co_owners = 4;
  model.add("large", {4096, 4096}, 0, MXS_RULE_MUON);
  model.options.rank_bytes_max = 1000;
  Plan plan;
  if (!is_refused(model, nodes(2, 4), MXS_OVER_BUDGET, "no 4 ranks of a node have room")) return false;
  const std::string sentence = last_error_text(), words = "; the smallest that works is ";
  if (sentence.find(words) == std::string::npos) return false;
  model.options.rank_bytes_max = std::stoull(sentence.substr(sentence.find(words) + words.size()));
  if (make_on(model, nodes(2, 4), &plan) != MXS_OK || !check_plan(plan).empty()) return false;
  --model.options.rank_bytes_max;
  return make_on(model, nodes(2, 4), &plan) == MXS_OVER_BUDGET;
}

bool sharing_stays_within_the_budget() {
  for (const uint64_t matrix_count : {3u, 4u, 9u}) {
    Model model = matrices(static_cast<int>(matrix_count), 16384, 1024);
    model.add("embedding", {50257, 1024}, 0, MXS_RULE_ADAMW);
    model.options.co_owners_max = 8;
    Plan plan;
    if (make_on(model, nodes(2, 8), &plan) != MXS_OK) return false;
    uint64_t budget = *std::max_element(plan.rank_owned_bytes.begin(), plan.rank_owned_bytes.end());
    for (int step = 0; step < 12; ++step, budget -= budget / 16) {
      model.options.rank_bytes_max = budget;
      const mxs_status status = make_on(model, nodes(2, 8), &plan);
      if (status == MXS_OVER_BUDGET) break;
      if (status != MXS_OK || !check_plan(plan).empty()) return false;
      for (const uint64_t bytes : plan.rank_owned_bytes)
        if (bytes > budget) return false;
    }
  }
  return true;
}

bool nothing_is_shared_where_it_does_not_pay() {
  const Topology topology = nodes(2, 4);
  Model many = gpt(32, 256);  // 6 matrices in each of 32 units on 8 ranks
  Model blocked = matrices(1, 64, 64);
  blocked.add("stack", {8, 2048, 2048});  // a matrix for each rank; it can't be shared, and costs most
  Model asked_alone = matrices(4, 8192, 2048);
  for (mxs_tensor &tensor : asked_alone.tensors) tensor.co_owners = 1;
  Model full = matrices(8, 8192, 2048);  // as many as ranks
  Model vectors;
  vectors.add("v", {100000});
  for (Model *model : {&many, &blocked, &asked_alone, &full, &vectors}) {
    const Compared compared = compare(*model, topology, 4);
    if (compared.plan.tensors.empty() || compared.whole != compared.shared) return false;
    for (const Placement &piece : compared.plan.placements)
      if (piece.co_owner_count != 1) return false;
  }
  return true;
}

bool left_over_matrices_are_shared() {
  // 24 on 16 ranks: whole, some rank has two. With 8 of them shared by two, each rank has one and a half.
  const Compared compared = compare(matrices(24, 16384, 1024), nodes(2, 8), 8);
  if (compared.whole == 0 || compared.shared == 0 || compared.shared * 10 > compared.whole * 8) return false;
  int whole = 0;
  for (const PlannedTensor &tensor : compared.plan.tensors) whole += tensor.placement_count == 1;
  return whole > 0;
}

bool sharing_never_makes_the_worst_step_longer() {
  std::mt19937 random(11);
  for (int repeat = 0; repeat < test::few(60); ++repeat) {
    const int node_count = static_cast<int>(1 + random() % 3), ranks_each = static_cast<int>(1 + random() % 8);
    Model model;
    const int count = static_cast<int>(1 + random() % 30);
    for (int index = 0; index < count; ++index) {
      const int64_t sides[] = {64, 256, 768, 1024, 3072, 4096};
      const int64_t rows = sides[random() % 6], columns = sides[random() % 6];
      model.add(numbered("m", index), {rows, columns}, static_cast<int>(random() % 4)).dtype = MXS_BF16;
    }
    const Compared compared = compare(model, nodes(node_count, ranks_each), 8);
    if (compared.whole == 0 || compared.shared > compared.whole) {
      print_error("repeat %d: %llu ps whole, %llu shared\n", repeat, static_cast<unsigned long long>(compared.whole),
                  static_cast<unsigned long long>(compared.shared));
      return false;
    }
  }
  return true;
}

// All rules, roles and dtypes beside shared matrices, in worlds of odd sizes; each plan made twice.
bool random_models_are_sound() {
  for (unsigned seed = 0; seed < test::few(120u); ++seed) {
    const int node_count = static_cast<int>(1 + seed % 3), ranks_each = static_cast<int>(1 + seed % 7);
    Model model = random_model(seed, node_count * ranks_each);
    if (seed % 2) model.options.co_owners_max = 8;
    std::vector<size_t> asked;
    for (size_t index = 0; index < model.tensors.size() && ranks_each > 1 && seed % 4 < 2; ++index) {
      mxs_tensor &tensor = model.tensors[index];
      if (tensor.rule != MXS_RULE_AUTO || tensor.dimension_count != 2 || tensor.block_rows || tensor.fixed_owner ||
          tensor.block_columns || tensor.tied_to || tensor.role != MXS_ROLE_AUTO)
        continue;
      if (index + 1 < model.tensors.size() && model.tensors[index + 1].tied_to) continue;  // its shape is this one's
      tensor.shape[0] *= 40;
      tensor.co_owners = static_cast<int32_t>(1 + index % static_cast<size_t>(ranks_each));
      asked.push_back(index);
    }
    Plan plan, again;
    if (make_on(model, nodes(node_count, ranks_each), &plan) != MXS_OK) {
      print_error("seed %u: %s\n", seed, last_error_text());
      return false;
    }
    std::string complaint = check_plan(plan);
    for (const size_t index : asked)
      if (plan.tensors[index].placement_count > static_cast<uint64_t>(model.tensors[index].co_owners))
        complaint = "more co-owners than asked for";
    if (make_on(model, nodes(node_count, ranks_each), &again) != MXS_OK || again.fingerprint != plan.fingerprint)
      complaint = "another plan when asked again";
    for (int rank = 0; rank < plan.topology.rank_count() && complaint.empty(); ++rank) {
      const mxs_memory m = predict_memory(plan, rank, MXS_MEMORY_OPTIONS_INIT);
      if (m.peak != m.rest + m.slots + m.gradient_slots + m.workspace) complaint = "a peak that isn't its parts";
    }
    if (complaint.empty()) continue;
    print_error("seed %u: %s\n", seed, complaint.c_str());
    return false;
  }
  return true;
}

bool fingerprints_tell_and_defaults_keep_theirs() {
  Model model = matrices(2, 4096, 1024);
  Plan whole, one, shared, asked;
  if (make_on(model, nodes(1, 4), &whole) != MXS_OK) return false;
  model.options.co_owners_max = 1;
  if (make_on(model, nodes(1, 4), &one) != MXS_OK) return false;
  model.options.co_owners_max = 2;
  if (make_on(model, nodes(1, 4), &shared) != MXS_OK || shared.placements.size() != 4) return false;
  model.options.co_owners_max = 0;
  for (mxs_tensor &tensor : model.tensors) tensor.co_owners = 2;
  if (make_on(model, nodes(1, 4), &asked) != MXS_OK || asked.placements.size() != 4) return false;
  const std::set<uint64_t> all = {whole.fingerprint, shared.fingerprint, asked.fingerprint};
  return whole.fingerprint == one.fingerprint && all.size() == 3;
}

bool the_report_tells_who_shares() {
  Model model = matrices(1, 4096, 1024);
  model.tensors[0].co_owners = 4;
  Plan plan;
  if (make_on(model, nodes(2, 4), &plan) != MXS_OK) return false;
  const std::string report = plan_report(plan);
  return report.find("0-3") != std::string::npos && report.find("shared by 4 ranks of node 0") != std::string::npos;
}

void ranks_that_would_be_idle_share_matrices(void **) { assert_true(four_matrices_are_shared_by_sixteen_ranks()); }
void groups_go_to_the_least_loaded_node(void **) { assert_true(each_group_takes_the_node_that_has_least_to_do()); }
void rows_are_cut_evenly_at_whole_chunks(void **) { assert_true(shares_are_even_and_cut_at_chunks()); }
void each_co_owner_has_a_segment_of_its_own(void **) { assert_true(each_co_owner_has_a_segment()); }
void shares_are_scaled_by_the_whole_shape(void **) { assert_true(shares_are_scaled_as_the_whole()); }
void a_share_costs_a_part_of_the_whole_step(void **) { assert_true(costs_are_a_part_of_the_whole()); }
void workspace_of_a_share_is_predicted(void **) { assert_true(a_share_needs_its_own_workspace()); }
void rows_that_are_few_have_fewer_co_owners(void **) { assert_true(few_rows_have_few_co_owners()); }
void what_has_no_step_to_share_is_refused(void **) { assert_true(what_cannot_be_shared_is_refused()); }
void a_single_rank_shares_nothing(void **) { assert_true(one_rank_shares_nothing()); }
void a_budget_is_kept_by_groups(void **) {
  assert_true(a_budget_chooses_the_node_or_refuses());
  assert_true(the_budget_that_a_refusal_tells_works());
  assert_true(sharing_stays_within_the_budget());
}
void nothing_is_shared_without_need(void **) { assert_true(nothing_is_shared_where_it_does_not_pay()); }
void matrices_that_are_left_over_are_shared(void **) { assert_true(left_over_matrices_are_shared()); }
void the_worst_step_never_grows(void **) { assert_true(sharing_never_makes_the_worst_step_longer()); }
void plans_of_random_models_are_sound(void **) { assert_true(random_models_are_sound()); }
void fingerprints_tell_of_sharing(void **) { assert_true(fingerprints_tell_and_defaults_keep_theirs()); }
void reports_tell_of_sharing(void **) { assert_true(the_report_tells_who_shares()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ranks_that_would_be_idle_share_matrices),
      cmocka_unit_test(groups_go_to_the_least_loaded_node),
      cmocka_unit_test(rows_are_cut_evenly_at_whole_chunks),
      cmocka_unit_test(each_co_owner_has_a_segment_of_its_own),
      cmocka_unit_test(shares_are_scaled_by_the_whole_shape),
      cmocka_unit_test(a_share_costs_a_part_of_the_whole_step),
      cmocka_unit_test(workspace_of_a_share_is_predicted),
      cmocka_unit_test(rows_that_are_few_have_fewer_co_owners),
      cmocka_unit_test(what_has_no_step_to_share_is_refused),
      cmocka_unit_test(a_single_rank_shares_nothing),
      cmocka_unit_test(a_budget_is_kept_by_groups),
      cmocka_unit_test(nothing_is_shared_without_need),
      cmocka_unit_test(matrices_that_are_left_over_are_shared),
      cmocka_unit_test(the_worst_step_never_grows),
      cmocka_unit_test(plans_of_random_models_are_sound),
      cmocka_unit_test(fingerprints_tell_of_sharing),
      cmocka_unit_test(reports_tell_of_sharing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
