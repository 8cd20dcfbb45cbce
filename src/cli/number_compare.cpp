// SPDX-License-Identifier: Apache-2.0
#include "cli/number_compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace mxs_cli {

namespace {

template <class Number>
double read_as(const std::byte *bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return static_cast<double>(number);
}

double read_bf16(const std::byte *bytes) {
  uint16_t half = 0;
  std::memcpy(&half, bytes, sizeof half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float number = 0;
  std::memcpy(&number, &bits, sizeof number);
  return static_cast<double>(number);
}

double read_f16(const std::byte *bytes) {
  uint16_t half = 0;
  std::memcpy(&half, bytes, sizeof half);
  const int exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
  const double magnitude = exponent == 0x1f ? (fraction ? std::nan("") : INFINITY)
                           : exponent == 0  ? std::ldexp(fraction, -24)
                                            : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

struct Dtype {
  const char *word;
  size_t bytes;
  NumberComparison::Read read;
};
// 64-bit integers from 2^53 on are rounded: their distances are right to 16 digits, whether they differ exactly.
constexpr Dtype dtypes[] = {
    {"F64", 8, read_as<double>},    {"F32", 4, read_as<float>},     {"F16", 2, read_f16},
    {"BF16", 2, read_bf16},         {"I64", 8, read_as<int64_t>},   {"I32", 4, read_as<int32_t>},
    {"I16", 2, read_as<int16_t>},   {"I8", 1, read_as<int8_t>},     {"U64", 8, read_as<uint64_t>},
    {"U32", 4, read_as<uint32_t>},  {"U16", 2, read_as<uint16_t>},  {"U8", 1, read_as<uint8_t>},
    {"BOOL", 1, read_as<uint8_t>},
};

const Dtype *find(const std::string &word) {
  const Dtype *const found =
      std::find_if(std::begin(dtypes), std::end(dtypes), [&](const Dtype &dtype) { return word == dtype.word; });
  return found == std::end(dtypes) ? nullptr : found;
}

constexpr uint64_t numbers_at_once = 16384;  // equal runs are found by memcmp, 64 KiB of fp32 at a time

}  // namespace

size_t number_bytes_of(const std::string &dtype_word) {
  const Dtype *const dtype = find(dtype_word);
  return dtype ? dtype->bytes : 0;
}

NumberComparison::NumberComparison(const std::string &a_dtype, size_t a_number_bytes, const std::string &b_dtype,
                                   size_t b_number_bytes)
    : a_bytes_(a_number_bytes), b_bytes_(b_number_bytes), same_dtype_(a_dtype == b_dtype) {
  const Dtype *const a = find(a_dtype), *const b = find(b_dtype);
  const bool known = a && b && a->bytes == a_bytes_ && b->bytes == b_bytes_;
  a_read_ = known ? a->read : nullptr;
  b_read_ = known ? b->read : nullptr;
  difference_.has_distance = known;
}

void NumberComparison::add(const std::byte *a, const std::byte *b, uint64_t number_count) {
  difference_.number_count += number_count;
  for (uint64_t first = 0; first < number_count; first += numbers_at_once) {
    const uint64_t count = std::min(numbers_at_once, number_count - first);
    const std::byte *const from_a = a + first * a_bytes_, *const from_b = b + first * b_bytes_;
    if (!same_dtype_ || std::memcmp(from_a, from_b, count * a_bytes_) != 0) add_different(from_a, from_b, count);
  }
}

void NumberComparison::add_different(const std::byte *a, const std::byte *b, uint64_t number_count) {
  for (uint64_t i = 0; i < number_count; ++i) {
    const std::byte *const one = a + i * a_bytes_, *const other = b + i * b_bytes_;
    if (!same_dtype_ || std::memcmp(one, other, a_bytes_) != 0) add_pair(one, other);
  }
}

void NumberComparison::add_pair(const std::byte *a, const std::byte *b) {
  if (!a_read_) {
    ++difference_.different_count;
    return;
  }
  const double one = a_read_(a), other = b_read_(b);
  if (!same_dtype_ && (one == other || (std::isnan(one) && std::isnan(other)))) return;
  ++difference_.different_count;
  if (std::isnan(one) || std::isnan(other)) {
    ++difference_.nan_count;
    return;
  }
  if (one == other) return;  // 0 and -0, and 64-bit integers that are equal as double
  const double distance = std::fabs(one - other), size = std::max(std::fabs(one), std::fabs(other));
  difference_.absolute_max = std::max(difference_.absolute_max, distance);
  difference_.relative_max = std::max(difference_.relative_max, std::isinf(size) ? INFINITY : distance / size);
}

}  // namespace mxs_cli
