// SPDX-License-Identifier: Apache-2.0
// A checkpoint of one world filed anew for another is, file by file and piece by piece, what that world would have
// filed itself. What contradicts its plan is refused. Files that are written have the source's numbers, and hashes of
// their own; a failure leaves nothing.
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "../plan/models.hpp"
#include "checkpoint/describe.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/reshard.hpp"
#include "checkpoint/save.hpp"
#include "plan/saved.hpp"
#include "state_parts.hpp"
#include "support/complaints.hpp"
#include "support/temporary_folder.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::content_of;
using mxs::test::part_of;
using mxs::test::TemporaryFolder;
using mxs::test::words;

namespace {

const std::vector<std::string> worlds = {"ranks:1", "ranks:2", "ranks:3", "nodes:2 ranks:2", "ranks:7",
                                         "nodes:2 ranks:4"};

// Every role, a matrix that a node's ranks share, one with an owner of its own.
Model odd_model() {
  Model model;
  model.options.flat_bytes = 4096;
  model.add("embedding", {611, 64}, 0, MXS_RULE_ADAMW).dtype = MXS_BF16;
  model.add("scale", {}, 0);
  model.add_blocks("qkv", {32, 32, 64}, 64, 1, MXS_RULE_SHAMPOO).dtype = MXS_BF16;
  model.add("experts", {5, 32, 64}, 1, MXS_RULE_SOAP).dtype = MXS_BF16;
  model.add("bias", {33}, 1).dtype = MXS_F16;
  mxs_tensor &shared = model.add("shared", {256, 64}, 1);
  shared.dtype = MXS_BF16;
  shared.co_owners = 2;
  mxs_tensor &fixed = model.add("fixed", {64, 48}, 1);
  fixed.fixed_owner = MXS_FIXED_OWNER(2);
  mxs_tensor &columns = model.add("columns", {12, 30}, 2, MXS_RULE_SHAMPOO);
  model.cut_columns(&columns, {10, 8, 12});
  model.add("nothing", {0, 12}, 3);
  model.add("table", {333, 40}, 3, MXS_RULE_FROZEN);
  model.add("head", {41, 64}, 4).dtype = MXS_F16;
  mxs_tensor &tied = model.add("tied", {41, 64}, 4);
  tied.dtype = MXS_F16;
  tied.tied_to = "head";
  return model;
}

bool done(mxs_status status) {
  if (status != MXS_OK) print_error("%s\n", mxs_last_error());
  return status == MXS_OK;
}

mxs_status plan_in(const Model &model, const std::string &world, Plan *plan) {
  Topology topology;
  const mxs_status status = parse_topology(world, &topology);
  if (status != MXS_OK) return status;
  return make_plan(model.tensors.data(), model.tensors.size(), topology, &model.options, plan);
}

const std::vector<StatePart> &parts_of(mxs_rule rule) {
  static const std::vector<StatePart> muon = {part_of("momentum", StateScope::element),
                                              part_of("second_momentum", StateScope::row)};
  static const std::vector<StatePart> adamw = {part_of("exp_avg", StateScope::element),
                                               part_of("exp_avg_sq", StateScope::element)};
  static const std::vector<StatePart> others = {
      part_of("exp_avg", StateScope::element), part_of("failures", StateScope::matrix, {3}, MXS_U8),
      part_of("factor_left.0", StateScope::matrix, {4, 4}), part_of("factor_left.1", StateScope::matrix, {5, 5}),
      part_of("factor_right.0", StateScope::matrix, {6, 6})};
  return rule == MXS_RULE_MUON ? muon : rule == MXS_RULE_ADAMW ? adamw : others;
}

FiledArray extra(const char *name, const char *word, uint32_t number_bytes, int64_t count) {
  FiledArray array;
  array.kind = MXS_ARRAY_EXTRA;
  array.name = array.tensor = name;
  array.dtype_word = word;
  array.number_bytes = number_bytes;
  array.shape = {count};
  array.bytes = number_bytes * static_cast<uint64_t>(count);
  array.pieces = {{0, 0, static_cast<uint64_t>(count), {}}};
  return array;
}

// What a save in the plan's world files.
std::vector<FiledFile> saved_files(const Plan &plan, bool masters, bool weights_only) {
  std::vector<FiledArray> model = describe_model(plan, masters);
  model.push_back(extra("steps", "I64", 8, 3));
  model.push_back(extra("mask", "BOOL", 1, 7));
  std::vector<FiledFile> files = file_model(std::move(model));
  if (weights_only) return files;
  std::vector<FiledArray> optimizer = describe_optimizer(plan, masters, parts_of);
  for (uint64_t placement = 0; placement < plan.placements.size(); ++placement) {
    const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(plan.placements[placement].tensor)];
    if (!has_state(tensor)) continue;
    for (const StatePart &part : parts_of(tensor.rule))
      if (part.scope == StateScope::matrix) optimizer.push_back(describe_matrix_state(plan, placement, part));
  }
  for (FiledFile &file : file_optimizer(std::move(optimizer))) files.push_back(std::move(file));
  return files;
}

