// SPDX-License-Identifier: Apache-2.0
// Weights and masters of a checkpoint for a plan's tensors, and all that is refused. State: match_state.cpp.
#include "checkpoint/match.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/status.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/describe.hpp"
#include "checkpoint/match_work.hpp"
#include "plan/stages.hpp"

namespace mxs {

MatchWork::MatchWork(const OpenedCheckpoint &opened_checkpoint, const LoadRequest &load_request, LoadMatch *result)
    : opened(opened_checkpoint), request(load_request), plan(*load_request.plan), match(result) {
  if (!opened.plan) return;
  for (const PlannedTensor &tensor : opened.plan->tensors) saved_tensors.emplace(tensor.name, &tensor);
}

size_t MatchWork::find(const std::string &name, mxs_array_kind kind) const {
  const auto found = opened.index_of_name.find(name);
  if (found == opened.index_of_name.end()) return no_array;
  return opened.manifest.arrays[found->second].kind == kind ? found->second : no_array;
}

const PlannedTensor *MatchWork::saved_tensor(const std::string &name) const {
  const auto found = saved_tensors.find(name);
  return found == saved_tensors.end() ? nullptr : found->second;
}

std::string MatchWork::file_of(const ManifestArray &array) const {
  return opened.path + "/" + opened.manifest.files[array.file].name;
}

void MatchWork::refuse(mxs_status status, std::string sentence) {
  if (refusal != MXS_OK) return;
  refusal = status;
  refusal_sentence = std::move(sentence);
}

namespace {

std::string first_names(const std::vector<std::string> &names) {
  constexpr size_t named_max = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), named_max); ++i)
    text.append(i == 0 ? "\"" : ", \"").append(names[i].substr(0, 100)).append("\"");
  if (names.size() > named_max) text += ", ...";
  return text;
}

// Its name first, then those that are tied to it.
std::vector<std::vector<const std::string *>> names_of_tensors(const Plan &plan) {
  std::vector<std::vector<const std::string *>> names(plan.tensors.size());
  for (size_t number = 0; number < plan.tensors.size(); ++number) {
    size_t root = number;
    while (plan.tensors[root].tied_to >= 0) root = static_cast<size_t>(plan.tensors[root].tied_to);
    const std::string *const name = &plan.tensors[number].name;
    names[root].insert(root == number ? names[root].begin() : names[root].end(), name);
  }
  return names;
}

// Arrays that can give a tensor its numbers. Both are of its shape.
struct Sources {
  size_t weights = no_array, master = no_array;
  mxs_dtype dtype = 0;  // the weights' when they were saved; 0: nothing tells
};

class WeightsMatch {
 public:
  explicit WeightsMatch(MatchWork *work) : work_(*work), names_(names_of_tensors(work->plan)) {}

  void run() {
    const Plan &plan = work_.plan;
    work_.match->of_tensor.assign(plan.tensors.size(), no_array);
    std::vector<int> numbers;
    for (const int unit : work_.request.units) {
      const std::vector<int> &tensors = plan.units[static_cast<size_t>(unit)].tensors;
      numbers.insert(numbers.end(), tensors.begin(), tensors.end());
    }
    std::sort(numbers.begin(), numbers.end());
    for (const int number : numbers)
      if (plan.tensors[static_cast<size_t>(number)].tied_to < 0) take(number);
    find_extra();
  }

 private:
  const ManifestArray &array(size_t number) const { return work_.opened.manifest.arrays[number]; }

  void take(int number) {
    const PlannedTensor &tensor = work_.plan.tensors[static_cast<size_t>(number)];
    TensorMatch found;
    found.tensor = number;
    found.saved_name = tensor.name;
    Sources sources;
    for (const std::string *name : names_to_try(number)) {
      sources = sources_of(*name);
      if (sources.weights == no_array && sources.master == no_array) continue;
      found.saved_name = *name;
      break;
    }
    if (sources.weights == no_array && sources.master == no_array)
      work_.match->missing.push_back(tensor.name);
    else if (check_shape(tensor, sources.weights) && check_shape(tensor, sources.master))
      choose(tensor, sources, &found);
    work_.match->of_tensor[static_cast<size_t>(number)] = work_.match->tensors.size();
    work_.match->tensors.push_back(std::move(found));
  }

  // Its own, and those that it was tied to when it was saved: a model that unties begins with what they shared.
  std::vector<const std::string *> names_to_try(int number) const {
    std::vector<const std::string *> names = names_[static_cast<size_t>(number)];
    for (const std::string *name : names_[static_cast<size_t>(number)]) {
      const PlannedTensor *saved = work_.saved_tensor(*name);
      if (!saved || saved->tied_to < 0) continue;
      while (saved->tied_to >= 0) saved = &work_.opened.plan->tensors[static_cast<size_t>(saved->tied_to)];
      names.push_back(&saved->name);
    }
    return names;
  }

  Sources sources_of(const std::string &name) const {
    Sources sources;
    sources.weights = work_.find(name, MXS_ARRAY_WEIGHTS);
    sources.master = work_.find(name + ".master", MXS_ARRAY_MASTER);
    if (sources.weights != no_array) sources.dtype = array(sources.weights).dtype;
    const PlannedTensor *const saved = work_.saved_tensor(name);
    if (work_.opened.manifest.masters && saved && has_master(*saved) && sources.master == no_array) {
      sources.dtype = saved->dtype;
      std::swap(sources.weights, sources.master);
    }
    return sources;
  }

