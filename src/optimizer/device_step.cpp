// SPDX-License-Identifier: Apache-2.0
#include "optimizer/device_step.hpp"

#include <algorithm>
#include <cstring>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "kernels/passes.hpp"

namespace mxs {

namespace {

constexpr uint64_t border = 256;

// Warps that take chunks in turns: enough to fill any device, few enough that each has some.
constexpr uint64_t squares_blocks_max = 2048;
constexpr uint32_t squares_threads = 128;

}  // namespace

mxs_status DeviceStep::create(std::unique_ptr<DeviceStep> *made, Device &device, Shape shape) {
  std::unique_ptr<DeviceStep> step(new DeviceStep(device, shape.rank, shape.rank_count));
  for (StepSquaresPiece &piece : shape.pieces) {
    piece.first_chunk = step->chunk_count_;
    step->chunk_count_ += divide_up(piece.elements, uint64_t{norm_chunk});
  }
  step->piece_count_ = shape.pieces.size();
  mxs_status status = device.create_stream(&step->own_stream_);
  if (status == MXS_OK) status = device.create_event(&step->left_);
  if (status == MXS_OK) status = device.create_event(&step->mirrored_);
  if (status == MXS_OK) status = step->take_memory(shape);
  if (status == MXS_OK) *made = std::move(step);
  return status;
}

DeviceStep::~DeviceStep() {
  if (on_its_way_) device_.synchronize(own_stream_);
  device_.destroy_event(left_);
  device_.destroy_event(mirrored_);
  device_.destroy_stream(own_stream_);
}

mxs_status DeviceStep::take_memory(const Shape &shape) {
  uint64_t bytes = 0;
  const auto place = [&](uint64_t size) {
    const uint64_t at = bytes;
    bytes += align_up(std::max<uint64_t>(size, 1), border);
    return at;
  };
  const uint64_t report_place = place(sizeof(DeviceStepReport));
  const uint64_t values_place = place(sizeof(DeviceStepValues));
  const uint64_t groups_place = place(shape.group_count * sizeof(mxs_group_values));
  const uint64_t words_place = place(word_count() * sizeof(int64_t));
  const uint64_t pieces_place = place(shape.pieces.size() * sizeof(StepSquaresPiece));
  mxs_status status = device_.allocate(bytes, &memory_);
  if (status == MXS_OK) status = device_.allocate_pinned(mirror_bytes(), &pinned_);
  if (status != MXS_OK) return status;
  report_ = reinterpret_cast<DeviceStepReport *>(memory_.data() + report_place);
  values_ = reinterpret_cast<DeviceStepValues *>(memory_.data() + values_place);
  groups_ = reinterpret_cast<mxs_group_values *>(memory_.data() + groups_place);
  words_ = reinterpret_cast<StepWords *>(memory_.data() + words_place);
  pieces_ = reinterpret_cast<StepSquaresPiece *>(memory_.data() + pieces_place);
  status = device_.zero(memory_.data(), bytes, own_stream_);
  if (status == MXS_OK) status = put_report(DeviceStepReport(), own_stream_);
  if (status == MXS_OK)
    status = put(pieces_, shape.pieces.data(), shape.pieces.size() * sizeof(StepSquaresPiece), own_stream_);
  return status == MXS_OK ? device_.synchronize(own_stream_) : status;
}

uint64_t DeviceStep::mirror_bytes() const {
  return align_up(sizeof(DeviceStepReport), border) + word_count() * sizeof(int64_t);
}

StepControl DeviceStep::control() const { return {report_, values_, words_, rank_, rank_count_}; }

mxs_status DeviceStep::put(void *target, const void *bytes, uint64_t count, DeviceStream stream) {
  mxs_status status = MXS_OK;
  for (uint64_t done = 0; done < count && status == MXS_OK; done += StepPutArguments::bytes_max) {
    StepPutArguments arguments;
    arguments.target = static_cast<std::byte *>(target) + done;
    arguments.bytes = static_cast<uint32_t>(std::min<uint64_t>(count - done, StepPutArguments::bytes_max));
    std::memcpy(arguments.words, static_cast<const std::byte *>(bytes) + done, arguments.bytes);
    status = device_.launch("mxs_step_put", &arguments, sizeof arguments, 1, 128, stream);
  }
  return status;
}

mxs_status DeviceStep::enter(DeviceStream stream) {
  mxs_status status = has_left_ ? device_.wait(stream, left_) : MXS_OK;
  if (status == MXS_OK && launches_ && latest_ != stream) {
    status = device_.record(left_, latest_);
    if (status == MXS_OK) status = device_.wait(stream, left_);
  }
  latest_ = stream;
  return status;
}

mxs_status DeviceStep::leave(DeviceStream stream) {
  const mxs_status status = device_.record(left_, stream);
  has_left_ = has_left_ || status == MXS_OK;
  return status;
}

mxs_status DeviceStep::put_values(const DeviceStepValues &values, const std::vector<mxs_group_values> &groups,
                                  DeviceStream stream) {
  const mxs_status status = put(values_, &values, sizeof values, stream);
  return status == MXS_OK ? put(groups_, groups.data(), groups.size() * sizeof groups[0], stream) : status;
}

mxs_status DeviceStep::put_report(const DeviceStepReport &report, DeviceStream stream) {
  return put(report_, &report, sizeof report, stream);
}

mxs_status DeviceStep::put_steps_done(uint64_t steps_done, DeviceStream stream) {
  return put(&report_->state.steps_done, &steps_done, sizeof steps_done, stream);
}

mxs_status DeviceStep::begin(DeviceStream stream) {
  const StepBeginArguments begin = {control()};
  const mxs_status status = device_.launch("mxs_step_begin", &begin, sizeof begin, 1, 128, stream);
  if (status != MXS_OK || chunk_count_ == 0) return status;
  const StepSquaresArguments squares = {control(), pieces_, piece_count_, chunk_count_};
  const uint64_t blocks = std::min(divide_up(chunk_count_, uint64_t{squares_threads / 32}), squares_blocks_max);
  return device_.launch("mxs_step_squares", &squares, sizeof squares, static_cast<uint32_t>(blocks), squares_threads,
                        stream);
}

mxs_status DeviceStep::conclude(bool commits, DeviceStream stream) {
  const StepConcludeArguments conclude = {control(), commits ? 1 : 0};
  return device_.launch("mxs_step_conclude", &conclude, sizeof conclude, 1, 32, stream);
}

mxs_status DeviceStep::mirror(DeviceStream stream) {
  const mxs_status status = poll();
  if (status != MXS_OK || on_its_way_) return status;
  return fetch(stream);
}

mxs_status DeviceStep::fetch(DeviceStream stream) {
  mxs_status status = on_its_way_ ? device_.wait(stream, mirrored_) : MXS_OK;
  if (status == MXS_OK) status = device_.copy(pinned_.data(), report_, sizeof(DeviceStepReport), stream);
  if (status == MXS_OK)
    status = device_.copy(pinned_.data() + align_up(sizeof(DeviceStepReport), border), words_,
                          word_count() * sizeof(int64_t), stream);
  if (status == MXS_OK) status = device_.record(mirrored_, stream);
  on_its_way_ = on_its_way_ || status == MXS_OK;
  return status;
}

mxs_status DeviceStep::fetch_latest() {
  const DeviceStream latest = latest_;
  mxs_status status = MXS_OK;
  if (launches_) {
    bool capturing = false;
    status = device_.is_capturing(latest, &capturing);
    if (status == MXS_OK && capturing)
      return set_error(MXS_INVALID_ARGUMENT, "the step's stream is being captured: what a step made is known when the "
                       "graph has been launched");
    if (status == MXS_OK) status = leave(latest);
  }
  if (status == MXS_OK && has_left_) status = device_.wait(own_stream_, left_);
  return status == MXS_OK ? fetch(own_stream_) : status;
}

mxs_status DeviceStep::poll() {
  if (!on_its_way_) return MXS_OK;
  const mxs_status status = device_.query(mirrored_);
  if (status == MXS_IN_PROGRESS) return MXS_OK;
  if (status != MXS_OK) return status;
  std::memcpy(static_cast<void *>(&seen_), pinned_.data(), sizeof seen_);
  on_its_way_ = false;
  return MXS_OK;
}

StepWords DeviceStep::squares() const {
  StepWords words;
  std::memcpy(&words, pinned_.data() + align_up(sizeof(DeviceStepReport), border), sizeof words);
  return words;
}

StepRankWords DeviceStep::own_words() const {
  StepRankWords own;
  std::memcpy(&own,
              pinned_.data() + align_up(sizeof(DeviceStepReport), border) + sizeof(StepWords) +
                  static_cast<size_t>(rank_) * sizeof own,
              sizeof own);
  return own;
}

}  // namespace mxs
