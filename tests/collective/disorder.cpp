// SPDX-License-Identifier: Apache-2.0
// Calls in any order with any arguments: thousands of random ones, the same on all ranks, from a fixed seed. Whatever
// comes, it is a status with a sentence; the comm never fails, for the caller's mistakes are no failures of it; and in
// the end a clean step still works.
#include <climits>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "support/processes.hpp"
#include "support/transports.hpp"
#include "support/unit_model.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr int calls_per_world = 4000, unit_count = 3;

Model small_model() {
  Model model;
  for (int unit = 0; unit < unit_count; unit++) {
    const auto name = [&](const char *what) { return std::string(what).append(std::to_string(unit)); };
    model.add(name("one").c_str(), unit, {1, 1});
    model.add(name("row").c_str(), unit, {1, 77}, MXS_BF16);
    model.add(name("odd").c_str(), unit, {63, 65}, MXS_BF16);
    model.add(name("scalar").c_str(), unit, {});
    model.add(name("empty").c_str(), unit, {0, 5});
    model.add(name("frozen").c_str(), unit, {33, 3}).rule = MXS_RULE_FROZEN;
  }
  model.finish();
  return model;
}

class Disorder {
 public:
  Disorder(mxs_comm *comm, unsigned seed) : comm_(comm), random_(seed) {}

  std::string run() {
    std::string complaint = units_.make(comm_, small_model());
    if (!complaint.empty()) return complaint;
    if (mxs_optimizer_create(&optimizer_, units_.units.data(), unit_count, nullptr) != MXS_OK) return mxs_last_error();
    for (int call = 0; call < calls_per_world && complaint.empty(); call++) complaint = one();
    if (complaint.empty()) complaint = end_well();
    mxs_optimizer_destroy(&optimizer_);
    return complaint;
  }

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  int32_t index(int good_count) {
    const int32_t odd[] = {-1, INT32_MIN, INT32_MAX, good_count, 0};
    return pick(8) ? pick(good_count) : odd[pick(5)];
  }
  uint64_t wide(uint64_t good_count) {
    const uint64_t odd[] = {UINT64_MAX, uint64_t{1} << 63, good_count, uint64_t{1} << 32};
    return pick(8) ? random_() % good_count : odd[pick(4)];
  }
  mxs_view view() {
    mxs_view result = MXS_VIEW_INIT;
    // Never a size within the library's limit that the struct hasn't: it would be read, as promised, to its end.
    const int own_size = static_cast<int>(sizeof result);
    if (!pick(16)) result.size = static_cast<uint32_t>(pick(2) ? pick(own_size) : 4097 + pick(5000));
    return result;
  }
  mxs_call *call() {
    call_ = mxs_call MXS_CALL_INIT;
    if (!pick(16)) call_.size = static_cast<uint32_t>(pick(3)) * 4096;
    call_.request_out = pick(2) ? &request_ : nullptr;
    return pick(2) ? &call_ : nullptr;
  }

  mxs_status of_weights(mxs_unit *unit) {
    mxs_view out = view();
    switch (pick(5)) {
      case 0: return mxs_unit_gather(unit, call());
      case 1: return mxs_unit_wait(unit, call());
      case 2: return mxs_unit_tensor(unit, index(6 * unit_count), &out);
      default: return mxs_unit_release(unit, pick(8) ? pick(3) : pick(9) - 4, call());
    }
  }

  mxs_status of_gradients(mxs_unit *unit) {
    mxs_view out = view();
    switch (pick(6)) {
      case 0: return mxs_unit_gradient(unit, index(6 * unit_count), pick(8) ? pick(2) : pick(9) - 4, &out);
      case 1:
        out.data = buffer_;
        out.dtype = pick(2) ? MXS_BF16 : pick(7);
        out.bytes = pick(2) ? 154 : static_cast<uint64_t>(pick(sizeof buffer_));
        return mxs_unit_gradient_set(unit, index(6 * unit_count), &out);
      case 2: return mxs_unit_skip(unit, call());
      case 3: return mxs_unit_wait_reduce(unit, call());
      default: return mxs_unit_reduce(unit, call());
    }
  }

