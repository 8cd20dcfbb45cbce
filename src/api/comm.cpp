// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/comm.h"

#include <algorithm>
#include <memory>

#include "api/door.hpp"
#include "api/values.hpp"
#include "collective/comm.hpp"
#include "collective/device_comm.hpp"

using namespace mxs;

static_assert(sizeof(mxs_bootstrap) == 48, "part of the ABI");
static_assert(sizeof(mxs_comm_options) == 56, "part of the ABI");
static_assert(sizeof(mxs_comm_info) == 72, "part of the ABI");
static_assert(sizeof(mxs_counter) == 32, "part of the ABI");
static_assert(sizeof(mxs_comm_stats) == 528, "part of the ABI");

namespace {

constexpr uint64_t sum_count_max = 64;
// Of the first form.
constexpr size_t options_bytes_least = 32, info_bytes_least = 56;

mxs_status no_comm() { return set_error(MXS_INVALID_ARGUMENT, "comm is NULL"); }

mxs_status open_door(mxs_comm *comm, const mxs_call *given, mxs_call *call) {
  if (!comm) return no_comm();
  const mxs_status status = read_call(given, call);
  return status == MXS_OK ? comm->check() : status;
}

template <class Number>
mxs_status sum(mxs_comm *comm, Number *numbers, const char *name, uint64_t count, const mxs_call *given) {
  mxs_call call = MXS_CALL_INIT;
  const mxs_status status = open_door(comm, given, &call);
  if (status != MXS_OK) return status;
  if (!numbers) return set_error(MXS_INVALID_ARGUMENT, "%s is NULL", name);
  if (count < 1 || count > sum_count_max)
    return set_error(MXS_INVALID_ARGUMENT, "count is %llu, not from 1 to %llu",
                     static_cast<unsigned long long>(count), static_cast<unsigned long long>(sum_count_max));
  return comm->sum(numbers, count, call.timeout_ns);
}

mxs_status check_request(const mxs_comm *comm, mxs_request request) {
  if (request <= comm->queue.last()) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "request is %llu, but only %llu operations have been started",
                   static_cast<unsigned long long>(request), static_cast<unsigned long long>(comm->queue.last()));
}

}  // namespace

mxs_status mxs_comm_create(mxs_comm **comm, const mxs_comm_options *given) {
  return fenced([&]() -> mxs_status {
    if (!comm) return set_error(MXS_INVALID_ARGUMENT, "comm is NULL");
    mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
    mxs_status status = read_struct(given, options_bytes_least, "options", &options);
    if (status != MXS_OK) return status;
    mxs_bootstrap bootstrap = MXS_BOOTSTRAP_INIT;
    status = read_struct(options.bootstrap, sizeof(mxs_bootstrap), "options.bootstrap", &bootstrap);
    if (status != MXS_OK) return status;
    if (options.bootstrap) options.bootstrap = &bootstrap;
    std::unique_ptr<Comm> made;
    status = create_comm(&made, options);
    if (status == MXS_OK) *comm = static_cast<mxs_comm *>(made.release());
    return status;
  });
}

mxs_status mxs_comm_split(mxs_comm **comm, mxs_comm *parent, int32_t color, int32_t key,
                          const mxs_comm_options *given) {
  return fenced([&]() -> mxs_status {
    if (!parent) return set_error(MXS_INVALID_ARGUMENT, "parent is NULL");
    mxs_status status = parent->check();
    if (status != MXS_OK) return status;
    mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
    status = read_struct(given, options_bytes_least, "options", &options);
    if (!comm) status = set_error(MXS_INVALID_ARGUMENT, "comm is NULL");
    if (status != MXS_OK) return refuse_split(*parent, status);
    std::unique_ptr<Comm> made;
    status = split_comm(&made, *parent, color, key, options);
    if (status == MXS_OK) *comm = static_cast<mxs_comm *>(made.release());
    return status;
  });
}

mxs_status mxs_comm_shrink(mxs_comm **comm, mxs_comm *failed, const mxs_comm_options *given) {
  return fenced([&]() -> mxs_status {
    if (!comm) return no_comm();
    if (!failed) return set_error(MXS_INVALID_ARGUMENT, "failed is NULL");
    mxs_status status = failed->check_process();
    mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
    if (status == MXS_OK) status = read_struct(given, options_bytes_least, "options", &options);
    std::unique_ptr<Comm> made;
    if (status == MXS_OK) status = shrink_comm(&made, *failed, options);
    if (status == MXS_OK) *comm = static_cast<mxs_comm *>(made.release());
    return status;
  });
}

