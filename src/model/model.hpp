// SPDX-License-Identifier: Apache-2.0
// Model: the tensors of a model, read from files or given. The room that reads, so that plan/ can stay pure.
//
//   path -> which reader (model.cpp) -> names and shapes -> finish.cpp: units, rules, notes, title
//
//   config.cpp, architectures.cpp   config.json of Hugging Face
//   list.cpp, csv.cpp               lists
//   given.cpp                       tensors that the caller has in memory
//   weights.cpp, safetensors.cpp    headers of safetensors files
//   weight_files.cpp, safetensors_file.cpp   which files those are; reads them
//   units.cpp                       which layer a name belongs to
//   rules.cpp, patterns.cpp         which optimizer a tensor gets
//   words.cpp                       words of dtypes; is it UTF-8?
//
// All but model.cpp and what reads files is pure: text in, tensors out. Readers take any text whatever; tests/fuzz
// throws it at them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "matrixshard/model.h"

namespace mxs {

// What a file or the caller says of a tensor. Fields as in mxs_tensor, zero likewise; unit -1: by its name.
struct LoadedTensor {
  std::string name;
  std::vector<int64_t> shape;
  mxs_dtype dtype = 0, master_dtype = 0, gradient_dtype = 0;
  mxs_rule rule = MXS_RULE_AUTO;
  int group = 0, unit = -1;
  mxs_role role = MXS_ROLE_AUTO;
  int fixed_owner = 0, co_owners = 0;
  std::string tied_to;  // empty: not tied
  std::vector<int64_t> block_rows, block_columns;
  bool transposed = false;
  int64_t whole_rows = 0, whole_columns = 0;
};

struct LoadedModel {
  std::string kind;   // "llama", "safetensors", "list"
  std::vector<LoadedTensor> tensors;
  std::vector<std::string> unit_names;  // empty until finished, unless the file names units
  std::vector<std::string> notes;
  std::string title;
};

struct ModelRule {
  std::string pattern;
  mxs_rule rule = MXS_RULE_AUTO;
  int group = 0;
};

// mxs_model_options, with defaults filled in.
struct ModelSettings {
  mxs_dtype dtype = 0, master_dtype = 0, gradient_dtype = 0;
  mxs_rule matrix_rule = MXS_RULE_MUON;
  std::vector<ModelRule> rules;
};

// More than any model has, and few enough for a plan: a mistyped number is told from a real one.
constexpr size_t tensor_count_max = size_t{1} << 20;

// ---- model.cpp: reads files; sentences begin with the file ----
mxs_status load_model(const std::string &path, const ModelSettings &settings, LoadedModel *model);

// ---- config.cpp: what a configuration means. Sentences begin with the key ----
mxs_status model_from_config(const nlohmann::json &root, LoadedModel *model);

// ---- list.cpp, csv.cpp: lists that people or programs write. Sentences begin with the entry or the line ----
mxs_status model_from_list(const nlohmann::json &root, LoadedModel *model);
mxs_status model_from_csv(std::string_view text, LoadedModel *model);

// ---- json.cpp: a list or a configuration, whichever it is ----
mxs_status model_from_json(const nlohmann::json &root, LoadedModel *model);
mxs_status model_from_json(std::string_view text, LoadedModel *model);

// ---- given.cpp: descriptions that check_tensors of the plan has found sound. Sentences begin with the tensor ----
mxs_status model_from_tensors(const std::vector<mxs_tensor> &given, LoadedModel *model);

// ---- finish.cpp: units, dtypes, rules, notes, title. Refuses what a plan couldn't name or count ----
mxs_status finish_model(const ModelSettings &settings, LoadedModel *model);

// ---- units.cpp ----
void assign_units(LoadedModel *model);
// How much of a name is its layer's: of "model.layers.7.mlp.up.weight" the 14 bytes of "model.layers.7". 0: none.
size_t layer_prefix_bytes(std::string_view name);

// ---- rules.cpp ----
mxs_status assign_rules(const ModelSettings &settings, LoadedModel *model);

// ---- patterns.cpp: * is any text, ? any letter ----
bool pattern_matches(std::string_view pattern, std::string_view name);

// ---- words.cpp ----
// Ours, PyTorch's and safetensors': f32, float32, torch.float32, F32. 0: it is none.
mxs_dtype dtype_of_word(std::string_view word);
std::string counted(size_t count, const char *what);  // "1 tensor", "3 tensors"

}  // namespace mxs
