// SPDX-License-Identifier: Apache-2.0
// Texts of strangers. Names of tensors, paths and patterns come from files that anybody may have written, and end up in
// sentences that terminals show and other languages decode.
#pragma once

#include <cstddef>
#include <string_view>

namespace mxs {

// Bytes of the UTF-8 letter that begins there; 0: none does. Shortest forms only, no surrogates, at most U+10FFFF.
size_t letter_bytes(std::string_view text, size_t place) noexcept;

bool is_utf8(std::string_view text) noexcept;

// In place, returns how many bytes are left: '?' for each byte that is no UTF-8 and for each letter that does something
// instead of being shown. Those are control letters (a terminal obeys ESC, and U+009B as it does ESC and [), ends of
// lines, and what turns the direction of the letters around it. The result is one line.
size_t make_printable(char *text, size_t bytes) noexcept;

}  // namespace mxs
