// SPDX-License-Identifier: Apache-2.0
// What goes over the store's connections: a star with rank 0 in the middle.
//
//   rank r                         rank 0
//   hello  ----------------------> is it one of us? the right version, world, job? not here already?
//          <---------------------- accepted, later welcome when all have come; or failure with a sentence
//   gather ----------------------> when all blobs of a round are there:
//          <---------------------- gathered: all blobs in rank order
//   giving_up -------------------> its deadline passed; rank 0 answers with failure, which names who is missing
//   failure <--------------------> rank 0 passes it on to the others. Its sequence is the number of a line: 0 for the
//                                  comm that the store has made, else of a comm that was split off
//          <---------------------- gone: a connection has ended without goodbye; the sequence is its rank
//   joining, summons               only when the living of a failed comm meet: meeting.cpp
//   goodbye <--------------------> orderly: the end of the connection that follows means nothing
//
// Hello is the first thing on a connection and is checked before anything else is believed. Numbers are little-endian,
// as all hosts that we build for are; another one's hello has a magic that doesn't match.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "bootstrap/socket.hpp"

namespace mxs {

struct Hello {
  char magic[8];
  uint32_t version;
  int32_t rank, rank_count;
  uint32_t reserved;
  uint64_t job;
};
static_assert(sizeof(Hello) == 32);
constexpr char hello_magic[8] = {'m', 'x', 's', '-', 'b', 'o', 'o', 't'};

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
};

struct Frame {
  FrameKind kind;
  int32_t status;     // failure
  uint64_t sequence;  // of the round: gather, gathered, giving_up; a line: failure; a rank: gone
  uint64_t bytes;     // that follow
};
static_assert(sizeof(Frame) == 24);

constexpr size_t failure_bytes_max = 1024;

// One connection with a rank that has said hello.
class Peer {
 public:
  Peer(Socket socket, int rank) : socket_(std::move(socket)), rank_(rank) {}

  int rank() const { return rank_; }
  int descriptor() const { return socket_.get(); }
  void renumber(int rank) { rank_ = rank; }

  // Its latest blob (at rank 0) or the latest answer (elsewhere), until it is taken.
  bool has_blob = false;
  uint64_t blob_sequence = 0;
  std::vector<std::byte> blob;

  bool gone = false;  // said goodbye, or the connection ended

  bool send(FrameKind kind, mxs_status status, uint64_t sequence, const void *data, size_t bytes,
            uint64_t deadline_ns) {
    const Frame frame = {kind, status, sequence, bytes};
    return send_all(socket_, &frame, sizeof frame, deadline_ns) && send_all(socket_, data, bytes, deadline_ns);
  }

  bool send_raw(const void *data, size_t bytes, uint64_t deadline_ns) {
    return send_all(socket_, data, bytes, deadline_ns);
  }

  enum class Reading { nothing, frame, closed, garbage };

  // The next frame if all of it has come. bytes_max bounds what is believed before memory is taken for it.
  Reading read(Frame *frame, std::vector<std::byte> *payload, size_t bytes_max) {
    for (;;) {
      if (input_.size() >= sizeof(Frame)) {
        std::memcpy(frame, input_.data(), sizeof *frame);
        if (frame->kind < FrameKind::accepted || frame->kind > FrameKind::goodbye || frame->bytes > bytes_max)
          return Reading::garbage;
        if (input_.size() >= sizeof *frame + frame->bytes) {
          const auto begin = input_.begin() + sizeof *frame, end = begin + static_cast<ptrdiff_t>(frame->bytes);
          payload->assign(begin, end);
          input_.erase(input_.begin(), end);
          return Reading::frame;
        }
      }
      const size_t had = input_.size();
      input_.resize(had + (size_t{64} << 10));
      const ptrdiff_t count = receive_some(socket_, input_.data() + had, input_.size() - had);
      input_.resize(had + static_cast<size_t>(count > 0 ? count : 0));
      if (count == 0) return Reading::nothing;
      if (count < 0) return Reading::closed;
    }
  }

 private:
  Socket socket_;
  int rank_;
  std::vector<std::byte> input_;
};

}  // namespace mxs
