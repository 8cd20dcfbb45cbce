// SPDX-License-Identifier: Apache-2.0
// Muon: the local step of a batch of matrices. Formulas and constants: docs/optimizers.md.
//
//   momentum, and what is to be orthogonalized       gradient, momentum -> update, its norm
//   Newton-Schulz                                    update -> update, each block by itself
//   NorMuon, if it is asked for                      update, second_momentum -> a factor for each row
//   decay and apply                                  update -> weights
//
// Blocks of one shape, of all matrices, share an orthogonalizer. They go through all four a few at a time
// (muon_blocks_at_a_time). So the workspace holds the update of a few blocks, not of the batch:
//
//   workspace | updates | NorMuon: sums and factors of their rows | Newton-Schulz |
//
// Every block's bits are those of a batch of it alone. Two things can fail half-way: a sum over co-owners, and a
// momentum that is not finite, which only a state that was damaged before has. To find the latter first would take one
// more pass over momentum, a quarter of what the momentum pass moves; so blocks before it are stepped, and state and
// weights are to be loaded again.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "kernels/kernels.hpp"
#include "kernels/passes.hpp"
#include "kernels/presets.hpp"
#include "kernels/recipe.hpp"
#include "optimizer/shared.hpp"
#include "optimizer/state_layout.hpp"
#include "optimizer/step_weights.hpp"
#include "optimizer/stepper.hpp"
#include "plan/memory.hpp"

namespace mxs {

namespace {

uint64_t to_border(uint64_t bytes) { return align_up(bytes, 64); }

// One block of one matrix: where it begins in each array, in elements. momentum: also in a dense update, and within
// the tensor; second: in second_momentum, which has a number for each row of each block.
struct Place {
  size_t gradient, weights, momentum, second;
};

struct Group {
  size_t rows, columns;
  float scale;
  std::vector<Place> places;
  std::unique_ptr<Orthogonalizer> orthogonalizer;
  std::byte *bound = nullptr;  // where the orthogonalizer's workspace was last
  size_t at_a_time = 1;
  // Of those that are on their way.
  std::vector<MatrixSource> sources;
  std::vector<MatrixTarget> targets;
  std::vector<double> squares;

  size_t elements() const { return rows * columns; }
  size_t update_row() const { return targets[0].row_stride; }
};

// Blocks [first, first + count) of a group.
struct Batch {
  Group *group;
  size_t first, count;
  const Place &place(size_t index) const { return group->places[first + index]; }
};

class MuonStepper final : public Stepper {
 public:
  MuonStepper(const StepMatrices &matrices, MuonRecipe recipe, Team *team)
      : matrices_(matrices), recipe_(std::move(recipe)), team_(team) {}

  mxs_status prepare() {
    mxs_status status = weight_form(&form_, matrices_.dtype, matrices_.weights, matrices_.rounding);
    if (static_cast<uint64_t>(matrices_.count) > step_parts_max / matrices_.blocks.size())
      return set_error(MXS_INVALID_ARGUMENT, "%lld matrices of %zu blocks; muon steps at most %llu blocks in a batch",
                       static_cast<long long>(matrices_.count), matrices_.blocks.size(),
                       static_cast<unsigned long long>(step_parts_max));
    for (const StepBlock &block : matrices_.blocks)
      if (status == MXS_OK) status = take_block(block);
    if (status != MXS_OK) return status;
    for (Group &group : groups_) take_room(&group);
    layout_.add(StateScope::element, "momentum", matrices_.count, {matrices_.rows, matrices_.columns});
    if (recipe_.normuon)
      layout_.add(StateScope::row, "second_momentum", matrices_.count, {static_cast<int64_t>(second_rows_)});
    return MXS_OK;
  }

  mxs_rule rule() const override { return MXS_RULE_MUON; }
  const std::vector<StatePart> &state_parts() const override { return layout_.parts(); }
  uint64_t state_bytes() const override { return layout_.bytes(); }
  uint64_t workspace_bytes() const override { return update_bytes_ + row_bytes_ + orthogonalizer_bytes_; }
  void init(std::byte *state) const override { std::fill_n(state, layout_.bytes(), std::byte{0}); }
  const char *backend() const override { return backend_.c_str(); }
  mxs_dtype product_dtype() const override { return product_dtype_; }
  double flops() const override { return flops_; }
  uint64_t state_meaning() const override { return static_cast<uint64_t>(recipe_.momentum); }
  bool update_reads_weights() const override { return recipe_.decay == MXS_DECAY_L2; }

