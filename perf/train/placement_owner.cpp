// SPDX-License-Identifier: Apache-2.0
// owner: how does one use this library?
//
// Plan, units, optimizer; gather, wait and release around a unit's computation; gradient and reduce behind it; a step.
#include <algorithm>
#include <vector>

#include "check.hpp"
#include "host_mirror.hpp"
#include "ledger.hpp"
#include "placement.hpp"
#include "slots.hpp"

namespace train {
namespace {

class Owner : public Placement {
 public:
  // previous: of a placement that will fill this one.
  Owner(const Model &model, mxs_comm *comm, const PlacementOptions &options, const mxs_plan *previous = nullptr,
        const std::vector<int32_t> &previous_ranks = {})
      : model_(model), comm_(comm), options_(options), release_(options.release), rank_(rank_of(comm)) {
    plan_ = model.plan(comm, options.memory == MXS_CUDA ? device_granule() : 0, previous, previous_ranks);
    if (options.memory == MXS_CUDA) mirror_ = std::make_unique<HostMirror>(model);
    memory_options_.slots = slot_count();
    memory_options_.gradient_slots = gradient_slot_count(model);
    memory_options_.by_reference = options.gather == MXS_GATHER_BY_REFERENCE;
    memory_options_.thread_count = options.thread_count;
    memory_options_.backup = options.backup;
    make_units(options);
    mxs_optimizer_options optimizer_options = MXS_OPTIMIZER_OPTIONS_INIT;
    optimizer_options.thread_count = options.thread_count;
    optimizer_options.backup = options.backup;
    mxs_shampoo_options shampoo = MXS_SHAMPOO_OPTIONS_INIT;
    mxs_soap_options soap = MXS_SOAP_OPTIONS_INIT;
    switch (model.shape.matrix_rule) {
      case MXS_RULE_SHAMPOO: shampoo.preset = options.preset; break;
      case MXS_RULE_SOAP: soap.preset = options.preset; break;
      default: optimizer_options.preset = options.preset;
    }
    optimizer_options.shampoo_options = &shampoo;
    optimizer_options.soap_options = &soap;
    const std::vector<mxs_unit *> units = trained().units;
    mxs_optimizer *made = nullptr;
    check(mxs_optimizer_create(&made, units.data(), units.size(), &optimizer_options), "mxs_optimizer_create");
    optimizer_.reset(made);
    if (previous == nullptr) fill_shards(options.seed);
  }

  void gather(int unit) override { check(mxs_unit_gather(units_[unit].get(), nullptr), "mxs_unit_gather"); }
  void wait(int unit) override {
    check(mxs_unit_wait(units_[unit].get(), nullptr), "mxs_unit_wait");
    if (mirror_) mirror_->fetch_weights(units_[unit].get(), unit);
  }
  void release(int unit, bool after_forward) override {
    check(mxs_unit_release(units_[unit].get(), after_forward ? release_ : MXS_FREE, nullptr), "mxs_unit_release");
  }

  const void *weights(int tensor) override {
    if (mirror_) return mirror_->weights(tensor);
    mxs_view view = MXS_VIEW_INIT;
    check(mxs_unit_tensor(unit_of(tensor), tensor, &view), "mxs_unit_tensor");
    return view.data;
  }
  void *gradient(int tensor, bool add) override {
    if (mirror_) return mirror_->gradient(tensor, add);
    mxs_view view = MXS_VIEW_INIT;
    check(mxs_unit_gradient(unit_of(tensor), tensor, add ? MXS_ADD : MXS_WRITE, &view), "mxs_unit_gradient");
    return view.data;
  }
  void reduce(int unit) override {
    if (counts_) {
      if (mirror_) mirror_->give_gradients(units_[unit].get(), unit);
      check(mxs_unit_reduce(units_[unit].get(), nullptr), "mxs_unit_reduce");
    } else {
      if (mirror_) mirror_->drop_gradients(unit);
      check(mxs_unit_discard(units_[unit].get()), "mxs_unit_discard");
      check(mxs_unit_skip(units_[unit].get(), nullptr), "mxs_unit_skip");
    }
  }
  void count_gradients(bool counts) override { counts_ = counts; }

  void finish_gradients() override {
    for (const UnitOwner &unit : units_) check(mxs_unit_wait_reduce(unit.get(), nullptr), "mxs_unit_wait_reduce");
  }
  mxs_verdict step(const mxs_step &step) override {
    mxs_verdict verdict = MXS_VERDICT_INIT;
    check(mxs_optimizer_step(optimizer_.get(), &step, &verdict), "mxs_optimizer_step");
    return verdict;
  }

  void visit_masters(const MasterVisitor &visitor) override {
    each_own_shard([&](const mxs_placement &placement, const mxs_view &view) {
      visitor(placement.tensor, placement.element_offset, on_host(view), placement.element_count);
    });
  }

  Trained trained() override {
    Trained trained;
    for (const UnitOwner &unit : units_) trained.units.push_back(unit.get());
    trained.optimizer = optimizer_.get();
    return trained;
  }

