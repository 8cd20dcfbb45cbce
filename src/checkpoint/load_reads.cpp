// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load_reads.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <tuple>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/filing.hpp"

namespace mxs {

namespace {

class ReadLister {
 public:
  ReadLister(const OpenedCheckpoint &opened, const LoadMatch &match, int flags, LoadReads *reads)
      : opened_(opened), match_(match), flags_(flags), reads_(*reads) {}

  void add_weights(const Unit &unit) {
    for (const OwnedPlacement &owned : unit.owned()) {
      const TensorMatch &match = match_of(owned);
      const Placement &placement = unit.plan().placements[owned.placement];
      PieceRead weights, master;
      weights.array = match.weights, weights.target = owned.weights, weights.target_dtype = owned.dtype;
      master.array = match.master, master.target = owned.master, master.target_dtype = owned.master_dtype;
      if (owned.master && match.master == no_array)
        weights.copy = owned.master, weights.copy_dtype = owned.master_dtype;
      if (owned.master && match.weights == no_array)
        master.copy = owned.weights, master.copy_dtype = owned.dtype;
      for (PieceRead read : {weights, master}) {
        read.first = placement.element_offset, read.count = placement.element_count;
        if (read.array != no_array) reads_.pieces.push_back(read);
      }
    }
  }

  mxs_status add_state(const OptimizedPiece &piece) {
    const TensorMatch &match = match_of(*piece.owned);
    if (!match.has_state) return MXS_OK;
    if (match.new_state) {
      reads_.new_states.push_back(&piece);
      return MXS_OK;
    }
    const std::vector<StatePart> &parts = piece.stepper->state_parts();
    std::vector<size_t> arrays;
    const mxs_status status =
        match_matrix_parts(opened_, piece.unit->plan(), match, piece.owned->placement, parts, &arrays);
    if (status != MXS_OK) {
      if (!(flags_ & MXS_LOAD_OTHER_OPTIMIZER)) return status;
      reads_.new_states.push_back(&piece);
      reads_.new_state_tensors.push_back(match.tensor);
      return MXS_OK;
    }
    return add_parts(piece, match, parts, arrays);
  }

  void sort() {
    const auto place = [&](const PieceRead &read) {
      const ManifestArray &array = opened_.manifest.arrays[read.array];
      return std::tuple(array.file, array.offset, read.first);
    };
    std::sort(reads_.pieces.begin(), reads_.pieces.end(),
              [&](const PieceRead &a, const PieceRead &b) { return place(a) < place(b); });
  }

 private:
  const TensorMatch &match_of(const OwnedPlacement &owned) const {
    return match_.tensors[match_.of_tensor[static_cast<size_t>(owned.tensor)]];
  }

  mxs_status add_parts(const OptimizedPiece &piece, const TensorMatch &match, const std::vector<StatePart> &parts,
                       const std::vector<size_t> &matrix_arrays) {
    const Plan &plan = piece.unit->plan();
    const Placement &placement = plan.placements[piece.owned->placement];
    const uint64_t tensor_elements = plan.tensors[static_cast<size_t>(match.tensor)].element_count;
    bool all = true;
    size_t shared = 0;  // among those by element and by row
    for (size_t i = 0; i < parts.size(); ++i) {
      PieceRead read;
      read.target = piece.state + parts[i].offset, read.target_dtype = parts[i].dtype;
      read.count = parts[i].bytes / dtype_bytes(parts[i].dtype);
      if (parts[i].scope == StateScope::matrix) {
        read.array = matrix_arrays[i];
      } else {
        read.array = match.parts[shared++];
        if (read.array == no_array) {
          all = false;
          continue;
        }
        const uint64_t numbers = numbers_of(opened_.manifest.arrays[read.array]);
        read.first = numbers_of_elements(numbers, placement.element_offset, tensor_elements);
        if (read.count != numbers_of_elements(numbers, placement.element_count, tensor_elements))
          return set_error(MXS_INTERNAL, "state %s of tensor \"%.200s\" has %llu numbers here, another share of the "
                           "tensor than its elements", parts[i].name.c_str(), match.saved_name.c_str(),
                           static_cast<unsigned long long>(read.count));
      }
      if (read.count > 0) reads_.pieces.push_back(read);
    }
    if (!all) reads_.new_states.push_back(&piece);
    return MXS_OK;
  }

