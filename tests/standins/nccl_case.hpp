// SPDX-License-Identifier: Apache-2.0
// For tests of the stand-in for NCCL: the driver and NCCL as programs find them, and ranks as threads or processes with
// a device each. Every case runs in a child process: its environment and what it loads are its own.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/processes.hpp"

namespace mxs::test {

// The few functions of the driver that cases need.
struct Cuda {
  decltype(&::cuInit) init = nullptr;
  decltype(&::cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&::cuCtxPushCurrent) push = nullptr;
  decltype(&::cuMemAlloc) allocate = nullptr;
  decltype(&::cuMemFree) free = nullptr;
  decltype(&::cuMemcpyAsync) copy = nullptr;
  decltype(&::cuMemsetD8Async) set = nullptr;
  decltype(&::cuStreamCreate) create_stream = nullptr;
  decltype(&::cuStreamSynchronize) synchronize = nullptr;
  decltype(&::cuStreamQuery) query = nullptr;
  decltype(&::cuStreamBeginCapture) begin_capture = nullptr;
  decltype(&::cuStreamEndCapture) end_capture = nullptr;
  decltype(&::cuGraphInstantiateWithFlags) instantiate = nullptr;
  decltype(&::cuGraphLaunch) launch_graph = nullptr;
};

struct Nccl {
  void *file = nullptr;
  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclCommInitRank) init = nullptr;
  decltype(&::ncclCommInitRankConfig) init_config = nullptr;
  decltype(&::ncclCommFinalize) finalize = nullptr;
  decltype(&::ncclCommDestroy) destroy = nullptr;
  decltype(&::ncclCommAbort) abort = nullptr;
  decltype(&::ncclCommRevoke) revoke = nullptr;
  decltype(&::ncclCommSplit) split = nullptr;
  decltype(&::ncclCommGetAsyncError) async_error = nullptr;
  decltype(&::ncclCommCount) count = nullptr;
  decltype(&::ncclCommCuDevice) device = nullptr;
  decltype(&::ncclCommUserRank) user_rank = nullptr;
  decltype(&::ncclGetErrorString) error_string = nullptr;
  decltype(&::ncclGetLastError) last_error = nullptr;
  decltype(&::ncclBroadcast) broadcast = nullptr;
  decltype(&::ncclReduce) reduce = nullptr;
  decltype(&::ncclAllReduce) all_reduce = nullptr;
  decltype(&::ncclAllGather) all_gather = nullptr;
  decltype(&::ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) receive = nullptr;
  decltype(&::ncclGroupStart) group_start = nullptr;
  decltype(&::ncclGroupEnd) group_end = nullptr;
  decltype(&::ncclMemAlloc) mem_alloc = nullptr;
  decltype(&::ncclMemFree) mem_free = nullptr;
  decltype(&::ncclCommRegister) comm_register = nullptr;
  decltype(&::ncclCommDeregister) comm_deregister = nullptr;
  decltype(&::ncclCommWindowRegister) window_register = nullptr;
  decltype(&::ncclCommWindowDeregister) window_deregister = nullptr;
};

template <class Function>
void look_up(void *file, const char *name, Function *function) {
  *function = reinterpret_cast<Function>(dlsym(file, name));
}

inline const Cuda &cuda() {
  static const Cuda table = [] {
    Cuda found;
    void *const file = dlopen("libcuda.so.1", RTLD_NOW);
    if (!file) return found;
    look_up(file, "cuInit", &found.init);
    look_up(file, "cuDevicePrimaryCtxRetain", &found.retain);
    look_up(file, "cuCtxPushCurrent_v2", &found.push);
    look_up(file, "cuMemAlloc_v2", &found.allocate);
    look_up(file, "cuMemFree_v2", &found.free);
    look_up(file, "cuMemcpyAsync", &found.copy);
    look_up(file, "cuMemsetD8Async", &found.set);
    look_up(file, "cuStreamCreate", &found.create_stream);
    look_up(file, "cuStreamSynchronize", &found.synchronize);
    look_up(file, "cuStreamQuery", &found.query);
    look_up(file, "cuStreamBeginCapture_v2", &found.begin_capture);
    look_up(file, "cuStreamEndCapture", &found.end_capture);
    look_up(file, "cuGraphInstantiateWithFlags", &found.instantiate);
    look_up(file, "cuGraphLaunch", &found.launch_graph);
    if (found.init) found.init(0);
    return found;
  }();
  return table;
}

