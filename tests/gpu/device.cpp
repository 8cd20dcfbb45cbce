// SPDX-License-Identifier: Apache-2.0
// One device: memory and its maps, copies, streams, events, waits, what pointers are, and what is refused.
#include "device/device.hpp"

#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/shared_library.hpp"
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

Device *the_device() {
  Device *device = nullptr;
  return find_device(0, &device) == MXS_OK ? device : nullptr;
}

// A stream that is gone at the end of a scope.
struct Stream {
  explicit Stream(Device &owner) : device(owner) { status = device.create_stream(&handle); }
  ~Stream() { device.destroy_stream(handle); }
  Device &device;
  DeviceStream handle = nullptr;
  mxs_status status = MXS_OK;
};

struct Event {
  explicit Event(Device &owner) : device(owner) { status = device.create_event(&handle); }
  ~Event() { device.destroy_event(handle); }
  Device &device;
  DeviceEvent handle = nullptr;
  mxs_status status = MXS_OK;
};

Bytes pattern(size_t bytes, unsigned seed) {
  Bytes made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<unsigned char>(seed + i * 7 + i / 251);
  return made;
}

// What lies there, copied by a stream and waited for.
Bytes read_back(Device &device, const void *data, size_t bytes, DeviceStream stream) {
  Bytes found(bytes, 0xee);
  if (device.copy(found.data(), data, bytes, stream) != MXS_OK || device.synchronize(stream) != MXS_OK) found.clear();
  return found;
}

// Holds a stream back until it is opened, as slow work would.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<int> passed{0};
  static void pass(void *context) {
    auto *gate = static_cast<Gate *>(context);
    while (!gate->open.load()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    gate->passed.fetch_add(1);
  }
};

std::string the_device_tells_what_it_is() {
  DeviceLibrary *library = nullptr;
  if (device_library(&library) != MXS_OK) return error_of("library");
  Device &device = *the_device();
  const DeviceInfo &info = device.info();
  uint64_t free = 0;
  if (device.free_bytes(&free) != MXS_OK) return error_of("free_bytes");
  if (info.index != 0 || info.name.empty() || info.major < 5 || info.total_bytes < free || free == 0)
    return "device: " + info.name + ", " + std::to_string(info.total_bytes);
  if (info.pci_address.size() < 12 || info.pci_address.find_first_of("ABCDEF") != std::string::npos)
    return "PCI address " + info.pci_address;
  if (info.maps_memory != (info.granule_bytes != 0)) return "maps without a granule, or the reverse";
  if (library->driver_version() < 12000) return "driver " + std::to_string(library->driver_version());
  Device *again = nullptr;
  if (library->device(0, &again) != MXS_OK || again != &device) return "two objects for one device";
  for (const int index : {-1, library->device_count(), 1 << 30}) {
    const std::string complaint = expect(library->device(index, &again), MXS_NO_DEVICE,
                                         {std::to_string(index), std::to_string(library->device_count())});
    if (!complaint.empty() || again != &device) return "index " + std::to_string(index) + ": " + complaint;
  }
  return "";
}

std::string no_context_is_left_behind() {
  DeviceLibrary *library = nullptr;
  if (device_library(&library) != MXS_OK) return error_of("library");
  std::string complaint;
  std::thread([&] {  // a thread that has no context yet
    if (library->current_device() != -1) complaint = "a new thread has a context";
    DeviceMemory memory;
    Device &device = *the_device();
    if (device.allocate(1000, &memory) != MXS_OK || device.zero(memory.data(), 1000, nullptr) != MXS_OK ||
        device.synchronize(nullptr) != MXS_OK)
      complaint = error_of("without a context");
    if (library->current_device() != -1) complaint = "a call has left its context";
  }).join();
  return complaint;
}

