// SPDX-License-Identifier: Apache-2.0
// The store: all-gathers, failures and goodbyes over the connections that joining has left (store_wire.hpp).
//
// Connections stay open as long as the comm and all that were split off from it: that one ends without a goodbye is how
// the death of a rank on another node is seen at once.
//
//   Store (the comm)  ---+
//   StoreLine (a split) -+--> Star: the connections. Rank 0's passes failures on as long as it lives.
//   StoreLine (a split) -+
//
// Rank 0 passes on a failure when it looks at its peers, inside a call. Between nodes others can't wait for that: who
// hears late finds more ranks gone than died. And of a comm that was split off it may not be a member, and may make no
// call for hours. So on several nodes, and from the first split on, it has a thread that sleeps until something comes.
#include "bootstrap/store.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

constexpr uint64_t second_ns = 1'000'000'000u;
constexpr uint64_t answer_timeout_ns = 2 * second_ns;

class Star {
 public:
  Star(const JobEnvironment &job, std::vector<std::unique_ptr<Peer>> peers, uint64_t timeout_ns)
      : job_(job), timeout_ns_(timeout_ns), peers_(std::move(peers)) {}
  ~Star();

  int rank() const { return job_.rank; }
  int rank_count() const { return job_.rank_count; }
  const char *name() const { return job_.launcher; }
  std::string own_address() const { return peers_.empty() ? "" : mxs::own_address(peers_[0]->descriptor()); }
  mxs_status all_gather(const void *source, void *target, size_t bytes);
  void announce_failure(uint64_t line, mxs_status status, const char *sentence);
  mxs_status check();

  void open_line(uint64_t number, const std::vector<int> &ranks);
  void close_line(uint64_t number);
  mxs_status check_line(uint64_t number);
  void watch();

 private:
  // A comm that was split off: its ranks here, by their numbers in it, and its first failure.
  struct Line {
    std::vector<int> ranks;
    mxs_status failure = MXS_OK;
    std::string sentence;
  };

  mxs_status gather_at_root(const void *source, void *target, size_t bytes, uint64_t deadline_ns);
  mxs_status gather_elsewhere(const void *source, void *target, size_t bytes, uint64_t deadline_ns);
  mxs_status answer(const void *source, void *target, size_t bytes, uint64_t deadline_ns);
  mxs_status missing_blobs(uint64_t waited_ns);
  mxs_status left_by_root() const {
    return set_error(MXS_PEER_FAILED, "rank 0 has left the comm, but rank %d is in a creating call", rank());
  }
  void watch_peers();
  bool interrupted() const { return interrupted_.load(std::memory_order_acquire); }
  void wait_for_event(uint64_t at_most_ns);

  // These want mutex_ held.
  void pump();
  void hear(Peer &peer, const Frame &frame, std::vector<std::byte> &payload);
  void note_failure(mxs_status status, const std::string &sentence, const Peer *told_by);
  void note_line_failure(uint64_t number, mxs_status status, const std::string &sentence, const Peer *told_by);
  void note_gone(int rank, const Peer *told_by);
  void tell(FrameKind kind, mxs_status status, uint64_t sequence, const std::string &sentence, const Peer *but);
  mxs_status failure() const {
    return failure_ == MXS_OK ? MXS_OK : set_error(failure_, "%s", failure_sentence_.c_str());
  }

  JobEnvironment job_;
  uint64_t timeout_ns_;
  std::atomic<bool> interrupted_{false};
  std::mutex mutex_;  // of all below: abort and check may come from any thread, and from any comm's
  std::vector<std::unique_ptr<Peer>> peers_;
  uint64_t round_ = 0;
  size_t answer_bytes_ = 0;       // of the round that this rank waits for
  bool a_rank_gave_up_ = false;   // at rank 0
  mxs_status failure_ = MXS_OK;   // the first, of line 0
  std::string failure_sentence_;
  std::map<uint64_t, Line> lines_;     // those that are open here
  std::set<uint64_t> failed_lines_;    // at rank 0: passed on already, open here or not
  std::set<int> gone_;                 // ranks whose connection has ended without goodbye
  bool had_lines_ = false;
  std::thread watcher_;   // at rank 0: see above
  int watcher_end_ = -1;  // an eventfd
};