  // What only this rank sees: a view may be empty here and not there, a stale or a broken one is handed back.
  mxs_status of_shards(mxs_unit *unit) {
    mxs_view out = view();
    const uint64_t placement = wide(mxs_plan_placement_count(units_.plan));
    if (pick(3) == 0) return mxs_unit_shard_gradient(unit, placement, &out);
    if (pick(2) == 0) {
      const mxs_status status = mxs_unit_shard(unit, placement, &out);
      if (status == MXS_OK) shard_ = out;
      return status;
    }
    const int spoilt = pick(12);
    mxs_view given = shard_;
    if (spoilt == 0) given.generation += static_cast<uint64_t>(pick(3)) - 1;
    if (spoilt == 1) given.bytes *= 2;
    if (spoilt == 2) given.data = buffer_;
    if (spoilt == 3) given.size = 1;
    return mxs_unit_commit(unit, &given);
  }

  mxs_status of_optimizer() {
    const float odd[] = {NAN, INFINITY, -1.0f, 1e38f, 0.0f};
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    if (!pick(4)) (pick(2) ? values.lr : values.beta2) = odd[pick(3)];
    mxs_step step = MXS_STEP_INIT;
    step.group_count = pick(8) ? 1 : pick(4) - 2;
    step.groups = pick(12) ? &values : nullptr;
    step.gradient_scale = pick(4) ? 1.0f : odd[pick(5)];
    step.clip_norm = pick(4) ? 1.0f : odd[pick(5)];
    mxs_verdict verdict = MXS_VERDICT_INIT;
    mxs_state_info state = MXS_STATE_INFO_INIT;
    mxs_kernel_info kernel = MXS_KERNEL_INFO_INIT;
    switch (pick(7)) {
      case 0: return mxs_optimizer_agree(optimizer_, &step, pick(9) ? &verdict : nullptr);
      case 1: return mxs_optimizer_clear(optimizer_);
      case 2: return mxs_optimizer_set_step_number(optimizer_, wide(1000));
      case 3: return mxs_optimizer_state(optimizer_, wide(10), &state);
      case 4: return mxs_optimizer_kernel(optimizer_, wide(20), &kernel);
      default: return mxs_optimizer_step(optimizer_, pick(16) ? &step : nullptr, pick(2) ? &verdict : nullptr);
    }
  }

  mxs_status of_comm() {
    double values[64] = {1, 2, 3};
    mxs_comm_stats stats = MXS_COMM_STATS_INIT;
    void *memory = nullptr;
    mxs_status status = MXS_OK;
    switch (pick(10)) {
      case 0: return mxs_comm_barrier(comm_, call());
      case 1: return mxs_comm_sum(comm_, values, pick(4) ? static_cast<uint64_t>(pick(64)) : UINT64_MAX, call());
      case 2: return mxs_comm_test(comm_, pick(2) ? request_ : wide(100));
      case 3: return mxs_comm_wait(comm_, pick(2) ? request_ : UINT64_MAX - static_cast<uint64_t>(pick(3)), call());
      case 4: return mxs_comm_phase(comm_, index(MXS_PHASE_COUNT));
      case 5: return mxs_comm_query_stats(comm_, &stats);
      case 6: return mxs_comm_free(comm_, buffer_);
      case 7:
        status = mxs_comm_allocate(comm_, pick(2) ? 4096 : UINT64_MAX, pick(4) ? MXS_HOST : index(2), &memory);
        if (status != MXS_OK) return status;
        status = mxs_comm_free(comm_, memory);
        if (status == MXS_HELD) kept_.push_back(memory);
        return status;
      default: return of_handles();
    }
  }

  // Nothing of these may succeed: all are in use, or are there already.
  mxs_status of_handles() {
    mxs_unit *unit = units_.units[static_cast<size_t>(pick(unit_count))];
    mxs_optimizer *optimizer = nullptr;
    mxs_comm *comm = comm_;
    mxs_unit *another = nullptr;
    switch (pick(4)) {
      case 0: return must_fail(mxs_unit_destroy(&unit), "mxs_unit_destroy");
      case 1: return must_fail(mxs_comm_destroy(&comm), "mxs_comm_destroy");
      case 2: return must_fail(mxs_optimizer_create(&optimizer, &unit, 1, nullptr), "mxs_optimizer_create");
      default: return must_fail(mxs_unit_create(&another, comm_, units_.plan, -1, nullptr), "mxs_unit_create");
    }
  }

  mxs_status must_fail(mxs_status status, const char *what) {
    if (status == MXS_OK) complaint_.assign(what).append(" has succeeded");
    return status;
  }

