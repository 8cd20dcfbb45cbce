// SPDX-License-Identifier: Apache-2.0
// A file is written under another name beside its own, made durable, and renamed.
#include "cli/write_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace mxs_cli {

namespace {

std::string sentence(const std::string &path, const char *what) {
  return path + " can't be " + what + ": " + std::strerror(errno);
}

bool write_all(int file, const std::string &text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

// Where a link leads: renaming would put the file in the link's place.
std::string followed(const std::string &path) {
  char *end = realpath(path.c_str(), nullptr);
  const std::string result = end ? end : path;
  std::free(end);
  return result;
}

std::string write_directly(const std::string &path, const std::string &text) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return sentence(path, "opened");
  std::string complaint;
  if (!write_all(file, text)) complaint = sentence(path, "written");
  if (close(file) != 0 && complaint.empty()) complaint = sentence(path, "written");
  return complaint;
}

std::string replace(const std::string &path, const std::string &text, const struct stat *before) {
  if (before && access(path.c_str(), W_OK) != 0) return sentence(path, "written");
  // A process that had this one's number and was killed may have left its file behind.
  std::string beside;
  int file = -1;
  for (int turn = 0; turn < 100; ++turn) {
    beside = path + ".new-" + std::to_string(getpid()) + "-" + std::to_string(turn);
    file = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) break;
  }
  if (file < 0) return sentence(beside, "made");
  std::string complaint;
  if (before && fchmod(file, before->st_mode & 07777) != 0) complaint = sentence(beside, "given the old file's mode");
  if (complaint.empty() && (!write_all(file, text) || fsync(file) != 0)) complaint = sentence(beside, "written");
  if (close(file) != 0 && complaint.empty()) complaint = sentence(beside, "written");
  if (complaint.empty() && rename(beside.c_str(), path.c_str()) != 0) complaint = sentence(path, "replaced");
  if (!complaint.empty()) unlink(beside.c_str());
  return complaint;
}

}  // namespace

std::string write_file(const std::string &path, const std::string &text) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0)
    return errno == ENOENT ? replace(followed(path), text, nullptr) : sentence(path, "looked at");
  if (S_ISDIR(found.st_mode)) return path + " is a folder, not a file";
  if (!S_ISREG(found.st_mode)) return write_directly(path, text);
  return replace(followed(path), text, &found);
}

}  // namespace mxs_cli
