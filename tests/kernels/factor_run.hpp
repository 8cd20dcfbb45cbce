// SPDX-License-Identifier: Apache-2.0
// A Shampoo or SOAP stepper under test: its arrays, its state with guards around, a workspace full of poison before
// every call, and what has been said of its parts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/team.hpp"
#include "kernels/dense.hpp"
#include "kernels/linear.hpp"
#include "optimizer/stepper.hpp"
#include "support/complaints.hpp"

namespace mxs::test {

struct Shape {
  int64_t rows, columns;
};

inline StepMatrices matrices_of(Shape shape, int64_t count = 1) {
  StepMatrices matrices;
  matrices.rows = shape.rows, matrices.columns = shape.columns, matrices.count = count;
  matrices.weight_row = matrices.gradient_row = shape.columns;
  matrices.weight_matrix = matrices.gradient_matrix = shape.rows * shape.columns;
  matrices.blocks = {{0, shape.rows, 0, shape.columns, shape.rows, shape.columns}};
  return matrices;
}

// Each row and column has a size of its own, so that eigenvalues are apart.
inline std::vector<float> spread_values(size_t rows, size_t columns, unsigned seed, double scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<float> values(rows * columns);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c)
      values[r * columns + c] = static_cast<float>(
          scale * normal(random) * (1 + static_cast<double>((r * 7) % rows) * 3 / static_cast<double>(rows)) *
          (1 + static_cast<double>((c * 5) % columns) * 2 / static_cast<double>(columns)));
  return values;
}

inline Dense dense(const float *values, size_t rows, size_t columns) {
  Dense matrix(rows, columns);
  for (size_t i = 0; i < matrix.values.size(); ++i) matrix.values[i] = static_cast<double>(values[i]);
  return matrix;
}

class FactorRun {
 public:
  using Make = std::function<mxs_status(std::unique_ptr<Stepper> *stepper, const StepMatrices &matrices, Team *team)>;

  mxs_status create(const StepMatrices &matrices, int thread_count, const Make &make) {
    matrices_ = matrices;
    mxs_status status = Team::create(&team_, thread_count);
    if (status == MXS_OK) status = make(&stepper_, matrices, team_.get());
    if (status != MXS_OK) return status;
    state_.assign(stepper_->state_bytes() / 64 + 2, Line{});
    workspace_.assign(stepper_->workspace_bytes() / 64 + 2, Line{});
    std::memset(state_.data(), 0x5a, state_.size() * 64);
    stepper_->init(state());
    weights.resize(matrices.elements());
    return MXS_OK;
  }

  StepCall call(const void *gradient, const mxs_group_values &values) {
    std::memset(workspace_.data(), 0xff, workspace_.size() * 64);
    StepCall call;
    call.values = &values, call.step_number = step_number + 1;
    call.gradient = gradient, call.weights = weights.data();
    call.state = state(), call.workspace = workspace_[1].bytes;
    return call;
  }
  mxs_status step(const std::vector<float> &gradient, const mxs_group_values &values) {
    const mxs_status status = stepper_->step(call(gradient.data(), values));
    if (status == MXS_OK) ++step_number;
    return status;
  }
  mxs_status step_in_halves(const std::vector<float> &gradient, const mxs_group_values &values) {
    std::vector<float> update(weights.size(), NAN);
    mxs_status status = stepper_->update(call(gradient.data(), values), update.data());
    if (status != MXS_OK) return status;
    StepCall second = call(nullptr, values);
    second.workspace = nullptr;
    status = stepper_->apply(second, update.data());
    if (status == MXS_OK) ++step_number;
    return status;
  }

  std::byte *state() { return state_[1].bytes; }
  Stepper &stepper() { return *stepper_; }
  float *part(const std::string &name) {
    for (const StatePart &part : stepper_->state_parts())
      if (part.name == name) return reinterpret_cast<float *>(state() + part.offset);
    return nullptr;
  }
  Dense part(const std::string &name, size_t rows, size_t columns) {
    const float *const values = part(name);
    return values ? dense(values, rows, columns) : Dense();
  }
  std::vector<std::byte> state_copy() { return {state(), state() + stepper_->state_bytes()}; }
  // "" or what was written beyond the state or the workspace.
  std::string check_guards() const {
    for (const Line *line : {&state_.front(), &state_.back()})
      for (const std::byte byte : line->bytes)
        if (byte != std::byte{0x5a}) return "something was written beside the state";
    for (const Line *line : {&workspace_.front(), &workspace_.back()})
      for (const std::byte byte : line->bytes)
        if (byte != std::byte{0xff}) return "something was written beside the workspace";
    return "";
  }

  std::vector<float> weights;
  uint64_t step_number = 0;

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  StepMatrices matrices_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Stepper> stepper_;
  std::vector<Line> state_, workspace_;
};

inline bool same_bytes(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Parts follow each other without gaps but borders, names differ, and sizes are the planner's.
inline std::string check_layout(FactorRun &run, uint64_t planned_bytes) {
  uint64_t end = 0;
  std::vector<std::string> names;
  for (const StatePart &part : run.stepper().state_parts()) {
    uint64_t bytes = part.dtype == MXS_F64 ? 8 : 4;
    for (const int64_t side : part.shape) bytes *= static_cast<uint64_t>(side);
    if (part.offset != (end + 63) / 64 * 64 || part.bytes != bytes) return "the part " + part.name + " lies elsewhere";
    end = part.offset + part.bytes;
    names.push_back(part.name);
  }
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) return "two parts have one name";
  end = (end + 63) / 64 * 64;
  if (run.stepper().state_bytes() != end || planned_bytes != end)
    return words("the state has %llu bytes, parts %llu, the plan %llu",
                 static_cast<unsigned long long>(run.stepper().state_bytes()), static_cast<unsigned long long>(end),
                 static_cast<unsigned long long>(planned_bytes));
  return "";
}

}  // namespace mxs::test
