// SPDX-License-Identifier: Apache-2.0
// What is refused of collectives in CUDA memory, and that nothing is harmed by it.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "gpu/collective_matrix.hpp"
#include "gpu/gpu.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

TestLayout small(int rank_count) {
  TestLayout layout("small", 64);
  for (int rank = 0; rank < rank_count; ++rank) layout.add(rank, 256);
  return layout;
}

mxs_status gather_of(OwnedCollective *collective, mxs_comm *comm, const TestLayout &layout, int rank_count) {
  DeviceCase each;
  each.layout = &layout;
  return make(collective, comm, each, rank_count);
}

// After a refusal the same collective works.
std::string bad_buffers(int rank, int rank_count, mxs_comm *comm) {
  const TestLayout layout = small(rank_count);
  OwnedCollective collective;
  if (gather_of(&collective, comm, layout, rank_count) != MXS_OK) return error_of("create");
  const int device = device_of_comm(comm);
  std::vector<std::byte> host(layout.bytes);
  std::string wrong = expect(mxs_collective_start(collective.value, nullptr, host.data(), nullptr),
                             MXS_INVALID_ARGUMENT, {"target", "host memory", "device"});
  if (wrong.empty())
    wrong = expect(mxs_collective_start(collective.value, nullptr, nullptr, nullptr), MXS_INVALID_ARGUMENT, {"target"});
  const FrameworkMemory target(device, layout.bytes);
  if (wrong.empty())
    wrong = expect(mxs_collective_start(collective.value, host.data(), target.data(), nullptr), MXS_INVALID_ARGUMENT,
                   {"source", "host memory"});
  if (wrong.empty() && device_count() > 1) {
    const FrameworkMemory foreign((device + 1) % device_count(), layout.bytes);
    wrong = expect(mxs_collective_start(collective.value, nullptr, foreign.data(), nullptr), MXS_INVALID_ARGUMENT,
                   {"target", "memory of device"});
  }
  // The foreign memory was freed, which waits for all that its device, the other rank's, has been given.
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  DeviceCase each;
  each.layout = &layout;
  return wrong.empty() ? gather_on_device(rank, comm, collective.value, each, 9) : wrong;
}

void host_and_foreign_memory_are_refused(void **) {
  assert_true(good(run_world(2, [](int rank, mxs_comm *comm) { return bad_buffers(rank, 2, comm); })));
}

// The other way around.
std::string streams_of_host_memory(mxs_comm *comm) {
  const TestLayout layout = small(1);
  OwnedCollective collective;
  Case each;
  each.layout = &layout;
  if (make(&collective, comm, each, 1) != MXS_OK) return error_of("create");
  std::vector<std::byte> host(layout.bytes);
  mxs_call call = MXS_CALL_INIT;
  call.stream = &call;
  return expect(mxs_collective_start(collective.value, nullptr, host.data(), &call), MXS_INVALID_ARGUMENT, {"stream"});
}

void a_stream_of_host_memory_is_refused(void **) {
  assert_true(good(run_world(1, [](int, mxs_comm *comm) { return streams_of_host_memory(comm); })));
}

std::string device_memory_for_the_host(mxs_comm *comm) {
  const TestLayout layout = small(1);
  OwnedCollective collective;
  Case each;
  each.layout = &layout;
  if (make(&collective, comm, each, 1) != MXS_OK) return error_of("create");
  std::vector<std::byte> host(layout.bytes);
  const FrameworkMemory foreign(0, layout.bytes);
  std::string wrong = expect(mxs_collective_start(collective.value, nullptr, foreign.data(), nullptr),
                             MXS_INVALID_ARGUMENT, {"target", "CUDA device", "host memory"});
  if (wrong.empty())
    wrong = expect(mxs_collective_start(collective.value, foreign.data(), host.data(), nullptr), MXS_INVALID_ARGUMENT,
                   {"source", "CUDA device"});
  if (wrong.empty() && mxs_collective_start(collective.value, nullptr, host.data(), nullptr) != MXS_OK)
    wrong = error_of("start on the host");
  return wrong.empty() && mxs_collective_wait(collective.value, nullptr) != MXS_OK ? error_of("wait") : wrong;
}

void device_memory_is_refused_where_the_hosts_is_wanted(void **) {
  assert_true(good(run_world(1, [](int, mxs_comm *comm) { return device_memory_for_the_host(comm); })));
}

