// SPDX-License-Identifier: Apache-2.0
// Sizes of memory count in 1,024s unless they say KB, MB, ...; rates in 1,000s.
#include "cli/option_words.hpp"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>

#include "cli/layout_words.hpp"

namespace mxs_cli {

namespace {

// A number with a unit: its factor is that of the first suffix that fits.
bool read_scaled(std::string_view text, std::initializer_list<std::pair<const char *, double>> suffixes, double most,
                 uint64_t *number) {
  double factor = 1, value = 0;
  for (const auto &[suffix, scale] : suffixes)
    if (text.ends_with(suffix)) {
      text.remove_suffix(std::string_view(suffix).size());
      factor = scale;
      break;
    }
  if (!read_number(text, &value) || !(value * factor >= 1 && value * factor <= most)) return false;
  *number = static_cast<uint64_t>(value * factor);
  return true;
}

// step:100,bytes:10,egress:1: any of them, in any order.
std::string read_weights(const std::string &text, mxs_plan_options *options) {
  for (const std::string &part : parts_of(text)) {
    const size_t colon = part.find(':');
    const std::string name = part.substr(0, colon);
    uint32_t *weight = name == "step"     ? &options->step_weight
                       : name == "bytes"  ? &options->bytes_weight
                       : name == "egress" ? &options->egress_weight
                                          : nullptr;
    double number = 0;
    if (!weight || colon == std::string::npos || !read_number(std::string_view(part).substr(colon + 1), &number) ||
        !(number >= 0.001 && number <= 1e6))
      return "--weights " + in_quotes(part) +
             " is not step:N, bytes:N or egress:N with N from 0.001 to 1,000,000, as in step:100,bytes:10,egress:1";
    *weight = static_cast<uint32_t>(std::lround(1000 * number));
  }
  return "";
}

}  // namespace

std::string in_quotes(const std::string &text) { return std::string(1, '"').append(text).append(1, '"'); }

std::vector<std::string> parts_of(const std::string &text) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == ',') parts.emplace_back();
    else parts.back() += letter;
  }
  return parts;
}

std::string read_bytes(const std::string &name, const std::string &text, uint64_t *bytes) {
  constexpr double k = 1024;
  if (read_scaled(text,
                  {{"KiB", k}, {"MiB", k * k}, {"GiB", k * k * k}, {"TiB", k * k * k * k}, {"KB", 1e3}, {"MB", 1e6},
                   {"GB", 1e9}, {"TB", 1e12}, {"K", k}, {"M", k * k}, {"G", k * k * k}, {"T", k * k * k * k}, {"B", 1}},
                  1e15, bytes))
    return "";
  return name + " " + in_quotes(text) + " is not a size, such as 65536, 40GiB or 40GB, from 1 to 10^15 bytes";
}

std::string read_rate(const std::string &name, const std::string &text, uint64_t *rate) {
  if (read_scaled(text, {{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}}, 1e18, rate)) return "";
  return name + " " + in_quotes(text) + " is not a rate per second, such as 150T or 1.5e12, from 1 to 10^18";
}

std::string read_count(const std::string &name, const std::string &text, int32_t least, int32_t *count) {
  int32_t number = 0;
  if (!read_number(text, &number) || number < least)
    return name + " " + in_quotes(text) + " is no count from " + std::to_string(least) + " to " +
           std::to_string(std::numeric_limits<int32_t>::max());
  *count = number;
  return "";
}

std::string read_text(const std::string &name, const std::string &value, std::string *text) {
  *text = value;
  return value.empty() ? name + " is empty" : "";
}

std::string take_value(const std::vector<std::string> &words, size_t *i, std::string *name, std::string *value) {
  const size_t equals = name->find('=');
  if (equals != std::string::npos) {
    *value = name->substr(equals + 1);
    name->resize(equals);
    return "";
  }
  if (*i + 1 == words.size()) return in_quotes(*name) + ": no value, or no such option";
  *value = words[++*i];
  return "";
}

bool read_plan_option(const std::string &name, const std::string &value, mxs_plan_options *options,
                      std::string *complaint) {
  if (name == "--budget") *complaint = read_bytes(name, value, &options->rank_bytes_max);
  else if (name == "--flat") *complaint = read_bytes(name, value, &options->flat_bytes);
  else if (name == "--alignment") *complaint = read_bytes(name, value, &options->alignment);
  else if (name == "--co-owners") *complaint = read_count(name, value, 1, &options->co_owners_max);
  else if (name == "--flops") *complaint = read_rate(name, value, &options->matrix_flops_per_second);
  else if (name == "--memory") *complaint = read_rate(name, value, &options->memory_bytes_per_second);
  else if (name == "--weights") *complaint = read_weights(value, options);
  else return false;
  return true;
}

}  // namespace mxs_cli