mxs_status mxs_comm_origin(const mxs_comm *comm, int32_t rank, int32_t *origin) {
  return fenced([&]() -> mxs_status {
    if (!comm) return no_comm();
    if (!origin) return set_error(MXS_INVALID_ARGUMENT, "origin is NULL");
    if (rank < 0 || rank >= comm->rank_count)
      return set_error(MXS_INVALID_ARGUMENT, "rank is %d, but the comm has %d ranks", rank, comm->rank_count);
    *origin = comm->origins.empty() ? rank : comm->origins[static_cast<size_t>(rank)];
    return MXS_OK;
  });
}

mxs_status mxs_comm_destroy(mxs_comm **comm) {
  return fenced([&]() -> mxs_status {
    if (!comm || !*comm) return MXS_OK;
    // In a forked child the memory is a copy, but connections and links are the parent's.
    const mxs_status status = (*comm)->check_process();
    if (status != MXS_OK) return status;
    const int children = (*comm)->children.load(std::memory_order_acquire);
    const DeviceComm *const device = (*comm)->device();
    const size_t buffers = (*comm)->buffers.size() + (device ? static_cast<size_t>(device->buffer_count()) : 0);
    if (children > 0 || buffers > 0)
      return set_error(MXS_HELD, "rank %d: %d units, collectives or optimizers and %zu buffers of this comm are still "
                       "there; destroy them first", (*comm)->rank, children, buffers);
    delete *comm;
    *comm = nullptr;
    return MXS_OK;
  });
}

mxs_status mxs_comm_query(const mxs_comm *comm, mxs_comm_info *info) {
  return fenced([&]() -> mxs_status {
    if (!comm) return no_comm();
    const mxs_status status = check_out_struct(info, info_bytes_least, "info");
    if (status != MXS_OK) return status;
    const RankPlace &place = comm->topology.ranks[static_cast<size_t>(comm->rank)];
    mxs_comm_info result = MXS_COMM_INFO_INIT;
    result.rank = comm->rank;
    result.rank_count = comm->rank_count;
    result.node = place.node;
    result.node_count = comm->topology.node_count();
    result.local_rank = place.local_rank;
    result.local_rank_count = comm->topology.node(place.node).rank_count();
    result.thread_count = comm->thread_count;
    result.timeout_ns = comm->timeout_ns;
    result.transports = comm->transports.c_str();
    const DeviceComm *const device = comm->device();
    result.device = device ? MXS_DEVICE(device->device().info().index) : 0;
    result.cuda = device ? device->describe() : "";
    result.bootstrap = comm->bootstrap->name();
    result.progress = comm->has_thread() ? MXS_PROGRESS_THREAD : MXS_PROGRESS_MANUAL;
    write_struct(result, info);
    return MXS_OK;
  });
}

mxs_status mxs_comm_topology(const mxs_comm *comm, mxs_topology **topology) {
  return fenced([&]() -> mxs_status {
    if (!comm) return no_comm();
    if (!topology) return set_error(MXS_INVALID_ARGUMENT, "topology is NULL");
    *topology = std::make_unique<mxs_topology>(mxs_topology{comm->topology}).release();
    return MXS_OK;
  });
}

mxs_status mxs_comm_barrier(mxs_comm *comm, const mxs_call *given) {
  return fenced([&]() -> mxs_status {
    mxs_call call = MXS_CALL_INIT;
    const mxs_status status = open_door(comm, given, &call);
    if (status != MXS_OK) return status;
    return comm->barrier(call.timeout_ns);
  });
}

mxs_status mxs_comm_sum(mxs_comm *comm, double *values, uint64_t count, const mxs_call *call) {
  return fenced([&] { return sum(comm, values, "values", count, call); });
}

mxs_status mxs_comm_sum_words(mxs_comm *comm, int64_t *words, uint64_t count, const mxs_call *call) {
  return fenced([&] { return sum(comm, words, "words", count, call); });
}

