// SPDX-License-Identifier: Apache-2.0
// Saved by 4 ranks, loaded by 1, 2, 3, 4, 7 and 8: everything that any rank has is there bit for bit, and the next step
// gives the bits that it gave where nothing was interrupted.
//
// Loading worlds have other owners, other cuts of what is flat or shared, another split into units in another order,
// and begin from other weights and other state.
#include <algorithm>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"
#include "support/trained.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr int saving_ranks = 4, step_count = 3;

const std::vector<int64_t> qkv_rows = {32, 48, 16}, c_attn_columns = {10, 8, 12}, q_k_rows = {24, 16},
                           fused_columns = {20, 16};

// A model for a world: shares are of as many ranks as it has, and units are numbered from another on.
struct Scene {
  int rank_count = 1;
  int turn = 0;
  int unit(int index) const { return (index + turn) % 5; }
  int co_owners(int wanted) const { return std::min(wanted, rank_count); }
};

void add_adamw(Model *model, const char *name, int unit, std::vector<int64_t> shape, mxs_dtype dtype,
               mxs_dtype master = MXS_F32) {
  mxs_tensor &tensor = model->add(name, unit, std::move(shape), dtype);
  tensor.rule = MXS_RULE_ADAMW;
  tensor.master_dtype = master;
  tensor.group = 1;
}

void add_with(Model *model, mxs_rule rule, const char *name, int unit, std::vector<int64_t> shape, mxs_dtype dtype,
              mxs_dtype master = MXS_F32) {
  mxs_tensor &tensor = model->add(name, unit, std::move(shape), dtype);
  tensor.rule = rule;
  tensor.master_dtype = master;
}

void cut_rows(Model *model, const std::vector<int64_t> &rows) {
  model->tensors.back().block_rows = rows.data();
  model->tensors.back().block_count = static_cast<int32_t>(rows.size());
}

void cut_columns(Model *model, const std::vector<int64_t> &columns, bool transposed) {
  model->tensors.back().block_columns = columns.data();
  model->tensors.back().block_column_count = static_cast<int32_t>(columns.size());
  model->tensors.back().transposed = transposed;
}

// What every model has beside its matrices: flats of both dtypes, tails, frozen ones, a tied pair, an empty one, one
// that the caller steps, and units without anything.
void add_the_rest(Model *model, const Scene &scene) {
  add_adamw(model, "embedding", scene.unit(0), {611, 63}, MXS_BF16);
  add_adamw(model, "position", scene.unit(0), {150, 63}, MXS_F32);
  add_adamw(model, "rounded", scene.unit(0), {150, 61}, MXS_BF16, MXS_BF16);
  add_adamw(model, "scale", scene.unit(0), {}, MXS_F32);
  add_adamw(model, "bias", scene.unit(1), {33}, MXS_F16);
  model->tensors.back().gradient_dtype = MXS_F32;
  add_with(model, MXS_RULE_FROZEN, "table", scene.unit(2), {333, 40}, MXS_F32);
  add_with(model, MXS_RULE_FROZEN, "small table", scene.unit(3), {3, 5}, MXS_BF16, MXS_BF16);
  add_adamw(model, "head", scene.unit(4), {41, 64}, MXS_F16);
  model->add("tied", scene.unit(4), {41, 64}, MXS_F16).tied_to = "head";
  model->add("nothing", scene.unit(4), {0, 12});
  add_with(model, MXS_RULE_EXTERNAL, "outside", scene.unit(4), {9, 9}, MXS_BF16);
}

Model muon_model(const Scene &scene) {
  Model model;
  add_the_rest(&model, scene);
  model.add("qkv", scene.unit(1), {96, 33}, MXS_BF16);
  cut_rows(&model, qkv_rows);
  model.add("experts", scene.unit(1), {5, 32, 64}, MXS_BF16);
  model.add("off the border", scene.unit(1), {3, 9, 20});
  model.add("c_attn", scene.unit(2), {12, 30});
  cut_columns(&model, c_attn_columns, true);
  model.add("plain", scene.unit(2), {17, 19}).gradient_dtype = MXS_BF16;
  model.add("tall", scene.unit(2), {611, 128}, MXS_BF16).co_owners = scene.co_owners(4);
  model.add("two", scene.unit(3), {300, 128}, MXS_F16).co_owners = scene.co_owners(2);
  model.tensors.back().master_dtype = MXS_F16;
  model.add("same", scene.unit(3), {64, 3}, MXS_BF16).master_dtype = MXS_BF16;
  model.finish();
  return model;
}

Model normuon_model(const Scene &scene) {
  Model model;
  add_the_rest(&model, scene);
  model.add("qkv", scene.unit(1), {96, 33}, MXS_BF16);
  cut_rows(&model, qkv_rows);
  model.add("experts", scene.unit(2), {5, 32, 64}, MXS_BF16);
  model.add("off the border", scene.unit(2), {3, 9, 20});
  model.add("output", scene.unit(3), {17, 36});
  cut_columns(&model, fused_columns, false);
  model.add("wide", scene.unit(3), {16, 70});
  model.finish();
  return model;
}

