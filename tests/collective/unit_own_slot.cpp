// SPDX-License-Identifier: Apache-2.0
// Units with a slot of their own: held through a whole forward and backward while others take turns, in the same pool;
// the bytes and sums are those of shared slots, nothing is mapped anew, and memory is what was predicted.
#include <algorithm>
#include <string>
#include <vector>

#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/unit_model.hpp"
#include "support/unit_ways.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

mxs_unit_options ordered(const Way &way, int slots = 2) { return options_of(way, slots, MXS_RANK_ORDER); }

mxs_memory memory_of(mxs_unit *unit) {
  mxs_memory memory = MXS_MEMORY_INIT;
  mxs_unit_memory(unit, &memory);
  return memory;
}

uint64_t remaps(mxs_comm *comm) {
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  mxs_comm_query_stats(comm, &stats);
  return stats.slot_remaps;
}

// A large root, as an embedding that is tied to the head, before blocks.
Model rooted_model(int block_count, mxs_dtype dtype = MXS_F32) {
  Model model;
  model.add("embedding", 0, {1200, 40}, dtype).rule = MXS_RULE_ADAMW;
  model.add("last_norm", 0, {40}, dtype);
  for (int unit = 1; unit <= block_count; ++unit) {
    const std::string prefix = "block" + std::to_string(unit);
    model.add((prefix + ".qkv").c_str(), unit, {72, 40}, dtype);
    model.add((prefix + ".out").c_str(), unit, {40, 41}, dtype);
    model.add((prefix + ".norm").c_str(), unit, {40}, dtype);
  }
  model.finish();
  return model;
}

// The root is held; the others go by in turns, one ahead, forward and backward.
std::string forward_and_backward(Units &units, uint64_t version, int round) {
  const int last = static_cast<int>(units.units.size()) - 1;
  std::vector<int> order;
  for (int unit = 1; unit <= last; ++unit) order.push_back(unit);
  for (int unit = last; unit >= 1; --unit) order.push_back(unit);
  const auto gather = [&](int unit) {
    return want(MXS_OK, mxs_unit_gather(units.units[static_cast<size_t>(unit)], nullptr), "gather");
  };
  const auto reduce = [&](int unit) {
    std::string complaint = units.write_gradients(unit, round, MXS_WRITE);
    mxs_unit *const its = units.units[static_cast<size_t>(unit)];
    if (complaint.empty() && info_of(its).gradients_state == MXS_OPEN)
      complaint = want(MXS_OK, mxs_unit_reduce(its, nullptr), "reduce");
    return complaint;
  };
  std::string complaint = gather(0);
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait(units.units[0], nullptr), "wait");
  if (complaint.empty()) complaint = gather(1);
  for (size_t turn = 0; turn < order.size() && complaint.empty(); ++turn) {
    const int now = order[turn];
    mxs_unit *const unit = units.units[static_cast<size_t>(now)];
    if (turn + 1 < order.size()) complaint = gather(order[turn + 1]);
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait(unit, nullptr), "wait");
    if (complaint.empty()) complaint = units.check(now, version);
    if (complaint.empty()) complaint = units.check(0, version);  // of use all the time
    if (complaint.empty() && turn >= order.size() / 2) complaint = reduce(now);
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_release(unit, MXS_FREE, nullptr), "release");
  }
  if (complaint.empty()) complaint = reduce(0);
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_release(units.units[0], MXS_FREE, nullptr), "release");
  return complaint;
}

std::string train(mxs_comm *comm, const Model &model, const mxs_unit_options &options, std::vector<int> own_slot_units,
                  bool remapped = false) {
  Units units;
  units.own_slot_units = std::move(own_slot_units);
  std::string complaint = units.make(comm, model, &options);
  if (complaint.empty()) complaint = units.fill(0);
  const uint64_t before = remaps(comm);
  for (uint64_t step = 0; step < 3 && complaint.empty(); ++step) {
    for (int round = 0; round < 2 && complaint.empty(); ++round) complaint = forward_and_backward(units, step, round);
    for (size_t unit = 0; unit < units.units.size() && complaint.empty(); ++unit)
      complaint = units.check_sums(static_cast<int>(unit), 2);
    if (complaint.empty()) complaint = units.step(step + 1);
  }
  if (complaint.empty() && (remaps(comm) != before) != remapped)
    return words("%d remaps", static_cast<int>(remaps(comm) - before));
  return complaint;
}

