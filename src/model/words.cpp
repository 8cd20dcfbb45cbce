// SPDX-License-Identifier: Apache-2.0
// Words of files, and whether they are text.
#include "base/text.hpp"
#include "model/model.hpp"

namespace mxs {
namespace {

struct Word {
  std::string_view word;
  mxs_dtype dtype;
};

constexpr Word dtypes[] = {{"f32", MXS_F32},      {"F32", MXS_F32},        {"float32", MXS_F32},  {"float", MXS_F32},
                           {"bf16", MXS_BF16},    {"BF16", MXS_BF16},      {"bfloat16", MXS_BF16},
                           {"f16", MXS_F16},      {"F16", MXS_F16},        {"float16", MXS_F16},  {"half", MXS_F16},
                           {"f64", MXS_F64},      {"F64", MXS_F64},        {"float64", MXS_F64},  {"double", MXS_F64},
                           {"u8", MXS_U8},        {"U8", MXS_U8},          {"uint8", MXS_U8}};

}  // namespace

mxs_dtype dtype_of_word(std::string_view word) {
  constexpr std::string_view torch = "torch.";
  if (word.starts_with(torch)) word.remove_prefix(torch.size());
  for (const Word &each : dtypes)
    if (each.word == word) return each.dtype;
  return 0;
}

std::string counted(size_t count, const char *what) {
  return std::to_string(count).append(" ").append(what).append(count == 1 ? "" : "s");
}

}  // namespace mxs