std::string bad_options(int rank_count, mxs_comm *comm) {
  const TestLayout test = small(rank_count);
  OwnedLayout layout;
  if (make(&layout, test, rank_count) != MXS_OK) return error_of("layout");
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.layout = layout.value;
  options.memory = MXS_CUDA;
  std::string wrong;
  const auto refused = [&](const mxs_collective_options &given) {
    mxs_collective *made = nullptr;
    if (wrong.empty()) wrong = expect(mxs_collective_create(&made, comm, &given), MXS_INVALID_ARGUMENT, {"MXS_CUDA"});
  };
  mxs_collective_options given = options;
  given.algorithm = "chain";
  refused(given);
  given = options;
  given.chunk_bytes = 4096;
  refused(given);
  given = options;
  given.window = 2;
  refused(given);
  given = options;
  given.flags = MXS_MAPPED_MEMORY;
  refused(given);
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  if (wrong.empty() && (info.device != 0 || *info.cuda)) wrong = "the device was opened for nothing";
  return wrong;
}

void what_messages_alone_have_is_refused(void **) {
  assert_true(good(run_world(2, [](int, mxs_comm *comm) { return bad_options(2, comm); })));
}

// Ranks that disagree about memory are told at create, and the comm stays good.
std::string other_memory(int rank, int rank_count, mxs_comm *comm) {
  const TestLayout layout = small(rank_count);
  OwnedCollective collective;
  Case on_host;
  on_host.layout = &layout;
  const mxs_status status = rank == 0 ? make(&collective, comm, on_host, rank_count)
                                      : gather_of(&collective, comm, layout, rank_count);
  std::string wrong = expect(status, MXS_MISMATCH, {"mxs_collective_create"});
  if (!wrong.empty()) return wrong;
  void *memory = nullptr;
  wrong = expect(mxs_comm_allocate(comm, 64, rank == 0 ? MXS_HOST : MXS_CUDA, &memory), MXS_MISMATCH,
                 {"mxs_comm_allocate"});
  DeviceCase each;
  each.layout = &layout;
  return wrong.empty() ? run_case(rank, rank_count, comm, each) : wrong;
}

void ranks_that_want_other_memory_are_told(void **) {
  assert_true(good(run_world(3, [](int rank, mxs_comm *comm) { return other_memory(rank, 3, comm); })));
}

// What is started differs: found on every rank, instead of waiting for ever.
std::string other_collective(int rank, int rank_count, mxs_comm *comm) {
  const TestLayout layout = small(rank_count);
  OwnedCollective gather, reduce;
  DeviceCase each;
  each.layout = &layout;
  if (make(&gather, comm, each, rank_count) != MXS_OK) return error_of("create");
  each.kind = MXS_REDUCE;
  if (make(&reduce, comm, each, rank_count) != MXS_OK) return error_of("create");
  const FrameworkMemory source(device_of_comm(comm), layout.bytes), target(device_of_comm(comm), layout.bytes);
  mxs_collective *const collective = rank == 0 ? gather.value : reduce.value;
  mxs_status status = mxs_collective_start(collective, rank == 0 ? nullptr : source.data(), target.data(), nullptr);
  if (status == MXS_OK) status = mxs_collective_wait(collective, nullptr);
  // What a peer tells it tells as its own.
  return status == MXS_MISMATCH || status == MXS_PEER_FAILED || status == MXS_DEVICE_FAILED
             ? ""
             : words("status is %s: %s", mxs_status_name(status), status == MXS_OK ? "" : mxs_last_error());
}

void ranks_that_start_other_collectives_are_told(void **) {
  WorldOptions options;
  options.comm_timeout_seconds = 20;
  assert_true(good(run_world(2, [](int rank, mxs_comm *comm) { return other_collective(rank, 2, comm); }, options)));
}

// ---- memory ----

