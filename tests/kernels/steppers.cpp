// SPDX-License-Identifier: Apache-2.0
// Steppers: what a batch, blocks, strides, halves and threads must not change, and that a step allocates nothing.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "support/counted_allocations.hpp"
#include "support/stepping.hpp"
#include "support/thinned.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

constexpr int steps = 3;

// A decomposition at the second step of three.
MakeStepper shampoo_on(int32_t threads) {
  return [threads](mxs_stepper **stepper, const mxs_matrices *matrices) {
    mxs_shampoo_options options = MXS_SHAMPOO_OPTIONS_INIT;
    options.thread_count = threads;
    options.interval = 2;
    options.block_max = 64;
    return mxs_shampoo_create(stepper, matrices, &options);
  };
}

MakeStepper soap_on(int32_t threads) {
  return [threads](mxs_stepper **stepper, const mxs_matrices *matrices) {
    mxs_soap_options options = MXS_SOAP_OPTIONS_INIT;
    options.thread_count = threads;
    options.interval = 2;
    options.side_max = 100;
    return mxs_soap_create(stepper, matrices, &options);
  };
}

struct Rule {
  const char *name;
  MakeStepper (*on)(int32_t threads);
};
const Rule rules[] = {
    {"muon", [](int32_t threads) { return muon_on(threads); }},
    {"normuon", [](int32_t threads) { return muon_on(threads, MXS_PRESET_NORMUON); }},
    {"adamw", [](int32_t threads) { return adamw_on(threads); }},
    {"shampoo", shampoo_on},
    {"soap", soap_on},
};

bool say(const char *rule, const char *what, const mxs_matrices &matrices) {
  print_error("%s: %s, %lld of %lld x %lld: %s\n", rule, what, static_cast<long long>(matrices.count),
              static_cast<long long>(matrices.rows), static_cast<long long>(matrices.columns), mxs_last_error());
  return false;
}

// 0: dense. 1: gaps between rows and between matrices. 2: side by side. The gradient in other gaps than the weights.
mxs_matrices laid_out(mxs_matrices matrices, int way) {
  if (way == 1) {
    matrices.weight_strides.row = matrices.columns + 3;
    matrices.weight_strides.matrix = matrices.rows * (matrices.columns + 3) + 5;
    matrices.gradient_strides.row = matrices.columns + 1;
  } else if (way == 2) {
    matrices.weight_strides.row = matrices.gradient_strides.row = matrices.count * matrices.columns;
    matrices.weight_strides.matrix = matrices.gradient_strides.matrix = matrices.columns;
  }
  return matrices;
}

