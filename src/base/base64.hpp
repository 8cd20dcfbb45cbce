// SPDX-License-Identifier: Apache-2.0
// Bytes as text, by RFC 4648: A-Z a-z 0-9 + /, padded with =.
#pragma once

#include <string>
#include <string_view>

namespace mxs {

std::string base64_text(std::string_view bytes);
// Strict: no blanks, no other letters, padding where it belongs, and no bits that are left over. False: it is none of
// it, and *bytes stays.
bool bytes_of_base64(std::string_view text, std::string *bytes);

}  // namespace mxs
