// SPDX-License-Identifier: Apache-2.0
// Muon in CUDA memory. The launches of one batch of blocks of one shape, as muon.cpp's passes:
//
//   mxs_pass_momentum, mxs_pass_squares    gradient, momentum -> update, its squares
//   Newton-Schulz                          update -> update
//   row squares, mxs_pass_normuon          update, second_momentum -> a factor for each row
//   mxs_pass_apply                         update -> weights
//
//   workspace | updates | squares of runs | of blocks | of rows | row factors | Newton-Schulz |
//
// A block whose momentum is not finite, which only a state has that was damaged before, is left as it is; its
// neighbours are stepped, and the next agreement says so.
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "device/linear.hpp"
#include "kernels/presets.hpp"
#include "optimizer/device_steppers.hpp"

namespace mxs {

namespace {

constexpr uint64_t border = 256;

// Blocks go together as long as their updates are below it: what is small gains by company, what is large needs none.
constexpr uint64_t together_bytes_most = uint64_t{256} << 20;

struct DeviceBlockGroup {
  uint64_t rows = 0, columns = 0;
  double scale = 1;
  std::vector<uint64_t> places, seconds;  // first elements in the matrices, and in second_momentum
  const uint64_t *places_there = nullptr, *seconds_there = nullptr;  // device
  uint64_t at_a_time = 1;
  std::unique_ptr<DeviceOrthogonalizer> orthogonalizer;

  uint64_t elements() const { return rows * columns; }
};

class DeviceMuon final : public DeviceStepper {
 public:
  DeviceMuon(Device &device, const StepMatrices &matrices, const Stepper &host)
      : device_(device), matrices_(matrices), parts_(host.state_parts()), flops_(host.flops()) {}

  mxs_status prepare(const OptimizerSettings &settings) {
    mxs_status status = complete(settings.muon, &recipe_);
    if (status == MXS_OK) status = weights_for_passes(&weights_, matrices_, recipe_.decay);
    if (status != MXS_OK) return status;
    uint64_t second = 0;
    for (const StepBlock &block : matrices_.blocks) {
      take_block(block, second);
      second += static_cast<uint64_t>(block.rows);
    }
    for (DeviceBlockGroup &group : groups_) {
      group.at_a_time = std::clamp<uint64_t>(together_bytes_most / (group.elements() * sizeof(float)), 1,
                                             group.places.size());
      status = make_device_orthogonalizer(&group.orthogonalizer, device_, static_cast<int64_t>(group.rows),
                                          static_cast<int64_t>(group.columns), group.at_a_time, recipe_.newton_schulz,
                                          recipe_.choice);
      if (status != MXS_OK) return status;
      take_room(group);
      describe(*group.orthogonalizer);
    }
    return put_places();
  }

  uint64_t workspace_bytes() const override {
    return update_bytes_ + run_bytes_ + block_bytes_ + row_bytes_ + factor_bytes_ + orthogonalizer_bytes_;
  }
  const char *backend() const override { return backend_.c_str(); }
  mxs_dtype product_dtype() const override { return product_dtype_; }
  double flops() const override { return flops_; }

  mxs_status enqueue(const DeviceStepCall &call, DeviceStream stream) override {
    for (const DeviceBlockGroup &group : groups_)
      for (uint64_t first = 0; first < group.places.size(); first += group.at_a_time) {
        const uint64_t count = std::min<uint64_t>(group.at_a_time, group.places.size() - first);
        const mxs_status status = enqueue_batch(group, first, count, call, stream);
        if (status != MXS_OK) return status;
      }
    return MXS_OK;
  }

 private:
  // ---- at create ----

  void take_block(const StepBlock &block, uint64_t second) {
    const uint64_t rows = static_cast<uint64_t>(block.rows), columns = static_cast<uint64_t>(block.columns);
    const double scale = static_cast<double>(update_scale(recipe_.scale, block.scale_rows, block.scale_columns)) *
                         static_cast<double>(recipe_.scale_factor);
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const DeviceBlockGroup &each) {
      return each.rows == rows && each.columns == columns && each.scale == scale;
    });
    if (group == groups_.end()) {
      groups_.emplace_back();
      group = groups_.end() - 1;
      group->rows = rows;
      group->columns = columns;
      group->scale = scale;
    }
    group->places.push_back(static_cast<uint64_t>(block.first_row * matrices_.columns + block.first_column));
    group->seconds.push_back(second);
  }

