// SPDX-License-Identifier: Apache-2.0
// Every preset for 50 steps beside its fp64 trajectory, through the C interface alone:
//
//   presets RULE BACKEND FOLDER
//
// Each trajectory tells its own bound; see tests/kernels/trajectories/trajectories.py. Then the same steps in other
// ways, which must end in the same bits: by update and apply, with scaled gradients, with a step that is skipped, in
// padded rows, by two threads, and with the other forms of weights.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "matrixshard/kernels.h"
#include "support/complaints.hpp"
#include "support/trajectory.hpp"
#include "support/cmocka_all.h"

namespace {

using namespace mxs::test;

std::string rule, folder;
mxs_backend backend = MXS_BACKEND_REFERENCE;

// ---- a trajectory's options -----------------------------------------------------------------------------------------

struct Word {
  const char *name;
  int32_t number;
};

int32_t number_of(const std::string &word, std::initializer_list<Word> words) {
  for (const Word &entry : words)
    if (word == entry.name) return entry.number;
  return 0;
}

mxs_decay decay_of(const Trajectory &trajectory) {
  return number_of(trajectory.text("decay"), {{"independent", MXS_DECAY_INDEPENDENT},
                                              {"l2", MXS_DECAY_L2},
                                              {"palm", MXS_DECAY_PALM},
                                              {"cautious", MXS_DECAY_CAUTIOUS}});
}

mxs_switch switch_of(const Trajectory &trajectory, const char *field) {
  return number_of(trajectory.text(field), {{"0", MXS_OFF}, {"1", MXS_ON}});
}

// How a trajectory is stepped; what is named here must not show in its bits.
struct Way {
  int threads = 1;
  mxs_weights weights = MXS_WEIGHTS_DEFAULT;
  mxs_dtype dtype = MXS_F32;
  bool in_halves = false;   // update, then apply
  bool scaled = false;      // gradients 4 times as large, scale 1/2, clip factor 1/2
  bool skips = false;       // a gradient with a NaN between step 7 and step 8
  int64_t padding = 0;      // elements behind each row, of weights; twice as many of gradients
  uint64_t seed = 0;        // of stochastic rounding, if it isn't 0
  bool alone() const { return weights == MXS_WEIGHTS_ALONE; }
};

struct DestroyStepper {
  void operator()(mxs_stepper *stepper) const { mxs_stepper_destroy(&stepper); }
};
using StepperPointer = std::unique_ptr<mxs_stepper, DestroyStepper>;

mxs_status create_muon(mxs_stepper **stepper, const mxs_matrices &matrices, const Trajectory &trajectory,
                       mxs_preset preset, const Way &way) {
  mxs_muon_options options = MXS_MUON_OPTIONS_INIT;
  options.preset = preset;
  options.momentum =
      number_of(trajectory.text("momentum_kind"), {{"ema", MXS_MOMENTUM_EMA}, {"sgd", MXS_MOMENTUM_SGD}});
  options.nesterov = switch_of(trajectory, "nesterov");
  options.scale = number_of(trajectory.text("scale"), {{"none", MXS_SCALE_NONE},
                                                       {"shape", MXS_SCALE_SHAPE},
                                                       {"max", MXS_SCALE_MAX},
                                                       {"ratio", MXS_SCALE_RATIO},
                                                       {"rms", MXS_SCALE_RMS}});
  options.decay = decay_of(trajectory);
  options.normuon = switch_of(trajectory, "normuon");
  options.thread_count = way.threads;
  options.backend = backend;
  return mxs_muon_create(stepper, &matrices, &options);
}

mxs_status create_adamw(mxs_stepper **stepper, const mxs_matrices &matrices, const Trajectory &trajectory,
                        mxs_preset preset, const Way &way) {
  mxs_adamw_options options = MXS_ADAMW_OPTIONS_INIT;
  options.preset = preset;
  options.decay = decay_of(trajectory);
  options.epsilon_before = switch_of(trajectory, "epsilon_before");
  options.thread_count = way.threads;
  return mxs_adamw_create(stepper, &matrices, &options);
}

mxs_status create_shampoo(mxs_stepper **stepper, const mxs_matrices &matrices, const Trajectory &trajectory,
                          mxs_preset preset, const Way &way) {
  mxs_shampoo_options options = MXS_SHAMPOO_OPTIONS_INIT;
  options.preset = preset;
  options.block_max = static_cast<int32_t>(trajectory.whole("block_max"));
  options.interval = static_cast<int32_t>(trajectory.whole("interval"));
  options.start = static_cast<int32_t>(trajectory.whole("start"));
  options.grafting = number_of(
      trajectory.text("grafting"),
      {{"none", MXS_GRAFTING_NONE}, {"adam", MXS_GRAFTING_ADAM}, {"sgd", MXS_GRAFTING_SGD}});
  options.decay = decay_of(trajectory);
  options.nesterov = switch_of(trajectory, "nesterov");
  options.momentum = static_cast<float>(trajectory.number("momentum"));
  options.exponent = trajectory.number("exponent");
  options.backend = backend;
  options.thread_count = way.threads;
  return mxs_shampoo_create(stepper, &matrices, &options);
}

mxs_status create_soap(mxs_stepper **stepper, const mxs_matrices &matrices, const Trajectory &trajectory,
                       mxs_preset preset, const Way &way) {
  mxs_soap_options options = MXS_SOAP_OPTIONS_INIT;
  options.preset = preset;
  options.side_max = static_cast<int32_t>(trajectory.whole("side_max"));
  options.interval = static_cast<int32_t>(trajectory.whole("interval"));
  options.one_sided = switch_of(trajectory, "one_sided");
  options.factor_beta = static_cast<float>(trajectory.number("factor_beta"));
  options.decay = decay_of(trajectory);
  options.backend = backend;
  options.thread_count = way.threads;
  return mxs_soap_create(stepper, &matrices, &options);
}

mxs_status create(StepperPointer *stepper, const Trajectory &trajectory, mxs_preset preset, const Way &way) {
  const std::vector<int64_t> blocks = trajectory.blocks();
  mxs_matrices matrices = MXS_MATRICES_INIT;
  matrices.dtype = way.dtype;
  matrices.weights = way.weights;
  matrices.rows = trajectory.rows();
  matrices.columns = trajectory.columns();
  matrices.count = trajectory.count();
  matrices.block_rows = blocks.empty() ? nullptr : blocks.data();
  matrices.block_count = static_cast<int32_t>(blocks.size());
  matrices.heads = static_cast<int32_t>(trajectory.whole("heads"));
  matrices.transposed = static_cast<int32_t>(trajectory.whole("transposed"));
  matrices.rounding = way.seed ? MXS_ROUND_STOCHASTIC : MXS_ROUND_NEAREST;
  matrices.seed = way.seed;
  if (way.padding > 0) {
    matrices.weight_strides.row = matrices.columns + way.padding;
    matrices.gradient_strides.row = matrices.columns + 2 * way.padding;
    matrices.weight_strides.matrix = matrices.rows * matrices.weight_strides.row + 3;
    matrices.gradient_strides.matrix = matrices.rows * matrices.gradient_strides.row + 5;
  }
  const auto make = rule == "muon"      ? create_muon
                    : rule == "adamw"   ? create_adamw
                    : rule == "shampoo" ? create_shampoo
                                        : create_soap;
  mxs_stepper *made = nullptr;
  const mxs_status status = make(&made, matrices, trajectory, preset, way);
  stepper->reset(made);
  return status;
}

// ---- a run ----------------------------------------------------------------------------------------------------------

constexpr float poison = -77777.0f;

// Matrices of a trajectory, dense, put where a way wants them, and back.
struct Placing {
  size_t rows, columns, count, padding;
  size_t row_stride() const { return columns + padding; }
  size_t matrix_stride() const { return rows * row_stride() + (padding ? (padding == 4 ? 3 : 5) : 0); }
  size_t place(size_t element) const {
    const size_t row = element / columns;
    return row / rows * matrix_stride() + row % rows * row_stride() + element % columns;
  }
  template <class Number>
  std::vector<Number> spread(const std::vector<Number> &dense, Number between) const {
    std::vector<Number> placed(count * matrix_stride(), between);
    for (size_t i = 0; i < dense.size(); ++i) placed[place(i)] = dense[i];
    return placed;
  }
  template <class Number>
  std::vector<Number> dense(const std::vector<Number> &placed) const {
    std::vector<Number> values(rows * columns * count);
    for (size_t i = 0; i < values.size(); ++i) values[i] = placed[place(i)];
    return values;
  }
  bool kept_between(const std::vector<float> &placed) const {
    std::vector<bool> ours(placed.size(), false);
    for (size_t i = 0; i < rows * columns * count; ++i) ours[place(i)] = true;
    for (size_t i = 0; i < placed.size(); ++i)
      if (!ours[i] && placed[i] != poison) return false;
    return true;
  }
};

Placing placing_of(const Trajectory &trajectory, int64_t padding) {
  return {static_cast<size_t>(trajectory.rows()), static_cast<size_t>(trajectory.columns()),
          static_cast<size_t>(trajectory.count()), static_cast<size_t>(padding)};
}

struct FreeMemory {
  void operator()(std::byte *memory) const { std::free(memory); }
};
using Aligned = std::unique_ptr<std::byte, FreeMemory>;
Aligned aligned(uint64_t bytes) {
  const uint64_t rounded = (bytes + 127) / 64 * 64;
  Aligned memory(static_cast<std::byte *>(std::aligned_alloc(64, rounded)));
  std::memset(memory.get(), 0x7f, rounded);  // NaN, as floats
  return memory;
}

// A stepper and all that it steps.
class Run {
 public:
  Run(const Trajectory &trajectory, const Way &way)
      : trajectory_(trajectory), way_(way), weights_at_(placing_of(trajectory, way.padding)),
        gradient_at_(placing_of(trajectory, 2 * way.padding)) {}

