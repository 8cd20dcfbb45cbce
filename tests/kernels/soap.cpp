// SPDX-License-Identifier: Apache-2.0
// SOAP's stepper against the formulas, in fp64 loops, and against itself: threads, batches, halves of a step, failures.
// One program for each backend of products: "reference" or "openblas".
//
// A basis is unique but for signs only where eigenvalues are apart and above zero. So the loop takes over the stepper's
// basis after each refresh, and checks what makes it one: orthogonal; at first, it diagonalises the factor; later,
// Q^T (factor times the sorted old basis) is triangular.
#include <cstdio>
#include <numeric>

#include "kernels/factor_run.hpp"
#include "plan/factors.hpp"
#include "support/cmocka_all.h"

namespace {

using namespace mxs::test;

mxs_backend backend = MXS_BACKEND_REFERENCE;

struct Case {
  Shape shape;
  mxs_soap_options options = MXS_SOAP_OPTIONS_INIT;
  float epsilon = 1e-8f, weight_decay = 0.25f;
  double scale = 1;
  bool crosses = false;  // eigenvalues change places
};

mxs_group_values values_of(const Case &given) {
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  values.lr = 0.01f, values.beta1 = values.beta2 = 0.95f;
  values.epsilon = given.epsilon, values.weight_decay = given.weight_decay;
  return values;
}

FactorRun::Make maker(mxs_soap_options options) {
  options.backend = backend;
  return [options](std::unique_ptr<mxs::Stepper> *stepper, const mxs::StepMatrices &matrices, mxs::Team *team) {
    return mxs::make_soap_stepper(stepper, matrices, options, team);
  };
}

std::vector<float> gradient_of(const Case &given, unsigned t) {
  const size_t rows = static_cast<size_t>(given.shape.rows), columns = static_cast<size_t>(given.shape.columns);
  std::vector<float> values = spread_values(rows, columns, t, given.scale);
  if (!given.crosses) return values;
  // Rows take turns in being the large ones.
  for (size_t r = 0; r < rows; ++r) {
    const float factor = (r + t / 8) % rows == 0 ? 30.0f : 1.0f;
    for (size_t c = 0; c < columns; ++c) values[r * columns + c] *= factor;
  }
  return values;
}

// ---- the formulas --------------------------------------------------------------------------------------------------

class Loop {
 public:
  Loop(const Case &given, bool permutes) : given_(given), values_(values_of(given)), permutes_(permutes) {
    const size_t rows = static_cast<size_t>(given.shape.rows), columns = static_cast<size_t>(given.shape.columns);
    const int64_t longest = given.options.side_max == 0 ? 10000 : given.options.side_max;
    const bool one = given.options.one_sided == MXS_ON;
    sides_[0] = given.shape.rows <= longest && !(one && rows > columns);
    sides_[1] = given.shape.columns <= longest && !(one && rows <= columns);
    factors_[0] = Dense(rows, rows), factors_[1] = Dense(columns, columns);
    bases_[0] = Dense::identity(rows), bases_[1] = Dense::identity(columns);
    average_ = squares_ = Dense(rows, columns);
  }

  // Weights, and the new bases from the run.
  std::string step(Dense &weights, const Dense &given_gradient, FactorRun &run) {
    ++n_;
    const double lr = static_cast<double>(values_.lr), decay = static_cast<double>(values_.weight_decay);
    const double beta1 = static_cast<double>(values_.beta1), beta2 = static_cast<double>(values_.beta2);
    Dense gradient = given_gradient;
    if (given_.options.decay == MXS_DECAY_L2) each(gradient, weights, [&](double &g, double w) { g += decay * w; });
    if (n_ == 1) {
      add(gradient);
      return begin(run);
    }
    const int t = n_ - 1;
    const Dense projected = project(gradient);
    each(average_, gradient, [&](double &m, double g) { m = beta1 * m + (1 - beta1) * g; });
    each(squares_, projected, [&](double &v, double g) { v = beta2 * v + (1 - beta2) * g * g; });
    Dense direction = project(average_);
    each(direction, squares_, [&](double &d, double v) { d /= std::sqrt(v) + static_cast<double>(values_.epsilon); });
    const double size = lr * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
    each(weights, bases_[0] * direction * bases_[1].turned(), [&](double &w, double u) { w -= size * u; });
    if (given_.options.decay != MXS_DECAY_L2)
      for (double &weight : weights.values) weight -= lr * decay * weight;
    add(gradient);
    const int interval = given_.options.interval == 0 ? 10 : given_.options.interval;
    return t % interval == 0 ? refresh(run) : "";
  }

