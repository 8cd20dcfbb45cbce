// SPDX-License-Identifier: Apache-2.0
// libnccl.so.2, stand-in: NCCL's functions, with its prototypes and our own insides. What a call refuses, and with
// which code, is as in NCCL; calls that do not fit each other hang, as they do there.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "communicator.hpp"
#include "driver.hpp"
#include "sums.hpp"
#include "version.hpp"

struct ncclComm {
  std::shared_ptr<standin::Communicator> inner;
  std::map<void *, size_t> buffers;  // registered
};

namespace standin {

int claimed_version() {
  const char *const text = std::getenv("MXS_STANDIN_NCCL_VERSION");
  return text && *text ? static_cast<int>(std::strtol(text, nullptr, 10)) : built_version;
}

namespace {

// ---- communicators that are alive ------------------------------------------------------------------------------

std::mutex alive_mutex;
std::set<const ncclComm *> &alive() {
  static auto *const only = new std::set<const ncclComm *>;
  return *only;
}

ncclComm *add(std::shared_ptr<Communicator> inner) {
  auto *const comm = new ncclComm{std::move(inner), {}};
  const std::lock_guard<std::mutex> lock(alive_mutex);
  alive().insert(comm);
  return comm;
}

void remove(ncclComm *comm) {
  {
    const std::lock_guard<std::mutex> lock(alive_mutex);
    alive().erase(comm);
  }
  delete comm;
}

std::shared_ptr<Communicator> find(const ncclComm *comm) {
  const std::lock_guard<std::mutex> lock(alive_mutex);
  if (comm && alive().count(comm)) return comm->inner;
  set_last_error("comm argument is NULL, or was destroyed");
  return nullptr;
}

// ---- groups, of this thread ------------------------------------------------------------------------------------

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::pair<std::shared_ptr<Communicator>, Operation>> operations;
  std::vector<std::shared_ptr<Communicator>> joins;
};
thread_local Group group;

ncclResult_t note(ncclResult_t result) {
  if (group.depth > 0 && group.error == ncclSuccess && result != ncclInProgress) group.error = result;
  return result;
}

// Of each communicator in turn what the group has listed for it.
ncclResult_t launch_all(std::vector<std::pair<std::shared_ptr<Communicator>, Operation>> operations) {
  ncclResult_t result = ncclSuccess;
  while (!operations.empty()) {
    const std::shared_ptr<Communicator> first = operations.front().first;
    std::vector<Operation> own;
    std::vector<std::pair<std::shared_ptr<Communicator>, Operation>> others;
    for (auto &[communicator, operation] : operations) {
      if (communicator == first) own.push_back(operation);
      else others.emplace_back(communicator, operation);
    }
    const ncclResult_t launched = first->launch(std::move(own));
    if (result == ncclSuccess || (result == ncclInProgress && launched != ncclSuccess)) result = launched;
    operations = std::move(others);
  }
  return result;
}

ncclResult_t put(const Operation &operation, ncclComm_t comm) {
  const std::shared_ptr<Communicator> communicator = find(comm);
  if (!communicator) return note(ncclInvalidArgument);
  ncclResult_t result = communicator->ready();
  if (result == ncclSuccess) result = communicator->check(operation);
  if (result != ncclSuccess) return note(result);
  if (group.depth > 0) {
    group.operations.emplace_back(communicator, operation);
    return ncclSuccess;
  }
  return launch_all({{communicator, operation}});
}

// ---- making and ending -----------------------------------------------------------------------------------------

ncclResult_t begin(ncclComm_t *comm, const std::shared_ptr<Communicator> &communicator,
                   const std::function<void()> &start) {
  const ncclResult_t result = communicator->choose_device();
  if (result != ncclSuccess) return note(result);
  start();
  *comm = add(communicator);
  if (!communicator->is_blocking()) return ncclInProgress;
  if (group.depth > 0) {
    group.joins.push_back(communicator);
    return ncclSuccess;
  }
  const ncclResult_t joined = communicator->wait_for_worker();
  if (joined == ncclSuccess) return joined;
  communicator->stop();
  communicator->close();
  remove(*comm);
  *comm = nullptr;
  return joined;
}

constexpr char id_mark[] = "nccl stand-in ";

ncclResult_t init(ncclComm_t *comm, int rank_count, const ncclUniqueId &id, int rank, const ncclConfig_t *config) {
  if (!comm || rank_count < 1 || rank < 0 || rank >= rank_count) {
    set_last_error("Invalid rank requested : " + std::to_string(rank) + "/" + std::to_string(rank_count));
    return note(ncclInvalidArgument);
  }
  if (std::strncmp(id.internal, id_mark, sizeof id_mark - 1) != 0 ||
      strnlen(id.internal, sizeof id.internal) == sizeof id.internal) {
    set_last_error("the unique id is not of ncclGetUniqueId");
    return note(ncclInvalidArgument);
  }
  if (config && (config->magic != 0xcafebeef || config->size < offsetof(ncclConfig_t, cgaClusterSize))) {
    set_last_error("ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    return note(ncclInvalidArgument);
  }
  const bool is_blocking = !config || config->blocking != 0;
  const auto communicator = std::make_shared<Communicator>(rank, rank_count, is_blocking);
  const std::string name = id.internal;
  return begin(comm, communicator, [&] { communicator->join_ranks(name); });
}

ncclResult_t end(ncclComm_t comm, bool is_abort) {
  if (!comm) return ncclSuccess;
  const std::shared_ptr<Communicator> communicator = find(comm);
  if (!communicator) return ncclInvalidArgument;
  if (!is_abort && communicator->state() == ncclInProgress && !communicator->is_blocking()) return ncclInvalidArgument;
  if (is_abort) communicator->stop();
  else communicator->finish();
  communicator->stop();
  communicator->close();
  remove(comm);
  return ncclSuccess;
}

template <class Value>
ncclResult_t tell(const ncclComm_t comm, Value *value, Value (Communicator::*ask)() const) {
  const std::shared_ptr<Communicator> communicator = find(comm);
  if (!communicator || !value) return ncclInvalidArgument;
  const ncclResult_t result = communicator->ready();
  if (result == ncclSuccess) *value = (communicator.get()->*ask)();
  return result;
}

Operation describe(Call call, const void *source, void *target, size_t count, ncclDataType_t type, int root,
                   cudaStream_t stream, ncclRedOp_t operation = ncclSum) {
  Operation made;
  made.call = call;
  made.source = source;
  made.target = target;
  made.count = count;
  made.type = type;
  made.operation = operation;
  made.root = root;
  made.stream = stream;
  return made;
}

}  // namespace

}  // namespace standin