  std::string begin(mxs_preset preset);
  std::string step(int number);
  std::vector<float> weights() const;  // the fp32 ones
  std::string check_rounded() const;   // 16 bits beside a master
  bool kept_padding() const { return weights_at_.kept_between(fp32_); }
  // Of the names that a trajectory knows, "" if all are near.
  std::string check_states(double bound) const;
  mxs_dtype product_dtype() const { return info_.product_dtype; }
  const char *backend_text() const { return info_.backend; }

 private:
  std::string call_once(const std::vector<float> &gradient, int number, bool wants_skip);
  const float *state_part(const std::string &name, size_t *elements) const;

  const Trajectory &trajectory_;
  Way way_;
  Placing weights_at_, gradient_at_;
  StepperPointer stepper_;
  mxs_stepper_info info_ = MXS_STEPPER_INFO_INIT;
  mxs_group_values values_ = MXS_GROUP_VALUES_INIT;
  Aligned state_, workspace_;
  std::vector<float> fp32_;        // weights or masters
  std::vector<uint16_t> bf16_;     // weights, if they have 16 bits
  std::vector<uint16_t> remainder_;
  std::vector<float> update_;
  uint64_t skipped_count_ = 0;
};

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

std::string Run::begin(mxs_preset preset) {
  const mxs_status status = create(&stepper_, trajectory_, preset, way_);
  if (status != MXS_OK) return error_of("create");
  if (mxs_stepper_describe(stepper_.get(), &info_) != MXS_OK) return error_of("describe");
  if (mxs_preset_values(preset, &values_) != MXS_OK) return error_of("preset values");
  values_.beta1 = static_cast<float>(trajectory_.number("beta1", static_cast<double>(values_.beta1)));
  values_.beta2 = static_cast<float>(trajectory_.number("beta2", static_cast<double>(values_.beta2)));
  values_.epsilon = static_cast<float>(trajectory_.number("epsilon", static_cast<double>(values_.epsilon)));
  state_ = aligned(mxs_stepper_state_bytes(stepper_.get()));
  workspace_ = aligned(mxs_stepper_workspace_bytes(stepper_.get()));
  if (mxs_stepper_init(stepper_.get(), state_.get()) != MXS_OK) return error_of("init");
  fp32_ = weights_at_.spread(trajectory_.first_weights(), poison);
  if (way_.dtype == MXS_BF16)
    for (const float value : fp32_) {
      const uint32_t bits = bits_of(value);
      const bool cut = way_.weights == MXS_WEIGHTS_REMAINDER;
      bf16_.push_back(cut ? static_cast<uint16_t>(bits >> 16) : mxs::bf16_from_float(value));
      remainder_.push_back(static_cast<uint16_t>(bits));
    }
  update_.resize(trajectory_.elements());
  return "";
}

std::string Run::call_once(const std::vector<float> &gradient, int number, bool wants_skip) {
  mxs_step_call call = MXS_STEP_CALL_INIT;
  values_.lr = trajectory_.lr(number);
  values_.weight_decay = trajectory_.weight_decay(number);
  call.values = &values_;
  call.gradient = gradient.data();
  call.weights = way_.dtype == MXS_BF16 ? static_cast<void *>(bf16_.data()) : fp32_.data();
  if (way_.dtype == MXS_BF16 && !way_.alone())
    call.master = way_.weights == MXS_WEIGHTS_REMAINDER ? static_cast<void *>(remainder_.data()) : fp32_.data();
  call.state = state_.get();
  call.workspace = workspace_.get();
  call.workspace_bytes = mxs_stepper_workspace_bytes(stepper_.get());
  if (way_.scaled) call.gradient_scale = call.clip_factor = 0.5f;
  mxs_step_result result = MXS_STEP_RESULT_INIT;
  mxs_status status = way_.in_halves ? mxs_stepper_update(stepper_.get(), &call, update_.data(), &result)
                                     : mxs_stepper_step(stepper_.get(), &call, &result);
  if (status != MXS_OK) return error_of(words("step %d", number));
  if (result.skipped != (wants_skip ? 1 : 0) || result.skipped_count != skipped_count_ ||
      result.step_number != static_cast<uint64_t>(wants_skip ? number - 1 : number) || result.failed_count != 0)
    return words("step %d: skipped %d, %llu skipped, step number %llu, %llu failed", number, result.skipped,
                 static_cast<unsigned long long>(result.skipped_count),
                 static_cast<unsigned long long>(result.step_number),
                 static_cast<unsigned long long>(result.failed_count));
  if (way_.in_halves && !wants_skip) status = mxs_stepper_apply(stepper_.get(), &call, update_.data());
  return status == MXS_OK ? "" : error_of(words("apply %d", number));
}

std::string Run::step(int number) {
  std::vector<float> gradient = gradient_at_.spread(trajectory_.gradient(number), poison);
  if (way_.scaled)
    for (float &value : gradient) value *= 4;
  if (way_.skips && number == 8) {
    std::vector<float> bad = gradient;
    bad[gradient_at_.place(trajectory_.elements() / 2)] = std::numeric_limits<float>::quiet_NaN();
    skipped_count_++;
    const std::string complaint = call_once(bad, number, true);
    if (!complaint.empty()) return complaint;
  }
  const std::vector<float> before = gradient;
  const std::string complaint = call_once(gradient, number, false);
  if (complaint.empty() && std::memcmp(before.data(), gradient.data(), gradient.size() * sizeof(float)) != 0)
    return words("step %d: the gradient has changed", number);
  return complaint;
}

std::vector<float> Run::weights() const {
  if (way_.weights != MXS_WEIGHTS_REMAINDER && !way_.alone()) return weights_at_.dense(fp32_);
  std::vector<float> whole(bf16_.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    const uint32_t bits = static_cast<uint32_t>(bf16_[i]) << 16 | (way_.alone() ? 0u : remainder_[i]);
    std::memcpy(&whole[i], &bits, sizeof bits);
  }
  return weights_at_.dense(whole);
}

std::string Run::check_rounded() const {
  if (way_.weights != MXS_WEIGHTS_MASTER) return "";
  const std::vector<float> master = weights();
  const std::vector<uint16_t> rounded = weights_at_.dense(bf16_);
  for (size_t i = 0; i < master.size(); ++i)
    if (rounded[i] != mxs::bf16_from_float(master[i])) return words("weight %zu is not its master rounded", i);
  return "";
}

const float *Run::state_part(const std::string &name, size_t *elements) const {
  for (uint64_t i = 0; i < mxs_stepper_state_count(stepper_.get()); ++i) {
    mxs_state_part part = MXS_STATE_PART_INIT;
    if (mxs_stepper_state(stepper_.get(), i, &part) != MXS_OK || part.name != name || part.dtype != MXS_F32) continue;
    *elements = part.bytes / sizeof(float);
    return reinterpret_cast<const float *>(state_.get() + part.offset);
  }
  return nullptr;
}

double relative_error(const std::vector<double> &wanted, const float *got, size_t stride) {
  double off = 0, all = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double difference = static_cast<double>(got[i * stride]) - wanted[i];
    off += difference * difference;
    all += wanted[i] * wanted[i];
  }
  return all > 0 ? std::sqrt(off / all) : std::sqrt(off);
}

