// SPDX-License-Identifier: Apache-2.0
// Loopback: messages between threads of one process. The transport to copy.
//
// Links of a session meet in a registry; after connect nobody locks. A channel is a ring with one writer on each end,
// and there is one for each lane:
//
//   sender    writes an entry, then posted + 1
//   receiver  sees posted grow, reads the sender's memory in place, then retired + 1: the sender's data is free
//
// A link that has nothing to do sleeps on its own event word, which peers raise after a send or a retire.
#include <linux/futex.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <climits>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.hpp"
#include "transport/transport.hpp"

namespace mxs {

namespace {

struct Channel {
  std::vector<Arrival> entries;                  // slot: count % size
  alignas(64) std::atomic<uint64_t> posted{0};   // by the sender
  alignas(64) std::atomic<uint64_t> retired{0};  // by the receiver
  uint64_t receives_posted = 0;                  // by the receiver, which alone reads it
  std::atomic<bool> reading{false};              // by the receiver: between arrived and retire
};

// One direction between two ranks.
struct Direction {
  explicit Direction(int window) {
    for (int lane = 0; lane < lane_count; ++lane)
      lanes[lane].entries.resize(static_cast<size_t>(lane == agreement_lane ? agreement_window : window));
  }
  Channel lanes[lane_count];
};

// What peers touch of a rank's end.
struct End {
  alignas(64) std::atomic<uint32_t> event{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> closed{false};
};

struct World {
  World(int count, int window)
      : rank_count(count), window_max(window), ends(static_cast<size_t>(count)),
        directions(static_cast<size_t>(count) * static_cast<size_t>(count)) {}

  const int rank_count, window_max;
  std::vector<End> ends;
  std::mutex mutex;                                    // of directions, while links connect
  std::vector<std::unique_ptr<Direction>> directions;  // source * rank_count + target

  Direction *direction(int source, int target) {
    const std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<Direction> &found = directions[static_cast<size_t>(source) * static_cast<size_t>(rank_count) +
                                                   static_cast<size_t>(target)];
    if (!found) found = std::make_unique<Direction>(window_max);
    return found.get();
  }
};

struct Registry {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<World>> worlds;  // by session
  uint64_t process = 0;                             // tells this process from any other

