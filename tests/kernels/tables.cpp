// SPDX-License-Identifier: Apache-2.0
// Every table that this CPU can run gives the reference's bits in copies, sums and conversions: odd sizes, unaligned
// arrays, all dtypes, special values. pass_tables.cpp has the element passes of optimizers.
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/arrays.hpp"
#include "support/cmocka_all.h"

namespace {

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
    for (size_t bytes : test::thinned<size_t>({0, 1, 63, 64, 4097, 262144, 400001, 1048576, 1048639, 2500003}))
      for (int count : {0, 1, 2, 3, 7})
        if (!copies_agree(*tables[t], bytes, count)) {
          print_error("%s: %zu bytes to %d targets\n", tables[t]->name, bytes, count);
          return false;
        }
  return true;
}

void every_table_adds_in_the_same_order(void **) { assert_true(with_every_table(sums_agree)); }
void every_table_converts_and_adds_alike(void **) { assert_true(with_every_table(adding_and_converting_agree)); }
void a_copy_reaches_all_targets_and_nothing_else(void **) { assert_true(copies_to_all_targets_and_no_further()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_table_adds_in_the_same_order),
      cmocka_unit_test(every_table_converts_and_adds_alike),
      cmocka_unit_test(a_copy_reaches_all_targets_and_nothing_else),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
