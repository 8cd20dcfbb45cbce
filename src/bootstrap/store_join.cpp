// SPDX-License-Identifier: Apache-2.0
// Coming together: rank 0 listens, the others knock until it opens.
//
// Everything that arrives before a hello has been checked is a stranger's: a port scan, a browser, another job. A
// stranger costs a small buffer for a few seconds and disturbs nobody.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <string>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "bootstrap/greeting.hpp"
#include "bootstrap/interface.hpp"
#include "bootstrap/store.hpp"

namespace mxs {

namespace {

constexpr uint64_t second_ns = 1'000'000'000u;
// After its own deadline a rank waits this long for rank 0 to say who is missing.
constexpr uint64_t answer_timeout_ns = 2 * second_ns;
// Ranks of a job come within moments of each other.
constexpr uint64_t late_patience_ns = second_ns;

Occasion occasion_of(const JobEnvironment &job) {
  Occasion occasion;
  occasion.number = job.job;
  occasion.rank = job.rank;
  occasion.rank_count = job.rank_count;
  occasion.secret = job.secret;
  occasion.place = job.address + " port " + std::to_string(job.port);
  return occasion;
}

// Once in a process.
void warn_of_strangers(const std::string &address, int port) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  log_line(MXS_LOG_WARNING, "bootstrap: rank 0 listens on %s port %d, beyond this machine, and without a secret "
           "whoever reaches it can take a rank's place; set MXS_SECRET or MXS_SECRET_FILE on all ranks "
           "(docs/security.md)", address.c_str(), port);
}

// Rank 0's side of coming together.
class Door {
 public:
  Door(const JobEnvironment &job, uint64_t timeout_ns)
      : job_(job), timeout_ns_(timeout_ns), doorway_(occasion_of(job)), peers_(static_cast<size_t>(job.rank_count)) {}

  mxs_status open();
  mxs_status wait_for_all();
  std::vector<std::unique_ptr<Peer>> take_peers();

 private:
  void wait_for_event(uint64_t deadline_ns);
  mxs_status admit(Stranger &stranger);
  mxs_status refuse(Stranger &stranger, mxs_status status);
  mxs_status hear_peers();
  mxs_status give_up(mxs_status status, uint64_t deadline_ns);
  std::vector<int> missing() const;
  mxs_status timed_out() const;

  const JobEnvironment &job_;
  uint64_t timeout_ns_;
  Doorway doorway_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank
  int come_ = 1;                              // rank 0 itself
};

mxs_status Door::open() {
  Socket listener;
  std::string address = job_.address;
  mxs_status status = MXS_OK;
  if (!job_.interface.empty()) status = interface_address(job_.interface, &address);
  if (status == MXS_OK && !job_.interface.empty()) status = check_interface_is_found(job_.interface, job_.address);
  // Room for strangers, too: what finds none is sent again a second later.
  const int backlog = std::clamp(job_.rank_count + 64, 1024, 4096);
  if (status == MXS_OK) status = listen_at(&listener, address, job_.port, backlog);
  if (status != MXS_OK) return status;
  if (!job_.secret && !is_bound_to_loopback(listener.get())) warn_of_strangers(address, job_.port);
  doorway_.open(std::make_shared<const Socket>(std::move(listener)));
  return MXS_OK;
}

std::vector<int> Door::missing() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < job_.rank_count; ++rank)
    if (!peers_[static_cast<size_t>(rank)]) ranks.push_back(rank);
  return ranks;
}

mxs_status Door::timed_out() const {
  const std::vector<int> ranks = missing();
  if (ranks.empty())
    return set_error(MXS_TIMED_OUT, "rank 0 has not answered for so long that another rank gave up, though all %d had "
                     "come: it was stopped, or had no time to run", job_.rank_count);
  return set_error(MXS_TIMED_OUT, "rank%s %s of %d never came to %s port %d within %.3g s; look whether %s started and "
                   "can reach that address%s", ranks.size() == 1 ? "" : "s", rank_list(ranks).c_str(), job_.rank_count,
                   job_.address.c_str(), job_.port, static_cast<double>(timeout_ns_) * 1e-9,
                   ranks.size() == 1 ? "it" : "they", doorway_.turned_away().c_str());
}

