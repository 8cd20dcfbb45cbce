// SPDX-License-Identifier: Apache-2.0
// Four digits are enough for people: exact numbers are in the JSON.
#include "cli/plan_text.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

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

std::string printable(std::string text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char letter) { return letter < 32 || letter == 127; }, '?');
  return text;
}

std::string shortened(const std::string &text, size_t width) {
  if (text.size() <= width) return text;
  const size_t head = (width - 3) / 2, tail = width - 3 - head;
  return text.substr(0, head).append("...").append(text, text.size() - tail);
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
