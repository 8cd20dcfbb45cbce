// SPDX-License-Identifier: Apache-2.0
// Shampoo and SOAP over units, in one model with Muon and AdamW: every world takes the steps of one rank, with equal
// bits; memory is what the plan says, to the byte; state comes back from its views; options are compared; and a
// decomposition that fails too often is told on all ranks, none of which waits.
//
// Rank 0 gives the gradients and the others zeros, so that sums are exact in every world.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "kernels/linear.hpp"
#include "matrixshard/matrixshard.h"
#include "support/drawn_values.hpp"
#include "support/thinned.hpp"
#include "support/world.hpp"
#include "support/cmocka_all.h"

namespace {

using mxs::test::hashed;
using mxs::test::run_world;
using mxs::test::write_value;

const std::vector<int> all_worlds = mxs::test::thinned<int>({1, 2, 3, 4, 7, 8});
using Bytes = std::vector<std::byte>;

struct Described {
  const char *name;
  int unit;
  std::vector<int64_t> shape;
  mxs_dtype dtype, master;
  mxs_rule rule;
  int group;
  std::vector<int64_t> rows = {}, columns = {};
};

// Rules by number: 0 shampoo's group, 1 adamw's and muon's, 2 soap's. bf16 without a master is rounded as options say.
const std::vector<Described> &model() {
  static const std::vector<Described> tensors = {
      {"embedding", 0, {70, 33}, MXS_BF16, MXS_F32, MXS_RULE_ADAMW, 1},
      {"q_k", 0, {40, 24}, MXS_BF16, MXS_F32, MXS_RULE_SHAMPOO, 0, {24, 16}},
      {"wide", 1, {17, 65}, MXS_F32, MXS_F32, MXS_RULE_SOAP, 2},
      {"experts", 1, {3, 9, 20}, MXS_BF16, MXS_BF16, MXS_RULE_SOAP, 2},
      {"c_attn", 1, {12, 30}, MXS_F32, MXS_F32, MXS_RULE_SHAMPOO, 0, {}, {10, 8, 12}},
      {"hidden", 2, {20, 32}, MXS_BF16, MXS_BF16, MXS_RULE_MUON, 1},
      {"bias", 2, {7}, MXS_BF16, MXS_BF16, MXS_RULE_ADAMW, 1},
      {"heads", 2, {40, 2304}, MXS_F32, MXS_F32, MXS_RULE_MUON, 1, {}, std::vector<int64_t>(9, 256)},
  };
  return tensors;
}
constexpr int unit_count = 3;

uint64_t elements_of(const Described &tensor) {
  uint64_t count = 1;
  for (const int64_t length : tensor.shape) count *= static_cast<uint64_t>(length);
  return count;
}

std::string failure(const char *what) { return std::string(what) + ": " + mxs_last_error(); }

std::string wanted(const char *what, mxs_status status, mxs_status expected, const char *words = "") {
  if (status == expected && std::strstr(mxs_last_error(), words)) return "";
  return std::string(what) + " returned " + mxs_status_name(status) + ", not " + mxs_status_name(expected) +
         " with \"" + words + "\"; last error: " + mxs_last_error();
}

// Everything that options point to. Roots and bases are refreshed every other step.
struct Options {
  mxs_shampoo_options shampoo = MXS_SHAMPOO_OPTIONS_INIT;
  mxs_soap_options soap = MXS_SOAP_OPTIONS_INIT;
  mxs_muon_options muon = MXS_MUON_OPTIONS_INIT;
  mxs_newton_schulz newton_schulz = MXS_NEWTON_SCHULZ_INIT;
  mxs_adamw_options adamw = MXS_ADAMW_OPTIONS_INIT;
  mxs_optimizer_options all = MXS_OPTIMIZER_OPTIONS_INIT;

