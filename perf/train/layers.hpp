// SPDX-License-Identifier: Apache-2.0
// Layers: what a GPT does between its matrix products, forward and backward.
//
// Everything is computed in fp32; operands of products are stored in `dtype`. Sums run in a fixed order (16 lanes,
// then the lanes), so that results depend on the values alone. Row-major; `rows` are tokens.
#pragma once

#include <cstdint>

#include "matrixshard/types.h"

namespace train {

// fp32 to dtype, to the nearest even; and back.
void narrow(mxs_dtype dtype, const float *source, uint64_t count, void *target);
void widen(mxs_dtype dtype, const void *source, uint64_t count, float *target);

// x[row] = token[inputs[row]] + position[row mod context]
void embed(mxs_dtype dtype, const uint8_t *inputs, int64_t rows, int64_t context, int64_t width, const void *token,
           const void *position, float *x);
// Both gradients are overwritten, in fp32.
void embed_backward(const uint8_t *inputs, int64_t rows, int64_t context, int64_t width, const float *x_gradient,
                    float *token_gradient, float *position_gradient);

// target = x / sqrt(mean(x^2) + 1e-5) * gain. `inverse` receives the factor of each row.
void rms_norm(mxs_dtype dtype, const float *x, const void *gain, int64_t rows, int64_t width, void *target,
              float *inverse);
// x_gradient is added to; gain_gradient is overwritten.
void rms_norm_backward(mxs_dtype dtype, const float *target_gradient, const float *x, const void *gain,
                       const float *inverse, int64_t rows, int64_t width, float *x_gradient, float *gain_gradient);

// How rows of tokens become one small matrix per head: (sequence, head, token, head width).
struct Heads {
  int64_t sequences, context, heads, head_width;
  int64_t width() const { return heads * head_width; }
  int64_t rows() const { return sequences * context; }
  int64_t matrices() const { return sequences * heads; }
};
// A column band of `source` (rows x stride, from column `first`), times scale, cut into heads.
void split_heads(mxs_dtype dtype, const Heads &heads, const float *source, int64_t stride, int64_t first, float scale,
                 void *target);
// And back, into a column band of target.
void merge_heads(mxs_dtype dtype, const Heads &heads, const float *source, float scale, int64_t stride, int64_t first,
                 void *target);

// Softmax over the tokens up to one's own; zero beyond.
void causal_softmax(mxs_dtype dtype, const float *scores, int64_t matrices, int64_t context, void *target);
void causal_softmax_backward(mxs_dtype dtype, const void *softmax, const float *softmax_gradient, int64_t matrices,
                             int64_t context, void *scores_gradient);

// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
void gelu(mxs_dtype dtype, const float *x, uint64_t count, void *target);
void gelu_backward(mxs_dtype dtype, const float *x, const float *target_gradient, uint64_t count, void *x_gradient);

// Mean over the rows of -log softmax(logits)[target], and its gradient.
double cross_entropy(mxs_dtype dtype, const float *logits, const uint8_t *targets, int64_t rows, int64_t classes,
                     void *logits_gradient);

void add(const float *source, uint64_t count, float *target);

}  // namespace train
