// SPDX-License-Identifier: Apache-2.0
// All ranks by NCCL.
//
//   gather    a broadcast for each run of one owner's bytes, in one group; from the packed source, else in place
//   reduce    narrow gradients are widened into scratch first; a reduce of fp32 for each run to its owner, straight
//             into the target, or into scratch and then added (accumulate). In rounds, so that scratch is bounded
//   in order  the raw gradients go to the owner, who adds them in rank order: the bits of the host's reduce. In rounds
//   reshard   sends and receives, in one group
//   agree     the words of a step, summed over all ranks
#include <algorithm>
#include <cassert>
#include <string>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "collective/device_state.hpp"
#include "device/group.hpp"
#include "device/kernels.hpp"

namespace mxs {

namespace {

// Of scratch memory. A round of this size takes a few hundred microseconds on NVLink (450 GB/s), so that what lies
// between two rounds (a launch, some 10 microseconds) is little; and a comm has it once.
constexpr uint64_t scratch_bytes_most = uint64_t{64} << 20;
constexpr uint64_t line_bytes = 256;

class WholeCollective : public DeviceCollective {
 public:
  WholeCollective(DeviceState &state, const DeviceCollectiveOptions &options)
      : DeviceCollective(state, options), device_(state.device()), group_(state.group()), rank_(state.comm().rank),
        rank_count_(state.comm().rank_count), runs_(runs_of(layout_)),
        routes_(rank_count_ == 1 ? "none" : "nccl " + std::to_string(rank_count_ - 1)) {}

  const char *algorithm() const override { return rank_count_ == 1 ? "one rank" : algorithm_; }
  const char *routes() const override { return routes_.c_str(); }
  uint64_t bytes_out() const override { return bytes_out_; }
  uint64_t bytes_in() const override { return bytes_in_; }
  uint64_t message_count() const override { return message_count_; }
  uint64_t scratch_bytes() const override { return scratch_bytes_; }

  // Local: takes scratch memory.
  virtual mxs_status make() = 0;

 protected:
  // Of everything but the runs of this rank.
  uint64_t owned_bytes(bool own) const {
    uint64_t bytes = 0;
    for (const DeviceRun &run : runs_)
      if ((run.owner == rank_) == own) bytes += run.bytes;
    return bytes;
  }
  DeviceKernels &kernels() const { return device_.kernels(); }
  DeviceStream stream() const { return state_.stream(); }
  mxs_status take_scratch(uint64_t bytes) {
    scratch_bytes_ = bytes;
    return state_.want_scratch(bytes);
  }

  Device &device_;
  DeviceGroup *const group_;  // nullptr: one rank
  const int rank_, rank_count_;
  const std::vector<DeviceRun> runs_;
  const std::string routes_;
  const char *algorithm_ = "";
  uint64_t bytes_out_ = 0, bytes_in_ = 0, message_count_ = 0, scratch_bytes_ = 0;
};

// ---- gather ----

class WholeGather final : public WholeCollective {
 public:
  using WholeCollective::WholeCollective;

  mxs_status make() override {
    algorithm_ = "nccl broadcasts";
    const auto peers = static_cast<uint64_t>(rank_count_ - 1);
    bytes_out_ = owned_bytes(true) * peers;
    bytes_in_ = owned_bytes(false);
    message_count_ = group_ ? runs_.size() : 0;
    for (const DeviceRun &run : runs_) parts_.push_back({run.owner, nullptr, nullptr, run.bytes, MXS_U8});
    return MXS_OK;
  }

 private:
  mxs_status enqueue(const std::byte *source, std::byte *target) override {
    mxs_status status = MXS_OK;
    for (size_t i = 0; i < runs_.size() && status == MXS_OK; ++i) {
      const DeviceRun &run = runs_[i];
      parts_[i].target = target + run.offset;
      parts_[i].source = run.owner == rank_ && source ? source + run.packed : target + run.offset;
      if (!group_ && parts_[i].source != parts_[i].target)
        status = device_.copy(parts_[i].target, parts_[i].source, run.bytes, stream());
    }
    return status == MXS_OK && group_ && !parts_.empty() ? group_->broadcast(parts_, stream()) : status;
  }

