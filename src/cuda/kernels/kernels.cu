// SPDX-License-Identifier: Apache-2.0
// All kernels, compiled once for each architecture into one fat binary that libmatrixshard_cuda.so carries.
#include "cuda/kernels/decompositions.cuh"
#include "cuda/kernels/factor.cuh"
#include "cuda/kernels/newton_schulz.cuh"
#include "cuda/kernels/pass.cuh"
#include "cuda/kernels/products.cuh"
#include "cuda/kernels/step.cuh"
#include "cuda/kernels/sums.cuh"
