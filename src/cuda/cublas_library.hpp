// SPDX-License-Identifier: Apache-2.0
// cublasLt and cuSOLVER as tables of functions, loaded when they are first wanted: those that the process has loaded
// already (PyTorch's), else the newest release that the loader finds.
#pragma once

#include <cublasLt.h>
#include <cusolverDn.h>

#include <string>

#include "matrixshard/status.h"

namespace mxs {

struct CublasLtLibrary {
  std::string name;  // "cublaslt 13.1.0"
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_description = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_description = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_description = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
};

struct CusolverLibrary {
  std::string name;  // "cusolver 12.0.4"
  decltype(&cusolverDnCreate) create = nullptr;
  decltype(&cusolverDnDestroy) destroy = nullptr;
  decltype(&cusolverDnSetStream) set_stream = nullptr;
  decltype(&cusolverDnCreateParams) create_parameters = nullptr;
  decltype(&cusolverDnDestroyParams) destroy_parameters = nullptr;
  decltype(&cusolverDnXsyevd_bufferSize) syevd_bytes = nullptr;
  decltype(&cusolverDnXsyevd) syevd = nullptr;
  decltype(&cusolverDnXgeqrf_bufferSize) geqrf_bytes = nullptr;
  decltype(&cusolverDnXgeqrf) geqrf = nullptr;
  decltype(&cusolverDnSorgqr_bufferSize) orgqr_numbers = nullptr;
  decltype(&cusolverDnSorgqr) orgqr = nullptr;
};

// MXS_NOT_BUILT: MXS_CUBLAS is `none`, or they can't be loaded; the sentence says why. The answer stays.
mxs_status load_cublaslt(const CublasLtLibrary **library);
mxs_status load_cusolver(const CusolverLibrary **library);

}  // namespace mxs