mxs_status mxs_comm_test(mxs_comm *comm, mxs_request request) {
  return fenced([&]() -> mxs_status {
    if (!comm) return no_comm();
    mxs_status status = check_request(comm, request);
    if (status == MXS_OK) status = comm->check();
    if (status == MXS_OK && !comm->queue.complete(request)) status = comm->progress();
    if (status == MXS_OK && !comm->queue.complete(request)) status = comm->look_now_and_then();
    if (status != MXS_OK) return status;
    return comm->queue.complete(request) ? MXS_OK : MXS_IN_PROGRESS;
  });
}

mxs_status mxs_comm_wait(mxs_comm *comm, mxs_request request, const mxs_call *given) {
  return fenced([&]() -> mxs_status {
    mxs_call call = MXS_CALL_INIT;
    mxs_status status = open_door(comm, given, &call);
    if (status == MXS_OK) status = check_request(comm, request);
    if (status != MXS_OK) return status;
    return comm->wait(request, call.timeout_ns, comm->queue.describe(request).kind);
  });
}

mxs_status mxs_comm_abort(mxs_comm *comm, const char *reason) {
  return fenced([&]() -> mxs_status {
    if (!comm) return no_comm();
    const mxs_status status = comm->check();
    if (status != MXS_OK) return status == MXS_FORKED ? status : MXS_OK;  // failed already: the first reason stays
    comm->fail(set_error(MXS_ABORTED, "the comm was aborted%s%.400s", reason ? ": " : "", reason ? reason : ""));
    return MXS_OK;
  });
}

mxs_status mxs_comm_phase(mxs_comm *comm, int32_t phase) {
  return fenced([&]() -> mxs_status {
    if (!comm) return no_comm();
    if (phase < 0 || phase >= MXS_PHASE_COUNT)
      return set_error(MXS_INVALID_ARGUMENT, "phase is %d, not from 0 to %d", phase, MXS_PHASE_COUNT - 1);
    comm->phase.store(phase, std::memory_order_relaxed);
    comm->mark("phase");
    return MXS_OK;
  });
}

mxs_status mxs_comm_query_stats(const mxs_comm *comm, mxs_comm_stats *stats) {
  return fenced([&]() -> mxs_status {
    if (!comm) return no_comm();
    const mxs_status status = check_out_struct(stats, sizeof(mxs_comm_stats), "stats");
    if (status != MXS_OK) return status;
    mxs_comm_stats result = MXS_COMM_STATS_INIT;
    for (size_t kind = 0; kind < MXS_COLLECTIVE_COUNT; ++kind)
      for (size_t phase = 0; phase < MXS_PHASE_COUNT; ++phase) {
        const Comm::Counter &counter = comm->counters[kind][phase];
        result.counters[kind][phase] = {counter.calls.load(std::memory_order_relaxed),
                                        counter.bytes_out.load(std::memory_order_relaxed),
                                        counter.bytes_in.load(std::memory_order_relaxed),
                                        counter.wait_ns.load(std::memory_order_relaxed)};
      }
    result.slot_remaps = comm->slot_remaps.load(std::memory_order_relaxed);
    write_struct(result, stats);
    return MXS_OK;
  });
}

mxs_status mxs_comm_reset_stats(mxs_comm *comm) {
  return fenced([&]() -> mxs_status {
    if (!comm) return no_comm();
    for (auto &phases : comm->counters)
      for (Comm::Counter &counter : phases)
        for (std::atomic<uint64_t> *value : {&counter.calls, &counter.bytes_out, &counter.bytes_in, &counter.wait_ns})
          value->store(0, std::memory_order_relaxed);
    comm->slot_remaps.store(0, std::memory_order_relaxed);
    return MXS_OK;
  });
}

mxs_status mxs_comm_allocate(mxs_comm *comm, uint64_t bytes, mxs_memory_kind kind, void **memory) {
  return fenced([&]() -> mxs_status {
    if (!comm) return no_comm();
    if (!memory) return set_error(MXS_INVALID_ARGUMENT, "memory is NULL");
    const mxs_status status = comm->check();
    return status == MXS_OK ? comm->allocate(bytes, kind, memory) : status;
  });
}

mxs_status mxs_comm_free(mxs_comm *comm, void *memory) {
  return fenced([&]() -> mxs_status {
    if (!comm) return no_comm();
    if (!memory) return MXS_OK;
    const mxs_status status = comm->check_process();
    return status == MXS_OK ? comm->free(memory) : status;
  });
}