std::string buffers(int rank, mxs_comm *comm) {
  void *memory = nullptr;
  constexpr uint64_t bytes = 100'000;
  if (mxs_comm_allocate(comm, bytes, MXS_CUDA, &memory) != MXS_OK) return error_of("allocate");
  std::vector<std::byte> host(bytes, std::byte{poison});
  if (!copy_to(host.data(), memory, bytes)) return error_of("copy");
  for (const std::byte byte : host)
    if (byte != std::byte{0}) return "memory isn't zero";
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  if (info.device < 1 || !*info.cuda) return "info tells no device";
  mxs_comm *held = comm;
  std::string wrong = expect(mxs_comm_destroy(&held), MXS_HELD, {"1 buffers"});
  if (wrong.empty()) wrong = expect(mxs_comm_free(comm, host.data()), MXS_INVALID_ARGUMENT, {"mxs_comm_allocate"});
  if (wrong.empty() && mxs_comm_free(comm, memory) != MXS_OK) wrong = error_of("free");
  if (wrong.empty()) wrong = expect(mxs_comm_free(comm, memory), MXS_INVALID_ARGUMENT, {});
  if (wrong.empty())
    wrong = expect(mxs_comm_allocate(comm, uint64_t{1} << 60, MXS_CUDA, &memory), MXS_OUT_OF_MEMORY, {});
  static_cast<void>(rank);
  return wrong;
}

