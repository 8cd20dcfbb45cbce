// SPDX-License-Identifier: Apache-2.0
// Captures and graphs of the stand-in libcuda.so.1.
#include <thread>

#include "standins/cuda_case.hpp"
#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

constexpr uint32_t count = 64;

CUevent new_event(Expect *expect) {
  CUevent event = nullptr;
  expect->ok(cuda().make_event(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return event;
}

void begin(Expect *expect, CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
  expect->ok(cuda().begin_capture(stream, mode), "cuStreamBeginCapture");
}

CUgraphExec end(Expect *expect, CUstream stream) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  expect->ok(cuda().end_capture(stream, &graph), "cuStreamEndCapture");
  expect->ok(cuda().instantiate(&exec, graph, 0), "cuGraphInstantiate");
  expect->ok(cuda().end_graph(graph), "cuGraphDestroy");
  return exec;
}

// main: words = 5, fork; side: sum += words; join; main: words = 9. Launched three times, sum is 15.
void graphs_replay(Expect &expect) {
  const CUstream main_stream = new_stream(&expect), side = new_stream(&expect);
  const CUfunction write = find_kernel(&expect, "write_words"), add = find_kernel(&expect, "add_words");
  const CUdeviceptr words = new_memory(&expect, count * 4), sum = new_memory(&expect, count * 4);
  const CUevent fork_event = new_event(&expect), join_event = new_event(&expect);
  expect.ok(cuda().fill(sum, 0, count * 4, main_stream), "cuMemsetD8Async");
  begin(&expect, main_stream);
  expect.ok(launch_kernel(write, WriteWords{words_at(words), 5}, count, main_stream), "write_words");
  expect.ok(cuda().record(fork_event, main_stream), "cuEventRecord");
  expect.ok(cuda().wait_event(side, fork_event, 0), "cuStreamWaitEvent");
  CUstreamCaptureStatus status{};
  expect.ok(cuda().is_capturing(side, &status), "cuStreamIsCapturing");
  expect.that(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "the side stream has joined the capture");
  expect.ok(launch_kernel(add, AddWords{words_at(sum), words_at(words)}, count, side), "add_words");
  expect.ok(cuda().record(join_event, side), "cuEventRecord");
  expect.is(cuda().query_event(join_event), CUDA_ERROR_CAPTURED_EVENT, "an event of a capture");
  expect.ok(cuda().wait_event(main_stream, join_event, 0), "cuStreamWaitEvent");
  expect.ok(launch_kernel(write, WriteWords{words_at(words), 9}, count, main_stream), "write_words");
  const CUgraphExec exec = end(&expect, main_stream);
  expect.ok(cuda().wait_stream(main_stream), "cuStreamSynchronize");
  expect.that(read_words(&expect, words, 1)[0] == 0xCDCDCDCD, "nothing has run yet");
  for (int i = 0; i < 3; ++i) expect.ok(cuda().launch_graph(exec, main_stream), "cuGraphLaunch");
  expect.ok(cuda().end_exec(exec), "cuGraphExecDestroy");
  expect.ok(cuda().wait_stream(main_stream), "cuStreamSynchronize");
  expect.that(read_words(&expect, words, count)[count - 1] == 9, "the last kernel came last");
  expect.that(read_words(&expect, sum, count)[count - 1] == 15, "three launches add 5 each");
}

// A branch that waits for a value doesn't hold up the other, whose host function gives it.
void give(void *flag) { __atomic_store_n(static_cast<uint32_t *>(flag), 1, __ATOMIC_RELEASE); }

void branches_run_at_once(Expect &expect) {
  const CUstream main_stream = new_stream(&expect), side = new_stream(&expect);
  uint32_t *const flag = new_flags(&expect, 1);
  const CUevent fork_event = new_event(&expect), join_event = new_event(&expect);
  begin(&expect, main_stream);
  expect.ok(cuda().record(fork_event, main_stream), "cuEventRecord");
  expect.ok(cuda().wait_event(side, fork_event, 0), "cuStreamWaitEvent");
  expect.ok(cuda().wait_value(main_stream, device_pointer(flag), 1, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
  expect.ok(cuda().call_host(side, give, flag), "cuLaunchHostFunc");
  expect.ok(cuda().record(join_event, side), "cuEventRecord");
  expect.ok(cuda().wait_event(main_stream, join_event, 0), "cuStreamWaitEvent");
  const CUgraphExec exec = end(&expect, main_stream);
  expect.ok(cuda().launch_graph(exec, main_stream), "cuGraphLaunch");
  expect.ok(cuda().wait_stream(main_stream), "cuStreamSynchronize");
}

// `wrong` in a capture is answered with `wanted`, and the capture is void.
template <class Call>
void voids(Expect *expect, CUresult wanted, const char *what, Call wrong) {
  const CUstream stream = new_stream(expect);
  CUgraph graph = nullptr;
  begin(expect, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  expect->is(wrong(stream), wanted, what);
  expect->is(cuda().end_capture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, what);
  expect->that(graph == nullptr, "no graph comes of it");
}

void waits_void_a_capture(Expect &expect) {
  const CUdeviceptr memory = new_memory(&expect, 64);
  const CUstream other = new_stream(&expect);
  const CUevent outside = new_event(&expect);
  CUdeviceptr made = 0;
  char host[64];
  expect.ok(cuda().record(outside, other), "cuEventRecord");
  const CUresult refused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  voids(&expect, refused, "cuStreamSynchronize", [](CUstream stream) { return cuda().wait_stream(stream); });
  voids(&expect, refused, "cuStreamSynchronize of another", [&](CUstream) { return cuda().wait_stream(other); });
  voids(&expect, refused, "cuCtxSynchronize", [](CUstream) { return cuda().synchronize(); });
  voids(&expect, refused, "cuMemAlloc", [&](CUstream) { return cuda().allocate(&made, 64); });
  voids(&expect, refused, "cuMemFree", [&](CUstream) { return cuda().free(memory); });
  voids(&expect, refused, "cuEventQuery", [&](CUstream) { return cuda().query_event(outside); });
  voids(&expect, refused, "cuMemcpyDtoH", [&](CUstream) { return cuda().copy_out(host, memory, 64); });
  voids(&expect, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "an event from outside",
        [&](CUstream stream) { return cuda().wait_event(stream, outside, 0); });
}

void modes_say_who_is_refused(Expect &expect) {
  const CUstream stream = new_stream(&expect);
  CUdeviceptr made = 0;
  CUgraph graph = nullptr;
  CUcontext context = nullptr;
  cuda().retain(&context, 0);
  const auto allocates = [&](CUresult wanted, const char *what) {
    std::thread([&] {
      cuda().set_current(context);
      expect.is(cuda().allocate(&made, 64), wanted, what);
    }).join();
  };
  begin(&expect, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  allocates(CUDA_SUCCESS, "another thread, while one captures for itself");
  expect.ok(cuda().end_capture(stream, &graph), "cuStreamEndCapture");
  begin(&expect, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  allocates(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "another thread, while one captures for all");
  expect.is(cuda().end_capture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuStreamEndCapture");
  begin(&expect, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  expect.ok(cuda().allocate(&made, 64), "this thread, in a relaxed capture");
  expect.ok(cuda().end_capture(stream, &graph), "cuStreamEndCapture");
}

void forks_must_be_joined(Expect &expect) {
  const CUstream main_stream = new_stream(&expect), side = new_stream(&expect);
  const CUdeviceptr memory = new_memory(&expect, 64);
  const CUevent fork_event = new_event(&expect);
  CUgraph graph = nullptr;
  begin(&expect, main_stream);
  expect.ok(cuda().record(fork_event, main_stream), "cuEventRecord");
  expect.ok(cuda().wait_event(side, fork_event, 0), "cuStreamWaitEvent");
  expect.ok(cuda().fill(memory, 0, 64, side), "cuMemsetD8Async");
  expect.is(cuda().end_capture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the end in another stream");
  expect.is(cuda().end_capture(main_stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "the end without a join");
  CUstreamCaptureStatus status{};
  expect.ok(cuda().is_capturing(side, &status), "cuStreamIsCapturing");
  expect.that(status == CU_STREAM_CAPTURE_STATUS_NONE, "both streams are free again");
  expect.is(cuda().begin_capture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            "the default stream");
  const CUstream blocking = new_stream(&expect, CU_STREAM_DEFAULT);
  begin(&expect, blocking);
  expect.is(cuda().fill(memory, 0, 64, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the default stream meanwhile");
  expect.is(cuda().end_capture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuStreamEndCapture");
}

void a_graph_replays_forks_and_joins(void **) {
  assert_true(holds_with_cuda({}, graphs_replay));
  assert_true(holds_with_cuda({{"MXS_STANDIN_SLOW", "2000"}, {"MXS_STANDIN_SLOW_SEED", "5"}}, graphs_replay));
}
void branches_of_a_graph_run_at_once(void **) { assert_true(holds_with_cuda({}, branches_run_at_once)); }
void calls_that_wait_void_a_capture(void **) { assert_true(holds_with_cuda({}, waits_void_a_capture)); }
void the_mode_says_which_threads_are_refused(void **) { assert_true(holds_with_cuda({}, modes_say_who_is_refused)); }
void forks_that_are_not_joined_are_refused(void **) { assert_true(holds_with_cuda({}, forks_must_be_joined)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_graph_replays_forks_and_joins),
      cmocka_unit_test(branches_of_a_graph_run_at_once),
      cmocka_unit_test(calls_that_wait_void_a_capture),
      cmocka_unit_test(the_mode_says_which_threads_are_refused),
      cmocka_unit_test(forks_that_are_not_joined_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
