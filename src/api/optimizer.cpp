// SPDX-License-Identifier: Apache-2.0
// The door of optimizer.h's first part, the optimizer over units; kernels alone are in kernels.cpp.
#include "matrixshard/optimizer.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "api/door.hpp"
#include "api/optimizer.hpp"
#include "api/rule_options.hpp"
#include "collective/collective.hpp"
#include "collective/comm.hpp"
#include "collective/device_collective.hpp"
#include "collective/device_comm.hpp"
#include "collective/group_sum.hpp"
#include "kernels/kernels.hpp"
#include "kernels/presets.hpp"
#include "optimizer/optimizer.hpp"

using namespace mxs;

namespace {

mxs_status check_units(mxs_unit *const *units, uint64_t unit_count) {
  if (unit_count == 0 || !units)
    return set_error(MXS_INVALID_ARGUMENT, "an optimizer needs units: units is %p, unit_count %llu",
                     static_cast<const void *>(units), static_cast<unsigned long long>(unit_count));
  for (uint64_t i = 0; i < unit_count; ++i)
    if (!units[i]) return set_error(MXS_INVALID_ARGUMENT, "units[%llu] is NULL", static_cast<unsigned long long>(i));
  for (uint64_t i = 0; i < unit_count; ++i) {
    const mxs_status status = units[i]->comm().check();
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// The comms of all units, each once.
std::vector<Comm *> comms_of(const std::vector<Unit *> &units) {
  std::vector<Comm *> comms;
  for (const Unit *unit : units)
    if (std::find(comms.begin(), comms.end(), &unit->comm()) == comms.end()) comms.push_back(&unit->comm());
  return comms;
}

// The replicas of a unit that can be seen, or nullptr.
Comm *replicas_of(mxs_unit *const *units, uint64_t unit_count) {
  for (uint64_t i = 0; units && i < unit_count; ++i)
    if (units[i] && units[i]->replicas()) return units[i]->replicas();
  return nullptr;
}

// Events that tie a caller's stream to the comm's.
struct EventPair {
  explicit EventPair(Device &of) : device(of) {}
  ~EventPair() {
    device.destroy_event(before);
    device.destroy_event(after);
  }
  EventPair(const EventPair &) = delete;
  mxs_status make() {
    mxs_status status = before ? MXS_OK : device.create_event(&before);
    if (status == MXS_OK && !after) status = device.create_event(&after);
    return status;
  }
  Device &device;
  DeviceEvent before = nullptr, after = nullptr;
};

constexpr char elsewhere[] = "the optimizer of another replica";

// Other ranks, whose arguments are good, must not wait for this one. Nobody to tell if no comm can be seen.
mxs_status refuse_optimizer(mxs_status own, mxs_unit *const *units, uint64_t unit_count,
                            const mxs_optimizer_options &options) {
  if (!units || options.agree) return own;
  for (uint64_t i = 0; i < unit_count; ++i)
    if (units[i]) {
      const mxs_status status = settle_over_ranks(units[i]->comm(), own, "mxs_optimizer_create");
      Comm *const replicas = replicas_of(units, unit_count);
      return replicas ? settle_over_ranks(*replicas, status, elsewhere) : status;
    }
  return own;
}

// NCCL's sum of a step's words. As an operation of the comm's queue it is watched like a gather: a peer that dies, an
// asynchronous error and the deadline end it, also where nobody but a stream waits. In a graph nobody sees it start.
class StepSum {
 public:
  StepSum(Comm &comm, DeviceComm &joined) : comm_(comm), joined_(joined), events_(joined.device()) {}
  StepSum(const StepSum &) = delete;
  ~StepSum() {
    if (operation_ && operation_->in_flight()) comm_.wait(sequence_, 0, MXS_AGREE);
  }

  mxs_status sum(int64_t *words, uint64_t count, DeviceStream stream) {
    bool captured = false;
    mxs_status status = joined_.device().is_capturing(stream, &captured);
    if (status != MXS_OK) return status;
    if (captured) return sum_in_graph(words, count, stream);
    if (!operation_) status = make(count);
    if (status == MXS_OK) status = operation_->start(words, words, stream, &sequence_);
    return status == MXS_OK ? operation_->wait_stream(stream) : status;
  }

 private:
  mxs_status make(uint64_t count) {
    Layout words;
    words.rank_count = comm_.rank_count;
    words.bytes = count * sizeof(int64_t);
    DeviceCollectiveOptions options;
    options.kind = MXS_AGREE;
    options.layout = &words;
    return make_device_operation(&operation_, comm_, options);
  }

  mxs_status sum_in_graph(int64_t *words, uint64_t count, DeviceStream stream) {
    mxs_status status = events_.make();
    if (status == MXS_OK) status = joined_.device().record(events_.before, stream);
    if (status == MXS_OK) status = joined_.device().wait(joined_.stream(), events_.before);
    if (status != MXS_OK) return status;
    // A rank that doesn't take part leaves the others waiting: from here on a failure is one of the comm.
    status = joined_.group()->sum(words, count, joined_.stream());
    if (status == MXS_OK) status = joined_.device().record(events_.after, joined_.stream());
    if (status == MXS_OK) status = joined_.device().wait(stream, events_.after);
    return status == MXS_OK ? MXS_OK : comm_.fail(status);
  }

  Comm &comm_;
  DeviceComm &joined_;
  EventPair events_;
  std::unique_ptr<DeviceOperation> operation_;
  uint64_t sequence_ = 0;
};

// What the device or NCCL has failed in, no rank can go on from.
mxs_status fail_all(const std::vector<Comm *> &comms, mxs_status status) {
  for (Comm *comm : comms) comm->fail(status);
  return comms[0]->check();
}

// Other ranks have come to this step as well, and must not wait for one whose device has failed in it.
mxs_status told_to_all(const mxs_optimizer &optimizer, mxs_status status) {
  return status == MXS_DEVICE_FAILED ? fail_all(optimizer.comms, status) : status;
}

// Polls: nobody posts when a stream has come so far. Peers are looked after by the first comm.
mxs_status wait_on_device(const std::vector<Comm *> &comms, Device &device, DeviceEvent event) {
  const Comm::Inside inside(*comms[0]);
  Comm::Wait turn = comms[0]->begin_wait(0);
  for (;;) {
    comms[0]->look(&turn);
    mxs_status status = device.query(event);
    if (status == MXS_OK) return status;
    if (status != MXS_IN_PROGRESS) return fail_all(comms, status);
    for (Comm *comm : comms) {
      status = comm->progress(&turn.more);
      if (status != MXS_OK) return status;
      const DeviceComm *const joined = device_of(*comm);
      if (joined && joined->group()) status = joined->group()->check();
      if (status != MXS_OK) return fail_all(comms, status);
    }
    turn.more = true;
    status = comms[0]->pause(&turn, -1, "a step on the device");
    if (status != MXS_OK) return status;
    sched_yield();
  }
}

// Units in CUDA memory. NCCL's sum runs on the comm's stream, in the order of its collectives, which is that of all
// ranks.
void join_device(const std::vector<Comm *> &comms, bool by_nccl, OptimizerComm *result) {
  result->wait_on_device = [comms](Device &device, DeviceEvent event) { return wait_on_device(comms, device, event); };
  if (!by_nccl) return;
  if (comms[0]->rank_count == 1) {
    result->sum_on_device = [](int64_t *, uint64_t, DeviceStream) { return MXS_OK; };
    return;
  }
  DeviceComm *const joined = device_of(*comms[0]);
  if (!joined || !joined->group()) return;
  result->sum_on_device = [sum = std::make_shared<StepSum>(*comms[0], *joined)](
                              int64_t *words, uint64_t count, DeviceStream stream) {
    return sum->sum(words, count, stream);
  };
}

// Backups' bytes on their way: a reshard. Not of the step's phase, in which no matrix bytes move.
class ReshardExchange final : public Exchange {
 public:
  explicit ReshardExchange(Comm &comm) : comm_(comm) {}

  mxs_status make(const Layout &source, const Layout &target) {
    CollectiveOptions options;
    options.messages.kind = MXS_RESHARD;
    options.messages.layout = &source;
    options.messages.target_layout = &target;
    options.own_memory = true;
    return create_collective(&collective_, comm_, options);
  }
  // Gathers and reduces go before.
  mxs_status start(const void *source, void *target) override {
    constexpr int priority = -1;
    uint64_t request = 0;
    const int phase = comm_.phase.exchange(MXS_PHASE_OTHER);
    const mxs_status status = collective_->start(source, target, priority, &request);
    comm_.phase.store(phase);
    return status;
  }
  mxs_status wait() override { return collective_->wait(0); }
  bool complete() const override { return !collective_->in_flight(); }
  void keep(std::shared_ptr<void> memory) override {
    comm_.queue.bury(std::make_unique<KeptMemory>(std::move(memory)));
  }

 private:
  // Is never started: what is buried goes when the comm's links are closed.
  class KeptMemory final : public Operation {
   public:
    explicit KeptMemory(std::shared_ptr<void> memory) : memory_(std::move(memory)) {}
    mxs_status begin(uint64_t) override { return MXS_OK; }
    mxs_status advance(Turn *) override { return MXS_OK; }
    bool uses_messages() const override { return false; }
    int kind() const override { return MXS_RESHARD; }
    const char *name() const override { return "reshard"; }

   private:
    std::shared_ptr<void> memory_;
  };

  Comm &comm_;
  std::unique_ptr<Collective> collective_;
};

// Backups and recoveries.
void join_backups(Comm &comm, OptimizerComm *result) {
  result->make_exchange = [&comm](std::unique_ptr<Exchange> *exchange, const Layout &source, const Layout &target) {
    auto made = std::make_unique<ReshardExchange>(comm);
    const mxs_status status = made->make(source, target);
    if (status == MXS_OK) *exchange = std::move(made);
    return status;
  };
  result->settle_recovery = [&comm](mxs_status own) { return settle_over_ranks(comm, own, "mxs_optimizer_recover"); };
  result->session = comm.session;
  result->has_failed = [&comm] { return comm.failed(); };
}

// What a backup is refused for by looking at arguments.
mxs_status check_backup(const mxs_optimizer_options &options, const std::vector<Unit *> &units,
                        const Comm *replicas) {
  if (options.backup != 0 && options.backup != 1)
    return set_error(MXS_INVALID_ARGUMENT, "options.backup is %d, not 0 or 1", options.backup);
  if (options.backup == 0) return MXS_OK;
  if (options.agree)
    return set_error(MXS_NOT_BUILT, "options.backup with options.agree: this release backs up units of one comm");
  if (replicas)
    return set_error(MXS_NOT_BUILT, "options.backup of units with replicas: each replica has all weights already; this "
                     "release backs up units without");
  for (const Unit *unit : units)
    if (unit->device())
      return set_error(MXS_NOT_BUILT, "options.backup of unit %d, which is in CUDA memory: this release backs up units "
                       "in host memory", unit->index());
  return MXS_OK;
}

OptimizerComm optimizer_comm(const std::vector<Comm *> &comms, Comm *replicas,
                             const mxs_optimizer_options &options) {
  Comm *const comm = comms[0];
  OptimizerComm result;
  result.rank = comm->rank;
  result.rank_count = comm->rank_count;
  result.tracer = comm->tracer.get();
  result.thread_count = options.thread_count > 0 ? options.thread_count : comm->thread_count;
  result.operations = [comms] {
    uint64_t sum = 0;
    for (const Comm *each : comms) sum += each->queue.last();
    return sum;
  };
  if (!options.agree) {
    result.gather = [comm](const void *source, void *target, size_t bytes) {
      return comm->agree(source, target, bytes, 0, "step", Comm::Use::step);
    };
    result.settle = [comm](mxs_status own) { return settle_over_ranks(*comm, own, "mxs_optimizer_create"); };
    join_backups(*comm, &result);
    if (!replicas) return result;
    result.replica_count = replicas->rank_count;
    result.gather_replicas = [replicas](const void *source, void *target, size_t bytes) {
      return replicas->agree(source, target, bytes, 0, "step", Comm::Use::step);
    };
    result.settle_replicas = [replicas](mxs_status own) { return settle_over_ranks(*replicas, own, elsewhere); };
    return result;
  }
  result.sum = [agree = options.agree, context = options.agree_context](int64_t *words, uint64_t count) {
    const int failure = agree(context, words, count);
    if (failure == 0) return MXS_OK;
    return set_error(MXS_TRANSPORT_FAILED, "options.agree returned %d; nothing changed on this rank", failure);
  };
  return result;
}

// Fills *settings from options; *newton_schulz has room for what they may point to.
mxs_status read_settings(const mxs_optimizer_options &options, OptimizerSettings *settings,
                         mxs_newton_schulz *newton_schulz) {
  mxs_status status = check_backend(options.backend);
  if (status == MXS_OK) status = check_threads(options.thread_count);
  const auto read = [&](const auto *given, const char *name, auto *own) {
    if (status == MXS_OK) status = read_struct(given, sizeof *own, name, own);
  };
  if (status == MXS_OK)
    status = read_muon_options(options.muon_options, "muon_options", &settings->muon, newton_schulz);
  read(options.shampoo_options, "shampoo_options", &settings->shampoo);
  read(options.soap_options, "soap_options", &settings->soap);
  read(options.adamw_options, "adamw_options", &settings->adamw);
  if (status != MXS_OK) return status;
  if (options.rounding != MXS_ROUND_NEAREST && options.rounding != MXS_ROUND_STOCHASTIC)
    return set_error(MXS_INVALID_ARGUMENT, "options.rounding is %d, not MXS_ROUND_NEAREST or MXS_ROUND_STOCHASTIC",
                     options.rounding);
  if (!options.muon_options) settings->muon.preset = options.preset;
  for (mxs_backend *backend : {&settings->muon.backend, &settings->shampoo.backend, &settings->soap.backend})
    if (*backend == MXS_BACKEND_AUTO) *backend = options.backend;
  settings->backend = options.backend;
  settings->rounding = options.rounding;
  settings->seed = options.rounding == MXS_ROUND_STOCHASTIC ? options.seed : 0;
  settings->backup = options.backup == 1;
  return MXS_OK;
}

// In a forked child the state's memory may be, but the units' is not.
mxs_status check_optimizer(const mxs_optimizer *optimizer) {
  if (!optimizer) return set_error(MXS_INVALID_ARGUMENT, "optimizer is NULL");
  return optimizer->comms[0]->check_process();
}

// What agree and step begin with.
mxs_status read_step(const mxs_optimizer *optimizer, const mxs_step *given, mxs_step *step) {
  if (!given) return set_error(MXS_INVALID_ARGUMENT, "step is NULL");
  const mxs_status status = read_struct(given, offsetof(mxs_step, missing), "step", step);
  if (status != MXS_OK) return status;
  if (step->stream && !optimizer->inner->device())
    return set_error(MXS_INVALID_ARGUMENT, "step.stream is set, but a stream orders CUDA memory alone, and the units "
                     "are in host memory; pass NULL");
  return optimizer->check();
}

// Runs body(info), and gives the info to the caller if all went well.
// `least`: the size that the struct had when it was released first.
template <class Struct, class Body>
mxs_status with_out(const mxs_optimizer *optimizer, Struct *out, const char *name, Struct value, Body &&body,
                    size_t least = sizeof(Struct)) {
  return fenced([&] {
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK) status = check_out_struct(out, least, name);
    if (status == MXS_OK) status = body(&value);
    if (status == MXS_OK) write_struct(value, out);
    return status;
  });
}

}  // namespace

mxs_status mxs_optimizer_create(mxs_optimizer **optimizer, mxs_unit *const *units, uint64_t unit_count,
                                const mxs_optimizer_options *given) {
  return fenced([&]() -> mxs_status {
    if (!optimizer) return set_error(MXS_INVALID_ARGUMENT, "optimizer is NULL");
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    OptimizerSettings settings;
    mxs_newton_schulz newton_schulz = MXS_NEWTON_SCHULZ_INIT;
    mxs_status status = read_struct(given, offsetof(mxs_optimizer_options, muon_options), "options", &options);
    if (status == MXS_OK) status = check_preset(MXS_RULE_MUON, options.preset);
    if (status == MXS_OK) status = read_settings(options, &settings, &newton_schulz);
    if (status == MXS_OK) status = check_units(units, unit_count);
    if (status == MXS_OK) status = check_kernels();
    if (status != MXS_OK) return refuse_optimizer(status, units, unit_count, options);
    const std::vector<Unit *> inner_units(units, units + unit_count);
    auto made = std::make_unique<mxs_optimizer>();
    made->comms = comms_of(inner_units);
    made->phases.resize(made->comms.size());
    if (made->comms.size() > 1 && !options.agree) {
      status = set_error(MXS_INVALID_ARGUMENT,
                         "the units are of %zu comms; set options.agree, which sums over all ranks",
                         made->comms.size());
      return refuse_optimizer(status, units, unit_count, options);
    }
    Comm *const replicas = replicas_of(units, unit_count);
    for (const Unit *unit : inner_units)
      if (unit->replicas() != replicas && !options.agree) {
        status = set_error(MXS_INVALID_ARGUMENT, "unit %d has other replicas than the others, or none; set "
                           "options.agree, which sums over all ranks", unit->index());
        return refuse_optimizer(status, units, unit_count, options);
      }
    status = check_backup(options, inner_units, replicas);
    if (status != MXS_OK) return refuse_optimizer(status, units, unit_count, options);
    OptimizerComm comm = optimizer_comm(made->comms, replicas, options);
    if (inner_units[0]->device()) join_device(made->comms, !options.agree && !replicas, &comm);
    comm.make_sum = [sums = &made->sums](Unit &unit, const std::vector<int> &members, uint64_t values_max,
                                         std::function<mxs_status(float *, uint64_t)> *sum) {
      std::unique_ptr<GroupSum> group;
      const mxs_status status = GroupSum::create(&group, unit.comm(), members, values_max);
      if (status != MXS_OK || !group) return status;
      *sum = [inner = group.get()](float *values, uint64_t count) { return inner->sum(values, count); };
      sums->push_back(std::move(group));
      return MXS_OK;
    };
    status = make_optimizer(&made->inner, inner_units, std::move(comm), settings);
    if (status != MXS_OK) return status;
    ++made->comms[0]->children;
    *optimizer = made.release();
    return MXS_OK;
  });
}

mxs_status mxs_optimizer_destroy(mxs_optimizer **optimizer) {
  return fenced([&]() -> mxs_status {
    if (!optimizer || !*optimizer) return MXS_OK;
    const mxs_status status = check_optimizer(*optimizer);
    if (status != MXS_OK) return status;
    --(*optimizer)->comms[0]->children;
    delete *optimizer;
    *optimizer = nullptr;
    return MXS_OK;
  });
}

mxs_status mxs_optimizer_agree(mxs_optimizer *optimizer, const mxs_step *given, mxs_verdict *verdict) {
  return with_out<mxs_verdict>(optimizer, verdict, "verdict", MXS_VERDICT_INIT, [&](mxs_verdict *result) {
    mxs_step step = MXS_STEP_INIT;
    const mxs_status status = read_step(optimizer, given, &step);
    return status == MXS_OK ? told_to_all(*optimizer, optimizer->inner->agree(step, result)) : status;
  });
}

mxs_status mxs_optimizer_step(mxs_optimizer *optimizer, const mxs_step *given, mxs_verdict *verdict) {
  return fenced([&] {
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK && verdict) status = check_out_struct(verdict, sizeof(mxs_verdict), "verdict");
    if (status != MXS_OK) return status;
    mxs_step step = MXS_STEP_INIT;
    status = read_step(optimizer, given, &step);
    if (status != MXS_OK) return status;
    mxs_verdict result = MXS_VERDICT_INIT;
    optimizer->enter_step();
    status = told_to_all(*optimizer, optimizer->inner->step(step, verdict ? &result : nullptr));
    optimizer->leave_step();
    if (status == MXS_OK && verdict) write_struct(result, verdict);
    return status;
  });
}

