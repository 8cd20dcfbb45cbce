// SPDX-License-Identifier: Apache-2.0
// Where everything of a FactorStepper lies: parts of the state, lanes and rooms of the workspace. The sizes are
// plan/factors.hpp's, which the planner predicts by.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "base/words.hpp"
#include "optimizer/factors.hpp"
#include "optimizer/step_weights.hpp"

namespace mxs {

namespace {

// No squares of longer sides are counted wrongly; nobody decomposes them.
constexpr int64_t side_limit = int64_t{1} << 20;

std::vector<FactorBlock> given_blocks(const StepMatrices &matrices) {
  std::vector<FactorBlock> blocks;
  for (const StepBlock &block : matrices.blocks)
    blocks.push_back({block.first_row, block.rows, block.first_column, block.columns});
  return blocks;
}

std::byte *after(std::byte **place, uint64_t bytes) {
  std::byte *const here = *place;
  *place += align_up(bytes, 64);
  return here;
}

}  // namespace

mxs_status FactorStepper::lay_out(const StepMatrices &matrices, const FactorOptions &options,
                                  const std::vector<std::string> &arrays, const char *kept, Team *team) {
  const char *const rule = rule_name(options.rules.rule);
  if (matrices.shared.sum)
    return set_error(MXS_NOT_BUILT, "a matrix shared by co-owners under the rule %s: this release shares muon's alone",
                     rule);
  mxs_status status = weight_form(&form_, matrices.dtype, matrices.weights, matrices.rounding);
  if (status == MXS_OK) status = linear_of(options.backend, &linear_);
  if (status != MXS_OK) return status;
  matrices_ = matrices, options_ = options, team_ = team;
  backend_ = std::string(linear_->name) + " " + rule;
  const std::vector<FactorBlock> given = given_blocks(matrices);
  if (const uint64_t block_count = factor_block_count(given, options.rules); block_count > step_parts_max)
    return set_error(MXS_INVALID_ARGUMENT, "%s cuts each matrix into %llu blocks, more than %llu; set a larger "
                     "block_max", rule, static_cast<unsigned long long>(block_count),
                     static_cast<unsigned long long>(step_parts_max));
  rooms_ = factor_rooms(given, matrices.count, options.rules, team->size());
  status = check_backend();
  if (status != MXS_OK) return status;
  blocks_ = cut_factor_blocks(given, options.rules);

  for (const std::string &name : arrays)
    array_places_.push_back(layout_.add(StateScope::element, name, matrices.count, {matrices.rows, matrices.columns}));
  for (size_t number = 0; number < blocks_.size(); ++number) {
    const FactorBlock &block = blocks_[number];
    std::string suffix;
    if (blocks_.size() > 1) suffix.append(1, '.').append(std::to_string(number));
    add_side("left", suffix, has_left_factor(block, options.rules) ? block.rows : 0, kept);
    add_side("right", suffix, has_right_factor(block, options.rules) ? block.columns : 0, kept);
  }
  failures_place_ = layout_.add(StateScope::matrix, "failures", matrices.count,
                               {static_cast<int64_t>(blocks_.size()), 2}, MXS_F64);
  assert(layout_.bytes() == factor_state_bytes(given, matrices.count, options.rules));
  return MXS_OK;
}

mxs_status FactorStepper::check_backend() const {
  const int64_t side_max = std::min(side_limit, static_cast<int64_t>(std::min<size_t>(linear_->side_max, side_limit)));
  if (rooms_.side > side_max)
    return set_error(MXS_INVALID_ARGUMENT,
                     "a factor of %lld x %lld: %s decomposes sides up to %lld; set a lower side_max or block_max",
                     static_cast<long long>(rooms_.side), static_cast<long long>(rooms_.side), linear_->name,
                     static_cast<long long>(side_max));
  const size_t n = static_cast<size_t>(rooms_.side);
  const uint64_t wanted = n == 0 ? 0 : std::max(linear_->eigh_bytes(n), linear_->qr_bytes(n));
  if (wanted > decomposition_bytes(rooms_.side))
    return set_error(MXS_INTERNAL, "%s decomposes %zu x %zu in %llu bytes, more than the %llu that are planned for it",
                     linear_->name, n, n, static_cast<unsigned long long>(wanted),
                     static_cast<unsigned long long>(decomposition_bytes(rooms_.side)));
  return MXS_OK;
}

void FactorStepper::add_side(const std::string &name, const std::string &block, int64_t n, const char *kept) {
  SidePlace place;
  if (n != 0) {
    place.n = static_cast<size_t>(n);
    place.factor = layout_.add(StateScope::matrix, "factor_" + name + block, matrices_.count, {n, n});
    place.kept = layout_.add(StateScope::matrix, std::string(kept) + "_" + name + block, matrices_.count, {n, n});
  }
  side_places_.push_back(place);
}

void FactorStepper::init(std::byte *state) const {
  std::memset(state, 0, layout_.bytes());
  StepCall call;
  call.state = state;
  for (uint64_t number = 0; number < unit_count(); ++number)
    for (const int side_number : {0, 1}) {
      const FactorSide at = side(call, unit_at(number), side_number);
      for (size_t i = 0; at.kept && i < at.n; ++i) at.kept[i * (at.n + 1)] = 1.0f;
    }
}

FactorUnit FactorStepper::unit_at(uint64_t number) const {
  FactorUnit unit;
  unit.matrix = static_cast<int64_t>(number / blocks_.size());
  unit.block = number % blocks_.size();
  const FactorBlock &block = blocks_[unit.block];
  unit.rows = static_cast<size_t>(block.rows), unit.columns = static_cast<size_t>(block.columns);
  unit.first_row = static_cast<size_t>(block.first_row), unit.first_column = static_cast<size_t>(block.first_column);
  return unit;
}

Rows FactorStepper::array(const StepCall &call, size_t number, const FactorUnit &unit) const {
  const size_t rows = static_cast<size_t>(matrices_.rows), columns = static_cast<size_t>(matrices_.columns);
  float *const whole = reinterpret_cast<float *>(call.state + array_places_[number]);
  const size_t first_row = static_cast<size_t>(unit.matrix) * rows + unit.first_row;
  return {whole + first_row * columns + unit.first_column, columns};
}

FactorSide FactorStepper::side(const StepCall &call, const FactorUnit &unit, int side_number) const {
  const SidePlace &place = side_places_[2 * unit.block + static_cast<size_t>(side_number)];
  FactorSide side;
  side.n = place.n;
  if (place.n == 0) return side;
  const size_t skipped = static_cast<size_t>(unit.matrix) * place.n * place.n;
  side.factor = reinterpret_cast<float *>(call.state + place.factor) + skipped;
  side.kept = reinterpret_cast<float *>(call.state + place.kept) + skipped;
  return side;
}

FactorLane FactorStepper::lane_of(const StepCall &call, int member) const {
  FactorLane lane;
  std::byte *place = call.workspace + static_cast<uint64_t>(member) * factor_lane_bytes(rooms_);
  for (float **array : {&lane.gradient, &lane.first, &lane.second})
    *array = reinterpret_cast<float *>(after(&place, rooms_.block_elements * sizeof(float)));
  const bool alone = rooms_.lane_count > 1;
  lane.rooms = call.workspace + static_cast<uint64_t>(rooms_.lane_count) * factor_lane_bytes(rooms_) +
               (alone ? static_cast<uint64_t>(member) * factor_room_bytes(rooms_) : 0);
  lane.room_count = alone ? 1 : rooms_.room_count;
  lane.team = alone ? nullptr : team_;
  return lane;
}

FactorRoom FactorStepper::room_of(const FactorLane &lane, int number) const {
  FactorRoom room;
  const uint64_t n = static_cast<uint64_t>(rooms_.side);
  std::byte *place = lane.rooms + static_cast<uint64_t>(number) * factor_room_bytes(rooms_);
  room.matrix = reinterpret_cast<float *>(after(&place, n * n * sizeof(float)));
  room.values = reinterpret_cast<double *>(after(&place, n * sizeof(double)));
  room.order = reinterpret_cast<uint32_t *>(after(&place, n * sizeof(uint32_t)));
  room.rest = place;
  return room;
}

FactorStepper::Failures *FactorStepper::failures(std::byte *state, const FactorUnit &unit) const {
  return reinterpret_cast<Failures *>(state + failures_place_) + static_cast<size_t>(unit.matrix) * blocks_.size() +
         unit.block;
}

uint64_t FactorStepper::failed_count(const std::byte *state) const {
  const Failures *const all = reinterpret_cast<const Failures *>(state + failures_place_);
  double sum = 0;
  for (uint64_t number = 0; number < unit_count(); ++number) sum += all[number].in_all;
  // Of a state that was damaged the sum may be anything, which no whole number need be.
  return sum >= 0 ? static_cast<uint64_t>(std::min(sum, 0x1p63)) : 0;
}

double FactorStepper::flops() const {
  double sum = 0;
  for (const FactorBlock &block : blocks_) sum += unit_flops(block);
  return sum * static_cast<double>(matrices_.count);
}

WeightForm FactorStepper::form_at(const StepCall &call) const { return form_of(form_, matrices_, call); }

WeightRun FactorStepper::weights_at(const StepCall &call, const FactorUnit &unit, size_t row, size_t column) const {
  const size_t matrix = static_cast<size_t>(unit.matrix);
  row += unit.first_row, column += unit.first_column;
  const size_t dense_row = matrix * static_cast<size_t>(matrices_.rows) + row;
  return weights_of(form_, matrices_, call,
                    matrix * static_cast<size_t>(matrices_.weight_matrix) +
                        row * static_cast<size_t>(matrices_.weight_row) + column,
                    dense_row * static_cast<size_t>(matrices_.columns) + column);
}

}  // namespace mxs
