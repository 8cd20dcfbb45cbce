// SPDX-License-Identifier: Apache-2.0
// What does each layer compute, and what is its derivative?
#include "layers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

// Compiled for three widths of vectors, and chosen when the program is loaded: the same bits, since nothing is
// contracted or reordered.
#if defined(__x86_64__) && defined(__gnu_linux__)
#define EACH_WIDTH __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define EACH_WIDTH
#endif

namespace train {
namespace {

constexpr float norm_epsilon = 1e-5f;
constexpr int lane_count = 16;

uint16_t bf16_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>(value == value ? rounded : 0x7fc0u);
}

float float_of(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }

// The address of an element of an array in `dtype`.
void *at(void *array, mxs_dtype dtype, int64_t index) {
  return static_cast<char *>(array) + index * (dtype == MXS_BF16 ? 2 : 4);
}
const void *at(const void *array, mxs_dtype dtype, int64_t index) {
  return static_cast<const char *>(array) + index * (dtype == MXS_BF16 ? 2 : 4);
}

float sum_lanes(const float *lanes) {
  float half[lane_count / 2];
  for (int i = 0; i < lane_count / 2; ++i) half[i] = lanes[i] + lanes[i + lane_count / 2];
  return ((half[0] + half[4]) + (half[1] + half[5])) + ((half[2] + half[6]) + (half[3] + half[7]));
}

float dot(const float *a, const float *b, int64_t count) {
  float lanes[lane_count] = {};
  int64_t i = 0;
  for (; i + lane_count <= count; i += lane_count)
    for (int lane = 0; lane < lane_count; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  for (int lane = 0; i < count; ++i, ++lane) lanes[lane] += a[i] * b[i];
  return sum_lanes(lanes);
}

float sum(const float *a, int64_t count) {
  float lanes[lane_count] = {};
  int64_t i = 0;
  for (; i + lane_count <= count; i += lane_count)
    for (int lane = 0; lane < lane_count; ++lane) lanes[lane] += a[i + lane];
  for (int lane = 0; i < count; ++i, ++lane) lanes[lane] += a[i];
  return sum_lanes(lanes);
}

// exp without a branch or a call, so that loops over it are vectorised. 2^n by the exponent bits, the rest
// (|r| <= ln 2 / 2) by Taylor's polynomial of degree 7.
float exponential(float x) {
  x = std::min(std::max(x, -87.0f), 88.0f);
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the integer lands in the low bits
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t scale = (std::bit_cast<uint32_t>(shifted) + 127u) << 23;
  return p * std::bit_cast<float>(scale);
}

// tanh of GELU's inner polynomial.
float gelu_tanh(float x) {
  const float inner = 0.797884561f * (x + 0.044715f * x * x * x);
  return 1.0f - 2.0f / (exponential(2.0f * inner) + 1.0f);
}

// Rows of fp32 that are narrowed at once: small enough for the first cache.
constexpr uint64_t piece_count = 1024;

}  // namespace

EACH_WIDTH
void narrow(mxs_dtype dtype, const float *source, uint64_t count, void *target) {
  if (dtype != MXS_BF16) {
    std::memcpy(target, source, count * sizeof(float));
    return;
  }
  auto *bf16 = static_cast<uint16_t *>(target);
  for (uint64_t i = 0; i < count; ++i) bf16[i] = bf16_of(source[i]);
}

EACH_WIDTH
void widen(mxs_dtype dtype, const void *source, uint64_t count, float *target) {
  if (dtype != MXS_BF16) {
    std::memcpy(target, source, count * sizeof(float));
    return;
  }
  const auto *bf16 = static_cast<const uint16_t *>(source);
  for (uint64_t i = 0; i < count; ++i) target[i] = float_of(bf16[i]);
}

void embed(mxs_dtype dtype, const uint8_t *inputs, int64_t rows, int64_t context, int64_t width, const void *token,
           const void *position, float *x) {
  std::vector<float> place(width);
  for (int64_t row = 0; row < rows; ++row) {
    float *target = x + row * width;
    widen(dtype, at(token, dtype, inputs[row] * width), width, target);
    widen(dtype, at(position, dtype, row % context * width), width, place.data());
    add(place.data(), width, target);
  }
}

void embed_backward(const uint8_t *inputs, int64_t rows, int64_t context, int64_t width, const float *x_gradient,
                    float *token_gradient, float *position_gradient) {
  std::fill_n(token_gradient, 256 * width, 0.0f);
  std::fill_n(position_gradient, context * width, 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    add(x_gradient + row * width, width, token_gradient + inputs[row] * width);
    add(x_gradient + row * width, width, position_gradient + row % context * width);
  }
}

EACH_WIDTH
void rms_norm(mxs_dtype dtype, const float *x, const void *gain, int64_t rows, int64_t width, void *target,
              float *inverse) {
  std::vector<float> gains(width), line(width);
  widen(dtype, gain, width, gains.data());
  for (int64_t row = 0; row < rows; ++row) {
    const float *source = x + row * width;
    const float factor = 1.0f / std::sqrt(dot(source, source, width) / static_cast<float>(width) + norm_epsilon);
    for (int64_t i = 0; i < width; ++i) line[i] = source[i] * factor * gains[i];
    narrow(dtype, line.data(), width, at(target, dtype, row * width));
    inverse[row] = factor;
  }
}

EACH_WIDTH
void rms_norm_backward(mxs_dtype dtype, const float *target_gradient, const float *x, const void *gain,
                       const float *inverse, int64_t rows, int64_t width, float *x_gradient, float *gain_gradient) {
  std::vector<float> gains(width), scaled(width);
  widen(dtype, gain, width, gains.data());
  std::fill_n(gain_gradient, width, 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    const float *dy = target_gradient + row * width, *source = x + row * width;
    const float factor = inverse[row];
    for (int64_t i = 0; i < width; ++i) scaled[i] = dy[i] * gains[i];
    for (int64_t i = 0; i < width; ++i) gain_gradient[i] += dy[i] * (source[i] * factor);
    const float share = dot(scaled.data(), source, width) * factor * factor * factor / static_cast<float>(width);
    float *dx = x_gradient + row * width;
    for (int64_t i = 0; i < width; ++i) dx[i] += scaled[i] * factor - source[i] * share;
  }
}

EACH_WIDTH
void split_heads(mxs_dtype dtype, const Heads &heads, const float *source, int64_t stride, int64_t first, float scale,
                 void *target) {
  std::vector<float> line(heads.head_width);
  for (int64_t row = 0; row < heads.rows(); ++row)
    for (int64_t head = 0; head < heads.heads; ++head) {
      const float *from = source + row * stride + first + head * heads.head_width;
      const int64_t matrix = row / heads.context * heads.heads + head;
      for (int64_t i = 0; i < heads.head_width; ++i) line[i] = from[i] * scale;
      narrow(dtype, line.data(), heads.head_width,
             at(target, dtype, (matrix * heads.context + row % heads.context) * heads.head_width));
    }
}

EACH_WIDTH
void merge_heads(mxs_dtype dtype, const Heads &heads, const float *source, float scale, int64_t stride, int64_t first,
                 void *target) {
  std::vector<float> line(heads.head_width);
  for (int64_t row = 0; row < heads.rows(); ++row)
    for (int64_t head = 0; head < heads.heads; ++head) {
      const int64_t matrix = row / heads.context * heads.heads + head;
      const float *from = source + (matrix * heads.context + row % heads.context) * heads.head_width;
      for (int64_t i = 0; i < heads.head_width; ++i) line[i] = from[i] * scale;
      narrow(dtype, line.data(), heads.head_width, at(target, dtype, row * stride + first + head * heads.head_width));
    }
}

EACH_WIDTH
void causal_softmax(mxs_dtype dtype, const float *scores, int64_t matrices, int64_t context, void *target) {
  std::vector<float> line(context);
  for (int64_t row = 0; row < matrices * context; ++row) {
    const float *source = scores + row * context;
    const int64_t seen = row % context + 1;
    const float greatest = *std::max_element(source, source + seen);
    for (int64_t i = 0; i < seen; ++i) line[i] = exponential(source[i] - greatest);
    const float factor = 1.0f / sum(line.data(), seen);
    for (int64_t i = 0; i < seen; ++i) line[i] *= factor;
    std::fill(line.begin() + seen, line.end(), 0.0f);
    narrow(dtype, line.data(), context, at(target, dtype, row * context));
  }
}

EACH_WIDTH
void causal_softmax_backward(mxs_dtype dtype, const void *softmax, const float *softmax_gradient, int64_t matrices,
                             int64_t context, void *scores_gradient) {
  std::vector<float> p(context), line(context);
  for (int64_t row = 0; row < matrices * context; ++row) {
    const float *dp = softmax_gradient + row * context;
    const int64_t seen = row % context + 1;
    widen(dtype, at(softmax, dtype, row * context), context, p.data());
    const float mean = dot(p.data(), dp, seen);
    for (int64_t i = 0; i < seen; ++i) line[i] = p[i] * (dp[i] - mean);
    std::fill(line.begin() + seen, line.end(), 0.0f);
    narrow(dtype, line.data(), context, at(scores_gradient, dtype, row * context));
  }
}

EACH_WIDTH
void gelu(mxs_dtype dtype, const float *x, uint64_t count, void *target) {
  float line[piece_count];
  for (uint64_t begin = 0; begin < count; begin += piece_count) {
    const uint64_t size = std::min(piece_count, count - begin);
    for (uint64_t i = 0; i < size; ++i) line[i] = 0.5f * x[begin + i] * (1.0f + gelu_tanh(x[begin + i]));
    narrow(dtype, line, size, at(target, dtype, static_cast<int64_t>(begin)));
  }
}

EACH_WIDTH
void gelu_backward(mxs_dtype dtype, const float *x, const float *target_gradient, uint64_t count, void *x_gradient) {
  float line[piece_count];
  for (uint64_t begin = 0; begin < count; begin += piece_count) {
    const uint64_t size = std::min(piece_count, count - begin);
    for (uint64_t i = 0; i < size; ++i) {
      const float value = x[begin + i], tanh = gelu_tanh(value);
      const float slope = 0.797884561f * (1.0f + 3.0f * 0.044715f * value * value);
      const float derivative = 0.5f * (1.0f + tanh) + 0.5f * value * (1.0f - tanh * tanh) * slope;
      line[i] = target_gradient[begin + i] * derivative;
    }
    narrow(dtype, line, size, at(x_gradient, dtype, static_cast<int64_t>(begin)));
  }
}

EACH_WIDTH
double cross_entropy(mxs_dtype dtype, const float *logits, const uint8_t *targets, int64_t rows, int64_t classes,
                     void *logits_gradient) {
  std::vector<float> line(classes);
  double loss = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const float *source = logits + row * classes;
    const float greatest = *std::max_element(source, source + classes);
    for (int64_t i = 0; i < classes; ++i) line[i] = exponential(source[i] - greatest);
    const float total = sum(line.data(), classes);
    loss += std::log(static_cast<double>(total)) - (static_cast<double>(source[targets[row]]) - greatest);
    const float factor = 1.0f / (total * static_cast<float>(rows));
    for (int64_t i = 0; i < classes; ++i) line[i] *= factor;
    line[targets[row]] -= 1.0f / static_cast<float>(rows);
    narrow(dtype, line.data(), classes, at(logits_gradient, dtype, row * classes));
  }
  return loss / static_cast<double>(rows);
}

EACH_WIDTH
void add(const float *source, uint64_t count, float *target) {
  for (uint64_t i = 0; i < count; ++i) target[i] += source[i];
}

}  // namespace train
