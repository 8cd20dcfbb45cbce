// SPDX-License-Identifier: Apache-2.0
// Shampoo's stepper against the formulas, in fp64 loops, and against itself: threads, batches, halves of a step,
// failures. One program for each backend of products: "reference" or "openblas".
#include <cstdio>

#include "kernels/factor_run.hpp"
#include "plan/factors.hpp"
#include "support/cmocka_all.h"

namespace {

using namespace mxs::test;

mxs_backend backend = MXS_BACKEND_REFERENCE;

struct Case {
  Shape shape;
  mxs_shampoo_options options = MXS_SHAMPOO_OPTIONS_INIT;
  float beta2 = 1.0f, epsilon = 1e-12f, weight_decay = 0.25f;
  double bound = 2e-4;
  unsigned rank = 0;  // of gradients; 0: full
  double scale = 1;
};

mxs_group_values values_of(const Case &given) {
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  values.lr = 0.01f, values.beta1 = 0.9f;
  values.beta2 = given.beta2, values.epsilon = given.epsilon, values.weight_decay = given.weight_decay;
  return values;
}

FactorRun::Make maker(mxs_shampoo_options options) {
  options.backend = backend;
  return [options](std::unique_ptr<mxs::Stepper> *stepper, const mxs::StepMatrices &matrices, mxs::Team *team) {
    return mxs::make_shampoo_stepper(stepper, matrices, options, team);
  };
}

std::vector<float> gradient_of(const Case &given, unsigned seed) {
  const size_t rows = static_cast<size_t>(given.shape.rows), columns = static_cast<size_t>(given.shape.columns);
  if (given.rank == 0) return spread_values(rows, columns, seed, given.scale);
  const Dense left = dense(spread_values(rows, given.rank, 1).data(), rows, given.rank);
  const Dense right = dense(spread_values(given.rank, columns, seed).data(), given.rank, columns);
  const Dense product = left * right;
  return std::vector<float>(product.values.begin(), product.values.end());
}

// ---- the formulas --------------------------------------------------------------------------------------------------

struct Block {
  size_t row, rows, column, columns;
  Dense left, right, left_root, right_root, average, squares;
};

class Loop {
 public:
  explicit Loop(const Case &given) : given_(given), values_(values_of(given)) {
    const size_t rows = static_cast<size_t>(given.shape.rows), columns = static_cast<size_t>(given.shape.columns);
    const size_t longest = given.options.block_max == 0 ? 1024 : static_cast<size_t>(given.options.block_max);
    for (size_t row = 0; row < rows; row += longest)
      for (size_t column = 0; column < columns; column += longest) {
        const size_t r = std::min(longest, rows - row), c = std::min(longest, columns - column);
        blocks_.push_back({row, r, column, c, Dense(r, r), Dense(c, c), Dense::identity(r), Dense::identity(c),
                           Dense(r, c), Dense(r, c)});
      }
    buffer_ = Dense(rows, columns);
  }

  void step(Dense &weights, Dense gradient) {
    ++t_;
    const double lr = static_cast<double>(values_.lr), decay = static_cast<double>(values_.weight_decay);
    const double momentum = static_cast<double>(given_.options.momentum);
    const bool is_l2 = given_.options.decay == MXS_DECAY_L2;
    if (is_l2) each(gradient, weights, [&](double &g, double w) { g += decay * w; });
    Dense direction(weights.rows, weights.columns);
    for (Block &block : blocks_) {
      const Dense part = direct(block, gradient.part(block.row, block.rows, block.column, block.columns));
      for (size_t r = 0; r < block.rows; ++r)
        for (size_t c = 0; c < block.columns; ++c) direction.at(block.row + r, block.column + c) = part.at(r, c);
    }
    if (!is_l2) each(direction, weights, [&](double &d, double w) { d += decay * w; });
    if (momentum != 0) {
      each(buffer_, direction, [&](double &b, double d) { b = momentum * b + d; });
      const bool nesterov = given_.options.nesterov == MXS_ON;
      each(direction, buffer_, [&](double &d, double b) { d = nesterov ? d + momentum * b : b; });
    }
    each(weights, direction, [&](double &w, double d) { w -= lr * d; });
  }

