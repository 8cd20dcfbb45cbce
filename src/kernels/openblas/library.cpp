// SPDX-License-Identifier: Apache-2.0
#include "kernels/openblas/library.hpp"

#include <dlfcn.h>

#include <mutex>

#include "base/log.hpp"
#include "base/shared_library.hpp"

namespace mxs {

namespace {

constexpr const char *file_name = "libopenblas.so.0";
constexpr int parallel_openmp = 2;

// "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..." -> "openblas 0.3.21"
std::string version_of(const char *config) {
  std::string text = config;
  const size_t first = text.find(' ');
  if (first == std::string::npos) return "openblas";
  return "openblas" + text.substr(first, text.find(' ', first + 1) - first);
}

std::string load(OpenblasLibrary *library) {
  void *const handle = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *const reason = dlerror();
    return std::string("OpenBLAS can't be loaded: ") + (reason ? reason : file_name);
  }
  Symbols symbols{handle};
  symbols.find(&library->sgemm, "cblas_sgemm");
  symbols.find(&library->ssyrk, "cblas_ssyrk");
  symbols.find(&library->ssyevd, "ssyevd_");
  symbols.find(&library->dsyev, "dsyev_");
  symbols.find(&library->sgeqrf, "sgeqrf_");
  symbols.find(&library->sorgqr, "sorgqr_");
  symbols.find(&library->set_thread_count, "openblas_set_num_threads");
  symbols.find(&library->thread_count, "openblas_get_num_threads");
  char *(*config)() = nullptr, *(*core)() = nullptr;
  int (*parallel)() = nullptr;
  symbols.find(&parallel, "openblas_get_parallel");
  symbols.find(&config, "openblas_get_config");
  symbols.find(&core, "openblas_get_corename");
  if (symbols.missing)
    return std::string(file_name) + " has no " + symbols.missing + "; it is to be OpenBLAS 0.3 with LAPACK";
  if (parallel() == parallel_openmp) {
    symbols.find(&library->openmp_threads, "omp_get_max_threads");
    symbols.find(&library->set_openmp_threads, "omp_set_num_threads");
    if (symbols.missing) return std::string(file_name) + " is of the OpenMP flavour, but without " + symbols.missing;
  }
  library->name = version_of(config()) + " " + core();
  log_line(MXS_LOG_INFO, "%s is loaded", library->name.c_str());
  return "";
}

// Of the pthread flavour's one count.
struct Shared {
  std::mutex mutex;
  int guards = 0, before = 1;
};

Shared &shared() {
  static Shared one;
  return one;
}

}  // namespace

const OpenblasLibrary *openblas_library(std::string *why_not) {
  static LoadedOnce<OpenblasLibrary> library;
  return library.get(load, why_not);
}

OneThread::OneThread(const OpenblasLibrary &library) : library_(library) {
  if (library.set_openmp_threads) {
    own_before_ = library.openmp_threads();
    library.set_openmp_threads(1);
    return;
  }
  Shared &all = shared();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.guards++ != 0) return;
  all.before = library.thread_count();
  if (all.before != 1) library.set_thread_count(1);
}

OneThread::~OneThread() {
  if (library_.set_openmp_threads) {
    library_.set_openmp_threads(own_before_);
    return;
  }
  Shared &all = shared();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (--all.guards == 0 && all.before != 1 && library_.thread_count() == 1) library_.set_thread_count(all.before);
}

}  // namespace mxs
