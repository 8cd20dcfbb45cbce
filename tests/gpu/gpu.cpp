// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu.hpp"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace mxs::test {

namespace {

constexpr int no_library = 200, no_function = 201, no_init = 202;

// In a child: the number of devices, or one of the above.
int ask_driver() {
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return no_library;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int *)>(dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  if (!init || !count) return no_function;
  return init(0) == 0 && count(&devices) == 0 ? (devices < 100 ? devices : 100) : no_init;
}

int ask_driver_in_child() {
  const pid_t child = fork();
  if (child == 0) _exit(ask_driver());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return no_init;
  return WEXITSTATUS(status);
}

// The program again, without the stand-ins in the loader's path.
void begin_again(const char *asked, char **arguments) {
  const std::string path = std::string(asked) == "1" ? "" : asked;
  if (path.empty()) unsetenv("LD_LIBRARY_PATH");
  else setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  unsetenv("MXS_STANDIN_KERNELS");
  unsetenv("MXS_CUBLAS");
  setenv("MXS_TEST_GPU_BEGUN", "1", 1);
  execv("/proc/self/exe", arguments);
}

}  // namespace

bool on_standin() { return !std::getenv("MXS_TEST_GPU_BEGUN"); }

bool set_standin(const char *name, const char *value) {
  void *const driver = on_standin() ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) : nullptr;
  const auto set = driver ? reinterpret_cast<int (*)(const char *, const char *)>(
                                dlsym(driver, "mxs_standin_set_switch")) : nullptr;
  return set && set(name, value) == 0;
}

bool gpu_is_there(char **arguments, int devices_wanted) {
  const char *const asked = std::getenv("MXS_TEST_GPU");
  if (asked && *asked && on_standin()) begin_again(asked, arguments);
  const int devices = ask_driver_in_child();
  if (devices < no_library && devices >= devices_wanted) return true;
  if (devices == no_library) std::printf("1..0 # SKIP no CUDA driver: libcuda.so.1 can't be loaded\n");
  else if (devices == no_function) std::printf("1..0 # SKIP libcuda.so.1 is no CUDA driver\n");
  else if (devices == no_init) std::printf("1..0 # SKIP the CUDA driver finds no GPU: cuInit failed\n");
  else std::printf("1..0 # SKIP wants %d GPUs, there are %d\n", devices_wanted, devices);
  return false;
}

}  // namespace mxs::test
