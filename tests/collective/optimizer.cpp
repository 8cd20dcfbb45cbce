// SPDX-License-Identifier: Apache-2.0
// The optimizer over units. Under rank order every world must end with the bits of one plain process that adds all
// micro-batches in order and calls the kernels itself, without units, plan or comm.
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "matrixshard/matrixshard.h"
#include "support/drawn_values.hpp"
#include "support/sanitized.hpp"
#include "support/summer.hpp"
#include "support/thinned.hpp"
#include "support/world.hpp"
#include "support/cmocka_all.h"

// Allocations are counted on threads that ask for it. A sanitizer has a malloc of its own.
namespace {
thread_local bool counting = false;
thread_local int allocations = 0;
}  // namespace

#if !defined(MXS_UNDER_ASAN) && !defined(MXS_UNDER_TSAN)
extern "C" {
void *__libc_malloc(size_t bytes);
void *malloc(size_t bytes) {
  if (counting) ++allocations;
  return __libc_malloc(bytes);
}
}
#endif

namespace {

using mxs::test::hashed;
using mxs::test::run_world;
using mxs::test::Summer;
using mxs::test::world_sizes;
using mxs::test::write_value;

constexpr int micro_batches = 168;  // every world divides it
constexpr int unit_count = 3;

struct TensorPlan {
  const char *name;
  int unit;
  std::vector<int64_t> shape;
  mxs_dtype dtype;
  mxs_rule rule;
  int group;
  std::vector<int64_t> blocks;
  std::vector<int64_t> columns = {};
  bool transposed = false;
  int64_t whole_rows = 0, whole_columns = 0;
};

// A matrix of each kind, a flat tensor of several shares, a tail, one stepped outside, one frozen; columns of a matrix
// and of a stack.
const std::vector<TensorPlan> &model() {
  static const std::vector<TensorPlan> tensors = {
      {"embedding", 0, {130, 64}, MXS_BF16, MXS_RULE_ADAMW, 1, {}},
      {"qkv", 1, {96, 32}, MXS_BF16, MXS_RULE_MUON, 0, {32, 48, 16}},
      {"out", 1, {40, 56}, MXS_F32, MXS_RULE_MUON, 0, {}},
      {"norm", 1, {33}, MXS_F32, MXS_RULE_ADAMW, 1, {}},
      {"experts", 2, {3, 32, 64}, MXS_F16, MXS_RULE_MUON, 2, {}},
      {"bias", 2, {7}, MXS_BF16, MXS_RULE_ADAMW, 1, {}},
      {"outside", 2, {12, 8}, MXS_F32, MXS_RULE_EXTERNAL, 0, {}},
      {"table", 2, {20, 20}, MXS_F32, MXS_RULE_FROZEN, 0, {}},
      {"c_attn", 1, {24, 72}, MXS_BF16, MXS_RULE_MUON, 0, {}, {24, 16, 32}, true, 0, 288},
      {"heads", 2, {2, 16, 37}, MXS_F32, MXS_RULE_MUON, 2, {}, {1, 32, 4}, false, 64, 0},
  };
  return tensors;
}

uint64_t elements_of(const TensorPlan &tensor) {
  uint64_t count = 1;
  for (int64_t length : tensor.shape) count *= static_cast<uint64_t>(length);
  return count;
}

float first_weight(size_t tensor, uint64_t element) { return hashed(tensor, element, 1u << 20); }

// In the gradient's dtype, which is the tensor's.
float micro_gradient(size_t tensor, uint64_t element, int step, int batch) {
  const float value = hashed(tensor, element, static_cast<uint64_t>(step * micro_batches + batch));
  const mxs_dtype dtype = model()[tensor].dtype;
  if (dtype == MXS_BF16) return mxs::float_from_bf16(mxs::bf16_from_float(value));
  if (dtype == MXS_F16) return mxs::float_from_f16(mxs::f16_from_float(value));
  return value;
}

std::vector<mxs_group_values> group_values(int step) {
  std::vector<mxs_group_values> groups(3, MXS_GROUP_VALUES_INIT);
  groups[0].lr = 0.02f;
  groups[1].lr = 0.003f / static_cast<float>(step + 1);
  groups[1].weight_decay = 0.0f;
  groups[2].lr = 0.01f;
  groups[2].momentum = 0.4f;
  return groups;
}

mxs_step step_of(const std::vector<mxs_group_values> &groups, float clip_norm) {
  mxs_step step = MXS_STEP_INIT;
  step.group_count = static_cast<int32_t>(groups.size());
  step.groups = groups.data();
  step.gradient_scale = 1.0f / micro_batches;
  step.clip_norm = clip_norm;
  return step;
}

// ---- one plain process ---------------------------------------------------------------------------------------------

struct PlainTensor {
  std::vector<float> master, gradient, first, second;
  std::vector<std::byte> weights;
};

struct Plain {
  mxs_preset preset;
  mxs_backend backend;
  std::vector<PlainTensor> tensors;
  double norm = 0;

  Plain(mxs_preset its_preset, mxs_backend its_backend) : preset(its_preset), backend(its_backend) {
    for (size_t t = 0; t < model().size(); ++t) {
      const uint64_t count = elements_of(model()[t]);
      PlainTensor tensor;
      for (std::vector<float> *array : {&tensor.master, &tensor.gradient, &tensor.first, &tensor.second})
        array->resize(count);
      tensor.weights.resize(count * mxs_dtype_bytes(model()[t].dtype));
      for (uint64_t i = 0; i < count; ++i) {
        tensor.master[i] = first_weight(t, i);
        write_value(tensor.weights.data(), model()[t].dtype, i, tensor.master[i]);
      }
      tensors.push_back(std::move(tensor));
    }
  }

