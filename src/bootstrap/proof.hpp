// SPDX-License-Identifier: Apache-2.0
// The little cryptography that ranks need to know each other: HMAC-SHA-256, random numbers, and memory that is wiped.
//
// All of it is libsodium's, in proof_sodium.cpp. A build without libsodium has proof_none.cpp instead, where a secret
// is refused before any of the others is called. The build chooses between the two files.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>

#include "matrixshard/status.h"

namespace mxs {

using Nonce = std::array<unsigned char, 32>;  // drawn anew for each greeting
using Code = std::array<unsigned char, 32>;   // an HMAC, a hash, or a key that was made by one

struct Piece {
  const void *data;
  size_t bytes;
};

// MXS_OK once libsodium is ready. MXS_NOT_BUILT with a sentence.
mxs_status prepare_proofs();

Nonce draw_nonce();
// HMAC-SHA-256 over the pieces one after the other. Whoever calls sees to it that only one row of pieces gives these
// bytes.
Code code_of(const void *key, size_t key_bytes, std::initializer_list<Piece> pieces);
Code hash_of(const void *data, size_t bytes);  // SHA-256
bool equal_codes(const Code &a, const Code &b);  // takes as long for any two
void wipe(void *data, size_t bytes);             // not left out by a compiler that sees no reader

// Memory that isn't written to swap (as far as the limit on locked memory goes) nor into core dumps, between pages that
// fault; wiped when it is given back. nullptr: there is none.
void *take_guarded(size_t bytes);
void give_guarded(void *data);

}  // namespace mxs
