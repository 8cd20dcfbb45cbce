// SPDX-License-Identifier: Apache-2.0
// The 64 bits that must be equal on all ranks, and those of one tensor, by which the first difference is named.
#include "base/hash.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

uint64_t bits(int64_t value) { return static_cast<uint64_t>(value); }

void add_shape(Fingerprint *fingerprint, const std::vector<int64_t> &shape) {
  fingerprint->add(shape.size());
  for (const int64_t dimension : shape) fingerprint->add(bits(dimension));
}

}  // namespace

uint64_t tensor_hash(const PlannedTensor &tensor, const std::vector<Placement> &pieces, int fixed_owner) {
  Fingerprint fingerprint;
  fingerprint.add(std::string_view(tensor.name)).add(bits(tensor.dtype)).add(bits(tensor.master_dtype));
  fingerprint.add(bits(tensor.gradient_dtype)).add(bits(tensor.unit)).add(bits(tensor.group)).add(bits(tensor.rule));
  fingerprint.add(bits(tensor.role)).add(bits(tensor.tied_to)).add(bits(fixed_owner));
  add_shape(&fingerprint, tensor.shape);
  add_shape(&fingerprint, tensor.block_columns);
  fingerprint.add(tensor.transposed).add(bits(tensor.whole_rows)).add(bits(tensor.whole_columns));
  if (tensor.co_owners != 0) fingerprint.add(std::string_view("co_owners")).add(bits(tensor.co_owners));
  fingerprint.add(pieces.size());
  for (const Placement &piece : pieces) {
    add_shape(&fingerprint, piece.shape);
    fingerprint.add(piece.element_offset).add(piece.element_count);
  }
  return fingerprint.value();
}

uint64_t plan_fingerprint(const Plan &plan, const PlanSettings &settings) {
  Fingerprint fingerprint;
  fingerprint.add(plan.topology.hash()).add(bits(settings.unit_count)).add(settings.alignment);
  fingerprint.add(settings.flat_bytes).add(settings.rank_bytes_max).add(plan.tensors.size());
  fingerprint.add(settings.matrix_flops_per_second).add(settings.memory_bytes_per_second);
  if (settings.co_owners_max > 1) fingerprint.add(std::string_view("co_owners_max")).add(bits(settings.co_owners_max));
  fingerprint.add(settings.step_weight).add(settings.bytes_weight).add(settings.egress_weight);
  fingerprint.add(settings.search_moves_max);
  if (settings.previous_fingerprint) fingerprint.add(std::string_view("previous")).add(settings.previous_fingerprint);
  for (const PlannedTensor &tensor : plan.tensors) fingerprint.add(tensor.hash);
  for (const Placement &piece : plan.placements)
    fingerprint.add(bits(piece.owner)).add(piece.weight_offset).add(piece.gradient_offset);
  for (const PlannedUnit &unit : plan.units) fingerprint.add(unit.weights.hash()).add(unit.gradients.hash());
  return fingerprint.value();
}

}  // namespace mxs
