// SPDX-License-Identifier: Apache-2.0
// What rules, roles, backends and dtypes are called in sentences, reports and files; mxs_rule_name and its like tell
// programs.
#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include "matrixshard/kernels.h"
#include "matrixshard/plan.h"

namespace mxs {

// In the order of their numbers.
inline constexpr const char *rule_words[] = {"auto", "muon", "adamw", "external", "frozen", "shampoo", "soap"};
inline constexpr const char *role_words[] = {"auto", "matrix", "blocks", "tail", "flat", "tied"};
inline constexpr const char *backend_words[] = {"auto", "reference", "onednn", "openblas", "tiles", "cublas"};
inline constexpr const char *dtype_words[] = {"none", "f32", "bf16", "f16", "f64", "u8"};  // none: not said
static_assert(std::size(rule_words) == MXS_RULE_SOAP + 1 && std::size(role_words) == MXS_ROLE_TIED + 1 &&
              std::size(backend_words) == MXS_BACKEND_CUBLAS + 1 && std::size(dtype_words) == MXS_U8 + 1);

template <size_t count>
const char *word_of(const char *const (&words)[count], int32_t number) {
  return number >= 0 && static_cast<size_t>(number) < count ? words[number] : "unknown";
}

// False: it is none of them.
template <size_t count>
bool number_of_word(const char *const (&words)[count], std::string_view word, int32_t *number) {
  for (size_t index = 0; index < count; ++index)
    if (word == words[index]) {
      *number = static_cast<int32_t>(index);
      return true;
    }
  return false;
}

// All from the first on, for a sentence: "auto, matrix or blocks".
template <size_t count>
std::string all_words(const char *const (&words)[count], size_t first = 0) {
  std::string text;
  for (size_t index = first; index < count; ++index)
    text.append(index == first ? "" : index + 1 == count ? " or " : ", ").append(words[index]);
  return text;
}

inline const char *rule_name(mxs_rule rule) { return word_of(rule_words, rule); }
inline const char *role_name(mxs_role role) { return word_of(role_words, role); }
inline const char *backend_name(mxs_backend backend) { return word_of(backend_words, backend); }

}  // namespace mxs
