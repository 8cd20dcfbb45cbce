// SPDX-License-Identifier: Apache-2.0
// Units with replicas (HSDP): sums over shard group and replicas, steps that stay equal, and wrong comms.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "matrixshard/collective.h"
#include "matrixshard/optimizer.h"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/transports.hpp"
#include "support/unit_model.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

struct Grid {
  int shards, replicas;
};

constexpr Grid grids[] = {{2, 2}, {4, 2}, {2, 4}, {3, 2}, {1, 3}, {3, 1}};

struct Comms {
  mxs_comm *shards = nullptr, *replicas = nullptr;
  Comms() = default;
  Comms(const Comms &) = delete;
  ~Comms() {
    mxs_comm_destroy(&replicas);
    mxs_comm_destroy(&shards);
  }
  std::string make(mxs_comm *world, int rank, const Grid &grid) {
    if (mxs_comm_split(&shards, world, rank / grid.shards, 0, nullptr) != MXS_OK) return error_of("shards");
    if (mxs_comm_split(&replicas, world, rank % grid.shards, 0, nullptr) != MXS_OK) return error_of("replicas");
    return "";
  }
};

struct OwnOptimizer {
  mxs_optimizer *handle = nullptr;
  ~OwnOptimizer() { mxs_optimizer_destroy(&handle); }
};

// Every rank of a comm has the same hash.
std::string equal_over(mxs_comm *comm, uint64_t hash, const char *what) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  std::vector<int64_t> words(static_cast<size_t>(info.rank_count));
  words[static_cast<size_t>(info.rank)] = static_cast<int64_t>(hash);
  if (mxs_comm_sum_words(comm, words.data(), words.size(), nullptr) != MXS_OK) return error_of("sum_words");
  for (const int64_t word : words)
    if (word != words[0]) return std::string(what) + " differ";
  return "";
}

std::string make_replicated(Units *units, const Comms &comms, const Model &model, int flags = 0) {
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.replicas = comms.replicas;
  options.flags = flags;
  return units->make(comms.shards, model, &options);
}

// Sums (or masters) of all that this rank owns.
std::string hash_owned(Units &model, bool masters, uint64_t *hash) {
  Fingerprint fingerprint;
  for (uint64_t number = 0; number < model.inner().placements.size(); ++number) {
    mxs_unit *unit = model.units[static_cast<size_t>(model.inner().placements[number].unit)];
    mxs_view view = MXS_VIEW_INIT;
    const mxs_status status =
        masters ? mxs_unit_shard(unit, number, &view) : mxs_unit_shard_gradient(unit, number, &view);
    if (status != MXS_OK) return error_of("a view");
    const std::string_view bytes(static_cast<const char *>(view.data), view.data ? view.bytes : 0);
    fingerprint.add(bytes);
  }
  *hash = fingerprint.value();
  return "";
}

// Each micro-batch's sums over a shard group from zero, added to the accumulator replica by replica; or about that.
std::string check_sums(Units &model, const Grid &grid, int first_round, int round_count, bool exact) {
  for (const Placement &piece : model.inner().placements) {
    const PlannedTensor &planned = model.inner().tensors[static_cast<size_t>(piece.tensor)];
    if (piece.owner != model.rank || planned.frozen() || piece.element_count == 0) continue;
    const auto number = static_cast<uint64_t>(&piece - model.inner().placements.data());
    mxs_view view = MXS_VIEW_INIT;
    if (mxs_unit_shard_gradient(model.units[static_cast<size_t>(piece.unit)], number, &view) != MXS_OK)
      return error_of("shard_gradient");
    for (uint64_t i = 0; i < piece.element_count; ++i) {
      float sum = 0;
      double wide = 0, size = 0;
      for (int round = first_round; round < first_round + round_count; ++round)
        for (int replica = 0; replica < grid.replicas; ++replica) {
          float group = 0;
          for (int shard = 0; shard < grid.shards; ++shard) {
            const float term = Units::rounded_gradient(planned, piece.tensor, piece.element_offset + i,
                                                       replica * grid.shards + shard, round);
            group += term;
            wide += term;
            size += std::fabs(term);
          }
          sum += group;
        }
      const float found = static_cast<const float *>(view.data)[i];
      const bool right = exact ? found == sum : std::fabs(found - wide) <= 1e-5 * size;
      if (!right)
        return words("%.80s, element %llu of the sum is %.9g, not %.9g", planned.name.c_str(),
                     static_cast<unsigned long long>(i), static_cast<double>(found),
                     exact ? static_cast<double>(sum) : wide);
    }
  }
  return "";
}

