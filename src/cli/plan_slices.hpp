// SPDX-License-Identifier: Apache-2.0
// How FSDP2 cuts a tensor: rows, the last ranks' padded. What `mxs plan --compare` counts and times by.
#pragma once

#include <vector>

#include "cli/plan_figures.hpp"

namespace mxs_cli {

inline bool needs_matrices(mxs_rule rule) {
  return rule == MXS_RULE_MUON || rule == MXS_RULE_SHAMPOO || rule == MXS_RULE_SOAP;
}

// Two dimensions under a matrix rule: rows of it are no matrix, so a step must bring it together. Slices of a stack are
// whole matrices.
inline bool is_torn(const TensorFigures &tensor) {
  return !tensor.is_tied() && needs_matrices(tensor.info.rule) && tensor.given->dimension_count == 2;
}

inline int64_t part_of(int64_t rows, int32_t rank_count) { return rows / rank_count + (rows % rank_count != 0); }

// Elements of all ranks' parts, padding included.
inline uint64_t padded_count(const TensorFigures &tensor, int32_t rank_count) {
  if (tensor.given->dimension_count == 0 || tensor.given->shape[0] == 0) return tensor.element_count;
  const uint64_t rows = static_cast<uint64_t>(tensor.given->shape[0]);
  const uint64_t padded = static_cast<uint64_t>(part_of(tensor.given->shape[0], rank_count)) *
                          static_cast<uint64_t>(rank_count);
  return saturating_product(tensor.element_count / rows, padded);
}

// In dtype, as it goes over the wire.
inline uint64_t padded_bytes(const TensorFigures &tensor, int32_t rank_count) {
  return saturating_product(mxs_dtype_bytes(tensor.dtype), padded_count(tensor, rank_count));
}

// Bytes of torn matrices by the rank that steps them. Blocks of one tensor may have several owners: as if they had
// alike.
inline std::vector<uint64_t> torn_bytes_by_owner(const PlanFigures &figures) {
  std::vector<uint64_t> bytes(static_cast<size_t>(figures.rank_count));
  for (const TensorFigures &tensor : figures.tensors) {
    if (!is_torn(tensor)) continue;
    for (const int32_t owner : tensor.owners)
      bytes[static_cast<size_t>(owner)] += padded_bytes(tensor, figures.rank_count) / tensor.owners.size();
  }
  return bytes;
}

}  // namespace mxs_cli
