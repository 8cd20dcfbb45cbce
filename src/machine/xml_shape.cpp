// SPDX-License-Identifier: Apache-2.0
#include "machine/xml_shape.hpp"

#include <vector>

namespace mxs {

namespace {

// Where the tag that begins at `begin` ends, at its '>' outside of quotes; npos: it doesn't.
size_t end_of_tag(std::string_view text, size_t begin) {
  char quote = 0;
  for (size_t at = begin + 1; at < text.size(); ++at) {
    const char letter = text[at];
    if (quote ? letter == quote : letter == '"' || letter == '\'') quote = quote ? 0 : letter;
    else if (!quote && letter == '<') return std::string_view::npos;
    else if (!quote && letter == '>') return at;
  }
  return std::string_view::npos;
}

std::string_view name_of(std::string_view tag) { return tag.substr(0, tag.find_first_of(" \t\r\n/")); }

}  // namespace

bool is_whole_xml(std::string_view text, std::string_view root) {
  std::vector<std::string_view> open;
  bool has_root = false;
  for (size_t begin = text.find('<'); begin != std::string_view::npos;) {
    if (text.substr(begin).starts_with("<!--")) {
      const size_t end = text.find("-->", begin + 4);
      if (end == std::string_view::npos) return false;
      begin = text.find('<', end);
      continue;
    }
    const size_t end = end_of_tag(text, begin);
    if (end == std::string_view::npos) return false;
    const std::string_view tag = text.substr(begin + 1, end - begin - 1);
    begin = text.find('<', end);
    if (tag.starts_with('?') || tag.starts_with('!')) continue;
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != name_of(tag.substr(1))) return false;
      open.pop_back();
      continue;
    }
    if (open.empty() && (has_root || name_of(tag) != root)) return false;
    has_root = true;
    if (!tag.ends_with('/')) open.push_back(name_of(tag));
  }
  return has_root && open.empty();
}

}  // namespace mxs
