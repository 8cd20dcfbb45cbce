// SPDX-License-Identifier: Apache-2.0
// Reads the header off a safetensors file. Lengths are checked before anything is allocated.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "base/status.hpp"
#include "model/safetensors.hpp"

namespace mxs {
namespace {

constexpr uint64_t length_bytes = 8;

// The descriptor closes itself.
struct Open {
  int descriptor;
  ~Open() {
    if (descriptor >= 0) close(descriptor);
  }
};

bool read_at(int descriptor, uint64_t offset, uint64_t bytes, char *target) {
  while (bytes > 0) {
    const ssize_t got = pread(descriptor, target, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = EIO;  // it has become shorter since it was measured
    if (got <= 0) return false;
    offset += static_cast<uint64_t>(got);
    target += got;
    bytes -= static_cast<uint64_t>(got);
  }
  return true;
}

mxs_status unreadable(const std::string &path) {
  return set_error(MXS_SYSTEM, "read %.200s: %s", path.c_str(), std::strerror(errno));
}

mxs_status wrong(const std::string &path, const std::string &what) {
  return set_error(MXS_INVALID_ARGUMENT, "%.200s: %.600s", path.c_str(), what.c_str());
}

}  // namespace

mxs_status read_safetensors_bytes(const std::string &path, std::string *bytes, uint64_t *data_bytes) {
  const Open file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a pipe without a writer doesn't hang
  struct stat information {};
  if (file.descriptor < 0 || fstat(file.descriptor, &information) != 0) return unreadable(path);
  if (!S_ISREG(information.st_mode)) return wrong(path, "it is not a file");
  const uint64_t file_bytes = static_cast<uint64_t>(information.st_size);
  unsigned char length[length_bytes];
  if (file_bytes < length_bytes) return wrong(path, "it has less than the 8 bytes that tell its header's length");
  if (!read_at(file.descriptor, 0, length_bytes, reinterpret_cast<char *>(length))) return unreadable(path);
  uint64_t header_bytes = 0;
  for (size_t byte = 0; byte < length_bytes; ++byte) header_bytes |= uint64_t{length[byte]} << (8 * byte);
  if (header_bytes > safetensors_header_bytes_max || header_bytes > file_bytes - length_bytes)
    return set_error(MXS_INVALID_ARGUMENT,
                     "%.200s: its header is said to have %" PRIu64 " bytes, but the file has %" PRIu64
                     " and the format allows %" PRIu64,
                     path.c_str(), header_bytes, file_bytes, safetensors_header_bytes_max);
  const uint64_t data_offset = length_bytes + header_bytes;
  std::string read(data_offset, '\0');
  if (!read_at(file.descriptor, 0, data_offset, read.data())) return unreadable(path);
  *bytes = std::move(read);
  *data_bytes = file_bytes - data_offset;
  return MXS_OK;
}

mxs_status parse_safetensors_bytes(const std::string &path, const std::string &bytes, uint64_t data_bytes,
                                   SafetensorsHeader *header) {
  const mxs_status status =
      parse_safetensors_header(std::string_view(bytes).substr(length_bytes), data_bytes, header);
  if (status != MXS_OK) return wrong(path, std::string(last_error_text()));
  header->data_offset = bytes.size();
  return MXS_OK;
}

mxs_status read_safetensors_header(const std::string &path, SafetensorsHeader *header, std::string *bytes) {
  std::string read;
  uint64_t data_bytes = 0;
  mxs_status status = read_safetensors_bytes(path, &read, &data_bytes);
  if (status == MXS_OK) status = parse_safetensors_bytes(path, read, data_bytes, header);
  if (status == MXS_OK && bytes) *bytes = std::move(read);
  return status;
}

}  // namespace mxs
