// SPDX-License-Identifier: Apache-2.0
// Ranks that share memory: joining, sharing, claiming work, waiting, and what a lost peer does. As threads and as
// processes, which must not differ.
#include <algorithm>
#include <memory>
#include <string>

#include "memory/domain.hpp"
#include "support/complaints.hpp"
#include "support/local_world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::error_of;
using mxs::testing::World;

namespace {

constexpr uint64_t session = 0x1234;
constexpr uint64_t second_ns = 1'000'000'000;
constexpr uint64_t patience_ns = 60 * second_ns;  // for what must happen, on however busy a machine

std::vector<int> all_ranks(int rank_count) {
  std::vector<int> ranks(rank_count);
  for (int rank = 0; rank < rank_count; rank++) ranks[rank] = rank;
  return ranks;
}

void meet(Bootstrap &bootstrap) {
  const std::byte mine{};
  std::vector<std::byte> all(bootstrap.rank_count());
  bootstrap.all_gather(&mine, all.data(), 1);
}

// Runs as threads, then as processes.
bool both_ways(int rank_count, const World::Body &body) {
  for (const bool threads : {true, false}) {
    World world(rank_count);
    const std::string complaint = threads ? world.run_threads(body) : world.run_processes(body);
    if (complaint.empty()) continue;
    print_error("%d ranks as %s: %s\n", rank_count, threads ? "threads" : "processes", complaint.c_str());
    return false;
  }
  return true;
}

std::string share_and_look(int rank, Bootstrap &bootstrap) {
  std::unique_ptr<Domain> domain;
  const int rank_count = bootstrap.rank_count();
  if (create_domain(&domain, bootstrap, all_ranks(rank_count), session, patience_ns) != MXS_OK)
    return error_of("create");
  if (domain->local_rank() != rank || domain->local_count() != rank_count) return "wrong numbers";
  for (int turn = 0; turn < 3; turn++) {
    SharedRegion region;
    // The last rank shares nothing.
    const uint64_t bytes = rank == rank_count - 1 ? 0 : 5000u * (rank + 1);
    if (domain->share(bytes, "test", &region) != MXS_OK) return error_of("share");
    if (bytes) std::fill_n(region.at(rank), bytes, std::byte(10 * turn + rank));
    domain->counter(rank, 0).value.store(2 * turn + 1, std::memory_order_release);
    domain->post();
    for (int other = 0; other < rank_count; other++) {
      const auto ready = [&] { return domain->counter(other, 0).value.load() >= 2u * turn + 1; };
      if (domain->wait_until(ready, now_ns() + patience_ns, [&] { return other; }) != MXS_OK) return error_of("wait");
      const size_t others_bytes = other == rank_count - 1 ? 0 : 5000u * (other + 1);
      if ((region.mappings[other].bytes() != 0) != (others_bytes != 0)) return "a map of nothing";
      for (size_t i = 0; i < others_bytes; i++)
        if (region.at(other)[i] != std::byte(10 * turn + other)) return "other bytes";
    }
    domain->counter(rank, 0).value.store(2 * turn + 2, std::memory_order_release);
    domain->post();
  }
  return "";
}

bool shares_in_every_world() {
  for (const int rank_count : {1, 2, 3, 4, 7, 8})
    if (!both_ways(rank_count, share_and_look)) return false;
  return true;
}

// Two nodes on one machine, and a rank alone on a third.
bool nodes_stay_apart() {
  return both_ways(5, [](int rank, Bootstrap &bootstrap) -> std::string {
    const std::vector<int> nodes[] = {{0, 3}, {1, 4}, {2}};
    const std::vector<int> &mine = nodes[rank % 3];
    std::unique_ptr<Domain> domain;
    if (create_domain(&domain, bootstrap, mine, session, patience_ns) != MXS_OK) return error_of("create");
    SharedRegion region;
    if (domain->share(4096, "test", &region) != MXS_OK) return error_of("share");
    if (domain->local_rank_of(rank) != domain->local_rank() || domain->local_rank_of(7) != -1) return "wrong numbers";
    return domain->local_count() == static_cast<int>(mine.size()) ? "" : "wrong count";
  });
}

bool different_nodes_are_a_mismatch() {
  return both_ways(3, [](int rank, Bootstrap &bootstrap) -> std::string {
    std::unique_ptr<Domain> domain;
    const std::vector<int> ranks = rank == 2 ? std::vector<int>{1, 2} : std::vector<int>{0, 1, 2};
    if (create_domain(&domain, bootstrap, ranks, session, patience_ns) != MXS_MISMATCH) return error_of("status");
    return domain ? "something was made" : "";
  });
}

// As in two containers of a host: the last rank can't reach the others' sockets, and all are told by which sentence.
bool another_network_is_another_node() {
  World world(3);
  const std::string complaint = world.run_processes([&](int rank, Bootstrap &bootstrap) -> std::string {
    if (rank == 2 && unshare(CLONE_NEWNET) != 0) world.board().flags[0] = 1;
    meet(bootstrap);
    if (world.board().flags[0]) return "";
    std::unique_ptr<Domain> domain;
    if (create_domain(&domain, bootstrap, {0, 1, 2}, session, 2 * second_ns) != MXS_SYSTEM) return error_of("status");
    return !domain && std::strstr(last_error_text(), "rank 2") ? "" : error_of("sentence");
  });
  if (world.board().flags[0]) print_message("not allowed to make a network namespace: nothing was tested\n");
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

bool other_order_of_shares_is_a_mismatch() {
  return both_ways(2, [](int rank, Bootstrap &bootstrap) -> std::string {
    std::unique_ptr<Domain> domain;
    if (create_domain(&domain, bootstrap, {0, 1}, session, patience_ns) != MXS_OK) return error_of("create");
    SharedRegion region;
    if (domain->share(4096, rank ? "one" : "two", &region) != MXS_MISMATCH) return error_of("status");
    return region.files.empty() ? "" : "the output was changed";
  });
}

bool no_memory_on_one_is_an_error_on_all() {
  return both_ways(3, [](int rank, Bootstrap &bootstrap) -> std::string {
    std::unique_ptr<Domain> domain;
    if (create_domain(&domain, bootstrap, {0, 1, 2}, session, patience_ns) != MXS_OK) return error_of("create");
    SharedRegion region;
    const uint64_t bytes = rank == 1 ? UINT64_MAX : 4096;
    if (domain->share(bytes, "test", &region) != MXS_INVALID_ARGUMENT) return error_of("status");
    if (rank != 1 && !std::strstr(last_error_text(), "rank 1")) return error_of("the rank isn't named");
    return "";
  });
}

// Every chunk of every operation is taken once, also by ranks that are a whole ring of operations apart.
bool chunks_are_taken_once() {
  constexpr int operations = 300, chunks = 5, rank_count = 4;
  for (const bool threads : {true, false}) {
    World world(rank_count);
    // Counted in the parent's shared board: one word per operation and chunk would not fit, sums do.
    const auto body = [&](int rank, Bootstrap &bootstrap) -> std::string {
      std::unique_ptr<Domain> domain;
      if (create_domain(&domain, bootstrap, all_ranks(rank_count), session, patience_ns) != MXS_OK)
        return error_of("create");
      for (uint64_t sequence = 1; sequence <= operations; sequence++) {
        // A rank may be ahead of others by the whole window, never more: that is the queue's promise.
        const auto may_start = [&] {
          return sequence <= Domain::operation_window ||
                 domain->finished(sequence - Domain::operation_window, chunks);
        };
        if (domain->wait_until(may_start, now_ns() + patience_ns, [] { return -1; }) != MXS_OK)
          return error_of("window");
        for (uint32_t chunk = 0; (chunk = domain->claim(sequence, chunks)) < chunks;) {
          world.board().flags[rank].fetch_add((sequence % 7 + 1) * (chunk + 1));
          if (rank == 2 && sequence % 50 == 0) usleep(2000);
          domain->finish(sequence, chunks);
        }
      }
      const auto done = [&] { return domain->finished(operations, chunks); };
      return domain->wait_until(done, now_ns() + patience_ns, [] { return -1; }) == MXS_OK ? "" : error_of("end");
    };
    const std::string complaint = threads ? world.run_threads(body) : world.run_processes(body);
    uint64_t sum = 0, expected = 0;
    for (int rank = 0; rank < rank_count; rank++) sum += world.board().flags[rank];
    for (uint64_t sequence = 1; sequence <= operations; sequence++)
      for (uint64_t chunk = 0; chunk < chunks; chunk++) expected += (sequence % 7 + 1) * (chunk + 1);
    if (complaint.empty() && sum == expected) continue;
    print_error("%s: sum %llu of %llu; %s\n", threads ? "threads" : "processes", static_cast<unsigned long long>(sum),
                static_cast<unsigned long long>(expected), complaint.c_str());
    return false;
  }
  return true;
}

bool a_deadline_names_the_rank() {
  return both_ways(2, [](int rank, Bootstrap &bootstrap) -> std::string {
    std::unique_ptr<Domain> domain;
    if (create_domain(&domain, bootstrap, {0, 1}, session, patience_ns) != MXS_OK) return error_of("create");
    std::string complaint;
    if (rank == 0) {
      const mxs_status status =
          domain->wait_until([] { return false; }, now_ns() + second_ns / 5, [] { return 1; });
      if (status != MXS_TIMED_OUT || !std::strstr(last_error_text(), "rank 1")) complaint = error_of("status");
    }
    meet(bootstrap);
    return complaint;
  });
}

bool who_left_in_order_is_missed_only_when_needed() {
  return both_ways(3, [](int rank, Bootstrap &bootstrap) -> std::string {
    std::unique_ptr<Domain> domain;
    if (create_domain(&domain, bootstrap, {0, 1, 2}, session, patience_ns) != MXS_OK) return error_of("create");
    if (rank == 2) return "";
    std::string complaint;
    mxs_status status = domain->wait_until([] { return false; }, now_ns() + patience_ns, [] { return 2; });
    if (status != MXS_PEER_FAILED || !std::strstr(last_error_text(), "rank 2 has left")) complaint = error_of("needed");
    usleep(20'000);  // its process is gone by now, too
    if (domain->check_peers() != MXS_OK) complaint = error_of("not needed");
    domain->counter(rank, 0).value.store(1);
    domain->post();
    const auto ready = [&] { return domain->counter(1 - rank, 0).value.load() == 1; };
    if (domain->wait_until(ready, now_ns() + patience_ns, [&] { return 1 - rank; }) != MXS_OK)
      complaint = error_of("the other");
    return complaint;
  });
}

// It gives and leaves between another's look for that and its check of peers.
bool what_a_rank_gave_before_it_left_is_looked_for_once_more() {
  return both_ways(2, [](int rank, Bootstrap &bootstrap) -> std::string {
    std::unique_ptr<Domain> domain;
    if (create_domain(&domain, bootstrap, {0, 1}, session, patience_ns) != MXS_OK) return error_of("create");
    if (rank == 1) {
      domain->counter(1, 0).value.store(1);
      domain->post();
      domain.reset();
    }
    meet(bootstrap);
    if (rank == 1) return "";
    if (domain->check_peers(1) != MXS_OK) return error_of("the first check");
    if (domain->counter(1, 0).value.load() != 1) return "what it gave isn't there";
    const bool told = domain->check_peers(1) == MXS_PEER_FAILED && std::strstr(last_error_text(), "rank 1 has left");
    return told ? "" : "it isn't told that rank 1 has left";
  });
}

bool a_failure_is_told() {
  return both_ways(2, [](int rank, Bootstrap &bootstrap) -> std::string {
    std::unique_ptr<Domain> domain;
    if (create_domain(&domain, bootstrap, {0, 1}, session, patience_ns) != MXS_OK) return error_of("create");
    std::string complaint;
    if (rank == 1) domain->announce_failure("out of luck");
    if (rank == 0) {
      const mxs_status status = domain->wait_until([] { return false; }, now_ns() + patience_ns, [] { return -1; });
      if (status != MXS_PEER_FAILED || !std::strstr(last_error_text(), "rank 1 has failed: out of luck"))
        complaint = error_of("status");
    }
    meet(bootstrap);
    return complaint;
  });
}

bool another_thread_can_interrupt() {
  World world(1);
  const std::string complaint = world.run_threads([](int, Bootstrap &bootstrap) -> std::string {
    std::unique_ptr<Domain> domain;
    if (create_domain(&domain, bootstrap, {0}, session, patience_ns) != MXS_OK) return error_of("create");
    std::thread interrupter([&] {
      usleep(10'000);
      domain->interrupt();
    });
    const mxs_status status = domain->wait_until([] { return false; }, now_ns() + patience_ns, [] { return -1; });
    interrupter.join();
    return status == MXS_ABORTED ? "" : error_of("status");
  });
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

// signal_number: SIGKILL (seen by the dead process) or SIGSTOP (only the deadline tells).
bool lost_peer_is_noticed(int signal_number, mxs_status expected) {
  World world(3);
  const auto body = [&](int rank, Bootstrap &bootstrap) -> std::string {
    std::unique_ptr<Domain> domain;
    if (create_domain(&domain, bootstrap, {0, 1, 2}, session, patience_ns) != MXS_OK) return error_of("create");
    world.board().flags[rank].store(1);
    if (rank == 1) {
      pause();
      return "";
    }
    const uint64_t at_most_ns = expected == MXS_TIMED_OUT ? 2 * second_ns : patience_ns;
    const mxs_status status =
        domain->wait_until([] { return false; }, now_ns() + at_most_ns, [] { return 1; });
    return status == expected && std::strstr(last_error_text(), "rank 1") ? "" : error_of("status");
  };
  const auto meanwhile = [&] {
    for (int rank = 0; rank < 3; rank++)
      while (world.board().flags[rank].load() == 0) usleep(1000);
    usleep(100'000);  // all are asleep
    kill(world.process(1), signal_number);
  };
  const std::string complaint = world.run_processes(body, meanwhile, 1);
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

void every_rank_maps_every_other_ranks_memory(void **) { assert_true(shares_in_every_world()); }
void ranks_of_different_nodes_do_not_meet(void **) { assert_true(nodes_stay_apart()); }
void ranks_that_disagree_who_is_local_get_an_error(void **) { assert_true(different_nodes_are_a_mismatch()); }
void ranks_of_another_network_get_an_error_on_all(void **) { assert_true(another_network_is_another_node()); }
void shares_in_another_order_are_a_mismatch(void **) { assert_true(other_order_of_shares_is_a_mismatch()); }
void no_memory_on_one_rank_is_an_error_on_all(void **) { assert_true(no_memory_on_one_is_an_error_on_all()); }
void each_chunk_is_taken_once_however_far_apart_ranks_are(void **) { assert_true(chunks_are_taken_once()); }
void a_wait_ends_at_its_deadline_and_names_the_rank(void **) { assert_true(a_deadline_names_the_rank()); }
void a_rank_that_left_is_a_failure_only_if_needed(void **) {
  assert_true(who_left_in_order_is_missed_only_when_needed());
}
void what_a_rank_gave_before_it_left_is_not_missed(void **) {
  assert_true(what_a_rank_gave_before_it_left_is_looked_for_once_more());
}
void a_failure_that_is_announced_ends_the_waits_of_others(void **) { assert_true(a_failure_is_told()); }
void a_wait_can_be_interrupted_by_another_thread(void **) { assert_true(another_thread_can_interrupt()); }
void a_killed_peer_is_noticed_and_named(void **) { assert_true(lost_peer_is_noticed(SIGKILL, MXS_PEER_FAILED)); }
void a_stopped_peer_is_noticed_at_the_deadline(void **) { assert_true(lost_peer_is_noticed(SIGSTOP, MXS_TIMED_OUT)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_rank_maps_every_other_ranks_memory),
      cmocka_unit_test(ranks_of_different_nodes_do_not_meet),
      cmocka_unit_test(ranks_that_disagree_who_is_local_get_an_error),
      cmocka_unit_test(ranks_of_another_network_get_an_error_on_all),
      cmocka_unit_test(shares_in_another_order_are_a_mismatch),
      cmocka_unit_test(no_memory_on_one_rank_is_an_error_on_all),
      cmocka_unit_test(each_chunk_is_taken_once_however_far_apart_ranks_are),
      cmocka_unit_test(a_wait_ends_at_its_deadline_and_names_the_rank),
      cmocka_unit_test(a_rank_that_left_is_a_failure_only_if_needed),
      cmocka_unit_test(what_a_rank_gave_before_it_left_is_not_missed),
      cmocka_unit_test(a_failure_that_is_announced_ends_the_waits_of_others),
      cmocka_unit_test(a_wait_can_be_interrupted_by_another_thread),
      cmocka_unit_test(a_killed_peer_is_noticed_and_named),
      cmocka_unit_test(a_stopped_peer_is_noticed_at_the_deadline),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
