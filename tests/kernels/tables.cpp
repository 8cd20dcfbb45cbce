// SPDX-License-Identifier: Apache-2.0
// Every table that this CPU can run gives the reference's bits: odd sizes, unaligned arrays, all dtypes, special
// values.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "kernels/kernels.hpp"
#include "support/cmocka_all.h"

namespace {

using namespace mxs;

const size_t lengths[] = {0, 1, 2, 15, 16, 17, 31, 33, 64, 255, 1023, 1024, 1025, 4095, 4096, 5003};
const mxs_dtype dtypes[] = {MXS_F32, MXS_BF16, MXS_F16};

// Mostly ordinary numbers; every ninth is one that conversions and sums get wrong first.
std::vector<float> numbers(size_t count, unsigned seed, bool special) {
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

Bytes filled(const std::vector<float> &values, mxs_dtype dtype, size_t shift) {
  Bytes bytes(values.size() * dtype_bytes(dtype), shift * dtype_bytes(dtype));
  reference_kernels().narrow(bytes.data(), dtype, values.data(), values.size());
  return bytes;
}

// NaNs compare by being NaN: which of two NaNs a sum keeps is the processor's choice of operand order.
bool same_floats(const float *a, const float *b, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (std::memcmp(&a[i], &b[i], 4) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

template <class Check>
bool with_every_table(Check &&check) {
  int count = 0;
  const Kernels *const *tables = all_kernels(&count);
  for (int t = 0; t < count; ++t)
    for (size_t length : lengths)
      for (size_t shift : {size_t{0}, size_t{1}, size_t{5}})
        if (!check(*tables[t], length, shift)) {
          print_error("%s: %zu elements, shifted by %zu\n", tables[t]->name, length, shift);
          return false;
        }
  return true;
}

bool sums_agree(const Kernels &table, size_t length, size_t shift) {
  for (mxs_dtype dtype : dtypes)
    for (int count : {0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 64, 65}) {
      if (count > 9 && length > 1025) continue;
      std::vector<Bytes> sources;
      std::vector<const void *> pointers;
      for (int s = 0; s < count; ++s)
        sources.push_back(filled(numbers(length, static_cast<unsigned>(s), true), dtype, (shift + s) % 7));
      for (Bytes &source : sources) pointers.push_back(source.data());
      const std::vector<float> base = numbers(length, 99, true);
      for (int begin = 0; begin < 3; ++begin) {  // from zero, from a base, from the target itself
        Bytes wanted = filled(base, MXS_F32, shift), got = filled(base, MXS_F32, shift);
        const float *from = begin == 0 ? nullptr : base.data();
        reference_kernels().sum_in_order(wanted.floats(), begin == 2 ? wanted.floats() : from, pointers.data(), count,
                                         dtype, length);
        table.sum_in_order(got.floats(), begin == 2 ? got.floats() : from, pointers.data(), count, dtype, length);
        if (!same_floats(wanted.floats(), got.floats(), length)) return false;
      }
    }
  return true;
}

bool adding_and_converting_agree(const Kernels &table, size_t length, size_t shift) {
  for (mxs_dtype dtype : dtypes) {
    const std::vector<float> values = numbers(length, 3, true);
    Bytes source = filled(values, dtype, shift);
    Bytes wanted = filled(numbers(length, 4, false), MXS_F32, shift);
    Bytes got = filled(numbers(length, 4, false), MXS_F32, shift);
    reference_kernels().add(wanted.floats(), source.data(), dtype, length);
    table.add(got.floats(), source.data(), dtype, length);
    if (!same_floats(wanted.floats(), got.floats(), length)) return false;

    reference_kernels().widen(wanted.floats(), source.data(), dtype, length);
    table.widen(got.floats(), source.data(), dtype, length);
    Bytes narrow_wanted(length * dtype_bytes(dtype), shift * dtype_bytes(dtype));
    Bytes narrow_got(length * dtype_bytes(dtype), shift * dtype_bytes(dtype));
    reference_kernels().narrow(narrow_wanted.data(), dtype, values.data(), length);
    table.narrow(narrow_got.data(), dtype, values.data(), length);
    if (!(wanted == got) || !(narrow_wanted == narrow_got)) return false;
  }
  return true;
}

bool copies_agree(const Kernels &table, size_t bytes, int count) {
  std::vector<std::byte> source(bytes + 3);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 37 + i / 251);
  std::vector<Bytes> wanted, got;
  std::vector<std::byte *> pointers;
  for (int t = 0; t < count; ++t) {
    const size_t shift = static_cast<size_t>(t * 13 % 64);
    wanted.emplace_back(bytes, shift);
    got.emplace_back(bytes, shift);
    if (bytes > 0) std::memcpy(wanted.back().data(), source.data() + 3, bytes);
  }
  for (Bytes &target : got) pointers.push_back(target.data());
  table.copy_to_many(pointers.data(), count, source.data() + 3, bytes);
  for (int t = 0; t < count; ++t)
    if (!(wanted[static_cast<size_t>(t)] == got[static_cast<size_t>(t)])) return false;
  return true;
}

bool copies_to_all_targets_and_no_further() {
  int table_count = 0;
  const Kernels *const *tables = all_kernels(&table_count);
  for (int t = 0; t < table_count; ++t)
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{4097}, size_t{262144}, size_t{400001},
                         size_t{1048576}, size_t{1048639}, size_t{2500003}})
      for (int count : {0, 1, 2, 3, 7})
        if (!copies_agree(*tables[t], bytes, count)) {
          print_error("%s: %zu bytes to %d targets\n", tables[t]->name, bytes, count);
          return false;
        }
  return true;
}

struct Piece {
  Bytes gradient, momentum, update, exp_avg, exp_avg_sq, master, weights;
  mxs_elements elements = MXS_ELEMENTS_INIT;

