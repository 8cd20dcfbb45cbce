// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/collective.h"

#include <memory>

#include "api/door.hpp"
#include "api/values.hpp"
#include "collective/collective.hpp"
#include "collective/comm.hpp"
#include "collective/simulation.hpp"

using namespace mxs;

static_assert(sizeof(mxs_collective_options) == 56, "part of the ABI");
static_assert(sizeof(mxs_simulation) == 72, "part of the ABI");
static_assert(sizeof(mxs_collective_info) == 112, "part of the ABI");

namespace {

constexpr size_t info_least = 72;  // up to bytes_in_least

mxs_status no_collective() { return set_error(MXS_INVALID_ARGUMENT, "collective is NULL"); }

mxs_status check_options(const mxs_collective_options &options) {
  if (options.kind != MXS_GATHER && options.kind != MXS_REDUCE && options.kind != MXS_RESHARD)
    return set_error(MXS_INVALID_ARGUMENT, "options.kind is %d, not MXS_GATHER, MXS_REDUCE or MXS_RESHARD",
                     options.kind);
  if (!options.layout) return set_error(MXS_INVALID_ARGUMENT, "options.layout is NULL");
  if ((options.kind == MXS_RESHARD) != (options.target_layout != nullptr))
    return set_error(MXS_INVALID_ARGUMENT, options.target_layout
                                               ? "options.target_layout is given, but only a reshard has one"
                                               : "options.target_layout is NULL, but a reshard needs one");
  const int32_t allowed = options.kind == MXS_REDUCE   ? MXS_RANK_ORDER | MXS_ACCUMULATE | MXS_MAPPED_MEMORY
                          : options.kind == MXS_GATHER ? MXS_MAPPED_MEMORY
                                                       : 0;
  if (options.flags & ~allowed)
    return set_error(MXS_INVALID_ARGUMENT, "options.flags is %#x; a gather can have MXS_MAPPED_MEMORY, a reduce that, "
                     "MXS_RANK_ORDER and MXS_ACCUMULATE", static_cast<unsigned>(options.flags));
  if (options.memory != MXS_HOST && options.memory != MXS_CUDA)
    return set_error(MXS_INVALID_ARGUMENT, "options.memory is %d, not MXS_HOST or MXS_CUDA", options.memory);
  const bool chosen = options.algorithm || options.chunk_bytes || options.window || options.flags & MXS_MAPPED_MEMORY;
  if (options.memory == MXS_CUDA && chosen)
    return set_error(MXS_INVALID_ARGUMENT, "options.memory is MXS_CUDA, which goes without algorithm, chunk_bytes, "
                     "window and MXS_MAPPED_MEMORY: the route is chosen for the comm (MXS_ROUTE)");
  return MXS_OK;
}

CollectiveOptions inner_options(const mxs_collective_options &options) {
  CollectiveOptions inner;
  inner.messages.kind = options.kind;
  inner.messages.layout = &options.layout->value;
  inner.messages.target_layout = options.target_layout ? &options.target_layout->value : nullptr;
  inner.messages.dtype = options.dtype;
  inner.messages.rank_order = options.flags & MXS_RANK_ORDER;
  inner.messages.accumulate = options.flags & MXS_ACCUMULATE;
  inner.messages.chunk_bytes = options.chunk_bytes;
  inner.messages.window = options.window;
  inner.algorithm = options.algorithm;
  inner.mapped_memory = options.flags & MXS_MAPPED_MEMORY;
  inner.on_device = options.memory == MXS_CUDA;
  return inner;
}

}  // namespace

mxs_status mxs_collective_create(mxs_collective **collective, mxs_comm *comm, const mxs_collective_options *given) {
  return fenced([&]() -> mxs_status {
    if (!collective) return no_collective();
    if (!comm) return set_error(MXS_INVALID_ARGUMENT, "comm is NULL");
    mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
    mxs_status status = read_struct(given, sizeof(mxs_collective_options), "options", &options);
    if (!given) status = set_error(MXS_INVALID_ARGUMENT, "options is NULL");
    if (status == MXS_OK) status = check_options(options);
    if (status != MXS_OK) return refuse_collective(*comm, status);
    auto handle = std::make_unique<mxs_collective>();
    status = create_collective(&handle->inner, *comm, inner_options(options));
    if (status == MXS_OK) *collective = handle.release();
    return status;
  });
}

mxs_status mxs_collective_destroy(mxs_collective **collective) {
  return fenced([&]() -> mxs_status {
    if (!collective || !*collective) return MXS_OK;
    Collective &inner = *(*collective)->inner;
    mxs_status status = inner.comm().check();
    if (status == MXS_FORKED) return status;
    // A stream's wait doesn't tell that it is over. Twice: the comm's thread may be in the way of the first look.
    bool some_in_flight = false;
    for (int look = 0; look < 2 && status == MXS_OK && inner.on_device() && inner.in_flight(); ++look)
      status = inner.comm().look_for_operations(&some_in_flight);
    if (status == MXS_OK && inner.in_flight())
      return set_error(MXS_HELD, "rank %d: the collective is still in flight; wait for it first", inner.comm().rank);
    delete *collective;
    *collective = nullptr;
    return MXS_OK;
  });
}

mxs_status mxs_collective_start(mxs_collective *collective, const void *source, void *target, const mxs_call *given) {
  return fenced([&]() -> mxs_status {
    if (!collective) return no_collective();
    mxs_call call = MXS_CALL_INIT;
    mxs_status status = read_call(given, &call, collective->inner->on_device());
    if (status != MXS_OK) return status;
    uint64_t request = 0;
    status = collective->inner->start(source, target, call.priority, &request, call.stream);
    if (status == MXS_OK && call.request_out) *call.request_out = request;
    return status;
  });
}

mxs_status mxs_collective_wait(mxs_collective *collective, const mxs_call *given) {
  return fenced([&]() -> mxs_status {
    if (!collective) return no_collective();
    mxs_call call = MXS_CALL_INIT;
    const mxs_status status = read_call(given, &call, collective->inner->on_device());
    return status == MXS_OK ? collective->inner->wait(call.timeout_ns, call.stream) : status;
  });
}

mxs_status mxs_collective_describe(const mxs_collective *collective, mxs_collective_info *info) {
  return fenced([&]() -> mxs_status {
    if (!collective) return no_collective();
    const mxs_status status = check_out_struct(info, info_least, "info");
    if (status == MXS_OK) write_struct(collective->inner->describe(), info);
    return status;
  });
}

mxs_status mxs_simulate(const mxs_topology *topology, const mxs_collective_options *given, mxs_simulation *result) {
  return fenced([&]() -> mxs_status {
    if (!topology) return set_error(MXS_INVALID_ARGUMENT, "topology is NULL");
    if (!given) return set_error(MXS_INVALID_ARGUMENT, "options is NULL");
    mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
    mxs_status status = read_struct(given, sizeof(mxs_collective_options), "options", &options);
    if (status == MXS_OK) status = check_options(options);
    if (status == MXS_OK && options.memory == MXS_CUDA)
      status = set_error(MXS_INVALID_ARGUMENT, "options.memory is MXS_CUDA, but messages in host memory are simulated");
    if (status == MXS_OK) status = check_out_struct(result, sizeof(mxs_simulation), "result");
    mxs_simulation found = MXS_SIMULATION_INIT;
    if (status != MXS_OK) return status;
    const CollectiveOptions inner = inner_options(options);
    status = simulate_collective(topology->value, inner.messages, inner.algorithm, &found);
    if (status == MXS_OK) write_struct(found, result);
    return status;
  });
}
