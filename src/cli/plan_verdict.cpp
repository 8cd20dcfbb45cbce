// SPDX-License-Identifier: Apache-2.0
// What is wrong with a plan, in one sentence: the first of these that holds, with what to do about it.
//
//   1  the peak of a rank is above the budget, though what it owns is within it
//   2  ranks own no matrix and wait while others step
//   3  the worst rank's step, then its bytes, are well above their lower bounds
//   4  one matrix alone takes much longer than the mean rank's step
//   5  a unit's gather waits for one rank or node, which has more of it than needed, or for a rank with more than half
#include <algorithm>

#include "cli/plan_figures.hpp"
#include "cli/plan_text.hpp"

namespace mxs_cli {

namespace {

// More than measuring noise would hide.
constexpr double step_gap_max = 1.05, bytes_gap_max = 1.10, imbalance_max = 1.25;
constexpr double egress_gap_max = 1.5, nic_gap_max = 2;
constexpr uint64_t unit_bytes_min = 1 << 20;  // gathers of smaller units are a matter of latency

double ratio(uint64_t a, uint64_t b) { return b == 0 ? 1 : static_cast<double>(a) / static_cast<double>(b); }

std::string number(int64_t value) { return std::to_string(value); }

std::string over_budget(const PlanFigures &figures) {
  if (figures.budget == 0) return "";
  const auto worst =
      std::max_element(figures.ranks.begin(), figures.ranks.end(), [](const RankFigures &a, const RankFigures &b) {
        return a.memory.peak < b.memory.peak;
      });
  if (worst == figures.ranks.end() || worst->memory.peak <= figures.budget) return "";
  return text_of("Rank ", number(worst->rank), " owns ", bytes_text(worst->load.owned_bytes), ", within the budget of ",
                 bytes_text(figures.budget), ", but its peak is ", bytes_text(worst->memory.peak), ", of which ",
                 bytes_text(worst->memory.slots), " are slots and ", bytes_text(worst->memory.gradient_slots),
                 " gradient slots: take smaller units or fewer slots, or more ranks.");
}

std::string idle_ranks(const PlanFigures &figures) {
  int64_t idle = 0;
  const RankFigures *busiest = nullptr;
  for (const RankFigures &rank : figures.ranks) {
    if (rank.load.matrix_count == 0) ++idle;
    if (rank.load.matrix_count > 0 && (!busiest || rank.load.step_ns > busiest->load.step_ns)) busiest = &rank;
  }
  if (idle == 0 || !busiest || busiest->load.step_ns == 0) return "";
  return text_of(number(idle), " of ", number(figures.rank_count),
                 idle == 1 ? " ranks owns no matrix and waits" : " ranks own no matrix and wait", " while rank ",
                 number(busiest->rank), " steps for ", time_text(busiest->load.step_ns), ": ",
                 figures.co_owners_max > 1 ? "" : "let ranks share matrices (--co-owners), or ",
                 "plan smaller shard groups (--replicas).");
}

std::string wide_gap(const PlanFigures &figures) {
  const mxs_objective &step = figures.objectives[MXS_OBJECTIVE_STEP];
  if (ratio(step.worst, step.bound) > step_gap_max)
    return text_of("Rank ", number(step.rank), "'s step takes ", time_text((step.worst + 500) / 1000), ", ",
                   percent_text(step.worst, step.bound), " above the lower bound of ",
                   time_text((step.bound + 500) / 1000),
                   ": fixed owners, a budget that binds, --weights or co-owned matrices leave no better place.");
  const mxs_objective &bytes = figures.objectives[MXS_OBJECTIVE_BYTES];
  if (ratio(bytes.worst, bytes.bound) > bytes_gap_max)
    return text_of("Rank ", number(bytes.rank), " owns ", bytes_text(bytes.worst), ", ",
                   percent_text(bytes.worst, bytes.bound), " above the lower bound of ", bytes_text(bytes.bound),
                   ": weigh bytes more (--weights bytes:N), or set a --budget.");
  return "";
}

std::string one_long_matrix(const PlanFigures &figures) {
  uint64_t sum = 0, worst = 0;
  for (const RankFigures &rank : figures.ranks) {
    sum = saturating_sum(sum, rank.load.step_ns);
    worst = std::max(worst, rank.load.step_ns);
  }
  const uint64_t mean = sum / std::max<size_t>(figures.ranks.size(), 1);
  if (mean == 0 || ratio(worst, mean) <= imbalance_max) return "";
  return text_of("The worst rank's step takes ", time_text(worst), " where the mean is ", time_text(mean),
                 ", and no placement of whole matrices does better: ",
                 figures.co_owners_max > 1 ? "" : "let ranks share the largest (--co-owners), or ",
                 "plan smaller shard groups (--replicas).");
}

// The unit whose worst is furthest above its bound, if any is by more than `gap_max`.
const UnitFigures *worst_unit(const PlanFigures &figures, uint64_t mxs_unit_load::*bytes,
                              uint64_t mxs_unit_load::*bound, double gap_max) {
  const UnitFigures *worst = nullptr;
  for (const UnitFigures &unit : figures.units) {
    const double gap = ratio(unit.load.*bytes, unit.load.*bound);
    if (unit.load.weight_bytes < unit_bytes_min || gap <= gap_max) continue;
    worst = &unit;
    gap_max = gap;
  }
  return worst;
}

std::string narrow_gather(const PlanFigures &figures) {
  using Load = mxs_unit_load;
  const UnitFigures *worst = worst_unit(figures, &Load::rank_bytes_max, &Load::rank_bytes_bound, egress_gap_max);
  if (worst)
    return text_of("Gathers of ", printable(shortened(worst->name, 60)), " wait for rank ",
                   number(worst->load.rank_of_most_bytes), ", which owns ", bytes_text(worst->load.rank_bytes_max),
                   " of its ", bytes_text(worst->load.weight_bytes), "; the lower bound is ",
                   bytes_text(worst->load.rank_bytes_bound), ": weigh egress more (--weights egress:N), or take a ",
                   "larger unit.");
  worst = worst_unit(figures, &Load::nic_bytes_max, &Load::nic_bytes_bound, nic_gap_max);
  if (worst)
    return text_of("Gathers of ", printable(shortened(worst->name, 60)), " wait for the NICs of node ",
                   number(worst->load.node_of_most_bytes), ", which send ", bytes_text(worst->load.nic_bytes_max),
                   " each; the lower bound is ", bytes_text(worst->load.nic_bytes_bound),
                   ": weigh egress more (--weights egress:N), or take a larger unit.");
  for (const UnitFigures &unit : figures.units)
    if (figures.rank_count > 2 && unit.load.weight_bytes >= unit_bytes_min &&
        unit.load.rank_bytes_max > unit.load.weight_bytes / 2)
      return text_of("Gathers of ", printable(shortened(unit.name, 60)), " wait for rank ",
                     number(unit.load.rank_of_most_bytes), ", which owns ", bytes_text(unit.load.rank_bytes_max),
                     " of its ", bytes_text(unit.load.weight_bytes),
                     ": cut its largest tensor into blocks, let ranks share it (--co-owners), or take a larger unit.");
  return "";
}

}  // namespace

std::string plan_verdict(const PlanFigures &figures) {
  for (const auto &check : {over_budget, idle_ranks, wide_gap, one_long_matrix, narrow_gather})
    if (std::string sentence = check(figures); !sentence.empty()) return sentence;
  const auto above = [&](int kind) {
    const mxs_objective &objective = figures.objectives[kind];
    return objective.worst == objective.bound ? std::string("0%") : percent_text(objective.worst, objective.bound);
  };
  return text_of("Nothing is wrong with the plan: the worst rank's step is ", above(MXS_OBJECTIVE_STEP),
                 " above its lower bound, its bytes ", above(MXS_OBJECTIVE_BYTES), ".");
}

}  // namespace mxs_cli
