// SPDX-License-Identifier: Apache-2.0
// A program that was built when a struct was shorter: its size is accepted, and not a byte beyond it is written or
// read. One line for every struct that has grown.
#include <cstddef>
#include <cstring>
#include <vector>

#include "matrixshard/matrixshard.hpp"

#include "support/cmocka_all.h"

namespace {

constexpr size_t rank_info_bytes = offsetof(mxs_rank_info, numa);
constexpr size_t memory_options_bytes = offsetof(mxs_memory_options, replicas);
constexpr size_t kernel_info_bytes = offsetof(mxs_kernel_info, product_dtype);
constexpr size_t optimizer_options_bytes = offsetof(mxs_optimizer_options, muon_options);
constexpr size_t unit_options_bytes = offsetof(mxs_unit_options, own_slot);
constexpr size_t memory_bytes = offsetof(mxs_memory, own_slots);
constexpr size_t memory_options_then_bytes = offsetof(mxs_memory_options, own_slot_units);
constexpr size_t step_bytes = offsetof(mxs_step, missing);
constexpr size_t plan_options_bytes = offsetof(mxs_plan_options, previous_ranks);
constexpr size_t comm_options_bytes = offsetof(mxs_comm_options, secret);
constexpr size_t collective_info_bytes = offsetof(mxs_collective_info, predicted_ns);

// Is what follows the first `bytes` of it still poison?
template <class Struct>
bool kept(const Struct &filled, size_t bytes, const char *name) {
  const auto *byte = reinterpret_cast<const unsigned char *>(&filled);
  for (size_t i = bytes; i < sizeof filled; ++i)
    if (byte[i] != 0xa5) {
      print_error("%s of %zu bytes: byte %zu was written\n", name, bytes, i);
      return false;
    }
  return true;
}

template <class Struct>
Struct poisoned(size_t bytes) {
  Struct result;
  std::memset(static_cast<void *>(&result), 0xa5, sizeof result);
  result.size = static_cast<uint32_t>(bytes);
  return result;
}

bool rank_info_is_kept() {
  const mxs::topology topology = mxs::make_topology("nodes:2 ranks:3");
  auto info = poisoned<mxs_rank_info>(rank_info_bytes);
  mxs::check(mxs_topology_rank(topology.get(), 4, &info));
  return info.node == 1 && info.local_rank == 1 && info.local_rank_count == 3 &&
         kept(info, rank_info_bytes, "rank_info");
}

bool collective_info_is_kept() {
  const mxs::comm comm = mxs::make_comm();
  const mxs::layout layout = mxs::make_even_layout(4096, 4, 1);
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = MXS_GATHER;
  options.layout = layout.get();
  const mxs::collective gather = mxs::make_collective(comm, options);
  auto info = poisoned<mxs_collective_info>(collective_info_bytes);
  mxs::check(mxs_collective_describe(gather.get(), &info));
  return info.kind == MXS_GATHER && info.algorithm && kept(info, collective_info_bytes, "collective_info");
}

bool memory_options_are_not_read_beyond() {
  const mxs::topology topology = mxs::make_topology("ranks:2");
  std::vector<mxs_tensor> tensors(1, mxs_tensor MXS_TENSOR_INIT);
  tensors[0].name = "matrix";
  tensors[0].dimension_count = 2;
  tensors[0].shape[0] = tensors[0].shape[1] = 256;
  const mxs::plan plan = mxs::make_plan(tensors, topology);
  const auto slots_with = [&](mxs_memory_options options) {
    mxs_memory memory = MXS_MEMORY_INIT;
    mxs::check(mxs_plan_memory(plan.get(), 0, &options, &memory));
    return memory.gradient_slots;
  };
  mxs_memory_options now = MXS_MEMORY_OPTIONS_INIT, old = MXS_MEMORY_OPTIONS_INIT;
  old.size = memory_options_bytes;
  old.replicas = 1;  // beyond its size: what happens to stand there
  const uint64_t without = slots_with(now);
  now.replicas = 1;
  auto between = poisoned<mxs_memory_options>(memory_options_then_bytes);  // own_slot_units is no address
  between.slots = between.gradient_slots = between.by_reference = between.thread_count = between.replicas = 0;
  auto memory = poisoned<mxs_memory>(memory_bytes);
  mxs::check(mxs_plan_memory(plan.get(), 0, &between, &memory));
  return slots_with(old) == without && slots_with(now) > without && memory.gradient_slots == without &&
         kept(memory, memory_bytes, "memory");
}

// No previous_ranks, which would be no address: the numbers are the same.
bool plan_options_are_not_read_beyond() {
  const mxs::topology topology = mxs::make_topology("ranks:2");
  std::vector<mxs_tensor> tensors(1, mxs_tensor MXS_TENSOR_INIT);
  tensors[0].name = "matrix";
  tensors[0].dimension_count = 2;
  tensors[0].shape[0] = tensors[0].shape[1] = 256;
  const mxs::plan before = mxs::make_plan(tensors, topology);
  mxs_plan_options now = MXS_PLAN_OPTIONS_INIT;
  now.previous = before.get();
  auto old = poisoned<mxs_plan_options>(plan_options_bytes);
  std::memcpy(reinterpret_cast<char *>(&old) + sizeof old.size, reinterpret_cast<char *>(&now) + sizeof now.size,
              plan_options_bytes - sizeof now.size);
  return mxs_plan_fingerprint(mxs::make_plan(tensors, topology, &old).get()) ==
         mxs_plan_fingerprint(mxs::make_plan(tensors, topology, &now).get());
}

// No secret, which would be no address.
bool comm_options_are_not_read_beyond() {
  mxs_comm_options now = MXS_COMM_OPTIONS_INIT;
  auto old = poisoned<mxs_comm_options>(comm_options_bytes);
  std::memcpy(reinterpret_cast<char *>(&old) + sizeof old.size, reinterpret_cast<char *>(&now) + sizeof now.size,
              comm_options_bytes - sizeof now.size);
  mxs_comm *comm = nullptr, *next = nullptr;
  bool good = mxs_comm_create(&comm, &old) == MXS_OK && mxs_comm_abort(comm, "on purpose") == MXS_OK &&
              mxs_comm_shrink(&next, comm, &old) == MXS_OK && mxs_comm_barrier(next, nullptr) == MXS_OK;
  if (!good) print_error("%s\n", mxs_last_error());
  mxs_comm_destroy(&next);
  mxs_comm_destroy(&comm);
  return good;
}

// Options that end before those of the rules, a step before `missing`, a unit's before `own_slot`: what stands behind
// them is not looked at, and a memory's end is not written.
bool optimizer_structs_are_kept() {
  const mxs::comm comm = mxs::make_comm();
  mxs_topology *topology = nullptr;
  mxs::check(mxs_comm_topology(comm.get(), &topology));
  mxs_tensor tensor = MXS_TENSOR_INIT;
  tensor.name = "matrix";
  tensor.dimension_count = 2;
  tensor.shape[0] = tensor.shape[1] = 8;
  mxs_plan *plan = nullptr;
  mxs_unit *unit = nullptr;
  mxs_optimizer *optimizer = nullptr;
  auto options = poisoned<mxs_optimizer_options>(optimizer_options_bytes);
  options.preset = MXS_PRESET_DEFAULT;
  options.backend = MXS_BACKEND_AUTO;
  options.thread_count = 0;
  options.agree = nullptr;
  auto info = poisoned<mxs_kernel_info>(kernel_info_bytes);
  auto unit_options = poisoned<mxs_unit_options>(unit_options_bytes);  // own_slot is neither 0 nor 1
  std::memset(reinterpret_cast<char *>(&unit_options) + sizeof unit_options.size, 0,
              unit_options_bytes - sizeof unit_options.size);
  auto unit_memory = poisoned<mxs_memory>(memory_bytes), optimizer_memory = unit_memory;
  const mxs_group_values values = MXS_GROUP_VALUES_INIT;
  auto step = poisoned<mxs_step>(step_bytes);
  step.groups = &values;
  step.group_count = 1;
  step.gradient_scale = step.clip_norm = 0;
  const bool good = mxs_plan_create(&plan, &tensor, 1, topology, nullptr) == MXS_OK &&
                    mxs_unit_create(&unit, comm.get(), plan, 0, &unit_options) == MXS_OK &&
                    mxs_unit_memory(unit, &unit_memory) == MXS_OK && unit_memory.weights == 256 &&
                    mxs_optimizer_create(&optimizer, &unit, 1, &options) == MXS_OK &&
                    mxs_optimizer_kernel(optimizer, 0, &info) == MXS_OK && info.flops > 0 &&
                    mxs_optimizer_memory(optimizer, &optimizer_memory) == MXS_OK && optimizer_memory.state > 0 &&
                    mxs_optimizer_step(optimizer, &step, nullptr) == MXS_OK;
  if (!good) print_error("%s\n", mxs_last_error());
  mxs_optimizer_destroy(&optimizer);
  mxs_unit_destroy(&unit);
  mxs_plan_destroy(&plan);
  mxs_topology_destroy(&topology);
  return good && kept(info, kernel_info_bytes, "kernel_info") && kept(unit_memory, memory_bytes, "memory") &&
         kept(optimizer_memory, memory_bytes, "memory");
}

template <class Body>
bool holds(Body &&body) {
  try {
    return body();
  } catch (const mxs::error &failure) {
    print_error("%s\n", failure.what());
    return false;
  }
}

void a_rank_info_without_numa_and_rail(void **) { assert_true(holds(rank_info_is_kept)); }
void a_collective_info_without_predictions(void **) { assert_true(holds(collective_info_is_kept)); }
void plan_options_without_previous_ranks(void **) { assert_true(holds(plan_options_are_not_read_beyond)); }
void comm_options_without_a_secret(void **) { assert_true(holds(comm_options_are_not_read_beyond)); }
void options_and_steps_of_units_and_optimizers(void **) { assert_true(holds(optimizer_structs_are_kept)); }
void memory_options_without_replicas_or_own_slots(void **) { assert_true(holds(memory_options_are_not_read_beyond)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_info_without_numa_and_rail),
      cmocka_unit_test(a_collective_info_without_predictions),
      cmocka_unit_test(memory_options_without_replicas_or_own_slots),
      cmocka_unit_test(plan_options_without_previous_ranks),
      cmocka_unit_test(comm_options_without_a_secret),
      cmocka_unit_test(options_and_steps_of_units_and_optimizers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
