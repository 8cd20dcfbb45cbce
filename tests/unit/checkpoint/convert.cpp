// SPDX-License-Identifier: Apache-2.0
// Numbers into other dtypes: judged by what lies between two neighbours, for all that 16 bits can be.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "checkpoint/convert.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

constexpr int all_16 = 1 << 16;
const mxs_dtype narrow_dtypes[] = {MXS_BF16, MXS_F16};
const mxs_dtype real_dtypes[] = {MXS_F32, MXS_BF16, MXS_F16, MXS_F64};

float widened(mxs_dtype dtype, uint16_t bits) {
  return dtype == MXS_BF16 ? float_from_bf16(bits) : float_from_f16(bits);
}

template <class Target, class Source>
Target converted(mxs_dtype to, mxs_dtype from, Source source) {
  Target target{};
  convert(&target, to, &source, from, 1);
  return target;
}

std::string text(uint64_t bits) {
  char written[32];
  std::snprintf(written, sizeof written, "%#llx", static_cast<unsigned long long>(bits));
  return written;
}

std::string check_widening(mxs_dtype dtype) {
  for (int bits = 0; bits < all_16; ++bits) {
    const auto number = static_cast<uint16_t>(bits);
    const float value = widened(dtype, number);
    const float f32 = converted<float>(MXS_F32, dtype, number);
    const double f64 = converted<double>(MXS_F64, dtype, number);
    if (std::isnan(value)) {
      if (!std::isnan(f32) || !std::isnan(f64)) return text(number) + ", a NaN, is none when it is widened";
      if (!std::isnan(widened(dtype, converted<uint16_t>(dtype, MXS_F32, f32)))) return "a NaN didn't come back";
      if (!std::isnan(widened(dtype, converted<uint16_t>(dtype, MXS_F64, f64)))) return "a NaN didn't come back";
      continue;
    }
    if (std::bit_cast<uint32_t>(f32) != std::bit_cast<uint32_t>(value)) return text(number) + " is another in f32";
    if (f64 != static_cast<double>(value) || std::signbit(f64) != std::signbit(value))
      return text(number) + " is another in f64";
    if (converted<uint16_t>(dtype, MXS_F32, f32) != number) return text(number) + " didn't come back from f32";
    if (converted<uint16_t>(dtype, MXS_F64, f64) != number) return text(number) + " didn't come back from f64";
  }
  return "";
}

std::string check_number(mxs_dtype dtype, double value, uint16_t wanted) {
  const auto found = converted<uint16_t>(dtype, MXS_F64, value);
  if (found == wanted) return "";
  char sentence[128];
  std::snprintf(sentence, sizeof sentence, "f64 %a became %#x, not %#x", value, found, wanted);
  return sentence;
}

// Between each two neighbours: the middle goes to the even one, and whatever is beside the middle, by however little,
// to the nearer one. What two roundings would do shows there.
std::string check_narrowing(mxs_dtype dtype) {
  const uint16_t infinity = dtype == MXS_BF16 ? 0x7f80 : 0x7c00;
  for (uint16_t low = 0; low < infinity; ++low)
    for (const uint16_t sign : {uint16_t{0}, uint16_t{0x8000}}) {
      const auto high = static_cast<uint16_t>(low + 1);
      const double below = widened(dtype, low);
      // Past the largest the next would be, if exponents went on.
      const double above = high < infinity ? static_cast<double>(widened(dtype, high))
                                           : 2 * below - static_cast<double>(widened(dtype, low - 1));
      const double middle = (below + above) / 2, factor = sign ? -1 : 1;
      const uint16_t even = low % 2 == 0 ? low : high;
      const struct {
        double value;
        uint16_t bits;
      } cases[] = {{middle, even},
                   {std::nextafter(middle, 0.0), low},
                   {std::nextafter(middle, std::numeric_limits<double>::infinity()), high}};
      for (const auto &each : cases) {
        const std::string complaint =
            check_number(dtype, factor * each.value, static_cast<uint16_t>(sign | each.bits));
        if (!complaint.empty()) return complaint;
      }
    }
  return "";
}

std::string check_between_16_bits(mxs_dtype from, mxs_dtype to) {
  for (int bits = 0; bits < all_16; ++bits) {
    const auto number = static_cast<uint16_t>(bits);
    const float value = widened(from, number);
    const auto found = converted<uint16_t>(to, from, number);
    const uint16_t wanted = to == MXS_BF16 ? bf16_from_float(value) : f16_from_float(value);
    if (std::isnan(value) ? !std::isnan(widened(to, found)) : found != wanted)
      return text(number) + " became " + text(found) + ", not " + text(wanted);
  }
  return "";
}

