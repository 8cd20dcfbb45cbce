// SPDX-License-Identifier: Apache-2.0
// A file that somebody will read: whole, or as it was.
#pragma once

#include <string>

namespace mxs_cli {

// Puts text into the file at path. What stood there stays until the new text is completely written; if anything fails
// it stays for good. A path that is no regular file (/dev/stdout, a pipe) is written to directly.
// Returns an empty text, or a sentence that says what failed.
std::string write_file(const std::string &path, const std::string &text);

}  // namespace mxs_cli