  Options() {
    shampoo.interval = soap.interval = 2;
    all.rounding = MXS_ROUND_STOCHASTIC;
    all.seed = 7;
  }
  Options(const Options &) = delete;
  Options &operator=(const Options &) = delete;
  const mxs_optimizer_options *get() {
    all.shampoo_options = &shampoo;
    all.soap_options = &soap;
    all.muon_options = &muon;
    all.adamw_options = &adamw;
    muon.newton_schulz = &newton_schulz;
    return &all;
  }
};

struct Rank {
  int rank = 0;
  mxs_comm *comm = nullptr;
  mxs_plan *plan = nullptr;
  std::vector<mxs_unit *> units;
  mxs_optimizer *optimizer = nullptr;

  ~Rank() { clear(); }

  void clear() {
    mxs_optimizer_destroy(&optimizer);
    for (mxs_unit *&unit : units) mxs_unit_destroy(&unit);
    units.clear();
    mxs_plan_destroy(&plan);
  }

  std::string make_units(int its_rank, mxs_comm *its_comm) {
    rank = its_rank;
    comm = its_comm;
    std::vector<mxs_tensor> tensors;
    for (const Described &described : model()) {
      mxs_tensor tensor = MXS_TENSOR_INIT;
      tensor.name = described.name;
      tensor.unit = described.unit;
      tensor.dtype = described.dtype;
      tensor.master_dtype = described.master;
      tensor.rule = described.rule;
      tensor.group = described.group;
      tensor.dimension_count = static_cast<int32_t>(described.shape.size());
      std::copy(described.shape.begin(), described.shape.end(), tensor.shape);
      tensor.block_rows = described.rows.empty() ? nullptr : described.rows.data();
      tensor.block_count = static_cast<int32_t>(described.rows.size());
      tensor.block_columns = described.columns.empty() ? nullptr : described.columns.data();
      tensor.block_column_count = static_cast<int32_t>(described.columns.size());
      tensors.push_back(tensor);
    }
    mxs_topology *topology = nullptr;
    if (mxs_comm_topology(comm, &topology) != MXS_OK) return failure("topology");
    const mxs_status status = mxs_plan_create(&plan, tensors.data(), tensors.size(), topology, nullptr);
    mxs_topology_destroy(&topology);
    if (status != MXS_OK) return failure("plan");
    mxs_unit_options unit_options = MXS_UNIT_OPTIONS_INIT;
    unit_options.flags = MXS_RANK_ORDER;
    unit_options.slots = unit_count;
    for (int index = 0; index < unit_count; ++index) {
      units.push_back(nullptr);
      if (mxs_unit_create(&units.back(), comm, plan, index, &unit_options) != MXS_OK) return failure("unit");
    }
    return "";
  }

  mxs_status create(const mxs_optimizer_options *options) {
    return mxs_optimizer_create(&optimizer, units.data(), units.size(), options);
  }

  std::string make(int its_rank, mxs_comm *its_comm, const mxs_optimizer_options *options) {
    const std::string complaint = make_units(its_rank, its_comm);
    if (!complaint.empty()) return complaint;
    if (create(options) != MXS_OK) return failure("optimizer");
    return for_each_shard([](const mxs_placement &placement, mxs_view &view) {
      for (uint64_t i = 0; i < placement.element_count; ++i)
        write_value(view.data, view.dtype, i,
              hashed(static_cast<uint64_t>(placement.tensor), placement.element_offset + i, 1u << 20));
    });
  }

  template <class Body>
  std::string for_each_shard(Body &&body) {
    for (uint64_t index = 0; index < mxs_plan_placement_count(plan); ++index) {
      mxs_placement placement = MXS_PLACEMENT_INIT;
      mxs_plan_placement(plan, index, &placement);
      mxs_unit *const unit = units[static_cast<size_t>(placement.unit)];
      mxs_view view = MXS_VIEW_INIT;
      if (mxs_unit_shard(unit, index, &view) != MXS_OK) return failure("shard");
      if (!view.data) continue;
      body(placement, view);
      if (mxs_unit_commit(unit, &view) != MXS_OK) return failure("commit");
    }
    return "";
  }

