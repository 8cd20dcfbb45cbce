// SPDX-License-Identifier: Apache-2.0
// The TCP store, with ranks as threads of this process: worlds, strangers, doubles, the missing and the dead.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/greeting.hpp"
#include "bootstrap/store_wire.hpp"
#include "matrixshard/version.h"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"
#include "unit/bootstrap/gathers.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::expect;
using mxs::test::free_port;
using mxs::test::gathers;
using mxs::test::good;

namespace {

constexpr uint64_t second_ns = 1'000'000'000;

JobEnvironment job_of(int rank, int rank_count, int port) {
  JobEnvironment job;
  job.launcher = "torchrun";
  job.rank = rank;
  job.rank_count = rank_count;
  job.address = "127.0.0.1";
  job.port = port;
  job.job = 42;
  return job;
}

// Runs the bodies at once, one a thread; the first complaint.
std::string at_once(const std::vector<std::function<std::string()>> &bodies) {
  std::vector<std::string> complaints(bodies.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < bodies.size(); ++i) threads.emplace_back([&, i] { complaints[i] = bodies[i](); });
  for (std::thread &thread : threads) thread.join();
  for (size_t i = 0; i < bodies.size(); ++i)
    if (!complaints[i].empty()) return "thread " + std::to_string(i) + ": " + complaints[i];
  return "";
}

using Body = std::function<std::string(Bootstrap &)>;

std::function<std::string()> rank_of(int rank, int rank_count, int port, const Body &body,
                                     uint64_t timeout_ns = 60 * second_ns) {
  return [=]() -> std::string {
    std::unique_ptr<Bootstrap> bootstrap;
    if (create_store_bootstrap(&bootstrap, job_of(rank, rank_count, port), timeout_ns) != MXS_OK)
      return std::string("create: ") + last_error_text();
    return body(*bootstrap);
  };
}

std::function<std::string()> fails_as(int rank, int rank_count, int port, mxs_status status,
                                      const std::vector<std::string> &words, uint64_t timeout_ns = 60 * second_ns) {
  return [=]() -> std::string {
    std::unique_ptr<Bootstrap> bootstrap;
    const mxs_status got = create_store_bootstrap(&bootstrap, job_of(rank, rank_count, port), timeout_ns);
    if (bootstrap && got != MXS_OK) return "an output changed on failure";
    return expect(got, status, words);
  };
}

std::string run(int rank_count, const Body &body) {
  const int port = free_port();
  std::vector<std::function<std::string()>> bodies;
  for (int rank = 0; rank < rank_count; ++rank) bodies.push_back(rank_of(rank, rank_count, port, body));
  return at_once(bodies);
}

// A connection that says what a test wants; -1 if nobody listens yet.
int dial(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  for (int tries = 0; tries < 12000; ++tries) {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(connection, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0) return connection;
    close(connection);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return -1;
}

Hello hello_of(int rank, int rank_count) {
  Hello hello = {{}, MXS_VERSION, rank, rank_count, 0, 42, OccasionKind::bootstrap, greeting_version, {}};
  std::memcpy(hello.magic, hello_magic, sizeof hello_magic);
  return hello;
}

void say(int connection, const void *data, size_t bytes) { (void)!send(connection, data, bytes, MSG_NOSIGNAL); }

// ---- processes ----

mxs_status check_until_failure(Bootstrap &bootstrap);

// A rank forks a helper and is killed; the helper lives on. All in processes; `helper` lies in shared memory.
std::string killed_with_a_helper(int rank, std::atomic<pid_t> *helper) {
  JobEnvironment job;
  std::unique_ptr<Bootstrap> bootstrap;
  if (read_job_environment(&job) != MXS_OK) return last_error_text();
  if (create_store_bootstrap(&bootstrap, job, 60 * second_ns) != MXS_OK) return last_error_text();
  if (bootstrap->barrier() != MXS_OK) return last_error_text();
  if (rank == 1) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      for (;;) pause();
    }
    helper->store(child);
    raise(SIGKILL);
  }
  const std::string complaint = expect(check_until_failure(*bootstrap), MXS_PEER_FAILED, {"rank 1", "hung up"});
  kill(helper->load(), SIGKILL);
  return complaint;
}