 private:
  bool has_roots() const { return t_ >= start(); }
  int start() const { return given_.options.start == 0 ? interval() : given_.options.start; }
  int interval() const { return given_.options.interval == 0 ? 10 : given_.options.interval; }

  Dense root(Dense factor) const {
    const double beta2 = static_cast<double>(values_.beta2), epsilon = static_cast<double>(values_.epsilon);
    const double correction = beta2 == 1 ? 1 : 1 - std::pow(beta2, t_);
    for (double &value : factor.values) value /= correction;
    for (size_t i = 0; i < factor.rows; ++i) factor.at(i, i) += epsilon;
    Dense vectors;
    std::vector<double> values;
    diagonalise(factor, &vectors, &values);
    const double least = *std::min_element(values.begin(), values.end());
    const double exponent = given_.options.exponent == 0 ? 0.25 : given_.options.exponent;
    Dense scaled = vectors;
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = least < epsilon ? values[i] - least + epsilon : values[i];
      for (size_t r = 0; r < factor.rows; ++r) scaled.at(r, i) *= std::pow(value, -exponent);
    }
    return scaled * vectors.turned();
  }

  Dense direct(Block &block, const Dense &gradient) {
    const double beta1 = static_cast<double>(values_.beta1), beta2 = static_cast<double>(values_.beta2);
    const double fresh = beta2 == 1 ? 1 : 1 - beta2;
    each(block.left, gradient * gradient.turned(), [&](double &l, double p) { l = beta2 * l + fresh * p; });
    each(block.right, gradient.turned() * gradient, [&](double &l, double p) { l = beta2 * l + fresh * p; });
    const double graft_beta = static_cast<double>(0.999f);
    each(block.squares, gradient, [&](double &v, double g) { v = graft_beta * v + (1 - graft_beta) * g * g; });
    each(block.average, gradient, [&](double &m, double g) { m = beta1 * m + (1 - beta1) * g; });
    if (t_ == start() || (t_ > start() && t_ % interval() == 0))
      block.left_root = root(block.left), block.right_root = root(block.right);
    Dense filtered = block.average;
    for (double &value : filtered.values) value /= 1 - std::pow(beta1, t_);
    Dense graft = filtered;
    const mxs_grafting grafting = given_.options.grafting;
    if (grafting == MXS_GRAFTING_PRESET || grafting == MXS_GRAFTING_ADAM)
      each(graft, block.squares, [&](double &g, double v) {
        g /= std::sqrt(v / (1 - std::pow(graft_beta, t_))) + static_cast<double>(1e-10f);
      });
    if (!has_roots()) return graft;
    Dense direction = block.left_root * filtered * block.right_root;
    if (grafting == MXS_GRAFTING_NONE) return direction;
    const double factor = graft.norm() / (direction.norm() + 1e-16);
    for (double &value : direction.values) value *= factor;
    return direction;
  }

  Case given_;
  mxs_group_values values_;
  std::vector<Block> blocks_;
  Dense buffer_;
  int t_ = 0;
};

std::string name_of(const Case &given) {
  return words("%lld x %lld, grafting %d, block_max %d, interval %d, beta2 %g: ",
               static_cast<long long>(given.shape.rows), static_cast<long long>(given.shape.columns),
               given.options.grafting, given.options.block_max, given.options.interval,
               static_cast<double>(given.beta2));
}

