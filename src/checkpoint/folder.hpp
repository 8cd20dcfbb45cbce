// SPDX-License-Identifier: Apache-2.0
// Folder: a checkpoint comes to its place whole, or not at all.
//
//   .step-00000500.partial-HEX    being written; its maker holds a lock (flock) on it, so that others can tell it from
//                                 one that a killed process has left
//   step-00000500                 whole. If it was there before, the two are exchanged, then the old one is removed
//   .step-00000500.old-HEX        on its way out: renamed first, so that a half-removed one is never taken for a whole
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "matrixshard/status.h"

namespace mxs {

// "step-00000500".
std::string step_folder_name(uint64_t step_number);
// The number, or false: it is no such name.
bool step_of_folder_name(const std::string &name, uint64_t *step_number);

// The one that holds the lock: one process of a save.
class PartialFolder {
 public:
  PartialFolder() = default;
  ~PartialFolder();  // not committed: removed with all that is in it
  PartialFolder(const PartialFolder &) = delete;

  // Makes root and its parents, removes what killed saves left there, makes the partial folder with its subfolder
  // "optimizer", takes the lock. MXS_SYSTEM.
  mxs_status begin(const std::string &root, const std::string &name);
  const std::string &path() const { return path_; }          // of the partial folder
  const std::string &final_path() const { return final_path_; }
  // fsync of folders, rename or exchange, fsync of root. Afterwards the checkpoint is there whatever happens. The old
  // one, if there was one, is removed; failing that is logged.
  mxs_status commit();
  // Without waiting for the destructor.
  void remove();

 private:
  std::string root_, path_, final_path_;
  int descriptor_ = -1;
  bool committed_ = false;
};

// Writes a small file whole, with fsync. For manifest and index.
mxs_status write_synced(const std::string &path, const std::string &text);

// Files of `from` that belong to a model but are no weights, index or manifest: config.json, a tokenizer. Regular files
// of at most 256 MiB, synced.
mxs_status copy_companions(const std::string &from, const std::string &to);

// Deletes all step-* folders but the `keep` newest, never `current`. 0: none. What can't be deleted is logged.
void keep_newest(const std::string &root, int keep, const std::string &current);

// The step-* folder in root with the highest number. "": there is none.
std::string newest_checkpoint(const std::string &root);

}  // namespace mxs
