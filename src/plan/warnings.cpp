// SPDX-License-Identifier: Apache-2.0
// What a person should look at before a run: a tensor that the rules treat otherwise than its shape suggests, or one
// that makes a rank stand out. One sentence for each kind of surprise, with the first tensor's name and how many there
// are, so that 80 layers alike make one line. Nothing here is an error, and nothing here changes a plan.
#include <algorithm>
#include <array>
#include <string_view>

#include "plan/ledger.hpp"
#include "plan/memory.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

// Smaller tensors surprise nobody: a unit of a megabyte is a matter of latency, a matrix below 64 x 64 of nothing.
constexpr uint64_t real_bytes_min = 1 << 20;
constexpr int64_t real_side_min = 64;

// A kind of surprise: how many tensors, and the first of them.
struct Surprise {
  uint64_t count = 0;
  int first = -1;

  void add(int tensor) {
    if (count++ == 0) first = tensor;
  }
};

class Warnings {
 public:
  Warnings(const Plan &plan, const PlanSettings &settings) : plan_(plan), settings_(settings) {}

  std::vector<std::string> write();

 private:
  const PlannedTensor &tensor_of(int index) const { return plan_.tensors[static_cast<size_t>(index)]; }
  std::string name_of(int index) const { return in_quotes(tensor_of(index).name); }
  static std::string in_quotes(const std::string &name) {
    return std::string(1, '"').append(name, 0, 200).append(1, '"');
  }
  // "tensor "w"", or "80 tensors, the first of them "w",": the verb follows.
  std::string subject(const Surprise &surprise) const {
    if (surprise.count == 1) return std::string("tensor ").append(name_of(surprise.first));
    return std::to_string(surprise.count).append(" tensors, the first of them ").append(name_of(surprise.first)).append(
        ",");
  }
  template <class... Parts>
  void say(const Parts &...parts) {
    std::string sentence;
    (sentence.append(parts), ...);
    sentences_.push_back(std::move(sentence));
  }

  void look_at_rules();
  void look_at_matrices();
  void look_at_fixed_owners();
  void look_at_large_pieces();
  void look_at_units();

  const Plan &plan_;
  const PlanSettings &settings_;
  std::vector<std::string> sentences_;
};

