// SPDX-License-Identifier: Apache-2.0
// How local ranks come to share memory.
//
//   1 everybody listens on a local socket and tells all ranks, over the bootstrap, a random number of its own
//   2 a rank calls those before it, and is answered; both ends send their control file, and who maps it must find there
//     the number that the bootstrap told: that proves that they share memory, whatever host names say
//   3 all ranks compare how it went (after the calls, and at the end), so that a failure on one is a failure on all
//
// Threads of a process take the same way: descriptors sent to oneself are plain duplicates, so nothing differs later.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"
#include "bootstrap/bootstrap.hpp"
#include "memory/control.hpp"
#include "memory/domain.hpp"
#include "memory/local_socket.hpp"

namespace mxs {

namespace {

constexpr uint64_t peers_period_ns = 50'000'000;  // between two looks at peers while memory is shared
constexpr uint64_t greeting_magic = 0x6d786c6f63616c31;  // "mxlocal1"

// What a rank tells all others over the bootstrap. first_rank and rank_count: of its node, to be compared.
struct Card {
  uint64_t number, process, session;
  int32_t first_rank, local_count;
  int32_t status, reserved;
};

// A message over a socket; a file may come with it.
struct Greeting {
  uint64_t magic, number, session;
  int32_t rank, reserved;
};
struct Share {
  uint64_t turn, bytes, name;
  int32_t status, has_file;
  char sentence[256];
};

struct Outcome {
  int32_t status;
  char sentence[508];
};

mxs_status random_number(uint64_t *number) {
  size_t filled = 0;
  auto *bytes = reinterpret_cast<unsigned char *>(number);
  while (filled < sizeof *number) {
    const ssize_t got = getrandom(bytes + filled, sizeof *number - filled, 0);
    if (got < 0 && errno != EINTR) return set_error(MXS_SYSTEM, "getrandom: %s", std::strerror(errno));
    if (got > 0) filled += static_cast<size_t>(got);
  }
  return MXS_OK;
}

// Equal for threads of one process, different for any two processes, forked ones as well.
uint64_t process_token() {
  static const uint64_t drawn = [] {
    uint64_t number = 0;
    (void)random_number(&number);
    return number;
  }();
  return Fingerprint().add(drawn).add(static_cast<uint64_t>(getpid())).value();
}

std::string socket_name(uint64_t session, int rank, uint64_t number) {
  char name[96];
  std::snprintf(name, sizeof name, "matrixshard-%016llx-%d-%016llx", static_cast<unsigned long long>(session), rank,
                static_cast<unsigned long long>(number));
  return name;
}

// The file must be as large as promised, and must stay so: else a load from it could raise SIGBUS.
mxs_status check_file(int descriptor, uint64_t bytes, int rank) {
  struct stat information {};
  if (fstat(descriptor, &information) != 0 || static_cast<uint64_t>(information.st_size) < bytes)
    return set_error(MXS_SYSTEM, "rank %d gave a file that is shorter than its %llu bytes", rank,
                     static_cast<unsigned long long>(bytes));
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK))
    return set_error(MXS_SYSTEM, "rank %d gave a file that isn't sealed against shrinking", rank);
  return MXS_OK;
}

// ---- the domain ----

class LocalDomain final : public Domain {
 public:
  explicit LocalDomain(const std::vector<int> &ranks, int local_rank, uint64_t timeout_ns) : timeout_ns_(timeout_ns) {
    ranks_ = ranks;
    local_count_ = static_cast<int>(ranks.size());
    local_rank_ = local_rank;
    connections_.resize(ranks.size());
    processes_.resize(ranks.size());
    seen_left_.resize(ranks.size());
  }

  ~LocalDomain() override {
    if (!joined_) return;
    control(local_rank_).left.store(1, std::memory_order_release);
    post();
  }

  mxs_status make_control(uint64_t number);
  void confirm() { joined_ = true; }  // all ranks have joined: from now on leaving is told
  mxs_status call_earlier(const std::vector<Card> &cards, uint64_t deadline_ns);
  mxs_status join(int listener, const std::vector<Card> &cards, uint64_t deadline_ns);

  mxs_status share(uint64_t bytes, const char *name, SharedRegion *region) override;
  mxs_status check_peers(int needed) override;

