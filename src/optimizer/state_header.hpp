// SPDX-License-Identifier: Apache-2.0
// The first 64 bytes of a stepper's state: whose it is, and how far it has come. A checkpoint holds them, too; so its
// fields never move.
#pragma once

#include <cstddef>
#include <cstdint>

#include "optimizer/stepper.hpp"

namespace mxs {

struct StateHeader {
  uint64_t magic = 0;
  uint16_t version = 0;
  uint8_t rule = 0, preset = 0, dtype = 0, gradient_dtype = 0, weights = 0, reserved = 0;
  uint64_t shape = 0;    // hash of rows, columns, count and blocks
  uint64_t options = 0;  // hash of the parts and of what gives their numbers a meaning
  uint64_t step_number = 0, skipped_count = 0;
  uint64_t bytes = 0;    // of the whole state
  uint64_t reserved2 = 0;
};
static_assert(sizeof(StateHeader) == 64, "states in checkpoints begin with it");

StateHeader first_header(const StepMatrices &matrices, const Stepper &stepper, mxs_preset preset);

// MXS_MISMATCH: the sentence tells what differs.
mxs_status compare_headers(const StateHeader &wanted, const StateHeader &given);

// Every number of the parts. MXS_MISMATCH: one isn't finite, or is a count that is none; the sentence tells the part
// and the place.
// parts: the byte after the header; at any border.
mxs_status check_parts(const Stepper &stepper, const std::byte *parts);

}  // namespace mxs
