// SPDX-License-Identifier: Apache-2.0
// Four digits are enough for people: exact numbers are in the JSON.
#include "cli/plan_text.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "cli/json_text.hpp"

namespace mxs_cli {

std::string bytes_text(uint64_t bytes) {
  const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  char text[32];
  if (bytes < 1024) return std::to_string(bytes).append(" B");
  double number = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; number >= 1023.5 && unit < 5; ++unit) number /= 1024;
  std::snprintf(text, sizeof text, "%.4g %s", number, units[unit]);
  return text;
}

std::string time_text(uint64_t nanoseconds) {
  char text[32];
  const double us = 1e-3 * static_cast<double>(nanoseconds);
  const char *unit = us < 1e3 ? "us" : us < 1e6 ? "ms" : "s";
  std::snprintf(text, sizeof text, "%.4g %s", us < 1e3 ? us : us < 1e6 ? us / 1e3 : us / 1e6, unit);
  return text;
}

std::string count_text(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t place = text.size(); place > 3;) text.insert(place -= 3, 1, ',');
  return text;
}

std::string hexadecimal_text(uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "%016" PRIx64, number);
  return text;
}

std::string ratio_text(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", ratio);
  return text;
}

std::string percent_text(uint64_t worst, uint64_t bound) {
  if (bound == 0) return "-";
  char text[32];
  const double more = 100 * (static_cast<double>(worst) / static_cast<double>(bound) - 1);
  std::snprintf(text, sizeof text, more < 100 ? "%.2f%%" : "%.0f%%", std::max(more, 0.0));
  return text;
}

std::string runs_text(const std::vector<int32_t> &numbers) {
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(numbers[first]);
    if (last > first) text.append("-").append(std::to_string(numbers[last]));
    first = last + 1;
  }
  return text;
}

std::string printable(const std::string &text) {
  const auto code_of = [&](size_t at, size_t bytes) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
    if (bytes == 1) return byte(0) + 0u;
    return bytes == 2 ? (byte(0) & 0x1fu) << 6 | (byte(1) & 0x3fu)
                      : (byte(0) & 0x0fu) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);
  };
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = letter_bytes(text, at);
    const unsigned code = bytes == 0 ? 0 : bytes == 4 ? 0x10000u : code_of(at, bytes);
    const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    const bool ends_line_or_turns = (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
                                    code == 0x200e || code == 0x200f || code == 0x61c;
    if (is_control || ends_line_or_turns) result += '?';
    else result.append(text, at, bytes);
    at += std::max<size_t>(bytes, 1);
  }
  return result;
}

std::string shortened(const std::string &text, size_t width) {
  if (text.size() <= width) return text;
  const auto is_inside = [&](size_t at) { return at < text.size() && (text[at] & 0xc0) == 0x80; };  // of a letter
  size_t head = (width - 3) / 2, tail = text.size() - (width - 3 - head);
  while (head > 0 && is_inside(head)) --head;
  while (is_inside(tail)) ++tail;
  return text.substr(0, head).append("...").append(text, tail);
}

std::string wrapped(const std::string &text, size_t indent) {
  constexpr size_t columns_max = 120;
  std::string result, line;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!line.empty() && line.size() + 1 + word.size() > columns_max) {
      result.append(line).append("\n");
      line.assign(indent, ' ');
    } else if (begin > 0) {
      line += ' ';
    }
    line += word;
    begin = end + 1;
  }
  return result.append(line).append("\n");
}

}  // namespace mxs_cli
