// SPDX-License-Identifier: Apache-2.0
// Patterns of names: the input's first line is the pattern, the second the name. Short ones are compared with a matcher
// that is slow and obvious.
#include "models.hpp"

using namespace mxs;

namespace {

bool is_ascii(std::string_view text) {
  for (const char letter : text)
    if (static_cast<unsigned char>(letter) >= 0x80u) return false;
  return true;
}

bool matches_plainly(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*')
    return matches_plainly(pattern.substr(1), name) || (!name.empty() && matches_plainly(pattern, name.substr(1)));
  return !name.empty() && (pattern.front() == '?' || pattern.front() == name.front()) &&
         matches_plainly(pattern.substr(1), name.substr(1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const size_t line = std::min(text.find('\n'), text.size());
  const std::string_view pattern = text.substr(0, line), name = text.substr(std::min(line + 1, text.size()));
  if (pattern.size() * name.size() > 1'000'000) return 0;
  const bool matches = pattern_matches(pattern, name);
  if (pattern.size() <= 12 && name.size() <= 12 && is_ascii(text))
    fuzz::promise(matches == matches_plainly(pattern, name));
  if (pattern == name && pattern.find('*') == std::string_view::npos && is_ascii(text)) fuzz::promise(matches);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"*a*b\naxbxab", "a?c*\nabcde", "*\n", "**?**\nab", "model.layers.?.mlp.*\nmodel.layers.7.mlp.up",
      "a*a*a*b\naaaaaaaa",
          "\xc3\xa4?\n\xc3\xa4\xc3\xb6"};
}
