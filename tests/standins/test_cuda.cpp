// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda.so.1: memory, copies, streams, events, launches.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "standins/cuda_functions.hpp"
#include "standins/test_kernels.hpp"
#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

constexpr uint64_t granule = uint64_t{2} << 20;

std::vector<unsigned char> bytes_at(CUdeviceptr address, size_t count, Expect *expect) {
  std::vector<unsigned char> bytes(count, 0x77);
  expect->ok(cuda().copy_out(bytes.data(), address, count), "cuMemcpyDtoH");
  return bytes;
}

bool all_are(const std::vector<unsigned char> &bytes, unsigned char value) {
  for (const unsigned char byte : bytes)
    if (byte != value) return false;
  return true;
}

bool memory_begins_poisoned_and_keeps_bytes() {
  Expect expect;
  CUdeviceptr address = 0;
  expect.ok(cuda().allocate(&address, 1000), "cuMemAlloc");
  expect.that(address % 256 == 0, "allocations are aligned to 256 bytes");
  expect.that(all_are(bytes_at(address, 1000, &expect), 0xCD), "fresh memory is full of 0xCD");
  const std::vector<unsigned char> sent(1000, 0x5A);
  expect.ok(cuda().copy_in(address, sent.data(), 1000), "cuMemcpyHtoD");
  expect.that(bytes_at(address, 1000, &expect) == sent, "what was copied in comes out");
  expect.is(cuda().copy_in(address, sent.data(), 1001), CUDA_ERROR_INVALID_VALUE, "one byte beyond the end");
  expect.is(cuda().free(address + 256), CUDA_ERROR_INVALID_VALUE, "free of an address inside");
  expect.ok(cuda().free(address), "cuMemFree");
  expect.is(cuda().free(address), CUDA_ERROR_INVALID_VALUE, "free of what is freed");
  expect.is(cuda().copy_in(address, sent.data(), 1), CUDA_ERROR_INVALID_VALUE, "copy into freed memory");
  expect.is(cuda().allocate(&address, 0), CUDA_ERROR_INVALID_VALUE, "allocation of nothing");
  return expect.holds();
}

