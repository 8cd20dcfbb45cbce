// SPDX-License-Identifier: Apache-2.0
// Team: every part once, whatever its size, however many jobs; forked children; threads that the system doesn't give.
#include "base/team.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "support/complaints.hpp"
#include "support/sanitized.hpp"
#include "support/cmocka_all.h"

namespace {

using namespace mxs;

std::unique_ptr<Team> team_of(int size) {
  std::unique_ptr<Team> team;
  if (Team::create(&team, size) != MXS_OK) print_error("%s\n", mxs_last_error());
  return team;
}

// Each part adds 1 to its own place, and to its member's count.
bool takes_every_part_once(Team *team, size_t parts) {
  std::vector<int> taken(parts);
  std::vector<std::atomic<size_t>> by_member(static_cast<size_t>(team->size()));
  bool strange_member = false;
  team->run(parts, [&](size_t part, int member) {
    if (part >= parts || member < 0 || member >= team->size()) {
      strange_member = true;
      return;
    }
    ++taken[part];
    ++by_member[static_cast<size_t>(member)];
  });
  size_t total = 0;
  for (const std::atomic<size_t> &count : by_member) total += count;
  for (int count : taken)
    if (count != 1) return false;
  return total == parts && !strange_member;
}

bool parts_are_taken_once() {
  for (int size = 1; size <= 8; ++size) {
    const std::unique_ptr<Team> team = team_of(size);
    if (!team || team->size() != size) return false;
    for (size_t parts : {0, 1, 2, 3, 7, 8, 9, 100, 1001})
      if (!takes_every_part_once(team.get(), parts)) return false;
  }
  return true;
}

// What one job writes the next one reads, on whatever member.
bool jobs_follow_each_other() {
  const std::unique_ptr<Team> team = team_of(4);
  if (!team) return false;
  std::vector<uint64_t> values(6, 1);
  for (uint64_t job = 0; job < 3000; ++job) {
    std::vector<uint64_t> next(values.size());
    team->run(values.size(), [&](size_t part, int) { next[part] = values[(part + 1) % values.size()] + part; });
    values = next;
  }
  uint64_t sum = 0;
  for (uint64_t value : values) sum += value;
  return sum == 6 + 3000 * 15;
}

// Made, used or not, and ended at once.
bool teams_come_and_go() {
  for (int round = 0; round < 100; ++round) {
    const std::unique_ptr<Team> team = team_of(1 + round % 4);
    if (!team) return false;
    if (round % 2 && !takes_every_part_once(team.get(), 5)) return false;
  }
  return true;
}

// Two teams, each driven by a thread of its own.
bool two_teams_do_not_meet() {
  bool good[2] = {};
  std::thread threads[2];
  for (size_t i = 0; i < 2; ++i)
    threads[i] = std::thread([&good, i] {
      const std::unique_ptr<Team> team = team_of(3);
      good[i] = team != nullptr;
      for (int job = 0; job < 200 && good[i]; ++job) good[i] = takes_every_part_once(team.get(), 11);
    });
  for (std::thread &thread : threads) thread.join();
  return good[0] && good[1];
}

constexpr bool forks = !test::under_sanitizer;  // they take no fork of many threads

int exit_code_of(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// In a forked child there are no workers; the parent's go on.
bool a_forked_child_works_alone() {
  if (!forks) return true;
  std::unique_ptr<Team> team = team_of(3);
  if (!team || !takes_every_part_once(team.get(), 10)) return false;
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    bool good = takes_every_part_once(team.get(), 10);
    {
      // Its workers may get the memory of those that are no more, of which the first team still knows.
      const std::unique_ptr<Team> own = team_of(3);
      good = good && own && takes_every_part_once(own.get(), 10);
    }
    team.reset();
    _exit(good ? 0 : 1);
  }
  return exit_code_of(child) == 0 && takes_every_part_once(team.get(), 10);
}

// Under a limit of address space that has no room for eight stacks.
bool threads_that_are_not_given_are_told() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    long pages = 0;
    if (FILE *statm = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(statm, "%ld", &pages) != 1) pages = 0;
      std::fclose(statm);
    }
    const rlim_t bytes = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (20u << 20);
    const rlimit limit = {bytes, bytes};
    if (pages == 0 || setrlimit(RLIMIT_AS, &limit) != 0) _exit(77);
    std::unique_ptr<Team> team;
    const mxs_status status = Team::create(&team, 64);
    const std::string text = last_error_text();
    _exit(status == MXS_OUT_OF_MEMORY && !team && text.find("of 63 worker threads") != std::string::npos ? 0 : 1);
  }
  const int code = exit_code_of(child);
  return code == 0 || code == 77;
}

void every_part_is_taken_once(void **) { assert_true(parts_are_taken_once()); }
void thousands_of_small_jobs_see_each_other_s_work(void **) { assert_true(jobs_follow_each_other()); }
void a_team_may_end_at_once(void **) { assert_true(teams_come_and_go()); }
void teams_of_two_threads_do_not_meet(void **) { assert_true(two_teams_do_not_meet()); }
void in_a_forked_child_the_caller_does_it_all(void **) { assert_true(a_forked_child_works_alone()); }
void too_few_threads_are_an_error(void **) {
  if (test::under_tool()) return test::not_run("a sanitizer or valgrind has no addresses left, either");
  assert_true(threads_that_are_not_given_are_told());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_part_is_taken_once),
      cmocka_unit_test(thousands_of_small_jobs_see_each_other_s_work),
      cmocka_unit_test(a_team_may_end_at_once),
      cmocka_unit_test(teams_of_two_threads_do_not_meet),
      cmocka_unit_test(in_a_forked_child_the_caller_does_it_all),
      cmocka_unit_test(too_few_threads_are_an_error),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
