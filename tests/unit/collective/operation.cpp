// SPDX-License-Identifier: Apache-2.0
// The queue: messages by lanes and priorities, shared memory side by side, full, failing, buried, and completed by
// another thread.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "collective/operation.hpp"
#include "transport/transport.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

struct Step : Operation {
  bool messages = true, ready = false, more = false, yielded = false;
  int begins = 0, advances = 0;
  std::vector<const Step *> *order = nullptr;  // of advances
  uint64_t begun_with = 0;
  int other = -1;  // waits for this rank
  mxs_status result = MXS_OK;

  explicit Step(bool by_messages) : messages(by_messages) {}
  mxs_status begin(uint64_t sequence) override {
    ++begins;
    begun_with = sequence;
    return MXS_OK;
  }
  mxs_status advance(Turn *turn) override {
    ++advances;
    yielded = turn->yields;
    turn->complete = ready;
    if (order) order->push_back(this);
    return result;
  }
  bool has_more_to_send() const override { return more; }
  int waits_for() const override { return other; }
  bool uses_messages() const override { return messages; }
  int kind() const override { return 0; }
  const char *name() const override { return "step"; }
};

bool lanes_take_turns() {
  OperationQueue queue;
  Step first(true), shared(false), third(true), fourth(true), fifth(true);
  uint64_t a = 0, b = 0, c = 0, d = 0, e = 0;
  if (queue.enqueue(&first, &a) || queue.enqueue(&shared, &b) || queue.enqueue(&third, &c)) return false;
  if (queue.enqueue(&fourth, &d) || queue.enqueue(&fifth, &e)) return false;
  if (a != 1 || b != 2 || c != 3 || queue.last() != 5) return false;
  if (first.begins != 0 || shared.begins != 1) return false;
  third.ready = shared.ready = true;
  // The first and the fifth have the same lane.
  if (queue.advance() != MXS_OK || first.begins != 1 || third.begins != 1 || fifth.begins != 0) return false;
  if (queue.complete(a) || !queue.complete(b) || !queue.complete(c) || queue.complete(6)) return false;
  if (queue.find(a) != &first || queue.find(b) || queue.find(e) != &fifth) return false;
  if (first.lane() == third.lane() || first.lane() != fifth.lane()) return false;
  first.ready = fourth.ready = fifth.ready = true;
  if (queue.advance() != MXS_OK || fifth.begun_with != 5 || !queue.idle()) return false;
  return queue.complete(a) && queue.complete(e) && queue.complete(0) && !first.in_flight();
}

// Ties by age; one below another that still sends is told so, its equals are not; a shared one below one that has
// nothing to do has its turn.
bool priorities_are_kept() {
  OperationQueue queue;
  std::vector<const Step *> order;
  Step low(true), high(true), equal(true), shared(false);
  for (Step *step : {&low, &high, &equal, &shared}) step->order = &order;
  uint64_t number = 0;
  if (queue.enqueue(&low, &number, -1) || queue.enqueue(&high, &number, 7) || queue.enqueue(&equal, &number, 7) ||
      queue.enqueue(&shared, &number, -3))
    return false;
  high.more = true;
  if (queue.advance() != MXS_OK || order != std::vector<const Step *>{&high, &equal, &low, &shared}) return false;
  if (high.yielded || equal.yielded || !low.yielded) return false;
  high.more = false;
  if (queue.advance() != MXS_OK || low.yielded) return false;
  high.more = high.ready = true;  // complete: nobody yields to it any more
  order.clear();
  if (queue.advance() != MXS_OK || low.yielded || high.in_flight()) return false;
  for (Step *step : {&low, &equal, &shared}) step->ready = true;
  return queue.advance() == MXS_OK && queue.idle();
}

bool twice_is_held() {
  OperationQueue queue;
  Step step(true);
  uint64_t number = 0;
  if (queue.enqueue(&step, &number) != MXS_OK || queue.enqueue(&step, &number) != MXS_HELD) return false;
  step.ready = true;
  return queue.advance() == MXS_OK && queue.enqueue(&step, &number) == MXS_OK && number == 2 && step.begins == 1;
}

