// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder_tools.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <memory>

#include "base/log.hpp"
#include "checkpoint/manifest.hpp"

namespace mxs {

namespace {

constexpr size_t hex_digits = 16;

struct CloseFolder {
  void operator()(DIR *folder) const { closedir(folder); }
};

bool remove_below(int folder_number, const char *name);

// Closes the number. Entries are removed while they are listed, which POSIX allows; whoever adds some meanwhile is met
// by the next pass.
bool empty_folder(int number) {
  const std::unique_ptr<DIR, CloseFolder> folder(fdopendir(number));
  if (!folder) {
    close(number);
    return false;
  }
  bool good = true;
  while (const dirent *entry = readdir(folder.get()))
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
      good = remove_below(dirfd(folder.get()), entry->d_name) && good;
  return good;
}

// Links are removed, not followed.
bool remove_below(int folder_number, const char *name) {
  for (int pass = 0; pass < 4; ++pass) {
    if (unlinkat(folder_number, name, 0) == 0 || errno == ENOENT) return true;
    if (errno != EISDIR && errno != EPERM) return false;
    const int number = openat(folder_number, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (number < 0) return errno == ENOENT;
    if (!empty_folder(number)) return false;
    if (unlinkat(folder_number, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return true;
    if (errno != ENOTEMPTY && errno != EEXIST) return false;
  }
  return false;
}

// 0, EWOULDBLOCK: somebody has it, or another errno: no such lock here.
int take(int number) {
  while (flock(number, LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

bool lacks_rename_flags(int error) { return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP; }

}  // namespace

std::string hidden_name(const std::string &name, const char *word) {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) number = static_cast<uint64_t>(getpid());
  char digits[hex_digits + 1];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, number);
  return "." + name + "." + word + "-" + digits;
}

std::string name_of_hidden(const std::string &hidden, const char *word) {
  const std::string middle = std::string(".") + word + "-";
  const size_t rest = middle.size() + hex_digits;
  if (hidden.size() < rest + 2 || hidden[0] != '.' || hidden[1] == '.') return "";
  const size_t place = hidden.size() - rest;
  const bool good = hidden.compare(place, middle.size(), middle) == 0 &&
                    hidden.find_first_not_of("0123456789abcdef", place + middle.size()) == std::string::npos;
  return good ? hidden.substr(1, place - 1) : "";
}

bool list_folder(const std::string &path, std::vector<std::string> *names) {
  names->clear();
  const Descriptor folder(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return folder && list_folder(folder.get(), names);
}

bool list_folder(int folder_number, std::vector<std::string> *names) {
  names->clear();
  const int number = openat(folder_number, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (number < 0) return false;
  const std::unique_ptr<DIR, CloseFolder> folder(fdopendir(number));
  if (!folder) {
    close(number);
    return false;
  }
  errno = 0;
  while (const dirent *entry = readdir(folder.get()))
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) names->push_back(entry->d_name);
  return errno == 0;
}

bool is_folder(const std::string &path) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

bool is_there(const std::string &path) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0;
}

bool has_manifest(const std::string &path) { return is_there(path + "/" + manifest_name); }

bool is_still_there(int number, const std::string &path) {
  struct stat here {}, there {};
  return fstat(number, &here) == 0 && lstat(path.c_str(), &there) == 0 && here.st_dev == there.st_dev &&
         here.st_ino == there.st_ino;
}

bool leads_to_folder(const std::string &path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

// One that is renamed between open and lock, and then deleted, may have lost its manifest: that says nothing of locks.
Lock lock_folder(const std::string &path, bool make_file, Descriptor *lock) {
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? Lock::missing : Lock::none;
  const int folder_number = folder.get();
  Descriptor file;
  int error = take(folder_number);
  if (error != 0 && error != EWOULDBLOCK) {
    file = Descriptor(openat(folder_number, manifest_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (make_file ? O_CREAT : 0),
                             0666));
    error = file ? take(file.get()) : errno;
  }
  if (error == EWOULDBLOCK) return Lock::busy;
  const bool same = is_still_there(folder_number, path) &&
                    (!file || is_still_there(file.get(), path + "/" + manifest_name));
  Descriptor *taken = file ? &file : &folder;
  if (!same) {
    unlock(taken);
    return Lock::missing;
  }
  if (error != 0) return Lock::none;
  *lock = std::move(*taken);
  return Lock::taken;
}

void unlock(Descriptor *lock) {
  if (!*lock) return;
  flock(lock->get(), LOCK_UN);
  lock->close();
}

bool sync_folder(const std::string &path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return false;
  // Some file systems have nothing to sync of a folder.
  return fsync(folder.get()) == 0 || errno == EINVAL || errno == ENOTSUP;
}

bool remove_tree(const std::string &path) { return remove_below(AT_FDCWD, path.c_str()); }

void remove_or_log(const std::string &path) {
  if (!remove_tree(path)) log_line(MXS_LOG_WARNING, "%s: can't remove it: %s", path.c_str(), std::strerror(errno));
}

// Without its flag rename replaces at most an empty folder.
bool rename_to_free_place(const std::string &from, const std::string &to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (!lacks_rename_flags(errno)) return false;
  if (rename(from.c_str(), to.c_str()) == 0) return true;
  if (errno == ENOTEMPTY || errno == ENOTDIR) errno = EEXIST;
  return false;
}

bool exchange_folders(const std::string &one, const std::string &other) {
  if (renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (lacks_rename_flags(errno)) errno = EINVAL;
  return false;
}

}  // namespace mxs
