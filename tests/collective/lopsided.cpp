// SPDX-License-Identifier: Apache-2.0
// Creating calls that one rank alone can't make: all ranks are told why, by that rank's sentence, nobody waits for the
// deadline (half a minute here), and the comm is as good as before. And timeouts without end.
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/unit_model.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr int culprit = 1;

bool is_well(const std::string &complaint) {
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

// The same status and words on all ranks; ranks that are told hear who it was.
std::string refused_on_all(int rank, mxs_comm *comm, mxs_status wanted, mxs_status status, const std::string &words) {
  const std::string sentence = mxs_last_error();
  if (status != wanted) return std::string("the status is ") + mxs_status_name(status) + ": " + sentence;
  if (sentence.find(words) == std::string::npos) return "the sentence lacks \"" + words + "\": " + sentence;
  if (rank != culprit && sentence.find("rank 1") == std::string::npos) return "rank 1 is not named: " + sentence;
  return mxs_comm_barrier(comm, nullptr) == MXS_OK ? "" : std::string("the comm is spoilt: ") + mxs_last_error();
}

using UnitChange = std::function<void(mxs_unit_options &options, const mxs_plan *&plan, int &index)>;

std::string unit_is_refused(mxs_status wanted, const std::string &words, const UnitChange &change) {
  return run_world(3, [&](int rank, mxs_comm *comm) -> std::string {
    Units units;
    std::string complaint = units.make(comm, plain_model(1));
    if (!complaint.empty()) return complaint;
    mxs_topology *topology = nullptr;
    mxs_topology_create(&topology, "ranks:3");
    mxs_plan *plan = nullptr;
    const Model model = plain_model(2, MXS_BF16);
    mxs_plan_create(&plan, model.tensors.data(), model.tensors.size(), topology, nullptr);
    mxs_topology_destroy(&topology);
    mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
    const mxs_plan *given = plan;
    int index = 1;
    if (rank == culprit) change(options, given, index);
    mxs_unit *unit = nullptr;
    const mxs_status status = mxs_unit_create(&unit, comm, given, index, &options);
    complaint = refused_on_all(rank, comm, wanted, status, words);
    if (complaint.empty() && unit) complaint = "the output is set";
    mxs_plan_destroy(&plan);
    return complaint;
  });
}

bool units() {
  static int unaligned;
  return is_well(unit_is_refused(MXS_INVALID_ARGUMENT, "options.slots is -1",
                                 [](auto &options, auto &, int &) { options.slots = -1; })) &&
         is_well(unit_is_refused(MXS_NOT_BUILT, "CUDA",
                                 [](auto &options, auto &, int &) { options.memory = MXS_CUDA; })) &&
         is_well(unit_is_refused(MXS_NOT_FOUND, "carrier pigeon",
                                 [](auto &options, auto &, int &) { options.algorithm = "carrier pigeon"; })) &&
         is_well(unit_is_refused(MXS_INVALID_ARGUMENT, "buffer is at",
                                 [](auto &options, auto &, int &) {
                                   options.buffer = reinterpret_cast<char *>(&unaligned) + 1;
                                 })) &&
         is_well(unit_is_refused(MXS_INVALID_ARGUMENT, "plan is NULL",
                                 [](auto &, auto &plan, int &) { plan = nullptr; })) &&
         is_well(unit_is_refused(MXS_INVALID_ARGUMENT, "options.size",
                                 [](auto &options, auto &, int &) { options.size = 3; })) &&
         is_well(unit_is_refused(MXS_INVALID_ARGUMENT, "the plan has 2", [](auto &, auto &, int &index) {
           index = 1000000;
         }));
}

using OptimizerChange = std::function<void(mxs_optimizer_options &options, std::vector<mxs_unit *> &units)>;

std::string optimizer_is_refused(mxs_status wanted, const std::string &words, const OptimizerChange &change) {
  return run_world(3, [&](int rank, mxs_comm *comm) -> std::string {
    Units units;
    std::string complaint = units.make(comm, plain_model(2));
    if (!complaint.empty()) return complaint;
    std::vector<mxs_unit *> given = units.units;
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    if (rank == culprit) change(options, given);
    mxs_optimizer *optimizer = nullptr;
    mxs_status status = mxs_optimizer_create(&optimizer, given.data(), given.size(), &options);
    complaint = refused_on_all(rank, comm, wanted, status, words);
    if (!complaint.empty()) return complaint;
    // No unit was taken by the attempt.
    status = mxs_optimizer_create(&optimizer, units.units.data(), units.units.size(), nullptr);
    if (status != MXS_OK) return std::string("a good create after it: ") + mxs_last_error();
    mxs_optimizer_destroy(&optimizer);
    return "";
  });
}

bool optimizers() {
  return is_well(optimizer_is_refused(MXS_INVALID_ARGUMENT, "preset is 99",
                                      [](auto &options, auto &) { options.preset = 99; })) &&
         is_well(optimizer_is_refused(MXS_INVALID_ARGUMENT, "thread_count is -4",
                                      [](auto &options, auto &) { options.thread_count = -4; })) &&
         is_well(optimizer_is_refused(MXS_INVALID_ARGUMENT, "units[0] is NULL",
                                      [](auto &, auto &units) { units[0] = nullptr; })) &&
         is_well(optimizer_is_refused(MXS_HELD, "in an optimizer already",
                                      [](auto &, auto &units) { units[1] = units[0]; }));
}

bool collectives() {
  return is_well(run_world(3, [](int rank, mxs_comm *comm) -> std::string {
    mxs_layout *layout = nullptr;
    mxs_layout_create_even(&layout, 4096, 4, 3);
    std::string complaint;
    for (int which = 0; which < 3 && complaint.empty(); which++) {
      mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
      options.layout = layout;
      if (rank == culprit && which == 0) options.kind = 99;
      if (rank == culprit && which == 1) options.layout = nullptr;
      const bool no_options = rank == culprit && which == 2;
      mxs_collective *collective = nullptr;
      const mxs_status status = mxs_collective_create(&collective, comm, no_options ? nullptr : &options);
      const mxs_status wanted = rank == culprit ? MXS_INVALID_ARGUMENT : MXS_MISMATCH;
      complaint = refused_on_all(rank, comm, wanted, status, rank == culprit ? "options" : "rank 1");
    }
    mxs_layout_destroy(&layout);
    return complaint;
  }));
}

bool buffers() {
  return is_well(run_world(3, [](int rank, mxs_comm *comm) -> std::string {
    for (const mxs_memory_kind kind : {MXS_HOST, MXS_CUDA, 77}) {
      const bool bad = rank == culprit;
      void *memory = nullptr;
      const mxs_status status = mxs_comm_allocate(comm, bad && kind == MXS_HOST ? 0 : 4096, bad ? kind : MXS_HOST,
                                                  &memory);
      const mxs_status own = kind == MXS_CUDA ? MXS_MISMATCH : MXS_INVALID_ARGUMENT;
      const std::string complaint = refused_on_all(rank, comm, bad ? own : MXS_MISMATCH, status, "");
      if (!complaint.empty()) return complaint;
    }
    return "";
  }));
}

// now + UINT64_MAX would lie in the past.
std::string waits_without_end(int rank, ThreadBootstrap *world) {
  const auto come_late = [&](int who) {
    if (rank == who) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  const mxs_bootstrap bootstrap = world->of(rank);
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.bootstrap = &bootstrap;
  options.timeout_ns = UINT64_MAX;
  mxs_comm *comm = nullptr;
  come_late(0);
  if (mxs_comm_create(&comm, &options) != MXS_OK) return std::string("create: ") + mxs_last_error();
  come_late(1);
  std::string complaint;
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) complaint = std::string("barrier: ") + mxs_last_error();
  mxs_call call = MXS_CALL_INIT;
  call.timeout_ns = UINT64_MAX;
  come_late(0);
  if (complaint.empty() && mxs_comm_barrier(comm, &call) != MXS_OK) complaint = mxs_last_error();
  mxs_comm_destroy(&comm);
  return complaint;
}

bool no_end() {
  ThreadBootstrap world(2);
  std::string complaints[2];
  std::thread other([&] { complaints[1] = waits_without_end(1, &world); });
  complaints[0] = waits_without_end(0, &world);
  other.join();
  return is_well(complaints[0]) && is_well(complaints[1]);
}

void a_unit_refused_on_one_rank_is_refused_on_all(void **) { assert_true(units()); }
void an_optimizer_refused_on_one_rank_is_refused_on_all(void **) { assert_true(optimizers()); }
void a_collective_refused_on_one_rank_is_refused_on_all(void **) { assert_true(collectives()); }
void a_buffer_refused_on_one_rank_is_refused_on_all(void **) { assert_true(buffers()); }
void the_longest_timeout_is_no_timeout_in_the_past(void **) { assert_true(no_end()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_unit_refused_on_one_rank_is_refused_on_all),
      cmocka_unit_test(an_optimizer_refused_on_one_rank_is_refused_on_all),
      cmocka_unit_test(a_collective_refused_on_one_rank_is_refused_on_all),
      cmocka_unit_test(a_buffer_refused_on_one_rank_is_refused_on_all),
      cmocka_unit_test(the_longest_timeout_is_no_timeout_in_the_past),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
