// SPDX-License-Identifier: Apache-2.0
// The door of checkpoint.h's saving part.
#include "matrixshard/checkpoint.h"

#include <memory>
#include <string>
#include <vector>

#include "api/door.hpp"
#include "api/optimizer.hpp"
#include "api/save_settings.hpp"
#include "checkpoint/background_save.hpp"
#include "checkpoint/save.hpp"
#include "collective/comm.hpp"

using namespace mxs;

namespace {

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
  if (status == MXS_OK) status = read_save_settings(path, *options, settings);
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
    const Comm &comm = units[0]->comm();
    comm.mark("checkpoint save");
    const mxs_status saved = save_checkpoint(std::vector<Unit *>(units, units + unit_count), inner(optimizer), settings,
                                             &progress, &total_bytes);
    if (saved == MXS_OK) comm.mark("checkpoint saved");
    return saved;
  });
}

mxs_status mxs_save_start(mxs_save **save, const char *path, mxs_unit *const *units, uint64_t unit_count,
                          mxs_optimizer *optimizer, const mxs_checkpoint_options *given) {
  return fenced([&]() -> mxs_status {
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    SaveSettings settings;
    mxs_status status = read_save(path, units, unit_count, given, &options, &settings);
    settings.beside_training = true;
    if (status == MXS_OK && !save) status = set_error(MXS_INVALID_ARGUMENT, "save is NULL");
    if (status == MXS_OK && options.progress)
      status = set_error(MXS_INVALID_ARGUMENT, "options.progress is set, but a save beside training is asked how far "
                         "it is: pass NULL, call mxs_save_query");
    if (status != MXS_OK) return refuse_save(status, units, unit_count);
    auto made = std::make_unique<mxs_save>();
    units[0]->comm().mark("checkpoint save");
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
