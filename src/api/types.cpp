// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/types.h"

#include "base/dtype.hpp"

size_t mxs_dtype_bytes(mxs_dtype dtype) { return mxs::dtype_bytes(dtype); }

const char *mxs_dtype_name(mxs_dtype dtype) {
  switch (dtype) {
    case MXS_F32: return "f32";
    case MXS_BF16: return "bf16";
    case MXS_F16: return "f16";
    case MXS_F64: return "f64";
    case MXS_U8: return "u8";
    default: return "unknown";
  }
}
