// SPDX-License-Identifier: Apache-2.0
// What every function at the door needs: structs and arrays of structs in, structs out, calls.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/status.hpp"
#include "matrixshard/types.h"

namespace mxs {

// Reads a caller's struct of possibly another version: missing fields keep `defaults`, unknown ones must be zero.
// `least` is the size that the struct had when it was released first.
template <class Struct>
mxs_status read_struct(const Struct *given, size_t least, const char *name, Struct *result) {
  if (!given) return MXS_OK;  // *result holds the defaults already
  const size_t size = given->size;
  // No release cut a pointer in half; but the first may have had none.
  if (size < least || size > 4096 || (size != least && size % alignof(Struct) != 0))
    return set_error(MXS_INVALID_ARGUMENT, "%s.size is %zu; set it by its INIT macro", name, size);
  if (size > sizeof(Struct)) {
    const char *bytes = reinterpret_cast<const char *>(given);
    if (std::any_of(bytes + sizeof(Struct), bytes + size, [](char byte) { return byte != 0; }))
      return set_error(MXS_INVALID_ARGUMENT, "%s has fields that this release (%s) doesn't know", name,
                       mxs_version_text());
  }
  std::memcpy(static_cast<void *>(result), given, std::min(size, sizeof(Struct)));
  result->size = sizeof(Struct);
  return MXS_OK;
}

// Steps through a caller's array by the size of its first element: use(element) gets each in this release's form, which
// begins as `defaults`.
template <class Struct, class Use>
mxs_status read_array(const Struct *given, uint64_t count, uint64_t count_max, size_t least, const char *name,
                      const Struct &defaults, Use &&use) {
  if (count == 0) return MXS_OK;
  if (!given) return set_error(MXS_INVALID_ARGUMENT, "%s is NULL, but its count is %" PRIu64, name, count);
  if (count > count_max)
    return set_error(MXS_INVALID_ARGUMENT, "the count of %s is %" PRIu64 ", more than %" PRIu64, name, count,
                     count_max);
  const size_t stride = given->size;
  const char *place = reinterpret_cast<const char *>(given);
  for (uint64_t index = 0; index < count; ++index, place += stride) {
    const auto *element = reinterpret_cast<const Struct *>(place);
    if (element->size != stride)
      return set_error(MXS_INVALID_ARGUMENT, "%s[%" PRIu64 "].size is %u, but that of the first is %zu", name, index,
                       element->size, stride);
    Struct read = defaults;
    const mxs_status status = read_struct(element, least, name, &read);
    if (status != MXS_OK) return status;
    use(read);
  }
  return MXS_OK;
}

// Is an out struct there, and of a size that it ever had? Call before work, so that a failure changes nothing.
template <class Struct>
mxs_status check_out_struct(const Struct *out, size_t least, const char *name) {
  if (!out) return set_error(MXS_INVALID_ARGUMENT, "%s is NULL", name);
  if (out->size < least || out->size > 4096 || out->size % alignof(Struct) != 0)
    return set_error(MXS_INVALID_ARGUMENT, "%s->size is %u; set it by its INIT macro", name, out->size);
  return MXS_OK;
}

// Writes no more than the caller's size, which stays.
template <class Struct>
void write_struct(const Struct &value, Struct *out) {
  const uint32_t size = out->size;
  std::memcpy(static_cast<void *>(out), &value, std::min<size_t>(size, sizeof(Struct)));
  out->size = size;
}

// Writes the first of `count` values into a caller's array, stepping by the size of its first element; make(index)
// gives each in this release's form. All sizes are checked before anything is written.
template <class Struct, class Make>
mxs_status write_array(Struct *out, uint64_t capacity, uint64_t count, size_t least, const char *name, Make &&make) {
  if (capacity == 0) return MXS_OK;
  if (!out) return set_error(MXS_INVALID_ARGUMENT, "%s is NULL, but its capacity is %" PRIu64, name, capacity);
  const uint64_t written = std::min(capacity, count);
  if (written == 0) return MXS_OK;
  const mxs_status status = check_out_struct(out, least, name);
  if (status != MXS_OK) return status;
  const size_t stride = out->size;
  const auto place = [&](uint64_t index) {
    return reinterpret_cast<Struct *>(reinterpret_cast<char *>(out) + index * stride);
  };
  for (uint64_t index = 1; index < written; ++index)
    if (place(index)->size != stride)
      return set_error(MXS_INVALID_ARGUMENT, "%s[%" PRIu64 "].size is %u, but that of the first is %zu", name, index,
                       place(index)->size, stride);
  for (uint64_t index = 0; index < written; ++index) write_struct(make(index), place(index));
  return MXS_OK;
}

inline mxs_status read_call(const mxs_call *given, mxs_call *result, bool on_device = false) {
  const mxs_status status = read_struct(given, sizeof(mxs_call), "call", result);
  if (status != MXS_OK) return status;
  if (result->stream && !on_device)
    return set_error(MXS_INVALID_ARGUMENT, "call.stream is set, but a stream orders CUDA memory alone, and this is "
                     "not; pass NULL");
  return MXS_OK;
}

}  // namespace mxs
