// SPDX-License-Identifier: Apache-2.0
// Which safetensors files a model has, and their headers: one file, those that an index names, or all of a folder.
// Reads files.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/safetensors.hpp"

namespace mxs {

constexpr const char *weight_index_ending = ".safetensors.index.json";
constexpr const char *weight_ending = ".safetensors";

struct WeightFiles {
  std::string folder;
  std::vector<std::string> names;  // in order
  bool has_index = false;
  std::unordered_map<std::string, std::string> file_of_tensor;  // by the index
};

// "." of a plain name.
std::string folder_of(const std::string &path);

// Of a folder: its one index, "" if it has none, and all *.safetensors. MXS_INVALID_ARGUMENT: several indices.
mxs_status list_weight_files(const std::string &folder, std::string *index, WeightFiles *files);
// What an index in *folder* names. MXS_INVALID_ARGUMENT: it is none; the sentence doesn't begin with its name.
mxs_status weight_files_of_index(const std::string &folder, const nlohmann::json &root, WeightFiles *files);

// take(name, header, bytes) of each file, in their order; bytes: of the file up to its data. Refuses a file that has
// not just the tensors that the index looks for in it, and a tensor that two files have. Sentences begin with the path.
using TakeHeader = std::function<mxs_status(const std::string &name, SafetensorsHeader &&header,
                                            const std::string &bytes)>;
mxs_status read_weight_headers(const WeightFiles &files, const TakeHeader &take);

}  // namespace mxs
