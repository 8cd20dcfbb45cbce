// SPDX-License-Identifier: Apache-2.0
// DLPack's structs, as its specification lays them out, and a view in them.
#pragma once

#include <cstdint>

#include "matrixshard/dlpack.h"

namespace mxs {

struct DlTensor {
  void *data;
  int32_t device_type;
  int32_t device_id;
  int32_t dimension_count;
  uint8_t dtype_code;
  uint8_t dtype_bits;
  uint16_t dtype_lanes;
  int64_t *shape;
  int64_t *strides;  // in elements
  uint64_t byte_offset;
};

// Version 0, which has no number of its own.
struct DlManaged {
  DlTensor tensor;
  void *context;
  void (*deleter)(DlManaged *self);
};

struct DlManagedVersioned {
  uint32_t major;
  uint32_t minor;
  void *context;
  void (*deleter)(DlManagedVersioned *self);
  uint64_t flags;
  DlTensor tensor;
};

static_assert(sizeof(DlTensor) == 48 && sizeof(DlManaged) == 64 && sizeof(DlManagedVersioned) == 80,
              "as other frameworks read them");

constexpr int32_t dl_cpu = 1, dl_cuda = 2;
constexpr uint8_t dl_uint = 1, dl_float = 2, dl_bfloat = 4;
constexpr uint64_t dl_read_only = 1;

// The view is filled and its dtype known. use_count: see mxs_view_dlpack.
DlManaged *make_dlpack(const mxs_view &view, int64_t *use_count);
DlManagedVersioned *make_dlpack_versioned(const mxs_view &view, bool read_only, int64_t *use_count);

}  // namespace mxs
