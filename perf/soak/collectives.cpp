// SPDX-License-Identifier: Apache-2.0
// Gathers, reduces and reshards over drawn layouts, one by one or several in flight, every byte looked at.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "soak/drawn.hpp"
#include "soak/group.hpp"
#include "soak/layouts.hpp"

namespace soak {

namespace {

const std::vector<std::string> message_algorithms = {"flat",      "chain",          "spread",
                                                     "circulant", "two-level-flat", "two-level-chain",
                                                     "two-level-circulant"};

// One collective: what it is, its memory, and what its result must be.
class Collective {
 public:
  Collective(const Group &group, Choices *choices, uint64_t bytes_max);

  const std::string &name() const { return name_; }
  void make();
  void start(uint64_t salt);
  void wait(Choices *own);
  void check();

 private:
  void draw_algorithm(Choices *choices);
  void take_memory();
  void fill_gather();
  void fill_reduce();
  void fill_reshard();
  void check_gather() const;
  void check_reduce() const;
  void check_reshard() const;
  Element element(int rank, uint64_t index) const {
    return flags_ & MXS_RANK_ORDER ? rough_element(rank, index, salt_, dtype_)
                                   : whole_element(whole_number(rank, index, salt_), dtype_);
  }
  // Calls body(offset, bytes, packed offset) for each segment of this rank.
  template <class Body>
  void for_own(const Layout &layout, const Body &body) const {
    uint64_t packed = 0;
    for (const mxs_segment &segment : layout.segments) {
      if (segment.owner != group_.rank()) continue;
      body(segment.offset, segment.bytes, packed);
      packed += segment.bytes;
    }
  }

