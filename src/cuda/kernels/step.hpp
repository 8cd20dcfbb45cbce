// SPDX-License-Identifier: Apache-2.0
// What single lanes do in the launches that agree on a step (device/step_arguments.hpp). Sums are those of the host's
// agreement, bit for bit.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/both.hpp"
#include "device/step_arguments.hpp"
#include "kernels/elements.hpp"
#include "kernels/exact_words.hpp"

namespace mxs {

MXS_BOTH inline StepRankWords *rank_words(const StepControl &control) {
  return reinterpret_cast<StepRankWords *>(control.words + 1);
}

// What a rank's words begin with here: zeros but for this rank's own.
MXS_BOTH inline StepRankWords first_words(const StepControl &control, int32_t rank) {
  StepRankWords words;
  if (rank != control.rank) return words;
  const DeviceStepState &state = control.report->state;
  words.steps = static_cast<int64_t>(state.steps_done);
  words.hash = static_cast<int64_t>(control.values->hash);
  words.failed_tensor = state.failed ? state.failed_piece + 2 : control.values->failed_tensor;
  words.missing_tensor = control.values->missing_tensor;
  return words;
}

// ---- squares ----

struct SquaresChunk {
  const float *first;
  uint64_t elements;
};

// The piece is the last that begins at the chunk or before it.
MXS_BOTH inline SquaresChunk squares_chunk(const StepSquaresArguments &a, uint64_t chunk) {
  uint64_t low = 0, high = a.piece_count;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (a.pieces[middle].first_chunk <= chunk) low = middle;
    else high = middle;
  }
  const StepSquaresPiece &piece = a.pieces[low];
  const uint64_t first = (chunk - piece.first_chunk) * norm_chunk, rest = piece.elements - first;
  return {piece.gradient + first, rest < norm_chunk ? rest : norm_chunk};
}

// Of every 32nd element, from `lane` on.
MXS_BOTH inline double lane_squares(const SquaresChunk &chunk, float scale, uint32_t lane, bool *not_finite) {
  double sum = 0.0;
  for (uint64_t i = lane; i < chunk.elements; i += norm_lanes) {
    const float scaled = chunk.first[i] * scale;
    if (!std::isfinite(scaled)) *not_finite = true;
    sum += element::squared(scaled);
  }
  return sum;
}

// ---- the verdict ----

MXS_BOTH inline float step_clip_factor(double norm, float clip_norm) {
  if (!(clip_norm > 0)) return 1.0f;
  const double factor = static_cast<double>(clip_norm) / (norm + 1e-6);
  return static_cast<float>(factor < 1.0 ? factor : 1.0);
}

MXS_BOTH inline void refuse_step(DeviceVerdict *verdict, StepRefusal why, int32_t rank, int64_t tensor) {
  verdict->refusal = verdict->refused = why;
  verdict->refused_rank = rank;
  verdict->refused_tensor = tensor;
  ++verdict->refused_count;
}

// In the order of the host's exchange: what ranks differ in first, lower ranks first.
MXS_BOTH inline void look_for_refusal(const StepControl &control, DeviceVerdict *verdict) {
  const StepRankWords *const ranks = rank_words(control);
  verdict->refusal = StepRefusal::none;
  for (int32_t rank = 1; rank < control.rank_count; ++rank) {
    if (ranks[rank].steps != ranks[0].steps) {
      verdict->refused_steps = static_cast<uint64_t>(ranks[rank].steps);
      verdict->first_steps = static_cast<uint64_t>(ranks[0].steps);
      return refuse_step(verdict, StepRefusal::steps, rank, -1);
    }
    if (ranks[rank].hash != ranks[0].hash) return refuse_step(verdict, StepRefusal::values, rank, -1);
  }
  for (int32_t rank = 0; rank < control.rank_count; ++rank)
    if (ranks[rank].failed_tensor)
      return refuse_step(verdict, StepRefusal::failed, rank, ranks[rank].failed_tensor - 2);
  for (int32_t rank = 0; rank < control.rank_count; ++rank)
    if (ranks[rank].missing_tensor)
      return refuse_step(verdict, StepRefusal::missing, rank, ranks[rank].missing_tensor - 1);
}

// One thread. Beyond 2^63 squares of gradients that are finite need not be.
MXS_BOTH inline void step_conclude(const StepConcludeArguments &a) {
  const StepControl &control = a.control;
  DeviceStepState *const state = &control.report->state;
  DeviceVerdict *const verdict = &control.report->verdict;
  look_for_refusal(control, verdict);
  verdict->found_inf_rank = -1;
  for (int32_t rank = control.rank_count - 1; rank >= 0; --rank)
    if (rank_words(control)[rank].found_inf) verdict->found_inf_rank = rank;
  const double norm = std::sqrt(exact_value(control.words->squares));
  const bool unfit = verdict->found_inf_rank >= 0 || norm > 0x1p63;
  verdict->skipped = unfit || verdict->refusal != StepRefusal::none;
  verdict->norm = unfit ? HUGE_VAL : norm;
  verdict->clip_factor = unfit ? 1.0f : step_clip_factor(norm, control.values->clip_norm);
  state->skip = verdict->skipped;
  state->step_number = state->steps_done + (verdict->skipped ? 0 : 1);
  state->gradient_scale = control.values->gradient_scale * verdict->clip_factor;
  if (a.commits) state->steps_done = state->step_number;
  verdict->step_number = state->step_number;
  ++verdict->concluded;
}

}  // namespace mxs