// block_max is 16: longer sides are cut.
Model factor_model(const Scene &scene, mxs_rule rule) {
  Model model;
  add_the_rest(&model, scene);
  add_with(&model, rule, "q_k", scene.unit(1), {40, 24}, MXS_BF16);
  cut_rows(&model, q_k_rows);
  add_with(&model, rule, "experts", scene.unit(1), {4, 32, 64}, MXS_BF16);
  add_with(&model, rule, "off the border", scene.unit(2), {3, 9, 20}, MXS_F32);
  add_with(&model, rule, "c_attn", scene.unit(2), {12, 30}, MXS_F32);
  cut_columns(&model, c_attn_columns, true);
  add_with(&model, rule, "rounded too", scene.unit(3), {20, 20}, MXS_BF16, MXS_BF16);
  model.add("hidden", scene.unit(3), {20, 32}, MXS_BF16);
  model.finish();
  return model;
}

struct Case {
  const char *name;
  Model (*model)(const Scene &);
  mxs_preset preset;
  std::vector<const char *> parts;  // that must be there, with numbers
  bool masters = false, beside = false;
};

const std::vector<Case> cases = {
    {"muon", muon_model, MXS_PRESET_DEFAULT, {".momentum", ".exp_avg", ".exp_avg_sq"}},
    {"normuon, masters in the model files", normuon_model, MXS_PRESET_NORMUON, {".momentum", ".second_momentum"}, true},
    {"shampoo", [](const Scene &scene) { return factor_model(scene, MXS_RULE_SHAMPOO); }, MXS_PRESET_DEFAULT,
     {".factor_left.0", ".factor_right.1", ".root_left.0", ".root_right.1", ".graft_sq", ".momentum", ".failures"}},
    {"soap, saved beside a step", [](const Scene &scene) { return factor_model(scene, MXS_RULE_SOAP); },
     MXS_PRESET_DEFAULT, {".factor_left", ".basis_left", ".basis_right.2", ".exp_avg", ".failures"}, false, true},
};

class Trainee : public Trained {
 public:
  std::string prepare(mxs_comm *comm, const Case &each, int turn) {
    mxs_comm_info info = MXS_COMM_INFO_INIT;
    if (mxs_comm_query(comm, &info) != MXS_OK) return "mxs_comm_query";
    model_ = each.model({info.rank_count, turn});
    plan_options.flat_bytes = 4096;
    options_.muon.preset = each.preset;
    options_.shampoo.block_max = 16;
    options_.shampoo.interval = 2;
    options_.shampoo.momentum = 0.9f;
    options_.soap.interval = 2;
    options_.all.rounding = each.model == muon_model ? MXS_ROUND_NEAREST : MXS_ROUND_STOCHASTIC;  // has f16 to round
    options_.all.seed = 7;
    std::string complaint = make_all(comm, model_, options_);
    // As the plan was to have it, or nothing of what is tested here happens.
    const auto pieces = [&](const char *name) {
      int32_t tensor = 0;
      mxs_plan_find(plan, name, &tensor);
      return inner().tensors[static_cast<size_t>(tensor)].placement_count;
    };
    const auto ranks = static_cast<uint64_t>(rank_count);
    if (complaint.empty() && ranks > 1 && pieces("embedding") == 1) complaint = "embedding isn't cut";
    if (complaint.empty() && each.model == muon_model && pieces("tall") != std::min<uint64_t>(ranks, 4))
      complaint = "tall has " + std::to_string(pieces("tall")) + " co-owners";
    return complaint;
  }

  // Those with tensors, in another order than the plan's: from the last to the first.
  std::vector<mxs_unit *> turned() const { return {units.rbegin(), units.rend()}; }

  // Counts of failures are zero unless decompositions fail: here they are other numbers.
  std::string mark_failures(double number) {
    for (uint64_t i = 0; i < mxs_optimizer_state_count(optimizer); i++) {
      mxs_state_info info = MXS_STATE_INFO_INIT;
      const mxs_status status = mxs_optimizer_state(optimizer, i, &info);
      if (status != MXS_OK) return failure("mxs_optimizer_state", status);
      if (std::string(info.name) != "failures") continue;
      auto *const counts = static_cast<double *>(info.view.data);  // in a row and in all, of each block
      for (uint64_t at = 1; at < info.view.bytes / sizeof(double); at += 2)
        counts[at] = number + static_cast<double>(at);
    }
    return "";
  }

 private:
  Model model_;
  TrainedOptions options_;
};