std::string Run::check_states(double bound) const {
  for (const auto &[name, wanted] : trajectory_.states) {
    size_t elements = 0;
    const float *const got = state_part(name, &elements);
    if (!got) return "there is no fp32 state \"" + name + "\"";
    if ((elements + trajectory_.stride() - 1) / trajectory_.stride() != wanted.size())
      return words("state %s has %zu elements", name.c_str(), elements);
    const double error = relative_error(wanted, got, trajectory_.stride());
    if (!(error <= bound)) return words("state %s is off by %.2g, more than %.2g", name.c_str(), error, bound);
  }
  return "";
}

// ---- beside fp64 ----------------------------------------------------------------------------------------------------

// The error of all that the steps did, over it.
double error_of_steps(const Trajectory &trajectory, const std::vector<double> &wanted, const std::vector<float> &got) {
  const std::vector<float> start = trajectory.first_weights();
  double off = 0, moved = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double from = static_cast<double>(start[i * trajectory.stride()]);
    const double difference = static_cast<double>(got[i * trajectory.stride()]) - wanted[i];
    off += difference * difference;
    moved += (wanted[i] - from) * (wanted[i] - from);
  }
  return moved > 0 ? std::sqrt(off / moved) : (off > 0 ? INFINITY : 0);
}

std::string follow(const Trajectory &trajectory, mxs_preset preset) {
  Run run(trajectory, {});
  std::string complaint = run.begin(preset);
  if (!complaint.empty()) return complaint;
  const bool is_bf16 = run.product_dtype() == MXS_BF16;
  if (is_bf16 && !trajectory.has("bound_bf16")) return "";  // rank is missing: nothing to compare with
  const double bound = trajectory.number(is_bf16 ? "bound_bf16" : "bound_fp32");
  if (!(bound > 0 && bound < 0.1) || trajectory.weights.size() != 6) return "not a trajectory";
  for (int step = 1; step <= trajectory_steps; ++step) {
    complaint = run.step(step);
    if (!complaint.empty()) return complaint;
    const auto wanted = trajectory.weights.find(step);
    if (wanted == trajectory.weights.end()) continue;
    const double error = error_of_steps(trajectory, wanted->second, run.weights());
    if (!(error <= bound))
      return words("after step %d weights are off by %.3g of what the steps did, more than %.3g (%s)", step, error,
                   bound, run.backend_text());
  }
  return run.check_states(bound);
}

