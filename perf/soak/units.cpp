// SPDX-License-Identifier: Apache-2.0
// A drawn model is trained for some steps beside one of this process alone, and saved and loaded on the way.
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "soak/trainee.hpp"

namespace soak {

namespace {

struct Training {
  const Group &group;
  Choices choices;
  uint64_t key;
  Model model, reference_model;
  mxs_unit_options options;
  mxs::comm alone;
  std::optional<Trainee> reference, trainee;
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_step step = MXS_STEP_INIT;
  uint64_t turn = 0;
};

mxs_unit_options draw_unit_options(Choices *choices, const Group &group) {
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  if (group.maps_memory() && choices->one_in(3)) options.gather = MXS_GATHER_BY_REFERENCE;
  options.slots = static_cast<int32_t>(choices->between(1, 3));
  options.gradient_slots = static_cast<int32_t>(choices->between(1, 3));
  if (choices->one_in(2)) options.flags = MXS_RANK_ORDER;
  if (options.gather != MXS_GATHER_BY_REFERENCE && choices->one_in(3))
    options.algorithm = choices->of<const char *>({"flat", "chain", "spread"});
  options.own_slot = choices->one_in(4) ? 1 : 0;
  return options;
}

// By reference peers read the owner's pages themselves: nobody holds a unit while its weights are written.
void settle(const Training &training) { mxs::check(mxs_comm_barrier(training.group.comm, nullptr)); }

void forward(Training *training) {
  const Trainee &trainee = *training->trainee;
  const int units = training->model.unit_count;
  // The next unit comes while this one is looked at, where a slot is free for it.
  const bool ahead = training->options.slots > 1 || training->options.gather == MXS_GATHER_BY_REFERENCE;
  mxs::check(mxs_unit_gather(trainee.unit(0), nullptr));
  for (int unit = 0; unit < units; unit++) {
    if (ahead && unit + 1 < units) mxs::check(mxs_unit_gather(trainee.unit(unit + 1), nullptr));
    const bool pin = training->choices.one_in(4);
    training->group.tally->bytes += compare_unit(trainee, *training->reference, unit, pin ? MXS_PIN : MXS_FREE);
    if (pin) {  // revived without traffic
      mxs::check(mxs_unit_gather(trainee.unit(unit), nullptr));
      training->group.tally->bytes += compare_unit(trainee, *training->reference, unit, MXS_FREE);
    }
    if (!ahead && unit + 1 < units) mxs::check(mxs_unit_gather(trainee.unit(unit + 1), nullptr));
  }
}

void backward(Training *training) {
  const int64_t rounds = training->choices.between(1, 2);
  for (int64_t round = 0; round < rounds; round++)
    for (int unit = training->model.unit_count - 1; unit >= 0; unit--) {
      const uint64_t salt = mix(training->key, 500 + training->turn * 8 + static_cast<uint64_t>(round));
      const bool add = training->choices.one_in(3);
      give_gradients(training->group, *training->trainee, unit, salt, add);
      give_sums(training->group, *training->reference, unit, salt, add);
    }
  training->turn++;
}

void step(Training *training) {
  const mxs_verdict found = training->trainee->step(training->step);
  const mxs_verdict wanted = training->reference->step(training->step);
  if (found.norm != wanted.norm || found.skipped != wanted.skipped || found.step_number != wanted.step_number ||
      found.clip_factor != wanted.clip_factor)
    throw Wrong("the verdict of step " + std::to_string(found.step_number) + " has norm " +
                std::to_string(found.norm) + ", that of one process " + std::to_string(wanted.norm));
  training->group.tally->steps++;
}

void train(Training *training, int64_t steps) {
  for (int64_t i = 0; i < steps; i++) {
    forward(training);
    backward(training);
    step(training);
  }
  forward(training);
}

// It has a comm of its own, which fails alone. What broke it may break the group's here; if not, all ranks hear that
// there is no such save, and the group is well.
void wait_for_save(const Group &group, mxs_save *save) {
  SaveFailed failed;
  const mxs_status status = mxs_save_wait(save, 0);
  if (status < 0) failed.here.emplace(status);
  int64_t count = failed.here ? 1 : 0;
  mxs::check(mxs_comm_sum_words(group.comm, &count, 1, nullptr));
  if (count > 0) throw failed;
}

void save(Training *training, const std::string &path, bool beside) {
  const std::vector<mxs_unit *> units = training->trainee->handles();
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.masters = training->choices.one_in(2) ? 1 : 0;
  options.timeout_ns = training->group.info.timeout_ns;  // else an hour
  if (!beside) {
    mxs::check(mxs_checkpoint_save(path.c_str(), units.data(), units.size(), training->trainee->optimizer(), &options));
    return;
  }
  mxs_save *started = nullptr;
  mxs::check(mxs_save_start(&started, path.c_str(), units.data(), units.size(), training->trainee->optimizer(),
                            &options));
  const mxs::save owned(started);
  train(training, 1);  // while it is written; the reference is made anew afterwards
  wait_for_save(training->group, started);
}

// What a save beside training leaves: the reference has gone on, and is brought back by loading as well.
void save_and_load(Training *training) {
  const Group &group = training->group;
  const std::string path = group.folder + "/" + std::to_string(training->key);
  group.tally->doing += ", saved";
  const bool beside = training->choices.one_in(3);
  save(training, path, beside);
  if (beside) settle(*training);  // a save in the background may be over while another rank still compares its weights
  if (training->choices.one_in(2)) training->trainee->fill(training->key + 5);  // what must not stay
  settle(*training);
  mxs_load_options loading = MXS_LOAD_OPTIONS_INIT;
  loading.timeout_ns = group.info.timeout_ns;
  const mxs::checkpoint opened = mxs::open_checkpoint(path.c_str());
  if (beside) {
    // Bit for bit what was there when the save began: the reference loads it by itself, and must agree with the ranks.
    const std::vector<mxs_unit *> alone = training->reference->handles();
    mxs_optimizer *const optimizer = training->reference->optimizer();
    mxs::check(mxs_checkpoint_load(opened.get(), alone.data(), alone.size(), optimizer, nullptr));
  }
  if (training->choices.one_in(2)) {  // into units of other options
    training->trainee.reset();
    training->options = draw_unit_options(&training->choices, group);
    training->trainee.emplace(group.comm, training->model, training->options);
  }
  const std::vector<mxs_unit *> units = training->trainee->handles();
  mxs::check(mxs_checkpoint_load(opened.get(), units.data(), units.size(), training->trainee->optimizer(), &loading));
  settle(*training);
  if (group.rank() == 0) std::filesystem::remove_all(path);
  group.tally->checkpoints++;
}

}  // namespace

void run_units(const Group &group, uint64_t key) {
  Training training{group, Choices(mix(key, 4)), key, {}, {}, MXS_UNIT_OPTIONS_INIT, comm_of_one(), {}, {}};
  Choices &choices = training.choices;
  training.model = draw_model(&choices, std::min<uint64_t>(group.bytes_max / 16, 40000));
  training.reference_model = with_fp32_gradients(training.model);
  training.options = draw_unit_options(&choices, group);
  group.tally->doing = "units: " + std::to_string(training.model.tensors.size()) + " tensors in " +
                       std::to_string(training.model.unit_count) + " units, gather " +
                       std::to_string(training.options.gather) + ", slots " + std::to_string(training.options.slots) +
                       "/" + std::to_string(training.options.gradient_slots) + ", by " +
                       (training.options.algorithm ? training.options.algorithm : "choice");
  training.values.lr = 0.02f;
  training.step.group_count = 1;
  training.step.groups = &training.values;
  training.step.gradient_scale = 0.125f;
  training.step.clip_norm = choices.one_in(2) ? 1.0f : 0.0f;
  const mxs_unit_options plain = MXS_UNIT_OPTIONS_INIT;
  training.reference.emplace(training.alone.get(), training.reference_model, plain);
  training.trainee.emplace(group.comm, training.model, training.options);
  training.reference->fill(key);
  training.trainee->fill(key);
  settle(training);
  train(&training, choices.between(1, 2));
  if (!group.folder.empty() && choices.one_in(3)) {
    save_and_load(&training);
    train(&training, 1);
  }
  group.tally->kinds["units"]++;
}

}  // namespace soak
