// SPDX-License-Identifier: Apache-2.0
// Two devices of one process: whose memory is whose, copies between them, and contexts that are not mixed up.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
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

using Bytes = std::vector<unsigned char>;
constexpr size_t bytes = 70'001;

// Of one device: memory, pinned memory, a stream, an event.
struct Side {
  Device *device = nullptr;
  DeviceMemory memory;
  PinnedMemory pinned;
  DeviceStream stream = nullptr;
  DeviceEvent event = nullptr;

  mxs_status open(int index) {
    mxs_status status = find_device(index, &device);
    if (status == MXS_OK) status = device->allocate(bytes, &memory);
    if (status == MXS_OK) status = device->allocate_pinned(bytes, &pinned);
    if (status == MXS_OK) status = device->create_stream(&stream);
    if (status == MXS_OK) status = device->create_event(&event);
    return status;
  }
  ~Side() {
    if (!device) return;
    device->destroy_event(event);
    device->destroy_stream(stream);
  }
};

Bytes pattern(unsigned seed) {
  Bytes made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<unsigned char>(seed + i * 11 + i / 253);
  return made;
}

std::string each_memory_has_its_device() {
  Side sides[2];
  for (int index = 0; index < 2; ++index)
    if (sides[index].open(index) != MXS_OK) return error_of("open");
  if (sides[0].device == sides[1].device || sides[1].device->info().index != 1) return "one object for two devices";
  if (sides[0].device->info().pci_address == sides[1].device->info().pci_address) return "one place for two devices";
  DeviceLibrary *library = nullptr;
  if (device_library(&library) != MXS_OK) return error_of("library");
  for (int index = 0; index < 2; ++index) {
    PointerInfo info;
    if (library->pointer(sides[index].memory.data() + 5, &info) != MXS_OK) return error_of("pointer");
    if (info.kind != PointerKind::device || info.device != index) return "memory of device " + std::to_string(index);
    if (library->pointer(sides[index].pinned.data() + 5, &info) != MXS_OK) return error_of("pointer");
    if (info.kind != PointerKind::pinned || info.device != -1) return "pinned memory has a device";
    std::string address;
    if (library->pci_address(index, &address) != MXS_OK || address != sides[index].device->info().pci_address)
      return "PCI addresses: " + address;
  }
  std::string address = "as it was";
  const std::string complaint = expect(library->pci_address(-1, &address), MXS_NO_DEVICE, {"-1"});
  return address == "as it was" ? complaint : "touched";
}

// Host -> 0 -> 1 -> pinned memory of the other -> 1, in the order that events give.
std::string bytes_go_from_one_to_the_other() {
  Side a, b;
  if (a.open(0) != MXS_OK || b.open(1) != MXS_OK) return error_of("open");
  const Bytes source = pattern(3);
  mxs_status status = a.device->copy(a.memory.data(), source.data(), bytes, a.stream);
  if (status == MXS_OK) status = a.device->record(a.event, a.stream);
  if (status == MXS_OK) status = b.device->wait(b.stream, a.event);  // an event of another device
  if (status == MXS_OK) status = b.device->copy(b.memory.data(), a.memory.data(), bytes, b.stream);
  if (status == MXS_OK) status = b.device->copy(a.pinned.data(), b.memory.data(), bytes, b.stream);
  if (status == MXS_OK) status = b.device->synchronize(b.stream);
  if (status != MXS_OK) return error_of("copies");
  if (std::memcmp(a.pinned.data(), source.data(), bytes) != 0) return "other bytes";
  // By the public door, which finds the devices itself.
  Bytes target(bytes, 0xee);
  const Bytes other = pattern(77);
  if (mxs_copy(b.memory.data(), other.data(), bytes, nullptr) != MXS_OK ||
      mxs_copy(a.memory.data(), b.memory.data(), bytes, nullptr) != MXS_OK ||
      mxs_copy(target.data(), a.memory.data(), bytes, nullptr) != MXS_OK)
    return error_of("mxs_copy");
  return target == other ? "" : "mxs_copy brought other bytes";
}

