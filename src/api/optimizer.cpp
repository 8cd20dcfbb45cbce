// SPDX-License-Identifier: Apache-2.0
// The door of optimizer.h: kernels alone first, the optimizer over units below.
#include "matrixshard/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "api/door.hpp"
#include "base/dtype.hpp"
#include "collective/comm.hpp"
#include "kernels/kernels.hpp"
#include "optimizer/optimizer.hpp"

using namespace mxs;

// ---- Newton-Schulz alone -------------------------------------------------------------------------------------------

struct mxs_orthogonalizer {
  struct Free {
    void operator()(std::byte *memory) const { std::free(memory); }
  };
  int64_t rows = 0, columns = 0;
  std::unique_ptr<mxs::Orthogonalizer> inner;
  std::unique_ptr<std::byte, Free> workspace;
};

namespace {

mxs_status check_preset(mxs_muon_preset preset) {
  if (preset == MXS_MUON_DEFAULT || preset == MXS_MUON_TORCH) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "the Muon preset is %d, not MXS_MUON_DEFAULT or MXS_MUON_TORCH", preset);
}

mxs_status check_backend(mxs_backend backend) {
  if (backend >= MXS_BACKEND_AUTO && backend <= MXS_BACKEND_ONEDNN) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "the backend is %d, not one of MXS_BACKEND_AUTO, _REFERENCE and _ONEDNN",
                   backend);
}

mxs_status check_threads(int32_t thread_count) {
  if (thread_count >= 0 && thread_count <= 4096) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "thread_count is %d, not from 0 to 4096", thread_count);
}

mxs_status check_shape(int64_t rows, int64_t columns) {
  constexpr int64_t elements_max = int64_t{1} << 40;
  if (rows >= 1 && columns >= 1 && rows <= elements_max / columns) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "the matrix is %lld x %lld; both must be at least 1, the product at most 2^40",
                   static_cast<long long>(rows), static_cast<long long>(columns));
}

}  // namespace

mxs_status mxs_orthogonalizer_create(mxs_orthogonalizer **orthogonalizer, int64_t rows, int64_t columns,
                                     const mxs_orthogonalizer_options *given) {
  return fenced([&]() -> mxs_status {
    if (!orthogonalizer) return set_error(MXS_INVALID_ARGUMENT, "orthogonalizer is NULL");
    mxs_orthogonalizer_options options = MXS_ORTHOGONALIZER_OPTIONS_INIT;
    mxs_status status = read_struct(given, sizeof options, "options", &options);
    if (status == MXS_OK) status = check_preset(options.preset);
    if (status == MXS_OK) status = check_backend(options.backend);
    if (status == MXS_OK) status = check_threads(options.thread_count);
    if (status == MXS_OK) status = check_shape(rows, columns);
    if (status != MXS_OK) return status;
    auto made = std::make_unique<mxs_orthogonalizer>();
    made->rows = rows;
    made->columns = columns;
    status = make_orthogonalizer(&made->inner, rows, columns, options.preset, options.backend,
                                 std::max(options.thread_count, 1));
    if (status != MXS_OK) return status;
    const uint64_t bytes = (made->inner->workspace_bytes() + 63) / 64 * 64;
    made->workspace.reset(static_cast<std::byte *>(std::aligned_alloc(64, bytes)));
    if (!made->workspace)
      return set_error(MXS_OUT_OF_MEMORY, "no %llu bytes of workspace for a %lld x %lld matrix",
                       static_cast<unsigned long long>(bytes), static_cast<long long>(rows),
                       static_cast<long long>(columns));
    std::fill_n(made->workspace.get(), bytes, std::byte{0});  // pages are taken here, not in the first run
    made->inner->bind(made->workspace.get());
    *orthogonalizer = made.release();
    return MXS_OK;
  });
}

void mxs_orthogonalizer_destroy(mxs_orthogonalizer **orthogonalizer) {
  if (!orthogonalizer) return;
  delete *orthogonalizer;
  *orthogonalizer = nullptr;
}

const char *mxs_orthogonalizer_backend(const mxs_orthogonalizer *orthogonalizer) {
  return orthogonalizer ? orthogonalizer->inner->backend() : "";
}

uint64_t mxs_orthogonalizer_workspace_bytes(const mxs_orthogonalizer *orthogonalizer) {
  return orthogonalizer ? orthogonalizer->inner->workspace_bytes() : 0;
}

