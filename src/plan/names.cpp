// SPDX-License-Identifier: Apache-2.0
// Shapes and numbers for sentences, the report and saved plans.
#include <charconv>

#include "plan/stages.hpp"

namespace mxs {

std::string shape_text(const std::vector<int64_t> &shape) {
  std::string text(1, '(');
  for (size_t d = 0; d < shape.size(); ++d) text.append(d ? ", " : "").append(std::to_string(shape[d]));
  text.push_back(')');
  return text;
}

std::string decimal_text(double number, int decimals) {
  char text[340];  // the longest double has 309 digits before the point
  return {text, std::to_chars(text, text + sizeof text, number, std::chars_format::fixed, decimals).ptr};
}

std::string hexadecimal_text(uint64_t number) {
  std::string text(16, '0');
  for (size_t place = 16; place-- > 0; number >>= 4) text[place] = "0123456789abcdef"[number & 15];
  return text;
}

std::string bytes_text(uint64_t bytes) {
  const char *const names[] = {" KiB", " MiB", " GiB", " TiB"};
  if (bytes < 10240) return std::to_string(bytes).append(" B");
  double number = static_cast<double>(bytes) / 1024;
  size_t name = 0;
  for (; number >= 10240 && name < 3; ++name) number /= 1024;
  return decimal_text(number, 1).append(names[name]);
}

}  // namespace mxs
