// SPDX-License-Identifier: Apache-2.0
// Loading libmatrixshard_cuda.so: from where MXS_CUDA_LIBRARY says, else from beside this library, else from where the
// loader looks. Once; what it answered stays.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "device/device.hpp"
#include "matrixshard/version.h"

namespace mxs {

namespace {

const std::string &file_name() {
  static const std::string name = "libmatrixshard_cuda.so." + std::to_string(MXS_VERSION_MAJOR) + "." +
                                  std::to_string(MXS_VERSION_MINOR);
  return name;
}

void log_text(int32_t level, const char *line) { log_line(level, "%s", line); }
void set_text(mxs_status status, const char *sentence) { set_error(status, "%s", sentence); }
constexpr DeviceServices services = {set_text, last_error_text, log_text};

// "": this code is in a program of its own, which lies anywhere.
std::string own_folder() {
  Dl_info found{};
  if (!dladdr(reinterpret_cast<const void *>(&own_folder), &found) || !found.dli_fname) return "";
  const std::string path = found.dli_fname;
  const size_t slash = path.rfind('/');
  const bool is_library = path.find("libmatrixshard", slash == std::string::npos ? 0 : slash) != std::string::npos;
  return is_library && slash != std::string::npos ? path.substr(0, slash + 1) : "";
}

void *open_file(std::string *tried) {
  if (const auto given = environment_text("MXS_CUDA_LIBRARY")) {
    void *const library = dlopen(given->c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) *tried = std::string(dlerror()) + " (MXS_CUDA_LIBRARY)";
    return library;
  }
  const std::string folder = own_folder();
  if (!folder.empty())
    if (void *const library = dlopen((folder + file_name()).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  void *const library = dlopen(file_name().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) *tried = dlerror();
  return library;
}

// Grows by one in each forked child: the driver does not live on in it.
std::atomic<uint64_t> generation{0};

uint64_t this_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

struct Loaded {
  std::once_flag once;
  mxs_status status = MXS_NOT_BUILT;
  std::string sentence;
  uint64_t generation = 0;
  std::atomic<DeviceLibrary *> opened{nullptr};
};

Loaded &loaded() {
  static Loaded state;
  return state;
}

mxs_status load(DeviceLibrary **library) {
  std::string tried;
  void *const file = open_file(&tried);
  if (!file)
    return set_error(MXS_NOT_BUILT, "CUDA memory wants %s, which can't be loaded: %.300s; install it beside "
                     "libmatrixshard.so (a build with nvcc makes it), or say where it is by MXS_CUDA_LIBRARY",
                     file_name().c_str(), tried.c_str());
  const auto open = reinterpret_cast<OpenDeviceLibrary>(dlsym(file, open_device_library_symbol));
  if (!open) return set_error(MXS_NOT_BUILT, "%s has no %s: it is another library", file_name().c_str(),
                              open_device_library_symbol);
  return open(device_interface_number, &services, library);
}

}  // namespace

mxs_status device_library(DeviceLibrary **library) {
  Loaded &state = loaded();
  std::call_once(state.once, [&state] {
    DeviceLibrary *made = nullptr;
    state.generation = this_generation();
    state.status = fenced([&] { return load(&made); });
    if (state.status == MXS_OK) state.opened.store(made, std::memory_order_release);
    else state.sentence = last_error_text();
  });
  if (state.status != MXS_OK) return set_error(state.status, "%s", state.sentence.c_str());
  if (state.generation != this_generation())
    return set_error(MXS_FORKED, "CUDA was begun before this process was forked, and can only be used by the parent; "
                     "start processes afresh (spawn), or fork before CUDA is used");
  *library = state.opened.load(std::memory_order_acquire);
  return MXS_OK;
}

DeviceLibrary *loaded_device_library() {
  Loaded &state = loaded();
  DeviceLibrary *const library = state.opened.load(std::memory_order_acquire);
  return library && state.generation == this_generation() ? library : nullptr;
}

bool process_has_cuda() {
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver) dlclose(driver);
  return driver != nullptr;
}

mxs_status find_device(int index, Device **device) {
  DeviceLibrary *library = nullptr;
  const mxs_status status = device_library(&library);
  return status == MXS_OK ? library->device(index, device) : status;
}

}  // namespace mxs