mxs_status mxs_optimizer_set_values(mxs_optimizer *optimizer, const mxs_step *given) {
  return fenced([&] {
    mxs_step step = MXS_STEP_INIT;
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK) status = read_step(optimizer, given, &step);
    return status == MXS_OK ? optimizer->inner->set_values(step) : status;
  });
}

mxs_status mxs_optimizer_verdict(mxs_optimizer *optimizer, mxs_verdict *verdict) {
  return with_out<mxs_verdict>(optimizer, verdict, "verdict", MXS_VERDICT_INIT, [&](mxs_verdict *result) {
    return optimizer->inner->latest_verdict(result);
  });
}

mxs_status mxs_optimizer_recover(mxs_optimizer *optimizer, mxs_optimizer *failed, mxs_recovery *recovery) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK) status = optimizer->check();
    if (status != MXS_OK) return status;
    // Other ranks, whose arguments are good, must not wait for this one.
    mxs_status own = failed ? check_optimizer(failed) : set_error(MXS_INVALID_ARGUMENT, "failed is NULL");
    if (own == MXS_OK && recovery) own = check_out_struct(recovery, sizeof(mxs_recovery), "recovery");
    if (!optimizer->inner->can_recover())
      return own == MXS_OK ? set_error(MXS_INVALID_ARGUMENT, "the new optimizer was made without options.backup") : own;
    mxs_recovery result = MXS_RECOVERY_INIT;
    status = optimizer->inner->recover(own, failed ? failed->inner.get() : nullptr, &result);
    if (status == MXS_OK && recovery) write_struct(result, recovery);
    return status;
  });
}

