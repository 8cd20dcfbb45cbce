// SPDX-License-Identifier: Apache-2.0
#include "cuda/cublas_library.hpp"

#include <dlfcn.h>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/shared_library.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

// The first of two file names that the process has loaded, else the first that can be.
void *open_either(const char *newer, const char *older, std::string *why_not) {
  for (const char *name : {newer, older})
    if (void *const file = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return file;
  for (const char *name : {newer, older}) {
    if (void *const file = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return file;
    if (why_not->empty()) *why_not = dlerror();
  }
  return nullptr;
}

bool is_forbidden(std::string *why_not) {
  if (environment_text("MXS_CUBLAS").value_or("") != "none") return false;
  *why_not = "MXS_CUBLAS is none";
  return true;
}

// 130100 -> "13.1.0": as cuBLAS counts from 12 on.
std::string version_text(size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string fill(CublasLtLibrary *library) {
  std::string why_not;
  if (is_forbidden(&why_not)) return why_not;
  void *const file = open_either("libcublasLt.so.13", "libcublasLt.so.12", &why_not);
  if (!file) return "cublasLt can't be loaded: " + why_not;
  Symbols symbols{file};
  symbols.find(&library->create, "cublasLtCreate");
  symbols.find(&library->destroy, "cublasLtDestroy");
  symbols.find(&library->get_version, "cublasLtGetVersion");
  symbols.find(&library->matmul, "cublasLtMatmul");
  symbols.find(&library->get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  symbols.find(&library->create_description, "cublasLtMatmulDescCreate");
  symbols.find(&library->destroy_description, "cublasLtMatmulDescDestroy");
  symbols.find(&library->set_description, "cublasLtMatmulDescSetAttribute");
  symbols.find(&library->create_layout, "cublasLtMatrixLayoutCreate");
  symbols.find(&library->destroy_layout, "cublasLtMatrixLayoutDestroy");
  symbols.find(&library->set_layout, "cublasLtMatrixLayoutSetAttribute");
  symbols.find(&library->create_preference, "cublasLtMatmulPreferenceCreate");
  symbols.find(&library->destroy_preference, "cublasLtMatmulPreferenceDestroy");
  symbols.find(&library->set_preference, "cublasLtMatmulPreferenceSetAttribute");
  if (symbols.missing) return std::string("cublasLt has no ") + symbols.missing + "; it is to be of CUDA 12 or 13";
  library->name = "cublaslt " + version_text(library->get_version());
  log_line(MXS_LOG_INFO, "%s is loaded", library->name.c_str());
  return "";
}

std::string fill(CusolverLibrary *library) {
  std::string why_not;
  if (is_forbidden(&why_not)) return why_not;
  void *const file = open_either("libcusolver.so.12", "libcusolver.so.11", &why_not);
  if (!file) return "cuSOLVER can't be loaded: " + why_not;
  Symbols symbols{file};
  decltype(&cusolverGetProperty) get_property = nullptr;
  symbols.find(&get_property, "cusolverGetProperty");
  symbols.find(&library->create, "cusolverDnCreate");
  symbols.find(&library->destroy, "cusolverDnDestroy");
  symbols.find(&library->set_stream, "cusolverDnSetStream");
  symbols.find(&library->create_parameters, "cusolverDnCreateParams");
  symbols.find(&library->destroy_parameters, "cusolverDnDestroyParams");
  symbols.find(&library->syevd_bytes, "cusolverDnXsyevd_bufferSize");
  symbols.find(&library->syevd, "cusolverDnXsyevd");
  symbols.find(&library->geqrf_bytes, "cusolverDnXgeqrf_bufferSize");
  symbols.find(&library->geqrf, "cusolverDnXgeqrf");
  symbols.find(&library->orgqr_numbers, "cusolverDnSorgqr_bufferSize");
  symbols.find(&library->orgqr, "cusolverDnSorgqr");
  if (symbols.missing) return std::string("cuSOLVER has no ") + symbols.missing + "; it is to be of CUDA 12 or 13";
  int parts[3] = {};
  for (const libraryPropertyType part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) get_property(part, &parts[part]);
  library->name = "cusolver " + std::to_string(parts[0]) + "." + std::to_string(parts[1]) + "." +
                  std::to_string(parts[2]);
  log_line(MXS_LOG_INFO, "%s is loaded", library->name.c_str());
  return "";
}

// Never freed: their own threads and handles may outlive our destructors.
template <class Table>
mxs_status load(const Table **library) {
  static LoadedOnce<Table> *const loaded = new LoadedOnce<Table>;
  std::string why_not;
  *library = loaded->get([](Table *table) { return fill(table); }, &why_not);
  return *library ? MXS_OK : set_error(MXS_NOT_BUILT, "%.400s", why_not.c_str());
}

}  // namespace

mxs_status load_cublaslt(const CublasLtLibrary **library) { return load(library); }
mxs_status load_cusolver(const CusolverLibrary **library) { return load(library); }

}  // namespace mxs