  bool step(int step, float clip_norm) {
    const std::vector<mxs_group_values> groups = group_values(step);
    const float scale = step_of(groups, clip_norm).gradient_scale;
    int64_t words[MXS_NORM_WORDS] = {};
    int32_t not_finite = 0;
    for (size_t t = 0; t < model().size(); ++t) {
      if (model()[t].rule == MXS_RULE_FROZEN) continue;
      std::vector<float> &sum = tensors[t].gradient;
      for (uint64_t i = 0; i < sum.size(); ++i) {
        sum[i] = 0;
        for (int batch = 0; batch < micro_batches; ++batch) sum[i] += micro_gradient(t, i, step, batch);
      }
      // Blocks are placements of their own, so their chunks begin anew.
      for (const auto &[first, rows] : matrices_of(t)) {
        const uint64_t columns = columns_of(t);
        mxs_norm_add(words, sum.data() + first * columns, rows * columns, scale, &not_finite);
      }
    }
    norm = mxs_norm_value(words);
    const float clip = clip_norm > 0 ? static_cast<float>(std::min(1.0, static_cast<double>(clip_norm) / (norm + 1e-6)))
                                     : 1.0f;
    for (size_t t = 0; t < model().size(); ++t) {
      const TensorPlan &plan = model()[t];
      if (plan.rule == MXS_RULE_FROZEN || plan.rule == MXS_RULE_EXTERNAL) continue;
      const mxs_group_values &values = groups[static_cast<size_t>(plan.group)];
      for (const auto &[first, rows] : matrices_of(t))
        if (!step_placement(t, first * columns_of(t), rows, scale * clip, step, values)) return false;
    }
    return true;
  }

  // Column blocks are taken out, stepped as tensors of their own, and put back.
  bool step_placement(size_t t, uint64_t offset, uint64_t rows, float scale, int step,
                      const mxs_group_values &values) {
    const TensorPlan &plan = model()[t];
    PlainTensor &tensor = tensors[t];
    const uint64_t stride = columns_of(t), width = mxs_dtype_bytes(plan.dtype);
    const auto part_at = [&](uint64_t at) {
      return Part{tensor.gradient.data() + at, tensor.first.data() + at, tensor.second.data() + at,
                  tensor.master.data() + at, tensor.weights.data() + at * width};
    };
    if (plan.columns.empty()) return step_part(plan, part_at(offset), rows, stride, scale, step, values);
    for (const int64_t each : plan.columns) {
      const uint64_t columns = static_cast<uint64_t>(each);
      std::vector<float> floats[4];
      for (std::vector<float> &array : floats) array.resize(rows * columns);
      std::vector<std::byte> weights(rows * columns * width);
      const Part part = {floats[0].data(), floats[1].data(), floats[2].data(), floats[3].data(), weights.data()};
      for (uint64_t row = 0; row < rows; ++row)
        copy_row(part_at(offset + row * stride), 0, part, row * columns, columns, width);
      if (!step_part(plan, part, rows, columns, scale, step, values)) return false;
      for (uint64_t row = 0; row < rows; ++row)
        copy_row(part, row * columns, part_at(offset + row * stride), 0, columns, width);
      offset += columns;
    }
    return true;
  }

  struct Part {
    float *gradient, *first, *second, *master;
    std::byte *weights;
  };
  static void copy_row(const Part &source, uint64_t from, const Part &target, uint64_t to, uint64_t count,
                       uint64_t width) {
    std::copy_n(source.gradient + from, count, target.gradient + to);
    std::copy_n(source.first + from, count, target.first + to);
    std::copy_n(source.second + from, count, target.second + to);
    std::copy_n(source.master + from, count, target.master + to);
    std::copy_n(source.weights + from * width, count * width, target.weights + to * width);
  }

  // Rows of each part that is a matrix of its own: first row, rows.
  static std::vector<std::pair<uint64_t, uint64_t>> matrices_of(size_t t) {
    const TensorPlan &plan = model()[t];
    std::vector<std::pair<uint64_t, uint64_t>> parts;
    uint64_t first = 0;
    for (int64_t rows : plan.blocks) {
      parts.push_back({first, static_cast<uint64_t>(rows)});
      first += static_cast<uint64_t>(rows);
    }
    if (plan.shape.size() == 3)
      for (int64_t i = 0; i < plan.shape[0]; ++i)
        parts.push_back({static_cast<uint64_t>(i * plan.shape[1]), static_cast<uint64_t>(plan.shape[1])});
    if (parts.empty()) parts.push_back({0, plan.shape.size() == 1 ? 1 : static_cast<uint64_t>(plan.shape[0])});
    return parts;
  }
  static uint64_t columns_of(size_t t) { return static_cast<uint64_t>(model()[t].shape.back()); }

  // As (out, in) of the whole matrix.
  float update_scale(const TensorPlan &plan, uint64_t rows, uint64_t columns) const {
    int64_t out = static_cast<int64_t>(rows), in = static_cast<int64_t>(columns);
    if (plan.whole_rows) out = out * plan.whole_rows / plan.shape[plan.shape.size() - 2];
    if (plan.whole_columns) in = in * plan.whole_columns / plan.shape.back();
    return plan.transposed ? mxs_muon_scale(preset, in, out) : mxs_muon_scale(preset, out, in);
  }

