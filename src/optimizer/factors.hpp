// SPDX-License-Identifier: Apache-2.0
// What Shampoo and SOAP share: factors of both sides of each block, kept with a root (shampoo) or a basis (soap) that
// is refreshed now and then by a decomposition.
//
//   factor_layout.cpp  parts of the state, lanes and rooms of the workspace
//   factors.cpp        a step: blocks over threads, refreshes and their failures, gradients in, weights out
//   shampoo.cpp        one rule, soap.cpp the other
//
// Failures. A refresh that fails keeps the old root or basis and is counted; more than failures_max in a row fail the
// step. As nothing may have changed then, blocks that have failed so often already are refreshed on trial before the
// step begins: into the workspace, from the gradient and the state as they are. That costs such a step one refresh
// more, and every other step nothing.
//
// Bits depend neither on the team's size nor on the batch: products are cut in parts by shape alone, and what runs on
// one thread or beside others does the same additions.
#pragma once

#include <string>
#include <vector>

#include "kernels/linear.hpp"
#include "kernels/passes.hpp"
#include "optimizer/state_layout.hpp"
#include "optimizer/stepper.hpp"
#include "plan/factors.hpp"

namespace mxs {

struct FactorOptions {
  FactorRules rules;
  mxs_decay decay = MXS_DECAY_DECOUPLED;
  int interval = 10, failures_max = 3;
  mxs_backend backend = MXS_BACKEND_AUTO;
};

// One block of one matrix.
struct FactorUnit {
  int64_t matrix = 0;
  size_t block = 0;
  size_t rows = 0, columns = 0;
  size_t first_row = 0, first_column = 0;
};

// Scratch of one unit: three arrays of rows x columns, dense.
struct FactorLane {
  float *gradient = nullptr;  // scaled, with L2 decay
  float *first = nullptr, *second = nullptr;
  std::byte *rooms = nullptr;
  int room_count = 1;
  Team *team = nullptr;  // nullptr: the unit has this thread alone
};

// Scratch of one side's refresh.
struct FactorRoom {
  float *matrix = nullptr;   // n x n
  double *values = nullptr;  // n
  uint32_t *order = nullptr;  // n
  std::byte *rest = nullptr;  // decomposition_bytes
};

// One side of a unit, in its state; nullptr: it has no factor.
struct FactorSide {
  size_t n = 0;
  float *factor = nullptr;
  float *kept = nullptr;  // the root or basis
};

// Numbers within an array, with the stride of its rows.
struct Rows {
  float *data = nullptr;
  size_t stride = 0;

  float *at(size_t row, size_t column) const { return data + row * stride + column; }
};

class FactorStepper : public Stepper {
 public:
  mxs_rule rule() const override { return options_.rules.rule; }
  const std::vector<StatePart> &state_parts() const override { return layout_.parts(); }
  uint64_t state_bytes() const override { return layout_.bytes(); }
  uint64_t workspace_bytes() const override { return factor_workspace_bytes(rooms_); }
  void init(std::byte *state) const override;

  mxs_status step(const StepCall &call) override { return run(call, nullptr); }
  mxs_status update(const StepCall &call, float *update) override { return run(call, update); }
  mxs_status apply(const StepCall &call, const float *update) override;

  const char *backend() const override { return backend_.c_str(); }
  mxs_dtype product_dtype() const override { return MXS_F32; }
  double flops() const override;
  bool update_reads_weights() const override { return options_.decay == MXS_DECAY_L2; }
  uint64_t failed_count(const std::byte *state) const override;

 protected:
  // arrays: names of the parts that are as large as the matrices. kept: "root" or "basis".
  mxs_status lay_out(const StepMatrices &matrices, const FactorOptions &options,
                     const std::vector<std::string> &arrays, const char *kept, Team *team);

  // ---- what a rule does ----
  virtual bool refreshes(uint64_t step_number) const = 0;
  // The update, in one of the lane's arrays.
  virtual const float *direct(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) = 0;
  // What is left to do when weights have changed.
  virtual void finish(const StepCall &, const FactorUnit &, const FactorLane &) {}
  virtual bool changes_weights(const StepCall &) const { return true; }
  virtual ApplyPass weights_pass(const StepCall &call) const = 0;
  virtual double unit_flops(const FactorBlock &block) const = 0;

  // What a step does to a factor: factor = beta * factor + alpha * G G^T (or G^T G).
  struct FactorScalars {
    float alpha = 1, beta = 1;
  };
  virtual FactorScalars factor_scalars(const StepCall &call) const = 0;
  // A refresh of one side, in three steps. factor: the side's, or one formed on trial, which may lie in room.matrix or
  // at room.rest. team: to multiply with.
  virtual void prepare(const StepCall &call, const FactorSide &side, const float *factor, const FactorRoom &room,
                       Team *team) = 0;
  // On whatever thread. False: it failed.
  virtual bool decompose(const StepCall &call, const FactorSide &side, const FactorRoom &room) = 0;
  virtual void commit(const StepCall &call, const FactorUnit &unit, int side_number, const FactorSide &side,
                      const FactorRoom &room, const FactorLane &lane) = 0;

