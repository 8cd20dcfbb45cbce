// SPDX-License-Identifier: Apache-2.0
// What strangers say to a rank that listens, with a secret and without. The input's first byte chooses which and cuts
// the rest in two. Nobody who lacks the secret is believed; without one, nobody whose number is another.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "bootstrap/greeting.hpp"
#include "fuzz.hpp"
#include "matrixshard/version.h"

using namespace mxs;

namespace {

constexpr uint64_t number = 0x1122334455667788;

Occasion make_occasion(bool has_secret) {
  Occasion occasion;
  occasion.number = number;
  occasion.rank_count = 4;
  occasion.place = "here";
  const char text[] = "a secret of the target";
  if (has_secret && Secret::make(&occasion.secret, text, sizeof text - 1) != MXS_OK) occasion.secret = nullptr;
  return occasion;
}

std::string text_of(const Hello &hello) { return {reinterpret_cast<const char *>(&hello), sizeof hello}; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const Occasion occasions[2] = {make_occasion(false), make_occasion(true)};
  int ends[2];
  if (size == 0 || size > 4096 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 0;
  const Occasion &host = occasions[data[0] & 1];
  const size_t cut = std::min<size_t>(data[0] >> 1, size - 1);
  Stranger stranger(Socket{ends[0]}, now_ns());
  Stranger::State state = Stranger::State::more;
  mxs_status status = MXS_OK;
  const auto give = [&](size_t begin, size_t end) {
    if (state == Stranger::State::more && begin < end && write(ends[1], data + 1 + begin, end - begin) > 0)
      state = stranger.hear(host, now_ns(), &status);
  };
  give(0, cut);
  give(cut, size - 1);
  fuzz::promise(!host.secret || state != Stranger::State::proven);
  if (state == Stranger::State::proven) {
    fuzz::promise(stranger.hello().number == number && size - 1 >= sizeof(Hello));
    const mxs_status compared = compare_with_host(stranger.hello(), host);
    fuzz::promise(compared == MXS_OK || compared == MXS_MISMATCH);
  }
  if (state == Stranger::State::refused) fuzz::promise(status != MXS_OK && *last_error_text() != '\0');
  if (state == Stranger::State::left_word) fuzz::promise(host.secret == nullptr || size - 1 > sizeof(Hello));
  close(ends[1]);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  Hello hello{};
  std::memcpy(hello.magic, hello_magic, sizeof hello_magic);
  hello.version = MXS_VERSION;
  hello.rank = 1;
  hello.rank_count = 4;
  hello.number = number;
  hello.kind = OccasionKind::bootstrap;
  hello.greeting = greeting_version;
  const std::string plain = text_of(hello);
  hello.flags = hello_has_secret;
  hello.nonce.fill(7);
  const std::string secret = text_of(hello);
  const Frame frame = {FrameKind::proof, MXS_OK, 0, sizeof(Code)};
  const std::string proof =
      std::string(reinterpret_cast<const char *>(&frame), sizeof frame) + std::string(sizeof(Code), 'c');
  hello.number = 3;
  return {std::string(1, 0) + plain,         std::string(1, 40) + plain,         std::string(1, 1) + secret,
          std::string(1, '\x91') + secret + proof, std::string(1, 0) + secret, std::string(1, 1) + plain,
          std::string(1, 0) + text_of(hello)};
}
