// SPDX-License-Identifier: Apache-2.0
// The door of checkpoint.h's saving part.
#include "matrixshard/checkpoint.h"

#include <memory>
#include <string>
#include <vector>

#include "api/door.hpp"
#include "api/optimizer.hpp"
#include "checkpoint/background_save.hpp"
#include "checkpoint/save.hpp"

using namespace mxs;

namespace {

constexpr uint64_t extras_max = 1'000'000;
constexpr uint64_t user_bytes_max = uint64_t{1} << 20;
constexpr size_t name_bytes_max = 200;
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
  if (!name) return MXS_OK;
  const size_t bytes = std::strlen(name);
  const char *const wrong = bytes == 0                 ? "is empty"
                            : name[0] == '.'           ? "begins with a dot"
                            : std::strchr(name, '/')   ? "has a slash"
                            : bytes > name_bytes_max   ? "is longer than 200 bytes"
                                                       : nullptr;
  return wrong ? set_error(MXS_INVALID_ARGUMENT, "options.name (\"%.200s\") %s", name, wrong) : MXS_OK;
}

mxs_status read_settings(const char *path, const mxs_checkpoint_options &options, SaveSettings *settings) {
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

mxs_status check_units(mxs_unit *const *units, uint64_t unit_count) {
  if (unit_count == 0 || !units)
    return set_error(MXS_INVALID_ARGUMENT, "a save needs units: units is %p, unit_count %" PRIu64,
                     static_cast<const void *>(units), unit_count);
  for (uint64_t i = 0; i < unit_count; ++i)
    if (!units[i]) return set_error(MXS_INVALID_ARGUMENT, "units[%" PRIu64 "] is NULL", i);
  for (uint64_t i = 0; i < unit_count; ++i) {
    const mxs_status status = units[i]->comm().check();
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// Other ranks, whose arguments are good, must not wait for this one. Nobody to tell if no comm can be seen.
mxs_status refuse_save(mxs_status own, mxs_unit *const *units, uint64_t unit_count) {
  for (uint64_t i = 0; units && i < unit_count; ++i)
    if (units[i]) return units[i]->first_replica() ? settle_over_ranks(units[i]->comm(), own, "the save") : own;
  return own;
}

Optimizer *inner(mxs_optimizer *optimizer) { return optimizer ? optimizer->inner.get() : nullptr; }

// What both kinds of save begin with. On a replica that doesn't write nothing is agreed.
mxs_status read_save(const char *path, mxs_unit *const *units, uint64_t unit_count,
                     const mxs_checkpoint_options *given, mxs_checkpoint_options *options, SaveSettings *settings) {
  mxs_status status = read_struct(given, sizeof(mxs_checkpoint_options), "options", options);
  if (status == MXS_OK) status = read_settings(path, *options, settings);
  if (status == MXS_OK) status = check_units(units, unit_count);
  return status;
}

mxs_status check_save(const mxs_save *save) {
  return save ? save->check_process() : set_error(MXS_INVALID_ARGUMENT, "save is NULL");
}

}  // namespace

mxs_status mxs_checkpoint_save(const char *path, mxs_unit *const *units, uint64_t unit_count,
                               mxs_optimizer *optimizer, const mxs_checkpoint_options *given) {
  return fenced([&]() -> mxs_status {
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    SaveSettings settings;
    const mxs_status status = read_save(path, units, unit_count, given, &options, &settings);
    if (status != MXS_OK) return refuse_save(status, units, unit_count);
    if (!units[0]->first_replica()) return MXS_OK;
    uint64_t total_bytes = 0;
    IoProgress progress;
    if (options.progress)
      progress.go_on = [&](uint64_t done_bytes) {
        return options.progress(options.progress_context, done_bytes, total_bytes) == 0;
      };
    return save_checkpoint(std::vector<Unit *>(units, units + unit_count), inner(optimizer), settings, &progress,
                           &total_bytes);
  });
}

mxs_status mxs_save_start(mxs_save **save, const char *path, mxs_unit *const *units, uint64_t unit_count,
                          mxs_optimizer *optimizer, const mxs_checkpoint_options *given) {
  return fenced([&]() -> mxs_status {
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    SaveSettings settings;
    mxs_status status = read_save(path, units, unit_count, given, &options, &settings);
    if (status == MXS_OK && !save) status = set_error(MXS_INVALID_ARGUMENT, "save is NULL");
    if (status == MXS_OK && options.progress)
      status = set_error(MXS_INVALID_ARGUMENT, "options.progress is set, but a save beside training is asked how far "
                         "it is: pass NULL, call mxs_save_query");
    if (status != MXS_OK) return refuse_save(status, units, unit_count);
    auto made = std::make_unique<mxs_save>();
    if (units[0]->first_replica())
      status = made->start(std::vector<Unit *>(units, units + unit_count), inner(optimizer), settings);
    else
      made->finish_at_once(settings, inner(optimizer));
    if (status == MXS_OK) *save = made.release();
    return status;
  });
}

mxs_status mxs_save_query(const mxs_save *save, mxs_save_info *info) {
  return fenced([&] {
    mxs_status status = check_save(save);
    if (status == MXS_OK) status = check_out_struct(info, sizeof(mxs_save_info), "info");
    if (status == MXS_OK) write_struct(save->info(), info);
    return status;
  });
}

mxs_status mxs_save_wait(mxs_save *save, uint64_t timeout_ns) {
  return fenced([&] {
    const mxs_status status = check_save(save);
    return status == MXS_OK ? save->wait(timeout_ns) : status;
  });
}

mxs_status mxs_save_cancel(mxs_save *save) {
  return fenced([&] {
    const mxs_status status = check_save(save);
    if (status == MXS_OK) save->cancel();
    return status;
  });
}

mxs_status mxs_save_destroy(mxs_save **save) {
  return fenced([&]() -> mxs_status {
    if (!save || !*save) return MXS_OK;
    const mxs_status status = (*save)->check_process();
    if (status != MXS_OK) return status;
    if (!(*save)->finished())
      return set_error(MXS_HELD, "the save isn't over; call mxs_save_wait first, or mxs_save_cancel and then that");
    delete *save;
    *save = nullptr;
    return MXS_OK;
  });
}
