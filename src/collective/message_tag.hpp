// SPDX-License-Identifier: Apache-2.0
// The tag of a message: what its sender is in. A receiver takes nothing whose tag is not the one that it expects, so
// that ranks which call different things get an error, never each other's bytes.
//
//   | kind 2 | sequence 6 | digest 26 | message 6 |   tag_bits in all
//
// The digest is of the operation's whole signature (kind, layout, dtype, algorithm, and which collective or unit it is)
// and its whole number, so that one in 67 million wrong pairs looks right. Kind and number are there as they are, too,
// for sentences. Messages of a channel come in their order, so that few bits count them.
#pragma once

#include <cstdint>

#include "transport/transport.hpp"

namespace mxs {

struct MessageTag {
  static constexpr int message_bits = 6, digest_bits = 26, sequence_bits = 6;
  static constexpr uint64_t message_mask = (uint64_t{1} << message_bits) - 1;
  static constexpr uint64_t sequence_mask = (uint64_t{1} << sequence_bits) - 1;
  static_assert(2 + sequence_bits + digest_bits + message_bits == tag_bits);
  static_assert(message_window_max <= 1 << message_bits);

  // Of an operation's first message; its n-th is | n mod 64.
  static constexpr uint64_t first(int kind, uint64_t sequence, uint64_t signature) {
    uint64_t mixed = (signature ^ sequence * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 29) * 0x94d049bb133111ebu;
    return (static_cast<uint64_t>(kind & 3) << sequence_bits | (sequence & sequence_mask))
               << (digest_bits + message_bits) |
           mixed >> (64 - digest_bits) << message_bits;
  }
  static constexpr int kind(uint64_t tag) { return static_cast<int>(tag >> (tag_bits - 2) & 3); }
  static constexpr uint64_t sequence(uint64_t tag) { return tag >> (digest_bits + message_bits) & sequence_mask; }
  static constexpr bool same_operation(uint64_t a, uint64_t b) { return ((a ^ b) & tag_mask) >> message_bits == 0; }
};

}  // namespace mxs
