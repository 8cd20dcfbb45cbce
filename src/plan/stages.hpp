// SPDX-License-Identifier: Apache-2.0
// The stages of planning, in their order. make_plan (plan.cpp) runs them one after the other:
//
//   describe   the caller's tensors -> rule, role, reason, pieces that want an owner     describe.cpp, check.cpp
//   own        pieces -> owners: fixed, flat, co-owned, then the rest                    owners.cpp; ledger.hpp has
//                                                                                        its steps and their files
//   bound      what no choice of owners could have gone below                            bounds.cpp
//   lay out    owners -> the order in each unit, two layouts, offsets                    layouts.cpp
//   seal       matrices, loads, the index by rank, objectives, fingerprint, warnings     matrices.cpp, index.cpp,
//                                                                                        egress.cpp, fingerprint.cpp,
//                                                                                        warnings.cpp
//
// A saved plan takes the owners from its file instead (saved.cpp), and all else the same way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/words.hpp"
#include "plan/plan.hpp"

namespace mxs {

// The options, with defaults filled in.
struct PlanSettings {
  int rank_count = 1;
  int unit_count = 0;
  uint64_t alignment = 4096;
  uint64_t flat_bytes = 65536;
  uint64_t rank_bytes_max = 0;  // 0: none
  uint64_t matrix_flops_per_second = 150'000'000'000'000, memory_bytes_per_second = 1'500'000'000'000;
  uint32_t step_weight = 100'000, bytes_weight = 10'000, egress_weight = 1'000;  // thousandths
  int co_owners_max = 1;
  uint64_t search_moves_max = 4'000'000;
  const Topology *topology = nullptr;
  const Plan *previous = nullptr;
  std::vector<int> rank_now;  // by rank of the previous plan: its number in this one; -1: it is gone
  uint64_t previous_fingerprint = 0;
};

constexpr uint64_t gradient_alignment = 64;       // of borders in gradient layouts: a cache line
constexpr uint64_t norm_chunk_elements = 4096;    // flat cuts fall on it: the norm is summed in such chunks
constexpr uint64_t alignment_max = uint64_t{1} << 30;
constexpr int unit_count_max = 1 << 20;
constexpr int64_t block_count_max = int64_t{1} << 20;

// A tensor on its way: what is known of it, and its pieces, which get owners one stage later.
struct Draft {
  PlannedTensor tensor;
  std::vector<Placement> pieces;  // flat: one until it is cut; tied: none
  int fixed_owner = -1;           // -1: to be chosen
  std::vector<int> runs;          // by piece: which run it belongs to, whose pieces have one owner. Empty: all one run
  bool together = false;          // the pieces are co-owners' rows, and have their owners

  bool begins_run(size_t piece) const { return piece == 0 || (!runs.empty() && runs[piece] != runs[piece - 1]); }
};

// ---- plan.cpp ----
// Checks what is given for all tensors together, and fills in defaults.
mxs_status read_settings(const mxs_tensor *tensors, uint64_t tensor_count, const Topology &topology,
                         const mxs_plan_options *options, PlanSettings *settings);
// From pieces that have owners to a plan: lays out and seals.
mxs_status finish_plan(const mxs_tensor *tensors, const PlanSettings &settings, std::vector<Draft> *drafts, Plan *plan);

// ---- check.cpp ----
// Is the description sound in itself? Receives the element count. What concerns rules comes later.
mxs_status check_tensor(const mxs_tensor &given, uint64_t index, const PlanSettings &settings,
                        uint64_t *element_count);

// Of a model's descriptions, before the world is known: each of them sound, names unique, ties as find_ties wants
// them. A unit may be -1: not known yet.
mxs_status check_tensors(const mxs_tensor *tensors, uint64_t tensor_count);

// ---- describe.cpp ----
// Does it step matrices, each as a whole?
constexpr bool wants_matrices(mxs_rule rule) {
  return rule == MXS_RULE_MUON || rule == MXS_RULE_SHAMPOO || rule == MXS_RULE_SOAP;
}
mxs_status describe(const mxs_tensor *given, uint64_t count, const PlanSettings &settings, std::vector<Draft> *drafts);

// ---- ties.cpp ----
// Names are unique, and tied tensors name one that has the bytes, of equal shape, in one unit. Receives its index,
// or -1.
mxs_status find_ties(const mxs_tensor *given, uint64_t count, std::vector<int> *tied_to);
// Tied tensors take everything from the tensor they name.
mxs_status resolve_ties(const mxs_tensor *given, std::vector<Draft> *drafts);

// ---- cost.cpp ----
// One step on a matrix or on elements, in integers; stays at UINT64_MAX instead of overflowing. co_owner_count: ranks
// that share the matrix, of which `shape` is the whole; the work is that of one of them.
struct StepWork {
  uint64_t flops = 0;  // of matrix products
  uint64_t bytes = 0;  // that pass through memory
};
StepWork step_work(mxs_rule rule, const std::vector<int64_t> &shape, int co_owner_count = 1);
// Of a piece's owner, over all its matrices.
StepWork piece_work(const PlannedTensor &tensor, const Placement &piece);
uint64_t step_ps(const StepWork &work, const PlanSettings &settings);
uint64_t saturating_add(uint64_t a, uint64_t b);
uint64_t saturating_multiply(uint64_t a, uint64_t b);

// ---- flat.cpp ----
// Elements between two places where a flat tensor may be cut.
uint64_t flat_chunk_elements(const PlannedTensor &tensor, const PlanSettings &settings);

// ---- co_owners.cpp ----
// May this tensor have the co_owners that it asks for?
mxs_status check_co_owners(const mxs_tensor &given, const Draft &draft, const PlanSettings &settings);
// What the reason of a matrix says until it turns out that ranks share it.
inline constexpr std::string_view alone_reason = "; one owner has it whole";

// ---- owners.cpp ----
mxs_status choose_owners(const PlanSettings &settings, std::vector<Draft> *drafts);

// ---- layouts.cpp ----
// Fills plan->units and the offsets of plan->placements.
mxs_status lay_out(Plan *plan);

// ---- matrices.cpp ----
// Fills plan->matrices, and which of them are each placement's.
void list_matrices(Plan *plan);

// ---- index.cpp ----
void index_ranks(Plan *plan);

// ---- fingerprint.cpp ----
uint64_t tensor_hash(const PlannedTensor &tensor, const std::vector<Placement> &pieces, int fixed_owner);
uint64_t plan_fingerprint(const Plan &plan, const PlanSettings &settings);

// ---- warnings.cpp ----
// Sentences about what a person should look at, for mxs_plan_warning. Of a plan that is complete but for them.
std::vector<std::string> plan_warnings(const Plan &plan, const PlanSettings &settings);

// ---- names.cpp: shapes and numbers for sentences, the report and saved plans ----
std::string shape_text(const std::vector<int64_t> &shape);  // "(768, 3072)", "()" for a scalar
// They know no locale: the same text everywhere.
std::string decimal_text(double number, int decimals);
std::string bytes_text(uint64_t bytes);         // "512 B", "10.0 KiB"
std::string hexadecimal_text(uint64_t number);  // 16 digits

}  // namespace mxs