// A rank that failed leaves without goodbye, so that those who haven't heard why see at least that it has gone. Not so
// if it had others beside the comm that failed: these have ended in good order.
Star::~Star() {
  if (watcher_.joinable()) {
    eventfd_write(watcher_end_, 1);
    watcher_.join();
  }
  if (watcher_end_ >= 0) close(watcher_end_);
  if ((failure_ != MXS_OK || interrupted()) && !had_lines_) return;
  for (const std::unique_ptr<Peer> &peer : peers_)
    if (!peer->gone) peer->send(FrameKind::goodbye, MXS_OK, 0, nullptr, 0, 0);
}

void Star::tell(FrameKind kind, mxs_status status, uint64_t sequence, const std::string &sentence, const Peer *but) {
  for (const std::unique_ptr<Peer> &peer : peers_)
    if (!peer->gone && peer.get() != but)
      peer->send(kind, status, sequence, sentence.data(), sentence.size(), 0);
}

void Star::note_failure(mxs_status status, const std::string &sentence, const Peer *told_by) {
  if (failure_ != MXS_OK) return;
  failure_ = status;
  failure_sentence_ = sentence.substr(0, failure_bytes_max);
  tell(FrameKind::failure, status, 0, failure_sentence_, told_by);
}

// Rank 0 passes it on to all ranks, once; those without this line forget it.
void Star::note_line_failure(uint64_t number, mxs_status status, const std::string &sentence, const Peer *told_by) {
  const auto found = lines_.find(number);
  const bool known = found != lines_.end() && found->second.failure != MXS_OK;
  const std::string kept = sentence.substr(0, failure_bytes_max);
  if (found != lines_.end() && !known) {
    found->second.failure = status;
    found->second.sentence = kept;
  }
  if (rank() == 0 ? failed_lines_.insert(number).second : !told_by && !known)
    tell(FrameKind::failure, status, number, kept, told_by);
}

void Star::note_gone(int gone_rank, const Peer *told_by) {
  if (!gone_.insert(gone_rank).second || rank() != 0) return;
  tell(FrameKind::gone, MXS_PEER_FAILED, static_cast<uint64_t>(gone_rank), "", told_by);
}

void Star::hear(Peer &peer, const Frame &frame, std::vector<std::byte> &payload) {
  std::string sentence;
  const mxs_status status = frame.status < 0 ? frame.status : MXS_INTERNAL;
  switch (frame.kind) {
    case FrameKind::gather:
    case FrameKind::gathered:
      peer.has_blob = true;
      peer.blob_sequence = frame.sequence;
      peer.blob.swap(payload);
      return;
    case FrameKind::failure:
      sentence.assign(reinterpret_cast<const char *>(payload.data()), payload.size());
      if (frame.sequence) note_line_failure(frame.sequence, status, sentence, &peer);
      else note_failure(status, sentence, &peer);
      return;
    case FrameKind::gone:
      if (frame.sequence < static_cast<uint64_t>(rank_count())) note_gone(static_cast<int>(frame.sequence), &peer);
      return;
    case FrameKind::giving_up:
      a_rank_gave_up_ = true;
      return;
    case FrameKind::goodbye:
      peer.gone = true;
      return;
    default:
      note_failure(MXS_TRANSPORT_FAILED,
                   "rank " + std::to_string(peer.rank()) + " sent a bootstrap message out of turn", &peer);
  }
}

void Star::pump() {
  const size_t bytes_max =
      rank() == 0 ? Bootstrap::gather_bytes_max : std::max<size_t>(answer_bytes_, failure_bytes_max);
  for (const std::unique_ptr<Peer> &peer : peers_) {
    while (!peer->gone) {
      Frame frame{};
      std::vector<std::byte> payload;
      const Peer::Reading reading = peer->read(&frame, &payload, bytes_max);
      if (reading == Peer::Reading::nothing) break;
      if (reading == Peer::Reading::frame) {
        hear(*peer, frame, payload);
        continue;
      }
      peer->gone = true;
      const mxs_status status =
          reading == Peer::Reading::closed
              ? set_error(MXS_PEER_FAILED, "rank %d hung up: its process ended or was killed", peer->rank())
              : set_reading_error(reading, peer->rank());
      note_failure(status, last_error_text(), peer.get());
      note_gone(peer->rank(), peer.get());
    }
  }
}

