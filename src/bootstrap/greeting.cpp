// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/greeting.hpp"

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "matrixshard/version.h"

namespace mxs {

namespace {

constexpr uint64_t second_ns = 1'000'000'000u;

// What a code is for; of equal length, so that no two rows of pieces give the same bytes.
constexpr char guest_label[16] = "mxs guest proof", host_label[16] = "mxs host proof ";
constexpr char key_label[16] = "mxs session key", word_label[16] = "mxs we went on ";

Code code_of_greeting(const Secret &secret, const char (&label)[16], const Hello &hello, const Challenge &challenge) {
  return secret.code_of({{label, sizeof label}, {&hello, sizeof hello}, {&challenge, sizeof challenge}});
}

std::string version_text(uint32_t version) {
  return std::to_string(version / 1'000'000) + "." + std::to_string(version / 1000 % 1000) + "." +
         std::to_string(version % 1000);
}

Code code_of_word(const Secret &secret, uint64_t number, int host_rank) {
  const uint64_t words[2] = {number, static_cast<uint64_t>(host_rank)};
  return secret.code_of({{word_label, sizeof word_label}, {words, sizeof words}});
}

// What one who hasn't proved anything says, as far as it can be shown to people.
std::string printable(const std::vector<std::byte> &payload) {
  std::string text;
  for (const std::byte byte : payload) {
    const char letter = static_cast<char>(byte);
    text += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return text;
}

constexpr const char *where_secrets_are = "options.secret, MXS_SECRET or the file of MXS_SECRET_FILE";

}  // namespace

// ---- the guest ----

bool Guest::begin(Peer &host) {
  std::memcpy(hello_.magic, hello_magic, sizeof hello_magic);
  hello_.version = MXS_VERSION;
  hello_.rank = occasion_.rank;
  hello_.rank_count = occasion_.rank_count;
  hello_.flags = occasion_.secret ? hello_has_secret : 0;
  hello_.number = occasion_.number;
  hello_.kind = occasion_.kind;
  hello_.greeting = greeting_version;
  if (occasion_.secret) hello_.nonce = draw_nonce();
  return send_all(host.socket(), &hello_, sizeof hello_, now_ns() + second_ns);
}

Guest::Outcome Guest::refused(const Frame &frame, const std::vector<std::byte> &payload, mxs_status *status) const {
  const mxs_status told = frame.status < 0 ? frame.status : MXS_INTERNAL;
  const std::string text = printable(payload);
  *status = occasion_.secret ? set_error(told, "refused at %s: %s", occasion_.place.c_str(), text.c_str())
                            : set_error(told, "%s", text.c_str());
  return Outcome::failed;
}

Guest::Outcome Guest::hear(Peer &host, const Frame &frame, const std::vector<std::byte> &payload,
                           mxs_status *status) {
  if (frame.kind == FrameKind::failure) return refused(frame, payload, status);
  const bool plain = frame.status == MXS_OK && frame.sequence == 0;
  const bool waits = occasion_.secret && !challenged_;
  if (frame.kind == FrameKind::challenge && plain && waits && payload.size() == sizeof challenge_) {
    std::memcpy(&challenge_, payload.data(), sizeof challenge_);
    challenged_ = true;
    const Code proof = code_of_greeting(*occasion_.secret, guest_label, hello_, challenge_);
    host.send(FrameKind::proof, MXS_OK, 0, proof.data(), proof.size(), now_ns() + second_ns);
    return Outcome::more;  // had it hung up, that would show next
  }
  if (frame.kind == FrameKind::accepted && plain && !occasion_.secret && payload.empty()) return Outcome::accepted;
  if (frame.kind == FrameKind::accepted && plain && challenged_ && payload.size() == sizeof(Code)) {
    Code theirs;
    std::memcpy(theirs.data(), payload.data(), sizeof theirs);
    if (equal_codes(theirs, code_of_greeting(*occasion_.secret, host_label, hello_, challenge_))) {
      host.seal(code_of_greeting(*occasion_.secret, key_label, hello_, challenge_), false);
      return Outcome::accepted;
    }
  }
  *status = occasion_.secret
                ? set_error(MXS_SYSTEM, "whoever listens on %s doesn't prove that it knows the job's secret (%s), so "
                            "it isn't one of this job's ranks", occasion_.place.c_str(), where_secrets_are)
                : set_error(MXS_SYSTEM, "whoever listens on %s doesn't greet as matrixshard does",
                            occasion_.place.c_str());
  return Outcome::failed;
}

void Guest::leave_word(Peer &host, int host_rank) const {
  const Code word = code_of_word(*occasion_.secret, occasion_.number, host_rank);
  host.send(FrameKind::went_on, MXS_OK, 0, word.data(), word.size(), 0);
}

// ---- the host ----

mxs_status compare_with_host(const Hello &hello, const Occasion &host) {
  if ((hello.flags & hello_has_secret) && !host.secret)
    return set_error(MXS_MISMATCH, "rank %d has a secret, rank %d has none: set %s to the same on all ranks, or on "
                     "none", hello.rank, host.rank, where_secrets_are);
  if (hello.version != MXS_VERSION)
    return set_error(MXS_MISMATCH, "rank %d has matrixshard %s, rank %d has %s; all ranks need the same", hello.rank,
                     version_text(hello.version).c_str(), host.rank, mxs_version_text());
  if (hello.rank_count != host.rank_count)
    return set_error(MXS_MISMATCH, "rank %d was started in a world of %d ranks, rank %d in one of %d", hello.rank,
                     hello.rank_count, host.rank, host.rank_count);
  return MXS_OK;
}

// True once all of it has come.
bool Stranger::fill(void *target, size_t bytes, bool *ended) {
  const ptrdiff_t count = receive_some(socket_, static_cast<char *>(target) + count_, bytes - count_);
  *ended = count < 0;
  if (count > 0) count_ += static_cast<size_t>(count);
  return count_ == bytes;
}

Stranger::State Stranger::check_hello(const Occasion &host, mxs_status *status) const {
  if (hello_.greeting != greeting_version) {
    *status = set_error(MXS_MISMATCH, "rank %d has matrixshard %s, which greets otherwise than the %s of rank %d; all "
                        "ranks need the same", hello_.rank, version_text(hello_.version).c_str(), mxs_version_text(),
                        host.rank);
    return State::refused;
  }
  const bool is_former = std::find(host.former.begin(), host.former.end(), hello_.number) != host.former.end();
  if (hello_.kind != host.kind || (hello_.number != host.number && !is_former)) {
    *status = host.kind == OccasionKind::bootstrap
                  ? set_error(MXS_ENVIRONMENT, "another job's rank %d listens on %s; set MASTER_PORT to a port of this "
                              "job's own", host.rank, host.place.c_str())
                  : set_error(MXS_ENVIRONMENT, "the ranks of another comm meet at %s", host.place.c_str());
    return State::refused;
  }
  if (host.secret && !(hello_.flags & hello_has_secret)) {
    *status = set_error(MXS_MISMATCH, "rank %d has no secret, rank %d has one: set %s to the same on all ranks",
                        hello_.rank, host.rank, where_secrets_are);
    return State::refused;
  }
  return State::proven;
}

Stranger::State Stranger::hear_hello(const Occasion &host, mxs_status *status) {
  bool ended = false;
  const bool whole = fill(&hello_, sizeof hello_, &ended);
  if (ended || std::memcmp(hello_.magic, hello_magic, std::min(count_, sizeof hello_magic)) != 0) return State::ended;
  if (!whole) return State::more;
  const State state = check_hello(host, status);
  if (state != State::proven || !host.secret) return state;
  challenge_ = {MXS_VERSION, 0, draw_nonce()};
  challenged_ = true;
  count_ = 0;
  if (has_word(host)) return State::left_word;
  const struct {
    Frame frame;
    Challenge challenge;
  } answer = {{FrameKind::challenge, MXS_OK, 0, sizeof challenge_}, challenge_};
  return send_all(socket_, &answer, sizeof answer, 0) ? State::more : State::ended;
}

// Behind a hello nothing comes before the challenge but this.
bool Stranger::has_word(const Occasion &host) {
  bool ended = false;
  if (host.kind != OccasionKind::rendezvous || !fill(&proof_, sizeof proof_, &ended)) return false;
  return proof_.frame.kind == FrameKind::went_on &&
         equal_codes(proof_.code, code_of_word(*host.secret, host.number, host.rank));
}

Stranger::State Stranger::hear_proof(const Occasion &host, mxs_status *status) {
  bool ended = false;
  const bool whole = fill(&proof_, sizeof proof_, &ended);
  if (ended) return State::ended;
  const Frame expected = {FrameKind::proof, MXS_OK, 0, sizeof(Code)};
  if (std::memcmp(&proof_.frame, &expected, std::min(count_, sizeof expected)) != 0) return State::ended;
  if (!whole) return State::more;
  if (equal_codes(proof_.code, code_of_greeting(*host.secret, guest_label, hello_, challenge_))) return State::proven;
  *status = set_error(MXS_MISMATCH, "rank %d knows another secret than rank %d: set %s to the same on all ranks",
                      hello_.rank, host.rank, where_secrets_are);
  return State::refused;
}

Stranger::State Stranger::hear(const Occasion &host, uint64_t now, mxs_status *status) {
  const State state = challenged_ ? hear_proof(host, status) : hear_hello(host, status);
  if (state == State::more && now - since_ns_ > greeting_timeout_ns) return State::ended;
  return state;
}

std::unique_ptr<Peer> Stranger::accept(const Occasion &host, uint64_t deadline_ns) {
  auto peer = std::make_unique<Peer>(std::move(socket_), hello_.rank);
  Code proof{};
  if (host.secret) proof = code_of_greeting(*host.secret, host_label, hello_, challenge_);
  // One that has hung up meanwhile is seen by its next message.
  peer->send(FrameKind::accepted, MXS_OK, 0, proof.data(), host.secret ? proof.size() : 0, deadline_ns);
  if (host.secret) peer->seal(code_of_greeting(*host.secret, key_label, hello_, challenge_), true);
  return peer;
}

void Stranger::tell(mxs_status status, const std::string &sentence) {
  Peer(std::move(socket_), -1)
      .send(FrameKind::failure, status, 0, sentence.data(), std::min(sentence.size(), failure_bytes_max), 0);
}

}  // namespace mxs
