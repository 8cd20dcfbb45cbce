// SPDX-License-Identifier: Apache-2.0
// Where are a rank's rows, and how do they become a unit?
#include "slices.hpp"

#include <algorithm>
#include <cstring>

namespace train {

Slices::Slices(const Model &model, mxs_comm *comm, const PlacementOptions &options)
    : model_(model), comm_(comm), rank_(rank_of(comm)), ranks_(rank_count_of(comm)), wire_(model.shape.dtype),
      ledger_(comm), stepper_(model, comm, options), cuts_(model.tensors.size()),
      units_(static_cast<size_t>(model.unit_count)) {
  cut_tensors();
  stepper_.prepare(pieces_);
}

// FSDP cuts the leading dimension; a gain is a column of single elements.
void Slices::cut_tensors() {
  for (int u = 0; u < model_.unit_count; ++u) {
    uint64_t offset = 0;
    for (int t : model_.unit_tensors(u)) {
      const Tensor &tensor = model_.tensors[t];
      const int64_t rows = tensor.dimensions[0], columns = tensor.dimensions.size() < 2 ? 1 : tensor.columns();
      Piece piece;
      piece.tensor = t;
      piece.rows = (rows + ranks_ - 1) / ranks_;
      piece.columns = columns;
      piece.slice = tensor.is_matrix();
      piece.element_offset = piece.count() * static_cast<uint64_t>(rank_);
      cuts_[t] = {columns, piece.count(), piece.count() * static_cast<uint64_t>(ranks_), offset};
      offset += cuts_[t].whole;
      units_[u].part += piece.count();
      pieces_.push_back(piece);
    }
  }
}

std::vector<LayoutOwner> Slices::unit_layouts(uint64_t element_bytes) const {
  std::vector<LayoutOwner> layouts;
  for (int u = 0; u < model_.unit_count; ++u) {
    std::vector<Extent> extents;
    for (int t : model_.unit_tensors(u))
      for (int rank = 0; rank < ranks_; ++rank) extents.push_back({rank, cuts_[t].part * element_bytes});
    layouts.push_back(make_layout(extents, ranks_));
  }
  return layouts;
}

uint64_t Slices::sum_count() const {
  uint64_t total = 0;
  for (const Unit &unit : units_) total += (unit.part + 15) / 16 * 16;
  return total;
}

void Slices::predict_common(mxs_memory *memory) const {
  const uint64_t weight_bytes = mxs_dtype_bytes(model_.shape.dtype);
  const uint64_t gradient_bytes = mxs_dtype_bytes(model_.shape.gradient_dtype);
  const uint64_t weights = element_count(pieces_) * weight_bytes;
  const uint64_t sums = sum_count() * sizeof(float);
  const uint64_t slots = weight_slot_count * slot_bytes(unit_layouts(weight_bytes));
  const uint64_t gradient_slots =
      static_cast<uint64_t>(gradient_slot_count(model_)) * slot_bytes(unit_layouts(gradient_bytes));
  add_bytes(memory, Use::weights, weights);
  add_bytes(memory, Use::gradients, sums);
  add_bytes(memory, Use::slots, slots);
  add_bytes(memory, Use::gradient_slots, gradient_slots);
  memory->slack += page_slack(weights) + page_slack(sums) + page_slack(slots) + page_slack(gradient_slots);
  stepper_.predict_furniture(pieces_, memory);
  add_bytes(memory, Use::workspace, stepper_.workspace_bytes());
  memory->slack += page_slack(stepper_.workspace_bytes());
}

void Slices::take_common(const PlacementOptions &options) {
  const uint64_t weight_bytes = mxs_dtype_bytes(model_.shape.dtype);
  auto *weights = static_cast<char *>(
      ledger_.take(Use::weights, element_count(pieces_) * weight_bytes));
  const uint64_t sum_bytes = sum_count() * sizeof(float);
  auto *sums = static_cast<float *>(ledger_.take_shared(Use::gradients, sum_bytes, sum_bytes));
  auto piece = pieces_.begin();
  for (int u = 0; u < model_.unit_count; ++u) {
    units_[u].weights = weights;
    units_[u].sums = sums;
    float *sum = sums;
    for (size_t t = 0; t < model_.unit_tensors(u).size(); ++t, ++piece) {
      piece->weights = weights;
      piece->gradient = sum;
      weights += piece->count() * weight_bytes;
      sum += piece->count();
    }
    sums += (units_[u].part + 15) / 16 * 16;
  }
  gradient_slots_ = std::make_unique<GradientSlots>(
      model_, comm_, &ledger_, unit_layouts(mxs_dtype_bytes(model_.shape.gradient_dtype)), options.rank_order);
  weight_slots_ = std::make_unique<WeightSlots>(comm_, &ledger_, unit_layouts(weight_bytes));
  stepper_.furnish(options.seed, &ledger_, &pieces_);
  workspace_ = ledger_.take(Use::workspace, stepper_.workspace_bytes());
}

const void *Slices::weights(int tensor) {
  return weight_slots_->whole(model_.tensors[tensor].unit) +
         cuts_[tensor].unit_offset * mxs_dtype_bytes(model_.shape.dtype);
}

void *Slices::gradient(int tensor, bool) {
  const uint64_t element_bytes = mxs_dtype_bytes(model_.shape.gradient_dtype);
  const Cut &cut = cuts_[tensor];
  char *gradient = gradient_slots_->open(model_.tensors[tensor].unit) + cut.unit_offset * element_bytes;
  // The slot held another unit before: its padding is not zero by itself.
  const uint64_t count = model_.tensors[tensor].count();
  std::memset(gradient + count * element_bytes, 0, (cut.whole - count) * element_bytes);
  return gradient;
}

mxs_verdict Slices::step(const mxs_step &step) {
  const mxs_verdict verdict = stepper_.agree(pieces_, step);
  if (!verdict.skipped) {
    stepper_.step_whole(pieces_, step, workspace_);
    step_matrices(step);
  }
  for (const Piece &piece : pieces_) std::fill_n(piece.gradient, piece.count(), 0.0f);
  return verdict;
}

std::vector<const Piece *> Slices::muon_pieces() const {
  std::vector<const Piece *> found;
  for (const Piece &piece : pieces_)
    if (piece.slice) found.push_back(&piece);
  return found;
}

uint64_t Slices::largest_part() const {
  uint64_t largest = 0;
  for (const Piece *piece : muon_pieces()) largest = std::max(largest, piece->count());
  return largest;
}

uint64_t Slices::largest_whole() const {
  uint64_t largest = 0;
  for (const Piece *piece : muon_pieces()) largest = std::max(largest, cuts_[piece->tensor].whole);
  return largest;
}

}  // namespace train
