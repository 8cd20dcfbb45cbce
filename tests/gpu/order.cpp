// SPDX-License-Identifier: Apache-2.0
// A framework's streams and the library's: the framework, which is this program over the CUDA runtime (the stand-in,
// which is the driver under other names), shares the device's primary context and passes its memory and its stream.
//
// What it leaves in order comes out right, and what it forgets to order is seen: a writer that the gather doesn't wait
// for, a reader that doesn't wait for the gather. That is decided by a flag that the writer waits for, not by time. On
// the stand-in each wait for an event is left out in turn, too, while streams are slow: some of it must come out wrong.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>

#include "gpu/gpu.hpp"
#include "matrixshard/collective.h"
#include "standins/cuda_functions.hpp"
#include "support/complaints.hpp"
#include "support/processes.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

constexpr int rank_count = 2;
constexpr size_t segment_bytes = 4096, whole_bytes = rank_count * segment_bytes;
constexpr unsigned char written = 0x5A, before = 0x11;

enum class Forgotten { nothing, writer, reader };

// What a framework has on its device. The stream `own` is the one that the library is told.
struct Framework {
  int device = 0;
  cudaStream_t own = nullptr, writer = nullptr, reader = nullptr;
  cudaEvent_t event = nullptr;
  void *buffer = nullptr, *seen = nullptr, *flag = nullptr;

  bool begin(int index) {
    device = index;
    bool good = cudaSetDevice(index) == cudaSuccess;
    for (cudaStream_t *stream : {&own, &writer, &reader})
      good = good && cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking) == cudaSuccess;
    good = good && cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess &&
           cudaMalloc(&buffer, whole_bytes) == cudaSuccess && cudaMallocHost(&seen, whole_bytes) == cudaSuccess &&
           cudaMallocHost(&flag, sizeof(uint32_t)) == cudaSuccess;
    return good;
  }
  ~Framework() {
    for (const cudaStream_t stream : {own, writer, reader}) cudaStreamDestroy(stream);
    cudaEventDestroy(event);
    cudaFree(buffer);
    cudaFreeHost(seen);
    cudaFreeHost(flag);
  }
  bool order(cudaStream_t later, cudaStream_t earlier) const {
    return cudaEventRecord(event, earlier) == cudaSuccess && cudaStreamWaitEvent(later, event, 0) == cudaSuccess;
  }
  void raise() const { __atomic_store_n(static_cast<uint32_t *>(flag), 1, __ATOMIC_RELEASE); }
  void lower() const { __atomic_store_n(static_cast<uint32_t *>(flag), 0, __ATOMIC_RELEASE); }
};

struct Gather {
  mxs_layout *layout = nullptr;
  mxs_collective *collective = nullptr;
  ~Gather() {
    mxs_collective_destroy(&collective);
    mxs_layout_destroy(&layout);
  }
  mxs_status make(mxs_comm *comm) {
    const mxs_status status = mxs_layout_create_even(&layout, whole_bytes, 1, rank_count);
    if (status != MXS_OK) return status;
    mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
    options.kind = MXS_GATHER;
    options.layout = layout;
    options.memory = MXS_CUDA;
    return mxs_collective_create(&collective, comm, &options);
  }
};

// What the library's part of the step leaves out.
struct Dropped {
  const char *wait = nullptr;  // the number of a wait, on rank 0
};

std::string gather_by(const Gather &gather, const Framework &framework, const Dropped &dropped) {
  mxs_call call = MXS_CALL_INIT;
  call.stream = framework.own;
  if (dropped.wait && !set_standin("MXS_STANDIN_DROP_WAIT", dropped.wait)) return "the stand-in drops no waits";
  if (mxs_collective_start(gather.collective, nullptr, framework.buffer, &call) != MXS_OK) return error_of("start");
  if (mxs_collective_wait(gather.collective, &call) != MXS_OK) return error_of("wait");
  if (dropped.wait) set_standin("MXS_STANDIN_DROP_WAIT", nullptr);
  return "";
}

bool all_are(const void *bytes, size_t count, unsigned char value) {
  const auto *const at = static_cast<const unsigned char *>(bytes);
  for (size_t i = 0; i < count; ++i)
    if (at[i] != value) return false;
  return true;
}