  const OpenedCheckpoint &opened_;
  const LoadMatch &match_;
  const int flags_;
  LoadReads &reads_;
};

// Puts the bytes of one range into its pieces, which lie behind each other. They come cut anywhere.
class PieceSink {
 public:
  PieceSink(const PieceRead *first, const PieceRead *end, mxs_dtype dtype, uint32_t number_bytes, DeviceBytes *device)
      : next_(first), end_(end), dtype_(dtype), number_bytes_(number_bytes), device_(device) {}

  mxs_status take(const std::byte *data, uint64_t bytes) {
    while (bytes > 0 && status_ == MXS_OK) {
      if (carried_ > 0 || bytes < number_bytes_) {
        const uint64_t taken = std::min<uint64_t>(bytes, number_bytes_ - carried_);
        std::memcpy(carry_ + carried_, data, taken);
        data += taken, bytes -= taken, carried_ += taken;
        if (carried_ < number_bytes_) return MXS_OK;
        carried_ = 0;
        put(carry_, 1);
      } else {
        const uint64_t taken = put(data, bytes / number_bytes_) * number_bytes_;
        data += taken, bytes -= taken;
      }
    }
    return status_;
  }

 private:
  // So many of `numbers` as the piece still wants, at least one.
  uint64_t put(const std::byte *data, uint64_t numbers) {
    assert(next_ != end_);
    uint64_t count = std::min(numbers, next_->count - done_);
    if (device_) count = std::min(count, DeviceBytes::room_bytes / 2 / sizeof(double));
    std::byte *const target = static_cast<std::byte *>(next_->target) + done_ * dtype_bytes(next_->target_dtype);
    std::byte *const copy = static_cast<std::byte *>(next_->copy) + done_ * dtype_bytes(next_->copy_dtype);
    std::byte *const converted = device_ ? device_->room() : target;
    convert(converted, next_->target_dtype, data, dtype_, count);
    if (device_) status_ = device_->write(target, count * dtype_bytes(next_->target_dtype));
    if (next_->copy && status_ == MXS_OK) put_copy(copy, converted, count);
    done_ += count;
    if (done_ == next_->count) ++next_, done_ = 0;
    return count;
  }

  void put_copy(std::byte *copy, const std::byte *converted, uint64_t count) {
    if (!device_) return convert(copy, next_->copy_dtype, converted, next_->target_dtype, count);
    // Its own half of the room: `converted` is in the other.
    std::byte *const again = device_->room() + DeviceBytes::room_bytes / 2;
    convert(again, next_->copy_dtype, converted, next_->target_dtype, count);
    status_ = device_->write(copy, count * dtype_bytes(next_->copy_dtype), DeviceBytes::room_bytes / 2);
  }

  const PieceRead *next_, *end_;
  const mxs_dtype dtype_;
  const uint32_t number_bytes_;
  DeviceBytes *const device_;  // nullptr: targets are in host memory
  mxs_status status_ = MXS_OK;
  uint64_t done_ = 0, carried_ = 0;
  std::byte carry_[8] = {};
};

}  // namespace

mxs_status list_reads(const OpenedCheckpoint &opened, const LoadMatch &match, const std::vector<Unit *> &units,
                      const Optimizer *optimizer, int flags, LoadReads *reads) {
  ReadLister lister(opened, match, flags, reads);
  for (const Unit *unit : units) lister.add_weights(*unit);
  if (optimizer)
    for (const OptimizedPiece &piece : optimizer->pieces()) {
      if (!piece.stepper) continue;
      const mxs_status status = lister.add_state(piece);
      if (status != MXS_OK) return status;
    }
  lister.sort();
  return MXS_OK;
}

std::vector<ReadRange> ranges_of(const OpenedCheckpoint &opened, const std::vector<PieceRead> &pieces,
                                 DeviceBytes *device) {
  std::vector<ReadRange> ranges;
  const PieceRead *const all_end = pieces.data() + pieces.size();
  for (const PieceRead *first = pieces.data(); first != all_end;) {
    uint64_t count = first->count;
    const PieceRead *end = first + 1;
    for (; end != all_end && end->array == first->array && end->first == first->first + count; ++end)
      count += end->count;
    const ManifestArray &array = opened.manifest.arrays[first->array];
    ReadRange range;
    range.file = &opened.manifest.files[array.file];
    range.array = &array;
    range.offset = first->first * array.number_bytes;
    range.bytes = count * array.number_bytes;
    auto sink = std::make_shared<PieceSink>(first, end, array.dtype, array.number_bytes, device);
    range.sink = [sink](const std::byte *data, uint64_t bytes) { return sink->take(data, bytes); };
    ranges.push_back(std::move(range));
    first = end;
  }
  return ranges;
}

}  // namespace mxs
