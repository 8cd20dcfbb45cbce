// SPDX-License-Identifier: Apache-2.0
// Making an optimizer. Whatever can be refused is looked up in the plans, which are equal on all ranks, so that all
// ranks refuse alike; only then memory is taken and ranks are compared.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "kernels/recipe.hpp"
#include "optimizer/agreement.hpp"
#include "optimizer/optimizer.hpp"
#include "plan/memory.hpp"

namespace mxs {

void FreeBytes::operator()(std::byte *memory) const { std::free(memory); }

Optimizer::Optimizer() = default;

Optimizer::~Optimizer() {
  for (Unit *unit : units_) unit->detach();
}

namespace {

// Zeroed, so that all pages are taken now. bytes 0: a null pointer, and true.
bool take_zeroed(uint64_t bytes, AlignedBytes *taken) {
  if (bytes == 0) return true;
  const uint64_t rounded = align_up(bytes, 64);
  taken->reset(static_cast<std::byte *>(std::aligned_alloc(64, rounded)));
  if (!*taken) return false;
  std::memset(taken->get(), 0, rounded);
  return true;
}

bool is_stepped(mxs_rule rule) { return rule == MXS_RULE_MUON || rule == MXS_RULE_ADAMW; }

mxs_status check_tensor(const PlannedTensor &tensor) {
  const char *const name = tensor.name.c_str();
  if (tensor.rule == MXS_RULE_SHAMPOO || tensor.rule == MXS_RULE_SOAP)
    return set_error(MXS_NOT_BUILT, "tensor \"%.200s\" has the rule %s, which this release plans but cannot step", name,
                     tensor.rule == MXS_RULE_SOAP ? "soap" : "shampoo");
  if (!is_stepped(tensor.rule)) return MXS_OK;
  if (tensor.dtype != MXS_F32 && tensor.dtype != MXS_BF16 && tensor.dtype != MXS_F16)
    return set_error(MXS_NOT_BUILT, "tensor \"%.200s\" is %s; this release steps f32, bf16 and f16", name,
                     mxs_dtype_name(tensor.dtype));
  if (tensor.master_dtype != MXS_F32 && tensor.master_dtype != tensor.dtype)
    return set_error(MXS_NOT_BUILT,
                     "tensor \"%.200s\" has masters in %s; this release has f32, or the tensor's own dtype", name,
                     mxs_dtype_name(tensor.master_dtype));
  return MXS_OK;
}

constexpr int groups_max = 1 << 16;

}  // namespace

struct OptimizerBuilder {
  Optimizer *optimizer;
  std::map<std::pair<int64_t, int64_t>, Orthogonalizer *> of_shape = {};

  void take_settings(OptimizerComm comm, OptimizerSettings settings) {
    optimizer->gathered_.resize(comm.gather ? static_cast<size_t>(comm.rank_count) * sizeof(AgreementPart) : 0);
    optimizer->replica_words_.resize(comm.gather_replicas ? static_cast<size_t>(comm.replica_count) : 0);
    optimizer->summed_.resize(comm.gather ? 0 : agreement_words());
    optimizer->comm_ = std::move(comm);
    optimizer->settings_ = settings;
  }

  // Newton-Schulz tells by itself, for each shape.
  void log_choice() const {
    if (optimizer->comm_.rank == 0) log_line(MXS_LOG_INFO, "optimizer: element passes by %s", kernels().name);
  }

  mxs_status build(const std::vector<Unit *> &units) {
    mxs_status status = fenced([&] {
      mxs_status own = check_plans(units);
      if (own == MXS_OK) own = attach(units);
      if (own == MXS_OK) own = Team::create(&optimizer->team_, optimizer->comm_.thread_count);
      if (own == MXS_OK) own = collect_pieces();
      return own == MXS_OK ? take_memory() : own;
    });
    if (!optimizer->comm_.gather) return status;
    // One may lack memory, a backend or a free unit; the others must not wait for it.
    status = optimizer->comm_.settle(status);
    if (status == MXS_OK) status = compare_ranks();
    return optimizer->comm_.gather_replicas ? compare_replicas(status) : status;
  }