struct Saved {
  OpenedCheckpoint opened;
  bool make(const Model &model, const std::string &world, bool masters) {
    opened.path = "/checkpoints/step-00000001";
    opened.has_manifest = true;
    opened.plan = std::make_unique<Plan>();
    if (!done(plan_in(model, world, opened.plan.get()))) return false;
    index(saved_files(*opened.plan, masters, false));
    return true;
  }
  void index(const std::vector<FiledFile> &files) {
    Manifest &manifest = opened.manifest;
    for (const FiledFile &file : files) {
      for (FiledArray array : file.arrays) {
        array.file = manifest.files.size();
        manifest.arrays.push_back(std::move(array));
      }
      manifest.files.push_back({file.name, file.bytes, file.data_offset, 0});
    }
    for (size_t i = 0; i < manifest.arrays.size(); ++i) opened.index_of_name[manifest.arrays[i].name] = i;
  }
  ManifestArray &array(const char *name) { return opened.manifest.arrays[opened.index_of_name.at(name)]; }
};

std::string compare_pieces(const FiledArray &a, const FiledArray &b) {
  if (a.pieces.size() != b.pieces.size()) return a.name + ": more or fewer pieces";
  for (size_t i = 0; i < a.pieces.size(); ++i)
    if (a.pieces[i].rank != b.pieces[i].rank || a.pieces[i].first != b.pieces[i].first ||
        a.pieces[i].count != b.pieces[i].count || !a.pieces[i].hashes.empty())
      return a.name + ": another piece";
  return "";
}

std::string compare_files(const std::vector<FiledFile> &made, const std::vector<FiledFile> &wanted) {
  if (made.size() != wanted.size()) return words("%zu files instead of %zu", made.size(), wanted.size());
  for (size_t i = 0; i < made.size(); ++i) {
    const FiledFile &a = made[i], &b = wanted[i];
    if (a.name != b.name || a.bytes != b.bytes || a.first_rank != b.first_rank || a.arrays.size() != b.arrays.size())
      return words("%s instead of %s, or of another size", a.name.c_str(), b.name.c_str());
    if (a.header != b.header) return a.name + ": another header: " + a.header.substr(8) + b.header.substr(8);
    for (size_t k = 0; k < a.arrays.size(); ++k) {
      const std::string complaint = compare_pieces(a.arrays[k], b.arrays[k]);
      if (!complaint.empty()) return complaint;
    }
  }
  return "";
}

