// SPDX-License-Identifier: Apache-2.0
// A plan's JSON inside HTML.
//
// A script element ends at the first "</script", whatever is around it, and "<!--" changes how the rest is read. Names
// of tensors come from files of strangers. In JSON '<', '>' and '&' stand in texts only, where \u003c means the same:
// without them no name can end the element. U+2028 and U+2029 end lines in older JavaScript; they go the same way.
#include "cli/plan_page.hpp"

#include <cassert>
#include <string_view>

#include "cli/write_file.hpp"

namespace mxs_cli {

extern const char plan_page_text[];  // plan_page.html, see meson.build

namespace {

constexpr std::string_view place_begin = "<script type=\"application/json\" id=\"plan\">", place_end = "</script>";

std::string harmless(const std::string &plan_json) {
  std::string result;
  result.reserve(plan_json.size() + plan_json.size() / 8);
  for (size_t i = 0; i < plan_json.size(); ++i) {
    const char letter = plan_json[i];
    const bool ends_line = plan_json.compare(i, 2, "\xe2\x80") == 0 && i + 2 < plan_json.size() &&
                           (plan_json[i + 2] == '\xa8' || plan_json[i + 2] == '\xa9');
    if (ends_line) {
      result += plan_json[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else if (letter == '<') {
      result += "\\u003c";
    } else if (letter == '>') {
      result += "\\u003e";
    } else if (letter == '&') {
      result += "\\u0026";
    } else {
      result += letter;
    }
  }
  return result;
}

}  // namespace

std::string plan_page(const std::string &plan_json) {
  const std::string_view page = plan_page_text;
  const size_t place = page.find(place_begin);
  assert(place != page.npos);
  const size_t begin = place + place_begin.size(), end = page.find(place_end, begin);
  assert(end != page.npos);
  return std::string(page.substr(0, begin)) + harmless(plan_json) + std::string(page.substr(end));
}

std::string write_plan_page(const std::string &path, const std::string &plan_json) {
  return write_file(path, plan_page(plan_json));
}

}  // namespace mxs_cli
