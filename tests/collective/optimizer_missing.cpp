// SPDX-License-Identifier: Apache-2.0
// Gradients that a rank has not given: an error on all ranks that names tensor, unit and rank if the step asks for it,
// else zeros; and gradients that are thrown away while they are open.
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "matrixshard/matrixshard.h"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/summer.hpp"
#include "support/unit_model.hpp"
#include "support/unit_ways.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr int nobody = -1, everybody = -2;

struct Rank : Units {
  mxs_optimizer *optimizer = nullptr;
  ~Rank() { mxs_optimizer_destroy(&optimizer); }

  std::string make_all(mxs_comm *its_comm, const Model &model, const mxs_unit_options *unit_options = nullptr,
                       const mxs_optimizer_options *options = nullptr) {
    std::string complaint = make(its_comm, model, unit_options);
    if (complaint.empty()) complaint = fill(1);
    if (!complaint.empty()) return complaint;
    return want(MXS_OK, mxs_optimizer_create(&optimizer, units.data(), units.size(), options), "optimizer");
  }

  // Gives every gradient, but not those of `tensor` on `from`.
  std::string backward(const char *name = nullptr, int from = nobody) {
    int32_t tensor = -1;
    if (name && mxs_plan_find(plan, name, &tensor) != MXS_OK) return error_of(name);
    for (size_t index = units.size(); index-- > 0;) {
      bool open = false;
      for (const int number : inner().units[index].tensors) {
        const PlannedTensor &planned = inner().tensors[static_cast<size_t>(number)];
        if (planned.frozen() || planned.tied_to >= 0 || planned.element_count == 0) continue;
        if (number == tensor && (from == everybody || from == rank)) continue;
        const std::string complaint = give(number);
        if (!complaint.empty()) return complaint;
        open = true;
      }
      const mxs_status status =
          open ? mxs_unit_reduce(units[index], nullptr) : mxs_unit_skip(units[index], nullptr);
      if (status != MXS_OK) return error_of("reduce");
    }
    return "";
  }

  std::string give(int tensor, float first = 1) {
    mxs_unit *const unit = units[static_cast<size_t>(inner().tensors[static_cast<size_t>(tensor)].unit)];
    mxs_view view = MXS_VIEW_INIT;
    if (mxs_unit_gradient(unit, tensor, MXS_WRITE, &view) != MXS_OK) return error_of("gradient");
    std::memset(view.data, 0, view.bytes);
    write_value(view.data, view.dtype, 0, first);
    return "";
  }

  std::string skip_all() {
    for (size_t index = units.size(); index-- > 0;)  // in backward's order, as others reduce
      if (mxs_unit_skip(units[index], nullptr) != MXS_OK) return error_of("skip");
    return "";
  }

  mxs_status step(int32_t missing, mxs_verdict *verdict = nullptr, bool only_agree = false) {
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    mxs_step step = MXS_STEP_INIT;
    step.groups = &values;
    step.group_count = 1;
    step.missing = missing;
    return only_agree ? mxs_optimizer_agree(optimizer, &step, verdict) : mxs_optimizer_step(optimizer, &step, verdict);
  }

  // Both calls refuse with the sentence, nothing has changed, and the sums are as they were.
  std::string refused(const std::vector<std::string> &said, uint64_t version = 1) {
    mxs_verdict before = MXS_VERDICT_INIT, after = MXS_VERDICT_INIT, untouched = MXS_VERDICT_INIT;
    if (step(MXS_MISSING_ZERO, &before, true) != MXS_OK) return error_of("agree with zeros");
    std::string complaint = expect(step(MXS_MISSING_ERROR, &untouched, true), MXS_NOT_OPEN, said);
    if (complaint.empty()) complaint = expect(step(MXS_MISSING_ERROR, &untouched), MXS_NOT_OPEN, said);
    if (!complaint.empty()) return complaint;
    if (untouched.norm != 0 || untouched.step_number != 0) return "a refused step wrote its verdict";
    if (step(MXS_MISSING_ZERO, &after, true) != MXS_OK) return error_of("agree with zeros");
    if (before.norm != after.norm || before.step_number != after.step_number) return "a refused step changed the sums";
    for (size_t index = 0; version && index < units.size() && complaint.empty(); ++index)
      complaint = gather_and_check(static_cast<int>(index), version);
    return complaint;
  }
};

std::string first_of(std::initializer_list<std::function<std::string()>> calls) {
  for (const auto &call : calls) {
    const std::string complaint = call();
    if (!complaint.empty()) return complaint;
  }
  return "";
}

std::string number_of(const char *what, int number) { return what + std::to_string(number); }

// ---- one rank, or all, have not given one tensor ----

