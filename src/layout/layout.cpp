// SPDX-License-Identifier: Apache-2.0
// Making layouts: what is checked, and the even cut.
#include "layout/layout.hpp"

#include <cinttypes>
#include <utility>

#include "base/arithmetic.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"

namespace mxs {
namespace {

mxs_status check_world(int rank_count) {
  if (rank_count < 1) return set_error(MXS_INVALID_ARGUMENT, "rank_count is %d, not at least 1", rank_count);
  if (rank_count > rank_count_max)
    return set_error(MXS_INVALID_ARGUMENT, "rank_count is %d, more than %d", rank_count, rank_count_max);
  return MXS_OK;
}

// Receives where the segment ends.
mxs_status check_segment(const Segment &segment, size_t index, int rank_count, uint64_t previous_end,
                         uint64_t alignment, uint64_t *end) {
  if (segment.owner < 0 || segment.owner >= rank_count)
    return set_error(MXS_INVALID_ARGUMENT, "segment %zu: owner is %d, outside a world of %d ranks", index,
                     segment.owner, rank_count);
  // Neither sum nor rounding overflows: previous_end and alignment are at most 2^62.
  const uint64_t expected = align_up(previous_end, alignment);
  if (segment.offset < expected)
    return set_error(MXS_INVALID_ARGUMENT,
                     "segment %zu overlaps: it begins at byte %" PRIu64 ", the one before ends at %" PRIu64
                     ", so that with an alignment of %" PRIu64 " it begins at %" PRIu64,
                     index, segment.offset, previous_end, alignment, expected);
  if (segment.offset > expected)
    return set_error(MXS_INVALID_ARGUMENT,
                     "gap before segment %zu: it begins at byte %" PRIu64 ", the one before ends at %" PRIu64
                     ", so that with an alignment of %" PRIu64 " it begins at %" PRIu64,
                     index, segment.offset, previous_end, alignment, expected);
  if (!checked_add(segment.offset, segment.bytes, end))
    return set_error(MXS_INVALID_ARGUMENT,
                     "segment %zu: offset %" PRIu64 " and %" PRIu64 " bytes end beyond 2^62 bytes", index,
                     segment.offset, segment.bytes);
  return MXS_OK;
}

}  // namespace

mxs_status make_layout(std::vector<Segment> segments, int rank_count, uint64_t alignment, Layout *layout) {
  if (const mxs_status status = check_world(rank_count); status != MXS_OK) return status;
  if (alignment == 0) alignment = 1;
  if (!is_power_of_two(alignment) || alignment > bytes_max)
    return set_error(MXS_INVALID_ARGUMENT, "alignment is %" PRIu64 ", not a power of two up to 2^62", alignment);

  uint64_t end = 0;
  for (size_t index = 0; index < segments.size(); ++index) {
    const mxs_status status = check_segment(segments[index], index, rank_count, end, alignment, &end);
    if (status != MXS_OK) return status;
  }
  *layout = Layout{std::move(segments), rank_count, alignment, end};
  return MXS_OK;
}

mxs_status make_even_layout(uint64_t bytes, uint64_t element_bytes, int rank_count, Layout *layout) {
  if (const mxs_status status = check_world(rank_count); status != MXS_OK) return status;
  if (element_bytes == 0) return set_error(MXS_INVALID_ARGUMENT, "element_bytes is 0");
  if (bytes % element_bytes != 0)
    return set_error(MXS_INVALID_ARGUMENT, "element_bytes is %" PRIu64 " and does not divide %" PRIu64 " bytes",
                     element_bytes, bytes);
  if (bytes > bytes_max) return set_error(MXS_INVALID_ARGUMENT, "%" PRIu64 " bytes are more than 2^62", bytes);

  const uint64_t element_count = bytes / element_bytes;
  const uint64_t least = element_count / static_cast<uint64_t>(rank_count);
  const uint64_t longer_count = element_count % static_cast<uint64_t>(rank_count);
  std::vector<Segment> segments;
  segments.reserve(static_cast<size_t>(rank_count));
  uint64_t offset = 0;
  for (int rank = 0; rank < rank_count; ++rank) {
    const uint64_t elements = least + (static_cast<uint64_t>(rank) < longer_count ? 1 : 0);
    segments.push_back({rank, offset, elements * element_bytes});
    offset += elements * element_bytes;
  }
  *layout = Layout{std::move(segments), rank_count, 1, bytes};
  return MXS_OK;
}

uint64_t Layout::owned_bytes(int rank) const {
  uint64_t sum = 0;
  for (const Segment &segment : segments)
    if (segment.owner == rank) sum += segment.bytes;
  return sum;
}

uint64_t Layout::hash() const {
  Fingerprint fingerprint;
  fingerprint.add(static_cast<uint64_t>(rank_count)).add(alignment).add(bytes).add(segments.size());
  for (const Segment &segment : segments)
    fingerprint.add(static_cast<uint64_t>(segment.owner)).add(segment.offset).add(segment.bytes);
  return fingerprint.value();
}

}  // namespace mxs