std::string memory_is_given_and_taken() {
  Device &device = *the_device();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{255}, uint64_t{4096}, uint64_t{5'000'001}}) {
    DeviceMemory memory;
    if (device.allocate(bytes, &memory) != MXS_OK) return error_of("allocate");
    if (memory.bytes() != bytes || reinterpret_cast<uintptr_t>(memory.data()) % 256) return "where it lies";
    PinnedMemory pinned;
    if (device.allocate_pinned(bytes, &pinned) != MXS_OK) return error_of("allocate_pinned");
    std::memset(pinned.data(), 0x5a, bytes);
    DeviceMemory moved = std::move(memory);
    if (memory.data() || moved.bytes() != bytes) return "moved";
  }
  DeviceMemory nothing;
  PinnedMemory none;
  if (device.allocate(0, &nothing) != MXS_OK || nothing.data()) return "0 bytes";
  if (device.allocate_pinned(0, &none) != MXS_OK || none.data()) return "0 pinned bytes";
  device.free(nullptr);
  device.free_pinned(nullptr);
  return "";
}

std::string too_much_is_told_in_numbers() {
  Device &device = *the_device();
  DeviceMemory memory;
  const uint64_t bytes = device.info().total_bytes * 4;
  std::string complaint = expect(device.allocate(bytes, &memory), MXS_OUT_OF_MEMORY,
                                 {"device 0", device.info().name, std::to_string(bytes), "free",
                                  std::to_string(device.info().total_bytes)});
  if (!complaint.empty() || memory.data()) return complaint + " (allocate)";
  if (!device.info().maps_memory) return "";
  std::unique_ptr<DeviceBlock> block;
  const uint64_t granules = bytes / device.info().granule_bytes * device.info().granule_bytes;
  complaint = expect(device.create_block(granules, &block), MXS_OUT_OF_MEMORY,
                     {"device 0", std::to_string(granules), "free"});
  if (!complaint.empty() || block) return complaint + " (create_block)";
  // Afterwards all is as before.
  return device.allocate(1 << 20, &memory) == MXS_OK ? "" : error_of("afterwards");
}

std::string copies_of_all_kinds() {
  Device &device = *the_device();
  const Stream stream(device);
  constexpr size_t bytes = 100'003;
  DeviceMemory a, b;
  PinnedMemory pinned;
  if (stream.status != MXS_OK || device.allocate(bytes, &a) != MXS_OK || device.allocate(bytes, &b) != MXS_OK ||
      device.allocate_pinned(bytes, &pinned) != MXS_OK)
    return error_of("memory");
  for (const DeviceStream at : {stream.handle, DeviceStream{nullptr}}) {
    const Bytes source = pattern(bytes, at ? 3 : 90);
    // host -> device -> device -> pinned -> device, at odd places, -> host
    Bytes last(bytes, 0xee);
    const size_t part = bytes - 5;
    if (device.zero(b.data(), bytes, at) != MXS_OK || device.copy(a.data(), source.data(), bytes, at) != MXS_OK ||
        device.copy(b.data() + 3, a.data() + 5, part, at) != MXS_OK ||
        device.copy(pinned.data(), b.data(), bytes, at) != MXS_OK ||
        device.copy(a.data(), pinned.data(), bytes, at) != MXS_OK ||
        device.copy(last.data(), a.data(), bytes, at) != MXS_OK || device.synchronize(at) != MXS_OK)
      return error_of("copies");
    Bytes expected(bytes, 0);
    std::memcpy(expected.data() + 3, source.data() + 5, part);
    if (last != expected) return at ? "a stream's copies" : "the default stream's copies";
    if (device.copy(nullptr, nullptr, 0, at) != MXS_OK || device.zero(nullptr, 0, at) != MXS_OK) return "0 bytes";
  }
  return "";
}