mxs_status Star::check() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return MXS_OK;  // another thread is looking
  pump();
  if (a_rank_gave_up_)
    note_failure(MXS_TIMED_OUT, "rank 0 has not entered a creating call for which another rank waited until its "
                 "deadline", nullptr);
  return failure();
}

void Star::announce_failure(uint64_t number, mxs_status status, const char *sentence) {
  if (number == 0) interrupted_.store(true, std::memory_order_release);
  // Whoever holds the lock does so for one look at the sockets, or while a blob is sent; if that lasts, others see that
  // this rank hangs up.
  for (int tries = 0; tries < 50; ++tries) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock && number) return note_line_failure(number, status, sentence, nullptr);
    if (lock) return note_failure(status, sentence, nullptr);
    const timespec pause = {0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

// ---- lines ----

void Star::open_line(uint64_t number, const std::vector<int> &ranks) {
  const std::lock_guard lock(mutex_);
  lines_[number].ranks = ranks;
  had_lines_ = true;
}

void Star::close_line(uint64_t number) {
  const std::lock_guard lock(mutex_);
  lines_.erase(number);
}

mxs_status Star::check_line(uint64_t number) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return MXS_OK;  // another thread is looking
  pump();
  const Line &line = lines_[number];
  if (line.failure != MXS_OK) return set_error(line.failure, "%s", line.sentence.c_str());
  for (size_t member = 0; member < line.ranks.size(); ++member)
    if (gone_.count(line.ranks[member]))
      return set_error(MXS_PEER_FAILED, "rank %zu hung up: its process ended or was killed", member);
  return MXS_OK;
}

void Star::watch() {
  if (rank() != 0 || peers_.empty() || watcher_.joinable()) return;
  watcher_end_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  // Signals are for the caller's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    if (watcher_end_ >= 0) watcher_ = std::thread([this] { watch_peers(); });
  } catch (const std::system_error &) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!watcher_.joinable())
    log_line(MXS_LOG_WARNING, "bootstrap: no thread to pass on failures; others hear of them when rank 0 makes a call");
}

void Star::watch_peers() {
  for (;;) {
    std::vector<pollfd> entries = {{watcher_end_, POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      pump();
      for (const std::unique_ptr<Peer> &peer : peers_)
        if (!peer->gone) entries.push_back({peer->descriptor(), POLLIN, 0});
    }
    poll(entries.data(), entries.size(), -1);
    if (entries[0].revents) return;
  }
}

// ---- all-gather ----

// Outside the lock, so that nobody who aborts waits for it. Descriptors stay open until the end, `gone` ones are left
// out.
void Star::wait_for_event(uint64_t at_most_ns) {
  std::vector<pollfd> entries;
  {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Peer> &peer : peers_)
      if (!peer->gone && !(rank() == 0 && peer->has_blob)) entries.push_back({peer->descriptor(), POLLIN, 0});
  }
  poll(entries.data(), entries.size(), static_cast<int>(at_most_ns / 1'000'000u + 1));
}

mxs_status Star::missing_blobs(uint64_t waited_ns) {
  std::vector<int> ranks;
  for (const std::unique_ptr<Peer> &peer : peers_)
    if (!peer->has_blob) ranks.push_back(peer->rank());
  return set_error(MXS_TIMED_OUT, "rank%s %s of %d did not enter a creating call (bootstrap round %llu) that other "
                   "ranks have waited in for %.3g s", ranks.size() == 1 ? "" : "s", rank_list(ranks).c_str(),
                   job_.rank_count, static_cast<unsigned long long>(round_), static_cast<double>(waited_ns) * 1e-9);
}

