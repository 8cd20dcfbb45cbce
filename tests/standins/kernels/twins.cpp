// SPDX-License-Identifier: Apache-2.0
// Twins of the kernels: the same sources by g++. See cuda/kernels/block.hpp.
#include "cuda/kernels/kernels.cu"
