// SPDX-License-Identifier: Apache-2.0
// What `mxs plan` shows, as numbers: gathered once from the library, then printed as a table, as JSON or as a page.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/plan_request.hpp"
#include "matrixshard/matrixshard.hpp"

namespace mxs_cli {

struct RankFigures {
  int32_t rank = 0, node = 0;
  mxs_rank_load load = MXS_RANK_LOAD_INIT;
  mxs_memory memory = MXS_MEMORY_INIT;
};

struct UnitFigures {
  int32_t unit = 0;
  std::string name;
  mxs_unit_load load = MXS_UNIT_LOAD_INIT;
  std::vector<std::pair<int32_t, uint64_t>> owned;  // rank, bytes of its weights; ascending
  uint64_t parameter_count = 0;
};

// One tensor, with the dtypes that the plan has filled in.
struct TensorFigures {
  const mxs_tensor *given = nullptr;
  mxs_tensor_info info = MXS_TENSOR_INFO_INIT;
  mxs_dtype dtype = MXS_F32, gradient_dtype = MXS_F32;
  uint64_t element_count = 0;
  std::vector<int32_t> owners;  // ascending, each once
  int32_t co_owner_count = 1;   // ranks that share its matrix

  bool is_tied() const { return info.tied_to >= 0; }
  bool has_gradient() const { return !is_tied() && info.rule != MXS_RULE_FROZEN; }
};

// Received by all ranks together in one step.
struct WireFigures {
  uint64_t local_bytes = 0, network_bytes = 0;  // of forward's and backward's gathers and the reduces
  uint64_t matrix_step_bytes = 0;               // in the optimizer's step: 0 without co-owners
};

// A placement beside others: worst rank of each.
struct ComparedPlacement {
  std::string placement, note;
  uint64_t rest_bytes = 0, peak_bytes = 0, step_ns = 0;
  uint64_t local_bytes = 0, network_bytes = 0, step_bytes = 0;  // received by all ranks together
  double optimizer_wire_ns = 0, optimizer_ns = 0;               // the latter with its computation, step_ns
  std::vector<double> gather_ns, reduce_ns;                     // by unit, in one forward and backward each; see
                                                                // plan_times.hpp
};

struct MoveFigures {
  bool known = false;  // there was a previous plan
  uint64_t count = 0, bytes = 0;
};

struct PlanFigures {
  std::string path, title, world;
  int32_t node_count = 0, rank_count = 0, replicas = 1;  // ranks, nodes: of one shard group
  int32_t co_owners_max = 1;
  uint64_t parameter_count = 0, weight_bytes = 0;
  uint64_t matrix_flops_per_second = 0, memory_bytes_per_second = 0, budget = 0;
  uint64_t tokens = 0, train_flops_per_second = 0;  // of a rank; tokens 0: not told
  double active_share = 1;                          // of the parameters that a token passes
  bool by_reference = false, world_is_words = false;
  uint64_t fingerprint = 0;
  mxs_objective objectives[4] = {MXS_OBJECTIVE_INIT, MXS_OBJECTIVE_INIT, MXS_OBJECTIVE_INIT, MXS_OBJECTIVE_INIT};
  std::vector<RankFigures> ranks;
  std::vector<UnitFigures> units;
  std::vector<TensorFigures> tensors;
  WireFigures wire;
  std::vector<ComparedPlacement> compared;  // the plan itself first; empty: nobody asked
  MoveFigures moves;
  std::vector<std::string> warnings, notes;
  std::string verdict, advice;  // advice: "" if nothing is compared
  bool show_tensors = false;
};

// What ranks receive as gradients are summed at owners. Each rank but one of its node gives its own inside the node, in
// gradient_dtype; a node sends what it has added up to the owner's, in fp32, or as it is where it has but one rank.
void add_reduces(const PlanFigures &figures, uint64_t *local_bytes, uint64_t *network_bytes);

// Counts stay at UINT64_MAX instead of overflowing.
uint64_t saturating_sum(uint64_t a, uint64_t b);
uint64_t saturating_product(uint64_t a, uint64_t b);

// These throw mxs::error.
PlanFigures plan_figures(const PlanRequest &request, const mxs::model &model, const mxs::topology &topology,
                         const mxs::plan &plan, const mxs::plan &previous);  // previous: NULL if there is none
std::vector<ComparedPlacement> compare_placements(const PlanRequest &request, const PlanFigures &figures);

// What is wrong with the plan, or that nothing is: one sentence.
std::string plan_verdict(const PlanFigures &figures);

// Which placement to take, and where the owner layout loses: a sentence or two, from what was compared.
std::string plan_advice(const PlanFigures &figures);

std::string plan_json(const PlanFigures &figures);   // one line
std::string plan_table(const PlanFigures &figures);  // for people, of at most 120 columns

}  // namespace mxs_cli