// Tells everybody who has come why there will be no comm, and for a moment those who come yet: they would wait for
// rank 0 until their deadline, and then take it for the one that is missing.
mxs_status Door::give_up(mxs_status status, uint64_t deadline_ns) {
  const std::string sentence = last_error_text();
  const uint64_t until_ns = status == MXS_TIMED_OUT ? 0 : std::min(deadline_ns, now_ns() + late_patience_ns);
  for (;;) {
    for (std::unique_ptr<Peer> &peer : peers_) {
      if (!peer) continue;
      peer->send(FrameKind::failure, status, 0, sentence.data(), sentence.size(), now_ns() + second_ns);
      peer.reset();
    }
    if (come_ >= job_.rank_count || now_ns() >= until_ns) return set_error(status, "%s", sentence.c_str());
    wait_for_event(until_ns);
    doorway_.serve([this](Stranger &stranger) { return admit(stranger); });
  }
}

void Door::wait_for_event(uint64_t deadline_ns) {
  std::vector<pollfd> entries;
  doorway_.add_to(&entries);
  for (const std::unique_ptr<Peer> &peer : peers_)
    if (peer) entries.push_back({peer->descriptor(), POLLIN, 0});
  const uint64_t now = now_ns();
  const uint64_t most_ns = now < deadline_ns ? std::min(deadline_ns - now, second_ns / 4) : 0;
  poll(entries.data(), entries.size(), static_cast<int>(most_ns / 1'000'000u + 1));
}

mxs_status Door::refuse(Stranger &stranger, mxs_status status) {
  doorway_.refuse(stranger, status);
  return MXS_OK;
}

// It has proved itself, if there is a secret. A failure ends the wait for all.
mxs_status Door::admit(Stranger &stranger) {
  const int rank = stranger.hello().rank;
  const mxs_status status = compare_with_host(stranger.hello(), doorway_.occasion());
  if (status != MXS_OK) {
    doorway_.refuse(stranger, status);
    return status;
  }
  if (rank < 1 || rank >= job_.rank_count)
    return refuse(stranger, set_error(MXS_ENVIRONMENT, "rank %d is outside a world of %d ranks, or is rank 0, which "
                                      "listens itself", rank, job_.rank_count));
  std::unique_ptr<Peer> &place = peers_[static_cast<size_t>(rank)];
  if (place)
    return refuse(stranger, set_error(MXS_ENVIRONMENT, "rank %d has come already: two processes have the same rank; "
                                      "set RANK to a number of its own on each", rank));
  place = stranger.accept(doorway_.occasion(), now_ns() + second_ns);
  ++come_;
  return MXS_OK;
}

// Nobody who has come has anything to say yet, but that it ends or can't wait longer.
mxs_status Door::hear_peers() {
  for (const std::unique_ptr<Peer> &peer : peers_) {
    if (!peer) continue;
    Frame frame{};
    std::vector<std::byte> payload;
    const Peer::Reading reading = peer->read(&frame, &payload, failure_bytes_max);
    switch (reading) {
      case Peer::Reading::nothing: continue;
      case Peer::Reading::garbage:
      case Peer::Reading::forged: return set_reading_error(reading, peer->rank());
      case Peer::Reading::frame:
        if (frame.kind == FrameKind::giving_up) return timed_out();
        [[fallthrough]];
      case Peer::Reading::closed:
        return set_error(MXS_PEER_FAILED, "rank %d hung up before all ranks had come: its process ended or was killed",
                         peer->rank());
    }
  }
  return MXS_OK;
}

mxs_status Door::wait_for_all() {
  const uint64_t deadline_ns = now_ns() + timeout_ns_;
  while (come_ < job_.rank_count) {
    wait_for_event(deadline_ns);
    mxs_status status = doorway_.serve([this](Stranger &stranger) { return admit(stranger); });
    if (status == MXS_OK) status = hear_peers();
    if (status == MXS_OK && come_ < job_.rank_count && now_ns() > deadline_ns) status = timed_out();
    if (status != MXS_OK) return give_up(status, deadline_ns);
  }
  // Closed before the welcome: a rank that makes its next comm at once must not get into this one's queue.
  doorway_.close();
  for (const std::unique_ptr<Peer> &peer : peers_)
    if (peer && !peer->send(FrameKind::welcome, MXS_OK, 0, nullptr, 0, now_ns() + second_ns))
      return give_up(set_error(MXS_PEER_FAILED, "rank %d hung up before all ranks had come", peer->rank()), 0);
  return MXS_OK;
}

std::vector<std::unique_ptr<Peer>> Door::take_peers() {
  peers_.erase(peers_.begin());  // rank 0's own, empty place
  return std::move(peers_);
}

// Another rank's side: one connection. *accepted tells whether rank 0 had let it in.
enum class Knock { welcome, again, failed };

