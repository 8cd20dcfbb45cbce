// SPDX-License-Identifier: Apache-2.0
// mxs-soak: one rank, or as threads several, of a job that perf/soak/soak starts again and again: drawn cases whose
// results are compared byte for byte, with faults on the way. It uses the public interface only.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "soak/soaking.hpp"

namespace {

// An all-gather among threads of this process, for mxs_bootstrap.
class ThreadGather {
 public:
  explicit ThreadGather(int count) : ends_(static_cast<size_t>(count)) {
    for (int rank = 0; rank < count; rank++) ends_[static_cast<size_t>(rank)] = {this, rank, 0};
  }

  mxs_bootstrap of(int rank) {
    mxs_bootstrap bootstrap = MXS_BOOTSTRAP_INIT;
    bootstrap.rank = rank;
    bootstrap.rank_count = static_cast<int32_t>(ends_.size());
    bootstrap.context = &ends_[static_cast<size_t>(rank)];
    bootstrap.all_gather = [](void *context, const void *source, void *target, size_t bytes, void **request) {
      End *const end = static_cast<End *>(context);
      *request = new Request{end->gather->give(end, source, bytes), target};
      return 0;
    };
    bootstrap.test = [](void *context, void *request) {
      return static_cast<End *>(context)->gather->take(static_cast<Request *>(request)) ? 0 : 1;
    };
    bootstrap.free_request = [](void *, void *request) {
      delete static_cast<Request *>(request);
      return 0;
    };
    return bootstrap;
  }

 private:
  struct End {
    ThreadGather *gather;
    int rank;
    size_t turn;
  };
  struct Turn {
    std::vector<std::byte> all;
    size_t given = 0;
  };
  struct Request {
    size_t turn;
    void *target;
  };

  size_t give(End *end, const void *source, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t number = end->turn++;
    Turn &turn = turns_[number];
    turn.all.resize(bytes * ends_.size());
    std::memcpy(turn.all.data() + bytes * static_cast<size_t>(end->rank), source, bytes);
    turn.given++;
    return number;
  }

  bool take(Request *request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Turn &turn = turns_[request->turn];
    if (turn.given < ends_.size()) return false;
    std::memcpy(request->target, turn.all.data(), turn.all.size());
    return true;
  }

  std::mutex mutex_;
  std::vector<End> ends_;
  std::map<size_t, Turn> turns_;
};

int soak_in_threads(const soak::Options &options) {
  ThreadGather gather(options.threads);
  std::barrier<> barrier(options.threads);
  std::vector<int> statuses(static_cast<size_t>(options.threads), 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.threads; rank++)
    threads.emplace_back([&, rank] {
      const mxs_bootstrap bootstrap = gather.of(rank);
      soak::Place place;
      place.rank = rank;
      place.rank_count = options.threads;
      place.bootstrap = &bootstrap;
      place.threads = &barrier;
      statuses[static_cast<size_t>(rank)] = soak::soak(options, place);
      barrier.arrive_and_drop();  // whoever fails alone keeps nobody waiting
    });
  for (std::thread &thread : threads) thread.join();
  int worst = 0;
  for (const int status : statuses) worst = worst == 0 || status == soak::status_wrong ? status : worst;
  return worst;
}

}  // namespace

int main(int count, char **words) {
  soak::Options options;
  if (!soak::read_options(count, words, &options)) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (options.threads > 0) return soak_in_threads(options);
  const char *const rank = std::getenv("RANK"), *const rank_count = std::getenv("WORLD_SIZE");
  soak::Place place;
  place.rank = rank ? std::atoi(rank) : 0;
  place.rank_count = rank_count ? std::atoi(rank_count) : 1;
  const bool by_signal = options.fault.kind == soak::FaultKind::kill || options.fault.kind == soak::FaultKind::pause;
  if (by_signal && (options.matrix || options.fault.rank() == place.rank))
    place.nurse = soak::Nurse::attend(place.rank);
  return options.matrix ? soak::run_matrix(options, place) : soak::soak(options, place);
}
