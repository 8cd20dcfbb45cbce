// SPDX-License-Identifier: Apache-2.0
// NCCL inside each node, messages between nodes. Rail r joins the ranks with local rank r, and carries share r of each
// node's bytes, which is an r-th of them, whoever of the node owns them:
//
//   gather   1 in the node    owners broadcast: all local ranks have the node's bytes
//            2 over rails     share r of every node goes to local rank r of all nodes
//            3 in the node    local rank r broadcasts the foreign shares r
//   reduce   1 in the node    sums of share r of all nodes come to local rank r
//            2 over rails     and are added up at the node that owns them
//            3 in the node    local rank r hands its sums to their owners
//
// Steps 2 and 3 of a gather, and all of a reduce, go in parts (device_carried.hpp): part i has the i-th piece of every
// share. A node's bytes are counted through, from 0, in the order of the buffer; shares are cut at multiples of 256.
#include <algorithm>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "collective/device_carried.hpp"
#include "device/group.hpp"
#include "device/kernels.hpp"

namespace mxs {

namespace {

constexpr uint64_t line_bytes = 256;
// Of the layout's bytes that a part moves on one rail. As in device_staged.cpp.
constexpr uint64_t part_bytes_least = uint64_t{2} << 20, part_count_most = 64;

// A run of a node's bytes: [at, at + bytes) of the count through.
struct NodeRun {
  int local_rank = 0;  // of the owner
  uint64_t at = 0, offset = 0, packed = 0, bytes = 0;
};

class LevelsCollective : public CarriedCollective {
 public:
  LevelsCollective(DeviceState &state, const DeviceCollectiveOptions &options);

 protected:
  // A piece of a share.
  struct Span {
    uint64_t begin = 0, end = 0;
    uint64_t bytes() const { return end - begin; }
  };
  Span piece(int node, int rail, size_t part) const;
  // Calls use(the part of a run that lies in the span), in order.
  template <class Use>
  void each_run(int node, Span span, Use &&use) const {
    for (NodeRun run : runs_[static_cast<size_t>(node)]) {
      const uint64_t first = std::max(run.at, span.begin), last = std::min(run.at + run.bytes, span.end);
      if (first >= last) continue;
      run.offset += first - run.at;
      run.packed += first - run.at;
      run.at = first;
      run.bytes = last - first;
      use(run);
    }
  }
  // Messages of a part over this rail, one piece per node; `scale`: bytes of an element there by those of the layout.
  Layout rail_layout(size_t part, uint64_t scale) const;

  Device &device_;
  DeviceGroup *const group_;  // nullptr: one rank in a node
  const int local_rank_, local_count_, node_, node_count_;
  std::vector<std::vector<NodeRun>> runs_;  // by node
  std::vector<uint64_t> node_bytes_;
  uint64_t piece_bytes_ = 0;  // at most
  size_t part_count_ = 0;
};

LevelsCollective::LevelsCollective(DeviceState &state, const DeviceCollectiveOptions &options)
    : CarriedCollective(state, options, *state.rail()), device_(state.device()), group_(state.node_group()),
      local_rank_(state.comm().topology.ranks[static_cast<size_t>(state.comm().rank)].local_rank),
      local_count_(state.comm().topology.node(state.comm().topology.node_of(state.comm().rank)).rank_count()),
      node_(state.comm().topology.node_of(state.comm().rank)), node_count_(state.comm().topology.node_count()),
      runs_(static_cast<size_t>(node_count_)), node_bytes_(static_cast<size_t>(node_count_), 0) {
  const Topology &topology = state.comm().topology;
  for (const DeviceRun &run : runs_of(layout_)) {
    const auto node = static_cast<size_t>(topology.node_of(run.owner));
    const int local_rank = topology.ranks[static_cast<size_t>(run.owner)].local_rank;
    runs_[node].push_back({local_rank, node_bytes_[node], run.offset, run.packed, run.bytes});
    node_bytes_[node] += run.bytes;
  }
  uint64_t share_most = 0, total = 0;
  for (const uint64_t bytes : node_bytes_) {
    share_most = std::max(share_most, align_up((bytes + static_cast<uint64_t>(local_count_) - 1) /
                                                   static_cast<uint64_t>(local_count_), line_bytes));
    total += bytes;
  }
  // In a part every node gives a piece, so that each is small where nodes are many.
  const uint64_t part_bytes = std::max(part_bytes_least, total / static_cast<uint64_t>(local_count_) / part_count_most);
  piece_bytes_ = std::max(align_up(part_bytes / static_cast<uint64_t>(node_count_), line_bytes),
                          align_up(share_most / part_count_most, line_bytes));
  piece_bytes_ = std::max(piece_bytes_, line_bytes);
  part_count_ = static_cast<size_t>((share_most + piece_bytes_ - 1) / piece_bytes_);
  routes_ = peers_by_transport(wire_);
  algorithm_ = "two-level";
  if (local_count_ > 1) routes_ = "nccl " + std::to_string(local_count_ - 1) + ", " + routes_;
}

LevelsCollective::Span LevelsCollective::piece(int node, int rail, size_t part) const {
  const uint64_t bytes = node_bytes_[static_cast<size_t>(node)];
  const auto rails = static_cast<uint64_t>(local_count_);
  const uint64_t share = align_up((bytes + rails - 1) / rails, line_bytes);
  const uint64_t share_begin = std::min(bytes, share * static_cast<uint64_t>(rail));
  const uint64_t share_end = std::min(bytes, share_begin + share);
  const uint64_t begin = std::min(share_end, share_begin + part * piece_bytes_);
  return {begin, std::min(share_end, begin + piece_bytes_)};
}

Layout LevelsCollective::rail_layout(size_t part, uint64_t scale) const {
  Layout layout;
  layout.rank_count = node_count_;
  for (int node = 0; node < node_count_; ++node) {
    const uint64_t bytes = piece(node, local_rank_, part).bytes() / element_bytes_ * scale;
    if (bytes > 0) layout.segments.push_back({node, layout.bytes, bytes});
    layout.bytes += bytes;
  }
  return layout;
}

// ---- gather ----

class LevelsGather final : public LevelsCollective {
 public:
  using LevelsCollective::LevelsCollective;

