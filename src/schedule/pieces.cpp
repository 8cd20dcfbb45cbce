// SPDX-License-Identifier: Apache-2.0
// Cuts a layout into pieces, each with an owner and a helper.
//
//   owner's packed segments   |-------- own share --------|--- share of helper 3 ---|--- share of helper 5 ---|
//   segment borders           |----------------|--------------------------------------------|-----------------|
//   pieces                    |---|---|---|---||---|---|--|---|---|---|---|-|---|---|---|---||---|---|---|----|
//
// Cuts inside a segment are multiples of 64 bytes from its packed start or from the share's, so that no element is cut.
#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "schedule/blocks.hpp"
#include "schedule/bounds.hpp"
#include "schedule/schedule.hpp"

namespace mxs {

namespace {

constexpr uint64_t share_granule = 64;
// 4 million pieces are about 400 MB of list on every rank.
constexpr uint64_t piece_count_max = uint64_t{1} << 22;

// The largest level such that pouring (level - base) / slope bytes into every rank below it takes no more than `total`.
uint64_t water_level(const std::vector<uint64_t> &bases, uint64_t slope, uint64_t total) {
  const auto poured = [&](uint64_t level) {
    uint64_t sum = 0;
    for (const uint64_t base : bases)
      if (level > base) sum += (level - base) / slope;
    return sum;
  };
  uint64_t low = 0, high = *std::max_element(bases.begin(), bases.end()) + total * slope;
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    if (poured(middle) <= total)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

// Deals `bytes` of one owner to helpers in proportion to what they can still take; the last takes what rounding left.
void deal(uint64_t bytes, std::vector<uint64_t> *capacity, uint64_t *row) {
  uint64_t left = std::accumulate(capacity->begin(), capacity->end(), uint64_t{0});
  for (size_t helper = 0; helper < capacity->size() && bytes > 0; ++helper) {
    uint64_t &room = (*capacity)[helper];
    if (room == 0) continue;
    // Without 128-bit products: fractions of 2^20 are fine enough for a balance.
    const uint64_t fraction = room == left ? 0 : (room << 20) / left;
    uint64_t share = room == left ? bytes : (bytes >> 20) * fraction + (((bytes & 0xfffff) * fraction) >> 20);
    share = room == left ? share : std::min(bytes, align_up(share, share_granule));
    left -= room;
    row[helper] += share;
    bytes -= share;
    room -= std::min(room, share);
  }
}

}  // namespace

bool spread_totals(const Layout &layout, uint32_t sum_weight, std::vector<uint64_t> *own,
                   std::vector<uint64_t> *helped) {
  const size_t count = static_cast<size_t>(layout.rank_count);
  const std::vector<uint64_t> owned = owned_by_rank(layout);
  std::vector<uint64_t> bases(count);
  const uint64_t total = std::accumulate(owned.begin(), owned.end(), uint64_t{0});
  const uint64_t slope = count > 1 + sum_weight ? count - 1 - sum_weight : 1;
  const bool fits = total < (uint64_t{1} << 42) && count < (uint64_t{1} << 20);
  helped->assign(count, 0);
  *own = owned;
  if (count <= 2 || total == 0 || !fits) return false;  // nobody to help, or nothing, or sizes whose products overflow
  for (size_t rank = 0; rank < count; ++rank) bases[rank] = sum_weight * owned[rank];
  const uint64_t level = water_level(bases, slope, total);
  for (size_t rank = 0; rank < count; ++rank) {
    const uint64_t takes = level > bases[rank] ? align_up((level - bases[rank]) / slope, share_granule) : 0;
    (*own)[rank] = std::min(takes, owned[rank]);  // its own bytes first: one hop instead of two
    (*helped)[rank] = takes - (*own)[rank];
  }
  return true;
}

std::vector<uint64_t> spread_shares(const Layout &layout, uint32_t sum_weight) {
  const size_t count = static_cast<size_t>(layout.rank_count);
  std::vector<uint64_t> shares(count * count), own, helped, rest = owned_by_rank(layout);
  const bool helps = spread_totals(layout, sum_weight, &own, &helped);
  for (size_t rank = 0; rank < count; ++rank) shares[rank * count + rank] = own[rank];
  if (!helps) return shares;
  for (size_t rank = 0; rank < count; ++rank) rest[rank] -= own[rank];
  for (size_t owner = 0; owner < count; ++owner) {
    if (rest[owner] == 0) continue;
    helped[owner] = 0;
    uint64_t *row = &shares[owner * count];
    const uint64_t before = std::accumulate(row, row + count, uint64_t{0});
    deal(rest[owner], &helped, row);
    // Rounding may have used all room up: the owner keeps what is left.
    row[owner] += rest[owner] - (std::accumulate(row, row + count, uint64_t{0}) - before);
  }
  return shares;
}

mxs_status check_elements(const Layout &layout, uint32_t element_bytes) {
  for (size_t i = 0; i < layout.segments.size(); ++i) {
    const Segment &segment = layout.segments[i];
    if (segment.bytes % element_bytes != 0 || segment.offset % element_bytes != 0)
      return set_error(MXS_INVALID_ARGUMENT, "segment %zu (offset %llu, %llu bytes) cuts an element of %u bytes", i,
                       static_cast<unsigned long long>(segment.offset), static_cast<unsigned long long>(segment.bytes),
                       element_bytes);
  }
  return MXS_OK;
}

namespace {

mxs_status check(const ScheduleOptions &options) {
  if (options.chunk_bytes < 64 || options.chunk_bytes % 64 != 0 || options.chunk_bytes > chunk_bytes_max)
    return set_error(MXS_INVALID_ARGUMENT, "chunk_bytes is %llu, not a multiple of 64 from 64 to %llu",
                     static_cast<unsigned long long>(options.chunk_bytes),
                     static_cast<unsigned long long>(chunk_bytes_max));
  const mxs_status status = check_elements(*options.layout, options.element_bytes);
  if (status != MXS_OK) return status;
  uint64_t pieces = 0;
  for (const Segment &segment : options.layout->segments) pieces += divide_up(segment.bytes, options.chunk_bytes);
  if (pieces > piece_count_max)
    return set_error(MXS_INVALID_ARGUMENT,
                     "%llu bytes in chunks of %llu are %llu messages, more than %llu; raise chunk_bytes",
                     static_cast<unsigned long long>(options.layout->bytes),
                     static_cast<unsigned long long>(options.chunk_bytes), static_cast<unsigned long long>(pieces),
                     static_cast<unsigned long long>(piece_count_max));
  return MXS_OK;
}

// Numbers pieces. Gather, reshard: those of each pair of owner and helper, so that owners feed all helpers early.
// Reduce: those of each helper, with its owners in turns, as a clock would, since it adds one after the other and
// channels wait for its sums. (Counted per pair, the helpers of four owners were in round 9 when owners that help
// themselves were in round 35: a fp32 reduce of 16 MiB to 4 owners by spread, 8 nodes at 200 Mbit/s, took 0.95 s so and
// 0.78 s this way. A gather took 0.75 s so and 0.91 s this way; perf/network b --owners 4.) The same for chain and
// flat, whose owners help themselves.
//
// Small neighbours share a round while they fit in a chunk, since they travel in one message.
void number_rounds(const ScheduleOptions &options, std::vector<Piece> *pieces) {
  std::vector<size_t> order(pieces->size());
  std::iota(order.begin(), order.end(), size_t{0});
  // In the order given: a new count begins where `begins` says so.
  const auto number = [&](auto &&begins) {
    uint32_t round = 0;
    uint64_t bytes = 0;  // of the round so far
    for (size_t i = 0; i < order.size(); ++i) {
      Piece &piece = (*pieces)[order[i]];
      const bool first = i == 0 || begins((*pieces)[order[i - 1]], piece);
      const bool next = !first && bytes + piece.bytes > options.chunk_bytes;
      round = first ? 0 : round + next;
      bytes = first || next ? piece.bytes : bytes + piece.bytes;
      piece.round = round;
    }
  };
  const auto pair_of = [&](const Piece &piece) { return std::pair(piece.helper, piece.owner); };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return pair_of((*pieces)[a]) < pair_of((*pieces)[b]); });
  number([&](const Piece &before, const Piece &piece) { return pair_of(before) != pair_of(piece); });
  if (options.direction != Direction::reduce && options.direction != Direction::ordered_reduce) return;
  const auto turn_of = [&](size_t index) {
    const Piece &piece = (*pieces)[index];
    return std::tuple(piece.helper, piece.round, piece.owner, index);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return turn_of(a) < turn_of(b); });
  number([&](const Piece &before, const Piece &piece) { return before.helper != piece.helper; });
}

