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
#include "base/words.hpp"
#include "kernels/kernels.hpp"
#include "kernels/linear.hpp"
#include "kernels/newton_schulz.hpp"
#include "kernels/shared.hpp"
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
constexpr auto make_shared_tiles = make_shared_tiles_orthogonalizer;
constexpr auto name_of_tiles = tiles_name;
#else
mxs_status make_shared_tiles(std::unique_ptr<Orthogonalizer> *, SharedShape, const NewtonSchulzRecipe &, Team *,
                             GramSum) {
  return set_error(MXS_NOT_BUILT, "the tiles backend is for x86-64; take MXS_BACKEND_AUTO");
}
std::string name_of_tiles() { return "no tiles"; }
mxs_status make_tiles(std::unique_ptr<Orthogonalizer> *, NewtonSchulzShape, const NewtonSchulzRecipe &, Team *) {
  return set_error(MXS_NOT_BUILT, "the tiles backend is for x86-64; take MXS_BACKEND_AUTO");
}
#endif

#if MXS_HAVE_OPENBLAS
constexpr auto find_openblas = openblas_linear;
#else
mxs_status find_openblas(const Linear **) {
  return set_error(MXS_NOT_BUILT, "this build has no OpenBLAS (libopenblas-dev); take MXS_BACKEND_REFERENCE or _AUTO");
}
#endif

// Below it conversions cost more than they save, and bf16 has nothing to win.
constexpr size_t bf16_rows_least = 32;

// From m = 2 n on the Gram matrix saves fp32 more products than it costs. CPU time of OpenBLAS's gram beside standard:
// 1.22 at 768 x 768, 0.89 at 1024 x 2048, 0.67 at 768 x 3072, 0.74 at 256 x 1024 (Xeon with AVX-512, one thread, 5
// steps, least of 4 to 7 runs).
constexpr size_t gram_sides_least = 2;

// The same of the reference, which serves few rows: 1.00 at 24 x 48 and 1.09 at 31 x 62, 0.89 at 24 x 72 and 0.93 at
// 31 x 93, 0.47 at 16 x 4096, 0.46 at 31 x 4096 (the same CPU, mxs-perf step --local --threads 1 --backends
// reference-standard,reference-gram).
constexpr size_t narrow_gram_sides_least = 3;

// Of fewer rows than 32 OpenBLAS takes as long as the reference or longer where that has a table for the CPU: 1.0 of
// its CPU time at 16 x 4096 and 1.2 at 31 x 4096 with x86-64-v4, 1.05 and 1.13 with x86-64-v3 and Haswell's OpenBLAS,
// 2 at 16 x 16. CPUs for which there is no table have vectors in OpenBLAS only, which pays from here on.
constexpr size_t openblas_rows_least = 16;

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

// MXS_BACKEND where AUTO was asked for.
mxs_status read_backend(mxs_backend *backend) {
  if (*backend != MXS_BACKEND_AUTO) return MXS_OK;
  const std::optional<std::string> text = environment_text("MXS_BACKEND");
  if (!text) return MXS_OK;
  if (number_of_word(backend_words, *text, backend) && *backend != MXS_BACKEND_AUTO) return MXS_OK;
  return set_error(MXS_ENVIRONMENT, "MXS_BACKEND is \"%.64s\", not %s", text->c_str(),
                   all_words(backend_words, MXS_BACKEND_AUTO + 1).c_str());
}

bool takes_gram(const NewtonSchulzShape &shape, mxs_algorithm algorithm, size_t sides_least) {
  if (algorithm != MXS_ALGORITHM_AUTO) return algorithm == MXS_ALGORITHM_GRAM;
  return shape.m() >= sides_least * shape.n();
}

