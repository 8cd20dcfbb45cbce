// SPDX-License-Identifier: Apache-2.0
#include "api/save_settings.hpp"

#include <cinttypes>
#include <cstring>

#include "api/door.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/manifest_words.hpp"

namespace mxs {

namespace {

constexpr uint64_t extras_max = 1'000'000;
constexpr size_t path_bytes_max = 4000;

mxs_status check_flag(int32_t flag, const char *name) {
  return flag == 0 || flag == 1 ? MXS_OK
                                : set_error(MXS_INVALID_ARGUMENT, "options.%s is %d, not 0 or 1", name, flag);
}

mxs_status check_path(const char *path) {
  if (!path || path[0] == '\0') return set_error(MXS_INVALID_ARGUMENT, "path is %s", path ? "empty" : "NULL");
  const size_t bytes = std::strlen(path);
  return bytes <= path_bytes_max ? MXS_OK
                                 : set_error(MXS_INVALID_ARGUMENT, "path has %zu bytes, more than %zu", bytes,
                                             path_bytes_max);
}

mxs_status check_name(const char *name) {
  const char *const fault = name ? fault_of_name(name) : nullptr;
  return fault ? set_error(MXS_INVALID_ARGUMENT, "options.name (\"%.200s\") %s", name, fault) : MXS_OK;
}

}  // namespace

mxs_status read_save_settings(const char *path, const mxs_checkpoint_options &options, SaveSettings *settings) {
  mxs_status status = check_path(path);
  if (status == MXS_OK) status = check_flag(options.masters, "masters");
  if (status == MXS_OK) status = check_flag(options.weights_only, "weights_only");
  if (status == MXS_OK) status = check_name(options.name);
  if (status == MXS_OK && options.keep < 0)
    status = set_error(MXS_INVALID_ARGUMENT, "options.keep is %d, not at least 0", options.keep);
  if (status == MXS_OK && options.user_bytes > user_bytes_max)
    status = set_error(MXS_INVALID_ARGUMENT, "options.user_bytes is %" PRIu64 ", more than %" PRIu64,
                       options.user_bytes, user_bytes_max);
  if (status == MXS_OK && options.user_bytes > 0 && !options.user)
    status = set_error(MXS_INVALID_ARGUMENT, "options.user is NULL, but user_bytes is %" PRIu64, options.user_bytes);
  if (status == MXS_OK)
    status = read_array(options.extras, options.extra_count, extras_max, sizeof(mxs_extra_tensor), "options.extras",
                        mxs_extra_tensor(MXS_EXTRA_TENSOR_INIT),
                        [&](const mxs_extra_tensor &extra) { settings->extras.push_back(extra); });
  if (status != MXS_OK) return status;
  settings->path = path;
  while (settings->path.size() > 1 && settings->path.back() == '/') settings->path.pop_back();
  settings->name = options.name ? options.name : "";
  settings->files_from = options.files_from ? options.files_from : "";
  settings->masters = options.masters == 1;
  settings->weights_only = options.weights_only == 1;
  settings->keep = options.keep;
  settings->user = options.user;
  settings->user_bytes = options.user_bytes;
  settings->timeout_ns = options.timeout_ns;
  return MXS_OK;
}

}  // namespace mxs