  Registry() {
    if (getrandom(&process, sizeof process, 0) != static_cast<ssize_t>(sizeof process))
      process = static_cast<uint64_t>(getpid());
  }
};

Registry &registry() {
  static Registry instance;
  return instance;
}

void wake(End &end) {
  end.event.fetch_add(1);
  if (end.sleepers.load() > 0) syscall(SYS_futex, &end.event, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

struct LoopbackLink : Link {
  std::shared_ptr<World> world;
  int rank = 0;
  std::vector<Direction *> out, in;  // by rank; nullptr: not connected
  std::atomic<uint32_t> event_seen{0};  // before the latest progress looked; read by those who sleep

  Channel &to(int target, int lane) { return out[static_cast<size_t>(target)]->lanes[lane]; }
  Channel &from(int source, int lane) { return in[static_cast<size_t>(source)]->lanes[lane]; }
};

LoopbackLink &mine(Link *link) { return *static_cast<LoopbackLink *>(link); }

bool usable(std::string *) { return true; }

mxs_status open(Link **link_out, const LinkOptions &options, std::vector<std::byte> *address) {
  Registry &all = registry();
  auto link = std::make_unique<LoopbackLink>();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    std::erase_if(all.worlds, [](const auto &entry) { return entry.second.expired(); });
    std::weak_ptr<World> &known = all.worlds[options.session];
    link->world = known.lock();
    if (!link->world) {
      link->world = std::make_shared<World>(options.rank_count, options.window_max);
      known = link->world;
    }
  }
  if (link->world->rank_count != options.rank_count || link->world->window_max != options.window_max)
    return set_error(MXS_MISMATCH, "loopback: rank %d has %d ranks and a window of %d; others of its comm %d and %d",
                     options.rank, options.rank_count, options.window_max, link->world->rank_count,
                     link->world->window_max);
  link->rank = options.rank;
  const size_t count = static_cast<size_t>(options.rank_count);
  link->out.resize(count);
  link->in.resize(count);
  address->resize(sizeof all.process);
  std::memcpy(address->data(), &all.process, sizeof all.process);
  *link_out = link.release();
  return MXS_OK;
}

mxs_status connect(Link *base, const std::vector<std::vector<std::byte>> &addresses, const std::vector<int> &peers) {
  LoopbackLink &link = mine(base);
  for (const int peer : peers) {
    uint64_t process = 0;
    const std::vector<std::byte> &address = addresses[static_cast<size_t>(peer)];
    if (address.size() == sizeof process) std::memcpy(&process, address.data(), sizeof process);
    if (process != registry().process)
      return set_error(MXS_INVALID_ARGUMENT,
                       "loopback joins threads of one process, but ranks %d and %d are two; choose shm or ucx",
                       link.rank, peer);
    link.out[static_cast<size_t>(peer)] = link.world->direction(link.rank, peer);
    link.in[static_cast<size_t>(peer)] = link.world->direction(peer, link.rank);
  }
  return MXS_OK;
}

// A reader needs as long as one chunk takes to copy or add; one that stopped in the middle, because its comm failed,
// is not waited for.
void wait_for_reader(const Channel &channel) {
  for (int turn = 0; channel.reading.load() && turn < 1000; ++turn) {
    const timespec pause = {0, 1'000'000};
    turn < 100 ? std::this_thread::yield() : static_cast<void>(nanosleep(&pause, nullptr));
  }
}

// After it, no peer touches this rank's data.
void close(Link *base, uint64_t) {
  if (!base) return;
  std::unique_ptr<LoopbackLink> link(&mine(base));
  World &world = *link->world;
  world.ends[static_cast<size_t>(link->rank)].closed.store(true);
  for (const Direction *direction : link->out)
    for (int lane = 0; direction && lane < lane_count; ++lane) wait_for_reader(direction->lanes[lane]);
  for (size_t peer = 0; peer < link->out.size(); ++peer) {
    if (!link->out[peer]) continue;
    for (Channel &channel : link->in[peer]->lanes) channel.reading.store(false);
    wake(world.ends[peer]);
  }
}

mxs_status send(Link *base, int target_rank, int lane, uint64_t tag, const void *data, size_t bytes) {
  LoopbackLink &link = mine(base);
  Channel &channel = link.to(target_rank, lane);
  const uint64_t number = channel.posted.load(std::memory_order_relaxed);
  if (number - channel.retired.load(std::memory_order_acquire) >= channel.entries.size())
    return set_error(MXS_INTERNAL, "loopback: rank %d has %zu messages in flight to rank %d, more than the window",
                     link.rank, channel.entries.size(), target_rank);
  channel.entries[number % channel.entries.size()] = {data, bytes, tag};
  channel.posted.store(number + 1, std::memory_order_release);
  wake(link.world->ends[static_cast<size_t>(target_rank)]);
  return MXS_OK;
}

mxs_status receive(Link *base, int source_rank, int lane, void *, size_t) {
  ++mine(base).from(source_rank, lane).receives_posted;
  return MXS_OK;
}

// Does one of the two wait for the other?
bool in_use(const Direction &out, const Direction &in) {
  for (int lane = 0; lane < lane_count; ++lane) {
    const Channel &sends = out.lanes[lane], &receives = in.lanes[lane];
    if (sends.posted.load(std::memory_order_relaxed) != sends.retired.load(std::memory_order_acquire) ||
        receives.receives_posted != receives.retired.load(std::memory_order_relaxed))
      return true;
  }
  return false;
}

mxs_status progress(Link *base) {
  LoopbackLink &link = mine(base);
  World &world = *link.world;
  link.event_seen.store(world.ends[static_cast<size_t>(link.rank)].event.load(), std::memory_order_relaxed);
  for (size_t peer = 0; peer < link.out.size(); ++peer) {
    if (!link.out[peer] || !world.ends[peer].closed.load(std::memory_order_acquire)) continue;
    // It left. That is its right if neither side waits for the other.
    if (in_use(*link.out[peer], *link.in[peer]))
      return set_error(MXS_PEER_FAILED, "rank %zu hung up while rank %d had messages in flight with it", peer,
                       link.rank);
  }
  return MXS_OK;
}

uint64_t sent(Link *base, int target_rank, int lane) {
  return mine(base).to(target_rank, lane).retired.load(std::memory_order_acquire);
}

const Arrival *arrived(Link *base, int source_rank, int lane) {
  LoopbackLink &link = mine(base);
  const size_t source = static_cast<size_t>(source_rank);
  Channel &channel = link.from(source_rank, lane);
  const uint64_t number = channel.retired.load(std::memory_order_relaxed);
  if (number == channel.receives_posted || number == channel.posted.load(std::memory_order_acquire))
    return nullptr;
  // Both stores and both loads are sequentially consistent: either close sees that we read, or we see that it closed.
  channel.reading.store(true);
  if (link.world->ends[source].closed.load()) {
    channel.reading.store(false);
    return nullptr;
  }
  return &channel.entries[number % channel.entries.size()];
}

void retire(Link *base, int source_rank, int lane) {
  LoopbackLink &link = mine(base);
  Channel &channel = link.from(source_rank, lane);
  const uint64_t number = channel.retired.load(std::memory_order_relaxed);
  channel.retired.store(number + 1, std::memory_order_release);
  channel.reading.store(false);
  wake(link.world->ends[static_cast<size_t>(source_rank)]);
}

void sleep(Link *base, uint64_t at_most_ns) {
  LoopbackLink &link = mine(base);
  End &end = link.world->ends[static_cast<size_t>(link.rank)];
  const uint32_t seen = link.event_seen.load(std::memory_order_relaxed);
  end.sleepers.fetch_add(1);
  if (end.event.load() == seen) {
    const timespec timeout = {static_cast<time_t>(at_most_ns / 1'000'000'000u),
                              static_cast<long>(at_most_ns % 1'000'000'000u)};
    syscall(SYS_futex, &end.event, FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
  }
  end.sleepers.fetch_sub(1);
}

}  // namespace

const Transport loopback_transport = {"loopback", usable, open,     connect, close,   send,
                                      receive,    progress, sent,   arrived, retire,  sleep, false};

}  // namespace mxs
