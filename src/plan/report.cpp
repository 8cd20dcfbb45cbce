// SPDX-License-Identifier: Apache-2.0
// The routing report: one line per tensor, one per rank, columns padded; then what a person should look at.
#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "matrixshard/types.h"
#include "plan/stages.hpp"

namespace mxs {
namespace {

template <size_t count>
using Row = std::array<std::string, count>;

// A name of thousands of letters must not pad all other lines to its length.
constexpr size_t column_width_max = 64;

// Names may hold anything; a line stays a line.
std::string printable(std::string text) {
  text.resize(make_printable(text.data(), text.size()));
  return text;
}

// Columns are as wide as their widest cell, as far as that makes sense; the last is not padded.
template <size_t count>
void append_table(const std::vector<Row<count>> &rows, std::string *text) {
  std::array<size_t, count> widths{};
  for (const Row<count> &row : rows)
    for (size_t column = 0; column < count; ++column) {
      const size_t width = std::min(row[column].size(), column_width_max);
      widths[column] = std::max(widths[column], width);
    }
  for (const Row<count> &row : rows) {
    for (size_t column = 0; column + 1 < count; ++column) {
      *text += row[column];
      text->append(std::max(widths[column], row[column].size()) - row[column].size() + 2, ' ');
    }
    *text += row[count - 1];
    *text += '\n';
  }
}

// "0-3, 6": ascending, runs joined.
std::string owners_text(std::vector<int> owners) {
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  std::string text;
  for (size_t first = 0; first < owners.size();) {
    size_t last = first;
    while (last + 1 < owners.size() && owners[last + 1] == owners[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(owners[first]);
    if (last > first) text.append("-").append(std::to_string(owners[last]));
    first = last + 1;
  }
  return text;
}

void append_tensors(const Plan &plan, std::string *text) {
  std::vector<Row<8>> rows = {{"tensor", "shape", "dtype", "unit", "rule", "role", "owners", "why"}};
  for (const PlannedTensor &tensor : plan.tensors) {
    std::vector<int> owners;
    const PlannedTensor &holder = tensor.tied_to < 0 ? tensor : plan.tensors[static_cast<size_t>(tensor.tied_to)];
    for (uint64_t index = 0; index < holder.placement_count; ++index)
      owners.push_back(plan.placements[holder.placement_index + index].owner);
    rows.push_back({printable(tensor.name), shape_text(tensor.shape), mxs_dtype_name(tensor.dtype),
                    std::to_string(tensor.unit),
                    rule_name(tensor.rule), role_name(tensor.role), owners_text(owners), printable(tensor.reason)});
  }
  append_table(rows, text);
}

void append_ranks(const Plan &plan, std::string *text) {
  double flops_sum = 0;
  for (const double flops : plan.rank_step_flops) flops_sum += flops;
  const double flops_mean = flops_sum / static_cast<double>(plan.topology.rank_count());
  std::vector<Row<7>> rows = {{"rank", "node", "matrices", "owned", "step Gflop", "of mean", "most sent of a unit"}};
  for (int rank = 0; rank < plan.topology.rank_count(); ++rank) {
    const mxs_rank_load load = rank_load(plan, rank);
    rows.push_back({std::to_string(rank), std::to_string(plan.topology.ranks[static_cast<size_t>(rank)].node),
                    std::to_string(load.matrix_count), bytes_text(load.owned_bytes),
                    decimal_text(load.step_flops / 1e9, 3),
                    flops_mean > 0 ? decimal_text(100 * load.step_flops / flops_mean, 0).append("%") : "-",
                    bytes_text(load.weight_bytes_max)});
  }
  append_table(rows, text);
}

}  // namespace

std::string plan_report(const Plan &plan) {
  std::string text = std::to_string(plan.tensors.size());
  text.append(" tensors in ").append(std::to_string(plan.units.size())).append(" units on ");
  text.append(std::to_string(plan.topology.rank_count())).append(" ranks of ");
  text.append(std::to_string(plan.topology.node_count())).append(" nodes, fingerprint ");
  text.append(hexadecimal_text(plan.fingerprint)).append("\n\n");
  append_tensors(plan, &text);
  text += '\n';
  append_ranks(plan, &text);
  if (!plan.warnings.empty()) text += '\n';
  for (const std::string &warning : plan.warnings) text.append("warning: ").append(printable(warning)).append("\n");
  return text;
}

}  // namespace mxs