// The comm's stream waits for messages that nobody but this thread carries.
std::string memory_behind_messages(int rank, ThreadBootstrap *ranks) {
  const mxs_bootstrap bootstrap = ranks->of(rank);
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.bootstrap = &bootstrap;
  options.progress = MXS_PROGRESS_MANUAL;
  mxs_comm *comm = nullptr;
  if (mxs_comm_create(&comm, &options) != MXS_OK) return error_of("create");
  std::string wrong;
  {
    const TestLayout layout = small(2);
    OwnedCollective collective;
    if (gather_of(&collective, comm, layout, 2) != MXS_OK) return error_of("create");
    const LentMemory target(device_of_comm(comm), layout.bytes);
    const FrameworkStream stream(device_of_comm(comm));
    const auto call_host = driver<CUresult (*)(CUstream, CUhostFn, void *)>("cuLaunchHostFunc");
    driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent")(context_of(device_of_comm(comm)));
    call_host(stream.handle(), [](void *) { usleep(200'000); }, nullptr);
    driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent")(nullptr);
    mxs_call call = MXS_CALL_INIT;
    call.stream = stream.handle();
    void *memory = nullptr;
    if (mxs_collective_start(collective.value, nullptr, target.data(), &call) != MXS_OK) wrong = error_of("start");
    if (wrong.empty() && mxs_comm_allocate(comm, 4096, MXS_CUDA, &memory) != MXS_OK) wrong = error_of("allocate");
    if (wrong.empty() && mxs_collective_wait(collective.value, nullptr) != MXS_OK) wrong = error_of("wait");
    if (wrong.empty() && mxs_comm_free(comm, memory) != MXS_OK) wrong = error_of("free");
  }
  if (mxs_comm_destroy(&comm) != MXS_OK && wrong.empty()) wrong = error_of("destroy");
  return wrong;
}

void memory_is_taken_behind_messages_in_flight(void **) {
  ThreadBootstrap ranks(2);
  std::string wrong[2];
  setenv("MXS_ROUTE", "messages", 1);
  std::thread first([&] { wrong[0] = memory_behind_messages(0, &ranks); });
  std::thread second([&] { wrong[1] = memory_behind_messages(1, &ranks); });
  first.join();
  second.join();
  unsetenv("MXS_ROUTE");
  assert_true(good(wrong[0].empty() ? wrong[1] : wrong[0]));
}

void memory_of_the_device_is_zeroed_and_counted(void **) { assert_true(good(run_world(2, buffers))); }

// ---- capture ----

std::string captured(mxs_comm *comm) {
  const TestLayout layout = small(1);
  OwnedCollective collective;
  if (gather_of(&collective, comm, layout, 1) != MXS_OK) return error_of("create");
  const FrameworkStream stream(device_of_comm(comm));
  const FrameworkMemory target(device_of_comm(comm), layout.bytes);
  mxs_call call = MXS_CALL_INIT;
  call.stream = stream.handle();
  const auto begin = driver<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
  const auto end = driver<CUresult (*)(CUstream, CUgraph *)>("cuStreamEndCapture");
  driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent")(context_of(device_of_comm(comm)));
  const CUresult begun = begin(stream.handle(), CU_STREAM_CAPTURE_MODE_RELAXED);
  if (begun != CUDA_SUCCESS) return words("no capture: %d", static_cast<int>(begun));
  std::string wrong = expect(mxs_collective_start(collective.value, nullptr, target.data(), &call), MXS_NOT_BUILT,
                             {"captured"});
  CUgraph graph = nullptr;
  end(stream.handle(), &graph);
  if (graph) driver<CUresult (*)(CUgraph)>("cuGraphDestroy")(graph);
  driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent")(nullptr);
  DeviceCase each;
  each.layout = &layout;
  each.stream = &stream;
  if (wrong.empty()) wrong = gather_on_device(0, comm, collective.value, each, 5);
  if (wrong.empty() && mxs_collective_wait(collective.value, nullptr) != MXS_OK) wrong = error_of("wait");
  return wrong;
}

void a_capturing_stream_is_refused(void **) {
  assert_true(good(run_world(1, [](int, mxs_comm *comm) { return captured(comm); })));
}

// ---- the environment and options ----

void a_route_that_is_none_is_named(void **) {
  setenv("MXS_ROUTE", "pigeon", 1);
  std::string wrong = run_world(2, [](int, mxs_comm *comm) {
    void *memory = nullptr;
    return expect(mxs_comm_allocate(comm, 64, MXS_CUDA, &memory), MXS_ENVIRONMENT, {"MXS_ROUTE", "pigeon"});
  });
  setenv("MXS_ROUTE", "levels", 1);
  if (wrong.empty())
    wrong = run_world(2, [](int, mxs_comm *comm) {
      void *memory = nullptr;
      return expect(mxs_comm_allocate(comm, 64, MXS_CUDA, &memory), MXS_ENVIRONMENT, {"levels", "1 node"});
    });
  unsetenv("MXS_ROUTE");
  assert_true(good(wrong));
}

std::string with_device(int rank, int32_t device, ThreadBootstrap *ranks) {
  const mxs_bootstrap bootstrap = ranks->of(rank);
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.bootstrap = &bootstrap;
  options.device = device;
  mxs_comm *comm = nullptr;
  if (mxs_comm_create(&comm, &options) != MXS_OK) return error_of("create");
  void *memory = nullptr;
  std::string wrong;
  if (device > 1000) {
    wrong = expect(mxs_comm_allocate(comm, 64, MXS_CUDA, &memory), MXS_NO_DEVICE, {"options.device", "devices"});
  } else {
    wrong = open_device_of(comm);
    mxs_comm_info info = MXS_COMM_INFO_INIT;
    mxs_comm_query(comm, &info);
    if (wrong.empty() && info.device != device) wrong = words("device is %d, not %d", info.device, device);
  }
  mxs_comm_destroy(&comm);
  return wrong;
}

void options_choose_the_device(void **) {
  ThreadBootstrap first(1), second(1);
  assert_true(good(with_device(0, MXS_DEVICE(device_count() - 1), &first)));
  assert_true(good(with_device(0, MXS_DEVICE(12345), &second)));
}

// ---- splits ----

std::string in_halves(int rank, mxs_comm *comm) {
  mxs_comm *half = nullptr;
  if (mxs_comm_split(&half, comm, rank / 2, rank, nullptr) != MXS_OK) return error_of("split");
  std::string wrong = open_device_of(half);
  const TestLayout layout = small(2);
  DeviceCase each;
  each.layout = &layout;
  if (wrong.empty()) wrong = run_case(rank % 2, 2, half, each);
  if (mxs_comm_destroy(&half) != MXS_OK && wrong.empty()) wrong = error_of("destroy");
  return wrong;
}

void halves_of_a_comm_have_devices_of_their_own(void **) { assert_true(good(run_world(4, in_halves))); }

}  // namespace

int main(int, char **arguments) {
  if (!gpu_is_there(arguments, 2)) return 0;
  setenv("MXS_SPEEDS", "none", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(host_and_foreign_memory_are_refused),
      cmocka_unit_test(a_stream_of_host_memory_is_refused),
      cmocka_unit_test(device_memory_is_refused_where_the_hosts_is_wanted),
      cmocka_unit_test(what_messages_alone_have_is_refused),
      cmocka_unit_test(ranks_that_want_other_memory_are_told),
      cmocka_unit_test(ranks_that_start_other_collectives_are_told),
      cmocka_unit_test(memory_of_the_device_is_zeroed_and_counted),
      cmocka_unit_test(memory_is_taken_behind_messages_in_flight),
      cmocka_unit_test(a_capturing_stream_is_refused),
      cmocka_unit_test(a_route_that_is_none_is_named),
      cmocka_unit_test(options_choose_the_device),
      cmocka_unit_test(halves_of_a_comm_have_devices_of_their_own),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
