// SPDX-License-Identifier: Apache-2.0
// Messages between local ranks: whatever a process of this user sends, either exactly a message of the size that is
// due is taken, or none; files that come with it are closed.
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "base/clock.hpp"
#include "fuzz.hpp"
#include "memory/local_socket.hpp"

using namespace mxs;

namespace {

constexpr size_t message_bytes = 32;

}  // namespace

// The first byte: is a file sent, too?
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int sockets[2] = {-1, -1};
  if (sockets[0] < 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) != 0) return 0;
  if (size < 2 || size > 4096) return 0;
  const uint64_t deadline_ns = now_ns() + 1'000'000'000u;
  const bool with_file = data[0] & 1;
  if (send_with_file(sockets[1], data + 1, size - 1, with_file ? 0 : -1, deadline_ns) != MXS_OK) return 0;
  unsigned char message[message_bytes];
  std::memset(message, 0xa5, sizeof message);
  File file;
  const mxs_status status = receive_with_file(sockets[0], message, sizeof message, &file, deadline_ns);
  fuzz::promise((status == MXS_OK) == (size - 1 == message_bytes));
  if (status == MXS_OK) fuzz::promise(std::memcmp(message, data + 1, message_bytes) == 0);
  fuzz::promise((file.get() >= 0) == (status == MXS_OK && with_file));
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {std::string(1, 0) + std::string(message_bytes, 'm'), std::string(1, 1) + std::string(message_bytes, 'n'),
          std::string(1, 1) + std::string(message_bytes + 1, 'o'), std::string(1, 0) + "short"};
}
