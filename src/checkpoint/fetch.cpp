// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/fetch.hpp"

#include <algorithm>
#include <cassert>

namespace mxs {

namespace {

constexpr size_t parts_max = 4096;                        // of a fetch
constexpr uint64_t gap_bytes_max = uint64_t{256} << 10;  // read and thrown away rather than read apart

const ManifestPiece *piece_at(const ManifestArray &array, uint64_t number) {
  const auto after = std::upper_bound(array.pieces.begin(), array.pieces.end(), number,
                                      [](uint64_t place, const ManifestPiece &piece) { return place < piece.first; });
  // Of pieces that begin at one number all but the last are empty.
  return after == array.pieces.begin() ? nullptr : &*(after - 1);
}

}  // namespace

bool FetchPlanner::at_end() {
  while (range_ < ranges_.size() && done_bytes_ == ranges_[range_].bytes) {
    ++range_;
    done_bytes_ = 0;
  }
  return range_ == ranges_.size();
}

FetchedChunk FetchPlanner::chunk_at(size_t range, uint64_t offset_in_array) const {
  const ReadRange &wanted = ranges_[range];
  const ManifestArray &array = *wanted.array;
  const uint64_t array_offset = wanted.file->data_offset + array.offset;
  const ManifestPiece *piece =
      verified_ && array.number_bytes > 0 ? piece_at(array, offset_in_array / array.number_bytes) : nullptr;
  if (!piece) {
    const uint64_t first = array_offset + offset_in_array, end = array_offset + wanted.offset + wanted.bytes;
    return {range, first, std::min(end, block_floor(first) + hash_chunk_bytes) - first, nullptr};
  }
  const uint64_t piece_first = piece->first * array.number_bytes, piece_bytes = piece->count * array.number_bytes;
  const uint64_t chunk = (offset_in_array - piece_first) / hash_chunk_bytes, chunk_first = chunk * hash_chunk_bytes;
  assert(chunk < piece->hashes.size() && chunk_first < piece_bytes);
  return {range, array_offset + piece_first + chunk_first, std::min(piece_bytes - chunk_first, hash_chunk_bytes),
          &piece->hashes[chunk]};
}

// Adds what comes next; false: it doesn't fit.
bool FetchPlanner::take(Fetch *fetch) {
  const ReadRange &wanted = ranges_[range_];
  const uint64_t offset_in_array = wanted.offset + done_bytes_;
  const uint64_t offset = wanted.file->data_offset + wanted.array->offset + offset_in_array;
  const FetchedChunk chunk = chunk_at(range_, offset_in_array);
  assert(offset_in_array < wanted.array->bytes && chunk.offset <= offset && offset < chunk.offset + chunk.bytes);
  const FetchedChunk *last = fetch->chunks.empty() ? nullptr : &fetch->chunks.back();
  const bool shared = last && fetch->file == wanted.file && last->hash == chunk.hash && last->offset == chunk.offset &&
                      last->bytes == chunk.bytes;
  if (last && !shared) {
    const bool near = fetch->file == wanted.file && chunk.offset >= last->offset + last->bytes &&
                      chunk.offset - (last->offset + last->bytes) <= gap_bytes_max &&
                      block_ceiling(chunk.offset + chunk.bytes) - fetch->first <= fetch_bytes_max;
    if (!near) return false;
  }
  if (fetch->parts.size() == parts_max) return false;
  if (!last) {
    fetch->file = wanted.file;
    fetch->first = block_floor(chunk.offset);
  }
  if (!shared) fetch->chunks.push_back(chunk);
  fetch->end = fetch->chunks.back().offset + fetch->chunks.back().bytes;
  const uint64_t bytes = std::min(chunk.offset + chunk.bytes - offset, wanted.bytes - done_bytes_);
  fetch->parts.push_back({range_, fetch->chunks.size() - 1, offset, bytes});
  done_bytes_ += bytes;
  return true;
}

bool FetchPlanner::next(Fetch *fetch) {
  fetch->file = nullptr;
  fetch->first = fetch->end = 0;
  fetch->chunks.clear();
  fetch->parts.clear();
  while (!at_end() && take(fetch)) {
  }
  return !fetch->parts.empty();
}

}  // namespace mxs
