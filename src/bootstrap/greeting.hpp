// SPDX-License-Identifier: Apache-2.0
// The greeting: how one who comes (the guest) and one who listens (the host) know each other.
//
//   guest                                      host
//   hello: who I am, a nonce  ---------------->  the right number? A secret, or none, as I have?
//          <----------------------------------   challenge: another nonce          } only where
//   proof: HMAC(secret, guest, all of it) ---->  is it?                            } there is
//          <----------------------------------   accepted: HMAC(secret, host, ...) } a secret
//
// The guest proves itself first, so a stranger gets nothing from the host but random bytes. Both nonces are new in each
// greeting, so a recorded hello or proof is of no use, not even to the same host; and the two proofs differ in who
// gives them, so neither can be sent back. Everything that was said is part of them. After it frames are sealed with a
// key that is made from the secret and both nonces (store_wire.hpp).
//
// Nothing that a guest says ends anything for the host before it has proved itself. One message needs no challenge, as
// it stays true for ever: that the other ranks of a comm, of this number, have gone on without the host (leave_word).
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/secret.hpp"
#include "bootstrap/store_wire.hpp"

namespace mxs {

// What the two come together for. A proof of one kind is none of the other.
enum class OccasionKind : uint32_t { bootstrap = 1, rendezvous };

struct Occasion {
  OccasionKind kind = OccasionKind::bootstrap;
  uint64_t number = 0;  // equal on all who belong together: the job's hash, the session of a comm
  std::vector<uint64_t> former;  // a host's: guests who give one of these prove themselves, too. Whoever admits them
                                 // looks at their hello
  int rank = 0, rank_count = 1;
  std::shared_ptr<const Secret> secret;  // nullptr: none
  std::string place;                     // where the host listens, for sentences: "10.0.0.1 port 29500"
};

struct Hello {
  char magic[8];
  uint32_t version;  // of the library
  int32_t rank, rank_count;
  uint32_t flags;
  uint64_t number;
  OccasionKind kind;
  uint32_t greeting;  // the version of what greeting.hpp describes
  Nonce nonce;        // zeros without a secret
};
static_assert(sizeof(Hello) == 72);
constexpr char hello_magic[8] = {'m', 'x', 's', '-', 'b', 'o', 'o', 't'};
constexpr uint32_t hello_has_secret = 1, greeting_version = 1;
constexpr uint64_t greeting_timeout_ns = 5'000'000'000u;  // from accept to the last byte of the proof

struct Challenge {
  uint32_t version, reserved;
  Nonce nonce;
};
static_assert(sizeof(Challenge) == 40);

// ---- the guest ----

class Guest {
 public:
  explicit Guest(const Occasion &occasion) : occasion_(occasion) {}

  // False: the connection has ended at once.
  bool begin(Peer &host);
  // For each frame until one gives `accepted`; the peer is then sealed, if there is a secret.
  // more: wait for the next. failed: the host refuses, or isn't one of us; *status and the sentence say which.
  enum class Outcome { more, accepted, failed };
  Outcome hear(Peer &host, const Frame &frame, const std::vector<std::byte> &payload, mxs_status *status);
  // For a host that hasn't answered and that nobody waits for any more, where there is a secret: it finds behind the
  // hello, whenever it comes, that the others of this number have gone on without it.
  void leave_word(Peer &host, int host_rank) const;

 private:
  Outcome refused(const Frame &frame, const std::vector<std::byte> &payload, mxs_status *status) const;

  const Occasion occasion_;
  Hello hello_{};
  Challenge challenge_{};
  bool challenged_ = false;
};

// ---- the host ----

// Of a guest that has proved itself: has it the host's version and world, and no secret that the host lacks?
// MXS_MISMATCH.
mxs_status compare_with_host(const Hello &hello, const Occasion &host);

// A connection that hasn't been greeted. It takes some 250 bytes, for 5 s at most.
class Stranger {
 public:
  Stranger(Socket socket, uint64_t now_ns) : socket_(std::move(socket)), since_ns_(now_ns) {}

  // more: wait. proven: it is what its hello says, as far as a host with or without a secret can know. ended: it has
  // hung up, or is none of us: no word is lost about it. refused: one of us, it seems, but not here; the sentence of
  // set_error says why. left_word: the others have gone on without this host.
  enum class State { more, proven, ended, refused, left_word };
  State hear(const Occasion &host, uint64_t now_ns, mxs_status *status);

  const Hello &hello() const { return hello_; }
  int descriptor() const { return socket_.get(); }
  uint64_t since_ns() const { return since_ns_; }
  bool has_greeted() const { return challenged_; }

  // Takes it in. After State::proven, once.
  std::unique_ptr<Peer> accept(const Occasion &host, uint64_t deadline_ns);
  // Tells it the sentence, without waiting.
  void tell(mxs_status status, const std::string &sentence);

 private:
  bool fill(void *target, size_t bytes, bool *ended);
  State hear_hello(const Occasion &host, mxs_status *status);
  State check_hello(const Occasion &host, mxs_status *status) const;
  State hear_proof(const Occasion &host, mxs_status *status);
  bool has_word(const Occasion &host);

  Socket socket_;
  uint64_t since_ns_;
  size_t count_ = 0;  // of the bytes of what is coming
  bool challenged_ = false;
  Hello hello_{};
  Challenge challenge_{};
  struct {
    Frame frame;
    Code code;
  } proof_{};
};

// Where guests come in: a listener and those who haven't been greeted yet. However many strangers come, and whatever
// they say, they cost a bounded number of descriptors and bytes, and the next guest gets in.
class Doorway {
 public:
  explicit Doorway(const Occasion &occasion) : occasion_(occasion) {}

  void open(std::shared_ptr<const Socket> listener) { listener_ = std::move(listener); }
  void close();
  const Occasion &occasion() const { return occasion_; }

  // What to poll for, for at most 250 ms at a time.
  void add_to(std::vector<pollfd> *entries) const;
  // Lets in who is there. admit: for each that has proved itself; it takes it (accept) or refuses it (refuse). A
  // failure that it returns ends the call.
  using Admit = std::function<mxs_status(Stranger &)>;
  mxs_status serve(const Admit &admit);
  // Tells it the sentence of set_error, which is also a line of the log.
  void refuse(Stranger &stranger, mxs_status status);
  // Sends one away whose descriptor is needed. False: there is nobody.
  bool make_room();
  // Sends away all that haven't proved themselves; who is a rank comes again.
  void clear() { strangers_.clear(); }
  // For the end of a sentence that says who never came: "", or "; 3 connections were turned away, ...".
  std::string turned_away() const;

 private:
  Stranger::State hear(Stranger &stranger, const Admit &admit, mxs_status *status);
  mxs_status accept_some(const Admit &admit);

  const Occasion occasion_;
  std::shared_ptr<const Socket> listener_;
  std::vector<Stranger> strangers_;
  uint64_t rests_until_ns_ = 0;  // no descriptors left
  bool was_short_of_files_ = false;
  uint64_t turned_away_count_ = 0;
  std::string latest_reason_;
};

}  // namespace mxs
