// SPDX-License-Identifier: Apache-2.0
// Folder: a checkpoint comes to its place whole, or not at all.
//
//   step-00000500                 whole, always: it got its name by a rename
//   .step-00000500.partial-HEX    being written. Its maker holds a lock (flock) on it, so that others can tell it from
//                                 one that a killed process has left, which the next save in this folder removes
//   .step-00000500.gone-HEX       being deleted: never a checkpoint again, whoever meets it deletes on
//   .step-00000500.old-HEX        whole, and for a moment the only one of its step: see below
//
// The new one takes its place by one rename (RENAME_NOREPLACE), or if one is there already by exchanging the two
// (RENAME_EXCHANGE); the old one then has the partial name and no lock, and is removed. At no moment is there none.
//
// Where the file system can't exchange (NFS, some FUSE) there are two renames: 500 -> .500.old, .500.partial -> 500.
// Killed in between, .500.old is the only whole one. So nobody deletes an old one whose place is empty: the next save
// in this folder puts it back, and so does newest_checkpoint, which a load comes by (in a folder that it can't write to
// it names the old one itself). That mustn't happen between the two renames of one who lives: he holds the old one's
// lock meanwhile. An old one whose place is taken becomes a gone one first and is deleted then: were it half deleted
// under its old name, and the new one deleted by keep_newest, then it would be put back. A partial one that is swept
// becomes a gone one first, too: its manifest may be its lock, and once that is removed its maker, who has just made
// the folder and comes to lock it, would make and have another.
//
// Renames that a deletion relies on are synced (fsync of the root) before it begins: a loss of power doesn't turn them
// about either.
//
// Locks are the folders' own; on NFS, which locks only what is open for writing, those of their manifests (which is
// made at the start, empty, and is written in place). File systems without either: what killed saves leave there stays,
// which is logged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/descriptor.hpp"
#include "matrixshard/status.h"

namespace mxs {

// "step-00000500".
std::string step_folder_name(uint64_t step_number);
// The number, or false: it is no such name.
bool step_of_folder_name(const std::string &name, uint64_t *step_number);

// What is wrong with it as the name of a checkpoint: "is empty", "has a slash", ... nullptr: nothing.
const char *fault_of_name(std::string_view name);

// The one that holds the lock: one process of a save.
class PartialFolder {
 public:
  PartialFolder() = default;
  ~PartialFolder();  // not committed: removed with all that is in it
  PartialFolder(const PartialFolder &) = delete;

  // Makes root and its parents, removes what killed saves left there, makes the partial folder with its subfolder
  // "optimizer", takes the lock. MXS_SYSTEM, also if something is in its place that neither is a checkpoint nor empty;
  // commit looks again. MXS_INVALID_ARGUMENT: a name with a slash, or a dot first.
  mxs_status begin(const std::string &root, const std::string &name);
  const std::string &path() const { return path_; }          // of the partial folder
  const std::string &final_path() const { return final_path_; }
  // fsync of folders, rename or exchange, fsync of root. Afterwards the checkpoint is there whatever happens; on
  // failure all is as before. The old one, if there was one, is removed; failing that is logged.
  mxs_status commit();
  // Without waiting for the destructor.
  void remove() noexcept;

 private:
  enum class Way { fresh, exchanged, aside };
  mxs_status make_partial();
  mxs_status take_place(Way *way, std::string *aside);
  void leave_place(Way way, const std::string &aside);

  std::string root_, name_, path_, final_path_;
  Descriptor lock_, old_lock_;
  bool committed_ = false;
};

// Writes a small file whole, in place, with fsync. For manifest and index.
mxs_status write_synced(const std::string &path, const std::string &text);

// Files of `from` that belong to a model but are no weights, index or manifest: config.json, a tokenizer. Regular files
// of at most 256 MiB, and what links lead to; synced. Larger ones and links that lead nowhere are logged.
mxs_status copy_companions(const std::string &from, const std::string &to);

// Deletes all step-* folders but the `keep` newest, never `current` (a name or a path), nor one without a manifest,
// which isn't ours. 0: none. What can't be deleted is logged.
void keep_newest(const std::string &root, int keep, const std::string &current);

// The path of the step-* folder in root with the highest number. "": there is none.
std::string newest_checkpoint(const std::string &root);

}  // namespace mxs