  mxs_status step(const StepCall &call) override {
    return over_batches([&](const Batch &batch) {
      float *const room = reinterpret_cast<float *>(call.workspace);
      for (size_t i = 0; i < batch.count; ++i)
        batch.group->targets[i] = {room + i * batch.group->elements(), batch.group->columns};
      const mxs_status status = form_update(batch, call);
      if (status == MXS_OK) apply_batch(batch, call, recipe_.normuon ? row_factors(call) : nullptr);
      return status;
    });
  }

  mxs_status update(const StepCall &call, float *update) override {
    return over_batches([&](const Batch &batch) {
      aim(batch, update);
      const mxs_status status = form_update(batch, call);
      if (status == MXS_OK && recipe_.normuon) scale_rows(batch, row_factors(call));
      return status;
    });
  }

  mxs_status apply(const StepCall &call, const float *update) override {
    return over_batches([&](const Batch &batch) {
      aim(batch, const_cast<float *>(update));  // read only from here on
      apply_batch(batch, call, nullptr);
      return MXS_OK;
    });
  }

 private:
  bool is_shared() const { return matrices_.shared.sum != nullptr; }

  // ---- at create ----

  mxs_status take_block(const StepBlock &block) {
    const float scale = update_scale(recipe_.scale, block.scale_rows, block.scale_columns);
    const size_t rows = static_cast<size_t>(block.rows), columns = static_cast<size_t>(block.columns);
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group &each) {
      return each.rows == rows && each.columns == columns && each.scale == scale;
    });
    if (group == groups_.end()) {
      Group made;
      made.rows = rows;
      made.columns = columns;
      made.scale = scale;
      const mxs_status status =
          is_shared() ? make_shared_newton_schulz(&made.orthogonalizer, matrices_.shared, block.rows, block.columns,
                                                  recipe_.newton_schulz, recipe_.choice, team_)
                      : make_orthogonalizer(&made.orthogonalizer, block.rows, block.columns, recipe_.newton_schulz,
                                            recipe_.choice, team_);
      if (status != MXS_OK) return status;
      group = groups_.insert(groups_.end(), std::move(made));
      describe(*group->orthogonalizer);
    }
    for (int64_t matrix = 0; matrix < matrices_.count; ++matrix) group->places.push_back(place_of(block, matrix));
    second_rows_ += rows;
    flops_ += group->orthogonalizer->flops() * static_cast<double>(matrices_.count);
    return MXS_OK;
  }

  // second: of the first matrix; take_room adds the rest when the rows of all blocks are known.
  Place place_of(const StepBlock &block, int64_t matrix) const {
    const auto at = [&](int64_t matrix_stride, int64_t row_stride) {
      return static_cast<size_t>(matrix * matrix_stride + block.first_row * row_stride + block.first_column);
    };
    return {at(matrices_.gradient_matrix, matrices_.gradient_row), at(matrices_.weight_matrix, matrices_.weight_row),
            at(matrices_.rows * matrices_.columns, matrices_.columns), second_rows_};
  }

  void describe(const Orthogonalizer &orthogonalizer) {
    const char *const name = orthogonalizer.backend();
    if (backend_.find(name) == std::string::npos) backend_.append(backend_.empty() ? "" : ", ").append(name);
    // bf16, if any product is.
    if (product_dtype_ != MXS_BF16) product_dtype_ = orthogonalizer.product_dtype();
  }

  void take_room(Group *group) {
    const size_t count = static_cast<size_t>(matrices_.count);
    for (size_t place = 0; place < group->places.size(); ++place)
      group->places[place].second += place % count * second_rows_;
    group->at_a_time = muon_blocks_at_a_time(group->elements(), group->places.size(), team_->size());
    group->sources.resize(group->at_a_time);
    group->targets.resize(group->at_a_time);
    group->squares.resize(group->at_a_time);
    const uint64_t rows = group->at_a_time * group->rows;
    update_bytes_ = std::max(update_bytes_, to_border(rows * group->columns * sizeof(float)));
    if (recipe_.normuon) {
      row_sum_bytes_ = std::max(row_sum_bytes_, to_border(rows * sizeof(double)));
      row_bytes_ = std::max(row_bytes_, row_sum_bytes_ + to_border(rows * sizeof(float)));
    }
    orthogonalizer_bytes_ = std::max(orthogonalizer_bytes_, to_border(group->orthogonalizer->workspace_bytes()));
  }

