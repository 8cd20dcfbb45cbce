// SPDX-License-Identifier: Apache-2.0
// Words for sentences and the report.
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

}  // namespace mxs
