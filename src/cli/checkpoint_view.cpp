// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_view.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "cli/option_words.hpp"
#include "cli/plan_text.hpp"

namespace mxs_cli {

namespace {

void refuse_devices(const std::string &path) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode) || S_ISDIR(found.st_mode)) return;
  throw mxs::error(MXS_INVALID_ARGUMENT, path + " is neither a file nor a folder");
}

}  // namespace

CheckpointView view_checkpoint(const std::string &path) {
  refuse_devices(path);
  CheckpointView view;
  view.handle = mxs::open_checkpoint(path.c_str());
  mxs::check(mxs_checkpoint_query(view.handle.get(), &view.info));
  view.arrays.assign(view.info.array_count, mxs_checkpoint_array MXS_CHECKPOINT_ARRAY_INIT);
  for (uint64_t index = 0; index < view.arrays.size(); ++index)
    mxs::check(mxs_checkpoint_array_at(view.handle.get(), index, &view.arrays[index]));
  view.path = view.info.has_manifest ? view.info.path : path;
  if (view.info.has_manifest) view.plan = mxs::plan_of(view.handle);
  return view;
}

std::string array_kind_name(mxs_array_kind kind) {
  return kind == MXS_ARRAY_WEIGHTS  ? "weights"
         : kind == MXS_ARRAY_MASTER ? "master"
         : kind == MXS_ARRAY_STATE  ? "state"
         : kind == MXS_ARRAY_EXTRA  ? "extra"
                                    : "unknown";
}

std::string shape_text(const mxs_checkpoint_array &array) {
  std::string text = "(";
  for (int32_t d = 0; d < array.dimension_count; ++d) text.append(d ? ", " : "").append(std::to_string(array.shape[d]));
  return text.append(")");
}

std::string short_name(const std::string &name, size_t width) { return printable(shortened(name, width)); }

std::string last_part(const std::string &path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path;
  const size_t slash = path.find_last_of('/', end), first = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(first, end - first + 1);
}

std::string counted_text(uint64_t count, const char *one, const char *several) {
  return count_text(count).append(" ").append(count == 1 ? one : several);
}

std::string title_text(const CheckpointView &view) {
  const mxs_checkpoint_info &info = view.info;
  std::string text;
  if (info.has_manifest) {
    text.append("step ").append(std::to_string(info.step_number)).append(", saved by ");
    text.append(counted_text(static_cast<uint64_t>(info.rank_count), "rank", "ranks")).append(" with matrixshard ");
    text.append(printable(info.version)).append(info.masters ? ", masters as model" : "");
    text.append(info.has_state ? "" : ", without an optimizer's state").append("; ");
  } else {
    text.append("a safetensors model without a manifest; ");
  }
  text.append(counted_text(info.array_count, "array", "arrays")).append(" in ");
  return text.append(counted_text(info.file_count, "file", "files")).append(", ").append(bytes_text(info.bytes));
}

std::string owners_text(const CheckpointView &view, const std::string &tensor) {
  int32_t index = 0;
  if (!view.plan || mxs_plan_find(view.plan.get(), tensor.c_str(), &index) != MXS_OK) return "-";
  mxs_tensor_info info = MXS_TENSOR_INFO_INIT;
  mxs::check(mxs_plan_tensor(view.plan.get(), index, &info));
  std::vector<int32_t> ranks;
  for (uint64_t place = 0; place < info.placement_count; ++place) {
    mxs_placement placement = MXS_PLACEMENT_INIT;
    mxs::check(mxs_plan_placement(view.plan.get(), info.placement_index + place, &placement));
    ranks.push_back(placement.owner);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks.empty() ? "-" : runs_text(ranks);
}

bool is_of_model(const mxs_checkpoint_array &array) {
  return array.kind == MXS_ARRAY_WEIGHTS || array.kind == MXS_ARRAY_EXTRA;
}

}  // namespace mxs_cli
