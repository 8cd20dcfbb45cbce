// SPDX-License-Identifier: Apache-2.0
// What goes wrong with groups: NCCL that is missing, old or damaged, ranks that don't come, die or fail later, and
// communicators of the caller's. Whatever it is, there is a sentence, streams are free again, and the process lives on.
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>
#include <signal.h>

#include <chrono>
#include <mutex>
#include <regex>

#include "cuda/nccl_library.hpp"
#include "gpu.hpp"
#include "group_case.hpp"
#include "support/cmocka_all.h"

// Our own declarations of NCCL's types are NCCL's.
static_assert(sizeof(mxs::NcclId) == sizeof(ncclUniqueId) && sizeof(mxs::NcclComm) == sizeof(ncclComm_t));
static_assert(mxs::nccl_success == ncclSuccess && mxs::nccl_remote_error == ncclRemoteError &&
              mxs::nccl_in_progress == ncclInProgress);
static_assert(mxs::nccl_u8 == ncclUint8 && mxs::nccl_i64 == ncclInt64 && mxs::nccl_f16 == ncclFloat16 &&
              mxs::nccl_f32 == ncclFloat32 && mxs::nccl_f64 == ncclFloat64 && mxs::nccl_bf16 == ncclBfloat16 &&
              mxs::nccl_sum == ncclSum);
