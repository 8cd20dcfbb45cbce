// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/layout.h"

#include <cinttypes>
#include <memory>
#include <utility>
#include <vector>

#include "api/door.hpp"
#include "api/values.hpp"

using namespace mxs;

static_assert(sizeof(mxs_segment) == 24, "part of the ABI");
static_assert(sizeof(mxs_layout_move) == 40, "part of the ABI");

namespace {

// A layout of more segments than a machine has memory for is a mistake of the caller, not ours.
constexpr uint64_t segment_count_max = uint64_t{1} << 32;

mxs_status read_segments(const mxs_segment *given, uint64_t count, std::vector<Segment> *segments) {
  return read_array(given, count, segment_count_max, sizeof(mxs_segment), "segments", MXS_SEGMENT_INIT,
                    [&](const mxs_segment &segment) {
                      segments->push_back({segment.owner, segment.offset, segment.bytes});
                    });
}

mxs_status hand_out(Layout &&value, mxs_layout **layout) {
  *layout = std::make_unique<mxs_layout>(mxs_layout{std::move(value)}).release();
  return MXS_OK;
}

}  // namespace

mxs_status mxs_layout_create(mxs_layout **layout, const mxs_segment *segments, uint64_t segment_count,
                             int32_t rank_count, uint64_t alignment) {
  return fenced([&]() -> mxs_status {
    if (!layout) return set_error(MXS_INVALID_ARGUMENT, "layout is NULL");
    std::vector<Segment> read;
    mxs_status status = read_segments(segments, segment_count, &read);
    if (status != MXS_OK) return status;
    Layout value;
    status = make_layout(std::move(read), rank_count, alignment, &value);
    return status == MXS_OK ? hand_out(std::move(value), layout) : status;
  });
}

mxs_status mxs_layout_create_even(mxs_layout **layout, uint64_t bytes, uint64_t element_bytes, int32_t rank_count) {
  return fenced([&]() -> mxs_status {
    if (!layout) return set_error(MXS_INVALID_ARGUMENT, "layout is NULL");
    Layout value;
    const mxs_status status = make_even_layout(bytes, element_bytes, rank_count, &value);
    return status == MXS_OK ? hand_out(std::move(value), layout) : status;
  });
}

void mxs_layout_destroy(mxs_layout **layout) {
  if (!layout) return;
  delete *layout;
  *layout = nullptr;
}

uint64_t mxs_layout_bytes(const mxs_layout *layout) { return layout ? layout->value.bytes : 0; }

uint64_t mxs_layout_owned_bytes(const mxs_layout *layout, int32_t rank) {
  return layout ? layout->value.owned_bytes(rank) : 0;
}

int32_t mxs_layout_rank_count(const mxs_layout *layout) { return layout ? layout->value.rank_count : 0; }

uint64_t mxs_layout_segment_count(const mxs_layout *layout) { return layout ? layout->value.segments.size() : 0; }

mxs_status mxs_layout_segment(const mxs_layout *layout, uint64_t index, mxs_segment *segment) {
  if (!layout) return set_error(MXS_INVALID_ARGUMENT, "layout is NULL");
  const mxs_status status = check_out_struct(segment, sizeof(mxs_segment), "segment");
  if (status != MXS_OK) return status;
  const std::vector<Segment> &segments = layout->value.segments;
  if (index >= segments.size())
    return set_error(MXS_INVALID_ARGUMENT, "index is %" PRIu64 ", but the layout has %zu segments", index,
                     segments.size());
  const Segment &found = segments[index];
  write_struct(mxs_segment{sizeof(mxs_segment), found.owner, found.offset, found.bytes}, segment);
  return MXS_OK;
}

mxs_status mxs_layout_moves(const mxs_layout *source, const mxs_layout *target, mxs_layout_move *moves,
                            uint64_t move_capacity, uint64_t *move_count) {
  return fenced([&]() -> mxs_status {
    if (!source || !target) return set_error(MXS_INVALID_ARGUMENT, "%s is NULL", source ? "target" : "source");
    if (!move_count) return set_error(MXS_INVALID_ARGUMENT, "move_count is NULL");
    std::vector<LayoutMove> found;
    mxs_status status = moves_between(source->value, target->value, &found);
    if (status == MXS_OK)
      status = write_array(moves, move_capacity, found.size(), sizeof(mxs_layout_move), "moves", [&](uint64_t index) {
        const LayoutMove &move = found[index];
        return mxs_layout_move{sizeof(mxs_layout_move), move.source_rank,   move.target_rank, 0,
                               move.source_offset,      move.target_offset, move.bytes};
      });
    if (status == MXS_OK) *move_count = found.size();
    return status;
  });
}