// ---- the same steps in other ways -----------------------------------------------------------------------------------

std::string last_weights(const Trajectory &trajectory, mxs_preset preset, const Way &way,
                         std::vector<float> *weights) {
  Run run(trajectory, way);
  std::string complaint = run.begin(preset);
  for (int step = 1; step <= trajectory_steps && complaint.empty(); ++step) complaint = run.step(step);
  if (!complaint.empty()) return complaint;
  if (way.padding > 0 && !run.kept_padding()) return "something was written between rows";
  *weights = run.weights();
  return run.check_rounded();
}

struct NamedWay {
  const char *name;
  Way way;
};

std::string compare_ways(const Trajectory &trajectory, mxs_preset preset) {
  std::vector<NamedWay> ways(8);
  ways[0] = {"by two threads", {}};
  ways[0].way.threads = 2;
  ways[1] = {"in halves", {}};
  ways[1].way.in_halves = true;
  ways[2] = {"with scaled gradients", {}};
  ways[2].way.scaled = true;
  ways[3] = {"with a step that is skipped", {}};
  ways[3].way.skips = true;
  ways[4] = {"in padded rows", {}};
  ways[4].way.padding = 4;
  ways[5] = {"beside bf16 weights", {}};
  ways[5].way.dtype = MXS_BF16;
  ways[5].way.weights = MXS_WEIGHTS_MASTER;
  ways[6] = {"cut into bf16 and remainder", {}};
  ways[6].way.dtype = MXS_BF16;
  ways[6].way.weights = MXS_WEIGHTS_REMAINDER;
  ways[7] = {"by two threads in halves, padded, scaled, skipping, with masters", {2, MXS_WEIGHTS_MASTER, MXS_BF16, true,
                                                                                  true, true, 4, 0}};
  std::vector<float> plain, other;
  std::string complaint = last_weights(trajectory, preset, {}, &plain);
  if (!complaint.empty()) return complaint;
  for (const NamedWay &named : ways) {
    complaint = last_weights(trajectory, preset, named.way, &other);
    if (!complaint.empty()) return named.name + (": " + complaint);
    for (size_t i = 0; i < plain.size(); ++i)
      if (bits_of(plain[i]) != bits_of(other[i]))
        return words("%s: weight %zu ends at %.9g, not %.9g", named.name, i, static_cast<double>(other[i]),
                     static_cast<double>(plain[i]));
  }
  return "";
}

