// SPDX-License-Identifier: Apache-2.0
// The list of numeric tables and matrix backends. The only file of this room that knows what was built.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <string>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "kernels/kernels.hpp"
#include "kernels/linear.hpp"
#include "kernels/newton_schulz.hpp"
#include "mxs_build.h"

namespace mxs {

#if defined(__x86_64__)
extern const Kernels x86_64_v3_kernels, x86_64_v4_kernels;
#endif

namespace {

// The tables that this CPU can run, reference first, widest last.
struct Tables {
  std::array<const Kernels *, 3> list{};
  int count = 0;
  Tables() {
    list[count++] = &reference_kernels();
#if defined(__x86_64__)
    // What the levels need beyond these came with the same CPUs.
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    if (v3) list[count++] = &x86_64_v3_kernels;
    if (v4) list[count++] = &x86_64_v4_kernels;
#endif
  }
};

const Tables &tables() {
  static const Tables all;
  return all;
}

struct Choice {
  const Kernels *kernels = nullptr;
  std::string refused;  // MXS_KERNELS, if it can't be obeyed
  Choice() {
    const Tables &all = tables();
    kernels = all.list[all.count - 1];
    const std::optional<std::string> forced = environment_text("MXS_KERNELS");
    if (!forced) return;
    refused = *forced;
    for (int i = 0; i < all.count; ++i)
      if (*forced == all.list[i]->name) {
        kernels = all.list[i];
        refused.clear();
      }
  }
};

const Choice &choice() {
  static const Choice made;
  return made;
}

}  // namespace

const Kernels &kernels() { return *choice().kernels; }

mxs_status check_kernels() {
  if (choice().refused.empty()) return MXS_OK;
  return set_error(MXS_ENVIRONMENT, "MXS_KERNELS is \"%.64s\"; this CPU has: reference%s%s", choice().refused.c_str(),
                   tables().count > 1 ? ", x86-64-v3" : "", tables().count > 2 ? ", x86-64-v4" : "");
}

const Kernels *const *all_kernels(int *count) {
  *count = tables().count;
  return tables().list.data();
}

namespace {

#if MXS_HAVE_ONEDNN
constexpr bool have_onednn = true;
constexpr auto make_onednn = make_onednn_orthogonalizer;
constexpr auto name_of_onednn = onednn_name;
#else
constexpr bool have_onednn = false;
std::string name_of_onednn() { return "no onednn"; }
mxs_status make_onednn(std::unique_ptr<Orthogonalizer> *, NewtonSchulzShape, const NewtonSchulzRecipe &, Team *) {
  return set_error(MXS_NOT_BUILT, "this build has no oneDNN (libdnnl-dev); take MXS_BACKEND_REFERENCE or _AUTO");
}
#endif

#if defined(__x86_64__)
constexpr auto make_tiles = make_tiles_orthogonalizer;
constexpr auto name_of_tiles = tiles_name;
#else
std::string name_of_tiles() { return "no tiles"; }
mxs_status make_tiles(std::unique_ptr<Orthogonalizer> *, NewtonSchulzShape, const NewtonSchulzRecipe &, Team *) {
  return set_error(MXS_NOT_BUILT, "the tiles backend is for x86-64; take MXS_BACKEND_AUTO");
}
#endif

// Below it conversions cost more than they save, and bf16 has nothing to win.
constexpr size_t bf16_rows_least = 32;

bool cpu_multiplies_bf16() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__builtin_cpu_supports("avx512f") || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  const bool amx_bf16 = (edx >> 22) & 1;
  if (!__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) return amx_bf16;
  const bool avx512_bf16 = (eax >> 5) & 1;
  return amx_bf16 || avx512_bf16;
#else
  return false;
#endif
}

}  // namespace

std::string arithmetic_name(mxs_backend backend) {
  std::string name = kernels().name;
  if (backend == MXS_BACKEND_TILES || (backend == MXS_BACKEND_AUTO && cpu_multiplies_bf16()))
    name.append(" ").append(name_of_tiles());
  if (backend == MXS_BACKEND_ONEDNN || (backend == MXS_BACKEND_AUTO && cpu_multiplies_bf16()))
    name.append(" ").append(name_of_onednn());
  return name;
}

// AUTO takes tiles where the CPU multiplies bf16 in hardware; where MXS_TILES forbids them, oneDNN if it has a fast
// path for the shape. Small matrices take the reference, by AUTO and by oneDNN. What was chosen is in backend().
mxs_status make_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, int64_t rows, int64_t columns,
                               const NewtonSchulzRecipe &recipe, OrthogonalizerChoice choice, Team *team) {
  const mxs_status status = check_kernels();
  if (status != MXS_OK) return status;
  const mxs_backend backend = choice.backend;
  if (backend == MXS_BACKEND_OPENBLAS)
    return set_error(MXS_NOT_BUILT, "backend %d is not in this release", backend);
  if (choice.algorithm == MXS_ALGORITHM_GRAM)
    return set_error(MXS_NOT_BUILT, "Newton-Schulz on the Gram matrix is not in this release");
  const NewtonSchulzShape shape = {rows, columns};
  const bool takes_tiles = backend == MXS_BACKEND_AUTO && shape.n() >= bf16_rows_least;
  if (backend == MXS_BACKEND_TILES || takes_tiles) {
    const mxs_status made = make_tiles(orthogonalizer, shape, recipe, team);
    if (made != MXS_NOT_BUILT || backend == MXS_BACKEND_TILES) return made;
  }
  const bool wanted = backend == MXS_BACKEND_ONEDNN || (backend == MXS_BACKEND_AUTO && cpu_multiplies_bf16());
  // A build without it refuses small matrices, too: whoever asked for it must hear.
  if (wanted && (shape.n() >= bf16_rows_least || !have_onednn)) {
    const mxs_status made = make_onednn(orthogonalizer, shape, recipe, team);
    if (made == MXS_OK || backend == MXS_BACKEND_ONEDNN) return made;
    log_line(MXS_LOG_INFO, "newton-schulz %lld x %lld: %s", static_cast<long long>(rows),
             static_cast<long long>(columns), last_error_text());
  }
  *orthogonalizer = make_reference_orthogonalizer(shape, recipe, team);
  return MXS_OK;
}

namespace {
#if MXS_HAVE_OPENBLAS
constexpr auto find_openblas_linear = openblas_linear;
#else
mxs_status find_openblas_linear(const Linear **) {
  return set_error(MXS_NOT_BUILT, "this build has no OpenBLAS (libopenblas-dev); take MXS_BACKEND_REFERENCE or _AUTO");
}
#endif
}  // namespace

mxs_status linear_of(mxs_backend backend, const Linear **linear) {
  const mxs_status status = check_kernels();
  if (status != MXS_OK) return status;
  if (backend == MXS_BACKEND_REFERENCE) {
    *linear = &reference_linear();
    return MXS_OK;
  }
  if (backend == MXS_BACKEND_OPENBLAS) return find_openblas_linear(linear);
  if (backend != MXS_BACKEND_AUTO)
    return set_error(MXS_NOT_BUILT,
                     "backend %d has no fp32 eigenvalues and QR; take MXS_BACKEND_OPENBLAS, _REFERENCE or _AUTO",
                     backend);
  if (find_openblas_linear(linear) == MXS_OK) return MXS_OK;
  log_line(MXS_LOG_INFO, "linear algebra by the reference: %s", last_error_text());
  *linear = &reference_linear();
  return MXS_OK;
}

}  // namespace mxs
