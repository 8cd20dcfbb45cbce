// SPDX-License-Identifier: Apache-2.0
// How does a run save what it has learnt, and go on from it?
#include "checkpoints.hpp"

#include <cinttypes>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace train {
namespace {

using CheckpointOwner = std::unique_ptr<mxs_checkpoint, Destroy<mxs_checkpoint, mxs_checkpoint_close>>;

std::string note_of(const Options &options, const Position &position) {
  char note[128];
  std::snprintf(note, sizeof note, "mxs-train seed %" PRIu64 " steps %" PRIu64 " skipped %" PRIu64,
                options.placing.seed, position.steps, position.skipped_steps);
  return note;
}

Position position_of(const mxs_checkpoint *checkpoint, const char *path, const Options &options) {
  const void *data = nullptr;
  uint64_t bytes = 0, seed = 0;
  check(mxs_checkpoint_user(checkpoint, 0, &data, &bytes), "mxs_checkpoint_user");
  const std::string note(static_cast<const char *>(data), bytes);
  Position position;
  if (std::sscanf(note.c_str(), "mxs-train seed %" SCNu64 " steps %" SCNu64 " skipped %" SCNu64, &seed,
                  &position.steps, &position.skipped_steps) != 3)
    throw std::runtime_error(std::string(path) +
                             " is no checkpoint of mxs-train's: it doesn't say which batches were taken");
  if (seed != options.placing.seed)
    throw std::runtime_error(std::string(path) + " is of --seed " + std::to_string(seed) + ", not " +
                             std::to_string(options.placing.seed));
  if (position.steps >= static_cast<uint64_t>(options.steps))
    throw std::runtime_error(std::string(path) + " has " + std::to_string(position.steps) +
                             " steps behind it, so --steps " + std::to_string(options.steps) +
                             " leaves nothing to do");
  position.from = path;
  return position;
}

}  // namespace

// After an exception: what is under way ends before its units do.
Checkpoints::~Checkpoints() {
  for (mxs_save *save : saves_) {
    mxs_save_cancel(save);
    mxs_save_wait(save, 0);
    mxs_save_destroy(&save);
  }
}

Position Checkpoints::resume() {
  const std::string &path = options_.checkpoints.resume_path;
  if (path.empty()) return {};
  mxs_checkpoint *opened = nullptr;
  check(mxs_checkpoint_open(&opened, path.c_str()), "--resume");
  const CheckpointOwner checkpoint(opened);
  mxs_checkpoint_info info = MXS_CHECKPOINT_INFO_INIT;
  check(mxs_checkpoint_query(opened, &info), "mxs_checkpoint_query");
  const Position position = position_of(opened, info.path, options_);
  check(mxs_checkpoint_load(opened, trained_.units.data(), trained_.units.size(), trained_.optimizer, nullptr),
        "mxs_checkpoint_load");
  return position;
}

void Checkpoints::after_step(const Position &position) {
  const CheckpointOptions &asked = options_.checkpoints;
  forget_finished();
  if (asked.path.empty()) return;
  const bool is_last = position.steps == static_cast<uint64_t>(options_.steps);
  if (is_last || (asked.every != 0 && position.steps % static_cast<uint64_t>(asked.every) == 0)) save(position);
}

void Checkpoints::save(const Position &position) {
  const CheckpointOptions &asked = options_.checkpoints;
  const std::string note = note_of(options_, position);
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.keep = static_cast<int32_t>(asked.keep);
  options.user = note.data();
  options.user_bytes = note.size();
  if (!asked.beside) {
    check(mxs_checkpoint_save(asked.path.c_str(), trained_.units.data(), trained_.units.size(), trained_.optimizer,
                              &options),
          "mxs_checkpoint_save");
    return;
  }
  mxs_save *save = nullptr;
  check(mxs_save_start(&save, asked.path.c_str(), trained_.units.data(), trained_.units.size(), trained_.optimizer,
                       &options),
        "mxs_save_start");
  saves_.push_back(save);
}

// So that their snapshots' memory is given back, and a failure is told while the run can still be ended.
void Checkpoints::forget_finished() {
  while (!saves_.empty()) {
    mxs_save_info info = MXS_SAVE_INFO_INIT;
    check(mxs_save_query(saves_.front(), &info), "mxs_save_query");
    if (!info.finished) return;
    check(mxs_save_wait(saves_.front(), 0), "mxs_save_wait");
    check(mxs_save_destroy(&saves_.front()), "mxs_save_destroy");
    saves_.erase(saves_.begin());
  }
}

void Checkpoints::finish() {
  for (; !saves_.empty(); saves_.erase(saves_.begin())) {
    check(mxs_save_wait(saves_.front(), 0), "mxs_save_wait");
    check(mxs_save_destroy(&saves_.front()), "mxs_save_destroy");
  }
}

}  // namespace train
