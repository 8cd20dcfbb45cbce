// SPDX-License-Identifier: Apache-2.0
// What element passes of optimizers are told: see passes.hpp. Plain structs, which kernels on the device take as well.
#pragma once

#include <cstddef>
#include <cstdint>

#include "matrixshard/kernels.h"

namespace mxs {

// Sums of squares are formed in chunks of so many elements, each in so many lanes: four chains of eight fp64 numbers
// keep a wide adder busy.
constexpr size_t norm_chunk = 4096;
constexpr size_t norm_lanes = 32;

// ---- weights -------------------------------------------------------------------------------------------------------

enum class WeightKind : int32_t {
  f32,              // alone
  f32_copied,       // fp32 master, and weights that equal it
  bf16_master,      // fp32 master, and weights rounded to nearest even
  f16_master,
  bf16_remainder,   // upper and lower 16 bits of the fp32 master
  bf16_nearest,     // alone, rounded to nearest even
  f16_nearest,
  bf16_stochastic,  // alone, rounded stochastically
};

// Random bits of one tensor at one step. They come from Philox4x32-10 in two stages, so that seed, tensor, step and
// element have 64 bits each and no two of them share a block. Words are 32 bits, the lower half of a number first:
//
//   (a, b, c, d) = philox(key seed, counter (tensor_id, step_number))
//   block n      = philox(key (a, b), counter (n, c, d))
//
// A block is four words, 16 bits of it for each of eight elements. Element e of the tensor has block
// e / 128 * 16 + e % 16, word e / 16 % 4, and of that the lower half if e / 64 % 2 is 0: so a vector of 16 elements
// takes the same half of the same word of 16 neighbouring blocks.
struct RandomBits {
  uint32_t key[2] = {}, counter[2] = {};
};

struct WeightForm {
  WeightKind kind = WeightKind::f32;
  RandomBits random;  // of bf16_stochastic
};

struct WeightRun {
  void *weights = nullptr;
  void *master = nullptr;      // float, or uint16_t of bf16_remainder; not looked at where the form has none
  uint64_t first_element = 0;  // of the run within its tensor, for random bits
};

// ---- momentum ------------------------------------------------------------------------------------------------------

// start + weight * (end - start), on the side that torch takes: exact at weight 0 and 1.
struct Lerp {
  float weight = 0;  // from the nearer end
  bool from_end = false;
};

// g = gradient * gradient_scale + l2 * weight
// ema: m = lerp(m, g, 1 - momentum), update = nesterov ? lerp(g, m, momentum) : m
// sgd: m = momentum * m + g,         update = nesterov ? momentum * m + g : m
struct MomentumPass {
  mxs_dtype gradient_dtype = MXS_F32;
  float gradient_scale = 1;
  float l2 = 0;     // weight decay that becomes part of the gradient. 0: weights are not looked at
  WeightForm form;  // of those
  bool sgd = false, nesterov = false;
  Lerp momentum_lerp, nesterov_lerp;  // ema
  float momentum = 0;                 // sgd
  bool streams = false;               // the update is written past the cache
};

struct MomentumRun {
  const void *gradient = nullptr;  // at a border of its dtype
  float *momentum = nullptr;
  float *update = nullptr;  // may be the gradient, or the momentum if not nesterov
  WeightRun weights;        // read, if l2 is not 0
  size_t count = 0;
};

// ---- apply ---------------------------------------------------------------------------------------------------------

// u = update * row_factor; w = w * decay + u * update_factor, in fp32, then rounded to the form.
// cautious: decay only where u * w >= 0. decay_last: (w + u * update_factor) * decay.
struct ApplyPass {
  WeightForm form;
  float decay = 1;
  float update_factor = 0;
  bool cautious = false, decay_last = false;
};

struct ApplyRun {
  WeightRun weights;
  const float *update = nullptr;
  float row_factor = 1;  // NorMuon's
  size_t count = 0;
};

// ---- AdamW and its direction ---------------------------------------------------------------------------------------

// g = gradient * gradient_scale + l2 * weight;  m = lerp(m, g, 1 - beta1);  v = v * beta2 + g * (1 - beta2) * g
// update = m * direction_factor / (sqrt(v) / correction2_root + epsilon)
// With epsilon after bias correction (torch) direction_factor is 1 / (1 - beta1^t) and correction2_root
// sqrt(1 - beta2^t); with epsilon before (Moonlight, SOAP) sqrt(1 - beta2^t) / (1 - beta1^t) and 1.
struct AdamwPass {
  mxs_dtype gradient_dtype = MXS_F32;
  float gradient_scale = 1;
  float l2 = 0;
  Lerp first_lerp;
  float beta2 = 0, second_weight = 0, correction2_root = 1, epsilon = 0, direction_factor = 1;
  ApplyPass apply;       // adamw; direction takes its form, if l2 is not 0
};

struct AdamwRun {
  const void *gradient = nullptr;
  float *exp_avg = nullptr, *exp_avg_sq = nullptr;
  WeightRun weights;  // direction: read, if l2 is not 0
  size_t count = 0;
  // direction only:
  float *update = nullptr;         // may be the gradient or `filtered`
  const float *filtered = nullptr;  // instead of m, which then is neither read nor written (Shampoo's grafting)
};

}  // namespace mxs