  const Dense &squares() const { return squares_; }
  int swap_count() const { return swaps_; }

 private:
  Dense project(const Dense &matrix) const { return bases_[0].turned() * matrix * bases_[1]; }

  void add(const Dense &gradient) {
    const double beta = given_.options.factor_beta == 0 ? static_cast<double>(values_.beta2)
                                                        : static_cast<double>(given_.options.factor_beta);
    each(factors_[0], gradient * gradient.turned(), [&](double &f, double p) { f = beta * f + (1 - beta) * p; });
    each(factors_[1], gradient.turned() * gradient, [&](double &f, double p) { f = beta * f + (1 - beta) * p; });
  }

  std::string take_basis(FactorRun &run, size_t side) {
    const size_t n = factors_[side].rows;
    const Dense basis = run.part(side == 0 ? "basis_left" : "basis_right", n, n);
    if (basis.rows != n) return "there is no basis";
    if (distance(basis.turned() * basis, Dense::identity(n)) > 3e-6 * static_cast<double>(n))
      return "a basis is not orthogonal";
    bases_[side] = basis;
    return "";
  }

  std::string begin(FactorRun &run) {
    for (const size_t side : {size_t{0}, size_t{1}}) {
      if (!sides_[side]) continue;
      const std::string complaint = take_basis(run, side);
      if (!complaint.empty()) return complaint;
      const Dense diagonal = bases_[side].turned() * factors_[side] * bases_[side];
      const double norm = factors_[side].norm();
      for (size_t r = 0; r < diagonal.rows; ++r)
        for (size_t c = 0; c < diagonal.rows; ++c)
          if (r != c && std::fabs(diagonal.at(r, c)) > 3e-6 * norm) return "the first basis is not of eigenvectors";
      for (size_t i = 1; i < diagonal.rows; ++i)
        if (diagonal.at(i, i) > diagonal.at(i - 1, i - 1) + 3e-6 * norm) return "eigenvalues do not descend";
    }
    return "";
  }

  std::string refresh(FactorRun &run) {
    for (const size_t side : {size_t{0}, size_t{1}}) {
      if (!sides_[side]) continue;
      const size_t n = factors_[side].rows;
      const Dense power = factors_[side] * bases_[side];
      const Dense estimates = bases_[side].turned() * power;
      std::vector<size_t> order(n);
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return estimates.at(a, a) > estimates.at(b, b); });
      for (size_t i = 0; i < n; ++i) swaps_ += order[i] != i;
      const Dense old = squares_;
      for (size_t r = 0; permutes_ && r < old.rows; ++r)
        for (size_t c = 0; c < old.columns; ++c)
          squares_.at(r, c) = side == 0 ? old.at(order[r], c) : old.at(r, order[c]);
      const std::string complaint = take_basis(run, side);
      if (!complaint.empty()) return complaint;
      Dense sorted(n, n);
      for (size_t r = 0; r < n; ++r)
        for (size_t c = 0; c < n; ++c) sorted.at(r, c) = power.at(r, order[c]);
      const Dense triangle = bases_[side].turned() * sorted;
      for (size_t r = 0; r < n; ++r)
        for (size_t c = 0; c < r; ++c)
          if (std::fabs(triangle.at(r, c)) > 1e-5 * factors_[side].norm())
            return "a basis is not QR's of the sorted product";
    }
    return "";
  }

  Case given_;
  mxs_group_values values_;
  bool permutes_, sides_[2];
  Dense factors_[2], bases_[2], average_, squares_;
  int n_ = 0, swaps_ = 0;
};

std::string name_of(const Case &given) {
  return words("%lld x %lld, interval %d, side_max %d, one_sided %d: ", static_cast<long long>(given.shape.rows),
               static_cast<long long>(given.shape.columns), given.options.interval, given.options.side_max,
               given.options.one_sided);
}

