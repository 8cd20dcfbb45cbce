// SPDX-License-Identifier: Apache-2.0
// Gather, reduce and reshard of every layout, seen from one rank: for threads and for processes alike.
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "matrixshard/collective.h"
#include "support/complaints.hpp"
#include "support/layouts.hpp"

namespace mxs::test {

constexpr unsigned char poison = 0xa5;

// A handle that is destroyed in any case.
template <class Handle, auto destroy>
struct Owned {
  Handle *value = nullptr;
  Owned() = default;
  Owned(const Owned &) = delete;
  ~Owned() { static_cast<void>(destroy(&value)); }
};
using OwnedLayout = Owned<mxs_layout, mxs_layout_destroy>;
using OwnedCollective = Owned<mxs_collective, mxs_collective_destroy>;

inline mxs_status make(OwnedLayout *layout, const TestLayout &test, int rank_count) {
  std::vector<mxs_segment> segments;
  for (const TestSegment &each : test.segments) {
    mxs_segment segment = MXS_SEGMENT_INIT;
    segment.owner = each.owner;
    segment.offset = each.offset;
    segment.bytes = each.bytes;
    segments.push_back(segment);
  }
  return mxs_layout_create(&layout->value, segments.data(), segments.size(), rank_count, test.alignment);
}

inline uint64_t hashed(uint64_t a, uint64_t b) {
  uint64_t x = (a + 0x9e3779b97f4a7c15u) * (b + 0xbf58476d1ce4e5b9u);
  x ^= x >> 29;
  return x * 0x94d049bb133111ebu ^ x >> 32;
}

inline unsigned char byte_at(uint64_t offset, uint64_t salt) {
  return static_cast<unsigned char>(hashed(offset, salt) >> 7);
}

// A gradient's bits, and its value. Magnitudes differ widely, so that the order of additions shows.
inline float gradient(int rank, uint64_t element, uint64_t salt, mxs_dtype dtype, uint32_t *bits) {
  const uint64_t random = hashed(element, salt * 64 + static_cast<uint64_t>(rank));
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(120 + random % 14) << 23);
  const float value = (static_cast<float>(random >> 40 & 0xffff) - 32768.0f) * scale;
  switch (dtype) {
    case MXS_BF16: *bits = bf16_from_float(value); return float_from_bf16(static_cast<uint16_t>(*bits));
    case MXS_F16: *bits = f16_from_float(value / 65536); return float_from_f16(static_cast<uint16_t>(*bits));
    default: *bits = std::bit_cast<uint32_t>(value); return value;
  }
}

inline float accumulator(uint64_t element, uint64_t salt) {
  return static_cast<float>(hashed(element, salt) % 1000) * 0.37f - 100.0f;
}

// Memory of a start: of mxs_comm_allocate, which peers reach, or private.
struct Memory {
  std::vector<std::byte> mine;
  std::byte *shared = nullptr;  // borrowed
  std::byte *at(uint64_t bytes) {
    if (shared) return shared;
    mine.assign(bytes + 64, std::byte{poison});
    return mine.data();
  }
};

struct Case {
  const TestLayout *layout = nullptr;
  int32_t kind = MXS_GATHER;
  const char *algorithm = nullptr;
  mxs_dtype dtype = MXS_F32;
  int32_t flags = 0;
  uint64_t chunk_bytes = 0;
  int32_t window = 0;
  bool packed = false;  // gather: from a packed source
  std::byte *source = nullptr, *target = nullptr;  // memory of mxs_comm_allocate, or nullptr
};

// Segments that are small against a chunk, their owners taking turns: what different owners' pieces have before them
// on their ways, by chain and spread, is so often the same that they travel in messages of several ranges.
inline TestLayout small_segments(int rank_count) {
  TestLayout layout("small segments", 16);
  for (int turn = 0; turn < 7; ++turn)
    for (int rank = 0; rank < rank_count; ++rank)
      if (rank + turn > 0) layout.add(rank, 4 * static_cast<uint64_t>(50 + 3 * turn + rank));
  return layout;
}

inline std::vector<Case> cases_of_several_ranges(const TestLayout &layout) {
  std::vector<Case> cases;
  for (const char *algorithm : {"chain", "spread"})
    for (const int32_t window : {1, 3})
      for (const int32_t kind : {MXS_GATHER, MXS_REDUCE})
        for (const int32_t flags : {0, MXS_ACCUMULATE, MXS_RANK_ORDER, MXS_ACCUMULATE | MXS_RANK_ORDER}) {
          Case each;
          each.layout = &layout;
          each.kind = kind;
          each.algorithm = algorithm;
          each.dtype = flags & MXS_ACCUMULATE ? MXS_BF16 : MXS_F32;
          each.flags = kind == MXS_REDUCE ? flags : 0;
          each.packed = kind == MXS_GATHER && flags != 0;
          each.chunk_bytes = 1024;
          each.window = window;
          if (kind == MXS_REDUCE || !(flags & MXS_RANK_ORDER)) cases.push_back(each);
        }
  return cases;
}

