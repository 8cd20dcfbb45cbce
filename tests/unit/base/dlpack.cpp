// SPDX-License-Identifier: Apache-2.0
// Views as DLPack's structs, and what their deleters do.
#include "base/dlpack.hpp"

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

mxs_view matrix_view(void *data, mxs_dtype dtype, uint64_t bytes) {
  mxs_view view = MXS_VIEW_INIT;
  view.dtype = dtype;
  view.dimension_count = 2;
  view.data = data;
  view.bytes = bytes;
  view.shape[0] = 2;
  view.shape[1] = 3;
  view.strides[0] = 3;
  view.strides[1] = 1;
  return view;
}

void a_view_is_handed_on_as_it_is(void **) {
  float data[6] = {};
  int64_t use_count = 0;
  const mxs_view view = matrix_view(data, MXS_F32, sizeof data);
  void *out = nullptr;
  assert_int_equal(mxs_view_dlpack(&view, 0, &use_count, &out), MXS_OK);
  assert_int_equal(use_count, 1);
  auto *managed = static_cast<DlManaged *>(out);
  assert_ptr_equal(managed->tensor.data, data);
  assert_int_equal(managed->tensor.device_type, 1);
  assert_int_equal(managed->tensor.device_id, 0);
  assert_int_equal(managed->tensor.dimension_count, 2);
  assert_int_equal(managed->tensor.dtype_code, 2);
  assert_int_equal(managed->tensor.dtype_bits, 32);
  assert_int_equal(managed->tensor.dtype_lanes, 1);
  assert_int_equal(managed->tensor.shape[1], 3);
  assert_int_equal(managed->tensor.strides[0], 3);
  assert_int_equal(managed->tensor.byte_offset, 0);
  managed->deleter(managed);
  assert_int_equal(use_count, 0);
}

void a_versioned_tensor_tells_its_version_and_whether_it_may_be_written(void **) {
  uint16_t data[6] = {};
  int64_t use_count = 0;
  const mxs_view view = matrix_view(data, MXS_BF16, sizeof data);
  void *first = nullptr, *second = nullptr;
  assert_int_equal(mxs_view_dlpack(&view, MXS_DLPACK_VERSIONED | MXS_DLPACK_READ_ONLY, &use_count, &first), MXS_OK);
  assert_int_equal(mxs_view_dlpack(&view, MXS_DLPACK_VERSIONED, &use_count, &second), MXS_OK);
  assert_int_equal(use_count, 2);
  auto *read_only = static_cast<DlManagedVersioned *>(first);
  auto *writable = static_cast<DlManagedVersioned *>(second);
  assert_int_equal(read_only->major, 1);
  assert_int_equal(read_only->flags, 1);
  assert_int_equal(writable->flags, 0);
  assert_int_equal(read_only->tensor.dtype_code, 4);
  assert_int_equal(read_only->tensor.dtype_bits, 16);
  read_only->deleter(read_only);
  assert_int_equal(use_count, 1);
  writable->deleter(writable);
  assert_int_equal(use_count, 0);
}

void what_another_rank_owns_is_an_empty_vector(void **) {
  int64_t use_count = 0;
  mxs_view view = MXS_VIEW_INIT;
  view.dtype = MXS_F16;
  void *out = nullptr;
  assert_int_equal(mxs_view_dlpack(&view, 0, &use_count, &out), MXS_OK);
  auto *managed = static_cast<DlManaged *>(out);
  assert_int_equal(managed->tensor.dimension_count, 1);
  assert_int_equal(managed->tensor.shape[0], 0);
  assert_non_null(managed->tensor.data);
  managed->deleter(managed);
  // An empty tensor keeps its shape.
  view = matrix_view(nullptr, MXS_F64, 0);
  view.shape[1] = 0;
  assert_int_equal(mxs_view_dlpack(&view, 0, &use_count, &out), MXS_OK);
  managed = static_cast<DlManaged *>(out);
  assert_int_equal(managed->tensor.dimension_count, 2);
  assert_int_equal(managed->tensor.shape[0], 2);
  managed->deleter(managed);
  assert_int_equal(use_count, 0);
}

bool all_threads_delete(int thread_count, int each) {
  uint8_t byte = 0;
  int64_t use_count = 0;
  mxs_view view = MXS_VIEW_INIT;
  view.dtype = MXS_U8;
  view.data = &byte;
  view.bytes = 1;
  std::vector<std::thread> threads;
  std::vector<void *> kept(static_cast<size_t>(thread_count));
  for (int t = 0; t < thread_count; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        void *out = nullptr;
        if (mxs_view_dlpack(&view, 0, &use_count, &out) != MXS_OK) return;
        static_cast<DlManaged *>(out)->deleter(static_cast<DlManaged *>(out));
      }
      static_cast<void>(mxs_view_dlpack(&view, 0, &use_count, &kept[static_cast<size_t>(t)]));
    });
  for (std::thread &thread : threads) thread.join();
  const bool counted = use_count == thread_count;
  for (void *one : kept)
    if (one) static_cast<DlManaged *>(one)->deleter(static_cast<DlManaged *>(one));
  return counted && use_count == 0;
}

void threads_may_make_and_delete_at_once(void **) { assert_true(all_threads_delete(4, 1000)); }

void bad_arguments_are_refused_and_change_nothing(void **) {
  float data[6] = {};
  int64_t use_count = 7;
  mxs_view view = matrix_view(data, MXS_F32, sizeof data);
  void *out = &use_count;
  assert_int_equal(mxs_view_dlpack(nullptr, 0, &use_count, &out), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_view_dlpack(&view, 0, nullptr, &out), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_view_dlpack(&view, 0, &use_count, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_view_dlpack(&view, 4, &use_count, &out), MXS_INVALID_ARGUMENT);
  const auto refused_with = [&](auto change) {
    mxs_view changed = view;
    change(changed);
    return mxs_view_dlpack(&changed, 0, &use_count, &out) == MXS_INVALID_ARGUMENT;
  };
  assert_true(refused_with([](mxs_view &changed) { changed.size = 0; }));
  assert_true(refused_with([](mxs_view &changed) { changed.dtype = 0; }));
  assert_true(refused_with([](mxs_view &changed) { changed.dimension_count = 9; }));
  assert_true(refused_with([](mxs_view &changed) { changed.dimension_count = -1; }));
  assert_true(refused_with([](mxs_view &changed) { changed.data = nullptr; }));
  assert_int_equal(use_count, 7);
  assert_ptr_equal(out, &use_count);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_view_is_handed_on_as_it_is),
      cmocka_unit_test(a_versioned_tensor_tells_its_version_and_whether_it_may_be_written),
      cmocka_unit_test(what_another_rank_owns_is_an_empty_vector),
      cmocka_unit_test(threads_may_make_and_delete_at_once),
      cmocka_unit_test(bad_arguments_are_refused_and_change_nothing),
  };
  return cmocka_run_group_tests_name("dlpack", tests, nullptr, nullptr);
}
