// SPDX-License-Identifier: Apache-2.0
// 64-bit fingerprints that are equal on every machine (xxHash64 over little-endian fields).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mxs {

uint64_t hash_bytes(const void *data, size_t bytes, uint64_t seed = 0);

// Folds fields in, one after the other; a text is folded with its length.
class Fingerprint {
 public:
  Fingerprint &add(uint64_t value) {
    value_ = hash_bytes(&value, sizeof value, value_);
    return *this;
  }
  Fingerprint &add(std::string_view text) {
    value_ = hash_bytes(text.data(), text.size(), add(text.size()).value_);
    return *this;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

}  // namespace mxs