 private:
  mxs_status answer_later(int listener, const std::vector<Card> &cards, uint64_t deadline_ns);
  mxs_status hear_earlier(const std::vector<Card> &cards, uint64_t deadline_ns);
  mxs_status send_greeting(int connection, uint64_t number, uint64_t session, uint64_t deadline_ns);
  mxs_status adopt(int local, File file, const Card &card);
  mxs_status receive_share(int local, const Share &mine, SharedRegion *region, uint64_t deadline_ns,
                           Share *theirs);
  mxs_status failure_of(mxs_status status, int local, const char *what) const;

  std::vector<File> connections_;  // by local rank; mine is empty
  std::vector<File> processes_;    // pidfds; empty where the kernel has none
  std::mutex watched_mutex_;       // several threads of a family may wait, and each looks at its peers
  std::vector<pollfd> watched_;    // one per peer, for check_peers
  std::vector<int> watched_ranks_;
  std::vector<char> seen_left_;    // by local rank
  uint64_t timeout_ns_ = 0, turn_ = 0;
  bool joined_ = false;
};

mxs_status LocalDomain::make_control(uint64_t number) {
  control_.files.resize(ranks_.size());
  control_.mappings.resize(ranks_.size());
  File &file = control_.files[local_rank_];
  Mapping &mapping = control_.mappings[local_rank_];
  mxs_status status = create_file(&file, sizeof(DomainControl), "matrixshard-control");
  if (status == MXS_OK) status = map_file(&mapping, file.get(), sizeof(DomainControl), true);
  if (status == MXS_OK) status = touch(mapping.data(), {{0, sizeof(DomainControl)}}, nullptr);
  if (status != MXS_OK) return status;
  // Fails beyond 1,024 CPUs only, and then leaves an empty set: ranks count as crowded, and yield early.
  sched_getaffinity(0, sizeof(cpu_set_t), &control(local_rank_).cores);
  control(local_rank_).proof.store(number, std::memory_order_release);
  return MXS_OK;
}

mxs_status LocalDomain::send_greeting(int connection, uint64_t number, uint64_t session, uint64_t deadline_ns) {
  const Greeting greeting = {greeting_magic, number, session, ranks_[local_rank_], 0};
  return send_with_file(connection, &greeting, sizeof greeting,
                        control_.files[local_rank_].get(), deadline_ns);
}

// Maps a peer's control file and looks for the number there.
mxs_status LocalDomain::adopt(int local, File file, const Card &card) {
  const auto index = local;
  const int rank = ranks_[index];
  mxs_status status = check_file(file.get(), sizeof(DomainControl), rank);
  if (status == MXS_OK) status = map_file(&control_.mappings[index], file.get(), sizeof(DomainControl), true);
  if (status != MXS_OK) return status;
  madvise(control_.at(local), sizeof(DomainControl), MADV_DONTDUMP);
  if (control(local).proof.load(std::memory_order_acquire) != card.number)
    return set_error(MXS_SYSTEM, "rank %d showed memory without the number that it gave: it isn't on this node", rank);
  control_.files[index] = std::move(file);
  if (!same_process_) processes_[index] = open_peer_process(connections_[index].get());
  return MXS_OK;
}

mxs_status LocalDomain::call_earlier(const std::vector<Card> &cards, uint64_t deadline_ns) {
  const Card &mine = cards[ranks_[local_rank_]];
  for (int local = 0; local < local_rank_; local++) {
    const Card &card = cards[ranks_[local]];
    File &connection = connections_[local];
    mxs_status status = connect_local(&connection, socket_name(card.session, ranks_[local], card.number), deadline_ns);
    if (status == MXS_OK) status = send_greeting(connection.get(), mine.number, mine.session, deadline_ns);
    if (status != MXS_OK) return failure_of(status, local, "joining the ranks of this node");
  }
  return MXS_OK;
}

mxs_status LocalDomain::hear_earlier(const std::vector<Card> &cards, uint64_t deadline_ns) {
  for (int local = 0; local < local_rank_; local++) {
    const int rank = ranks_[local];
    Greeting greeting{};
    File file;
    const mxs_status status =
        receive_with_file(connections_[local].get(), &greeting, sizeof greeting, &file, deadline_ns);
    if (status != MXS_OK) return failure_of(status, local, "joining the ranks of this node");
    if (greeting.magic != greeting_magic || greeting.rank != rank)
      return set_error(MXS_SYSTEM, "the local socket of rank %d was answered by something else", rank);
    const mxs_status adopted = adopt(local, std::move(file), cards[rank]);
    if (adopted != MXS_OK) return adopted;
  }
  return MXS_OK;
}