mxs_status make_openblas(std::unique_ptr<Orthogonalizer> *orthogonalizer, NewtonSchulzShape shape,
                         const NewtonSchulzRecipe &recipe, mxs_algorithm algorithm, Team *team) {
  const Linear *openblas = nullptr;
  const mxs_status status = find_openblas(&openblas);
  if (status != MXS_OK) return status;
  const bool gram = takes_gram(shape, algorithm, gram_sides_least);
  *orthogonalizer = make_linear_orthogonalizer(shape, recipe, gram, *openblas, team);
  return MXS_OK;
}

mxs_status make_reference(std::unique_ptr<Orthogonalizer> *orthogonalizer, NewtonSchulzShape shape,
                          const NewtonSchulzRecipe &recipe, mxs_algorithm algorithm, Team *team) {
  const bool narrow = shape.n() < bf16_rows_least;
  if (takes_gram(shape, algorithm, narrow ? narrow_gram_sides_least : SIZE_MAX))
    *orthogonalizer = make_linear_orthogonalizer(shape, recipe, true, reference_linear(), team);
  else
    *orthogonalizer = make_reference_orthogonalizer(shape, recipe, team);
  return MXS_OK;
}

mxs_status make_one(std::unique_ptr<Orthogonalizer> *orthogonalizer, NewtonSchulzShape shape,
                    const NewtonSchulzRecipe &recipe, OrthogonalizerChoice choice, Team *team) {
  const bool bf16 = choice.backend == MXS_BACKEND_ONEDNN || choice.backend == MXS_BACKEND_TILES;
  if (bf16 && choice.algorithm == MXS_ALGORITHM_GRAM)
    return set_error(MXS_NOT_BUILT, "Newton-Schulz on the Gram matrix is for fp32: in bf16 it diverges; take "
                                    "MXS_BACKEND_AUTO, _OPENBLAS or _REFERENCE");
  switch (choice.backend) {
    case MXS_BACKEND_TILES: return make_tiles(orthogonalizer, shape, recipe, team);
    case MXS_BACKEND_OPENBLAS: return make_openblas(orthogonalizer, shape, recipe, choice.algorithm, team);
    case MXS_BACKEND_ONEDNN:
      // A build without it refuses small matrices, too: whoever asked for it must hear.
      if (shape.n() >= bf16_rows_least || !have_onednn) return make_onednn(orthogonalizer, shape, recipe, team);
      break;
    default: break;
  }
  return make_reference(orthogonalizer, shape, recipe, choice.algorithm, team);
}

}  // namespace

BackendOrder backends_in_order(const NewtonSchulzShape &shape, mxs_algorithm algorithm, bool cpu_has_bf16) {
  BackendOrder order;
  const bool gram = algorithm == MXS_ALGORITHM_GRAM;
  if (cpu_has_bf16 && !gram && shape.n() >= bf16_rows_least) {
    order.add(MXS_BACKEND_TILES);
    order.add(MXS_BACKEND_ONEDNN);
  }
  if (gram || shape.n() >= (cpu_has_bf16 ? bf16_rows_least : openblas_rows_least)) order.add(MXS_BACKEND_OPENBLAS);
  order.add(MXS_BACKEND_REFERENCE);
  return order;
}

mxs_status make_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, int64_t rows, int64_t columns,
                               const NewtonSchulzRecipe &recipe, OrthogonalizerChoice choice, Team *team) {
  mxs_status status = check_kernels();
  if (status == MXS_OK) status = read_backend(&choice.backend);
  if (status != MXS_OK) return status;
  const NewtonSchulzShape shape = {rows, columns};
  if (choice.backend != MXS_BACKEND_AUTO) return make_one(orthogonalizer, shape, recipe, choice, team);
  for (const mxs_backend backend : backends_in_order(shape, choice.algorithm, cpu_multiplies_bf16())) {
    status = make_one(orthogonalizer, shape, recipe, {backend, choice.algorithm}, team);
    if (status != MXS_NOT_BUILT) return status;
    log_line(MXS_LOG_INFO, "newton-schulz %lld x %lld: %s", static_cast<long long>(rows),
             static_cast<long long>(columns), last_error_text());
  }
  return status;  // never: the reference is always built
}