mxs_status mxs_optimizer_clear(mxs_optimizer *optimizer) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK) status = optimizer->check();
    return status == MXS_OK ? optimizer->inner->clear() : status;
  });
}

uint64_t mxs_optimizer_step_number(const mxs_optimizer *optimizer) {
  uint64_t number = 0;
  if (!optimizer) return number;
  fenced([&] {
    const bool may_ask = !optimizer->inner->device() || optimizer->comms[0]->check_process() == MXS_OK;
    number = may_ask ? optimizer->inner->step_number() : optimizer->inner->known_step_number();
    return MXS_OK;
  });
  return number;
}

mxs_status mxs_optimizer_set_step_number(mxs_optimizer *optimizer, uint64_t step_number) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK && step_number > INT64_MAX)
      status = set_error(MXS_INVALID_ARGUMENT, "step_number is %llu, above 2^63 - 1",
                         static_cast<unsigned long long>(step_number));
    return status == MXS_OK ? optimizer->inner->set_step_number(step_number) : status;
  });
}

uint64_t mxs_optimizer_state_count(const mxs_optimizer *optimizer) {
  return optimizer ? optimizer->inner->state_count() : 0;
}

mxs_status mxs_optimizer_state(mxs_optimizer *optimizer, uint64_t index, mxs_state_info *out) {
  return with_out<mxs_state_info>(optimizer, out, "info", MXS_STATE_INFO_INIT,
                                  [&](mxs_state_info *info) {
                                    const mxs_status status = optimizer->inner->state(index, info);
                                    if (status == MXS_OK) optimizer->inner->give_state();
                                    return status;
                                  });
}

mxs_status mxs_optimizer_kernel(const mxs_optimizer *optimizer, uint64_t placement, mxs_kernel_info *out) {
  return with_out<mxs_kernel_info>(
      optimizer, out, "info", MXS_KERNEL_INFO_INIT,
      [&](mxs_kernel_info *info) { return optimizer->inner->kernel(placement, info); },
      offsetof(mxs_kernel_info, product_dtype));
}

mxs_status mxs_optimizer_memory(const mxs_optimizer *optimizer, mxs_memory *out) {
  const auto fill = [&](mxs_memory *memory) {
    memory->state = optimizer->inner->state_bytes();
    memory->workspace = optimizer->inner->workspace_bytes();
    memory->backup = optimizer->inner->backup_bytes();
    return MXS_OK;
  };
  return with_out<mxs_memory>(optimizer, out, "memory", MXS_MEMORY_INIT, fill, offsetof(mxs_memory, own_slots));
}
