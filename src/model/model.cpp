// SPDX-License-Identifier: Apache-2.0
// From a path to a model: which reader, and the file's name before whatever it has to say.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/status.hpp"
#include "machine/machine.hpp"
#include "model/model.hpp"

namespace mxs {
namespace {

constexpr size_t text_bytes_max = size_t{256} << 20;  // a list of a million tensors has about 100

// The cause is written with the file's name before it.
mxs_status in_file(mxs_status status, const std::string &path) {
  if (status == MXS_OK) return status;
  const std::string cause = last_error_text();
  return set_error(status, "model: %.200s: %s", path.c_str(), cause.c_str());
}

mxs_status read_text(const std::string &path, std::string *text) {
  return read_file("model", path, text_bytes_max, text);
}

mxs_status load_config(const std::string &path, LoadedModel *model) {
  std::string text;
  const mxs_status status = read_text(path, &text);
  return status == MXS_OK ? in_file(model_from_config(text, model), path) : status;
}

bool is_there(const std::string &path) {
  struct stat information {};
  return stat(path.c_str(), &information) == 0;
}

mxs_status load_folder(const std::string &path, LoadedModel *model) {
  const std::string config = path + "/config.json";
  if (is_there(config)) return load_config(config, model);
  return set_error(MXS_INVALID_ARGUMENT, "model: %.200s: the folder has no config.json", path.c_str());
}

mxs_status load_any(const std::string &path, LoadedModel *model) {
  struct stat information {};
  if (stat(path.c_str(), &information) != 0)
    return set_error(MXS_SYSTEM, "model: read %.200s: %s", path.c_str(), std::strerror(errno));
  if (S_ISDIR(information.st_mode)) return load_folder(path, model);
  if (path.ends_with(".safetensors") || path.ends_with(".csv"))
    return set_error(MXS_NOT_BUILT, "model: %.200s: only config.json is read yet", path.c_str());
  if (path.ends_with(".json")) return load_config(path, model);
  return set_error(MXS_INVALID_ARGUMENT,
                   "model: %.200s: its name ends in neither .safetensors nor .json nor .csv, and it is no folder",
                   path.c_str());
}

}  // namespace

mxs_status load_model(const std::string &path, const ModelSettings &settings, LoadedModel *model) {
  LoadedModel read;
  mxs_status status = load_any(path, &read);
  if (status == MXS_OK) status = in_file(finish_model(settings, &read), path);
  if (status == MXS_OK) *model = std::move(read);
  return status;
}

}  // namespace mxs