std::string reshard_between(const std::string &from, const std::string &to, bool masters, bool weights_only) {
  Model model = odd_model();
  if (from == "ranks:1" || from == "ranks:2") model.tensors[6].fixed_owner = 0;  // beyond these worlds
  if (from == "ranks:1") model.tensors[5].co_owners = 0;
  Saved source;
  Plan plan, own_plan;
  if (!source.make(model, from, masters)) return "the source has no plan";
  const mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
  Topology topology;
  if (!done(parse_topology(to, &topology))) return "no topology";
  if (!done(plan_for_world(*source.opened.plan, topology, options, nullptr, &plan))) return "the target has no plan";
  if (to == "ranks:1" || to == "ranks:2") model.tensors[6].fixed_owner = 0;
  if (to == "ranks:1") model.tensors[5].co_owners = 1;
  if (from == "ranks:1" && to == "ranks:1") model.tensors[5].co_owners = 0;
  if (!done(plan_in(model, to, &own_plan))) return "the other world has no plan";
  if (plan.fingerprint != own_plan.fingerprint) return "the plan isn't that of the other world";
  std::vector<FiledFile> files;
  if (!done(reshard_files(source.opened, plan, weights_only, &files))) return "it isn't filed";
  return compare_files(files, saved_files(own_plan, masters, weights_only));
}

// ---- with files ----

// The bytes of an array, by its name.
std::string bytes_of(const FiledArray &array) {
  std::string bytes(array.bytes, '\0');
  uint32_t number = 1;
  for (const char letter : array.name) number = number * 131 + static_cast<unsigned char>(letter);
  for (char &byte : bytes) byte = static_cast<char>((number = number * 1664525 + 1013904223) >> 24);
  return bytes;
}

std::string bytes_of(const FiledFile &file) {
  std::string bytes = file.header;
  for (const FiledArray &array : file.arrays) bytes += bytes_of(array);
  return bytes;
}

mxs_status write_file(FilesWriter *writer, FiledFile *file) {
  mxs_status status = writer->begin(file->name);
  if (status == MXS_OK) status = writer->write(0, file->header.data(), file->header.size());
  for (FiledArray &array : file->arrays) {
    const std::string bytes = bytes_of(array);
    for (ManifestPiece &piece : array.pieces) {
      const uint64_t first = piece.first * array.number_bytes, count = piece.count * array.number_bytes;
      if (status == MXS_OK)
        status = writer->write(file->data_offset + array.offset + first, bytes.data() + first, count, &piece.hashes);
      if (status == MXS_OK) status = writer->finish_piece();
    }
  }
  return status == MXS_OK ? writer->finish() : status;
}

// The odd model, and a tensor of several chunks of hashes.
Model large_model() {
  Model model = odd_model();
  model.tensors[6].fixed_owner = 0;
  model.tensors[5].co_owners = 0;
  model.add("large", {1301, 2048}, 4, MXS_RULE_ADAMW).dtype = MXS_BF16;
  return model;
}

bool write_source(const Model &model, const std::string &world, const std::string &path, Saved *saved) {
  OpenedCheckpoint &opened = saved->opened;
  opened.path = path;
  opened.has_manifest = true;
  opened.plan = std::make_unique<Plan>();
  if (!done(plan_in(model, world, opened.plan.get()))) return false;
  std::filesystem::create_directories(path + "/optimizer");
  FilesWriter writer(path, nullptr);
  std::vector<FiledFile> files = saved_files(*opened.plan, false, false);
  for (FiledFile &file : files)
    if (!done(write_file(&writer, &file))) return false;
  Manifest &manifest = opened.manifest;
  manifest.step_number = 17;
  manifest.rank_count = opened.plan->topology.rank_count();
  manifest.has_state = true;
  manifest.rules = {{MXS_RULE_MUON, MXS_PRESET_DEFAULT, 5}};
  manifest.groups = {mxs_group_values(MXS_GROUP_VALUES_INIT), std::nullopt};
  manifest.user = {"first", "second"};
  manifest.user.resize(static_cast<size_t>(manifest.rank_count));
  saved->index(files);
  std::ofstream(path + "/config.json") << "{}";
  return true;
}

struct Target {
  TemporaryFolder folder;
  Saved source;
  Plan plan;
  SaveSettings settings;
  IoProgress progress;
  uint64_t total_bytes = 0;