std::string what_belongs_to_the_other_is_refused() {
  Side a, b;
  if (a.open(0) != MXS_OK || b.open(1) != MXS_OK) return error_of("open");
  const struct {
    int nothing[4];
  } arguments{};
  std::string complaint;
  // An event of one device is not recorded in a stream of the other.
  complaint = expect(a.device->record(a.event, b.stream), MXS_DEVICE_FAILED, {"cuEventRecord", "device 0"});
  if (complaint.empty())
    complaint = expect(b.device->launch("no_such_kernel", &arguments, sizeof arguments, 1, 1, b.stream),
                       MXS_DEVICE_FAILED, {"no_such_kernel", "device 1"});
  if (!complaint.empty() || !a.device->info().maps_memory || !b.device->info().maps_memory) return complaint;
  std::unique_ptr<DeviceBlock> block;
  std::unique_ptr<DeviceRange> range;
  const uint64_t granule = std::max(a.device->info().granule_bytes, b.device->info().granule_bytes);
  if (a.device->create_block(granule, &block) != MXS_OK || b.device->reserve(granule, &range) != MXS_OK)
    return error_of("make");
  return expect(range->map(0, *block, 0, granule), MXS_INVALID_ARGUMENT, {"device 0", "device 1"});
}

// Both at once, from two threads, and from one in turns: a call on one leaves no context to the next.
std::string contexts_are_not_mixed_up() {
  Side sides[2];
  for (int index = 0; index < 2; ++index)
    if (sides[index].open(index) != MXS_OK) return error_of("open");
  std::string complaints[2];
  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number)
    threads.emplace_back([&, number] {
      for (unsigned round = 0; round < 20 && complaints[number].empty(); ++round) {
        Side &side = sides[number];
        const Bytes source = pattern(round * 5 + static_cast<unsigned>(number) * 100);
        Bytes found(bytes, 0xee);
        DeviceMemory more;
        if (side.device->allocate(1000, &more) != MXS_OK ||
            side.device->copy(side.memory.data(), source.data(), bytes, side.stream) != MXS_OK ||
            side.device->copy(found.data(), side.memory.data(), bytes, side.stream) != MXS_OK ||
            side.device->synchronize(side.stream) != MXS_OK)
          complaints[number] = error_of("round");
        else if (found != source)
          complaints[number] = "other bytes";
      }
    });
  for (std::thread &thread : threads) thread.join();
  for (int round = 0; round < 10; ++round) {
    DeviceMemory memory[2];
    for (int number = 0; number < 2; ++number)
      if (sides[number].device->allocate(500, &memory[number]) != MXS_OK ||
          sides[number].device->zero(memory[number].data(), 500, sides[number].stream) != MXS_OK)
        return error_of("in turns");
    for (int number = 0; number < 2; ++number)
      if (sides[number].device->synchronize(sides[number].stream) != MXS_OK) return error_of("in turns");
  }
  DeviceLibrary *library = nullptr;
  if (device_library(&library) != MXS_OK || library->current_device() != -1) return "a context is left behind";
  return complaints[0] + complaints[1];
}

void memory_knows_its_device(void **) { assert_true(good(each_memory_has_its_device())); }
void copies_go_between_devices(void **) { assert_true(good(bytes_go_from_one_to_the_other())); }
void another_devices_things_are_refused(void **) { assert_true(good(what_belongs_to_the_other_is_refused())); }
void devices_work_side_by_side(void **) { assert_true(good(contexts_are_not_mixed_up())); }

}  // namespace

int main(int, char **arguments) {
  if (!mxs::test::gpu_is_there(arguments, 2)) return 0;
  const CMUnitTest tests[] = {
      cmocka_unit_test(memory_knows_its_device),
      cmocka_unit_test(copies_go_between_devices),
      cmocka_unit_test(another_devices_things_are_refused),
      cmocka_unit_test(devices_work_side_by_side),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