mxs_status mxs_orthogonalize(mxs_orthogonalizer *orthogonalizer, const float *source, float *target) {
  return fenced([&]() -> mxs_status {
    if (!orthogonalizer || !source || !target)
      return set_error(MXS_INVALID_ARGUMENT, "%s is NULL",
                       !orthogonalizer ? "orthogonalizer" : !source ? "source" : "target");
    return orthogonalizer->inner->run(source, target);
  });
}

float mxs_muon_scale(mxs_muon_preset preset, int64_t rows, int64_t columns) {
  return muon_scale(preset, rows, columns);
}

// ---- element passes alone ------------------------------------------------------------------------------------------

namespace {

mxs_status read_pass(const mxs_elements *given, const mxs_group_values *given_values, mxs_elements *elements,
                     mxs_group_values *values) {
  if (!given) return set_error(MXS_INVALID_ARGUMENT, "elements is NULL");
  if (!given_values) return set_error(MXS_INVALID_ARGUMENT, "values is NULL");
  mxs_status status = read_struct(given, sizeof(mxs_elements), "elements", elements);
  if (status == MXS_OK) status = read_struct(given_values, sizeof(mxs_group_values), "values", values);
  if (status == MXS_OK) status = check_kernels();
  return status;
}

mxs_status check_array(const void *array, const char *name, uint64_t count) {
  if (array || count == 0) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "elements.%s is NULL, but this pass needs it", name);
}

mxs_status check_weights(const mxs_elements &elements) {
  if (elements.dtype != MXS_F32 && elements.dtype != MXS_BF16 && elements.dtype != MXS_F16)
    return set_error(MXS_INVALID_ARGUMENT, "elements.dtype is %s; weights are f32, bf16 or f16",
                     mxs_dtype_name(elements.dtype));
  if (!elements.master && elements.dtype != MXS_F32)
    return set_error(MXS_INVALID_ARGUMENT, "elements.master is NULL, but the weights are %s and need an fp32 master",
                     mxs_dtype_name(elements.dtype));
  return check_array(elements.weights, "weights", elements.count);
}

}  // namespace

mxs_status mxs_muon_momentum(const mxs_elements *given, const mxs_group_values *given_values) {
  return fenced([&]() -> mxs_status {
    mxs_elements elements = MXS_ELEMENTS_INIT;
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    mxs_status status = read_pass(given, given_values, &elements, &values);
    if (status == MXS_OK) status = check_array(elements.gradient, "gradient", elements.count);
    if (status == MXS_OK) status = check_array(elements.momentum, "momentum", elements.count);
    if (status == MXS_OK) status = check_array(elements.update, "update", elements.count);
    if (status == MXS_OK) kernels().muon_momentum(elements, values);
    return status;
  });
}

mxs_status mxs_muon_apply(const mxs_elements *given, const mxs_group_values *given_values) {
  return fenced([&]() -> mxs_status {
    mxs_elements elements = MXS_ELEMENTS_INIT;
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    mxs_status status = read_pass(given, given_values, &elements, &values);
    if (status == MXS_OK) status = check_array(elements.update, "update", elements.count);
    if (status == MXS_OK) status = check_weights(elements);
    if (status == MXS_OK) kernels().muon_apply(elements, values);
    return status;
  });
}

mxs_status mxs_adamw(const mxs_elements *given, const mxs_group_values *given_values) {
  return fenced([&]() -> mxs_status {
    mxs_elements elements = MXS_ELEMENTS_INIT;
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    mxs_status status = read_pass(given, given_values, &elements, &values);
    if (status == MXS_OK) status = check_array(elements.gradient, "gradient", elements.count);
    if (status == MXS_OK) status = check_array(elements.exp_avg, "exp_avg", elements.count);
    if (status == MXS_OK) status = check_array(elements.exp_avg_sq, "exp_avg_sq", elements.count);
    if (status == MXS_OK) status = check_weights(elements);
    if (status == MXS_OK && elements.step_number == 0)
      status = set_error(MXS_INVALID_ARGUMENT, "elements.step_number is 0; the first step is 1");
    if (status == MXS_OK) kernels().adamw(elements, values);
    return status;
  });
}

// ---- the norm ------------------------------------------------------------------------------------------------------

