// SPDX-License-Identifier: Apache-2.0
// What Shampoo and SOAP share in CUDA memory: the host's FactorStepper, launch by launch. It tells where everything
// lies in a state, by the same arithmetic on device pointers.
//
// Refreshes hang on the step number, and what a decomposition failed at on what it read: so the host knows both. Steps
// of these rules wait for the agreement, and a refresh for its decompositions; no other step waits for more.
//
//   workspace | gradient | first | second | run squares | sums | matrix | on trial | values | powers | order |
//             | failed | decomposition |
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/factor_arguments.hpp"
#include "device/linear.hpp"
#include "kernels/linear.hpp"
#include "optimizer/device_steppers.hpp"
#include "optimizer/factors.hpp"

namespace mxs {

class DeviceFactors : public DeviceStepper {
 public:
  // host: outlives this, and is of the same matrices.
  DeviceFactors(Device &device, const FactorStepper &host, const StepMatrices &matrices)
      : device_(device), host_(host), matrices_(matrices) {}
  uint64_t workspace_bytes() const override { return workspace_bytes_; }
  mxs_status enqueue(const DeviceStepCall &call, DeviceStream stream) override;
  const char *backend() const override { return linear_->backend(); }
  mxs_dtype product_dtype() const override { return MXS_F32; }
  double flops() const override { return host_.flops(); }
  bool waits() const override { return true; }

 protected:
  mxs_status prepare(const FactorOptions &options);

  // One unit of one step.
  struct Work {
    const DeviceStepCall *call = nullptr;
    StepCall places;  // state and workspace alone: for the host's arithmetic
    FactorUnit unit;
    DeviceStream stream = nullptr;
    float *gradient = nullptr, *first = nullptr, *second = nullptr, *matrix = nullptr, *values = nullptr;
    double *run_squares = nullptr, *sums = nullptr, *powers = nullptr;
    uint32_t *order = nullptr;
    int32_t *failed = nullptr;
    float *formed = nullptr;  // a factor on trial
    std::byte *rest = nullptr;

    uint64_t elements() const { return unit.rows * unit.columns; }
  };

  // ---- what a rule does ----
  virtual bool refreshes(uint64_t step_number) const = 0;
  virtual mxs_status direct(const Work &work, float **direction) = 0;
  virtual mxs_status finish(const Work &) { return MXS_OK; }
  virtual bool changes_weights(const DeviceStepCall &) const { return true; }
  virtual FactorApplyArguments apply_arguments() const = 0;
  virtual void factor_scalars(const DeviceStepCall &call, float *alpha, float *beta) const = 0;
  // Of one side, into work.matrix; *good false: it failed. Waits for the device.
  virtual mxs_status decompose(const Work &work, const FactorSide &side, const float *factor, bool *good) = 0;
  virtual mxs_status commit(const Work &work, int side_number, const FactorSide &side) = 0;

  // ---- what rules do it with ----
  FactorPlace place(const Work &work) const;
  float *array(const Work &work, size_t number) const;  // of the piece
  FactorSide side(const Work &work, int side_number) const;
  mxs_status update_factor(const Work &work, int side_number, float *target);
  mxs_status update_factors(const Work &work);
  mxs_status refresh(const Work &work, int *done);
  struct TwoSides {
    const float *left = nullptr, *right = nullptr;
    bool left_turned = false, right_turned = false;
  };
  mxs_status multiply(const Work &work, const TwoSides &sides, float *source, uint64_t source_stride, float **product);
  mxs_status sum_squares(const Work &work, const float *numbers, double *sum);  // nullptr: of run_squares as they are
  mxs_status input(const Work &work, const FactorSide &side, const float *factor, float scale, float lift);
  mxs_status read_failed(const Work &work, bool *good);
  mxs_status permute(const Work &work, const FactorPermuteArguments &arguments);
  template <class Arguments>
  mxs_status launch(const Work &work, const char *kernel, const Arguments &arguments, uint64_t threads) {
    return launch_pass(device_, kernel, arguments, threads, work.stream);
  }
  uint64_t run_threads(const Work &work) const {
    return MatrixRuns(work.unit.rows, work.unit.columns).run_count() * 32;
  }
  PassWeights weights(const Work &work) const { return at(weights_, *work.call); }

  Device &device_;
  const FactorStepper &host_;
  const StepMatrices matrices_;
  FactorOptions options_;
  std::unique_ptr<DeviceLinear> linear_;
  PassWeights weights_;
  PinnedMemory pinned_;  // what a refresh reads and writes

 private:
  mxs_status take_gradient(const Work &work);
  mxs_status step_unit(const Work &work);
  mxs_status try_where_no_more_may_fail(const DeviceStepCall &call, DeviceStream stream);
  mxs_status refresh_sides(const Work &work, bool on_trial, int *done, int *failed);
  mxs_status read_failures(const Work &work, FactorStepper::Failures *failures);
  mxs_status write_failures(const Work &work, const FactorStepper::Failures &failures);
  Work work_of(const DeviceStepCall &call, uint64_t number, DeviceStream stream) const;

  uint64_t workspace_bytes_ = 0, array_bytes_ = 0, run_bytes_ = 0, matrix_bytes_ = 0, side_bytes_ = 0;
};

}  // namespace mxs