mxs_status LocalDomain::answer_later(int listener, const std::vector<Card> &cards, uint64_t deadline_ns) {
  const Card &mine = cards[ranks_[local_rank_]];
  for (int missing = local_count_ - 1 - local_rank_; missing > 0;) {
    File connection, file;
    mxs_status status = accept_local(&connection, listener, deadline_ns);
    if (status != MXS_OK) {
      for (int local = local_rank_ + 1; local < local_count_; local++)
        if (connections_[local].get() < 0)
          return failure_of(status, local, "joining the ranks of this node");
      return status;
    }
    Greeting greeting{};
    status = receive_with_file(connection.get(), &greeting, sizeof greeting, &file, deadline_ns);
    const int local = status == MXS_OK ? local_rank_of(greeting.rank) : -1;
    // A stranger, or a rank of another comm, is turned away; the ones that are missed have until the deadline.
    if (greeting.magic != greeting_magic || greeting.session != mine.session || local <= local_rank_ ||
        greeting.number != cards[greeting.rank].number ||
        connections_[local].get() >= 0)
      continue;
    connections_[local] = std::move(connection);
    status = adopt(local, std::move(file), cards[greeting.rank]);
    if (status != MXS_OK) return status;
    status = send_greeting(connections_[local].get(), mine.number, mine.session, deadline_ns);
    if (status != MXS_OK) return failure_of(status, local, "joining the ranks of this node");
    missing--;
  }
  return MXS_OK;
}

mxs_status LocalDomain::join(int listener, const std::vector<Card> &cards, uint64_t deadline_ns) {
  const Card &mine = cards[ranks_[local_rank_]];
  same_process_ = std::all_of(ranks_.begin(), ranks_.end(), [&](int rank) {
    return cards[rank].process == mine.process;
  });
  // All calls have been made, so nobody waits for a rank that waits for it.
  mxs_status status = answer_later(listener, cards, deadline_ns);
  if (status == MXS_OK) status = hear_earlier(cards, deadline_ns);
  if (status != MXS_OK) return status;
  for (int local = 0; local < local_count_; local++) {
    const auto index = local;
    if (local == local_rank_ || same_process_) continue;
    // A pidfd is readable once the process is gone. Without one the socket's end must do; a forked child of the peer
    // may hold that open.
    const bool has_process = processes_[index].get() >= 0;
    watched_.push_back({has_process ? processes_[index].get() : connections_[index].get(),
                        static_cast<short>(has_process ? POLLIN : POLLRDHUP), 0});
    watched_ranks_.push_back(local);
  }
  settle();
  return MXS_OK;
}

// The sentence of a wait over a socket, with the rank that it was for.
mxs_status LocalDomain::failure_of(mxs_status status, int local, const char *what) const {
  const std::string cause = last_error_text();
  return set_error(status, "%s: rank %d: %s", what, ranks_[local], cause.c_str());
}

mxs_status LocalDomain::receive_share(int local, const Share &mine, SharedRegion *region, uint64_t deadline_ns,
                                      Share *theirs) {
  const auto index = local;
  const int rank = ranks_[index];
  File file;
  // A rank whose comm has failed may stay connected for long, while it shrinks that: a look at what peers say, now and
  // then.
  mxs_status status = MXS_OK;
  do {
    const uint64_t until_ns = std::min(deadline_ns, now_ns() + peers_period_ns);
    status = receive_with_file(connections_[index].get(), theirs, sizeof *theirs, &file, until_ns);
    if (status != MXS_TIMED_OUT || now_ns() >= deadline_ns) break;
    const mxs_status peers = check_peers(-1);
    if (peers != MXS_OK) return peers;
  } while (!interrupted_.load(std::memory_order_acquire));
  if (status != MXS_OK) return failure_of(status, local, "sharing memory");
  if (theirs->turn != mine.turn || theirs->name != mine.name)
    return set_error(MXS_MISMATCH, "rank %d shares other memory than rank %d does: creating calls differ in order",
                     rank, ranks_[local_rank_]);
  if (theirs->status != MXS_OK || theirs->bytes == 0) return MXS_OK;
  if (!theirs->has_file || file.get() < 0) return set_error(MXS_SYSTEM, "rank %d sent no file to share", rank);
  status = check_file(file.get(), theirs->bytes, rank);
  if (status == MXS_OK) status = map_file(&region->mappings[index], file.get(), theirs->bytes, true);
  if (status != MXS_OK) return status;
  madvise(region->at(local), region->mappings[index].bytes(), MADV_DONTDUMP);
  region->files[index] = std::move(file);
  return MXS_OK;
}