  std::string one() {
    mxs_unit *unit = pick(64) ? units_.units[static_cast<size_t>(pick(unit_count))] : nullptr;
    mxs_status status = MXS_OK;
    switch (pick(8)) {
      case 0: case 1: case 2: status = of_weights(unit); break;
      case 3: case 4: status = of_gradients(unit); break;
      case 5: status = of_shards(unit); break;
      case 6: status = of_optimizer(); break;
      default: status = of_comm(); break;
    }
    if (!complaint_.empty()) return complaint_;
    const bool ours = status == MXS_INTERNAL || status == MXS_TIMED_OUT || status == MXS_PEER_FAILED ||
                      status == MXS_MISMATCH || status == MXS_TRANSPORT_FAILED || status == MXS_ABORTED;
    if (ours || status > MXS_IN_PROGRESS || status < MXS_INTERNAL) return failure("a call", status);
    return status < 0 && !*mxs_last_error() ? "a failure without a sentence" : "";
  }

  // Whatever is held is let go; then a step works as ever.
  std::string end_well() {
    for (mxs_unit *unit : units_.units) {
      for (int gathers = 0; gathers < calls_per_world; gathers++)
        if (mxs_unit_release(unit, MXS_FREE, nullptr) != MXS_OK) break;
      mxs_unit_info info = MXS_UNIT_INFO_INIT;
      mxs_unit_query(unit, &info);
      const mxs_status status =
          info.gradients_state == MXS_OPEN ? mxs_unit_reduce(unit, nullptr) : mxs_unit_skip(unit, nullptr);
      if (status != MXS_OK) return failure("the last reduce", status);
    }
    mxs_status status = mxs_optimizer_clear(optimizer_);
    if (status != MXS_OK) return failure("mxs_optimizer_clear", status);
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    mxs_step step = MXS_STEP_INIT;
    step.group_count = 1;
    step.groups = &values;
    status = mxs_optimizer_step(optimizer_, &step, nullptr);
    if (status != MXS_OK) return failure("the last step", status);
    std::string complaint = units_.fill(7);
    for (int unit = 0; unit < unit_count && complaint.empty(); unit++) complaint = units_.gather_and_check(unit, 7);
    return complaint.empty() ? free_kept() : complaint;
  }

  // What couldn't be freed while operations were in flight: after a barrier none is.
  std::string free_kept() {
    mxs_status status = mxs_comm_barrier(comm_, nullptr);
    for (size_t i = 0; i < kept_.size() && status == MXS_OK; i++) status = mxs_comm_free(comm_, kept_[i]);
    return status == MXS_OK ? "" : failure("mxs_comm_free at the end", status);
  }

  mxs_comm *comm_;
  std::mt19937 random_;
  Units units_;
  mxs_optimizer *optimizer_ = nullptr;
  mxs_call call_ = MXS_CALL_INIT;
  mxs_request request_ = 0;
  mxs_view shard_ = MXS_VIEW_INIT;
  alignas(64) unsigned char buffer_[16384] = {};
  std::string complaint_;
  std::vector<void *> kept_;
};

bool survives(int rank_count, unsigned seed) {
  const std::string complaint =
      run_world(rank_count, [&](int, mxs_comm *comm) { return Disorder(comm, seed).run(); });
  if (!complaint.empty()) print_error("%d ranks, seed %u: %s\n", rank_count, seed, complaint.c_str());
  return complaint.empty();
}

// By shared memory, or by messages.
bool processes_survive(const char *transport) {
  if (!has_transport(transport)) return true;
  ProcessOptions options;
  options.transport = transport;
  const std::string complaint =
      run_processes(3, [](int, mxs_comm *comm) { return Disorder(comm, 11).run(); }, options);
  if (!complaint.empty()) print_error("%s: %s\n", transport, complaint.c_str());
  return complaint.empty();
}

// First: a fork copies no threads.
void calls_of_processes_in_any_order_leave_the_comm_whole(void **) {
  assert_true(processes_survive("shm"));
  assert_true(processes_survive("ucx"));
}

void calls_in_any_order_leave_the_comm_whole(void **) {
  for (unsigned seed = 1; seed <= 10; seed++)
    for (const int rank_count : {1, 2, 3}) assert_true(survives(rank_count, seed));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(calls_of_processes_in_any_order_leave_the_comm_whole),
      cmocka_unit_test(calls_in_any_order_leave_the_comm_whole),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