bool a_full_queue_is_over_budget() {
  OperationQueue queue;
  std::vector<std::unique_ptr<Step>> steps;
  uint64_t number = 0;
  for (int i = 0; i <= OperationQueue::capacity; ++i) steps.push_back(std::make_unique<Step>(true));
  for (int i = 0; i < OperationQueue::capacity; ++i)
    if (queue.enqueue(steps[static_cast<size_t>(i)].get(), &number) != MXS_OK) return false;
  if (queue.enqueue(steps.back().get(), &number) != MXS_OVER_BUDGET) return false;
  for (const auto &step : steps) step->ready = true;
  return queue.advance() == MXS_OK && queue.idle() && queue.enqueue(steps.back().get(), &number) == MXS_OK;
}

bool the_buried_are_not_looked_at() {
  OperationQueue queue;
  auto step = std::make_unique<Step>(false);
  uint64_t number = 0;
  if (queue.enqueue(step.get(), &number) != MXS_OK) return false;
  step->result = MXS_INTERNAL;
  if (queue.advance() != MXS_INTERNAL) return false;
  queue.bury(std::move(step));
  return queue.advance() == MXS_OK && queue.complete(number);
}

// Another thread completes them, and stores nothing into them afterwards.
bool the_waiter_may_destroy_it() {
  OperationQueue queue;
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over.load()) {
      queue.advance();
      std::this_thread::yield();
    }
  });
  bool is_free = true;
  for (int turn = 0; turn < 200 && is_free; ++turn) {
    auto step = std::make_unique<Step>(turn % 2 == 0);
    step->ready = true;
    uint64_t number = 0;
    if (queue.enqueue(step.get(), &number) != MXS_OK) break;
    while (!queue.complete(number)) std::this_thread::yield();
    is_free = !step->in_flight();
  }
  over.store(true);
  other.join();
  return is_free && queue.last() == 200;
}

// One that has not begun says what is in its way: its own answer would be that of its last start.
bool who_is_in_the_way_is_told() {
  OperationQueue queue;
  Step steps[collective_lanes + 1] = {Step(true), Step(true), Step(true), Step(true), Step(true)};
  uint64_t last = 0;
  for (Step &step : steps)
    if (queue.enqueue(&step, &last) != MXS_OK) return false;
  steps[0].other = 5;
  steps[1].other = 6;
  steps[collective_lanes].other = 7;
  if (queue.describe(1).waits_for != -1 || queue.advance() != MXS_OK) return false;
  if (queue.describe(1).waits_for != 5 || queue.describe(last).waits_for != 5) return false;
  steps[0].ready = true;
  return queue.advance() == MXS_OK && queue.describe(last).waits_for == 7;
}

void operations_of_a_lane_take_turns(void **) { assert_true(lanes_take_turns()); }
void one_that_has_not_begun_says_what_is_in_its_way(void **) { assert_true(who_is_in_the_way_is_told()); }
void the_highest_priority_goes_first(void **) { assert_true(priorities_are_kept()); }
void an_operation_is_in_the_queue_once(void **) { assert_true(twice_is_held()); }
void a_full_queue_says_so(void **) { assert_true(a_full_queue_is_over_budget()); }
void a_buried_operation_stays_but_does_nothing(void **) { assert_true(the_buried_are_not_looked_at()); }
void an_operation_is_free_once_a_wait_has_seen_it_complete(void **) { assert_true(the_waiter_may_destroy_it()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(operations_of_a_lane_take_turns),
      cmocka_unit_test(one_that_has_not_begun_says_what_is_in_its_way),
      cmocka_unit_test(the_highest_priority_goes_first),
      cmocka_unit_test(an_operation_is_in_the_queue_once),
      cmocka_unit_test(a_full_queue_says_so),
      cmocka_unit_test(a_buried_operation_stays_but_does_nothing),
      cmocka_unit_test(an_operation_is_free_once_a_wait_has_seen_it_complete),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