mxs_status LocalDomain::share(uint64_t bytes, const char *name, SharedRegion *region) {
  const uint64_t deadline_ns = now_ns() + timeout_ns_;
  const auto mine_index = local_rank_;
  SharedRegion shared;
  shared.files.resize(ranks_.size());
  shared.mappings.resize(ranks_.size());
  Share mine{};
  mine.turn = ++turn_;
  mine.bytes = bytes;
  mine.name = hash_bytes(name, std::strlen(name));
  if (bytes) {
    mine.status = create_file(&shared.files[mine_index], bytes, name);
    if (mine.status == MXS_OK)
      mine.status = map_file(&shared.mappings[mine_index], shared.files[mine_index].get(), bytes, true);
  }
  // A rank without memory says so, for else the others would wait for its file.
  if (mine.status != MXS_OK) std::snprintf(mine.sentence, sizeof mine.sentence, "%s", last_error_text());
  mine.has_file = bytes != 0 && mine.status == MXS_OK;

  const int descriptor = mine.has_file ? shared.files[mine_index].get() : -1;
  mxs_status first = mine.status;
  std::string sentence = mine.sentence;
  const auto keep_first = [&](mxs_status status) {
    if (status == MXS_OK || first != MXS_OK) return;
    first = status;
    sentence = last_error_text();
  };
  for (int local = 0; local < local_count_; local++) {
    if (local == local_rank_) continue;
    const mxs_status sent = send_with_file(connections_[local].get(), &mine, sizeof mine, descriptor, deadline_ns);
    if (sent != MXS_OK) keep_first(failure_of(sent, local, "sharing memory"));
  }
  for (int local = 0; local < local_count_; local++) {
    if (local == local_rank_) continue;
    Share theirs{};
    keep_first(receive_share(local, mine, &shared, deadline_ns, &theirs));
    theirs.sentence[sizeof theirs.sentence - 1] = '\0';
    if (theirs.status != MXS_OK)
      keep_first(set_error(theirs.status, "rank %d: %s", ranks_[local], theirs.sentence));
  }
  if (first != MXS_OK) return set_error(first, "%s", sentence.c_str());
  *region = std::move(shared);
  return MXS_OK;
}

// The dead first: they are the cause, and others that failed or left because of them are not.
mxs_status LocalDomain::check_peers(int needed) {
  const std::lock_guard lock(watched_mutex_);
  if (!watched_.empty() && poll(watched_.data(), watched_.size(), 0) > 0) {
    for (size_t i = 0; i < watched_.size(); i++) {
      if (!watched_[i].revents) continue;
      const int local = watched_ranks_[i];
      const DomainControl &its = control(local);
      if (!its.left.load(std::memory_order_acquire) && !its.failed.load(std::memory_order_acquire))
        return set_error(MXS_PEER_FAILED, "rank %d has died: its process is gone", ranks_[local]);
      watched_[i].fd = -1;  // it has said so before: no need to look again
    }
  }
  for (int local = 0; local < local_count_; local++) {
    const int rank = ranks_[local];
    if (local == local_rank_) continue;
    if (control(local).failed.load(std::memory_order_acquire))
      return set_error(MXS_PEER_FAILED, "rank %d has failed: %.255s", rank, control(local).reason);
    // What it gave just before it left may have come after the caller looked for that: the first call that finds it
    // gone lets the caller look once more.
    if (rank == needed && control(local).left.load(std::memory_order_acquire) && std::exchange(seen_left_[local], 1))
      return set_error(MXS_PEER_FAILED, "rank %d has left, but is waited for", rank);
  }
  return MXS_OK;
}

// ---- joining ----