  bool check_shape(const PlannedTensor &tensor, size_t number) {
    if (number == no_array || array(number).shape == tensor.shape) return true;
    work_.refuse(MXS_MISMATCH, "tensor \"" + tensor.name.substr(0, 200) + "\" is " + shape_text(tensor.shape) +
                                   " in the plan, but \"" + array(number).name.substr(0, 200) + "\" is " +
                                   shape_text(array(number).shape) + " in " + work_.file_of(array(number)));
    return false;
  }

  // The table of match.hpp.
  void choose(const PlannedTensor &tensor, const Sources &sources, TensorMatch *found) {
    const bool has_weights = sources.weights != no_array, has_saved_master = sources.master != no_array;
    const bool same = has_weights && array(sources.weights).dtype == tensor.dtype;
    if (has_master(tensor)) {
      if (same) found->weights = sources.weights;
      found->master = has_saved_master || same ? sources.master : sources.weights;
    } else {
      found->weights = same || !has_saved_master ? sources.weights : sources.master;
    }
    if (has_weights && !same) return change(tensor, array(sources.weights), tensor.dtype);
    if (!has_saved_master) return;
    const ManifestArray &master = array(sources.master);
    const mxs_dtype wanted = has_master(tensor) ? tensor.master_dtype : tensor.dtype;
    if (master.dtype == wanted) return;
    if (has_master(tensor) || (!has_weights && sources.dtype != tensor.dtype)) return change(tensor, master, wanted);
    if (work_.request.optimizer && !tensor.frozen()) drop_master(tensor, master);
  }

  void change(const PlannedTensor &tensor, const ManifestArray &from, mxs_dtype to) {
    const bool possible = can_convert(from.dtype, to);
    if (possible) work_.match->converted.push_back(tensor.name);
    if (possible && (work_.request.flags & MXS_LOAD_OTHER_DTYPES)) return;
    work_.refuse(MXS_MISMATCH, "tensor \"" + tensor.name.substr(0, 200) + "\" is " + mxs_dtype_name(to) +
                                   " in the plan, but \"" + from.name.substr(0, 200) + "\" is " + from.dtype_word +
                                   " in " + work_.file_of(from) +
                                   (possible ? "; pass MXS_LOAD_OTHER_DTYPES to convert it"
                                             : ", which this release doesn't convert"));
  }

  // Training goes on with less than was saved: as much a change of dtype as any.
  void drop_master(const PlannedTensor &tensor, const ManifestArray &master) {
    work_.match->converted.push_back(tensor.name);
    if (work_.request.flags & MXS_LOAD_OTHER_DTYPES) return;
    work_.refuse(MXS_MISMATCH, "tensor \"" + tensor.name.substr(0, 200) + "\" was saved with a master in " +
                                   master.dtype_word + " (\"" + master.name.substr(0, 200) + "\" in " +
                                   work_.file_of(master) + "), but the plan has none; pass MXS_LOAD_OTHER_DTYPES to "
                                   "go on without");
  }

  // Masters and state of an extra tensor aren't told apart from it; extras of a save belong to nobody.
  void find_extra() {
    std::unordered_set<std::string_view> known;
    for (const PlannedTensor &tensor : work_.plan.tensors) known.insert(tensor.name);
    for (const ManifestArray &each : work_.opened.manifest.arrays)
      if (each.kind == MXS_ARRAY_WEIGHTS && !known.count(each.name)) work_.match->extra.push_back(each.name);
  }

  MatchWork &work_;
  std::vector<std::vector<const std::string *>> names_;  // by tensor
};

void refuse_lists(MatchWork *work) {
  const std::vector<std::string> &missing = work->match->missing, &extra = work->match->extra;
  if (!missing.empty() && !(work->request.flags & MXS_LOAD_ALLOW_MISSING))
    work->refuse(MXS_NOT_FOUND, std::to_string(missing.size()) + " of the plan's tensors are not in " +
                                    work->opened.path + ": " + first_names(missing) +
                                    "; pass MXS_LOAD_ALLOW_MISSING to leave them as they are");
  if (!extra.empty() && !(work->request.flags & MXS_LOAD_ALLOW_EXTRA))
    work->refuse(MXS_NOT_FOUND, std::to_string(extra.size()) + " tensors of " + work->opened.path +
                                    " are not in the plan: " + first_names(extra) +
                                    "; pass MXS_LOAD_ALLOW_EXTRA to leave them out");
}

}  // namespace

mxs_status match_checkpoint(const OpenedCheckpoint &opened, const LoadRequest &request, LoadMatch *match) {
  *match = LoadMatch();
  MatchWork work(opened, request, match);
  WeightsMatch(&work).run();
  if (request.optimizer) match_state(&work);
  refuse_lists(&work);
  return work.refusal == MXS_OK ? MXS_OK : set_error(work.refusal, "%s", work.refusal_sentence.c_str());
}

}  // namespace mxs
