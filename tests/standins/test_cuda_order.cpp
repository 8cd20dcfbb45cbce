// SPDX-License-Identifier: Apache-2.0
// Order between streams in the stand-in libcuda.so.1. The planted fault: a producer and a consumer on two streams whose
// event is left out. With slow streams the bytes come out wrong, in whichever of the two directions the event is
// missing; with the event they are right, whatever is slow.
#include "standins/cuda_case.hpp"
#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

constexpr uint32_t count = 256;
// 150 ms: longer than a thread waits for its turn on a busy machine.
constexpr char slow_job[] = "150000";

struct Streams {
  CUstream first = nullptr, second = nullptr;
};

// first: words = 1; second: sum = words; first: words = 2. Two events order them: there, and back.
uint32_t sum_of(Expect *expect, const Streams &streams, bool has_event_there, bool has_event_back) {
  const CUfunction write = find_kernel(expect, "write_words"), add = find_kernel(expect, "add_words");
  const CUdeviceptr words = new_memory(expect, count * 4), sum = new_memory(expect, count * 4);
  CUevent there = nullptr, back = nullptr;
  expect->ok(cuda().make_event(&there, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  expect->ok(cuda().make_event(&back, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  expect->ok(cuda().fill(words, 0, count * 4, streams.first), "cuMemsetD8Async");
  expect->ok(cuda().fill(sum, 0, count * 4, streams.second), "cuMemsetD8Async");
  expect->ok(cuda().synchronize(), "cuCtxSynchronize");
  expect->ok(launch_kernel(write, WriteWords{words_at(words), 1}, count, streams.first), "write_words");
  expect->ok(cuda().record(there, streams.first), "cuEventRecord");
  if (has_event_there) expect->ok(cuda().wait_event(streams.second, there, 0), "cuStreamWaitEvent");
  expect->ok(launch_kernel(add, AddWords{words_at(sum), words_at(words)}, count, streams.second), "add_words");
  expect->ok(cuda().record(back, streams.second), "cuEventRecord");
  if (has_event_back) expect->ok(cuda().wait_event(streams.first, back, 0), "cuStreamWaitEvent");
  expect->ok(launch_kernel(write, WriteWords{words_at(words), 2}, count, streams.first), "write_words");
  expect->ok(cuda().synchronize(), "cuCtxSynchronize");
  return read_words(expect, sum, count)[count - 1];
}

Streams two_streams(Expect *expect) {
  Streams streams;
  streams.first = new_stream(expect);  // has number 1, and second 2
  streams.second = new_stream(expect);
  return streams;
}

// What comes out where only the odd streams, or the even ones, are slow.
bool comes_out(const char *slow, bool has_event_there, bool has_event_back, uint32_t wanted) {
  return holds_with_cuda({{"MXS_STANDIN_SLOW", slow_job}, {"MXS_STANDIN_SLOW_STREAMS", slow}}, [&](Expect &expect) {
    const uint32_t sum = sum_of(&expect, two_streams(&expect), has_event_there, has_event_back);
    expect.that(sum == wanted, ("the sum is " + std::to_string(wanted) + ", not " + std::to_string(sum)).c_str());
  });
}

void blocking_streams_follow_the_default_stream(Expect &expect) {
  const Streams streams = {nullptr, new_stream(&expect, CU_STREAM_DEFAULT)};
  expect.that(sum_of(&expect, streams, false, false) == 1, "the default stream and a blocking one need no event");
}

void independent_streams_do_not(Expect &expect) {
  const Streams streams = {nullptr, new_stream(&expect)};
  expect.that(sum_of(&expect, streams, false, false) == 0, "a non-blocking stream needs one");
}

void one_hundred_events(Expect &expect) {
  const Streams streams = two_streams(&expect);
  for (int i = 0; i < 20; ++i) expect.that(sum_of(&expect, streams, true, true) == 1, "events order jobs");
}

// The program is right, the switch leaves out one of its waits.
bool comes_out_without_wait(const char *slow, const char *dropped, uint32_t wanted) {
  const Variables variables = {{"MXS_STANDIN_SLOW", slow_job}, {"MXS_STANDIN_SLOW_STREAMS", slow},
                               {"MXS_STANDIN_DROP_WAIT", dropped}};
  return holds_with_cuda(variables, [&](Expect &expect) {
    const uint32_t sum = sum_of(&expect, two_streams(&expect), true, true);
    expect.that(sum == wanted, ("the sum is " + std::to_string(wanted) + ", not " + std::to_string(sum)).c_str());
  });
}

void events_hold_whatever_is_slow(void **) {
  assert_true(comes_out("odd", true, true, 1));
  assert_true(comes_out("even", true, true, 1));
  for (const char *seed : {"1", "2", "3"})
    assert_true(holds_with_cuda({{"MXS_STANDIN_SLOW", "500"}, {"MXS_STANDIN_SLOW_SEED", seed}}, one_hundred_events));
}
void a_missing_event_to_the_consumer_shows_when_the_producer_is_slow(void **) {
  assert_true(comes_out("odd", false, true, 0));
}
void a_missing_event_back_shows_when_the_consumer_is_slow(void **) { assert_true(comes_out("even", true, false, 2)); }
void a_wait_that_the_switch_leaves_out_shows_alike(void **) {
  assert_true(comes_out_without_wait("odd", "0", 0));
  assert_true(comes_out_without_wait("even", "1", 2));
  assert_true(comes_out_without_wait("even", "2", 1));  // there are two
}
void the_default_stream_orders_blocking_streams_only(void **) {
  const Variables even = {{"MXS_STANDIN_SLOW", slow_job}, {"MXS_STANDIN_SLOW_STREAMS", "even"}};  // the default is 0
  assert_true(holds_with_cuda(even, blocking_streams_follow_the_default_stream));
  assert_true(holds_with_cuda({{"MXS_STANDIN_SLOW", slow_job}, {"MXS_STANDIN_SLOW_STREAMS", "odd"}},
                              blocking_streams_follow_the_default_stream));
  assert_true(holds_with_cuda(even, independent_streams_do_not));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(events_hold_whatever_is_slow),
      cmocka_unit_test(a_missing_event_to_the_consumer_shows_when_the_producer_is_slow),
      cmocka_unit_test(a_missing_event_back_shows_when_the_consumer_is_slow),
      cmocka_unit_test(a_wait_that_the_switch_leaves_out_shows_alike),
      cmocka_unit_test(the_default_stream_orders_blocking_streams_only),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