// writer: this rank's segment; own: the gather; reader: the whole comes to the host. `value` is what was seen, or 0
// if it was several.
std::string step(Framework &framework, const Gather &gather, int rank, Forgotten forgotten, const Dropped &dropped,
                 unsigned char *value) {
  auto *const segment = static_cast<std::byte *>(framework.buffer) + static_cast<size_t>(rank) * segment_bytes;
  std::memset(framework.seen, 0, whole_bytes);
  bool good = cudaMemsetAsync(framework.buffer, before, whole_bytes, framework.writer) == cudaSuccess &&
              cudaDeviceSynchronize() == cudaSuccess;
  framework.lower();
  good = good && cuda().wait_value(framework.writer, reinterpret_cast<CUdeviceptr>(framework.flag), 1,
                                   CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS &&
         cudaMemsetAsync(segment, written, segment_bytes, framework.writer) == cudaSuccess;
  if (forgotten != Forgotten::writer) good = good && framework.order(framework.own, framework.writer);
  if (!good) return std::string("the writer: ") + cudaGetErrorString(cudaGetLastError());
  if (dropped.wait) framework.raise();  // then time decides
  const std::string complaint = gather_by(gather, framework, dropped);
  if (!complaint.empty()) return complaint;
  if (forgotten != Forgotten::reader) good = framework.order(framework.reader, framework.own);
  good = good && cudaMemcpyAsync(framework.seen, framework.buffer, whole_bytes, cudaMemcpyDeviceToHost,
                                 framework.reader) == cudaSuccess;
  if (forgotten != Forgotten::nothing) good = good && cudaStreamSynchronize(framework.reader) == cudaSuccess;
  else if (!dropped.wait && cudaStreamQuery(framework.reader) != cudaErrorNotReady) return "the reader doesn't wait";
  framework.raise();
  if (!good || cudaDeviceSynchronize() != cudaSuccess)
    return std::string("the reader: ") + cudaGetErrorString(cudaGetLastError());
  *value = 0;
  for (const unsigned char each : {before, written})
    if (all_are(framework.seen, whole_bytes, each)) *value = each;
  return "";
}

std::string begin(Framework *framework, Gather *gather, int rank, mxs_comm *comm) {
  int device_count = 0, device = -1;
  if (cudaGetDeviceCount(&device_count) != cudaSuccess || !framework->begin(rank % device_count))
    return std::string("the framework: ") + cudaGetErrorString(cudaGetLastError());
  if (gather->make(comm) != MXS_OK) return error_of("create");
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  if (info.device != MXS_DEVICE(framework->device)) return "the comm is not on the framework's device";
  return cudaGetDevice(&device) == cudaSuccess && device == framework->device ? "" : "the current device has changed";
}

bool shows(Forgotten forgotten, unsigned char wanted) {
  return good(run_processes(rank_count, [&](int rank, mxs_comm *comm) {
    Framework framework;
    Gather gather;
    std::string complaint = begin(&framework, &gather, rank, comm);
    for (int i = 0; i < 3 && complaint.empty(); ++i) {
      unsigned char value = 0;
      complaint = step(framework, gather, rank, forgotten, {}, &value);
      if (complaint.empty() && value != wanted) complaint = words("0x%02X was read, not 0x%02X", value, wanted);
    }
    return complaint;
  }));
}

void a_framework_that_orders_its_streams_reads_what_was_gathered(void **) {
  assert_true(shows(Forgotten::nothing, written));
}
void a_writer_that_is_not_ordered_is_seen(void **) { assert_true(shows(Forgotten::writer, before)); }
void a_reader_that_is_not_ordered_is_seen(void **) { assert_true(shows(Forgotten::reader, before)); }

// Each of the waits that rank 0 makes in a gather is left out, while the odd or the even streams are slow. A bit of
// *wrong for each of them by which something came out wrong, on either rank.
std::string drop_each_wait(int rank, mxs_comm *comm, int wait_count, uint32_t *wrong) {
  Framework framework;
  Gather gather;
  std::string complaint = begin(&framework, &gather, rank, comm);
  set_standin("MXS_STANDIN_SLOW", "50000");
  for (const char *slow : {"odd", "even"})
    for (int wait = 0; wait < wait_count && complaint.empty(); ++wait) {
      unsigned char value = 0;
      const std::string number = std::to_string(wait);
      set_standin("MXS_STANDIN_SLOW_STREAMS", slow);
      const Dropped dropped = {rank == 0 ? number.c_str() : "1000"};
      complaint = step(framework, gather, rank, Forgotten::nothing, dropped, &value);
      if (value != written) __atomic_or_fetch(wrong, 1u << wait, __ATOMIC_ACQ_REL);
    }
  return complaint;
}

// Two at least: the gather's for the caller's stream, whose writer it would overtake, and the caller's for the gather.
bool dropped_waits_show() {
  void *const shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return false;
  auto *const wrong = static_cast<uint32_t *>(shared);
  const bool fine = good(run_processes(
      rank_count, [&](int rank, mxs_comm *comm) { return drop_each_wait(rank, comm, 4, wrong); }));
  const uint32_t seen = __atomic_load_n(wrong, __ATOMIC_ACQUIRE);
  munmap(shared, 4096);
  std::fprintf(stderr, "waits that were left out and seen: bits 0x%x\n", seen);
  return fine && (seen & 1) && (seen & (seen - 1));
}

void a_wait_that_the_library_leaves_out_is_seen(void **) {
  if (!on_standin()) return;  // a driver drops none
  assert_true(dropped_waits_show());
}

}  // namespace

int main(int, char **arguments) {
  if (!gpu_is_there(arguments)) return 0;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_framework_that_orders_its_streams_reads_what_was_gathered),
      cmocka_unit_test(a_writer_that_is_not_ordered_is_seen),
      cmocka_unit_test(a_reader_that_is_not_ordered_is_seen),
      cmocka_unit_test(a_wait_that_the_library_leaves_out_is_seen),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