  Piece(size_t length, size_t shift, mxs_dtype dtype, bool with_master)
      : gradient(filled(numbers(length, 1, false), MXS_F32, shift)),
        momentum(filled(numbers(length, 2, false), MXS_F32, shift + 1)),
        update(filled(numbers(length, 3, false), MXS_F32, shift + 2)),
        exp_avg(filled(numbers(length, 4, false), MXS_F32, shift)),
        exp_avg_sq(length * 4, shift * 4),
        master(filled(numbers(length, 6, false), MXS_F32, shift + 3)),
        weights(filled(numbers(length, 6, false), dtype, shift)) {
    const std::vector<float> squares = numbers(length, 5, false);
    for (size_t i = 0; i < length; ++i) exp_avg_sq.floats()[i] = squares[i] * squares[i];
    elements.dtype = dtype;
    elements.count = length;
    elements.gradient = gradient.floats();
    elements.gradient_scale = 0.37f;
    elements.update_scale = 1.7f;
    elements.momentum = momentum.floats();
    elements.update = update.floats();
    elements.exp_avg = exp_avg.floats();
    elements.exp_avg_sq = exp_avg_sq.floats();
    elements.master = with_master ? master.floats() : nullptr;
    elements.weights = weights.data();
    elements.step_number = 3;
  }
  bool operator==(const Piece &other) const {
    return gradient == other.gradient && momentum == other.momentum && update == other.update &&
           exp_avg == other.exp_avg && exp_avg_sq == other.exp_avg_sq && master == other.master &&
           weights == other.weights;
  }
};

bool steps_agree(const Kernels &table, size_t length, size_t shift) {
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  for (float momentum : {0.95f, 0.3f, 0.0f})
    for (mxs_dtype dtype : dtypes)
      for (bool with_master : {true, false}) {
        values.momentum = momentum;
        Piece wanted(length, shift, dtype, with_master), got(length, shift, dtype, with_master);
        for (int pass = 0; pass < 3; ++pass) {
          const auto step = [&](const Kernels &kernels, const mxs_elements &elements) {
            (pass == 0 ? kernels.muon_momentum : pass == 1 ? kernels.muon_apply : kernels.adamw)(elements, values);
          };
          step(reference_kernels(), wanted.elements);
          step(table, got.elements);
          if (!(wanted == got)) return false;
        }
      }
  return true;
}

bool norms_agree(const Kernels &table, size_t length, size_t shift) {
  for (float scale : {1.0f, 0.125f, 1e-30f, 3e38f}) {
    Bytes gradient = filled(numbers(length, 8, false), MXS_F32, shift);
    bool wanted_bad = false, got_bad = false;
    const double wanted = reference_kernels().sum_of_squares(gradient.floats(), scale, length, &wanted_bad);
    const double got = table.sum_of_squares(gradient.floats(), scale, length, &got_bad);
    if (wanted_bad != got_bad || (!wanted_bad && std::memcmp(&wanted, &got, 8) != 0)) return false;
    for (size_t bad : {size_t{0}, length / 2, length - 1}) {  // one element that isn't finite, wherever it is
      if (length == 0) break;
      std::vector<float> copy = numbers(length, 8, false);
      copy[bad] = bad % 2 ? NAN : -INFINITY;
      bool found = false;
      table.sum_of_squares(copy.data(), scale, length, &found);
      if (!found) return false;
    }
  }
  return true;
}

void every_table_adds_in_the_same_order(void **) { assert_true(with_every_table(sums_agree)); }
void every_table_converts_and_adds_alike(void **) { assert_true(with_every_table(adding_and_converting_agree)); }
void a_copy_reaches_all_targets_and_nothing_else(void **) { assert_true(copies_to_all_targets_and_no_further()); }
void every_table_steps_to_the_same_bits(void **) { assert_true(with_every_table(steps_agree)); }
void every_table_has_the_same_norm(void **) { assert_true(with_every_table(norms_agree)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_table_adds_in_the_same_order),
      cmocka_unit_test(every_table_converts_and_adds_alike),
      cmocka_unit_test(a_copy_reaches_all_targets_and_nothing_else),
      cmocka_unit_test(every_table_steps_to_the_same_bits),
      cmocka_unit_test(every_table_has_the_same_norm),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
