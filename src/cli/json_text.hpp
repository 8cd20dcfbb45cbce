// SPDX-License-Identifier: Apache-2.0
// A text as JSON. perf/ writes its objects with the same.
#pragma once

#include <cstdio>
#include <string>

namespace mxs_cli {

// With its quotes; control characters as \u00XX.
inline std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (const char letter : text) {
    if (static_cast<unsigned char>(letter) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(letter));
      result += code;
      continue;
    }
    if (letter == '"' || letter == '\\') result += '\\';
    result += letter;
  }
  return result + '"';
}

}  // namespace mxs_cli
