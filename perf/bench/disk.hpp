// SPDX-License-Identifier: Apache-2.0
// What a disk does without us: dd, and files that are out of the page cache.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

// Both sync what they write (conv=fsync); `direct` past the page cache.
enum class Way { direct, cached };

// A file of its own, removed at the end.
class DdFile {
 public:
  DdFile(const std::string &folder, uint64_t bytes);  // rounded up to whole blocks of 8 MiB
  ~DdFile();
  DdFile(const DdFile &) = delete;
  DdFile &operator=(const DdFile &) = delete;

  // Milliseconds. Throw mxs::error: what dd said.
  double write(Way way) const;
  double read(Way way) const;  // of what was written, not cached
  uint64_t bytes() const { return blocks_ << 23; }

 private:
  double run(const std::string &words) const;
  std::string path_;
  uint64_t blocks_;
};

// Of all files in a folder and in its folders: the next read comes from the disk.
void forget_cached(const std::string &folder);
uint64_t bytes_of_files(const std::string &folder);

// The most memory that this process has beyond what it has now, until it is asked. Needs /proc.
class MemoryPeak {
 public:
  void restart();
  double mib() const;  // -1: the kernel doesn't tell

 private:
  double before_mib_ = -1;
};

}  // namespace bench
