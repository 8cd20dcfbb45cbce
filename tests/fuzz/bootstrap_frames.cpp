// SPDX-License-Identifier: Apache-2.0
// Frames of the bootstrap's connections, as either end reads them. The input's first byte cuts the rest in two, which
// come one after the other.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "bootstrap/store_wire.hpp"
#include "fuzz.hpp"

using namespace mxs;

namespace {

constexpr size_t payload_bytes_max = 4096;

// Everything that can be read so far; false: the connection is of no more use.
bool read_all(Peer *peer, size_t *bytes) {
  for (;;) {
    Frame frame{};
    std::vector<std::byte> payload;
    switch (peer->read(&frame, &payload, payload_bytes_max)) {
      case Peer::Reading::nothing: return true;
      case Peer::Reading::frame:
        fuzz::promise(payload.size() == frame.bytes && frame.bytes <= payload_bytes_max);
        fuzz::promise(frame.kind >= FrameKind::accepted && frame.kind <= frame_kind_last);
        *bytes += sizeof frame + payload.size();
        continue;
      default: return false;
    }
  }
}

std::string text_of(FrameKind kind, uint64_t bytes, const std::string &payload) {
  const Frame frame = {kind, MXS_OK, 3, bytes};
  return std::string(reinterpret_cast<const char *>(&frame), sizeof frame).append(payload);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  int ends[2];
  if (size == 0 || size > (size_t{64} << 10) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 0;
  const size_t cut = std::min<size_t>(data[0], size - 1);
  Peer peer(Socket{ends[0]}, 1);
  size_t bytes = 0;
  const auto give = [&](size_t begin, size_t end) {
    return begin == end || write(ends[1], data + 1 + begin, end - begin) == static_cast<ssize_t>(end - begin);
  };
  const bool is_good = give(0, cut) && read_all(&peer, &bytes) && give(cut, size - 1) && read_all(&peer, &bytes);
  fuzz::promise(bytes <= size - 1);
  close(ends[1]);
  Frame frame{};
  std::vector<std::byte> payload;
  if (is_good) fuzz::promise(peer.read(&frame, &payload, payload_bytes_max) == Peer::Reading::closed);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string sentence = "rank 1 has failed";
  return {std::string(1, 7) + text_of(FrameKind::accepted, 0, "") + text_of(FrameKind::welcome, 0, ""),
          std::string(1, 30) + text_of(FrameKind::failure, sentence.size(), sentence),
          std::string(1, 0) + text_of(FrameKind::gather, 16, "0123456789abcdef") + text_of(FrameKind::goodbye, 0, ""),
          std::string(1, 40) + text_of(FrameKind::gathered, payload_bytes_max + 1, "")};
}
