// SPDX-License-Identifier: Apache-2.0
// File systems that can do less or fail, kill -9 at a given call, and others who do something just before one: a test
// that is linked with --wrap=CALL for each call below has these instead of the system's. Included by one file of a
// program.
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>

namespace mxs::test {

struct Faults {
  std::atomic<long> calls{0};  // that change something
  std::atomic<long> kill_at{-1};
  std::atomic<bool> renames_have_flags{true};
  std::atomic<bool> folders_have_locks{true}, files_have_locks{true};
  std::atomic<int> fsync_error{0}, pwrite_error{0}, pread_error{0};
  std::atomic<long> fsync_fails_at{-1}, pwrite_fails_at{-1}, pread_fails_at{-1};  // -1: never
  std::atomic<size_t> pwrite_bytes_max{SIZE_MAX}, pread_bytes_max{SIZE_MAX};      // of one call
  std::function<void()> before_call, before_look;  // before calls that change something, before stat; of one thread

  void next_call() {
    if (calls++ == kill_at) kill(getpid(), SIGKILL);
    meanwhile(before_call);
  }
  // What it calls itself is not told of again.
  void meanwhile(const std::function<void()> &body) {
    if (!body || within) return;
    within = true;
    body();
    within = false;
  }
  bool within = false;
};
inline Faults faults;

inline bool strikes(std::atomic<long> *countdown) { return *countdown >= 0 && (*countdown)-- == 0; }

}  // namespace mxs::test

extern "C" {

int __real_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __real_unlinkat(int folder, const char *path, int flags);
int __real_stat64(const char *path, struct stat *found);
int __real_lstat64(const char *path, struct stat *found);
int __real_flock(int file, int operation);
int __real_fsync(int file);
ssize_t __real_write(int file, const void *data, size_t bytes);
ssize_t __real_pwrite64(int file, const void *data, size_t bytes, off_t offset);
ssize_t __real_pread64(int file, void *data, size_t bytes, off_t offset);

int __wrap_mkdir(const char *path, mode_t mode) {
  mxs::test::faults.next_call();
  return __real_mkdir(path, mode);
}

int __wrap_rename(const char *from, const char *to) {
  mxs::test::faults.next_call();
  return __real_rename(from, to);
}

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  mxs::test::faults.next_call();
  if (flags == 0 || mxs::test::faults.renames_have_flags)
    return __real_renameat2(from_folder, from, to_folder, to, flags);
  errno = EINVAL;
  return -1;
}

int __wrap_unlinkat(int folder, const char *path, int flags) {
  mxs::test::faults.next_call();
  return __real_unlinkat(folder, path, flags);
}

int __wrap_stat64(const char *path, struct stat *found) {
  mxs::test::faults.meanwhile(mxs::test::faults.before_look);
  return __real_stat64(path, found);
}

int __wrap_lstat64(const char *path, struct stat *found) {
  mxs::test::faults.meanwhile(mxs::test::faults.before_look);
  return __real_lstat64(path, found);
}

int __wrap_flock(int file, int operation) {
  mxs::test::faults.next_call();
  struct stat found {};
  const bool folder = fstat(file, &found) == 0 && S_ISDIR(found.st_mode);
  if (folder ? mxs::test::faults.folders_have_locks : mxs::test::faults.files_have_locks)
    return __real_flock(file, operation);
  errno = folder ? EBADF : ENOLCK;
  return -1;
}

int __wrap_fsync(int file) {
  mxs::test::faults.next_call();
  if (!mxs::test::strikes(&mxs::test::faults.fsync_fails_at)) return __real_fsync(file);
  errno = mxs::test::faults.fsync_error;
  return -1;
}

ssize_t __wrap_write(int file, const void *data, size_t bytes) {
  mxs::test::faults.next_call();
  return __real_write(file, data, bytes);
}

ssize_t __wrap_pwrite64(int file, const void *data, size_t bytes, off_t offset) {
  mxs::test::faults.next_call();
  if (!mxs::test::strikes(&mxs::test::faults.pwrite_fails_at))
    return __real_pwrite64(file, data, bytes < mxs::test::faults.pwrite_bytes_max ? bytes :
                           mxs::test::faults.pwrite_bytes_max.load(), offset);
  errno = mxs::test::faults.pwrite_error;
  return -1;
}

ssize_t __wrap_pread64(int file, void *data, size_t bytes, off_t offset) {
  if (!mxs::test::strikes(&mxs::test::faults.pread_fails_at))
    return __real_pread64(file, data, bytes < mxs::test::faults.pread_bytes_max ? bytes :
                          mxs::test::faults.pread_bytes_max.load(), offset);
  errno = mxs::test::faults.pread_error;
  return -1;
}

}  // extern "C"
