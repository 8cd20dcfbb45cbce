// SPDX-License-Identifier: Apache-2.0
// Values of options that several commands have. Functions that read return what is wrong, or "".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "matrixshard/plan.h"

namespace mxs_cli {

std::string in_quotes(const std::string &text);
// Parts of a text between commas.
std::vector<std::string> parts_of(const std::string &text);

std::string read_bytes(const std::string &name, const std::string &text, uint64_t *bytes);
std::string read_rate(const std::string &name, const std::string &text, uint64_t *rate);
std::string read_count(const std::string &name, const std::string &text, int32_t least, int32_t *count);
std::string read_text(const std::string &name, const std::string &value, std::string *text);

// The value of the option words[*i], which *name is: after its "=", which then goes, or the next word, which *i then
// is.
std::string take_value(const std::vector<std::string> &words, size_t *i, std::string *name, std::string *value);

// What steers a planner: --budget, --flat, --alignment, --co-owners, --flops, --memory, --weights. False: `name` is
// none of them.
bool read_plan_option(const std::string &name, const std::string &value, mxs_plan_options *options,
                      std::string *complaint);

}  // namespace mxs_cli
