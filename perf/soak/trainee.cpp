// SPDX-License-Identifier: Apache-2.0
#include "soak/trainee.hpp"

#include <algorithm>
#include <cstring>

namespace soak {

namespace {

constexpr int gradient_most = 8;  // 8 ranks times two rounds of it are exact in bf16

void put(void *data, mxs_dtype dtype, uint64_t index, int number) {
  const uint32_t bits = whole_element(number, dtype).bits;
  const uint64_t width = mxs_dtype_bytes(dtype);
  std::memcpy(static_cast<std::byte *>(data) + index * width, &bits, width);
}

bool skips(int rank, int unit, uint64_t salt) {
  return mix(salt + 77, static_cast<uint64_t>(rank * 100 + unit)) % 6 == 0;
}

// The first of a unit's tensors is always opened.
bool leaves_out(int rank, int tensor, uint64_t salt, bool is_first) {
  return !is_first && mix(salt + 78, static_cast<uint64_t>(rank * 1000 + tensor)) % 5 == 0;
}

}  // namespace

std::vector<int> Model::trained(int unit) const {
  std::vector<int> found;
  for (size_t i = 0; i < tensors.size(); i++)
    if (tensors[i].unit == unit && tensors[i].rule != MXS_RULE_FROZEN && !tensors[i].tied_to &&
        element_count(static_cast<int>(i)) > 0)
      found.push_back(static_cast<int>(i));
  return found;
}

uint64_t Model::element_count(int tensor) const {
  const mxs_tensor &each = tensors[static_cast<size_t>(tensor)];
  uint64_t count = 1;
  for (int i = 0; i < each.dimension_count; i++) count *= static_cast<uint64_t>(each.shape[i]);
  return count;
}

Model draw_model(Choices *choices, uint64_t elements_max) {
  Model model;
  model.unit_count = static_cast<int>(choices->between(1, 4));
  for (int unit = 0; unit < model.unit_count; unit++) {
    const int64_t count = choices->between(1, 5);
    for (int64_t i = 0; i < count; i++) {
      mxs_tensor tensor = MXS_TENSOR_INIT;
      tensor.unit = unit;
      tensor.dtype = choices->of<mxs_dtype>({MXS_F32, MXS_BF16, MXS_F16});
      tensor.gradient_dtype = choices->of<mxs_dtype>({MXS_F32, MXS_BF16, MXS_F16});
      tensor.dimension_count = static_cast<int32_t>(choices->of<int64_t>({1, 2, 2, 2, 3}));
      uint64_t left = std::max<uint64_t>(1, elements_max / static_cast<uint64_t>(count));
      for (int d = 0; d < tensor.dimension_count; d++) {
        const uint64_t most = d == 0 && tensor.dimension_count == 3 ? 5 : tensor.dimension_count == 1 ? left : 160;
        tensor.shape[d] = static_cast<int64_t>(choices->size(std::max<uint64_t>(1, std::min(left, most))));
        left = std::max<uint64_t>(1, left / static_cast<uint64_t>(tensor.shape[d]));
      }
      // The first of a unit is trained, so that every unit has a gradient.
      if (i > 0 && choices->one_in(8)) tensor.rule = MXS_RULE_FROZEN;
      else if (choices->one_in(4)) tensor.rule = MXS_RULE_ADAMW;
      model.names.push_back("unit" + std::to_string(unit) + ".w" + std::to_string(i));
      model.tensors.push_back(tensor);
    }
  }
  for (size_t i = 0; i < model.tensors.size(); i++) model.tensors[i].name = model.names[i].c_str();
  return model;
}

Model with_fp32_gradients(Model model) {
  for (size_t i = 0; i < model.tensors.size(); i++) {
    model.tensors[i].gradient_dtype = MXS_F32;
    model.tensors[i].name = model.names[i].c_str();
  }
  return model;
}

Trainee::Trainee(mxs_comm *comm, const Model &model, const mxs_unit_options &unit_options,
                 const mxs_plan_options *plan_options, bool backup)
    : model_(model) {
  mxs_topology *found = nullptr;
  mxs::check(mxs_comm_topology(comm, &found));
  const mxs::topology topology(found);
  plan_ = mxs::make_plan(model.tensors, topology, plan_options);
  for (int index = 0; index < model.unit_count; index++) {
    mxs_unit *made = nullptr;
    mxs::check(mxs_unit_create(&made, comm, plan_.get(), index, &unit_options));
    units_.emplace_back(made);
  }
  mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
  options.thread_count = 1;
  options.backup = backup ? 1 : 0;
  optimizer_ = mxs::make_optimizer(units_, &options);
}

std::vector<mxs_unit *> Trainee::handles() const {
  std::vector<mxs_unit *> found;
  for (const mxs::unit &unit : units_) found.push_back(unit.get());
  return found;
}

void Trainee::fill(uint64_t salt) {
  for (uint64_t number = 0; number < mxs_plan_placement_count(plan_.get()); number++) {
    mxs_placement piece = MXS_PLACEMENT_INIT;
    mxs::check(mxs_plan_placement(plan_.get(), number, &piece));
    mxs_view view = MXS_VIEW_INIT;
    mxs::check(mxs_unit_shard(unit(piece.unit), number, &view));
    for (uint64_t i = 0; i < view.bytes / std::max<uint64_t>(1, mxs_dtype_bytes(view.dtype)); i++)
      put(view.data, view.dtype, i, whole_number(piece.tensor, piece.element_offset + i, salt));
    mxs::check(mxs_unit_commit(unit(piece.unit), &view));
  }
}

mxs_verdict Trainee::step(const mxs_step &step) {
  mxs_verdict verdict = MXS_VERDICT_INIT;
  mxs::check(mxs_optimizer_step(optimizer_.get(), &step, &verdict));
  return verdict;
}

uint64_t compare_unit(const Trainee &trainee, const Trainee &reference, int unit, int32_t mode) {
  uint64_t bytes = 0;
  mxs::check(mxs_unit_wait(trainee.unit(unit), nullptr));
  mxs::check(mxs_unit_gather(reference.unit(unit), nullptr));
  mxs::check(mxs_unit_wait(reference.unit(unit), nullptr));
  for (size_t i = 0; i < trainee.model().tensors.size(); i++) {
    if (trainee.model().tensors[i].unit != unit) continue;
    mxs_view found = MXS_VIEW_INIT, wanted = MXS_VIEW_INIT;
    mxs::check(mxs_unit_tensor(trainee.unit(unit), static_cast<int32_t>(i), &found));
    mxs::check(mxs_unit_tensor(reference.unit(unit), static_cast<int32_t>(i), &wanted));
    if (found.bytes != wanted.bytes || (found.bytes > 0 && std::memcmp(found.data, wanted.data, found.bytes) != 0))
      throw Wrong("weights of " + trainee.model().names[i] + " differ from those of one process");
    bytes += found.bytes;
  }
  mxs::check(mxs_unit_release(reference.unit(unit), MXS_FREE, nullptr));
  mxs::check(mxs_unit_release(trainee.unit(unit), mode, nullptr));
  return bytes;
}

void give_gradients(const Group &group, const Trainee &trainee, int unit, uint64_t salt, bool add) {
  if (skips(group.rank(), unit, salt)) {
    mxs::check(mxs_unit_skip(trainee.unit(unit), nullptr));
    return;
  }
  const std::vector<int> trained = trainee.model().trained(unit);
  for (const int tensor : trained) {
    if (leaves_out(group.rank(), tensor, salt, tensor == trained[0])) continue;
    for (int turn = 0; turn < (add ? 2 : 1); turn++) {
      mxs_view view = MXS_VIEW_INIT;
      mxs::check(mxs_unit_gradient(trainee.unit(unit), tensor, add ? MXS_ADD : MXS_WRITE, &view));
      for (uint64_t i = 0; i < trainee.model().element_count(tensor); i++)
        put(view.data, view.dtype, i,
            (turn + 1) * whole_number(group.rank() * 1000 + tensor, i, salt, gradient_most));
    }
  }
  mxs::check(mxs_unit_reduce(trainee.unit(unit), nullptr));
}

void give_sums(const Group &group, const Trainee &reference, int unit, uint64_t salt, bool add) {
  const std::vector<int> trained = reference.model().trained(unit);
  for (const int tensor : trained) {
    mxs_view view = MXS_VIEW_INIT;
    mxs::check(mxs_unit_gradient(reference.unit(unit), tensor, MXS_WRITE, &view));
    auto *const sums = static_cast<float *>(view.data);
    for (uint64_t i = 0; i < reference.model().element_count(tensor); i++) {
      int sum = 0;
      for (int rank = 0; rank < group.rank_count(); rank++)
        if (!skips(rank, unit, salt) && !leaves_out(rank, tensor, salt, tensor == trained[0]))
          sum += (add ? 2 : 1) * whole_number(rank * 1000 + tensor, i, salt, gradient_most);
      sums[i] = static_cast<float>(sum);
    }
  }
  mxs::check(mxs_unit_reduce(reference.unit(unit), nullptr));
}

}  // namespace soak
