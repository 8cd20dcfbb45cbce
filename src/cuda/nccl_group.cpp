// SPDX-License-Identifier: Apache-2.0
// NcclGroup: DeviceGroup over one NCCL communicator.
//
// The communicator does not block: what NCCL has not finished when a call returns (ncclInProgress) is polled, so that
// the host never hangs inside NCCL, and an abort from another thread finds nobody there. What a call enqueues is on its
// stream when it returns.
#include "cuda/nccl_group.hpp"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstring>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "cuda/nccl.hpp"
#include "cuda/nccl_call.hpp"
#include "cuda/nccl_end.hpp"

namespace mxs {

namespace {

int type_of(mxs_dtype dtype) {
  switch (dtype) {
    case MXS_F32: return nccl_f32;
    case MXS_BF16: return nccl_bf16;
    case MXS_F16: return nccl_f16;
    case MXS_F64: return nccl_f64;
    case MXS_U8: return nccl_u8;
    default: return -1;
  }
}

}  // namespace

// ---- calls -----------------------------------------------------------------------------------------------------

template <class Body>
mxs_status NcclGroup::call(const char *name, Body &&body) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_aborted_) return set_error(MXS_ABORTED, "%s: the NCCL group of rank %d was aborted", name, rank_);
  const CurrentContext current(driver_, context_);
  if (current.result() != CUDA_SUCCESS)
    return driver_failed(driver_, current.result(), device_, "cuCtxPushCurrent");
  int result = body();
  if (result == nccl_in_progress) result = settle();
  if (result == nccl_success) return MXS_OK;
  if (result == ended_by_abort) return set_error(MXS_ABORTED, "%s: the NCCL group of rank %d was aborted", name, rank_);
  has_failed_ = true;
  if (result == ended_by_deadline)
    return set_error(MXS_TIMED_OUT, "%s: rank %d of %d on device %d: NCCL was still at it after %.1f s", name, rank_,
                     rank_count_, device_, static_cast<double>(timeout_ns_) * 1e-9);
  return failed(name, result);
}

// Until NCCL has put on streams what it was asked to.
int NcclGroup::settle() {
  Poll poll(timeout_ns_);
  for (;;) {
    int state = nccl_success;
    const int result = nccl_.comm_get_async_error(comm_, &state);
    if (result != nccl_success) return result;
    if (state != nccl_in_progress) return state;
    if (is_aborted_) return ended_by_abort;
    if (!poll.wait()) return ended_by_deadline;
  }
}

mxs_status NcclGroup::failed(const char *name, int result) {
  char where[160];
  std::snprintf(where, sizeof where, "%s: rank %d of %d on device %d", name, rank_, rank_count_, device_);
  return nccl_failed(nccl_, result, comm_, where);
}

// All of them in one group, which is ended whatever one of them says.
template <class Item, class Body>
int NcclGroup::grouped(const std::vector<Item> &items, Body &&body) {
  int first = nccl_success;
  for (const Item &item : items) {
    const int result = body(item);
    if (result != nccl_success && result != nccl_in_progress && first == nccl_success) first = result;
  }
  return first;
}

template <class Body>
int NcclGroup::group(Body &&body) {
  const int begun = nccl_.group_start();
  if (begun != nccl_success) return begun;
  const int inside = body();
  const int ended = nccl_.group_end();
  return inside != nccl_success ? inside : ended;
}

static mxs_status check_parts(const char *name, const std::vector<GroupPart> &parts, int rank_count) {
  for (const GroupPart &part : parts) {
    assert(part.root >= 0 && part.root < rank_count);
    if (type_of(part.dtype) < 0)
      return set_error(MXS_INVALID_ARGUMENT, "%s: NCCL has no type for dtype %d", name, static_cast<int>(part.dtype));
  }
  static_cast<void>(rank_count);
  return MXS_OK;
}

static bool has_elements(const std::vector<GroupPart> &parts) {
  return std::any_of(parts.begin(), parts.end(), [](const GroupPart &part) { return part.count != 0; });
}

mxs_status NcclGroup::broadcast(const std::vector<GroupPart> &parts, DeviceStream stream) {
  const mxs_status status = check_parts("ncclBroadcast", parts, rank_count_);
  if (status != MXS_OK || !has_elements(parts)) return status;
  return call("ncclBroadcast", [&] {
    return group([&] {
      return grouped(parts, [&](const GroupPart &part) {
        if (part.count == 0) return nccl_success;
        const void *const source = part.root == rank_ ? part.source : part.target;
        return nccl_.broadcast(source, part.target, part.count, type_of(part.dtype), part.root, comm_, stream);
      });
    });
  });
}