std::string one_block_at_two_addresses() {
  Device &device = *the_device();
  if (!device.info().maps_memory) return "";
  const uint64_t granule = device.info().granule_bytes;
  std::unique_ptr<DeviceBlock> block;
  std::unique_ptr<DeviceRange> one, two;
  if (device.create_block(2 * granule, &block) != MXS_OK || device.reserve(4 * granule, &one) != MXS_OK ||
      device.reserve(2 * granule, &two) != MXS_OK)
    return error_of("make");
  if (block->bytes() != 2 * granule || one->bytes() != 4 * granule || !one->data()) return "sizes";
  if (one->map(granule, *block, 0, 2 * granule) != MXS_OK || two->map(0, *block, 0, 2 * granule) != MXS_OK)
    return error_of("map");
  const Stream stream(device);
  const Bytes bytes = pattern(2 * granule, 17);
  if (device.copy(one->data() + granule, bytes.data(), bytes.size(), stream.handle) != MXS_OK ||
      device.synchronize(stream.handle) != MXS_OK)
    return error_of("write");
  if (read_back(device, two->data(), bytes.size(), stream.handle) != bytes) return "not seen at the other address";
  // What one address gets, the other has; the block outlives its maps.
  if (device.zero(two->data() + granule, 100, stream.handle) != MXS_OK) return error_of("zero");
  if (read_back(device, one->data() + 2 * granule, 100, stream.handle) != Bytes(100, 0)) return "not seen at the first";
  if (one->unmap(granule, 2 * granule) != MXS_OK) return error_of("unmap");
  if (read_back(device, two->data() + granule, 100, stream.handle) != Bytes(100, 0)) return "gone with a map";
  one.reset();
  two.reset();
  if (device.reserve(2 * granule, &one) != MXS_OK || one->map(0, *block, 0, 2 * granule) != MXS_OK)
    return error_of("map again");
  return read_back(device, one->data() + granule, 100, stream.handle) == Bytes(100, 0) ? "" : "gone with a range";
}

std::string maps_that_make_no_sense() {
  Device &device = *the_device();
  if (!device.info().maps_memory) return "";
  const uint64_t granule = device.info().granule_bytes;
  std::unique_ptr<DeviceBlock> block, other;
  std::unique_ptr<DeviceRange> range, empty;
  for (const uint64_t bytes : {uint64_t{0}, granule / 2, granule + 1}) {
    const std::string text = std::to_string(granule);
    std::string complaint = expect(device.create_block(bytes, &other), MXS_INVALID_ARGUMENT, {text});
    if (complaint.empty()) complaint = expect(device.reserve(bytes, &empty), MXS_INVALID_ARGUMENT, {text});
    if (!complaint.empty() || other || empty) return complaint + " at " + std::to_string(bytes);
  }
  if (device.create_block(granule, &block) != MXS_OK || device.reserve(3 * granule, &range) != MXS_OK)
    return error_of("make");
  if (range->map(granule, *block, 0, granule) != MXS_OK) return error_of("map");
  const struct {
    const char *what;
    uint64_t offset, block_offset, bytes;
  } bad[] = {
      {"nothing", 0, 0, 0},
      {"half a granule", 0, 0, granule / 2},
      {"an odd place", 1, 0, granule},
      {"an odd place of the block", 0, 1, granule},
      {"behind the range", 3 * granule, 0, granule},
      {"beyond the range", 2 * granule, 0, 2 * granule},
      {"not from the block's beginning", 0, granule, granule},
      {"beyond the block", 0, 0, 2 * granule},
      {"mapped already", granule, 0, granule},
      {"an offset that wraps around", ~uint64_t{0} - granule + 1, 0, 2 * granule},
  };
  for (const auto &line : bad) {
    const std::string complaint =
        expect(range->map(line.offset, *block, line.block_offset, line.bytes), MXS_INVALID_ARGUMENT, {"map"});
    if (!complaint.empty()) return std::string(line.what) + ": " + complaint;
  }
  if (range->unmap(0, granule) != MXS_INVALID_ARGUMENT || range->unmap(granule, 2 * granule) != MXS_INVALID_ARGUMENT)
    return "unmapped what is not mapped";
  if (range->map(0, *block, 0, granule) != MXS_OK || range->map(2 * granule, *block, 0, granule) != MXS_OK)
    return error_of("its neighbours");
  if (range->unmap(granule, granule) != MXS_OK) return error_of("unmap");
  std::unique_ptr<DeviceBlock> large;
  if (device.create_block(2 * granule, &large) != MXS_OK) return error_of("make");
  for (const uint64_t offset : {uint64_t{0}, granule}) {  // one neighbour or the other is in the way
    const std::string complaint = expect(range->map(offset, *large, 0, 2 * granule), MXS_INVALID_ARGUMENT, {"already"});
    if (!complaint.empty()) return "partly mapped already: " + complaint;
  }
  return range->map(granule, *block, 0, granule) == MXS_OK ? "" : error_of("its place again");
}

