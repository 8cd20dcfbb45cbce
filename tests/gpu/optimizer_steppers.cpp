// SPDX-License-Identifier: Apache-2.0
// Steppers and the control block in device memory, without units: a step on a stream beside a step on the host, from
// equal numbers. Element passes give equal bits.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/team.hpp"
#include "gpu/gpu.hpp"
#include "kernels/presets.hpp"
#include "optimizer/agreement.hpp"
#include "optimizer/device_step.hpp"
#include "optimizer/device_stepper.hpp"
#include "support/drawn_values.hpp"
#include "support/cmocka_all.h"

namespace mxs::test {
namespace {

Device *the_device() {
  Device *device = nullptr;
  assert_int_equal(find_device(0, &device), MXS_OK);
  return device;
}

// Host bytes with a copy on the device.
class Mirrored {
 public:
  Mirrored(Device &device, uint64_t bytes) : device_(device), host(bytes) {
    assert_int_equal(device.allocate(bytes, &memory_), MXS_OK);
  }
  std::byte *there() const { return memory_.data(); }
  void put() {
    assert_int_equal(device_.copy(memory_.data(), host.data(), host.size(), nullptr), MXS_OK);
    assert_int_equal(device_.synchronize(nullptr), MXS_OK);
  }
  std::vector<std::byte> got() const {
    std::vector<std::byte> bytes(host.size());
    assert_int_equal(device_.copy(bytes.data(), memory_.data(), bytes.size(), nullptr), MXS_OK);
    assert_int_equal(device_.synchronize(nullptr), MXS_OK);
    return bytes;
  }
  bool equal() const { return got() == host; }

 private:
  Device &device_;
  DeviceMemory memory_;

 public:
  std::vector<std::byte> host;
};

struct Form {
  mxs_dtype dtype;
  mxs_weights weights;
  mxs_rounding rounding;
};

constexpr Form forms[] = {{MXS_F32, MXS_WEIGHTS_ALONE, MXS_ROUND_NEAREST},
                          {MXS_BF16, MXS_WEIGHTS_MASTER, MXS_ROUND_NEAREST},
                          {MXS_F16, MXS_WEIGHTS_MASTER, MXS_ROUND_NEAREST},
                          {MXS_BF16, MXS_WEIGHTS_ALONE, MXS_ROUND_NEAREST},
                          {MXS_BF16, MXS_WEIGHTS_ALONE, MXS_ROUND_STOCHASTIC}};

// One piece on the host and on the device, stepped alike.
class Pair {
 public:
  Pair(mxs_rule rule, const StepMatrices &matrices, const OptimizerSettings &settings)
      : device_(*the_device()), matrices_(matrices), gradient(device_, matrices.elements() * sizeof(float)),
        weights(device_, matrices.elements() * dtype_bytes(matrices.dtype)),
        master(device_, matrices.elements() * sizeof(float)), has_master_(matrices.weights == MXS_WEIGHTS_MASTER) {
    assert_int_equal(Team::create(&team_, 1), MXS_OK);
    OptimizerSettings reference = settings;
    reference.muon.backend = MXS_BACKEND_REFERENCE;
    assert_int_equal(make_stepper(&host_, rule, matrices, reference, team_.get()), MXS_OK);
    const mxs_status status = make_device_stepper(&stepper_, device_, rule, matrices, settings, *host_);
    if (status != MXS_OK) print_error("%s\n", mxs_last_error());
    assert_int_equal(status, MXS_OK);
    state = std::make_unique<Mirrored>(device_, host_->state_bytes());
    host_->init(state->host.data());
    state->put();
    assert_int_equal(device_.allocate(std::max<uint64_t>(stepper_->workspace_bytes(), 1), &workspace_), MXS_OK);
    host_workspace_.resize(host_->workspace_bytes() + 64);
    assert_int_equal(device_.create_stream(&stream), MXS_OK);
    DeviceStep::Shape shape;
    shape.group_count = 1;
    shape.pieces = {{reinterpret_cast<const float *>(gradient.there()), matrices.elements(), 0}};
    assert_int_equal(DeviceStep::create(&control, device_, shape), MXS_OK);
    draw();
  }
  ~Pair() { device_.destroy_stream(stream); }