  // Owners step redundantly and stay equal only if they compute alike.
  mxs_status compare_replicas(mxs_status own) {
    const OptimizerComm &comm = optimizer->comm_;
    mxs_status status = comm.settle_replicas(own);
    if (status != MXS_OK) return status;
    const Fingerprints mine = fingerprints();
    std::vector<Fingerprints> all(static_cast<size_t>(comm.replica_count));
    status = comm.gather_replicas(&mine, all.data(), sizeof mine);
    for (size_t replica = 1; status == MXS_OK && replica < all.size(); ++replica) {
      if (all[replica].settings != all[0].settings)
        status = set_error(MXS_MISMATCH, "replica %zu makes its optimizer with another Muon preset, or of other units "
                           "or in another order, than replica 0", replica);
      else if (all[replica].arithmetic != all[0].arithmetic)
        status = set_error(MXS_MISMATCH, "replica %zu computes with another backend, thread count or class of CPU than "
                           "replica 0, so that their weights would part; this rank: %s, %d threads", replica,
                           arithmetic_name(optimizer->settings_.backend).c_str(), comm.thread_count);
    }
    // Only some ranks of a shard group may have other hardware in another replica.
    return comm.settle(status);
  }

  mxs_status check_plans(const std::vector<Unit *> &units) {
    int group_count = 0;
    for (const Unit *unit : units) {
      bool changes = false;
      const Plan &plan = unit->plan();
      for (int index : plan.units[static_cast<size_t>(unit->index())].tensors) {
        const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(index)];
        const mxs_status status = check_tensor(tensor);
        if (status != MXS_OK) return status;
        if (!is_stepped(tensor.rule) || tensor.tied_to >= 0) continue;
        if (const int count = plan.placements[tensor.placement_index].co_owner_count; count > 1)
          return set_error(MXS_NOT_BUILT,
                           "tensor \"%.200s\" is shared by %d co-owners, which this release plans but cannot step; "
                           "plan it with one owner, or step its unit yourself, through mxs_unit_shard",
                           tensor.name.c_str(), count);
        changes = true;
        if (tensor.group < 0 || tensor.group >= groups_max)
          return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\" is in group %d, not from 0 to %d",
                           tensor.name.c_str(), tensor.group, groups_max - 1);
        group_count = std::max(group_count, tensor.group + 1);
        optimizer->group_used_.resize(static_cast<size_t>(group_count));
        optimizer->group_used_[static_cast<size_t>(tensor.group)] = 1;
      }
      optimizer->unit_changes_.push_back(changes);
    }
    optimizer->values_.assign(static_cast<size_t>(group_count), MXS_GROUP_VALUES_INIT);
    return MXS_OK;
  }

  // Those that were attached are detached by ~Optimizer.
  mxs_status attach(const std::vector<Unit *> &units) {
    optimizer->units_.reserve(units.size());
    for (Unit *unit : units) {
      const mxs_status status = unit->attach();
      if (status != MXS_OK) return status;
      optimizer->units_.push_back(unit);
    }
    return MXS_OK;
  }

  mxs_status collect_pieces() {
    for (Unit *unit : optimizer->units_)
      for (const OwnedPlacement &owned : unit->owned()) {
        const PlannedTensor &tensor = unit->plan().tensors[static_cast<size_t>(owned.tensor)];
        if (tensor.frozen()) continue;
        OptimizedPiece piece;
        piece.unit = unit;
        piece.owned = &owned;
        piece.rule = tensor.rule;
        piece.group = tensor.group;
        if (tensor.rule == MXS_RULE_MUON) {
          const mxs_status status = take_matrices(unit->plan(), unit->plan().placements[owned.placement], &piece);
          if (status != MXS_OK) return status;
        }
        optimizer->pieces_.push_back(std::move(piece));
      }
    return MXS_OK;
  }

  mxs_status take_matrices(const Plan &plan, const Placement &placement, OptimizedPiece *piece) {
    for (uint64_t number = 0; number < placement.matrix_count; ++number) {
      const Matrix &planned = plan.matrices[placement.matrix_index + number];
      OptimizedMatrix matrix;
      matrix.rows = planned.rows;
      matrix.columns = planned.columns;
      matrix.row_stride = planned.row_stride;
      matrix.offset = planned.element_offset - placement.element_offset;
      matrix.update_scale =
          update_scale(scale_of(optimizer->settings_.preset), planned.scale_rows, planned.scale_columns);
      const mxs_status status = choose_kernels(&matrix);
      if (status != MXS_OK) return status;
      const char *const backend = matrix.orthogonalizer->backend();
      if (piece->backends.find(backend) == std::string::npos)
        piece->backends.append(piece->backends.empty() ? "" : ", ").append(backend);
      piece->matrices.push_back(matrix);
    }
    return MXS_OK;
  }

  // Matrices of one shape share an orthogonalizer.
  mxs_status choose_kernels(OptimizedMatrix *matrix) {
    Orthogonalizer *&shared = of_shape[{matrix->rows, matrix->columns}];
    if (!shared) {
      std::unique_ptr<Orthogonalizer> made;
      const mxs_status status =
          make_orthogonalizer(&made, matrix->rows, matrix->columns, recipe_of(optimizer->settings_.preset),
                              {optimizer->settings_.backend, MXS_ALGORITHM_AUTO}, optimizer->team_.get());
      if (status != MXS_OK) return status;
      log_line(MXS_LOG_INFO, "optimizer: newton-schulz %lld x %lld by %s", static_cast<long long>(matrix->rows),
               static_cast<long long>(matrix->columns), made->backend());
      shared = made.get();
      optimizer->orthogonalizers_.push_back(std::move(made));
    }
    matrix->orthogonalizer = shared;
    return MXS_OK;
  }

  mxs_status take_memory() {
    // 64-byte borders, so that a piece's rows don't share cache lines with another's.
    const auto float_bytes = [](uint64_t count) { return align_up(count * sizeof(float), 64); };
    const auto part_bytes = [&](const OptimizedPiece &piece) { return float_bytes(piece.owned->element_count); };
    uint64_t state_bytes = 0, update_bytes = 0, block_bytes = 0, matrix_bytes = 0;
    for (const OptimizedPiece &piece : optimizer->pieces_) {
      const uint64_t parts = piece.rule == MXS_RULE_MUON ? 1 : piece.rule == MXS_RULE_ADAMW ? 2 : 0;
      state_bytes += parts * part_bytes(piece);
      optimizer->state_count_ += parts;
      if (piece.rule != MXS_RULE_MUON) continue;
      update_bytes = std::max(update_bytes, part_bytes(piece));
      for (const OptimizedMatrix &matrix : piece.matrices) {
        // The planned size serves any backend; the second is there should oneDNN's scratch ever outgrow it.
        matrix_bytes = std::max(
            {matrix_bytes, newton_schulz_workspace_bytes(matrix.rows, matrix.columns, optimizer->comm_.thread_count),
             matrix.orthogonalizer->workspace_bytes()});
        if (matrix.row_stride != matrix.columns)
          block_bytes = std::max(block_bytes, float_bytes(static_cast<uint64_t>(matrix.rows * matrix.columns)));
      }
    }
    const uint64_t workspace_bytes = update_bytes + block_bytes + matrix_bytes;
    if (!take_zeroed(state_bytes, &optimizer->state_) || !take_zeroed(workspace_bytes, &optimizer->workspace_))
      return set_error(MXS_OUT_OF_MEMORY, "rank %d has no %llu bytes for the optimizer's state and workspace",
                       optimizer->comm_.rank,
                       static_cast<unsigned long long>(state_bytes + workspace_bytes));
    optimizer->state_bytes_ = state_bytes;
    optimizer->workspace_bytes_ = workspace_bytes;
    std::byte *next = optimizer->state_.get();
    const auto take_part = [&](const OptimizedPiece &piece) {
      float *const part = reinterpret_cast<float *>(next);
      next += part_bytes(piece);
      return part;
    };
    for (OptimizedPiece &piece : optimizer->pieces_) {
      if (is_stepped(piece.rule)) piece.first = take_part(piece);
      if (piece.rule == MXS_RULE_ADAMW) piece.second = take_part(piece);
    }
    optimizer->update_ = reinterpret_cast<float *>(optimizer->workspace_.get());
    optimizer->block_ = reinterpret_cast<float *>(optimizer->workspace_.get() + update_bytes);
    for (const std::unique_ptr<Orthogonalizer> &orthogonalizer : optimizer->orthogonalizers_)
      orthogonalizer->bind(optimizer->workspace_.get() + update_bytes + block_bytes);
    return MXS_OK;
  }

  // What must be equal, and what makes bits differ: the second is refused under rank order, and logged otherwise.
  struct Fingerprints {
    uint64_t settings = 0, arithmetic = 0;
  };

  Fingerprints fingerprints() const {
    Fingerprint settings, arithmetic;
    settings.add(static_cast<uint64_t>(optimizer->settings_.preset)).add(optimizer->units_.size());
    for (const Unit *unit : optimizer->units_)
      settings.add(unit->plan().fingerprint).add(static_cast<uint64_t>(unit->index()));
    arithmetic.add(arithmetic_name(optimizer->settings_.backend))
        .add(static_cast<uint64_t>(optimizer->comm_.thread_count));
    return {settings.value(), arithmetic.value()};
  }

  mxs_status compare_ranks() {
    const OptimizerComm &comm = optimizer->comm_;
    const bool rank_order = std::any_of(optimizer->units_.begin(), optimizer->units_.end(),
                                        [](const Unit *unit) { return unit->rank_order(); });
    const Fingerprints mine = fingerprints();
    std::vector<Fingerprints> all(static_cast<size_t>(comm.rank_count));
    const mxs_status status = comm.gather(&mine, all.data(), sizeof mine);
    if (status != MXS_OK) return status;
    for (int rank = 1; rank < comm.rank_count; ++rank) {
      const Fingerprints &other = all[static_cast<size_t>(rank)];
      if (other.settings != all[0].settings)
        return set_error(MXS_MISMATCH,
                         "rank %d makes its optimizer with another Muon preset, or of other units or in another order, "
                         "than rank 0",
                         rank);
      if (other.arithmetic == all[0].arithmetic) continue;
      if (rank_order)
        return set_error(
            MXS_MISMATCH,
            "rank %d computes with another backend, thread count or class of CPU than rank 0, so that equal "
            "bits cannot be promised (MXS_RANK_ORDER); this rank: %s, %d threads",
            rank, arithmetic_name(optimizer->settings_.backend).c_str(), comm.thread_count);
      log_line(MXS_LOG_WARNING, "optimizer: rank %d computes with another backend, thread count or CPU than rank 0",
               rank);
    }
    return MXS_OK;
  }
};

mxs_status make_optimizer(std::unique_ptr<Optimizer> *optimizer, const std::vector<Unit *> &units, OptimizerComm comm,
                          OptimizerSettings settings) {
  auto made = std::make_unique<Optimizer>();
  OptimizerBuilder builder = {made.get()};
  builder.take_settings(std::move(comm), settings);
  const mxs_status status = builder.build(units);
  if (status != MXS_OK) return status;
  builder.log_choice();
  *optimizer = std::move(made);
  return MXS_OK;
}

}  // namespace mxs
