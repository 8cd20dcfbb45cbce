// SPDX-License-Identifier: Apache-2.0
// Sums and conversions on the device: the bits of the host's reference table.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "../kernels/arrays.hpp"
#include "cuda/kernels/arguments.hpp"
#include "device/kernels.hpp"
#include "gpu/device_arrays.hpp"
#include "gpu/gpu.hpp"
#include "support/cmocka_all.h"

namespace {

using mxs::test::DeviceArray;

Device *device = nullptr;

// Of NaNs it counts that they are NaNs: which of two a sum keeps is the processor's choice.
bool same_numbers(const std::vector<float> &left, const std::vector<float> &right) {
  return left.size() == right.size() && same_floats(left.data(), right.data(), left.size());
}

std::vector<std::byte> narrowed(const std::vector<float> &values, mxs_dtype dtype) {
  std::vector<std::byte> bytes(values.size() * dtype_bytes(dtype));
  reference_kernels().narrow(bytes.data(), dtype, values.data(), values.size());
  return bytes;
}

// check(dtype, length): with sources of that type.
template <class Check>
bool with_all(Check &&check) {
  for (const mxs_dtype dtype : dtypes)
    for (const size_t length : lengths)
      if (!check(dtype, length)) {
        std::fprintf(stderr, "dtype %d, %zu elements: %s\n", static_cast<int>(dtype), length, mxs_last_error());
        return false;
      }
  return true;
}

bool adds(mxs_dtype dtype, size_t length) {
  const std::vector<float> base = numbers(length, 1, true);
  const std::vector<std::byte> source = narrowed(numbers(length, 2, true), dtype);
  const DeviceArray<float> target(*device, base);
  const DeviceArray<std::byte> there(*device, source);
  if (device->kernels().add(target.data(), there.data(), dtype, length, nullptr) != MXS_OK) return false;
  std::vector<float> wanted = base;
  reference_kernels().add(wanted.data(), source.data(), dtype, length);
  return same_numbers(target.get(), wanted);
}

bool sums_in_order(mxs_dtype dtype, size_t length, int count, bool has_base) {
  const std::vector<float> base = numbers(length, 7, true);
  std::vector<std::vector<std::byte>> sources;
  std::vector<DeviceArray<std::byte>> there;
  std::vector<const void *> host, pointers;
  for (int i = 0; i < count; ++i) {
    sources.push_back(narrowed(numbers(length, 10 + static_cast<unsigned>(i), i == 0), dtype));
    there.emplace_back(*device, sources.back());
    pointers.push_back(there.back().data());
  }
  for (const auto &source : sources) host.push_back(source.data());
  const DeviceArray<float> begin(*device, base), target(*device, length);
  if (device->kernels().sum_in_order(target.data(), has_base ? begin.data() : nullptr, pointers.data(), count, dtype,
                                     length, nullptr) != MXS_OK)
    return false;
  std::vector<float> wanted(length);
  reference_kernels().sum_in_order(wanted.data(), has_base ? base.data() : nullptr, host.data(), count, dtype, length);
  return same_numbers(target.get(), wanted) && same_numbers(begin.get(), base);
}

bool sums_onto_its_base() {
  const std::vector<float> base = numbers(1025, 3, false), other = numbers(1025, 4, false);
  const DeviceArray<float> target(*device, base), source(*device, other);
  const void *const pointer = source.data(), *const host = other.data();
  if (device->kernels().sum_in_order(target.data(), target.data(), &pointer, 1, MXS_F32, 1025, nullptr) != MXS_OK)
    return false;
  std::vector<float> wanted = base;
  reference_kernels().sum_in_order(wanted.data(), wanted.data(), &host, 1, MXS_F32, 1025);
  return same_numbers(target.get(), wanted);
}

bool converts(mxs_dtype dtype, size_t length) {
  const std::vector<float> values = numbers(length, 5, true);
  const DeviceArray<float> wide(*device, values), back(*device, length);
  const DeviceArray<std::byte> narrow(*device, length * dtype_bytes(dtype));
  DeviceKernels &kernels = device->kernels();
  if (kernels.narrow(narrow.data(), dtype, wide.data(), length, nullptr) != MXS_OK ||
      kernels.widen(back.data(), narrow.data(), dtype, length, nullptr) != MXS_OK)
    return false;
  const std::vector<std::byte> bytes = narrowed(values, dtype);
  std::vector<float> wanted(length);
  reference_kernels().widen(wanted.data(), bytes.data(), dtype, length);
  return mxs::test::same_bits(narrow.get(), bytes) && same_numbers(back.get(), wanted);
}

bool every_shape_of_launch_gives_the_same() {
  const std::vector<float> values = numbers(100003, 6, true), more = numbers(100003, 8, true);
  std::vector<float> wanted = values;
  reference_kernels().add(wanted.data(), more.data(), MXS_F32, wanted.size());
  const DeviceArray<float> source(*device, more);
  for (const uint32_t blocks : {1u, 3u, 64u, 1000u})
    for (const uint32_t threads : {32u, 96u, 1024u}) {
      const DeviceArray<float> target(*device, values);
      const AddArguments arguments{target.data(), source.data(), MXS_F32, values.size()};
      if (device->launch("mxs_add", &arguments, sizeof arguments, blocks, threads, nullptr) != MXS_OK ||
          !same_numbers(target.get(), wanted))
        return false;
    }
  return true;
}

bool refuses_what_makes_no_sense() {
  const DeviceArray<float> numbers_there(*device, std::vector<float>(4, 1.0f));
  DeviceKernels &kernels = device->kernels();
  float *const data = numbers_there.data();
  const void *const sources[DeviceKernels::sources_max + 1] = {data};
  return kernels.add(data, data, MXS_F64, 4, nullptr) == MXS_INVALID_ARGUMENT &&
         kernels.narrow(data, MXS_U8, data, 4, nullptr) == MXS_INVALID_ARGUMENT &&
         kernels.widen(data, data, 77, 4, nullptr) == MXS_INVALID_ARGUMENT &&
         kernels.sum_in_order(data, nullptr, sources, DeviceKernels::sources_max + 1, MXS_F32, 4, nullptr) ==
             MXS_INVALID_ARGUMENT &&
         kernels.sum_in_order(data, nullptr, sources, -1, MXS_F32, 4, nullptr) == MXS_INVALID_ARGUMENT &&
         kernels.add(nullptr, nullptr, MXS_F32, 0, nullptr) == MXS_OK &&
         numbers_there.get() == std::vector<float>(4, 1.0f);
}

bool a_kernel_that_is_not_there_is_refused() {
  const AddArguments arguments;
  return device->launch("mxs_no_such_kernel", &arguments, sizeof arguments, 1, 32, nullptr) != MXS_OK &&
         std::string(mxs_last_error()).find("mxs_no_such_kernel") != std::string::npos &&
         device->launch("mxs_add", &arguments, sizeof arguments, 1, 4096, nullptr) != MXS_OK;
}

void arrays_are_added_as_on_the_host(void **) { assert_true(with_all(adds)); }
void sources_are_summed_in_order(void **) {
  for (const int count : {0, 1, 3, 64})
    for (const bool has_base : {false, true})
      assert_true(with_all([&](mxs_dtype dtype, size_t length) {
        return (count == 64 && length > 64) || sums_in_order(dtype, length, count, has_base);
      }));
}
void a_sum_may_go_onto_its_base(void **) { assert_true(sums_onto_its_base()); }
void numbers_are_converted_as_on_the_host(void **) { assert_true(with_all(converts)); }
void bits_do_not_depend_on_blocks_and_threads(void **) { assert_true(every_shape_of_launch_gives_the_same()); }
void dtypes_and_counts_that_make_no_sense_are_refused(void **) { assert_true(refuses_what_makes_no_sense()); }
void a_launch_that_makes_no_sense_is_refused(void **) { assert_true(a_kernel_that_is_not_there_is_refused()); }

}  // namespace

int main(int, char **arguments) {
  if (!mxs::test::gpu_is_there(arguments)) return 0;
  if (find_device(0, &device) != MXS_OK) {
    std::printf("Bail out! %s\n", mxs_last_error());
    return 1;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(arrays_are_added_as_on_the_host),
      cmocka_unit_test(sources_are_summed_in_order),
      cmocka_unit_test(a_sum_may_go_onto_its_base),
      cmocka_unit_test(numbers_are_converted_as_on_the_host),
      cmocka_unit_test(bits_do_not_depend_on_blocks_and_threads),
      cmocka_unit_test(dtypes_and_counts_that_make_no_sense_are_refused),
      cmocka_unit_test(a_launch_that_makes_no_sense_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