std::string trains_in_every_world() {
  for (const int rank_count : {1, 2, 3, 4})
    for (const Way &way : ways) {
      const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) {
        std::string text = train(comm, rooted_model(5), ordered(way), {0});
        if (text.empty()) text = train(comm, odd_model(), ordered(way), {0, 2, 4});
        return text;
      });
      if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + way.name + ", " + complaint;
    }
  return "";
}

// The same with a shared slot needs a third, and somebody is mapped anew: the test above can fail.
std::string without_it(mxs_comm *comm) { return train(comm, rooted_model(5), ordered(ways[0], 3), {}, true); }

std::string trains_as_processes() {
  for (const int rank_count : {2, 3})
    for (const Way &way : ways) {
      const std::string complaint = run_processes(rank_count, [&](int, mxs_comm *comm) {
        return train(comm, rooted_model(4, MXS_BF16), ordered(way), {0});
      });
      if (!complaint.empty()) return std::to_string(rank_count) + " processes, " + way.name + ", " + complaint;
    }
  return "";
}

// Megabytes: 2 MiB pages, and chunks that anybody may do.
std::string large_units(mxs_comm *comm) {
  return train(comm, plain_model(3, MXS_BF16, 512, 1024), ordered(ways[0]), {0});
}

std::string with_replicas(int number, mxs_comm *world) {
  mxs_comm *shards = nullptr, *replicas = nullptr;
  if (mxs_comm_split(&shards, world, number / 2, 0, nullptr) != MXS_OK ||
      mxs_comm_split(&replicas, world, number % 2, 0, nullptr) != MXS_OK)
    return error_of("split");
  std::string complaint;
  {
    mxs_unit_options options = ordered(ways[0]);
    options.replicas = replicas;
    Units units;
    units.own_slot_units = {0};
    complaint = units.make(shards, rooted_model(4), &options);
    if (complaint.empty()) complaint = units.fill(0);
    for (uint64_t step = 0; step < 2 && complaint.empty(); ++step) {
      complaint = forward_and_backward(units, step, 0);
      if (complaint.empty()) complaint = units.step(step + 1);
    }
    if (complaint.empty() && remaps(shards) != 0) complaint = "there were remaps";
  }
  mxs_comm_destroy(&replicas);
  mxs_comm_destroy(&shards);
  return complaint;
}

// ---- bytes ----

std::string bytes_are_as_predicted(Units &units, const std::vector<int> &own, mxs_memory_options asked) {
  asked.own_slot_units = own.data();
  asked.own_slot_unit_count = static_cast<int32_t>(own.size());
  mxs_memory predicted = MXS_MEMORY_INIT, sum = MXS_MEMORY_INIT;
  if (mxs_plan_memory(units.plan, units.rank, &asked, &predicted) != MXS_OK) return error_of("mxs_plan_memory");
  for (size_t index = 0; index < units.units.size(); ++index) {
    const mxs_memory memory = memory_of(units.units[index]);
    const bool has_own = std::count(own.begin(), own.end(), static_cast<int>(index)) != 0;
    if (!has_own && memory.own_slots) return "a unit without own slot counts one";
    if (memory.peak != memory.rest + memory.slots + memory.gradient_slots + memory.own_slots) return "peak is no sum";
    sum.rest += memory.rest;
    sum.slack += memory.slack;
    sum.own_slots += memory.own_slots;
    sum.slots = memory.slots;
    sum.gradient_slots = memory.gradient_slots;
  }
  const struct {
    const char *name;
    uint64_t found, wanted;
  } fields[] = {{"slack", sum.slack, predicted.slack},
                {"slots", sum.slots, predicted.slots},
                {"own slots", sum.own_slots, predicted.own_slots},
                {"gradient slots", sum.gradient_slots, predicted.gradient_slots},
                {"rest", sum.rest, predicted.rest - predicted.state}};
  for (const auto &field : fields)
    if (field.found != field.wanted)
      return words("%s: %llu bytes, but %llu were predicted", field.name, static_cast<unsigned long long>(field.found),
                   static_cast<unsigned long long>(field.wanted));
  return "";
}