  std::unique_ptr<Placement> go_on(mxs_comm *comm, const std::vector<int32_t> &was, mxs_recovery *recovery) override {
    auto next = std::make_unique<Owner>(model_, comm, options_, plan_.get(), was);
    check(mxs_optimizer_recover(next->optimizer_.get(), optimizer_.get(), recovery), "mxs_optimizer_recover");
    return next;
  }

  mxs_memory predicted() override {
    mxs_memory memory = MXS_MEMORY_INIT;
    check(mxs_plan_memory(plan_.get(), rank_, &memory_options_, &memory), "mxs_plan_memory");
    return memory;
  }

  mxs_memory counted() override {
    mxs_memory total = MXS_MEMORY_INIT;
    check(mxs_optimizer_memory(optimizer_.get(), &total), "mxs_optimizer_memory");
    for (const UnitOwner &unit : units_) {
      mxs_memory memory = MXS_MEMORY_INIT;
      check(mxs_unit_memory(unit.get(), &memory), "mxs_unit_memory");
      total.weights += memory.weights;
      total.masters += memory.masters;
      total.gradients += memory.gradients;
      total.slack += memory.slack;
      total.slots = memory.slots;  // of the pool that all units share
      total.gradient_slots = memory.gradient_slots;
    }
    add_up(&total);
    return total;
  }

 private:
  // Free: the unit at work and the next. Pinning needs slots to spare: half of the units, or all.
  int slot_count() const {
    if (release_ == MXS_FREE) return weight_slot_count;
    return release_ == MXS_PIN ? model_.unit_count : std::min(model_.unit_count, 2 + model_.unit_count / 2);
  }

  void make_units(const PlacementOptions &options) {
    mxs_unit_options unit_options = MXS_UNIT_OPTIONS_INIT;
    unit_options.gather = options.gather;
    unit_options.slots = memory_options_.slots;
    unit_options.gradient_slots = memory_options_.gradient_slots;
    unit_options.memory = options.memory;
    unit_options.flags = options.rank_order ? MXS_RANK_ORDER : 0;
    for (int unit = 0; unit < model_.unit_count; ++unit) {
      mxs_unit *made = nullptr;
      check(mxs_unit_create(&made, comm_, plan_.get(), unit, &unit_options), "mxs_unit_create");
      units_.emplace_back(made);
    }
  }

  void fill_shards(uint64_t seed) {
    each_own_shard([&](const mxs_placement &placement, const mxs_view &view) {
      float *const target = on_host(view);
      initial_weights(model_.tensors[placement.tensor], seed, placement.element_offset, placement.element_count,
                      target);
      if (mirror_) check(mxs_copy(view.data, target, view.bytes, nullptr), "mxs_copy");
      check(mxs_unit_commit(units_[placement.unit].get(), &view), "mxs_unit_commit");
    });
  }

  // Segments that begin there are mapped once, and never copied (unit.h).
  static uint64_t device_granule() {
    mxs_cuda_device device = MXS_CUDA_DEVICE_INIT;
    check(mxs_cuda_device_query(0, &device), "mxs_cuda_device_query");
    return device.granule_bytes;
  }

  // Masters where the host can reach them, until the next call.
  float *on_host(const mxs_view &view) {
    if (!mirror_) return static_cast<float *>(view.data);
    shard_.resize(view.bytes / sizeof(float));
    check(mxs_copy(shard_.data(), view.data, view.bytes, nullptr), "mxs_copy");
    return shard_.data();
  }

  template <class Body>
  void each_own_shard(Body &&body) {
    for (uint64_t p = 0; p < mxs_plan_placement_count(plan_.get()); ++p) {
      mxs_placement placement = MXS_PLACEMENT_INIT;
      check(mxs_plan_placement(plan_.get(), p, &placement), "mxs_plan_placement");
      if (placement.owner != rank_) continue;
      mxs_view view = MXS_VIEW_INIT;
      check(mxs_unit_shard(units_[placement.unit].get(), p, &view), "mxs_unit_shard");
      body(placement, view);
    }
  }

  mxs_unit *unit_of(int tensor) const { return units_[model_.tensors[tensor].unit].get(); }

  const Model &model_;
  mxs_comm *comm_;
  const PlacementOptions options_;
  int release_, rank_;
  bool counts_ = true;
  PlanOwner plan_;
  mxs_memory_options memory_options_ = MXS_MEMORY_OPTIONS_INIT;
  std::unique_ptr<HostMirror> mirror_;  // of CUDA memory
  std::vector<float> shard_;
  std::vector<UnitOwner> units_;
  OptimizerOwner optimizer_;  // after the units: destroyed before them
};

}  // namespace

std::unique_ptr<Placement> make_owner(const Model &model, mxs_comm *comm, const PlacementOptions &options) {
  return std::make_unique<Owner>(model, comm, options);
}

}  // namespace train
