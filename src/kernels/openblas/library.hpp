// SPDX-License-Identifier: Apache-2.0
// OpenBLAS and its LAPACK, loaded when used first: its pthread flavour starts a thread for each core as soon as it is
// loaded, which who only gathers shall not pay for. Nothing is linked against it: cblas.h at build time, any
// libopenblas.so.0 at run time, of whichever flavour (pthread, OpenMP, serial).
//
// It always runs on one thread here. Its results depend on its thread count, and ours must not, so whoever calls cuts
// the work into parts of fixed size and gives them to a Team.
#pragma once

#include <cblas.h>

#include <string>

#include "matrixshard/status.h"

namespace mxs {

// The functions that we call. Of LAPACK: Fortran's, with the lengths of texts at the end.
struct OpenblasLibrary {
  decltype(&::cblas_sgemm) sgemm;
  decltype(&::cblas_ssyrk) ssyrk;
  void (*ssyevd)(const char *vectors, const char *half, const int *n, float *matrix, const int *stride, float *values,
                 float *work, const int *work_length, int *integers, const int *integers_length, int *info,
                 size_t vectors_length, size_t half_length);
  void (*dsyev)(const char *vectors, const char *half, const int *n, double *matrix, const int *stride, double *values,
                double *work, const int *work_length, int *info, size_t vectors_length, size_t half_length);
  void (*sgeqrf)(const int *rows, const int *columns, float *matrix, const int *stride, float *tau, float *work,
                 const int *work_length, int *info);
  void (*sorgqr)(const int *rows, const int *columns, const int *reflectors, float *matrix, const int *stride,
                 const float *tau, float *work, const int *work_length, int *info);
  void (*set_thread_count)(int count);
  int (*thread_count)();
  // Of the OpenMP that OpenBLAS has brought along; nullptr if it is of another flavour.
  int (*openmp_threads)();
  void (*set_openmp_threads)(int count);
  std::string name;   // "openblas 0.3.21 SkylakeX": the core whose kernels it has chosen decides bits
};

// nullptr with the reason if it can't be loaded or lacks a function. Threads: any.
const OpenblasLibrary *openblas_library(std::string *why_not);

// While one lives, OpenBLAS runs on the thread that calls it. The pthread flavour has one count for the process: it is
// set by the first guard of all threads and put back by the last one, unless it is 1 already, or somebody else has set
// it meanwhile. (A product that the program itself starts on another thread in between has one thread, too.) The OpenMP
// flavour takes the count of whoever calls it, so guards must live on the thread that calls.
class OneThread {
 public:
  explicit OneThread(const OpenblasLibrary &library);
  ~OneThread();
  OneThread(const OneThread &) = delete;
  OneThread &operator=(const OneThread &) = delete;

 private:
  const OpenblasLibrary &library_;
  int own_before_ = 0;  // OpenMP's, of this thread
};

}  // namespace mxs
