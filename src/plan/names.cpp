// SPDX-License-Identifier: Apache-2.0
// Words and numbers for sentences and the report.
#include <charconv>

#include "plan/stages.hpp"

namespace mxs {

const char *rule_name(mxs_rule rule) {
  switch (rule) {
    case MXS_RULE_AUTO: return "auto";
    case MXS_RULE_MUON: return "muon";
    case MXS_RULE_ADAMW: return "adamw";
    case MXS_RULE_EXTERNAL: return "external";
    case MXS_RULE_FROZEN: return "frozen";
    case MXS_RULE_SHAMPOO: return "shampoo";
    case MXS_RULE_SOAP: return "soap";
    default: return "unknown";
  }
}

const char *role_name(mxs_role role) {
  switch (role) {
    case MXS_ROLE_AUTO: return "auto";
    case MXS_ROLE_MATRIX: return "matrix";
    case MXS_ROLE_BLOCKS: return "blocks";
    case MXS_ROLE_TAIL: return "tail";
    case MXS_ROLE_FLAT: return "flat";
    case MXS_ROLE_TIED: return "tied";
    default: return "unknown";
  }
}

std::string shape_text(const std::vector<int64_t> &shape) {
  std::string text(1, '(');
  for (size_t d = 0; d < shape.size(); ++d) text.append(d ? ", " : "").append(std::to_string(shape[d]));
  text.push_back(')');
  return text;
}

std::string decimal_text(double number, int decimals) {
  char text[340];  // the longest double has 309 digits before the point
  return {text, std::to_chars(text, text + sizeof text, number, std::chars_format::fixed, decimals).ptr};
}

std::string bytes_text(uint64_t bytes) {
  const char *const names[] = {" KiB", " MiB", " GiB", " TiB"};
  if (bytes < 10240) return std::to_string(bytes).append(" B");
  double number = static_cast<double>(bytes) / 1024;
  size_t name = 0;
  for (; number >= 10240 && name < 3; ++name) number /= 1024;
  return decimal_text(number, 1).append(names[name]);
}

}  // namespace mxs
