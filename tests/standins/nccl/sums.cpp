// SPDX-License-Identifier: Apache-2.0
#include "sums.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace standin {

namespace {

// Unsigned numbers wrap around, signed ones are added as unsigned ones for that.
template <class Number>
Number apply(Number left, Number right, ncclRedOp_t operation) {
  if (operation == ncclMax) return std::max(left, right);
  if (operation == ncclMin) return std::min(left, right);
  if constexpr (std::is_integral_v<Number>) {
    using Wide = std::conditional_t<(sizeof(Number) > 4), uint64_t, uint32_t>;
    const auto a = static_cast<Wide>(left), b = static_cast<Wide>(right);
    return static_cast<Number>(operation == ncclProd ? a * b : a + b);
  } else {
    return operation == ncclProd ? left * right : left + right;
  }
}

template <class Number>
void combine_numbers(void *target, const void *source, size_t count, ncclRedOp_t operation) {
  auto *const to = static_cast<Number *>(target);
  const auto *const from = static_cast<const Number *>(source);
  for (size_t i = 0; i < count; ++i) to[i] = apply(to[i], from[i], operation);
}

// 16-bit types, by way of fp32.
template <class Number, class Widen, class Narrow>
void combine_halves(void *target, const void *source, size_t count, ncclRedOp_t operation, Widen widen,
                    Narrow narrow) {
  auto *const to = static_cast<Number *>(target);
  const auto *const from = static_cast<const Number *>(source);
  for (size_t i = 0; i < count; ++i) to[i] = narrow(apply(widen(to[i]), widen(from[i]), operation));
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
  }
}

bool is_known(ncclRedOp_t operation) {
  return operation == ncclSum || operation == ncclProd || operation == ncclMax || operation == ncclMin;
}

void combine(void *target, const void *source, size_t count, ncclDataType_t type, ncclRedOp_t operation) {
  switch (type) {
    case ncclInt8: return combine_numbers<int8_t>(target, source, count, operation);
    case ncclUint8: return combine_numbers<uint8_t>(target, source, count, operation);
    case ncclInt32: return combine_numbers<int32_t>(target, source, count, operation);
    case ncclUint32: return combine_numbers<uint32_t>(target, source, count, operation);
    case ncclInt64: return combine_numbers<int64_t>(target, source, count, operation);
    case ncclUint64: return combine_numbers<uint64_t>(target, source, count, operation);
    case ncclFloat32: return combine_numbers<float>(target, source, count, operation);
    case ncclFloat64: return combine_numbers<double>(target, source, count, operation);
    case ncclFloat16:
      return combine_halves<__half>(target, source, count, operation, [](__half x) { return __half2float(x); },
                                    [](float x) { return __float2half_rn(x); });
    case ncclBfloat16:
      return combine_halves<__nv_bfloat16>(target, source, count, operation,
                                           [](__nv_bfloat16 x) { return __bfloat162float(x); },
                                           [](float x) { return __float2bfloat16_rn(x); });
    default: return;
  }
}

}  // namespace standin
