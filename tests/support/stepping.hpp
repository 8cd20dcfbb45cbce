// SPDX-License-Identifier: Apache-2.0
// A stepper with all that its caller owns: matrices with strides, gradients, weights, masters, state and workspace.
// Gaps between rows and matrices, and a workspace before each call, are full of poison.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "matrixshard/kernels.h"

namespace mxs::test {

constexpr unsigned char poison = 0xa5;

// Memory at a 64-byte border, poisoned.
class Bytes {
 public:
  explicit Bytes(uint64_t size = 0) : size_(size), data_(static_cast<unsigned char *>(
                                          std::aligned_alloc(64, (size + 127) / 64 * 64))) {
    std::memset(data_.get(), poison, (size + 127) / 64 * 64);
  }
  unsigned char *data() const { return data_.get(); }
  uint64_t size() const { return size_; }
  void refill() { std::memset(data_.get(), poison, size_); }
  std::string text() const { return std::string(reinterpret_cast<const char *>(data_.get()), size_); }

 private:
  struct Free {
    void operator()(unsigned char *data) const { std::free(data); }
  };
  uint64_t size_;
  std::unique_ptr<unsigned char, Free> data_;
};

using MakeStepper = std::function<mxs_status(mxs_stepper **, const mxs_matrices *)>;

inline MakeStepper muon_with(mxs_muon_options options) {
  return [options](mxs_stepper **stepper, const mxs_matrices *matrices) {
    return mxs_muon_create(stepper, matrices, &options);
  };
}

inline MakeStepper muon_on(int32_t threads, mxs_preset preset = MXS_PRESET_DEFAULT) {
  mxs_muon_options options = MXS_MUON_OPTIONS_INIT;
  options.thread_count = threads;
  options.preset = preset;
  return muon_with(options);
}

inline MakeStepper adamw_with(mxs_adamw_options options) {
  return [options](mxs_stepper **stepper, const mxs_matrices *matrices) {
    return mxs_adamw_create(stepper, matrices, &options);
  };
}

inline MakeStepper adamw_on(int32_t threads) {
  mxs_adamw_options options = MXS_ADAMW_OPTIONS_INIT;
  options.thread_count = threads;
  return adamw_with(options);
}

inline mxs_matrices matrices_of(int64_t rows, int64_t columns, int64_t count = 1) {
  mxs_matrices matrices = MXS_MATRICES_INIT;
  matrices.rows = rows;
  matrices.columns = columns;
  matrices.count = count;
  return matrices;
}

// A number that is the same for the same element of the same matrix in any layout, and in bf16 as in fp32.
inline float number_of(unsigned seed, int64_t matrix, int64_t row, int64_t column) {
  uint64_t mixed = (seed * 0x9e3779b97f4a7c15u) ^ (static_cast<uint64_t>(matrix) << 42) ^
                   (static_cast<uint64_t>(row) << 21) ^ static_cast<uint64_t>(column);
  for (const uint64_t factor : {0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu}) mixed = (mixed ^ (mixed >> 31)) * factor;
  const float number = static_cast<float>(static_cast<int64_t>(mixed >> 40) - (1 << 23)) / (1 << 23);
  return float_from_bf16(bf16_from_float(number));
}

class Stepping {
 public:
  Stepping(mxs_matrices matrices, const MakeStepper &make) : matrices_(matrices) {
    if (matrices_.count == 0) matrices_.count = 1;
    status = make(&stepper, &matrices);
    if (status != MXS_OK) return;
    state = Bytes(mxs_stepper_state_bytes(stepper));
    workspace = Bytes(mxs_stepper_workspace_bytes(stepper));
    gradient = Bytes(extent(matrices_.gradient_strides) * width(matrices_.gradient_dtype));
    weights = Bytes(extent(matrices_.weight_strides) * width(matrices_.dtype));
    const bool narrow = matrices_.dtype == MXS_BF16 || matrices_.dtype == MXS_F16;
    if (narrow && matrices_.weights != MXS_WEIGHTS_ALONE)
      master = Bytes(extent(matrices_.weight_strides) * (matrices_.weights == MXS_WEIGHTS_REMAINDER ? 2 : 4));
    status = mxs_stepper_init(stepper, state.data());
    fill_weights();
  }
  ~Stepping() { mxs_stepper_destroy(&stepper); }
  Stepping(const Stepping &) = delete;
  Stepping &operator=(const Stepping &) = delete;

  // Numbers of `seed`; matrix i of this batch is matrix first_matrix + i, row r is row first_row + r of it.
  int64_t first_matrix = 0, first_row = 0;

  void fill_gradient(unsigned seed) {
    each([&](int64_t matrix, int64_t row, int64_t column) {
      put(gradient, matrices_.gradient_dtype, place(matrices_.gradient_strides, matrix, row, column),
          number_of(seed, first_matrix + matrix, first_row + row, column));
    });
  }
  void fill_weights() {
    each([&](int64_t matrix, int64_t row, int64_t column) {
      const float number = number_of(77, first_matrix + matrix, first_row + row, column);
      const uint64_t at = place(matrices_.weight_strides, matrix, row, column);
      put(weights, matrices_.dtype, at, number);
      if (master.size() == 0) return;
      if (matrices_.weights == MXS_WEIGHTS_REMAINDER)
        std::memset(master.data() + 2 * at, 0, 2);
      else
        put(master, MXS_F32, at, number);
    });
  }