  // ---- at each step ----

  template <class Body>
  mxs_status over_batches(Body &&body) {
    for (Group &group : groups_)
      for (size_t first = 0; first < group.places.size(); first += group.at_a_time) {
        const mxs_status status = body(Batch{&group, first, std::min(group.at_a_time, group.places.size() - first)});
        if (status != MXS_OK) return status;
      }
    return MXS_OK;
  }

  // At the blocks' places in an update of all matrices.
  void aim(const Batch &batch, float *update) const {
    for (size_t i = 0; i < batch.count; ++i)
      batch.group->targets[i] = {update + batch.place(i).momentum, static_cast<size_t>(matrices_.columns)};
  }

  WeightRun weights_at(const StepCall &call, const Place &place, size_t row, size_t column) const {
    return weights_of(form_, matrices_, call, place.weights + row * static_cast<size_t>(matrices_.weight_row) + column,
                      place.momentum + row * static_cast<size_t>(matrices_.columns) + column);
  }

  // Into targets: what is yet to be multiplied by row_factors, if it is NorMuon's.
  mxs_status form_update(const Batch &batch, const StepCall &call) {
    Group *const group = batch.group;
    take_momentum(batch, call);
    for (size_t i = 0; i < batch.count; ++i) {
      if (!std::isfinite(group->squares[i]) && !is_shared())  // else all co-owners refuse it together
        return set_error(MXS_INTERNAL, "the momentum of matrix %zu is not finite, though its gradient is: the state "
                         "was damaged before this step; load state and weights again",
                         (batch.first + i) % static_cast<size_t>(matrices_.count));
      group->sources[i] = {group->targets[i].data, group->targets[i].row_stride};
    }
    std::byte *const workspace = call.workspace + update_bytes_ + row_bytes_;
    if (group->bound != workspace) group->orthogonalizer->bind(workspace);
    group->bound = workspace;
    const mxs_status status =
        group->orthogonalizer->run(group->sources.data(), group->targets.data(), batch.count, group->squares.data());
    if (status == MXS_OK && recipe_.normuon) find_row_factors(batch, call);
    return status;
  }

  void take_momentum(const Batch &batch, const StepCall &call) {
    MomentumPass pass = momentum_pass(recipe_.momentum, recipe_.nesterov, recipe_.decay, *call.values);
    pass.gradient_dtype = matrices_.gradient_dtype;
    pass.gradient_scale = call.gradient_scale;
    pass.form = form_;
    const Group &group = *batch.group;
    pass.streams = batch.count * group.elements() * sizeof(float) >= stream_bytes_least;
    const size_t gradient_row = static_cast<size_t>(matrices_.gradient_row);
    const size_t momentum_row = static_cast<size_t>(matrices_.columns), update_row = group.update_row();
    const size_t width = dtype_bytes(matrices_.gradient_dtype);
    float *const momentum = state_part(call, 0);
    sum_over_runs(team_, MatrixRuns(group.rows, group.columns), batch.count, batch.group->squares.data(),
                  [&](size_t index, size_t row, size_t column, size_t count) {
                    const Place &place = batch.place(index);
                    MomentumRun run;
                    run.gradient = static_cast<const std::byte *>(call.gradient) +
                                   (place.gradient + row * gradient_row + column) * width;
                    run.momentum = momentum + place.momentum + row * momentum_row + column;
                    run.update = group.targets[index].data + row * update_row + column;
                    if (pass.l2 != 0) run.weights = weights_at(call, place, row, column);
                    run.count = count;
                    return kernels().momentum(pass, run);
                  });
  }