// Each rounding to a neighbour is off by less than 2^-7 of a weight, whichever way, so 50 of them by some 7 times that.
std::string check_stochastic(const Trajectory &trajectory, mxs_preset preset) {
  Way way;
  way.dtype = MXS_BF16;
  way.weights = MXS_WEIGHTS_ALONE;
  way.seed = 11;
  std::vector<float> exact, rounded, again, other;
  std::string complaint = last_weights(trajectory, preset, {}, &exact);
  if (complaint.empty()) complaint = last_weights(trajectory, preset, way, &rounded);
  way.padding = 4;
  way.threads = 2;
  if (complaint.empty()) complaint = last_weights(trajectory, preset, way, &again);
  way.seed = 12;
  if (complaint.empty()) complaint = last_weights(trajectory, preset, way, &other);
  if (!complaint.empty()) return complaint;
  if (rounded != again) return "bits depend on threads or strides";
  if (rounded == other) return "the seed doesn't show";
  double off = 0, all = 0;
  const std::vector<float> start = trajectory.first_weights();
  for (size_t i = 0; i < exact.size(); ++i) {
    off += std::pow(static_cast<double>(rounded[i]) - static_cast<double>(exact[i]), 2);
    all += std::pow(static_cast<double>(exact[i]), 2) + std::pow(static_cast<double>(start[i]), 2);
  }
  const double error = std::sqrt(off / all);
  return error <= 7 * 0x1p-7 ? "" : words("weights are off by %.3g of themselves", error);
}