  void take_room(const DeviceBlockGroup &group) {
    const auto most = [](uint64_t *bytes, uint64_t wanted) { *bytes = std::max(*bytes, align_up(wanted, border)); };
    const uint64_t runs = MatrixRuns(group.rows, group.columns).run_count(), rows = group.at_a_time * group.rows;
    most(&update_bytes_, group.at_a_time * group.elements() * sizeof(float));
    most(&run_bytes_, group.at_a_time * runs * sizeof(double));
    most(&block_bytes_, group.at_a_time * sizeof(double));
    most(&orthogonalizer_bytes_, group.orthogonalizer->workspace_bytes());
    if (!recipe_.normuon) return;
    most(&row_bytes_, 2 * rows * sizeof(double));
    most(&factor_bytes_, rows * sizeof(float));
  }

  void describe(const DeviceOrthogonalizer &orthogonalizer) {
    const char *const name = orthogonalizer.backend();
    if (backend_.find(name) == std::string::npos) backend_.append(backend_.empty() ? "" : ", ").append(name);
    if (product_dtype_ != MXS_BF16) product_dtype_ = orthogonalizer.product_dtype();
  }

  // Where blocks begin, for the passes: once and for all.
  mxs_status put_places() {
    std::vector<uint64_t> all;
    for (const DeviceBlockGroup &group : groups_) {
      all.insert(all.end(), group.places.begin(), group.places.end());
      all.insert(all.end(), group.seconds.begin(), group.seconds.end());
    }
    mxs_status status = device_.allocate(all.size() * sizeof(uint64_t), &places_);
    if (status == MXS_OK) status = device_.copy(places_.data(), all.data(), all.size() * sizeof(uint64_t), nullptr);
    if (status == MXS_OK) status = device_.synchronize(nullptr);
    if (status != MXS_OK) return status;
    const uint64_t *next = reinterpret_cast<const uint64_t *>(places_.data());
    for (DeviceBlockGroup &group : groups_) {
      group.places_there = next;
      group.seconds_there = next + group.places.size();
      next += 2 * group.places.size();
    }
    return MXS_OK;
  }

  // ---- at each step ----

  mxs_status enqueue_batch(const DeviceBlockGroup &group, uint64_t first, uint64_t count, const DeviceStepCall &call,
                           DeviceStream stream) {
    std::byte *next = call.workspace;
    const auto room = [&](uint64_t bytes) {
      std::byte *const place = next;
      next += bytes;
      return place;
    };
    Batch batch;
    batch.group = &group;
    batch.first = first;
    batch.count = count;
    batch.update = reinterpret_cast<float *>(room(update_bytes_));
    batch.run_squares = reinterpret_cast<double *>(room(run_bytes_));
    batch.squares = reinterpret_cast<double *>(room(block_bytes_));
    batch.row_squares = reinterpret_cast<double *>(room(row_bytes_));
    batch.factors = reinterpret_cast<float *>(room(factor_bytes_));
    mxs_status status = enqueue_momentum(batch, call, stream);
    if (status == MXS_OK)
      status = group.orthogonalizer->enqueue(batch.update, count, batch.squares, &call.state_of_step->skip, next,
                                             stream);
    if (status == MXS_OK && recipe_.normuon) status = enqueue_normuon(batch, call, stream);
    return status == MXS_OK ? enqueue_apply(batch, call, stream) : status;
  }

  struct Batch {
    const DeviceBlockGroup *group = nullptr;
    uint64_t first = 0, count = 0;
    float *update = nullptr, *factors = nullptr;
    double *run_squares = nullptr, *squares = nullptr, *row_squares = nullptr;

    PassBlocks blocks(int64_t matrix_columns) const {
      return {group->places_there + first, static_cast<uint32_t>(count), group->rows, group->columns,
              static_cast<uint64_t>(matrix_columns)};
    }
  };

  float *state_part(const DeviceStepCall &call, size_t index) const {
    return reinterpret_cast<float *>(call.state + parts_[index].offset);
  }

