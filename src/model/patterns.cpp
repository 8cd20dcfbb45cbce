// SPDX-License-Identifier: Apache-2.0
// Patterns of whole names. No recursion: of several stars only the last one met has to be tried again, so that the
// worst pattern costs its length times the name's.
#include "model/model.hpp"

namespace mxs {
namespace {

// A letter of UTF-8 is a byte and those that continue it.
size_t after_letter(std::string_view text, size_t place) {
  ++place;
  while (place < text.size() && (static_cast<unsigned char>(text[place]) & 0xc0u) == 0x80u) ++place;
  return place;
}

}  // namespace

bool pattern_matches(std::string_view pattern, std::string_view name) {
  constexpr size_t none = std::string_view::npos;
  size_t in_pattern = 0, in_name = 0;
  size_t after_star = none, resume = 0;  // where to go on if the star takes one letter more
  while (in_name < name.size()) {
    if (in_pattern < pattern.size() && pattern[in_pattern] == '*') {
      after_star = ++in_pattern;
      resume = in_name;
    } else if (in_pattern < pattern.size() && pattern[in_pattern] == '?') {
      ++in_pattern;
      in_name = after_letter(name, in_name);
    } else if (in_pattern < pattern.size() && pattern[in_pattern] == name[in_name]) {
      ++in_pattern;
      ++in_name;
    } else if (after_star != none) {
      in_pattern = after_star;
      in_name = resume = after_letter(name, resume);
    } else {
      return false;
    }
  }
  while (in_pattern < pattern.size() && pattern[in_pattern] == '*') ++in_pattern;
  return in_pattern == pattern.size();
}

}  // namespace mxs
