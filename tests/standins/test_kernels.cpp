// SPDX-License-Identifier: Apache-2.0
// Kernels of the stand-in's own tests, as MXS_STANDIN_KERNELS names them.
#include "standins/test_kernels.hpp"

extern "C" void write_words_on_cpu(const void *arguments, uint32_t blocks, uint32_t threads) {
  const auto &given = *static_cast<const mxs::test::WriteWords *>(arguments);
  for (uint64_t i = 0; i < uint64_t{blocks} * threads; ++i) given.target[i] = given.value;
}

extern "C" void add_words_on_cpu(const void *arguments, uint32_t blocks, uint32_t threads) {
  const auto &given = *static_cast<const mxs::test::AddWords *>(arguments);
  for (uint64_t i = 0; i < uint64_t{blocks} * threads; ++i) given.target[i] += given.source[i];
}