static_assert(offsetof(mxs::NcclConfig, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(mxs::NcclConfig, version) == offsetof(ncclConfig_t, version) &&
              offsetof(mxs::NcclConfig, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(mxs::NcclConfig, ctas_max) == offsetof(ncclConfig_t, maxCTAs) &&
              offsetof(mxs::NcclConfig, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(mxs::NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));

namespace {

using mxs::DeviceMemory;
using mxs::GroupOptions;
using mxs::GroupPart;
using mxs::test::GroupRank;
using mxs::test::GroupWorld;
using mxs::test::nccl_variable;
using mxs::test::run_group;

bool is_good(const std::string &complaint) {
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

// "": this status, with a sentence that has this in it.
std::string expect(mxs_status status, mxs_status wanted, const char *pattern) {
  const std::string sentence = mxs::last_error_text();
  if (status != wanted) return "status " + std::to_string(status) + ", not " + std::to_string(wanted) + ": " + sentence;
  static std::mutex one_at_a_time;  // ranks are threads here, and regex fills a cache of the locale
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  return std::regex_search(sentence, std::regex(pattern)) ? "" : "said: " + sentence;
}

GroupPart part_of(int root, const DeviceMemory &memory, uint64_t bytes) {
  GroupPart part;
  part.root = root;
  part.source = part.target = memory.data();
  part.count = bytes;
  part.dtype = MXS_U8;
  return part;
}

std::string sum_is_right(GroupRank &own) {
  const DeviceMemory words = own.upload(std::vector<int64_t>{own.rank + 1});
  if (own.group->sum(reinterpret_cast<int64_t *>(words.data()), 1, own.stream) != MXS_OK) return mxs::last_error_text();
  return own.download<int64_t>(words, 1)[0] == own.rank_count * (own.rank_count + 1) / 2 ? "" : "another sum";
}

// ---- no such NCCL --------------------------------------------------------------------------------------------------

bool refuses_library(const std::vector<std::string> &environment, const char *pattern) {
  GroupWorld world;
  world.as_processes = true;
  world.joins = false;
  world.environment = environment;
  return is_good(run_group(world, [&](GroupRank &own) -> std::string {
    const std::string complaint = expect(own.join(), MXS_NOT_BUILT, pattern);
    mxs::DeviceLibrary *library = nullptr;
    std::string why_not;
    if (mxs::device_library(&library) != MXS_OK || library->nccl_version(&why_not) != 0) return "has a version";
    return !complaint.empty() || why_not.empty() ? "said nothing: " + complaint : "";
  }));
}

// Rank 1 alone has none: rank 0 fails with its sentence.
bool one_rank_has_none() {
  GroupWorld world;
  world.as_processes = true;
  world.joins = false;
  return is_good(run_group(world, [](GroupRank &own) {
    if (own.rank == 1) setenv("MXS_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    return expect(own.join(), MXS_NOT_BUILT,
                  "^rank 1: NCCL can't be loaded: /nowhere/libnccl.so.2: .*MXS_NCCL_LIBRARY");
  }));
}

bool ranks_have_different_ones() {
  GroupWorld world;
  world.as_processes = true;
  world.joins = false;
  world.rank_count = 3;
  return is_good(run_group(world, [](GroupRank &own) {
    if (own.rank == 2) setenv("MXS_STANDIN_NCCL_VERSION", "22809", 1);
    return expect(own.join(), MXS_MISMATCH, "rank 0 has NCCL 2.30.4, rank 2 has 2.28.9");
  }));
}

// The copy that a program (PyTorch) has loaded comes first.
bool reuses_what_is_loaded() {
  GroupWorld world;
  world.joins = false;
  world.rank_count = 1;
  return is_good(run_group(world, [](GroupRank &own) -> std::string {
    const std::string path = nccl_variable("2.28").substr(sizeof "MXS_NCCL_LIBRARY=" - 1);
    if (!dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return dlerror();
    setenv("MXS_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    if (own.join() != MXS_OK) return mxs::last_error_text();
    return own.group->version() == 22809 ? sum_is_right(own) : "another version";
  }));
}

// NVIDIA's own, where the CUDA toolkit or the system has it. It works on a GPU; on the stand-in for CUDA it must load,
// and refuse to join with its own words.
bool nvidias_own_loads() {
  for (const char *path : {"/usr/local/cuda/lib/libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                           "/usr/lib/x86_64-linux-gnu/libnccl.so.2", "/usr/lib/aarch64-linux-gnu/libnccl.so.2"}) {
    if (access(path, R_OK) != 0) continue;
    GroupWorld world;
    world.rank_count = 1;
    world.joins = false;
    world.environment = {"MXS_NCCL_LIBRARY=" + std::string(path)};
    return is_good(run_group(world, [](GroupRank &own) -> std::string {
      mxs::DeviceLibrary *library = nullptr;
      std::string why_not;
      if (mxs::device_library(&library) != MXS_OK || library->nccl_version(&why_not) < 21800) return "why: " + why_not;
      const mxs_status status = own.join();
      return status == MXS_OK ? sum_is_right(own)
                              : expect(status, MXS_DEVICE_FAILED, "rank 0: ncclCommInitRankConfig.*cuda error.*NCCL 2");
    }));
  }
  return true;  // there is none
}

// ---- ranks that don't come -----------------------------------------------------------------------------------------

// Rank 1 takes part in the gathers, as make_group wants it, but its NCCL never joins.
bool one_rank_never_joins(bool has_poll) {
  GroupWorld world;
  world.joins = false;
  return is_good(run_group(world, [&](GroupRank &own) -> std::string {
    GroupOptions options = own.options();
    options.timeout_ns = 300'000'000;
    if (own.rank == 0) {
      int calls = 0;
      if (has_poll) {
        options.timeout_ns = 0;
        options.poll = [&calls] { return ++calls < 20 ? MXS_OK : mxs::set_error(MXS_PEER_FAILED, "rank 1 is dead"); };
      }
      const mxs_status status = own.device->make_group(&own.group, options);
      return expect(status, has_poll ? MXS_PEER_FAILED : MXS_TIMED_OUT,
                    has_poll ? "rank 0: rank 1 is dead" : "rank 0: the ranks did not meet in NCCL within 0.3 s");
    }
    // Words of the agreement as they are; rank 0's are 0, of the second one what failed.
    std::vector<std::byte> own_words(2048), all(4096);
    size_t bytes = 0;
    const auto gather = options.gather;
    options.gather = [&](const void *source, void *target, size_t word_bytes) {
      bytes = word_bytes;
      std::memcpy(own_words.data(), source, word_bytes);
      const mxs_status status = gather(source, target, word_bytes);
      return status == MXS_OK ? mxs::set_error(MXS_CANCELLED, "leaves after the first gather") : status;
    };
    if (own.device->make_group(&own.group, options) != MXS_CANCELLED) return "did not leave";
    return gather(own_words.data(), all.data(), bytes) == MXS_OK ? "" : mxs::last_error_text();
  }));
}

bool two_ranks_on_a_device() {
  GroupWorld world;
  world.joins = false;
  world.environment = {"MXS_STANDIN_NCCL_SHARE_GPU=0", "CUDA_VISIBLE_DEVICES=0"};
  return is_good(run_group(world, [](GroupRank &own) {
    return expect(own.join(), MXS_DEVICE_FAILED, "rank 0: ncclCommInitRankConfig.*Duplicate GPU detected");
  }));
}

// ---- errors in flight ----------------------------------------------------------------------------------------------

// After three calls the fourth hangs, and check says why.
bool asynchronous_errors() {
  GroupWorld world;
  world.rank_count = 3;
  world.environment = {"MXS_STANDIN_NCCL_ASYNC_ERROR_AFTER=3", "MXS_STANDIN_NCCL_ASYNC_ERROR_RANK=1"};
  return is_good(run_group(world, [](GroupRank &own) -> std::string {
    const DeviceMemory memory = own.upload(std::vector<uint8_t>(100));
    for (int i = 0; i < 3; ++i) {
      const std::string complaint = sum_is_right(own);
      if (!complaint.empty()) return complaint;
    }
    if (own.group->check() != MXS_OK) return "failed too early";
    if (own.group->broadcast({part_of(1, memory, 100)}, own.stream) != MXS_OK) return mxs::last_error_text();
    if (!own.stream_hangs()) return "the stream goes on";
    std::string complaint;
    if (own.rank == 1) {
      complaint = expect(own.group->check(), MXS_PEER_FAILED, "rank 1 of 3 on device 1.*network error.*NCCL 2.30.4");
      if (complaint.empty())
        complaint =
            expect(own.group->broadcast({part_of(1, memory, 100)}, own.stream), MXS_PEER_FAILED, "ncclBroadcast");
    } else if (own.group->check() != MXS_OK) {
      complaint = "an error that is another rank's";
    }
    own.group->abort();
    if (!own.stream_ends()) return "the abort did not free the stream";
    if (!complaint.empty()) return complaint;
    own.group->abort();  // once more: nothing
    complaint = expect(own.group->check(), MXS_ABORTED, "aborted");
    return complaint.empty() ? expect(own.group->reduce({part_of(1, memory, 100)}, own.stream), MXS_ABORTED, "aborted")
                             : complaint;
  }));
}

// Rank 1 is killed while it sends. The others abort, from another thread; their streams and devices work on.
bool a_peer_dies() {
  GroupWorld world;
  world.rank_count = 3;
  world.as_processes = true;
  world.may_die = 1;
  return is_good(run_group(world, [](GroupRank &own) -> std::string {
    const uint64_t bytes = 64 << 20;
    DeviceMemory memory;
    if (own.device->allocate(bytes, &memory) != MXS_OK) return mxs::last_error_text();
    const std::string complaint = sum_is_right(own);
    if (!complaint.empty()) return complaint;
    if (own.group->broadcast({part_of(1, memory, bytes)}, own.stream) != MXS_OK) return mxs::last_error_text();
    if (own.rank == 1) kill(getpid(), SIGKILL);
    if (!own.stream_hangs()) return "the stream goes on";
    std::thread([&own] { own.group->abort(); }).join();
    if (!own.stream_ends()) return "the abort did not free the stream";
    const DeviceMemory other = own.upload(std::vector<int64_t>{7});
    return own.download<int64_t>(other, 1)[0] == 7 ? "" : "the device is of no use any more";
  }));
}

// A call that NCCL never finishes: the deadline ends it, or an abort from another thread does.
bool a_call_stays_in_progress(bool aborts) {
  GroupWorld world;
  world.rank_count = 1;
  world.joins = false;
  return is_good(run_group(world, [&](GroupRank &own) -> std::string {
    setenv("MXS_STANDIN_NCCL_IN_PROGRESS_MS", "1000", 1);
    GroupOptions options = own.options();
    if (own.device->make_group(&own.group, options) != MXS_OK) return mxs::last_error_text();
    own.group.reset();
    options.timeout_ns = aborts ? 20'000'000'000 : 1'300'000'000;
    if (own.device->make_group(&own.group, options) != MXS_OK) return mxs::last_error_text();
    const DeviceMemory memory = own.upload(std::vector<uint8_t>(100));
    if (!aborts) {  // 1 s fits into 1.3 s
      return own.group->broadcast({part_of(0, memory, 100)}, own.stream) == MXS_OK ? "" : mxs::last_error_text();
    }
    std::thread killer([&own] {
      usleep(100000);
      own.group->abort();
    });
    const std::string complaint =
        expect(own.group->broadcast({part_of(0, memory, 100)}, own.stream), MXS_ABORTED, "ncclBroadcast.*aborted");
    killer.join();
    return complaint;
  }));
}

bool a_call_passes_its_deadline() {
  GroupWorld world;
  world.rank_count = 1;
  world.joins = false;
  return is_good(run_group(world, [&](GroupRank &own) -> std::string {
    setenv("MXS_STANDIN_NCCL_IN_PROGRESS_MS", "400", 1);
    GroupOptions options = own.options();
    options.timeout_ns = 200'000'000;
    return expect(own.device->make_group(&own.group, options), MXS_TIMED_OUT, "did not meet in NCCL within 0.2 s");
  }));
}

// ---- ends ----------------------------------------------------------------------------------------------------------

// Rank 0 ends at once, rank 1 seconds later: neither waits for the other, and what was asked for is done.
bool nobody_waits_at_the_end() {
  GroupWorld world;
  world.rank_count = 2;
  return is_good(run_group(world, [](GroupRank &own) -> std::string {
    const std::string complaint = sum_is_right(own);
    if (!complaint.empty()) return complaint;
    if (own.rank == 1) usleep(500000);
    const auto begin = std::chrono::steady_clock::now();
    own.group.reset();
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(10)) return "waited for its peer";
    if (own.rank == 0) usleep(800000);
    return own.join() == MXS_OK ? sum_is_right(own) : mxs::last_error_text();  // which looks after the old one
  }));
}

// ---- communicators of the caller's ---------------------------------------------------------------------------------

struct Lender {
  decltype(&::ncclCommInitRank) init = nullptr;
  decltype(&::ncclGetUniqueId) id = nullptr;
  decltype(&::ncclCommDestroy) destroy = nullptr;
  decltype(&::ncclCommAbort) abort = nullptr;
  decltype(&::ncclCommCount) count = nullptr;
};

bool find_lender(const std::string &path, Lender *lender) {
  void *const file = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!file) return false;
  const auto find = [file](const char *name, auto *function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(file, name));
    return *function != nullptr;
  };
  return find("ncclCommInitRank", &lender->init) && find("ncclGetUniqueId", &lender->id) &&
         find("ncclCommDestroy", &lender->destroy) && find("ncclCommAbort", &lender->abort) &&
         find("ncclCommCount", &lender->count);
}

// As the CUDA runtime does for the thread that works with a device.
bool make_current(int device) {
  void *const file = dlopen("libcuda.so.1", RTLD_NOW);
  if (!file) return false;
  const auto retain = reinterpret_cast<decltype(&::cuDevicePrimaryCtxRetain)>(dlsym(file, "cuDevicePrimaryCtxRetain"));
  const auto push = reinterpret_cast<decltype(&::cuCtxPushCurrent)>(dlsym(file, "cuCtxPushCurrent_v2"));
  CUcontext context = nullptr;
  return retain && push && retain(&context, device) == CUDA_SUCCESS && push(context) == CUDA_SUCCESS;
}

using LentBody = std::function<std::string(GroupRank &own, const Lender &lender, ncclComm_t comm)>;

// The body has a communicator of these ranks.
bool lends(int rank_count, const char *version, const LentBody &body) {
  GroupWorld world;
  world.rank_count = rank_count;
  world.joins = false;
  world.environment = {nccl_variable(version)};
  return is_good(run_group(world, [&](GroupRank &own) -> std::string {
    Lender lender;
    if (!find_lender(nccl_variable(version).substr(sizeof "MXS_NCCL_LIBRARY=" - 1), &lender)) return "no NCCL";
    ncclUniqueId id;
    std::vector<ncclUniqueId> all(static_cast<size_t>(rank_count));
    lender.id(&id);
    if (own.options().gather(&id, all.data(), sizeof id) != MXS_OK) return mxs::last_error_text();
    ncclComm_t comm = nullptr;
    if (!make_current(own.device->info().index)) return "no context";
    if (lender.init(&comm, rank_count, all[0], own.rank) != ncclSuccess) return "init";
    return body(own, lender, comm);
  }));
}

std::string is_used_and_left_alone(GroupRank &own, const Lender &lender, ncclComm_t comm) {
  GroupOptions options = own.options();
  options.existing = comm;
  if (own.device->make_group(&own.group, options) != MXS_OK) return mxs::last_error_text();
  for (int i = 0; i < 3; ++i) {
    const std::string complaint = sum_is_right(own);
    if (!complaint.empty()) return complaint;
  }
  if (own.group->check() != MXS_OK) return mxs::last_error_text();
  own.group.reset();
  int count = 0;
  if (lender.count(comm, &count) != ncclSuccess || count != own.rank_count) return "it was destroyed";
  return lender.destroy(comm) == ncclSuccess ? "" : "destroy";
}

std::string must_be_of_these_ranks(GroupRank &own, const Lender &lender, ncclComm_t comm) {
  GroupOptions options = own.options();
  options.existing = comm;
  options.rank = (own.rank + 1) % own.rank_count;
  std::string complaint = expect(own.device->make_group(&own.group, options), MXS_INVALID_ARGUMENT,
                                 "the ncclComm_t that was given is of rank . of 2, this is rank . of 2");
  // One rank gives one, the other doesn't.
  options = own.options();
  if (own.rank == 1) options.existing = comm;
  if (complaint.empty())
    complaint = expect(own.device->make_group(&own.group, options), MXS_INVALID_ARGUMENT,
                       "rank 1 was given an ncclComm_t, but rank 0 was not");
  lender.destroy(comm);
  return complaint;
}

std::string must_be_of_this_device(GroupRank &own, const Lender &lender, ncclComm_t comm) {
  mxs::DeviceLibrary *library = nullptr;
  if (mxs::device_library(&library) != MXS_OK || library->device_count() < 2) return "";  // a machine with one GPU
  mxs::Device *other = nullptr;
  if (mxs::find_device(1, &other) != MXS_OK) return mxs::last_error_text();
  GroupOptions options = own.options();
  options.existing = comm;
  const std::string complaint = expect(other->make_group(&own.group, options), MXS_INVALID_ARGUMENT,
                                       "given is of device 0, but the comm's is 1");
  lender.destroy(comm);
  return complaint;
}

std::string must_be_alive(GroupRank &own, const Lender &lender, ncclComm_t comm) {
  GroupOptions options = own.options();
  options.existing = comm;
  lender.destroy(comm);
  return expect(own.device->make_group(&own.group, options), MXS_DEVICE_FAILED,
                "the ncclComm_t that was given can't be used");
}

// Rank 1 calls nothing. Where NCCL can revoke, rank 0's stream is free; the communicator is still its owner's.
std::string is_revoked(GroupRank &own, const Lender &lender, ncclComm_t comm) {
  GroupOptions options = own.options();
  options.existing = comm;
  if (own.device->make_group(&own.group, options) != MXS_OK) return mxs::last_error_text();
  const DeviceMemory memory = own.upload(std::vector<uint8_t>(100));
  if (own.rank == 0) {
    if (own.group->broadcast({part_of(1, memory, 100)}, own.stream) != MXS_OK) return mxs::last_error_text();
    if (!own.stream_hangs()) return "the stream goes on";
  }
  own.group->abort();
  if (own.group->version() >= 22807 && !own.stream_ends()) return "the stream hangs";
  own.group.reset();
  const ncclResult_t result = lender.abort(comm);
  return result == ncclSuccess && own.stream_ends() ? "" : "its owner can't end it";
}

void a_missing_library_is_named(void **) {
  assert_true(refuses_library({"MXS_NCCL_LIBRARY=/nowhere/libnccl.so.2"},
                              "NCCL can't be loaded: /nowhere/libnccl.so.2"));
}
void an_old_library_is_refused_with_its_version(void **) {
  assert_true(refuses_library({"MXS_STANDIN_NCCL_VERSION=21703"},
                              "NCCL is too old: .*libnccl.so.2 .of MXS_NCCL_LIBRARY. is 2.17.3, and 2.18 at least"));
  assert_true(refuses_library({nccl_variable("2.12")}, "is 2.12.10, and 2.18 at least"));
}
void a_library_without_a_function_is_refused_with_its_name(void **) {
  assert_true(refuses_library({nccl_variable("2.12"), "MXS_STANDIN_NCCL_VERSION=21900"},
                              "libnccl.so.2 .* has no ncclCommInitRankConfig"));
}
void one_rank_without_nccl_fails_all(void **) { assert_true(one_rank_has_none()); }
void ranks_with_different_versions_are_refused(void **) { assert_true(ranks_have_different_ones()); }
void the_copy_that_the_process_has_is_used(void **) { assert_true(reuses_what_is_loaded()); }
void nvidias_own_library_loads(void **) { assert_true(nvidias_own_loads()); }
void a_rank_that_never_joins_ends_at_the_deadline(void **) { assert_true(one_rank_never_joins(false)); }
void a_dead_rank_ends_the_joining(void **) { assert_true(one_rank_never_joins(true)); }
void two_ranks_on_one_device_are_refused_in_nccls_words(void **) { assert_true(two_ranks_on_a_device()); }
void asynchronous_errors_are_found_and_aborts_free_the_stream(void **) { assert_true(asynchronous_errors()); }
void a_peer_that_dies_in_a_broadcast_ends_with_an_abort(void **) { assert_true(a_peer_dies()); }
void calls_in_progress_end_in_time_or_by_an_abort(void **) {
  assert_true(a_call_stays_in_progress(false));
  assert_true(a_call_stays_in_progress(true));
  assert_true(a_call_passes_its_deadline());
}
void no_rank_waits_for_peers_at_the_end(void **) { assert_true(nobody_waits_at_the_end()); }
void an_existing_communicator_is_used_and_left_alone(void **) {
  assert_true(lends(1, "2.30", is_used_and_left_alone));
  assert_true(lends(1, "2.18", is_used_and_left_alone));
}
void an_existing_communicator_must_fit(void **) {
  assert_true(lends(2, "2.30", must_be_of_these_ranks));
  assert_true(lends(1, "2.30", must_be_of_this_device));
  assert_true(lends(1, "2.30", must_be_alive));
}
void an_abort_revokes_what_is_borrowed(void **) {
  assert_true(lends(2, "2.30", is_revoked));
  assert_true(lends(2, "2.18", is_revoked));
}

}  // namespace

int main(int, char **arguments) {
  if (!mxs::test::gpu_is_there(arguments)) return 0;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_missing_library_is_named),
      cmocka_unit_test(an_old_library_is_refused_with_its_version),
      cmocka_unit_test(a_library_without_a_function_is_refused_with_its_name),
      cmocka_unit_test(one_rank_without_nccl_fails_all),
      cmocka_unit_test(ranks_with_different_versions_are_refused),
      cmocka_unit_test(the_copy_that_the_process_has_is_used),
      cmocka_unit_test(nvidias_own_library_loads),
      cmocka_unit_test(a_rank_that_never_joins_ends_at_the_deadline),
      cmocka_unit_test(a_dead_rank_ends_the_joining),
      cmocka_unit_test(two_ranks_on_one_device_are_refused_in_nccls_words),
      cmocka_unit_test(asynchronous_errors_are_found_and_aborts_free_the_stream),
      cmocka_unit_test(a_peer_that_dies_in_a_broadcast_ends_with_an_abort),
      cmocka_unit_test(calls_in_progress_end_in_time_or_by_an_abort),
      cmocka_unit_test(no_rank_waits_for_peers_at_the_end),
      cmocka_unit_test(an_existing_communicator_is_used_and_left_alone),
      cmocka_unit_test(an_existing_communicator_must_fit),
      cmocka_unit_test(an_abort_revokes_what_is_borrowed),
  };
  return cmocka_run_group_tests_name("groups that fail", tests, nullptr, nullptr);
}
