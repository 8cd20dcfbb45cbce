// SPDX-License-Identifier: Apache-2.0
// The door of kernels.h but for its steppers and presets: Newton-Schulz alone, element passes, the norm.
#include "matrixshard/kernels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "api/door.hpp"
#include "api/strides.hpp"
#include "base/sole_call.hpp"
#include "base/team.hpp"
#include "base/words.hpp"
#include "kernels/kernels.hpp"
#include "kernels/newton_schulz.hpp"
#include "kernels/presets.hpp"
#include "kernels/recipe.hpp"
#include "optimizer/agreement.hpp"
#include "optimizer/optimizer.hpp"
#include "plan/memory.hpp"

using namespace mxs;

// ---- Newton-Schulz alone -------------------------------------------------------------------------------------------

struct mxs_orthogonalizer {
  struct Free {
    void operator()(std::byte *memory) const { std::free(memory); }
  };
  int64_t rows = 0, columns = 0;
  std::atomic<bool> busy{false};
  std::unique_ptr<mxs::Team> team;
  std::unique_ptr<mxs::Orthogonalizer> inner;
  std::unique_ptr<std::byte, Free> workspace;
  // Of a batch. They grow with the first batch that is larger than any before.
  static constexpr size_t batch_count = 1024;
  std::vector<mxs::MatrixSource> sources;
  std::vector<mxs::MatrixTarget> targets;
  std::vector<double> squares;

  void resize(size_t count) {
    sources.resize(count);
    targets.resize(count);
    squares.resize(count);
  }
  mxs_status find_squares();
};

namespace {

mxs_status check_shape(int64_t rows, int64_t columns) {
  constexpr int64_t elements_max = int64_t{1} << 40;
  if (rows >= 1 && columns >= 1 && rows <= elements_max / columns) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "the matrix is %lld x %lld; both must be at least 1, the product at most 2^40",
                   static_cast<long long>(rows), static_cast<long long>(columns));
}

mxs_status no_workspace(uint64_t bytes, int64_t rows, int64_t columns) {
  return set_error(MXS_OUT_OF_MEMORY, "no %llu bytes of workspace for a %lld x %lld matrix",
                   static_cast<unsigned long long>(bytes), static_cast<long long>(rows),
                   static_cast<long long>(columns));
}

}  // namespace

// Of all sources, before any target is touched.
mxs_status mxs_orthogonalizer::find_squares() {
  std::atomic<bool> finite{true};
  team->run(sources.size(), [&](size_t i, int) {
    if (mxs::find_squares(sources[i], static_cast<size_t>(rows), static_cast<size_t>(columns), &squares[i]) != MXS_OK)
      finite = false;
  });
  if (finite) return MXS_OK;
  size_t first = 0;
  while (mxs::find_squares(sources[first], static_cast<size_t>(rows), static_cast<size_t>(columns), &squares[first]) ==
         MXS_OK)
    ++first;
  return set_error(MXS_INVALID_ARGUMENT, "source matrix %zu of %zu has an element that is not finite; no target was "
                   "touched", first, sources.size());
}

