// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda.so.1 refuses what a driver refuses, and its switches do what they say.
#include <cstring>

#include "standins/cuda_case.hpp"
#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

constexpr uint64_t granule = uint64_t{2} << 20;

// ---- wrong use ---------------------------------------------------------------------------------------------------

void host_memory_for_device_memory(Expect &expect) {
  const CUdeviceptr device = new_memory(&expect, 4096);
  char host[64] = "";
  expect.is(cuda().fill(device_pointer(host), 0, 64, nullptr), CUDA_ERROR_INVALID_VALUE, "a fill of host memory");
  expect.is(cuda().copy_in(device_pointer(host), host + 32, 8), CUDA_ERROR_INVALID_VALUE, "HtoD into host memory");
  expect.is(cuda().copy_out(reinterpret_cast<void *>(device), device + 64, 8), CUDA_ERROR_INVALID_VALUE,
            "DtoH into device memory");
  expect.is(cuda().wait_value(nullptr, device_pointer(host), 0, 0), CUDA_ERROR_INVALID_VALUE,
            "a wait for a value in pageable memory");
  expect.is(cuda().copy(device, device + 4, 8, nullptr), CUDA_ERROR_INVALID_VALUE, "a copy that overlaps itself");
  expect.is(cuda().free(device_pointer(host)), CUDA_ERROR_INVALID_VALUE, "cuMemFree of host memory");
  expect.is(cuda().free_host(reinterpret_cast<void *>(device)), CUDA_ERROR_INVALID_VALUE,
            "cuMemFreeHost of device memory");
}

void things_of_another_context(Expect &expect) {
  CUcontext first = nullptr, second = nullptr;
  cuda().retain(&first, 0);
  CUevent event = nullptr;
  const CUstream stream = new_stream(&expect);
  const CUfunction kernel = find_kernel(&expect, "write_words");
  const CUdeviceptr words = new_memory(&expect, 4096);
  expect.ok(cuda().retain(&second, 1), "cuDevicePrimaryCtxRetain");
  expect.ok(cuda().set_current(second), "cuCtxSetCurrent");
  expect.ok(cuda().make_event(&event, 0), "cuEventCreate");
  expect.is(cuda().record(event, stream), CUDA_ERROR_INVALID_HANDLE, "an event of device 1 in a stream of device 0");
  const CUstream other = new_stream(&expect);
  expect.is(launch_kernel(kernel, WriteWords{words_at(words), 1}, 4, other), CUDA_ERROR_INVALID_HANDLE,
            "a kernel of device 0 in a stream of device 1");
  expect.ok(cuda().wait_event(stream, event, 0), "a wait for another context's event");
  expect.ok(cuda().set_current(nullptr), "cuCtxSetCurrent of none");
  CUdeviceptr address = 0;
  expect.is(cuda().allocate(&address, 4), CUDA_ERROR_INVALID_CONTEXT, "an allocation without a context");
  expect.is(cuda().retain(&first, 2), CUDA_ERROR_INVALID_DEVICE, "device 2 of two");
}

