// SPDX-License-Identifier: Apache-2.0
// DeviceStep: an optimizer's control block in device memory (device/step_arguments.hpp), and how host and device hear
// of each other. Nothing here knows units, and nothing waits for the device: waiting is the caller's, for mirrored().
//
//   host -> device   numbers go as arguments of a kernel, which are copied at its launch: no buffer is borrowed
//   device -> host   the report is copied to pinned memory after a step, and looked at by a later call. A copy that is
//                    on its way is left alone, so that nothing reads half of one; counters in the report only grow, so
//                    that what one copy misses the next one tells
//
// Steps may come on several streams: each begins after the one before. A captured step is the business of whoever
// launches the graph; `latest` is then the stream of its values.
#pragma once

#include <memory>
#include <vector>

#include "device/device.hpp"
#include "device/step_arguments.hpp"

namespace mxs {

class DeviceStep {
 public:
  struct Shape {
    int rank = 0, rank_count = 1;
    size_t group_count = 0;
    std::vector<StepSquaresPiece> pieces;  // elements and gradients; places of chunks are found here
  };
  static mxs_status create(std::unique_ptr<DeviceStep> *made, Device &device, Shape shape);
  ~DeviceStep();

  Device &device() const { return device_; }
  DeviceStepState *state() const { return &report_->state; }  // device memory, as the next two
  const mxs_group_values *values(int group) const { return groups_ + group; }
  int64_t *words() const { return reinterpret_cast<int64_t *>(words_); }
  uint64_t word_count() const { return step_word_count(rank_count_); }

  // ---- put on a stream ----
  mxs_status enter(DeviceStream stream);  // begins after what was put on other streams
  mxs_status leave(DeviceStream stream);  // and the other way round
  mxs_status put_values(const DeviceStepValues &values, const std::vector<mxs_group_values> &groups,
                        DeviceStream stream);
  mxs_status put_report(const DeviceStepReport &report, DeviceStream stream);
  mxs_status put_steps_done(uint64_t steps_done, DeviceStream stream);
  mxs_status begin(DeviceStream stream);  // words: what this rank says, and its squares
  mxs_status conclude(bool commits, DeviceStream stream);

  // ---- the report, on its way to the host ----
  mxs_status mirror(DeviceStream stream);  // nothing if one is on its way
  // For a caller that waits: the report and the words, whatever is on its way. Over when mirrored() is.
  mxs_status fetch(DeviceStream stream);
  mxs_status fetch_latest();  // of everything that was put on streams so far
  DeviceEvent mirrored() const { return mirrored_; }
  mxs_status poll();  // takes a mirror that has come; MXS_OK also if none has
  const DeviceStepReport &report() const { return seen_; }
  StepWords squares() const;            // after a fetch
  StepRankWords own_words() const;

  // A step was captured that may run without a call of ours.
  void expect_launches(DeviceStream stream) { latest_ = stream, launches_ = true; }
  void note_stream(DeviceStream stream) { latest_ = stream; }
  DeviceStream own_stream() const { return own_stream_; }

 private:
  DeviceStep(Device &device, int rank, int rank_count) : device_(device), rank_(rank), rank_count_(rank_count) {}
  mxs_status take_memory(const Shape &shape);
  mxs_status put(void *target, const void *bytes, uint64_t count, DeviceStream stream);
  StepControl control() const;
  uint64_t mirror_bytes() const;

  Device &device_;
  const int rank_, rank_count_;
  PinnedMemory pinned_;
  DeviceMemory memory_;  // goes first, which waits for what still uses either
  DeviceStepReport *report_ = nullptr;
  DeviceStepValues *values_ = nullptr;
  mxs_group_values *groups_ = nullptr;
  StepWords *words_ = nullptr;
  StepSquaresPiece *pieces_ = nullptr;
  uint64_t piece_count_ = 0, chunk_count_ = 0;
  DeviceStream own_stream_ = nullptr, latest_ = nullptr;
  DeviceEvent left_ = nullptr, mirrored_ = nullptr;
  bool has_left_ = false, launches_ = false, on_its_way_ = false;
  DeviceStepReport seen_;
};

}  // namespace mxs
