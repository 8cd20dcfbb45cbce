/* SPDX-License-Identifier: Apache-2.0 */
// Units of tests/support/unit_model.hpp in CUDA memory, seen from one rank: the same values, which come and go by
// copies on a stream, as kernels would. Between device memory only: a copy from or to plain host memory makes the host
// wait, which would order what is to be seen unordered. So values are put into an arena before, and looked at after.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "matrixshard/cuda.h"
#include "support/unit_model.hpp"
#include "support/unit_ways.hpp"

namespace mxs::test {

// A function of the driver that this process has loaded.
template <class Function>
Function cuda_function(const char *name) {
  static void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

// The device of the comm's CUDA memory, once a unit has been made.
inline int device_of(mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  return info.device - 1;
}

// As a framework's threads have it; "" or a complaint.
inline std::string make_current(int device) {
  CUdevice handle = 0;
  CUcontext context = nullptr;
  const bool current =
      cuda_function<CUresult (*)(unsigned)>("cuInit")(0) == CUDA_SUCCESS &&
      cuda_function<CUresult (*)(CUdevice *, int)>("cuDeviceGet")(&handle, device) == CUDA_SUCCESS &&
      cuda_function<CUresult (*)(CUcontext *, CUdevice)>("cuDevicePrimaryCtxRetain")(&context, handle) ==
          CUDA_SUCCESS &&
      cuda_function<CUresult (*)(CUcontext)>("cuCtxSetCurrent")(context) == CUDA_SUCCESS;
  return current ? "" : "device " + std::to_string(device) + " has no context";
}

// Of the device that is current; as PyTorch's are, they don't wait for the legacy default stream.
class OwnStream {
 public:
  OwnStream() { cuda_function<CUresult (*)(CUstream *, unsigned)>("cuStreamCreate")(&stream_, CU_STREAM_NON_BLOCKING); }
  OwnStream(const OwnStream &) = delete;
  ~OwnStream() { cuda_function<CUresult (*)(CUstream)>("cuStreamDestroy_v2")(stream_); }
  CUstream handle() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

// Device memory that is not the library's.
class OwnMemory {
 public:
  explicit OwnMemory(size_t bytes) {
    CUdeviceptr address = 0;
    cuda_function<CUresult (*)(CUdeviceptr *, size_t)>("cuMemAlloc_v2")(&address, bytes);
    data_ = reinterpret_cast<std::byte *>(address);
  }
  OwnMemory(const OwnMemory &) = delete;
  ~OwnMemory() { cuda_function<CUresult (*)(CUdeviceptr)>("cuMemFree_v2")(reinterpret_cast<CUdeviceptr>(data_)); }
  std::byte *data() const { return data_; }

 private:
  std::byte *data_ = nullptr;
};

// How a unit's memory lies.
enum class Memory { mapped, copied };

inline mxs_unit_options cuda_options(int slots = 2, int flags = 0) {
  mxs_unit_options options = options_of({"", MXS_GATHER_AUTO, nullptr}, slots, flags);
  options.memory = MXS_CUDA;
  return options;
}

// Owners' borders on granules of 2 MiB, or finer.
inline mxs_plan_options plan_for(Memory memory) {
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
  options.alignment = memory == Memory::mapped ? uint64_t{2} << 20 : 256;
  return options;
}

// Streams: `main` computes, `side` gathers ahead. nullptr: the legacy default stream, and waits block.
class DeviceUnits : public Units {
 public:
  CUstream main = nullptr, side = nullptr;

  // Streams of its own, which outlive the arena: giving memory back waits for them.
  void use_streams() {
    streams_ = std::make_unique<std::array<OwnStream, 2>>();
    main = streams_->at(0).handle();
    side = streams_->at(1).handle();
  }

  static mxs_call on(CUstream stream) {
    mxs_call call = MXS_CALL_INIT;
    call.stream = stream;
    return call;
  }
  mxs_unit *unit(int index) const { return units[static_cast<size_t>(index)]; }

  std::string make(mxs_comm *its_comm, const Model &model, Memory memory, const mxs_unit_options &options) {
    plan_options = plan_for(memory);
    std::string complaint = Units::make(its_comm, model, &options);
    if (complaint.empty()) complaint = open_arena();
    for (mxs_unit *made : units)
      if (complaint.empty() && info_of(made).bytes && !options.buffer && !info_of_is(made, memory))
        complaint = std::string("a unit is ") + info_of(made).pages;
    return complaint;
  }

  // One rank has no borders, and with an own slot nothing is copied.
  bool info_of_is(mxs_unit *made, Memory memory) const {
    if (!own_slot_units.empty() || rank_count == 1) return true;
    return std::string(info_of(made).pages) == (memory == Memory::copied ? "copied" : "mapped");
  }

  // ---- bytes ----
  static constexpr size_t arena_bytes = size_t{16} << 20;
  std::string open_arena() {
    const std::string complaint = make_current(device_of(comm));
    if (complaint.empty()) arena_ = std::make_unique<OwnMemory>(arena_bytes);
    return complaint;
  }
  std::string copy(void *target, const void *source, uint64_t bytes, CUstream stream) {
    const mxs_call call = on(stream);
    return want(MXS_OK, bytes ? mxs_copy(target, source, bytes, &call) : MXS_OK, "mxs_copy");
  }
  std::string synchronize(CUstream stream) {
    if (!stream) return "";
    const CUresult result = cuda_function<CUresult (*)(CUstream)>("cuStreamSynchronize")(stream);
    return result == CUDA_SUCCESS ? "" : "the stream failed: " + std::to_string(result);
  }
  // Of the arena, until it is rewound.
  std::byte *take(uint64_t bytes) {
    std::byte *const place = arena_->data() + used_;
    used_ += (bytes + 255) / 256 * 256;
    return used_ <= arena_bytes ? place : nullptr;
  }
  // Values that are in the arena when this returns.
  std::string put(const std::vector<std::byte> &bytes, std::byte **place) {
    *place = take(bytes.size());
    return *place ? copy(*place, bytes.data(), bytes.size(), nullptr) : "the arena is full";
  }
  void rewind() { used_ = 0; }
  std::vector<std::byte> weights_of(int tensor, mxs_dtype dtype, uint64_t first, uint64_t elements, uint64_t version) {
    std::vector<std::byte> bytes(elements * dtype_bytes(dtype));
    for (uint64_t i = 0; i < elements; ++i)
      write_value(bytes.data(), dtype, i, weight_value(tensor, first + i, version));
    return bytes;
  }

  std::string fill(uint64_t version, int only = -1) {
    const Plan &planned = inner();
    for (uint64_t number = 0; number < planned.placements.size(); number++) {
      const Placement &piece = planned.placements[number];
      if (only >= 0 && piece.unit != only) continue;
      mxs_view view = MXS_VIEW_INIT;
      mxs_status status = mxs_unit_shard(unit(piece.unit), number, &view);
      if (status != MXS_OK) return failure("mxs_unit_shard", status);
      if (piece.owner != rank && view.bytes) return "a piece that isn't owned has a view";
      if (view.memory != MXS_CUDA) return "a shard is not in CUDA memory";
      const auto bytes = weights_of(piece.tensor, view.dtype, piece.element_offset,
                                    view.bytes / dtype_bytes(view.dtype), version);
      const std::string complaint = copy(view.data, bytes.data(), view.bytes, nullptr);
      if (!complaint.empty()) return complaint;
      status = mxs_unit_commit(unit(piece.unit), &view);
      if (status != MXS_OK) return failure("mxs_unit_commit", status);
    }
    return "";
  }

  // What kernels on `stream` would see, once it gets there.
  struct Seen {
    int unit = 0;
    uint64_t version = 0;
    std::vector<std::pair<std::byte *, uint64_t>> tensors;  // in the arena
  };
  std::string look(int index, uint64_t version, CUstream stream, Seen *seen) {
    seen->unit = index;
    seen->version = version;
    for (const int tensor : inner().units[static_cast<size_t>(index)].tensors) {
      mxs_view view = MXS_VIEW_INIT;
      const mxs_status status = mxs_unit_tensor(unit(index), tensor, &view);
      if (status != MXS_OK) return failure("mxs_unit_tensor", status);
      if (view.memory != MXS_CUDA) return "a view is not in CUDA memory";
      std::byte *const place = take(view.bytes);
      if (!place) return "the arena is full";
      seen->tensors.push_back({place, view.bytes});
      const std::string complaint = copy(place, view.data, view.bytes, stream);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }
  // After the stream has been synchronized.
  std::string compare(const Seen &seen) {
    size_t at = 0;
    for (const int tensor : inner().units[static_cast<size_t>(seen.unit)].tensors) {
      const PlannedTensor &planned = inner().tensors[static_cast<size_t>(tensor)];
      const int source = planned.tied_to >= 0 ? planned.tied_to : tensor;
      const auto [place, bytes] = seen.tensors[at++];
      std::vector<std::byte> found(bytes);
      const std::string complaint = copy(found.data(), place, bytes, nullptr);
      if (!complaint.empty()) return complaint;
      if (found != weights_of(source, planned.dtype, 0, planned.element_count, seen.version))
        return "unit " + std::to_string(seen.unit) + ", " + planned.name + " has wrong bytes";
    }
    return "";
  }
  std::string check(int index, uint64_t version) {
    const uint64_t used = used_;
    Seen seen;
    std::string complaint = look(index, version, main, &seen);
    if (complaint.empty()) complaint = synchronize(main);
    if (complaint.empty()) complaint = compare(seen);
    used_ = used;
    return complaint;
  }

  mxs_status gather(int index) {
    const mxs_call call = on(side);
    return mxs_unit_gather(unit(index), &call);
  }
  mxs_status wait(int index) {
    const mxs_call call = on(main);
    return mxs_unit_wait(unit(index), &call);
  }
  mxs_status release(int index, int mode = MXS_FREE) {
    const mxs_call call = on(main);
    return mxs_unit_release(unit(index), mode, &call);
  }
  mxs_status reduce(int index) {
    const mxs_call call = on(main);
    return mxs_unit_reduce(unit(index), &call);
  }

  std::string gather_and_check(int index, uint64_t version, int mode = MXS_FREE) {
    std::string complaint = want(MXS_OK, gather(index), "mxs_unit_gather");
    if (complaint.empty()) complaint = want(MXS_OK, wait(index), "mxs_unit_wait");
    if (complaint.empty()) complaint = check(index, version);
    return complaint.empty() ? want(MXS_OK, release(index, mode), "mxs_unit_release") : complaint;
  }

  // ---- gradients ----
  // As Units', but what is added to is what rounds before have given, which is known.
  std::string write_gradients(int index, int round, int flags) {
    for (const int tensor : inner().units[static_cast<size_t>(index)].tensors) {
      const PlannedTensor &planned = inner().tensors[static_cast<size_t>(tensor)];
      if (planned.frozen() || planned.tied_to >= 0 || tensor % 5 == 3) continue;
      mxs_view view = MXS_VIEW_INIT;
      const mxs_status status = mxs_unit_gradient(unit(index), tensor, flags, &view);
      if (status != MXS_OK) return failure("mxs_unit_gradient", status);
      if (view.dtype != planned.gradient_dtype) return planned.name + " has a gradient of the wrong dtype";
      std::vector<std::byte> bytes(view.bytes);
      std::string complaint;
      if (flags == MXS_ADD) {
        complaint = copy(bytes.data(), view.data, view.bytes, main);
        if (complaint.empty()) complaint = synchronize(main);
        for (const std::byte byte : bytes)
          if (complaint.empty() && byte != std::byte{0}) complaint = planned.name + ": the first opening isn't zero";
      }
      for (uint64_t i = 0; i < planned.element_count; i++)
        write_value(bytes.data(), view.dtype, i, gradient_value(tensor, i, rank, round));
      std::byte *place = nullptr;
      if (complaint.empty()) complaint = put(bytes, &place);
      if (complaint.empty()) complaint = copy(view.data, place, view.bytes, main);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }

  std::string check_sums(int index, int round_count, int skipping_rank = -1) {
    for (const uint64_t number : inner().units[static_cast<size_t>(index)].placements) {
      const Placement &piece = inner().placements[number];
      const PlannedTensor &planned = inner().tensors[static_cast<size_t>(piece.tensor)];
      mxs_view view = MXS_VIEW_INIT;
      const mxs_status status = mxs_unit_shard_gradient(unit(index), number, &view);
      if (status != MXS_OK) return failure("mxs_unit_shard_gradient", status);
      const uint64_t elements = piece.owner == rank && !planned.frozen() ? piece.element_count : 0;
      if (view.bytes != elements * sizeof(float)) return planned.name + ": the summed gradient has wrong bytes";
      std::vector<float> found(elements);
      const std::string complaint = copy(found.data(), view.data, view.bytes, nullptr);
      if (!complaint.empty()) return complaint;
      for (uint64_t i = 0; i < elements; i++) {
        float sum = 0.0f;
        for (int round = 0; round < round_count; round++)
          for (int from = 0; from < rank_count; from++)
            sum += from == skipping_rank && round == round_count - 1
                       ? 0.0f
                       : rounded_gradient(planned, piece.tensor, piece.element_offset + i, from, round);
        if (std::memcmp(&found[i], &sum, sizeof sum) != 0 && !(found[i] == 0.0f && sum == 0.0f))
          return planned.name + ", element " + std::to_string(i) + " of the sum is " + std::to_string(found[i]) +
                 ", not " + std::to_string(sum);
      }
    }
    return "";
  }

  // What an optimizer does with units, on a stream, without waiting for it. The barrier is the agreement.
  std::string step(uint64_t version) {
    std::string complaint;
    for (mxs_unit *each : units) {
      if (complaint.empty()) complaint = want(MXS_OK, each->check_idle("the step"), "check_idle");
      if (complaint.empty()) complaint = want(MXS_OK, each->wait_reduce_stream(main), "wait_reduce_stream");
      if (complaint.empty()) complaint = want(MXS_OK, each->end_views_stream(main), "end_views_stream");
    }
    if (complaint.empty()) complaint = want(MXS_OK, mxs_comm_barrier(comm, nullptr), "mxs_comm_barrier");
    for (mxs_unit *each : units) {
      for (const OwnedPlacement &owned : each->owned()) {
        const uint64_t first = inner().placements[owned.placement].element_offset;
        const auto write = [&](void *target, mxs_dtype dtype) {
          const auto bytes = weights_of(owned.tensor, dtype, first, owned.element_count, version);
          std::byte *place = nullptr;
          if (complaint.empty()) complaint = put(bytes, &place);
          if (complaint.empty()) complaint = copy(target, place, bytes.size(), main);
        };
        write(owned.weights, owned.dtype);
        if (owned.master) write(owned.master, owned.master_dtype);
      }
      if (complaint.empty()) complaint = want(MXS_OK, each->finish_step(true, main), "finish_step");
    }
    return complaint;
  }

 private:
  std::unique_ptr<std::array<OwnStream, 2>> streams_;
  std::unique_ptr<OwnMemory> arena_;
  uint64_t used_ = 0;
};

inline uint64_t remaps_of(mxs_comm *comm) {
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  mxs_comm_query_stats(comm, &stats);
  return stats.slot_remaps;
}

}  // namespace mxs::test