// Every rank's outcome to all; the first that failed gives the sentence.
mxs_status agree_on_outcome(Bootstrap &bootstrap, mxs_status status) {
  Outcome mine{};
  mine.status = status;
  if (status != MXS_OK) std::snprintf(mine.sentence, sizeof mine.sentence, "%s", last_error_text());
  std::vector<Outcome> all(bootstrap.rank_count());
  const mxs_status gathered = bootstrap.all_gather(&mine, all.data(), sizeof mine);
  if (status != MXS_OK && gathered != MXS_OK) return set_error(status, "%s", mine.sentence);
  if (gathered != MXS_OK) return gathered;
  // Who timed out did so because of another, if another failed.
  const auto failed = [](const Outcome &outcome) { return outcome.status != MXS_OK; };
  const auto is_cause = [&](const Outcome &outcome) { return failed(outcome) && outcome.status != MXS_TIMED_OUT; };
  auto first = std::find_if(all.begin(), all.end(), is_cause);
  if (first == all.end()) first = std::find_if(all.begin(), all.end(), failed);
  if (first == all.end()) return MXS_OK;
  first->sentence[sizeof first->sentence - 1] = '\0';
  return set_error(first->status, "rank %d, joining the ranks of its node: %s", static_cast<int>(first - all.begin()),
                   first->sentence);
}

mxs_status compare_nodes(const std::vector<Card> &cards, const std::vector<int> &ranks, uint64_t session) {
  for (const int rank : ranks) {
    const Card &card = cards[rank];
    if (card.status != MXS_OK) return MXS_OK;  // its own sentence follows in the outcome
    if (card.session != session || card.first_rank != ranks.front() ||
        card.local_count != static_cast<int32_t>(ranks.size()))
      return set_error(MXS_MISMATCH, "rank %d counts other ranks to this node (%d, the first is %d)", rank,
                       card.local_count, card.first_rank);
  }
  return MXS_OK;
}

}  // namespace

mxs_status create_domain(std::unique_ptr<Domain> *domain, Bootstrap &bootstrap, const std::vector<int> &ranks,
                         uint64_t session, uint64_t timeout_ns) {
  const auto self = std::lower_bound(ranks.begin(), ranks.end(), bootstrap.rank());
  if (self == ranks.end() || *self != bootstrap.rank() || !std::is_sorted(ranks.begin(), ranks.end()) ||
      ranks.back() >= bootstrap.rank_count())
    return set_error(MXS_INVALID_ARGUMENT, "the ranks of a node must be ascending and hold rank %d", bootstrap.rank());
  const int local_rank = static_cast<int>(self - ranks.begin());
  auto created = std::make_unique<LocalDomain>(ranks, local_rank, timeout_ns);

  Card mine{};
  mine.process = process_token();
  mine.session = session;
  mine.first_rank = ranks.front();
  mine.local_count = static_cast<int32_t>(ranks.size());
  File listener;
  mxs_status status = random_number(&mine.number);
  if (status == MXS_OK) status = created->make_control(mine.number);
  if (status == MXS_OK && ranks.size() > 1)
    status = listen_local(&listener, socket_name(session, bootstrap.rank(), mine.number), mine.local_count);
  const std::string sentence = status == MXS_OK ? "" : last_error_text();
  mine.status = status;

  std::vector<Card> cards(bootstrap.rank_count());
  const mxs_status gathered = bootstrap.all_gather(&mine, cards.data(), sizeof mine);
  if (gathered != MXS_OK) return gathered;
  if (status != MXS_OK) status = set_error(status, "%s", sentence.c_str());
  if (status == MXS_OK) status = compare_nodes(cards, ranks, session);
  const bool all_ready =
      std::all_of(cards.begin(), cards.end(), [](const Card &card) { return card.status == MXS_OK; });
  // Half the time, so that others, who wait for the outcome, hear the sentence before their own time is up.
  const uint64_t deadline_ns = now_ns() + timeout_ns / 2;
  // Everybody listens already, so a call doesn't wait; and nobody waits for the call of a rank that can't make it.
  if (status == MXS_OK && all_ready) status = created->call_earlier(cards, deadline_ns);
  status = agree_on_outcome(bootstrap, status);
  if (status != MXS_OK) return status;
  status = agree_on_outcome(bootstrap, created->join(listener.get(), cards, deadline_ns));
  if (status != MXS_OK) return status;
  created->confirm();
  *domain = std::move(created);
  return MXS_OK;
}

}  // namespace mxs