Knock knock(std::unique_ptr<Peer> *result, const JobEnvironment &job, uint64_t deadline_ns, mxs_status *status,
            std::string *why_not) {
  Socket socket;
  if (!connect_to(&socket, job.address, job.port, deadline_ns, why_not)) return Knock::again;
  auto peer = std::make_unique<Peer>(std::move(socket), 0);
  Guest guest(occasion_of(job));
  if (!guest.begin(*peer)) {
    *why_not = "the connection ended at once";
    return Knock::again;
  }
  bool accepted = false;
  for (uint64_t until_ns = deadline_ns; now_ns() < until_ns;) {
    pollfd entry = {peer->descriptor(), POLLIN, 0};
    poll(&entry, 1, 100);
    if (until_ns == deadline_ns && now_ns() >= deadline_ns) {
      peer->send(FrameKind::giving_up, MXS_OK, 0, nullptr, 0, now_ns() + second_ns);
      until_ns = deadline_ns + answer_timeout_ns;
    }
    Frame frame{};
    std::vector<std::byte> payload;
    switch (peer->read(&frame, &payload, failure_bytes_max)) {
      case Peer::Reading::nothing: continue;
      case Peer::Reading::forged: *status = set_reading_error(Peer::Reading::forged, 0); return Knock::failed;
      case Peer::Reading::garbage:
        *status = set_error(MXS_SYSTEM, "something else than matrixshard listens on %s port %d; set MASTER_PORT (or "
                            "MXS_PORT) to a free port on all ranks", job.address.c_str(), job.port);
        return Knock::failed;
      case Peer::Reading::closed:
        *why_not = "the connection was closed";
        if (!accepted) return Knock::again;  // rank 0 of an earlier comm was just closing its door
        *status = set_error(MXS_PEER_FAILED, "rank 0 hung up before all ranks had come: its process ended or was "
                            "killed");
        return Knock::failed;
      case Peer::Reading::frame: break;
    }
    if (!accepted) {
      const Guest::Outcome outcome = guest.hear(*peer, frame, payload, status);
      if (outcome == Guest::Outcome::failed) return Knock::failed;
      accepted = outcome == Guest::Outcome::accepted;
      continue;
    }
    if (frame.kind == FrameKind::welcome) {
      *result = std::move(peer);
      return Knock::welcome;
    }
    if (frame.kind == FrameKind::failure) {
      *status = set_error(frame.status < 0 ? frame.status : MXS_INTERNAL, "%.*s", static_cast<int>(payload.size()),
                          reinterpret_cast<const char *>(payload.data()));
      return Knock::failed;
    }
  }
  *why_not = accepted ? "rank 0 was there, but didn't answer any more" : "it accepts connections, but doesn't answer";
  return Knock::again;
}

}  // namespace

std::string rank_list(const std::vector<int> &ranks) {
  constexpr size_t most = 16;
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < most; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (ranks.size() > most) text += " and " + std::to_string(ranks.size() - most) + " more";
  return text;
}

mxs_status wait_for_ranks(std::vector<std::unique_ptr<Peer>> *peers, const JobEnvironment &job, uint64_t timeout_ns) {
  Door door(job, timeout_ns);
  mxs_status status = door.open();
  if (status == MXS_OK) status = door.wait_for_all();
  if (status == MXS_OK) *peers = door.take_peers();
  return status;
}

mxs_status go_to_rank_0(std::vector<std::unique_ptr<Peer>> *peers, const JobEnvironment &job, uint64_t timeout_ns) {
  const uint64_t deadline_ns = now_ns() + timeout_ns;
  std::string why_not = "not tried";
  uint64_t pause_ns = 5'000'000u;
  while (now_ns() < deadline_ns) {
    std::unique_ptr<Peer> peer;
    mxs_status status = MXS_OK;
    const Knock outcome = knock(&peer, job, deadline_ns, &status, &why_not);
    if (outcome == Knock::failed) return status;
    if (outcome == Knock::welcome) {
      peers->push_back(std::move(peer));
      return MXS_OK;
    }
    const timespec pause = {0, static_cast<long>(pause_ns)};
    nanosleep(&pause, nullptr);
    pause_ns = std::min<uint64_t>(pause_ns * 2, 200'000'000u);
  }
  return set_error(MXS_TIMED_OUT, "rank %d of %d waited %.3g s for rank 0 at %s port %d (%s); look whether rank 0 "
                   "started, and whether MASTER_ADDR and MASTER_PORT are its own", job.rank, job.rank_count,
                   static_cast<double>(timeout_ns) * 1e-9, job.address.c_str(), job.port, why_not.c_str());
}

}  // namespace mxs