bool death_shows_in_spite_of_a_helper() {
  void *memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto *helper = new (memory) std::atomic<pid_t>(0);
  mxs::test::ProcessOptions options;
  options.may_die = 1;
  const std::string complaint =
      mxs::test::run_processes_bare(2, [=](int rank) { return killed_with_a_helper(rank, helper); }, options);
  munmap(memory, 4096);
  return good(complaint);
}

void a_forked_helper_does_not_hide_that_its_rank_has_died(void **) { assert_true(death_shows_in_spite_of_a_helper()); }

// ---- the ordinary ----

void all_blobs_reach_all_ranks_in_every_world(void **) {
  for (const int rank_count : mxs::test::world_sizes) assert_true(good(run(rank_count, gathers)));
}

std::string one_after_the_other(int rank, int rank_count, int port) {
  std::unique_ptr<Bootstrap> earlier;
  for (int comm = 0; comm < 5; ++comm) {
    std::unique_ptr<Bootstrap> bootstrap;
    if (create_store_bootstrap(&bootstrap, job_of(rank, rank_count, port), 60 * second_ns) != MXS_OK)
      return "comm " + std::to_string(comm) + ": " + last_error_text();
    const std::string complaint = gathers(*bootstrap);
    if (!complaint.empty()) return complaint;
    earlier.swap(bootstrap);  // the next one is made while this one lives
  }
  return "";
}

bool comms_follow_each_other() {
  const int port = free_port();
  const std::string complaint =
      at_once({[=] { return one_after_the_other(0, 3, port); }, [=] { return one_after_the_other(1, 3, port); },
               [=] { return one_after_the_other(2, 3, port); }});
  return good(complaint);
}

void comms_on_one_port_follow_each_other(void **) { assert_true(comms_follow_each_other()); }

// ---- strangers ----