inline std::string name_of(const Case &each, int rank_count) {
  return std::string(each.kind == MXS_GATHER   ? "gather"
                     : each.kind == MXS_REDUCE ? "reduce"
                                               : "reshard") +
         " by " + (each.algorithm ? each.algorithm : "choice") + ", " + std::to_string(rank_count) +
         " ranks, layout '" + each.layout->name + "', " + mxs_dtype_name(each.dtype) + ", flags " +
         std::to_string(each.flags) +
         ", chunks of " + std::to_string(each.chunk_bytes) + ", window " + std::to_string(each.window) +
         (each.packed ? ", packed" : "") + (each.source ? ", shared" : "");
}

inline mxs_status make(OwnedCollective *collective, mxs_comm *comm, const Case &each, int rank_count) {
  OwnedLayout layout;
  mxs_status status = make(&layout, *each.layout, rank_count);
  if (status != MXS_OK) return status;
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = each.kind;
  options.layout = layout.value;
  options.dtype = each.kind == MXS_REDUCE ? each.dtype : 0;
  options.flags = each.flags;
  options.algorithm = each.algorithm;
  options.chunk_bytes = each.chunk_bytes;
  options.window = each.window;
  return mxs_collective_create(&collective->value, comm, &options);
}

inline std::string gather_once(int rank, mxs_collective *collective, const Case &each, uint64_t salt) {
  const TestLayout &layout = *each.layout;
  std::vector<std::byte> whole(layout.bytes + 64, std::byte{poison}), packed;
  std::byte *target = each.target ? each.target : whole.data();
  std::memset(target, poison, layout.bytes);
  for (const TestSegment &segment : layout.segments)
    for (uint64_t i = 0; segment.owner == rank && i < segment.bytes; ++i) {
      const auto byte = std::byte{byte_at(segment.offset + i, salt)};
      if (each.packed) packed.push_back(byte);
      else target[segment.offset + i] = byte;
    }
  if (mxs_collective_start(collective, packed.empty() ? nullptr : packed.data(), target, nullptr) != MXS_OK)
    return error_of("start");
  if (mxs_collective_wait(collective, nullptr) != MXS_OK) return error_of("wait");
  uint64_t end = 0;
  for (const TestSegment &segment : layout.segments) {
    for (; end < segment.offset; ++end)
      if (target[end] != std::byte{poison}) return "a gap was written at " + std::to_string(end);
    for (uint64_t i = 0; i < segment.bytes; ++i, ++end)
      if (target[end] != std::byte{byte_at(end, salt)}) return "byte " + std::to_string(end) + " is wrong";
  }
  for (size_t i = layout.bytes; i < whole.size(); ++i)
    if (whole[i] != std::byte{poison}) return "written beyond the end";
  return "";
}

// The sum in rank order; MXS_RANK_ORDER must give its bits. Other orders differ by rounding.
inline float expected_sum(int rank_count, const Case &each, uint64_t element, uint64_t salt, float *magnitude) {
  uint32_t bits = 0;
  float sum = each.flags & MXS_ACCUMULATE ? accumulator(element, salt) : 0.0f;
  *magnitude = std::abs(sum);
  for (int rank = 0; rank < rank_count; ++rank) {
    const float term = gradient(rank, element, salt, each.dtype, &bits);
    sum += term;
    *magnitude += std::abs(term);
  }
  return sum;
}

