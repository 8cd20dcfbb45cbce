// SPDX-License-Identifier: Apache-2.0
// Ranks joined by a DeviceGroup, as threads or as processes, for the tests of groups. Each case runs in child
// processes, so that it may choose its NCCL and the stand-in's switches by variables.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/group.hpp"
#include "support/processes.hpp"

namespace mxs::test {

// An all-gather over memory that threads and forked children share.
class SharedGather {
 public:
  SharedGather() {
    void *const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board_ = new (memory) Board;
  }
  ~SharedGather() { munmap(board_, sizeof(Board)); }
  SharedGather(const SharedGather &) = delete;
  SharedGather &operator=(const SharedGather &) = delete;

  // `round` counts from 0, on each rank for itself. 20 s at most.
  mxs_status gather(int rank, int rank_count, uint32_t round, const void *source, void *target, size_t bytes) {
    Slot *const slots = board_->slots[round % 2];
    std::memcpy(slots[rank].bytes, source, bytes);
    slots[rank].round = round + 1;
    for (int peer = 0; peer < rank_count; ++peer) {
      for (int i = 0; slots[peer].round != round + 1; ++i) {
        if (i > 20000) return set_error(MXS_TIMED_OUT, "rank %d did not come", peer);
        usleep(1000);
      }
      std::memcpy(static_cast<std::byte *>(target) + static_cast<size_t>(peer) * bytes, slots[peer].bytes, bytes);
    }
    return MXS_OK;
  }

 private:
  struct Slot {
    std::atomic<uint32_t> round{0};
    std::byte bytes[2048];
  };
  struct Board {
    Slot slots[2][8];
  };
  Board *board_;
};

// One rank's side of it.
class GroupRank {
 public:
  GroupRank(SharedGather &gather, int rank, int rank_count) : rank(rank), rank_count(rank_count), gather_(gather) {}
  ~GroupRank() {
    group.reset();
    if (device) device->destroy_stream(stream);
  }

  // Ranks take devices in turn.
  std::string open_device() {
    DeviceLibrary *library = nullptr;
    if (device_library(&library) != MXS_OK) return last_error_text();
    if (find_device(rank % library->device_count(), &device) != MXS_OK) return last_error_text();
    return device->create_stream(&stream) == MXS_OK ? "" : last_error_text();
  }
  GroupOptions options() {
    GroupOptions made;
    made.rank = rank;
    made.rank_count = rank_count;
    made.timeout_ns = 20'000'000'000;
    made.gather = [this](const void *source, void *target, size_t bytes) {
      return gather_.gather(rank, rank_count, round_++, source, target, bytes);
    };
    return made;
  }
  mxs_status join() { return device->make_group(&group, options()); }

  // Device memory with these values.
  template <class Value>
  DeviceMemory upload(const std::vector<Value> &values) {
    DeviceMemory memory;
    device->allocate(values.size() * sizeof(Value) + 1, &memory);
    device->copy(memory.data(), values.data(), values.size() * sizeof(Value), stream);
    device->synchronize(stream);
    return memory;
  }
  // After what the stream has so far.
  template <class Value>
  std::vector<Value> download(const DeviceMemory &memory, size_t count) {
    std::vector<Value> values(count);
    device->copy(values.data(), memory.data(), count * sizeof(Value), stream);
    device->synchronize(stream);
    return values;
  }
  // Has the stream nothing left? 20 s at most.
  bool stream_ends() {
    DeviceEvent event = nullptr;
    if (device->create_event(&event) != MXS_OK || device->record(event, stream) != MXS_OK) return false;
    mxs_status status = MXS_IN_PROGRESS;
    for (int i = 0; i < 20000 && status == MXS_IN_PROGRESS; ++i) {
      status = device->query(event);
      if (status == MXS_IN_PROGRESS) usleep(1000);
    }
    device->destroy_event(event);
    return status == MXS_OK;
  }
  bool stream_hangs() {
    DeviceEvent event = nullptr;
    if (device->create_event(&event) != MXS_OK || device->record(event, stream) != MXS_OK) return false;
    usleep(200000);
    const mxs_status status = device->query(event);
    device->destroy_event(event);
    return status == MXS_IN_PROGRESS;
  }

  const int rank, rank_count;
  Device *device = nullptr;
  DeviceStream stream = nullptr;
  std::unique_ptr<DeviceGroup> group;

 private:
  SharedGather &gather_;
  uint32_t round_ = 0;
};

using GroupBody = std::function<std::string(GroupRank &rank)>;

struct GroupWorld {
  int rank_count = 2;
  bool as_processes = false;
  bool joins = true;  // false: the body calls join
  int may_die = -1;   // of processes
  std::vector<std::string> environment;  // "NAME=VALUE"
};

inline std::string run_group_rank(SharedGather &gather, int rank, const GroupWorld &world, const GroupBody &body) {
  GroupRank own(gather, rank, world.rank_count);
  const std::string complaint = own.open_device();
  if (!complaint.empty()) return complaint;
  if (world.joins && own.join() != MXS_OK) return std::string("join: ") + last_error_text();
  return body(own);
}

// The first complaint, with its rank. A program that calls it has no CUDA of its own: children are forked.
inline std::string run_group(const GroupWorld &world, const GroupBody &body) {
  const auto gather = std::make_unique<SharedGather>();
  ProcessOptions options;
  options.timeout_seconds = 60;
  options.environment = world.environment;
  options.may_die = world.may_die;
  if (world.as_processes)
    return run_processes_bare(world.rank_count, [&](int rank) { return run_group_rank(*gather, rank, world, body); },
                              options);
  return run_processes_bare(1, [&](int) {
    std::vector<std::string> words(static_cast<size_t>(world.rank_count));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world.rank_count; ++rank)
      threads.emplace_back(
          [&, rank] { words[static_cast<size_t>(rank)] = run_group_rank(*gather, rank, world, body); });
    for (std::thread &thread : threads) thread.join();
    for (size_t rank = 0; rank < words.size(); ++rank)
      if (!words[rank].empty()) return "rank " + std::to_string(rank) + ": " + words[rank];
    return std::string();
  }, options);
}

// MXS_NCCL_LIBRARY=... of the stand-in that has what this version had.
inline std::string nccl_variable(const char *version) {
  const char *const folder = std::getenv("MXS_STANDIN_NCCL_FOLDER");
  return "MXS_NCCL_LIBRARY=" + std::string(folder ? folder : "") + "/" + version + "/libnccl.so.2";
}

}  // namespace mxs::test
