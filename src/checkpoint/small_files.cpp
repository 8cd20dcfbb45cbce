// SPDX-License-Identifier: Apache-2.0
// Small files of a checkpoint: those that are written whole, and those that are copied.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "base/status.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/folder_tools.hpp"
#include "checkpoint/manifest.hpp"

namespace mxs {

namespace {

constexpr uint64_t companion_bytes_max = uint64_t{256} << 20;
constexpr size_t copy_bytes = size_t{1} << 20;

// Of weights in the formats of others, of indices.
constexpr std::string_view other_endings[] = {".safetensors", ".index.json", ".bin", ".pt",   ".pth", ".ckpt",
                                              ".h5",          ".msgpack",    ".gguf", ".onnx", ".ot"};

bool is_companion_name(std::string_view name) {
  return name[0] != '.' && name != manifest_name && name != "optimizer" &&
         std::none_of(std::begin(other_endings), std::end(other_endings),
                      [&](std::string_view ending) { return name.ends_with(ending); });
}

mxs_status cannot_write(const std::string &path, int error) {
  return set_error(MXS_SYSTEM, "%s: can't write it: %s", path.c_str(), std::strerror(error));
}

mxs_status write_all(int number, const std::string &path, const char *data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = write(number, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return cannot_write(path, written < 0 ? errno : EIO);
    data += written;
    bytes -= static_cast<size_t>(written);
  }
  return MXS_OK;
}

mxs_status sync_and_close(Descriptor *file, const std::string &path) {
  if (fsync(file->get()) != 0) return cannot_write(path, errno);
  const int error = file->close();
  return error == 0 ? MXS_OK : cannot_write(path, error);
}

mxs_status copy_file(const Descriptor &source, const std::string &from, const std::string &to) {
  Descriptor target(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!target) return cannot_write(to, errno);
  std::vector<char> some(copy_bytes);
  for (;;) {
    const ssize_t got = read(source.get(), some.data(), some.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return set_error(MXS_SYSTEM, "%s: can't read it: %s", from.c_str(), std::strerror(errno));
    if (got == 0) return sync_and_close(&target, to);
    const mxs_status status = write_all(target.get(), to, some.data(), static_cast<size_t>(got));
    if (status != MXS_OK) return status;
  }
}

// Links are followed: Hugging Face's cache has nothing else.
mxs_status copy_companion(const std::string &from, const std::string &to) {
  const Descriptor source(open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe doesn't hang
  struct stat found {};
  if (!source || fstat(source.get(), &found) != 0) {
    struct stat link {};
    const int error = errno;
    const bool dangles =
        (error == ENOENT || error == ELOOP) && lstat(from.c_str(), &link) == 0 && S_ISLNK(link.st_mode);
    const bool no_file = error == ENXIO;  // a socket
    if (!dangles && !no_file) return set_error(MXS_SYSTEM, "%s: can't read it: %s", from.c_str(), std::strerror(error));
    log_line(MXS_LOG_WARNING, "%s isn't copied: %s", from.c_str(), std::strerror(error));
    return MXS_OK;
  }
  if (!S_ISREG(found.st_mode)) return MXS_OK;
  if (static_cast<uint64_t>(found.st_size) > companion_bytes_max) {
    log_line(MXS_LOG_WARNING, "%s isn't copied: it has %" PRIu64 " bytes, more than 256 MiB", from.c_str(),
             static_cast<uint64_t>(found.st_size));
    return MXS_OK;
  }
  return copy_file(source, from, to);
}

}  // namespace

// In place: the manifest may carry the folder's lock.
mxs_status write_synced(const std::string &path, const std::string &text) {
  return fenced([&] {
    Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) return cannot_write(path, errno);
    const mxs_status status = write_all(file.get(), path, text.data(), text.size());
    return status == MXS_OK ? sync_and_close(&file, path) : status;
  });
}

mxs_status copy_companions(const std::string &from, const std::string &to) {
  return fenced([&] {
    std::vector<std::string> names;
    if (!list_folder(from, &names))
      return set_error(MXS_SYSTEM, "%s, which files are to be copied from, can't be listed: %s", from.c_str(),
                       std::strerror(errno));
    std::sort(names.begin(), names.end());
    for (const std::string &name : names) {
      const mxs_status status =
          is_companion_name(name) ? copy_companion(from + "/" + name, to + "/" + name) : MXS_OK;
      if (status != MXS_OK) return status;
    }
    return MXS_OK;
  });
}

}  // namespace mxs
