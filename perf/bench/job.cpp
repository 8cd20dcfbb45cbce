// SPDX-License-Identifier: Apache-2.0
#include "bench/job.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "cli/algorithm_names.hpp"
#include "cli/layout_words.hpp"

namespace bench {

Buffer::Buffer(const Ranks &ranks, uint64_t bytes, bool heap) {
  const uint64_t room = std::max<uint64_t>(bytes, 64);
  void *memory = nullptr;
  if (heap) {
    memory = std::aligned_alloc(4096, (room + 4095) / 4096 * 4096);
    if (!memory)
      throw mxs::error(MXS_OUT_OF_MEMORY, "there is no memory for a buffer of " + std::to_string(room) + " bytes");
    std::memset(memory, 0, room);
  } else {
    mxs::check(mxs_comm_allocate(ranks.comm().get(), room, MXS_HOST, &memory));
    comm_ = ranks.comm().get();
  }
  data_ = static_cast<std::byte *>(memory);
}

Buffer &Buffer::operator=(Buffer &&other) noexcept {
  std::swap(comm_, other.comm_);
  std::swap(data_, other.data_);
  return *this;
}

Buffer::~Buffer() {
  if (comm_) mxs_comm_free(comm_, data_);
  else std::free(data_);
}

const std::vector<std::string> &known_algorithms() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"fanout", "cooperative"};
    all.insert(all.end(), std::begin(mxs_cli::message_algorithms), std::end(mxs_cli::message_algorithms));
    return all;
  }();
  return names;
}

bool shows_absence(mxs_status status) {
  return status == MXS_NOT_FOUND || status == MXS_INVALID_ARGUMENT || status == MXS_NOT_BUILT;
}

Job::Job(Ranks &ranks, const Options &options, uint64_t bytes)
    : ranks_(ranks), options_(options), element_bytes_(mxs_dtype_bytes(options.dtype)) {
  std::vector<mxs_cli::LayoutPart> parts;
  const std::string wrong = mxs_cli::read_layout(options.layout, bytes, ranks.count(), element_bytes_, &parts);
  if (!wrong.empty()) throw mxs::error(MXS_INVALID_ARGUMENT, wrong);
  std::vector<uint64_t> owned(static_cast<size_t>(ranks.count()), 0);
  segments_ = mxs_cli::segments_of(parts);
  for (const mxs_segment &segment : segments_) {
    bytes_ += segment.bytes;
    owned[static_cast<size_t>(segment.owner)] += segment.bytes;
  }
  layout_ = mxs::make_layout(segments_, ranks.count(), 1);
  packed_bytes_ = owned[static_cast<size_t>(ranks.rank())];
  packed_bytes_max_ = *std::max_element(owned.begin(), owned.end());
  owned_bytes_min_ = *std::min_element(owned.begin(), owned.end());
  owner_count_ = static_cast<int>(std::count_if(owned.begin(), owned.end(), [](uint64_t one) { return one > 0; }));
}

mxs::collective Job::make_collective(int32_t kind, const std::string &algorithm) const {
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = kind;
  options.layout = layout_.get();
  options.dtype = options_.dtype;
  options.flags = options_.heap ? 0 : MXS_MAPPED_MEMORY;
  if (kind == MXS_REDUCE)
    options.flags |= (options_.rank_order ? MXS_RANK_ORDER : 0) | (options_.accumulate ? MXS_ACCUMULATE : 0);
  options.algorithm = algorithm.empty() ? nullptr : algorithm.c_str();
  options.chunk_bytes = options_.chunk_bytes;
  options.window = options_.window;
  return mxs::make_collective(ranks_.comm(), options);
}

void Job::carry_out(const mxs::collective &collective, const void *source, void *target) const {
  mxs_request request = 0;
  mxs_call call = MXS_CALL_INIT;
  call.request_out = &request;
  mxs::check(mxs_collective_start(collective.get(), source, target, &call));
  if (options_.spin) ranks_.wait(request);
  else mxs::check(mxs_collective_wait(collective.get(), nullptr));
}

Run Job::run_of(const mxs_segment &segment) const {
  return {segment.offset / element_bytes_, segment.bytes / element_bytes_, element_bytes_};
}

void Job::flip(std::byte *result, uint64_t bytes) {
  if (bytes > 0) result[bytes / 2] ^= std::byte{1};
}

}  // namespace bench
