// SPDX-License-Identifier: Apache-2.0
#include "kernels/tiles/level.hpp"

#include <array>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "base/status.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mxs::tiles {

namespace {

#if defined(__x86_64__)

bool has_avx512_bf16() {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return false;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && ((eax >> 5) & 1);
}

// The kernel grants tile registers to a process that asks for them (Linux 5.16); all its threads have them then. It
// refuses where a thread has an alternate signal stack that is too small for them.
bool is_granted_tiles() {
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

bool has_amx_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  const bool amx_bf16 = (edx >> 22) & 1, amx_tile = (edx >> 24) & 1;
  return amx_bf16 && amx_tile && is_granted_tiles();
}

#endif

struct Kernels {
  std::array<const Kernel *, 2> list{};
  int count = 0;
  Kernels() {
#if defined(__x86_64__)
    // Passes over blocks are AVX-512 for both; there is no CPU with AMX and without avx512_bf16.
    if (!has_avx512_bf16()) return;
    list[static_cast<size_t>(count++)] = &avx512_kernel;
    if (has_amx_bf16()) list[static_cast<size_t>(count++)] = &amx_kernel;
#endif
  }
};

const Kernels &kernels() {
  static const Kernels all;
  return all;
}

struct Choice {
  const Kernel *kernel = nullptr;
  std::string refused;  // MXS_TILES, if it can't be obeyed
  Choice() {
    const Kernels &all = kernels();
    const std::optional<std::string> forced = environment_text("MXS_TILES");
    if (!forced && all.count > 0) kernel = all.list[static_cast<size_t>(all.count - 1)];
    if (!forced || *forced == "none") return;
    for (int i = 0; i < all.count; ++i)
      if (*forced == all.list[static_cast<size_t>(i)]->name) kernel = all.list[static_cast<size_t>(i)];
    if (!kernel) refused = *forced;
  }
};

const Choice &choice() {
  static const Choice made;
  return made;
}

}  // namespace

const Kernel *const *all_kernels(int *count) {
  *count = kernels().count;
  return kernels().list.data();
}

const Kernel *chosen_kernel() { return choice().kernel; }

mxs_status check_choice() {
  if (choice().refused.empty()) return MXS_OK;
  return set_error(MXS_ENVIRONMENT, "MXS_TILES is \"%.64s\"; this CPU and system have: none%s%s",
                   choice().refused.c_str(), kernels().count > 0 ? ", avx512_bf16" : "",
                   kernels().count > 1 ? ", amx_bf16" : "");
}

}  // namespace mxs::tiles