  bool prepare(const std::string &from, const std::string &to) {
    if (!write_source(large_model(), from, folder.path() + "/source", &source)) return false;
    Topology topology;
    const mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
    settings.path = folder.path() + "/target";
    return done(parse_topology(to, &topology)) &&
           done(plan_for_world(*source.opened.plan, topology, options, nullptr, &plan));
  }
  mxs_status reshard() { return reshard_checkpoint(source.opened, plan, settings, &progress, &total_bytes); }
  bool is_empty() const {
    return !std::filesystem::exists(settings.path) || std::filesystem::is_empty(settings.path);
  }
};

// Every byte against its hash, through the manifest that was written.
bool verifies(const std::string &path, const Manifest &manifest) {
  std::vector<ReadRange> ranges;
  for (const ManifestArray &array : manifest.arrays)
    if (array.bytes > 0)
      ranges.push_back({&manifest.files[array.file], &array, 0, array.bytes,
                        [](const std::byte *, uint64_t) { return MXS_OK; }});
  for (const ManifestFile &file : manifest.files) {
    const std::string bytes = content_of(path + "/" + file.name);
    if (bytes.size() != file.bytes || hash_chunk(bytes.data(), file.data_offset) != file.header_hash) return false;
  }
  return done(read_ranges(path, ranges, true, nullptr));
}

std::string check_target(const Target &target) {
  const std::string path = target.settings.path + "/step-00000017";
  Manifest manifest;
  if (!done(manifest_from_json(content_of(path + "/matrixshard.json"), &manifest))) return "no manifest";
  const Manifest &source = target.source.opened.manifest;
  SavedPlan plan;
  if (!done(saved_plan_from_json(manifest.plan, &plan)) || plan.fingerprint != target.plan.fingerprint)
    return "another plan";
  const int rank_count = target.plan.topology.rank_count();
  if (manifest.step_number != 17 || manifest.rank_count != rank_count || !manifest.has_state ||
      manifest.rules.size() != 1 || manifest.groups.size() != source.groups.size() ||
      manifest.user.size() != static_cast<size_t>(rank_count) || manifest.user[0] != "first")
    return "the manifest hasn't what the source's has";
  for (const FiledFile &file : saved_files(target.plan, false, false))
    if (content_of(path + "/" + file.name) != bytes_of(file)) return file.name + " has other bytes";
  if (!verifies(path, manifest)) return "hashes are wrong";
  if (content_of(path + "/config.json") != "{}") return "config.json was left behind";
  return target.progress.done_bytes == target.total_bytes ? "" : "progress doesn't end with all bytes";
}

bool files_have_the_same_numbers() {
  const std::pair<const char *, const char *> ways[] = {
      {"ranks:3", "ranks:2"}, {"ranks:1", "nodes:2 ranks:2"}, {"ranks:7", "ranks:1"}};
  for (const auto &[from, to] : ways) {
    Target target;
    if (!target.prepare(from, to) || !done(target.reshard())) return false;
    const std::string complaint = check_target(target);
    if (complaint.empty()) continue;
    print_error("%s to %s: %s\n", from, to, complaint.c_str());
    return false;
  }
  return true;
}