// Names of what usually steps under adamw though it has two dimensions: by a part between dots or by a piece of one.
bool is_named_like_a_table(std::string_view name) {
  constexpr std::array pieces = {"embed", "norm", "router", "lm_head", "classifier", "bias"};
  for (const char *piece : pieces)
    if (name.find(piece) != name.npos) return true;
  constexpr std::array words = {"wte", "wpe", "head", "gate", "output", "score"};
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    for (const std::string_view word : words)
      if (name.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

bool is_stack(const PlannedTensor &tensor) {
  return tensor.shape.size() == 3 || (tensor.shape.size() == 2 && tensor.name.find(".experts.") != std::string::npos);
}

bool is_real_matrix(const PlannedTensor &tensor) {
  return tensor.shape.size() == 2 && std::min(tensor.shape[0], tensor.shape[1]) >= real_side_min;
}

void Warnings::look_at_rules() {
  Surprise on_adamw, deep, frozen_stack, external_stack;
  for (int index = 0; index < static_cast<int>(plan_.tensors.size()); ++index) {
    const PlannedTensor &tensor = tensor_of(index);
    if (tensor.tied_to >= 0 || tensor.element_count == 0) continue;
    if (tensor.rule == MXS_RULE_ADAMW && is_real_matrix(tensor) && !is_named_like_a_table(tensor.name))
      on_adamw.add(index);
    if (tensor.rule == MXS_RULE_ADAMW && tensor.shape.size() > 3 &&
        weight_bytes(tensor, tensor.element_count) >= settings_.flat_bytes)
      deep.add(index);
    if (tensor.rule == MXS_RULE_FROZEN && is_stack(tensor)) frozen_stack.add(index);
    if (tensor.rule == MXS_RULE_EXTERNAL && is_stack(tensor)) external_stack.add(index);
  }
  if (on_adamw.count)
    say(subject(on_adamw), on_adamw.count == 1 ? " is a matrix but steps" : " are matrices but step",
        " under adamw: ask for muon if that is not meant");
  if (deep.count)
    say(subject(deep), deep.count == 1 ? " has" : " have",
        " more than 3 dimensions and so adamw: a view of (out, in * height * width) could step under muon");
  if (frozen_stack.count)
    say(subject(frozen_stack), frozen_stack.count == 1 ? " holds experts but is" : " hold experts but are",
        " frozen: nothing steps them");
  if (external_stack.count)
    say(subject(external_stack), external_stack.count == 1 ? " holds experts but is" : " hold experts but are",
        " under rule external: nothing steps them unless the caller does");
}

// Is anything left for the optimizer that this library is for?
void Warnings::look_at_matrices() {
  Surprise stepped, frozen, joined;
  for (int index = 0; index < static_cast<int>(plan_.tensors.size()); ++index) {
    const PlannedTensor &tensor = tensor_of(index);
    if (tensor.tied_to >= 0 || tensor.element_count == 0) continue;
    if (wants_matrices(tensor.rule)) stepped.add(index);
    if (tensor.frozen() && tensor.shape.size() >= 2) frozen.add(index);
    // Blocks whose borders are off the alignment share an owner: their steps can't be spread.
    if (tensor.role != MXS_ROLE_BLOCKS || tensor.placement_count < 2 || settings_.rank_count < 2) continue;
    if (plan_.given[static_cast<size_t>(index)].fixed_owner != 0 ||
        weight_bytes(tensor, tensor.element_count) < real_bytes_min)
      continue;
    const auto first = plan_.placements.begin() + static_cast<ptrdiff_t>(tensor.placement_index);
    const auto last = first + static_cast<ptrdiff_t>(tensor.placement_count);
    const bool off = std::any_of(first, last, [&](const Placement &piece) {
      return weight_bytes(tensor, piece.element_count) % settings_.alignment != 0;
    });
    if (off && std::all_of(first, last, [&](const Placement &piece) { return piece.owner == first->owner; }))
      joined.add(index);
  }
  if (frozen.count && !stepped.count)
    say("no matrix is stepped: ", subject(frozen), frozen.count == 1 ? " is" : " are", " frozen");
  if (joined.count)
    say(subject(joined), joined.count == 1 ? " has" : " have",
        " one owner for all blocks, since their bytes are no multiples of the alignment of ",
        std::to_string(settings_.alignment), ": a smaller alignment could spread them");
}

// Does the worst rank stand out by what it was told to own?
void Warnings::look_at_fixed_owners() {
  const size_t rank_count = static_cast<size_t>(settings_.rank_count);
  std::vector<Load> fixed(rank_count);
  uint64_t step_sum = 0, bytes_sum = 0;
  bool any = false;
  for (const Placement &piece : plan_.placements) {
    if (plan_.given[static_cast<size_t>(piece.tensor)].fixed_owner == 0) continue;
    const PlannedTensor &tensor = tensor_of(piece.tensor);
    Load &load = fixed[static_cast<size_t>(piece.owner)];
    load.cost = saturating_add(load.cost, piece_cost(settings_, tensor, piece));
    load.bytes += owned_bytes(tensor, piece.shape, piece.element_count);
    any = true;
  }
  if (!any) return;
  for (size_t rank = 0; rank < rank_count; ++rank) {
    step_sum = saturating_add(step_sum, plan_.rank_step_ps[rank] / rank_count);
    bytes_sum += plan_.rank_owned_bytes[rank] / rank_count;
  }
  const auto worst_of = [](const std::vector<uint64_t> &loads) {
    return static_cast<size_t>(std::max_element(loads.begin(), loads.end()) - loads.begin());
  };
  const size_t slow = worst_of(plan_.rank_step_ps), full = worst_of(plan_.rank_owned_bytes);
  if (fixed[slow].cost > step_sum + step_sum / 20)
    say("fixed owners make rank ", std::to_string(slow), "'s step the longest: ",
        decimal_text(static_cast<double>(fixed[slow].cost) / 1e9, 3),
        " ms of what it was told to own, where the mean is ", decimal_text(static_cast<double>(step_sum) / 1e9, 3),
        " ms in all");
  if (fixed[full].bytes > bytes_sum + bytes_sum / 20 && fixed[full].bytes >= real_bytes_min)
    say("fixed owners give rank ", std::to_string(full), " the most bytes: ", bytes_text(fixed[full].bytes),
        " of what it was told to own, where the mean is ", bytes_text(bytes_sum), " in all");
}

// One piece larger than an even share: whoever has it owns more than the others.
void Warnings::look_at_large_pieces() {
  uint64_t all = 0;
  for (const uint64_t bytes : plan_.rank_owned_bytes) all += bytes;
  const uint64_t mean = all / static_cast<uint64_t>(settings_.rank_count);
  Surprise large;
  uint64_t most = 0;
  const Placement *largest = nullptr;
  for (const Placement &piece : plan_.placements) {
    const uint64_t bytes = owned_bytes(tensor_of(piece.tensor), piece.shape, piece.element_count);
    if (bytes < real_bytes_min || bytes <= mean + mean / 20) continue;
    large.add(piece.tensor);
    if (bytes > most) largest = &piece;
    most = std::max(most, bytes);
  }
  if (!largest) return;
  say("tensor ", name_of(largest->tensor), " alone needs ", bytes_text(most), " at rank ",
      std::to_string(largest->owner), ", more than an even share of ", bytes_text(mean), " a rank",
      large.count > 1 ? std::string("; ").append(std::to_string(large.count)).append(" pieces are above it") : "",
      tensor_of(largest->tensor).role == MXS_ROLE_FLAT ? ": a smaller flat_bytes would cut it finer" : "");
}

// More than half of a unit in one piece: each of its gathers waits for one rank's link.
void Warnings::look_at_units() {
  if (settings_.rank_count < 3) return;
  Surprise heavy;
  int first_unit = 0;
  for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
    const PlannedUnit &planned = plan_.units[unit];
    if (planned.weights.bytes < real_bytes_min) continue;
    for (const uint64_t index : planned.placements) {
      const Placement &piece = plan_.placements[index];
      if (weight_bytes(tensor_of(piece.tensor), piece.element_count) <= planned.weights.bytes / 2) continue;
      if (heavy.count == 0) first_unit = static_cast<int>(unit);
      heavy.add(piece.tensor);
    }
  }
  if (heavy.count == 1)
    say("tensor ", name_of(heavy.first), " is more than half of unit ", std::to_string(first_unit),
        " and has one owner, whose link each gather of the unit waits for");
  if (heavy.count > 1)
    say(std::to_string(heavy.count), " units, the first of them ", std::to_string(first_unit), " with tensor ",
        name_of(heavy.first), ", are more than half one owner's, whose link each of their gathers waits for");
}

std::vector<std::string> Warnings::write() {
  look_at_rules();
  look_at_matrices();
  look_at_fixed_owners();
  look_at_large_pieces();
  look_at_units();
  return std::move(sentences_);
}

}  // namespace

std::vector<std::string> plan_warnings(const Plan &plan, const PlanSettings &settings) {
  return Warnings(plan, settings).write();
}

}  // namespace mxs