std::string has_the_bytes(mxs_comm *comm, const Model &model, const Way &way) {
  uint64_t slots_before = 0;
  for (const std::vector<int> &own : {std::vector<int>{}, {0}, {4, 0}, {0, 1, 2, 3, 4}})
    for (const int slots : {1, 3}) {
      Units units;
      units.own_slot_units = own;
      const mxs_unit_options options = ordered(way, slots);
      std::string complaint = units.make(comm, model, &options);
      mxs_memory_options asked = MXS_MEMORY_OPTIONS_INIT;
      asked.slots = slots;
      asked.by_reference = way.gather == MXS_GATHER_BY_REFERENCE;
      if (complaint.empty()) complaint = bytes_are_as_predicted(units, own, asked);
      if (!complaint.empty()) return words("%d own of %d slots: ", static_cast<int>(own.size()), slots) + complaint;
      const mxs_memory memory = memory_of(units.units[0]);
      if (asked.by_reference || units.rank_count == 1) continue;
      if (own.empty()) slots_before = memory.slots;
      else if (own.size() == 5 && memory.slots) return "there are slots that nobody takes";
      else if (slots == 3 && memory.slots >= slots_before) return "the largest has its own, but slots are as large";
    }
  return "";
}

std::string bytes_in_every_world() {
  for (const int rank_count : {1, 2, 3, 7})
    for (const Way &way : {ways[0], ways[1], ways[2]}) {  // all messages are alike here
      const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) {
        std::string text = has_the_bytes(comm, rooted_model(4), way);
        if (text.empty()) text = has_the_bytes(comm, odd_model(), way);
        return text;
      });
      if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + way.name + ", " + complaint;
    }
  return "";
}

// ---- one pool ----

// Blocks first, then a root that is much larger: a shared slot grows for it, and what is gathered and pinned meanwhile
// stays; an own slot leaves the pool as it was, and is there when all others are held.
std::string grows_for_a_root(mxs_comm *comm, const Way &way, int own_slot) {
  Model model = rooted_model(3);
  for (mxs_tensor &tensor : model.tensors) tensor.unit = 3 - tensor.unit;  // the root is the last
  Units units;
  const mxs_unit_options options = ordered(way);
  std::string complaint = units.make(comm, model, &options);
  for (mxs_unit *&unit : units.units)  // and their pool with them
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_destroy(&unit), "destroy");
  const auto create = [&](int index, const mxs_unit_options &wanted) {
    return want(MXS_OK, mxs_unit_create(&units.units[static_cast<size_t>(index)], comm, units.plan, index, &wanted),
                "create");
  };
  for (int index = 0; index < 3 && complaint.empty(); ++index) {
    complaint = create(index, options);
    if (complaint.empty()) complaint = units.fill(1, index);
  }
  if (!complaint.empty()) return complaint;
  const uint64_t slots = memory_of(units.units[0]).slots;
  if (mxs_unit_gather(units.units[0], nullptr) != MXS_OK) return error_of("gather");
  complaint = units.gather_and_check(1, 1, MXS_PIN);
  mxs_unit_options root = options;
  root.own_slot = own_slot;
  if (complaint.empty()) complaint = create(3, root);
  if (complaint.empty()) complaint = units.fill(1, 3);
  if (!complaint.empty()) return complaint;
  const uint64_t now = memory_of(units.units[0]).slots;
  if (now != memory_of(units.units[3]).slots) return "there are two pools";
  if (units.rank_count > 1 && (now > slots) != (own_slot == 0)) return "the slots' bytes are wrong";
  complaint = want(own_slot ? MXS_OK : MXS_OVER_BUDGET, mxs_unit_gather(units.units[3], nullptr), "all slots are held");
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait(units.units[0], nullptr), "wait");
  if (complaint.empty()) complaint = units.check(0, 1);
  if (complaint.empty()) complaint = units.gather_and_check(1, 1);
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_release(units.units[0], MXS_FREE, nullptr), "release");
  if (complaint.empty()) complaint = units.gather_and_check(3, 1);
  if (complaint.empty() && own_slot)
    complaint = want(MXS_OK, mxs_unit_release(units.units[3], MXS_FREE, nullptr), "release");
  for (const int unit : {2, 0, 1, 3})
    if (complaint.empty()) complaint = units.gather_and_check(unit, 1);
  return complaint;
}