std::string save(Trainee &trainee, const Case &each, const std::string &path, Assembly *next) {
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.masters = each.masters;
  mxs_unit *const *const units = trainee.units.data();
  const uint64_t count = trainee.units.size();
  std::string complaint;
  mxs_save *save = nullptr;
  if (each.beside)
    complaint = want(MXS_OK, mxs_save_start(&save, path.c_str(), units, count, trainee.optimizer, &options), "start");
  else
    complaint = want(MXS_OK, mxs_checkpoint_save(path.c_str(), units, count, trainee.optimizer, &options), "the save");
  if (complaint.empty()) complaint = trainee.train_step(step_count);
  if (complaint.empty()) complaint = trainee.tell(next);
  if (!each.beside) return complaint;
  if (complaint.empty()) complaint = want(MXS_OK, mxs_save_wait(save, 0), "mxs_save_wait");
  if (complaint.empty()) complaint = want(MXS_OK, mxs_save_destroy(&save), "mxs_save_destroy");
  return complaint;
}

// What was saved, and what comes of one step more.
std::string train_and_save(mxs_comm *comm, const Case &each, const std::string &path, Assembly *saved, Assembly *next) {
  Trainee trainee;
  std::string complaint = trainee.prepare(comm, each, 0);
  if (complaint.empty()) complaint = trainee.fill(1);
  for (int round = 0; round < step_count && complaint.empty(); round++) complaint = trainee.train_step(round);
  if (complaint.empty()) complaint = trainee.mark_failures(3);
  if (complaint.empty()) complaint = trainee.tell(saved);
  return complaint.empty() ? save(trainee, each, path, next) : complaint;
}

std::string load_and_train(mxs_comm *comm, const Case &each, int turn, const std::string &path, Assembly *loaded,
                           Assembly *next) {
  Trainee trainee;
  std::string complaint = trainee.prepare(comm, each, turn);
  if (complaint.empty()) complaint = trainee.fill(9);
  if (complaint.empty()) complaint = trainee.train_step(100);  // state, sums and a step number that must not stay
  if (complaint.empty()) complaint = trainee.mark_failures(50);
  mxs_checkpoint *checkpoint = nullptr;
  if (complaint.empty()) complaint = want(MXS_OK, mxs_checkpoint_open(&checkpoint, path.c_str()), "the opening");
  const std::vector<mxs_unit *> units = trainee.turned();
  if (complaint.empty())
    complaint = want(MXS_OK, mxs_checkpoint_load(checkpoint, units.data(), units.size(), trainee.optimizer, nullptr),
                     "the load");
  mxs_checkpoint_close(&checkpoint);
  if (complaint.empty() && mxs_optimizer_step_number(trainee.optimizer) != step_count) complaint = "another step";
  if (complaint.empty()) complaint = trainee.tell(loaded);
  if (complaint.empty()) complaint = trainee.train_step(step_count);
  return complaint.empty() ? trainee.tell(next) : complaint;
}

// The sums of a shared matrix are formed range by range: a step has other bits where other numbers of ranks share it.
std::vector<std::string> otherwise_shared(const Case &each, int rank_count) {
  if (each.model != muon_model || rank_count >= 4) return {};
  if (rank_count == 1) return {"tall", "two"};
  return {"tall"};
}

bool every_world_finds_what_four_ranks_saved(const Case &each) {
  const TemporaryFolder folder;
  Assembly saved, next;
  std::string complaint = run_world(saving_ranks, [&](int, mxs_comm *comm) {
    return train_and_save(comm, each, folder.path(), &saved, &next);
  });
  for (const char *part : each.parts)
    if (complaint.empty() && saved.count(part) == 0) complaint = std::string("nothing has ") + part;
  if (complaint.empty() && next.difference(saved).empty()) complaint = "a step changes nothing";
  if (!complaint.empty()) complaint = "the saving world: " + complaint;
  for (size_t i = 0; i < world_sizes.size() && complaint.empty(); i++) {
    Assembly loaded, then;
    complaint = run_world(world_sizes[i], [&](int, mxs_comm *comm) {
      return load_and_train(comm, each, static_cast<int>(i % 3), folder.path(), &loaded, &then);
    });
    if (complaint.empty()) complaint = loaded.difference(saved);
    if (complaint.empty()) {
      complaint = then.difference(next, otherwise_shared(each, world_sizes[i]));
      if (!complaint.empty()) complaint = "after a step " + complaint;
    }
    if (!complaint.empty()) complaint = std::to_string(world_sizes[i]) + " ranks: " + complaint;
  }
  if (!complaint.empty()) print_error("%s, %s\n", each.name, complaint.c_str());
  return complaint.empty();
}

void muon_is_found_by_every_world(void **) { assert_true(every_world_finds_what_four_ranks_saved(cases[0])); }
void normuon_is_found_by_every_world(void **) { assert_true(every_world_finds_what_four_ranks_saved(cases[1])); }
void shampoo_is_found_by_every_world(void **) { assert_true(every_world_finds_what_four_ranks_saved(cases[2])); }
void soap_is_found_by_every_world(void **) { assert_true(every_world_finds_what_four_ranks_saved(cases[3])); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(muon_is_found_by_every_world),
      cmocka_unit_test(normuon_is_found_by_every_world),
      cmocka_unit_test(shampoo_is_found_by_every_world),
      cmocka_unit_test(soap_is_found_by_every_world),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