std::string missing_is_named(Rank &rank, const char *name, int from, uint64_t version) {
  int32_t tensor = 0;
  mxs_plan_find(rank.plan, name, &tensor);
  const int unit = rank.inner().tensors[static_cast<size_t>(tensor)].unit;
  return first_of({[&] { return rank.backward(name, from); },
                   [&] {
                     return rank.refused({std::string("\"") + name + "\"", number_of("unit ", unit),
                                          number_of("rank ", from == everybody ? 0 : from), "MXS_MISSING_ZERO"},
                                         version);
                   }});
}

std::string one_missing(mxs_comm *comm) {
  Rank rank;
  std::string complaint = rank.make_all(comm, odd_model());
  uint64_t version = 1;  // of the weights, as far as they are known
  for (const char *name : {"embedding", "experts", "bias", "head"})
    for (const int from : {0, rank.rank_count - 1, everybody}) {
      if (complaint.empty()) complaint = missing_is_named(rank, name, from, version);
      // Whoever lacks it gives it after all; the others take part with zeros.
      int32_t tensor = 0;
      mxs_plan_find(rank.plan, name, &tensor);
      mxs_unit *const unit = rank.units[static_cast<size_t>(rank.inner().tensors[static_cast<size_t>(tensor)].unit)];
      if (complaint.empty() && (from == everybody || from == rank.rank)) {
        complaint = rank.give(tensor);
        if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_reduce(unit, nullptr), "reduce");
      } else if (complaint.empty()) {
        complaint = want(MXS_OK, mxs_unit_skip(unit, nullptr), "skip");
      }
      if (complaint.empty()) complaint = want(MXS_OK, rank.step(MXS_MISSING_ERROR), "the step");
      if (!complaint.empty()) return std::string(name) + ", " + std::to_string(from) + ": " + complaint;
      version = 0;
    }
  return complaint;
}

// The lowest rank and its first tensor, though others lack more.
std::string several_missing(mxs_comm *comm) {
  Rank rank;
  return first_of({[&] { return rank.make_all(comm, odd_model()); },
                   [&] { return rank.rank == 0 ? rank.backward() : rank.skip_all(); },
                   [&] {
                     if (rank.rank_count == 1) return want(MXS_OK, rank.step(MXS_MISSING_ERROR), "the step");
                     return rank.refused({"rank 1 ", "\"embedding\"", "unit 0"});
                   }});
}

// What resets the books, and what gives nothing.
std::string books(mxs_comm *comm) {
  Rank rank;
  std::string complaint = rank.make_all(comm, odd_model());
  const auto refused = [&] { return expect(rank.step(MXS_MISSING_ERROR), MXS_NOT_OPEN, {"\"embedding\"", "rank 0"}); };
  if (complaint.empty()) complaint = refused();
  if (complaint.empty()) complaint = first_of({[&] { return rank.skip_all(); }, refused});
  // Opened and thrown away.
  if (complaint.empty()) complaint = rank.give(0);
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_discard(rank.units[0]), "discard");
  if (complaint.empty()) complaint = refused();
  // Given in one of several micro-batches.
  if (complaint.empty())
    complaint = first_of({[&] { return rank.backward(); }, [&] { return rank.backward("qkv", everybody); },
                          [&] { return want(MXS_OK, rank.step(MXS_MISSING_ERROR), "after micro-batches"); }, refused,
                          [&] { return want(MXS_OK, rank.step(MXS_MISSING_ZERO), "with zeros"); }});
  // clear, and a step that is skipped.
  if (complaint.empty()) complaint = rank.backward();
  if (complaint.empty()) complaint = want(MXS_OK, mxs_optimizer_clear(rank.optimizer), "clear");
  if (complaint.empty()) complaint = refused();
  if (complaint.empty()) complaint = rank.backward();
  if (complaint.empty()) complaint = rank.give(0, std::numeric_limits<float>::infinity());
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_reduce(rank.units[0], nullptr), "reduce");
  mxs_verdict verdict = MXS_VERDICT_INIT;
  if (complaint.empty()) complaint = want(MXS_OK, rank.step(MXS_MISSING_ERROR, &verdict), "a skipped step");
  if (complaint.empty() && !verdict.skipped) return "an infinity was not seen";
  return complaint.empty() ? refused() : complaint;
}

// A tie is the tensor that it is tied to, and gradient_set gives as well.
std::string other_ways(mxs_comm *comm) {
  Rank rank;
  std::string complaint = rank.make_all(comm, odd_model());
  if (complaint.empty()) complaint = rank.backward("head", everybody);
  int32_t tied = 0;
  if (!complaint.empty()) return complaint;
  mxs_plan_find(rank.plan, "tied", &tied);
  std::vector<uint16_t> zeros(41 * 64);
  mxs_view view = MXS_VIEW_INIT;
  view.dtype = MXS_F16;
  view.data = zeros.data();
  view.bytes = 2 * zeros.size();
  complaint = want(MXS_OK, mxs_unit_gradient_set(rank.units[4], tied, &view), "gradient_set");
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_reduce(rank.units[4], nullptr), "reduce");
  return complaint.empty() ? want(MXS_OK, rank.step(MXS_MISSING_ERROR), "the step") : complaint;
}

