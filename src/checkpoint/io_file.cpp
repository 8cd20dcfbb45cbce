// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/io_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "base/arithmetic.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

// Less goes through the page cache: a direct write waits for the disk, some 100 us each, and a model has hundreds of
// small vectors.
constexpr uint64_t direct_bytes_min = uint64_t{128} << 10;
constexpr uint64_t huge_page_bytes = uint64_t{2} << 20;

bool means_no_direct_io(int error) { return error == EINVAL || error == EOPNOTSUPP; }

}  // namespace

void Unmap::operator()(std::byte *memory) const { munmap(memory, bytes); }

IoMemory io_memory(uint64_t bytes) {
  const uint64_t whole = align_up(bytes, huge_page_bytes);
  void *memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (bytes >= huge_page_bytes) madvise(memory, whole, MADV_HUGEPAGE);
  return IoMemory(static_cast<std::byte *>(memory), Unmap{whole});
}

mxs_status IoFile::wrong(const char *what, uint64_t offset, int error) const {
  return set_error(MXS_SYSTEM, "%s: can't %s at byte %" PRIu64 ": %s", path_.c_str(), what, offset,
                   std::strerror(error));
}

mxs_status IoFile::open_to_write(const std::string &path) {
  path_ = path;
  push_count_ = 0;
  cached_ = Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!cached_) return set_error(MXS_SYSTEM, "%s: can't open it to write: %s", path.c_str(), std::strerror(errno));
  direct_ = Descriptor(open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
  if (!direct_ && !means_no_direct_io(errno)) {
    const int error = errno;
    cached_.close();
    return set_error(MXS_SYSTEM, "%s: can't open it for direct writes: %s", path.c_str(), std::strerror(error));
  }
  return MXS_OK;
}

mxs_status IoFile::open_to_read(const std::string &path, uint64_t bytes, const std::string &array) {
  path_ = path;
  cached_ = Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe doesn't hang
  if (!cached_)
    return set_error(errno == ENOENT ? MXS_DAMAGED : MXS_SYSTEM, "%s: can't open it to read %s: %s", path.c_str(),
                     array.c_str(), std::strerror(errno));
  struct stat found {};
  mxs_status status = MXS_OK;
  if (fstat(cached_.get(), &found) != 0)
    status = set_error(MXS_SYSTEM, "%s: can't tell its length: %s", path.c_str(), std::strerror(errno));
  else if (!S_ISREG(found.st_mode))
    status = set_error(MXS_DAMAGED, "%s, which has %s, is no file", path.c_str(), array.c_str());
  else if (static_cast<uint64_t>(found.st_size) != bytes)
    status = set_error(MXS_DAMAGED, "%s, which has %s, is %" PRIu64 " bytes long, not %" PRIu64
                       ": it was cut off, or isn't the one that was saved", path.c_str(), array.c_str(),
                       static_cast<uint64_t>(found.st_size), bytes);
  if (status != MXS_OK) {
    cached_.close();
    return status;
  }
  direct_ = Descriptor(open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (!direct_) posix_fadvise(cached_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return MXS_OK;
}

mxs_status IoFile::write(uint64_t offset, const std::byte *data, uint64_t bytes) {
  const uint64_t end = offset + bytes, first = block_ceiling(offset), last = block_floor(end);
  if (!direct_ || last < first + direct_bytes_min) return write_cached(offset, data, bytes);
  mxs_status status = write_cached(offset, data, first - offset);
  if (status == MXS_OK) status = write_direct(first, data + (first - offset), last - first);
  if (status == MXS_OK) status = write_cached(last, data + (last - offset), end - last);
  return status;
}

mxs_status IoFile::write_direct(uint64_t offset, const std::byte *data, uint64_t bytes) {
  assert(offset % io_block_bytes == 0 && reinterpret_cast<uintptr_t>(data) % io_block_bytes == 0);
  while (bytes > 0) {
    const ssize_t written = pwrite(direct_.get(), data, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && means_no_direct_io(errno)) {  // it wants larger blocks than ours
      direct_.close();
      return write_cached(offset, data, bytes);
    }
    if (written <= 0) return wrong("write", offset, written < 0 ? errno : EIO);
    offset += static_cast<uint64_t>(written);
    data += written;
    bytes -= static_cast<uint64_t>(written);
    if (offset % io_block_bytes != 0) return write_cached(offset, data, bytes);
  }
  return MXS_OK;
}

mxs_status IoFile::write_cached(uint64_t offset, const std::byte *data, uint64_t bytes) {
  const Extent extent = {offset, bytes};
  while (bytes > 0) {
    const ssize_t written = pwrite(cached_.get(), data, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return wrong("write", offset, written < 0 ? errno : EIO);
    offset += static_cast<uint64_t>(written);
    data += written;
    bytes -= static_cast<uint64_t>(written);
  }
  return extent.bytes >= direct_bytes_min ? push_out(extent) : MXS_OK;
}

// Starts this one, waits for the one four before it. A failure that is told here isn't told by fsync again.
mxs_status IoFile::push_out(Extent extent) {
  const auto push = [&](const Extent &which, unsigned flags) {
    if (sync_file_range(cached_.get(), static_cast<off_t>(which.offset), static_cast<off_t>(which.bytes), flags) == 0)
      return MXS_OK;
    const bool unknown_here = errno == EINVAL || errno == ESPIPE || errno == ENOSYS || errno == EOPNOTSUPP;
    return unknown_here ? MXS_OK : wrong("write", which.offset, errno);
  };
  mxs_status status = push(extent, SYNC_FILE_RANGE_WRITE);
  Extent &old = pushed_[push_count_++ % 4];
  if (status == MXS_OK && push_count_ > 4) {
    status = push(old, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    posix_fadvise(cached_.get(), static_cast<off_t>(old.offset), static_cast<off_t>(old.bytes), POSIX_FADV_DONTNEED);
  }
  old = extent;
  return status;
}

mxs_status IoFile::read(uint64_t first, uint64_t end, std::byte *target) {
  assert(first % io_block_bytes == 0);
  const uint64_t whole_end = block_ceiling(end);
  for (uint64_t next = first; next < end;) {
    const bool direct = direct_ && next % io_block_bytes == 0;
    const ssize_t got = pread(direct ? direct_.get() : cached_.get(), target + (next - first),
                              (direct ? whole_end : end) - next, static_cast<off_t>(next));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && direct && means_no_direct_io(errno)) {
      direct_.close();
      continue;
    }
    if (got < 0) return wrong("read", next, errno);
    if (got == 0)
      return set_error(MXS_DAMAGED, "%s ends at byte %" PRIu64 ": it was cut off while it was read", path_.c_str(),
                       next);
    next += static_cast<uint64_t>(got);
  }
  return MXS_OK;
}

mxs_status IoFile::finish() {
  if (fsync(cached_.get()) != 0) {
    const int error = errno;
    close();
    return set_error(MXS_SYSTEM, "%s: can't bring it to disk (fsync): %s", path_.c_str(), std::strerror(error));
  }
  const int direct_error = direct_.close(), error = cached_.close();
  if (direct_error || error)
    return set_error(MXS_SYSTEM, "%s: can't close it: %s", path_.c_str(), std::strerror(error ? error : direct_error));
  return MXS_OK;
}

void IoFile::close() {
  direct_.close();
  cached_.close();
}

}  // namespace mxs
