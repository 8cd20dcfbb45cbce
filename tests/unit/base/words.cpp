// SPDX-License-Identifier: Apache-2.0
// What constants are called: every one has a name that no other of its kind has, and a number that is none is unknown.
#include "base/words.hpp"

#include <cstring>
#include <string>

#include "matrixshard/matrixshard.h"
#include "support/complaints.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

// The names of the numbers from `first` on, with a comma after each, until one is unknown.
std::string names_from(int32_t first, const char *(*name_of)(int32_t)) {
  std::string names;
  for (int32_t number = first; std::strcmp(name_of(number), "unknown") != 0; ++number)
    names.append(name_of(number)).append(",");
  return names;
}

std::string names_are_as_documented() {
  const struct {
    const char *what, *wanted;
    int32_t first, last;
    const char *(*name_of)(int32_t);
  } kinds[] = {
      {"dtypes", "f32,bf16,f16,f64,u8,", MXS_F32, MXS_U8, mxs_dtype_name},
      {"rules", "auto,muon,adamw,external,frozen,shampoo,soap,", MXS_RULE_AUTO, MXS_RULE_SOAP, mxs_rule_name},
      {"roles", "auto,matrix,blocks,tail,flat,tied,", MXS_ROLE_AUTO, MXS_ROLE_TIED, mxs_role_name},
      {"backends", "auto,reference,onednn,openblas,tiles,cublas,", MXS_BACKEND_AUTO, MXS_BACKEND_CUBLAS,
       mxs_backend_name},
  };
  for (const auto &kind : kinds) {
    if (names_from(kind.first, kind.name_of) != kind.wanted) return names_from(kind.first, kind.name_of);
    for (const int32_t number : {kind.first - 1, kind.last + 1, INT32_MAX, INT32_MIN})
      if (std::strcmp(kind.name_of(number), "unknown") != 0) return std::string(kind.what) + " know a number too many";
  }
  return "";
}

std::string words_are_found_again() {
  int32_t number = -7;
  if (number_of_word(rule_words, "moun", &number) || number_of_word(rule_words, "", &number) || number != -7)
    return "a word that is none";
  if (!number_of_word(rule_words, "soap", &number) || number != MXS_RULE_SOAP) return "soap";
  if (all_words(role_words) != "auto, matrix, blocks, tail, flat or tied") return all_words(role_words);
  return all_words(backend_words, MXS_BACKEND_TILES) == "tiles or cublas" ? "" : "the last two";
}

void names(void **) { assert_true(good(names_are_as_documented())); }
void found(void **) { assert_true(good(words_are_found_again())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      {"names_are_as_documented", names, nullptr, nullptr, nullptr},
      {"words_are_found_again", found, nullptr, nullptr, nullptr},
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
