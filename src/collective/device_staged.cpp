// SPDX-License-Identifier: Apache-2.0
// Messages only: the whole buffer is cut by offsets into parts, each of which is a collective of its own over the wire.
//
//   gather    a slot is the part of the whole buffer: own bytes in, others' bytes out
//   reduce    a slot is the part of the gradients, then this rank's sums of it in fp32; accumulators go in and out
//   reshard   a slot is what this rank gives of the part, then what it gets
//
// The host adds, so sums have the bits of a reduce in host memory by the same algorithm, and in rank order its bits.
#include <algorithm>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "collective/device_carried.hpp"

namespace mxs {

namespace {

// Copies of 2 MiB run at nearly the full speed of PCIe, and no more than 64 parts keep their schedules.
constexpr uint64_t part_bytes_least = uint64_t{2} << 20, part_count_most = 64;

uint64_t part_bytes_of(uint64_t bytes) {
  return align_up(std::max(part_bytes_least, (bytes + part_count_most - 1) / part_count_most), 4096);
}

// What lies in [begin, end) of the buffer, at offsets from begin.
Layout part_of(const Layout &layout, uint64_t begin, uint64_t end) {
  Layout part;
  part.rank_count = layout.rank_count;
  for (const Segment &segment : layout.segments) {
    const uint64_t first = std::max(segment.offset, begin), last = std::min(segment.offset + segment.bytes, end);
    if (first < last) part.segments.push_back({segment.owner, first - begin, last - first});
  }
  if (!part.segments.empty()) part.bytes = part.segments.back().offset + part.segments.back().bytes;
  return part;
}

class StagedCollective final : public CarriedCollective {
 public:
  StagedCollective(DeviceState &state, const DeviceCollectiveOptions &options)
      : CarriedCollective(state, options, *state.wire()), rank_(state.comm().rank), runs_(runs_of(layout_)) {
    routes_ = peers_by_transport(wire_);
  }

  mxs_status make() override;

 private:
  struct Copies {
    std::vector<Copy> in;       // from the source, or from the target of a gather in place
    std::vector<Copy> in_packed;  // gather: the same from a packed source
    std::vector<Copy> in_sums;  // accumulators
    std::vector<Copy> out;      // to the target
  };

  mxs_status make_part(uint64_t begin, uint64_t end);
  void plan_gather(const Layout &part, uint64_t begin, Copies *copies);
  void plan_reduce(const Layout &part, uint64_t begin, uint64_t result, Copies *copies);
  void plan_reshard(const Layout &from, const Layout &to, uint64_t result, Copies *copies);

  mxs_status prelude() override;
  mxs_status fetch(size_t part, std::byte *slot) override;
  mxs_status deliver(size_t part, const std::byte *slot) override {
    return copy_out(copies_[part].out, slot, target_);
  }