  // ---- what rules do it with ----
  Rows array(const StepCall &call, size_t number, const FactorUnit &unit) const;
  FactorSide side(const StepCall &call, const FactorUnit &unit, int side_number) const;  // 0: left, 1: right
  void update_factors(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) const;
  // Both sides, each of which may fail and keep what it has. Counts failures. Returns how many succeeded.
  int refresh(const StepCall &call, const FactorUnit &unit, const FactorLane &lane);

  struct TwoSides {
    const float *left = nullptr, *right = nullptr;  // n x n, dense; nullptr: none
    bool left_turned = false, right_turned = false;
  };
  // left * source * right. Dense in first or second, one of which may be the source; or the source, if there is no
  // side.
  float *multiply(const TwoSides &sides, const FactorUnit &unit, Rows source, float *first, float *second,
                  Team *team) const;

  // body(row, column, count) for all runs of the unit.
  template <class Body>
  static void for_runs(const FactorUnit &unit, Team *team, Body &&body) {
    const MatrixRuns runs(unit.rows, unit.columns);
    run_parts(team, runs.part_count(), [&](size_t part) { runs.each(part, body); });
  }
  // The sum of what it returns, with equal bits for any team.
  template <class Body>
  static double sum_runs(const FactorUnit &unit, Team *team, Body &&body) {
    const MatrixRuns runs(unit.rows, unit.columns);
    double partial[MatrixRuns::parts_max], sum = 0.0;
    run_parts(team, runs.part_count(), [&](size_t part) { partial[part] = runs.part_sum(part, body); });
    for (size_t part = 0; part < runs.part_count(); ++part) sum += partial[part];
    return sum;
  }

  const Linear &linear() const { return *linear_; }
  WeightForm form_at(const StepCall &call) const;
  WeightRun weights_at(const StepCall &call, const FactorUnit &unit, size_t row, size_t column) const;

  FactorOptions options_;

 private:
  friend class DeviceFactors;  // the same in CUDA memory: places and shapes are ours
  struct SidePlace {
    uint64_t factor = 0, kept = 0;
    size_t n = 0;  // 0: no factor
  };
  struct Failures {
    double in_a_row, in_all;
  };

  // factor_layout.cpp
  mxs_status check_backend() const;
  void add_side(const std::string &name, const std::string &block, int64_t n, const char *kept);
  uint64_t unit_count() const { return static_cast<uint64_t>(matrices_.count) * blocks_.size(); }
  FactorUnit unit_at(uint64_t number) const;
  FactorLane lane_of(const StepCall &call, int member) const;
  FactorRoom room_of(const FactorLane &lane, int number) const;
  Failures *failures(std::byte *state, const FactorUnit &unit) const;

  // factors.cpp
  mxs_status run(const StepCall &call, float *update);
  void step_unit(const StepCall &call, const FactorUnit &unit, const FactorLane &lane, const ApplyPass &pass,
                 float *update);
  void take_gradient(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) const;
  void apply_unit(const StepCall &call, const ApplyPass &pass, const FactorUnit &unit, const Rows &update,
                  Team *team) const;
  void update_factor(const StepCall &call, const FactorUnit &unit, const FactorLane &lane, int side_number,
                     float *target) const;
  mxs_status try_where_no_more_may_fail(const StepCall &call);
  struct Outcome {
    int done = 0, failed = 0;
  };
  Outcome refresh_sides(const StepCall &call, const FactorUnit &unit, const FactorLane &lane, bool on_trial);
  const float *form_factor(const StepCall &call, const FactorUnit &unit, const FactorLane &lane, int side_number,
                           const FactorRoom &room) const;
  // body(unit, lane) for every unit.
  template <class Body>
  void for_units(const StepCall &call, Body &&body) {
    if (rooms_.lane_count > 1) {
      team_->run(unit_count(), [&](size_t number, int member) { body(unit_at(number), lane_of(call, member)); });
    } else {
      for (uint64_t number = 0; number < unit_count(); ++number) body(unit_at(number), lane_of(call, 0));
    }
  }

  StepMatrices matrices_;
  std::vector<FactorBlock> blocks_;
  const Linear *linear_ = nullptr;
  std::string backend_;
  Team *team_ = nullptr;
  WeightForm form_;
  StateLayout layout_;
  std::vector<uint64_t> array_places_;
  std::vector<SidePlace> side_places_;  // 2 * block + side
  uint64_t failures_place_ = 0;
  FactorRooms rooms_;
};

}  // namespace mxs