// Unmapped while the copy waits: the job finds nothing, and the context is lost.
void unmapped_under_a_job(Expect &expect) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr range = 0;
  CUmemGenericAllocationHandle block = 0;
  expect.ok(cuda().reserve(&range, granule, 0, 0, 0), "cuMemAddressReserve");
  expect.ok(cuda().create(&block, granule, &properties, 0), "cuMemCreate");
  expect.ok(cuda().map(range, granule, 0, block, 0), "cuMemMap");
  expect.ok(cuda().set_access(range, granule, &access, 1), "cuMemSetAccess");
  const CUstream stream = new_stream(&expect);
  uint32_t *const flag = new_flags(&expect, 1);
  const CUfunction kernel = find_kernel(&expect, "write_words");
  if (!expect.holds()) return;
  expect.ok(cuda().wait_value(stream, device_pointer(flag), 1, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
  expect.ok(launch_kernel(kernel, WriteWords{words_at(range), 5}, 16, stream), "cuLaunchKernel");
  expect.ok(cuda().unmap(range, granule), "cuMemUnmap");
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
  expect.is(cuda().wait_stream(stream), CUDA_ERROR_ILLEGAL_ADDRESS, "the stream");
  expect.is(cuda().fill(range, 0, 4, stream), CUDA_ERROR_ILLEGAL_ADDRESS, "every later call");
}

void run_over_the_end(Expect &expect) {
  const CUfunction kernel = find_kernel(&expect, "write_words");
  const CUdeviceptr near = new_memory(&expect, 1000);
  expect.ok(launch_kernel(kernel, WriteWords{words_at(near), 5}, 251, nullptr), "one word more than there is");
  expect.ok(cuda().synchronize(), "it falls into the 24 bytes of the alignment");
  expect.is(cuda().free(near), CUDA_ERROR_ILLEGAL_ADDRESS, "which cuMemFree sees");
}

void run_far_over_the_end(Expect &expect) {
  const CUfunction kernel = find_kernel(&expect, "write_words");
  const CUdeviceptr far = new_memory(&expect, 1024);
  expect.ok(launch_kernel(kernel, WriteWords{words_at(far), 5}, 257, nullptr), "one word more than there is");
  expect.is(cuda().synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS, "the page behind it has no access");
}

void freed_memory_in_a_kernel(Expect &expect) {
  const CUfunction kernel = find_kernel(&expect, "write_words");
  const CUdeviceptr gone = new_memory(&expect, 1024);
  expect.ok(cuda().free(gone), "cuMemFree");
  expect.ok(launch_kernel(kernel, WriteWords{words_at(gone), 5}, 1, nullptr), "cuLaunchKernel");
  expect.is(cuda().synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel in freed memory");
}

// ---- switches ----------------------------------------------------------------------------------------------------

void limited_memory(Expect &expect) {
  size_t free_bytes = 0, total_bytes = 0;
  CUdeviceptr first = 0, second = 0;
  expect.ok(cuda().allocate(&first, 700000), "700,000 bytes of a million");
  expect.is(cuda().allocate(&second, 400000), CUDA_ERROR_OUT_OF_MEMORY, "400,000 more");
  expect.ok(cuda().info(&free_bytes, &total_bytes), "cuMemGetInfo");
  expect.that(free_bytes == 300000 && total_bytes == 1000000, "300,000 of a million are free");
  expect.ok(cuda().free(first), "cuMemFree");
  expect.ok(cuda().allocate(&second, 400000), "there is room again");
}

void failing_allocations(Expect &expect) {
  const auto set = found<int(const char *, const char *)>("mxs_standin_set_switch");
  CUdeviceptr address = 0;
  void *host = nullptr;
  expect.ok(cuda().allocate(&address, 1), "the first");
  expect.ok(cuda().allocate_host(&host, 1, 0), "the second");
  expect.is(cuda().allocate(&address, 1), CUDA_ERROR_OUT_OF_MEMORY, "the third");
  expect.that(set && set("MXS_STANDIN_FAIL_ALLOCATION_AFTER", nullptr) == 0, "the switch is taken back");
  expect.ok(cuda().allocate(&address, 1), "then there is memory");
  expect.that(set && set("MXS_STANDIN_NO_SUCH", "1") != 0, "a switch that isn't one");
}

void failing_jobs(Expect &expect) {
  const CUdeviceptr memory = new_memory(&expect, 64);
  expect.ok(cuda().fill(memory, 1, 64, nullptr), "the first job");
  expect.ok(cuda().synchronize(), "it is good");
  expect.ok(cuda().fill(memory, 1, 64, nullptr), "the second job");
  expect.is(cuda().synchronize(), CUDA_ERROR_ECC_UNCORRECTABLE, "it fails");
  expect.is(cuda().free(memory), CUDA_ERROR_ECC_UNCORRECTABLE, "and so does everything");
}

void older_device(Expect &expect) {
  int vmm = 7, waits = 7;
  expect.ok(cuda().attribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0), "attribute");
  expect.ok(cuda().attribute(&waits, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0), "attribute");
  expect.that(vmm == 0 && waits == 0, "the attributes say so");
  CUdeviceptr range = 0;
  expect.is(cuda().reserve(&range, granule, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED, "cuMemAddressReserve");
  uint32_t *const flag = new_flags(&expect, 1);
  expect.is(cuda().wait_value(nullptr, device_pointer(flag), 1, 0), CUDA_ERROR_NOT_SUPPORTED, "cuStreamWaitValue32");
}

void older_driver(Expect &expect) {
  void *function = nullptr;
  CUdriverProcAddressQueryResult status{};
  expect.ok(cuda().find("cuMemAlloc", &function, 12000, 0, &status), "cuGetProcAddress");
  expect.that(function == dlsym(cuda_library(), "cuMemAlloc_v2"), "the newest version of its name");
  expect.is(cuda().find("cuStreamGetDevice", &function, 13000, 0, &status), CUDA_ERROR_NOT_FOUND, "what came later");
  expect.that(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, "and why");
  expect.is(cuda().find("cuNoSuch", &function, 13000, 0, &status), CUDA_ERROR_NOT_FOUND, "what never was");
  expect.that(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "and why");
  expect.is(cuda().find("cuMemCreate", &function, 13000, 0, &status), CUDA_ERROR_NOT_FOUND, "what is hidden");
  CUmemGenericAllocationHandle block = 0;
  expect.is(cuda().create(&block, granule, nullptr, 0), CUDA_ERROR_NOT_SUPPORTED, "called all the same");
}

// ---- processes ---------------------------------------------------------------------------------------------------

std::string no_device() {
  return cuda().init(0) == CUDA_ERROR_NO_DEVICE ? "" : "cuInit without a device";
}

std::string forked_child_is_refused() {
  CUcontext context = nullptr;
  const std::string complaint = cuda().begin(&context);
  if (!complaint.empty()) return complaint;
  return holds_in_child({}, [] {
    int count = 0;
    Expect expect;
    expect.is(cuda().init(0), CUDA_ERROR_NOT_INITIALIZED, "cuInit in a forked child");
    expect.is(cuda().count(&count), CUDA_ERROR_NOT_INITIALIZED, "any call in a forked child");
    return expect.complaint();
  }) ? "" : "the forked child";
}

void stream_that_hangs_at_the_end(Expect &expect) {
  const CUstream stream = new_stream(&expect);
  uint32_t *const flag = new_flags(&expect, 1);
  expect.ok(cuda().wait_value(stream, device_pointer(flag), 1, 0), "cuStreamWaitValue32");
  expect.ok(cuda().fill(new_memory(&expect, 64), 1, 64, stream), "cuMemsetD8Async");
}

constexpr int has_read = 42;

std::string host_reads_device_memory() {
  CUcontext context = nullptr;
  Expect expect;
  cuda().begin(&context);
  const CUdeviceptr memory = new_memory(&expect, 64);
  static_cast<void>(*reinterpret_cast<volatile char *>(memory));
  std::_Exit(has_read);
}

void host_memory_is_refused_where_device_memory_is_wanted(void **) {
  assert_true(holds_with_cuda({}, host_memory_for_device_memory));
}
void streams_events_and_kernels_belong_to_a_context(void **) {
  assert_true(holds_with_cuda({{"MXS_STANDIN_DEVICES", "2"}}, things_of_another_context));
}
void a_kernel_in_unmapped_addresses_loses_the_context(void **) {
  assert_true(holds_with_cuda({}, unmapped_under_a_job));
}
void writes_behind_an_allocation_are_seen(void **) {
  assert_true(holds_with_cuda({}, run_over_the_end));
  assert_true(holds_with_cuda({}, run_far_over_the_end));
}
void a_kernel_in_freed_memory_loses_the_context(void **) {
  assert_true(holds_with_cuda({}, freed_memory_in_a_kernel));
}
void the_host_cannot_read_device_memory(void **) {
  assert_int_not_equal(WEXITSTATUS(status_of_child({}, host_reads_device_memory)), has_read);
  assert_int_equal(WEXITSTATUS(status_of_child({{"MXS_STANDIN_GUARD", "0"}}, host_reads_device_memory)), has_read);
}
void memory_ends_where_the_switch_says(void **) {
  assert_true(holds_with_cuda({{"MXS_STANDIN_MEMORY", "1000000"}}, limited_memory));
  assert_true(holds_with_cuda({{"MXS_STANDIN_FAIL_ALLOCATION_AFTER", "2"}}, failing_allocations));
}
void a_job_fails_when_the_switch_says(void **) {
  assert_true(holds_with_cuda({{"MXS_STANDIN_FAIL_JOB_AFTER", "1"}}, failing_jobs));
}
void devices_may_be_older(void **) {
  assert_true(holds_with_cuda({{"MXS_STANDIN_NO_VMM", "1"}, {"MXS_STANDIN_NO_WAIT_VALUE", "1"}}, older_device));
}
void drivers_may_be_older(void **) {
  assert_true(holds_with_cuda({{"MXS_STANDIN_DRIVER_VERSION", "12020"}, {"MXS_STANDIN_MISSING", "cuNoOne,cuMemCreate"}},
                              older_driver));
}
void there_may_be_no_device(void **) {
  assert_true(holds_in_child({{"MXS_STANDIN_DEVICES", "0"}}, no_device));
  assert_true(holds_in_child({{"CUDA_VISIBLE_DEVICES", ""}}, no_device));
}
void forked_children_are_refused(void **) { assert_true(holds_in_child({}, forked_child_is_refused)); }
void a_process_ends_while_a_stream_waits(void **) { assert_true(holds_with_cuda({}, stream_that_hangs_at_the_end)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(host_memory_is_refused_where_device_memory_is_wanted),
      cmocka_unit_test(streams_events_and_kernels_belong_to_a_context),
      cmocka_unit_test(a_kernel_in_unmapped_addresses_loses_the_context),
      cmocka_unit_test(writes_behind_an_allocation_are_seen),
      cmocka_unit_test(a_kernel_in_freed_memory_loses_the_context),
      cmocka_unit_test(the_host_cannot_read_device_memory),
      cmocka_unit_test(memory_ends_where_the_switch_says),
      cmocka_unit_test(a_job_fails_when_the_switch_says),
      cmocka_unit_test(devices_may_be_older),
      cmocka_unit_test(drivers_may_be_older),
      cmocka_unit_test(there_may_be_no_device),
      cmocka_unit_test(forked_children_are_refused),
      cmocka_unit_test(a_process_ends_while_a_stream_waits),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