// A part of a bf16 path's matrix is worth tiles even if the part itself is small: n decides, as for one owner.
mxs_status make_shared_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, SharedShape shape,
                                      const NewtonSchulzRecipe &recipe, OrthogonalizerChoice choice, Team *team,
                                      GramSum sum) {
  mxs_backend backend = choice.backend;
  mxs_status status = check_kernels();
  if (status == MXS_OK) status = read_backend(&backend);
  if (status != MXS_OK) return status;
  if (choice.algorithm == MXS_ALGORITHM_GRAM || backend == MXS_BACKEND_ONEDNN)
    return set_error(MXS_NOT_BUILT, "a matrix that ranks share is not stepped by %s; take MXS_BACKEND_AUTO, _TILES, "
                     "_OPENBLAS or _REFERENCE and the standard algorithm",
                     backend == MXS_BACKEND_ONEDNN ? "oneDNN" : "the Gram algorithm");
  const bool tries_tiles = backend == MXS_BACKEND_AUTO && cpu_multiplies_bf16() &&
                           static_cast<size_t>(shape.n) >= bf16_rows_least;
  if (backend == MXS_BACKEND_TILES || tries_tiles) {
    status = make_shared_tiles(orthogonalizer, shape, recipe, team, sum);
    if (status != MXS_NOT_BUILT || backend == MXS_BACKEND_TILES) return status;
    log_line(MXS_LOG_INFO, "newton-schulz %lld x %lld, shared: %s", static_cast<long long>(shape.rows()),
             static_cast<long long>(shape.columns()), last_error_text());
  }
  return make_shared_linear_orthogonalizer(orthogonalizer, shape, recipe, backend, team, sum);
}

std::string arithmetic_name(mxs_backend backend) {
  (void)read_backend(&backend);  // a name that is none fails every create
  std::string name = kernels().name;
  const bool automatic = backend == MXS_BACKEND_AUTO, bf16 = automatic && cpu_multiplies_bf16();
  if (backend == MXS_BACKEND_TILES || bf16) name.append(" ").append(name_of_tiles());
  if (backend == MXS_BACKEND_ONEDNN || bf16) name.append(" ").append(name_of_onednn());
  if (backend == MXS_BACKEND_OPENBLAS || (automatic && !bf16)) {
    const Linear *openblas = nullptr;
    name.append(" ").append(find_openblas(&openblas) == MXS_OK ? openblas->name : "no openblas");
  }
  return name;
}

mxs_status linear_of(mxs_backend backend, const Linear **linear) {
  const bool automatic = backend == MXS_BACKEND_AUTO;
  mxs_status status = check_kernels();
  if (status == MXS_OK) status = read_backend(&backend);
  if (status != MXS_OK) return status;
  // MXS_BACKEND may name one that is for Newton-Schulz alone.
  if (automatic && (backend == MXS_BACKEND_ONEDNN || backend == MXS_BACKEND_TILES)) backend = MXS_BACKEND_AUTO;
  if (backend == MXS_BACKEND_REFERENCE) {
    *linear = &reference_linear();
    return MXS_OK;
  }
  if (backend == MXS_BACKEND_OPENBLAS) return find_openblas(linear);
  if (backend != MXS_BACKEND_AUTO)
    return set_error(MXS_NOT_BUILT,
                     "backend %s has no fp32 eigenvalues and QR; take MXS_BACKEND_OPENBLAS, _REFERENCE or _AUTO",
                     backend_name(backend));
  if (find_openblas(linear) == MXS_OK) return MXS_OK;
  log_line(MXS_LOG_INFO, "linear algebra by the reference: %s", last_error_text());
  *linear = &reference_linear();
  return MXS_OK;
}

}  // namespace mxs