// The door, with a checkpoint that was resharded itself.
bool door_refuses(const mxs_checkpoint *checkpoint, const mxs_topology *topology, const std::string &path) {
  const auto status_of = [&](const std::function<void(mxs_checkpoint_options *)> &change) {
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    change(&options);
    return mxs_checkpoint_reshard(checkpoint, path.c_str(), topology, nullptr, &options);
  };
  mxs_plan_options wrong_plan = MXS_PLAN_OPTIONS_INIT;
  wrong_plan.alignment = 3;
  const mxs_status statuses[] = {
      mxs_checkpoint_reshard(nullptr, path.c_str(), topology, nullptr, nullptr),
      mxs_checkpoint_reshard(checkpoint, path.c_str(), nullptr, nullptr, nullptr),
      mxs_checkpoint_reshard(checkpoint, nullptr, topology, nullptr, nullptr),
      mxs_checkpoint_reshard(checkpoint, "", topology, nullptr, nullptr),
      mxs_checkpoint_reshard(checkpoint, path.c_str(), topology, &wrong_plan, nullptr),
      status_of([](mxs_checkpoint_options *options) { options->size = 7; }),
      status_of([](mxs_checkpoint_options *options) { options->keep = -1; }),
      status_of([](mxs_checkpoint_options *options) { options->weights_only = 2; }),
      status_of([](mxs_checkpoint_options *options) { options->name = "../out"; }),
      status_of([](mxs_checkpoint_options *options) { options->name = ""; })};
  for (size_t i = 0; i < std::size(statuses); ++i) {
    if (statuses[i] == MXS_INVALID_ARGUMENT) continue;
    print_error("call %zu: status %d\n", i, statuses[i]);
    return false;
  }
  const auto stop = [](void *, uint64_t, uint64_t total_bytes) { return total_bytes > 0 ? 1 : 0; };
  return status_of([&](mxs_checkpoint_options *options) { options->progress = stop; }) == MXS_CANCELLED &&
         !std::filesystem::exists(path + "/step-00000017");
}

bool the_door_takes_what_was_resharded() {
  Target target;
  mxs_checkpoint *first = nullptr, *second = nullptr;
  mxs_topology *topology = nullptr;
  if (!target.prepare("ranks:2", "ranks:3") || !done(target.reshard())) return false;
  const std::string path = target.folder.path() + "/again", alone = target.folder.path() + "/alone";
  std::filesystem::create_directories(alone);
  std::filesystem::copy(target.source.opened.path + "/model-00001-of-00003.safetensors", alone);
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.masters = 7;         // none of these four is looked at
  options.user_bytes = ~uint64_t{0};
  options.extra_count = 5;
  options.timeout_ns = 1;
  bool good = done(mxs_checkpoint_open(&first, target.settings.path.c_str())) &&
              done(mxs_topology_create(&topology, "nodes:2 ranks:2")) && door_refuses(first, topology, path) &&
              done(mxs_checkpoint_reshard(first, path.c_str(), topology, nullptr, &options)) &&
              done(mxs_checkpoint_open(&second, path.c_str())) && done(mxs_checkpoint_verify(second, nullptr));
  mxs_checkpoint_info info = MXS_CHECKPOINT_INFO_INIT;
  good = good && done(mxs_checkpoint_query(second, &info)) && info.rank_count == 4 && info.step_number == 17;
  mxs_checkpoint_close(&second);
  good = good && done(mxs_checkpoint_open(&second, alone.c_str())) &&
         mxs_checkpoint_reshard(second, path.c_str(), topology, nullptr, nullptr) == MXS_NOT_FOUND;
  mxs_checkpoint_close(&first);
  mxs_checkpoint_close(&second);
  mxs_topology_destroy(&topology);
  return good;
}

bool complain(const std::string &what) {
  print_error("%s\n", what.c_str());
  return false;
}

