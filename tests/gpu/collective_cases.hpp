/* SPDX-License-Identifier: Apache-2.0 */
// Gather, reduce and reshard in CUDA memory, seen from one rank; bytes, gradients and sums are those of
// tests/collective/cases.hpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/cases.hpp"
#include "gpu/device_world.hpp"

namespace mxs::test {

struct DeviceCase {
  const TestLayout *layout = nullptr;
  int32_t kind = MXS_GATHER;
  mxs_dtype dtype = MXS_F32;
  int32_t flags = 0;
  bool packed = false;         // gather: from a packed source
  const FrameworkStream *stream = nullptr;  // orders everything; nullptr: waits block
  const char *algorithm = "";  // what describe must say
};

inline std::string name_of(const DeviceCase &each) {
  return std::string(each.kind == MXS_GATHER ? "gather" : "reduce") + " of '" + each.layout->name + "', dtype " +
         std::to_string(each.dtype) + ", flags " + std::to_string(each.flags) + (each.packed ? ", packed" : "") +
         (each.stream ? ", by a stream" : "");
}

inline mxs_status make(OwnedCollective *collective, mxs_comm *comm, const DeviceCase &each, int rank_count) {
  OwnedLayout layout;
  const mxs_status status = make(&layout, *each.layout, rank_count);
  if (status != MXS_OK) return status;
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = each.kind;
  options.layout = layout.value;
  options.dtype = each.kind == MXS_REDUCE ? each.dtype : 0;
  options.flags = each.flags;
  options.memory = MXS_CUDA;
  return mxs_collective_create(&collective->value, comm, &options);
}

// A buffer on the host, and its twin on the device.
struct Twin {
  Twin(int device, uint64_t bytes)
      : host(bytes + 64, std::byte{poison}), memory(device, bytes + 64) {}
  std::vector<std::byte> host;
  LentMemory memory;
  std::byte *at() const { return memory.data(); }
  bool up(CUstream stream) { return at() && copy_to(at(), host.data(), host.size(), stream); }
  bool down(CUstream stream) { return copy_to(host.data(), at(), host.size(), stream); }
};

// Source and target go up on the stream, the collective is started and waited for by it, and the target comes down by
// it: at the end the caller waits for the stream once.
inline std::string start_and_wait(mxs_collective *collective, const void *source, void *target, CUstream stream) {
  mxs_call call = MXS_CALL_INIT;
  call.stream = stream;
  if (mxs_collective_start(collective, source, target, &call) != MXS_OK) return error_of("start");
  return mxs_collective_wait(collective, &call) == MXS_OK ? "" : error_of("wait");
}

inline std::string finish_stream(const FrameworkStream *stream) {
  return !stream || stream->synchronize() ? "" : "the stream failed";
}
inline CUstream handle_of(const FrameworkStream *stream) { return stream ? stream->handle() : nullptr; }

inline std::string check_gathered(const TestLayout &layout, const std::vector<std::byte> &target, uint64_t salt) {
  uint64_t end = 0;
  for (const TestSegment &segment : layout.segments) {
    for (; end < segment.offset; ++end)
      if (target[end] != std::byte{poison}) return "a gap was written at " + std::to_string(end);
    for (uint64_t i = 0; i < segment.bytes; ++i, ++end)
      if (target[end] != std::byte{byte_at(end, salt)}) return "byte " + std::to_string(end) + " is wrong";
  }
  for (size_t i = layout.bytes; i < target.size(); ++i)
    if (target[i] != std::byte{poison}) return "written beyond the end";
  return "";
}

inline std::string gather_on_device(int rank, mxs_comm *comm, mxs_collective *collective, const DeviceCase &each,
                                    uint64_t salt) {
  const TestLayout &layout = *each.layout;
  const int device = device_of_comm(comm);
  std::vector<std::byte> own;
  Twin target(device, layout.bytes);
  for (const TestSegment &segment : layout.segments)
    for (uint64_t i = 0; segment.owner == rank && i < segment.bytes; ++i) {
      const auto byte = std::byte{byte_at(segment.offset + i, salt)};
      if (each.packed) own.push_back(byte);
      else target.host[segment.offset + i] = byte;
    }
  Twin source(device, own.size());
  std::copy(own.begin(), own.end(), source.host.begin());
  if (!source.up(handle_of(each.stream)) || !target.up(handle_of(each.stream))) return error_of("copy");
  const void *const given = own.empty() ? nullptr : source.at();
  std::string complaint = start_and_wait(collective, given, target.at(), handle_of(each.stream));
  if (!complaint.empty()) return complaint;
  if (!target.down(handle_of(each.stream))) return error_of("copy");
  complaint = finish_stream(each.stream);
  return complaint.empty() ? check_gathered(layout, target.host, salt) : complaint;
}

inline std::string reduce_on_device(int rank, int rank_count, mxs_comm *comm, mxs_collective *collective,
                                    const DeviceCase &each, uint64_t salt) {
  const TestLayout &layout = *each.layout;
  const uint64_t element_bytes = mxs_dtype_bytes(each.dtype);
  const int device = device_of_comm(comm);
  Twin source(device, layout.bytes);
  std::vector<uint64_t> owned;  // elements, in packed order
  for (const TestSegment &segment : layout.segments)
    for (uint64_t offset = segment.offset; offset < segment.offset + segment.bytes; offset += element_bytes) {
      uint32_t bits = 0;
      gradient(rank, offset / element_bytes, salt, each.dtype, &bits);
      std::memcpy(source.host.data() + offset, &bits, element_bytes);
      if (segment.owner == rank) owned.push_back(offset / element_bytes);
    }
  Twin target(device, owned.size() * sizeof(float));
  auto *const sums = reinterpret_cast<float *>(target.host.data());
  if (each.flags & MXS_ACCUMULATE)
    for (size_t i = 0; i < owned.size(); ++i) sums[i] = accumulator(owned[i], salt);
  const std::vector<std::byte> given = source.host;
  if (!source.up(handle_of(each.stream)) || !target.up(handle_of(each.stream))) return error_of("copy");
  void *const sums_at = owned.empty() ? nullptr : target.at();
  std::string complaint = start_and_wait(collective, source.at(), sums_at, handle_of(each.stream));
  if (!complaint.empty()) return complaint;
  if (!target.down(handle_of(each.stream)) || !source.down(handle_of(each.stream))) return error_of("copy");
  complaint = finish_stream(each.stream);
  if (!complaint.empty()) return complaint;
  Case host;
  host.flags = each.flags;
  host.dtype = each.dtype;
  for (size_t i = 0; i < owned.size(); ++i) {
    float magnitude = 0;
    const float expected = expected_sum(rank_count, host, owned[i], salt, &magnitude);
    const bool fits = each.flags & MXS_RANK_ORDER
                          ? std::bit_cast<uint32_t>(expected) == std::bit_cast<uint32_t>(sums[i])
                          : std::abs(expected - sums[i]) <= magnitude * 1e-6f * static_cast<float>(rank_count);
    if (!fits)
      return "element " + std::to_string(owned[i]) + " is " + std::to_string(sums[i]) + ", not " +
             std::to_string(expected);
  }
  for (size_t i = owned.size() * sizeof(float); i < target.host.size(); ++i)
    if (target.host[i] != std::byte{poison}) return "written beyond the end";
  return given == source.host ? "" : "the source was changed";
}

// Create, and two starts with different bytes.
inline std::string run_case(int rank, int rank_count, mxs_comm *comm, const DeviceCase &each) {
  OwnedCollective collective;
  std::string complaint;
  if (make(&collective, comm, each, rank_count) != MXS_OK) complaint = error_of("create");
  mxs_collective_info info = MXS_COLLECTIVE_INFO_INIT;
  if (complaint.empty()) mxs_collective_describe(collective.value, &info);
  if (complaint.empty() && std::string(info.algorithm).find(each.algorithm) == std::string::npos)
    complaint = std::string("algorithm is ") + info.algorithm;
  for (const uint64_t salt : {1u, 2u})
    if (complaint.empty())
      complaint = each.kind == MXS_GATHER
                      ? gather_on_device(rank, comm, collective.value, each, salt)
                      : reduce_on_device(rank, rank_count, comm, collective.value, each, salt);
  // A stream's wait tells nobody that it is over.
  if (complaint.empty() && mxs_collective_wait(collective.value, nullptr) != MXS_OK) complaint = error_of("last wait");
  return complaint.empty() ? "" : name_of(each) + ": " + complaint;
}

inline std::string reshard_on_device(int rank, int rank_count, mxs_comm *comm, const TestLayout &from,
                                     const TestLayout &to) {
  OwnedLayout source_layout, target_layout;
  if (make(&source_layout, from, rank_count) != MXS_OK || make(&target_layout, to, rank_count) != MXS_OK)
    return error_of("layout");
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = MXS_RESHARD;
  options.layout = source_layout.value;
  options.target_layout = target_layout.value;
  options.memory = MXS_CUDA;
  OwnedCollective collective;
  const std::string name = "reshard from '" + from.name + "' to '" + to.name + "': ";
  if (mxs_collective_create(&collective.value, comm, &options) != MXS_OK) return error_of(name + "create");
  for (const uint64_t salt : {3u, 4u}) {
    std::vector<std::byte> given, expected;
    for (const TestSegment &segment : from.segments)
      for (uint64_t i = 0; segment.owner == rank && i < segment.bytes; ++i)
        given.push_back(std::byte{byte_at(segment.offset + i, salt)});
    for (const TestSegment &segment : to.segments)
      for (uint64_t i = 0; segment.owner == rank && i < segment.bytes; ++i)
        expected.push_back(std::byte{byte_at(segment.offset + i, salt)});
    Twin source(device_of_comm(comm), given.size()), target(device_of_comm(comm), expected.size());
    std::copy(given.begin(), given.end(), source.host.begin());
    if (!source.up(nullptr) || !target.up(nullptr)) return error_of("copy");
    const std::string complaint = start_and_wait(collective.value, source.at(), target.at(), nullptr);
    if (!complaint.empty()) return name + complaint;
    if (!target.down(nullptr)) return error_of("copy");
    if (!std::equal(expected.begin(), expected.end(), target.host.begin())) return name + "bytes are wrong";
  }
  return "";
}

}  // namespace mxs::test