using standin::Call;
using standin::describe;
using standin::find;
using standin::put;

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  if (!version) return ncclInvalidArgument;
  *version = standin::claimed_version();
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  if (!id) return ncclInvalidArgument;
  std::random_device random;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "%s%08x%08x%08x%08x", standin::id_mark, random(), random(), random(),
                random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int rank_count, ncclUniqueId id, int rank) {
  return standin::init(comm, rank_count, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int rank_count, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  return standin::init(comm, rank_count, id, rank, config);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
  const auto parent = find(comm);
  if (!parent || !newcomm) return ncclInvalidArgument;
  const ncclResult_t result = parent->ready();
  if (result != ncclSuccess) return result;
  const bool is_blocking = config && config->blocking != NCCL_CONFIG_UNDEF_INT ? config->blocking != 0
                                                                               : parent->is_blocking();
  const auto part = std::make_shared<standin::Communicator>(0, parent->rank_count(), is_blocking);
  const standin::Current current(parent->context());
  const ncclResult_t begun = standin::begin(newcomm, part, [&] { part->split(parent, color, key); });
  if (color != NCCL_SPLIT_NOCOLOR || begun != ncclSuccess) return begun;
  standin::end(*newcomm, false);
  *newcomm = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const auto communicator = find(comm);
  if (!communicator) return ncclInvalidArgument;
  const ncclResult_t result = communicator->ready();
  return result == ncclSuccess ? communicator->finalize() : result;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return standin::end(comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return standin::end(comm, true); }

// The handle stays until it is destroyed.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  const auto communicator = find(comm);
  if (!communicator || flags != 0) return ncclInvalidArgument;
  communicator->stop();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  const auto communicator = find(comm);
  if (!communicator || !error) return ncclInvalidArgument;
  *error = communicator->state();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  return standin::tell(comm, count, &standin::Communicator::rank_count);
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  return standin::tell(comm, device, &standin::Communicator::device);
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  return standin::tell(comm, rank, &standin::Communicator::rank);
}

const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

const char *ncclGetLastError(ncclComm_t) {
  thread_local std::string words;
  words = standin::last_error();
  return words.c_str();
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return put(describe(Call::broadcast, sendbuff, recvbuff, count, type, root, stream), comm);
}

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, type, root, comm, stream);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return put(describe(Call::reduce, sendbuff, recvbuff, count, type, root, stream, operation), comm);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return put(describe(Call::all_reduce, sendbuff, recvbuff, count, type, 0, stream, operation), comm);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return put(describe(Call::reduce_scatter, sendbuff, recvbuff, count, type, 0, stream, operation), comm);
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return put(describe(Call::all_gather, sendbuff, recvbuff, count, type, 0, stream), comm);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  standin::Operation operation = describe(Call::message, sendbuff, nullptr, count, type, peer, stream);
  operation.is_send = true;
  return put(operation, comm);
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return put(describe(Call::message, nullptr, recvbuff, count, type, peer, stream), comm);
}