mxs_status mxs_orthogonalizer_create(mxs_orthogonalizer **orthogonalizer, int64_t rows, int64_t columns,
                                     const mxs_newton_schulz *given) {
  return fenced([&]() -> mxs_status {
    if (!orthogonalizer) return set_error(MXS_INVALID_ARGUMENT, "orthogonalizer is NULL");
    mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
    mxs_status status = read_struct(given, sizeof options, "options", &options);
    if (status == MXS_OK) status = check_preset(MXS_RULE_MUON, options.preset);
    if (status == MXS_OK) status = check_backend(options.backend);
    if (status == MXS_OK) status = check_threads(options.thread_count);
    if (status == MXS_OK && (options.algorithm < MXS_ALGORITHM_AUTO || options.algorithm > MXS_ALGORITHM_GRAM))
      status = set_error(MXS_INVALID_ARGUMENT, "the algorithm is %d, which is none of MXS_ALGORITHM_...",
                         options.algorithm);
    if (status == MXS_OK) status = check_shape(rows, columns);
    NewtonSchulzRecipe recipe;
    if (status == MXS_OK) status = make_recipe(options, &recipe);
    if (status != MXS_OK) return status;
    const int thread_count = std::max(options.thread_count, 1);
    // Before kernels are chosen: for 2^20 x 2^20 that took 43 s, and then there was no memory.
    const uint64_t planned = newton_schulz_workspace_bytes(rows, columns, thread_count);
    if (!std::unique_ptr<std::byte, mxs_orthogonalizer::Free>(static_cast<std::byte *>(std::malloc(planned))))
      return no_workspace(planned, rows, columns);
    auto made = std::make_unique<mxs_orthogonalizer>();
    made->rows = rows;
    made->columns = columns;
    status = Team::create(&made->team, thread_count);
    if (status == MXS_OK)
      status = make_orthogonalizer(&made->inner, rows, columns, recipe, {options.backend, options.algorithm},
                                   made->team.get());
    if (status != MXS_OK) return status;
    const uint64_t bytes = (made->inner->workspace_bytes() + 63) / 64 * 64;
    made->workspace.reset(static_cast<std::byte *>(std::aligned_alloc(64, bytes)));
    if (!made->workspace) return no_workspace(bytes, rows, columns);
    std::fill_n(made->workspace.get(), bytes, std::byte{0});  // pages are taken here, not in the first run
    made->inner->bind(made->workspace.get());
    made->sources.reserve(mxs_orthogonalizer::batch_count);
    made->targets.reserve(mxs_orthogonalizer::batch_count);
    made->squares.reserve(mxs_orthogonalizer::batch_count);
    *orthogonalizer = made.release();
    return MXS_OK;
  });
}

void mxs_orthogonalizer_destroy(mxs_orthogonalizer **orthogonalizer) {
  if (!orthogonalizer) return;
  delete *orthogonalizer;
  *orthogonalizer = nullptr;
}

const char *mxs_backend_name(mxs_backend backend) { return backend_name(backend); }

const char *mxs_orthogonalizer_backend(const mxs_orthogonalizer *orthogonalizer) {
  return orthogonalizer ? orthogonalizer->inner->backend() : "";
}

uint64_t mxs_orthogonalizer_workspace_bytes(const mxs_orthogonalizer *orthogonalizer) {
  return orthogonalizer ? orthogonalizer->inner->workspace_bytes() : 0;
}

double mxs_orthogonalizer_flops(const mxs_orthogonalizer *orthogonalizer) {
  return orthogonalizer ? orthogonalizer->inner->flops() : 0.0;
}

mxs_status mxs_orthogonalize(mxs_orthogonalizer *orthogonalizer, const float *source, float *target) {
  return mxs_orthogonalize_batch(orthogonalizer, source, nullptr, target, nullptr, 1);
}

mxs_status mxs_orthogonalize_batch(mxs_orthogonalizer *orthogonalizer, const float *given_source,
                                   const mxs_strides *source_strides, float *given_target,
                                   const mxs_strides *target_strides, int64_t count) {
  return fenced([&]() -> mxs_status {
    if (!orthogonalizer || !given_source || !given_target)
      return set_error(MXS_INVALID_ARGUMENT, "%s is NULL",
                       !orthogonalizer ? "orthogonalizer" : !given_source ? "source" : "target");
    if (count < 0 || count > int64_t{1} << 24)
      return set_error(MXS_INVALID_ARGUMENT, "count is %lld, not from 0 to 2^24", static_cast<long long>(count));
    if (count == 0) return MXS_OK;
    const SoleCall sole(&orthogonalizer->busy);
    if (sole.status("orthogonalizer") != MXS_OK) return MXS_HELD;
    const BatchShape shape = {orthogonalizer->rows, orthogonalizer->columns, count};
    BatchPlace source, target;
    mxs_status status = read_place("source_strides", given_source, source_strides, shape, &source);
    if (status == MXS_OK)
      status = read_place("target_strides", given_target, target_strides, shape, &target);
    if (status == MXS_OK) status = check_apart(source, target);
    if (status != MXS_OK) return status;
    orthogonalizer->resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      orthogonalizer->sources[static_cast<size_t>(i)] = {given_source + i * source.matrix,
                                                         static_cast<size_t>(source.row)};
      orthogonalizer->targets[static_cast<size_t>(i)] = {given_target + i * target.matrix,
                                                         static_cast<size_t>(target.row)};
    }
    status = orthogonalizer->find_squares();
    if (status != MXS_OK) return status;
    return orthogonalizer->inner->run(orthogonalizer->sources.data(), orthogonalizer->targets.data(),
                                      static_cast<size_t>(count), orthogonalizer->squares.data());
  });
}

