// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_times.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "cli/collective_prices.hpp"
#include "cli/plan_slices.hpp"

namespace mxs_cli {

namespace {

// Units that are alike to a few percent are simulated once.
constexpr double alike = 1.06;

int64_t class_of(uint64_t bytes) {
  return bytes == 0 ? -1 : std::llround(std::log(static_cast<double>(bytes)) / std::log(alike));
}

// Words don't say how fast sums are; a file was written with it. Adding fp32 passes over memory three times.
mxs::topology with_sums(const mxs::topology &topology, const PlanFigures &figures) {
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  if (figures.world_is_words) speeds.add_bytes_per_second = std::max<uint64_t>(figures.memory_bytes_per_second / 3, 1);
  return mxs::with_speeds(topology, speeds);
}

class Times {
 public:
  Times(const mxs::topology &topology, const mxs::plan &plan, PlanFigures *figures)
      : figures_(*figures), plan_(plan), ranks_(figures->rank_count), topology_(with_sums(topology, *figures)),
        prices_(topology_), unit_dtype_(figures->units.size(), MXS_F32), padded_(figures->units.size()),
        padded_gradients_(figures->units.size()) {
    // The first gradient's dtype stands for its unit.
    for (size_t t = figures_.tensors.size(); t-- > 0;) {
      const TensorFigures &tensor = figures_.tensors[t];
      if (tensor.is_tied()) continue;
      const size_t unit = static_cast<size_t>(tensor.info.unit);
      padded_[unit] = saturating_sum(padded_[unit], padded_bytes(tensor, ranks_));
      if (!tensor.has_gradient()) continue;
      unit_dtype_[unit] = tensor.gradient_dtype;
      padded_gradients_[unit] = saturating_sum(
          padded_gradients_[unit], padded_count(tensor, ranks_) * mxs_dtype_bytes(tensor.gradient_dtype));
    }
  }

  void fill(ComparedPlacement *row) {
    const std::string &name = row->placement;
    const bool owned = name == "owner" || name == "zero1";
    for (size_t unit = 0; unit < figures_.units.size(); ++unit) {
      if (owned) add_owned(unit, name == "owner", row);
      else add_even(unit, name == "ddp", row);
    }
    double wire = 0;
    if (name == "slices") wire = gathers_of_matrices();
    if (name == "alltoall") wire = 2 * prices_.exchange(torn_bytes_by_owner(figures_));
    if (name == "zero1") wire = gathers_of_weights();
    const double compute = static_cast<double>(row->step_ns);
    row->optimizer_wire_ns = wire;
    row->optimizer_ns = compute + wire;
    if (name != "alltoall") return;
    const double batches = batch_count();
    row->optimizer_ns = std::max(compute + wire / batches, wire + compute / batches);
  }

 private:
  struct UnitPrice {
    double gather = 0, reduce = 0;
  };

  void add_owned(size_t unit, bool gathers, ComparedPlacement *row) {
    const UnitPrice price = owned_price(unit);
    row->gather_ns.push_back(gathers && !(figures_.by_reference && figures_.node_count == 1) ? price.gather : 0);
    row->reduce_ns.push_back(price.reduce);
  }
  // Slices are gathered with their padding; sums that all are to have are gathered again.
  void add_even(size_t unit, bool whole_weights, ComparedPlacement *row) {
    const uint64_t gradients = whole_weights ? figures_.units[unit].load.gradient_bytes : padded_gradients_[unit];
    row->gather_ns.push_back(whole_weights ? 0 : even_gather(padded_[unit]));
    row->reduce_ns.push_back(even_reduce(gradients, unit_dtype_[unit]) + (whole_weights ? even_gather(gradients) : 0));
  }

  const UnitPrice &owned_price(size_t index);
  double even_gather(uint64_t bytes) { return even(MXS_GATHER, MXS_F32, bytes); }
  double even_reduce(uint64_t bytes, mxs_dtype dtype) { return even(MXS_REDUCE, dtype, bytes); }
  double even(int32_t kind, mxs_dtype dtype, uint64_t bytes);
  double gathers_of_matrices();
  double gathers_of_weights();
  double batch_count() const;

