// SPDX-License-Identifier: Apache-2.0
// The door of checkpoint.h's reading part: open, ask, read, verify.
#include "api/checkpoint.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "api/door.hpp"
#include "api/values.hpp"
#include "checkpoint/file_io.hpp"

using namespace mxs;

static_assert(sizeof(mxs_checkpoint_info) == 72, "part of the ABI");
static_assert(sizeof(mxs_checkpoint_array) == 144, "part of the ABI");
static_assert(sizeof(mxs_verify_options) == 40, "part of the ABI");

namespace {

mxs_status check_checkpoint(const mxs_checkpoint *checkpoint) {
  return checkpoint ? MXS_OK : set_error(MXS_INVALID_ARGUMENT, "checkpoint is NULL");
}

mxs_status no_manifest(const OpenedCheckpoint &opened, const char *what) {
  return set_error(MXS_NOT_FOUND, "%.300s is a safetensors model without a manifest: it has no %s",
                   opened.path.c_str(), what);
}

mxs_checkpoint_info info_of(const OpenedCheckpoint &opened) {
  const Manifest &manifest = opened.manifest;
  mxs_checkpoint_info info = MXS_CHECKPOINT_INFO_INIT;
  info.has_manifest = opened.has_manifest ? 1 : 0;
  info.rank_count = manifest.rank_count;
  info.group_count = static_cast<int32_t>(std::min<size_t>(manifest.groups.size(), INT32_MAX));
  info.masters = manifest.masters ? 1 : 0;
  info.has_state = manifest.has_state ? 1 : 0;
  info.step_number = manifest.step_number;
  info.file_count = manifest.files.size();
  info.array_count = manifest.arrays.size();
  info.bytes = opened.bytes;
  info.path = opened.path.c_str();
  info.version = manifest.version.c_str();
  return info;
}

mxs_checkpoint_array array_of(const OpenedCheckpoint &opened, const ManifestArray &array) {
  const ManifestFile &file = opened.manifest.files[array.file];
  mxs_checkpoint_array given = MXS_CHECKPOINT_ARRAY_INIT;
  given.kind = array.kind;
  given.dtype = array.dtype;
  given.dimension_count = static_cast<int32_t>(array.shape.size());
  std::copy(array.shape.begin(), array.shape.end(), given.shape);
  given.bytes = array.bytes;
  given.file_offset = file.data_offset + array.offset;
  given.name = array.name.c_str();
  given.dtype_word = array.dtype_word.c_str();
  given.file = file.name.c_str();
  given.tensor = array.tensor.c_str();
  given.part = array.part.c_str();
  given.piece_count = static_cast<int32_t>(std::min<size_t>(array.pieces.size(), INT32_MAX));
  return given;
}

mxs_status find_array(const OpenedCheckpoint &opened, uint64_t index, const ManifestArray **array) {
  const size_t count = opened.manifest.arrays.size();
  if (index >= count)
    return set_error(MXS_NOT_FOUND, "the checkpoint has %zu arrays, none with the number %" PRIu64, count, index);
  *array = &opened.manifest.arrays[index];
  return MXS_OK;
}

mxs_status read_array(const OpenedCheckpoint &opened, const ManifestArray &array, uint64_t offset, uint64_t bytes,
                      void *target) {
  if (offset > array.bytes || bytes > array.bytes - offset)
    return set_error(MXS_INVALID_ARGUMENT, "%" PRIu64 " bytes from byte %" PRIu64 " of \"%.200s\", which has %" PRIu64,
                     bytes, offset, array.name.c_str(), array.bytes);
  if (bytes == 0) return MXS_OK;
  if (!target) return set_error(MXS_INVALID_ARGUMENT, "target is NULL");
  auto *place = static_cast<std::byte *>(target);
  ReadRange range{&opened.manifest.files[array.file], &array, offset, bytes, {}};
  range.sink = [&place](const std::byte *data, uint64_t count) {
    std::memcpy(place, data, count);
    place += count;
    return MXS_OK;
  };
  return read_ranges(opened.path, {range}, opened.has_manifest, nullptr);
}

}  // namespace

mxs_status mxs_checkpoint_open(mxs_checkpoint **checkpoint, const char *path) {
  return fenced([&]() -> mxs_status {
    if (!checkpoint || !path)
      return set_error(MXS_INVALID_ARGUMENT, "%s is NULL", checkpoint ? "path" : "checkpoint");
    if (!*path) return set_error(MXS_INVALID_ARGUMENT, "path is empty");
    auto made = std::make_unique<mxs_checkpoint>();
    const mxs_status status = open_checkpoint(path, &made->opened);
    if (status == MXS_OK) *checkpoint = made.release();
    return status;
  });
}

void mxs_checkpoint_close(mxs_checkpoint **checkpoint) {
  if (!checkpoint) return;
  delete *checkpoint;
  *checkpoint = nullptr;
}

mxs_status mxs_checkpoint_query(const mxs_checkpoint *checkpoint, mxs_checkpoint_info *info) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_checkpoint(checkpoint);
    if (status == MXS_OK) status = check_out_struct(info, sizeof *info, "info");
    if (status == MXS_OK) write_struct(info_of(checkpoint->opened), info);
    return status;
  });
}

