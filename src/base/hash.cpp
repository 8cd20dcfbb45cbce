// SPDX-License-Identifier: Apache-2.0
#include "base/hash.hpp"

#include <xxhash.h>

namespace mxs {

uint64_t hash_bytes(const void *data, size_t bytes, uint64_t seed) { return XXH64(data, bytes, seed); }

}  // namespace mxs
