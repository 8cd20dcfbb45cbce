// SPDX-License-Identifier: Apache-2.0
// What the commands of `mxs checkpoint` share of their words.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"

namespace mxs_cli {

// Words of a command that has paths and flags alone. Returns what is wrong, or "".
std::string read_paths(const Words &words, std::initializer_list<const char *> names,
                       std::initializer_list<std::pair<const char *, bool *>> flags, std::vector<std::string> *paths);

// Says on stderr what failed, in one printable line; returns `status`.
int failed(const char *command, const std::string &sentence, int status);
void print_text(const std::string &text);

}  // namespace mxs_cli
