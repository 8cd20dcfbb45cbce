// SPDX-License-Identifier: Apache-2.0
// What goes over the store's connections: a star with rank 0 in the middle.
//
//   rank r                         rank 0
//   hello  ----------------------> the greeting: is it one of us? See greeting.hpp
//          <---------------------- accepted, later welcome when all have come; or failure with a sentence
//   gather ----------------------> when all blobs of a round are there:
//          <---------------------- gathered: all blobs in rank order
//   giving_up -------------------> its deadline passed; rank 0 answers with failure, which names who is missing
//   failure <--------------------> rank 0 passes it on to the others. Its sequence is the number of a line: 0 for the
//                                  comm that the store has made, else of a comm that was split off
//          <---------------------- gone: a connection has ended without goodbye; the sequence is its rank
//   joining, summons, went_on      only when the living of a failed comm meet: meeting.cpp
//   goodbye <--------------------> orderly: the end of the connection that follows means nothing
//
// Hello is the first thing on a connection and is checked before anything else is believed. Numbers are little-endian,
// as all hosts that we build for are; another one's hello has a magic that doesn't match.
//
// Where the job has a secret, every frame after `accepted` is sealed:
//
//   | frame 24 | hash of what follows 32 | code 32 | what follows |
//
// The code is an HMAC, under a key of this connection alone, of the direction, a counter, frame and hash. So a frame's
// length is known to be a rank's own before memory is taken for it, one that was changed, repeated, left out or sent
// back is seen, and what goes to a thousand ranks is hashed once for each, but by a hash and not by an HMAC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "bootstrap/proof.hpp"
#include "bootstrap/socket.hpp"

namespace mxs {

// The upper bytes are a mark, so that a stranger's bytes are no frame.
enum class FrameKind : uint32_t {
  accepted = 0x4d585301,
  welcome,
  gather,
  gathered,
  failure,
  giving_up,
  gone,
  joining,
  summons,
  goodbye,
  challenge,  // of the greeting
  proof,
  went_on,
};
constexpr FrameKind frame_kind_last = FrameKind::went_on;

struct Frame {
  FrameKind kind;
  int32_t status;     // failure
  uint64_t sequence;  // of the round: gather, gathered, giving_up; a line: failure; a rank: gone
  uint64_t bytes;     // that follow
};
static_assert(sizeof(Frame) == 24);

struct SealedFrame {
  Frame frame;
  Code hash, code;
};
static_assert(sizeof(SealedFrame) == 88);

constexpr size_t failure_bytes_max = 1024;

// One connection with a rank that has said hello.
class Peer {
 public:
  Peer(Socket socket, int rank) : socket_(std::move(socket)), rank_(rank) {}
  ~Peer() {
    if (sealed_) wipe(key_.data(), key_.size());
  }
  Peer(const Peer &) = delete;

  int rank() const { return rank_; }
  int descriptor() const { return socket_.get(); }
  const Socket &socket() const { return socket_; }
  void renumber(int rank) { rank_ = rank; }

  // Its latest blob (at rank 0) or the latest answer (elsewhere), until it is taken.
  bool has_blob = false;
  uint64_t blob_sequence = 0;
  std::vector<std::byte> blob;

  bool gone = false;  // said goodbye, or the connection ended

  // From here on frames are sealed, both ways. is_host: of the two, this is the one that was come to.
  void seal(const Code &key, bool is_host);
  bool sealed() const { return sealed_; }

  // Before its deadline (0: doesn't wait). False: not sent; if a part of it was, nothing more can be sent.
  bool send(FrameKind kind, mxs_status status, uint64_t sequence, const void *data, size_t bytes,
            uint64_t deadline_ns);

  // garbage: no frame. forged: a frame, but not what the rank at the other end has sent, or not now.
  enum class Reading { nothing, frame, closed, garbage, forged };

  // The next frame if all of it has come. bytes_max bounds what is believed before memory is taken for it.
  Reading read(Frame *frame, std::vector<std::byte> *payload, size_t bytes_max);

 private:
  Code code_of_frame(const SealedFrame &frame, bool to_host, uint64_t count) const;
  Reading open_head(const Frame &frame, size_t bytes_max);

  Socket socket_;
  int rank_;
  std::vector<std::byte> input_;
  bool broken_ = false;  // a part of a frame was sent
  bool sealed_ = false, is_host_ = false;
  bool head_is_good_ = false;  // of the frame that input_ begins with
  uint64_t sent_count_ = 0, read_count_ = 0;
  Code key_{};
};

// "a message of rank 3 was changed on its way ...", or that it is none.
mxs_status set_reading_error(Peer::Reading reading, int rank);

}  // namespace mxs
