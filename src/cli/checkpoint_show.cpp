// SPDX-License-Identifier: Apache-2.0
// mxs checkpoint show: what a checkpoint has, from its manifest and headers. Or which checkpoints a folder has.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/checkpoint_commands.hpp"
#include "cli/checkpoint_list.hpp"
#include "cli/checkpoint_view.hpp"
#include "cli/json_writer.hpp"
#include "cli/plan_text.hpp"
#include "cli/table.hpp"

namespace mxs_cli {

namespace {

constexpr size_t files_max = 24, tensors_max = 16;

struct Sum {
  uint64_t array_count = 0, bytes = 0;
  void add(const mxs_checkpoint_array &array) {
    ++array_count;
    bytes += array.bytes;
  }
};

// Arrays that are one tensor's.
struct TensorSum {
  const mxs_checkpoint_array *weights = nullptr;  // nullptr: only masters or state are here
  Sum masters, state;
  uint64_t bytes = 0;  // of all of them
};

// Tensors that one rule steps.
struct RuleSum {
  std::string preset;  // "" of rules that step nothing
  uint64_t tensor_count = 0, weight_bytes = 0, master_bytes = 0, state_bytes = 0;
  std::vector<int32_t> groups;
};

struct Group {
  int32_t number = 0;
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
};

struct Sums {
  std::vector<std::pair<std::string, Sum>> files;                 // in their order
  std::map<std::pair<mxs_array_kind, std::string>, Sum> kinds;    // by kind, then part
  std::vector<std::string> names;                                 // of tensors, as they come
  std::map<std::string, TensorSum> tensors;
  std::map<mxs_rule, RuleSum> rules;
  std::vector<Group> groups;
  std::vector<uint64_t> user_bytes;                               // by rank
};

void add_array(const mxs_checkpoint_array &array, Sums *sums) {
  if (sums->files.empty() || sums->files.back().first != array.file) sums->files.emplace_back(array.file, Sum());
  sums->files.back().second.add(array);
  sums->kinds[{array.kind, array.part}].add(array);
  const auto [found, is_new] = sums->tensors.try_emplace(array.tensor);
  if (is_new) sums->names.emplace_back(array.tensor);
  TensorSum &tensor = found->second;
  tensor.bytes += array.bytes;
  if (array.kind == MXS_ARRAY_MASTER) tensor.masters.add(array);
  else if (array.kind == MXS_ARRAY_STATE) tensor.state.add(array);
  else tensor.weights = &array;
}

void add_rules(const CheckpointView &view, Sums *sums) {
  for (uint64_t index = 0; index < mxs_plan_tensor_count(view.plan.get()); ++index) {
    mxs_tensor_info info = MXS_TENSOR_INFO_INIT;
    mxs::check(mxs_plan_tensor(view.plan.get(), static_cast<int32_t>(index), &info));
    if (info.role == MXS_ROLE_TIED) continue;
    RuleSum &rule = sums->rules[info.rule];
    ++rule.tensor_count;
    if (std::find(rule.groups.begin(), rule.groups.end(), info.group) == rule.groups.end())
      rule.groups.push_back(info.group);
    const auto found = sums->tensors.find(info.name);
    if (found == sums->tensors.end()) continue;
    rule.weight_bytes += found->second.weights ? found->second.weights->bytes : 0;
    rule.master_bytes += found->second.masters.bytes;
    rule.state_bytes += found->second.state.bytes;
  }
  for (auto &[number, rule] : sums->rules) {
    std::sort(rule.groups.begin(), rule.groups.end());
    mxs_preset preset = MXS_PRESET_DEFAULT;
    if (mxs_checkpoint_rule(view.handle.get(), number, &preset) == MXS_OK) rule.preset = mxs_preset_name(preset);
  }
}

Sums sums_of(const CheckpointView &view) {
  Sums sums;
  for (const mxs_checkpoint_array &array : view.arrays) add_array(array, &sums);
  if (!view.info.has_manifest) return sums;
  add_rules(view, &sums);
  for (int32_t number = 0; number < view.info.group_count; ++number) {
    Group group;
    group.number = number;
    if (mxs_checkpoint_group(view.handle.get(), number, &group.values) == MXS_OK) sums.groups.push_back(group);
  }
  for (int32_t rank = 0; rank < view.info.rank_count; ++rank) {
    const void *data = nullptr;
    uint64_t bytes = 0;
    mxs::check(mxs_checkpoint_user(view.handle.get(), rank, &data, &bytes));
    sums.user_bytes.push_back(bytes);
  }
  return sums;
}

void add_more(size_t count, size_t shown, const char *what, std::string *text) {
  if (count > shown) text->append("and ").append(counted_text(count - shown, "more", "more")).append(what).append("\n");
}

void add_files(const Sums &sums, bool all, std::string *text) {
  Table table({"file", ">arrays", ">bytes"});
  const size_t shown = all ? sums.files.size() : std::min(sums.files.size(), files_max);
  for (size_t index = 0; index < shown; ++index) {
    const auto &[name, sum] = sums.files[index];
    table.add({short_name(name), count_text(sum.array_count), bytes_text(sum.bytes)});
  }
  text->append("\n").append(table.text());
  add_more(sums.files.size(), shown, ", which --tensors shows", text);
}

void add_kinds(const Sums &sums, std::string *text) {
  Table table({"kind", "part", ">arrays", ">bytes"});
  for (const auto &[key, sum] : sums.kinds)
    table.add({array_kind_name(key.first), short_name(key.second), count_text(sum.array_count), bytes_text(sum.bytes)});
  text->append("\n").append(table.text());
}

std::string real_text(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", static_cast<double>(value));
  return text;
}

// "0-3, 5, 7 and 12 more": as many whole runs as fit. PyTorch's tensors have a group each.
std::string groups_text(const std::vector<int32_t> &numbers, size_t width) {
  const std::string all = runs_text(numbers);
  if (all.size() <= width) return all;
  const auto first = [&](size_t count) {
    return runs_text({numbers.begin(), numbers.begin() + static_cast<ptrdiff_t>(count)});
  };
  size_t shown = 1, too_many = numbers.size();  // by halves: there may be 100,000
  while (shown + 1 < too_many) {
    const size_t middle = (shown + too_many) / 2;
    (first(middle).size() > width ? too_many : shown) = middle;
  }
  std::string text = first(shown);
  return text.append(" and ").append(std::to_string(numbers.size() - shown)).append(" more");
}

bool are_equal(const mxs_group_values &a, const mxs_group_values &b) {
  const auto fields = [](const mxs_group_values &of) {
    return std::array<float, 6>{of.lr, of.weight_decay, of.momentum, of.beta1, of.beta2, of.epsilon};
  };
  const auto of_a = fields(a), of_b = fields(b);
  return std::memcmp(of_a.data(), of_b.data(), sizeof of_a) == 0;
}

// Groups that have equal values share a line.
void add_group_table(const Sums &sums, std::string *text) {
  std::vector<std::pair<mxs_group_values, std::vector<int32_t>>> lines;
  for (const Group &group : sums.groups) {
    const auto same = [&](const auto &line) { return are_equal(line.first, group.values); };
    auto line = std::find_if(lines.begin(), lines.end(), same);
    if (line == lines.end()) line = lines.insert(line, {group.values, {}});
    line->second.push_back(group.number);
  }
  Table table({">lr", ">weight decay", ">momentum", ">beta1", ">beta2", ">epsilon", "groups"});
  for (const auto &[values, numbers] : lines)
    table.add({real_text(values.lr), real_text(values.weight_decay), real_text(values.momentum),
               real_text(values.beta1), real_text(values.beta2), real_text(values.epsilon), groups_text(numbers, 48)});
  text->append("\n").append(table.text());
}

void add_rule_table(const Sums &sums, std::string *text) {
  if (sums.rules.empty()) return;
  Table table({"rule", "preset", ">tensors", ">weights", ">masters", ">state", "groups"});
  for (const auto &[number, rule] : sums.rules)
    table.add({mxs_rule_name(number), rule.preset, count_text(rule.tensor_count), bytes_text(rule.weight_bytes),
               bytes_text(rule.master_bytes), bytes_text(rule.state_bytes), groups_text(rule.groups, 48)});
  text->append("\n").append(table.text());
  if (!sums.groups.empty()) add_group_table(sums, text);
}

// All in their order, or the largest.
std::vector<std::string> shown_tensors(const Sums &sums, bool all) {
  std::vector<std::string> names = sums.names;
  if (all || names.size() <= tensors_max) return names;
  std::stable_sort(names.begin(), names.end(), [&](const std::string &a, const std::string &b) {
    return sums.tensors.at(a).bytes > sums.tensors.at(b).bytes;
  });
  names.resize(tensors_max);
  return names;
}

// Without the ending that all of them have.
std::string stem(const std::string &file) {
  return file.ends_with(".safetensors") ? file.substr(0, file.size() - 12) : file;
}

void add_tensors(const CheckpointView &view, const Sums &sums, bool all, std::string *text) {
  const std::vector<std::string> names = shown_tensors(sums, all);
  if (names.empty()) return;
  Table table({names.size() < sums.names.size() ? "largest tensors" : "tensor", "shape", "dtype", "file", "owners",
               ">weights", ">masters", ">state"});
  for (const std::string &name : names) {
    const TensorSum &tensor = sums.tensors.at(name);
    const mxs_checkpoint_array *const weights = tensor.weights;
    table.add({short_name(name, 36), weights ? short_name(shape_text(*weights), 24) : "-",
               weights ? short_name(weights->dtype_word, 12) : "-", weights ? short_name(stem(weights->file), 24) : "-",
               shortened(owners_text(view, name), 12), weights ? bytes_text(weights->bytes) : "-",
               tensor.masters.array_count ? bytes_text(tensor.masters.bytes) : "-",
               tensor.state.array_count ? bytes_text(tensor.state.bytes) : "-"});
  }
  text->append("\n").append(table.text());
  add_more(sums.names.size(), names.size(), ", which --tensors shows", text);
}

void add_user(const Sums &sums, std::string *text) {
  uint64_t bytes = 0, rank_count = 0;
  for (const uint64_t own : sums.user_bytes) bytes += own, rank_count += own != 0;
  if (rank_count == 0) return;
  text->append("\nuser's own bytes: ").append(bytes_text(bytes)).append(" of ");
  text->append(counted_text(rank_count, "rank", "ranks")).append("\n");
}

std::string show_table(const CheckpointView &view, const Sums &sums, bool all) {
  std::string text = wrapped(short_name(last_part(view.path), 80).append(": ").append(title_text(view)), 2);
  add_files(sums, all, &text);
  add_kinds(sums, &text);
  add_rule_table(sums, &text);
  add_tensors(view, sums, all, &text);
  add_user(sums, &text);
  return text;
}

void add_sums(const Sums &sums, JsonText *json) {
  json->key("files").open('[');
  for (const auto &[name, sum] : sums.files)
    json->open('{').add("name", name).add("arrays", sum.array_count).add("bytes", sum.bytes).close('}');
  json->close(']').key("kinds").open('[');
  for (const auto &[key, sum] : sums.kinds) {
    json->open('{').add("kind", array_kind_name(key.first)).add("part", key.second);
    json->add("arrays", sum.array_count).add("bytes", sum.bytes).close('}');
  }
  json->close(']').key("rules").open('[');
  for (const auto &[number, rule] : sums.rules) {
    json->open('{').add("rule", std::string(mxs_rule_name(number))).add("preset", rule.preset);
    json->add("tensors", rule.tensor_count);
    json->add("weight_bytes", rule.weight_bytes).add("master_bytes", rule.master_bytes);
    json->add("state_bytes", rule.state_bytes).key("groups").open('[');
    for (const int32_t group : rule.groups) json->signed_number(group);
    json->close(']').close('}');
  }
  json->close(']').key("groups").open('[');
  for (const Group &group : sums.groups) {
    const mxs_group_values &values = group.values;
    json->open('{').add_signed("group", group.number);
    json->add_real("lr", static_cast<double>(values.lr));
    json->add_real("weight_decay", static_cast<double>(values.weight_decay));
    json->add_real("momentum", static_cast<double>(values.momentum));
    json->add_real("beta1", static_cast<double>(values.beta1));
    json->add_real("beta2", static_cast<double>(values.beta2));
    json->add_real("epsilon", static_cast<double>(values.epsilon)).close('}');
  }
  json->close(']').key("user_bytes").open('[');
  for (const uint64_t bytes : sums.user_bytes) json->number(bytes);
  json->close(']');
}

std::string show_json(const CheckpointView &view, const Sums &sums) {
  const mxs_checkpoint_info &info = view.info;
  JsonText json;
  json.open('{').add("path", view.path).add_truth("manifest", info.has_manifest);
  json.add("version", std::string(info.version)).add("step", info.step_number).add_signed("ranks", info.rank_count);
  json.add_truth("masters_as_model", info.masters).add_truth("state", info.has_state).add("bytes", info.bytes);
  add_sums(sums, &json);
  json.key("arrays").open('[');
  for (const mxs_checkpoint_array &array : view.arrays) {
    json.open('{').add("name", std::string(array.name)).add("kind", array_kind_name(array.kind));
    json.add("tensor", std::string(array.tensor)).add("part", std::string(array.part));
    json.add("dtype", std::string(array.dtype_word)).key("shape").open('[');
    for (int32_t d = 0; d < array.dimension_count; ++d) json.signed_number(array.shape[d]);
    json.close(']').add("bytes", array.bytes).add("file", std::string(array.file));
    json.add("offset", array.file_offset).add_signed("pieces", array.piece_count).close('}');
  }
  return json.close(']').close('}').take().append("\n");
}

}  // namespace

int checkpoint_show(const Words &words) {
  bool json = false, all = false;
  std::vector<std::string> paths;
  const std::string complaint =
      read_paths(words, {"PATH"}, {{"--json", &json}, {"--tensors", &all}}, &paths);
  if (!complaint.empty()) return bad_use("checkpoint show", complaint);
  try {
    if (is_folder_of_checkpoints(paths[0])) return list_checkpoints(paths[0], json);
    const CheckpointView view = view_checkpoint(paths[0]);
    const Sums sums = sums_of(view);
    print_text(json ? show_json(view, sums) : show_table(view, sums, all));
    return 0;
  } catch (const mxs::error &error) {
    return failed("checkpoint show", error.what(), 1);
  }
}

}  // namespace mxs_cli
