// SPDX-License-Identifier: Apache-2.0
// A tensor that is handed on may be deleted by any thread, long after its view, and at the very end of a process, when
// an interpreter that made it is gone. So its deleter calls nobody: it counts, and whoever keeps the memory looks.
#include "base/dlpack.hpp"

#include <algorithm>
#include <atomic>
#include <memory>

#include "base/dtype.hpp"

namespace mxs {

namespace {

template <class Managed>
struct Block {
  Managed managed;  // first: its address is the block's
  int64_t shape[MXS_DIMENSIONS_MAX];
  int64_t strides[MXS_DIMENSIONS_MAX];
};

template <class Managed>
void delete_block(Managed *managed) {
  auto *use_count = static_cast<int64_t *>(managed->context);
  delete reinterpret_cast<Block<Managed> *>(managed);
  std::atomic_ref<int64_t>(*use_count).fetch_sub(1, std::memory_order_acq_rel);  // last: its owner may now unmap
}

uint8_t code_of(mxs_dtype dtype) {
  if (dtype == MXS_BF16) return dl_bfloat;
  return dtype == MXS_U8 ? dl_uint : dl_float;
}

template <class Managed>
Managed *make(const mxs_view &view, int64_t *use_count) {
  auto block = std::make_unique<Block<Managed>>();
  std::copy_n(view.shape, MXS_DIMENSIONS_MAX, block->shape);
  std::copy_n(view.strides, MXS_DIMENSIONS_MAX, block->strides);
  int32_t dimension_count = view.dimension_count;
  // What another rank owns has no shape of its own: it is an empty vector.
  if (view.bytes == 0 && std::find(block->shape, block->shape + dimension_count, 0) == block->shape + dimension_count) {
    dimension_count = 1;
    block->shape[0] = 0;
    block->strides[0] = 1;
  }
  DlTensor &tensor = block->managed.tensor;
  // Of an empty tensor at NULL torch 1.13 never calls the deleter: any other address will do.
  tensor.data = view.data ? view.data : static_cast<void *>(block.get());
  tensor.device_type = view.memory == MXS_CUDA ? dl_cuda : dl_cpu;
  tensor.dimension_count = dimension_count;
  tensor.dtype_code = code_of(view.dtype);
  tensor.dtype_bits = static_cast<uint8_t>(8 * dtype_bytes(view.dtype));
  tensor.dtype_lanes = 1;
  tensor.shape = block->shape;
  tensor.strides = block->strides;
  block->managed.context = use_count;
  block->managed.deleter = delete_block<Managed>;
  std::atomic_ref<int64_t>(*use_count).fetch_add(1, std::memory_order_relaxed);
  return &block.release()->managed;
}

}  // namespace

DlManaged *make_dlpack(const mxs_view &view, int64_t *use_count) { return make<DlManaged>(view, use_count); }

DlManagedVersioned *make_dlpack_versioned(const mxs_view &view, bool read_only, int64_t *use_count) {
  auto *managed = make<DlManagedVersioned>(view, use_count);
  managed->major = 1;
  managed->flags = read_only ? dl_read_only : 0;
  return managed;
}

}  // namespace mxs