inline std::string reduce_once(int rank, int rank_count, mxs_collective *collective, const Case &each, uint64_t salt,
                               std::vector<float> *result) {
  const TestLayout &layout = *each.layout;
  const uint64_t element_bytes = mxs_dtype_bytes(each.dtype);
  std::vector<std::byte> whole(layout.bytes + 64, std::byte{poison});
  std::byte *source = each.source ? each.source : whole.data();
  std::vector<uint64_t> owned;  // elements, in packed order
  for (const TestSegment &segment : layout.segments)
    for (uint64_t offset = segment.offset; offset < segment.offset + segment.bytes; offset += element_bytes) {
      uint32_t bits = 0;
      gradient(rank, offset / element_bytes, salt, each.dtype, &bits);
      std::memcpy(source + offset, &bits, element_bytes);
      if (segment.owner == rank) owned.push_back(offset / element_bytes);
    }
  std::vector<float> sums(owned.size() + 4);
  std::memset(static_cast<void *>(sums.data()), poison, sums.size() * sizeof(float));
  float *target = each.target ? reinterpret_cast<float *>(each.target) : sums.data();
  if (each.flags & MXS_ACCUMULATE)
    for (size_t i = 0; i < owned.size(); ++i) target[i] = accumulator(owned[i], salt);
  const bool pass_null = owned.empty() && !each.target;
  if (mxs_collective_start(collective, source, pass_null ? nullptr : target, nullptr) != MXS_OK)
    return error_of("start");
  if (mxs_collective_wait(collective, nullptr) != MXS_OK) return error_of("wait");
  const bool exact = (each.flags & MXS_RANK_ORDER) || each.target;
  for (size_t i = 0; i < owned.size(); ++i) {
    float magnitude = 0;
    const float expected = expected_sum(rank_count, each, owned[i], salt, &magnitude);
    const bool fits = exact ? std::bit_cast<uint32_t>(expected) == std::bit_cast<uint32_t>(target[i])
                            : std::abs(expected - target[i]) <= magnitude * 1e-6f * static_cast<float>(rank_count);
    if (!fits)
      return "element " + std::to_string(owned[i]) + " is " + std::to_string(target[i]) + ", not " +
             std::to_string(expected);
  }
  for (size_t i = owned.size(); i < sums.size(); ++i)
    if (std::bit_cast<uint32_t>(sums[i]) != 0xa5a5a5a5u) return "written beyond the end";
  if (result) result->assign(target, target + owned.size());
  return "";
}

// Create, two starts with different bytes, and for a reduce a third with the first's: equal runs give equal bits.
inline std::string run_case(int rank, int rank_count, mxs_comm *comm, const Case &each) {
  OwnedCollective collective;
  std::string complaint;
  if (make(&collective, comm, each, rank_count) != MXS_OK) {
    complaint = error_of("create");
  } else if (each.kind == MXS_GATHER) {
    complaint = gather_once(rank, collective.value, each, 1);
    if (complaint.empty()) complaint = gather_once(rank, collective.value, each, 2);
  } else {
    std::vector<float> first, again;
    complaint = reduce_once(rank, rank_count, collective.value, each, 1, &first);
    if (complaint.empty()) complaint = reduce_once(rank, rank_count, collective.value, each, 2, nullptr);
    if (complaint.empty()) complaint = reduce_once(rank, rank_count, collective.value, each, 1, &again);
    const size_t bytes = first.size() * sizeof(float);
    if (complaint.empty() && bytes > 0 && std::memcmp(first.data(), again.data(), bytes) != 0)
      complaint = "equal runs gave different bits";
  }
  return complaint.empty() ? "" : name_of(each, rank_count) + ": " + complaint;
}

// From one layout to another of as many bytes.
inline std::string reshard_once(int rank, int rank_count, mxs_comm *comm, const TestLayout &from, const TestLayout &to,
                                uint64_t chunk_bytes) {
  OwnedLayout source_layout, target_layout;
  if (make(&source_layout, from, rank_count) != MXS_OK || make(&target_layout, to, rank_count) != MXS_OK)
    return error_of("layout");
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = MXS_RESHARD;
  options.layout = source_layout.value;
  options.target_layout = target_layout.value;
  options.chunk_bytes = chunk_bytes;
  OwnedCollective collective;
  const std::string name = "reshard from '" + from.name + "' to '" + to.name + "': ";
  if (mxs_collective_create(&collective.value, comm, &options) != MXS_OK) return error_of(name + "create");
  for (const uint64_t salt : {3u, 4u}) {
    std::vector<std::byte> source, target, expected;
    for (const TestSegment &segment : from.segments)
      for (uint64_t i = 0; segment.owner == rank && i < segment.bytes; ++i)
        source.push_back(std::byte{byte_at(segment.offset + i, salt)});
    for (const TestSegment &segment : to.segments)
      for (uint64_t i = 0; segment.owner == rank && i < segment.bytes; ++i)
        expected.push_back(std::byte{byte_at(segment.offset + i, salt)});
    target.assign(expected.size(), std::byte{poison});
    if (mxs_collective_start(collective.value, source.data(), target.data(), nullptr) != MXS_OK)
      return error_of(name + "start");
    if (mxs_collective_wait(collective.value, nullptr) != MXS_OK) return error_of(name + "wait");
    if (target != expected) return name + "bytes are wrong";
  }
  return "";
}

}  // namespace mxs::test