// All blobs are there: compare, put together, send.
mxs_status Star::answer(const void *source, void *target, size_t bytes, uint64_t deadline_ns) {
  for (const std::unique_ptr<Peer> &peer : peers_)
    if (peer->blob_sequence != round_ || peer->blob.size() != bytes) {
      set_error(MXS_MISMATCH, "rank %d is in another creating call than rank 0 (round %llu with %zu bytes, not %llu "
                "with %zu)", peer->rank(), static_cast<unsigned long long>(peer->blob_sequence), peer->blob.size(),
                static_cast<unsigned long long>(round_), bytes);
      note_failure(MXS_MISMATCH, last_error_text(), nullptr);
      return failure();
    }
  std::byte *next = static_cast<std::byte *>(target);
  std::memcpy(next, source, bytes);
  for (const std::unique_ptr<Peer> &peer : peers_) {
    next += bytes;
    std::memcpy(next, peer->blob.data(), bytes);
    peer->has_blob = false;
    peer->blob = {};
  }
  const size_t all_bytes = bytes * static_cast<size_t>(job_.rank_count);
  // One that is gone by now keeps nobody from this round: it is complete on all others or on none, so that those who
  // make a comm have it or don't together. They hear of it behind their answers.
  const Peer *lost = nullptr;
  for (const std::unique_ptr<Peer> &peer : peers_)
    if (!peer->send(FrameKind::gathered, MXS_OK, round_, target, all_bytes, deadline_ns)) lost = peer.get();
  if (lost)
    note_failure(MXS_PEER_FAILED, "rank " + std::to_string(lost->rank()) + " hung up or doesn't read", nullptr);
  return MXS_OK;
}

mxs_status Star::gather_at_root(const void *source, void *target, size_t bytes, uint64_t deadline_ns) {
  const uint64_t begin_ns = now_ns();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      pump();
      if (failure_ != MXS_OK) return failure();
      if (interrupted()) return set_error(MXS_ABORTED, "the comm has failed while ranks exchanged addresses");
      if (std::all_of(peers_.begin(), peers_.end(), [](const auto &peer) { return peer->has_blob; }))
        return answer(source, target, bytes, deadline_ns);
      for (const std::unique_ptr<Peer> &peer : peers_)
        if (peer->gone && !peer->has_blob) {
          note_failure(MXS_PEER_FAILED, "rank " + std::to_string(peer->rank()) + " has left the comm, but others "
                       "are in a creating call", nullptr);
          return failure();
        }
      if (a_rank_gave_up_ || now_ns() > deadline_ns) {
        // Who gives up has waited as long as anybody may: for this rank, if it has only just come.
        const uint64_t waited_ns = now_ns() - begin_ns;
        const mxs_status status =
            a_rank_gave_up_ && waited_ns < second_ns / 2
                ? set_error(MXS_TIMED_OUT, "rank 0 was late for a creating call (bootstrap round %llu): another rank "
                            "waited for it until its deadline", static_cast<unsigned long long>(round_))
                : missing_blobs(waited_ns);
        note_failure(status, last_error_text(), nullptr);
        return failure();
      }
    }
    wait_for_event(20'000'000u);
  }
}

mxs_status Star::gather_elsewhere(const void *source, void *target, size_t bytes, uint64_t deadline_ns) {
  Peer &root = *peers_[0];
  {
    const std::lock_guard lock(mutex_);
    answer_bytes_ = bytes * static_cast<size_t>(job_.rank_count);
    if (failure_ != MXS_OK) return failure();
    if (root.gone) return left_by_root();
    if (!root.send(FrameKind::gather, MXS_OK, round_, source, bytes, deadline_ns)) {
      pump();
      if (failure_ != MXS_OK) return failure();
      return set_error(MXS_PEER_FAILED, "rank 0 hung up or doesn't read");
    }
  }
  bool gave_up = false;
  for (uint64_t until_ns = deadline_ns;;) {
    {
      const std::lock_guard lock(mutex_);
      pump();
      if (root.has_blob) {  // before a failure that came right behind it
        root.has_blob = false;
        if (root.blob_sequence != round_ || root.blob.size() != answer_bytes_)
          return set_error(MXS_TRANSPORT_FAILED, "rank 0 answered another round of the bootstrap");
        std::memcpy(target, root.blob.data(), root.blob.size());
        return MXS_OK;
      }
      if (failure_ != MXS_OK) return failure();
      if (interrupted()) return set_error(MXS_ABORTED, "the comm has failed while ranks exchanged addresses");
      if (root.gone) return left_by_root();
      if (now_ns() > until_ns) {
        if (gave_up)
          return set_error(MXS_TIMED_OUT, "rank 0 did not enter a creating call (bootstrap round %llu) in which rank "
                           "%d waited for %.3g s", static_cast<unsigned long long>(round_), rank(),
                           static_cast<double>(timeout_ns_) * 1e-9);
        gave_up = true;
        root.send(FrameKind::giving_up, MXS_OK, round_, nullptr, 0, 0);
        until_ns = now_ns() + answer_timeout_ns;
      }
    }
    wait_for_event(20'000'000u);
  }
}