std::string follow(const Case &given) {
  const size_t rows = static_cast<size_t>(given.shape.rows), columns = static_cast<size_t>(given.shape.columns);
  FactorRun run;
  if (run.create(matrices_of(given.shape), 1, maker(given.options)) != MXS_OK) return error_of(name_of(given));
  if (given.scale == 1) run.weights = spread_values(rows, columns, 99);  // small updates vanish beside large weights
  Loop loop(given);
  Dense wanted = dense(run.weights.data(), rows, columns);
  const Dense first = wanted;
  double way = 1e-30;  // of weights, the longest so far
  for (unsigned t = 1; t <= 24; ++t) {
    const std::vector<float> gradient = gradient_of(given, t);
    if (run.step(gradient, values_of(given)) != MXS_OK) return error_of(name_of(given));
    loop.step(wanted, dense(gradient.data(), rows, columns));
    way = std::max(way, distance(wanted, first));
    const double error = distance(dense(run.weights.data(), rows, columns), wanted) / way;
    if (!(error <= given.bound)) return name_of(given) + words("step %u is off by %.2g of the way", t, error);
  }
  return run.check_guards();
}

std::string follow_all() {
  std::string complaint;
  for (const Shape shape : {Shape{1, 1}, {1, 7}, {7, 1}, {5, 5}, {4, 9}, {13, 6}, {17, 19}}) {
    Case given{shape};
    for (const mxs_grafting grafting : {MXS_GRAFTING_NONE, MXS_GRAFTING_ADAM, MXS_GRAFTING_SGD}) {
      given.options.grafting = grafting;
      for (const int32_t block_max : {0, 4, 5}) {
        given.options.block_max = block_max;
        if (complaint.empty()) complaint = follow(given);
      }
    }
  }
  return complaint;
}

std::string follow_options() {
  const Case plain{{6, 8}};
  std::vector<Case> cases(11, plain);
  cases[0].beta2 = 0.95f;
  cases[1].options.interval = 1;
  cases[2].options.interval = 3, cases[2].options.start = 7;
  cases[3].options.start = 1;
  cases[4].options.exponent = 0.5;
  cases[5].options.momentum = 0.5f;
  cases[6].options.momentum = 0.5f, cases[6].options.nesterov = MXS_ON;
  cases[7].options.decay = MXS_DECAY_L2;
  cases[8].scale = 1e12, cases[8].weight_decay = 0;
  cases[9].scale = 1e-9, cases[9].options.grafting = MXS_GRAFTING_SGD, cases[9].epsilon = 1e-30f,
  cases[9].weight_decay = 0;
  cases[10].options.momentum = 0.5f, cases[10].options.decay = MXS_DECAY_L2;
  // The first factor has a null space: what roundings leave there, 1e-7 of its norm, is to be small beside epsilon.
  cases[3].epsilon = cases[1].epsilon = 1.0f;
  std::string complaint;
  for (size_t i = 0; i < cases.size() && complaint.empty(); ++i) {
    complaint = follow(cases[i]);
    if (!complaint.empty()) complaint = words("case %zu: ", i) + complaint;
  }
  return complaint;
}

std::string follow_low_rank() {
  Case given{{9, 11}};
  given.rank = 2;
  given.bound = 1e-2;
  std::string complaint = follow(given);
  given.options.grafting = MXS_GRAFTING_NONE;
  return complaint.empty() ? follow(given) : complaint;
}

// ---- the same bits -------------------------------------------------------------------------------------------------

// Steps of `count` matrices; of each weights after them.
std::string bits_of(const Case &given, int64_t count, int thread_count, bool in_halves, unsigned seed,
                    std::vector<float> *weights) {
  FactorRun run;
  if (run.create(matrices_of(given.shape, count), thread_count, maker(given.options)) != MXS_OK)
    return error_of(name_of(given));
  const size_t elements = static_cast<size_t>(given.shape.rows * given.shape.columns);
  const auto all = [&](unsigned first) {
    std::vector<float> values;
    for (unsigned m = 0; m < static_cast<unsigned>(count); ++m) {
      const std::vector<float> one = gradient_of(given, first + 1000 * (seed + m));
      values.insert(values.end(), one.begin(), one.begin() + static_cast<ptrdiff_t>(elements));
    }
    return values;
  };
  run.weights = all(77);
  for (unsigned t = 1; t <= 7; ++t) {
    const mxs_status status =
        in_halves ? run.step_in_halves(all(t), values_of(given)) : run.step(all(t), values_of(given));
    if (status != MXS_OK) return error_of(name_of(given));
  }
  *weights = run.weights;
  return run.check_guards();
}

