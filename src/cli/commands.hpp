// SPDX-License-Identifier: Apache-2.0
// The commands of `mxs`. Each gets the words after its name and returns the exit status.
#pragma once

#include <string>
#include <vector>

namespace mxs_cli {

using Words = std::vector<std::string>;

constexpr int status_bad_use = 2;

// Says on stderr what is wrong with the words, and where help is; returns status_bad_use.
int bad_use(const char *command, const std::string &sentence);

int checkpoint_diff(const Words &words);
int checkpoint_reshard(const Words &words);
int checkpoint_show(const Words &words);
int checkpoint_verify(const Words &words);
int info(const Words &words);
int inspect(const Words &words);
int plan(const Words &words);
int run(const Words &words);
int simulate(const Words &words);

}  // namespace mxs_cli
