// SPDX-License-Identifier: Apache-2.0
// States of steppers, as a checkpoint or a caller hands them back: the input's first byte chooses the stepper, the rest
// is written over the start of a good state of it, or stands for the whole. What is taken has finite numbers.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "fuzz.hpp"
#include "matrixshard/kernels.h"

namespace {

// Not a byte more than asked for, so that ASan sees who reads one.
std::byte *room_of(size_t bytes) {
  void *room = nullptr;
  mxs::fuzz::promise(posix_memalign(&room, 64, std::max<size_t>(bytes, 1)) == 0);
  return static_cast<std::byte *>(room);
}

struct Good {
  mxs_stepper *stepper = nullptr;
  uint64_t bytes = 0;
  std::byte *state = nullptr;
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
  good.state = room_of(good.bytes);
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
  const size_t bytes = std::min<size_t>(size - 1, good.bytes);
  const bool is_whole = data[0] & 4;
  const size_t given_bytes = is_whole ? bytes : good.bytes;
  const std::unique_ptr<std::byte, decltype(&std::free)> given(room_of(given_bytes), std::free);
  std::memcpy(given.get(), good.state, given_bytes);
  std::memcpy(given.get(), data + 1, bytes);
  const mxs_status status = mxs_stepper_check_state(good.stepper, given.get(), given_bytes);
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