  void apply_batch(const Batch &batch, const StepCall &call, const float *factors) {
    const Group &group = *batch.group;
    const double scale = static_cast<double>(group.scale) * static_cast<double>(recipe_.scale_factor);
    const ApplyPass pass = apply_pass(form_of(form_, matrices_, call), recipe_.decay, scale, *call.values);
    const size_t update_row = group.update_row();
    const bool joined = !factors && update_row == group.columns &&
                        static_cast<size_t>(matrices_.weight_row) == group.columns &&
                        static_cast<size_t>(matrices_.columns) == group.columns;
    const MatrixRuns runs(joined ? 1 : group.rows, joined ? group.elements() : group.columns);
    over_runs(team_, runs, batch.count, [&](size_t index, size_t row, size_t column, size_t count) {
      ApplyRun run;
      run.weights = weights_at(call, batch.place(index), row, column);
      run.update = group.targets[index].data + row * update_row + column;
      if (factors) run.row_factor = factors[index * group.rows + row];
      run.count = count;
      kernels().apply(pass, run);
    });
  }

  // ---- NorMuon ----

  double *row_sums(const StepCall &call) const { return reinterpret_cast<double *>(call.workspace + update_bytes_); }
  float *row_factors(const StepCall &call) const {
    return reinterpret_cast<float *>(call.workspace + update_bytes_ + row_sum_bytes_);
  }

  void find_row_factors(const Batch &batch, const StepCall &call) {
    const Group &group = *batch.group;
    const MatrixRuns runs(1, group.columns);
    over_rows(batch, [&](size_t index, size_t row) {
      const float *const update = group.targets[index].data + row * group.update_row();
      bool not_finite = false;
      row_sums(call)[index * group.rows + row] = runs.sum([&](size_t, size_t column, size_t count) {
        return kernels().sum_of_squares(update + column, MXS_F32, 1.0f, count, &not_finite);
      });
    });
    float *const second = state_part(call, 1);
    team_->run(batch.count, [&](size_t index, int) {
      normuon_factors(row_factors(call) + index * group.rows, second + batch.place(index).second,
                      row_sums(call) + index * group.rows, group.rows, group.columns,
                      static_cast<double>(recipe_.normuon_beta2), static_cast<double>(recipe_.normuon_epsilon));
    });
  }

  void scale_rows(const Batch &batch, const float *factors) {
    const Group &group = *batch.group;
    over_rows(batch, [&](size_t index, size_t row) {
      kernels().scale(group.targets[index].data + row * group.update_row(), factors[index * group.rows + row],
                      group.columns);
    });
  }

  // body(index, row), some rows at a time.
  template <class Body>
  void over_rows(const Batch &batch, Body &&body) {
    const Group &group = *batch.group;
    const size_t part_rows = std::max<size_t>(1, MatrixRuns::part_elements_least / group.columns);
    const size_t parts = divide_up(group.rows, part_rows);
    team_->run(parts * batch.count, [&](size_t part, int) {
      const size_t end = std::min(group.rows, (part % parts + 1) * part_rows);
      for (size_t row = part % parts * part_rows; row < end; ++row) body(part / parts, row);
    });
  }

  float *state_part(const StepCall &call, size_t index) const {
    return reinterpret_cast<float *>(call.state + layout_.parts()[index].offset);
  }

  const StepMatrices matrices_;
  const MuonRecipe recipe_;
  Team *const team_;
  WeightForm form_;
  std::vector<Group> groups_;
  StateLayout layout_;
  std::string backend_;
  mxs_dtype product_dtype_ = MXS_F32;
  size_t second_rows_ = 0;  // of all blocks of a matrix
  uint64_t update_bytes_ = 0, row_bytes_ = 0, row_sum_bytes_ = 0, orthogonalizer_bytes_ = 0;
  double flops_ = 0;
};

}  // namespace

mxs_status make_muon_stepper(std::unique_ptr<Stepper> *stepper, const StepMatrices &matrices,
                             const mxs_muon_options &options, Team *team) {
  MuonRecipe recipe;
  mxs_status status = complete(options, &recipe);
  if (status == MXS_OK && recipe.normuon && matrices.shared.sum)
    status = set_error(MXS_NOT_BUILT, "NorMuon of a matrix that several ranks share is not in this release; plan it "
                       "with one owner");
  if (status == MXS_OK && recipe.normuon && matrices.transposed)
    status = set_error(MXS_NOT_BUILT, "NorMuon divides what belongs to one output, which of transposed matrices is a "
                       "column; this release has it for matrices stored as (out, in)");
  if (status != MXS_OK) return status;
  auto made = std::make_unique<MuonStepper>(matrices, std::move(recipe), team);
  status = made->prepare();
  if (status == MXS_OK) *stepper = std::move(made);
  return status;
}

}  // namespace mxs
