// SPDX-License-Identifier: Apache-2.0
// Which placement to take, and where the owner layout loses: from the compared figures alone.
//
//   1  with --tokens by the whole step, else by the optimizer's: the least of owner, alltoall and slices, whose memory
//      is alike. Within 5% owner and alltoall tie. With a --budget that their peak meets, zero1 and ddp are in the race
//   2  what speaks against owner, as far as it holds:
//      few matrices        ranks own none, or the worst step is far over the mean; alltoall has the same owners
//      nothing to gather   zero1 or ddp would be faster, but need the memory that is told
//      little to save      what alltoall's exchange costs, above all on one node
//      many tokens         from how many on owner saves less than 5% of a step, even if nothing hides the exchange
//   No matrix steps whole where it would be torn: the optimizer says nothing for owner, and only 1 is told
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "cli/plan_slices.hpp"
#include "cli/plan_text.hpp"
#include "cli/plan_times.hpp"

namespace mxs_cli {

namespace {

constexpr double near = 1.05, imbalance_max = 1.25, tokens_max = 1e8, tokens_step = 1.02;

std::string time_of(double ns) {
  constexpr double most = 9e18;  // 285 years
  return ns < most ? time_text(static_cast<uint64_t>(std::llround(ns))) : "more than 285 years";
}

std::string per_cent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, share < 0.0995 ? "%.1f%%" : "%.0f%%", 100 * share);
  return text;
}

// Two digits: predictions are not better.
std::string about(double number) {
  const double digit = std::pow(10, std::max(std::floor(std::log10(std::max(number, 1.0))) - 1, 0.0));
  return count_text(static_cast<uint64_t>(std::llround(number / digit) * std::llround(digit)));
}

class Advice {
 public:
  explicit Advice(const PlanFigures &figures) : figures_(figures), tokens_(static_cast<double>(figures.tokens)) {
    for (const ComparedPlacement &row : figures.compared) {
      if (row.placement == "owner") owner_ = &row;
      if (row.placement == "alltoall") alltoall_ = &row;
    }
  }

  std::string text() const {
    if (figures_.rank_count == 1) return "One rank has everything, whatever the placement.";
    const std::string first = is_torn_anywhere() ? choice() : no_matrix();
    std::vector<std::string> clauses;
    for (const auto &clause : {&Advice::few_matrices, &Advice::nothing_to_gather, &Advice::what_is_saved})
      if (std::string text = (this->*clause)(); !text.empty()) clauses.push_back(std::move(text));
    std::string second;
    for (const std::string &clause : clauses) second.append(second.empty() ? " " : "; ").append(clause);
    if (!second.empty()) second[1] = static_cast<char>(std::toupper(static_cast<unsigned char>(second[1])));
    return second.empty() ? first : first + second + ".";
  }

 private:
  bool is_sharded(const ComparedPlacement &row) const { return row.placement != "zero1" && row.placement != "ddp"; }
  double time(const ComparedPlacement &row) const {
    return figures_.tokens ? whole_step_ns(figures_, row, tokens_) : row.optimizer_ns;
  }
  bool may_be_chosen(const ComparedPlacement &row) const {
    return is_sharded(row) || (figures_.tokens && figures_.budget && row.peak_bytes <= figures_.budget);
  }
  bool is_torn_anywhere() const {
    return std::any_of(figures_.tensors.begin(), figures_.tensors.end(), is_torn);
  }

  // Owner, unless another is 5% faster.
  const ComparedPlacement &best() const {
    const ComparedPlacement *least = owner_;
    for (const ComparedPlacement &row : figures_.compared)
      if (may_be_chosen(row) && time(row) < time(*least)) least = &row;
    return time(*least) * near < time(*owner_) ? *least : *owner_;
  }

  std::string choice() const;
  std::string no_matrix() const;
  std::string times() const;
  std::string few_matrices() const;
  std::string nothing_to_gather() const;
  std::string what_is_saved() const;
  double tokens_of_gain() const;

  const PlanFigures &figures_;
  const double tokens_;
  const ComparedPlacement *owner_ = nullptr, *alltoall_ = nullptr;
};

// "384.2 ms with owner, 431 ms with alltoall"
std::string Advice::times() const {
  std::string text;
  const bool is_alone = std::count_if(figures_.compared.begin(), figures_.compared.end(),
                                      [this](const ComparedPlacement &row) { return may_be_chosen(row); }) == 1;
  for (const ComparedPlacement &row : figures_.compared)
    if (is_alone || may_be_chosen(row))
      text.append(text.empty() ? "" : ", ").append(time_of(time(row))).append(" with ").append(row.placement);
  return text;
}

