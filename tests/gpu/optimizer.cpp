// SPDX-License-Identifier: Apache-2.0
// The optimizer over units in CUDA memory beside one over units in host memory, on one comm, from equal numbers: sums
// are in rank order, products by the reference, so weights, state and verdicts are to have equal bits after every step.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "gpu/gpu.hpp"
#include "gpu/graph.hpp"
#include "gpu/optimizer_model.hpp"
#include "support/complaints.hpp"
#include "support/world.hpp"
#include "support/cmocka_all.h"

namespace mxs::test {
namespace {

// Steps with and without a verdict in turns; the third has an infinity.
std::string step_both(const Case &given, mxs_comm *comm) {
  Side host(MXS_HOST), device(MXS_CUDA);
  const mxs_optimizer_options options = options_of(given);
  std::string complaint = host.make(comm, *given.model, &options);
  if (complaint.empty()) complaint = device.make(comm, *given.model, &options);
  if (!complaint.empty()) return complaint;
  Stream own(comm);
  if (!own.device) return "no stream";
  for (int step = 0; step < 6; ++step) {
    const bool spoiled = step == 2;
    complaint = host.reduce(step, nullptr, -1, spoiled);
    if (complaint.empty()) complaint = device.reduce(step, own.stream, -1, spoiled);
    if (!complaint.empty()) return complaint;
    const std::vector<mxs_group_values> values = values_of(step);
    mxs_step of_host = step_of(values, step % 3 ? 0.5f : 0.0f, nullptr);
    mxs_step of_device = of_host;
    of_device.stream = own.stream;
    mxs_verdict expected = MXS_VERDICT_INIT, found = MXS_VERDICT_INIT;
    mxs_status status = mxs_optimizer_step(host.optimizer, &of_host, &expected);
    if (status != MXS_OK) return told("mxs_optimizer_step of the host", status);
    status = mxs_optimizer_step(device.optimizer, &of_device, step % 2 ? &found : nullptr);
    if (status != MXS_OK) return told("mxs_optimizer_step", status);
    for (const auto &[optimizer, verdict] : {std::pair{host.optimizer, &expected}, {device.optimizer, &found}}) {
      status = mxs_optimizer_verdict(optimizer, verdict);
      if (status != MXS_OK) return told("mxs_optimizer_verdict", status);
    }
    complaint = compare_verdicts(expected, found);
    if (complaint.empty()) complaint = compare_sides(&host, &device, step);
    if (!complaint.empty()) return complaint;
    if (expected.skipped != spoiled) return "the infinity was not seen";
    if (mxs_optimizer_step_number(device.optimizer) != mxs_optimizer_step_number(host.optimizer))
      return "step numbers differ";
  }
  return "";
}

// Every job of a stream comes late, on all streams or on every other one: what isn't ordered by events comes out wrong.
void steps_are_ordered_on_slow_streams(void **) {
  if (!on_standin()) return not_run("streams can't be slowed down here");
  for (const char *const which : {"odd", "even"}) {
    assert_true(set_standin("MXS_STANDIN_SLOW", "300"));
    assert_true(set_standin("MXS_STANDIN_SLOW_STREAMS", which));
    const Case given = {&upright_model(), MXS_PRESET_NORMUON};
    const std::string complaint = run_world(2, [&](int, mxs_comm *comm) { return step_both(given, comm); });
    set_standin("MXS_STANDIN_SLOW", nullptr);
    set_standin("MXS_STANDIN_SLOW_STREAMS", nullptr);
    if (!complaint.empty()) print_error("%s streams are slow: %s\n", which, complaint.c_str());
    assert_string_equal(complaint.c_str(), "");
  }
}

// ---- graphs --------------------------------------------------------------------------------------------------------

// The context that the graph's calls want is the rank's device's, current on its thread.
std::string capture_step(Side *side, Graph *graph, void *stream) {
  std::string complaint = graph->begin(stream);
  if (!complaint.empty()) return complaint;
  const std::vector<mxs_group_values> values = values_of(0);
  const mxs_step step = step_of(values, 0.0f, stream);
  mxs_verdict verdict = MXS_VERDICT_INIT;
  const mxs_status refused = mxs_optimizer_step(side->optimizer, &step, &verdict);
  const mxs_status status = mxs_optimizer_step(side->optimizer, &step, nullptr);
  const std::string sentence = mxs_last_error();
  complaint = graph->end(stream);
  if (refused != MXS_NOT_BUILT) return "a captured step with a verdict was not refused";
  if (status != MXS_OK) return "the captured step: " + sentence;
  return complaint;
}

// Ten launches with values that change, beside ten steps.
std::string replay(const Case &given, mxs_comm *comm) {
  Side plain(MXS_CUDA), captured(MXS_CUDA);
  const mxs_optimizer_options options = options_of(given);
  std::string complaint = plain.make(comm, *given.model, &options);
  if (complaint.empty()) complaint = captured.make(comm, *given.model, &options);
  if (!complaint.empty()) return complaint;
  Stream own(comm);
  if (!own.device) return "no stream";
  Graph graph(own.device->info().index);
  mxs_verdict expected = MXS_VERDICT_INIT, found = MXS_VERDICT_INIT;
  complaint = capture_step(&captured, &graph, own.stream);
  if (!complaint.empty()) return complaint;
  if (mxs_optimizer_verdict(captured.optimizer, &found) != MXS_NOT_FOUND) return "a verdict before the first launch";
  mxs_call call = MXS_CALL_INIT;
  call.stream = own.stream;
  for (int step = 0; step < 10; ++step) {
    const std::vector<mxs_group_values> values = values_of(step);
    const mxs_step given_step = step_of(values, step % 3 ? 0.5f : 0.0f, own.stream);
    const bool spoiled = step == 4;
    for (Side *side : {&plain, &captured}) {
      complaint = side->reduce(step, own.stream, -1, spoiled);
      if (!complaint.empty()) return complaint;
    }
    mxs_status status = mxs_optimizer_step(plain.optimizer, &given_step, nullptr);
    if (status != MXS_OK) return told("mxs_optimizer_step", status);
    for (mxs_unit *unit : captured.units)
      if (status == MXS_OK) status = mxs_unit_wait_reduce(unit, &call);
    if (status == MXS_OK) status = mxs_optimizer_set_values(captured.optimizer, &given_step);
    if (status != MXS_OK) return told("mxs_optimizer_set_values", status);
    complaint = graph.launch(own.stream);
    if (!complaint.empty()) return complaint;
    if (step % 4 != 3) continue;
    status = mxs_optimizer_verdict(plain.optimizer, &expected);
    if (status == MXS_OK) status = mxs_optimizer_verdict(captured.optimizer, &found);
    if (status != MXS_OK) return told("mxs_optimizer_verdict", status);
    complaint = compare_verdicts(expected, found);
    if (!complaint.empty()) return complaint;
  }
  if (mxs_optimizer_step_number(captured.optimizer) != 9) return "nine steps should count";
  if (mxs_optimizer_step_number(plain.optimizer) != 9) return "nine plain steps should count";
  return compare_sides(&plain, &captured, 9);
}

void ten_launches_are_ten_steps(void **) {
  for (const int ranks : {1, 3}) {
    const Case given = {&muon_model};
    const std::string complaint = run_world(ranks, [&](int, mxs_comm *comm) { return replay(given, comm); });
    if (!complaint.empty()) print_error("%d ranks: %s\n", ranks, complaint.c_str());
    assert_string_equal(complaint.c_str(), "");
  }
}

// ---- refusals ------------------------------------------------------------------------------------------------------

// The same where the host carries the agreement.
void the_host_can_carry_the_agreement(void **) {
  setenv("MXS_ROUTE", "messages", 1);
  const Case given = {&muon_model};
  const std::string complaint = run_world(3, [&](int, mxs_comm *comm) { return step_both(given, comm); });
  unsetenv("MXS_ROUTE");
  assert_string_equal(complaint.c_str(), "");
}

// Values that one rank gives alone: nobody changes anything, and all are told by a later call.
std::string differ(int rank, mxs_comm *comm) {
  const Case given = {&adamw_model};
  Side side(MXS_CUDA);
  const mxs_optimizer_options options = options_of(given);
  std::string complaint = side.make(comm, *given.model, &options);
  if (!complaint.empty()) return complaint;
  Stream own(comm);
  std::vector<std::byte> before, after;
  complaint = side.collect(&before);
  if (complaint.empty()) complaint = side.reduce(0, own.stream);
  if (!complaint.empty()) return complaint;
  std::vector<mxs_group_values> values = values_of(0);
  if (rank == 1) values[0].lr *= 2.0f;
  mxs_step step = step_of(values, 0.0f, own.stream);
  mxs_status status = mxs_optimizer_step(side.optimizer, &step, nullptr);
  if (status != MXS_OK) return told("the step that nobody waits for", status);
  mxs_verdict verdict = MXS_VERDICT_INIT;
  status = mxs_optimizer_verdict(side.optimizer, &verdict);
  if (status != MXS_MISMATCH) return told("the verdict is no mismatch", status);
  if (std::string(mxs_last_error()).find("rank 1 gives other group values") == std::string::npos)
    return std::string("the sentence is ") + mxs_last_error();
  complaint = side.collect(&after);
  if (!complaint.empty()) return complaint;
  if (before != after) return "a refused step has changed something";
  if (mxs_optimizer_step_number(side.optimizer) != 0) return "a refused step counts";
  // With a verdict it is told at once, and the sums are kept.
  complaint = side.reduce(1, own.stream);
  if (!complaint.empty()) return complaint;
  status = mxs_optimizer_step(side.optimizer, &step, &verdict);
  if (status != MXS_MISMATCH) return told("the step with a verdict is no mismatch", status);
  values = values_of(0);
  step.groups = values.data();
  status = mxs_optimizer_step(side.optimizer, &step, &verdict);
  if (status != MXS_OK) return told("the step with equal values", status);
  if (verdict.norm == 0 || verdict.step_number != 1) return "the sums were not kept";
  return "";
}

void ranks_that_differ_are_told(void **) {
  for (const int ranks : {2, 3}) {
    const std::string complaint = run_world(ranks, differ);
    if (!complaint.empty()) print_error("%d ranks: %s\n", ranks, complaint.c_str());
    assert_string_equal(complaint.c_str(), "");
  }
}

std::string lack_a_gradient(int rank, mxs_comm *comm) {
  const Case given = {&adamw_model};
  Side side(MXS_CUDA);
  const mxs_optimizer_options options = options_of(given);
  std::string complaint = side.make(comm, *given.model, &options);
  if (!complaint.empty()) return complaint;
  Stream own(comm);
  complaint = side.reduce(0, own.stream, rank == 0 ? 1 : -1);
  if (!complaint.empty()) return complaint;
  const std::vector<mxs_group_values> values = values_of(0);
  mxs_step step = step_of(values, 0.0f, own.stream);
  step.missing = MXS_MISSING_ERROR;
  mxs_status status = mxs_optimizer_step(side.optimizer, &step, nullptr);
  if (status != MXS_NOT_OPEN) return told("a missing gradient is no error", status);
  if (std::string(mxs_last_error()).find("rank 0 has not given the gradient of tensor \"norm\"") == std::string::npos)
    return std::string("the sentence is ") + mxs_last_error();
  step.missing = MXS_MISSING_ZERO;
  mxs_verdict verdict = MXS_VERDICT_INIT;
  status = mxs_optimizer_step(side.optimizer, &step, &verdict);
  if (status != MXS_OK) return told("the step that counts it as zero", status);
  return verdict.step_number == 1 && verdict.norm > 0 ? "" : "the sums were not kept";
}

// A momentum that is not finite: its piece is left out, all else is stepped, and the next agreement says so everywhere.
std::string damage(int, mxs_comm *comm) {
  const Case given = {&muon_model};
  Side side(MXS_CUDA);
  const mxs_optimizer_options options = options_of(given);
  std::string complaint = side.make(comm, *given.model, &options);
  if (!complaint.empty()) return complaint;
  Stream own(comm);
  for (uint64_t i = 0; i < mxs_optimizer_state_count(side.optimizer); ++i) {
    mxs_state_info info = MXS_STATE_INFO_INIT;
    const mxs_status status = mxs_optimizer_state(side.optimizer, i, &info);
    if (status != MXS_OK) return told("mxs_optimizer_state", status);
    if (std::string(info.name) != "momentum" || info.tensor != 2) continue;
    const float none = NAN;
    complaint = copy_bytes(info.view.data, &none, sizeof none);
    if (!complaint.empty()) return complaint;
  }
  const std::vector<mxs_group_values> values = values_of(0);
  const mxs_step step = step_of(values, 0.0f, own.stream);
  mxs_verdict verdict = MXS_VERDICT_INIT;
  complaint = side.reduce(0, own.stream);
  if (!complaint.empty()) return complaint;
  mxs_status status = mxs_optimizer_step(side.optimizer, &step, &verdict);
  if (status != MXS_OK) return told("the step whose momentum is damaged", status);
  if (verdict.skipped || verdict.step_number != 1) return "the step does not count";
  complaint = side.reduce(1, own.stream);
  if (!complaint.empty()) return complaint;
  status = mxs_optimizer_step(side.optimizer, &step, &verdict);
  if (status != MXS_INTERNAL) return told("the step after it is no MXS_INTERNAL", status);
  const std::string sentence = mxs_last_error();
  if (sentence.find("\"out\"") == std::string::npos) return "the sentence is " + sentence;
  return mxs_optimizer_step_number(side.optimizer) == 1 ? "" : "the refused step counts";
}

void a_damaged_momentum_is_told_by_all(void **) {
  for (const int ranks : {1, 3}) {
    const std::string complaint = run_world(ranks, damage);
    if (!complaint.empty()) print_error("%d ranks: %s\n", ranks, complaint.c_str());
    assert_string_equal(complaint.c_str(), "");
  }
}

void a_missing_gradient_is_told_by_all(void **) {
  const std::string complaint = run_world(3, lack_a_gradient);
  assert_string_equal(complaint.c_str(), "");
}

// agree, then a step that uses it; set_step_number; clear; a verdict before any step.
std::string agree_first(int, mxs_comm *comm) {
  const Case given = {&adamw_model};
  Side host(MXS_HOST), device(MXS_CUDA);
  const mxs_optimizer_options options = options_of(given);
  std::string complaint = host.make(comm, *given.model, &options);
  if (complaint.empty()) complaint = device.make(comm, *given.model, &options);
  if (!complaint.empty()) return complaint;
  Stream own(comm);
  mxs_verdict verdict = MXS_VERDICT_INIT;
  const std::vector<mxs_group_values> some = values_of(0);
  mxs_step wrong = step_of(some, 0.0f, nullptr);
  if (mxs_optimizer_set_values(host.optimizer, &wrong) != MXS_INVALID_ARGUMENT) return "values for host memory";
  wrong.missing = MXS_MISSING_ERROR;
  if (mxs_optimizer_set_values(device.optimizer, &wrong) != MXS_INVALID_ARGUMENT) return "values that wait";
  wrong.missing = MXS_MISSING_ZERO;
  wrong.group_count = 1;
  if (mxs_optimizer_set_values(device.optimizer, &wrong) != MXS_INVALID_ARGUMENT) return "values of too few groups";
  wrong.group_count = 2;
  wrong.stream = own.stream;
  if (mxs_optimizer_step(host.optimizer, &wrong, nullptr) != MXS_INVALID_ARGUMENT) return "a stream for host memory";
  for (Side *side : {&host, &device}) {
    if (mxs_optimizer_verdict(side->optimizer, &verdict) != MXS_NOT_FOUND) return "a verdict before any step";
    const mxs_status status = mxs_optimizer_set_step_number(side->optimizer, 41);
    if (status != MXS_OK) return told("mxs_optimizer_set_step_number", status);
    if (mxs_optimizer_step_number(side->optimizer) != 41) return "the step number was not set";
  }
  for (int step = 0; step < 3; ++step) {
    const std::vector<mxs_group_values> values = values_of(step);
    mxs_step of_host = step_of(values, 0.25f, nullptr), of_device = step_of(values, 0.25f, own.stream);
    mxs_verdict expected = MXS_VERDICT_INIT, found = MXS_VERDICT_INIT;
    if (step == 1) {
      complaint = host.reduce(7, nullptr);
      if (complaint.empty()) complaint = device.reduce(7, own.stream);
      if (!complaint.empty()) return complaint;
      if (mxs_optimizer_clear(host.optimizer) != MXS_OK || mxs_optimizer_clear(device.optimizer) != MXS_OK)
        return told("mxs_optimizer_clear", MXS_INTERNAL);
    }
    complaint = host.reduce(step, nullptr);
    if (complaint.empty()) complaint = device.reduce(step, own.stream);
    if (!complaint.empty()) return complaint;
    mxs_status status = mxs_optimizer_agree(host.optimizer, &of_host, &expected);
    if (status == MXS_OK) status = mxs_optimizer_agree(device.optimizer, &of_device, &found);
    if (status != MXS_OK) return told("mxs_optimizer_agree", status);
    complaint = compare_verdicts(expected, found);
    if (!complaint.empty()) return complaint;
    if (mxs_optimizer_step_number(device.optimizer) != static_cast<uint64_t>(41 + step))
      return "agree counts as a step";
    status = mxs_optimizer_step(host.optimizer, &of_host, nullptr);
    if (status == MXS_OK) status = mxs_optimizer_step(device.optimizer, &of_device, nullptr);
    if (status != MXS_OK) return told("mxs_optimizer_step", status);
    if (mxs_optimizer_step_number(device.optimizer) != static_cast<uint64_t>(42 + step))
      return "the step doesn't count";
    complaint = compare_sides(&host, &device, step);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

void an_agreement_serves_the_step_after_it(void **) {
  for (const int ranks : {1, 3}) {
    const std::string complaint = run_world(ranks, agree_first);
    if (!complaint.empty()) print_error("%d ranks: %s\n", ranks, complaint.c_str());
    assert_string_equal(complaint.c_str(), "");
  }
}

// ---- worlds --------------------------------------------------------------------------------------------------------

void muon_steps_in_every_world(void **) {
  for (const int ranks : world_sizes)
    for (const mxs_preset preset : {MXS_PRESET_DEFAULT, MXS_PRESET_NORMUON}) {
      if (preset == MXS_PRESET_NORMUON && ranks != 1 && ranks != 3) continue;
      Case given = {preset == MXS_PRESET_NORMUON ? &upright_model() : &muon_model};
      given.preset = preset;
      const std::string complaint =
          run_world(ranks, [&](int, mxs_comm *comm) { return step_both(given, comm); });
      if (!complaint.empty()) print_error("%d ranks, preset %d: %s\n", ranks, preset, complaint.c_str());
      assert_string_equal(complaint.c_str(), "");
    }
}

void shampoo_and_soap_step_in_every_world(void **) {
  for (const int ranks : world_sizes) {
    const Case given = {&factor_model};
    const std::string complaint = run_world(ranks, [&](int, mxs_comm *comm) { return step_both(given, comm); });
    if (!complaint.empty()) print_error("%d ranks: %s\n", ranks, complaint.c_str());
    assert_string_equal(complaint.c_str(), "");
  }
}

void adamw_steps_in_every_world(void **) {
  for (const int ranks : world_sizes)
    for (const mxs_rounding rounding : {MXS_ROUND_NEAREST, MXS_ROUND_STOCHASTIC}) {
      if (rounding == MXS_ROUND_STOCHASTIC && ranks != 4) continue;
      Case given = {&adamw_model};
      given.rounding = rounding;
      const std::string complaint =
          run_world(ranks, [&](int, mxs_comm *comm) { return step_both(given, comm); });
      if (!complaint.empty()) print_error("%d ranks, rounding %d: %s\n", ranks, rounding, complaint.c_str());
      assert_string_equal(complaint.c_str(), "");
    }
}

}  // namespace
}  // namespace mxs::test

int main(int, char **arguments) {
  using namespace mxs::test;
  if (!gpu_is_there(arguments)) return 0;
  const CMUnitTest tests[] = {
      cmocka_unit_test(adamw_steps_in_every_world),
      cmocka_unit_test(muon_steps_in_every_world),
      cmocka_unit_test(shampoo_and_soap_step_in_every_world),
      cmocka_unit_test(the_host_can_carry_the_agreement),
      cmocka_unit_test(an_agreement_serves_the_step_after_it),
      cmocka_unit_test(ranks_that_differ_are_told),
      cmocka_unit_test(a_missing_gradient_is_told_by_all),
      cmocka_unit_test(a_damaged_momentum_is_told_by_all),
      cmocka_unit_test(ten_launches_are_ten_steps),
      cmocka_unit_test(steps_are_ordered_on_slow_streams),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