// Of a version's file: "2.30".
inline Nccl load_nccl_file(const char *version) {
  Nccl found;
  const std::string path = std::string(std::getenv("MXS_STANDIN_NCCL_FOLDER")) + "/" + version + "/libnccl.so.2";
  void *const file = found.file = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!file) return found;
  look_up(file, "ncclGetVersion", &found.get_version);
  look_up(file, "ncclGetUniqueId", &found.get_unique_id);
  look_up(file, "ncclCommInitRank", &found.init);
  look_up(file, "ncclCommInitRankConfig", &found.init_config);
  look_up(file, "ncclCommFinalize", &found.finalize);
  look_up(file, "ncclCommDestroy", &found.destroy);
  look_up(file, "ncclCommAbort", &found.abort);
  look_up(file, "ncclCommRevoke", &found.revoke);
  look_up(file, "ncclCommSplit", &found.split);
  look_up(file, "ncclCommGetAsyncError", &found.async_error);
  look_up(file, "ncclCommCount", &found.count);
  look_up(file, "ncclCommCuDevice", &found.device);
  look_up(file, "ncclCommUserRank", &found.user_rank);
  look_up(file, "ncclGetErrorString", &found.error_string);
  look_up(file, "ncclGetLastError", &found.last_error);
  look_up(file, "ncclBroadcast", &found.broadcast);
  look_up(file, "ncclReduce", &found.reduce);
  look_up(file, "ncclAllReduce", &found.all_reduce);
  look_up(file, "ncclAllGather", &found.all_gather);
  look_up(file, "ncclReduceScatter", &found.reduce_scatter);
  look_up(file, "ncclSend", &found.send);
  look_up(file, "ncclRecv", &found.receive);
  look_up(file, "ncclGroupStart", &found.group_start);
  look_up(file, "ncclGroupEnd", &found.group_end);
  look_up(file, "ncclMemAlloc", &found.mem_alloc);
  look_up(file, "ncclMemFree", &found.mem_free);
  look_up(file, "ncclCommRegister", &found.comm_register);
  look_up(file, "ncclCommDeregister", &found.comm_deregister);
  look_up(file, "ncclCommWindowRegister", &found.window_register);
  look_up(file, "ncclCommWindowDeregister", &found.window_deregister);
  return found;
}

// One rank's device, stream and memory.
class Seat {
 public:
  explicit Seat(int device) {
    CUcontext context = nullptr;
    is_good = cuda().retain && cuda().retain(&context, device) == CUDA_SUCCESS &&
              cuda().push(context) == CUDA_SUCCESS &&
              cuda().create_stream(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
  }
  void *allocate(size_t bytes) {
    CUdeviceptr memory = 0;
    if (cuda().allocate(&memory, bytes ? bytes : 1) != CUDA_SUCCESS) return nullptr;
    cuda().set(memory, 0xa5, bytes ? bytes : 1, stream);  // poison
    return reinterpret_cast<void *>(memory);
  }
  template <class Value>
  void *upload(const std::vector<Value> &values) {
    void *const memory = allocate(values.size() * sizeof(Value));
    cuda().copy(reinterpret_cast<CUdeviceptr>(memory), reinterpret_cast<CUdeviceptr>(values.data()),
                values.size() * sizeof(Value), stream);
    cuda().synchronize(stream);
    return memory;
  }
  // After what the stream has so far.
  template <class Value>
  std::vector<Value> download(const void *memory, size_t count) {
    std::vector<Value> values(count);
    cuda().copy(reinterpret_cast<CUdeviceptr>(values.data()), reinterpret_cast<CUdeviceptr>(memory),
                count * sizeof(Value), stream);
    cuda().synchronize(stream);
    return values;
  }
  bool is_good = false;
  CUstream stream = nullptr;
};

// In a child process, so that it may set variables and load libraries as it likes. "": good.
inline std::string in_child(const std::function<std::string()> &body) {
  ProcessOptions options;
  options.timeout_seconds = 60;
  return run_processes_bare(1, [&](int) { return body(); }, options);
}

// Ranks as threads of this process. The first complaint.
inline std::string in_threads(int rank_count, const std::function<std::string(int rank)> &body) {
  std::vector<std::string> words(static_cast<size_t>(rank_count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < rank_count; ++rank)
    threads.emplace_back([&, rank] { words[static_cast<size_t>(rank)] = body(rank); });
  for (std::thread &thread : threads) thread.join();
  for (int rank = 0; rank < rank_count; ++rank)
    if (!words[static_cast<size_t>(rank)].empty())
      return "rank " + std::to_string(rank) + " of " + std::to_string(rank_count) + ": " +
             words[static_cast<size_t>(rank)];
  return "";
}

}  // namespace mxs::test
