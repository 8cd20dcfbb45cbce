// SPDX-License-Identifier: Apache-2.0
// mxs checkpoint verify: are all bytes those that were written?
#include <string>
#include <vector>

#include "cli/checkpoint_commands.hpp"
#include "cli/checkpoint_view.hpp"
#include "cli/json_writer.hpp"
#include "cli/option_words.hpp"
#include "cli/plan_text.hpp"
#include "cli/progress_line.hpp"

namespace mxs_cli {

namespace {

struct Verdict {
  std::string path, hashes = "hashes of all bytes";
  uint64_t array_count = 0, bytes = 0;
  std::vector<std::string> faults;
};

void add_fault(void *context, const char *sentence) {
  static_cast<std::vector<std::string> *>(context)->emplace_back(sentence);
}

// A checkpoint that can't be opened since its files aren't what was written has that for its one fault: reading goes no
// further. Others that can't be opened are thrown.
Verdict verify(const std::string &path) {
  Verdict verdict;
  verdict.path = path;
  CheckpointView view;
  try {
    view = view_checkpoint(path);
  } catch (const mxs::error &error) {
    if (error.status() != MXS_DAMAGED) throw;
    verdict.faults.emplace_back(error.what());
    return verdict;
  }
  verdict.path = view.path;
  verdict.array_count = view.info.array_count;
  verdict.bytes = view.info.bytes;
  if (!view.info.has_manifest) verdict.hashes = "no manifest: headers only";
  ProgressLine line("verify");
  mxs_verify_options options = MXS_VERIFY_OPTIONS_INIT;
  options.fault = add_fault;
  options.fault_context = &verdict.faults;
  options.progress = ProgressLine::call;
  options.progress_context = &line;
  const mxs_status status = mxs_checkpoint_verify(view.handle.get(), &options);
  if (status < 0 && (verdict.faults.empty() || status != MXS_DAMAGED)) verdict.faults.emplace_back(mxs_last_error());
  return verdict;
}

std::string verdict_table(const Verdict &verdict) {
  std::string text;
  for (const std::string &fault : verdict.faults) text.append(printable(fault)).append("\n");
  text.append(printable(verdict.path)).append(": ");
  text.append(counted_text(verdict.array_count, "array", "arrays")).append(", ");
  text.append(counted_text(verdict.bytes, "byte", "bytes")).append(", ");
  text.append(counted_text(verdict.faults.size(), "fault", "faults"));
  return text.append(" (").append(verdict.hashes).append(")\n");
}

std::string verdict_json(const Verdict &verdict) {
  JsonText json;
  json.open('{').add("path", verdict.path).add("arrays", verdict.array_count).add("bytes", verdict.bytes);
  json.key("faults").open('[');
  for (const std::string &fault : verdict.faults) json.text(fault);
  return json.close(']').close('}').take().append("\n");
}

}  // namespace

int checkpoint_verify(const Words &words) {
  bool json = false;
  std::vector<std::string> paths;
  const std::string complaint = read_paths(words, {"PATH"}, {{"--json", &json}}, &paths);
  if (!complaint.empty()) return bad_use("checkpoint verify", complaint);
  try {
    const Verdict verdict = verify(paths[0]);
    print_text(json ? verdict_json(verdict) : verdict_table(verdict));
    return verdict.faults.empty() ? 0 : 1;
  } catch (const mxs::error &error) {
    return failed("checkpoint verify", error.what(), 1);
  }
}

}  // namespace mxs_cli