// Backward's order, and nobody waits in between: reduces overlap as far as the slots go.
std::string micro_batch(Units &model, int world_rank, int round, bool infinite = false) {
  for (size_t index = model.units.size(); index-- > 0;) {
    const int own = model.rank;
    model.rank = world_rank;  // each rank of the world has gradients of its own
    std::string complaint = model.write_gradients(static_cast<int>(index), round, MXS_WRITE);
    model.rank = own;
    if (!complaint.empty()) return complaint;
    mxs_unit_info info = MXS_UNIT_INFO_INIT;
    mxs_unit_query(model.units[index], &info);
    if (infinite && index == 0) {
      mxs_view view = MXS_VIEW_INIT;
      if (mxs_unit_gradient(model.units[index], 0, MXS_WRITE, &view) != MXS_OK) return error_of("gradient");
      write_value(view.data, view.dtype, 3, std::numeric_limits<float>::infinity());
    }
    const bool open = info.gradients_state == MXS_OPEN;
    const mxs_status status =
        open ? mxs_unit_reduce(model.units[index], nullptr) : mxs_unit_skip(model.units[index], nullptr);
    if (status != MXS_OK) return error_of("reduce");
  }
  return "";
}

std::string train(int rank, mxs_comm *world, const Grid &grid, const Model &described, int flags) {
  Comms comms;
  std::string complaint = comms.make(world, rank, grid);
  if (!complaint.empty()) return complaint;
  Units model;
  complaint = make_replicated(&model, comms, described, flags);
  if (complaint.empty()) complaint = model.fill(1);
  if (!complaint.empty()) return complaint;
  mxs_comm *held = comms.replicas;
  complaint = expect(mxs_comm_destroy(&held), MXS_HELD);
  if (!complaint.empty()) return "destroy of replicas: " + complaint;
  OwnOptimizer optimizer;
  if (mxs_optimizer_create(&optimizer.handle, model.units.data(), model.units.size(), nullptr) != MXS_OK)
    return error_of("optimizer");
  for (int turn = 0; turn < 4; ++turn) {
    const bool infinite = turn == 2;
    for (int micro = 0; micro < 2 && complaint.empty(); ++micro)
      complaint = micro_batch(model, rank, 2 * turn + micro, infinite && rank == grid.shards * grid.replicas - 1);
    for (mxs_unit *unit : model.units)
      if (complaint.empty() && mxs_unit_wait_reduce(unit, nullptr) != MXS_OK) complaint = error_of("wait_reduce");
    if (complaint.empty() && !infinite)
      complaint = check_sums(model, grid, 2 * turn, 2, (flags & MXS_RANK_ORDER) != 0);
    uint64_t hash = 0;
    if (complaint.empty()) complaint = hash_owned(model, false, &hash);
    if (complaint.empty()) complaint = equal_over(comms.replicas, hash, "the replicas' sums");
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    mxs_step step = MXS_STEP_INIT;
    step.groups = &values;
    step.group_count = 1;
    step.gradient_scale = 1e-3f;
    step.clip_norm = 1;
    mxs_verdict verdict = MXS_VERDICT_INIT;
    if (complaint.empty() && mxs_optimizer_step(optimizer.handle, &step, &verdict) != MXS_OK)
      complaint = error_of("step");
    if (complaint.empty() && verdict.skipped != infinite) complaint = words("skipped is %d", verdict.skipped);
    uint64_t bits = 0;
    std::memcpy(&bits, &verdict.norm, sizeof bits);
    if (complaint.empty()) complaint = equal_over(world, bits, "the ranks' norms");
    if (complaint.empty()) complaint = hash_owned(model, true, &hash);
    if (complaint.empty()) complaint = equal_over(comms.replicas, hash, "the replicas' masters");
    if (!complaint.empty()) return words("step %d: ", turn) + complaint;
  }
  return "";
}

bool in_threads(const Model &model, int flags) {
  for (const Grid &grid : grids)
    if (!good(run_world(grid.shards * grid.replicas, [&](int rank, mxs_comm *world) {
          return train(rank, world, grid, model, flags);
        })))
      return false;
  return true;
}

bool in_processes(const Grid &grid, const char *transport, const Model &model, int flags) {
  ProcessOptions options;
  options.transport = transport;
  const auto body = [&](int rank, mxs_comm *world) { return train(rank, world, grid, model, flags); };
  return good(run_processes(grid.shards * grid.replicas, body, options));
}

void every_replica_has_the_sums_of_an_ordered_loop(void **) { assert_true(in_threads(odd_model(), MXS_RANK_ORDER)); }

void in_any_order_replicas_are_equal_and_sums_right(void **) {
  assert_true(in_threads(odd_model(), 0));
  assert_true(in_threads(plain_model(3, MXS_BF16), 0));
}

void processes_do_the_same_over_shm(void **) {
  assert_true(in_processes({2, 2}, nullptr, odd_model(), MXS_RANK_ORDER));
  assert_true(in_processes({4, 2}, nullptr, odd_model(), 0));
}

void processes_do_the_same_over_ucx(void **) {
  if (has_transport("ucx")) assert_true(in_processes({2, 2}, "ucx", odd_model(), MXS_RANK_ORDER));
}

// ---- wrong comms ----

