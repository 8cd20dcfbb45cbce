// SPDX-License-Identifier: Apache-2.0
#include "base/base64.hpp"

#include <array>
#include <cstdint>

namespace mxs {
namespace {

constexpr char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t no_letter = 64;

constexpr std::array<uint8_t, 256> numbers_of_letters() {
  std::array<uint8_t, 256> numbers{};
  for (uint8_t &number : numbers) number = no_letter;
  for (uint8_t number = 0; number < 64; ++number) numbers[static_cast<uint8_t>(letters[number])] = number;
  return numbers;
}
constexpr std::array<uint8_t, 256> number_of_letter = numbers_of_letters();

}  // namespace

std::string base64_text(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t place = 0; place < bytes.size(); place += 3) {
    uint32_t three = 0;
    for (size_t byte = 0; byte < 3; ++byte)
      three = three << 8 | (place + byte < bytes.size() ? static_cast<uint8_t>(bytes[place + byte]) : 0u);
    for (size_t letter = 0; letter < 4; ++letter) {
      const bool is_there = place + letter <= bytes.size();  // n bytes make n + 1 letters
      text.push_back(is_there ? letters[three >> (18 - 6 * letter) & 63] : '=');
    }
  }
  return text;
}

bool bytes_of_base64(std::string_view text, std::string *bytes) {
  if (text.size() % 4 != 0) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string read;
  read.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int bit_count = 0;
  for (const char letter : text.substr(0, text.size() - padding)) {
    const uint8_t number = number_of_letter[static_cast<uint8_t>(letter)];
    if (number == no_letter) return false;
    bits = (bits << 6 | number) & 0xfff;
    bit_count += 6;
    if (bit_count < 8) continue;
    bit_count -= 8;
    read.push_back(static_cast<char>(bits >> bit_count));
  }
  if ((bits & ((1u << bit_count) - 1)) != 0) return false;
  *bytes = std::move(read);
  return true;
}

}  // namespace mxs
