// SPDX-License-Identifier: Apache-2.0
// MXS_BOTH: of a function that nvcc compiles for the device, too, so that host and device share one source.
#pragma once

#ifdef __CUDACC__
#define MXS_BOTH __host__ __device__
#else
#define MXS_BOTH
#endif
