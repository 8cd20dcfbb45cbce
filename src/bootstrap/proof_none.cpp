// SPDX-License-Identifier: Apache-2.0
// Of a build without libsodium. There are no keys here, so nobody gets beyond the first function.
#include <cassert>
#include <cstring>

#include "base/status.hpp"
#include "bootstrap/proof.hpp"

namespace mxs {

mxs_status prepare_proofs() {
  return set_error(MXS_NOT_BUILT, "this build has no libsodium, by which ranks prove that they know a secret; build it "
                   "with libsodium (Debian: libsodium-dev), or give no secret");
}

Nonce draw_nonce() {
  assert(false);
  return {};
}

Code code_of(const void *, size_t, std::initializer_list<Piece>) {
  assert(false);
  return {};
}

Code hash_of(const void *, size_t) {
  assert(false);
  return {};
}

bool equal_codes(const Code &, const Code &) {
  assert(false);
  return false;
}

// Of a secret that is refused.
void wipe(void *data, size_t bytes) { explicit_bzero(data, bytes); }

void *take_guarded(size_t) {
  assert(false);
  return nullptr;
}

void give_guarded(void *) { assert(false); }

}  // namespace mxs