  std::string backward(int turn, int bad_tensor = -1, float bad_value = NAN) {
    for (int unit = unit_count - 1; unit >= 0; --unit) {
      for (size_t t = 0; t < model().size(); ++t) {
        if (model()[t].unit != unit) continue;
        mxs_view view = MXS_VIEW_INIT;
        if (mxs_unit_gradient(units[static_cast<size_t>(unit)], static_cast<int32_t>(t), MXS_WRITE, &view) != MXS_OK)
          return failure("gradient");
        for (uint64_t i = 0; i < elements_of(model()[t]); ++i)
          write_value(view.data, view.dtype, i, rank == 0 ? hashed(t, i, static_cast<uint64_t>(turn)) : 0.0f);
        if (rank == 0 && static_cast<int>(t) == bad_tensor) write_value(view.data, view.dtype, 3, bad_value);
      }
      if (mxs_unit_reduce(units[static_cast<size_t>(unit)], nullptr) != MXS_OK) return failure("reduce");
    }
    return "";
  }

  mxs_status step(mxs_verdict *verdict = nullptr) {
    mxs_group_values groups[3] = {MXS_GROUP_VALUES_INIT, MXS_GROUP_VALUES_INIT, MXS_GROUP_VALUES_INIT};
    groups[0].beta2 = 1.0f;  // shampoo's factors are sums
    groups[2].beta1 = groups[2].beta2 = 0.95f;
    mxs_step step = MXS_STEP_INIT;
    step.group_count = 3;
    step.groups = groups;
    step.clip_norm = 4.0f;
    return mxs_optimizer_step(optimizer, &step, verdict);
  }

  std::string steps(int first, int count) {
    for (int turn = first; turn < first + count; ++turn) {
      const std::string complaint = backward(turn);
      if (!complaint.empty()) return complaint;
      if (step() != MXS_OK) return failure("step");
    }
    return "";
  }

  std::string read(std::vector<Bytes> *weights) {
    weights->resize(model().size());
    for (mxs_unit *unit : units)
      if (mxs_unit_gather(unit, nullptr) != MXS_OK || mxs_unit_wait(unit, nullptr) != MXS_OK) return failure("gather");
    for (size_t t = 0; t < model().size(); ++t) {
      mxs_view view = MXS_VIEW_INIT;
      if (mxs_unit_tensor(units[static_cast<size_t>(model()[t].unit)], static_cast<int32_t>(t), &view) != MXS_OK)
        return failure("tensor");
      const std::byte *const data = static_cast<const std::byte *>(view.data);
      (*weights)[t].assign(data, data + view.bytes);
    }
    for (mxs_unit *unit : units)
      if (mxs_unit_release(unit, MXS_FREE, nullptr) != MXS_OK) return failure("release");
    return "";
  }

  std::string compare(const std::vector<Bytes> &expected) {
    std::vector<Bytes> weights;
    const std::string complaint = read(&weights);
    if (!complaint.empty()) return complaint;
    for (size_t t = 0; t < model().size(); ++t)
      if (weights[t] != expected[t]) return std::string("weights of ") + model()[t].name + " differ";
    return "";
  }