  void draw() {
    for (uint64_t i = 0; i < matrices_.elements(); ++i) {
      const float value = hashed(1, i, 2);
      write_value(weights.host.data(), matrices_.dtype, i, value);
      reinterpret_cast<float *>(master.host.data())[i] = value;
    }
    weights.put();
    master.put();
  }

  void draw_gradient(uint64_t round) {
    for (uint64_t i = 0; i < matrices_.elements(); ++i)
      reinterpret_cast<float *>(gradient.host.data())[i] = hashed(round, i, 5) * 3.0f;
    gradient.put();
  }

  void put_agreement(const mxs_group_values &values, float scale, float clip_norm) {
    DeviceStepValues given;
    given.hash = 77;
    given.gradient_scale = scale;
    given.clip_norm = clip_norm;
    assert_int_equal(control->put_values(given, {values}, stream), MXS_OK);
    assert_int_equal(control->begin(stream), MXS_OK);
    assert_int_equal(control->conclude(true, stream), MXS_OK);
  }

  void put_step() {
    DeviceStepCall call;
    call.state_of_step = control->state();
    call.values = control->values(0);
    call.piece = 5;
    call.gradient = gradient.there();
    call.weights = weights.there();
    if (has_master_) call.master = master.there();
    call.state = state->there();
    call.workspace = workspace_.data();
    assert_int_equal(stepper_->enqueue(call, stream), MXS_OK);
  }

  DeviceStepReport report() {
    assert_int_equal(control->fetch(stream), MXS_OK);
    assert_int_equal(device_.synchronize(stream), MXS_OK);
    assert_int_equal(control->poll(), MXS_OK);
    return control->report();
  }

  // The host's, with the same agreement. Returns the norm.
  double step_on_host(const mxs_group_values &values, uint64_t step_number, float scale, float clip_norm) {
    ExactSum sum;
    assert_true(add_squares(gradient.host.data(), MXS_F32, matrices_.elements(), scale, &sum));
    const double norm = std::sqrt(sum.value());
    StepCall call;
    call.values = &values;
    call.step_number = step_number;
    call.gradient_scale = scale * clip_factor(norm, clip_norm);
    call.gradient = gradient.host.data();
    call.weights = weights.host.data();
    if (has_master_) call.master = master.host.data();
    call.state = state->host.data();
    std::byte *const room = host_workspace_.data();
    call.workspace = room + (64 - reinterpret_cast<uintptr_t>(room) % 64) % 64;
    assert_int_equal(host_->step(call), MXS_OK);
    return norm;
  }

  std::string differs() const {
    if (!weights.equal()) return "weights";
    if (has_master_ && !master.equal()) return "masters";
    return state->equal() ? "" : "state";
  }

 private:
  Device &device_;
  const StepMatrices matrices_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Stepper> host_;
  std::unique_ptr<DeviceStepper> stepper_;
  DeviceMemory workspace_;
  std::vector<std::byte> host_workspace_;

 public:
  Mirrored gradient, weights, master;
  std::unique_ptr<Mirrored> state;
  std::unique_ptr<DeviceStep> control;
  DeviceStream stream = nullptr;

