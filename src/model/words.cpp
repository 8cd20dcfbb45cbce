// SPDX-License-Identifier: Apache-2.0
// Words of files.
#include "model/model.hpp"

namespace mxs {
namespace {

struct Word {
  std::string_view word;
  int32_t value;
};

constexpr Word rules[] = {{"auto", MXS_RULE_AUTO},         {"muon", MXS_RULE_MUON},       {"adamw", MXS_RULE_ADAMW},
                          {"external", MXS_RULE_EXTERNAL}, {"frozen", MXS_RULE_FROZEN},
                          {"shampoo", MXS_RULE_SHAMPOO},   {"soap", MXS_RULE_SOAP}};
constexpr Word roles[] = {{"auto", MXS_ROLE_AUTO}, {"matrix", MXS_ROLE_MATRIX}, {"blocks", MXS_ROLE_BLOCKS},
                          {"tail", MXS_ROLE_TAIL}, {"flat", MXS_ROLE_FLAT},     {"tied", MXS_ROLE_TIED}};
constexpr Word dtypes[] = {{"f32", MXS_F32},      {"F32", MXS_F32},        {"float32", MXS_F32},  {"float", MXS_F32},
                           {"bf16", MXS_BF16},    {"BF16", MXS_BF16},      {"bfloat16", MXS_BF16},
                           {"f16", MXS_F16},      {"F16", MXS_F16},        {"float16", MXS_F16},  {"half", MXS_F16},
                           {"f64", MXS_F64},      {"F64", MXS_F64},        {"float64", MXS_F64},  {"double", MXS_F64},
                           {"u8", MXS_U8},        {"U8", MXS_U8},          {"uint8", MXS_U8}};

template <class Words>
bool find(const Words &words, std::string_view wanted, int32_t *value) {
  for (const Word &each : words)
    if (each.word == wanted) {
      *value = each.value;
      return true;
    }
  return false;
}

}  // namespace

const char *rule_word(mxs_rule rule) {
  for (const Word &each : rules)
    if (each.value == rule) return each.word.data();
  return "unknown";
}

bool rule_of_word(std::string_view word, mxs_rule *rule) { return find(rules, word, rule); }

bool role_of_word(std::string_view word, mxs_role *role) { return find(roles, word, role); }

mxs_dtype dtype_of_word(std::string_view word) {
  constexpr std::string_view torch = "torch.";
  mxs_dtype dtype = 0;
  find(dtypes, word.substr(word.starts_with(torch) ? torch.size() : 0), &dtype);
  return dtype;
}

// Shortest forms only, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text) {
  for (size_t place = 0; place < text.size();) {
    const auto lead = static_cast<unsigned char>(text[place]);
    const size_t bytes = lead < 0x80u ? 1 : lead < 0xc2u ? 0 : lead < 0xe0u ? 2 : lead < 0xf0u ? 3 : lead < 0xf5u ?
        4 : 0;
    if (bytes == 0 || text.size() - place < bytes) return false;
    uint32_t letter = bytes == 1 ? lead : lead & (0x7fu >> bytes);
    for (size_t next = 1; next < bytes; ++next) {
      const auto byte = static_cast<unsigned char>(text[place + next]);
      if ((byte & 0xc0u) != 0x80u) return false;
      letter = (letter << 6) | (byte & 0x3fu);
    }
    if ((bytes == 3 && (letter < 0x800u || (letter >= 0xd800u && letter < 0xe000u))) ||
        (bytes == 4 && (letter < 0x10000u || letter > 0x10ffffu)))
      return false;
    place += bytes;
  }
  return true;
}

std::string counted(size_t count, const char *what) {
  return std::to_string(count).append(" ").append(what).append(count == 1 ? "" : "s");
}

}  // namespace mxs