// ---- tests ----------------------------------------------------------------------------------------------------------

mxs_preset preset_of(const std::string &name) {
  mxs_preset preset = MXS_PRESET_DEFAULT;
  if (name == "default") return preset;
  return mxs_preset_from_name(name.c_str(), &preset) == MXS_OK ? preset : -1;
}

using Body = std::string (*)(const Trajectory &trajectory, mxs_preset preset);

std::string for_each_trajectory(const std::string &name, Body body) {
  const std::vector<Trajectory> trajectories = read_trajectories(folder + "/" + name + ".txt");
  if (trajectories.size() < 6) return folder + "/" + name + ".txt holds no trajectories";
  for (const Trajectory &trajectory : trajectories) {
    if (trajectory.text("rule") != rule) return trajectory.name + " is of another rule";
    const std::string complaint = body(trajectory, preset_of(name));
    if (!complaint.empty()) return name + " " + trajectory.name + ": " + complaint;
  }
  return "";
}

const char *name_of(void **state) { return static_cast<const char *>(*state); }

void weights_follow_the_fp64_trajectory(void **state) {
  assert_true(good(for_each_trajectory(name_of(state), follow)));
}
void the_way_does_not_show_in_bits(void **state) {
  assert_true(good(for_each_trajectory(name_of(state), compare_ways)));
}

