// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/log.hpp"
#include "base/status.hpp"
#include "checkpoint/folder_tools.hpp"
#include "checkpoint/manifest.hpp"

namespace mxs {

namespace {

constexpr size_t name_bytes_max = 200;  // with a hidden name's additions below the usual 255
constexpr int name_turns = 100;
constexpr int lock_turns = 1000;  // of 10 ms
constexpr unsigned turn_us = 10'000;
constexpr char optimizer_folder[] = "optimizer";

mxs_status make_folder(const std::string &path) {
  if (leads_to_folder(path)) return MXS_OK;
  if (mkdir(path.c_str(), 0777) == 0) {
    const size_t slash = path.rfind('/');
    sync_folder(slash == std::string::npos ? "." : path.substr(0, slash + 1));
    return MXS_OK;
  }
  const int error = errno;
  if (error == EEXIST && leads_to_folder(path)) return MXS_OK;  // another rank was faster
  if (error == EEXIST || error == ENOTDIR)
    return set_error(MXS_SYSTEM, "%s: there is a file where a folder is to be", path.c_str());
  return set_error(MXS_SYSTEM, "can't make the folder %s: %s", path.c_str(), std::strerror(error));
}

mxs_status make_folders(const std::string &path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    if (path[slash - 1] == '/') continue;
    const mxs_status status = make_folder(path.substr(0, slash));
    if (status != MXS_OK) return status;
  }
  return make_folder(path);
}

// A folder that a save is to replace must be a checkpoint, or empty: people have folders called "data", too. Another
// save may be replacing it at this moment: then it is looked at again. It is held open meanwhile, so that no other has
// its inode: one that is still at its place afterwards was there all the time, or was put back, and is whole.
mxs_status check_replaceable(const std::string &path) {
  for (int turn = 0; turn < lock_turns; ++turn) {
    const Descriptor folder(open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder && errno == ENOENT) return MXS_OK;
    if (!folder && (errno == ENOTDIR || errno == ELOOP))
      return set_error(MXS_SYSTEM, "%s is in the way: it is no folder that a checkpoint could replace", path.c_str());
    if (!folder)
      return set_error(MXS_SYSTEM, "can't see whether %s is in the way: %s", path.c_str(), std::strerror(errno));
    struct stat manifest {};
    if (fstatat(folder.get(), manifest_name, &manifest, AT_SYMLINK_NOFOLLOW) == 0) return MXS_OK;
    std::vector<std::string> entries;
    const bool listed = list_folder(folder.get(), &entries);
    const int error = errno;
    if (listed && (entries.empty() || std::find(entries.begin(), entries.end(), manifest_name) != entries.end()))
      return MXS_OK;
    if (!is_still_there(folder.get(), path)) continue;
    if (!listed)
      return set_error(MXS_SYSTEM, "%s is in the way: it can't be listed: %s", path.c_str(), std::strerror(error));
    return set_error(MXS_SYSTEM, "%s is in the way: it isn't a checkpoint, since it has no %s, but %zu entries such as "
                     "%.100s; give the checkpoint another name, or remove that folder yourself", path.c_str(),
                     manifest_name, entries.size(), std::min_element(entries.begin(), entries.end())->c_str());
  }
  return set_error(MXS_SYSTEM, "%s is in the way: others replace it again and again", path.c_str());
}

}  // namespace

const char *fault_of_name(std::string_view name) {
  return name.empty()                                  ? "is empty"
         : name[0] == '.'                              ? "begins with a dot"
         : name.find('/') != std::string_view::npos    ? "has a slash"
         : name.find('\0') != std::string_view::npos   ? "has a zero byte"
         : name.size() > name_bytes_max                ? "is longer than 200 bytes"
                                                       : nullptr;
}

std::string step_folder_name(uint64_t step_number) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08" PRIu64, step_number);
  return name;
}

bool step_of_folder_name(const std::string &name, uint64_t *step_number) {
  if (name.size() < 13 || name.size() > 25 || name.compare(0, 5, "step-") != 0) return false;
  uint64_t number = 0;
  for (size_t i = 5; i < name.size(); ++i) {
    if (name[i] < '0' || name[i] > '9') return false;
    number = number * 10 + static_cast<uint64_t>(name[i] - '0');
  }
  if (step_folder_name(number) != name) return false;  // a zero too many, or more than 64 bits
  *step_number = number;
  return true;
}

PartialFolder::~PartialFolder() { remove(); }