  mxs_step_call call() {
    mxs_step_call made = MXS_STEP_CALL_INIT;
    made.values = &values;
    made.gradient = gradient.data();
    made.weights = weights.data();
    made.master = master.size() > 0 ? master.data() : nullptr;
    made.state = state.data();
    made.workspace = workspace.data();
    made.workspace_bytes = workspace.size();
    return made;
  }

  // Steps with gradients of seeds 1, 2, ...
  mxs_status run(int steps) {
    for (int step = 0; step < steps && status == MXS_OK; ++step) {
      fill_gradient(static_cast<unsigned>(++steps_made_));
      workspace.refill();
      const mxs_step_call each = call();
      status = mxs_stepper_step(stepper, &each, &result);
    }
    return status;
  }
  // The same in halves.
  mxs_status run_halves(int steps) {
    Bytes update(static_cast<uint64_t>(matrices_.count * matrices_.rows * matrices_.columns) * sizeof(float));
    for (int step = 0; step < steps && status == MXS_OK; ++step) {
      fill_gradient(static_cast<unsigned>(++steps_made_));
      workspace.refill();
      update.refill();
      const mxs_step_call each = call();
      float *const numbers = reinterpret_cast<float *>(update.data());
      status = mxs_stepper_update(stepper, &each, numbers, &result);
      workspace.refill();
      if (status == MXS_OK) status = mxs_stepper_apply(stepper, &each, numbers);
    }
    return status;
  }

  // Weights (and what stands beside them) of one matrix, rows [first, first + count), without gaps.
  std::string weights_of(int64_t matrix, int64_t first = 0, int64_t count = -1) const {
    std::string found;
    const uint64_t weight_width = width(matrices_.dtype);
    const uint64_t master_width = matrices_.weights == MXS_WEIGHTS_REMAINDER ? 2 : 4;
    for (int64_t row = first; row < (count < 0 ? matrices_.rows : first + count); ++row) {
      const uint64_t at = place(matrices_.weight_strides, matrix, row, 0);
      const uint64_t columns = static_cast<uint64_t>(matrices_.columns);
      found.append(reinterpret_cast<const char *>(weights.data()) + at * weight_width, columns * weight_width);
      if (master.size() > 0)
        found.append(reinterpret_cast<const char *>(master.data()) + at * master_width, columns * master_width);
    }
    return found;
  }
  float weight(int64_t matrix, int64_t row, int64_t column) const {
    return get(weights, matrices_.dtype, place(matrices_.weight_strides, matrix, row, column));
  }
  // Everything that a call may change, and what it must not.
  std::string everything() const { return weights.text() + master.text() + state.text() + gradient.text(); }

  const mxs_matrices &matrices() const { return matrices_; }

  // Are the bytes between rows and between matrices what they were at first?
  bool gaps_are_untouched() const {
    std::vector<char> used(extent(matrices_.weight_strides), 0);
    each([&](int64_t matrix, int64_t row, int64_t column) {
      used[place(matrices_.weight_strides, matrix, row, column)] = 1;
    });
    const uint64_t bytes = width(matrices_.dtype);
    for (uint64_t at = 0; at < used.size(); ++at)
      for (uint64_t byte = 0; byte < bytes && !used[at]; ++byte)
        if (weights.data()[at * bytes + byte] != poison) return false;
    return true;
  }

  mxs_stepper *stepper = nullptr;
  mxs_status status = MXS_OK;
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_step_result result = MXS_STEP_RESULT_INIT;
  Bytes state, workspace, gradient, weights, master;

  static void put(const Bytes &bytes, mxs_dtype dtype, uint64_t at, float number) {
    if (dtype == 0 || dtype == MXS_F32) {
      std::memcpy(bytes.data() + 4 * at, &number, 4);
      return;
    }
    const uint16_t bits = dtype == MXS_BF16 ? bf16_from_float(number) : f16_from_float(number);
    std::memcpy(bytes.data() + 2 * at, &bits, 2);
  }
  static float get(const Bytes &bytes, mxs_dtype dtype, uint64_t at) {
    float number = 0;
    uint16_t bits = 0;
    if (dtype == 0 || dtype == MXS_F32) {
      std::memcpy(&number, bytes.data() + 4 * at, 4);
      return number;
    }
    std::memcpy(&bits, bytes.data() + 2 * at, 2);
    return dtype == MXS_BF16 ? float_from_bf16(bits) : float_from_f16(bits);
  }
  uint64_t place(const mxs_strides &strides, int64_t matrix, int64_t row, int64_t column) const {
    const int64_t row_stride = strides.row ? strides.row : matrices_.columns;
    const int64_t matrix_stride = strides.matrix ? strides.matrix : matrices_.rows * row_stride;
    return static_cast<uint64_t>(matrix * matrix_stride + row * row_stride + column);
  }

 private:
  static uint64_t width(mxs_dtype dtype) { return dtype == 0 ? 4 : mxs_dtype_bytes(dtype); }
  uint64_t extent(const mxs_strides &strides) const {
    return place(strides, matrices_.count - 1, matrices_.rows - 1, matrices_.columns - 1) + 1;
  }
  template <class Body>
  void each(Body &&body) const {
    for (int64_t matrix = 0; matrix < matrices_.count; ++matrix)
      for (int64_t row = 0; row < matrices_.rows; ++row)
        for (int64_t column = 0; column < matrices_.columns; ++column) body(matrix, row, column);
  }

  mxs_matrices matrices_;
  int steps_made_ = 0;
};

}  // namespace mxs::test