std::string an_event_orders_two_streams() {
  Device &device = *the_device();
  const Stream first(device), second(device);
  const Event event(device);
  constexpr size_t bytes = 1 << 16;
  DeviceMemory memory;
  if (device.allocate(bytes, &memory) != MXS_OK) return error_of("allocate");
  if (device.query(event.handle) != MXS_OK) return "an event that was never recorded is not over";
  const Bytes early = pattern(bytes, 1);
  PinnedMemory late, found;  // CUDA may wait for a stream before it takes memory that is not pinned
  if (device.allocate_pinned(bytes, &late) != MXS_OK || device.allocate_pinned(bytes, &found) != MXS_OK)
    return error_of("pinned");
  std::memset(late.data(), 0x77, bytes);
  if (device.copy(memory.data(), early.data(), bytes, first.handle) != MXS_OK ||
      device.synchronize(first.handle) != MXS_OK)
    return error_of("copy");
  Gate gate;
  mxs_status status = device.call_host(first.handle, Gate::pass, &gate);
  if (status == MXS_OK) status = device.copy(memory.data(), late.data(), bytes, first.handle);
  if (status == MXS_OK) status = device.record(event.handle, first.handle);
  if (status == MXS_OK) status = device.wait(second.handle, event.handle);
  if (status == MXS_OK) status = device.copy(found.data(), memory.data(), bytes, second.handle);
  const bool waits = status == MXS_OK && device.query(event.handle) == MXS_IN_PROGRESS && gate.passed.load() == 0;
  gate.open.store(true);
  if (status != MXS_OK || device.synchronize(second.handle) != MXS_OK) return error_of("two streams");
  if (!waits) return "the event was over before the work";
  if (device.query(event.handle) != MXS_OK || gate.passed.load() != 1) return "the event is not over";
  return std::memcmp(found.data(), late.data(), bytes) == 0 ? "" : "the second stream did not wait";
}

// The gate only shows what a stream does when nobody tells it to wait: the bytes of before.
std::string without_an_event_nothing_is_ordered() {
  Device &device = *the_device();
  const Stream first(device), second(device);
  DeviceMemory memory;
  if (device.allocate(64, &memory) != MXS_OK || device.zero(memory.data(), 64, first.handle) != MXS_OK ||
      device.synchronize(first.handle) != MXS_OK)
    return error_of("memory");
  PinnedMemory late;
  if (device.allocate_pinned(64, &late) != MXS_OK) return error_of("pinned");
  std::memset(late.data(), 9, 64);
  Gate gate;
  mxs_status status = device.call_host(first.handle, Gate::pass, &gate);
  if (status == MXS_OK) status = device.copy(memory.data(), late.data(), 64, first.handle);
  const Bytes found = read_back(device, memory.data(), 64, second.handle);
  gate.open.store(true);
  if (status != MXS_OK || device.synchronize(first.handle) != MXS_OK) return error_of("work");
  return found == Bytes(64, 0) ? "" : "the second stream has waited for the first, which nothing asked for";
}

std::string a_stream_waits_for_a_value() {
  Device &device = *the_device();
  const Stream stream(device);
  const Event event(device);
  PinnedMemory flags;
  if (device.allocate_pinned(64, &flags) != MXS_OK) return error_of("pinned");
  auto *const flag = reinterpret_cast<uint32_t *>(flags.data());
  if (!device.info().waits_values)
    return expect(device.wait_value(stream.handle, flag, 1), MXS_NOT_BUILT, {"device 0", "wait"});
  const struct {
    uint32_t before, value, after;
    bool waits;
  } table[] = {
      {0, 1, 1, true},
      {0, 1, 5, true},                    // at least
      {7, 3, 7, false},                   // there already
      {0xfffffff0u, 2, 2, true},          // beyond the end of 32 bits
      {3, 0xfffffff0u, 3, false},         // a number of long ago
  };
  for (const auto &line : table) {
    __atomic_store_n(flag, line.before, __ATOMIC_RELEASE);
    mxs_status status = device.wait_value(stream.handle, flag, line.value);
    if (status == MXS_OK) status = device.record(event.handle, stream.handle);
    if (status != MXS_OK) return error_of("wait_value");
    std::this_thread::sleep_for(std::chrono::milliseconds(line.waits ? 5 : 0));
    const bool waits = device.query(event.handle) == MXS_IN_PROGRESS;
    __atomic_store_n(flag, line.after, __ATOMIC_RELEASE);
    if (device.synchronize(stream.handle) != MXS_OK) return error_of("synchronize");
    if (line.waits && !waits) return "did not wait for " + std::to_string(line.value);
  }
  return "";
}

