// SPDX-License-Identifier: Apache-2.0
#include "bench/stepper.hpp"

#include <cstring>
#include <random>

namespace bench {

std::unique_ptr<std::byte, Stepper::Free> Stepper::allocate(uint64_t bytes) {
  const uint64_t rounded = (bytes + 127) / 64 * 64;
  std::unique_ptr<std::byte, Free> memory(static_cast<std::byte *>(std::aligned_alloc(64, rounded)));
  if (!memory) throw std::bad_alloc();
  std::memset(memory.get(), 0, rounded);  // pages are taken here
  return memory;
}

Stepper::Stepper(mxs_stepper *stepper, const Batch &batch, mxs_dtype dtype)
    : stepper_(stepper), state_(allocate(mxs_stepper_state_bytes(stepper))),
      workspace_(allocate(mxs_stepper_workspace_bytes(stepper))), gradient_(batch.elements()),
      fp32_(batch.elements()), update_(batch.elements()) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < gradient_.size(); i++) {
    gradient_[i] = normal(random);
    fp32_[i] = gradient_[i] * 0.5f;
  }
  mxs::check(mxs_stepper_describe(stepper, &info_));
  mxs::check(mxs_stepper_init(stepper, state_.get()));
  if (dtype == MXS_BF16) bf16_.resize(batch.elements());
  values_.lr = 1e-4f;
  call_.values = &values_;
  call_.gradient = gradient_.data();
  call_.weights = dtype == MXS_BF16 ? static_cast<void *>(bf16_.data()) : fp32_.data();
  call_.master = dtype == MXS_BF16 ? fp32_.data() : nullptr;
  call_.state = state_.get();
  call_.workspace = workspace_.get();
  call_.workspace_bytes = mxs_stepper_workspace_bytes(stepper);
}

Stepper::~Stepper() { mxs_stepper_destroy(&stepper_); }

void Stepper::step() { mxs::check(mxs_stepper_step(stepper_, &call_, nullptr)); }

void Stepper::update() { mxs::check(mxs_stepper_update(stepper_, &call_, update_.data(), nullptr)); }

void Stepper::apply() { mxs::check(mxs_stepper_apply(stepper_, &call_, update_.data())); }

namespace {

mxs_matrices matrices_of(const Batch &batch, mxs_dtype dtype) {
  mxs_matrices matrices = MXS_MATRICES_INIT;
  matrices.dtype = dtype;
  matrices.rows = batch.rows;
  matrices.columns = batch.columns;
  matrices.count = batch.count;
  return matrices;
}

std::unique_ptr<Stepper> stepper_of(mxs_status status, mxs_stepper *made, const Batch &batch, mxs_dtype dtype) {
  if (status == MXS_NOT_BUILT) return nullptr;
  mxs::check(status);
  return std::make_unique<Stepper>(made, batch, dtype);
}

}  // namespace

std::unique_ptr<Stepper> make_muon_stepper(const Batch &batch, int threads, mxs_dtype dtype) {
  const mxs_matrices matrices = matrices_of(batch, dtype);
  mxs_muon_options options = MXS_MUON_OPTIONS_INIT;
  options.thread_count = threads;
  mxs_stepper *made = nullptr;
  const mxs_status status = mxs_muon_create(&made, &matrices, &options);
  return stepper_of(status, made, batch, dtype);
}

std::unique_ptr<Stepper> make_adamw_stepper(const Batch &batch, int threads, mxs_dtype dtype) {
  const mxs_matrices matrices = matrices_of(batch, dtype);
  mxs_adamw_options options = MXS_ADAMW_OPTIONS_INIT;
  options.thread_count = threads;
  mxs_stepper *made = nullptr;
  const mxs_status status = mxs_adamw_create(&made, &matrices, &options);
  return stepper_of(status, made, batch, dtype);
}

}  // namespace bench
