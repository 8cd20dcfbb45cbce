// SPDX-License-Identifier: Apache-2.0
// The stand-in for NCCL moves bytes, adds, refuses, hangs and lets go as NCCL does.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "nccl_case.hpp"
#include "support/cmocka_all.h"

namespace {

using mxs::test::cuda;
using mxs::test::in_child;
using mxs::test::in_threads;
using mxs::test::load_nccl_file;
using mxs::test::Nccl;
using mxs::test::Seat;

const std::vector<int> worlds = {1, 2, 3, 4, 7, 8};

void nap(int milliseconds) { usleep(static_cast<useconds_t>(milliseconds) * 1000); }

std::string words_of(const Nccl &nccl, const char *call, ncclResult_t result) {
  return std::string(call) + ": " + nccl.error_string(result) + ": " + nccl.last_error(nullptr);
}

// Polls until the communicator is not in progress any more, 20 s at most.
ncclResult_t settle(const Nccl &nccl, ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  for (int i = 0; i < 20000 && state == ncclInProgress; ++i) {
    if (nccl.async_error(comm, &state) != ncclSuccess) return ncclInternalError;
    if (state == ncclInProgress) nap(1);
  }
  return state;
}

// Until the stream has nothing left, 20 s at most.
bool ends(CUstream stream) {
  for (int i = 0; i < 20000; ++i) {
    if (cuda().query(stream) == CUDA_SUCCESS) return true;
    nap(1);
  }
  return false;
}

ncclConfig_t not_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

using RankBody = std::function<std::string(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat)>;

// What one rank does around the body.
std::string with_comm(int rank, int rank_count, const ncclUniqueId &id, const Nccl &nccl, const RankBody &body) {
  Seat seat(rank % 8);
  if (!seat.is_good) return "no device";
  ncclComm_t comm = nullptr;
  const ncclResult_t result = nccl.init(&comm, rank_count, id, rank);
  if (result != ncclSuccess) return words_of(nccl, "ncclCommInitRank", result);
  const std::string complaint = body(rank, nccl, comm, seat);
  if (!complaint.empty()) return complaint;
  return nccl.destroy(comm) == ncclSuccess ? "" : "ncclCommDestroy";
}

// Ranks as threads of a child.
std::string threads_of(int rank_count, const RankBody &body, const char *version = "2.30") {
  return in_child([&]() -> std::string {
    const Nccl nccl = load_nccl_file(version);
    ncclUniqueId id;
    if (!nccl.file || nccl.get_unique_id(&id) != ncclSuccess) return "no NCCL";
    return in_threads(rank_count, [&](int rank) { return with_comm(rank, rank_count, id, nccl, body); });
  });
}

// Ranks as processes.
std::string processes_of(int rank_count, const RankBody &body, const mxs::test::ProcessOptions &options = {}) {
  const Nccl nccl = load_nccl_file("2.30");
  ncclUniqueId id;
  if (!nccl.file || nccl.get_unique_id(&id) != ncclSuccess) return "no NCCL";
  return mxs::test::run_processes_bare(
      rank_count, [&](int rank) { return with_comm(rank, rank_count, id, nccl, body); }, options);
}

uint8_t letter(int rank, size_t place) { return static_cast<uint8_t>(static_cast<size_t>(rank + 1) * 37 + place * 11); }

std::vector<uint8_t> letters(int rank, size_t count) {
  std::vector<uint8_t> made(count);
  for (size_t i = 0; i < count; ++i) made[i] = letter(rank, i);
  return made;
}

// One group: a broadcast by each rank, of different sizes, among them none and more than a ring holds.
std::string broadcasts(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  int rank_count = 0;
  nccl.count(comm, &rank_count);
  const size_t sizes[] = {1, 0, 700001, 255, 64, 4097, 1 << 20, 3};
  std::vector<void *> targets;
  nccl.group_start();
  for (int root = 0; root < rank_count; ++root) {
    const size_t bytes = sizes[root];
    void *const source = root == rank ? seat.upload(letters(root, bytes)) : nullptr;
    targets.push_back(rank == root && root % 2 ? source : seat.allocate(bytes));  // odd ones in place
    const ncclResult_t result = nccl.broadcast(source, targets.back(), bytes, ncclUint8, root, comm, seat.stream);
    if (result != ncclSuccess) return words_of(nccl, "ncclBroadcast", result);
  }
  const ncclResult_t result = nccl.group_end();
  if (result != ncclSuccess) return words_of(nccl, "ncclGroupEnd", result);
  for (int root = 0; root < rank_count; ++root)
    if (seat.download<uint8_t>(targets[static_cast<size_t>(root)], sizes[root]) != letters(root, sizes[root]))
      return "other bytes of root " + std::to_string(root);
  return "";
}

std::string messages(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  int rank_count = 0;
  nccl.count(comm, &rank_count);
  std::vector<void *> targets;
  const auto bytes_of = [](int from, int to) { return static_cast<size_t>(from * 5000 + to * 90001 + 1); };
  nccl.group_start();
  for (int peer = 0; peer < rank_count; ++peer) {
    const size_t out = bytes_of(rank, peer), in = bytes_of(peer, rank);
    targets.push_back(seat.allocate(in));
    nccl.send(seat.upload(letters(rank + peer, out)), out, ncclInt8, peer, comm, seat.stream);
    nccl.receive(targets.back(), in, ncclInt8, peer, comm, seat.stream);
  }
  const ncclResult_t result = nccl.group_end();
  if (result != ncclSuccess) return words_of(nccl, "ncclGroupEnd", result);
  for (int peer = 0; peer < rank_count; ++peer) {
    const size_t in = bytes_of(peer, rank);
    if (seat.download<uint8_t>(targets[static_cast<size_t>(peer)], in) != letters(rank + peer, in))
      return "other bytes from rank " + std::to_string(peer);
  }
  return "";
}

template <class Value>
Value narrow(double value) {
  if constexpr (std::is_same_v<Value, __half>) return __float2half_rn(static_cast<float>(value));
  else if constexpr (std::is_same_v<Value, __nv_bfloat16>) return __float2bfloat16_rn(static_cast<float>(value));
  else return static_cast<Value>(value);
}

// Small whole numbers, which all types add without rounding.
template <class Value>
std::string sums_of(ncclDataType_t type, int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  int rank_count = 0;
  nccl.count(comm, &rank_count);
  const size_t count = 1003, world = static_cast<size_t>(rank_count);
  std::vector<Value> own, everything, total, share;
  for (size_t i = 0; i < count; ++i) {
    own.push_back(narrow<Value>(static_cast<double>(i % 5) + rank));
    total.push_back(narrow<Value>(static_cast<double>((i % 5) * world + world * (world - 1) / 2)));
  }
  for (size_t i = 0; i < count * world; ++i)
    everything.push_back(narrow<Value>(static_cast<double>(i / count + static_cast<size_t>(rank) + i % 2)));
  for (size_t i = 0; i < count; ++i)
    share.push_back(narrow<Value>(static_cast<double>(
        world * static_cast<size_t>(rank) + world * (world - 1) / 2 +
        world * ((static_cast<size_t>(rank) * count + i) % 2))));
  const int root = rank_count / 2;
  void *const all = seat.upload(own), *const reduced = seat.upload(own), *const parts = seat.upload(everything);
  void *const piece = seat.allocate(count * sizeof(Value));
  void *const gathered = seat.allocate(count * world * sizeof(Value));
  ncclResult_t result = nccl.all_reduce(all, all, count, type, ncclSum, comm, seat.stream);
  nccl.group_start();
  nccl.reduce(reduced, rank == root ? reduced : nullptr, count, type, ncclSum, root, comm, seat.stream);
  nccl.reduce_scatter(parts, piece, count, type, ncclSum, comm, seat.stream);
  nccl.all_gather(all, gathered, count, type, comm, seat.stream);
  if (result == ncclSuccess) result = nccl.group_end();
  if (result != ncclSuccess) return words_of(nccl, "sums", result);
  const auto differ = [](const std::vector<Value> &left, const std::vector<Value> &right) {
    return left.size() != right.size() || std::memcmp(left.data(), right.data(), left.size() * sizeof(Value)) != 0;
  };
  if (differ(seat.download<Value>(all, count), total)) return "ncclAllReduce";
  if (differ(seat.download<Value>(reduced, count), rank == root ? total : own)) return "ncclReduce";
  if (differ(seat.download<Value>(piece, count), share)) return "ncclReduceScatter";
  const std::vector<Value> copies = seat.download<Value>(gathered, count * world);
  for (size_t peer = 0; peer < world; ++peer)
    if (differ({copies.begin() + static_cast<std::ptrdiff_t>(peer * count),
                copies.begin() + static_cast<std::ptrdiff_t>((peer + 1) * count)}, total))
      return "ncclAllGather";
  return "";
}

std::string sums(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  const std::pair<const char *, std::string> results[] = {
      {"u8", sums_of<uint8_t>(ncclUint8, rank, nccl, comm, seat)},
      {"i64", sums_of<int64_t>(ncclInt64, rank, nccl, comm, seat)},
      {"f16", sums_of<__half>(ncclFloat16, rank, nccl, comm, seat)},
      {"bf16", sums_of<__nv_bfloat16>(ncclBfloat16, rank, nccl, comm, seat)},
      {"f32", sums_of<float>(ncclFloat32, rank, nccl, comm, seat)},
      {"f64", sums_of<double>(ncclFloat64, rank, nccl, comm, seat)}};
  for (const auto &[type, complaint] : results)
    if (!complaint.empty()) return std::string(type) + ": " + complaint;
  return "";
}

std::string everything(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  for (const RankBody &body : {RankBody(broadcasts), RankBody(messages), RankBody(sums)}) {
    const std::string complaint = body(rank, nccl, comm, seat);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

std::string in_every_world(const std::function<std::string(int rank_count)> &run) {
  for (const int rank_count : worlds) {
    const std::string complaint = run(rank_count);
    if (!complaint.empty()) return std::to_string(rank_count) + " ranks: " + complaint;
  }
  return "";
}

// ---- order ----------------------------------------------------------------------------------------------------------

// Sums on two streams in turn, without an event between them: NCCL keeps the order of the calls.
std::string alternates(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  CUstream other = nullptr;
  cuda().create_stream(&other, CU_STREAM_NON_BLOCKING);
  int rank_count = 0;
  nccl.count(comm, &rank_count);
  void *const memory = seat.upload(std::vector<int64_t>(1000, rank == 0));
  for (int i = 0; i < 20; ++i) {
    const ncclResult_t result =
        nccl.all_reduce(memory, memory, 1000, ncclInt64, ncclSum, comm, i % 2 ? other : seat.stream);
    if (result != ncclSuccess) return words_of(nccl, "ncclAllReduce", result);
  }
  cuda().synchronize(other);
  int64_t wanted = 1;
  for (int i = 1; i < 20; ++i) wanted *= rank_count;
  return seat.download<int64_t>(memory, 1000) == std::vector<int64_t>(1000, wanted) ? "" : "another sum";
}

// A graph of a sum and a broadcast, run again and again, with other calls between. Captures of one thread do not refuse
// what the other ranks do meanwhile.
std::string replays(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  int rank_count = 0;
  nccl.count(comm, &rank_count);
  void *const memory = seat.upload(std::vector<int64_t>{1, rank});
  auto *const words = static_cast<int64_t *>(memory);
  if (cuda().begin_capture(seat.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS) return "capture";
  nccl.group_start();
  nccl.all_reduce(words, words, 1, ncclInt64, ncclSum, comm, seat.stream);
  nccl.broadcast(words + 1, words + 1, 1, ncclInt64, rank_count - 1, comm, seat.stream);
  const ncclResult_t result = nccl.group_end();
  if (result != ncclSuccess) return words_of(nccl, "ncclGroupEnd", result);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  if (cuda().end_capture(seat.stream, &graph) != CUDA_SUCCESS) return "the end of the capture";
  if (cuda().instantiate(&exec, graph, 0) != CUDA_SUCCESS) return "cuGraphInstantiate";
  if (seat.download<int64_t>(memory, 2) != std::vector<int64_t>{1, rank}) return "it ran while it was captured";
  int64_t wanted = 1;
  for (int i = 0; i < 3; ++i) {
    if (cuda().launch_graph(exec, seat.stream) != CUDA_SUCCESS) return "cuGraphLaunch";
    nccl.all_reduce(words, words, 1, ncclInt64, ncclSum, comm, seat.stream);
    wanted *= rank_count * rank_count;
  }
  return seat.download<int64_t>(memory, 2) == std::vector<int64_t>{wanted, rank_count - 1} ? "" : "another sum";
}

// ---- several communicators, and parts of them -----------------------------------------------------------------------

std::string splits(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  int rank_count = 0;
  nccl.count(comm, &rank_count);
  for (int round = 0; round < 3; ++round) {
    ncclComm_t part = nullptr;
    const bool is_out = round == 2 && rank == 0;
    const ncclResult_t result = nccl.split(comm, is_out ? NCCL_SPLIT_NOCOLOR : rank % 2, -rank, &part, nullptr);
    if (result != ncclSuccess) return words_of(nccl, "ncclCommSplit", result);
    if (is_out) {
      if (part) return "a part for who wants none";
      continue;
    }
    int part_count = -1, part_rank = -1;
    nccl.count(part, &part_count);
    nccl.user_rank(part, &part_rank);
    int wanted_count = 0, wanted_rank = 0;
    for (int peer = round == 2 ? 1 : 0; peer < rank_count; ++peer)
      if (peer % 2 == rank % 2) {
        ++wanted_count;
        if (peer > rank) ++wanted_rank;
      }
    if (part_count != wanted_count || part_rank != wanted_rank) return "another rank";
    void *const memory = seat.upload(std::vector<int64_t>{rank});
    nccl.all_reduce(memory, memory, 1, ncclInt64, ncclMax, part, seat.stream);
    const int64_t most = rank % 2 == (rank_count - 1) % 2 ? rank_count - 1 : rank_count - 2;
    if (seat.download<int64_t>(memory, 1)[0] != most) return "another sum of the part";
    if (nccl.destroy(part) != ncclSuccess) return "ncclCommDestroy of the part";
  }
  return broadcasts(rank, nccl, comm, seat);
}

std::string several(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  ncclComm_t others[3];
  for (ncclComm_t &other : others)
    if (nccl.split(comm, 0, rank, &other, nullptr) != ncclSuccess) return "ncclCommSplit";
  for (int round = 0; round < 3; ++round)
    for (ncclComm_t other : others) {
      const std::string complaint = broadcasts(rank, nccl, other, seat);
      if (!complaint.empty()) return complaint;
    }
  for (ncclComm_t other : others) nccl.destroy(other);
  return "";
}

// ---- hangs, errors, aborts -----------------------------------------------------------------------------------------

// Rank 0 calls nothing: the others' streams hang until they abort.
std::string hangs_until_abort(int rank, int rank_count, const ncclUniqueId &id, const Nccl &nccl,
                              std::atomic<int> *done) {
  Seat seat(rank);
  ncclComm_t comm = nullptr;
  if (nccl.init(&comm, rank_count, id, rank) != ncclSuccess) return "init";
  void *const memory = seat.upload(letters(rank, 100));
  if (rank != 0) {
    if (nccl.broadcast(memory, memory, 100, ncclUint8, 0, comm, seat.stream) != ncclSuccess) return "broadcast";
    nap(200);
    if (cuda().query(seat.stream) != CUDA_ERROR_NOT_READY) return "did not hang";
    ncclResult_t state = ncclInternalError;
    if (nccl.async_error(comm, &state) != ncclSuccess || state != ncclSuccess) return "an error without cause";
  }
  if (rank != 0) done->fetch_add(1);
  else
    while (done->load() < rank_count - 1) nap(1);
  if (nccl.abort(comm) != ncclSuccess) return "abort";
  if (!ends(seat.stream)) return "the abort did not free the stream";
  return nccl.broadcast(memory, memory, 100, ncclUint8, 0, comm, seat.stream) == ncclInvalidArgument
             ? "" : "an aborted communicator took a call";
}

// Rank 1 dies in a broadcast that it sends.
std::string survives_a_peer(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  const size_t bytes = 64 << 20;
  void *const memory = seat.allocate(bytes);
  nccl.broadcast(memory, memory, bytes, ncclUint8, 1, comm, seat.stream);
  if (rank == 1) {
    nap(20);
    kill(getpid(), SIGKILL);
  }
  nap(300);
  if (cuda().query(seat.stream) != CUDA_ERROR_NOT_READY) return "did not hang";
  if (nccl.abort(comm) != ncclSuccess) return "abort";
  if (!ends(seat.stream)) return "the abort did not free the stream";
  _exit(0);  // the communicator is gone: with_comm must not destroy it
}

std::string fails_after_three(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  void *const memory = seat.upload(std::vector<int64_t>{rank});
  for (int i = 0; i < 3; ++i) nccl.all_reduce(memory, memory, 1, ncclInt64, ncclSum, comm, seat.stream);
  cuda().synchronize(seat.stream);
  ncclResult_t state = ncclInternalError;
  nccl.async_error(comm, &state);
  if (state != ncclSuccess) return "failed too early";
  nccl.all_reduce(memory, memory, 1, ncclInt64, ncclSum, comm, seat.stream);
  for (int i = 0; i < 10000 && state == ncclSuccess; ++i) {
    nap(1);
    nccl.async_error(comm, &state);
  }
  if (state != ncclRemoteError) return "no asynchronous error";
  if (cuda().query(seat.stream) != CUDA_ERROR_NOT_READY) return "did not hang";
  if (nccl.all_reduce(memory, memory, 1, ncclInt64, ncclSum, comm, seat.stream) != ncclRemoteError)
    return "took another call";
  if (std::string(nccl.last_error(comm)).empty()) return "no sentence";
  if (nccl.abort(comm) != ncclSuccess || !ends(seat.stream)) return "abort";
  return "done";
}

std::string revokes(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  void *const memory = seat.upload(letters(rank, 100));
  if (rank != 0) {
    nccl.broadcast(memory, memory, 100, ncclUint8, 0, comm, seat.stream);
    nap(100);
  }
  if (nccl.revoke(comm, 0) != ncclSuccess || !ends(seat.stream)) return "the stream hangs";
  return nccl.broadcast(memory, memory, 100, ncclUint8, 0, comm, seat.stream) == ncclInvalidUsage
             ? "" : "a revoked communicator took a call";
}

// Ranks 0 and 1 disagree about a count: both hang, and rank 1 says so.
std::string mismatch(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  void *const memory = seat.allocate(100);
  nccl.broadcast(memory, memory, rank == 0 ? 100 : 99, ncclUint8, 0, comm, seat.stream);
  nap(300);
  const bool hangs = cuda().query(seat.stream) == CUDA_ERROR_NOT_READY;
  nccl.abort(comm);
  ends(seat.stream);
  return hangs == (rank == 1) ? "done" : "rank " + std::to_string(rank) + (hangs ? " hangs" : " does not hang");
}

// Runs a body that has aborted its communicator itself, and says "done".
std::string ended_ranks(int rank_count, const RankBody &body) {
  return in_child([&]() -> std::string {
    const Nccl nccl = load_nccl_file("2.30");
    ncclUniqueId id;
    nccl.get_unique_id(&id);
    return in_threads(rank_count, [&](int rank) -> std::string {
      Seat seat(rank);
      ncclComm_t comm = nullptr;
      const ncclResult_t result = nccl.init(&comm, rank_count, id, rank);
      if (result != ncclSuccess) return words_of(nccl, "ncclCommInitRank", result);
      const std::string complaint = body(rank, nccl, comm, seat);
      return complaint == "done" ? "" : complaint;
    });
  });
}

// ---- not blocking --------------------------------------------------------------------------------------------------

std::string goes_on_in_progress(int rank, int rank_count, const ncclUniqueId &id, const Nccl &nccl) {
  Seat seat(rank);
  ncclConfig_t config = not_blocking();
  ncclComm_t comm = nullptr;
  if (nccl.init_config(&comm, rank_count, id, rank, &config) != ncclInProgress) return "init did not go on";
  int count = 0;
  if (nccl.count(comm, &count) != ncclInvalidArgument) return "took a call before it was ready";
  if (settle(nccl, comm) != ncclSuccess) return "init";
  void *const memory = seat.upload(std::vector<int64_t>{1});
  if (nccl.all_reduce(memory, memory, 1, ncclInt64, ncclSum, comm, seat.stream) != ncclInProgress)
    return "the call was not in progress";
  if (seat.download<int64_t>(memory, 1)[0] != 1) return "the sum came before it was enqueued";
  if (settle(nccl, comm) != ncclSuccess) return "the call failed";
  if (seat.download<int64_t>(memory, 1)[0] != rank_count) return "another sum";
  if (nccl.finalize(comm) != ncclInProgress || settle(nccl, comm) != ncclSuccess) return "finalize";
  return nccl.destroy(comm) == ncclSuccess ? "" : "destroy";
}

// Only rank 0 comes: it stays in progress, and an abort ends it.
std::string waits_for_nobody() {
  const Nccl nccl = load_nccl_file("2.30");
  ncclUniqueId id;
  nccl.get_unique_id(&id);
  Seat seat(0);
  ncclConfig_t config = not_blocking();
  ncclComm_t comm = nullptr;
  if (nccl.init_config(&comm, 2, id, 0, &config) != ncclInProgress) return "init did not go on";
  nap(200);
  ncclResult_t state = ncclSuccess;
  nccl.async_error(comm, &state);
  if (state != ncclInProgress) return "did not wait";
  return nccl.abort(comm) == ncclSuccess ? "" : "abort";
}

// ---- what it refuses -----------------------------------------------------------------------------------------------

std::string shares_a_device(bool may, const char *variable) {
  return in_child([&]() -> std::string {
    unsetenv("MXS_STANDIN_NCCL_SHARE_GPU");
    if (may) setenv(variable, "1", 1);
    const Nccl nccl = load_nccl_file("2.30");
    ncclUniqueId id;
    nccl.get_unique_id(&id);
    return in_threads(2, [&](int rank) -> std::string {
      Seat seat(3);
      ncclComm_t comm = nullptr;
      const ncclResult_t result = nccl.init(&comm, 2, id, rank);
      if (may) return result == ncclSuccess ? broadcasts(rank, nccl, comm, seat) : words_of(nccl, "init", result);
      if (result != ncclInvalidUsage) return "not refused";
      return std::strstr(nccl.last_error(nullptr), "Duplicate GPU") ? "" : nccl.last_error(nullptr);
    });
  });
}

std::string refuses(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  const auto bad = ncclInvalidArgument;
  std::vector<uint8_t> host(100);
  void *const memory = seat.allocate(100);
  int count = 0;
  if (nccl.count(nullptr, &count) != bad || nccl.count(comm, nullptr) != bad) return "count";
  if (nccl.broadcast(memory, memory, 100, ncclUint8, 2, comm, seat.stream) != bad) return "a root beyond";
  if (nccl.broadcast(memory, memory, 100, ncclUint8, -1, comm, seat.stream) != bad) return "a negative root";
  if (nccl.broadcast(host.data(), host.data(), 100, ncclUint8, rank, comm, seat.stream) != bad) return "host memory";
  if (nccl.all_reduce(nullptr, memory, 100, ncclUint8, ncclSum, comm, seat.stream) != bad) return "NULL";
  // 15 is the largest number that this enum of C++ can hold.
  if (nccl.all_reduce(memory, memory, 100, static_cast<ncclDataType_t>(15), ncclSum, comm, seat.stream) != bad)
    return "an unknown type";
  if (nccl.group_end() != ncclInvalidUsage) return "an end without a start";
  nccl.group_start();
  nccl.broadcast(memory, memory, 100, ncclUint8, 5, comm, seat.stream);
  if (nccl.group_end() != bad) return "a group with a bad call";
  ncclComm_t other = nullptr;
  ncclUniqueId id{};
  if (nccl.init(&other, 2, id, 0) != bad) return "an id of nobody";
  nccl.get_unique_id(&id);
  if (nccl.init(&other, 2, id, 2) != bad || nccl.init(&other, 0, id, 0) != bad) return "a rank beyond";
  ncclConfig_t config{};
  if (nccl.init_config(&other, 1, id, 0, &config) != bad) return "a config without a mark";
  return other ? "made one all the same" : broadcasts(rank, nccl, comm, seat);
}

std::string registers(int rank, const Nccl &nccl, ncclComm_t comm, Seat &seat) {
  void *memory = nullptr, *handle = nullptr;
  if (nccl.mem_alloc(&memory, 4096) != ncclSuccess || !memory) return "ncclMemAlloc";
  if (nccl.comm_register(comm, memory, 4096, &handle) != ncclSuccess) return "ncclCommRegister";
  if (nccl.comm_deregister(comm, handle) != ncclSuccess) return "ncclCommDeregister";
  if (nccl.comm_deregister(comm, handle) == ncclSuccess) return "the second time";
  ncclWindow_t window = nullptr;
  void *const place = reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(memory) + 4095) / 4096 * 4096);
  if (nccl.window_register(comm, place, 64, &window, 1) != ncclSuccess) return "ncclCommWindowRegister";
  if (nccl.window_deregister(comm, window) != ncclSuccess) return "ncclCommWindowDeregister";
  return nccl.mem_free(memory) == ncclSuccess ? broadcasts(rank, nccl, comm, seat) : "ncclMemFree";
}

std::string names_of_versions() {
  return in_child([]() -> std::string {
    const Nccl oldest = load_nccl_file("2.12"), old = load_nccl_file("2.18"), middle = load_nccl_file("2.21"),
               newer = load_nccl_file("2.28"), newest = load_nccl_file("2.30");
    int version = 0;
    for (const auto &[nccl, number] : {std::pair{&oldest, 21210}, std::pair{&old, 21805}, std::pair{&middle, 22105},
                                       std::pair{&newer, 22809}, std::pair{&newest, 23004}})
      if (!nccl->file || nccl->get_version(&version) != ncclSuccess || version != number) return "a version";
    if (oldest.init_config || oldest.finalize || oldest.last_error || oldest.split) return "2.12 has too much";
    if (!old.init_config || !old.split || old.comm_register || old.mem_alloc) return "2.18";
    if (!middle.comm_register || !middle.mem_alloc || middle.window_register || middle.revoke) return "2.21";
    if (!newer.window_register || !newer.revoke || !newest.window_register) return "2.28";
    setenv("MXS_STANDIN_NCCL_VERSION", "21703", 1);
    newest.get_version(&version);
    return version == 21703 ? "" : "MXS_STANDIN_NCCL_VERSION";
  });
}

// ---- traces --------------------------------------------------------------------------------------------------------

size_t open_files() {
  size_t count = 0;
  for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

std::string leaves_nothing() {
  return in_child([]() -> std::string {
    const Nccl nccl = load_nccl_file("2.30");
    size_t before = 0;
    for (int round = 0; round < 4; ++round) {
      ncclUniqueId id;
      nccl.get_unique_id(&id);
      const std::string complaint =
          in_threads(3, [&](int rank) { return with_comm(rank, 3, id, nccl, broadcasts); });
      if (!complaint.empty()) return complaint;
      if (round == 0) before = open_files();
    }
    return open_files() == before ? "" : "files stay open";
  });
}

// What is said on stderr meanwhile.
std::string stderr_of(const std::function<void()> &body) {
  int ends_of_pipe[2];
  if (pipe(ends_of_pipe) != 0) return "";
  const int saved = dup(2);
  dup2(ends_of_pipe[1], 2);
  close(ends_of_pipe[1]);
  body();
  dup2(saved, 2);
  close(saved);
  std::string text(4096, '\0');
  const ssize_t count = read(ends_of_pipe[0], text.data(), text.size());
  close(ends_of_pipe[0]);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

// ---- the cases -----------------------------------------------------------------------------------------------------

// Prints what is wrong; nothing with a destructor is alive when the assert leaves.
bool is_good(const std::string &complaint) {
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

void threads_move_bytes_and_add_in_every_world(void **) {
  assert_true(is_good(in_every_world([](int rank_count) { return threads_of(rank_count, everything); })));
}
void processes_move_bytes_and_add_in_every_world(void **) {
  assert_true(is_good(in_every_world([](int rank_count) { return processes_of(rank_count, everything); })));
}
void every_version_does(void **) {
  for (const char *version : {"2.18", "2.21", "2.28"}) assert_true(is_good(threads_of(3, everything, version)));
}
// Ranks are processes then: a driver may run what waits in one thread.
void a_device_that_waits_for_no_flags_does(void **) {
  setenv("MXS_STANDIN_NO_WAIT_VALUE", "1", 1);
  const bool good = is_good(processes_of(3, everything)) && is_good(processes_of(2, replays));
  unsetenv("MXS_STANDIN_NO_WAIT_VALUE");
  assert_true(good);
}
void calls_on_two_streams_keep_their_order(void **) {
  setenv("MXS_STANDIN_SLOW", "500", 1);
  const bool good = is_good(threads_of(3, alternates));
  unsetenv("MXS_STANDIN_SLOW");
  assert_true(good);
}
void calls_are_captured_and_replayed(void **) {
  assert_true(is_good(threads_of(3, replays)));
  assert_true(is_good(processes_of(2, replays)));
}
void communicators_are_split_and_live_side_by_side(void **) {
  assert_true(is_good(threads_of(7, splits)));
  assert_true(is_good(processes_of(3, splits)));
  assert_true(is_good(threads_of(4, several)));
}
void a_missing_call_hangs_the_others_until_they_abort(void **) {
  assert_true(is_good(in_child([]() -> std::string {
    const Nccl nccl = load_nccl_file("2.30");
    ncclUniqueId id;
    nccl.get_unique_id(&id);
    std::atomic<int> done{0};
    return in_threads(3, [&](int rank) { return hangs_until_abort(rank, 3, id, nccl, &done); });
  })));
}
void a_peer_that_dies_hangs_the_others_until_they_abort(void **) {
  assert_true(is_good([] {
    mxs::test::ProcessOptions options;
    options.may_die = 1;
    return processes_of(3, survives_a_peer, options);
  }()));
}
void an_asynchronous_error_comes_after_so_many_calls(void **) {
  setenv("MXS_STANDIN_NCCL_ASYNC_ERROR_AFTER", "3", 1);
  const bool good = is_good(ended_ranks(2, fails_after_three));
  unsetenv("MXS_STANDIN_NCCL_ASYNC_ERROR_AFTER");
  assert_true(good);
}
void a_revoked_communicator_lets_go_and_can_be_destroyed(void **) { assert_true(is_good(threads_of(2, revokes))); }
void counts_that_differ_hang_and_are_told(void **) {
  setenv("MXS_STANDIN_NCCL_CHECK", "1", 1);
  bool good = false;
  const std::string text = stderr_of([&] { good = is_good(ended_ranks(2, mismatch)); });
  unsetenv("MXS_STANDIN_NCCL_CHECK");
  const bool told = text.find("rank 1 waits for 99 bytes of rank 0's ncclBroadcast") != std::string::npos;
  if (!told) print_error("said: %s\n", text.c_str());
  assert_true(good && told);
}
void what_does_not_block_is_in_progress(void **) {
  setenv("MXS_STANDIN_NCCL_IN_PROGRESS_MS", "60", 1);
  const bool good = is_good(in_child([]() -> std::string {
    const Nccl nccl = load_nccl_file("2.30");
    ncclUniqueId id;
    nccl.get_unique_id(&id);
    return in_threads(3, [&](int rank) { return goes_on_in_progress(rank, 3, id, nccl); });
  }));
  unsetenv("MXS_STANDIN_NCCL_IN_PROGRESS_MS");
  assert_true(good);
  assert_true(is_good(in_child(waits_for_nobody)));
}
void two_ranks_on_one_device_are_refused_unless_they_may(void **) {
  assert_true(is_good(shares_a_device(false, "")));
  assert_true(is_good(shares_a_device(true, "MXS_STANDIN_NCCL_SHARE_GPU")));
  assert_true(is_good(shares_a_device(true, "NCCL_MULTI_RANK_GPU_ENABLE")));
}
void wrong_calls_are_refused(void **) { assert_true(is_good(threads_of(2, refuses))); }
void buffers_and_windows_are_registered(void **) { assert_true(is_good(threads_of(2, registers))); }
void each_version_has_its_names(void **) { assert_true(is_good(names_of_versions())); }
void no_file_stays_open(void **) { assert_true(is_good(leaves_nothing())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_version_has_its_names),
      cmocka_unit_test(threads_move_bytes_and_add_in_every_world),
      cmocka_unit_test(processes_move_bytes_and_add_in_every_world),
      cmocka_unit_test(every_version_does),
      cmocka_unit_test(a_device_that_waits_for_no_flags_does),
      cmocka_unit_test(calls_on_two_streams_keep_their_order),
      cmocka_unit_test(calls_are_captured_and_replayed),
      cmocka_unit_test(communicators_are_split_and_live_side_by_side),
      cmocka_unit_test(a_missing_call_hangs_the_others_until_they_abort),
      cmocka_unit_test(a_peer_that_dies_hangs_the_others_until_they_abort),
      cmocka_unit_test(an_asynchronous_error_comes_after_so_many_calls),
      cmocka_unit_test(a_revoked_communicator_lets_go_and_can_be_destroyed),
      cmocka_unit_test(counts_that_differ_hang_and_are_told),
      cmocka_unit_test(what_does_not_block_is_in_progress),
      cmocka_unit_test(two_ranks_on_one_device_are_refused_unless_they_may),
      cmocka_unit_test(wrong_calls_are_refused),
      cmocka_unit_test(buffers_and_windows_are_registered),
      cmocka_unit_test(no_file_stays_open),
  };
  return cmocka_run_group_tests_name("the stand-in for NCCL", tests, nullptr, nullptr);
}
