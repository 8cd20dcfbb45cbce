// SPDX-License-Identifier: Apache-2.0
// The words of `mxs plan`, one by one. Sizes of memory count in 1,024s unless they say KB, MB, ...; rates in 1,000s.
#include "cli/plan_request.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "cli/layout_words.hpp"

namespace mxs_cli {

const std::vector<std::string> compare_names = {"slices", "alltoall", "zero1", "ddp"};

namespace {

std::string in_quotes(const std::string &text) { return std::string(1, '"').append(text).append(1, '"'); }

// Parts of a text between commas.
std::vector<std::string> parts_of(const std::string &text) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == ',') parts.emplace_back();
    else parts.back() += letter;
  }
  return parts;
}

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
    return name + " " + in_quotes(text) + " is no count from " + std::to_string(least) + " on";
  *count = number;
  return "";
}

std::string read_dtype(const std::string &name, const std::string &text, mxs_dtype *dtype) {
  std::string known;
  for (const mxs_dtype each : {MXS_F32, MXS_BF16, MXS_F16, MXS_F64, MXS_U8}) {
    if (text == mxs_dtype_name(each)) {
      *dtype = each;
      return "";
    }
    known.append(known.empty() ? "" : ", ").append(mxs_dtype_name(each));
  }
  return name + " " + in_quotes(text) + " is not one of " + known;
}

std::string read_rule(const std::string &name, const std::string &text, mxs_rule *rule) {
  std::string known;
  for (const mxs_rule each : {MXS_RULE_MUON, MXS_RULE_ADAMW, MXS_RULE_EXTERNAL, MXS_RULE_FROZEN, MXS_RULE_SHAMPOO,
                              MXS_RULE_SOAP}) {
    if (text == mxs_rule_name(each)) {
      *rule = each;
      return "";
    }
    known.append(known.empty() ? "" : ", ").append(mxs_rule_name(each));
  }
  return name + ": " + in_quotes(text) + " is not one of " + known;
}

// PATTERN=RULE or PATTERN=RULE:GROUP. Patterns may hold '='; rules don't.
std::string read_rule_word(const std::string &text, PlanRequest *request) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0)
    return "--rule " + in_quotes(text) +
           " is not PATTERN=RULE, such as '*.experts.*=muon'; --matrix-rule takes the rule of all matrices";
  RuleWord word;
  word.pattern = text.substr(0, equals);
  std::string rule = text.substr(equals + 1);
  if (const size_t colon = rule.find(':'); colon != std::string::npos) {
    const std::string complaint = read_count("--rule: group", rule.substr(colon + 1), 0, &word.group);
    if (!complaint.empty()) return complaint;
    rule.resize(colon);
  }
  const std::string complaint = read_rule("--rule " + in_quotes(text), rule, &word.rule);
  if (complaint.empty()) request->rules.push_back(std::move(word));
  return complaint;
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

std::string read_compare(const std::string &text, std::vector<std::string> *compare) {
  const std::vector<std::string> asked = text == "all" ? compare_names : parts_of(text);
  for (const std::string &name : asked)
    if (std::find(compare_names.begin(), compare_names.end(), name) == compare_names.end())
      return "--compare " + in_quotes(name) + " is not one of slices, alltoall, zero1, ddp; or all of them: all";
  compare->clear();
  for (const std::string &name : compare_names)
    if (std::find(asked.begin(), asked.end(), name) != asked.end()) compare->push_back(name);
  return "";
}

std::string read_text(const std::string &name, const std::string &value, std::string *text) {
  *text = value;
  return value.empty() ? name + " is empty" : "";
}

std::string read_option(const std::string &name, const std::string &value, PlanRequest *request) {
  mxs_plan_options &options = request->options;
  if (name == "--world") return read_text(name, value, &request->world);
  if (name == "--save") return read_text(name, value, &request->save);
  if (name == "--previous") return read_text(name, value, &request->previous);
  if (name == "--html") return read_text(name, value, &request->html);
  if (name == "--replicas") return read_count(name, value, 1, &request->replicas);
  if (name == "--rule") return read_rule_word(value, request);
  if (name == "--matrix-rule") return read_rule(name, value, &request->model.matrix_rule);
  if (name == "--dtype") return read_dtype(name, value, &request->model.dtype);
  if (name == "--master-dtype") return read_dtype(name, value, &request->model.master_dtype);
  if (name == "--gradient-dtype") return read_dtype(name, value, &request->model.gradient_dtype);
  if (name == "--budget") return read_bytes(name, value, &options.rank_bytes_max);
  if (name == "--flat") return read_bytes(name, value, &options.flat_bytes);
  if (name == "--alignment") return read_bytes(name, value, &options.alignment);
  if (name == "--co-owners") return read_count(name, value, 1, &options.co_owners_max);
  if (name == "--flops") return read_rate(name, value, &options.matrix_flops_per_second);
  if (name == "--memory") return read_rate(name, value, &options.memory_bytes_per_second);
  if (name == "--weights") return read_weights(value, &options);
  if (name == "--slots") return read_count(name, value, 1, &request->memory.slots);
  if (name == "--gradient-slots") return read_count(name, value, 1, &request->memory.gradient_slots);
  if (name == "--threads") return read_count(name, value, 1, &request->memory.thread_count);
  if (name == "--compare") return read_compare(value, &request->compare);
  return "there is no option " + in_quotes(name);
}

bool read_flag(const std::string &word, PlanRequest *request) {
  if (word == "--json") request->json = true;
  else if (word == "--tensors") request->tensors = true;
  else if (word == "--by-reference") request->memory.by_reference = 1;
  else return false;
  return true;
}

std::string check_request(const PlanRequest &request) {
  if (request.path.empty())
    return "PATH is missing: a safetensors file or folder, a config.json, or a list of tensors as JSON or CSV";
  if (request.world.empty())
    return "--world is missing: the ranks to plan for, as in --world \"nodes:8 ranks:8\", or a saved topology";
  return "";
}

}  // namespace

std::string read_plan_request(const Words &words, PlanRequest *request) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (read_flag(words[i], request)) continue;
    std::string name = words[i], value;
    if (!name.starts_with("-")) {
      if (!request->path.empty()) return in_quotes(name) + ": the model is " + in_quotes(request->path) + " already";
      request->path = name;
      continue;
    }
    const size_t equals = name.find('=');
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    } else {
      return in_quotes(name) + ": no value, or no such option";
    }
    const std::string complaint = read_option(name, value, request);
    if (!complaint.empty()) return complaint;
  }
  request->memory.replicas = request->replicas > 1;
  return check_request(*request);
}

}  // namespace mxs_cli
