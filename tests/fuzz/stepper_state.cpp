// SPDX-License-Identifier: Apache-2.0
// States of steppers, as a checkpoint or a caller hands them back: the input's first byte chooses the stepper, the rest
// is written over the start of a good state of it, or stands for the whole. What is taken has finite numbers.
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "fuzz.hpp"
#include "matrixshard/kernels.h"

namespace {

struct Good {
  mxs_stepper *stepper = nullptr;
  uint64_t bytes = 0;
  std::byte *state = nullptr, *given = nullptr;
};

Good make(int which) {
  Good good;
  mxs_matrices matrices = MXS_MATRICES_INIT;
  matrices.rows = 4;
  matrices.columns = 6;
  matrices.count = 1;
  matrices.dtype = matrices.gradient_dtype = MXS_F32;
  mxs_status status = MXS_INTERNAL;
  if (which == 0) status = mxs_adamw_create(&good.stepper, &matrices, nullptr);
  if (which == 1) status = mxs_muon_create(&good.stepper, &matrices, nullptr);
  if (which == 2) status = mxs_shampoo_create(&good.stepper, &matrices, nullptr);
  if (which == 3) status = mxs_soap_create(&good.stepper, &matrices, nullptr);
  mxs::fuzz::promise(status == MXS_OK);
  good.bytes = mxs_stepper_state_bytes(good.stepper);
  const size_t room = (good.bytes + 63) / 64 * 64;
  good.state = static_cast<std::byte *>(std::aligned_alloc(64, room));
  good.given = static_cast<std::byte *>(std::aligned_alloc(64, room));
  mxs::fuzz::promise(mxs_stepper_init(good.stepper, good.state) == MXS_OK);
  return good;
}

const Good &good_of(int which) {
  static const std::array<Good, 4> all = {make(0), make(1), make(2), make(3)};
  return all[static_cast<size_t>(which)];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const Good &good = good_of(data[0] & 3);
  std::memcpy(good.given, good.state, good.bytes);
  const size_t bytes = std::min<size_t>(size - 1, good.bytes);
  std::memcpy(good.given, data + 1, bytes);
  const bool is_whole = data[0] & 4;
  const mxs_status status = mxs_stepper_check_state(good.stepper, good.given, is_whole ? bytes : good.bytes);
  mxs::fuzz::promise(status == MXS_OK || status == MXS_MISMATCH);
  if (status == MXS_OK) mxs::fuzz::promise(!is_whole || bytes == good.bytes);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (int which = 0; which < 4; ++which) {
    const Good &good = good_of(which);
    const std::string state(reinterpret_cast<const char *>(good.state), good.bytes);
    seeds.push_back(std::string(1, static_cast<char>(which + 4)).append(state));
    seeds.push_back(std::string(1, static_cast<char>(which)).append(state, 0, 64));
  }
  return seeds;
}