void rounding_by_chance_stays_near(void **state) {
  assert_true(good(for_each_trajectory(name_of(state), check_stochastic)));
}

std::vector<std::string> presets_of_rule() {
  if (rule == "adamw") return {"torch-adamw"};
  if (rule == "shampoo" || rule == "soap") return {rule};
  return {"default", "torch-muon", "torch-muon-rms", "keller-jordan", "moonlight", "nvidia", "dion", "normuon"};
}

// The sentence, if this build or CPU has no such stepper.
std::string not_built() {
  // Small matrices are stepped without the backend: not each tells.
  for (const Trajectory &trajectory : read_trajectories(folder + "/" + presets_of_rule().back() + ".txt")) {
    StepperPointer stepper;
    if (create(&stepper, trajectory, preset_of(presets_of_rule().back()), {}) == MXS_NOT_BUILT) return mxs_last_error();
  }
  return "";
}

}  // namespace

int main(int argument_count, char **arguments) {
  if (argument_count != 4) return 2;
  rule = arguments[1];
  folder = arguments[3];
  backend = number_of(arguments[2], {{"reference", MXS_BACKEND_REFERENCE},
                                     {"onednn", MXS_BACKEND_ONEDNN},
                                     {"openblas", MXS_BACKEND_OPENBLAS},
                                     {"tiles", MXS_BACKEND_TILES}});
  // The reference is in every build: without it this program fails.
  const std::string missing = backend == MXS_BACKEND_REFERENCE ? "" : not_built();
  if (!missing.empty()) {
    print_message("1..0 # SKIP %s\n", missing.c_str());
    return 0;
  }
  const std::vector<std::string> presets = presets_of_rule();
  std::vector<std::string> names;
  std::vector<CMUnitTest> tests;
  names.reserve(3 * presets.size());
  const auto add = [&](const std::string &preset, const char *sentence, CMUnitTestFunction body) {
    names.push_back(preset + " " + sentence);
    tests.push_back({names.back().c_str(), body, nullptr, nullptr, const_cast<char *>(preset.c_str())});
  };
  for (const std::string &preset : presets) {
    add(preset, "weights_follow_the_fp64_trajectory", weights_follow_the_fp64_trajectory);
    // Making oneDNN's kernels takes 0.1 s a stepper, and presets don't differ in how they are called.
    if (backend == MXS_BACKEND_ONEDNN && preset != presets[0]) continue;
    add(preset, "the_way_does_not_show_in_bits", the_way_does_not_show_in_bits);
    add(preset, "rounding_by_chance_stays_near", rounding_by_chance_stays_near);
  }
  return _cmocka_run_group_tests(arguments[1], tests.data(), tests.size(), nullptr, nullptr);
}
