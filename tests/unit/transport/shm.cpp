// SPDX-License-Identifier: Apache-2.0
// shm as processes and as threads: order, sizes from nothing to many slots, windows, and peers that are lost.
#include <memory>
#include <string>
#include <vector>

#include "memory/domain.hpp"
#include "support/complaints.hpp"
#include "support/local_world.hpp"
#include "transport/transport.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::error_of;
using mxs::testing::World;

namespace {

constexpr int window = 4;
constexpr int lane = 2;  // any
constexpr uint64_t second_ns = 1'000'000'000;
const Transport &shm = shm_transport;

struct Rank {
  std::unique_ptr<Domain> domain;
  Link *link = nullptr;
  ~Rank() { shm.close(link, second_ns); }

  mxs_status join(Bootstrap &bootstrap) {
    std::vector<int> ranks, peers;
    for (int rank = 0; rank < bootstrap.rank_count(); rank++) {
      ranks.push_back(rank);
      if (rank != bootstrap.rank()) peers.push_back(rank);
    }
    mxs_status status = create_domain(&domain, bootstrap, ranks, 99, 60 * second_ns);
    if (status != MXS_OK) return status;
    LinkOptions options;
    options.rank = bootstrap.rank();
    options.rank_count = bootstrap.rank_count();
    options.window_max = window;
    options.domain = domain.get();
    std::vector<std::byte> address;
    status = shm.open(&link, options, &address);
    return status == MXS_OK ? shm.connect(link, {}, peers) : status;
  }
};

// Around a slot (256 KiB for few ranks, 16 KiB at least), and far above a whole ring of 8.
constexpr size_t sizes[] = {0, 1, 13, 4096, 16383, 16384, 16385, 100'000, 262'143, 262'144, 262'145, 3'000'001};
constexpr uint64_t message_count = 2 * std::size(sizes);
constexpr size_t size_most = 3'000'001;

std::byte pattern(size_t at, uint64_t number, int rank) {
  return static_cast<std::byte>((at * 2654435761u >> 9) + 7 * number + 31 * rank);
}

struct Stream {
  std::vector<std::vector<std::byte>> data, landing;
  uint64_t posted = 0, wanted = 0, got = 0;
};

std::string check(const Arrival &arrival, uint64_t number, int peer) {
  const size_t bytes = sizes[number % std::size(sizes)];
  if (arrival.bytes != bytes || arrival.tag != number * 3)
    return "another message than number " + std::to_string(number);
  const auto *data = static_cast<const std::byte *>(arrival.data);
  for (size_t i = 0; i < bytes; i++)
    if (data[i] != pattern(i, number, peer))
      return "byte " + std::to_string(i) + " of number " + std::to_string(number);
  return "";
}

// Every rank sends a stream of messages of all sizes to every other, as fast as the window lets it.
std::string exchange(int rank, Bootstrap &bootstrap) {
  Rank self;
  if (self.join(bootstrap) != MXS_OK) return error_of("join");
  std::vector<Stream> streams(bootstrap.rank_count());
  for (Stream &stream : streams) {
    stream.data.resize(window, std::vector<std::byte>(size_most));
    stream.landing.resize(window, std::vector<std::byte>(size_most));
  }
  for (bool finished = false; !finished;) {
    if (shm.progress(self.link) != MXS_OK) return error_of("progress");
    finished = true;
    bool moved = false;
    for (int peer = 0; peer < bootstrap.rank_count(); peer++) {
      if (peer == rank) continue;
      Stream &stream = streams[peer];
      while (stream.posted < message_count && stream.posted - shm.sent(self.link, peer, lane) < window) {
        const size_t bytes = sizes[stream.posted % std::size(sizes)];
        std::vector<std::byte> &data = stream.data[stream.posted % window];
        for (size_t i = 0; i < bytes; i++) data[i] = pattern(i, stream.posted, rank);
        if (shm.send(self.link, peer, lane, stream.posted * 3, data.data(), bytes) != MXS_OK) return error_of("send");
        stream.posted++;
        moved = true;
      }
      for (; stream.wanted < message_count && stream.wanted < stream.got + window; stream.wanted++)
        if (shm.receive(self.link, peer, lane, stream.landing[stream.wanted % window].data(), size_most) != MXS_OK)
          return error_of("receive");
      while (const Arrival *arrival = shm.arrived(self.link, peer, lane)) {
        const std::string complaint = check(*arrival, stream.got, peer);
        if (!complaint.empty()) return "from " + std::to_string(peer) + ": " + complaint;
        shm.retire(self.link, peer, lane);
        stream.got++;
        moved = true;
      }
      finished &= stream.got == message_count && shm.sent(self.link, peer, lane) == message_count;
    }
    if (!finished && !moved) shm.sleep(self.link, second_ns / 20);
  }
  return "";
}

bool exchanges_in_worlds() {
  for (const bool threads : {true, false})
    for (const int rank_count : {2, 3, 4}) {
      World world(rank_count);
      const std::string complaint = threads ? world.run_threads(exchange) : world.run_processes(exchange);
      if (complaint.empty()) continue;
      print_error("%d %s: %s\n", rank_count, threads ? "threads" : "processes", complaint.c_str());
      return false;
    }
  return true;
}

bool content(int rank_count, const World::Body &body, const std::function<void(World &)> &meanwhile = {},
             int may_die = -1) {
  World world(rank_count);
  std::function<void()> action;
  if (meanwhile) action = [&] { meanwhile(world); };
  const std::string complaint = world.run_processes(body, action, may_die);
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

bool limits_are_kept() {
  return content(2, [](int rank, Bootstrap &bootstrap) -> std::string {
    Rank self;
    if (self.join(bootstrap) != MXS_OK) return error_of("join");
    const int peer = 1 - rank;
    const std::vector<std::byte> large(4 << 20);
    // The first one fills the ring and stays, so the window fills up behind it.
    for (int i = 0; i < window; i++)
      if (shm.send(self.link, peer, lane, 1, large.data(), large.size()) != MXS_OK) return error_of("send");
    if (shm.send(self.link, peer, lane, 1, large.data(), 1) != MXS_INTERNAL) return "one above the window";
    if (shm.arrived(self.link, peer, lane)) return "shown without a receive";
    // A landing that is too small is found out, not overrun.
    std::vector<std::byte> landing(1000, std::byte{0xee});
    if (shm.receive(self.link, peer, lane, landing.data(), landing.size()) != MXS_OK) return error_of("receive");
    const uint64_t deadline = now_ns() + 60 * second_ns;
    mxs_status status = MXS_OK;
    while (status == MXS_OK && now_ns() < deadline) status = shm.progress(self.link);
    if (status != MXS_MISMATCH || landing[0] != std::byte{0xee}) return error_of("mismatch");
    char word = 0;
    std::vector<char> words(2);
    bootstrap.all_gather(&word, words.data(), 1);
    return "";
  });
}

void meet(Bootstrap &bootstrap) {
  std::vector<char> words(static_cast<size_t>(bootstrap.rank_count()));
  bootstrap.all_gather("x", words.data(), 1);
}

// A lane full of messages that nobody takes holds up no other.
bool a_full_lane_is_passed() {
  return content(2, [](int rank, Bootstrap &bootstrap) -> std::string {
    Rank self;
    if (self.join(bootstrap) != MXS_OK) return error_of("join");
    const std::vector<std::byte> large(4 << 20);
    const uint64_t word = 42;
    uint64_t landing = 0;
    if (rank == 0) {
      for (int i = 0; i < window; i++)
        if (shm.send(self.link, 1, 0, 1, large.data(), large.size()) != MXS_OK) return error_of("send");
      for (int other = 1; other < lane_count; other++)
        if (shm.send(self.link, 1, other, 7, &word, sizeof word) != MXS_OK) return error_of("send");
    }
    meet(bootstrap);
    for (int other = 1; rank == 1 && other < lane_count; other++) {
      shm.receive(self.link, 0, other, &landing, sizeof landing);
      if (shm.progress(self.link) != MXS_OK) return error_of("progress");
      const Arrival *arrival = shm.arrived(self.link, 0, other);
      if (!arrival || *static_cast<const uint64_t *>(arrival->data) != 42) return "it is held up";
      shm.retire(self.link, 0, other);
    }
    meet(bootstrap);
    return "";
  });
}

bool a_message_outlives_its_sender() {
  return content(2, [](int rank, Bootstrap &bootstrap) -> std::string {
    Rank self;
    if (self.join(bootstrap) != MXS_OK) return error_of("join");
    const uint64_t word = 42;
    if (rank == 0) return shm.send(self.link, 1, lane, 7, &word, sizeof word) == MXS_OK ? "" : error_of("send");
    usleep(100'000);  // it has left by now
    uint64_t landing = 0;
    shm.receive(self.link, 0, lane, &landing, sizeof landing);
    const Arrival *arrival = shm.arrived(self.link, 0, lane);
    if (!arrival || *static_cast<const uint64_t *>(arrival->data) != 42) return "the message is lost";
    shm.retire(self.link, 0, lane);
    if (shm.progress(self.link) != MXS_OK) return error_of("nothing is waited for");
    shm.receive(self.link, 0, lane, &landing, sizeof landing);
    const uint64_t deadline = now_ns() + 60 * second_ns;
    mxs_status status = MXS_OK;
    while (status == MXS_OK && now_ns() < deadline) {
      status = shm.progress(self.link);
      shm.sleep(self.link, second_ns / 20);
    }
    return status == MXS_PEER_FAILED && std::strstr(last_error_text(), "rank 0") ? "" : error_of("status");
  });
}

bool a_killed_peer_is_found() {
  const auto body = [](int rank, Bootstrap &bootstrap) -> std::string {
    Rank self;
    if (self.join(bootstrap) != MXS_OK) return error_of("join");
    if (rank == 1) {
      kill(getpid(), SIGKILL);
    }
    uint64_t landing = 0;
    shm.receive(self.link, 1, lane, &landing, sizeof landing);
    const uint64_t deadline = now_ns() + 60 * second_ns;
    mxs_status status = MXS_OK;
    while (status == MXS_OK && now_ns() < deadline) {
      status = shm.progress(self.link);
      if (status == MXS_OK) shm.sleep(self.link, second_ns / 20);
    }
    return status == MXS_PEER_FAILED && std::strstr(last_error_text(), "rank 1 has died") ? "" : error_of("status");
  };
  return content(3, body, {}, 1);
}

bool no_domain_is_an_error() {
  LinkOptions options;
  options.rank_count = 2;
  Link *link = nullptr;
  std::vector<std::byte> address;
  return shm.open(&link, options, &address) == MXS_INVALID_ARGUMENT && !link;
}

void every_size_arrives_in_order(void **) { assert_true(exchanges_in_worlds()); }
void a_full_lane_holds_up_no_other(void **) { assert_true(a_full_lane_is_passed()); }
void window_and_landing_are_kept(void **) { assert_true(limits_are_kept()); }
void a_message_can_be_read_after_its_sender_has_left(void **) { assert_true(a_message_outlives_its_sender()); }
void a_killed_peer_is_named(void **) { assert_true(a_killed_peer_is_found()); }
void a_rank_without_local_peers_cannot_open_it(void **) { assert_true(no_domain_is_an_error()); }
void it_is_in_the_list(void **) { assert_ptr_equal(find_transport("shm"), &shm_transport); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_size_arrives_in_order),
      cmocka_unit_test(window_and_landing_are_kept),
      cmocka_unit_test(a_full_lane_holds_up_no_other),
      cmocka_unit_test(a_message_can_be_read_after_its_sender_has_left),
      cmocka_unit_test(a_killed_peer_is_named),
      cmocka_unit_test(a_rank_without_local_peers_cannot_open_it),
      cmocka_unit_test(it_is_in_the_list),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
