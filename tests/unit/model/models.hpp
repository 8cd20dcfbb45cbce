// SPDX-License-Identifier: Apache-2.0
// What tests of models share: a folder of their own, files in it, models by the public functions, and looks into them.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "matrixshard/model.h"
#include "model/model.hpp"
#include "support/complaints.hpp"

namespace mxs::test {

inline std::string text_of(const std::string &path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline void put(const std::string &path, const std::string &text) { std::ofstream(path, std::ios::binary) << text; }

// Gone with all that is in it when it goes; one level of folders below it at most.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/mxs-model-XXXXXX";
    path_ = mkdtemp(name) ? name : "";
  }
  ~Folder() {
    if (!path_.empty() && std::system(("rm -rf '" + path_ + "'").c_str()) != 0) path_.clear();
  }
  Folder(const Folder &) = delete;
  std::string operator/(const std::string &name) const { return path_ + "/" + name; }
  const std::string &path() const { return path_; }

 private:
  std::string path_;
};

struct Loaded {
  mxs_model *model = nullptr;
  const mxs_tensor *tensors = nullptr;
  uint64_t count = 0;
  mxs_status status = MXS_OK;

  explicit Loaded(const std::string &path, const mxs_model_options *options = nullptr) {
    status = mxs_model_load(&model, path.c_str(), options);
    if (status == MXS_OK) status = mxs_model_tensors(model, &tensors, &count);
  }
  explicit Loaded(const std::vector<mxs_tensor> &given, const mxs_model_options *options = nullptr) {
    status = mxs_model_create(&model, given.data(), given.size(), options);
    if (status == MXS_OK) status = mxs_model_tensors(model, &tensors, &count);
  }
  Loaded(const Loaded &) = delete;
  ~Loaded() { mxs_model_destroy(&model); }

  std::string unit_name(const char *tensor) const {
    const mxs_tensor *found = find(tensor);
    const char *name = found ? mxs_model_unit_name(model, found->unit) : nullptr;
    return name ? name : "none";
  }
  const mxs_tensor *find(const char *name) const {
    for (uint64_t index = 0; index < count; ++index)
      if (std::strcmp(tensors[index].name, name) == 0) return &tensors[index];
    return nullptr;
  }
  uint64_t parameters() const {
    uint64_t sum = 0;
    for (uint64_t index = 0; index < count; ++index) {
      uint64_t elements = tensors[index].tied_to ? 0 : 1;
      for (int d = 0; d < tensors[index].dimension_count; ++d)
        elements *= static_cast<uint64_t>(tensors[index].shape[d]);
      sum += elements;
    }
    return sum;
  }
  std::string notes() const {
    std::string text;
    for (uint64_t index = 0; index < mxs_model_note_count(model); ++index)
      text.append(mxs_model_note(model, index)).append("\n");
    return text;
  }
  bool has_shape(const char *name, std::vector<int64_t> shape) const {
    const mxs_tensor *tensor = find(name);
    return tensor && std::vector<int64_t>(tensor->shape, tensor->shape + tensor->dimension_count) == shape;
  }
};

}  // namespace mxs::test
