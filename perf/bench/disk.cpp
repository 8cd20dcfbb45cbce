// SPDX-License-Identifier: Apache-2.0
#include "bench/disk.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "bench/ranks.hpp"

extern char **environ;

namespace bench {

namespace {

// "VmRSS", "VmHWM"; -1: it isn't there.
double memory_mib(const std::string &key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key + ":", 0) == 0) return std::atof(line.c_str() + key.size() + 1) / 1024;
  return -1;
}

}  // namespace

DdFile::DdFile(const std::string &folder, uint64_t bytes)
    : path_(fmt::format("{}/dd-{}", folder, getpid())), blocks_((bytes + (uint64_t{8} << 20) - 1) >> 23) {}

DdFile::~DdFile() { unlink(path_.c_str()); }

// dd ends with a line about its speed: not wanted here, unless it fails.
double DdFile::run(const std::string &words) const {
  const std::string command = "exec dd bs=8M " + words + " status=none";
  char shell[] = "sh", option[] = "-c", name[] = "dd";
  char *const arguments[] = {shell, option, const_cast<char *>(command.c_str()), name,
                             const_cast<char *>(path_.c_str()), nullptr};
  const double start = now_us();
  pid_t child = 0;
  const int error = posix_spawnp(&child, "sh", nullptr, nullptr, arguments, environ);
  if (error != 0) throw mxs::error(MXS_SYSTEM, fmt::format("dd can't be started: {}", std::strerror(error)));
  int result = 0;
  while (waitpid(child, &result, 0) < 0 && errno == EINTR) {
  }
  if (result != 0) throw mxs::error(MXS_SYSTEM, fmt::format("dd {} of {} failed", words, path_));
  return (now_us() - start) * 1e-3;
}

double DdFile::write(Way way) const {
  const char *direct = way == Way::direct ? "oflag=direct" : "";
  return run(fmt::format("if=/dev/zero of=\"$1\" count={} {} conv=fsync", blocks_, direct));
}

double DdFile::read(Way way) const {
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
  return run(fmt::format("if=\"$1\" of=/dev/null {}", way == Way::direct ? "iflag=direct" : ""));
}

void forget_cached(const std::string &folder) {
  for (const auto &entry : std::filesystem::recursive_directory_iterator(folder)) {
    const int file = entry.is_regular_file() ? open(entry.path().c_str(), O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) continue;
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
}

uint64_t bytes_of_files(const std::string &folder) {
  uint64_t bytes = 0;
  for (const auto &entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

// 5: VmHWM falls to VmRSS.
void MemoryPeak::restart() {
  std::ofstream file("/proc/self/clear_refs");
  file << 5 << std::flush;
  before_mib_ = file ? memory_mib("VmRSS") : -1;
}

double MemoryPeak::mib() const { return before_mib_ < 0 ? -1 : memory_mib("VmHWM") - before_mib_; }

}  // namespace bench
