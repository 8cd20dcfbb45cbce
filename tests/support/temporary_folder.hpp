// SPDX-License-Identifier: Apache-2.0
// A folder of a test's own, removed with all that is in it. And file systems of a test's own, for root.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "support/complaints.hpp"

namespace mxs::test {

class TemporaryFolder {
 public:
  // "." is where the tests run, on a disk as a rule.
  explicit TemporaryFolder(const std::string &where = ".") {
    std::string name = std::filesystem::absolute(where).lexically_normal().string() + "/matrixshard-test-XXXXXX";
    path_ = mkdtemp(name.data()) ? name : "";
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string &path() const { return path_; }
  std::string operator/(const std::string &name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Names of what lies in a folder, hidden ones too, sorted.
inline std::vector<std::string> entries_of(const std::string &path) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(path, error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string content_of(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void put_content(const std::string &path, const std::string &text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

// This thread, and threads that it starts, get mounts of their own. Only root may.
inline bool own_mounts() {
  return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
         mount("none", "/", "", MS_REC | MS_PRIVATE, nullptr) == 0;
}

// Runs a body in a child with mounts of its own; what it returns is its complaint. "" also where that isn't allowed,
// which is said.
inline std::string with_own_mounts(const std::function<std::string()> &body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const bool own = own_mounts();
    const std::string text = own ? body() : "not allowed";
    if (write(ends[1], text.data(), text.size()) < 0) _exit(2);
    _exit(own ? 0 : 3);
  }
  close(ends[1]);
  std::string text;
  char some[512];
  for (ssize_t got; (got = read(ends[0], some, sizeof some)) > 0;) text.append(some, static_cast<size_t>(got));
  close(ends[0]);
  int result = 0;
  waitpid(child, &result, 0);
  if (WIFEXITED(result) && WEXITSTATUS(result) == 3) {
    not_run("mounts of its own need root");
    return "";
  }
  return WIFEXITED(result) && WEXITSTATUS(result) == 0 ? text : "the child ended badly: " + text;
}

inline bool mount_tmpfs(const std::string &path, const char *options) {
  return mount("tmpfs", path.c_str(), "tmpfs", 0, options) == 0;
}

inline bool mount_read_only(const std::string &path) {
  return mount(path.c_str(), path.c_str(), "none", MS_BIND, nullptr) == 0 &&
         mount("none", path.c_str(), "none", MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) == 0;
}

}  // namespace mxs::test