mxs_status PartialFolder::begin(const std::string &root, const std::string &name) {
  if (root.empty()) return set_error(MXS_INVALID_ARGUMENT, "the path of the folder of checkpoints is empty");
  if (const char *const fault = fault_of_name(name))
    return set_error(MXS_INVALID_ARGUMENT, "a checkpoint can't be called \"%s\": the name %s", name.c_str(), fault);
  root_ = without_last_slashes(root);
  name_ = name;
  final_path_ = root_ + "/" + name;
  mxs_status status = make_folders(root_);
  if (status != MXS_OK) return status;
  status = check_replaceable(final_path_);
  if (status != MXS_OK) return status;
  sweep(root_);
  status = make_partial();
  if (status == MXS_OK) status = make_folder(path_ + "/" + optimizer_folder);
  if (status != MXS_OK) remove();
  return status;
}

// Between mkdir and lock somebody's sweep may have taken it for a leftover: then there is another name.
mxs_status PartialFolder::make_partial() {
  for (int turn = 0; turn < name_turns; ++turn) {
    const std::string path = root_ + "/" + hidden_name(name_, partial_word);
    if (mkdir(path.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      return set_error(MXS_SYSTEM, "can't make a folder in %s: %s", root_.c_str(), std::strerror(errno));
    }
    const Lock locked = lock_folder(path, true, &lock_);
    if (locked == Lock::busy || locked == Lock::missing) continue;
    if (locked == Lock::none)
      log_line(MXS_LOG_WARNING, "%s: its file system has no locks, so folders that killed saves leave there stay; "
               "remove .*.partial-* yourself", root_.c_str());
    path_ = path;
    return MXS_OK;
  }
  return set_error(MXS_SYSTEM, "can't make a folder in %s: others remove it at once", root_.c_str());
}

mxs_status PartialFolder::commit() {
  const std::string optimizer = path_ + "/" + optimizer_folder;
  const bool has_optimizer = rmdir(optimizer.c_str()) != 0;  // weights alone have nothing in it
  for (const std::string &folder : {optimizer, path_})
    if ((has_optimizer || folder == path_) && !sync_folder(folder))
      return set_error(MXS_SYSTEM, "%s: can't bring it to disk (fsync): %s", folder.c_str(), std::strerror(errno));
  Way way = Way::fresh;
  std::string aside;
  mxs_status status = take_place(&way, &aside);
  if (status != MXS_OK) return status;
  if (!sync_folder(root_)) {
    status = set_error(MXS_SYSTEM, "%s: can't bring it to disk (fsync): %s", root_.c_str(), std::strerror(errno));
    leave_place(way, aside);
    return status;
  }
  committed_ = true;
  unlock(&lock_);
  fenced([&] {
    if (way == Way::exchanged) remove_or_log(path_);  // now the old one's
    if (way == Way::aside) discard(root_, aside);
    return MXS_OK;
  });
  unlock(&old_lock_);
  return MXS_OK;
}

mxs_status PartialFolder::take_place(Way *way, std::string *aside) {
  for (int turn = 0; turn < lock_turns; ++turn) {
    *way = Way::fresh;
    if (rename_to_free_place(path_, final_path_)) return MXS_OK;
    if (errno != EEXIST) break;
    if (const mxs_status status = check_replaceable(final_path_); status != MXS_OK) return status;
    *way = Way::exchanged;
    if (exchange_folders(path_, final_path_)) return MXS_OK;
    if (errno == ENOENT) continue;  // it has just been removed
    if (errno != EINVAL) break;
    *way = Way::aside;
    const Lock locked = lock_folder(final_path_, false, &old_lock_);
    if (locked == Lock::busy) usleep(turn_us);
    if (locked == Lock::busy || locked == Lock::missing) continue;
    *aside = hidden_name(name_, old_word);
    const std::string aside_path = root_ + "/" + *aside;
    const bool moved = rename(final_path_.c_str(), aside_path.c_str()) == 0;
    if (moved && rename_to_free_place(path_, final_path_)) return MXS_OK;
    const int error = errno;
    if (moved) rename_to_free_place(aside_path, final_path_);
    unlock(&old_lock_);
    errno = error;
    if (error != (moved ? EEXIST : ENOENT)) break;  // another was faster, keep_newest has just deleted it
  }
  const int error = errno;
  unlock(&old_lock_);
  return set_error(MXS_SYSTEM, "can't rename %s to %s: %s", path_.c_str(), final_path_.c_str(), std::strerror(error));
}

void PartialFolder::leave_place(Way way, const std::string &aside) {
  if (way == Way::exchanged) exchange_folders(path_, final_path_);
  else rename_to_free_place(final_path_, path_);
  if (way == Way::aside) rename_to_free_place(root_ + "/" + aside, final_path_);
  unlock(&old_lock_);
}

void PartialFolder::remove() noexcept {
  fenced([&] {
    if (!committed_ && !path_.empty()) remove_or_log(path_);
    return MXS_OK;
  });
  path_.clear();
  unlock(&lock_);
}

}  // namespace mxs
