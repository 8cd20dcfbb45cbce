// SPDX-License-Identifier: Apache-2.0
// What rules and roles are called in sentences, reports and files; dtypes have mxs_dtype_name.
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>

#include "matrixshard/plan.h"

namespace mxs {

// In the order of their numbers.
inline constexpr const char *rule_words[] = {"auto", "muon", "adamw", "external", "frozen", "shampoo", "soap"};
inline constexpr const char *role_words[] = {"auto", "matrix", "blocks", "tail", "flat", "tied"};
static_assert(std::size(rule_words) == MXS_RULE_SOAP + 1 && std::size(role_words) == MXS_ROLE_TIED + 1);

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

inline const char *rule_name(mxs_rule rule) { return word_of(rule_words, rule); }
inline const char *role_name(mxs_role role) { return word_of(role_words, role); }

}  // namespace mxs