const std::vector<mxs_matrices> shapes =
    thinned<mxs_matrices>({matrices_of(1, 1, 2), matrices_of(5, 3, 4), matrices_of(300, 130, 1), matrices_of(96, 40, 5),
                           matrices_of(33, 65, 3), matrices_of(1, 40'000, 2), matrices_of(64, 64, 16)});

// Each matrix of a batch has the bits that it would have alone, in whatever layout the batch is.
bool batches_equal_singles() {
  for (const Rule &rule : rules)
    for (const mxs_matrices &shape : shapes)
      for (int way = 0; way < 3; ++way) {
        Stepping batch(laid_out(shape, way), rule.on(1));
        if (batch.run(steps) != MXS_OK) return say(rule.name, "a batch", shape);
        for (int64_t matrix = 0; matrix < shape.count; ++matrix) {
          Stepping alone(matrices_of(shape.rows, shape.columns), rule.on(1));
          alone.first_matrix = matrix;
          alone.fill_weights();
          if (alone.run(steps) != MXS_OK) return say(rule.name, "alone", shape);
          if (alone.weights_of(0) != batch.weights_of(matrix)) return say(rule.name, "a batch has other bits", shape);
        }
        if (!batch.gaps_are_untouched()) return say(rule.name, "wrote between rows", shape);
      }
  return true;
}

bool threads_do_not_matter() {
  for (const Rule &rule : rules)
    for (const mxs_matrices &shape : shapes) {
      Stepping one(shape, rule.on(1));
      if (one.run(steps) != MXS_OK) return say(rule.name, "one thread", shape);
      for (int32_t threads : {2, 3}) {
        Stepping several(shape, rule.on(threads));
        if (several.run(steps) != MXS_OK) return say(rule.name, "several threads", shape);
        if (one.everything() != several.everything()) return say(rule.name, "other bits with more threads", shape);
        if (one.result.gradient_norm != several.result.gradient_norm)
          return say(rule.name, "another norm with more threads", shape);
      }
    }
  return true;
}

struct Cut {
  std::vector<int64_t> block_rows;
  int32_t heads;
  std::vector<int64_t> parts;  // what comes of it
};

bool parts_equal_tensors(const Cut &cut, int way, mxs_preset preset) {
  mxs_matrices whole = laid_out(matrices_of(48, 20, 2), way);
  whole.block_rows = cut.block_rows.empty() ? nullptr : cut.block_rows.data();
  whole.block_count = static_cast<int32_t>(cut.block_rows.size());
  whole.heads = cut.heads;
  Stepping fused(whole, muon_on(2, preset));
  if (fused.run(steps) != MXS_OK) return say("muon", "blocks", whole);
  for (int64_t matrix = 0; matrix < 2; ++matrix) {
    int64_t first = 0;
    for (const int64_t rows : cut.parts) {
      Stepping alone(matrices_of(rows, 20), muon_on(1, preset));
      alone.first_matrix = matrix;
      alone.first_row = first;
      alone.fill_weights();
      if (alone.run(steps) != MXS_OK) return say("muon", "a block alone", whole);
      if (alone.weights_of(0) != fused.weights_of(matrix, first, rows))
        return say("muon", "a block has other bits than a tensor of its own", whole);
      first += rows;
    }
  }
  return true;
}

// Blocks and heads are as tensors of their own.
bool blocks_equal_tensors() {
  const Cut cuts[] = {{{16, 4, 12, 16}, 0, {16, 4, 12, 16}},
                      {{48}, 3, {16, 16, 16}},
                      {{}, 6, {8, 8, 8, 8, 8, 8}},
                      {{16, 4, 12, 16}, 2, {8, 8, 2, 2, 6, 6, 8, 8}}};
  for (const Cut &cut : cuts)
    for (int way = 0; way < 3; ++way)
      for (const mxs_preset preset : {MXS_PRESET_DEFAULT, MXS_PRESET_NORMUON})
        if (!parts_equal_tensors(cut, way, preset)) return false;
  return true;
}

bool halves_equal_steps() {
  for (const Rule &rule : rules)
    for (const mxs_matrices &shape : shapes)
      for (int way = 0; way < 2; ++way) {
        Stepping whole(laid_out(shape, way), rule.on(2)), halves(laid_out(shape, way), rule.on(2));
        if (whole.run(steps) != MXS_OK || halves.run_halves(steps) != MXS_OK) return say(rule.name, "halves", shape);
        if (whole.everything() != halves.everything()) return say(rule.name, "halves have other bits", shape);
        if (whole.result.step_number != steps || halves.result.step_number != steps)
          return say(rule.name, "steps were miscounted", shape);
      }
  return true;
}

bool nothing_is_allocated() {
  if (under_tool()) return true;
  for (const Rule &rule : rules) {
    Stepping stepping(matrices_of(64, 40, 3), rule.on(2));
    if (stepping.run(1) != MXS_OK) return say(rule.name, "the first step", stepping.matrices());
    Bytes update(64 * 40 * 3 * 4);
    float *const numbers = reinterpret_cast<float *>(update.data());
    const mxs_step_call call = stepping.call();
    const int before = allocations;
    mxs_status status = MXS_OK;
    for (int turn = 0; turn < 5 && status == MXS_OK; ++turn) {
      status = mxs_stepper_step(stepping.stepper, &call, &stepping.result);
      if (status == MXS_OK) status = mxs_stepper_update(stepping.stepper, &call, numbers, nullptr);
      if (status == MXS_OK) status = mxs_stepper_apply(stepping.stepper, &call, numbers);
    }
    if (status != MXS_OK || allocations != before) {
      print_error("%d allocations\n", allocations - before);
      return say(rule.name, "steps", stepping.matrices());
    }
  }
  return true;
}

// Made here, used there; and two at once.
bool steppers_go_to_other_threads() {
  for (const Rule &rule : rules) {
    const mxs_matrices shape = matrices_of(64, 96, 2);
    Stepping here(shape, rule.on(2)), there(shape, rule.on(2)), beside(shape, rule.on(2));
    std::thread one([&] { there.run(8); });
    std::thread two([&] { beside.run(8); });
    one.join();
    two.join();
    if (here.run(8) != MXS_OK || there.status != MXS_OK || beside.status != MXS_OK)
      return say(rule.name, "another thread", shape);
    if (here.everything() != there.everything() || here.everything() != beside.everything())
      return say(rule.name, "other bits in other threads", shape);
  }
  return true;
}

void a_batch_has_the_bits_of_its_matrices_alone(void **) { assert_true(batches_equal_singles()); }
void bits_do_not_depend_on_threads(void **) { assert_true(threads_do_not_matter()); }
void blocks_and_heads_are_as_tensors_of_their_own(void **) { assert_true(blocks_equal_tensors()); }
void update_and_apply_are_a_step(void **) { assert_true(halves_equal_steps()); }
void a_step_allocates_nothing(void **) { assert_true(nothing_is_allocated()); }
void any_thread_may_step(void **) { assert_true(steppers_go_to_other_threads()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_batch_has_the_bits_of_its_matrices_alone),
      cmocka_unit_test(bits_do_not_depend_on_threads),
      cmocka_unit_test(blocks_and_heads_are_as_tensors_of_their_own),
      cmocka_unit_test(update_and_apply_are_a_step),
      cmocka_unit_test(a_step_allocates_nothing),
      cmocka_unit_test(any_thread_may_step),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