  mxs_status make() override;

 private:
  struct Plan {
    std::vector<Copy> in, out;
    std::vector<GroupPart> foreign;        // with offsets of the buffer in place of addresses
    std::vector<uint64_t> foreign_offsets;
  };

  mxs_status prelude() override;
  mxs_status fetch(size_t part, std::byte *slot) override { return copy_in(plans_[part].in, slot, target_); }
  mxs_status deliver(size_t part, const std::byte *slot) override;

  std::vector<GroupPart> own_;  // of the node's runs
  std::vector<Plan> plans_;
};

mxs_status LevelsGather::make() {
  for (const NodeRun &run : runs_[static_cast<size_t>(node_)]) {
    own_.push_back({run.local_rank, nullptr, nullptr, run.bytes, MXS_U8});
    if (!group_) continue;
    const bool mine = run.local_rank == local_rank_;
    (mine ? bytes_out_ : bytes_in_) += run.bytes * (mine ? static_cast<uint64_t>(local_count_ - 1) : 1);
  }
  for (size_t part = 0; part < part_count_; ++part) {
    const Layout layout = rail_layout(part, 1);
    MessageOptions options;
    options.kind = MXS_GATHER;
    options.layout = &layout;
    const mxs_status status = add_part(options, layout.bytes, 0, "two-level: nccl,");
    if (status != MXS_OK) return status;
    Plan plan;
    uint64_t slot = 0;
    for (int node = 0; node < node_count_; ++node)
      each_run(node, piece(node, local_rank_, part), [&](const NodeRun &run) {
        (node == node_ ? plan.in : plan.out).push_back({run.offset, slot, run.bytes});
        slot += run.bytes;
      });
    for (int rail = 0; group_ && rail < local_count_; ++rail)
      for (int node = 0; node < node_count_; ++node) {
        if (node == node_) continue;
        each_run(node, piece(node, rail, part), [&](const NodeRun &run) {
          plan.foreign.push_back({rail, nullptr, nullptr, run.bytes, MXS_U8});
          plan.foreign_offsets.push_back(run.offset);
          const bool mine = rail == local_rank_;
          (mine ? bytes_out_ : bytes_in_) += run.bytes * (mine ? static_cast<uint64_t>(local_count_ - 1) : 1);
        });
      }
    plans_.push_back(std::move(plan));
  }
  return take_slots();
}

mxs_status LevelsGather::prelude() {
  const std::vector<NodeRun> &runs = runs_[static_cast<size_t>(node_)];
  for (size_t i = 0; i < runs.size(); ++i) {
    std::byte *const place = target_ + runs[i].offset;
    own_[i].target = place;
    own_[i].source = runs[i].local_rank == local_rank_ && source_ ? source_ + runs[i].packed : place;
    if (group_ || own_[i].source == place) continue;
    const mxs_status status = device_.copy(place, own_[i].source, runs[i].bytes, state_.stream());
    if (status != MXS_OK) return status;
  }
  return group_ && !own_.empty() ? group_->broadcast(own_, state_.stream()) : MXS_OK;
}

mxs_status LevelsGather::deliver(size_t part, const std::byte *slot) {
  Plan &plan = plans_[part];
  const mxs_status status = copy_out(plan.out, slot, target_);
  if (status != MXS_OK || plan.foreign.empty()) return status;
  for (size_t i = 0; i < plan.foreign.size(); ++i)
    plan.foreign[i].source = plan.foreign[i].target = target_ + plan.foreign_offsets[i];
  return group_->broadcast(plan.foreign, state_.stream());
}

// ---- reduce ----

// Scratch, in fp32 elements of a part:
//
//   widened   the raw gradients of all rails' pieces, if they are narrow
//   sums      what comes to this rail: its piece of every node
//   own       its piece of this node, from all nodes
//   owned     what this rank gets of the node's pieces
class LevelsReduce final : public LevelsCollective {
 public:
  using LevelsCollective::LevelsCollective;

