// SPDX-License-Identifier: Apache-2.0
// Making an optimizer. Whatever can be refused is looked up in the plans, which are equal on all ranks, so that all
// ranks refuse alike; only then memory is taken and ranks are compared.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "base/words.hpp"
#include "optimizer/agreement.hpp"
#include "optimizer/compare.hpp"
#include "optimizer/optimizer.hpp"
#include "plan/memory.hpp"

namespace mxs {

void FreeBytes::operator()(std::byte *memory) const { std::free(memory); }

Optimizer::Optimizer() = default;

Optimizer::~Optimizer() {
  // Peers that are late end what is in flight; the comm's deadline ends what they don't.
  if (device_step_) fenced([&] { return wait_for_report(device_step_->fetch_latest()); });
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

bool is_stepped(mxs_rule rule) { return rule != MXS_RULE_EXTERNAL && rule != MXS_RULE_FROZEN; }

mxs_status check_tensor(const PlannedTensor &tensor, const OptimizerSettings &settings) {
  const char *const name = tensor.name.c_str();
  if (!is_stepped(tensor.rule)) return MXS_OK;
  if (tensor.dtype != MXS_F32 && tensor.dtype != MXS_BF16 && tensor.dtype != MXS_F16)
    return set_error(MXS_NOT_BUILT, "tensor \"%.200s\" is %s; this release steps f32, bf16 and f16", name,
                     mxs_dtype_name(tensor.dtype));
  if (tensor.master_dtype != MXS_F32 && tensor.master_dtype != tensor.dtype)
    return set_error(MXS_NOT_BUILT,
                     "tensor \"%.200s\" has masters in %s; this release has f32, or the tensor's own dtype", name,
                     mxs_dtype_name(tensor.master_dtype));
  if (settings.rounding == MXS_ROUND_STOCHASTIC && tensor.dtype == MXS_F16 && tensor.master_dtype == MXS_F16)
    return set_error(MXS_NOT_BUILT,
                     "tensor \"%.200s\" is f16 without an fp32 master, but stochastic rounding is for bf16; give it "
                     "master_dtype MXS_F32", name);
  return MXS_OK;
}

constexpr int groups_max = 1 << 16;

// What a piece's stepper is made of; pieces that are alike share one.
struct StepperKey {
  mxs_rule rule = MXS_RULE_AUTO;
  StepMatrices matrices;

  auto tie() const {
    const StepMatrices &m = matrices;
    return std::tuple(rule, m.dtype, m.weights, m.rounding, m.tensor_id, m.first_element, m.rows, m.columns,
                      m.shared.context, m.shared.whole_rows, m.shared.first_row);
  }
  static auto tie(const StepBlock &b) {
    return std::tuple(b.first_row, b.rows, b.first_column, b.columns, b.scale_rows, b.scale_columns);
  }
  bool operator<(const StepperKey &other) const {
    if (tie() != other.tie()) return tie() < other.tie();
    return std::lexicographical_compare(
        matrices.blocks.begin(), matrices.blocks.end(), other.matrices.blocks.begin(), other.matrices.blocks.end(),
        [](const StepBlock &a, const StepBlock &b) { return tie(a) < tie(b); });
  }
};

}  // namespace

struct OptimizerBuilder {
  Optimizer *optimizer;
  const OptimizerSettings &settings;
  // What host steppers are made of: `settings`, or those of the reference, which describes state on the device.
  OptimizerSettings host_settings = settings;
  mxs_newton_schulz host_newton_schulz = MXS_NEWTON_SCHULZ_INIT;
  OptimizerSettings by_reference = {};
  struct Made {
    Stepper *stepper = nullptr;
    DeviceStepper *device_stepper = nullptr;
  };
  std::map<StepperKey, Made> made = {};
  RulesUsed used = {};

  void take_comm(OptimizerComm comm) {
    optimizer->gathered_.resize(comm.gather ? static_cast<size_t>(comm.rank_count) * sizeof(AgreementPart) : 0);
    optimizer->replica_words_.resize(comm.gather_replicas ? static_cast<size_t>(comm.replica_count) : 0);
    optimizer->summed_.resize(comm.gather ? 0 : agreement_words());
    optimizer->comm_ = std::move(comm);
    optimizer->options_ = option_hashes(settings);
    optimizer->options_hash_ = optimizer->options_.value();
  }

