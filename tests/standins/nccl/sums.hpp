// SPDX-License-Identifier: Apache-2.0
// Sums (and products, minima, maxima) of arrays of NCCL's types.
#pragma once

#include <nccl.h>

#include <cstddef>

namespace standin {

size_t bytes_of(ncclDataType_t type);  // 0: not known here
bool is_known(ncclRedOp_t operation);

// target[i] = target[i] OPERATION source[i], rounded to the type each time, as a ring of GPUs does.
void combine(void *target, const void *source, size_t count, ncclDataType_t type, ncclRedOp_t operation);

}  // namespace standin