  bool step_part(const TensorPlan &plan, const Part &part, uint64_t rows, uint64_t columns, float scale, int step,
                 const mxs_group_values &values) {
    std::vector<float> update(rows * columns);
    mxs_elements elements = MXS_ELEMENTS_INIT;
    elements.dtype = plan.dtype;
    elements.count = rows * columns;
    elements.gradient = part.gradient;
    elements.gradient_scale = scale;
    elements.momentum = elements.exp_avg = part.first;
    elements.exp_avg_sq = part.second;
    elements.master = part.master;
    elements.weights = part.weights;
    elements.step_number = static_cast<uint64_t>(step) + 1;
    if (plan.rule == MXS_RULE_ADAMW) return mxs_adamw(&elements, &values) == MXS_OK;
    elements.update = update.data();
    elements.update_scale = update_scale(plan, rows, columns);
    mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
    options.preset = preset;
    options.backend = backend;
    mxs_orthogonalizer *orthogonalizer = nullptr;
    const bool good =
        mxs_orthogonalizer_create(&orthogonalizer, static_cast<int64_t>(rows), static_cast<int64_t>(columns),
                                  &options) == MXS_OK &&
        mxs_muon_momentum(&elements, &values) == MXS_OK &&
        mxs_orthogonalize(orthogonalizer, update.data(), update.data()) == MXS_OK &&
        mxs_muon_apply(&elements, &values) == MXS_OK;
    mxs_orthogonalizer_destroy(&orthogonalizer);
    return good;
  }
};

// ---- a rank --------------------------------------------------------------------------------------------------------

std::string failure(const char *what) { return std::string(what) + ": " + mxs_last_error(); }

std::string wanted_status(const char *what, mxs_status status, mxs_status wanted) {
  if (status == wanted) return "";
  return std::string(what) + " returned " + mxs_status_name(status) + ", not " + mxs_status_name(wanted) +
         "; last error: " + mxs_last_error();
}

struct Rank {
  int rank = 0, rank_count = 1;
  mxs_comm *comm = nullptr;
  mxs_plan *plan = nullptr;
  std::vector<mxs_unit *> units;
  mxs_optimizer *optimizer = nullptr;

  ~Rank() {
    mxs_optimizer_destroy(&optimizer);
    for (mxs_unit *&unit : units) mxs_unit_destroy(&unit);
    mxs_plan_destroy(&plan);
  }

  std::string make_units(int its_rank, mxs_comm *its_comm, mxs_rule odd_rule = MXS_RULE_MUON) {
    rank = its_rank;
    comm = its_comm;
    mxs_comm_info info = MXS_COMM_INFO_INIT;
    mxs_comm_query(comm, &info);
    rank_count = info.rank_count;
    std::vector<mxs_tensor> tensors;
    for (const TensorPlan &described : model()) {
      mxs_tensor tensor = MXS_TENSOR_INIT;
      tensor.name = described.name;
      tensor.unit = described.unit;
      tensor.dtype = described.dtype;
      tensor.rule = described.rule;
      if (std::strcmp(described.name, "out") == 0) tensor.rule = odd_rule;
      tensor.group = described.group;
      tensor.dimension_count = static_cast<int32_t>(described.shape.size());
      std::copy(described.shape.begin(), described.shape.end(), tensor.shape);
      if (!described.blocks.empty()) {
        tensor.block_rows = described.blocks.data();
        tensor.block_count = static_cast<int32_t>(described.blocks.size());
      }
      tensor.block_columns = described.columns.empty() ? nullptr : described.columns.data();
      tensor.block_column_count = static_cast<int32_t>(described.columns.size());
      tensor.transposed = described.transposed;
      tensor.whole_rows = described.whole_rows;
      tensor.whole_columns = described.whole_columns;
      tensors.push_back(tensor);
    }
    mxs_topology *topology = nullptr;
    if (mxs_comm_topology(comm, &topology) != MXS_OK) return failure("topology");
    mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
    options.flat_bytes = 4096;
    const mxs_status status = mxs_plan_create(&plan, tensors.data(), tensors.size(), topology, &options);
    mxs_topology_destroy(&topology);
    if (status != MXS_OK) return failure("plan");
    mxs_unit_options unit_options = MXS_UNIT_OPTIONS_INIT;
    unit_options.flags = MXS_RANK_ORDER;
    for (int index = 0; index < unit_count; ++index) {
      mxs_unit *unit = nullptr;
      if (mxs_unit_create(&unit, comm, plan, index, &unit_options) != MXS_OK) return failure("unit");
      units.push_back(unit);
    }
    return "";
  }

  std::string make(int its_rank, mxs_comm *its_comm, const mxs_optimizer_options *options = nullptr) {
    std::string complaint = make_units(its_rank, its_comm);
    if (!complaint.empty()) return complaint;
    if (mxs_optimizer_create(&optimizer, units.data(), units.size(), options) != MXS_OK) return failure("optimizer");
    return fill();
  }

  template <class Body>
  std::string for_each_shard(Body &&body) {
    for (uint64_t index = 0; index < mxs_plan_placement_count(plan); ++index) {
      mxs_placement placement = MXS_PLACEMENT_INIT;
      mxs_plan_placement(plan, index, &placement);
      mxs_unit *unit = units[static_cast<size_t>(placement.unit)];
      mxs_view view = MXS_VIEW_INIT;
      if (mxs_unit_shard(unit, index, &view) != MXS_OK) return failure("shard");
      if (!view.data) continue;
      body(placement, view);
      if (mxs_unit_commit(unit, &view) != MXS_OK) return failure("commit");
    }
    return "";
  }

  std::string fill() {
    return for_each_shard([](const mxs_placement &placement, mxs_view &view) {
      for (uint64_t i = 0; i < placement.element_count; ++i)
        write_value(view.data, view.dtype, i,
              first_weight(static_cast<size_t>(placement.tensor), placement.element_offset + i));
    });
  }

  // Batch j is rank j mod p's, in its turn j div p.
  std::string backward(int step, int bad_rank = -1, int bad_tensor = -1) {
    for (int turn = 0; turn < micro_batches / rank_count; ++turn)
      for (int index = unit_count - 1; index >= 0; --index) {
        for (size_t t = 0; t < model().size(); ++t) {
          if (model()[t].unit != index || model()[t].rule == MXS_RULE_FROZEN) continue;
          mxs_view view = MXS_VIEW_INIT;
          if (mxs_unit_gradient(units[static_cast<size_t>(index)], static_cast<int32_t>(t), MXS_WRITE, &view) != MXS_OK)
            return failure("gradient");
          for (uint64_t i = 0; i < elements_of(model()[t]); ++i)
            write_value(view.data, view.dtype, i, micro_gradient(t, i, step, turn * rank_count + rank));
          if (rank == bad_rank && static_cast<int>(t) == bad_tensor) write_value(view.data, view.dtype, 3, NAN);
        }
        if (mxs_unit_reduce(units[static_cast<size_t>(index)], nullptr) != MXS_OK) return failure("reduce");
      }
    return "";
  }

