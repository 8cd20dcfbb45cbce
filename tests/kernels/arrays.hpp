// SPDX-License-Identifier: Apache-2.0
// Arrays for tests of numeric tables: odd lengths, unaligned starts, special values, poison around.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "base/dtype.hpp"
#include "kernels/kernels.hpp"
#include "support/thinned.hpp"

namespace {

using namespace mxs;

const size_t lengths[] = {0, 1, 2, 15, 16, 17, 31, 33, 64, 255, 1023, 1024, 1025, 4095, 4096, 5003};
const mxs_dtype dtypes[] = {MXS_F32, MXS_BF16, MXS_F16};

// Mostly ordinary numbers; every ninth is one that conversions and sums get wrong first.
inline std::vector<float> numbers(size_t count, unsigned seed, bool special) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const float limits[] = {0.0f, -0.0f, 1e-41f, -1e-45f, 6e-8f, 65519.0f, 65520.0f, 3.4e38f, INFINITY, -INFINITY, NAN,
                          0x1.01p0f, 0x1.03p0f, 0x1.002p-10f};
  std::vector<float> result(count);
  for (float &value : result) {
    value = normal(random);
    if (special && random() % 9 == 0) value = limits[random() % std::size(limits)];
  }
  return result;
}

// An array that begins `shift` elements behind a 64-byte border, full of poison.
class Bytes {
 public:
  Bytes(size_t bytes, size_t shift_bytes) : memory_(bytes + shift_bytes + 192, std::byte{0xa5}) {
    const size_t address = reinterpret_cast<size_t>(memory_.data());
    first_ = memory_.data() + (64 - address % 64) % 64 + shift_bytes;
  }
  Bytes(Bytes &&) = default;  // a vector's memory stays where it is
  std::byte *data() { return first_; }
  float *floats() { return reinterpret_cast<float *>(first_); }
  bool operator==(const Bytes &other) const {
    // Of the whole memory: a write past either end shows too. Both begin at the same place within a line.
    const size_t before = static_cast<size_t>(first_ - memory_.data());
    const size_t other_before = static_cast<size_t>(other.first_ - other.memory_.data());
    const size_t lead = std::min(before, other_before);
    const size_t tail = std::min(memory_.size() - before, other.memory_.size() - other_before);
    return std::memcmp(first_ - lead, other.first_ - lead, lead + tail) == 0;
  }

 private:
  std::vector<std::byte> memory_;
  std::byte *first_;
};

inline Bytes filled(const std::vector<float> &values, mxs_dtype dtype, size_t shift) {
  Bytes bytes(values.size() * dtype_bytes(dtype), shift * dtype_bytes(dtype));
  reference_kernels().narrow(bytes.data(), dtype, values.data(), values.size());
  return bytes;
}

// NaNs compare by being NaN: which of two NaNs a sum keeps is the processor's choice of operand order.
inline bool same_floats(const float *a, const float *b, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (std::memcmp(&a[i], &b[i], 4) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

// check(table, length, shift in elements) -> bool, for every table but the reference, length and shift.
template <class Check>
bool with_every_table(Check &&check) {
  int count = 0;
  const Kernels *const *tables = all_kernels(&count);
  for (int t = 1; t < count; ++t)
    for (size_t length : test::thinned(std::vector<size_t>(std::begin(lengths), std::end(lengths))))
      for (size_t shift : {size_t{0}, size_t{1}, size_t{5}})
        if (!check(*tables[t], length, shift)) {
          std::fprintf(stderr, "%s: %zu elements, shifted by %zu\n", tables[t]->name, length, shift);
          return false;
        }
  return true;
}

}  // namespace
