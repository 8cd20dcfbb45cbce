// SPDX-License-Identifier: Apache-2.0
// What folder.cpp and folder_sweep.cpp share: hidden names, locks, and folders as a whole.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/descriptor.hpp"
#include "matrixshard/status.h"

namespace mxs {

// The three ways of folder.hpp: ".NAME.partial-HEX", ".NAME.old-HEX", ".NAME.gone-HEX", HEX: 16 random digits.
constexpr char partial_word[] = "partial", old_word[] = "old", gone_word[] = "gone";

std::string hidden_name(const std::string &name, const char *word);
// The NAME, or "": it is no such hidden name.
std::string name_of_hidden(const std::string &hidden, const char *word);

std::string without_last_slashes(const std::string &path);
// A folder's entries; what can't be listed has none, errno says why.
bool list_folder(const std::string &path, std::vector<std::string> *names);
bool list_folder(int folder_number, std::vector<std::string> *names);  // of O_PATH, too
bool is_folder(const std::string &path);  // itself, not what a link points to
bool is_there(const std::string &path);   // anything, a dangling link, too
bool has_manifest(const std::string &path);
// What was opened hasn't been renamed or removed since, and nothing else has taken its place.
bool is_still_there(int number, const std::string &path);
bool leads_to_folder(const std::string &path);  // a folder, or a link to one

enum class Lock {
  taken,
  busy,     // somebody has it
  missing,  // the folder isn't there any more, or another one is
  none      // this file system has no locks
};
// Takes a folder's lock, without waiting: flock of the folder itself; where that isn't possible (NFS locks what is open
// for writing, and no folder is) flock of its manifest, which is made, empty, if `make_file`.
Lock lock_folder(const std::string &path, bool make_file, Descriptor *lock);
// Children of a fork have the descriptor, too; so closing alone wouldn't do.
void unlock(Descriptor *lock);

bool sync_folder(const std::string &path);  // false: errno says why
// With all that is in it. It may vanish meanwhile, and others may still write into it. false: errno says why.
bool remove_tree(const std::string &path);
// What can't be removed is logged.
void remove_or_log(const std::string &path);

// false: errno says why. EEXIST: there is something.
bool rename_to_free_place(const std::string &from, const std::string &to);
// false: errno says why. EINVAL: the file system can't.
bool exchange_folders(const std::string &one, const std::string &other);

// For good: what is in root under another name first, so that half of it is never taken for a whole, nor for one whose
// lock can be had.
void discard(const std::string &root, const std::string &entry);
// Deletes what killed processes left in root, and puts back what is whole.
void sweep(const std::string &root);

}  // namespace mxs