  std::vector<GroupPart> parts_;
};

// ---- rounds of a reduce ----

// A piece of a run; `place`: in scratch memory, in elements.
struct Piece {
  int owner = 0;
  uint64_t offset = 0, packed = 0, elements = 0, place = 0;
};

// ---- reduce by NCCL ----

class WholeReduce final : public WholeCollective {
 public:
  using WholeCollective::WholeCollective;

  mxs_status make() override;

 private:
  struct Round {
    std::vector<Piece> pieces;
    std::vector<GroupPart> parts;
  };

  mxs_status enqueue(const std::byte *source, std::byte *target) override;
  mxs_status widen(const Round &round, const std::byte *source);
  mxs_status add(const Round &round, float *target);
  float *scratch(uint64_t place) const { return reinterpret_cast<float *>(state_.scratch()) + place; }
  bool widens() const { return dtype_ != MXS_F32; }

  std::vector<Round> rounds_;
};

// Every piece has its place in scratch, on all ranks alike, though only those that widen or add use it.
mxs_status WholeReduce::make() {
  algorithm_ = "nccl reduces";
  bytes_out_ = owned_bytes(false) / element_bytes_ * sizeof(float);
  bytes_in_ = owned_bytes(true) / element_bytes_ * sizeof(float) * static_cast<uint64_t>(rank_count_ - 1);
  const bool bounded = widens() || accumulate_;
  const uint64_t most = bounded ? scratch_bytes_most / sizeof(float) : UINT64_MAX;
  uint64_t filled = 0, filled_most = 0;
  for (const DeviceRun &run : runs_) {
    const uint64_t elements = run.bytes / element_bytes_;
    for (uint64_t done = 0; done < elements;) {
      if (rounds_.empty() || filled == most) {
        rounds_.emplace_back();
        filled = 0;
      }
      const uint64_t count = std::min(elements - done, most - filled);
      rounds_.back().pieces.push_back({run.owner, run.offset + done * element_bytes_,
                                       run.packed / element_bytes_ + done, count, filled});
      rounds_.back().parts.push_back({run.owner, nullptr, nullptr, count, MXS_F32});
      ++message_count_;
      done += count;
      filled += count;
      if (bounded) filled_most = std::max(filled_most, filled);
      else filled = 0;
    }
  }
  return take_scratch(filled_most * sizeof(float));
}

mxs_status WholeReduce::enqueue(const std::byte *source, std::byte *target) {
  auto *const sums = reinterpret_cast<float *>(target);
  for (Round &round : rounds_) {
    mxs_status status = widens() ? widen(round, source) : MXS_OK;
    for (size_t i = 0; i < round.pieces.size(); ++i) {
      const Piece &piece = round.pieces[i];
      GroupPart &part = round.parts[i];
      part.source = widens() ? static_cast<const void *>(scratch(piece.place)) : source + piece.offset;
      part.target = piece.owner != rank_ ? nullptr : accumulate_ ? scratch(piece.place) : sums + piece.packed;
    }
    if (status == MXS_OK) status = group_->reduce(round.parts, stream());
    if (status == MXS_OK && accumulate_) status = add(round, sums);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// Pieces that touch in the buffer touch in scratch as well.
mxs_status WholeReduce::widen(const Round &round, const std::byte *source) {
  for (size_t first = 0; first < round.pieces.size();) {
    const Piece &begin = round.pieces[first];
    uint64_t elements = begin.elements;
    size_t next = first + 1;
    for (; next < round.pieces.size() &&
           round.pieces[next].offset == begin.offset + elements * element_bytes_; ++next)
      elements += round.pieces[next].elements;
    const mxs_status status =
        kernels().widen(scratch(begin.place), source + begin.offset, dtype_, elements, stream());
    if (status != MXS_OK) return status;
    first = next;
  }
  return MXS_OK;
}

mxs_status WholeReduce::add(const Round &round, float *target) {
  for (const Piece &piece : round.pieces) {
    if (piece.owner != rank_) continue;
    const mxs_status status =
        kernels().add(target + piece.packed, scratch(piece.place), MXS_F32, piece.elements, stream());
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// ---- reduce in rank order; also of a single rank ----

// In a round every owner gets the raw gradients of its next elements from all others, and adds.
class OrderedReduce final : public WholeCollective {
 public:
  using WholeCollective::WholeCollective;

  mxs_status make() override;

 private:
  struct Round {
    std::vector<Piece> pieces;  // of all owners
    std::vector<GroupMessage> sends, receives;
  };

  mxs_status enqueue(const std::byte *source, std::byte *target) override;
  mxs_status sum(const Piece &piece, const std::byte *source, float *target);
  void exchange_places(Round *round, const std::byte *source);
  std::byte *place_of(const Piece &piece, int rank) const {
    return state_.scratch() + static_cast<uint64_t>(rank) * slot_bytes_ + piece.place;
  }

  std::vector<Round> rounds_;
  uint64_t slot_bytes_ = 0;  // of one rank's gradients
};

mxs_status OrderedReduce::make() {
  algorithm_ = "nccl sends, summed in rank order";
  const auto peers = static_cast<uint64_t>(rank_count_ - 1);
  bytes_out_ = owned_bytes(false);
  bytes_in_ = owned_bytes(true) * peers;
  const uint64_t largest = std::max(align_down(scratch_bytes_most / static_cast<uint64_t>(rank_count_), line_bytes),
                                    line_bytes);
  // By owner: the round that is being filled, and how far. Places are padded to lines, which is counted.
  std::vector<size_t> round_of(static_cast<size_t>(rank_count_), 0);
  std::vector<uint64_t> filled(static_cast<size_t>(rank_count_), 0);
  const uint64_t most = group_ ? largest : UINT64_MAX;
  for (const DeviceRun &run : runs_) {
    uint64_t &place = filled[static_cast<size_t>(run.owner)];
    size_t &round = round_of[static_cast<size_t>(run.owner)];
    for (uint64_t done = 0; done < run.bytes;) {
      if (place >= most) {
        ++round;
        place = 0;
      }
      const uint64_t bytes = std::min(run.bytes - done, most - place);
      if (rounds_.size() <= round) rounds_.resize(round + 1);
      rounds_[round].pieces.push_back({run.owner, run.offset + done, (run.packed + done) / element_bytes_,
                                       bytes / element_bytes_, place});
      done += bytes;
      if (!group_) continue;
      place = align_up(place + bytes, line_bytes);
      if (run.owner == rank_) slot_bytes_ = std::max(slot_bytes_, place);
    }
  }
  for (Round &round : rounds_) {
    exchange_places(&round, nullptr);
    message_count_ += round.sends.size() + round.receives.size();
  }
  return take_scratch(group_ ? slot_bytes_ * static_cast<uint64_t>(rank_count_) : 0);
}

// Allocates the first time only.
void OrderedReduce::exchange_places(Round *round, const std::byte *source) {
  round->sends.clear();
  round->receives.clear();
  for (const Piece &piece : round->pieces) {
    const uint64_t bytes = piece.elements * element_bytes_;
    if (!group_) continue;
    if (piece.owner != rank_) {
      // NCCL takes what it sends as it is.
      round->sends.push_back({piece.owner, const_cast<std::byte *>(source + (source ? piece.offset : 0)), bytes});
      continue;
    }
    for (int rank = 0; rank < rank_count_; ++rank)
      if (rank != rank_) round->receives.push_back({rank, state_.scratch() ? place_of(piece, rank) : nullptr, bytes});
  }
}

mxs_status OrderedReduce::enqueue(const std::byte *source, std::byte *target) {
  mxs_status status = MXS_OK;
  for (Round &round : rounds_) {
    exchange_places(&round, source);
    if (!round.sends.empty() || !round.receives.empty())
      status = group_->exchange(round.sends, round.receives, stream());
    for (const Piece &piece : round.pieces)
      if (status == MXS_OK && piece.owner == rank_) status = sum(piece, source, reinterpret_cast<float *>(target));
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

mxs_status OrderedReduce::sum(const Piece &piece, const std::byte *source, float *target) {
  float *const sums = target + piece.packed;
  const float *base = accumulate_ ? sums : nullptr;
  const void *terms[DeviceKernels::sources_max];
  for (int first = 0; first < rank_count_; first += DeviceKernels::sources_max) {
    const int count = std::min(DeviceKernels::sources_max, rank_count_ - first);
    for (int i = 0; i < count; ++i)
      terms[i] = first + i == rank_ ? source + piece.offset : place_of(piece, first + i);
    const mxs_status status = kernels().sum_in_order(sums, base, terms, count, dtype_, piece.elements, stream());
    if (status != MXS_OK) return status;
    base = sums;
  }
  return MXS_OK;
}

// ---- reshard ----

class WholeReshard final : public WholeCollective {
 public:
  using WholeCollective::WholeCollective;

  mxs_status make() override {
    algorithm_ = "nccl sends";
    std::vector<LayoutMove> moves;
    const mxs_status status = layout_moves(layout_, target_layout_, &moves);
    for (const LayoutMove &move : moves) {
      if (move.source_rank != rank_ && move.target_rank != rank_) continue;
      moves_.push_back(move);
      if (move.target_rank != rank_) bytes_out_ += move.bytes;
      if (move.source_rank != rank_) bytes_in_ += move.bytes;
      if (move.source_rank != move.target_rank) ++message_count_;
    }
    sends_.reserve(moves_.size());
    receives_.reserve(moves_.size());
    return status;
  }

 private:
  // Moves ascend in the buffer on both sides, so messages of two ranks meet in order.
  mxs_status enqueue(const std::byte *source, std::byte *target) override {
    sends_.clear();
    receives_.clear();
    mxs_status status = MXS_OK;
    for (const LayoutMove &move : moves_) {
      auto *const from = const_cast<std::byte *>(source + move.source_offset);
      if (move.source_rank != rank_) receives_.push_back({move.source_rank, target + move.target_offset, move.bytes});
      else if (move.target_rank != rank_) sends_.push_back({move.target_rank, from, move.bytes});
      else if (status == MXS_OK) status = device_.copy(target + move.target_offset, from, move.bytes, stream());
    }
    if (status != MXS_OK || (sends_.empty() && receives_.empty())) return status;
    return group_->exchange(sends_, receives_, stream());
  }

  std::vector<LayoutMove> moves_;
  std::vector<GroupMessage> sends_, receives_;
};

// ---- agreement ----

// Of the words of a step: as many as the layout has bytes for, in place.
class WholeSum final : public WholeCollective {
 public:
  using WholeCollective::WholeCollective;

  mxs_status make() override {
    algorithm_ = "nccl sum";
    return MXS_OK;
  }

 private:
  mxs_status enqueue(const std::byte *, std::byte *target) override {
    return group_->sum(reinterpret_cast<int64_t *>(target), layout_.bytes / sizeof(int64_t), stream());
  }
};

template <class Made>
mxs_status finish(std::unique_ptr<DeviceOperation> *operation, DeviceState &state,
                  const DeviceCollectiveOptions &options) {
  auto made = std::make_unique<Made>(state, options);
  const mxs_status status = made->make();
  if (status == MXS_OK) *operation = std::move(made);
  return status;
}

}  // namespace

mxs_status make_whole_collective(std::unique_ptr<DeviceOperation> *operation, DeviceState &state,
                                 const DeviceCollectiveOptions &options) {
  if (options.kind == MXS_GATHER) return finish<WholeGather>(operation, state, options);
  if (options.kind == MXS_RESHARD) return finish<WholeReshard>(operation, state, options);
  if (options.kind == MXS_AGREE) return finish<WholeSum>(operation, state, options);
  if (options.rank_order || !state.group()) return finish<OrderedReduce>(operation, state, options);
  return finish<WholeReduce>(operation, state, options);
}

}  // namespace mxs