std::string other_values(mxs_comm *comm) {
  Rank rank;
  std::string complaint = first_of({[&] { return rank.make_all(comm, odd_model()); }, [&] { return rank.backward(); }});
  for (const int32_t wrong : {-1, 2})
    if (complaint.empty()) complaint = expect(rank.step(wrong), MXS_INVALID_ARGUMENT, {"step.missing"});
  const bool last = rank.rank == rank.rank_count - 1 && rank.rank_count > 1;
  if (complaint.empty() && rank.rank_count > 1)
    complaint = expect(rank.step(last ? MXS_MISSING_ERROR : MXS_MISSING_ZERO), MXS_MISMATCH, {"missing"});
  // An agreement with zeros doesn't serve a step that takes them as an error.
  mxs_verdict verdict = MXS_VERDICT_INIT;
  if (complaint.empty()) complaint = want(MXS_OK, rank.step(MXS_MISSING_ERROR, &verdict, true), "agree");
  if (complaint.empty()) complaint = want(MXS_OK, rank.step(MXS_MISSING_ERROR), "step");
  if (complaint.empty()) complaint = want(MXS_OK, rank.step(MXS_MISSING_ZERO, &verdict, true), "agree with zeros");
  return complaint.empty() ? expect(rank.step(MXS_MISSING_ERROR), MXS_NOT_OPEN) : complaint;
}

// ---- over the caller's sum, and over replicas ----

std::string by_sum(int rank_count, bool same_rank) {
  Summer summer(rank_count);
  return run_world(rank_count, [&](int number, mxs_comm *comm) -> std::string {
    // Comms of one rank each: all have number 0.
    mxs_comm *alone = nullptr;
    if (mxs_comm_split(&alone, comm, number, 0, nullptr) != MXS_OK) return error_of("split");
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    options.agree = Summer::call;
    options.agree_context = &summer;
    std::string complaint;
    {
      Rank rank;
      complaint = rank.make_all(same_rank ? alone : comm, odd_model(), nullptr, &options);
      const int last = rank_count - 1;
      const bool lacks = same_rank ? number == last : rank.rank == last;
      if (complaint.empty()) complaint = rank.backward("bias", lacks ? everybody : nobody);
      if (complaint.empty()) complaint = rank.refused({"\"bias\"", "unit 1", number_of("rank ", same_rank ? 0 : last)});
      if (complaint.empty()) complaint = want(MXS_OK, rank.step(MXS_MISSING_ZERO), "with zeros");
      // All lack the same one, and then different ones.
      if (complaint.empty()) complaint = rank.backward("experts", everybody);
      if (complaint.empty()) complaint = rank.refused({"\"experts\"", "rank 0"}, 0);
      if (complaint.empty()) complaint = want(MXS_OK, rank.step(MXS_MISSING_ZERO), "with zeros");
      const char *const own = number == 0 ? "head" : "qkv";
      if (complaint.empty()) complaint = rank.backward(own, everybody);
      if (complaint.empty())
        complaint = rank.refused({same_rank ? std::string("\"") + own + "\"" : "\"head\"", "rank 0"}, 0);
      if (complaint.empty()) complaint = want(MXS_OK, rank.step(MXS_MISSING_ZERO), "with zeros");
    }
    mxs_comm_destroy(&alone);
    return complaint;
  });
}

std::string over_replicas(int number, mxs_comm *world) {
  mxs_comm *shards = nullptr, *replicas = nullptr;
  if (mxs_comm_split(&shards, world, number / 2, 0, nullptr) != MXS_OK ||
      mxs_comm_split(&replicas, world, number % 2, 0, nullptr) != MXS_OK)
    return error_of("split");
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.replicas = replicas;
  std::string complaint;
  {
    Rank rank;
    complaint = rank.make_all(shards, odd_model(), &options);
    for (int lacks = 0; lacks < 4; ++lacks) {
      if (complaint.empty()) complaint = rank.backward("plain", number == lacks ? everybody : nobody);
      if (complaint.empty()) complaint = rank.refused({"\"plain\"", number_of("rank ", lacks % 2)}, lacks == 0);
      if (complaint.empty()) complaint = want(MXS_OK, rank.step(MXS_MISSING_ZERO), "with zeros");
    }
  }
  mxs_comm_destroy(&replicas);
  mxs_comm_destroy(&shards);
  return complaint;
}

// ---- discard ----