std::string Advice::choice() const {
  const ComparedPlacement &chosen = best();
  const std::string what =
      figures_.tokens
          ? text_of("a step at ", count_text(figures_.tokens), figures_.tokens == 1 ? " token" : " tokens")
          : std::string("the optimizer's step");
  const std::string all = text_of(what, " takes ", times(), ".");
  if (&chosen == owner_ && alltoall_ && time(*alltoall_) < near * time(*owner_))
    return text_of("owner and alltoall tie: ", all);
  if (&chosen == owner_ && alltoall_ && !figures_.tokens && tokens_of_gain() == 0)
    return text_of("owner and alltoall tie in whole steps: ", all);
  if (&chosen != alltoall_) return text_of("Take ", chosen.placement, ": ", all);
  const double uneven = forward_backward_ns(figures_, *owner_, tokens_) -
                        forward_backward_ns(figures_, *alltoall_, tokens_);
  return text_of("Take alltoall: ", what, " takes ", times(), "; owner's uneven gathers and reduces cost ",
                 time_of(uneven), ", its optimizer saves ", time_of(alltoall_->optimizer_ns - owner_->optimizer_ns),
                 ".");
}

// Stacks are cut between their matrices, AdamW takes rows, frozen and external tensors are not stepped here.
std::string Advice::no_matrix() const {
  const std::string times_text =
      figures_.tokens ? text_of(" A step at ", count_text(figures_.tokens), figures_.tokens == 1 ? " token" : " tokens",
                                " takes ", times(), ".")
                      : std::string();
  return text_of("No matrix that is stepped would be cut by slices, so owners save nothing in the optimizer.",
                 times_text);
}

std::string Advice::few_matrices() const {
  int64_t idle = 0;
  double sum = 0, worst = 0;
  bool has_matrices = false;
  for (const RankFigures &rank : figures_.ranks) {
    idle += rank.load.matrix_count == 0;
    has_matrices = has_matrices || rank.load.matrix_count > 0;
    sum += static_cast<double>(rank.load.step_ns);
    worst = std::max(worst, static_cast<double>(rank.load.step_ns));
  }
  const double mean = sum / static_cast<double>(figures_.rank_count);
  if (!has_matrices || mean == 0 || (idle == 0 && worst <= imbalance_max * mean)) return "";
  const std::string idlers = idle == 0 ? std::string("matrices are few")
                                       : text_of(std::to_string(idle), " of ", std::to_string(figures_.rank_count),
                                                 idle == 1 ? " ranks owns no matrix" : " ranks own no matrix");
  return text_of(idlers, ", and the worst rank's products take ", ratio_text(worst / mean), " times the mean",
                 alltoall_ ? ", with alltoall as well" : "",
                 figures_.co_owners_max > 1 ? "" : ": --co-owners may help");
}

// The fastest of those that there was no budget for.
std::string Advice::nothing_to_gather() const {
  const ComparedPlacement *least = nullptr;
  if (figures_.tokens == 0) return "";
  for (const ComparedPlacement &row : figures_.compared)
    if (!may_be_chosen(row) && time(row) * near < time(best()) && (!least || time(row) < time(*least))) least = &row;
  if (!least) return "";
  return text_of(least->placement, ", which gathers nothing in forward and backward, takes ", time_of(time(*least)),
                 figures_.budget ? ", but its peak is " : ", if a rank has ", bytes_text(least->peak_bytes));
}

// Tokens up to which owner saves at least 5% of alltoall's step, whose exchange nothing hides; 0: none.
double Advice::tokens_of_gain() const {
  const double optimizer = static_cast<double>(alltoall_->step_ns) + alltoall_->optimizer_wire_ns;
  double last = 0;
  for (double tokens = 1; tokens <= tokens_max; tokens *= tokens_step) {
    const double other = forward_backward_ns(figures_, *alltoall_, tokens) + optimizer;
    if (other > near * whole_step_ns(figures_, *owner_, tokens)) last = tokens;
  }
  return last;
}

std::string Advice::what_is_saved() const {
  if (!alltoall_ || !is_torn_anywhere()) return "";
  const double shown = alltoall_->optimizer_ns - owner_->optimizer_ns, wire = alltoall_->optimizer_wire_ns;
  std::string text = figures_.node_count == 1 ? "on one node " : "";
  text.append("alltoall's exchange takes ").append(time_of(wire));
  if (shown > wire / near) text.append(", with no products of other matrices to hide it behind");
  else text.append(", and ").append(time_of(shown)).append(" of it where products of other matrices hide the rest");
  if (figures_.tokens) {
    const double share = owner_->optimizer_ns / whole_step_ns(figures_, *owner_, tokens_);
    text.append("; the optimizer is ").append(per_cent(share)).append(" of owner's step");
  }
  const double last = tokens_of_gain();
  if (last == 0) return text + "; hidden or not, owner saves less than 5% of alltoall's step at any number of tokens";
  if (last * tokens_step > tokens_max)
    return text.append("; if nothing hides it, owner saves 5% of alltoall's step even at ")
        .append(about(tokens_max))
        .append(" tokens a rank");
  return text.append("; hidden or not, owner saves less than 5% of alltoall's step from about ")
      .append(about(last))
      .append(" tokens a rank on");
}

}  // namespace

std::string plan_advice(const PlanFigures &figures) {
  return figures.compared.size() < 2 ? "" : Advice(figures).text();
}

}  // namespace mxs_cli