 private:
  const bool has_master_;
};

StepMatrices run_of(int64_t elements, const Form &form) {
  StepMatrices matrices;
  matrices.dtype = form.dtype;
  matrices.weights = form.weights;
  matrices.rounding = form.rounding;
  matrices.seed = 7;
  matrices.tensor_id = 3;
  matrices.first_element = 12345;
  matrices.rows = 1;
  matrices.columns = elements;
  matrices.weight_row = matrices.gradient_row = matrices.weight_matrix = matrices.gradient_matrix = elements;
  matrices.blocks = {{0, 1, 0, elements, 1, elements}};
  return matrices;
}

mxs_group_values values_of(int step) {
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  values.lr = 0.01f / static_cast<float>(step);
  values.weight_decay = 0.1f;
  return values;
}

void adamw_gives_the_hosts_bits(void **) {
  for (const Form &form : forms)
    for (const mxs_decay decay : {MXS_DECAY_DECOUPLED, MXS_DECAY_L2, MXS_DECAY_CAUTIOUS})
      for (const int64_t elements : {int64_t{1}, int64_t{4097}, int64_t{20000}}) {
        OptimizerSettings settings;
        settings.adamw.decay = decay;
        settings.adamw.epsilon_before = elements == 4097 ? MXS_ON : MXS_OFF;
        Pair pair(MXS_RULE_ADAMW, run_of(elements, form), settings);
        for (int step = 1; step <= 4; ++step) {
          pair.draw_gradient(static_cast<uint64_t>(step));
          pair.put_agreement(values_of(step), 0.25f, step % 2 ? 1.0f : 0.0f);
          pair.put_step();
          const double norm =
              pair.step_on_host(values_of(step), static_cast<uint64_t>(step), 0.25f, step % 2 ? 1.0f : 0.0f);
          const DeviceStepReport report = pair.report();
          assert_int_equal(report.state.steps_done, step);
          assert_memory_equal(&report.verdict.norm, &norm, sizeof norm);
        }
        const std::string difference = pair.differs();
        if (!difference.empty())
          print_error("dtype %d, weights %d, decay %d, %lld elements: %s differ\n", form.dtype, form.weights, decay,
                      static_cast<long long>(elements), difference.c_str());
        assert_string_equal(difference.c_str(), "");
      }
}

void what_is_not_finite_skips_the_step(void **) {
  OptimizerSettings settings;
  Pair pair(MXS_RULE_ADAMW, run_of(9000, forms[0]), settings);
  pair.draw_gradient(1);
  reinterpret_cast<float *>(pair.gradient.host.data())[8999] = INFINITY;
  pair.gradient.put();
  for (int i = 0; i < 2; ++i) {
    pair.put_agreement(values_of(1), 1.0f, 1.0f);
    pair.put_step();
    const DeviceStepReport report = pair.report();
    assert_int_equal(report.state.steps_done, 0);
    assert_int_equal(report.state.skip, 1);
    assert_int_equal(report.verdict.skipped, 1);
    assert_int_equal(report.verdict.found_inf_rank, 0);
    assert_true(std::isinf(report.verdict.norm));
    assert_string_equal(pair.differs().c_str(), "");
  }
  // And the next is the first.
  pair.draw_gradient(2);
  pair.put_agreement(values_of(1), 1.0f, 0.0f);
  pair.put_step();
  pair.step_on_host(values_of(1), 1, 1.0f, 0.0f);
  assert_int_equal(pair.report().state.steps_done, 1);
  assert_string_equal(pair.differs().c_str(), "");
}

// A norm above 2^63 skips, too, as on the host.
void a_norm_that_is_too_large_skips_the_step(void **) {
  OptimizerSettings settings;
  Pair pair(MXS_RULE_ADAMW, run_of(64, forms[0]), settings);
  pair.draw_gradient(1);
  for (size_t i = 0; i < 64; ++i) reinterpret_cast<float *>(pair.gradient.host.data())[i] = 0x1p60f;
  pair.gradient.put();
  pair.put_agreement(values_of(1), 1.0f, 1.0f);
  assert_int_equal(pair.report().verdict.skipped, 0);  // it is 8 * 2^60
  for (size_t i = 0; i < 64; ++i) reinterpret_cast<float *>(pair.gradient.host.data())[i] = 0x1p61f;
  pair.gradient.put();
  pair.put_agreement(values_of(1), 1.0f, 1.0f);
  const DeviceStepReport report = pair.report();
  assert_int_equal(report.verdict.skipped, 1);
  assert_int_equal(report.verdict.found_inf_rank, -1);
}

}  // namespace
}  // namespace mxs::test

int main(int, char **arguments) {
  using namespace mxs::test;
  if (!gpu_is_there(arguments)) return 0;
  const CMUnitTest tests[] = {
      cmocka_unit_test(adamw_gives_the_hosts_bits),
      cmocka_unit_test(what_is_not_finite_skips_the_step),
      cmocka_unit_test(a_norm_that_is_too_large_skips_the_step),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