bool strangers_do_not_disturb() {
  const int port = free_port();
  std::vector<int> connections;
  std::atomic<bool> said{false};
  const std::string complaint = at_once({
      rank_of(0, 2, port, gathers),
      [&]() -> std::string {
        while (!said.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return rank_of(1, 2, port, gathers)();
      },
      [&]() -> std::string {
        for (int i = 0; i < 6; ++i) connections.push_back(dial(port));
        say(connections[0], "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 26);
        say(connections[1], "mxs-", 4);            // the beginning of a hello, and no more
        say(connections[2], hello_magic, 8);       // as if
        const std::string noise(100000, '\xff');
        say(connections[3], noise.data(), noise.size());
        close(connections[4]);                     // a port scan
        connections[4] = -1;
        Hello other = hello_of(1, 2);              // of another job, with a rank that is still missing
        other.number = 43;
        say(connections[5], &other, sizeof other);
        Frame answer{};
        char sentence[1024] = {};
        (void)!recv(connections[5], &answer, sizeof answer, MSG_WAITALL);
        (void)!recv(connections[5], sentence, sizeof sentence - 1, 0);
        said.store(true);
        if (answer.kind != FrameKind::failure || answer.status != MXS_ENVIRONMENT) return "another job was let in";
        return std::strstr(sentence, "another job") ? "" : sentence;
      },
  });
  for (const int connection : connections)
    if (connection >= 0) close(connection);
  return good(complaint);
}

void strangers_and_noise_do_not_disturb(void **) { assert_true(strangers_do_not_disturb()); }

// -1: nobody can.
int listen_on(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0 && listen(listener, 4) == 0)
    return listener;
  close(listener);
  return -1;
}

bool port_in_use() {
  const int port = free_port();
  const int listener = listen_on(port);
  if (listener < 0) return false;
  const std::string complaint =
      fails_as(0, 2, port, MXS_SYSTEM, {"127.0.0.1", std::to_string(port), "in use", "MASTER_PORT"})();
  close(listener);
  return good(complaint);
}

void a_port_in_use_is_named_with_what_to_do(void **) { assert_true(port_in_use()); }

bool other_service() {
  const int port = free_port();
  const int listener = listen_on(port);
  if (listener < 0) return false;
  const std::string complaint = at_once({
      fails_as(1, 2, port, MXS_SYSTEM, {"something else", "127.0.0.1"}),
      [&]() -> std::string {
        const int connection = accept(listener, nullptr, nullptr);
        const std::string banner = "SSH-2.0-OpenSSH_9.2 and so on and on\r\n";
        say(connection, banner.data(), banner.size());
        char byte = 0;
        while (recv(connection, &byte, 1, 0) > 0) {
        }
        close(connection);
        return "";
      },
  });
  close(listener);
  return good(complaint);
}

void another_service_on_the_port_is_recognised(void **) { assert_true(other_service()); }

bool foreign_addresses() {
  JobEnvironment job = job_of(0, 2, free_port());
  std::unique_ptr<Bootstrap> bootstrap;
  job.address = "192.0.2.1";  // of the documentation's network, nobody's
  std::string complaint = expect(create_store_bootstrap(&bootstrap, job, second_ns), MXS_SYSTEM,
                                 {"192.0.2.1", "not of this machine", "MASTER_ADDR"});
  job.address = "no such host";
  if (complaint.empty())
    complaint = expect(create_store_bootstrap(&bootstrap, job, second_ns), MXS_SYSTEM, {"no such host", "MASTER_ADDR"});
  return good(complaint);
}

void an_address_of_another_machine_is_named(void **) { assert_true(foreign_addresses()); }

// ---- the missing, the doubled, the different ----

bool missing_are_named() {
  const int port = free_port();
  const std::vector<std::string> words = {"2 and 4 of 5", "never came"};
  // Rank 0's deadline comes first; then one of another rank does.
  const std::string first = at_once({fails_as(0, 5, port, MXS_TIMED_OUT, words, second_ns / 2),
                                     fails_as(1, 5, port, MXS_TIMED_OUT, words),
                                     fails_as(3, 5, port, MXS_TIMED_OUT, words)});
  const std::string second = at_once({fails_as(0, 5, port, MXS_TIMED_OUT, words),
                                      fails_as(1, 5, port, MXS_TIMED_OUT, words),
                                      fails_as(3, 5, port, MXS_TIMED_OUT, words, second_ns / 2)});
  return good(first) && good(second);
}

void ranks_that_never_come_are_named_on_all_who_came(void **) { assert_true(missing_are_named()); }

bool no_rank_0() {
  const int port = free_port();
  const std::string complaint =
      fails_as(1, 2, port, MXS_TIMED_OUT, {"rank 0", "127.0.0.1", std::to_string(port)}, second_ns / 3)();
  return good(complaint);
}

void a_missing_rank_0_is_named_with_its_address(void **) { assert_true(no_rank_0()); }

// Speaks for a rank by hand: hello, and the first frame that comes back, with its text.
struct HandMade {
  int connection = -1;
  Frame answer{};
  std::string text;

  HandMade(int port, const Hello &hello) : connection(dial(port)) {
    say(connection, &hello, sizeof hello);
    read();
  }
  ~HandMade() { close(connection); }
  void read() {
    answer = {};
    if (recv(connection, &answer, sizeof answer, MSG_WAITALL) != sizeof answer) answer = {};
    text.resize(answer.bytes < 2000 ? answer.bytes : 0);
    if (!text.empty()) (void)!recv(connection, text.data(), text.size(), MSG_WAITALL);
  }
  std::string expect_refusal(mxs_status status, const char *word) const {
    if (answer.kind != FrameKind::failure || answer.status != status) return "it was let in, or refused otherwise";
    return text.find(word) == std::string::npos ? text : "";
  }
};

std::string nothing_to_say(Bootstrap &) { return ""; }

bool twice() {
  const int port = free_port();
  std::atomic<bool> refused{false};
  const std::string complaint = at_once({
      rank_of(0, 3, port, nothing_to_say),
      [&]() -> std::string {
        HandMade first(port, hello_of(1, 3));
        const HandMade second(port, hello_of(1, 3));
        refused.store(true);
        const std::string complaint = second.expect_refusal(MXS_ENVIRONMENT, "rank 1 has come already");
        if (!complaint.empty() || first.answer.kind != FrameKind::accepted) return complaint + " (first)";
        first.read();
        return first.answer.kind == FrameKind::welcome ? "" : "the first is not welcome any more";
      },
      [&]() -> std::string {
        while (!refused.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return rank_of(2, 3, port, nothing_to_say)();
      },
  });
  return good(complaint);
}

void a_rank_that_comes_twice_is_refused_and_the_first_goes_on(void **) { assert_true(twice()); }

// Rank 0 gives up over the dead one; who comes only then is told of that one, and doesn't wait for rank 0.
bool late_is_told() {
  const int port = free_port();
  std::atomic<bool> has_died{false};
  const std::vector<std::string> words = {"rank 1", "hung up"};
  const std::string complaint = at_once({
      fails_as(0, 3, port, MXS_PEER_FAILED, words),
      [&]() -> std::string {
        { const HandMade dead(port, hello_of(1, 3)); }
        has_died.store(true);
        return "";
      },
      [&]() -> std::string {
        while (!has_died.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return fails_as(2, 3, port, MXS_PEER_FAILED, words)();
      },
  });
  return good(complaint);
}

void a_rank_that_comes_after_another_has_died_is_told_so(void **) { assert_true(late_is_told()); }

bool different() {
  const int port = free_port();
  Hello newer = hello_of(1, 3);
  newer.version = 9'008'007;
  const auto with_two_ranks = [&](const Hello &odd, const char *word, const std::vector<std::string> &words) {
    return at_once({fails_as(0, 3, port, MXS_MISMATCH, words),
                    [&]() -> std::string {
                      HandMade early(port, hello_of(2, 3));  // has come before the odd one does
                      const HandMade late(port, odd);
                      const std::string complaint = late.expect_refusal(MXS_MISMATCH, word);
                      if (!complaint.empty() || early.answer.kind != FrameKind::accepted) return complaint + " (early)";
                      early.read();
                      return early.expect_refusal(MXS_MISMATCH, word);
                    }});
  };
  std::string complaint = with_two_ranks(newer, "9.8.7", {"rank 1", "9.8.7", mxs_version_text()});
  if (complaint.empty()) complaint = with_two_ranks(hello_of(1, 4), "world of 4", {"rank 1", "world of 4", "of 3"});
  return good(complaint);
}

void other_versions_and_worlds_are_a_mismatch_on_all(void **) { assert_true(different()); }

// ---- afterwards ----

// Until check says something, bounded.
mxs_status check_until_failure(Bootstrap &bootstrap) {
  for (int turn = 0; turn < 12000; ++turn) {
    const mxs_status status = bootstrap.check();
    if (status != MXS_OK) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return MXS_OK;
}

std::string one_announces(Bootstrap &bootstrap) {
  if (bootstrap.barrier() != MXS_OK) return last_error_text();
  if (bootstrap.rank() == 2) {
    bootstrap.announce_failure(MXS_ABORTED, "rank 2: out of luck");
    return "";
  }
  return expect(check_until_failure(bootstrap), MXS_ABORTED, {"rank 2: out of luck"});
}

void an_announced_failure_reaches_all(void **) { assert_true(good(run(4, one_announces))); }

// Rank 1 speaks the protocol by hand and then is gone without a word.
bool hang_up_is_seen() {
  const int port = free_port();
  const std::string complaint = at_once({
      rank_of(0, 3, port,
              [](Bootstrap &bootstrap) {
                return expect(check_until_failure(bootstrap), MXS_PEER_FAILED, {"rank 1", "hung up"});
              }),
      rank_of(2, 3, port,
              [](Bootstrap &bootstrap) {
                return expect(check_until_failure(bootstrap), MXS_PEER_FAILED, {"rank 1", "hung up"});
              }),
      [&]() -> std::string {
        const int connection = dial(port);
        const Hello hello = hello_of(1, 3);
        say(connection, &hello, sizeof hello);
        Frame frames[2] = {};
        (void)!recv(connection, frames, sizeof frames, MSG_WAITALL);
        close(connection);
        return frames[1].kind == FrameKind::welcome ? "" : "no welcome";
      },
  });
  return good(complaint);
}

void a_rank_that_hangs_up_is_named_on_all(void **) { assert_true(hang_up_is_seen()); }

std::string leaves_in_order(Bootstrap &bootstrap) {
  if (bootstrap.barrier() != MXS_OK) return last_error_text();
  if (bootstrap.rank() == 1) return "";  // destroyed at once
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  return bootstrap.check() == MXS_OK ? "" : last_error_text();
}

void an_orderly_end_is_nobody_elses_failure(void **) { assert_true(good(run(3, leaves_in_order))); }

bool absent_from_a_round() {
  const int port = free_port();
  const auto waits = [](Bootstrap &bootstrap) {
    return expect(bootstrap.barrier(), MXS_TIMED_OUT, {"rank 2 of 3"});
  };
  const auto stays_away = [](Bootstrap &bootstrap) {
    return expect(check_until_failure(bootstrap), MXS_TIMED_OUT, {"rank 2 of 3"});
  };
  std::string complaint = at_once({rank_of(0, 3, port, waits, 3 * second_ns), rank_of(1, 3, port, waits),
                                   rank_of(2, 3, port, stays_away)});
  if (complaint.empty())  // rank 1 is the first to lose patience
    complaint = at_once({rank_of(0, 3, port, waits), rank_of(1, 3, port, waits, 3 * second_ns),
                         rank_of(2, 3, port, stays_away)});
  return good(complaint);
}

void a_rank_that_stays_away_from_a_round_is_named(void **) { assert_true(absent_from_a_round()); }

std::string different_sizes(Bootstrap &bootstrap) {
  char source[8] = {}, target[24] = {};
  return expect(bootstrap.all_gather(source, target, bootstrap.rank() == 1 ? 8 : 4), MXS_MISMATCH, {"rank 1"});
}

void rounds_of_different_sizes_are_a_mismatch(void **) { assert_true(good(run(3, different_sizes))); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_forked_helper_does_not_hide_that_its_rank_has_died),
      cmocka_unit_test(all_blobs_reach_all_ranks_in_every_world),
      cmocka_unit_test(comms_on_one_port_follow_each_other),
      cmocka_unit_test(strangers_and_noise_do_not_disturb),
      cmocka_unit_test(a_port_in_use_is_named_with_what_to_do),
      cmocka_unit_test(another_service_on_the_port_is_recognised),
      cmocka_unit_test(an_address_of_another_machine_is_named),
      cmocka_unit_test(ranks_that_never_come_are_named_on_all_who_came),
      cmocka_unit_test(a_missing_rank_0_is_named_with_its_address),
      cmocka_unit_test(a_rank_that_comes_twice_is_refused_and_the_first_goes_on),
      cmocka_unit_test(a_rank_that_comes_after_another_has_died_is_told_so),
      cmocka_unit_test(other_versions_and_worlds_are_a_mismatch_on_all),
      cmocka_unit_test(an_announced_failure_reaches_all),
      cmocka_unit_test(a_rank_that_hangs_up_is_named_on_all),
      cmocka_unit_test(an_orderly_end_is_nobody_elses_failure),
      cmocka_unit_test(a_rank_that_stays_away_from_a_round_is_named),
      cmocka_unit_test(rounds_of_different_sizes_are_a_mismatch),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
