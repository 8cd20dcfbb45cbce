// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/types.h"

#include "base/dtype.hpp"
#include "base/words.hpp"

size_t mxs_dtype_bytes(mxs_dtype dtype) { return mxs::dtype_bytes(dtype); }

const char *mxs_dtype_name(mxs_dtype dtype) {
  return mxs::dtype_bytes(dtype) ? mxs::word_of(mxs::dtype_words, dtype) : "unknown";
}

const char *mxs_rule_name(mxs_rule rule) { return mxs::rule_name(rule); }
