// SPDX-License-Identifier: Apache-2.0
// The files of another world, written. Two buffers of file_io.hpp are all the memory: one of the reader, one of the
// writer.
#include "checkpoint/reshard.hpp"

#include <sys/stat.h>

#include <string>
#include <utility>

#include "base/status.hpp"
#include "checkpoint/complete_folder.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/save.hpp"
#include "matrixshard/version.h"
#include "plan/saved.hpp"

namespace mxs {

namespace {

// Copies the source's arrays into new files, one after the other; pieces get their hashes.
class Copier {
 public:
  Copier(const OpenedCheckpoint &opened, const std::string &folder, IoProgress *progress)
      : opened_(opened), writer_(folder, progress) {}

  mxs_status copy(FiledFile *file) {
    mxs_status status = writer_.begin(file->name);
    if (status == MXS_OK) status = writer_.write(0, file->header.data(), file->header.size());
    if (status == MXS_OK) status = writer_.finish_piece();
    std::vector<ReadRange> ranges;
    for (FiledArray &array : file->arrays) add_ranges(&array, file->data_offset, &ranges);
    if (status == MXS_OK) status = read_ranges(opened_.path, ranges, true, nullptr);
    return status == MXS_OK ? writer_.finish() : status;
  }

 private:
  // A range for each piece.
  void add_ranges(FiledArray *array, uint64_t data_offset, std::vector<ReadRange> *ranges) {
    const ManifestArray &source = opened_.manifest.arrays[opened_.index_of_name.at(array->name)];
    for (ManifestPiece &piece : array->pieces) {
      if (piece.count == 0) continue;
      const uint64_t first = piece.first * array->number_bytes, bytes = piece.count * array->number_bytes;
      ReadRange range = {&opened_.manifest.files[source.file], &source, first, bytes, {}};
      range.sink = [this, &piece, offset = data_offset + array->offset + first, left = bytes](
                       const std::byte *data, uint64_t count) mutable -> mxs_status {
        const mxs_status status = writer_.write(offset, data, count, &piece.hashes);
        offset += count;
        left -= count;
        return status == MXS_OK && left == 0 ? writer_.finish_piece() : status;
      };
      ranges->push_back(std::move(range));
    }
  }

  const OpenedCheckpoint &opened_;
  FilesWriter writer_;
};

// As a save in the new world writes it. Of ranks that this world hasn't the user's bytes are left out.
mxs_status manifest_for(const OpenedCheckpoint &opened, const Plan &plan, bool weights_only, Manifest *manifest) {
  const Manifest &source = opened.manifest;
  manifest->version = mxs_version_text();
  manifest->step_number = source.step_number;
  manifest->rank_count = plan.topology.rank_count();
  manifest->masters = source.masters;
  manifest->groups = source.groups;
  manifest->user = source.user;
  manifest->user.resize(static_cast<size_t>(manifest->rank_count));
  if (!weights_only) {
    manifest->has_state = source.has_state;
    manifest->rules = source.rules;
    manifest->rounding = source.rounding;
  }
  return plan_to_json(plan, &manifest->plan);
}

void add_file(FiledFile *file, Manifest *manifest) {
  const size_t number = manifest->files.size();
  manifest->files.push_back(
      {file->name, file->bytes, file->data_offset, hash_chunk(file->header.data(), file->header.size())});
  for (FiledArray &array : file->arrays) {
    array.file = number;
    manifest->arrays.push_back(std::move(array));
  }
}

mxs_status write_all(const OpenedCheckpoint &opened, std::vector<FiledFile> *files, const std::string &folder,
                     IoProgress *progress, Manifest *manifest) {
  Copier copier(opened, folder, progress);
  for (FiledFile &file : *files) {
    const mxs_status status = copier.copy(&file);
    if (status != MXS_OK) return status;
    add_file(&file, manifest);
  }
  return MXS_OK;
}

// A model alone in the place of what it is made of: masters and state would be gone without a word.
mxs_status check_not_the_source(const std::string &source, const std::string &result) {
  struct stat of_source, of_result;
  if (stat(source.c_str(), &of_source) != 0 || stat(result.c_str(), &of_result) != 0) return MXS_OK;
  if (of_source.st_ino != of_result.st_ino || of_source.st_dev != of_result.st_dev) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT,
                   "%.300s: the model alone would replace the checkpoint that it is made of, masters and state with "
                   "it; give another folder, or a name",
                   source.c_str());
}

}  // namespace

mxs_status reshard_checkpoint(const OpenedCheckpoint &opened, const Plan &plan, const SaveSettings &settings,
                              IoProgress *progress, uint64_t *total_bytes) {
  std::vector<FiledFile> files;
  Manifest manifest;
  mxs_status status = reshard_files(opened, plan, settings.weights_only, &files);
  if (status == MXS_OK) status = manifest_for(opened, plan, settings.weights_only, &manifest);
  if (status != MXS_OK) return status;
  *total_bytes = 0;
  for (const FiledFile &file : files) *total_bytes += file.bytes;
  SaveSettings named = settings;
  if (named.name.empty()) named.name = step_folder_name(manifest.step_number);
  if (named.files_from.empty()) named.files_from = opened.path;
  PartialFolder folder;
  if (named.weights_only) status = check_not_the_source(opened.path, named.path + "/" + named.name);
  if (status == MXS_OK) status = folder.begin(named.path, named.name);
  if (status == MXS_OK) status = write_all(opened, &files, folder.path(), progress, &manifest);
  if (status == MXS_OK) status = complete_folder(manifest, named.files_from, progress, &folder);
  if (status == MXS_OK) {
    keep_newest(named.path, named.keep, folder.final_path());
    return MXS_OK;
  }
  const std::string sentence = last_error_text();
  folder.remove();
  return set_error(status, "%s", sentence.c_str());
}

}  // namespace mxs
