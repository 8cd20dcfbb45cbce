// SPDX-License-Identifier: Apache-2.0
// mxs checkpoint reshard: a checkpoint written again as another world would have saved it.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/checkpoint_commands.hpp"
#include "cli/checkpoint_view.hpp"
#include "cli/json_writer.hpp"
#include "cli/option_words.hpp"
#include "cli/plan_text.hpp"
#include "cli/progress_line.hpp"
#include "cli/read_topology.hpp"
#include "cli/table.hpp"

namespace mxs_cli {

namespace {

struct Request {
  std::vector<std::string> paths;
  std::string world, name, files_from;
  bool weights_only = false, json = false;
  int32_t keep = 0;
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;  // 0: as the source's plan
};

std::string read_option(const std::string &name, const std::string &value, Request *request) {
  std::string complaint;
  if (read_plan_option(name, value, &request->options, &complaint)) return complaint;
  if (name == "--world") return read_text(name, value, &request->world);
  if (name == "--name") return read_text(name, value, &request->name);
  if (name == "--files-from") return read_text(name, value, &request->files_from);
  if (name == "--keep") return read_count(name, value, 1, &request->keep);
  return "there is no option " + in_quotes(name);
}

std::string read_request(const Words &words, Request *request) {
  for (size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i], value;
    if (name == "--json" || name == "--weights-only") {
      (name == "--json" ? request->json : request->weights_only) = true;
      continue;
    }
    if (!name.starts_with("-")) {
      if (name.empty()) return "a path is empty";
      if (request->paths.size() == 2) return in_quotes(name) + " is one path too many";
      request->paths.push_back(name);
      continue;
    }
    std::string complaint = take_value(words, &i, &name, &value);
    if (complaint.empty()) complaint = read_option(name, value, request);
    if (!complaint.empty()) return complaint;
  }
  if (request->paths.size() < 2)
    return request->paths.empty() ? "SOURCE is missing: a checkpoint"
                                  : "TARGET is missing: a folder of checkpoints for the result";
  if (request->world.empty())
    return "--world is missing: the ranks to write for, as in --world \"nodes:8 ranks:8\", or a saved topology";
  return "";
}

struct Progress {
  ProgressLine line{"reshard"};
  uint64_t done_bytes = 0;

  static int call(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    auto *const progress = static_cast<Progress *>(context);
    progress->done_bytes = done_bytes;
    progress->line.show(done_bytes, total_bytes);
    return 0;
  }
};

// Where the result lies: as mxs_checkpoint_options.name says.
std::string target_path(const Request &request, const CheckpointView &source) {
  char step[40];
  std::snprintf(step, sizeof step, "step-%08llu", static_cast<unsigned long long>(source.info.step_number));
  return request.paths[1] + "/" + (request.name.empty() ? step : request.name);
}

void reshard(const Request &request, const CheckpointView &source, const mxs::topology &topology) {
  Progress progress;
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.weights_only = request.weights_only;
  options.keep = request.keep;
  options.name = request.name.empty() ? nullptr : request.name.c_str();
  options.files_from = request.files_from.empty() ? nullptr : request.files_from.c_str();
  options.progress = Progress::call;
  options.progress_context = &progress;
  mxs::check(mxs_checkpoint_reshard(source.handle.get(), request.paths[1].c_str(), topology.get(),
                                    &request.options, &options));
}

struct Side {
  std::string path;
  int32_t rank_count;
  uint64_t file_count, array_count, bytes, largest_file_bytes;
};

Side side_of(const CheckpointView &view) {
  Side side = {view.path, view.info.rank_count, view.info.file_count, view.info.array_count,
               view.info.bytes, 0};
  std::string file;
  uint64_t bytes = 0;
  for (const mxs_checkpoint_array &array : view.arrays) {
    if (file != array.file) bytes = 0;
    file = array.file;
    bytes += array.bytes;
    side.largest_file_bytes = std::max(side.largest_file_bytes, bytes);
  }
  return side;
}

std::string reshard_table(const Side &before, const Side &after) {
  Table table({"", "path", ">ranks", ">files", ">arrays", ">bytes", ">largest file"});
  for (const auto &[name, side] : {std::make_pair("before", before), std::make_pair("after", after)})
    table.add({name, short_name(side.path), std::to_string(side.rank_count), count_text(side.file_count),
               count_text(side.array_count), bytes_text(side.bytes), bytes_text(side.largest_file_bytes)});
  return table.text().append(counted_text(after.bytes, "byte", "bytes")).append(" copied\n");
}

void add_side(const char *name, const Side &side, JsonText *json) {
  json->key(name).open('{').add("path", side.path).add_signed("ranks", side.rank_count);
  json->add("files", side.file_count).add("arrays", side.array_count).add("bytes", side.bytes);
  json->add("largest_file_bytes", side.largest_file_bytes).close('}');
}

std::string reshard_json(const Side &before, const Side &after) {
  JsonText json;
  json.open('{');
  add_side("before", before, &json);
  add_side("after", after, &json);
  return json.add("copied_bytes", after.bytes).close('}').take().append("\n");
}

}  // namespace

int checkpoint_reshard(const Words &words) {
  Request request;
  const std::string complaint = read_request(words, &request);
  if (!complaint.empty()) return bad_use("checkpoint reshard", complaint);
  mxs::topology topology;
  try {
    topology = read_topology(request.world);
  } catch (const mxs::error &error) {
    return bad_use("checkpoint reshard", error.what());
  }
  try {
    const CheckpointView source = view_checkpoint(request.paths[0]);
    const Side before = side_of(source);  // the result may take its place
    reshard(request, source, topology);
    const Side after = side_of(view_checkpoint(target_path(request, source)));
    print_text(request.json ? reshard_json(before, after) : reshard_table(before, after));
    return 0;
  } catch (const mxs::error &error) {
    const bool is_use = error.status() == MXS_INVALID_ARGUMENT;
    return failed("checkpoint reshard",
                  (error.status() == MXS_OVER_BUDGET ? std::string("--budget: ") : std::string()).append(error.what()),
                  is_use ? status_bad_use : 1);
  }
}

}  // namespace mxs_cli