// Any count from any place, without touching what lies around.
std::string check_lengths(mxs_dtype from, mxs_dtype to) {
  const size_t from_bytes = dtype_bytes(from), to_bytes = dtype_bytes(to);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1023}, size_t{1024}, size_t{1025}, size_t{5000}})
    for (const size_t shift : {size_t{0}, size_t{1}, size_t{3}}) {
      std::vector<std::byte> source(count * from_bytes + shift), target((count + 2) * to_bytes, std::byte{0xee});
      for (size_t i = 0; i < count; ++i) {
        const double value = static_cast<double>(i % 257) - 128;  // exact in all of them
        alignas(8) std::byte number[8];
        convert(number, from, &value, MXS_F64, 1);
        std::memcpy(source.data() + shift + i * from_bytes, number, from_bytes);
      }
      convert(target.data() + to_bytes, to, source.data() + shift, from, count);
      for (size_t i = 0; i < count; ++i) {
        double value = 0;
        convert(&value, MXS_F64, target.data() + (i + 1) * to_bytes, to, 1);
        if (value != static_cast<double>(i % 257) - 128) return "number " + std::to_string(i) + " is another";
      }
      for (size_t i = 0; i < to_bytes; ++i)
        if (target[i] != std::byte{0xee} || target[target.size() - 1 - i] != std::byte{0xee})
          return "bytes beside the target have changed";
    }
  return "";
}

void all_16_bits_widen_and_come_back(void **) {
  for (const mxs_dtype dtype : narrow_dtypes) assert_string_equal(check_widening(dtype).c_str(), "");
}

void f64_is_rounded_once_to_the_nearest_even(void **) {
  for (const mxs_dtype dtype : narrow_dtypes) assert_string_equal(check_narrowing(dtype).c_str(), "");
}

void bf16_and_f16_become_each_other(void **) {
  assert_string_equal(check_between_16_bits(MXS_BF16, MXS_F16).c_str(), "");
  assert_string_equal(check_between_16_bits(MXS_F16, MXS_BF16).c_str(), "");
}

void what_is_too_large_is_infinity_and_what_is_too_small_is_zero(void **) {
  assert_int_equal(converted<uint16_t>(MXS_BF16, MXS_F64, 1e300), 0x7f80);
  assert_int_equal(converted<uint16_t>(MXS_F16, MXS_F64, -1e300), 0xfc00);
  assert_int_equal(converted<uint16_t>(MXS_F16, MXS_F64, 65519.99), 0x7bff);
  assert_int_equal(converted<uint16_t>(MXS_F16, MXS_F64, 65520.0), 0x7c00);
  assert_int_equal(converted<uint16_t>(MXS_BF16, MXS_F64, -1e-300), 0x8000);
  assert_int_equal(converted<uint16_t>(MXS_F16, MXS_F32, 1e30f), 0x7c00);
  assert_true(std::isinf(converted<float>(MXS_F32, MXS_F64, 1e300)));
  assert_true(std::isnan(converted<float>(MXS_F32, MXS_F64, std::numeric_limits<double>::quiet_NaN())));
  assert_true(converted<double>(MXS_F64, MXS_F32, 0.1f) == static_cast<double>(0.1f));
}

void counts_and_borders_are_kept(void **) {
  for (const mxs_dtype from : real_dtypes)
    for (const mxs_dtype to : real_dtypes) {
      assert_true(can_convert(from, to));
      assert_string_equal(check_lengths(from, to).c_str(), "");
    }
}

void other_dtypes_are_not_converted(void **) {
  assert_false(can_convert(MXS_U8, MXS_F32));
  assert_false(can_convert(MXS_F32, MXS_U8));
  assert_false(can_convert(0, MXS_F32));
  const uint8_t source[3] = {1, 2, 255};
  uint8_t target[3] = {};
  convert(target, MXS_U8, source, MXS_U8, 3);  // a copy
  assert_memory_equal(target, source, 3);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(all_16_bits_widen_and_come_back),
      cmocka_unit_test(f64_is_rounded_once_to_the_nearest_even),
      cmocka_unit_test(bf16_and_f16_become_each_other),
      cmocka_unit_test(what_is_too_large_is_infinity_and_what_is_too_small_is_zero),
      cmocka_unit_test(counts_and_borders_are_kept),
      cmocka_unit_test(other_dtypes_are_not_converted),
  };
  return cmocka_run_group_tests_name("converting numbers", tests, nullptr, nullptr);
}
