// SPDX-License-Identifier: Apache-2.0
// Flat tensors: large, not matrices, cut evenly over all ranks.
#include <algorithm>
#include <map>

#include "base/dtype.hpp"
#include "plan/ledger.hpp"
#include "plan/memory.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

// Tensors of one chunk, such as frozen norms: those of a unit share a rank, else each would begin a page of its own.
int shared_owner(int unit, const Ledger &ledger, std::map<int, int> *owner_of_unit) {
  const auto [entry, is_new] = owner_of_unit->emplace(unit, 0);
  if (is_new)
    for (int rank = 1; rank < ledger.rank_count(); ++rank)
      if (ledger.of(rank).bytes < ledger.of(entry->second).bytes) entry->second = rank;
  return entry->second;
}

}  // namespace

uint64_t flat_chunk_elements(const PlannedTensor &tensor, const PlanSettings &settings) {
  // All powers of two, so that the larger is a multiple of the other. Chunks of the norm, and segment borders.
  return std::max(norm_chunk_elements, settings.alignment / dtype_bytes(tensor.dtype));
}

std::vector<Placement> cut_flat(const PlannedTensor &tensor, uint64_t chunk_elements, int rank_count, int *next_rank) {
  const uint64_t ranks = static_cast<uint64_t>(rank_count), first = static_cast<uint64_t>(*next_rank);
  const uint64_t chunk_count = divide_up(tensor.element_count, chunk_elements);
  const uint64_t least = chunk_count / ranks, longer_count = chunk_count % ranks;
  *next_rank = static_cast<int>((first + std::max<uint64_t>(longer_count, 1)) % ranks);

  std::vector<Placement> shares;
  uint64_t offset = 0;
  for (uint64_t turn = 0; offset < tensor.element_count; ++turn) {
    const uint64_t chunks = least + (turn < longer_count ? 1 : 0);
    const uint64_t elements = std::min(chunks * chunk_elements, tensor.element_count - offset);
    Placement share;
    share.block = static_cast<int>(turn);
    share.owner = static_cast<int>((first + turn) % ranks);
    share.unit = tensor.unit;
    share.shape = {static_cast<int64_t>(elements)};
    share.element_offset = offset;
    share.element_count = elements;
    shares.push_back(share);
    offset += elements;
  }
  return shares;
}

void own_flat(const PlanSettings &settings, std::vector<Draft> *drafts, Ledger *ledger) {
  int next_rank = 0;
  std::map<int, int> owner_of_unit;
  for (Draft &draft : *drafts) {
    const PlannedTensor &tensor = draft.tensor;
    if (tensor.role != MXS_ROLE_FLAT) continue;
    const uint64_t chunk = flat_chunk_elements(tensor, settings);
    if (tensor.element_count > chunk) {
      draft.pieces = cut_flat(tensor, chunk, settings.rank_count, &next_rank);
    } else {
      draft.pieces[0].owner = shared_owner(tensor.unit, *ledger, &owner_of_unit);
    }
    for (const Placement &piece : draft.pieces)
      ledger->add(piece.owner, piece_cost(settings, tensor, piece),
                  owned_bytes(tensor, piece.shape, piece.element_count));
  }
}

}  // namespace mxs
