/* SPDX-License-Identifier: Apache-2.0 */
// Arguments of the kernels in test_kernels.cpp; one word for each thread.
#pragma once

#include <cstdint>

namespace mxs::test {

struct WriteWords {
  uint32_t *target;
  uint32_t value;
};

struct AddWords {
  uint32_t *target;
  const uint32_t *source;
};

}  // namespace mxs::test
