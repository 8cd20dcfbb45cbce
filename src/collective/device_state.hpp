// SPDX-License-Identifier: Apache-2.0
// What stands behind DeviceComm, and what a start of a collective is made of.
//
//   DeviceState          device, stream, groups, wires, scratch memory, the flag, flights
//   DeviceFlight         one start, as the comm's queue sees it. There are as many as the queue holds, made at open
//   DeviceCollective     what the routes have in common: device_whole.cpp, device_parts.cpp
//
// All starts of a comm share one stream, so they share one scratch memory as well: it is as large as the collective
// that wants most.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/comm.hpp"
#include "collective/device_collective.hpp"
#include "collective/device_comm.hpp"
#include "collective/node_operation.hpp"
#include "collective/operation.hpp"
#include "device/kernels.hpp"

namespace mxs {

class DeviceCollective;
class DeviceState;

class DeviceFlight final : public Operation {
 public:
  ~DeviceFlight() override;
  mxs_status make(DeviceState &state);

  // The start that is enqueued next, as the number-th of the comm's.
  void prepare(DeviceCollective &collective, uint64_t number);
  void forget(const DeviceCollective &collective);
  DeviceEvent ready() const { return ready_; }  // of the caller's stream
  DeviceEvent done() const { return done_; }

  mxs_status begin(uint64_t sequence) override;
  mxs_status advance(Turn *turn) override;
  bool uses_messages() const override { return false; }
  bool polls() const override { return true; }
  int kind() const override { return kind_; }
  uint64_t signature() const override { return signature_; }
  int waits_for() const override;
  const char *name() const override { return name_; }

 private:
  mxs_status look(Turn *turn);

  DeviceState *state_ = nullptr;
  DeviceEvent ready_ = nullptr, done_ = nullptr;
  DeviceCollective *collective_ = nullptr;  // nullptr: destroyed after a failure
  int kind_ = 0;
  uint64_t signature_ = 0, number_ = 0;
  const char *name_ = "collective";
  uint64_t running_since_ns_ = 0;  // 0: it is not its turn on the device yet
  bool over_ = false, all_entered_ = true;
  std::optional<NodeOperation> entry_;  // local peers see there what this rank has started
};

class DeviceState final : public DeviceComm {
 public:
  explicit DeviceState(Comm &comm) : comm_(comm) {}
  ~DeviceState() override;

  Device &device() const override { return *device_; }
  DeviceStream stream() const override { return stream_; }
  DeviceRoute route() const override { return route_; }
  const char *describe() const override { return text_.c_str(); }
  DeviceGroup *group() const override { return whole_.get(); }
  void abort() override;
  mxs_status allocate(uint64_t bytes, void **memory) override;
  bool owns(const void *memory) const override;
  void free(void *memory) override;
  int buffer_count() const override { return static_cast<int>(buffers_.size()); }

  Comm &comm() const { return comm_; }
  DeviceGroup *node_group() const { return node_.get(); }
  // Comms of their own that carry messages for device memory: all ranks, or the ranks of this one's rail.
  Comm *wire() const { return wire_.get(); }
  Comm *rail() const { return rail_.get(); }

  // ---- starts; in calls on the family ----
  // A flight that is free, and room in the queue: waits for the oldest if there is none.
  mxs_status take_flight(DeviceFlight **flight);
  uint64_t next_number() { return ++launched_; }
  // Until all starts are complete.
  mxs_status settle();
  void forget(const DeviceCollective &collective);

  // ---- flights ----
  bool is_front(uint64_t number) const { return number == completed_ + 1; }
  void complete_front() { ++completed_; }
  mxs_status check_groups() const;

  // ---- scratch ----
  mxs_status want_scratch(uint64_t bytes);
  std::byte *scratch() const { return scratch_.data(); }
  mxs_status want_pinned(uint64_t bytes);
  std::byte *pinned() const { return pinned_.data(); }

  // ---- the flag: the stream waits for a number, the host gives it free ----
  bool blocks() const { return blocks_; }  // it can't: starts wait instead
  uint32_t next_flag() { return issued_.fetch_add(1, std::memory_order_seq_cst) + 1; }
  mxs_status wait_for_flag(uint32_t number);
  void release_flag(uint32_t number);

 private:
  friend class DeviceOpening;
  Comm &comm_;
  Device *device_ = nullptr;
  DeviceStream stream_ = nullptr;
  DeviceRoute route_ = DeviceRoute::whole;
  std::string text_;
  std::unique_ptr<Comm> wire_, rail_;
  std::unique_ptr<DeviceGroup> whole_, node_;
  std::vector<DeviceMemory> buffers_;
  DeviceMemory scratch_;
  PinnedMemory flag_memory_, pinned_;
  bool blocks_ = false;
  std::atomic<uint32_t> *flag_ = nullptr;
  std::atomic<uint32_t> issued_{0};
  std::atomic<bool> aborted_{false};
  std::array<DeviceFlight, OperationQueue::capacity> flights_;
  uint64_t launched_ = 0;
  uint64_t completed_ = 0;  // by the queue's advance alone
};

class DeviceCollective : public DeviceOperation {
 public:
  DeviceCollective(DeviceState &state, const DeviceCollectiveOptions &options);
  ~DeviceCollective() override;

  mxs_status start(const void *source, void *target, DeviceStream stream, uint64_t *sequence) override;
  mxs_status wait_stream(DeviceStream stream) override;
  bool in_flight() const override { return !state_.comm().queue.complete(sequence_); }

  int kind() const { return kind_; }
  uint64_t signature() const { return signature_; }
  const char *name() const;
  Operation::Label label() const { return state_.comm().label(algorithm(), bytes_out(), bytes_in(), unit_); }

  // Called for the oldest start on the comm, until the device is done with it: carries its messages.
  virtual mxs_status carry(bool *moved) {
    static_cast<void>(moved);
    return MXS_OK;
  }
  virtual int waits_for() const { return -1; }

 protected:
  // Puts a start on the comm's stream. Allocates nothing.
  virtual mxs_status enqueue(const std::byte *source, std::byte *target) = 0;
  // Several starts may be in flight.
  virtual bool overlaps() const { return true; }

  DeviceState &state_;
  const int kind_;
  const mxs_dtype dtype_;
  const uint64_t element_bytes_;
  const bool rank_order_, accumulate_;
  const uint64_t identity_;
  Layout layout_, target_layout_;

 private:
  mxs_status launch(DeviceFlight *flight, const void *source, void *target, DeviceStream stream);

  const int unit_;
  uint64_t signature_ = 0;
  uint64_t sequence_ = 0;           // of the latest start
  DeviceFlight *latest_ = nullptr;
};

// A run of bytes with one owner: its segments that touch, joined.
struct DeviceRun {
  int owner = 0;
  uint64_t offset = 0, packed = 0, bytes = 0;
};
std::vector<DeviceRun> runs_of(const Layout &layout);

// One for each route.
mxs_status make_whole_collective(std::unique_ptr<DeviceOperation> *operation, DeviceState &state,
                                 const DeviceCollectiveOptions &options);

}  // namespace mxs