struct Distances {
  double weights = 0, squares = 0;  // relative, the worst of all steps
  int swap_count = 0;
};

std::string follow(const Case &given, bool permutes, Distances *worst) {
  const size_t rows = static_cast<size_t>(given.shape.rows), columns = static_cast<size_t>(given.shape.columns);
  FactorRun run;
  if (run.create(matrices_of(given.shape), 1, maker(given.options)) != MXS_OK) return error_of(name_of(given));
  if (given.scale == 1) run.weights = spread_values(rows, columns, 99);
  Loop loop(given, permutes);
  Dense wanted = dense(run.weights.data(), rows, columns);
  const Dense first = wanted;
  double way = 1e-30;  // of weights, the longest so far
  for (unsigned t = 1; t <= 35; ++t) {
    const std::vector<float> gradient = gradient_of(given, t), before = run.weights;
    if (run.step(gradient, values_of(given)) != MXS_OK) return error_of(name_of(given));
    if (t == 1 && !same_bytes(before, run.weights)) return name_of(given) + "the first step has changed weights";
    const std::string complaint = loop.step(wanted, dense(gradient.data(), rows, columns), run);
    if (!complaint.empty()) return name_of(given) + words("step %u: ", t) + complaint;
    way = std::max(way, distance(wanted, first));
    const double size = loop.squares().norm() + 1e-300;
    worst->weights = std::max(worst->weights, distance(dense(run.weights.data(), rows, columns), wanted) / way);
    worst->squares =
        std::max(worst->squares, distance(run.part("exp_avg_sq", rows, columns), loop.squares()) / size);
  }
  worst->swap_count = loop.swap_count();
  return run.check_guards();
}

std::string follows(const Case &given) {
  Distances worst;
  const std::string complaint = follow(given, true, &worst);
  if (!complaint.empty()) return complaint;
  if (worst.weights <= 1e-4 && worst.squares <= 1e-4) return "";
  return name_of(given) + words("weights are off by %.2g of the way, squares by %.2g", worst.weights, worst.squares);
}

std::string follow_all() {
  std::string complaint;
  for (const Shape shape : {Shape{1, 1}, {1, 7}, {7, 1}, {5, 5}, {4, 9}, {13, 6}, {17, 19}})
    for (const int32_t interval : {0, 12}) {
      Case given{shape};
      given.options.interval = interval;
      if (complaint.empty()) complaint = follows(given);
    }
  return complaint;
}

std::string follow_options() {
  std::vector<Case> cases(12, Case{{6, 7}});
  cases[0].options.one_sided = MXS_ON;
  cases[1].options.one_sided = MXS_ON, cases[1].shape = {9, 5};
  cases[2].options.one_sided = MXS_ON, cases[2].shape = {5, 5};
  cases[3].options.side_max = 6;
  cases[4].options.side_max = 5;
  cases[5].options.factor_beta = 0.8f;
  cases[6].options.decay = MXS_DECAY_L2;
  cases[7].epsilon = 0.5f;
  cases[8].scale = 1e12;
  cases[9].scale = 1e-12, cases[9].epsilon = 1e-20f;
  cases[10].crosses = true, cases[10].options.interval = 3;
  cases[11].options.interval = 1;
  std::string complaint;
  for (size_t i = 0; i < cases.size() && complaint.empty(); ++i) {
    complaint = follows(cases[i]);
    if (!complaint.empty()) complaint = words("case %zu: ", i) + complaint;
  }
  return complaint;
}

// Eigenvalues change places, and a loop that leaves the squares where they are ends elsewhere.
std::string permute() {
  for (const Shape shape : {Shape{6, 7}, {7, 6}, {3, 12}}) {
    Case given{shape};
    given.crosses = true, given.options.interval = 5;
    Distances with, without;
    std::string complaint = follow(given, true, &with);
    if (complaint.empty()) complaint = follow(given, false, &without);
    if (!complaint.empty()) return complaint;
    if (with.swap_count < 3) return name_of(given) + "no eigenvalues change places";
    if (with.weights > 1e-4 || with.squares > 1e-4)
      return name_of(given) + words("off by %.2g, squares by %.2g", with.weights, with.squares);
    if (without.squares < 1e-2) return name_of(given) + "the test would not see squares that stay";
  }
  return "";
}