void cut_range(const Piece &range, uint64_t chunk_bytes, std::vector<Piece> *pieces) {
  for (uint64_t done = 0; done < range.bytes; done += chunk_bytes) {
    Piece piece = range;
    piece.offset += done;
    piece.packed += done;
    piece.target_packed += done;
    piece.bytes = std::min(chunk_bytes, range.bytes - done);
    pieces->push_back(piece);
  }
}

// Walks an owner's segments and its row of shares side by side.
void cut_owned(const ScheduleOptions &options, const std::vector<uint64_t> &shares, std::vector<Piece> *pieces) {
  const size_t count = static_cast<size_t>(options.layout->rank_count);
  struct Cursor {
    uint64_t packed = 0;      // bytes of the owner's segments passed so far
    size_t helper = 0;        // whose share goes on
    uint64_t share_left = 0;
    bool begun = false;
  };
  std::vector<Cursor> cursors(count);
  for (const Segment &segment : options.layout->segments) {
    const size_t owner = static_cast<size_t>(segment.owner);
    Cursor &cursor = cursors[owner];
    if (!cursor.begun) {
      // The own share comes first, then those of owner + 1, owner + 2, ...
      cursor.helper = owner;
      cursor.share_left = shares.empty() ? UINT64_MAX : shares[owner * count + owner];
      cursor.begun = true;
    }
    for (uint64_t done = 0; done < segment.bytes;) {
      while (cursor.share_left == 0) {
        cursor.helper = (cursor.helper + 1) % count;
        cursor.share_left = shares[owner * count + cursor.helper];
      }
      Piece range;
      range.owner = segment.owner;
      range.helper = static_cast<int>(cursor.helper);
      range.offset = segment.offset + done;
      range.packed = cursor.packed;
      range.bytes = std::min(segment.bytes - done, cursor.share_left);
      cut_range(range, options.chunk_bytes, pieces);
      done += range.bytes;
      cursor.packed += range.bytes;
      cursor.share_left -= range.bytes;
    }
  }
}

}  // namespace

