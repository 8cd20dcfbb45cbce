// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/dlpack.h"

#include "api/door.hpp"
#include "base/dlpack.hpp"
#include "base/dtype.hpp"

using namespace mxs;

mxs_status mxs_view_dlpack(const mxs_view *given, int32_t flags, int64_t *use_count, void **managed) {
  return fenced([&]() -> mxs_status {
    if (!given) return set_error(MXS_INVALID_ARGUMENT, "view is NULL");
    if (!use_count) return set_error(MXS_INVALID_ARGUMENT, "use_count is NULL");
    if (!managed) return set_error(MXS_INVALID_ARGUMENT, "managed is NULL");
    mxs_view view = MXS_VIEW_INIT;
    const mxs_status status = read_struct(given, sizeof view, "view", &view);
    if (status != MXS_OK) return status;
    if (flags & ~(MXS_DLPACK_VERSIONED | MXS_DLPACK_READ_ONLY))
      return set_error(MXS_INVALID_ARGUMENT, "flags is %d; only MXS_DLPACK_VERSIONED (%d) and MXS_DLPACK_READ_ONLY "
                       "(%d) are known", flags, MXS_DLPACK_VERSIONED, MXS_DLPACK_READ_ONLY);
    if (dtype_bytes(view.dtype) == 0)
      return set_error(MXS_INVALID_ARGUMENT, "view.dtype is %d, which is no dtype", view.dtype);
    if (view.dimension_count < 0 || view.dimension_count > MXS_DIMENSIONS_MAX)
      return set_error(MXS_INVALID_ARGUMENT, "view.dimension_count is %d, not from 0 to %d", view.dimension_count,
                       MXS_DIMENSIONS_MAX);
    if (view.bytes && !view.data)
      return set_error(MXS_INVALID_ARGUMENT, "view.data is NULL, but view.bytes is %" PRIu64, view.bytes);
    if (flags & MXS_DLPACK_VERSIONED)
      *managed = make_dlpack_versioned(view, flags & MXS_DLPACK_READ_ONLY, use_count);
    else
      *managed = make_dlpack(view, use_count);
    return MXS_OK;
  });
}
