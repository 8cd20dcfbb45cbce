// SPDX-License-Identifier: Apache-2.0
// The list of numeric tables and matrix backends. The only file of this room that knows what was built.
#include <array>
#include <string>

#include "base/environment.hpp"
#include "base/status.hpp"
#include "kernels/kernels.hpp"
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

}  // namespace mxs