mxs_status mxs_norm_add(int64_t *words, const float *gradient, uint64_t count, float gradient_scale,
                        int32_t *not_finite) {
  return fenced([&]() -> mxs_status {
    if (!words) return set_error(MXS_INVALID_ARGUMENT, "words is NULL");
    if (!not_finite) return set_error(MXS_INVALID_ARGUMENT, "not_finite is NULL");
    if (!gradient && count > 0) return set_error(MXS_INVALID_ARGUMENT, "gradient is NULL");
    const mxs_status status = check_kernels();
    if (status != MXS_OK) return status;
    ExactSum sum;
    std::copy_n(words, MXS_NORM_WORDS, sum.words);
    if (!add_squares(gradient, count, gradient_scale, &sum)) *not_finite = 1;
    std::copy_n(sum.words, MXS_NORM_WORDS, words);
    return MXS_OK;
  });
}

double mxs_norm_value(const int64_t *words) {
  if (!words) return 0.0;
  ExactSum sum;
  std::copy_n(words, MXS_NORM_WORDS, sum.words);
  return std::sqrt(sum.value());
}

// ---- the optimizer over units --------------------------------------------------------------------------------------

namespace {

mxs_status check_optimizer(const mxs_optimizer *optimizer) {
  return optimizer ? MXS_OK : set_error(MXS_INVALID_ARGUMENT, "optimizer is NULL");
}

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

// Other ranks, whose arguments are good, must not wait for this one. Nobody to tell if no comm can be seen.
mxs_status refuse_optimizer(mxs_status own, mxs_unit *const *units, uint64_t unit_count,
                            const mxs_optimizer_options &options) {
  if (!units || options.agree) return own;
  for (uint64_t i = 0; i < unit_count; ++i)
    if (units[i]) return settle_over_ranks(units[i]->comm(), own, "mxs_optimizer_create");
  return own;
}

OptimizerComm optimizer_comm(const std::vector<Comm *> &comms, const mxs_optimizer_options &options) {
  Comm *const comm = comms[0];
  OptimizerComm result;
  result.rank = comm->rank;
  result.rank_count = comm->rank_count;
  result.thread_count = options.thread_count > 0 ? options.thread_count : comm->thread_count;
  result.operations = [comms] {
    uint64_t sum = 0;
    for (const Comm *each : comms) sum += each->queue.last();
    return sum;
  };
  if (!options.agree) {
    result.gather = [comm](const void *source, void *target, size_t bytes) {
      return comm->agree(source, target, bytes, 0);
    };
    result.settle = [comm](mxs_status own) { return settle_over_ranks(*comm, own, "mxs_optimizer_create"); };
    return result;
  }
  result.sum = [agree = options.agree, context = options.agree_context](int64_t *words, uint64_t count) {
    const int failure = agree(context, words, count);
    if (failure == 0) return MXS_OK;
    return set_error(MXS_TRANSPORT_FAILED, "options.agree returned %d; nothing changed on this rank", failure);
  };
  return result;
}

}  // namespace

struct mxs_optimizer {
  std::unique_ptr<mxs::Optimizer> inner;
  std::vector<mxs::Comm *> comms;
  std::vector<int> phases;  // of the comms, before the step that runs

  mxs_status check() const {
    for (const Comm *comm : comms) {
      const mxs_status status = comm->check();
      if (status != MXS_OK) return status;
    }
    return MXS_OK;
  }
  // Bytes and time of a step are counted apart.
  void enter_step() {
    for (size_t i = 0; i < comms.size(); ++i) phases[i] = comms[i]->phase.exchange(MXS_PHASE_STEP);
  }
  void leave_step() {
    for (size_t i = 0; i < comms.size(); ++i) comms[i]->phase.store(phases[i]);
  }
};

mxs_status mxs_optimizer_create(mxs_optimizer **optimizer, mxs_unit *const *units, uint64_t unit_count,
                                const mxs_optimizer_options *given) {
  return fenced([&]() -> mxs_status {
    if (!optimizer) return set_error(MXS_INVALID_ARGUMENT, "optimizer is NULL");
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    mxs_status status = read_struct(given, sizeof options, "options", &options);
    if (status == MXS_OK) status = check_preset(options.muon);
    if (status == MXS_OK) status = check_backend(options.backend);
    if (status == MXS_OK) status = check_threads(options.thread_count);
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
    status = make_optimizer(&made->inner, inner_units, optimizer_comm(made->comms, options),
                            {options.muon, options.backend});
    if (status != MXS_OK) return status;
    ++made->comms[0]->children;
    *optimizer = made.release();
    return MXS_OK;
  });
}

