// SPDX-License-Identifier: Apache-2.0
// Files, maps, and how their pages are made real.
//
// A page that can't be had must be a status, never a signal: pages are populated by system calls, which return an
// errno where a store would raise SIGBUS, and what is missing is held against the machine's free memory first.
#include "memory/region.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/arithmetic.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

constexpr size_t huge_page_bytes = size_t{2} << 20;

// Younger than Debian 12's headers or kernels; an older kernel answers EINVAL and gets the plain way.
constexpr int advice_collapse = 25;            // MADV_COLLAPSE, Linux 6.1
constexpr int advice_populate_write = 23;      // MADV_POPULATE_WRITE, Linux 5.14
constexpr unsigned memfd_noexec_seal = 0x8u;   // MFD_NOEXEC_SEAL, Linux 6.3

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

int open_memfd(const char *name) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int descriptor = memfd_create(name, flags | memfd_noexec_seal);
  if (descriptor >= 0 || errno != EINVAL) return descriptor;
  return memfd_create(name, flags);
}

// What the kernel could give without killing anybody: free and reclaimable memory and swap.
std::optional<uint64_t> available_bytes() {
  std::FILE *file = std::fopen("/proc/meminfo", "re");
  if (!file) return std::nullopt;
  char line[128];
  unsigned long long kibibytes = 0, sum = 0;
  bool found = false;
  while (std::fgets(line, sizeof line, file)) {
    if (std::sscanf(line, "MemAvailable: %llu", &kibibytes) == 1) {
      found = true;
      sum += kibibytes;
    } else if (std::sscanf(line, "SwapFree: %llu", &kibibytes) == 1) {
      sum += kibibytes;
    }
  }
  std::fclose(file);
  if (!found) return std::nullopt;
  return sum * 1024;
}

// Calls body(place, bytes) for pieces of [begin, end) that don't cross a 2 MiB border.
template <class Body>
void for_each_block(std::byte *begin, std::byte *end, Body &&body) {
  while (begin < end) {
    const auto address = reinterpret_cast<uintptr_t>(begin);
    const size_t to_border = huge_page_bytes - address % huge_page_bytes;
    const size_t bytes = std::min(to_border, static_cast<size_t>(end - begin));
    body(begin, bytes);
    begin += bytes;
  }
}

// Bytes of whole pages that are not in memory yet.
uint64_t missing_bytes(std::byte *begin, std::byte *end) {
  uint64_t missing = 0;
  const size_t page = page_bytes();
  std::array<unsigned char, huge_page_bytes / 4096> resident{};
  for_each_block(begin, end, [&](std::byte *place, size_t bytes) {
    if (mincore(place, bytes, resident.data()) != 0) return;
    const size_t count = bytes / page;
    missing += page * static_cast<size_t>(std::count_if(resident.begin(), resident.begin() + static_cast<long>(count),
                                                        [](unsigned char byte) { return (byte & 1) == 0; }));
  });
  return missing;
}

// A store that changes nothing, even if a peer stores there at the same time.
void touch_byte(std::byte *place) {
  __atomic_fetch_or(reinterpret_cast<unsigned char *>(place), static_cast<unsigned char>(0), __ATOMIC_RELAXED);
}

mxs_status populate(std::byte *place, size_t bytes) {
  while (madvise(place, bytes, advice_populate_write) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == EINVAL) break;  // an older kernel
    return set_error(MXS_OUT_OF_MEMORY, "no memory for %zu bytes of a shared region: %s", bytes, std::strerror(errno));
  }
  // A populated page may still cost a trap at its first use on some virtual machines: take that now as well.
  for (size_t offset = 0; offset < bytes; offset += page_bytes()) touch_byte(place + offset);
  return MXS_OK;
}

// A whole, aligned 2 MiB block: one page of it must exist, else the kernel refuses to collapse a hole.
mxs_status touch_block(std::byte *place, bool *huge) {
  const mxs_status status = populate(place, page_bytes());
  if (status != MXS_OK) return status;
  *huge = madvise(place, huge_page_bytes, advice_collapse) == 0;
  if (!*huge) return populate(place, huge_page_bytes);
  touch_byte(place);
  return MXS_OK;
}

}  // namespace

Mapping::~Mapping() {
  if (data_) munmap(data_, bytes_);
}

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

