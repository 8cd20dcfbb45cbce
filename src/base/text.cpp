// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <cstdint>
#include <cstring>

namespace mxs {
namespace {

// letter: whole, as its first byte tells.
uint32_t code_of(std::string_view letter) {
  const auto lead = static_cast<unsigned char>(letter[0]);
  uint32_t code = letter.size() == 1 ? lead : lead & (0x7fu >> letter.size());
  for (const char next : letter.substr(1)) code = code << 6 | (static_cast<unsigned char>(next) & 0x3fu);
  return code;
}

bool is_shown(uint32_t code) {
  const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool ends_line_or_turns = (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return !is_control && !ends_line_or_turns && code != 0x200e && code != 0x200f && code != 0x61c;
}

}  // namespace

size_t letter_bytes(std::string_view text, size_t place) noexcept {
  if (place >= text.size()) return 0;
  const auto lead = static_cast<unsigned char>(text[place]);
  const size_t bytes = lead < 0x80u ? 1 : lead < 0xc2u ? 0 : lead < 0xe0u ? 2 : lead < 0xf0u ? 3 : lead < 0xf5u ? 4 : 0;
  if (bytes == 0 || text.size() - place < bytes) return 0;
  for (size_t next = 1; next < bytes; ++next)
    if ((static_cast<unsigned char>(text[place + next]) & 0xc0u) != 0x80u) return 0;
  const uint32_t code = code_of(text.substr(place, bytes));
  if (bytes == 3 && (code < 0x800u || (code >= 0xd800u && code < 0xe000u))) return 0;
  return bytes == 4 && (code < 0x10000u || code > 0x10ffffu) ? 0 : bytes;
}

bool is_utf8(std::string_view text) noexcept {
  for (size_t place = 0; place < text.size();) {
    const size_t bytes = letter_bytes(text, place);
    if (bytes == 0) return false;
    place += bytes;
  }
  return true;
}

size_t make_printable(char *text, size_t bytes) noexcept {
  const std::string_view whole(text, bytes);
  size_t written = 0;
  for (size_t place = 0; place < bytes;) {
    const size_t letter = letter_bytes(whole, place);
    if (letter == 0 || !is_shown(code_of(whole.substr(place, letter)))) {
      text[written++] = '?';
      place += letter == 0 ? 1 : letter;
      continue;
    }
    std::memmove(text + written, text + place, letter);
    written += letter;
    place += letter;
  }
  return written;
}

}  // namespace mxs