ncclResult_t ncclGroupStart() {
  ++standin::group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  standin::Group &group = standin::group;
  if (group.depth == 0) {
    standin::set_last_error("ncclGroupEnd: not in a group call.");
    return ncclInvalidUsage;
  }
  if (--group.depth > 0) return ncclSuccess;
  standin::Group ended;
  std::swap(ended, group);
  ncclResult_t result = ended.error;
  for (const auto &communicator : ended.joins) {
    const ncclResult_t joined = communicator->wait_for_worker();
    if (result == ncclSuccess) result = joined;
  }
  return result == ncclSuccess ? standin::launch_all(std::move(ended.operations)) : result;
}

// ---- 2.19 -----------------------------------------------------------------------------------------------------------

ncclResult_t ncclMemAlloc(void **pointer, size_t bytes) {
  CUdeviceptr memory = 0;
  if (!pointer || !standin::driver()) return ncclInvalidArgument;
  if (bytes == 0) return ncclSuccess;
  if (standin::driver()->memory_allocate(&memory, bytes) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  *pointer = reinterpret_cast<void *>(memory);
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void *pointer) {
  if (!pointer) return ncclSuccess;
  if (!standin::driver()) return ncclInvalidArgument;
  return standin::driver()->memory_free(reinterpret_cast<CUdeviceptr>(pointer)) == CUDA_SUCCESS
             ? ncclSuccess : ncclUnhandledCudaError;
}

static ncclResult_t register_buffer(ncclComm_t comm, void *buffer, size_t bytes, void **handle) {
  const auto communicator = find(comm);
  if (!communicator || !handle || !buffer || bytes == 0) return ncclInvalidArgument;
  const ncclResult_t result = communicator->ready();
  if (result != ncclSuccess) return result;
  static std::atomic<uintptr_t> next{0};
  *handle = reinterpret_cast<void *>(++next * 64);  // as pointers look
  comm->buffers[*handle] = bytes;
  return ncclSuccess;
}

static ncclResult_t deregister_buffer(ncclComm_t comm, void *handle) {
  if (!find(comm)) return ncclInvalidArgument;
  if (comm->buffers.erase(handle) == 0) {
    standin::set_last_error("this handle is not of a registered buffer");
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **handle) {
  return register_buffer(comm, buffer, bytes, handle);
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) { return deregister_buffer(comm, handle); }

// ---- 2.27 -----------------------------------------------------------------------------------------------------------

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags) {
  if (reinterpret_cast<uintptr_t>(buffer) % 4096 != 0 || (flags & ~1) != 0) return ncclInvalidArgument;
  return register_buffer(comm, buffer, bytes, reinterpret_cast<void **>(window));
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return deregister_buffer(comm, window);
}

}  // extern "C"