mxs_status mxs_optimizer_destroy(mxs_optimizer **optimizer) {
  return fenced([&]() -> mxs_status {
    if (!optimizer || !*optimizer) return MXS_OK;
    --(*optimizer)->comms[0]->children;
    delete *optimizer;
    *optimizer = nullptr;
    return MXS_OK;
  });
}

mxs_status mxs_optimizer_agree(mxs_optimizer *optimizer, const mxs_step *given, mxs_verdict *verdict) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK) status = check_out_struct(verdict, sizeof(mxs_verdict), "verdict");
    if (status == MXS_OK && !given) status = set_error(MXS_INVALID_ARGUMENT, "step is NULL");
    mxs_step step = MXS_STEP_INIT;
    if (status == MXS_OK) status = read_struct(given, sizeof step, "step", &step);
    if (status == MXS_OK) status = optimizer->check();
    mxs_verdict result = MXS_VERDICT_INIT;
    if (status == MXS_OK) status = optimizer->inner->agree(step, &result);
    if (status == MXS_OK) write_struct(result, verdict);
    return status;
  });
}

mxs_status mxs_optimizer_step(mxs_optimizer *optimizer, const mxs_step *given, mxs_verdict *verdict) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK && verdict) status = check_out_struct(verdict, sizeof(mxs_verdict), "verdict");
    if (status == MXS_OK && !given) status = set_error(MXS_INVALID_ARGUMENT, "step is NULL");
    mxs_step step = MXS_STEP_INIT;
    if (status == MXS_OK) status = read_struct(given, sizeof step, "step", &step);
    if (status == MXS_OK) status = optimizer->check();
    if (status != MXS_OK) return status;
    mxs_verdict result = MXS_VERDICT_INIT;
    optimizer->enter_step();
    status = optimizer->inner->step(step, &result);
    optimizer->leave_step();
    if (status == MXS_OK && verdict) write_struct(result, verdict);
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
  return optimizer ? optimizer->inner->step_number() : 0;
}

mxs_status mxs_optimizer_set_step_number(mxs_optimizer *optimizer, uint64_t step_number) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK && step_number > INT64_MAX)
      status = set_error(MXS_INVALID_ARGUMENT, "step_number is %llu, above 2^63 - 1",
                         static_cast<unsigned long long>(step_number));
    if (status == MXS_OK) optimizer->inner->set_step_number(step_number);
    return status;
  });
}

uint64_t mxs_optimizer_state_count(const mxs_optimizer *optimizer) {
  return optimizer ? optimizer->inner->state_count() : 0;
}

mxs_status mxs_optimizer_state(mxs_optimizer *optimizer, uint64_t index, mxs_state_info *info) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK) status = check_out_struct(info, sizeof(mxs_state_info), "info");
    mxs_state_info result = MXS_STATE_INFO_INIT;
    if (status == MXS_OK) status = optimizer->inner->state(index, &result);
    if (status == MXS_OK) write_struct(result, info);
    return status;
  });
}

mxs_status mxs_optimizer_kernel(const mxs_optimizer *optimizer, uint64_t placement, mxs_kernel_info *info) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK) status = check_out_struct(info, sizeof(mxs_kernel_info), "info");
    mxs_kernel_info result = MXS_KERNEL_INFO_INIT;
    if (status == MXS_OK) status = optimizer->inner->kernel(placement, &result);
    if (status == MXS_OK) write_struct(result, info);
    return status;
  });
}

mxs_status mxs_optimizer_memory(const mxs_optimizer *optimizer, mxs_memory *memory) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_optimizer(optimizer);
    if (status == MXS_OK) status = check_out_struct(memory, sizeof(mxs_memory), "memory");
    if (status != MXS_OK) return status;
    mxs_memory result = MXS_MEMORY_INIT;
    result.state = optimizer->inner->state_bytes();
    result.workspace = optimizer->inner->workspace_bytes();
    write_struct(result, memory);
    return MXS_OK;
  });
}
