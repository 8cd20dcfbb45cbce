// SPDX-License-Identifier: Apache-2.0
// Is a text a whole document of XML: every tag closed, nested, in one element of this name? What attributes say isn't
// looked at. Asked before hwloc reads a file: its own parser (2.9.0 without libxml2) reads on at address 1 behind a tag
// that is cut, and Debian's hwloc has libxml2 only with libhwloc-plugins.
#pragma once

#include <string_view>

namespace mxs {

bool is_whole_xml(std::string_view text, std::string_view root);

}  // namespace mxs