// ---- the same bits -------------------------------------------------------------------------------------------------

std::string bits_of(const Case &given, int64_t count, int thread_count, bool in_halves, unsigned seed,
                    std::vector<float> *weights) {
  FactorRun run;
  if (run.create(matrices_of(given.shape, count), thread_count, maker(given.options)) != MXS_OK)
    return error_of(name_of(given));
  const auto all = [&](unsigned first) {
    std::vector<float> values;
    for (unsigned m = 0; m < static_cast<unsigned>(count); ++m) {
      const std::vector<float> one = gradient_of(given, first + 1000 * (seed + m));
      values.insert(values.end(), one.begin(), one.end());
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
  for (const Shape shape : {Shape{1, 5}, {9, 4}, {40, 33}, large}) {
    Case given{shape};
    given.options.interval = 3;
    if (shape.rows == 9) given.options.one_sided = MXS_ON;
    if (shape.rows == 40) given.options.decay = MXS_DECAY_CAUTIOUS;
    if (complaint.empty()) complaint = compare_ways(given);
  }
  return complaint;
}

// Each block of a fused weight is stepped as if it were alone.
std::string step_blocks() {
  const size_t rows = 10, columns = 7;
  mxs::StepMatrices fused = matrices_of({10, 7});
  fused.blocks = {{0, 4, 0, 7, 4, 7}, {4, 6, 0, 3, 6, 3}, {4, 6, 3, 4, 6, 4}};
  mxs_soap_options options = MXS_SOAP_OPTIONS_INIT;
  options.interval = 2;
  const Case given{{10, 7}};
  FactorRun whole;
  if (whole.create(fused, 2, maker(options)) != MXS_OK) return error_of("create");
  whole.weights = spread_values(rows, columns, 5);
  const std::vector<float> first = whole.weights;
  for (unsigned t = 1; t <= 6; ++t)
    if (whole.step(spread_values(rows, columns, t), values_of(given)) != MXS_OK) return error_of("step");
  for (const mxs::StepBlock &block : fused.blocks) {
    const auto cut = [&](const std::vector<float> &values) {
      std::vector<float> part;
      for (int64_t r = block.first_row; r < block.first_row + block.rows; ++r)
        for (int64_t c = block.first_column; c < block.first_column + block.columns; ++c)
          part.push_back(values[static_cast<size_t>(r) * columns + static_cast<size_t>(c)]);
      return part;
    };
    FactorRun alone;
    if (alone.create(matrices_of({block.rows, block.columns}), 1, maker(options)) != MXS_OK) return error_of("create");
    alone.weights = cut(first);
    for (unsigned t = 1; t <= 6; ++t)
      if (alone.step(cut(spread_values(rows, columns, t)), values_of(given)) != MXS_OK) return error_of("step");
    if (!same_bytes(cut(whole.weights), alone.weights)) return "a block is not stepped as if it were alone";
  }
  if (!whole.part("basis_right.2")) return "there is no part basis_right.2";
  return whole.check_guards();
}

// ---- what else -----------------------------------------------------------------------------------------------------

std::string leave_zeros() {
  Case given{{5, 7}};
  given.options.interval = 2, given.weight_decay = 0;
  FactorRun run;
  if (run.create(matrices_of(given.shape), 1, maker(given.options)) != MXS_OK) return error_of("create");
  run.weights = spread_values(5, 7, 3);
  const std::vector<float> before = run.weights, zeros(35);
  for (int t = 0; t < 6; ++t)
    if (run.step(zeros, values_of(given)) != MXS_OK) return error_of("step");
  if (!same_bytes(before, run.weights)) return "a gradient of zeros has changed weights";
  return run.stepper().failed_count(run.state()) == 0 ? "" : "factors of zeros count as failures";
}

// Low rank for ever: bases stay orthogonal, weights finite.
std::string survive_low_rank() {
  Case given{{12, 9}};
  given.options.interval = 1;
  FactorRun run;
  if (run.create(matrices_of(given.shape), 1, maker(given.options)) != MXS_OK) return error_of("create");
  const Dense left = dense(spread_values(12, 2, 1).data(), 12, 2);
  for (unsigned t = 1; t <= 40; ++t) {
    const Dense product = left * dense(spread_values(2, 9, t).data(), 2, 9);
    if (run.step({product.values.begin(), product.values.end()}, values_of(given)) != MXS_OK) return error_of("step");
    const Dense basis = run.part("basis_left", 12, 12);
    if (!(distance(basis.turned() * basis, Dense::identity(12)) < 1e-5)) return "a basis is not orthogonal";
  }
  for (const float weight : run.weights)
    if (!std::isfinite(weight)) return "weights are not finite";
  return run.stepper().failed_count(run.state()) == 0 ? "" : "low rank counts as a failure";
}

std::string sizes_are_planned() {
  for (const Shape shape : {Shape{1, 1}, {1, 197}, {3, 5}, {64, 64}, {100, 37}})
    for (const int32_t side_max : {0, 1, 50})
      for (const bool one_sided : {false, true})
        for (const int64_t count : {1, 3}) {
          mxs_soap_options options = MXS_SOAP_OPTIONS_INIT;
          options.side_max = side_max, options.one_sided = one_sided ? MXS_ON : MXS_OFF;
          FactorRun run;
          if (run.create(matrices_of(shape, count), 2, maker(options)) != MXS_OK) return error_of("create");
          mxs::FactorRules rules = mxs::default_factor_rules(MXS_RULE_SOAP);
          if (side_max != 0) rules.side_max = side_max;
          rules.one_sided = one_sided;
          const std::vector<mxs::FactorBlock> given = {{0, shape.rows, 0, shape.columns}};
          const std::string complaint = check_layout(run, mxs::factor_state_bytes(given, count, rules));
          if (!complaint.empty()) return complaint;
          const uint64_t planned = mxs::factor_workspace_bytes(mxs::factor_rooms(given, count, rules, 2));
          if (planned != run.stepper().workspace_bytes()) return "the workspace is not the planned one";
        }
  return "";
}

// ---- failures ------------------------------------------------------------------------------------------------------

std::string keep_the_old_basis() {
  Case given{{4, 6}};
  given.options.interval = 1, given.options.failures_max = 2;
  FactorRun run;
  if (run.create(matrices_of(given.shape), 2, maker(given.options)) != MXS_OK) return error_of("create");
  for (unsigned t = 1; t <= 3; ++t)
    if (run.step(gradient_of(given, t), values_of(given)) != MXS_OK) return error_of("step");
  const Dense left = run.part("basis_left", 4, 4), right = run.part("basis_right", 6, 6);
  run.part("factor_right")[7] = NAN;
  for (unsigned t = 4; t <= 5; ++t)
    if (run.step(gradient_of(given, t), values_of(given)) != MXS_OK) return error_of("a tolerated failure");
  if (distance(right, run.part("basis_right", 6, 6)) != 0) return "the old basis was not kept";
  if (distance(left, run.part("basis_left", 4, 4)) == 0) return "the other side has no new basis";
  if (run.stepper().failed_count(run.state()) != 2) return "not 2 failures were counted";
  for (const float weight : run.weights)
    if (!std::isfinite(weight)) return "weights are not finite";
  const std::vector<std::byte> state = run.state_copy();
  const std::vector<float> weights = run.weights;
  std::string complaint =
      expect(run.step(gradient_of(given, 6), values_of(given)), MXS_INTERNAL, {"3 times in a row", "failures_max"});
  if (!complaint.empty()) return complaint;
  if (state != run.state_copy() || !same_bytes(weights, run.weights)) return "a step that failed has changed something";
  run.part("factor_right")[7] = 100.0f;
  if (run.step(gradient_of(given, 6), values_of(given)) != MXS_OK) return error_of("a step with a repaired factor");
  return run.check_guards();
}

std::string begin_without_a_basis() {
  const Case given{{5, 3}};
  FactorRun run;
  if (run.create(matrices_of(given.shape), 1, maker(given.options)) != MXS_OK) return error_of("create");
  mxs::eigh_failures_to_come = 1;  // of the left side
  const mxs_status status = run.step(gradient_of(given, 1), values_of(given));
  mxs::eigh_failures_to_come = 0;
  if (status != MXS_OK) return error_of("a tolerated failure");
  if (distance(run.part("basis_left", 5, 5), Dense::identity(5)) != 0) return "the first basis is not the identity";
  if (run.stepper().failed_count(run.state()) != 1) return "not 1 failure was counted";
  for (unsigned t = 2; t <= 11; ++t)
    if (run.step(gradient_of(given, t), values_of(given)) != MXS_OK) return error_of("step");
  return distance(run.part("basis_left", 5, 5), Dense::identity(5)) != 0 ? "" : "the next refresh makes no basis";
}

std::string refuse(void (*spoil)(mxs_soap_options *, mxs::StepMatrices *), mxs_status wanted, const char *word) {
  mxs_soap_options options = MXS_SOAP_OPTIONS_INIT;
  mxs::StepMatrices matrices = matrices_of({4, 5});
  spoil(&options, &matrices);
  FactorRun run;
  FactorRun::Make make = [&](std::unique_ptr<mxs::Stepper> *stepper, const mxs::StepMatrices &given, mxs::Team *team) {
    return mxs::make_soap_stepper(stepper, given, options, team);
  };
  return expect(run.create(matrices, 1, make), wanted, {word});
}

std::string refuse_bad_options() {
  using Options = mxs_soap_options;
  using Matrices = mxs::StepMatrices;
  const struct {
    void (*spoil)(Options *, Matrices *);
    mxs_status wanted;
    const char *word;
  } cases[] = {
      {[](Options *o, Matrices *) { o->side_max = -1; }, MXS_INVALID_ARGUMENT, "side_max"},
      {[](Options *o, Matrices *) { o->interval = -3; }, MXS_INVALID_ARGUMENT, "interval"},
      {[](Options *o, Matrices *) { o->failures_max = -1; }, MXS_INVALID_ARGUMENT, "failures_max"},
      {[](Options *o, Matrices *) { o->one_sided = 3; }, MXS_INVALID_ARGUMENT, "one_sided"},
      {[](Options *o, Matrices *) { o->factor_beta = 1.0f; }, MXS_INVALID_ARGUMENT, "factor_beta"},
      {[](Options *o, Matrices *) { o->factor_beta = NAN; }, MXS_INVALID_ARGUMENT, "factor_beta"},
      {[](Options *o, Matrices *) { o->decay = -1; }, MXS_INVALID_ARGUMENT, "decay"},
      {[](Options *o, Matrices *) { o->preset = MXS_PRESET_SHAMPOO; }, MXS_INVALID_ARGUMENT, "shampoo"},
      {[](Options *o, Matrices *) { o->backend = MXS_BACKEND_ONEDNN; }, MXS_NOT_BUILT, "backend onednn has no fp32"},
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
void squares_change_places_with_eigenvalues(void **) { assert_true(good(permute())); }
void neither_threads_nor_batches_nor_halves_show_in_bits(void **) { assert_true(good(compare_all_ways())); }
void blocks_are_stepped_as_if_alone(void **) { assert_true(good(step_blocks())); }
void a_gradient_of_zeros_changes_nothing(void **) { assert_true(good(leave_zeros())); }
void gradients_of_low_rank_keep_bases_orthogonal(void **) { assert_true(good(survive_low_rank())); }
void state_and_workspace_are_what_the_plan_says(void **) { assert_true(good(sizes_are_planned())); }
void a_failed_basis_keeps_the_old_one_until_too_many_fail(void **) { assert_true(good(keep_the_old_basis())); }
void a_first_basis_that_fails_is_the_identity(void **) { assert_true(good(begin_without_a_basis())); }
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
      cmocka_unit_test(squares_change_places_with_eigenvalues),
      cmocka_unit_test(neither_threads_nor_batches_nor_halves_show_in_bits),
      cmocka_unit_test(blocks_are_stepped_as_if_alone),
      cmocka_unit_test(a_gradient_of_zeros_changes_nothing),
      cmocka_unit_test(gradients_of_low_rank_keep_bases_orthogonal),
      cmocka_unit_test(state_and_workspace_are_what_the_plan_says),
      cmocka_unit_test(a_failed_basis_keeps_the_old_one_until_too_many_fail),
      cmocka_unit_test(a_first_basis_that_fails_is_the_identity),
      cmocka_unit_test(bad_options_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
