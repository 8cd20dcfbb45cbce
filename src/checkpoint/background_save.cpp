// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/background_save.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/status.hpp"
#include "checkpoint/io_thread.hpp"
#include "collective/process.hpp"

namespace mxs {

namespace {

constexpr char what[] = "the save";
// Longer waits are cut to it: no sum with the clock wraps around. 116 days.
constexpr uint64_t wait_max_ns = Comm::timeout_max_ns;

}  // namespace

BackgroundSave::~BackgroundSave() {
  if (thread_.joinable()) thread_.join();
}

mxs_status BackgroundSave::check_process() const {
  if (process_generation_ == process_generation()) return MXS_OK;
  return set_error(MXS_FORKED, "this save is the parent process's; a forked child can't use it");
}

void BackgroundSave::finish_at_once(const SaveSettings &settings, Optimizer *optimizer) {
  process_generation_ = process_generation();
  const std::string name =
      settings.name.empty() ? step_folder_name(optimizer ? optimizer->step_number() : 0) : settings.name;
  path_ = std::filesystem::absolute(settings.path) / name;
  state_ = State::finished;
}

mxs_status BackgroundSave::start(const std::vector<Unit *> &units, Optimizer *optimizer,
                                 const SaveSettings &settings) {
  Comm &comm = units[0]->comm();
  process_generation_ = process_generation();
  mxs_status status = prepare(units, optimizer, settings);
  if (status == MXS_OK) status = split(comm);
  if (status != MXS_OK) return status;
  // The thread waits until all ranks have one; those of the others would wait for it.
  const mxs_status own = start_io_thread(&thread_, "mxs-save", [this] { run(); });
  status = fenced([&] { return settle_over_ranks(comm, own, what); });  // what it throws would leave it waiting
  if (status != MXS_OK) {
    finish(status);
    if (thread_.joinable()) thread_.join();
    return set_error(status, "%s", sentence_.c_str());
  }
  const std::lock_guard lock(mutex_);
  state_ = State::running;
  changed_.notify_all();
  return MXS_OK;
}

mxs_status BackgroundSave::prepare(const std::vector<Unit *> &units, Optimizer *optimizer,
                                   const SaveSettings &settings) {
  Comm &comm = units[0]->comm();
  mxs_status status = prepare_save(units, optimizer, settings, &save_);
  if (status != MXS_OK) return status;
  status = settle_over_ranks(comm, fenced([&] { return take_snapshot(&save_.content); }), what);
  path_ = save_.final_path();
  total_bytes_ = save_.content.bytes;
  snapshot_bytes_ = save_.content.snapshot_bytes;
  return status;
}

// A family of its own: what fails there is no business of training's, and the other way round.
mxs_status BackgroundSave::split(Comm &comm) {
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.progress = MXS_PROGRESS_MANUAL;  // there is nothing to be carried on beside its calls
  return split_comm(&comm_, comm, 0, comm.rank, options, false);
}

void BackgroundSave::run() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_ != State::waiting; });
    if (state_ == State::finished) return;  // not all ranks could start
  }
  IoProgress progress;
  progress.go_on = [this](uint64_t done_bytes) {
    done_bytes_.store(done_bytes, std::memory_order_relaxed);
    return !cancelled_.load(std::memory_order_relaxed);
  };
  const mxs_status status = fenced([&] { return carry_out_save(*comm_, &save_, &progress); });
  finish(status);
}

void BackgroundSave::finish(mxs_status status) noexcept {
  std::string sentence;
  if (status != MXS_OK) fenced([&] { return sentence = last_error_text(), MXS_OK; });  // there may be no memory
  save_.content.snapshot.reset();
  save_.content = {};
  save_.folder.remove();  // unless it was committed
  comm_.reset();
  const std::lock_guard lock(mutex_);
  status_ = status;
  sentence_ = std::move(sentence);
  state_ = State::finished;
  changed_.notify_all();
}

bool BackgroundSave::finished() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::finished;
}

mxs_save_info BackgroundSave::info() const {
  mxs_save_info info = MXS_SAVE_INFO_INIT;
  info.finished = finished();
  info.done_bytes = done_bytes_.load(std::memory_order_relaxed);
  info.total_bytes = total_bytes_;
  info.snapshot_bytes = snapshot_bytes_;
  info.path = path_.c_str();
  return info;
}

mxs_status BackgroundSave::wait(uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  const auto is_finished = [this] { return state_ == State::finished; };
  if (timeout_ns == 0)
    changed_.wait(lock, is_finished);
  else if (!changed_.wait_for(lock, std::chrono::nanoseconds(std::min(timeout_ns, wait_max_ns)), is_finished))
    return set_error(MXS_TIMED_OUT, "the save of %.300s goes on after %.3f seconds of waiting", path_.c_str(),
                     static_cast<double>(timeout_ns) / 1e9);
  return status_ == MXS_OK ? MXS_OK : set_error(status_, "%s", sentence_.c_str());
}

}  // namespace mxs