// AUTO keeps it: that costs the others nothing.
std::string pins_what_is_its_own(mxs_comm *comm) {
  Units units;
  units.own_slot_units = {0, 3};
  const mxs_unit_options options = ordered(ways[0]);
  std::string complaint = units.make(comm, rooted_model(4), &options);
  if (complaint.empty()) complaint = units.fill(1);
  for (int unit = 0; unit < 5 && complaint.empty(); unit++) complaint = units.gather_and_check(unit, 1, MXS_AUTO);
  for (int unit = 0; unit < 5 && complaint.empty(); unit++) {
    const int wanted = unit == 0 || unit == 3 ? MXS_PINNED : MXS_SHARDED;
    if (info_of(units.units[static_cast<size_t>(unit)]).weights_state != wanted) return "AUTO pins wrong units";
  }
  if (complaint.empty()) complaint = units.step(2);
  for (int unit = 4; unit >= 0 && complaint.empty(); unit--) complaint = units.gather_and_check(unit, 2, MXS_FREE);
  return complaint;
}

// ---- options ----

std::string refuses(mxs_comm *comm) {
  Units units;
  std::string complaint = units.make(comm, rooted_model(2));
  if (!complaint.empty()) return complaint;
  if (mxs_unit_destroy(&units.units[0]) != MXS_OK) return error_of("destroy");
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  const bool last = units.rank == units.rank_count - 1;
  mxs_unit *unit = nullptr;
  for (const int wrong : {-1, 2}) {
    options.own_slot = last ? wrong : 1;
    complaint = expect(mxs_unit_create(&unit, comm, units.plan, 0, &options), MXS_INVALID_ARGUMENT, {"own_slot"});
    if (!complaint.empty()) return complaint;
  }
  options.own_slot = last;
  if (units.rank_count > 1)
    complaint = expect(mxs_unit_create(&unit, comm, units.plan, 0, &options), MXS_MISMATCH, {"own_slot"});
  options.own_slot = 1;
  if (complaint.empty())
    complaint = want(MXS_OK, mxs_unit_create(&units.units[0], comm, units.plan, 0, &options), "create at last");
  return complaint;
}

template <class Body>
bool in_worlds(Body &&body) {
  for (const int rank_count : {1, 2, 3, 4})
    if (!good(run_world(rank_count, [&](int, mxs_comm *comm) { return body(comm); }))) return false;
  return true;
}

void a_root_is_held_while_others_take_turns(void **) { assert_true(good(trains_in_every_world())); }
void a_shared_slot_would_be_mapped_anew(void **) {
  assert_true(good(run_world(2, [](int, mxs_comm *comm) { return without_it(comm); })));
}
void processes_hold_a_root_as_well(void **) { assert_true(good(trains_as_processes())); }
void large_units_have_their_own_as_well(void **) {
  assert_true(good(run_world(2, [](int, mxs_comm *comm) { return large_units(comm); })));
}
void replicas_hold_a_root_as_well(void **) { assert_true(good(run_world(4, with_replicas))); }
void own_slots_are_predicted_and_counted(void **) { assert_true(good(bytes_in_every_world())); }
void all_units_share_one_pool(void **) {
  for (const Way &way : {ways[0], ways[2]})
    for (const int own_slot : {0, 1})
      assert_true(in_worlds([&](mxs_comm *comm) { return grows_for_a_root(comm, way, own_slot); }));
}
void auto_pins_what_takes_no_shared_slot(void **) { assert_true(in_worlds(pins_what_is_its_own)); }
void ranks_agree_on_own_slots(void **) { assert_true(in_worlds(refuses)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_root_is_held_while_others_take_turns),
      cmocka_unit_test(a_shared_slot_would_be_mapped_anew),
      cmocka_unit_test(processes_hold_a_root_as_well),
      cmocka_unit_test(large_units_have_their_own_as_well),
      cmocka_unit_test(replicas_hold_a_root_as_well),
      cmocka_unit_test(own_slots_are_predicted_and_counted),
      cmocka_unit_test(all_units_share_one_pool),
      cmocka_unit_test(auto_pins_what_takes_no_shared_slot),
      cmocka_unit_test(ranks_agree_on_own_slots),
  };
  return cmocka_run_group_tests_name("unit own slot", tests, nullptr, nullptr);
}
