// SPDX-License-Identifier: Apache-2.0
// The job's secret: where it is read, and what is kept of it.
//
// The secret itself is gone as soon as it has been read: what is kept is a key made from it, in memory that core dumps
// leave out and that is wiped at the end. Neither is ever part of a sentence or a line of the log.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/proof.hpp"
#include "matrixshard/status.h"

namespace mxs {

constexpr size_t secret_bytes_min = 16, secret_bytes_max = 1024;

class Secret {
 public:
  // Copies nothing but the key. MXS_NOT_BUILT; MXS_OUT_OF_MEMORY. The length has been checked.
  static mxs_status make(std::shared_ptr<const Secret> *secret, const char *text, size_t bytes);
  ~Secret() { give_guarded(key_); }
  Secret(const Secret &) = delete;

  Code code_of(std::initializer_list<Piece> pieces) const { return mxs::code_of(key_, sizeof(Code), pieces); }

 private:
  explicit Secret(void *key) : key_(key) {}
  void *const key_;
};

// option: of the comm's options, may be NULL; then MXS_SECRET, then the first line of the file that MXS_SECRET_FILE
// names. None of them: *secret is nullptr.
mxs_status read_secret(std::shared_ptr<const Secret> *secret, const char *option);

}  // namespace mxs
