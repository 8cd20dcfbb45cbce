// SPDX-License-Identifier: Apache-2.0
// Devices that lack something or fail on the way, as the stand-in can be told to. Each case has a process of its own,
// since a device is looked at once.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "gpu/gpu.hpp"
#include "matrixshard/cuda.h"
#include "support/complaints.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::error_of;
using mxs::test::expect;
using mxs::test::good;

namespace {

struct Switch {
  const char *name, *value;
};

bool holds(const std::vector<Switch> &switches, std::string (*body)(Device &device)) {
  const pid_t child = fork();
  if (child == 0) {
    for (const Switch &one : switches) setenv(one.name, one.value, 1);
    Device *device = nullptr;
    const mxs_status status = find_device(0, &device);
    _exit(good(status == MXS_OK ? body(*device) : error_of("find_device")) ? 0 : 1);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

std::string no_maps(Device &device) {
  if (device.info().maps_memory || device.info().granule_bytes) return "it says that it maps";
  std::unique_ptr<DeviceBlock> block;
  std::unique_ptr<DeviceRange> range;
  std::string complaint = expect(device.create_block(1 << 21, &block), MXS_NOT_BUILT, {"device 0", "virtual memory"});
  if (complaint.empty())
    complaint = expect(device.reserve(1 << 21, &range), MXS_NOT_BUILT, {"device 0", "virtual memory"});
  mxs_cuda_device told = MXS_CUDA_DEVICE_INIT;
  if (complaint.empty() && (mxs_cuda_device_query(0, &told) != MXS_OK || told.granule_bytes)) complaint = "cuda.h";
  DeviceMemory memory;
  return complaint.empty() && device.allocate(1000, &memory) != MXS_OK ? error_of("allocate") : complaint;
}

std::string no_waits(Device &device) {
  if (device.info().waits_values) return "it says that it waits";
  PinnedMemory flag;
  if (device.allocate_pinned(64, &flag) != MXS_OK) return error_of("pinned");
  return expect(device.wait_value(nullptr, reinterpret_cast<uint32_t *>(flag.data()), 0), MXS_NOT_BUILT,
                {"device 0", "wait"});
}

std::string no_code(Device &device) {
  const int arguments[4] = {};
  for (int time = 0; time < 2; ++time) {
    const std::string complaint =
        expect(device.launch("mxs_nothing", arguments, sizeof arguments, 1, 1, nullptr), MXS_NOT_BUILT,
               {"device 0", "7.5", "driver 13.0", "CUDA_ERROR_NO_BINARY_FOR_GPU"});
    if (!complaint.empty()) return complaint;
  }
  DeviceMemory memory;
  return device.allocate(64, &memory) == MXS_OK && device.zero(memory.data(), 64, nullptr) == MXS_OK &&
                 device.synchronize(nullptr) == MXS_OK ? "" : error_of("what needs no kernel");
}

std::string memory_ends(Device &device) {
  DeviceMemory first, second;
  PinnedMemory pinned, more;
  if (device.allocate(1000, &first) != MXS_OK || device.allocate_pinned(1000, &pinned) != MXS_OK)
    return error_of("the first two");
  std::string complaint = expect(device.allocate(54'321, &second), MXS_OUT_OF_MEMORY,
                                 {"device 0", "54321 bytes", "are free", "cuMemAlloc"});
  if (complaint.empty())
    complaint = expect(device.allocate_pinned(65'432, &more), MXS_OUT_OF_MEMORY,
                       {"device 0", "65432 bytes", "pinned host memory", "cuMemHostAlloc"});
  std::unique_ptr<DeviceBlock> block;
  const uint64_t granule = device.info().granule_bytes;
  if (complaint.empty())
    complaint = expect(device.create_block(granule, &block), MXS_OUT_OF_MEMORY,
                       {"device 0", std::to_string(granule), "are free", "cuMemCreate"});
  if (complaint.empty() && (second.data() || more.data() || block)) complaint = "touched";
  return complaint.empty() && device.zero(first.data(), 1000, nullptr) != MXS_OK ? error_of("the first") : complaint;
}

std::string a_job_fails(Device &device) {
  DeviceMemory memory;
  DeviceStream stream = nullptr;
  DeviceEvent event = nullptr;
  if (device.allocate(64, &memory) != MXS_OK || device.create_stream(&stream) != MXS_OK ||
      device.create_event(&event) != MXS_OK || device.zero(memory.data(), 64, stream) != MXS_OK ||
      device.synchronize(stream) != MXS_OK)
    return error_of("before");
  mxs_status status = MXS_OK;
  for (int job = 0; job < 8 && status == MXS_OK; ++job) status = device.zero(memory.data(), 64, stream);
  if (status == MXS_OK) status = device.synchronize(stream);
  std::string complaint = expect(status, MXS_DEVICE_FAILED, {"device 0", "CUDA_ERROR_ECC_UNCORRECTABLE"});
  // From now on nothing works here, and says so.
  if (complaint.empty())
    complaint = expect(device.zero(memory.data(), 64, stream), MXS_DEVICE_FAILED, {"CUDA_ERROR_ECC_UNCORRECTABLE"});
  if (complaint.empty())
    complaint = expect(device.query(event), MXS_DEVICE_FAILED, {"cuEventQuery", "CUDA_ERROR_ECC_UNCORRECTABLE"});
  device.destroy_event(event);
  device.destroy_stream(stream);
  return complaint;
}

void without_maps_there_is_a_sentence(void **) { assert_true(holds({{"MXS_STANDIN_NO_VMM", "1"}}, no_maps)); }
void without_waits_there_is_a_sentence(void **) { assert_true(holds({{"MXS_STANDIN_NO_WAIT_VALUE", "1"}}, no_waits)); }
void kernels_without_code_for_a_gpu_are_told(void **) {
  assert_true(holds({{"MXS_STANDIN_COMPUTE", "75"}, {"MXS_STANDIN_DRIVER_VERSION", "13000"}}, no_code));
}
void memory_that_ends_is_told_with_what_was_asked(void **) {
  assert_true(holds({{"MXS_STANDIN_FAIL_ALLOCATION_AFTER", "2"}}, memory_ends));
}
void a_failure_on_the_device_is_told_by_every_call(void **) {
  assert_true(holds({{"MXS_STANDIN_FAIL_JOB_AFTER", "4"}}, a_job_fails));
}

}  // namespace

int main(int, char **arguments) {
  if (!mxs::test::gpu_is_there(arguments)) return 0;
  if (!mxs::test::on_standin()) {
    std::printf("1..0 # SKIP wants the stand-in, which can be told to fail\n");
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(without_maps_there_is_a_sentence),
      cmocka_unit_test(without_waits_there_is_a_sentence),
      cmocka_unit_test(kernels_without_code_for_a_gpu_are_told),
      cmocka_unit_test(memory_that_ends_is_told_with_what_was_asked),
      cmocka_unit_test(a_failure_on_the_device_is_told_by_every_call),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
