// SPDX-License-Identifier: Apache-2.0
#include <sodium.h>

#include "base/status.hpp"
#include "bootstrap/proof.hpp"

namespace mxs {

static_assert(sizeof(Code) == crypto_auth_hmacsha256_BYTES && sizeof(Code) == crypto_hash_sha256_BYTES);

mxs_status prepare_proofs() {
  static const int ready = sodium_init();  // 1: the program had done so before
  return ready >= 0 ? MXS_OK : set_error(MXS_SYSTEM, "libsodium can't be used here: it finds no source of randomness");
}

Nonce draw_nonce() {
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Code code_of(const void *key, size_t key_bytes, std::initializer_list<Piece> pieces) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, static_cast<const unsigned char *>(key), key_bytes);
  for (const Piece &piece : pieces)
    crypto_auth_hmacsha256_update(&state, static_cast<const unsigned char *>(piece.data), piece.bytes);
  Code code;
  crypto_auth_hmacsha256_final(&state, code.data());
  sodium_memzero(&state, sizeof state);
  return code;
}

Code hash_of(const void *data, size_t bytes) {
  Code code;
  crypto_hash_sha256(code.data(), static_cast<const unsigned char *>(data), bytes);
  return code;
}

bool equal_codes(const Code &a, const Code &b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

void wipe(void *data, size_t bytes) { sodium_memzero(data, bytes); }

void *take_guarded(size_t bytes) { return sodium_malloc(bytes); }

void give_guarded(void *data) { sodium_free(data); }

}  // namespace mxs
