// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/meeting.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "bootstrap/store.hpp"

namespace mxs {

namespace {

constexpr uint64_t millisecond_ns = 1'000'000u, second_ns = 1'000'000'000u;
constexpr uint64_t silence_ns = 300 * millisecond_ns;  // of a rank, until the one above it is called as well
constexpr uint64_t patience_ns = 20 * millisecond_ns;  // of a leader, until it calls those that haven't come
constexpr uint64_t again_ns = 20 * millisecond_ns;     // after one hung up, or couldn't be reached
constexpr uint64_t unreached_ns = 3 * second_ns;       // of a call that gets no connection, until it is made anew
constexpr uint64_t word_timeout_ns = 2 * second_ns;    // beyond its deadline a follower waits so long for the leader

}  // namespace

// A call to another rank.
struct Meeting::Call {
  enum State { none, connecting, silent, accepted, dead };
  State state = none;
  uint64_t first_ns = 0;  // when it was first tried; 0: never
  uint64_t since_ns = 0;  // in this state
  uint64_t next_ns = 0;   // not before
  Socket socket;          // while connecting
  std::unique_ptr<Peer> peer;
  std::unique_ptr<Guest> guest;  // until it has been greeted
};

namespace {

Occasion occasion_of(const Rendezvous &rendezvous) {
  Occasion occasion;
  occasion.kind = OccasionKind::rendezvous;
  occasion.number = rendezvous.session();
  occasion.former = rendezvous.former_sessions();
  occasion.rank = rendezvous.rank();
  occasion.rank_count = rendezvous.rank_count();
  occasion.secret = rendezvous.secret();
  occasion.place = "the place where the living ranks of a failed comm meet";
  return occasion;
}

}  // namespace

Meeting::Meeting(const Rendezvous &rendezvous, uint64_t deadline_ns)
    : rendezvous_(rendezvous), begin_ns_(now_ns()), own_deadline_ns_(deadline_ns), deadline_ns_(deadline_ns),
      leader_(rendezvous.rank()), doorway_(occasion_of(rendezvous)),
      come_(static_cast<size_t>(rendezvous.rank_count())),
      calls_(static_cast<size_t>(rendezvous.rank_count())) {
  doorway_.open(rendezvous.listener());
}

Meeting::~Meeting() = default;

// ---- who comes here -------------------------------------------------------------------------------------------------

// It has proved itself, if there is a secret. Whoever isn't a rank of this comm ends nothing.
mxs_status Meeting::admit(Stranger &stranger) {
  const Hello &hello = stranger.hello();
  const bool is_rank = hello.rank >= 0 && hello.rank < rendezvous_.rank_count() && hello.rank != rendezvous_.rank();
  if (hello.number != rendezvous_.session()) {
    const std::string sentence = "the others went on without this rank in a comm that has failed since";
    stranger.accept(doorway_.occasion(), 0)
        ->send(FrameKind::failure, MXS_PEER_FAILED, 0, sentence.data(), sentence.size(), 0);
    return MXS_OK;
  }
  mxs_status status = compare_with_host(hello, doorway_.occasion());
  if (status == MXS_OK && !is_rank)
    status = set_error(MXS_ENVIRONMENT, "rank %d isn't one of the %d ranks of this comm, or is the one that listens",
                       hello.rank, rendezvous_.rank_count());
  if (status != MXS_OK) doorway_.refuse(stranger, status);
  else arrivals_.push_back(stranger.accept(doorway_.occasion(), 0));
  return MXS_OK;
}

// What one says who has come, or called: at once if it went on without this rank.
mxs_status Meeting::heed_failure(const Frame &frame, const std::vector<std::byte> &payload) const {
  return set_error(frame.status < 0 ? frame.status : MXS_INTERNAL, "%.*s", static_cast<int>(payload.size()),
                   reinterpret_cast<const char *>(payload.data()));
}

// They have greeted; now they say that they follow, or hold the line, or that all is over.
mxs_status Meeting::hear_arrivals() {
  mxs_status status = MXS_OK;
  std::erase_if(arrivals_, [&](std::unique_ptr<Peer> &peer) {
    for (;;) {
      Frame frame{};
      std::vector<std::byte> payload;
      if (status != MXS_OK) return false;
      const Peer::Reading reading = peer->read(&frame, &payload, failure_bytes_max);
      if (reading == Peer::Reading::nothing) return false;
      if (reading != Peer::Reading::frame) return true;
      if (frame.kind == FrameKind::failure && frame.status == MXS_PEER_FAILED) {
        status = heed_failure(frame, payload);
        return false;
      }
      if (frame.kind == FrameKind::summons) continue;
      if (frame.kind != FrameKind::joining || peer->rank() < rendezvous_.rank()) return true;
      deadline_ns_ = std::min(deadline_ns_, now_ns() + std::min(frame.sequence, UINT64_MAX / 2));
      const size_t rank = static_cast<size_t>(peer->rank());
      if (!peer->send(FrameKind::accepted, MXS_OK, 0, nullptr, 0, 0)) return true;
      come_[rank] = std::move(peer);
      calls_[rank] = Call();
      return true;
    }
  });
  return status;
}

// Those who follow say nothing; they leave for a lower one, or die.
mxs_status Meeting::hear_come() {
  for (std::unique_ptr<Peer> &peer : come_) {
    if (!peer) continue;
    Frame frame{};
    std::vector<std::byte> payload;
    const Peer::Reading reading = peer->read(&frame, &payload, failure_bytes_max);
    if (reading == Peer::Reading::frame && frame.kind == FrameKind::failure && frame.status == MXS_PEER_FAILED)
      return heed_failure(frame, payload);
    if (reading != Peer::Reading::nothing) peer.reset();
  }
  return MXS_OK;
}

// ---- whom this rank calls -------------------------------------------------------------------------------------------

void Meeting::hang_up(int rank, uint64_t pause_ns) {
  Call &call = calls_[static_cast<size_t>(rank)];
  if (call.state == Call::accepted) call.first_ns = 0;  // if it comes again it has its time to answer again
  call.state = Call::none;
  call.since_ns = now_ns();
  call.next_ns = call.since_ns + pause_ns;
  call.socket = Socket();
  call.peer.reset();
  call.guest.reset();
}

void Meeting::connected(int rank) {
  Call &call = calls_[static_cast<size_t>(rank)];
  call.state = Call::silent;
  call.since_ns = now_ns();
  call.peer = std::make_unique<Peer>(std::move(call.socket), rank);
  call.guest = std::make_unique<Guest>(doorway_.occasion());
  if (!call.guest->begin(*call.peer)) hang_up(rank, again_ns);
}

void Meeting::greeted(int rank) {
  Call &call = calls_[static_cast<size_t>(rank)];
  call.guest.reset();
  const uint64_t now = now_ns(), left_ns = own_deadline_ns_ > now ? own_deadline_ns_ - now : 0;
  const FrameKind kind = rank < rendezvous_.rank() ? FrameKind::joining : FrameKind::summons;
  if (!call.peer->send(kind, MXS_OK, left_ns, nullptr, 0, 0)) hang_up(rank, again_ns);
}

// One step towards this rank, if there is one to do.
mxs_status Meeting::call(int rank) {
  Call &call = calls_[static_cast<size_t>(rank)];
  const uint64_t now = now_ns();
  int failure = 0;
  if (call.state == Call::none && now >= call.next_ns) {
    if (call.first_ns == 0) call.first_ns = now;
    const Rendezvous::Place &place = rendezvous_.place(rank);
    // Strangers must not keep ranks from calling each other.
    do failure = begin_connecting(&call.socket, place.address, place.port);
    while ((failure == EMFILE || failure == ENFILE) && doorway_.make_room());
    call.state = Call::connecting;
    call.since_ns = now;
  }
  if (call.state == Call::connecting && failure == 0) {
    failure = look_at_connecting(call.socket);
    if (failure == 0) connected(rank);
  }
  if (failure == ECONNREFUSED) {
    hang_up(rank, 0);
    call.state = Call::dead;
  } else if (failure == EINPROGRESS) {
    if (now > call.since_ns + unreached_ns) hang_up(rank, 0);
  } else if (failure == EMFILE || failure == ENFILE || failure == ENOBUFS || failure == ENOMEM) {
    return set_error(MXS_SYSTEM, "no socket to call rank %d: %s", rank, std::strerror(failure));
  } else if (failure != 0) {
    hang_up(rank, 10 * again_ns);  // no way there at the moment
  }
  return MXS_OK;
}

bool Meeting::is_silent(int rank) const {
  const Call &call = calls_[static_cast<size_t>(rank)];
  return call.state != Call::accepted && call.state != Call::dead && call.first_ns != 0 &&
         now_ns() > call.first_ns + silence_ns;
}

// From the lowest up to the first that has accepted this rank. One is called at a time until it has had its time to
// answer; with each that is silent one more, so that a node of silent ranks is soon passed.
mxs_status Meeting::call_lower() {
  const int own = rendezvous_.rank();
  int rank = 0, silent_count = 0, open_count = 0;
  for (; rank < own && open_count <= silent_count; ++rank) {
    const mxs_status status = call(rank);
    if (status != MXS_OK) return status;
    const Call &call = calls_[static_cast<size_t>(rank)];
    if (call.state == Call::accepted) break;
    if (is_silent(rank)) ++silent_count;
    else if (call.state != Call::dead) ++open_count;
  }
  const bool accepted = rank < own && calls_[static_cast<size_t>(rank)].state == Call::accepted;
  leader_ = accepted ? rank : own;
  // One leader is enough: others must not count on this rank.
  for (int other = rank + 1; accepted && other < own; ++other)
    if (calls_[static_cast<size_t>(other)].state != Call::dead) calls_[static_cast<size_t>(other)] = Call();
  if (rank < own || open_count > 0) came_up_ns_ = 0;
  else if (came_up_ns_ == 0) came_up_ns_ = now_ns();
  return MXS_OK;
}

// Only to learn whether they are dead, and to leave word.
mxs_status Meeting::call_higher() {
  if (came_up_ns_ == 0 || now_ns() < came_up_ns_ + patience_ns) return MXS_OK;
  for (int rank = rendezvous_.rank() + 1; rank < rendezvous_.rank_count(); ++rank) {
    const mxs_status status = come_[static_cast<size_t>(rank)] ? MXS_OK : call(rank);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// False: the greeting is over, and this frame is none of it. Who refuses this rank, or doesn't prove that it is one of
// this comm's, isn't believed: somebody else may have got the port.
bool Meeting::hear_greeting(int rank, const Frame &frame, const std::vector<std::byte> &payload) {
  Call &call = calls_[static_cast<size_t>(rank)];
  if (!call.guest) return false;
  mxs_status ignored = MXS_OK;
  const Guest::Outcome outcome = call.guest->hear(*call.peer, frame, payload, &ignored);
  if (outcome == Guest::Outcome::accepted) greeted(rank);
  if (outcome == Guest::Outcome::failed) hang_up(rank, 10 * again_ns);
  return true;
}

mxs_status Meeting::hear_call(int rank) {
  Call &call = calls_[static_cast<size_t>(rank)];
  while (call.peer && members_.empty()) {
    Frame frame{};
    std::vector<std::byte> payload;
    const size_t bytes_max = std::max(failure_bytes_max, calls_.size() * sizeof(int32_t));
    const Peer::Reading reading = call.peer->read(&frame, &payload, bytes_max);
    if (reading == Peer::Reading::nothing) return MXS_OK;
    if (reading != Peer::Reading::frame) {
      hang_up(rank, again_ns);
    } else if (hear_greeting(rank, frame, payload)) {
      continue;
    } else if (frame.kind == FrameKind::failure) {
      return heed_failure(frame, payload);
    } else if (frame.kind == FrameKind::accepted) {
      call.state = Call::accepted;
    } else if (frame.kind == FrameKind::welcome && call.state == Call::accepted) {
      word_from_ = rank;
      std::vector<int32_t> members(payload.size() / sizeof(int32_t));
      std::memcpy(members.data(), payload.data(), members.size() * sizeof(int32_t));
      members_.assign(members.begin(), members.end());
    }
  }
  return MXS_OK;
}

mxs_status Meeting::hear_calls() {
  for (int rank = 0; rank < rendezvous_.rank_count(); ++rank) {
    const mxs_status status = hear_call(rank);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// ---- deciding -------------------------------------------------------------------------------------------------------

// Neither here nor known dead.
std::vector<int> Meeting::awaited() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < rendezvous_.rank_count(); ++rank) {
    const size_t i = static_cast<size_t>(rank);
    if (rank != rendezvous_.rank() && !come_[i] && calls_[i].state != Call::dead) ranks.push_back(rank);
  }
  return ranks;
}

bool Meeting::has_quorum() const {
  const auto come = 1 + std::count_if(come_.begin(), come_.end(), [](const auto &peer) { return peer != nullptr; });
  return 2 * come > rendezvous_.rank_count() || (2 * come == rendezvous_.rank_count() && rendezvous_.rank() == 0);
}

mxs_status Meeting::give_up(mxs_status status) {
  const std::string sentence = last_error_text();
  for (const std::unique_ptr<Peer> &peer : come_)
    if (peer) peer->send(FrameKind::failure, status, 0, sentence.data(), sentence.size(), now_ns() + second_ns);
  return set_error(status, "%s", sentence.c_str());
}

// As the leader. *decided: members and peers are given; not so if one died at the last moment.
mxs_status Meeting::decide(std::vector<int> *members, std::vector<std::unique_ptr<Peer>> *peers, bool *decided) {
  const std::vector<int> absent = awaited();
  if (!absent.empty() && now_ns() < deadline_ns_) return MXS_OK;
  if (!absent.empty() && !has_quorum())
    return give_up(set_error(MXS_TIMED_OUT, "rank%s %s of %d did not come to mxs_comm_shrink within %.3g s, and the "
                             "others are not more than half; look whether %s stopped or cut off",
                             absent.size() == 1 ? "" : "s", rank_list(absent).c_str(), rendezvous_.rank_count(),
                             static_cast<double>(now_ns() - begin_ns_) * 1e-9,
                             absent.size() == 1 ? "it is" : "they are"));
  std::vector<int32_t> list;
  for (int rank = 0; rank < rendezvous_.rank_count(); ++rank)
    if (rank == rendezvous_.rank() || come_[static_cast<size_t>(rank)]) list.push_back(rank);
  for (std::unique_ptr<Peer> &peer : come_) {
    if (!peer) continue;
    const bool sent = peer->send(FrameKind::welcome, MXS_OK, 0, list.data(), list.size() * sizeof(int32_t),
                                 now_ns() + second_ns);
    if (sent) continue;
    // Those that have the word find this rank gone, and come again.
    for (std::unique_ptr<Peer> &other : come_) other.reset();
    return MXS_OK;
  }
  members->assign(list.begin(), list.end());
  for (std::unique_ptr<Peer> &peer : come_) {
    if (!peer) continue;
    peer->renumber(static_cast<int>(peers->size()) + 1);
    peers->push_back(std::move(peer));
  }
  *decided = true;
  return MXS_OK;
}

bool is_list_of_living(const std::vector<int> &members, int leader, int own_rank, int rank_count) {
  return !members.empty() && members.front() == leader && leader >= 0 && members.back() < rank_count &&
         std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) == members.end() &&
         std::binary_search(members.begin(), members.end(), own_rank);
}

// As a follower.
mxs_status Meeting::take_word(std::vector<int> *members, std::vector<std::unique_ptr<Peer>> *peers) {
  if (!is_list_of_living(members_, word_from_, rendezvous_.rank(), rendezvous_.rank_count()))
    return set_error(MXS_INTERNAL, "rank %d sent a list of the living that makes no sense", word_from_);
  std::unique_ptr<Peer> leader = std::move(calls_[static_cast<size_t>(word_from_)].peer);
  leader->renumber(0);
  peers->push_back(std::move(leader));
  hang_up(word_from_, again_ns);
  *members = members_;
  return MXS_OK;
}

void Meeting::wait_for_event(uint64_t at_most_ns) {
  std::vector<pollfd> entries;
  doorway_.add_to(&entries);
  for (const std::vector<std::unique_ptr<Peer>> *peers : {&arrivals_, &come_})
    for (const std::unique_ptr<Peer> &peer : *peers)
      if (peer) entries.push_back({peer->descriptor(), POLLIN, 0});
  for (const Call &call : calls_) {
    if (call.socket) entries.push_back({call.socket.get(), POLLOUT, 0});
    if (call.peer) entries.push_back({call.peer->descriptor(), POLLIN, 0});
  }
  poll(entries.data(), entries.size(), static_cast<int>(at_most_ns / millisecond_ns));
}

mxs_status Meeting::turn() {
  mxs_status status = doorway_.serve([this](Stranger &stranger) { return admit(stranger); });
  if (status == MXS_OK) status = hear_arrivals();
  if (status == MXS_OK) status = hear_come();
  if (status == MXS_OK) status = call_lower();
  if (status == MXS_OK) status = call_higher();
  if (status == MXS_OK) status = hear_calls();
  return status;
}

mxs_status Meeting::gather(std::vector<int> *members, std::vector<std::unique_ptr<Peer>> *peers) {
  members_.clear();
  for (;;) {
    mxs_status status = turn();
    if (status != MXS_OK) return leads() ? give_up(status) : status;
    bool decided = !members_.empty();
    if (decided) status = take_word(members, peers);
    else if (leads()) status = decide(members, peers, &decided);
    // Making a comm wants descriptors, too.
    if (decided) doorway_.clear();
    if (status != MXS_OK || decided) return status;
    if (!leads() && now_ns() > own_deadline_ns_ + word_timeout_ns)
      return set_error(MXS_TIMED_OUT, "rank %d, the lowest that has come to mxs_comm_shrink, says nothing for %.3g s",
                       leader_, static_cast<double>(now_ns() - begin_ns_) * 1e-9);
    wait_for_event(10 * millisecond_ns);
  }
}

void Meeting::close() {
  std::string sentence = "the others went on without this rank, which did not come to mxs_comm_shrink in time";
  for (size_t rank = 0; rank < calls_.size(); ++rank) {
    const Call &call = calls_[rank];
    // One that isn't there yet to be greeted finds the word behind the hello.
    if (call.guest && rendezvous_.secret()) call.guest->leave_word(*call.peer, static_cast<int>(rank));
    else if (call.peer) call.peer->send(FrameKind::failure, MXS_PEER_FAILED, 0, sentence.data(), sentence.size(), 0);
  }
}

}  // namespace mxs