  mxs_status make() override;

 private:
  struct Run {
    int rail = 0, local_rank = 0;  // that sums it; its owner
    uint64_t offset = 0, packed = 0, elements = 0;
    uint64_t widened = 0, place = 0;  // in scratch: there, and among the sums (own: among `own`)
    bool own_node = false;
  };
  struct Plan {
    std::vector<Run> runs;               // of all nodes and rails
    std::vector<GroupPart> parts;        // of them
    std::vector<GroupMessage> sends, receives;
    uint64_t sum_elements = 0, own_begin = 0, own_elements = 0;  // of this rail; own: within the sums
  };

  void plan_part(size_t part, Plan *plan);
  mxs_status prelude() override { return MXS_OK; }
  mxs_status fetch(size_t part, std::byte *slot) override;
  mxs_status deliver(size_t part, const std::byte *slot) override;
  mxs_status hand_over(Plan *plan);
  float *scratch(uint64_t place) const { return reinterpret_cast<float *>(state_.scratch()) + place; }

  std::vector<Plan> plans_;
  uint64_t widened_most_ = 0, sums_most_ = 0, own_most_ = 0, owned_most_ = 0;
  uint64_t sums_at_ = 0, own_at_ = 0, owned_at_ = 0;
};

void LevelsReduce::plan_part(size_t part, Plan *plan) {
  uint64_t widened = 0, owned = 0;
  for (int rail = 0; rail < local_count_; ++rail) {
    uint64_t place = 0;
    for (int node = 0; node < node_count_; ++node) {
      const uint64_t node_begin = place;
      each_run(node, piece(node, rail, part), [&](const NodeRun &found) {
        Run run;
        run.rail = rail;
        run.local_rank = found.local_rank;
        run.offset = found.offset;
        run.packed = found.packed / element_bytes_;
        run.elements = found.bytes / element_bytes_;
        run.widened = widened;
        run.place = place;
        run.own_node = node == node_;
        if (run.own_node && run.local_rank == local_rank_ && rail != local_rank_) owned += run.elements;
        plan->runs.push_back(run);
        plan->parts.push_back({rail, nullptr, nullptr, run.elements, MXS_F32});
        widened += run.elements;
        place += run.elements;
      });
      if (rail == local_rank_ && node == node_) {
        plan->own_begin = node_begin;
        plan->own_elements = place - node_begin;
      }
    }
    if (rail == local_rank_) plan->sum_elements = place;
  }
  plan->sends.reserve(plan->runs.size());
  plan->receives.reserve(plan->runs.size());
  widened_most_ = std::max(widened_most_, widened);
  sums_most_ = std::max(sums_most_, plan->sum_elements);
  own_most_ = std::max(own_most_, plan->own_elements);
  owned_most_ = std::max(owned_most_, owned);
}

mxs_status LevelsReduce::make() {
  for (size_t part = 0; part < part_count_; ++part) {
    const Layout layout = rail_layout(part, sizeof(float));
    MessageOptions options;
    options.kind = MXS_REDUCE;
    options.layout = &layout;
    options.dtype = MXS_F32;
    Plan plan;
    plan_part(part, &plan);
    const uint64_t result = align_up(layout.bytes, line_bytes);
    const mxs_status status = add_part(options, result + plan.own_elements * sizeof(float), result, "two-level: nccl,");
    if (status != MXS_OK) return status;
    for (const Run &run : plan.runs)
      if (group_) (run.rail == local_rank_ ? bytes_in_ : bytes_out_) += run.elements * sizeof(float) *
                      static_cast<uint64_t>(run.rail == local_rank_ ? local_count_ - 1 : 1);
    plans_.push_back(std::move(plan));
  }
  const auto aligned = [](uint64_t elements) { return align_up(elements, line_bytes / sizeof(float)); };
  sums_at_ = dtype_ == MXS_F32 ? 0 : aligned(widened_most_);
  own_at_ = sums_at_ + aligned(sums_most_);
  owned_at_ = own_at_ + aligned(own_most_);
  const mxs_status status = take_scratch((owned_at_ + aligned(accumulate_ ? owned_most_ : 0)) * sizeof(float));
  return status == MXS_OK ? take_slots() : status;
}

mxs_status LevelsReduce::fetch(size_t part, std::byte *slot) {
  Plan &plan = plans_[part];
  mxs_status status = MXS_OK;
  for (size_t i = 0; i < plan.runs.size() && status == MXS_OK; ++i) {
    const Run &run = plan.runs[i];
    const bool mine = run.rail == local_rank_;
    float *const sum = mine ? scratch(sums_at_ + run.place) : nullptr;
    plan.parts[i].source = source_ + run.offset;
    plan.parts[i].target = sum;
    if (dtype_ != MXS_F32) {
      float *const wide = group_ ? scratch(run.widened) : sum;
      status = device_.kernels().widen(wide, source_ + run.offset, dtype_, run.elements, state_.stream());
      plan.parts[i].source = wide;
    } else if (!group_) {
      status = device_.copy(sum, source_ + run.offset, run.elements * sizeof(float), state_.stream());
    }
  }
  if (status == MXS_OK && group_ && !plan.parts.empty()) status = group_->reduce(plan.parts, state_.stream());
  if (status != MXS_OK || plan.sum_elements == 0) return status;
  return device_.copy(slot, scratch(sums_at_), plan.sum_elements * sizeof(float), state_.stream());
}

mxs_status LevelsReduce::deliver(size_t part, const std::byte *slot) {
  Plan &plan = plans_[part];
  const uint64_t result = align_up(plan.sum_elements * sizeof(float), line_bytes);
  if (plan.own_elements > 0) {
    const mxs_status status = device_.copy(scratch(own_at_), slot + result, plan.own_elements * sizeof(float),
                                           state_.stream());
    if (status != MXS_OK) return status;
  }
  return hand_over(&plan);
}

// From the rails to the owners. What this rank owns itself comes from its own sums.
mxs_status LevelsReduce::hand_over(Plan *plan) {
  auto *const target = reinterpret_cast<float *>(target_);
  plan->sends.clear();
  plan->receives.clear();
  uint64_t owned = 0;
  for (const Run &run : plan->runs) {
    if (!run.own_node || run.rail == run.local_rank) continue;
    const uint64_t bytes = run.elements * sizeof(float);
    if (run.rail == local_rank_) plan->sends.push_back({run.local_rank, scratch(own_at_ + run.place - plan->own_begin),
                                                        bytes});
    if (run.local_rank != local_rank_) continue;
    plan->receives.push_back({run.rail, accumulate_ ? scratch(owned_at_ + owned) : target + run.packed, bytes});
    owned += run.elements;
  }
  mxs_status status = MXS_OK;
  if (!plan->sends.empty() || !plan->receives.empty())
    status = group_->exchange(plan->sends, plan->receives, state_.stream());
  owned = 0;
  for (const Run &run : plan->runs) {
    if (status != MXS_OK) return status;
    if (!run.own_node || run.local_rank != local_rank_) continue;
    const bool mine = run.rail == local_rank_;
    float *const sums = mine ? scratch(own_at_ + run.place - plan->own_begin) : scratch(owned_at_ + owned);
    if (!mine) owned += run.elements;
    if (accumulate_)
      status = device_.kernels().add(target + run.packed, sums, MXS_F32, run.elements, state_.stream());
    else if (mine)
      status = device_.copy(target + run.packed, sums, run.elements * sizeof(float), state_.stream());
  }
  return status;
}

template <class Made>
mxs_status finish(std::unique_ptr<DeviceOperation> *operation, DeviceState &state,
                  const DeviceCollectiveOptions &options) {
  auto made = std::make_unique<Made>(state, options);
  const mxs_status status = made->make();
  if (status == MXS_OK) *operation = std::move(made);
  return status;
}

}  // namespace

mxs_status make_levels_collective(std::unique_ptr<DeviceOperation> *operation, DeviceState &state,
                                  const DeviceCollectiveOptions &options) {
  return options.kind == MXS_GATHER ? finish<LevelsGather>(operation, state, options)
                                    : finish<LevelsReduce>(operation, state, options);
}

}  // namespace mxs
