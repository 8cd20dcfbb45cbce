// SPDX-License-Identifier: Apache-2.0
// A rank's packed bytes: the head, values of all its pieces, state of all its pieces.
#include "optimizer/backup.hpp"
#include "plan/memory.hpp"

namespace mxs {

mxs_status PackedRanks::describe(const std::vector<Unit *> &units, int rank_count, const StateOf &state_of) {
  ranks_.assign(static_cast<size_t>(rank_count), PackedRank());
  for (PackedRank &rank : ranks_) rank.bytes = backup_head_bytes;
  for (size_t at = 0; at < units.size(); ++at) {
    const Plan &plan = units[at]->plan();
    for (const uint64_t number : plan.units[static_cast<size_t>(units[at]->index())].placements) {
      const Placement &placement = plan.placements[number];
      const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(placement.tensor)];
      if (placement.element_count == 0) continue;
      std::shared_ptr<const StateShape> shape;
      const mxs_status status = state_of(*units[at], number, &shape);
      if (status != MXS_OK) return status;
      PackedRank &rank = ranks_[static_cast<size_t>(placement.owner)];
      PackedPiece piece;
      piece.unit = at;
      piece.placement = number;
      piece.tensor = placement.tensor;
      piece.values_offset = rank.bytes;
      const uint64_t masters = master_bytes(tensor, placement.element_count);
      piece.values_bytes = masters ? masters : weight_bytes(tensor, placement.element_count);
      piece.state = shape.get();
      rank.bytes += backup_values_bytes(tensor, placement.element_count);
      rank.pieces.push_back(piece);
      if (shape && (shapes_.empty() || shapes_.back() != shape)) shapes_.push_back(std::move(shape));
    }
  }
  for (PackedRank &rank : ranks_) {
    for (PackedPiece &piece : rank.pieces) {
      piece.state_offset = rank.bytes;
      if (piece.state) rank.bytes += piece.state->bytes;
    }
    if (rank.pieces.empty()) rank.bytes = 0;
  }
  return MXS_OK;
}

}  // namespace mxs