mxs_status create_file(File *file, size_t bytes, const char *name) {
  if (bytes > bytes_max) return set_error(MXS_INVALID_ARGUMENT, "a shared region of %zu bytes is too large", bytes);
  const uint64_t file_bytes = align_up(bytes, page_bytes());
  rlimit limit{};
  // Beyond RLIMIT_FSIZE the kernel would send SIGXFSZ, which kills the process.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && file_bytes > limit.rlim_cur)
    return set_error(MXS_OUT_OF_MEMORY, "shared region %s needs %llu bytes, but files are limited to %llu (ulimit -f)",
                     name, static_cast<unsigned long long>(file_bytes),
                     static_cast<unsigned long long>(limit.rlim_cur));
  File created(open_memfd(name));
  if (created.get() < 0)
    return set_error(MXS_SYSTEM, "shared region %s: memfd_create: %s", name, std::strerror(errno));
  if (ftruncate(created.get(), static_cast<off_t>(file_bytes)) != 0)
    return set_error(MXS_OUT_OF_MEMORY, "shared region %s: ftruncate to %llu bytes: %s", name,
                     static_cast<unsigned long long>(file_bytes), std::strerror(errno));
  // Sealed, so that a peer's map of it can't lose its pages.
  if (fcntl(created.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return set_error(MXS_SYSTEM, "shared region %s: sealing: %s", name, std::strerror(errno));
  *file = std::move(created);
  return MXS_OK;
}

mxs_status reserve(Mapping *mapping, size_t bytes) {
  if (bytes == 0) {
    *mapping = Mapping();
    return MXS_OK;
  }
  if (bytes > bytes_max) return set_error(MXS_INVALID_ARGUMENT, "%zu bytes of addresses are too many", bytes);
  const size_t room = align_up(bytes, page_bytes()) + huge_page_bytes;
  void *start = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED)
    return set_error(MXS_OUT_OF_MEMORY, "no room for %zu bytes of addresses: %s", room, std::strerror(errno));
  // Cut down to what begins on a 2 MiB border.
  const auto first = reinterpret_cast<uintptr_t>(start);
  const uintptr_t begin = align_up(first, huge_page_bytes), end = begin + align_up(bytes, page_bytes());
  if (begin > first) munmap(start, begin - first);
  if (end < first + room) munmap(reinterpret_cast<void *>(end), first + room - end);
  *mapping = Mapping(reinterpret_cast<std::byte *>(begin), end - begin);
  return MXS_OK;
}

mxs_status map_over(std::byte *place, int descriptor, uint64_t file_offset, uint64_t bytes, bool writable) {
  if (bytes == 0) return MXS_OK;
  assert(reinterpret_cast<uintptr_t>(place) % page_bytes() == 0 && file_offset % page_bytes() == 0);
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  if (mmap(place, bytes, access, MAP_SHARED | MAP_FIXED, descriptor, static_cast<off_t>(file_offset)) == MAP_FAILED)
    return set_error(MXS_OUT_OF_MEMORY, "mapping %llu bytes of a shared region: %s",
                     static_cast<unsigned long long>(bytes), std::strerror(errno));
  // A forked child must not write into memory that others take for this rank's.
  madvise(place, bytes, MADV_DONTFORK);
  // What can only be read is a peer's, and is in the peer's core file.
  if (!writable) madvise(place, bytes, MADV_DONTDUMP);
  return MXS_OK;
}

mxs_status map_file(Mapping *mapping, int descriptor, size_t bytes, bool writable) {
  Mapping reserved;
  mxs_status status = reserve(&reserved, bytes);
  if (status != MXS_OK) return status;
  status = map_over(reserved.data(), descriptor, 0, reserved.bytes(), writable);
  if (status != MXS_OK) return status;
  *mapping = std::move(reserved);
  return MXS_OK;
}

mxs_status touch(std::byte *base, const std::vector<Extent> &extents, uint64_t *huge_bytes) {
  const size_t page = page_bytes();
  const auto first = [&](const Extent &extent) { return base + align_down(extent.offset, page); };
  const auto last = [&](const Extent &extent) { return base + align_up(extent.offset + extent.bytes, page); };
  uint64_t missing = 0;
  for (const Extent &extent : extents)
    if (extent.bytes) missing += missing_bytes(first(extent), last(extent));
  const std::optional<uint64_t> available = available_bytes();
  if (available && missing > *available)
    return set_error(MXS_OUT_OF_MEMORY, "%llu bytes of shared memory are needed, but the machine has %llu available",
                     static_cast<unsigned long long>(missing), static_cast<unsigned long long>(*available));

  uint64_t huge_total = 0;
  mxs_status status = MXS_OK;
  for (const Extent &extent : extents) {
    if (extent.bytes == 0) continue;
    for_each_block(first(extent), last(extent), [&](std::byte *place, size_t bytes) {
      if (status != MXS_OK) return;
      bool huge = false;
      status = bytes == huge_page_bytes ? touch_block(place, &huge) : populate(place, bytes);
      if (huge) huge_total += bytes;
    });
    if (status != MXS_OK) return status;
  }
  if (huge_bytes) *huge_bytes = huge_total;
  return MXS_OK;
}

}  // namespace mxs