mxs_status NcclGroup::reduce(const std::vector<GroupPart> &parts, DeviceStream stream) {
  const mxs_status status = check_parts("ncclReduce", parts, rank_count_);
  if (status != MXS_OK || !has_elements(parts)) return status;
  return call("ncclReduce", [&] {
    return group([&] {
      return grouped(parts, [&](const GroupPart &part) {
        if (part.count == 0) return nccl_success;
        void *const target = part.root == rank_ ? part.target : nullptr;
        return nccl_.reduce(part.source, target, part.count, type_of(part.dtype), nccl_sum, part.root, comm_, stream);
      });
    });
  });
}

mxs_status NcclGroup::exchange(const std::vector<GroupMessage> &sends, const std::vector<GroupMessage> &receives,
                               DeviceStream stream) {
  const auto is_empty = [](const GroupMessage &message) { return message.bytes == 0; };
  if (std::all_of(sends.begin(), sends.end(), is_empty) && std::all_of(receives.begin(), receives.end(), is_empty))
    return MXS_OK;
  return call("ncclSend", [&] {
    return group([&] {
      const int sent = grouped(sends, [&](const GroupMessage &message) {
        if (message.bytes == 0) return nccl_success;
        return nccl_.send(message.data, message.bytes, nccl_u8, message.peer, comm_, stream);
      });
      const int received = grouped(receives, [&](const GroupMessage &message) {
        if (message.bytes == 0) return nccl_success;
        return nccl_.receive(message.data, message.bytes, nccl_u8, message.peer, comm_, stream);
      });
      return sent != nccl_success ? sent : received;
    });
  });
}

mxs_status NcclGroup::all_reduce(void *data, uint64_t count, int type, DeviceStream stream) {
  if (count == 0) return MXS_OK;
  return call("ncclAllReduce", [&] { return nccl_.all_reduce(data, data, count, type, nccl_sum, comm_, stream); });
}

mxs_status NcclGroup::sum(int64_t *words, uint64_t count, DeviceStream stream) {
  return all_reduce(words, count, nccl_i64, stream);
}
mxs_status NcclGroup::sum(float *values, uint64_t count, DeviceStream stream) {
  return all_reduce(values, count, nccl_f32, stream);
}

// While another thread is in a call, which may wait for peers inside NCCL, nobody is held up here: that call finds what
// there is.
mxs_status NcclGroup::check() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock) return MXS_OK;
  if (is_aborted_) return set_error(MXS_ABORTED, "the NCCL group of rank %d was aborted", rank_);
  int state = nccl_success;
  const int result = nccl_.comm_get_async_error(comm_, &state);
  const int found = result != nccl_success ? result : state;
  if (found == nccl_success || found == nccl_in_progress) return MXS_OK;
  has_failed_ = true;
  return failed("an asynchronous error of NCCL", found);
}

// ---- ends -------------------------------------------------------------------------------------------------------

// A call of ours that polls sees the flag and lets go of the lock; no other stays inside NCCL.
void NcclGroup::abort() {
  if (is_aborted_.exchange(true)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const CurrentContext current(driver_, context_);
  if (!is_borrowed_) {
    nccl_.comm_abort(comm_);
  } else if (nccl_.comm_revoke) {
    nccl_.comm_revoke(comm_, 0);
  } else {
    log_line(MXS_LOG_WARNING, "nccl: the ncclComm_t that was lent to rank %d has calls in flight that NCCL %s can't "
             "end without destroying it; they hang until its owner calls ncclCommAbort", rank_,
             nccl_version_text(nccl_.version).c_str());
  }
}

NcclGroup::~NcclGroup() {
  if (!is_aborted_) deregister_buffers();
  if (is_borrowed_ || is_aborted_) return;
  if (has_failed_) abort();
  else retire_nccl_comm(nccl_, driver_, context_, comm_);
}

// ---- buffers ------------------------------------------------------------------------------------------------------

mxs_status NcclGroup::register_buffer(void *data, uint64_t bytes) {
  if (!nccl_.comm_register || bytes == 0) return MXS_OK;
  void *handle = nullptr;
  const mxs_status status = call("ncclCommRegister", [&] { return nccl_.comm_register(comm_, data, bytes, &handle); });
  if (status == MXS_OK) buffers_.push_back(handle);
  return status;
}

void NcclGroup::deregister_buffers() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CurrentContext current(driver_, context_);
  // An aborted communicator has forgotten them.
  for (void *const handle : buffers_)
    if (!is_aborted_ || is_borrowed_) nccl_.comm_deregister(comm_, handle);
  buffers_.clear();
}

}  // namespace mxs