  std::string compare(const Plain &plain) {
    for (int index = 0; index < unit_count; ++index) {
      mxs_unit *unit = units[static_cast<size_t>(index)];
      if (mxs_unit_gather(unit, nullptr) != MXS_OK || mxs_unit_wait(unit, nullptr) != MXS_OK) return failure("gather");
      for (size_t t = 0; t < model().size(); ++t) {
        if (model()[t].unit != index) continue;
        mxs_view view = MXS_VIEW_INIT;
        if (mxs_unit_tensor(unit, static_cast<int32_t>(t), &view) != MXS_OK) return failure("tensor");
        const std::vector<std::byte> &wanted = plain.tensors[t].weights;
        if (view.bytes != wanted.size() || std::memcmp(view.data, wanted.data(), wanted.size()) != 0)
          return std::string("weights of ") + model()[t].name + " differ from those of one process";
      }
      if (mxs_unit_release(unit, MXS_FREE, nullptr) != MXS_OK) return failure("release");
    }
    return "";
  }

  std::string step(int number, float clip_norm, mxs_verdict *verdict) {
    const std::vector<mxs_group_values> groups = group_values(number);
    const mxs_step values = step_of(groups, clip_norm);
    if (mxs_optimizer_step(optimizer, &values, verdict) != MXS_OK) return failure("step");
    return "";
  }
};

bool is_good(const std::string &complaint, int rank_count) {
  if (complaint.empty()) return true;
  print_error("%d ranks: %s\n", rank_count, complaint.c_str());
  return false;
}

template <class Body>
bool in_worlds(const std::vector<int> &sizes, Body &&body) {
  for (int rank_count : mxs::test::thinned(sizes))
    if (!is_good(run_world(rank_count, body), rank_count)) return false;
  return true;
}

// Runs the calls in order until one complains.
std::string first_of(std::initializer_list<std::function<std::string()>> calls) {
  for (const auto &call : calls) {
    const std::string complaint = call();
    if (!complaint.empty()) return complaint;
  }
  return "";
}

// ---- the tests -----------------------------------------------------------------------------------------------------

struct Trajectory {
  mxs_preset preset;
  mxs_backend backend;
  float clip_norm;
  std::vector<Plain> after;  // each step
};

Trajectory plain_trajectory(mxs_preset preset, mxs_backend backend, float clip_norm, int steps) {
  Trajectory trajectory = {preset, backend, clip_norm, {}};
  Plain plain(preset, backend);
  for (int step = 0; step < steps && plain.step(step, clip_norm); ++step) trajectory.after.push_back(plain);
  return trajectory;
}

std::string follow(Rank &rank, const Trajectory &trajectory) {
  for (size_t step = 0; step < trajectory.after.size(); ++step) {
    mxs_verdict verdict = MXS_VERDICT_INIT;
    std::string complaint = first_of({[&] { return rank.backward(static_cast<int>(step)); },
                                      [&] { return rank.step(static_cast<int>(step), trajectory.clip_norm, &verdict); },
                                      [&] { return rank.compare(trajectory.after[step]); }});
    if (!complaint.empty()) return "step " + std::to_string(step) + ", " + complaint;
    if (verdict.norm != trajectory.after[step].norm) return "the norm depends on the world";
    if (verdict.skipped || verdict.step_number != step + 1 || verdict.found_inf_rank != -1)
      return "the verdict is wrong";
    if (trajectory.clip_norm > 0 && !(verdict.clip_factor < 1)) return "nothing was clipped, so the test is idle";
  }
  return "";
}

bool every_world_follows(const Trajectory &trajectory, const std::vector<int> &sizes) {
  return trajectory.after.size() > 0 && in_worlds(sizes, [&](int number, mxs_comm *comm) -> std::string {
           mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
           options.preset = trajectory.preset;
           options.backend = trajectory.backend;
           Rank rank;
           return first_of({[&] { return rank.make(number, comm, &options); },
                            [&] { return follow(rank, trajectory); }});
         });
}

bool a_bad_gradient_skips_the_step() {
  const Trajectory trajectory = plain_trajectory(MXS_PRESET_DEFAULT, MXS_BACKEND_REFERENCE, 0, 1);
  const Plain before(MXS_PRESET_DEFAULT, MXS_BACKEND_REFERENCE);
  return in_worlds({1, 2, 3, 7}, [&](int number, mxs_comm *comm) -> std::string {
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    options.backend = MXS_BACKEND_REFERENCE;
    Rank rank;
    std::string complaint = rank.make(number, comm, &options);
    for (int tensor : {0, 1, 3, 6}) {
      if (!complaint.empty()) return complaint;
      mxs_verdict verdict = MXS_VERDICT_INIT;
      complaint = first_of({[&] { return rank.backward(0, rank.rank_count - 1, tensor); },
                            [&] { return rank.step(0, 1.0f, &verdict); }, [&] { return rank.compare(before); }});
      if (!complaint.empty()) return complaint;
      mxs_tensor_info info = MXS_TENSOR_INFO_INIT;
      mxs_placement placement = MXS_PLACEMENT_INIT;
      mxs_plan_tensor(rank.plan, tensor, &info);
      mxs_plan_placement(rank.plan, info.placement_index, &placement);
      if (verdict.skipped != 1 || verdict.step_number != 0 || mxs_optimizer_step_number(rank.optimizer) != 0 ||
          std::isfinite(verdict.norm) || verdict.found_inf_rank != placement.owner)
        return "a NaN in tensor " + std::to_string(tensor) + " was not seen as such: skipped " +
               std::to_string(verdict.skipped) + ", rank " + std::to_string(verdict.found_inf_rank);
    }
    // The sums were cleared and the state is as before: the next step is the first.
    return complaint.empty() ? follow(rank, trajectory) : complaint;
  });
}

bool agreeing_first_changes_nothing() {
  const Trajectory trajectory = plain_trajectory(MXS_PRESET_DEFAULT, MXS_BACKEND_REFERENCE, 0.25f, 1);
  return in_worlds({1, 3}, [&](int number, mxs_comm *comm) -> std::string {
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    options.backend = MXS_BACKEND_REFERENCE;
    Rank rank;
    std::string complaint =
        first_of({[&] { return rank.make(number, comm, &options); }, [&] { return rank.backward(0); }});
    if (!complaint.empty()) return complaint;
    const std::vector<mxs_group_values> groups = group_values(0);
    const mxs_step unclipped = step_of(groups, 0), clipped = step_of(groups, 0.25f);
    mxs_verdict first = MXS_VERDICT_INIT, second = MXS_VERDICT_INIT;
    if (mxs_optimizer_agree(rank.optimizer, &unclipped, &first) != MXS_OK) return failure("agree");
    if (first.norm != trajectory.after[0].norm || first.clip_factor != 1.0f || first.step_number != 1 ||
        mxs_optimizer_step_number(rank.optimizer) != 0)
      return "the first agreement is wrong";
    complaint = rank.compare(Plain(MXS_PRESET_DEFAULT, MXS_BACKEND_REFERENCE));
    if (!complaint.empty()) return "after agree: " + complaint;
    // A step with other values agrees anew.
    if (mxs_optimizer_step(rank.optimizer, &clipped, &second) != MXS_OK) return failure("step");
    if (second.norm != first.norm || !(second.clip_factor < 1)) return "the step did not clip";
    return rank.compare(trajectory.after[0]);
  });
}

bool an_agreement_is_used_once() {
  return in_worlds({2}, [](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    std::string complaint = first_of({[&] { return rank.make(number, comm); }, [&] { return rank.backward(0); }});
    if (!complaint.empty()) return complaint;
    const std::vector<mxs_group_values> groups = group_values(0);
    const mxs_step step = step_of(groups, 0);
    mxs_verdict verdict = MXS_VERDICT_INIT;
    const auto agreements = [&] {
      mxs_comm_stats stats = MXS_COMM_STATS_INIT;
      mxs_comm_query_stats(comm, &stats);
      uint64_t calls = 0;
      for (const mxs_counter &counter : stats.counters[MXS_AGREE]) calls += counter.calls;
      return calls;
    };
    const uint64_t before = agreements();
    if (mxs_optimizer_agree(rank.optimizer, &step, &verdict) != MXS_OK) return failure("agree");
    const uint64_t between = agreements();
    if (mxs_optimizer_step(rank.optimizer, &step, &verdict) != MXS_OK) return failure("step");
    if (between != before + 1 || agreements() != between) return "the step agreed again";
    if (mxs_optimizer_step(rank.optimizer, &step, &verdict) != MXS_OK) return failure("second step");
    if (agreements() != between + 1 || verdict.norm != 0 || verdict.step_number != 2)
      return "a second step took the old agreement";
    return "";
  });
}

bool a_step_sends_no_matrix_bytes() {
  return in_worlds({4}, [](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    mxs_verdict verdict = MXS_VERDICT_INIT;
    const std::string complaint = first_of({[&] { return rank.make(number, comm); }, [&] { return rank.backward(0); },
                                            [&] { return rank.step(0, 0, &verdict); }});
    if (!complaint.empty()) return complaint;
    mxs_comm_stats stats = MXS_COMM_STATS_INIT;
    mxs_comm_query_stats(comm, &stats);
    for (int kind : {MXS_GATHER, MXS_REDUCE, MXS_RESHARD})
      if (stats.counters[kind][MXS_PHASE_STEP].bytes_out || stats.counters[kind][MXS_PHASE_STEP].bytes_in)
        return "bytes of a gather or reduce were counted in the step";
    return stats.counters[MXS_AGREE][MXS_PHASE_STEP].calls == 1 ? "" : "the agreement was not counted in the step";
  });
}

bool a_step_does_not_allocate() {
  return in_worlds({1, 3}, [](int number, mxs_comm *comm) -> std::string {
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    options.backend = MXS_BACKEND_REFERENCE;  // oneDNN allocates inside, as it likes
    Rank rank;
    mxs_verdict verdict = MXS_VERDICT_INIT;
    const std::string complaint = first_of({[&] { return rank.make(number, comm, &options); },
                                            [&] { return rank.backward(0); }, [&] { return rank.step(0, 0, &verdict); },
                                            [&] { return rank.backward(1); }});
    if (!complaint.empty()) return complaint;
    const std::vector<mxs_group_values> groups = group_values(0);
    mxs_step step = step_of(groups, 1.0f);
    step.missing = MXS_MISSING_ERROR;
    allocations = 0;
    counting = true;
    const mxs_status agreed = mxs_optimizer_agree(rank.optimizer, &step, &verdict);
    const mxs_status stepped = mxs_optimizer_step(rank.optimizer, &step, &verdict);
    counting = false;
    if (agreed != MXS_OK || stepped != MXS_OK) return failure("step");
    return allocations == 0 ? "" : std::to_string(allocations) + " allocations in a step";
  });
}

bool what_is_held_is_refused() {
  return in_worlds({1, 2}, [](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    std::string complaint = rank.make(number, comm);
    if (!complaint.empty()) return complaint;
    const std::vector<mxs_group_values> groups = group_values(0);
    const mxs_step step = step_of(groups, 0);
    mxs_verdict verdict = MXS_VERDICT_INIT;
    mxs_unit *unit = rank.units[1];
    if (mxs_unit_gather(unit, nullptr) != MXS_OK || mxs_unit_wait(unit, nullptr) != MXS_OK) return failure("gather");
    complaint = wanted_status("step while gathered", mxs_optimizer_step(rank.optimizer, &step, &verdict), MXS_HELD);
    if (complaint.empty())
      complaint = wanted_status("agree while gathered", mxs_optimizer_agree(rank.optimizer, &step, &verdict), MXS_HELD);
    if (!complaint.empty()) return complaint;
    mxs_unit_release(unit, MXS_PIN, nullptr);  // pinned is not held
    mxs_view view = MXS_VIEW_INIT;
    if (mxs_unit_gradient(unit, 1, MXS_ADD, &view) != MXS_OK) return failure("gradient");
    complaint =
        wanted_status("step with an open gradient", mxs_optimizer_step(rank.optimizer, &step, &verdict), MXS_HELD);
    if (!complaint.empty()) return complaint;
    if (mxs_unit_reduce(unit, nullptr) != MXS_OK) return failure("reduce");
    complaint = wanted_status("second optimizer", [&] {
      mxs_optimizer *second = nullptr;
      return mxs_optimizer_create(&second, rank.units.data(), rank.units.size(), nullptr);
    }(), MXS_HELD);
    if (complaint.empty()) complaint = wanted_status("destroy unit", mxs_unit_destroy(&rank.units[0]), MXS_HELD);
    if (complaint.empty())
      complaint = wanted_status("step", mxs_optimizer_step(rank.optimizer, &step, &verdict), MXS_OK);
    return complaint;
  });
}

bool bad_steps_are_refused() {
  return in_worlds({2}, [](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    std::string complaint = first_of({[&] { return rank.make(number, comm); }, [&] { return rank.backward(0); }});
    if (!complaint.empty()) return complaint;
    std::vector<mxs_group_values> groups = group_values(0);
    mxs_verdict verdict = MXS_VERDICT_INIT;
    const auto refused = [&](const mxs_step &step, const char *what) {
      if (!complaint.empty()) return;
      complaint = wanted_status(what, mxs_optimizer_step(rank.optimizer, &step, &verdict), MXS_INVALID_ARGUMENT);
      if (complaint.empty())
        complaint = wanted_status(what, mxs_optimizer_agree(rank.optimizer, &step, &verdict), MXS_INVALID_ARGUMENT);
    };
    mxs_step step = step_of(groups, 0);
    step.group_count = 2;
    refused(step, "a group without values");
    step = step_of(groups, 0);
    step.groups = nullptr;
    refused(step, "groups NULL");
    step = step_of(groups, -1);
    refused(step, "a negative clip_norm");
    step = step_of(groups, NAN);
    refused(step, "a clip_norm that is NaN");
    step = step_of(groups, 0);
    step.gradient_scale = INFINITY;
    refused(step, "an infinite scale");
    step = step_of(groups, 0);
    step.size = 3;
    refused(step, "a wrong size");
    groups[1].beta2 = 1.0f;
    refused(step_of(groups, 0), "beta2 of 1");
    groups = group_values(0);
    groups[2].lr = NAN;
    refused(step_of(groups, 0), "lr NaN");
    groups = group_values(0);
    groups[2].size += 8;
    refused(step_of(groups, 0), "groups of two sizes");
    groups = group_values(0);
    step = step_of(groups, 0);
    if (mxs_optimizer_step(nullptr, &step, nullptr) != MXS_INVALID_ARGUMENT ||
        mxs_optimizer_step(rank.optimizer, nullptr, nullptr) != MXS_INVALID_ARGUMENT ||
        mxs_optimizer_agree(rank.optimizer, &step, nullptr) != MXS_INVALID_ARGUMENT ||
        mxs_optimizer_clear(nullptr) != MXS_INVALID_ARGUMENT || mxs_optimizer_step_number(nullptr) != 0 ||
        mxs_optimizer_state_count(nullptr) != 0 || mxs_optimizer_destroy(nullptr) != MXS_OK)
      return "a NULL was taken";
    if (!complaint.empty()) return complaint;
    return rank.compare(Plain(MXS_PRESET_DEFAULT, MXS_BACKEND_AUTO));
  });
}

bool ranks_that_differ_are_told() {
  return in_worlds({2, 3}, [](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    std::string complaint = first_of({[&] { return rank.make(number, comm); }, [&] { return rank.backward(0); }});
    if (!complaint.empty()) return complaint;
    std::vector<mxs_group_values> groups = group_values(0);
    if (number == 1) groups[0].lr *= 2;
    const mxs_step step = step_of(groups, 0);
    mxs_verdict verdict = MXS_VERDICT_INIT;
    complaint = wanted_status("another lr", mxs_optimizer_step(rank.optimizer, &step, &verdict), MXS_MISMATCH);
    if (complaint.empty() && !std::strstr(mxs_last_error(), "rank 1")) return "the sentence does not name rank 1";
    if (!complaint.empty()) return complaint;
    if (number == 1) mxs_optimizer_set_step_number(rank.optimizer, 5);
    groups = group_values(0);
    const mxs_step equal = step_of(groups, 0);
    complaint = wanted_status("other step number", mxs_optimizer_step(rank.optimizer, &equal, &verdict), MXS_MISMATCH);
    if (!complaint.empty()) return complaint;
    complaint = rank.compare(Plain(MXS_PRESET_DEFAULT, MXS_BACKEND_AUTO));  // nothing changed
    if (!complaint.empty()) return complaint;
    mxs_optimizer_set_step_number(rank.optimizer, 0);
    return wanted_status("equal values", mxs_optimizer_step(rank.optimizer, &equal, &verdict), MXS_OK);
  });
}

bool creates_that_cannot_be_are_refused() {
  return in_worlds({2}, [](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    std::string complaint = rank.make_units(number, comm);
    if (!complaint.empty()) return complaint;
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    const auto create = [&] {
      return mxs_optimizer_create(&rank.optimizer, rank.units.data(), rank.units.size(), &options);
    };
    if (number == 1) options.preset = MXS_PRESET_TORCH_MUON;
    complaint = wanted_status("another preset", create(), MXS_MISMATCH);
    if (!complaint.empty()) return complaint;
    options.preset = MXS_PRESET_DEFAULT;
    options.backend = number == 1 ? MXS_BACKEND_REFERENCE : MXS_BACKEND_AUTO;
    options.thread_count = number + 1;  // under rank order threads count, too
    complaint = wanted_status("another backend under rank order", create(), MXS_MISMATCH);
    if (!complaint.empty()) return complaint;
    options = MXS_OPTIMIZER_OPTIONS_INIT;
    for (const mxs_preset preset : {MXS_PRESET_SOAP, 77}) {
      options.preset = preset;
      if (create() != MXS_INVALID_ARGUMENT) return "preset " + std::to_string(preset) + " was taken";
    }
    options = MXS_OPTIMIZER_OPTIONS_INIT;
    options.backend = 7;
    if (create() != MXS_INVALID_ARGUMENT) return "backend 7 was taken";
    options = MXS_OPTIMIZER_OPTIONS_INIT;
    mxs_unit *const units[] = {rank.units[0], nullptr};
    if (mxs_optimizer_create(&rank.optimizer, units, 2, &options) != MXS_INVALID_ARGUMENT ||
        mxs_optimizer_create(&rank.optimizer, units, 0, &options) != MXS_INVALID_ARGUMENT ||
        mxs_optimizer_create(nullptr, units, 1, &options) != MXS_INVALID_ARGUMENT || rank.optimizer)
      return "bad units were taken";
    return wanted_status("at last", create(), MXS_OK);
  });
}

bool backends_without_a_rule_are_named() {
  return in_worlds({1, 2}, [](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    std::string complaint = rank.make_units(number, comm, MXS_RULE_SOAP);
    if (!complaint.empty()) return complaint;
    mxs_soap_options soap = MXS_SOAP_OPTIONS_INIT;
    soap.backend = MXS_BACKEND_TILES;  // they multiply in bf16
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    options.soap_options = &soap;
    complaint = wanted_status(
        "soap by tiles", mxs_optimizer_create(&rank.optimizer, rank.units.data(), rank.units.size(), &options),
        MXS_NOT_BUILT);
    if (complaint.empty() && !std::strstr(mxs_last_error(), "\"out\"")) return "the sentence does not name the tensor";
    return complaint;
  });
}

bool state_is_listed() {
  return in_worlds({1, 3}, [](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    mxs_verdict verdict = MXS_VERDICT_INIT;
    std::string complaint = first_of({[&] { return rank.make(number, comm); }, [&] { return rank.backward(0); },
                                      [&] { return rank.step(0, 0, &verdict); }});
    if (!complaint.empty()) return complaint;
    uint64_t bytes = 0, wanted_count = 0, seen = 0;
    for (uint64_t index = 0; index < mxs_plan_placement_count(rank.plan); ++index) {
      mxs_placement placement = MXS_PLACEMENT_INIT;
      mxs_plan_placement(rank.plan, index, &placement);
      const TensorPlan &tensor = model()[static_cast<size_t>(placement.tensor)];
      mxs_kernel_info kernel = MXS_KERNEL_INFO_INIT;
      const mxs_status status = mxs_optimizer_kernel(rank.optimizer, index, &kernel);
      if (placement.owner != number || placement.element_count == 0 || tensor.rule == MXS_RULE_FROZEN) {
        if (status != MXS_NOT_FOUND) return "a placement of another rank has a kernel here";
        continue;
      }
      if (status != MXS_OK || kernel.rule != tensor.rule) return "the kernel's rule is wrong";
      if (tensor.rule == MXS_RULE_MUON && !(kernel.flops > 0 && *kernel.backend)) return "a matrix has no backend";
      wanted_count += tensor.rule == MXS_RULE_MUON ? 1 : tensor.rule == MXS_RULE_ADAMW ? 2 : 0;
    }
    for (uint64_t i = 0; i < mxs_optimizer_state_count(rank.optimizer); ++i) {
      mxs_state_info info = MXS_STATE_INFO_INIT;
      if (mxs_optimizer_state(rank.optimizer, i, &info) != MXS_OK) return failure("state");
      mxs_placement placement = MXS_PLACEMENT_INIT;
      mxs_plan_placement(rank.plan, info.placement, &placement);
      if (placement.owner != number || info.view.bytes != placement.element_count * 4 || info.view.dtype != MXS_F32 ||
          info.view.dimension_count != placement.dimension_count || info.tensor != placement.tensor)
        return std::string("state ") + info.name + " has the wrong view";
      const float *const values = static_cast<const float *>(info.view.data);
      bool changed = false;
      for (uint64_t e = 0; e < placement.element_count; ++e) changed = changed || values[e] != 0;
      if (!changed) return std::string("state ") + info.name + " is still zero after a step";
      bytes += info.view.bytes;
      ++seen;
    }
    if (seen != wanted_count) return "pieces of state: " + std::to_string(seen);
    mxs_state_info info = MXS_STATE_INFO_INIT;
    if (mxs_optimizer_state(rank.optimizer, seen, &info) != MXS_NOT_FOUND) return "one piece too many";
    mxs_memory memory = MXS_MEMORY_INIT, predicted = MXS_MEMORY_INIT;
    mxs_optimizer_memory(rank.optimizer, &memory);
    mxs_plan_memory(rank.plan, number, nullptr, &predicted);
    if (memory.state < bytes || memory.state > bytes + 64 * seen) return "the state's bytes are wrong";
    const double ratio =
        predicted.workspace ? static_cast<double>(memory.workspace) / static_cast<double>(predicted.workspace) : 1;
    if ((predicted.workspace == 0) != (memory.workspace == 0) || ratio < 0.99 || ratio > 1.01)
      return "workspace is " + std::to_string(memory.workspace) + ", predicted " + std::to_string(predicted.workspace);
    return "";
  });
}

bool clearing_forgets_gradients() {
  const Trajectory trajectory = plain_trajectory(MXS_PRESET_DEFAULT, MXS_BACKEND_AUTO, 0, 1);
  return in_worlds({2}, [&](int number, mxs_comm *comm) -> std::string {
    Rank rank;
    return first_of({[&] { return rank.make(number, comm); }, [&] { return rank.backward(7); },
                     [&] { return mxs_optimizer_clear(rank.optimizer) == MXS_OK ? "" : failure("clear"); },
                     [&] { return follow(rank, trajectory); }});
  });
}

bool the_callers_sum_serves_as_well() {
  const Trajectory trajectory = plain_trajectory(MXS_PRESET_DEFAULT, MXS_BACKEND_REFERENCE, 0.25f, 2);
  for (int rank_count : {1, 3}) {
    Summer summer(rank_count);
    const std::string complaint = run_world(rank_count, [&](int number, mxs_comm *comm) -> std::string {
      mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
      options.backend = MXS_BACKEND_REFERENCE;
      options.agree = Summer::call;
      options.agree_context = &summer;
      Rank rank;
      std::string text = first_of({[&] { return rank.make(number, comm, &options); },
                                   [&] { return follow(rank, trajectory); }, [&] { return rank.backward(0, 0, 4); }});
      mxs_verdict verdict = MXS_VERDICT_INIT;
      if (text.empty()) text = rank.step(0, 0, &verdict);
      if (!text.empty()) return text;
      if (verdict.skipped != 1 || verdict.found_inf_rank < 0 || verdict.step_number != 2) return "a NaN was not seen";
      std::vector<mxs_group_values> groups = group_values(0);
      if (number == rank_count - 1 && rank_count > 1) groups[1].lr = 1;
      const mxs_step step = step_of(groups, 0);
      return wanted_status("another lr", mxs_optimizer_step(rank.optimizer, &step, &verdict),
                           rank_count > 1 ? MXS_MISMATCH : MXS_OK);
    });
    if (!is_good(complaint, rank_count)) return false;
  }
  return true;
}

const std::vector<int> all_worlds = {1, 2, 3, 4, 7, 8};

void every_world_takes_the_steps_of_one_process(void **) {
  assert_true(every_world_follows(plain_trajectory(MXS_PRESET_DEFAULT, MXS_BACKEND_REFERENCE, 0, 2), all_worlds));
}
void clipping_does_not_depend_on_the_world(void **) {
  assert_true(every_world_follows(plain_trajectory(MXS_PRESET_TORCH_MUON, MXS_BACKEND_REFERENCE, 0.25f, 2), {1, 3, 8}));
}
void the_fastest_kernels_follow_as_well(void **) {
  assert_true(every_world_follows(plain_trajectory(MXS_PRESET_DEFAULT, MXS_BACKEND_AUTO, 0, 1), {1, 4}));
}
void a_gradient_that_is_not_finite_skips_the_step_everywhere(void **) { assert_true(a_bad_gradient_skips_the_step()); }
void agreeing_before_the_step_changes_nothing(void **) { assert_true(agreeing_first_changes_nothing()); }
void an_agreement_serves_one_step(void **) { assert_true(an_agreement_is_used_once()); }
void no_matrix_bytes_move_in_a_step(void **) { assert_true(a_step_sends_no_matrix_bytes()); }
void a_step_allocates_nothing(void **) { assert_true(a_step_does_not_allocate()); }
void a_step_while_something_is_held_is_refused(void **) { assert_true(what_is_held_is_refused()); }
void a_step_that_makes_no_sense_changes_nothing(void **) { assert_true(bad_steps_are_refused()); }
void ranks_with_other_values_are_told_which(void **) { assert_true(ranks_that_differ_are_told()); }
void creates_are_compared_over_ranks(void **) { assert_true(creates_that_cannot_be_are_refused()); }
void a_backend_that_is_not_built_names_its_tensor(void **) { assert_true(backends_without_a_rule_are_named()); }
void state_and_kernels_are_listed(void **) { assert_true(state_is_listed()); }
void clearing_forgets_the_sums(void **) { assert_true(clearing_forgets_gradients()); }
void units_can_agree_over_the_callers_sum(void **) { assert_true(the_callers_sum_serves_as_well()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_world_takes_the_steps_of_one_process),
      cmocka_unit_test(clipping_does_not_depend_on_the_world),
      cmocka_unit_test(the_fastest_kernels_follow_as_well),
      cmocka_unit_test(a_gradient_that_is_not_finite_skips_the_step_everywhere),
      cmocka_unit_test(agreeing_before_the_step_changes_nothing),
      cmocka_unit_test(an_agreement_serves_one_step),
      cmocka_unit_test(no_matrix_bytes_move_in_a_step),
      cmocka_unit_test(a_step_allocates_nothing),
      cmocka_unit_test(a_step_while_something_is_held_is_refused),
      cmocka_unit_test(a_step_that_makes_no_sense_changes_nothing),
      cmocka_unit_test(ranks_with_other_values_are_told_which),
      cmocka_unit_test(creates_are_compared_over_ranks),
      cmocka_unit_test(a_backend_that_is_not_built_names_its_tensor),
      cmocka_unit_test(state_and_kernels_are_listed),
      cmocka_unit_test(clearing_forgets_the_sums),
      cmocka_unit_test(units_can_agree_over_the_callers_sum),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
