// SPDX-License-Identifier: Apache-2.0
// The door of mxs_checkpoint_reshard.
#include "api/checkpoint.hpp"
#include "api/door.hpp"
#include "api/save_settings.hpp"
#include "api/values.hpp"
#include "checkpoint/reshard.hpp"

using namespace mxs;

namespace {

mxs_status check_arguments(const mxs_checkpoint *checkpoint, const mxs_topology *topology) {
  if (!checkpoint || !topology)
    return set_error(MXS_INVALID_ARGUMENT, "%s is NULL", checkpoint ? "topology" : "checkpoint");
  const OpenedCheckpoint &opened = checkpoint->opened;
  if (opened.plan) return MXS_OK;
  if (opened.has_manifest)
    return set_error(MXS_NOT_BUILT, "%.300s: its plan can't be made by this release (%s); load it and save it again",
                     opened.path.c_str(), opened.plan_fault.c_str());
  return set_error(MXS_NOT_FOUND, "%.300s has no manifest (%s): nothing tells which rank would own what of it",
                   opened.path.c_str(), manifest_name);
}

// What is taken over from the source isn't looked at.
mxs_status read_options(const char *path, const mxs_checkpoint_options *given, mxs_checkpoint_options *options,
                        SaveSettings *settings) {
  const mxs_status status = read_struct(given, sizeof(mxs_checkpoint_options), "options", options);
  if (status != MXS_OK) return status;
  options->masters = 0;
  options->user = nullptr;
  options->user_bytes = 0;
  options->extras = nullptr;
  options->extra_count = 0;
  return read_save_settings(path, *options, settings);
}

}  // namespace

mxs_status mxs_checkpoint_reshard(const mxs_checkpoint *checkpoint, const char *path, const mxs_topology *topology,
                                  const mxs_plan_options *plan_options, const mxs_checkpoint_options *given) {
  return fenced([&]() -> mxs_status {
    mxs_plan_options planned = MXS_PLAN_OPTIONS_INIT;
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    SaveSettings settings;
    mxs_status status = check_arguments(checkpoint, topology);
    if (status == MXS_OK)
      status = read_struct(plan_options, offsetof(mxs_plan_options, matrix_flops_per_second), "plan_options", &planned);
    if (status == MXS_OK) status = read_options(path, given, &options, &settings);
    if (status != MXS_OK) return status;
    Plan plan;
    status = plan_for_world(*checkpoint->opened.plan, topology->value, planned,
                            planned.previous ? &planned.previous->value : nullptr, &plan);
    if (status != MXS_OK) return status;
    uint64_t total_bytes = 0;
    IoProgress progress;
    if (options.progress)
      progress.go_on = [&](uint64_t done_bytes) {
        return options.progress(options.progress_context, done_bytes, total_bytes) == 0;
      };
    return reshard_checkpoint(checkpoint->opened, plan, settings, &progress, &total_bytes);
  });
}