  const int rank_;
  const std::vector<DeviceRun> runs_;
  std::vector<Copies> copies_;
  uint64_t packed_ = 0, target_packed_ = 0;  // of this rank, before the part that is being made
};

mxs_status StagedCollective::make() {
  const uint64_t part_bytes = part_bytes_of(layout_.bytes);
  for (uint64_t begin = 0; begin < layout_.bytes; begin += part_bytes) {
    const mxs_status status = make_part(begin, std::min(begin + part_bytes, layout_.bytes));
    if (status != MXS_OK) return status;
  }
  return take_slots();
}

mxs_status StagedCollective::make_part(uint64_t begin, uint64_t end) {
  const Layout part = part_of(layout_, begin, end);
  if (part.segments.empty()) return MXS_OK;
  const Layout target = kind_ == MXS_RESHARD ? part_of(target_layout_, begin, end) : Layout{};
  const uint64_t given = kind_ == MXS_RESHARD ? part.owned_bytes(rank_) : part.bytes;
  const uint64_t owned = part.owned_bytes(rank_);
  const uint64_t result = kind_ == MXS_GATHER ? 0 : align_up(given, 256);
  const uint64_t slot_bytes = kind_ == MXS_GATHER    ? part.bytes
                              : kind_ == MXS_REDUCE ? result + owned / element_bytes_ * sizeof(float)
                                                    : result + target.owned_bytes(rank_);
  MessageOptions options;
  options.kind = kind_;
  options.layout = &part;
  options.target_layout = kind_ == MXS_RESHARD ? &target : nullptr;
  options.dtype = dtype_;
  options.rank_order = rank_order_;
  options.accumulate = accumulate_;
  const mxs_status status = add_part(options, slot_bytes, result, "staged");
  if (status != MXS_OK) return status;
  Copies copies;
  if (kind_ == MXS_GATHER) plan_gather(part, begin, &copies);
  else if (kind_ == MXS_REDUCE) plan_reduce(part, begin, result, &copies);
  else plan_reshard(part, target, result, &copies);
  copies_.push_back(std::move(copies));
  packed_ += owned;
  target_packed_ += target.owned_bytes(rank_);
  return MXS_OK;
}

// What lies in gaps is nobody's, and stays.
void StagedCollective::plan_gather(const Layout &part, uint64_t begin, Copies *copies) {
  for (const DeviceRun &run : runs_of(part)) {
    if (run.owner == rank_) {
      copies->in.push_back({begin + run.offset, run.offset, run.bytes});
      copies->in_packed.push_back({packed_ + run.packed, run.offset, run.bytes});
    } else if (!copies->out.empty() && copies->out.back().slot + copies->out.back().bytes == run.offset) {
      copies->out.back().bytes += run.bytes;
    } else {
      copies->out.push_back({begin + run.offset, run.offset, run.bytes});
    }
  }
}

void StagedCollective::plan_reduce(const Layout &part, uint64_t begin, uint64_t result, Copies *copies) {
  copies->in.push_back({begin + part.segments[0].offset, part.segments[0].offset,
                        part.bytes - part.segments[0].offset});
  const uint64_t sums = part.owned_bytes(rank_) / element_bytes_ * sizeof(float);
  if (sums == 0) return;
  const Copy own = {packed_ / element_bytes_ * sizeof(float), result, sums};
  copies->out.push_back(own);
  if (accumulate_) copies->in_sums.push_back(own);
}

void StagedCollective::plan_reshard(const Layout &from, const Layout &to, uint64_t result, Copies *copies) {
  if (const uint64_t bytes = from.owned_bytes(rank_)) copies->in.push_back({packed_, 0, bytes});
  if (const uint64_t bytes = to.owned_bytes(rank_)) copies->out.push_back({target_packed_, result, bytes});
}

// A gather's own bytes go to their place on the device itself.
mxs_status StagedCollective::prelude() {
  if (kind_ != MXS_GATHER || !source_) return MXS_OK;
  for (const DeviceRun &run : runs_) {
    if (run.owner != rank_) continue;
    const mxs_status status =
        state_.device().copy(target_ + run.offset, source_ + run.packed, run.bytes, state_.stream());
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

mxs_status StagedCollective::fetch(size_t part, std::byte *slot) {
  const Copies &copies = copies_[part];
  const bool in_place = kind_ == MXS_GATHER && !source_;
  mxs_status status = in_place                ? copy_in(copies.in, slot, target_)
                      : kind_ == MXS_GATHER ? copy_in(copies.in_packed, slot, source_)
                                            : copy_in(copies.in, slot, source_);
  if (status == MXS_OK) status = copy_in(copies.in_sums, slot, target_);
  return status;
}

}  // namespace

mxs_status make_staged_collective(std::unique_ptr<DeviceOperation> *operation, DeviceState &state,
                                  const DeviceCollectiveOptions &options) {
  auto made = std::make_unique<StagedCollective>(state, options);
  const mxs_status status = made->make();
  if (status == MXS_OK) *operation = std::move(made);
  return status;
}

}  // namespace mxs