  const PlanFigures &figures_;
  const mxs::plan &plan_;
  const int32_t ranks_;
  const mxs::topology topology_;
  const CollectivePrices prices_;
  std::vector<mxs_dtype> unit_dtype_;
  std::vector<uint64_t> padded_, padded_gradients_;  // by unit, in slices
  std::map<std::vector<int64_t>, UnitPrice> owned_;  // by what makes units alike
  std::map<std::vector<int64_t>, std::pair<uint64_t, double>> even_;  // bytes, their time
};

const Times::UnitPrice &Times::owned_price(size_t index) {
  const UnitFigures &unit = figures_.units[index];
  const mxs_unit_load &load = unit.load;
  const auto [found, is_new] = owned_.try_emplace(
      {class_of(load.weight_bytes), class_of(load.gradient_bytes), class_of(load.rank_bytes_max),
       class_of(load.nic_bytes_max), class_of(static_cast<uint64_t>(load.owner_count)), unit_dtype_[index]});
  UnitPrice &price = found->second;
  if (!is_new) return price;
  std::vector<uint64_t> weights(static_cast<size_t>(ranks_)), gradients(weights.size());
  for (const auto &[rank, bytes] : unit.owned) weights[static_cast<size_t>(rank)] = bytes;
  const mxs::layout layout = mxs::layout_of(plan_, unit.unit, MXS_GRADIENTS);
  for (int32_t rank = 0; rank < ranks_; ++rank)
    gradients[static_cast<size_t>(rank)] = mxs_layout_owned_bytes(layout.get(), rank);
  price.gather = prices_.gather(weights);
  price.reduce = prices_.reduce(gradients, unit_dtype_[index]);
  return price;
}

double Times::even(int32_t kind, mxs_dtype dtype, uint64_t bytes) {
  if (bytes == 0) return 0;
  const auto [found, is_new] = even_.try_emplace({kind, dtype, class_of(bytes)});
  auto &[known_bytes, time] = found->second;
  if (is_new) {
    known_bytes = bytes;
    const uint64_t ranks = static_cast<uint64_t>(ranks_);
    const std::vector<uint64_t> shares(static_cast<size_t>(ranks_), bytes / ranks + (bytes % ranks != 0));
    time = kind == MXS_GATHER ? prices_.gather(shares) : prices_.reduce(shares, dtype);
  }
  return time * static_cast<double>(bytes) / static_cast<double>(known_bytes);
}

double Times::gathers_of_matrices() {
  double sum = 0;
  for (const TensorFigures &tensor : figures_.tensors)
    if (is_torn(tensor)) sum += even_gather(padded_bytes(tensor, ranks_));
  return sum;
}

double Times::gathers_of_weights() {
  double sum = 0;
  for (size_t unit = 0; unit < figures_.units.size(); ++unit)
    if (figures_.units[unit].load.gradient_bytes > 0) sum += owned_price(unit).gather;
  return sum;
}

double Times::batch_count() const {
  const auto slowest =
      std::max_element(figures_.ranks.begin(), figures_.ranks.end(), [](const RankFigures &a, const RankFigures &b) {
        return a.load.step_ns < b.load.step_ns;
      });
  return std::max(slowest->load.matrix_count, 1);
}

}  // namespace

void time_placements(const mxs::topology &topology, const mxs::plan &plan, PlanFigures *figures) {
  Times times(topology, plan, figures);
  for (ComparedPlacement &row : figures->compared) times.fill(&row);
}

double forward_backward_ns(const PlanFigures &figures, const ComparedPlacement &row, double tokens) {
  const size_t units = row.gather_ns.size();
  if (units == 0) return 0;
  const double token_s = 2 / static_cast<double>(figures.train_flops_per_second) * figures.active_share;
  double sum = row.gather_ns[0];
  for (size_t stage = 0; stage < 2 * units; ++stage) {
    const auto unit_of = [&](size_t at) { return at < units ? at : 2 * units - 1 - at; };
    const double passes = stage < units ? 1 : 2;
    const double compute =
        1e9 * passes * token_s * tokens * static_cast<double>(figures.units[unit_of(stage)].parameter_count);
    const double next = stage + 1 < 2 * units ? row.gather_ns[unit_of(stage + 1)] : 0;
    const double before = stage > units ? row.reduce_ns[unit_of(stage - 1)] : 0;
    sum += std::max(compute, next + before);
  }
  return sum + row.reduce_ns[0];
}

}  // namespace mxs_cli
