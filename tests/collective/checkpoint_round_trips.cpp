// SPDX-License-Identifier: Apache-2.0
// What was saved comes back, bit for bit: in worlds of other sizes, in other units and in another order, with masters
// in the model's files or beside them, under all rules. And what doesn't fit begins anew, where that is allowed.
//
// Bits are compared with the files, read by checkpoint_saving.hpp, which knows nothing of how they are written or
// loaded.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint_saving.hpp"
#include "matrixshard/matrixshard.h"
#include "support/complaints.hpp"
#include "support/loads.hpp"
#include "support/thinned.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

OwnCheckpoint open(const std::string &path) {
  mxs_checkpoint *checkpoint = nullptr;
  mxs_checkpoint_open(&checkpoint, path.c_str());
  return OwnCheckpoint(checkpoint);
}

// Opens and loads; the status is load's.
mxs_status load(const std::string &path, Saver *rank, int flags = 0, Told *told = nullptr, bool optimizer = true) {
  const OwnCheckpoint checkpoint = open(path);
  if (!checkpoint) return MXS_INTERNAL;
  mxs_load_options options = MXS_LOAD_OPTIONS_INIT;
  options.flags = flags;
  options.tell = told ? Told::note : nullptr;
  options.tell_context = told;
  return mxs_checkpoint_load(checkpoint.get(), rank->units.data(), rank->units.size(),
                             optimizer ? rank->optimizer : nullptr, &options);
}

using RankBody = std::function<std::string(Saver *rank)>;

// A world whose ranks have units of a model and an optimizer, and other numbers in them than any that is saved.
std::string in_world(int rank_count, const Model &model, const RankBody &body,
                     const std::function<void(Saver *rank)> &set = {}) {
  const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) -> std::string {
    Saver rank;
    if (set) set(&rank);
    const std::string wrong = rank.make_all(comm, model);
    return wrong.empty() ? body(&rank) : wrong;
  });
  return complaint.empty() ? "" : words("%d ranks: ", rank_count) + complaint;
}

// Two rounds of training, saved as path/step-00000002.
std::string save_two_rounds(const std::string &path, int rank_count, const Model &model = every_rule(),
                            const mxs_checkpoint_options *options = nullptr,
                            const std::function<void(Saver *rank)> &set = {}) {
  return in_world(rank_count, model, [&](Saver *rank) {
    const std::string wrong = rank->train();
    return wrong.empty() ? want(MXS_OK, rank->save(path, options), "save") : wrong;
  }, set);
}

constexpr char two_rounds[] = "/step-00000002";

std::string check_loaded(const std::string &path, Saver *rank, const Arrays &arrays) {
  std::string wrong = rank->fill(77);
  if (wrong.empty()) wrong = want(MXS_OK, load(path, rank), "load");
  if (wrong.empty()) wrong = rank->compare(arrays);
  if (wrong.empty() && mxs_optimizer_step_number(rank->optimizer) != 2) wrong = "another step number";
  return wrong;
}

std::string worlds_of_all_sizes_load_what_others_saved_inner() {
  for (const int saving : thinned<int>({1, 3, 4})) {
    TemporaryFolder folder;
    std::string wrong = save_two_rounds(folder.path(), saving);
    Arrays arrays;
    if (wrong.empty()) wrong = arrays.load(folder.path() + two_rounds);
    for (const int rank_count : world_sizes)
      if (wrong.empty())
        wrong = in_world(rank_count, every_rule(),
                         [&](Saver *rank) { return check_loaded(folder.path() + two_rounds, rank, arrays); });
    if (!wrong.empty()) return words("saved by %d: ", saving) + wrong;
  }
  return "";
}

// The same with masters as the model: weights are what rounding makes of them, as they were.
std::string models_of_masters_load_as_well_inner() {
  TemporaryFolder folder;
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.masters = 1;
  options.name = "masters";
  std::string wrong = save_two_rounds(folder.path(), 4);
  if (wrong.empty()) wrong = save_two_rounds(folder.path(), 4, every_rule(), &options);
  Arrays arrays;
  if (wrong.empty()) wrong = arrays.load(folder.path() + two_rounds);
  for (const int rank_count : thinned<int>({1, 3, 8}))
    if (wrong.empty())
      wrong = in_world(rank_count, every_rule(),
                       [&](Saver *rank) { return check_loaded(folder.path() + "/masters", rank, arrays); });
  return wrong;
}