std::string compare_ways(const Case &given) {
  std::vector<float> alone, other;
  for (unsigned m = 0; m < 3; ++m) {
    std::vector<float> one;
    const std::string complaint = bits_of(given, 1, 1, false, m, &one);
    if (!complaint.empty()) return complaint;
    alone.insert(alone.end(), one.begin(), one.end());
  }
  for (const int threads : {1, 2, 3, 5})
    for (const bool in_halves : {false, true}) {
      const std::string complaint = bits_of(given, 3, threads, in_halves, 0, &other);
      if (!complaint.empty()) return complaint;
      if (!same_bytes(alone, other))
        return name_of(given) +
               words("a batch with %d threads%s has other bits", threads, in_halves ? ", in halves" : "");
    }
  return "";
}

std::string compare_all_ways() {
  std::string complaint;
  // One side of several panels of products: 256 of OpenBLAS, 64 of the reference, whose Jacobi is slow.
  const Shape large = backend == MXS_BACKEND_OPENBLAS ? Shape{300, 70} : Shape{100, 30};
  for (const Shape shape : {Shape{1, 5}, {9, 4}, {40, 33}, large})
    for (const int32_t block_max : {0, 16}) {
      Case given{shape};
      given.options.block_max = block_max, given.options.interval = 3;
      if (shape.rows == 9) given.options.momentum = 0.5f;
      if (shape.rows == 40) given.options.decay = MXS_DECAY_CAUTIOUS;
      if (complaint.empty()) complaint = compare_ways(given);
    }
  return complaint;
}

// ---- what else -----------------------------------------------------------------------------------------------------

std::string leave_zeros() {
  for (const mxs_grafting grafting : {MXS_GRAFTING_NONE, MXS_GRAFTING_ADAM, MXS_GRAFTING_SGD}) {
    Case given{{5, 7}};
    given.options.grafting = grafting, given.options.interval = 2, given.weight_decay = 0;
    FactorRun run;
    if (run.create(matrices_of(given.shape), 1, maker(given.options)) != MXS_OK) return error_of("create");
    run.weights = spread_values(5, 7, 3);
    const std::vector<float> before = run.weights, zeros(35);
    for (int t = 0; t < 5; ++t)
      if (run.step(zeros, values_of(given)) != MXS_OK) return error_of("step");
    if (!same_bytes(before, run.weights)) return "a gradient of zeros has changed weights";
    if (run.stepper().failed_count(run.state()) != 0) return "a factor of zeros counts as a failure";
  }
  return "";
}

std::string sizes_are_planned() {
  for (const Shape shape : {Shape{1, 1}, {1, 4097}, {3, 5}, {64, 64}, {100, 37}})
    for (const int32_t block_max : {0, 1, 7, 64})
      for (const int64_t count : {1, 3}) {
        if (block_max == 1 && shape.columns > 100) continue;
        mxs_shampoo_options options = MXS_SHAMPOO_OPTIONS_INIT;
        options.block_max = block_max;
        FactorRun run;
        if (run.create(matrices_of(shape, count), 2, maker(options)) != MXS_OK) return error_of("create");
        mxs::FactorRules rules = mxs::default_factor_rules(MXS_RULE_SHAMPOO);
        if (block_max != 0) rules.side_max = block_max;
        const std::vector<mxs::FactorBlock> given = {{0, shape.rows, 0, shape.columns}};
        const std::string complaint = check_layout(run, mxs::factor_state_bytes(given, count, rules));
        if (!complaint.empty()) return complaint;
        const uint64_t planned = mxs::factor_workspace_bytes(mxs::factor_rooms(given, count, rules, 2));
        if (planned != run.stepper().workspace_bytes()) return "the workspace is not the planned one";
      }
  return "";
}

