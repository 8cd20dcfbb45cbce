/* SPDX-License-Identifier: Apache-2.0 */
// Every kind on every layout, in one world: what all routes must do alike.
#pragma once

#include <string>
#include <vector>

#include "gpu/collective_cases.hpp"

namespace mxs::test {

// What describe must say of them.
struct Expected {
  const char *gather = "", *reduce = "", *ordered = "", *reshard = "";
};

inline std::string gathers_and_reduces(int rank, int rank_count, mxs_comm *comm, const FrameworkStream *stream,
                                       uint64_t scale, const Expected &expected) {
  int turn = 0;
  for (const mxs_dtype dtype : {MXS_F32, MXS_BF16, MXS_F16}) {
    if (rank_count > 4 && dtype != MXS_BF16) continue;
    for (const TestLayout &layout : test_layouts(rank_count, mxs_dtype_bytes(dtype), scale)) {
      DeviceCase each;
      each.layout = &layout;
      each.stream = stream;
      each.packed = turn % 2 == 0;
      each.algorithm = expected.gather;
      std::string complaint = run_case(rank, rank_count, comm, each);
      each.kind = MXS_REDUCE;
      each.dtype = dtype;
      for (const int32_t flags : {0, MXS_RANK_ORDER}) {
        each.flags = flags | (turn % 3 ? MXS_ACCUMULATE : 0);
        each.algorithm = flags ? expected.ordered : expected.reduce;
        if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
      }
      if (!complaint.empty()) return complaint;
      ++turn;
    }
  }
  return "";
}

// All pairs of gap-free layouts of equal bytes: cut the first one anew.
inline std::string reshards(int rank, int rank_count, mxs_comm *comm, uint64_t scale) {
  for (const TestLayout &from : test_layouts(rank_count, 1, scale)) {
    if (from.alignment != 1 || from.bytes == 0) continue;
    TestLayout to("turned", 1);
    const uint64_t third = from.bytes / 3;
    to.add(rank_count - 1, third);
    to.add(0, from.bytes - third);
    const std::string complaint = reshard_on_device(rank, rank_count, comm, from, to);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

// Opens the device, so that device_of_comm() knows it: that of the context which is current, one for each rank if there
// are so many.
inline std::string open_device_of(mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  const auto set = driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
  set(context_of(info.rank % device_count()));
  void *memory = nullptr;
  const mxs_status status = mxs_comm_allocate(comm, 100, MXS_CUDA, &memory);
  set(nullptr);
  if (status != MXS_OK) return error_of("allocate");
  return mxs_comm_free(comm, memory) == MXS_OK ? "" : error_of("free");
}

inline std::string whole_matrix(int rank, int rank_count, mxs_comm *comm, bool by_stream, uint64_t scale,
                                const Expected &expected) {
  std::string complaint = open_device_of(comm);
  if (!complaint.empty()) return complaint;
  const FrameworkStream stream(device_of_comm(comm));
  complaint = gathers_and_reduces(rank, rank_count, comm, by_stream ? &stream : nullptr, scale, expected);
  return complaint.empty() ? reshards(rank, rank_count, comm, scale) : complaint;
}

}  // namespace mxs::test