  mxs_status enqueue_momentum(const Batch &batch, const DeviceStepCall &call, DeviceStream stream) {
    const DeviceBlockGroup &group = *batch.group;
    MomentumArguments momentum;
    momentum.step = pass_step(call);
    momentum.weights = at(weights_, call);
    momentum.blocks = batch.blocks(matrices_.columns);
    momentum.momentum_kind = recipe_.momentum;
    momentum.nesterov = recipe_.nesterov;
    momentum.gradient = static_cast<const float *>(call.gradient);
    momentum.momentum = state_part(call, 0);
    momentum.update = batch.update;
    momentum.run_squares = batch.run_squares;
    const uint64_t runs = MatrixRuns(group.rows, group.columns).run_count();
    const mxs_status status =
        launch_pass(device_, "mxs_pass_momentum", momentum, batch.count * runs * 32, stream);
    if (status != MXS_OK) return status;
    BlockSquaresArguments squares;
    squares.step = pass_step(call);
    squares.rows = group.rows;
    squares.columns = group.columns;
    squares.count = static_cast<uint32_t>(batch.count);
    squares.run_squares = batch.run_squares;
    squares.squares = batch.squares;
    return launch_pass(device_, "mxs_pass_squares", squares, batch.count * pass_threads, stream);
  }

  mxs_status enqueue_normuon(const Batch &batch, const DeviceStepCall &call, DeviceStream stream) {
    const DeviceBlockGroup &group = *batch.group;
    RowSquaresArguments rows;
    rows.step = pass_step(call);
    rows.rows = group.rows;
    rows.columns = group.columns;
    rows.count = static_cast<uint32_t>(batch.count);
    rows.update = batch.update;
    rows.row_squares = batch.row_squares;
    const mxs_status status =
        launch_pass(device_, "mxs_pass_row_squares", rows, batch.count * group.rows * 32, stream);
    if (status != MXS_OK) return status;
    NormuonArguments factors;
    factors.step = pass_step(call);
    factors.rows = group.rows;
    factors.columns = group.columns;
    factors.count = static_cast<uint32_t>(batch.count);
    factors.beta2 = static_cast<double>(recipe_.normuon_beta2);
    factors.epsilon = static_cast<double>(recipe_.normuon_epsilon);
    factors.squares = batch.squares;
    factors.row_squares = batch.row_squares;
    factors.seconds = group.seconds_there + batch.first;
    factors.second_momentum = state_part(call, 1);
    factors.factors = batch.factors;
    return launch_pass(device_, "mxs_pass_normuon", factors, batch.count * pass_threads, stream);
  }

  mxs_status enqueue_apply(const Batch &batch, const DeviceStepCall &call, DeviceStream stream) {
    ApplyArguments apply;
    apply.step = pass_step(call);
    apply.weights = at(weights_, call);
    apply.blocks = batch.blocks(matrices_.columns);
    apply.scale = batch.group->scale;
    apply.update = batch.update;
    apply.row_factors = recipe_.normuon ? batch.factors : nullptr;
    apply.squares = batch.squares;
    return launch_pass(device_, "mxs_pass_apply", apply, batch.count * batch.group->elements(), stream);
  }

  Device &device_;
  const StepMatrices matrices_;
  const std::vector<StatePart> parts_;
  const double flops_;
  MuonRecipe recipe_;
  PassWeights weights_;
  std::vector<DeviceBlockGroup> groups_;
  DeviceMemory places_;
  std::string backend_;
  mxs_dtype product_dtype_ = MXS_F32;
  uint64_t update_bytes_ = 0, run_bytes_ = 0, block_bytes_ = 0, row_bytes_ = 0, factor_bytes_ = 0;
  uint64_t orthogonalizer_bytes_ = 0;
};

}  // namespace

mxs_status make_device_muon(std::unique_ptr<DeviceStepper> *stepper, Device &device, const StepMatrices &matrices,
                            const OptimizerSettings &settings, const Stepper &host) {
  auto made = std::make_unique<DeviceMuon>(device, matrices, host);
  const mxs_status status = made->prepare(settings);
  if (status == MXS_OK) *stepper = std::move(made);
  return status;
}

}  // namespace mxs