// ---- failures ------------------------------------------------------------------------------------------------------

// An infinity in a factor, as a gradient above 1e19 leaves it.
std::string keep_the_old_root() {
  Case given{{4, 6}};
  given.options.interval = 2, given.options.failures_max = 2;
  FactorRun run;
  if (run.create(matrices_of(given.shape, 2), 2, maker(given.options)) != MXS_OK) return error_of("create");
  const auto gradient = [&](unsigned t) {
    std::vector<float> values = gradient_of(given, t), more = gradient_of(given, t + 50);
    values.insert(values.end(), more.begin(), more.end());
    return values;
  };
  for (unsigned t = 1; t <= 3; ++t)
    if (run.step(gradient(t), values_of(given)) != MXS_OK) return error_of("step");
  const Dense old_root = run.part("root_left", 8, 4);
  run.part("factor_left")[1 * 16 + 5] = INFINITY;  // of the second matrix
  for (unsigned t = 4; t <= 7; ++t)
    if (run.step(gradient(t), values_of(given)) != MXS_OK) return error_of("a tolerated failure");
  const Dense root = run.part("root_left", 8, 4);
  if (distance(old_root.part(4, 4, 0, 4), root.part(4, 4, 0, 4)) != 0) return "the old root was not kept";
  if (distance(old_root.part(0, 4, 0, 4), root.part(0, 4, 0, 4)) == 0) return "the other matrix has no new root";
  if (run.stepper().failed_count(run.state()) != 2) return "not 2 failures were counted";
  for (const float weight : run.weights)
    if (!std::isfinite(weight)) return "weights are not finite";

  const std::vector<std::byte> state = run.state_copy();
  const std::vector<float> weights = run.weights;
  for (int again = 0; again < 2; ++again) {
    const std::string complaint = expect(run.step(gradient(8), values_of(given)), MXS_INTERNAL,
                                         {"matrix 1", "3 times in a row", "failures_max"});
    if (!complaint.empty()) return complaint;
    if (state != run.state_copy() || !same_bytes(weights, run.weights))
      return "a step that failed has changed something";
  }
  run.part("factor_left")[1 * 16 + 5] = 400.0f;
  if (run.step(gradient(8), values_of(given)) != MXS_OK) return error_of("a step with a repaired factor");
  return run.check_guards();
}

std::string count_what_does_not_converge() {
  Case given{{5, 3}};
  given.options.interval = 1, given.options.failures_max = 1;
  FactorRun run;
  if (run.create(matrices_of(given.shape), 1, maker(given.options)) != MXS_OK) return error_of("create");
  if (run.step(gradient_of(given, 1), values_of(given)) != MXS_OK) return error_of("step");
  const Dense left = run.part("root_left", 5, 5), right = run.part("root_right", 3, 3);
  mxs::eigh_failures_to_come = 1;  // of the left side
  if (run.step(gradient_of(given, 2), values_of(given)) != MXS_OK) return error_of("a tolerated failure");
  if (distance(left, run.part("root_left", 5, 5)) != 0) return "the old root was not kept";
  if (distance(right, run.part("root_right", 3, 3)) == 0) return "the other side has no new root";
  // A trial that succeeds, and the refresh after it.
  if (run.step(gradient_of(given, 3), values_of(given)) != MXS_OK) return error_of("a step after a failure");
  if (run.stepper().failed_count(run.state()) != 1) return "not 1 failure was counted";
  mxs::eigh_failures_to_come = 1;
  if (run.step(gradient_of(given, 4), values_of(given)) != MXS_OK) return "a success does not begin the count anew";
  const std::vector<std::byte> state = run.state_copy();
  mxs::eigh_failures_to_come = 1;
  const std::string complaint = expect(run.step(gradient_of(given, 5), values_of(given)), MXS_INTERNAL, {"2 times"});
  mxs::eigh_failures_to_come = 0;
  if (!complaint.empty()) return complaint;
  return state == run.state_copy() ? "" : "a step that failed has changed the state";
}