  const Group &group_;
  int32_t kind_;
  mxs_dtype dtype_ = MXS_U8;
  int32_t flags_ = 0;
  Layout layout_, target_layout_;
  std::string algorithm_, name_;
  uint64_t chunk_bytes_ = 0;
  int32_t window_ = 0;
  bool is_shared_ = false, is_packed_ = false;
  std::unique_ptr<Shared> shared_source_, shared_target_;
  std::byte *source_ = nullptr, *target_ = nullptr;
  mxs::collective collective_;  // after its memory: it goes first
  mxs_request request_ = 0;
  uint64_t salt_ = 0;
};

Collective::Collective(const Group &group, Choices *choices, uint64_t bytes_max)
    : group_(group), kind_(choices->of<int32_t>({MXS_GATHER, MXS_GATHER, MXS_REDUCE, MXS_REDUCE, MXS_RESHARD})) {
  if (kind_ == MXS_REDUCE) {
    dtype_ = choices->of<mxs_dtype>({MXS_F32, MXS_BF16, MXS_F16});
    flags_ = (choices->one_in(2) ? MXS_RANK_ORDER : 0) | (choices->one_in(2) ? MXS_ACCUMULATE : 0);
  }
  const uint64_t element_bytes = kind_ == MXS_REDUCE ? mxs_dtype_bytes(dtype_) : 1;
  if (kind_ == MXS_RESHARD) {
    layout_ = draw_dense_layout(choices, group.rank_count(), element_bytes, bytes_max);
    target_layout_ = draw_other_owners(choices, layout_, group.rank_count(), element_bytes);
  } else {
    layout_ = draw_layout(choices, group.rank_count(), element_bytes, bytes_max);
    is_shared_ = choices->one_in(2);
    is_packed_ = choices->one_in(2);
  }
  draw_algorithm(choices);
  if (choices->one_in(4)) chunk_bytes_ = uint64_t{64} << choices->between(0, 12);
  if (choices->one_in(4)) window_ = static_cast<int32_t>(choices->between(1, 6));
  name_ = std::string(kind_ == MXS_GATHER ? "gather" : kind_ == MXS_REDUCE ? "reduce" : "reshard") + " of " +
          std::to_string(layout_.bytes) + " bytes, " + layout_.name + ", by " +
          (algorithm_.empty() ? "choice" : algorithm_) +
          (kind_ == MXS_REDUCE ? std::string(", ") + mxs_dtype_name(dtype_) : "") +
          (flags_ & MXS_RANK_ORDER ? ", rank order" : "") + (flags_ & MXS_ACCUMULATE ? ", accumulated" : "") +
          (flags_ & MXS_MAPPED_MEMORY ? ", promised" : "") + (is_shared_ ? ", shared memory" : "") +
          ", chunks of " + std::to_string(chunk_bytes_) + ", window " + std::to_string(window_);
}

void Collective::draw_algorithm(Choices *choices) {
  if (kind_ == MXS_RESHARD) {
    if (choices->one_in(2)) algorithm_ = "direct";
    return;
  }
  switch (choices->between(0, 3)) {
    case 0:
    case 1:
      algorithm_ = choices->of(message_algorithms);
      if (flags_ & MXS_RANK_ORDER && (algorithm_ == "circulant" || algorithm_.find("two-level") == 0))
        algorithm_ = choices->of<std::string>({"flat", "chain", "spread"});
      break;
    case 2:
      if (is_shared_ && group_.maps_memory()) algorithm_ = kind_ == MXS_GATHER ? "fanout" : "cooperative";
      break;
    default:
      if (is_shared_ && choices->one_in(2)) flags_ |= MXS_MAPPED_MEMORY;
      break;
  }
}

void Collective::make() {
  take_memory();
  const mxs::layout layout = made(layout_, group_.rank_count());
  const mxs::layout target_layout = made(target_layout_, group_.rank_count());
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = kind_;
  options.layout = layout.get();
  options.target_layout = kind_ == MXS_RESHARD ? target_layout.get() : nullptr;
  options.dtype = kind_ == MXS_REDUCE ? dtype_ : 0;
  options.flags = flags_;
  options.algorithm = algorithm_.empty() ? nullptr : algorithm_.c_str();
  options.chunk_bytes = chunk_bytes_;
  options.window = window_;
  mxs_collective *made_one = nullptr;
  mxs::check(mxs_collective_create(&made_one, group_.comm, &options));
  collective_.reset(made_one);
}

void Collective::take_memory() {
  const uint64_t own_bytes = layout_.owned_bytes(group_.rank());
  const uint64_t sum_bytes = kind_ == MXS_REDUCE ? own_bytes / mxs_dtype_bytes(dtype_) * sizeof(float) : 0;
  if (is_shared_ && kind_ == MXS_GATHER) {
    shared_target_ = std::make_unique<Shared>(group_.comm, layout_.bytes + 1);
    target_ = shared_target_->data();
  } else if (is_shared_) {
    shared_source_ = std::make_unique<Shared>(group_.comm, layout_.bytes + 1);
    shared_target_ = std::make_unique<Shared>(group_.comm, layout_.bytes * 2 + 1);  // equal on all ranks
    source_ = shared_source_->data();
    target_ = shared_target_->data();
  }
  if (kind_ == MXS_GATHER) {
    source_ = is_packed_ && own_bytes > 0 ? group_.buffers->take(own_bytes) : nullptr;
    if (!target_) target_ = group_.buffers->take(layout_.bytes);
  } else if (kind_ == MXS_REDUCE && !target_) {
    source_ = group_.buffers->take(layout_.bytes);
    target_ = sum_bytes > 0 ? group_.buffers->take(sum_bytes) : nullptr;
  } else if (kind_ == MXS_RESHARD) {
    source_ = group_.buffers->take(own_bytes);
    target_ = group_.buffers->take(target_layout_.owned_bytes(group_.rank()));
  }
}

void Collective::fill_gather() {
  std::memset(target_, poison, layout_.bytes);
  for_own(layout_, [&](uint64_t offset, uint64_t bytes, uint64_t packed) {
    fill_bytes(source_ ? source_ + packed : target_ + offset, offset, bytes, salt_);
  });
}

void Collective::fill_reduce() {
  const uint64_t width = mxs_dtype_bytes(dtype_);
  for (const mxs_segment &segment : layout_.segments)
    for (uint64_t offset = segment.offset; offset < segment.offset + segment.bytes; offset += width) {
      const uint32_t bits = element(group_.rank(), offset / width).bits;
      std::memcpy(source_ + offset, &bits, width);
    }
  for_own(layout_, [&](uint64_t offset, uint64_t bytes, uint64_t packed) {
    for (uint64_t i = 0; i < bytes / width; i++) {
      // Else what the target holds must not count.
      const float before = flags_ & MXS_ACCUMULATE
                               ? static_cast<float>(whole_number(group_.rank_count(), offset / width + i, salt_))
                               : 12345.0f;
      std::memcpy(target_ + (packed / width + i) * sizeof(float), &before, sizeof before);
    }
  });
}

void Collective::fill_reshard() {
  for_own(layout_, [&](uint64_t offset, uint64_t bytes, uint64_t packed) {
    fill_bytes(source_ + packed, offset, bytes, salt_);
  });
  std::memset(target_, poison, target_layout_.owned_bytes(group_.rank()));
}

void Collective::start(uint64_t salt) {
  salt_ = salt;
  if (kind_ == MXS_GATHER) fill_gather();
  else if (kind_ == MXS_REDUCE) fill_reduce();
  else fill_reshard();
  mxs_call call = MXS_CALL_INIT;
  call.request_out = &request_;
  call.priority = static_cast<int32_t>(mix(salt, static_cast<uint64_t>(group_.rank())) % 3);
  mxs::check(mxs_collective_start(collective_.get(), source_, target_, &call));
}

// By any of the three ways. A test has no deadline, by which alone a pulled cable shows: after a while one waits.
void Collective::wait(Choices *own) {
  switch (own->between(0, 2)) {
    case 0: mxs::check(mxs_collective_wait(collective_.get(), nullptr)); break;
    case 1: mxs::check(mxs_comm_wait(group_.comm, request_, nullptr)); break;
    default: {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
      while (mxs::check(mxs_comm_test(group_.comm, request_)) == MXS_IN_PROGRESS) {
        if (std::chrono::steady_clock::now() < end) sched_yield();
        else return static_cast<void>(mxs::check(mxs_comm_wait(group_.comm, request_, nullptr)));
      }
    }
  }
}

void Collective::check_gather() const {
  uint64_t end = 0;
  for (const mxs_segment &segment : layout_.segments) {
    for (; end < segment.offset; end++)
      if (target_[end] != std::byte{poison}) throw Wrong(name_ + ": a gap was written at byte " + std::to_string(end));
    const uint64_t right = first_wrong_byte(target_ + segment.offset, segment.offset, segment.bytes, salt_);
    if (right < segment.bytes)
      throw Wrong(name_ + ": byte " + std::to_string(segment.offset + right) + " of rank " +
                  std::to_string(segment.owner) + " is wrong");
    end = segment.offset + segment.bytes;
  }
  group_.tally->bytes += end;
}

void Collective::check_reduce() const {
  const uint64_t width = mxs_dtype_bytes(dtype_);
  for_own(layout_, [&](uint64_t offset, uint64_t bytes, uint64_t packed) {
    for (uint64_t i = 0; i < bytes / width; i++) {
      const uint64_t index = offset / width + i;
      float sum = flags_ & MXS_ACCUMULATE ? static_cast<float>(whole_number(group_.rank_count(), index, salt_)) : 0.0f;
      for (int rank = 0; rank < group_.rank_count(); rank++) sum += element(rank, index).value;
      float found = 0;
      std::memcpy(&found, target_ + (packed / width + i) * sizeof(float), sizeof found);
      if (std::bit_cast<uint32_t>(found) != std::bit_cast<uint32_t>(sum))
        throw Wrong(name_ + ": element " + std::to_string(index) + " is " + std::to_string(found) + ", not " +
                    std::to_string(sum));
    }
    group_.tally->bytes += bytes / width * sizeof(float);
  });
}

void Collective::check_reshard() const {
  for_own(target_layout_, [&](uint64_t offset, uint64_t bytes, uint64_t packed) {
    const uint64_t right = first_wrong_byte(target_ + packed, offset, bytes, salt_);
    if (right < bytes) throw Wrong(name_ + ": byte " + std::to_string(offset + right) + " is wrong");
    group_.tally->bytes += bytes;
  });
}

void Collective::check() {
  const uint64_t bytes = kind_ == MXS_GATHER ? layout_.bytes : 0;
  if (group_.plant_fault && bytes > 0) target_[bytes / 2] ^= std::byte{1};
  if (kind_ == MXS_GATHER) check_gather();
  else if (kind_ == MXS_REDUCE) check_reduce();
  else check_reshard();
  group_.tally->kinds[kind_ == MXS_GATHER ? "gather" : kind_ == MXS_REDUCE ? "reduce" : "reshard"]++;
}

}  // namespace

void run_collectives(const Group &group, uint64_t key) {
  Choices choices(mix(key, 3)), own(mix(key, 1000 + static_cast<uint64_t>(group.rank())));
  const int64_t count = choices.one_in(2) ? 1 : choices.between(2, 6), turns = choices.between(1, 3);
  std::vector<std::unique_ptr<Collective>> collectives;
  for (int64_t i = 0; i < count; i++) {
    collectives.push_back(
        std::make_unique<Collective>(group, &choices, group.bytes_max / static_cast<uint64_t>(count)));
    group.tally->doing = collectives.back()->name();
    collectives.back()->make();
  }
  if (count > 1) {
    group.tally->doing = std::to_string(count) + " in flight";
    for (const auto &each : collectives) group.tally->doing += "; " + each->name();
  }
  std::vector<size_t> order(collectives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (int64_t turn = 0; turn < turns; turn++) {
    for (size_t i = 0; i < collectives.size(); i++)
      collectives[i]->start(mix(key, 100 + static_cast<uint64_t>(turn) * 64 + i));
    for (size_t i = order.size(); i > 1; i--)
      std::swap(order[i - 1], order[static_cast<size_t>(own.between(0, static_cast<int64_t>(i) - 1))]);
    for (const size_t i : order) {
      collectives[i]->wait(&own);
      collectives[i]->check();
    }
  }
}

}  // namespace soak
