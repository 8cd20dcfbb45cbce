// SPDX-License-Identifier: Apache-2.0
// All kernels, compiled once for each architecture into one fat binary that libmatrixshard_cuda.so carries.
extern "C" __global__ void mxs_nothing(int) {}
