// SPDX-License-Identifier: Apache-2.0
// Control messages and notices between UCX links. The input: our tag, then the message. Whatever they say, counts never
// go back, and nobody hears of a rank that is not there.
#include <cstring>

#include "fuzz.hpp"
#include "transport/ucx/link.hpp"

using namespace mxs;

namespace {

std::string text_of(uint64_t tag, const void *message, size_t bytes) {
  return std::string(reinterpret_cast<const char *>(&tag), sizeof tag)
      .append(static_cast<const char *>(message), bytes);
}

}  // namespace

// Several messages of at most 200 bytes, one after the other: each begins with its length.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  UcxLink link;
  link.peers.resize(3);
  link.busy.reserve(3);
  for (int rank : {1, 2}) {
    link.peers[static_cast<size_t>(rank)] = std::make_unique<UcxPeer>();
    link.peers[static_cast<size_t>(rank)]->link = &link;
    link.peers[static_cast<size_t>(rank)]->rank = rank;
  }
  UcxControl before[3] = {};
  while (size > 1 + sizeof(uint64_t)) {
    const size_t bytes = std::min<size_t>(data[0], size - 1 - sizeof(uint64_t));
    uint64_t tag = 0;
    std::memcpy(&tag, data + 1, sizeof tag);
    const std::vector<uint8_t> message(data + 1 + sizeof tag, data + 1 + sizeof tag + bytes);
    hear_ucx_control(link, message.data(), bytes, tag);
    data += 1 + sizeof tag + bytes;
    size -= 1 + sizeof tag + bytes;
    for (size_t rank : {1, 2}) {
      const UcxControl &heard = link.peers[rank]->heard;
      for (int lane = 0; lane < lane_count; ++lane)
        fuzz::promise(heard.posted[lane] >= before[rank].posted[lane] &&
                      heard.completed[lane] >= before[rank].completed[lane]);
      fuzz::promise(heard.leaving >= before[rank].leaving);
      before[rank] = heard;
    }
    fuzz::promise(link.busy.size() <= 2 && link.notices >= 0 && link.notices <= 2);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  UcxControl control{};
  for (int lane = 0; lane < lane_count; ++lane) control.posted[lane] = control.sent[lane] = 4;
  Notice notice{};
  notice.words[0] = 5;
  const auto one = [](const std::string &text) {
    return std::string(1, static_cast<char>(text.size() - sizeof(uint64_t))) + text;
  };
  const uint64_t from_1 = uint64_t{1} << ucx_source_shift, from_2 = uint64_t{2} << ucx_source_shift;
  const std::string first = one(text_of(from_1, &control, sizeof control));
  control.leaving = 1;
  return {first, first + one(text_of(from_1, &control, sizeof control)),
          one(text_of(from_2 | 1, &notice, sizeof notice)), one(text_of(from_2 << 3, &notice, sizeof notice))};
}