std::string refuse_singular_factors() {
  Case given{{4, 2}};
  given.options.interval = 1, given.epsilon = 0;
  FactorRun run;
  if (run.create(matrices_of(given.shape), 1, maker(given.options)) != MXS_OK) return error_of("create");
  const std::vector<float> zeros(8);
  if (run.step(zeros, values_of(given)) != MXS_OK) return error_of("step");
  return run.stepper().failed_count(run.state()) == 2 ? "" : "roots of zero without epsilon were taken";
}

// Epsilons that are too small for the exponent: the root would not be of fp32 numbers.
std::string refuse_roots_out_of_range() {
  for (const double exponent : {1.0, 2.0, 15.0})
    for (const float epsilon : {1e-12f, 1e-30f, 1e-45f}) {
      Case given{{5, 7}};
      given.options.interval = 1, given.options.failures_max = 9, given.options.exponent = exponent;
      given.epsilon = epsilon;
      FactorRun run;
      if (run.create(matrices_of(given.shape), 1, maker(given.options)) != MXS_OK) return error_of("create");
      for (unsigned t = 1; t <= 4; ++t) {
        const std::vector<float> gradient = t < 3 ? gradient_of(given, t) : std::vector<float>(35);
        if (run.step(gradient, values_of(given)) != MXS_OK) return error_of("step");
      }
      for (const float weight : run.weights)
        if (!std::isfinite(weight)) return "weights are not finite";
      // The right factor has at most 5 of 7 eigenvalues that aren't epsilon's, and in the end both have next to none.
      const bool out_of_range = std::pow(static_cast<double>(epsilon), -exponent) > 0x1p64;
      if (out_of_range && run.stepper().failed_count(run.state()) == 0) return "no failure was counted";
    }
  return "";
}

std::string refuse(void (*spoil)(mxs_shampoo_options *, mxs::StepMatrices *), mxs_status wanted, const char *word) {
  mxs_shampoo_options options = MXS_SHAMPOO_OPTIONS_INIT;
  mxs::StepMatrices matrices = matrices_of({4, 5});
  spoil(&options, &matrices);
  FactorRun run;
  FactorRun::Make make = [&](std::unique_ptr<mxs::Stepper> *stepper, const mxs::StepMatrices &given, mxs::Team *team) {
    return mxs::make_shampoo_stepper(stepper, given, options, team);
  };
  return expect(run.create(matrices, 1, make), wanted, {word});
}