  // Products are told by themselves, for each shape.
  void log_choice() const {
    if (optimizer->comm_.rank == 0)
      log_line(MXS_LOG_INFO, "optimizer: element passes by %s",
               optimizer->device_ ? optimizer->device_->info().name.c_str() : kernels().name);
  }

  mxs_status build(const std::vector<Unit *> &units) {
    mxs_status status = fenced([&] {
      mxs_status own = check_plans(units);
      if (own == MXS_OK) own = attach(units);
      if (own == MXS_OK) own = find_device();
      if (own == MXS_OK) own = Team::create(&optimizer->team_, optimizer->comm_.thread_count);
      if (own == MXS_OK) own = check_options(host_settings, used, optimizer->team_.get(), note_rule());
      if (own == MXS_OK) own = collect_pieces();
      if (own != MXS_OK) return own;
      return optimizer->device_ ? take_device_memory() : take_memory();
    });
    const OptimizerComm &comm = optimizer->comm_;
    if (!comm.gather) return status == MXS_OK ? make_sums() : status;
    // One may lack memory, a backend or a free unit; the others must not wait for it.
    status = comm.settle(status);
    OptimizerFingerprints mine;
    if (status == MXS_OK) mine = fingerprints(optimizer->units_, settings, used, comm.thread_count);
    const bool rank_order = std::any_of(optimizer->units_.begin(), optimizer->units_.end(),
                                        [](const Unit *unit) { return unit->rank_order(); });
    if (status == MXS_OK) status = compare_ranks(comm, mine, settings, rank_order);
    if (status == MXS_OK && !optimizer->co_owners_.empty()) status = comm.settle(make_sums());
    if (status == MXS_OK && settings.backup) status = make_backup();
    return comm.gather_replicas ? compare_replicas(comm, mine, settings, status) : status;
  }

  // What a rule keeps, for tensors of which this rank may have no piece.
  std::function<void(mxs_rule, const Stepper &)> note_rule() {
    return [this](mxs_rule rule, const Stepper &stepper) {
      optimizer->rule_parts_.push_back({rule, preset_of(settings, rule), stepper.state_parts()});
    };
  }

