// SPDX-License-Identifier: Apache-2.0
#include "schedule/blocks.hpp"

#include <algorithm>
#include <cassert>

#include "base/arithmetic.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

// Borders of shares and blocks are multiples of it from the owner's packed start, so that no element is cut.
constexpr uint64_t granule = 64;
// A lane more is a message more: an owner with less than this for each takes fewer lanes.
constexpr uint64_t lane_bytes_min = 4096;
// A message of a circulant round has at most about so many ranges: blocks of small owners are not cut finer.
constexpr uint64_t ranges_per_chunk = 64;

// Where part `index` of `count` about equal ones begins.
uint64_t part_begin(uint64_t bytes, uint64_t index, uint64_t count) {
  const uint64_t granules = divide_up(bytes, granule);
  const uint64_t whole = granules / count * index + granules % count * index / count;
  return std::min(whole * granule, bytes);
}

}  // namespace

bool cuts_blocks(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::circulant:
    case Algorithm::two_level_flat:
    case Algorithm::two_level_chain:
    case Algorithm::two_level_circulant: return true;
    case Algorithm::flat:
    case Algorithm::chain:
    case Algorithm::spread:
    case Algorithm::direct: break;
  }
  return false;
}

Blocks::Blocks(const ScheduleOptions &options)
    : layout_(*options.layout), chunk_bytes_(options.chunk_bytes),
      two_level_(options.algorithm != Algorithm::circulant),
      circulant_(options.algorithm == Algorithm::circulant || options.algorithm == Algorithm::two_level_circulant),
      lanes_(options), owned_(static_cast<size_t>(options.layout->rank_count)) {
  for (const Segment &segment : layout_.segments) owned_[static_cast<size_t>(segment.owner)] += segment.bytes;
  if (circulant_) count_blocks();
}

// What all owners have in one round on the fullest lane is to fit into one message, also if each of their blocks is a
// granule larger than the mean.
void Blocks::count_blocks() {
  struct Lane {
    uint64_t granules = 0, owners = 0;
  };
  std::vector<Lane> lanes(static_cast<size_t>(two_level_ ? lanes_.count() : 1));
  for (int owner = 0; owner < layout_.rank_count; ++owner)
    for (const Share &share : shares_of(owner)) {
      lanes[static_cast<size_t>(share.lane)].granules += divide_up(share.bytes, granule);
      ++lanes[static_cast<size_t>(share.lane)].owners;
    }
  const uint64_t chunk = chunk_bytes_ / granule;
  uint64_t count = 1;
  for (const Lane &lane : lanes)
    if (lane.granules > chunk)
      count = std::max(count, divide_up(lane.granules, chunk - std::min(lane.owners, chunk / 4)));
  block_count_ = static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX / 8));
}

// Evenly over lanes, its own first.
std::vector<Blocks::Share> Blocks::shares_of(int owner) const {
  const uint64_t bytes = owned_[static_cast<size_t>(owner)];
  std::vector<Share> shares;
  if (bytes == 0) return shares;
  if (!two_level_) return {{0, bytes}};
  const uint64_t lane_count = static_cast<uint64_t>(lanes_.count());
  const uint64_t used = std::clamp<uint64_t>(divide_up(bytes, std::min(lane_bytes_min, chunk_bytes_)), 1, lane_count);
  for (uint64_t index = 0; index < used; ++index) {
    const uint64_t begin = part_begin(bytes, index, used), end = part_begin(bytes, index + 1, used);
    const int lane = (lanes_.lane_of(owner) + static_cast<int>(index)) % lanes_.count();
    if (begin < end) shares.push_back({lane, end - begin});
  }
  return shares;
}

uint32_t Blocks::blocks_of(const Share &share) const {
  if (!circulant_) return static_cast<uint32_t>(divide_up(share.bytes, chunk_bytes_));
  const uint64_t least = std::max(chunk_bytes_ / ranges_per_chunk / granule * granule, granule);
  return static_cast<uint32_t>(std::min<uint64_t>(divide_up(share.bytes, least), block_count_));
}

// Fewer blocks than positions: every (n / blocks)th, beginning elsewhere for each owner, so that rounds stay even.
uint32_t Blocks::round_of(uint32_t block, uint32_t blocks, int owner) const {
  if (!circulant_ || blocks == block_count_) return block;
  constexpr uint64_t parts = 1024;
  const uint64_t phase = static_cast<uint64_t>(owner) * parts / static_cast<uint64_t>(layout_.rank_count);
  return static_cast<uint32_t>((block * parts + phase) * block_count_ / (blocks * parts));
}

// Where an owner's bytes have been cut so far.
struct Blocks::Cursor {
  std::vector<Share> shares;
  size_t share = 0;
  uint32_t block = 0, blocks = 0;  // of the share: the next one, and how many
  uint64_t packed = 0;
  uint64_t left = 0;  // of the block before `block`
  Piece piece;        // its owner, helper and round
  bool begun = false;
};

bool Blocks::next_block(Cursor *cursor, int owner) const {
  if (!cursor->begun) {
    cursor->begun = true;
    cursor->shares = shares_of(owner);
  } else if (cursor->block == cursor->blocks) {
    ++cursor->share;
    cursor->block = 0;
  }
  if (cursor->share == cursor->shares.size()) return false;
  const Share &share = cursor->shares[cursor->share];
  cursor->blocks = blocks_of(share);
  cursor->left = part_begin(share.bytes, cursor->block + uint64_t{1}, cursor->blocks) -
                 part_begin(share.bytes, cursor->block, cursor->blocks);
  cursor->piece.owner = owner;
  cursor->piece.helper = two_level_ ? share.lane : owner;
  cursor->piece.round = round_of(cursor->block++, cursor->blocks, owner);
  return true;
}

mxs_status Blocks::cut(uint64_t piece_count_max, std::vector<Piece> *pieces) const {
  uint64_t count = layout_.segments.size();
  for (int owner = 0; owner < layout_.rank_count; ++owner)
    for (const Share &share : shares_of(owner)) count += blocks_of(share);
  if (count > piece_count_max)
    return set_error(MXS_INVALID_ARGUMENT,
                     "%llu bytes in chunks of %llu are up to %llu pieces, more than %llu; raise chunk_bytes",
                     static_cast<unsigned long long>(layout_.bytes), static_cast<unsigned long long>(chunk_bytes_),
                     static_cast<unsigned long long>(count), static_cast<unsigned long long>(piece_count_max));
  pieces->reserve(count);
  std::vector<Cursor> cursors(owned_.size());
  for (const Segment &segment : layout_.segments) {
    Cursor &cursor = cursors[static_cast<size_t>(segment.owner)];
    for (uint64_t done = 0; done < segment.bytes;) {
      while (cursor.left == 0) {
        [[maybe_unused]] const bool found = next_block(&cursor, segment.owner);
        assert(found);
      }
      Piece piece = cursor.piece;
      piece.offset = segment.offset + done;
      piece.packed = cursor.packed;
      piece.bytes = std::min(segment.bytes - done, cursor.left);
      pieces->push_back(piece);
      done += piece.bytes;
      cursor.packed += piece.bytes;
      cursor.left -= piece.bytes;
    }
  }
  return MXS_OK;
}

}  // namespace mxs
