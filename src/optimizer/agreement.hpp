// SPDX-License-Identifier: Apache-2.0
// What one rank says in the agreement, as it travels.
#pragma once

#include <cstdint>

#include "kernels/kernels.hpp"

namespace mxs {

struct AgreementPart {
  ExactSum squares;
  uint64_t step_number = 0, values_hash = 0;
  int64_t found_inf_rank = -1;
  // A step before left this tensor of that rank out. Tensors: their unit's place in the optimizer << 32 | tensor.
  int64_t broken_rank = -1, broken_tensor = -1;
  int64_t missing_rank = -1, missing_tensor = -1;  // that rank has not given the gradient of this tensor
  uint64_t backup_kept = 0;  // the latest backup of its wards that the rank has
  int64_t backup_is_old = 0;  // what some rank owns has changed since

  void add(const AgreementPart &other) {
    for (int i = 0; i < MXS_NORM_WORDS; ++i) squares.words[i] += other.squares.words[i];
    if (found_inf_rank < 0) found_inf_rank = other.found_inf_rank;  // ranks come in order: the lowest stays
    if (broken_rank < 0) {
      broken_rank = other.broken_rank;
      broken_tensor = other.broken_tensor;
    }
    backup_is_old |= other.backup_is_old;
    if (missing_rank >= 0) return;
    missing_rank = other.missing_rank;
    missing_tensor = other.missing_tensor;
  }
};
static_assert(sizeof(AgreementPart) <= 1024, "one agreement of a comm");

// What a rank tells the same rank of other replicas: how its shard group's agreement went.
struct ReplicaWord {
  AgreementPart total;
  mxs_status status;
  char sentence[500];
};
static_assert(sizeof(ReplicaWord) <= 1024, "one agreement of a comm");

// As mxs_clip_factor.
float clip_factor(double norm, float clip_norm);

// Words that a sum of all parts has: norm, counts, and which ranks found an infinity; or which tensors are missing.
size_t agreement_words();

}  // namespace mxs