bool one_block_at_two_addresses_is_one_memory() {
  Expect expect;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr range = 0;
  CUmemGenericAllocationHandle block = 0;
  expect.ok(cuda().reserve(&range, 4 * granule, 0, 0, 0), "cuMemAddressReserve");
  expect.ok(cuda().create(&block, granule, &properties, 0), "cuMemCreate");
  expect.is(cuda().create(&block, granule + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE, "no granules");
  expect.ok(cuda().map(range, granule, 0, block, 0), "cuMemMap");
  expect.is(cuda().map(range, granule, 0, block, 0), CUDA_ERROR_INVALID_VALUE, "a map over a map");
  expect.is(cuda().map(range + granule, granule, granule, block, 0), CUDA_ERROR_INVALID_VALUE, "a map with an offset");
  unsigned char byte = 1;
  expect.is(cuda().copy_in(range, &byte, 1), CUDA_ERROR_INVALID_VALUE, "a map before cuMemSetAccess");
  expect.ok(cuda().map(range + 2 * granule, granule, 0, block, 0), "the same block again");
  expect.ok(cuda().set_access(range, granule, &access, 1), "cuMemSetAccess");
  expect.ok(cuda().set_access(range + 2 * granule, granule, &access, 1), "cuMemSetAccess of the second");
  expect.is(cuda().set_access(range + granule, granule, &access, 1), CUDA_ERROR_INVALID_VALUE, "access without a map");
  expect.that(all_are(bytes_at(range, granule, &expect), 0xCD), "a fresh block is full of 0xCD");
  expect.ok(cuda().copy_in(range + 5, &byte, 1), "cuMemcpyHtoD");
  expect.that(bytes_at(range + 2 * granule + 5, 1, &expect)[0] == 1, "the second map shows it");
  expect.is(cuda().unmap(range, granule / 2), CUDA_ERROR_INVALID_VALUE, "half a map");
  expect.is(cuda().free_reserved(range, 4 * granule), CUDA_ERROR_INVALID_VALUE, "addresses that are mapped");
  expect.ok(cuda().release_block(block), "cuMemRelease");
  expect.ok(cuda().unmap(range, granule), "cuMemUnmap");
  expect.is(cuda().copy_in(range, &byte, 1), CUDA_ERROR_INVALID_VALUE, "unmapped addresses");
  expect.that(bytes_at(range + 2 * granule + 5, 1, &expect)[0] == 1, "the other map stays");
  expect.ok(cuda().unmap(range + 2 * granule, granule), "cuMemUnmap of the second");
  expect.ok(cuda().free_reserved(range, 4 * granule), "cuMemAddressFree");
  return expect.holds();
}

bool streams_run_later_in_order() {
  Expect expect;
  CUstream stream = nullptr;
  CUdeviceptr words = 0;
  void *flag = nullptr, *host = nullptr;
  expect.ok(cuda().make_stream(&stream, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
  expect.ok(cuda().allocate(&words, 4096), "cuMemAlloc");
  expect.ok(cuda().allocate_host(&flag, 4, 0), "cuMemHostAlloc");
  expect.ok(cuda().allocate_host(&host, 4096, 0), "cuMemHostAlloc");
  if (!expect.holds()) return false;
  auto *const word = static_cast<uint32_t *>(flag);
  __atomic_store_n(word, 0xFFFFFFFE, __ATOMIC_RELEASE);
  std::memset(host, 0, 4096);
  expect.ok(cuda().wait_value(stream, reinterpret_cast<CUdeviceptr>(flag), 2, CU_STREAM_WAIT_VALUE_GEQ), "wait value");
  expect.ok(cuda().fill(words, 0x11, 4096, stream), "cuMemsetD8Async");
  expect.ok(cuda().copy(reinterpret_cast<CUdeviceptr>(host), words, 4096, stream), "cuMemcpyAsync");
  expect.is(cuda().query_stream(stream), CUDA_ERROR_NOT_READY, "the stream waits");
  expect.that(static_cast<unsigned char *>(host)[4095] == 0, "nothing has been copied");
  __atomic_store_n(word, 3, __ATOMIC_RELEASE);  // 3 comes after 2, and -2 before
  expect.ok(cuda().wait_stream(stream), "cuStreamSynchronize");
  expect.that(static_cast<unsigned char *>(host)[4095] == 0x11, "then all has");
  expect.ok(cuda().query_stream(stream), "cuStreamQuery");
  expect.ok(cuda().end_stream(stream), "cuStreamDestroy");
  expect.is(cuda().end_stream(stream), CUDA_ERROR_INVALID_HANDLE, "a stream that is gone");
  expect.is(cuda().fill(words, 0, 1, stream), CUDA_ERROR_INVALID_HANDLE, "work for a stream that is gone");
  cuda().free(words);
  cuda().free_host(flag);
  cuda().free_host(host);
  return expect.holds();
}

bool events_tie_streams_together() {
  Expect expect;
  CUstream first = nullptr, second = nullptr;
  CUevent event = nullptr;
  void *flag = nullptr;
  expect.ok(cuda().make_stream(&first, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
  expect.ok(cuda().make_stream(&second, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
  expect.ok(cuda().make_event(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  expect.ok(cuda().allocate_host(&flag, 8, 0), "cuMemHostAlloc");
  if (!expect.holds()) return false;
  const auto address = reinterpret_cast<CUdeviceptr>(flag);
  auto *const words = static_cast<uint32_t *>(flag);
  __atomic_store_n(words, 0, __ATOMIC_RELEASE);
  __atomic_store_n(words + 1, 0, __ATOMIC_RELEASE);
  expect.ok(cuda().query_event(event), "an event that was never recorded is over");
  expect.ok(cuda().wait_value(first, address, 1, CU_STREAM_WAIT_VALUE_EQ), "cuStreamWaitValue32");
  expect.ok(cuda().record(event, first), "cuEventRecord");
  expect.ok(cuda().wait_event(second, event, 0), "cuStreamWaitEvent");
  expect.ok(cuda().write_value(second, address + 4, 7, 0), "cuStreamWriteValue32");
  expect.is(cuda().query_event(event), CUDA_ERROR_NOT_READY, "the event isn't there yet");
  expect.that(__atomic_load_n(words + 1, __ATOMIC_ACQUIRE) == 0, "the second stream waits");
  __atomic_store_n(words, 1, __ATOMIC_RELEASE);
  expect.ok(cuda().wait_for_event(event), "cuEventSynchronize");
  expect.ok(cuda().wait_stream(second), "cuStreamSynchronize");
  expect.that(__atomic_load_n(words + 1, __ATOMIC_ACQUIRE) == 7, "and goes on");
  expect.ok(cuda().end_event(event), "cuEventDestroy");
  expect.is(cuda().record(event, first), CUDA_ERROR_INVALID_HANDLE, "an event that is gone");
  cuda().end_stream(first);
  cuda().end_stream(second);
  cuda().free_host(flag);
  return expect.holds();
}

void touch(void *argument) { static_cast<std::atomic<int> *>(argument)->store(cuda().synchronize()); }

bool host_functions_must_not_call_cuda() {
  Expect expect;
  std::atomic<int> answer{-1};
  expect.ok(cuda().call_host(nullptr, touch, &answer), "cuLaunchHostFunc");
  expect.ok(cuda().synchronize(), "cuCtxSynchronize");
  expect.that(answer.load() == CUDA_ERROR_NOT_PERMITTED, "a call from a host function is not permitted");
  return expect.holds();
}

bool kernels_are_found_and_launched() {
  Expect expect;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const uint32_t image[4] = {0xBA55ED50, 0, 0, 0}, no_image[4] = {1, 2, 3, 4};
  expect.is(cuda().load_module(&module, no_image), CUDA_ERROR_INVALID_IMAGE, "four words that are no image");
  expect.ok(cuda().load_module(&module, image), "cuModuleLoadData");
  expect.is(cuda().find_function(&function, module, "mxs_no_such"), CUDA_ERROR_NOT_FOUND, "no such kernel");
  expect.ok(cuda().find_function(&function, module, "write_words"), "cuModuleGetFunction");
  CUdeviceptr words = 0;
  expect.ok(cuda().allocate(&words, 32 * 4), "cuMemAlloc");
  WriteWords argument = {reinterpret_cast<uint32_t *>(words), 5};
  size_t bytes = sizeof argument;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &argument, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  expect.ok(cuda().launch(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra), "cuLaunchKernel");
  expect.is(cuda().launch(function, 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr, extra), CUDA_ERROR_INVALID_VALUE,
            "a block of 2048 threads");
  expect.ok(cuda().synchronize(), "cuCtxSynchronize");
  expect.that(all_are(bytes_at(words + 31 * 4, 1, &expect), 5), "the last thread has written");
  return expect.holds();
}

void memory_begins_poisoned(void **) { assert_true(memory_begins_poisoned_and_keeps_bytes()); }
void a_block_at_two_addresses_is_one_memory(void **) { assert_true(one_block_at_two_addresses_is_one_memory()); }
void streams_run_later_and_in_order(void **) { assert_true(streams_run_later_in_order()); }
void events_tie_streams(void **) { assert_true(events_tie_streams_together()); }
void host_functions_call_no_cuda(void **) { assert_true(host_functions_must_not_call_cuda()); }
void kernels_are_launched(void **) { assert_true(kernels_are_found_and_launched()); }

int begin(void **) {
  static CUcontext context = nullptr;
  const std::string complaint = cuda().begin(&context);
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty() ? 0 : -1;
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(memory_begins_poisoned),
      cmocka_unit_test(a_block_at_two_addresses_is_one_memory),
      cmocka_unit_test(streams_run_later_and_in_order),
      cmocka_unit_test(events_tie_streams),
      cmocka_unit_test(host_functions_call_no_cuda),
      cmocka_unit_test(kernels_are_launched),
  };
  return cmocka_run_group_tests(tests, begin, nullptr);
}
