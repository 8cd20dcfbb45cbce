// SPDX-License-Identifier: Apache-2.0
#include "collective/group_sum.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/arithmetic.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

// Two lengths, so that a few numbers don't cost a mebibyte: 4 KiB and 1 MiB.
constexpr uint64_t small_count = 1024, large_count = 256 * 1024;

mxs_status carry_out(Collective &collective, const void *source, void *target) {
  uint64_t request = 0;
  const mxs_status status = collective.start(source, target, 0, &request);
  return status == MXS_OK ? collective.wait(0) : status;
}

}  // namespace

mxs_status GroupSum::create(std::unique_ptr<GroupSum> *made, Comm &parent, const std::vector<int> &members,
                            uint64_t values_max) {
  const bool mine = std::binary_search(members.begin(), members.end(), parent.rank);
  std::unique_ptr<GroupSum> sum(mine ? new GroupSum(parent) : nullptr);
  std::unique_ptr<Comm> comm;
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.thread_count = parent.thread_count;
  mxs_status status = split_comm(&comm, parent, mine ? 0 : MXS_NO_COLOR, parent.rank, options, false);
  if (status == MXS_OK && mine) {
    sum->comm_ = std::move(comm);
    // The parent's ranks hear of a failure, too.
    for (const int member : members)
      sum->comm_->whose_ranks.append(member == members[0] ? "of the group of rank " : ", rank ")
          .append(std::to_string(member));
    sum->comm_->whose_ranks.append(", here counted from 0: ");
    sum->parent_.tie_to(*sum->comm_);
    status = sum->build(values_max);
  }
  if (status == MXS_OK) *made = std::move(sum);
  return status;
}

GroupSum::~GroupSum() {
  if (!comm_) return;
  for (Piece *piece : {&small_, &large_}) {
    piece->reduce.reset();
    piece->gather.reset();
  }
  for (void *buffer : {source_, target_})
    if (buffer) comm_->free(buffer);
  parent_.untie_from(*comm_);
}

mxs_status GroupSum::build(uint64_t values_max) {
  const uint64_t largest = values_max > small_count ? std::min(align_up(values_max, small_count), large_count)
                                                    : small_count;
  mxs_status status = comm_->allocate(largest * sizeof(float), MXS_HOST, &source_);
  if (status == MXS_OK) status = comm_->allocate(largest * sizeof(float), MXS_HOST, &target_);
  if (status == MXS_OK) status = build_piece(&small_, small_count);
  if (status == MXS_OK && largest > small_count) status = build_piece(&large_, largest);
  return status;
}

mxs_status GroupSum::build_piece(Piece *piece, uint64_t count) {
  piece->count = count;
  mxs_status status = make_even_layout(count * sizeof(float), sizeof(float), comm_->rank_count, &piece->layout);
  if (status != MXS_OK) return status;
  CollectiveOptions options;
  options.messages.layout = &piece->layout;
  options.messages.kind = MXS_REDUCE;
  options.messages.rank_order = true;
  options.mapped_memory = true;
  status = create_collective(&piece->reduce, *comm_, options);
  if (status != MXS_OK) return status;
  options.messages.kind = MXS_GATHER;
  options.messages.rank_order = false;
  return create_collective(&piece->gather, *comm_, options);
}

mxs_status GroupSum::sum(float *values, uint64_t count) {
  while (count > 0) {
    const Piece &piece = large_.count > 0 && count > small_count ? large_ : small_;
    const uint64_t length = std::min(count, piece.count);
    const mxs_status status = sum_piece(piece, values, length);
    if (status != MXS_OK) return status;
    values += length;
    count -= length;
  }
  return MXS_OK;
}

// What lies behind the last number of a short sum is summed as well and read by nobody: zeros at first, then old
// values.
mxs_status GroupSum::sum_piece(const Piece &piece, float *values, uint64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  std::memcpy(source_, values, bytes);
  // An even layout has one segment of each rank, in the order of ranks.
  std::byte *const own = static_cast<std::byte *>(target_) +
                         piece.layout.segments[static_cast<size_t>(comm_->rank)].offset;
  mxs_status status = carry_out(*piece.reduce, source_, own);
  if (status == MXS_OK) status = carry_out(*piece.gather, nullptr, target_);
  if (status == MXS_OK) std::memcpy(values, target_, bytes);
  return status;
}

}  // namespace mxs