mxs_status cut_pieces(const ScheduleOptions &options, std::vector<Piece> *pieces) {
  mxs_status status = check(options);
  if (status != MXS_OK) return status;
  std::vector<Piece> result;
  if (options.direction == Direction::reshard) {
    std::vector<LayoutMove> moves;
    status = layout_moves(*options.layout, *options.target_layout, &moves);
    if (status != MXS_OK) return status;
    uint64_t offset = 0;
    for (const LayoutMove &move : moves) {
      Piece range;
      range.owner = move.source_rank;
      range.helper = move.target_rank;
      range.offset = offset;
      range.packed = move.source_offset;
      range.target_packed = move.target_offset;
      range.bytes = move.bytes;
      cut_range(range, options.chunk_bytes, &result);
      offset += move.bytes;
    }
  } else if (cuts_blocks(options.algorithm)) {
    status = Blocks(options).cut(piece_count_max, &result);
    if (status != MXS_OK) return status;
    *pieces = std::move(result);
    return MXS_OK;
  } else {
    std::vector<uint64_t> shares;  // empty: all its own
    if (options.algorithm == Algorithm::spread)
      shares = spread_shares(*options.layout, options.direction == Direction::gather ? 1 : 4 / options.element_bytes);
    cut_owned(options, shares, &result);
  }
  number_rounds(options, &result);
  *pieces = std::move(result);
  return MXS_OK;
}

}  // namespace mxs
