// SPDX-License-Identifier: Apache-2.0
// The figures of `mxs plan` for people: at most 120 columns, a screen for 64 ranks. What is alike stands in one line.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <numeric>

#include "cli/plan_text.hpp"
#include "cli/plan_times.hpp"

namespace mxs_cli {

namespace {

constexpr size_t rank_groups_max = 8, unit_groups_max = 16;

__attribute__((format(printf, 2, 3))) void add(std::string *text, const char *format, ...) {
  char line[512];
  va_list values;
  va_start(values, format);
  std::vsnprintf(line, sizeof line, format, values);
  va_end(values);
  *text += line;
}

// "3" and the others' plural.
std::string counted(uint64_t count, const char *one, const char *several) {
  return count_text(count).append(" ").append(count == 1 ? one : several);
}

void add_head(const PlanFigures &figures, std::string *text) {
  std::string head = printable(figures.title.empty() ? figures.path : figures.title);
  head.append(": ").append(counted(figures.tensors.size(), "tensor", "tensors")).append(" in ");
  head.append(counted(figures.units.size(), "unit", "units")).append(", ");
  head.append(bytes_text(figures.weight_bytes)).append(" of weights");
  *text += wrapped(head, 2);
  std::string world = printable(figures.world);
  world.append(": ").append(counted(static_cast<uint64_t>(figures.rank_count), "rank", "ranks")).append(" on ");
  world.append(counted(static_cast<uint64_t>(figures.node_count), "node", "nodes"));
  if (figures.replicas > 1) world.append(", one of ").append(std::to_string(figures.replicas)).append(" replicas");
  *text += wrapped(world.append("; fingerprint ").append(hexadecimal_text(figures.fingerprint)), 2);
}

std::string unit_name(const PlanFigures &figures, int32_t unit) {
  return unit < 0 ? "" : printable(shortened(figures.units[static_cast<size_t>(unit)].name, 40));
}

void add_objectives(const PlanFigures &figures, std::string *text) {
  const char *const names[] = {"bytes that a rank owns", "time of a rank's step", "a rank's bytes of one unit",
                               "a NIC's bytes of one unit"};
  add(text, "\n%-28s %14s %14s %9s  %s\n", "objective", "worst", "lower bound", "gap", "where");
  for (int kind = 0; kind < 4; ++kind) {
    const mxs_objective &objective = figures.objectives[kind];
    const auto shown = [&](uint64_t value) {
      return kind == MXS_OBJECTIVE_STEP ? time_text((value + 500) / 1000) : bytes_text(value);
    };
    std::string where = "-";
    if (objective.worst > 0)
      where = (kind == MXS_OBJECTIVE_NIC ? std::string("node ") : std::string("rank "))
                  .append(std::to_string(objective.rank));
    if (objective.worst > 0 && objective.unit >= 0) where.append(", ").append(unit_name(figures, objective.unit));
    add(text, "%-28s %14s %14s %9s  %s\n", names[kind], shown(objective.worst).c_str(), shown(objective.bound).c_str(),
        percent_text(objective.worst, objective.bound).c_str(), where.c_str());
  }
}

constexpr uint64_t mxs_memory::*memory_columns[] = {
    &mxs_memory::weights, &mxs_memory::masters,        &mxs_memory::gradients, &mxs_memory::state, &mxs_memory::slack,
    &mxs_memory::slots,   &mxs_memory::gradient_slots, &mxs_memory::workspace, &mxs_memory::rest,  &mxs_memory::peak};

void add_memory_row(const std::string &name, const mxs_memory &memory, std::string *text) {
  add(text, "%-16s", name.c_str());
  for (const auto column : memory_columns) add(text, " %9s", bytes_text(memory.*column).c_str());
  *text += '\n';
}

void add_memory(const PlanFigures &figures, std::string *text) {
  add(text, "\n%-16s", "bytes of a rank");
  for (const char *name : {"weights", "masters", "grad sums", "state", "slack", "slots", "grad slts", "workspace",
                           "at rest", "peak"})
    add(text, " %9s", name);
  *text += '\n';
  const auto less = [](const RankFigures &a, const RankFigures &b) { return a.memory.peak < b.memory.peak; };
  const auto [least, worst] = std::minmax_element(figures.ranks.begin(), figures.ranks.end(), less);
  mxs_memory mean = MXS_MEMORY_INIT;
  for (const auto column : memory_columns) {
    for (const RankFigures &rank : figures.ranks) mean.*column = saturating_sum(mean.*column, rank.memory.*column);
    mean.*column /= figures.ranks.size();
  }
  add_memory_row(std::string("worst: rank ").append(std::to_string(worst->rank)), worst->memory, text);
  add_memory_row("mean", mean, text);
  add_memory_row(std::string("least: rank ").append(std::to_string(least->rank)), least->memory, text);
}

std::string rate_text(uint64_t rate, const char *unit) {
  char text[48];
  std::snprintf(text, sizeof text, "%.4g T%s/s", static_cast<double>(rate) / 1e12, unit);
  return text;
}

void add_step(const PlanFigures &figures, std::string *text) {
  uint64_t sum = 0;
  const RankFigures *worst = &figures.ranks[0];
  for (const RankFigures &rank : figures.ranks) {
    sum = saturating_sum(sum, rank.load.step_ns);
    if (rank.load.step_ns > worst->load.step_ns) worst = &rank;
  }
  const uint64_t mean = sum / figures.ranks.size();
  const double imbalance = mean ? static_cast<double>(worst->load.step_ns) / static_cast<double>(mean) : 1;
  std::string line = "\noptimizer step    worst ";
  line.append(time_text(worst->load.step_ns)).append(" (rank ").append(std::to_string(worst->rank));
  line.append("), mean ").append(time_text(mean)).append(", imbalance ").append(ratio_text(imbalance));
  line.append("; at ").append(rate_text(figures.matrix_flops_per_second, "flop")).append(" and ");
  line.append(rate_text(figures.memory_bytes_per_second, "B")).append(" of memory");
  *text += wrapped(line, 18);
}

void add_wire(const PlanFigures &figures, std::string *text) {
  const uint64_t ranks = static_cast<uint64_t>(figures.rank_count);
  std::string line = "wire, each step   ";
  line.append(bytes_text(figures.wire.local_bytes / ranks)).append(" a rank inside nodes, ");
  line.append(bytes_text(figures.wire.network_bytes / ranks)).append(" between nodes (all ranks: ");
  line.append(bytes_text(figures.wire.local_bytes)).append(", ").append(bytes_text(figures.wire.network_bytes));
  line.append("): forward, backward, reduces; in the optimizer ");
  line.append(bytes_text(figures.wire.matrix_step_bytes)).append(" of matrices");
  *text += wrapped(line, 18);
}

// Ranks whose lines would read alike, in order of the first of each.
void add_ranks(const PlanFigures &figures, std::string *text) {
  std::vector<std::pair<std::string, std::vector<int32_t>>> groups;
  std::map<std::string, size_t> index;
  for (const RankFigures &rank : figures.ranks) {
    char line[160];
    std::snprintf(line, sizeof line, "%8d %-8s %12s owned %12s a step %12s at rest %12s peak",
                  rank.load.matrix_count, rank.load.matrix_count == 1 ? "matrix" : "matrices",
                  bytes_text(rank.load.owned_bytes).c_str(), time_text(rank.load.step_ns).c_str(),
                  bytes_text(rank.memory.rest).c_str(), bytes_text(rank.memory.peak).c_str());
    const auto [found, is_new] = index.emplace(line, groups.size());
    if (is_new) groups.emplace_back(line, std::vector<int32_t>());
    groups[found->second].second.push_back(rank.rank);
  }
  *text += '\n';
  if (groups.size() > rank_groups_max) {
    add(text, "ranks of %zu kinds, too many for here: --html draws each, --json lists each\n", groups.size());
    return;
  }
  for (const auto &[line, ranks] : groups) {
    std::string which = runs_text(ranks);
    if (which.size() > 18) which = std::to_string(ranks.size()).append(" like rank ").append(std::to_string(ranks[0]));
    add(text, "%s %-18s %s\n", ranks.size() == 1 ? "rank " : "ranks", which.c_str(), line.c_str());
  }
}

// Units that differ in their number alone.
struct UnitGroup {
  std::string before, after;  // of the name, around the number
  std::vector<int32_t> numbers;
  mxs_unit_load load = MXS_UNIT_LOAD_INIT;  // the worst of each
};

// The last number of a name: "model.layers.7" is "model.layers." 7 "".
bool split_name(const std::string &name, std::string *before, int32_t *number, std::string *after) {
  const size_t end = name.find_last_of("0123456789");
  if (end == std::string::npos) return false;
  size_t begin = end;
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  if (end - begin > 7) return false;
  *before = name.substr(0, begin);
  *number = std::stoi(name.substr(begin, end - begin + 1));
  *after = name.substr(end + 1);
  return true;
}

std::vector<UnitGroup> group_units(const PlanFigures &figures) {
  std::vector<UnitGroup> groups;
  std::map<std::string, size_t> index;
  for (const UnitFigures &unit : figures.units) {
    UnitGroup group;
    int32_t number = 0;
    const bool numbered = split_name(unit.name, &group.before, &number, &group.after);
    if (!numbered) group.before = unit.name;
    std::string key = group.before;
    key.append(1, '\0').append(group.after).append(1, '\0').append(std::to_string(unit.load.weight_bytes));
    if (numbered) key += '#';
    const auto [found, is_new] = index.emplace(key, groups.size());
    if (is_new) groups.push_back(group);
    UnitGroup &target = groups[found->second];
    if (numbered) target.numbers.push_back(number);
    mxs_unit_load &worst = target.load;
    worst.weight_bytes = unit.load.weight_bytes;
    worst.owner_count = is_new ? unit.load.owner_count : std::min(worst.owner_count, unit.load.owner_count);
    worst.rank_bytes_max = std::max(worst.rank_bytes_max, unit.load.rank_bytes_max);
    worst.rank_bytes_bound = std::max(worst.rank_bytes_bound, unit.load.rank_bytes_bound);
    worst.nic_bytes_max = std::max(worst.nic_bytes_max, unit.load.nic_bytes_max);
    worst.nic_bytes_bound = std::max(worst.nic_bytes_bound, unit.load.nic_bytes_bound);
    worst.gather_bound_ns = std::max(worst.gather_bound_ns, unit.load.gather_bound_ns);
  }
  return groups;
}

void add_units(const PlanFigures &figures, std::string *text) {
  if (figures.units.empty()) return;
  add(text, "\n%-30s %10s %7s %12s %12s %12s %12s %14s\n", "unit (worst of its like)", "weights", "owners", "of a rank",
      "bound", "of a NIC", "bound", "gather, bound");
  const std::vector<UnitGroup> groups = group_units(figures);
  for (size_t g = 0; g < groups.size() && g < unit_groups_max; ++g) {
    const UnitGroup &group = groups[g];
    const std::string name =
        std::string(group.before).append(runs_text(group.numbers)).append(group.after);
    add(text, "%-30s %10s %7d %12s %12s %12s %12s %14s\n", printable(shortened(name, 30)).c_str(),
        bytes_text(group.load.weight_bytes).c_str(), group.load.owner_count,
        bytes_text(group.load.rank_bytes_max).c_str(), bytes_text(group.load.rank_bytes_bound).c_str(),
        bytes_text(group.load.nic_bytes_max).c_str(), bytes_text(group.load.nic_bytes_bound).c_str(),
        time_text(group.load.gather_bound_ns).c_str());
  }
  if (groups.size() > unit_groups_max)
    add(text, "and %zu more, which --json lists\n", groups.size() - unit_groups_max);
}

// "384.2", "24,560"; milliseconds.
std::string ms_text(double ns) {
  char text[32];
  const double ms = 1e-6 * ns;
  if (ms >= 1e15) {  // no clock would tell
    std::snprintf(text, sizeof text, "%.3g", ms);
    return text;
  }
  if (ms >= 9999.5) return count_text(static_cast<uint64_t>(std::llround(ms)));
  std::snprintf(text, sizeof text, ms == 0 ? "%.0f" : ms < 0.09995 ? "%.2g" : "%.4g", ms);
  return text;
}

std::string sum_text(const std::vector<double> &gathers, const std::vector<double> &reduces) {
  return ms_text(2 * std::accumulate(gathers.begin(), gathers.end(), 0.0) +
                 std::accumulate(reduces.begin(), reduces.end(), 0.0));
}

void add_compared(const PlanFigures &figures, std::string *text) {
  if (figures.compared.empty()) return;
  const uint64_t ranks = static_cast<uint64_t>(figures.rank_count);
  const double tokens = static_cast<double>(figures.tokens);
  add(text, "\n%-10s %21s %32s %26s %17s %8s\n", "predicted,", "worst rank", "a rank receives in a step, mean",
      "optimizer, ms", "fwd + bwd, ms", "a whole");
  add(text, "%-10s %10s %10s %10s %10s %10s %8s %8s %8s %8s %8s %8s\n", "not run", "at rest", "peak", "in nodes",
      "between", "optimizer", "compute", "wire", "all", "wire", "all", "step, ms");
  for (const ComparedPlacement &row : figures.compared)
    add(text, "%-10s %10s %10s %10s %10s %10s %8s %8s %8s %8s %8s %8s\n", row.placement.c_str(),
        bytes_text(row.rest_bytes).c_str(), bytes_text(row.peak_bytes).c_str(),
        bytes_text(row.local_bytes / ranks).c_str(), bytes_text(row.network_bytes / ranks).c_str(),
        bytes_text(row.step_bytes / ranks).c_str(), ms_text(static_cast<double>(row.step_ns)).c_str(),
        ms_text(row.optimizer_wire_ns).c_str(), ms_text(row.optimizer_ns).c_str(),
        sum_text(row.gather_ns, row.reduce_ns).c_str(),
        figures.tokens ? ms_text(forward_backward_ns(figures, row, tokens)).c_str() : "-",
        figures.tokens ? ms_text(whole_step_ns(figures, row, tokens)).c_str() : "-");
  for (const ComparedPlacement &row : figures.compared)
    *text += wrapped(std::string(row.placement).append(": ").append(row.note), 10);
  if (figures.tokens)
    *text += wrapped(std::string("step: ")
                         .append(count_text(figures.tokens))
                         .append(" tokens a rank, 6 flops for each and each of ")
                         .append(count_text(active_parameters(figures)))
                         .append(" parameters, at ")
                         .append(rate_text(figures.train_flops_per_second, "flop"))
                         .append("; gathers one unit ahead"),
                     10);
  *text += wrapped(std::string("advice: ").append(figures.advice), 10);
}

void add_tensors(const PlanFigures &figures, std::string *text) {
  if (!figures.show_tensors) return;
  size_t width = 6;
  for (const TensorFigures &tensor : figures.tensors)
    width = std::max(width, std::min<size_t>(std::string(tensor.info.name).size(), 56));
  add(text, "\n%-*s %-20s %-5s %5s %-8s %-6s %-12s %s\n", static_cast<int>(width), "tensor", "shape", "dtype", "unit",
      "rule", "role", "owners", "why");
  for (const TensorFigures &tensor : figures.tensors) {
    std::string shape = "(";
    for (int32_t d = 0; d < tensor.given->dimension_count; ++d)
      shape.append(d ? ", " : "").append(std::to_string(tensor.given->shape[d]));
    add(text, "%-*s %-20s %-5s %5d %-8s %-6s %-12s ", static_cast<int>(width),
        printable(shortened(tensor.info.name, 56)).c_str(), shape.append(")").c_str(), mxs_dtype_name(tensor.dtype),
        tensor.info.unit, mxs_rule_name(tensor.info.rule), mxs_role_name(tensor.info.role),
        shortened(runs_text(tensor.owners), 12).c_str());
    text->append(printable(tensor.info.reason)).append("\n");
  }
}

void add_sentences(const PlanFigures &figures, std::string *text) {
  if (figures.moves.known) {
    *text += '\n';
    *text += wrapped(std::string("from the previous plan: ")
                         .append(counted(figures.moves.count, "piece moves", "pieces move"))
                         .append(", ")
                         .append(bytes_text(figures.moves.bytes))
                         .append(" of ")
                         .append(bytes_text(figures.weight_bytes))
                         .append(" of weights; masters and state go the same way"),
                     2);
  }
  if (!figures.notes.empty() || !figures.warnings.empty()) *text += '\n';
  for (const std::string &note : figures.notes) *text += wrapped(std::string("note: ").append(printable(note)), 2);
  for (const std::string &warning : figures.warnings)
    *text += wrapped(std::string("warning: ").append(printable(warning)), 2);
  *text += '\n';
  *text += wrapped(figures.verdict, 2);
}

}  // namespace

std::string plan_table(const PlanFigures &figures) {
  std::string text;
  add_head(figures, &text);
  add_objectives(figures, &text);
  add_memory(figures, &text);
  add_step(figures, &text);
  add_wire(figures, &text);
  add_ranks(figures, &text);
  add_units(figures, &text);
  add_compared(figures, &text);
  add_tensors(figures, &text);
  add_sentences(figures, &text);
  return text;
}

}  // namespace mxs_cli