// An exception in the second micro-batch: what was reduced before stays, the slot is free, what was added is gone.
std::string thrown_away(mxs_comm *comm) {
  Units units;
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.flags = MXS_RANK_ORDER;
  options.gradient_slots = 1;
  std::string complaint = units.make(comm, plain_model(3), &options);
  if (!complaint.empty()) return complaint;
  for (mxs_unit *unit : units.units)
    if (mxs_unit_discard(unit) != MXS_OK) return error_of("discarding nothing");
  complaint = units.write_gradients(1, 0, MXS_WRITE);
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_reduce(units.units[1], nullptr), "reduce");
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_discard(units.units[1]), "discarding what is reduced");
  if (complaint.empty()) complaint = units.check_sums(1, 1);
  if (complaint.empty()) complaint = units.write_gradients(1, 7, MXS_ADD);
  mxs_view view = MXS_VIEW_INIT;
  if (complaint.empty())
    complaint = want(MXS_OVER_BUDGET, mxs_unit_gradient(units.units[0], 0, MXS_WRITE, &view), "the only slot");
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_discard(units.units[1]), "discard");
  if (complaint.empty() && info_of(units.units[1]).gradients_state != MXS_EMPTY) return "it is still open";
  if (complaint.empty()) complaint = want(MXS_NOT_OPEN, mxs_unit_reduce(units.units[1], nullptr), "reduce of nothing");
  for (int unit : {0, 1}) {
    if (complaint.empty()) complaint = units.write_gradients(unit, unit, MXS_ADD);  // unit 1 in its round 1
    if (complaint.empty())
      complaint = want(MXS_OK, mxs_unit_reduce(units.units[static_cast<size_t>(unit)], nullptr), "reduce");
  }
  if (complaint.empty()) complaint = units.check_sums(0, 1);
  if (complaint.empty()) complaint = units.check_sums(1, 2);
  return complaint;
}

std::string after_a_failure(mxs_comm *comm) {
  Units units;
  std::string complaint = units.make(comm, plain_model(1));
  if (complaint.empty()) complaint = units.write_gradients(0, 0, MXS_WRITE);
  if (!complaint.empty()) return complaint;
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  mxs_comm_abort(comm, "an exception in backward");
  if (mxs_unit_discard(units.units[0]) != MXS_OK) return error_of("discard");
  if (info_of(units.units[0]).gradients_state != MXS_EMPTY) return "it is still open";
  return expect(mxs_unit_discard(nullptr), MXS_INVALID_ARGUMENT, {"unit is NULL"});
}

template <class Body>
bool in_worlds(Body &&body) {
  for (const int rank_count : {1, 2, 3, 4})
    if (!good(run_world(rank_count, [&](int, mxs_comm *comm) { return body(comm); }))) return false;
  return true;
}

void a_missing_gradient_is_named_on_all_ranks(void **) { assert_true(in_worlds(one_missing)); }
void the_lowest_rank_and_its_first_tensor_are_named(void **) { assert_true(in_worlds(several_missing)); }
void steps_and_clear_begin_the_books_anew(void **) { assert_true(in_worlds(books)); }
void ties_and_callers_memory_give_as_well(void **) { assert_true(in_worlds(other_ways)); }
void ranks_ask_for_the_same(void **) { assert_true(in_worlds(other_values)); }
void processes_name_it_as_well(void **) {
  assert_true(good(run_processes(3, [](int, mxs_comm *comm) { return one_missing(comm); })));
}
void the_callers_sum_names_it_as_well(void **) {
  for (const int rank_count : {1, 3}) assert_true(good(by_sum(rank_count, false)));
}
void ranks_that_share_a_number_name_what_they_know(void **) { assert_true(good(by_sum(3, true))); }
void replicas_name_it_as_well(void **) { assert_true(good(run_world(4, over_replicas))); }
void open_gradients_are_thrown_away(void **) { assert_true(in_worlds(thrown_away)); }
void they_are_thrown_away_after_a_failure(void **) { assert_true(in_worlds(after_a_failure)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_missing_gradient_is_named_on_all_ranks),
      cmocka_unit_test(the_lowest_rank_and_its_first_tensor_are_named),
      cmocka_unit_test(steps_and_clear_begin_the_books_anew),
      cmocka_unit_test(ties_and_callers_memory_give_as_well),
      cmocka_unit_test(ranks_ask_for_the_same),
      cmocka_unit_test(processes_name_it_as_well),
      cmocka_unit_test(the_callers_sum_names_it_as_well),
      cmocka_unit_test(ranks_that_share_a_number_name_what_they_know),
      cmocka_unit_test(replicas_name_it_as_well),
      cmocka_unit_test(open_gradients_are_thrown_away),
      cmocka_unit_test(they_are_thrown_away_after_a_failure),
  };
  return cmocka_run_group_tests_name("optimizer missing", tests, nullptr, nullptr);
}