  mxs_status check_plans(const std::vector<Unit *> &units) {
    int group_count = 0;
    for (const Unit *unit : units) {
      bool changes = false;
      const Plan &plan = unit->plan();
      for (int index : plan.units[static_cast<size_t>(unit->index())].tensors) {
        const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(index)];
        const mxs_status status = check_tensor(tensor, settings);
        if (status != MXS_OK) return status;
        if (!is_stepped(tensor.rule) || tensor.tied_to >= 0) continue;
        changes = true;
        if (settings.backup && plan.placements[tensor.placement_index].co_owner_count > 1)
          return set_error(MXS_NOT_BUILT, "tensor \"%.200s\" is shared by %d ranks (co_owners); this release backs up "
                           "matrices of one owner", tensor.name.c_str(),
                           plan.placements[tensor.placement_index].co_owner_count);
        used.decomposes |= tensor.rule == MXS_RULE_SHAMPOO || tensor.rule == MXS_RULE_SOAP;
        used.orthogonalizes |= tensor.rule == MXS_RULE_MUON;
        if (tensor.group < 0 || tensor.group >= groups_max)
          return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\" is in group %d, not from 0 to %d",
                           tensor.name.c_str(), tensor.group, groups_max - 1);
        group_count = std::max(group_count, tensor.group + 1);
        optimizer->group_used_.resize(static_cast<size_t>(group_count));
        optimizer->group_wants_beta2_.resize(static_cast<size_t>(group_count));
        optimizer->group_used_[static_cast<size_t>(tensor.group)] = 1;
        if (tensor.rule != MXS_RULE_SHAMPOO) optimizer->group_wants_beta2_[static_cast<size_t>(tensor.group)] = 1;
      }
      optimizer->unit_changes_.push_back(changes);
    }
    optimizer->values_.assign(static_cast<size_t>(group_count), MXS_GROUP_VALUES_INIT);
    return MXS_OK;
  }

  // Of a tensor that ranks share, found or made. On every rank, so that all make sums for the same groups.
  CoOwners *co_owners_of(Unit *unit, const PlannedTensor &tensor) {
    const Plan &plan = unit->plan();
    std::vector<int> members;
    for (uint64_t i = 0; i < tensor.placement_count; ++i)
      members.push_back(plan.placements[tensor.placement_index + i].owner);
    std::sort(members.begin(), members.end());
    auto &all = optimizer->co_owners_;
    auto found = std::find_if(all.begin(), all.end(), [&](const std::unique_ptr<CoOwners> &each) {
      return each->members == members && &each->unit->comm() == &unit->comm();
    });
    if (found == all.end()) {
      all.push_back(std::make_unique<CoOwners>());
      all.back()->unit = unit;
      all.back()->members = members;
      found = all.end() - 1;
    }
    // The Gram matrix, in blocks of 32; of a wide matrix also columns of one rank.
    const uint64_t rows = static_cast<uint64_t>(tensor.shape[0]), columns = static_cast<uint64_t>(tensor.shape[1]);
    const uint64_t n = align_up(std::min(rows, columns), 32);
    const uint64_t exchange = rows < columns ? rows * ((columns - 1) / members.size() + 1) : 0;
    (*found)->values_max = std::max({(*found)->values_max, n * (n + 32) / 2, exchange});
    return found->get();
  }

  // In the same order on all ranks, to the end even if one fails, so that they stay in step.
  mxs_status make_sums() {
    mxs_status first = MXS_OK;
    for (const std::unique_ptr<CoOwners> &group : optimizer->co_owners_) {
      const mxs_status status =
          optimizer->comm_.make_sum(*group->unit, group->members, group->values_max, &group->sum);
      if (first == MXS_OK) first = status;
    }
    return first;
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

  // All units are in the memory of one device, or none is in a device's.
  mxs_status find_device() {
    optimizer->device_ = optimizer->units_[0]->device();
    optimizer->decomposes_ = used.decomposes;
    for (const Unit *unit : optimizer->units_)
      if (unit->device() != optimizer->device_)
        return set_error(MXS_INVALID_ARGUMENT, "units %d and %d are in different memory (host, or another device); an "
                         "optimizer steps units of one", optimizer->units_[0]->index(), unit->index());
    if (!optimizer->device_) {
      if (settings.backend == MXS_BACKEND_CUBLAS)
        return set_error(MXS_NOT_BUILT, "backend cublas is for units in CUDA memory, but these are in host memory");
      return MXS_OK;
    }
    host_settings.backend = host_settings.muon.backend = MXS_BACKEND_REFERENCE;
    host_settings.shampoo.backend = host_settings.soap.backend = MXS_BACKEND_REFERENCE;
    if (!settings.muon.newton_schulz) return MXS_OK;
    host_newton_schulz = *settings.muon.newton_schulz;
    host_newton_schulz.backend = MXS_BACKEND_REFERENCE;
    host_settings.muon.newton_schulz = &host_newton_schulz;
    return MXS_OK;
  }

  void find_co_owners() {
    for (Unit *unit : optimizer->units_)
      for (const int index : unit->plan().units[static_cast<size_t>(unit->index())].tensors) {
        const PlannedTensor &tensor = unit->plan().tensors[static_cast<size_t>(index)];
        if (!is_stepped(tensor.rule) || tensor.tied_to >= 0) continue;
        if (unit->plan().placements[tensor.placement_index].co_owner_count > 1) co_owners_of(unit, tensor);
      }
  }

  // Where a rank has rows of a matrix that others share.
  SharedMatrix shared_of(const Plan &plan, const OptimizedPiece &piece, const Placement &placement) {
    SharedMatrix shared;
    if (placement.co_owner_count == 1) return shared;
    const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(piece.owned->tensor)];
    CoOwners *const group = co_owners_of(piece.unit, tensor);
    const auto own = std::find(group->members.begin(), group->members.end(), placement.owner);
    shared.whole_rows = tensor.shape[0];
    shared.first_row = static_cast<int64_t>(placement.element_offset) / tensor.shape[1];
    shared.member = static_cast<int>(own - group->members.begin());
    shared.member_count = placement.co_owner_count;
    shared.sum = CoOwners::call;
    shared.context = group;
    return shared;
  }

  int64_t number_of(const Unit *unit) const {
    return std::find(optimizer->units_.begin(), optimizer->units_.end(), unit) - optimizer->units_.begin();
  }

  mxs_status collect_pieces() {
    find_co_owners();
    for (Unit *unit : optimizer->units_)
      for (const OwnedPlacement &owned : unit->owned()) {
        const PlannedTensor &tensor = unit->plan().tensors[static_cast<size_t>(owned.tensor)];
        if (tensor.frozen()) continue;
        OptimizedPiece piece;
        piece.unit = unit;
        piece.owned = &owned;
        piece.number = number_of(unit) << 32 | owned.tensor;
        piece.rule = tensor.rule;
        piece.group = tensor.group;
        if (is_stepped(tensor.rule)) {
          const mxs_status status = choose_stepper(unit->plan(), &piece);
          if (status != MXS_OK) return status;
        }
        optimizer->pieces_.push_back(std::move(piece));
      }
    return MXS_OK;
  }

  // A placement of adamw is a run of elements; else it is one matrix, or its column blocks are several.
  StepMatrices matrices_of(const Plan &plan, const OptimizedPiece &piece) {
    const OwnedPlacement &owned = *piece.owned;
    const Placement &placement = plan.placements[owned.placement];
    StepMatrices matrices;
    matrices.dtype = owned.dtype;
    matrices.weights = owned.master ? MXS_WEIGHTS_MASTER : MXS_WEIGHTS_ALONE;
    if (settings.rounding == MXS_ROUND_STOCHASTIC && owned.dtype == MXS_BF16 && !owned.master) {
      matrices.rounding = MXS_ROUND_STOCHASTIC;
      matrices.seed = settings.seed;
      matrices.tensor_id = static_cast<uint64_t>(owned.tensor);
      matrices.first_element = placement.element_offset;
    }
    const bool is_run = piece.rule == MXS_RULE_ADAMW;
    matrices.rows = is_run ? 1 : placement.shape[0];
    matrices.columns = is_run ? static_cast<int64_t>(owned.element_count) : placement.shape[1];
    matrices.weight_row = matrices.gradient_row = matrices.columns;
    matrices.shared = shared_of(plan, piece, placement);
    matrices.weight_matrix = matrices.gradient_matrix = static_cast<int64_t>(owned.element_count);
    if (is_run) matrices.blocks = {{0, 1, 0, matrices.columns, 1, matrices.columns}};
    for (uint64_t number = 0; !is_run && number < placement.matrix_count; ++number) {
      const Matrix &planned = plan.matrices[placement.matrix_index + number];
      matrices.blocks.push_back({0, planned.rows,
                                 static_cast<int64_t>(planned.element_offset - placement.element_offset),
                                 planned.columns, planned.scale_rows, planned.scale_columns});
    }
    return matrices;
  }

  mxs_status choose_stepper(const Plan &plan, OptimizedPiece *piece) {
    StepperKey key = {piece->rule, matrices_of(plan, *piece)};
    Made &shared = made[key];
    if (!shared.stepper) {
      const mxs_status status = make_steppers(key, &shared);
      if (status != MXS_OK)
        return set_error(status, "tensor \"%.200s\": %s",
                         plan.tensors[static_cast<size_t>(piece->owned->tensor)].name.c_str(),
                         std::string(last_error_text()).c_str());
      const char *const backend =
          shared.device_stepper ? shared.device_stepper->backend() : shared.stepper->backend();
      if (*backend != '\0')
        log_line(MXS_LOG_INFO, "optimizer: %s of %lld x %lld by %s", rule_name(piece->rule),
                 static_cast<long long>(key.matrices.rows), static_cast<long long>(key.matrices.columns), backend);
    }
    piece->stepper = shared.stepper;
    piece->device_stepper = shared.device_stepper;
    return MXS_OK;
  }

  mxs_status make_steppers(const StepperKey &key, Made *shared) {
    Optimizer &made_for = *optimizer;
    if (made_for.device_ && key.matrices.shared.sum)
      return set_error(MXS_NOT_BUILT, "%d ranks share this matrix (co_owners); in CUDA memory this release steps "
                       "matrices of one owner", key.matrices.shared.member_count);
    std::unique_ptr<Stepper> stepper;
    mxs_status status = make_stepper(&stepper, key.rule, key.matrices, host_settings, made_for.team_.get());
    if (status != MXS_OK) return status;
    if (made_for.device_) {
      std::unique_ptr<DeviceStepper> device_stepper;
      status = make_device_stepper(&device_stepper, *made_for.device_, key.rule, key.matrices, settings, *stepper);
      if (status != MXS_OK) return status;
      shared->device_stepper = device_stepper.get();
      made_for.device_steppers_.push_back(std::move(device_stepper));
    }
    shared->stepper = stepper.get();
    made_for.steppers_.push_back(std::move(stepper));
    return MXS_OK;
  }

  mxs_status take_memory() {
    uint64_t state_bytes = 0, workspace_bytes = 0;
    for (const OptimizedPiece &piece : optimizer->pieces_) {
      if (!piece.stepper) continue;
      state_bytes += piece.stepper->state_bytes();
      optimizer->state_count_ += piece.stepper->state_parts().size();
      // Pieces take turns. The planned size serves any backend; the second is there for options that want more.
      const Plan &plan = piece.unit->plan();
      workspace_bytes = std::max({workspace_bytes, piece.stepper->workspace_bytes(),
                                  placement_workspace_bytes(plan, plan.placements[piece.owned->placement],
                                                            optimizer->comm_.thread_count)});
    }
    if (!take_zeroed(state_bytes, &optimizer->state_) || !take_zeroed(workspace_bytes, &optimizer->workspace_))
      return set_error(MXS_OUT_OF_MEMORY, "rank %d has no %llu bytes for the optimizer's state and workspace",
                       optimizer->comm_.rank,
                       static_cast<unsigned long long>(state_bytes + workspace_bytes));
    optimizer->state_bytes_ = state_bytes;
    optimizer->workspace_bytes_ = workspace_bytes;
    std::byte *next = optimizer->state_.get();
    for (OptimizedPiece &piece : optimizer->pieces_) {
      if (!piece.stepper) continue;
      piece.state = next;
      piece.stepper->init(piece.state);
      next += piece.stepper->state_bytes();
    }
    return MXS_OK;
  }

  // ---- backup ----

  // Of whatever rank's placement: by the reference, whose state is that of all backends.
  mxs_status state_of(Unit &unit, uint64_t number, std::map<StepperKey, std::shared_ptr<const StateShape>> *known,
                      std::shared_ptr<const StateShape> *shape) {
    const Plan &plan = unit.plan();
    const Placement &placement = plan.placements[number];
    const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(placement.tensor)];
    if (!is_stepped(tensor.rule)) return MXS_OK;
    OwnedPlacement owned;
    owned.placement = number;
    owned.tensor = placement.tensor;
    owned.dtype = tensor.dtype;
    owned.master_dtype = tensor.master_dtype;
    owned.element_count = placement.element_count;
    float master = 0;
    if (tensor.master_dtype != tensor.dtype) owned.master = &master;  // that there is one is all that matters
    OptimizedPiece piece;
    piece.unit = &unit;
    piece.owned = &owned;
    piece.rule = tensor.rule;
    StepperKey key = {piece.rule, matrices_of(plan, piece)};
    key.matrices.tensor_id = key.matrices.first_element = 0;  // no matter to its state
    std::shared_ptr<const StateShape> &found = (*known)[key];
    if (!found) {
      std::unique_ptr<Stepper> stepper;
      const mxs_status status = make_stepper(&stepper, key.rule, key.matrices, reference_settings(),
                                             optimizer->team_.get());
      if (status != MXS_OK) return status;
      found = std::make_shared<StateShape>(StateShape{stepper->state_parts(), stepper->state_bytes()});
    }
    *shape = found;
    return MXS_OK;
  }

  const OptimizerSettings &reference_settings() {
    by_reference = settings;
    for (mxs_backend *backend : {&by_reference.backend, &by_reference.muon.backend, &by_reference.shampoo.backend,
                                 &by_reference.soap.backend})
      *backend = MXS_BACKEND_REFERENCE;
    if (!settings.muon.newton_schulz) return by_reference;
    host_newton_schulz = *settings.muon.newton_schulz;
    host_newton_schulz.backend = MXS_BACKEND_REFERENCE;
    by_reference.muon.newton_schulz = &host_newton_schulz;
    return by_reference;
  }

  // Own pieces in the order of a rank's packed bytes: by unit, then as the unit has them. Frozen ones have no state.
  std::vector<Backup::Live> live_pieces() const {
    std::vector<Backup::Live> live;
    size_t next = 0;
    for (const Unit *unit : optimizer->units_)
      for (const OwnedPlacement &owned : unit->owned()) {
        Backup::Live piece;
        piece.values = static_cast<std::byte *>(owned.master ? owned.master : owned.weights);
        if (next < optimizer->pieces_.size() && optimizer->pieces_[next].owned == &owned)
          piece.state = optimizer->pieces_[next++].state;
        live.push_back(piece);
      }
    return live;
  }

  mxs_status make_backup() {
    std::map<StepperKey, std::shared_ptr<const StateShape>> known;
    PackedRanks packed;
    const OptimizerComm &comm = optimizer->comm_;
    const PackedRanks::StateOf state_of_placement =
        [&](Unit &unit, uint64_t number, std::shared_ptr<const StateShape> *shape) {
          return state_of(unit, number, &known, shape);
        };
    const mxs_status status = comm.settle(
        fenced([&] { return packed.describe(optimizer->units_, comm.rank_count, state_of_placement); }));
    if (status != MXS_OK) return status;
    return comm.settle(fenced([&] {
      return Backup::create(&optimizer->backup_, comm.make_exchange, optimizer->units_[0]->plan().topology, comm.rank,
                            std::move(packed), live_pieces());
    }));
  }

  // ---- units in CUDA memory ----

  static constexpr uint64_t device_border = 256;

  mxs_status take_device_memory() {
    Device &device = *optimizer->device_;
    uint64_t state_bytes = 0, workspace_bytes = 0;
    for (const OptimizedPiece &piece : optimizer->pieces_) {
      if (!piece.stepper) continue;
      state_bytes += align_up(piece.stepper->state_bytes(), device_border);
      optimizer->state_count_ += piece.stepper->state_parts().size();
      workspace_bytes = std::max(workspace_bytes, piece.device_stepper->workspace_bytes());
    }
    mxs_status status = device.allocate(state_bytes, &optimizer->device_state_);
    if (status == MXS_OK) status = device.allocate(workspace_bytes, &optimizer->device_workspace_);
    if (status == MXS_OK) status = DeviceStep::create(&optimizer->device_step_, device, device_step_shape());
    if (status != MXS_OK) return status;
    optimizer->state_bytes_ = state_bytes;
    optimizer->workspace_bytes_ = workspace_bytes;
    const DeviceStream stream = optimizer->device_step_->own_stream();
    if (state_bytes) status = device.zero(optimizer->device_state_.data(), state_bytes, stream);
    if (status == MXS_OK) status = device.synchronize(stream);
    std::byte *next = optimizer->device_state_.data();
    for (OptimizedPiece &piece : optimizer->pieces_) {
      if (!piece.stepper) continue;
      piece.state = next;
      next += align_up(piece.stepper->state_bytes(), device_border);
      const bool zero = piece.rule == MXS_RULE_MUON || piece.rule == MXS_RULE_ADAMW;
      if (status == MXS_OK && !zero) status = optimizer->init_state(piece);
    }
    return status == MXS_OK ? device.synchronize(stream) : status;
  }

  DeviceStep::Shape device_step_shape() const {
    DeviceStep::Shape shape;
    shape.rank = optimizer->comm_.gather ? optimizer->comm_.rank : 0;
    shape.rank_count = optimizer->comm_.gather ? optimizer->comm_.rank_count : 1;
    shape.group_count = optimizer->values_.size();
    for (const OptimizedPiece &piece : optimizer->pieces_) {
      // Over a caller's sum one of the replicas counts in the norm; whether the others are finite is known from it.
      if (!optimizer->comm_.gather && !piece.unit->first_replica()) continue;
      if (piece.owned->element_count) shape.pieces.push_back({piece.owned->gradient, piece.owned->element_count, 0});
    }
    return shape;
  }
};