mxs_status mxs_checkpoint_array_at(const mxs_checkpoint *checkpoint, uint64_t index, mxs_checkpoint_array *array) {
  return fenced([&]() -> mxs_status {
    const ManifestArray *found = nullptr;
    mxs_status status = check_checkpoint(checkpoint);
    if (status == MXS_OK) status = check_out_struct(array, sizeof *array, "array");
    if (status == MXS_OK) status = find_array(checkpoint->opened, index, &found);
    if (status == MXS_OK) write_struct(array_of(checkpoint->opened, *found), array);
    return status;
  });
}

mxs_status mxs_checkpoint_find(const mxs_checkpoint *checkpoint, const char *name, uint64_t *index) {
  return fenced([&]() -> mxs_status {
    const mxs_status status = check_checkpoint(checkpoint);
    if (status != MXS_OK) return status;
    if (!name || !index) return set_error(MXS_INVALID_ARGUMENT, "%s is NULL", name ? "index" : "name");
    const auto found = checkpoint->opened.index_of_name.find(name);
    if (found == checkpoint->opened.index_of_name.end())
      return set_error(MXS_NOT_FOUND, "the checkpoint has no array \"%.200s\"", name);
    *index = found->second;
    return MXS_OK;
  });
}

mxs_status mxs_checkpoint_read(const mxs_checkpoint *checkpoint, uint64_t index, uint64_t offset, uint64_t bytes,
                               void *target) {
  return fenced([&]() -> mxs_status {
    const ManifestArray *array = nullptr;
    mxs_status status = check_checkpoint(checkpoint);
    if (status == MXS_OK) status = find_array(checkpoint->opened, index, &array);
    return status == MXS_OK ? read_array(checkpoint->opened, *array, offset, bytes, target) : status;
  });
}

mxs_status mxs_checkpoint_plan(const mxs_checkpoint *checkpoint, mxs_plan **plan) {
  return fenced([&]() -> mxs_status {
    const mxs_status status = check_checkpoint(checkpoint);
    if (status != MXS_OK) return status;
    if (!plan) return set_error(MXS_INVALID_ARGUMENT, "plan is NULL");
    const OpenedCheckpoint &opened = checkpoint->opened;
    if (!opened.plan && opened.has_manifest)
      return set_error(MXS_NOT_BUILT, "%.300s: its plan can't be made by this release (%s)", opened.path.c_str(),
                       opened.plan_fault.c_str());
    if (!opened.plan) return no_manifest(opened, "plan");
    Plan copy = *opened.plan;
    *plan = std::make_unique<mxs_plan>(std::move(copy)).release();
    return MXS_OK;
  });
}

mxs_status mxs_checkpoint_group(const mxs_checkpoint *checkpoint, int32_t group, mxs_group_values *values) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_checkpoint(checkpoint);
    if (status == MXS_OK) status = check_out_struct(values, sizeof *values, "values");
    if (status != MXS_OK) return status;
    const auto &groups = checkpoint->opened.manifest.groups;
    if (group < 0 || static_cast<size_t>(group) >= groups.size() || !groups[static_cast<size_t>(group)])
      return set_error(MXS_NOT_FOUND, "the checkpoint has no values of group %d", group);
    write_struct(*groups[static_cast<size_t>(group)], values);
    return MXS_OK;
  });
}

mxs_status mxs_checkpoint_rule(const mxs_checkpoint *checkpoint, mxs_rule rule, mxs_preset *preset) {
  return fenced([&]() -> mxs_status {
    const mxs_status status = check_checkpoint(checkpoint);
    if (status != MXS_OK) return status;
    if (!preset) return set_error(MXS_INVALID_ARGUMENT, "preset is NULL");
    for (const ManifestRule &each : checkpoint->opened.manifest.rules)
      if (each.rule == rule) {
        *preset = each.preset;
        return MXS_OK;
      }
    return set_error(MXS_NOT_FOUND, "the checkpoint has no state of rule %s", mxs_rule_name(rule));
  });
}

mxs_status mxs_checkpoint_user(const mxs_checkpoint *checkpoint, int32_t rank, const void **data, uint64_t *bytes) {
  return fenced([&]() -> mxs_status {
    const mxs_status status = check_checkpoint(checkpoint);
    if (status != MXS_OK) return status;
    if (!data || !bytes) return set_error(MXS_INVALID_ARGUMENT, "%s is NULL", data ? "bytes" : "data");
    const Manifest &manifest = checkpoint->opened.manifest;
    if (rank < 0 || rank >= manifest.rank_count)
      return set_error(MXS_NOT_FOUND, "rank %d is none of the %d that saved the checkpoint", rank,
                       manifest.rank_count);
    const size_t index = static_cast<size_t>(rank);
    const bool gave = index < manifest.user.size() && !manifest.user[index].empty();
    *data = gave ? manifest.user[index].data() : nullptr;
    *bytes = gave ? manifest.user[index].size() : 0;
    return MXS_OK;
  });
}

mxs_status mxs_checkpoint_verify(const mxs_checkpoint *checkpoint, const mxs_verify_options *options) {
  return fenced([&]() -> mxs_status {
    mxs_verify_options read = MXS_VERIFY_OPTIONS_INIT;
    mxs_status status = check_checkpoint(checkpoint);
    if (status == MXS_OK) status = read_struct(options, sizeof read, "options", &read);
    if (status != MXS_OK) return status;
    if (read.reserved != 0) return set_error(MXS_INVALID_ARGUMENT, "options.reserved is not zero");
    return verify_checkpoint(checkpoint->opened, read);
  });
}