mxs_status Star::all_gather(const void *source, void *target, size_t bytes) {
  if (bytes > Bootstrap::gather_bytes_max)
    return set_error(MXS_INTERNAL, "bootstrap: %zu bytes in one all_gather, more than %zu", bytes,
                     Bootstrap::gather_bytes_max);
  ++round_;
  if (rank_count() == 1) {
    std::memcpy(target, source, bytes);
    return MXS_OK;
  }
  const uint64_t deadline_ns = now_ns() + timeout_ns_;
  return rank() == 0 ? gather_at_root(source, target, bytes, deadline_ns)
                     : gather_elsewhere(source, target, bytes, deadline_ns);
}

// What each comm has of the star.
class StoreLine final : public FailureLine {
 public:
  StoreLine(std::shared_ptr<Star> star, uint64_t number, const std::vector<int> &ranks)
      : star_(std::move(star)), number_(number), ranks_(ranks) {
    star_->open_line(number_, ranks_);
  }
  ~StoreLine() override { star_->close_line(number_); }
  void announce(mxs_status status, const char *sentence) override {
    star_->announce_failure(number_, status, sentence);
  }
  mxs_status check() override { return star_->check_line(number_); }
  std::unique_ptr<FailureLine> open_line(uint64_t number, const std::vector<int> &ranks) override {
    std::vector<int> in_star;
    for (const int rank : ranks) in_star.push_back(ranks_[static_cast<size_t>(rank)]);
    return std::make_unique<StoreLine>(star_, number, in_star);
  }

 private:
  const std::shared_ptr<Star> star_;
  const uint64_t number_;
  const std::vector<int> ranks_;
};

class Store final : public Bootstrap {
 public:
  explicit Store(std::shared_ptr<Star> star) : star_(std::move(star)) {}

  int rank() const override { return star_->rank(); }
  int rank_count() const override { return star_->rank_count(); }
  const char *name() const override { return star_->name(); }
  mxs_status all_gather(const void *source, void *target, size_t bytes) override {
    return star_->all_gather(source, target, bytes);
  }
  void announce_failure(mxs_status status, const char *sentence) override {
    star_->announce_failure(0, status, sentence);
  }
  mxs_status check() override { return star_->check(); }
  std::string own_address() const override { return star_->own_address(); }
  std::unique_ptr<FailureLine> open_line(uint64_t number, const std::vector<int> &ranks) override {
    return std::make_unique<StoreLine>(star_, number, ranks);
  }
  void watch() override { star_->watch(); }

 private:
  const std::shared_ptr<Star> star_;
};

}  // namespace

mxs_status create_store_bootstrap(std::unique_ptr<Bootstrap> *bootstrap, const JobEnvironment &job,
                                  uint64_t timeout_ns) {
  std::vector<std::unique_ptr<Peer>> peers;
  if (job.rank_count > 1) {
    const mxs_status status = job.rank == 0 ? wait_for_ranks(&peers, job, timeout_ns)
                                            : go_to_rank_0(&peers, job, timeout_ns);
    if (status != MXS_OK) return status;
  }
  *bootstrap = std::make_unique<Store>(std::make_shared<Star>(job, std::move(peers), timeout_ns));
  return MXS_OK;
}

std::unique_ptr<Bootstrap> make_store_bootstrap(const char *launcher, int rank, int rank_count,
                                                std::vector<std::unique_ptr<Peer>> peers, uint64_t timeout_ns) {
  JobEnvironment job;
  job.launcher = launcher;
  job.rank = rank;
  job.rank_count = rank_count;
  return std::make_unique<Store>(std::make_shared<Star>(job, std::move(peers), timeout_ns));
}

}  // namespace mxs