// The first bytes are the host's.
mxs_status Optimizer::init_state(const OptimizedPiece &piece) {
  if (!device_) {
    piece.stepper->init(piece.state);
    return MXS_OK;
  }
  const DeviceStream stream = device_step_->own_stream();
  AlignedBytes first;
  if (!take_zeroed(piece.stepper->state_bytes(), &first))
    return set_error(MXS_OUT_OF_MEMORY, "rank %d has no %llu bytes of host memory for the first state of a piece",
                     comm_.rank, static_cast<unsigned long long>(piece.stepper->state_bytes()));
  piece.stepper->init(first.get());
  const mxs_status status = device_->copy(piece.state, first.get(), piece.stepper->state_bytes(), stream);
  return status == MXS_OK ? device_->synchronize(stream) : status;
}

mxs_status make_optimizer(std::unique_ptr<Optimizer> *optimizer, const std::vector<Unit *> &units, OptimizerComm comm,
                          const OptimizerSettings &settings) {
  auto made = std::make_unique<Optimizer>();
  OptimizerBuilder builder = {made.get(), settings};
  builder.take_comm(std::move(comm));
  const mxs_status status = builder.build(units);
  if (status != MXS_OK) return status;
  builder.log_choice();
  *optimizer = std::move(made);
  return MXS_OK;
}

}  // namespace mxs
