// SPDX-License-Identifier: Apache-2.0
// A text as JSON. perf/ writes its objects with the same.
#pragma once

#include <cstdio>
#include <string>

namespace mxs_cli {

// Bytes of the UTF-8 letter that begins there; 0: none does.
inline size_t letter_bytes(const std::string &text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](size_t i, unsigned low, unsigned high) { return byte(i) >= low && byte(i) <= high; };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  if (first < 0xe0) return follows(at + 1, 0x80, 0xbf) ? 2 : 0;
  // No longer than needed, no surrogates, nothing beyond 10ffff.
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (!follows(at + 1, low, high) || !follows(at + 2, 0x80, 0xbf)) return 0;
  if (first < 0xf0) return 3;
  return follows(at + 3, 0x80, 0xbf) ? 4 : 0;
}

// With its quotes; control characters as \u00XX, and \ufffd for each byte that is no UTF-8, as paths may have.
inline std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    const size_t bytes = letter_bytes(text, at);
    if (bytes != 1) {
      result += bytes == 0 ? std::string("\\ufffd") : text.substr(at, bytes);
      at += bytes > 1 ? bytes - 1 : 0;
      continue;
    }
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