  // All parts of state, by placement and name.
  template <class Body>
  std::string for_each_part(Body &&body) {
    for (uint64_t i = 0; i < mxs_optimizer_state_count(optimizer); ++i) {
      mxs_state_info info = MXS_STATE_INFO_INIT;
      if (mxs_optimizer_state(optimizer, i, &info) != MXS_OK) return failure("state");
      const std::string complaint = body(info);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }

  std::map<std::string, Bytes> state() {
    std::map<std::string, Bytes> parts;
    for_each_part([&](const mxs_state_info &info) -> std::string {
      const std::byte *const data = static_cast<const std::byte *>(info.view.data);
      parts[std::to_string(info.placement) + " " + info.name].assign(data, data + info.view.bytes);
      return "";
    });
    return parts;
  }
};

std::string first_of(std::initializer_list<std::function<std::string()>> calls) {
  for (const auto &call : calls) {
    const std::string complaint = call();
    if (!complaint.empty()) return complaint;
  }
  return "";
}

template <class Body>
bool in_worlds(const std::vector<int> &sizes, Body &&body) {
  for (const int rank_count : sizes) {
    const std::string complaint = run_world(rank_count, body);
    if (complaint.empty()) continue;
    print_error("%d ranks: %s\n", rank_count, complaint.c_str());
    return false;
  }
  return true;
}

// Weights of one rank after some steps; empty: it failed, and said why.
std::vector<Bytes> weights_after(int steps, const std::function<void(Options *)> &change = [](Options *) {}) {
  std::vector<Bytes> weights;
  in_worlds({1}, [&](int number, mxs_comm *comm) {
    Options options;
    change(&options);
    Rank rank;
    return first_of({[&] { return rank.make(number, comm, options.get()); }, [&] { return rank.steps(0, steps); },
                     [&] { return rank.read(&weights); }});
  });
  return weights;
}

bool worlds_have_equal_bits() {
  const std::vector<Bytes> expected = weights_after(5);
  return !expected.empty() && in_worlds(all_worlds, [&](int number, mxs_comm *comm) {
    Options options;
    Rank rank;
    return first_of({[&] { return rank.make(number, comm, options.get()); }, [&] { return rank.steps(0, 5); },
                     [&] { return rank.compare(expected); }});
  });
}

// One rank's "wide" beside a stepper that knows no unit.
bool a_unit_steps_like_a_stepper() {
  const std::vector<Bytes> weights = weights_after(4, [](Options *options) { options->all.rounding = 0; });
  if (weights.empty()) return false;
  const Described &wide = model()[2];
  const uint64_t count = elements_of(wide);
  Options options;
  mxs_matrices matrices = MXS_MATRICES_INIT;
  matrices.rows = wide.shape[0];
  matrices.columns = wide.shape[1];
  mxs_stepper *stepper = nullptr;
  if (mxs_soap_create(&stepper, &matrices, &options.soap) != MXS_OK) return false;
  const auto take = [](uint64_t bytes) { return std::aligned_alloc(64, (bytes + 64) / 64 * 64); };
  void *const state = take(mxs_stepper_state_bytes(stepper));
  void *const workspace = take(mxs_stepper_workspace_bytes(stepper));
  std::vector<float> values(count), gradient(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = hashed(2, i, 1u << 20);
  bool good = mxs_stepper_init(stepper, state) == MXS_OK;
  for (uint64_t turn = 0; good && turn < 4; ++turn) {
    int64_t words[MXS_NORM_WORDS] = {};
    int32_t not_finite = 0;
    for (size_t t = 0; t < model().size(); ++t) {
      std::vector<float> other(elements_of(model()[t]));
      for (uint64_t i = 0; i < other.size(); ++i) {
        other[i] = hashed(t, i, turn);
        if (model()[t].dtype == MXS_BF16) other[i] = mxs::float_from_bf16(mxs::bf16_from_float(other[i]));
      }
      // Blocks are placements of their own, so their chunks begin anew.
      std::vector<uint64_t> parts = {other.size()};
      if (t == 1) parts = {24 * 24, 16 * 24};
      if (t == 3) parts = {180, 180, 180};
      const float *part = other.data();
      for (const uint64_t elements : parts) {
        mxs_norm_add(words, part, elements, 1.0f, &not_finite);
        part += elements;
      }
      if (t == 2) gradient = other;
    }
    mxs_group_values group = MXS_GROUP_VALUES_INIT;
    group.beta1 = group.beta2 = 0.95f;
    mxs_step_call call = MXS_STEP_CALL_INIT;
    call.values = &group;
    call.gradient = gradient.data();
    call.weights = values.data();
    call.state = state;
    call.workspace = workspace;
    call.workspace_bytes = mxs_stepper_workspace_bytes(stepper);
    call.clip_factor = mxs_clip_factor(mxs_norm_value(words), 4.0f);
    good = mxs_stepper_step(stepper, &call, nullptr) == MXS_OK;
  }
  if (!good) print_error("%s\n", mxs_last_error());
  good = good && weights[2].size() == count * 4 && std::memcmp(weights[2].data(), values.data(), count * 4) == 0;
  std::free(state);
  std::free(workspace);
  mxs_stepper_destroy(&stepper);
  return good;
}

// With the rules' defaults.
std::string memory_is_as_predicted(Rank &rank, int thread_count) {
  mxs_memory memory = MXS_MEMORY_INIT, predicted = MXS_MEMORY_INIT;
  mxs_memory_options options = MXS_MEMORY_OPTIONS_INIT;
  options.thread_count = thread_count;
  mxs_optimizer_memory(rank.optimizer, &memory);
  mxs_plan_memory(rank.plan, rank.rank, &options, &predicted);
  if (memory.state != predicted.state || memory.workspace != predicted.workspace)
    return "rank " + std::to_string(rank.rank) + ", " + std::to_string(thread_count) + " threads: state " +
           std::to_string(memory.state) + ", predicted " + std::to_string(predicted.state) + "; workspace " +
           std::to_string(memory.workspace) + ", predicted " + std::to_string(predicted.workspace);
  uint64_t bytes = 0;
  const std::string complaint = rank.for_each_part([&](const mxs_state_info &info) -> std::string {
    uint64_t shaped = mxs_dtype_bytes(info.view.dtype);
    for (int d = 0; d < info.view.dimension_count; ++d) shaped *= static_cast<uint64_t>(info.view.shape[d]);
    if (shaped != info.view.bytes) return std::string("the shape of ") + info.name + " is not its bytes";
    if (reinterpret_cast<uintptr_t>(info.view.data) % 64 != 0) return std::string(info.name) + " is off its border";
    bytes += (info.view.bytes + 63) / 64 * 64;
    return "";
  });
  return !complaint.empty() || bytes == memory.state ? complaint : "the parts are not the state";
}

bool memory_is_predicted_to_the_byte() {
  return in_worlds(all_worlds, [](int number, mxs_comm *comm) -> std::string {
    for (const int thread_count : {1, 2}) {
      mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
      options.thread_count = thread_count;
      Rank rank;
      const std::string complaint = first_of({[&] { return rank.make(number, comm, &options); },
                                              [&] { return memory_is_as_predicted(rank, thread_count); }});
      if (!complaint.empty()) return complaint;
    }
    return "";
  });
}

bool factors_are_listed_with_their_shapes() {
  return in_worlds({1, 3}, [](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    std::string complaint = rank.make(number, comm, nullptr);
    if (!complaint.empty()) return complaint;
    int squares = 0;
    complaint = rank.for_each_part([&](const mxs_state_info &info) -> std::string {
      mxs_placement placement = MXS_PLACEMENT_INIT;
      mxs_plan_placement(rank.plan, info.placement, &placement);
      if (placement.owner != number) return "a part of another rank's placement";
      const std::string name = info.name;
      const int64_t side = info.view.shape[0];
      if (name == "exp_avg" && info.view.bytes != placement.element_count * 4) return "exp_avg has the wrong size";
      if (name == "basis_right" && (side != placement.shape[1] || info.view.shape[1] != side))
        return "basis_right is not of the columns";
      if (name == "basis_left" && (side != placement.shape[0] || info.view.shape[1] != side))
        return "basis_left is not of the rows";
      squares += name.rfind("factor_", 0) == 0;
      return "";
    });
    mxs_kernel_info kernel = MXS_KERNEL_INFO_INIT;
    for (uint64_t index = 0; complaint.empty() && index < mxs_plan_placement_count(rank.plan); ++index) {
      if (mxs_optimizer_kernel(rank.optimizer, index, &kernel) != MXS_OK || kernel.rule != MXS_RULE_SOAP) continue;
      if (!*kernel.backend || !(kernel.flops > 0) || kernel.product_dtype != MXS_F32 || kernel.failed_count != 0)
        return "the kernels of soap are told wrong";
    }
    // Two of each block: 2 of q_k, 1 of wide, 3 experts, 3 of c_attn.
    if (complaint.empty() && comm && mxs_optimizer_state_count(rank.optimizer) > 0 && number == 0) {
      mxs_comm_info info = MXS_COMM_INFO_INIT;
      mxs_comm_query(comm, &info);
      if (info.rank_count == 1 && squares != 2 * (2 + 1 + 3 + 3)) return "factors: " + std::to_string(squares);
    }
    return complaint;
  });
}

bool a_nan_changes_no_state() {
  return in_worlds({1, 3}, [](int number, mxs_comm *comm) -> std::string {
    Options options;
    Rank rank;
    std::vector<Bytes> weights;
    std::string complaint = first_of({[&] { return rank.make(number, comm, options.get()); },
                                      [&] { return rank.steps(0, 3); }, [&] { return rank.read(&weights); }});
    for (const int tensor : {1, 2, 3}) {
      if (!complaint.empty()) return complaint;
      const std::map<std::string, Bytes> before = rank.state();
      mxs_verdict verdict = MXS_VERDICT_INIT;
      const bool finite = tensor == 2;  // but its square isn't
      complaint = rank.backward(3, tensor, finite ? 1e25f : NAN);
      if (!complaint.empty()) return complaint;
      if (rank.step(&verdict) != MXS_OK) return failure("step");
      if (!verdict.skipped || verdict.step_number != 3 || (verdict.found_inf_rank < 0) != finite)
        return "the step was not skipped";
      if (rank.state() != before) return "state changed in a step that was skipped";
      complaint = rank.compare(weights);
    }
    return complaint;
  });
}

bool other_options_are_named() {
  const struct {
    const char *words;
    std::function<void(Options *)> change;
  } cases[] = {
      {"other shampoo_options", [](Options *o) { o->shampoo.interval = 3; }},
      {"other shampoo_options", [](Options *o) { o->shampoo.exponent = 0.5; }},
      {"other soap_options", [](Options *o) { o->soap.factor_beta = 0.9f; }},
      {"other soap_options", [](Options *o) { o->soap.one_sided = MXS_ON; }},
      {"other muon_options", [](Options *o) { o->muon.nesterov = MXS_OFF; }},
      {"other muon_options", [](Options *o) { o->newton_schulz.table = MXS_TABLE_JORDAN; }},
      {"other muon_options", [](Options *o) { o->newton_schulz.safety = 1.1; }},
      {"other adamw_options", [](Options *o) { o->adamw.epsilon_before = MXS_ON; }},
      {"another rounding or seed", [](Options *o) { o->all.seed = 8; }},
      {"another rounding or seed", [](Options *o) { o->all.rounding = MXS_ROUND_NEAREST; }},
  };
  return in_worlds({2, 3}, [&](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    std::string complaint = rank.make_units(number, comm);
    for (const auto &each : cases) {
      if (!complaint.empty()) return complaint;
      Options options;
      if (number == 1) each.change(&options);
      complaint = wanted(each.words, rank.create(options.get()), MXS_MISMATCH, each.words);
    }
    Options options;
    return complaint.empty() ? wanted("equal options", rank.create(options.get()), MXS_OK) : complaint;
  });
}

// Also on ranks that own nothing of the rule.
bool bad_options_are_refused() {
  const std::function<void(Options *)> cases[] = {
      [](Options *o) { o->shampoo.interval = -1; },
      [](Options *o) { o->shampoo.preset = MXS_PRESET_SOAP; },
      [](Options *o) { o->soap.failures_max = -2; },
      [](Options *o) { o->soap.size = 3; },
      [](Options *o) { o->muon.scale = 77; },
      [](Options *o) { o->newton_schulz.size = 1; },
      [](Options *o) {  // one number of so many
        static const double coefficient = 1;
        o->newton_schulz.table = MXS_TABLE_CUSTOM;
        o->newton_schulz.step_count = 1 << 30;
        o->newton_schulz.coefficients = &coefficient;
      },
      [](Options *o) {
        static const double coefficient = 1;
        o->newton_schulz.step_count = 32;
        o->newton_schulz.coefficients = &coefficient;  // of no custom table
      },
      [](Options *o) { o->adamw.preset = MXS_PRESET_DION; },
      [](Options *o) { o->all.rounding = 5; },
  };
  return in_worlds({1, 3}, [&](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    std::string complaint = rank.make_units(number, comm);
    for (size_t i = 0; complaint.empty() && i < std::size(cases); ++i) {
      Options options;
      cases[i](&options);
      complaint = wanted(("case " + std::to_string(i)).c_str(), rank.create(options.get()), MXS_INVALID_ARGUMENT);
      if (rank.optimizer) return "an optimizer came of it";
    }
    return complaint;
  });
}

bool state_views_resume() {
  const std::vector<Bytes> expected = weights_after(6);
  return !expected.empty() && in_worlds({1, 3}, [&](int number, mxs_comm *comm) -> std::string {
    Options options;
    Rank rank;
    std::map<uint64_t, Bytes> masters;
    std::string complaint = first_of({[&] { return rank.make(number, comm, options.get()); },
                                      [&] { return rank.steps(0, 3); }, [&] {
                                        return rank.for_each_shard([&](const mxs_placement &, mxs_view &view) {
                                          const std::byte *const data = static_cast<const std::byte *>(view.data);
                                          masters[masters.size()].assign(data, data + view.bytes);
                                        });
                                      }});
    if (!complaint.empty()) return complaint;
    const std::map<std::string, Bytes> state = rank.state();
    rank.clear();
    uint64_t next = 0;
    complaint = first_of({[&] { return rank.make(number, comm, options.get()); }, [&] {
                            return rank.for_each_shard([&](const mxs_placement &, mxs_view &view) {
                              std::memcpy(view.data, masters.at(next).data(), masters.at(next).size());
                              ++next;
                            });
                          },
                          [&] {
                            return rank.for_each_part([&](const mxs_state_info &info) -> std::string {
                              const Bytes &kept = state.at(std::to_string(info.placement) + " " + info.name);
                              std::memcpy(info.view.data, kept.data(), kept.size());
                              return "";
                            });
                          }});
    if (!complaint.empty()) return complaint;
    mxs_optimizer_set_step_number(rank.optimizer, 3);
    return first_of({[&] { return rank.steps(3, 3); }, [&] { return rank.compare(expected); }});
  });
}

// Every decomposition by eigenvectors fails from the start. Shampoo's roots are then what they began with, until more
// have failed in a row than are allowed: owners of such tensors say so, all ranks hear of it one step later. SOAP wants
// eigenvectors for its first basis only.
std::string failures_are_told(int number, mxs_comm *comm) {
  Options options;
  options.shampoo.failures_max = options.soap.failures_max = 1;
  options.shampoo.interval = options.soap.interval = 1;
  Rank rank;
  std::string complaint = rank.make(number, comm, options.get());
  if (!complaint.empty()) return complaint;
  bool owns_shampoo = false, owns_some = false;
  for (uint64_t index = 0; index < mxs_plan_placement_count(rank.plan); ++index) {
    mxs_kernel_info kernel = MXS_KERNEL_INFO_INIT;
    if (mxs_optimizer_kernel(rank.optimizer, index, &kernel) != MXS_OK) continue;
    owns_shampoo = owns_shampoo || kernel.rule == MXS_RULE_SHAMPOO;
    owns_some = owns_some || kernel.rule == MXS_RULE_SHAMPOO || kernel.rule == MXS_RULE_SOAP;
  }
  int failed_at = -1, told_at = -1;
  for (int turn = 0; turn < 6 && told_at < 0; ++turn) {
    complaint = rank.backward(turn);
    if (!complaint.empty()) return complaint;
    const mxs_status status = rank.step();
    if (status == MXS_OK) continue;
    if (status != MXS_INTERNAL) return failure("step");
    const bool told = std::strstr(mxs_last_error(), "nothing changed") != nullptr;
    if (!told && (failed_at >= 0 || !std::strstr(mxs_last_error(), "was left out of step"))) return failure("failing");
    (told ? told_at : failed_at) = turn;
    if (!std::strstr(mxs_last_error(), "tensor \"")) return failure("no tensor is named");
  }
  if (told_at < 0) return "no rank was told";
  if ((owns_shampoo && failed_at < 0) || (!owns_some && failed_at >= 0))
    return "the failure was told by a rank that has none, or kept by one that has";
  if (failed_at >= 0 && failed_at + 1 != told_at) return "it was not told in the next step";
  uint64_t failed_count = 0;
  for (uint64_t index = 0; index < mxs_plan_placement_count(rank.plan); ++index) {
    mxs_kernel_info kernel = MXS_KERNEL_INFO_INIT;
    if (mxs_optimizer_kernel(rank.optimizer, index, &kernel) == MXS_OK) failed_count += kernel.failed_count;
  }
  if ((owns_shampoo && failed_count == 0) || (!owns_some && failed_count > 0))
    return "failed decompositions counted: " + std::to_string(failed_count);
  std::vector<Bytes> weights;
  return rank.read(&weights);  // units work as before
}

bool failed_decompositions_are_told_on_all_ranks() {
  mxs::eigh_failures_to_come = 1 << 30;
  const bool good = in_worlds({1, 2, 3, 7}, failures_are_told);
  mxs::eigh_failures_to_come = 0;
  return good;
}

bool rounding_is_the_callers_choice() {
  const std::vector<Bytes> first = weights_after(3), again = weights_after(3);
  const std::vector<Bytes> seeded = weights_after(3, [](Options *options) { options->all.seed = 8; });
  const std::vector<Bytes> nearest = weights_after(3, [](Options *o) { o->all.rounding = MXS_ROUND_NEAREST; });
  if (first.empty() || seeded.empty() || nearest.empty() || first != again) return false;
  for (size_t t = 0; t < model().size(); ++t) {
    const bool rounds = model()[t].dtype == model()[t].master && model()[t].dtype == MXS_BF16;
    if ((first[t] == seeded[t]) == rounds || (first[t] == nearest[t]) == rounds) {
      print_error("%s %s\n", model()[t].name, rounds ? "is rounded alike" : "depends on rounding");
      return false;
    }
  }
  return true;
}

void every_world_ends_with_the_bits_of_one_rank(void **) { assert_true(worlds_have_equal_bits()); }
void a_unit_takes_the_steps_of_a_stepper(void **) { assert_true(a_unit_steps_like_a_stepper()); }
void state_and_workspace_are_predicted_to_the_byte(void **) { assert_true(memory_is_predicted_to_the_byte()); }
void factors_and_bases_are_listed(void **) { assert_true(factors_are_listed_with_their_shapes()); }
void a_gradient_that_is_not_finite_changes_no_factor(void **) { assert_true(a_nan_changes_no_state()); }
void options_that_differ_are_named(void **) { assert_true(other_options_are_named()); }
void options_that_make_no_sense_are_refused(void **) { assert_true(bad_options_are_refused()); }
void steps_go_on_from_views_of_state(void **) { assert_true(state_views_resume()); }
void decompositions_that_fail_are_told_everywhere(void **) {
  assert_true(failed_decompositions_are_told_on_all_ranks());
}
void weights_without_a_master_are_rounded_as_asked(void **) { assert_true(rounding_is_the_callers_choice()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_world_ends_with_the_bits_of_one_rank),
      cmocka_unit_test(a_unit_takes_the_steps_of_a_stepper),
      cmocka_unit_test(state_and_workspace_are_predicted_to_the_byte),
      cmocka_unit_test(factors_and_bases_are_listed),
      cmocka_unit_test(a_gradient_that_is_not_finite_changes_no_factor),
      cmocka_unit_test(options_that_differ_are_named),
      cmocka_unit_test(options_that_make_no_sense_are_refused),
      cmocka_unit_test(steps_go_on_from_views_of_state),
      cmocka_unit_test(decompositions_that_fail_are_told_everywhere),
      cmocka_unit_test(weights_without_a_master_are_rounded_as_asked),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
