// SPDX-License-Identifier: Apache-2.0
// Loopback alone: order, windows, retire, hanging up, and sleep.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "support/complaints.hpp"
#include "transport/transport.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::words;

namespace {

constexpr int window = 4;
constexpr int lane = 2;  // any
const Transport &loopback = loopback_transport;

// All ranks' links of one session, connected each with each.
struct Net {
  std::vector<Link *> links;
  std::string complaint;

  Net(int rank_count, uint64_t session) : links(static_cast<size_t>(rank_count)) {
    std::vector<std::vector<std::byte>> addresses(links.size());
    for (int rank = 0; rank < rank_count; ++rank) {
      LinkOptions options;
      options.rank = rank;
      options.rank_count = rank_count;
      options.session = session;
      options.window_max = window;
      if (loopback.open(&links[static_cast<size_t>(rank)], options, &addresses[static_cast<size_t>(rank)]) != MXS_OK)
        complaint = last_error_text();
    }
    for (int rank = 0; rank < rank_count; ++rank) {
      std::vector<int> peers;
      for (int peer = 0; peer < rank_count; ++peer)
        if (peer != rank) peers.push_back(peer);
      if (loopback.connect(links[static_cast<size_t>(rank)], addresses, peers) != MXS_OK)
        complaint = last_error_text();
    }
  }
  ~Net() {
    for (Link *link : links) loopback.close(link, 0);
  }
};

constexpr uint64_t message_count = 2000;

// Every rank sends a stream of numbers to every other, as fast as the window lets it, and checks what it gets.
std::string exchange(Link *link, int rank, int rank_count) {
  const size_t count = static_cast<size_t>(rank_count);
  std::vector<std::vector<uint64_t>> data(count, std::vector<uint64_t>(window));
  std::vector<uint64_t> posted(count), wanted(count), got(count);
  for (;;) {
    if (loopback.progress(link) != MXS_OK) return last_error_text();
    bool finished = true, moved = false;
    for (int peer = 0; peer < rank_count; ++peer) {
      if (peer == rank) continue;
      const size_t p = static_cast<size_t>(peer);
      while (posted[p] < message_count && posted[p] - loopback.sent(link, peer, lane) < window) {
        uint64_t &word = data[p][posted[p] % window];
        word = posted[p] * 1000 + static_cast<uint64_t>(rank);
        if (loopback.send(link, peer, lane, posted[p], &word, sizeof word) != MXS_OK) return last_error_text();
        ++posted[p];
        moved = true;
      }
      for (; wanted[p] < message_count && wanted[p] < got[p] + window; ++wanted[p])
        loopback.receive(link, peer, lane, nullptr, sizeof(uint64_t));
      while (const Arrival *arrival = loopback.arrived(link, peer, lane)) {
        uint64_t word = 0;
        std::memcpy(&word, arrival->data, sizeof word);
        if (arrival->bytes != sizeof word || arrival->tag != got[p] ||
            word != got[p] * 1000 + static_cast<uint64_t>(peer))
          return words("rank %d: message %zu of rank %d is wrong", rank, static_cast<size_t>(got[p]), peer);
        loopback.retire(link, peer, lane);
        ++got[p];
        moved = true;
      }
      finished &= got[p] == message_count && loopback.sent(link, peer, lane) == message_count;
    }
    if (finished) return "";
    if (!moved) loopback.sleep(link, 1'000'000'000);
  }
}

bool threads_exchange_streams(int rank_count) {
  Net net(rank_count, 70 + static_cast<uint64_t>(rank_count));
  std::vector<std::string> complaints(static_cast<size_t>(rank_count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < rank_count; ++rank)
    threads.emplace_back([&, rank] {
      const size_t r = static_cast<size_t>(rank);
      complaints[r] = exchange(net.links[r], rank, rank_count);
    });
  for (std::thread &thread : threads) thread.join();
  for (const std::string &complaint : complaints)
    if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  for (const std::string &complaint : complaints)
    if (!complaint.empty()) return false;
  return net.complaint.empty();
}

bool nothing_shows_before_a_receive_is_posted() {
  Net net(2, 11);
  const int word = 7;
  if (loopback.send(net.links[0], 1, lane, 5, &word, sizeof word) != MXS_OK) return false;
  if (loopback.arrived(net.links[1], 0, lane)) return false;
  loopback.receive(net.links[1], 0, lane, nullptr, sizeof word);
  const Arrival *arrival = loopback.arrived(net.links[1], 0, lane);
  if (!arrival || arrival->data != &word || arrival->tag != 5) return false;
  if (loopback.sent(net.links[0], 1, lane) != 0) return false;
  loopback.retire(net.links[1], 0, lane);
  return loopback.sent(net.links[0], 1, lane) == 1 && !loopback.arrived(net.links[1], 0, lane);
}

bool one_message_above_the_window_is_refused() {
  Net net(2, 12);
  const int word = 7;
  for (int i = 0; i < window; ++i)
    if (loopback.send(net.links[0], 1, lane, 0, &word, sizeof word) != MXS_OK) return false;
  return loopback.send(net.links[0], 1, lane, 0, &word, sizeof word) == MXS_INTERNAL;
}

bool a_full_lane_holds_up_no_other() {
  Net net(2, 15);
  const int word = 7;
  for (int i = 0; i < window; ++i)
    if (loopback.send(net.links[0], 1, 0, 0, &word, sizeof word) != MXS_OK) return false;
  for (int other = 1; other < lane_count; ++other) {
    if (loopback.send(net.links[0], 1, other, static_cast<uint64_t>(other), &word, sizeof word) != MXS_OK) return false;
    loopback.receive(net.links[1], 0, other, nullptr, sizeof word);
    const Arrival *arrival = loopback.arrived(net.links[1], 0, other);
    if (!arrival || arrival->tag != static_cast<uint64_t>(other)) return false;
    loopback.retire(net.links[1], 0, other);
    if (loopback.sent(net.links[0], 1, other) != 1 || loopback.sent(net.links[0], 1, 0) != 0) return false;
  }
  return true;
}

bool a_peer_that_hangs_up_is_noticed_only_when_waited_for() {
  Net net(3, 13);
  loopback.close(net.links[0], 0);
  net.links[0] = nullptr;
  if (loopback.progress(net.links[1]) != MXS_OK) return false;
  loopback.receive(net.links[2], 0, lane, nullptr, 4);
  return loopback.progress(net.links[2]) == MXS_PEER_FAILED && std::strstr(last_error_text(), "rank 0");
}

bool another_process_is_refused() {
  LinkOptions options;
  options.rank_count = 2;
  options.session = 14;
  std::vector<std::vector<std::byte>> addresses(2);
  Link *link = nullptr;
  if (loopback.open(&link, options, &addresses[0]) != MXS_OK) return false;
  addresses[1] = addresses[0];
  addresses[1][0] ^= std::byte{1};
  const bool refused = loopback.connect(link, addresses, {1}) == MXS_INVALID_ARGUMENT;
  loopback.close(link, 0);
  return refused;
}

void streams_arrive_in_order(void **) {
  assert_true(threads_exchange_streams(2));
  assert_true(threads_exchange_streams(5));
}
void a_message_waits_for_its_receive(void **) { assert_true(nothing_shows_before_a_receive_is_posted()); }
void the_window_is_kept(void **) { assert_true(one_message_above_the_window_is_refused()); }
void lanes_are_apart(void **) { assert_true(a_full_lane_holds_up_no_other()); }
void hanging_up_is_noticed(void **) { assert_true(a_peer_that_hangs_up_is_noticed_only_when_waited_for()); }
void processes_are_told_to_use_something_else(void **) { assert_true(another_process_is_refused()); }

void names_are_found(void **) {
  assert_ptr_equal(find_transport("loopback"), &loopback_transport);
  assert_null(find_transport("carrier pigeon"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(streams_arrive_in_order),        cmocka_unit_test(a_message_waits_for_its_receive),
      cmocka_unit_test(the_window_is_kept),             cmocka_unit_test(hanging_up_is_noticed),
      cmocka_unit_test(processes_are_told_to_use_something_else), cmocka_unit_test(names_are_found),
      cmocka_unit_test(lanes_are_apart),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
