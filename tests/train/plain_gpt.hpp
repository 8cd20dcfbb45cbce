// SPDX-License-Identifier: Apache-2.0
// The model's loss, written down once more: fp64, loops over indices, no kernel of the demo's. The judge of its layers.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "model.hpp"

namespace plain {

using Weights = std::map<std::string, std::vector<double>>;
using Rows = std::vector<std::vector<double>>;

inline Rows linear(const Rows &x, const std::vector<double> &w, int64_t out) {
  Rows y(x.size(), std::vector<double>(out));
  for (size_t t = 0; t < x.size(); ++t)
    for (int64_t o = 0; o < out; ++o)
      for (size_t i = 0; i < x[t].size(); ++i) y[t][o] += x[t][i] * w[o * x[t].size() + i];
  return y;
}

inline Rows rms_norm(const Rows &x, const std::vector<double> &gain) {
  Rows y = x;
  for (auto &row : y) {
    double squares = 0;
    for (double value : row) squares += value * value;
    const double root = std::sqrt(squares / static_cast<double>(row.size()) + 1e-5);
    for (size_t i = 0; i < row.size(); ++i) row[i] = row[i] / root * gain[i];
  }
  return y;
}

inline std::vector<double> softmax(std::vector<double> scores) {
  double total = 0;
  for (double &score : scores) total += score = std::exp(score);
  for (double &score : scores) score /= total;
  return scores;
}

// One sequence: (tokens, 3 * width) to (tokens, width).
inline Rows attention(const Rows &qkv, int64_t heads, int64_t width) {
  const int64_t head_width = width / heads;
  Rows y(qkv.size(), std::vector<double>(width));
  for (int64_t head = 0; head < heads; ++head)
    for (size_t t = 0; t < qkv.size(); ++t) {
      std::vector<double> scores(t + 1);
      for (size_t s = 0; s <= t; ++s) {
        for (int64_t i = head * head_width; i < (head + 1) * head_width; ++i)
          scores[s] += qkv[t][i] * qkv[s][width + i];
        scores[s] /= std::sqrt(static_cast<double>(head_width));
      }
      scores = softmax(scores);
      for (size_t s = 0; s <= t; ++s)
        for (int64_t i = head * head_width; i < (head + 1) * head_width; ++i)
          y[t][i] += scores[s] * qkv[s][2 * width + i];
    }
  return y;
}

inline void add(Rows *x, const Rows &y) {
  for (size_t t = 0; t < x->size(); ++t)
    for (size_t i = 0; i < (*x)[t].size(); ++i) (*x)[t][i] += y[t][i];
}

inline Rows block(Rows x, const Weights &w, const std::string &prefix, const train::Shape &shape) {
  Rows qkv = linear(rms_norm(x, w.at(prefix + "norm1")), w.at(prefix + "qkv"), 3 * shape.width);
  add(&x, linear(attention(qkv, shape.heads, shape.width), w.at(prefix + "projection"), shape.width));
  Rows hidden = linear(rms_norm(x, w.at(prefix + "norm2")), w.at(prefix + "up"), 4 * shape.width);
  for (auto &row : hidden)
    for (double &v : row) v = v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  add(&x, linear(hidden, w.at(prefix + "down"), shape.width));
  return x;
}

// Mean over all tokens of -log p(target).
inline double loss(const Weights &w, const train::Shape &shape, const std::vector<uint8_t> &inputs,
                   const std::vector<uint8_t> &targets) {
  double total = 0;
  for (int64_t first = 0; first < shape.tokens(); first += shape.context) {
    Rows x(shape.context, std::vector<double>(shape.width));
    for (int64_t t = 0; t < shape.context; ++t)
      for (int64_t i = 0; i < shape.width; ++i)
        x[t][i] = w.at("embedding.token")[inputs[first + t] * shape.width + i] +
                  w.at("embedding.position")[t * shape.width + i];
    for (int64_t b = 0; b < shape.layers; ++b) x = block(x, w, "block." + std::to_string(b) + ".", shape);
    const Rows logits = linear(rms_norm(x, w.at("head.norm")),
                               w.at(shape.tied ? "embedding.token" : "head.weight"), train::vocabulary);
    for (int64_t t = 0; t < shape.context; ++t) total -= std::log(softmax(logits[t])[targets[first + t]]);
  }
  return total / static_cast<double>(shape.tokens());
}

}  // namespace plain