std::string pointers_say_whose_they_are() {
  DeviceLibrary *library = nullptr;
  if (device_library(&library) != MXS_OK) return error_of("library");
  Device &device = *the_device();
  DeviceMemory memory;
  PinnedMemory pinned;
  if (device.allocate(10'000, &memory) != MXS_OK || device.allocate_pinned(10'000, &pinned) != MXS_OK)
    return error_of("memory");
  std::unique_ptr<DeviceBlock> block;
  std::unique_ptr<DeviceRange> range;
  const uint64_t granule = device.info().granule_bytes;
  if (granule && (device.create_block(granule, &block) != MXS_OK || device.reserve(granule, &range) != MXS_OK ||
                  range->map(0, *block, 0, granule) != MXS_OK))
    return error_of("map");
  const auto heap = std::make_unique<int>(1);
  const int local = 2;
  const struct {
    const char *what;
    const void *pointer;
    PointerKind kind;
  } table[] = {
      {"device memory", memory.data(), PointerKind::device},
      {"the middle of device memory", memory.data() + 9'999, PointerKind::device},
      {"mapped memory", range ? range->data() + 100 : memory.data(), PointerKind::device},
      {"pinned memory", pinned.data(), PointerKind::pinned},
      {"the middle of pinned memory", pinned.data() + 777, PointerKind::pinned},
      {"the heap", heap.get(), PointerKind::host},
      {"the stack", &local, PointerKind::host},
      {"code", table, PointerKind::host},
      {"NULL", nullptr, PointerKind::host},
  };
  for (const auto &line : table) {
    PointerInfo info{PointerKind::managed, 77};
    if (library->pointer(line.pointer, &info) != MXS_OK) return error_of(line.what);
    if (info.kind != line.kind || info.device != (line.kind == PointerKind::device ? 0 : -1))
      return std::string(line.what) + ": kind " + std::to_string(static_cast<int>(info.kind)) + ", device " +
             std::to_string(info.device);
  }
  return "";
}

std::string wrong_use_is_refused() {
  Device &device = *the_device();
  const Stream stream(device);
  const struct {
    int numbers[4];
  } arguments{};
  std::string complaint = expect(device.launch("no_such_kernel", &arguments, sizeof arguments, 1, 32, stream.handle),
                                 MXS_DEVICE_FAILED, {"no_such_kernel", "device 0", "CUDA_ERROR"});
  if (complaint.empty())
    complaint = expect(device.record(nullptr, stream.handle), MXS_DEVICE_FAILED, {"cuEventRecord", "device 0"});
  if (complaint.empty())
    complaint = expect(device.wait(stream.handle, nullptr), MXS_DEVICE_FAILED, {"cuStreamWaitEvent", "device 0"});
  device.destroy_stream(nullptr);
  device.destroy_event(nullptr);
  // The device goes on.
  DeviceMemory memory;
  if (!complaint.empty()) return complaint;
  const bool works = device.allocate(100, &memory) == MXS_OK && device.zero(memory.data(), 100, nullptr) == MXS_OK &&
                     device.synchronize(nullptr) == MXS_OK;
  return works ? "" : error_of("afterwards");
}

// Where the stand-in sees it; on a real device it would end the context.
std::string freed_memory_is_refused() {
  if (!mxs::test::on_standin()) return "";
  Device &device = *the_device();
  const Stream stream(device);
  DeviceMemory memory;
  if (device.allocate(4096, &memory) != MXS_OK) return error_of("allocate");
  std::byte *const gone = memory.data();
  { const DeviceMemory freed = std::move(memory); }
  return device.zero(gone, 4096, stream.handle) == MXS_OK && device.synchronize(stream.handle) == MXS_OK
             ? "it still takes bytes" : "";
}

// Captures are the caller's, by the driver itself, with the device's context current.
struct Captures {
  decltype(&::cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&::cuCtxSetCurrent) set_current = nullptr;
  decltype(&::cuStreamBeginCapture) begin = nullptr;
  decltype(&::cuStreamEndCapture) end = nullptr;
  decltype(&::cuGraphDestroy) destroy = nullptr;

  bool find() {
    Symbols symbols{dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};
    symbols.find(&retain, "cuDevicePrimaryCtxRetain");
    symbols.find(&set_current, "cuCtxSetCurrent");
    symbols.find(&begin, "cuStreamBeginCapture_v2");
    symbols.find(&end, "cuStreamEndCapture");
    symbols.find(&destroy, "cuGraphDestroy");
    CUcontext context = nullptr;
    return !symbols.missing && retain(&context, 0) == CUDA_SUCCESS && set_current(context) == CUDA_SUCCESS;
  }
  ~Captures() {
    if (set_current) set_current(nullptr);
  }
};

std::string a_capture_is_seen() {
  Device &device = *the_device();
  const Stream stream(device);
  bool capturing = true;
  if (device.is_capturing(stream.handle, &capturing) != MXS_OK || capturing) return "a new stream is capturing";
  capturing = true;
  if (device.is_capturing(nullptr, &capturing) != MXS_OK || capturing) return "the default stream is capturing";
  Captures captures;
  DeviceMemory memory;
  if (!captures.find()) return "the driver has no captures";
  if (device.allocate(4096, &memory) != MXS_OK) return error_of("allocate");
  const auto handle = static_cast<CUstream>(stream.handle);
  if (captures.begin(handle, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS) return "begin";
  const bool seen = device.is_capturing(stream.handle, &capturing) == MXS_OK && capturing;
  const mxs_status status = device.zero(memory.data(), 4096, stream.handle);
  CUgraph graph = nullptr;
  const bool ended = captures.end(handle, &graph) == CUDA_SUCCESS;
  if (graph) captures.destroy(graph);
  if (!seen || status != MXS_OK || !ended) return error_of("what is captured");
  return device.is_capturing(stream.handle, &capturing) == MXS_OK && !capturing ? "" : "capturing for ever";
}

// As a comm's thread does while the program captures, and as the program itself does in a call on a comm.
std::string events_are_looked_at_beside_a_capture() {
  Device &device = *the_device();
  const Stream captured(device), other(device);
  const Event event(device);
  Captures captures;
  if (!captures.find()) return "the driver has no captures";
  if (device.record(event.handle, other.handle) != MXS_OK || device.synchronize(other.handle) != MXS_OK)
    return error_of("record");
  const auto handle = static_cast<CUstream>(captured.handle);
  if (captures.begin(handle, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS) return "begin";
  std::string wrong = device.query(event.handle) == MXS_OK ? "" : error_of("a look by the thread that captures");
  std::thread([&] {
    if (device.query(event.handle) != MXS_OK) wrong = error_of("a look by another thread");
  }).join();
  CUgraph graph = nullptr;
  const CUresult ended = captures.end(handle, &graph);
  if (graph) captures.destroy(graph);
  return !wrong.empty() || ended == CUDA_SUCCESS ? wrong : "the capture was spoilt";
}

std::string threads_share_a_device() {
  std::vector<std::string> complaints(4);
  std::vector<std::thread> threads;
  for (size_t number = 0; number < complaints.size(); ++number)
    threads.emplace_back([number, &complaint = complaints[number]] {
      Device &device = *the_device();
      for (unsigned round = 0; round < 25 && complaint.empty(); ++round) {
        const Stream stream(device);
        DeviceMemory memory;
        const Bytes bytes = pattern(10'000 + round, static_cast<unsigned>(number) * 40 + round);
        if (device.allocate(bytes.size(), &memory) != MXS_OK ||
            device.copy(memory.data(), bytes.data(), bytes.size(), stream.handle) != MXS_OK)
          complaint = error_of("thread");
        else if (read_back(device, memory.data(), bytes.size(), stream.handle) != bytes)
          complaint = "another thread's bytes";
      }
    });
  std::string all;
  for (size_t number = 0; number < threads.size(); ++number) {
    threads[number].join();
    all += complaints[number];
  }
  return all;
}

std::string ranges_nest() {
  Device &device = *the_device();
  for (int depth = 0; depth < 3; ++depth) device.push_range("gather of block 3");
  for (int depth = 0; depth < 4; ++depth) device.pop_range();  // one too many does no harm
  return "";
}

std::string a_child_is_refused() {
  DeviceLibrary *library = nullptr;
  if (device_library(&library) != MXS_OK) return error_of("library");
  const pid_t child = fork();
  if (child == 0) {
    Device *device = nullptr;
    mxs_cuda_info info = MXS_CUDA_INFO_INIT;
    const bool refused = find_device(0, &device) == MXS_FORKED && !device && !loaded_device_library() &&
                         mxs_cuda_query(&info) == MXS_FORKED && info.device_count == 0 &&
                         std::strstr(mxs_last_error(), "forked");
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return "fork";
  if (status != 0) return "the child got a device, or another status";
  return loaded_device_library() == library ? "" : "the parent has lost its device";
}

std::string the_public_door_answers() {
  mxs_cuda_info info = MXS_CUDA_INFO_INIT;
  if (mxs_cuda_query(&info) != MXS_OK) return error_of("mxs_cuda_query");
  if (info.device_count < 1 || info.driver_version < 12000 || !info.nccl || !*info.nccl) return "its answer";
  for (int32_t index = 0; index < info.device_count; ++index) {
    mxs_cuda_device device = MXS_CUDA_DEVICE_INIT;
    if (mxs_cuda_device_query(index, &device) != MXS_OK) return error_of("mxs_cuda_device_query");
    if (device.index != index || !*device.name || !*device.pci_address || !device.nic || device.numa_node < -1 ||
        device.free_bytes > device.total_bytes || device.free_bytes == 0)
      return "device " + std::to_string(index);
  }
  mxs_cuda_device device = MXS_CUDA_DEVICE_INIT;
  device.index = 55;
  for (const int32_t index : {-1, info.device_count, INT32_MAX, INT32_MIN}) {
    const std::string complaint = expect(mxs_cuda_device_query(index, &device), MXS_NOT_FOUND,
                                         {std::to_string(index), std::to_string(info.device_count)});
    if (!complaint.empty() || device.index != 55) return complaint + " at " + std::to_string(index);
  }
  mxs_cuda_info small = MXS_CUDA_INFO_INIT;
  small.size = 3;
  if (mxs_cuda_query(&small) != MXS_INVALID_ARGUMENT || mxs_cuda_query(nullptr) != MXS_INVALID_ARGUMENT ||
      mxs_cuda_device_query(0, nullptr) != MXS_INVALID_ARGUMENT)
    return "NULL, or a size of 3";
  return "";
}

std::string the_public_copy_finds_devices() {
  Device &device = *the_device();
  const Stream stream(device);
  DeviceMemory memory;
  PinnedMemory pinned;
  constexpr size_t bytes = 12'345;
  if (device.allocate(bytes, &memory) != MXS_OK || device.allocate_pinned(bytes, &pinned) != MXS_OK)
    return error_of("memory");
  const Bytes source = pattern(bytes, 5);
  Bytes target(bytes, 0xee);
  // Without a stream each is complete on return.
  if (mxs_copy(memory.data(), source.data(), bytes, nullptr) != MXS_OK ||
      mxs_copy(pinned.data(), memory.data(), bytes, nullptr) != MXS_OK ||
      std::memcmp(pinned.data(), source.data(), bytes) != 0)
    return error_of("device");
  if (mxs_copy(target.data(), pinned.data(), bytes, nullptr) != MXS_OK || target != source) return error_of("pinned");
  // Overlapping host memory.
  if (mxs_copy(target.data() + 1, target.data(), bytes - 1, nullptr) != MXS_OK ||
      target[bytes - 1] != source[bytes - 2])
    return error_of("host");
  mxs_call call = MXS_CALL_INIT;
  call.stream = stream.handle;
  if (mxs_copy(target.data(), memory.data(), bytes, &call) != MXS_OK || device.synchronize(stream.handle) != MXS_OK ||
      target != source)
    return error_of("stream");
  if (mxs_copy(pinned.data(), source.data(), bytes, &call) != MXS_OK || device.synchronize(stream.handle) != MXS_OK)
    return error_of("host memory on a stream");
  if (mxs_copy(nullptr, source.data(), bytes, nullptr) != MXS_INVALID_ARGUMENT ||
      mxs_copy(memory.data(), nullptr, 1, &call) != MXS_INVALID_ARGUMENT)
    return "NULL with bytes";
  return mxs_copy(nullptr, nullptr, 0, nullptr) == MXS_OK ? "" : error_of("nothing");
}

void a_device_tells_what_it_is(void **) { assert_true(good(the_device_tells_what_it_is())); }
void calls_leave_no_context_behind(void **) { assert_true(good(no_context_is_left_behind())); }
void device_and_pinned_memory_come_and_go(void **) { assert_true(good(memory_is_given_and_taken())); }
void out_of_memory_says_what_was_asked_and_what_is_free(void **) { assert_true(good(too_much_is_told_in_numbers())); }
void copies_reach_all_memory(void **) { assert_true(good(copies_of_all_kinds())); }
void a_block_can_be_at_two_addresses(void **) { assert_true(good(one_block_at_two_addresses())); }
void maps_that_make_no_sense_are_refused(void **) { assert_true(good(maps_that_make_no_sense())); }
void events_order_streams(void **) { assert_true(good(an_event_orders_two_streams())); }
void streams_without_events_are_not_ordered(void **) { assert_true(good(without_an_event_nothing_is_ordered())); }
void streams_wait_for_values(void **) { assert_true(good(a_stream_waits_for_a_value())); }
void pointers_tell_their_memory(void **) { assert_true(good(pointers_say_whose_they_are())); }
void wrong_use_gets_a_sentence(void **) { assert_true(good(wrong_use_is_refused())); }
void memory_that_is_freed_is_refused(void **) { assert_true(good(freed_memory_is_refused())); }
void captures_are_seen(void **) { assert_true(good(a_capture_is_seen())); }
void looks_at_events_spoil_no_capture(void **) { assert_true(good(events_are_looked_at_beside_a_capture())); }
void threads_may_share_a_device(void **) { assert_true(good(threads_share_a_device())); }
void profiler_ranges_nest(void **) { assert_true(good(ranges_nest())); }
void a_forked_child_is_refused(void **) { assert_true(good(a_child_is_refused())); }
void cuda_h_answers(void **) { assert_true(good(the_public_door_answers())); }
void mxs_copy_finds_the_devices(void **) { assert_true(good(the_public_copy_finds_devices())); }

}  // namespace

int main(int, char **arguments) {
  if (!mxs::test::gpu_is_there(arguments)) return 0;
  if (!the_device()) std::printf("1..0 # no device: %s\n", mxs_last_error());
  if (!the_device()) return 1;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_device_tells_what_it_is),
      cmocka_unit_test(calls_leave_no_context_behind),
      cmocka_unit_test(device_and_pinned_memory_come_and_go),
      cmocka_unit_test(out_of_memory_says_what_was_asked_and_what_is_free),
      cmocka_unit_test(copies_reach_all_memory),
      cmocka_unit_test(a_block_can_be_at_two_addresses),
      cmocka_unit_test(maps_that_make_no_sense_are_refused),
      cmocka_unit_test(events_order_streams),
      cmocka_unit_test(streams_without_events_are_not_ordered),
      cmocka_unit_test(streams_wait_for_values),
      cmocka_unit_test(pointers_tell_their_memory),
      cmocka_unit_test(wrong_use_gets_a_sentence),
      cmocka_unit_test(memory_that_is_freed_is_refused),
      cmocka_unit_test(captures_are_seen),
      cmocka_unit_test(looks_at_events_spoil_no_capture),
      cmocka_unit_test(threads_may_share_a_device),
      cmocka_unit_test(profiler_ranges_nest),
      cmocka_unit_test(a_forked_child_is_refused),
      cmocka_unit_test(cuda_h_answers),
      cmocka_unit_test(mxs_copy_finds_the_devices),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