std::string refuse_bad_options() {
  using Options = mxs_shampoo_options;
  using Matrices = mxs::StepMatrices;
  const struct {
    void (*spoil)(Options *, Matrices *);
    mxs_status wanted;
    const char *word;
  } cases[] = {
      {[](Options *o, Matrices *) { o->block_max = -1; }, MXS_INVALID_ARGUMENT, "block_max"},
      {[](Options *o, Matrices *) { o->interval = -3; }, MXS_INVALID_ARGUMENT, "interval"},
      {[](Options *o, Matrices *) { o->start = -1; }, MXS_INVALID_ARGUMENT, "start"},
      {[](Options *o, Matrices *) { o->failures_max = -1; }, MXS_INVALID_ARGUMENT, "failures_max"},
      {[](Options *o, Matrices *) { o->grafting = 9; }, MXS_INVALID_ARGUMENT, "grafting"},
      {[](Options *o, Matrices *) { o->decay = 9; }, MXS_INVALID_ARGUMENT, "decay"},
      {[](Options *o, Matrices *) { o->nesterov = 3; }, MXS_INVALID_ARGUMENT, "nesterov"},
      {[](Options *o, Matrices *) { o->nesterov = MXS_ON; }, MXS_INVALID_ARGUMENT, "options.momentum is 0"},
      {[](Options *o, Matrices *) { o->momentum = 1.0f; }, MXS_INVALID_ARGUMENT, "momentum"},
      {[](Options *o, Matrices *) { o->momentum = NAN; }, MXS_INVALID_ARGUMENT, "momentum"},
      {[](Options *o, Matrices *) { o->exponent = -0.25; }, MXS_INVALID_ARGUMENT, "exponent"},
      {[](Options *o, Matrices *) { o->preset = MXS_PRESET_SOAP; }, MXS_INVALID_ARGUMENT, "soap"},
      {[](Options *o, Matrices *) { o->backend = MXS_BACKEND_TILES; }, MXS_NOT_BUILT, "backend tiles has no fp32"},
      {[](Options *o, Matrices *m) { o->block_max = 1 << 22, m->rows = m->blocks[0].rows = 1 << 21; },
       MXS_INVALID_ARGUMENT, "block_max"},
      {[](Options *, Matrices *m) { m->shared.sum = [](void *, float *, uint64_t) { return MXS_OK; }; }, MXS_NOT_BUILT,
       "co-owners"},
  };
  std::string complaint;
  for (const auto &given : cases)
    if (complaint.empty()) complaint = refuse(given.spoil, given.wanted, given.word);
  return complaint;
}

void weights_follow_the_formulas(void **) { assert_true(good(follow_all())); }
void options_follow_the_formulas(void **) { assert_true(good(follow_options())); }
void gradients_of_low_rank_follow_the_formulas(void **) { assert_true(good(follow_low_rank())); }
void neither_threads_nor_batches_nor_halves_show_in_bits(void **) { assert_true(good(compare_all_ways())); }
void a_gradient_of_zeros_changes_nothing(void **) { assert_true(good(leave_zeros())); }
void state_and_workspace_are_what_the_plan_says(void **) { assert_true(good(sizes_are_planned())); }
void a_failed_root_keeps_the_old_one_until_too_many_fail(void **) { assert_true(good(keep_the_old_root())); }
void roots_that_do_not_converge_are_counted(void **) { assert_true(good(count_what_does_not_converge())); }
void a_singular_factor_without_epsilon_has_no_root(void **) { assert_true(good(refuse_singular_factors())); }
void a_root_that_fp32_does_not_hold_fails(void **) { assert_true(good(refuse_roots_out_of_range())); }
void bad_options_are_refused(void **) { assert_true(good(refuse_bad_options())); }

}  // namespace

int main(int count, char **arguments) {
  backend = count > 1 && std::string(arguments[1]) == "openblas" ? MXS_BACKEND_OPENBLAS : MXS_BACKEND_REFERENCE;
  const mxs::Linear *linear = nullptr;
  if (mxs::linear_of(backend, &linear) == MXS_NOT_BUILT) {
    std::printf("1..0 # SKIP %s\n", mxs_last_error());
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(weights_follow_the_formulas),
      cmocka_unit_test(options_follow_the_formulas),
      cmocka_unit_test(gradients_of_low_rank_follow_the_formulas),
      cmocka_unit_test(neither_threads_nor_batches_nor_halves_show_in_bits),
      cmocka_unit_test(a_gradient_of_zeros_changes_nothing),
      cmocka_unit_test(state_and_workspace_are_what_the_plan_says),
      cmocka_unit_test(a_failed_root_keeps_the_old_one_until_too_many_fail),
      cmocka_unit_test(roots_that_do_not_converge_are_counted),
      cmocka_unit_test(a_singular_factor_without_epsilon_has_no_root),
      cmocka_unit_test(a_root_that_fp32_does_not_hold_fails),
      cmocka_unit_test(bad_options_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