// All ranks give the same gradients, so that sums of two and of four are exact, whatever their order.
std::string training_goes_on_with_equal_bits_inner() {
  TemporaryFolder folder;
  for (const int rank_count : thinned<int>({2, 4})) {
    const std::string path = folder.path() + "/" + std::to_string(rank_count);
    std::string wrong = in_world(rank_count, every_rule(), [&](Saver *rank) {
      std::string own = rank->train();
      if (own.empty()) own = want(MXS_OK, rank->save(path), "save");
      if (own.empty()) own = rank->train(3, 3);
      return own.empty() ? want(MXS_OK, rank->save(path), "save") : own;
    });
    Arrays later;
    if (wrong.empty()) wrong = later.load(path + "/step-00000005");
    if (wrong.empty())
      wrong = in_world(rank_count, every_rule(), [&](Saver *rank) {
        std::string own = want(MXS_OK, load(path + two_rounds, rank), "load");
        if (own.empty()) own = rank->train(3, 3);
        return own.empty() ? rank->compare(later) : own;
      });
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// The same tensors, last first, in other units.
Model turned_round() {
  Model model = every_rule();
  std::reverse(model.tensors.begin(), model.tensors.end());
  std::reverse(model.names.begin(), model.names.end());
  for (mxs_tensor &tensor : model.tensors) tensor.unit = tensor.unit == 5 ? 0 : tensor.unit * 2 + 1;
  const auto of_name = [&](const std::string &name) -> mxs_tensor & {
    const auto at = std::find(model.names.begin(), model.names.end(), name) - model.names.begin();
    return model.tensors[static_cast<size_t>(at)];
  };
  of_name("cut").unit = 2;
  of_name("stack").unit = 0;
  model.finish();
  return model;
}

std::string other_units_in_another_order_load_as_well_inner() {
  TemporaryFolder folder;
  std::string wrong = save_two_rounds(folder.path(), 4);
  Arrays arrays;
  if (wrong.empty()) wrong = arrays.load(folder.path() + two_rounds);
  for (const int rank_count : thinned<int>({1, 2, 3, 7}))
    if (wrong.empty())
      wrong = in_world(rank_count, turned_round(),
                       [&](Saver *rank) { return check_loaded(folder.path() + two_rounds, rank, arrays); });
  return wrong;
}

Model shared_matrix(int rank_count) {
  Model model;
  mxs_tensor &wide = model.add("wide", 0, {256, 512}, MXS_BF16);
  wide.rule = MXS_RULE_MUON;
  wide.co_owners = rank_count > 1 ? 2 : 0;
  model.add("other", 0, {48, 32}, MXS_BF16).rule = MXS_RULE_MUON;
  model.finish();
  return model;
}

std::string matrices_of_several_owners_come_apart_and_together_inner() {
  const auto set = [](Saver *rank) { rank->muon_preset = MXS_PRESET_MOONLIGHT; };  // NorMuon has one owner
  for (const int saving : thinned<int>({1, 4})) {
    TemporaryFolder folder;
    std::string wrong = save_two_rounds(folder.path(), saving, shared_matrix(saving), nullptr, set);
    Arrays arrays;
    if (wrong.empty()) wrong = arrays.load(folder.path() + two_rounds);
    for (const int rank_count : thinned<int>({1, 2, 4, 3}))
      if (wrong.empty())
        wrong = in_world(rank_count, shared_matrix(rank_count),
                         [&](Saver *rank) { return check_loaded(folder.path() + two_rounds, rank, arrays); }, set);
    if (!wrong.empty()) return words("saved by %d: ", saving) + wrong;
  }
  return "";
}

// Without masters, in f32: each tensor then has its old master as its weights.
std::string masters_become_weights_of_a_model_in_f32_inner() {
  TemporaryFolder folder;
  std::string wrong = save_two_rounds(folder.path(), 3);
  Arrays arrays;
  if (wrong.empty()) wrong = arrays.load(folder.path() + two_rounds);
  Model model = every_rule();
  for (mxs_tensor &tensor : model.tensors) tensor.dtype = tensor.master_dtype = MXS_F32;
  Arrays wanted = arrays;
  for (const std::string &name : model.names)
    if (wanted.by_name.count(name + ".master")) wanted.by_name[name] = wanted.by_name[name + ".master"];
  for (const char *const name : {"experts", "hidden"}) {  // those that had none
    Arrays::One &one = wanted.by_name[name];
    std::string widened;
    for (size_t i = 0; i < one.bytes.size(); i += 2) widened.append(2, '\0').append(one.bytes, i, 2);
    one.bytes = widened;
  }
  const char told_wanted[] = "C:embedding C:q_k C:experts C:hidden C:stack C:bias C:mine C:output";
  for (const int rank_count : thinned<int>({2, 7}))
    if (wrong.empty())
      wrong = in_world(rank_count, model, [&](Saver *rank) {
        Told strict, told;
        std::string own = rank->fill(77);
        if (own.empty())
          own = expect(load(folder.path() + two_rounds, rank, 0, &strict), MXS_MISMATCH,
                       {"\"embedding\" is f32", "BF16", "MXS_LOAD_OTHER_DTYPES"});
        if (own.empty())
          own = want(MXS_OK, load(folder.path() + two_rounds, rank, MXS_LOAD_OTHER_DTYPES, &told), "load");
        if (own.empty() && told.text != told_wanted) own = "told: " + told.text;
        return own.empty() ? rank->compare(wanted) : own;
      });
  return wrong;
}

// Numbers of this rank's parts of a tensor's state that aren't what a new optimizer has.
uint64_t changed_numbers(const Saver &rank, const std::string &tensor, const std::string &part) {
  uint64_t changed = 0;
  for (uint64_t i = 0; i < mxs_optimizer_state_count(rank.optimizer); ++i) {
    mxs_state_info info = MXS_STATE_INFO_INIT;
    mxs_optimizer_state(rank.optimizer, i, &info);
    if (rank.inner().tensors[static_cast<size_t>(info.tensor)].name != tensor || part != info.name) continue;
    const float *const numbers = static_cast<const float *>(info.view.data);
    for (uint64_t at = 0; at < info.view.bytes / sizeof(float); ++at) changed += numbers[at] != 0;
  }
  return changed;
}

std::string other_presets_take_what_fits_inner() {
  TemporaryFolder folder;
  const auto plain = [](Saver *rank) { rank->muon_preset = MXS_PRESET_MOONLIGHT; };
  std::string wrong = save_two_rounds(folder.path(), 3, every_rule(), nullptr, plain);
  Arrays arrays;
  if (wrong.empty()) wrong = arrays.load(folder.path() + two_rounds);
  for (const int rank_count : thinned<int>({1, 3, 4}))
    if (wrong.empty())
      wrong = in_world(rank_count, every_rule(), [&](Saver *rank) -> std::string {
        Told told;
        std::string own = rank->train(1, 1);  // what doesn't come back must not stay
        const mxs_status refused = own.empty() ? load(folder.path() + two_rounds, rank) : MXS_OK;
        if (own.empty()) own = expect(refused, MXS_MISMATCH, {"rule muon", "moonlight", "normuon"});
        if (own.empty() && mxs_optimizer_step_number(rank->optimizer) != 1) own = "the step number has changed";
        if (own.empty())
          own = want(MXS_OK, load(folder.path() + two_rounds, rank, MXS_LOAD_OTHER_OPTIMIZER, &told), "load");
        if (own.empty() && told.text != "N:hidden N:stack N:heads N:output") own = "told: " + told.text;
        if (own.empty() && changed_numbers(*rank, "hidden", "second_momentum") > 0) own = "an old second momentum";
        if (!own.empty()) return own;
        Arrays with_zeros = arrays;  // of all parts that are new
        for (uint64_t i = 0; i < mxs_optimizer_state_count(rank->optimizer); ++i) {
          mxs_state_info info = MXS_STATE_INFO_INIT;
          mxs_optimizer_state(rank->optimizer, i, &info);
          if (std::string(info.name) != "second_momentum") continue;
          const PlannedTensor &tensor = rank->inner().tensors[static_cast<size_t>(info.tensor)];
          const Placement &piece = rank->inner().placements[info.placement];
          with_zeros.by_name[tensor.name + ".second_momentum"].bytes.assign(
              info.view.bytes * tensor.element_count / piece.element_count, '\0');
        }
        return rank->compare(with_zeros);
      });
  return wrong;
}

std::string other_blocks_of_shampoo_begin_anew_inner() {
  TemporaryFolder folder;
  std::string wrong = save_two_rounds(folder.path(), 3);
  for (const int rank_count : thinned<int>({1, 3, 7}))
    if (wrong.empty())
      wrong = in_world(
          rank_count, every_rule(),
          [&](Saver *rank) -> std::string {
            Told told;
            std::string own = rank->train(1, 1);
            if (own.empty()) own = expect(load(folder.path() + two_rounds, rank), MXS_MISMATCH, {"rule shampoo"});
            if (own.empty())
              own = want(MXS_OK, load(folder.path() + two_rounds, rank, MXS_LOAD_OTHER_OPTIMIZER, &told), "load");
            // Owners find what doesn't fit, and all hear of it.
            if (own.empty() && told.text != "N:q_k N:c_attn N:cut") own = "told: " + told.text;
            if (own.empty() && changed_numbers(*rank, "cut", "exp_avg") > 0) own = "old averages beside new factors";
            if (!own.empty()) return own;
            return rank->train(3, 1);
          },
          [](Saver *rank) { rank->block_max = 8; });
  return wrong;
}

std::string weights_alone_leave_the_optimizer_as_it_is_inner() {
  TemporaryFolder folder;
  std::string wrong = save_two_rounds(folder.path(), 2);
  Arrays arrays;
  if (wrong.empty()) wrong = arrays.load(folder.path() + two_rounds);
  for (const bool with_optimizer : {false, true})
    if (wrong.empty())
      wrong = in_world(3, every_rule(), [&](Saver *rank) -> std::string {
        const std::string path = folder.path() + two_rounds;
        std::string own = want(MXS_OK, load(path, rank, MXS_LOAD_WEIGHTS_ONLY, nullptr, with_optimizer), "load");
        if (own.empty()) own = rank->compare_weights(arrays);
        if (own.empty() && mxs_optimizer_step_number(rank->optimizer) != 0) own = "the step number has changed";
        if (own.empty() && changed_numbers(*rank, "hidden", "momentum") > 0) own = "state has changed";
        return own;
      });
  return wrong;
}

std::string what_the_plan_has_more_begins_anew_inner() {
  TemporaryFolder folder;
  std::string wrong = save_two_rounds(folder.path(), 2);
  Model more = every_rule();
  more.add("new_matrix", 3, {24, 16}, MXS_BF16).rule = MXS_RULE_MUON;
  more.tensors.back().group = 1;
  more.finish();
  for (const int rank_count : thinned<int>({1, 4}))
    if (wrong.empty())
      wrong = in_world(rank_count, more, [&](Saver *rank) -> std::string {
        Told told;
        std::string own = rank->train(1, 1);
        if (own.empty()) own = expect(load(folder.path() + two_rounds, rank), MXS_NOT_FOUND, {"\"new_matrix\""});
        if (own.empty())
          own = want(MXS_OK, load(folder.path() + two_rounds, rank, MXS_LOAD_ALLOW_MISSING, &told), "load");
        if (own.empty() && told.text != "M:new_matrix N:new_matrix") own = "told: " + told.text;
        if (own.empty() && changed_numbers(*rank, "new_matrix", "momentum") > 0) own = "old momentum of a new matrix";
        return own;
      });
  return wrong;
}

// One bit of one array, which only some ranks read.
std::string damage_is_found_and_told_on_all_ranks_inner() {
  TemporaryFolder folder;
  std::string wrong = save_two_rounds(folder.path(), 3);
  Arrays arrays;
  if (wrong.empty()) wrong = arrays.load(folder.path() + two_rounds);
  if (!wrong.empty()) return wrong;
  const std::string path = folder.path() + two_rounds, file = arrays.by_name["cut.exp_avg"].file;
  SafetensorsHeader header;
  if (read_safetensors_header(path + "/" + file, &header) != MXS_OK) return error_of("header");
  for (const SafetensorsEntry &entry : header.entries) {
    if (entry.name != "cut.exp_avg") continue;
    std::fstream stream(path + "/" + file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(header.data_offset + entry.begin + 33));
    const char byte = static_cast<char>(stream.get() ^ 0x10);
    stream.seekp(static_cast<std::streamoff>(header.data_offset + entry.begin + 33));
    stream.put(byte);
  }
  return in_world(4, every_rule(), [&](Saver *rank) -> std::string {
    std::string own = expect(load(path, rank), MXS_DAMAGED, {"cut.exp_avg", file});
    if (own.empty() && mxs_optimizer_step_number(rank->optimizer) != 0) own = "the step number has changed";
    return own.empty() ? want(MXS_OK, load(path, rank, MXS_LOAD_UNVERIFIED), "a load that compares nothing") : own;
  });
}

// Runs a body in 2 replicas of 2 ranks each.
std::string in_replicas(const RankBody &body) {
  return run_world(4, [&](int rank, mxs_comm *world) -> std::string {
    mxs_comm *shards = nullptr, *replicas = nullptr;
    if (mxs_comm_split(&shards, world, rank / 2, 0, nullptr) != MXS_OK) return error_of("shards");
    if (mxs_comm_split(&replicas, world, rank % 2, 0, nullptr) != MXS_OK) return error_of("replicas");
    std::string wrong;
    {
      mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
      options.replicas = replicas;
      Saver saver;
      saver.unit_options = &options;
      wrong = saver.make_all(shards);
      if (wrong.empty()) wrong = body(&saver);
    }
    mxs_comm_destroy(&replicas);
    mxs_comm_destroy(&shards);
    return wrong;
  });
}

std::string all_replicas_load_what_the_first_saved_inner() {
  TemporaryFolder folder;
  std::string wrong = in_replicas([&](Saver *rank) {
    const std::string own = rank->train();
    return own.empty() ? want(MXS_OK, rank->save(folder.path()), "save") : own;
  });
  Arrays arrays;
  if (wrong.empty()) wrong = arrays.load(folder.path() + two_rounds);
  const RankBody body = [&](Saver *rank) { return check_loaded(folder.path() + two_rounds, rank, arrays); };
  if (wrong.empty()) wrong = in_replicas([&](Saver *rank) {
    const std::string own = body(rank);
    return own.empty() ? rank->train(3, 1) : own;
  });
  return wrong.empty() ? in_world(3, every_rule(), body) : wrong;
}

// Pools are found by their options: each has the plan for itself.
std::string units_of_several_pools_are_saved_and_loaded_inner() {
  TemporaryFolder folder;
  const auto set = [](Saver *rank) { rank->unit_with_more_slots = 1; };
  std::string wrong = save_two_rounds(folder.path(), 3, every_rule(), nullptr, set);
  Arrays arrays;
  if (wrong.empty()) wrong = arrays.load(folder.path() + two_rounds);
  if (!wrong.empty()) return wrong;
  return in_world(2, every_rule(), [&](Saver *rank) { return check_loaded(folder.path() + two_rounds, rank, arrays); },
                  set);
}

void units_of_several_pools_are_saved_and_loaded(void **) {
  assert_true(good(units_of_several_pools_are_saved_and_loaded_inner()));
}
void worlds_of_all_sizes_load_what_others_saved(void **) {
  assert_true(good(worlds_of_all_sizes_load_what_others_saved_inner()));
}
void models_of_masters_load_as_well(void **) { assert_true(good(models_of_masters_load_as_well_inner())); }
void training_goes_on_with_equal_bits(void **) { assert_true(good(training_goes_on_with_equal_bits_inner())); }
void other_units_in_another_order_load_as_well(void **) {
  assert_true(good(other_units_in_another_order_load_as_well_inner()));
}
void matrices_of_several_owners_come_apart_and_together(void **) {
  assert_true(good(matrices_of_several_owners_come_apart_and_together_inner()));
}
void masters_become_weights_of_a_model_in_f32(void **) {
  assert_true(good(masters_become_weights_of_a_model_in_f32_inner()));
}
void other_presets_take_what_fits(void **) { assert_true(good(other_presets_take_what_fits_inner())); }
void other_blocks_of_shampoo_begin_anew(void **) { assert_true(good(other_blocks_of_shampoo_begin_anew_inner())); }
void weights_alone_leave_the_optimizer_as_it_is(void **) {
  assert_true(good(weights_alone_leave_the_optimizer_as_it_is_inner()));
}
void what_the_plan_has_more_begins_anew(void **) { assert_true(good(what_the_plan_has_more_begins_anew_inner())); }
void all_replicas_load_what_the_first_saved(void **) {
  assert_true(good(all_replicas_load_what_the_first_saved_inner()));
}
void damage_is_found_and_told_on_all_ranks(void **) {
  assert_true(good(damage_is_found_and_told_on_all_ranks_inner()));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(worlds_of_all_sizes_load_what_others_saved),
      cmocka_unit_test(models_of_masters_load_as_well),
      cmocka_unit_test(training_goes_on_with_equal_bits),
      cmocka_unit_test(other_units_in_another_order_load_as_well),
      cmocka_unit_test(units_of_several_pools_are_saved_and_loaded),
      cmocka_unit_test(matrices_of_several_owners_come_apart_and_together),
      cmocka_unit_test(masters_become_weights_of_a_model_in_f32),
      cmocka_unit_test(other_presets_take_what_fits),
      cmocka_unit_test(other_blocks_of_shampoo_begin_anew),
      cmocka_unit_test(weights_alone_leave_the_optimizer_as_it_is),
      cmocka_unit_test(what_the_plan_has_more_begins_anew),
      cmocka_unit_test(all_replicas_load_what_the_first_saved),
      cmocka_unit_test(damage_is_found_and_told_on_all_ranks),
  };
  return cmocka_run_group_tests_name("saved and loaded", tests, nullptr, nullptr);
}