std::string refused(mxs_comm *shards, mxs_comm *replicas, const Model &described, mxs_status status,
                    const std::vector<std::string> &said) {
  Units model;
  mxs_topology *topology = nullptr;
  if (mxs_comm_topology(shards, &topology) != MXS_OK) return error_of("topology");
  mxs_plan *plan = nullptr;
  const mxs_status planned =
      mxs_plan_create(&plan, described.tensors.data(), described.tensors.size(), topology, nullptr);
  mxs_topology_destroy(&topology);
  if (planned != MXS_OK) return error_of("plan");
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.replicas = replicas;
  mxs_unit *unit = nullptr;
  std::string complaint = expect(mxs_unit_create(&unit, shards, plan, 0, &options), status, said);
  if (unit) complaint = "there is a unit";
  mxs_plan_destroy(&plan);
  return complaint;
}

std::string wrong_comms(int rank, mxs_comm *world) {
  const Grid grid = {2, 2};
  Comms comms;
  std::string complaint = comms.make(world, rank, grid);
  const Model model = plain_model(2), other = plain_model(2, MXS_F32, 32);
  if (complaint.empty())
    complaint = refused(comms.shards, comms.shards, model, MXS_INVALID_ARGUMENT, {"the unit's own comm"});
  if (complaint.empty()) complaint = refused(comms.shards, world, model, MXS_MISMATCH, {"replicas"});
  if (complaint.empty())
    complaint = refused(comms.shards, comms.replicas, rank < 2 ? model : other, MXS_MISMATCH, {"plan"});
  if (!complaint.empty()) return complaint;
  // {0 3} and {1 2}: the right size, but not the same place.
  mxs_comm *crossed = nullptr;
  if (mxs_comm_split(&crossed, world, rank == 0 || rank == 3, 0, nullptr) != MXS_OK) return error_of("split");
  complaint = refused(comms.shards, crossed, model, MXS_INVALID_ARGUMENT, {"options.replicas"});
  mxs_comm_destroy(&crossed);
  // All is well after all that.
  return complaint.empty() ? train(rank, world, grid, model, 0) : complaint;
}

void a_wrong_comm_is_refused_on_all_ranks(void **) { assert_true(good(run_world(4, wrong_comms))); }

// A rank that takes no part: its peers in both directions are told.
std::string aborted(int rank, mxs_comm *world) {
  Comms comms;
  std::string complaint = comms.make(world, rank, {2, 2});
  if (!complaint.empty()) return complaint;
  Units model;
  complaint = make_replicated(&model, comms, plain_model(2));
  if (!complaint.empty()) return complaint;
  if (rank == 3) mxs_comm_abort(comms.shards, "rank 3 has had enough");
  mxs_status status = MXS_OK;
  for (int index = 0; index < 2 && status == MXS_OK; ++index) {
    complaint = model.write_gradients(index, 0, MXS_WRITE);
    status = complaint.empty() ? mxs_unit_reduce(model.units[static_cast<size_t>(index)], nullptr) : MXS_ABORTED;
    if (status == MXS_OK) status = mxs_unit_wait_reduce(model.units[static_cast<size_t>(index)], nullptr);
  }
  return expect(status, MXS_ABORTED, {"had enough"});
}

void a_failure_reaches_all_replicas(void **) { assert_true(good(run_processes(4, aborted))); }

// ---- memory ----

std::string memory_is_as_predicted(int rank, mxs_comm *world) {
  Comms comms;
  std::string complaint = comms.make(world, rank, {2, 2});
  if (!complaint.empty()) return complaint;
  Units model;
  complaint = make_replicated(&model, comms, odd_model());
  if (!complaint.empty()) return complaint;
  mxs_memory_options asked = MXS_MEMORY_OPTIONS_INIT;
  mxs_memory without = MXS_MEMORY_INIT, with = MXS_MEMORY_INIT, counted = MXS_MEMORY_INIT;
  mxs_plan_memory(model.plan, model.rank, &asked, &without);
  asked.replicas = 1;
  mxs_plan_memory(model.plan, model.rank, &asked, &with);
  mxs_unit_memory(model.units[0], &counted);
  if (counted.gradient_slots != with.gradient_slots || counted.slots != with.slots)
    return words("%llu bytes of gradient slots, not %llu as predicted",
                 static_cast<unsigned long long>(counted.gradient_slots),
                 static_cast<unsigned long long>(with.gradient_slots));
  return with.gradient_slots > without.gradient_slots ? "" : "scratch costs nothing";
}

void scratch_is_predicted_and_counted(void **) { assert_true(good(run_world(4, memory_is_as_predicted))); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_replica_has_the_sums_of_an_ordered_loop),
      cmocka_unit_test(in_any_order_replicas_are_equal_and_sums_right),
      cmocka_unit_test(processes_do_the_same_over_shm),
      cmocka_unit_test(processes_do_the_same_over_ucx),
      cmocka_unit_test(a_wrong_comm_is_refused_on_all_ranks),
      cmocka_unit_test(a_failure_reaches_all_replicas),
      cmocka_unit_test(scratch_is_predicted_and_counted),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