// ---- element passes alone ------------------------------------------------------------------------------------------

namespace {

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

using Pass = void (*)(const mxs_elements &elements, const mxs_group_values &values);

// check(elements): are the arrays there that this pass needs?
template <class Check>
mxs_status run_pass(const mxs_elements *given, const mxs_group_values *given_values, Pass pass, Check &&check) {
  return fenced([&]() -> mxs_status {
    if (!given) return set_error(MXS_INVALID_ARGUMENT, "elements is NULL");
    if (!given_values) return set_error(MXS_INVALID_ARGUMENT, "values is NULL");
    mxs_elements elements = MXS_ELEMENTS_INIT;
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    mxs_status status = read_struct(given, sizeof elements, "elements", &elements);
    if (status == MXS_OK) status = read_struct(given_values, sizeof values, "values", &values);
    if (status == MXS_OK) status = check_values("values", values);
    if (status == MXS_OK && !(std::isfinite(elements.gradient_scale) && std::isfinite(elements.update_scale)))
      status = set_error(MXS_INVALID_ARGUMENT, "elements.gradient_scale is %g and update_scale %g; both must be finite",
                         static_cast<double>(elements.gradient_scale), static_cast<double>(elements.update_scale));
    if (status == MXS_OK) status = check_kernels();
    if (status == MXS_OK) status = check(elements);
    if (status == MXS_OK) pass(elements, values);
    return status;
  });
}

}  // namespace

mxs_status mxs_muon_momentum(const mxs_elements *given, const mxs_group_values *values) {
  return run_pass(given, values, muon_momentum, [](const mxs_elements &elements) {
    mxs_status status = check_array(elements.gradient, "gradient", elements.count);
    if (status == MXS_OK) status = check_array(elements.momentum, "momentum", elements.count);
    return status == MXS_OK ? check_array(elements.update, "update", elements.count) : status;
  });
}

mxs_status mxs_muon_apply(const mxs_elements *given, const mxs_group_values *values) {
  return run_pass(given, values, muon_apply, [](const mxs_elements &elements) {
    const mxs_status status = check_array(elements.update, "update", elements.count);
    return status == MXS_OK ? check_weights(elements) : status;
  });
}

mxs_status mxs_adamw(const mxs_elements *given, const mxs_group_values *values) {
  return run_pass(given, values, adamw, [](const mxs_elements &elements) {
    mxs_status status = check_array(elements.gradient, "gradient", elements.count);
    if (status == MXS_OK) status = check_array(elements.exp_avg, "exp_avg", elements.count);
    if (status == MXS_OK) status = check_array(elements.exp_avg_sq, "exp_avg_sq", elements.count);
    if (status == MXS_OK) status = check_weights(elements);
    if (status == MXS_OK && elements.step_number == 0)
      status = set_error(MXS_INVALID_ARGUMENT, "elements.step_number is 0; the first step is 1");
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
    if (!add_squares(gradient, MXS_F32, count, gradient_scale, &sum)) *not_finite = 1;
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

float mxs_clip_factor(double norm, float clip_norm) { return clip_factor(norm, clip_norm); }
