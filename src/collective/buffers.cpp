// SPDX-License-Identifier: Apache-2.0
// Memory of mxs_comm_allocate: a shared region per buffer, or a plain one without local peers.
#include <algorithm>

#include "base/arithmetic.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "collective/device_comm.hpp"

namespace mxs {

namespace {

mxs_status share_alone(uint64_t bytes, const char *name, SharedRegion *region) {
  SharedRegion alone;
  alone.files.resize(1);
  alone.mappings.resize(1);
  mxs_status status = create_file(&alone.files[0], bytes, name);
  if (status == MXS_OK) status = map_file(&alone.mappings[0], alone.files[0].get(), bytes, true);
  if (status == MXS_OK) *region = std::move(alone);
  return status;
}

mxs_status make_buffer(Comm &comm, SharedBuffer *buffer) {
  buffer->local_rank = comm.local_place();
  const mxs_status status = comm.share(buffer->bytes, "matrixshard-buffer", &buffer->region);
  return status == MXS_OK ? touch(buffer->region.at(buffer->local_rank), {{0, buffer->bytes}}, nullptr) : status;
}

}  // namespace

// A peer that is dead, or doesn't come in time, fails the comm: what it may still send would be taken for its part of
// the next sharing.
mxs_status Comm::share(uint64_t bytes, const char *name, SharedRegion *region) {
  const mxs_status status = domain ? domain->share(bytes, name, region) : share_alone(bytes, name, region);
  return status == MXS_TIMED_OUT || status == MXS_PEER_FAILED ? fail(status) : status;
}

// A rank whose arguments are bad compares all the same, so that others are told. And one that has no memory must not
// leave others with a buffer that it doesn't know.
mxs_status Comm::allocate(uint64_t bytes, mxs_memory_kind kind, void **memory) {
  const uint64_t hash = Fingerprint().add(bytes).add(static_cast<uint64_t>(kind)).value();
  mxs_status status = compare_over_ranks(*this, hash, "mxs_comm_allocate");
  if (kind != MXS_HOST && kind != MXS_CUDA)
    return set_error(MXS_INVALID_ARGUMENT, "kind is %d, not MXS_HOST or MXS_CUDA", kind);
  if (bytes == 0 || bytes > bytes_max)
    return set_error(MXS_INVALID_ARGUMENT, "bytes is %llu, not from 1 to 2^62", static_cast<unsigned long long>(bytes));
  if (status != MXS_OK) return status;
  if (kind == MXS_CUDA) {
    status = open_device(*this);
    if (status != MXS_OK) return status;
    void *made = nullptr;
    const mxs_status own = fenced([&] { return device()->allocate(bytes, &made); });
    status = settle_over_ranks(*this, own, "mxs_comm_allocate in CUDA memory");
    if (status != MXS_OK && made) device()->free(made);
    if (status == MXS_OK) *memory = made;
    return status;
  }
  auto buffer = std::make_unique<SharedBuffer>();
  buffer->bytes = bytes;
  const mxs_status own = fenced([&] { return make_buffer(*this, buffer.get()); });
  std::vector<mxs_status> outcomes(static_cast<size_t>(rank_count));
  const std::string sentence = last_error_text();
  status = agree(&own, outcomes.data(), sizeof own, 0);
  if (status != MXS_OK) return status;
  if (own != MXS_OK) return set_error(own, "%s", sentence.c_str());
  for (int other = 0; other < rank_count; ++other)
    if (outcomes[static_cast<size_t>(other)] != MXS_OK)
      return set_error(outcomes[static_cast<size_t>(other)], "rank %d could not get its buffer of %llu bytes", other,
                       static_cast<unsigned long long>(bytes));
  *memory = buffer->region.at(buffer->local_rank);
  buffer->number = ++buffers_made;
  buffers.push_back(std::move(buffer));
  return MXS_OK;
}

mxs_status Comm::free(void *memory) {
  const auto found = std::find_if(buffers.begin(), buffers.end(), [&](const auto &buffer) {
    return buffer->region.at(buffer->local_rank) == memory;
  });
  const bool on_device = device() && device()->owns(memory);
  if (found == buffers.end() && !on_device)
    return set_error(MXS_INVALID_ARGUMENT, "memory %p is not from mxs_comm_allocate of this comm (rank %d)", memory,
                     rank);
  // An operation would go on reading or writing where nothing is mapped. After a failure none is advanced any more, and
  // check waits for the end of what another thread is at.
  if (failed()) {
    static_cast<void>(check());
  } else {
    bool in_flight = false;
    if (look_for_operations(&in_flight) == MXS_OK && in_flight)
      return set_error(MXS_HELD, "rank %d: operations are in flight, which may use the memory at %p; wait for them "
                       "first", rank, memory);
  }
  if (on_device) device()->free(memory);
  else buffers.erase(found);
  return MXS_OK;
}

const SharedBuffer *Comm::buffer_of(const void *memory, uint64_t bytes) const {
  const auto *begin = static_cast<const std::byte *>(memory);
  for (const std::unique_ptr<SharedBuffer> &buffer : buffers) {
    const std::byte *base = buffer->region.at(buffer->local_rank);
    if (begin >= base && bytes <= buffer->bytes && static_cast<uint64_t>(begin - base) <= buffer->bytes - bytes)
      return buffer.get();
  }
  return nullptr;
}

}  // namespace mxs
