// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/dlpack.h"

#include "api/door.hpp"
#include "base/dlpack.hpp"
#include "base/dtype.hpp"
#include "device/device.hpp"

using namespace mxs;

namespace {

// The view tells no device: the driver knows whose memory it is. 0 for what it has never seen.
mxs_status find_device(const mxs_view &view, int32_t *index) {
  DeviceLibrary *const library = view.memory == MXS_CUDA && view.data ? loaded_device_library() : nullptr;
  PointerInfo info;
  const mxs_status status = library ? library->pointer(view.data, &info) : MXS_OK;
  if (status == MXS_OK && info.device >= 0) *index = info.device;
  return status;
}

}  // namespace

mxs_status mxs_view_dlpack(const mxs_view *given, int32_t flags, int64_t *use_count, void **managed) {
  return fenced([&]() -> mxs_status {
    if (!given) return set_error(MXS_INVALID_ARGUMENT, "view is NULL");
    if (!use_count) return set_error(MXS_INVALID_ARGUMENT, "use_count is NULL");
    if (!managed) return set_error(MXS_INVALID_ARGUMENT, "managed is NULL");
    mxs_view view = MXS_VIEW_INIT;
    mxs_status status = read_struct(given, sizeof view, "view", &view);
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
    int32_t device = 0;
    status = find_device(view, &device);
    if (status != MXS_OK) return status;
    if (flags & MXS_DLPACK_VERSIONED) {
      DlManagedVersioned *const made = make_dlpack_versioned(view, flags & MXS_DLPACK_READ_ONLY, use_count);
      made->tensor.device_id = device;
      *managed = made;
    } else {
      DlManaged *const made = make_dlpack(view, use_count);
      made->tensor.device_id = device;
      *managed = made;
    }
    return MXS_OK;
  });
}
