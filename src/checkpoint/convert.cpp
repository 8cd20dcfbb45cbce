// SPDX-License-Identifier: Apache-2.0
// Block by block, so that numbers in between are in the first cache. f64 to 16 bits goes through an f32 that keeps, in
// its last bit, whether anything was cut off ("round to odd"): the second rounding then sees what the first one did,
// and the two together are one rounding. That needs two bits more than the target has; f32 has 13 or more.
#include "checkpoint/convert.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/dtype.hpp"
#include "kernels/kernels.hpp"

namespace mxs {

namespace {

constexpr size_t block_numbers = 1024;

bool is_real(mxs_dtype dtype) {
  return dtype == MXS_F32 || dtype == MXS_BF16 || dtype == MXS_F16 || dtype == MXS_F64;
}

float odd_from_double(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  // Away from zero, infinity included: one back is what cutting off gives.
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

void from_f64(void *target, mxs_dtype to, const double *source, size_t count) {
  if (to == MXS_F32) {
    float *const floats = static_cast<float *>(target);
    for (size_t i = 0; i < count; ++i) floats[i] = static_cast<float>(source[i]);
    return;
  }
  float floats[block_numbers];
  for (size_t i = 0; i < count; ++i) floats[i] = odd_from_double(source[i]);
  kernels().narrow(target, to, floats, count);
}

void convert_block(void *target, mxs_dtype to, const std::byte *source, mxs_dtype from, size_t count) {
  if (from == MXS_F64) return from_f64(target, to, reinterpret_cast<const double *>(source), count);
  if (from != MXS_F32 && to == MXS_F32) return kernels().widen(static_cast<float *>(target), source, from, count);
  float widened[block_numbers];
  const float *floats = widened;
  if (from == MXS_F32)
    floats = reinterpret_cast<const float *>(source);
  else
    kernels().widen(widened, source, from, count);
  if (to != MXS_F64) return kernels().narrow(target, to, floats, count);
  double *const doubles = static_cast<double *>(target);
  for (size_t i = 0; i < count; ++i) doubles[i] = static_cast<double>(floats[i]);
}

}  // namespace

bool can_convert(mxs_dtype from, mxs_dtype to) { return is_real(from) && is_real(to); }

void convert(void *target, mxs_dtype to, const void *source, mxs_dtype from, size_t count) {
  const size_t from_bytes = dtype_bytes(from), to_bytes = dtype_bytes(to);
  if (from == to) {
    if (count) std::memcpy(target, source, count * from_bytes);
    return;
  }
  assert(can_convert(from, to));
  alignas(64) std::byte aligned[block_numbers * sizeof(double)];
  const std::byte *next = static_cast<const std::byte *>(source);
  std::byte *place = static_cast<std::byte *>(target);
  for (size_t left = count; left > 0;) {
    const size_t numbers = std::min(left, block_numbers);
    std::memcpy(aligned, next, numbers * from_bytes);
    convert_block(place, to, aligned, from, numbers);
    next += numbers * from_bytes, place += numbers * to_bytes, left -= numbers;
  }
}

}  // namespace mxs
