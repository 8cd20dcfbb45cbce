// SPDX-License-Identifier: Apache-2.0
// A stepper with everything that it steps, to be timed.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "matrixshard/matrixshard.hpp"

namespace bench {

struct Batch {
  int64_t rows = 0, columns = 0, count = 1;
  size_t elements() const { return static_cast<size_t>(rows * columns * count); }
};

class Stepper {
 public:
  Stepper(mxs_stepper *stepper, const Batch &batch, mxs_dtype dtype);
  ~Stepper();
  Stepper(const Stepper &) = delete;
  Stepper &operator=(const Stepper &) = delete;

  void step();
  void update();
  void apply();  // of the last update
  std::string backend() const { return info_.backend; }
  std::string passes() const { return info_.passes; }

 private:
  struct Free {
    void operator()(std::byte *memory) const { std::free(memory); }
  };
  static std::unique_ptr<std::byte, Free> allocate(uint64_t bytes);

  mxs_stepper *stepper_;
  mxs_stepper_info info_ = MXS_STEPPER_INFO_INIT;
  mxs_group_values values_ = MXS_GROUP_VALUES_INIT;
  mxs_step_call call_ = MXS_STEP_CALL_INIT;
  std::unique_ptr<std::byte, Free> state_, workspace_;
  std::vector<float> gradient_, fp32_, update_;
  std::vector<uint16_t> bf16_;
};

// None: this build hasn't got it, as mxs_last_error tells. dtype: MXS_F32, or MXS_BF16 with fp32 masters.
std::unique_ptr<Stepper> make_muon_stepper(const Batch &batch, int threads, mxs_dtype dtype);
std::unique_ptr<Stepper> make_adamw_stepper(const Batch &batch, int threads, mxs_dtype dtype);

}  // namespace bench
