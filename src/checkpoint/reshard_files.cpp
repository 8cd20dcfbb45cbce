// SPDX-License-Identifier: Apache-2.0
// Which files another world would have, of the same arrays. The manifest may be anybody's: what doesn't fit the plan is
// refused.
#include "checkpoint/reshard.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "base/status.hpp"
#include "checkpoint/describe.hpp"

namespace mxs {

namespace {

const ManifestFile &file_of(const Manifest &manifest, const ManifestArray &array) { return manifest.files[array.file]; }

mxs_status damaged(const OpenedCheckpoint &opened, const ManifestArray &array, const char *what) {
  return set_error(MXS_DAMAGED, "%.300s/%.300s: array \"%.200s\" of tensor \"%.200s\" %s", opened.path.c_str(),
                   file_of(opened.manifest, array).name.c_str(), array.name.c_str(), array.tensor.c_str(), what);
}

// Can an array with so many numbers for all of a tensor be cut where the tensor's pieces are?
bool can_be_cut(const Plan &plan, const PlannedTensor &tensor, uint64_t numbers) {
  __extension__ using Wide = unsigned __int128;
  if (tensor.element_count == 0) return numbers == 0;
  for (uint64_t number = 0; number < tensor.placement_count; ++number) {
    const Placement &placement = plan.placements[tensor.placement_index + number];
    if (Wide{numbers} * placement.element_offset % tensor.element_count != 0) return false;
  }
  return true;
}

// An array of the source and its place among its like, as a save has them: by tensor, of each its master first; then
// what belongs to matrices, by placement. Of several parts the order is the source's, where they are in one file.
struct Entry {
  const ManifestArray *array;
  bool of_matrix = false;
  size_t tensor = SIZE_MAX;  // of the plan; extras have none, and come last
  bool is_state = false;
  int64_t block = -1;

  auto place() const { return std::tie(of_matrix, tensor, is_state, block); }
};

class Refiler {
 public:
  Refiler(const OpenedCheckpoint &opened, const Plan &plan) : opened_(opened), plan_(plan) {
    for (size_t index = 0; index < plan.tensors.size(); ++index)
      tensor_of_name_.emplace(plan.tensors[index].name, index);
  }

  mxs_status refile(bool weights_only, std::vector<FiledFile> *files) {
    mxs_status status = check_weights();
    std::vector<Entry> model, optimizer;
    for (const ManifestArray &array : opened_.manifest.arrays) {
      const bool of_model = array.kind == MXS_ARRAY_WEIGHTS || array.kind == MXS_ARRAY_EXTRA;
      if (status != MXS_OK || (weights_only && !of_model)) continue;
      status = add_entry(array, of_model ? &model : &optimizer);
    }
    std::vector<FiledArray> model_arrays, optimizer_arrays;
    if (status == MXS_OK) status = cut_all(&model, &model_arrays);
    if (status == MXS_OK) status = cut_all(&optimizer, &optimizer_arrays);
    if (status != MXS_OK) return status;
    *files = file_model(std::move(model_arrays));
    std::vector<FiledFile> others = file_optimizer(std::move(optimizer_arrays));
    files->insert(files->end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
    return MXS_OK;
  }

 private:
  mxs_status check_weights() const {
    for (const PlannedTensor &tensor : plan_.tensors) {
      const auto found = opened_.index_of_name.find(tensor.name);
      if (tensor.tied_to >= 0) continue;
      if (found == opened_.index_of_name.end() || opened_.manifest.arrays[found->second].kind != MXS_ARRAY_WEIGHTS)
        return set_error(MXS_DAMAGED, "%.300s: tensor \"%.200s\" of its plan has no weights", opened_.path.c_str(),
                         tensor.name.c_str());
    }
    return MXS_OK;
  }

  mxs_status add_entry(const ManifestArray &array, std::vector<Entry> *entries) const {
    Entry entry = {&array};
    if (array.kind != MXS_ARRAY_EXTRA) {
      const auto found = tensor_of_name_.find(array.tensor);
      if (found == tensor_of_name_.end()) return damaged(opened_, array, "isn't of its plan");
      if (plan_.tensors[found->second].tied_to >= 0)
        return damaged(opened_, array, "is of one that has no bytes of its own");
      entry.tensor = found->second;
      entry.is_state = array.kind == MXS_ARRAY_STATE;
      entry.of_matrix = array.block >= 0;
      entry.block = array.block;
    }
    entries->push_back(entry);
    return MXS_OK;
  }

  mxs_status cut_all(std::vector<Entry> *entries, std::vector<FiledArray> *arrays) const {
    std::stable_sort(entries->begin(), entries->end(),
                     [](const Entry &a, const Entry &b) { return a.place() < b.place(); });
    for (const Entry &entry : *entries) {
      FiledArray array = *entry.array;
      const mxs_status status = cut(entry, &array);
      if (status != MXS_OK) return status;
      arrays->push_back(std::move(array));
    }
    return MXS_OK;
  }

  mxs_status cut(const Entry &entry, FiledArray *array) const {
    const uint64_t numbers = numbers_of(*array);
    if (entry.tensor == SIZE_MAX) {  // extras are written by rank 0
      array->pieces = {{0, 0, numbers, {}}};
      return MXS_OK;
    }
    const PlannedTensor &tensor = plan_.tensors[entry.tensor];
    if (entry.block >= 0) {
      if (static_cast<uint64_t>(entry.block) >= tensor.placement_count)
        return damaged(opened_, *entry.array, "is of a matrix that the tensor hasn't");
      const uint64_t placement = tensor.placement_index + static_cast<uint64_t>(entry.block);
      array->pieces = {{plan_.placements[placement].owner, 0, numbers, {}}};
      return MXS_OK;
    }
    if (!entry.is_state && entry.array->shape != tensor.shape)
      return damaged(opened_, *entry.array, "has another shape than the plan says");
    if (!can_be_cut(plan_, tensor, numbers))
      return damaged(opened_, *entry.array, "can't be cut where the tensor's pieces are");
    array->pieces = pieces_by_owner(plan_, entry.tensor, numbers);
    return MXS_OK;
  }

  const OpenedCheckpoint &opened_;
  const Plan &plan_;
  std::unordered_map<std::string_view, size_t> tensor_of_name_;
};

}  // namespace

mxs_status reshard_files(const OpenedCheckpoint &opened, const Plan &plan, bool weights_only,
                         std::vector<FiledFile> *files) {
  return Refiler(opened, plan).refile(weights_only, files);
}

}  // namespace mxs