bool nothing_is_left_of_failures() {
  Target target;
  if (!target.prepare("ranks:2", "ranks:3")) return false;
  target.progress.go_on = [](uint64_t done_bytes) { return done_bytes < (uint64_t{8} << 20); };
  if (target.reshard() != MXS_CANCELLED || !target.is_empty()) return complain("not cancelled");
  // Damaged in the middle of the largest array: the sentence names it and its file.
  const ManifestArray &array = target.source.array("large.exp_avg_sq");
  const ManifestFile &file = target.source.opened.manifest.files[array.file];
  std::fstream bytes(target.source.opened.path + "/" + file.name, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(static_cast<std::streamoff>(file.data_offset + array.offset + array.bytes / 2));
  bytes.write("damaged!", 8);
  bytes.close();
  target.progress = IoProgress();
  if (target.reshard() != MXS_DAMAGED || !target.is_empty()) return complain("not damaged");
  const std::string sentence = mxs_last_error();
  if (sentence.find("large.exp_avg_sq") == std::string::npos || sentence.find(file.name) == std::string::npos)
    return complain(sentence);
  target.settings.weights_only = true;  // it isn't read then
  return done(target.reshard()) && !std::filesystem::exists(target.settings.path + "/step-00000017/optimizer");
}

bool every_world_becomes_every_other() {
  for (const std::string &from : worlds)
    for (const std::string &to : worlds)
      for (const int flags : {0, 1, 2, 3}) {
        const std::string complaint = reshard_between(from, to, (flags & 1) != 0, (flags & 2) != 0);
        if (complaint.empty()) continue;
        print_error("%s to %s, %s: %s\n", from.c_str(), to.c_str(), flags & 1 ? "masters" : "weights",
                    complaint.c_str());
        return false;
      }
  return true;
}

// What is changed of the source, and a word of the sentence.
bool refused(const std::function<void(Saved *)> &change, const char *wanted) {
  Saved source;
  Plan plan;
  Topology topology;
  const mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
  if (!source.make(odd_model(), "ranks:3", false) || !done(parse_topology("ranks:2", &topology)) ||
      !done(plan_for_world(*source.opened.plan, topology, options, nullptr, &plan)))
    return false;
  change(&source);
  std::vector<FiledFile> files;
  const mxs_status status = reshard_files(source.opened, plan, false, &files);
  const std::string sentence = mxs_last_error();
  if (status == MXS_DAMAGED && files.empty() && sentence.find(wanted) != std::string::npos) return true;
  print_error("status %d: %s\n", status, sentence.c_str());
  return false;
}

bool contradictions_are_refused() {
  return refused([](Saved *source) { source->opened.index_of_name.erase("bias"); }, "\"bias\"") &&
         refused([](Saved *source) { source->array("bias").kind = MXS_ARRAY_EXTRA; }, "\"bias\"") &&
         refused([](Saved *source) { source->array("fixed.momentum").tensor = "unknown"; }, "\"unknown\"") &&
         refused([](Saved *source) { source->array("bias").shape = {11, 3}; }, "\"bias\"") &&
         refused([](Saved *source) { source->array("head.momentum").tensor = "tied"; }, "\"tied\"") &&
         refused([](Saved *source) { source->array("shared.second_momentum").bytes -= 4; }, "shared.second_momentum") &&
         refused([](Saved *source) { source->array("experts.factor_left.4.1").block = 5; }, "experts.factor_left.4.1");
}

bool options_that_are_given_count() {
  Model model = odd_model();
  Saved source;
  Plan plan;
  Topology topology;
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
  options.alignment = 65536;
  options.rank_bytes_max = 1;
  if (!source.make(model, "ranks:3", false) || !done(parse_topology("ranks:4", &topology))) return false;
  if (plan_for_world(*source.opened.plan, topology, options, nullptr, &plan) != MXS_OVER_BUDGET) return false;
  options.rank_bytes_max = 0;
  return done(plan_for_world(*source.opened.plan, topology, options, nullptr, &plan)) && plan.alignment == 65536 &&
         plan.options.flat_bytes == 4096;
}

void files_of_another_world_have_the_same_numbers(void **) { assert_true(files_have_the_same_numbers()); }
void a_reshard_that_fails_leaves_nothing_behind(void **) { assert_true(nothing_is_left_of_failures()); }
void the_door_checks_and_reshards(void **) { assert_true(the_door_takes_what_was_resharded()); }
void any_world_is_filed_as_if_it_had_saved(void **) { assert_true(every_world_becomes_every_other()); }
void what_contradicts_the_plan_is_damaged(void **) { assert_true(contradictions_are_refused()); }
void given_options_go_before_those_of_the_plan(void **) { assert_true(options_that_are_given_count()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(any_world_is_filed_as_if_it_had_saved),
      cmocka_unit_test(what_contradicts_the_plan_is_damaged),
      cmocka_unit_test(given_options_go_before_those_of_the_plan),
      cmocka_unit_test(files_of_another_world_have_the_same_numbers),
      cmocka_unit_test(a_reshard_that_fails_leaves_nothing_behind),
      cmocka_unit_test(the_door_checks_and_reshards),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
