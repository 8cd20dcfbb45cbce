// SPDX-License-Identifier: Apache-2.0
// Numbers and runs of numbers as `mxs plan` writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mxs_cli {

// Texts in a row.
template <class... Parts>
std::string text_of(const Parts &...parts) {
  std::string text;
  (text.append(parts), ...);
  return text;
}

std::string bytes_text(uint64_t bytes);        // "812 B", "1.203 GiB"
std::string time_text(uint64_t nanoseconds);   // "12.3 us", "1.204 ms"
std::string count_text(uint64_t number);       // "4,718,592"
std::string hexadecimal_text(uint64_t number);  // 16 digits
std::string ratio_text(double ratio);          // "1.02"
std::string percent_text(uint64_t worst, uint64_t bound);    // how much worse: "0.8%"; "-" where both are 0
std::string runs_text(const std::vector<int32_t> &numbers);  // "0-47, 50": ascending ones, runs joined

// One line that terminals show and don't obey: '?' for each byte that is no UTF-8, for control letters (ESC, and
// U+009B, which is ESC and [), ends of lines, and what turns the direction of letters around.
std::string printable(const std::string &text);
// Cut in the middle, between letters, where it has more than `width` bytes.
std::string shortened(const std::string &text, size_t width);
// Lines of at most 120 columns; those after the first are indented.
std::string wrapped(const std::string &text, size_t indent);

}  // namespace mxs_cli
