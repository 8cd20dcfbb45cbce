// SPDX-License-Identifier: Apache-2.0
// The words of `mxs plan`, one by one.
#include "cli/plan_request.hpp"

#include <algorithm>
#include <utility>

#include "cli/layout_words.hpp"
#include "cli/option_words.hpp"

namespace mxs_cli {

const std::vector<std::string> compare_names = {"slices", "alltoall", "zero1", "ddp"};

namespace {

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

// A whole number with K, M, B or T for 10^3 to 10^12.
std::string read_parameters(const std::string &name, const std::string &text, uint64_t *count) {
  const bool billions = text.ends_with("B");
  const std::string rate = billions ? text.substr(0, text.size() - 1).append("G") : text;
  if (read_rate(name, rate, count).empty()) return "";
  return name + " " + in_quotes(text) + " is no number of parameters, such as 37B";
}

std::string read_tokens(const std::string &text, uint64_t *tokens) {
  int32_t count = 0;
  const std::string complaint = read_count("--tokens", text, 1, &count);
  if (complaint.empty()) *tokens = static_cast<uint64_t>(count);
  return complaint;
}

std::string read_option(const std::string &name, const std::string &value, PlanRequest *request) {
  std::string complaint;
  if (read_plan_option(name, value, &request->options, &complaint)) return complaint;
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
  if (name == "--slots") return read_count(name, value, 1, &request->memory.slots);
  if (name == "--gradient-slots") return read_count(name, value, 1, &request->memory.gradient_slots);
  if (name == "--threads") return read_count(name, value, 1, &request->memory.thread_count);
  if (name == "--tokens") return read_tokens(value, &request->tokens);
  if (name == "--train-flops") return read_rate(name, value, &request->train_flops);
  if (name == "--active") return read_parameters(name, value, &request->active);
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
  if (request.compare.empty() && (request.tokens || request.train_flops || request.active))
    return "--tokens, --train-flops and --active are for --compare";
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
    std::string complaint = take_value(words, &i, &name, &value);
    if (complaint.empty()) complaint = read_option(name, value, request);
    if (!complaint.empty()) return complaint;
  }
  request->memory.replicas = request->replicas > 1;
  return check_request(*request);
}

}  // namespace mxs_cli
