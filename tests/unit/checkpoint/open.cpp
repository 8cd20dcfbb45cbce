// SPDX-License-Identifier: Apache-2.0
// Opening, asking, reading and verifying: checkpoints and models of others, by the public functions; and each way in
// which a folder may have been damaged.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "matrixshard/matrixshard.hpp"
#include "saved_by_hand.hpp"
#include "support/complaints.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

struct Opened {
  mxs::checkpoint handle;
  mxs_status status;
  mxs_checkpoint_info info = MXS_CHECKPOINT_INFO_INIT;

  explicit Opened(const std::string &path) {
    mxs_checkpoint *made = nullptr;
    status = mxs_checkpoint_open(&made, path.c_str());
    handle.reset(made);
    if (status == MXS_OK) status = mxs_checkpoint_query(made, &info);
  }
  mxs_checkpoint *get() const { return handle.get(); }
};

// A checkpoint in a folder of its own, and its manifest.
struct Saved {
  TemporaryFolder folder;
  SavedByHand saved;
  std::string path;

  Saved() : path(folder / "step-00000500") {
    if (save_by_hand(&saved) == MXS_OK)
      write_by_hand(saved, path);
    else
      good(error_of("the checkpoint by hand"));
  }
  std::string operator/(const std::string &name) const { return path + "/" + name; }
  size_t file_of(const std::string &array) const {
    for (const ManifestArray &each : saved.manifest.arrays)
      if (each.name == array) return each.file;
    return SIZE_MAX;
  }
};

std::string compare_array(const Opened &opened, const Manifest &manifest, size_t index) {
  const ManifestArray &wanted = manifest.arrays[index];
  mxs_checkpoint_array array = MXS_CHECKPOINT_ARRAY_INIT;
  uint64_t found = UINT64_MAX;
  if (mxs_checkpoint_array_at(opened.get(), index, &array) != MXS_OK ||
      mxs_checkpoint_find(opened.get(), wanted.name.c_str(), &found) != MXS_OK || found != index)
    return error_of("find");
  if (array.name != wanted.name || array.dtype_word != wanted.dtype_word || array.dtype != wanted.dtype ||
      array.kind != wanted.kind || array.tensor != wanted.tensor || array.part != wanted.part)
    return "names";
  if (array.dimension_count != static_cast<int32_t>(wanted.shape.size()) ||
      !std::equal(wanted.shape.begin(), wanted.shape.end(), array.shape))
    return "shape";
  if (array.bytes != wanted.bytes || array.file != manifest.files[wanted.file].name ||
      array.file_offset != manifest.files[wanted.file].data_offset + wanted.offset ||
      array.piece_count != static_cast<int32_t>(wanted.pieces.size()))
    return "place";
  return "";
}

// Ranges of all kinds, into a poisoned target with a border on both sides.
std::string read_array(const Opened &opened, const Manifest &manifest, size_t index) {
  const ManifestArray &array = manifest.arrays[index];
  const std::pair<uint64_t, uint64_t> ranges[] = {
      {0, array.bytes}, {array.bytes / 2, array.bytes - array.bytes / 2}, {array.bytes / 3, array.bytes / 3},
      {array.bytes, 0}, {0, std::min<uint64_t>(array.bytes, 1)}};
  for (const auto &[offset, bytes] : ranges) {
    std::vector<std::byte> target(bytes + 16);
    if (mxs_checkpoint_read(opened.get(), index, offset, bytes, target.data() + 8) != MXS_OK) return error_of("read");
    for (uint64_t at = 0; at < target.size(); ++at) {
      const bool inside = at >= 8 && at < 8 + bytes;
      const std::byte wanted = inside ? byte_at(array.file, array.offset + offset + at - 8) : std::byte{0};
      if (target[at] != wanted) return words("byte %zu of %s is wrong", static_cast<size_t>(at), array.name.c_str());
    }
  }
  char none = 0;
  return expect(mxs_checkpoint_read(opened.get(), index, array.bytes, 1, &none), MXS_INVALID_ARGUMENT, {array.name});
}

std::string a_checkpoint_tells_what_it_has() {
  const Saved saved;
  const Manifest &manifest = saved.saved.manifest;
  for (const std::string &path : {saved.path, saved.path + "/", saved.folder.path(), saved / manifest_name}) {
    const Opened opened(path);
    if (opened.status != MXS_OK) return error_of(path);
    const mxs_checkpoint_info &info = opened.info;
    if (info.path != saved.path || std::strcmp(info.version, "0.1.0") != 0 || !info.has_manifest) return info.path;
    if (info.rank_count != 3 || info.group_count != 2 || info.masters != 0 || info.has_state != 1 ||
        info.step_number != 500 || info.file_count != manifest.files.size() ||
        info.array_count != manifest.arrays.size())
      return "numbers";
    uint64_t bytes = 0;
    for (const ManifestFile &file : manifest.files) bytes += file.bytes - file.data_offset;
    if (info.bytes != bytes) return "bytes";
    for (size_t index = 0; index < manifest.arrays.size(); ++index) {
      std::string complaint = compare_array(opened, manifest, index);
      if (complaint.empty()) complaint = read_array(opened, manifest, index);
      if (!complaint.empty()) return manifest.arrays[index].name + ": " + complaint;
    }
    if (mxs_checkpoint_verify(opened.get(), nullptr) != MXS_OK) return error_of("verify");
  }
  return "";
}

std::string it_has_plan_groups_and_user_bytes() {
  const Saved saved;
  const Opened opened(saved.path);
  if (opened.status != MXS_OK) return error_of("open");
  mxs_plan *plan = nullptr;
  if (mxs_checkpoint_plan(opened.get(), &plan) != MXS_OK) return error_of("plan");
  const mxs::plan owned_plan(plan);
  if (mxs_plan_fingerprint(plan) != saved.saved.plan.fingerprint) return "the plan's fingerprint";
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  if (mxs_checkpoint_group(opened.get(), 0, &values) != MXS_OK || values.lr != 0.1f) return error_of("group");
  for (const int32_t group : {1, 2, -1, INT32_MAX})
    if (mxs_checkpoint_group(opened.get(), group, &values) != MXS_NOT_FOUND) return "a group that isn't there";
  mxs_preset preset = -7;
  for (const ManifestRule &rule : saved.saved.manifest.rules)
    if (mxs_checkpoint_rule(opened.get(), rule.rule, &preset) != MXS_OK || preset != rule.preset)
      return error_of("rule");
  preset = -7;
  for (const mxs_rule rule : {MXS_RULE_SOAP, MXS_RULE_FROZEN, -1, INT32_MAX})
    if (mxs_checkpoint_rule(opened.get(), rule, &preset) != MXS_NOT_FOUND || preset != -7) return "a rule of no tensor";
  if (mxs_checkpoint_rule(opened.get(), MXS_RULE_ADAMW, nullptr) != MXS_INVALID_ARGUMENT ||
      mxs_checkpoint_rule(nullptr, MXS_RULE_ADAMW, &preset) != MXS_INVALID_ARGUMENT)
    return "NULLs of rule";
  const void *data = &values;
  uint64_t bytes = 77;
  if (mxs_checkpoint_user(opened.get(), 0, &data, &bytes) != MXS_OK || bytes != 3 || std::memcmp(data, "one", 3) != 0)
    return error_of("user");
  if (mxs_checkpoint_user(opened.get(), 2, &data, &bytes) != MXS_OK || bytes != 0 || data) return error_of("no user");
  for (const int32_t rank : {3, -1, INT32_MAX, INT32_MIN})
    if (mxs_checkpoint_user(opened.get(), rank, &data, &bytes) != MXS_NOT_FOUND) return "a rank that isn't there";
  return "";
}

std::string bad_arguments_change_nothing() {
  const Saved saved;
  const Opened opened(saved.path);
  mxs_checkpoint *made = nullptr;
  mxs_checkpoint_info info = MXS_CHECKPOINT_INFO_INIT;
  mxs_checkpoint_array array = MXS_CHECKPOINT_ARRAY_INIT;
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_plan *plan = nullptr;
  const void *data = nullptr;
  uint64_t number = 77;
  info.size = 3;
  array.size = 3;
  values.size = 3;
  mxs_verify_options options = MXS_VERIFY_OPTIONS_INIT;
  options.reserved = 1;
  const mxs_status refused[] = {
      mxs_checkpoint_open(nullptr, "x"), mxs_checkpoint_open(&made, nullptr), mxs_checkpoint_open(&made, ""),
      mxs_checkpoint_query(nullptr, &info), mxs_checkpoint_query(opened.get(), nullptr),
      mxs_checkpoint_query(opened.get(), &info), mxs_checkpoint_array_at(opened.get(), 0, nullptr),
      mxs_checkpoint_array_at(opened.get(), 0, &array), mxs_checkpoint_find(opened.get(), nullptr, &number),
      mxs_checkpoint_find(opened.get(), "w", nullptr), mxs_checkpoint_find(nullptr, "w", &number),
      mxs_checkpoint_read(opened.get(), 0, 0, 1, nullptr), mxs_checkpoint_read(opened.get(), 0, UINT64_MAX, 2, &info),
      mxs_checkpoint_read(opened.get(), 0, 2, UINT64_MAX, &info), mxs_checkpoint_plan(opened.get(), nullptr),
      mxs_checkpoint_plan(nullptr, &plan), mxs_checkpoint_group(opened.get(), 0, &values),
      mxs_checkpoint_user(opened.get(), 0, nullptr, &number), mxs_checkpoint_user(opened.get(), 0, &data, nullptr),
      mxs_checkpoint_verify(nullptr, nullptr), mxs_checkpoint_verify(opened.get(), &options)};
  for (size_t each = 0; each < std::size(refused); ++each)
    if (refused[each] != MXS_INVALID_ARGUMENT) return words("call %zu", each);
  array.size = sizeof array;
  if (mxs_checkpoint_array_at(opened.get(), opened.info.array_count, &array) != MXS_NOT_FOUND ||
      mxs_checkpoint_array_at(opened.get(), UINT64_MAX, &array) != MXS_NOT_FOUND || array.name)
    return "an array that isn't there";
  if (mxs_checkpoint_find(opened.get(), "v", &number) != MXS_NOT_FOUND || number != 77) return "a name";
  mxs_checkpoint_close(nullptr);
  mxs_checkpoint_close(&made);
  return made || plan ? "a target was touched" : "";
}

// ---- damage ----

struct Damage {
  const char *what;
  std::function<void(const Saved &)> change;
  std::vector<std::string> said;
  mxs_status status = MXS_DAMAGED;
};

void flip(const std::string &path, uint64_t offset) {
  std::string text = content_of(path);
  text[offset] = static_cast<char>(text[offset] ^ 1);
  put_content(path, text);
}

void replace_in(const std::string &path, const std::string &old, const std::string &by) {
  std::string text = content_of(path);
  const size_t place = text.find(old);
  put_content(path, place == std::string::npos ? "nothing was replaced" : text.replace(place, old.size(), by));
}

// As a forger would: a header changed, and its hash made to fit.
void forge_header(const Saved &saved, size_t file, const std::string &old, const std::string &by) {
  Manifest manifest = saved.saved.manifest;
  const std::string path = saved / manifest.files[file].name;
  replace_in(path, old, by);
  const std::string header = content_of(path).substr(0, manifest.files[file].data_offset);
  manifest.files[file].header_hash = hash_chunk(header.data(), header.size());
  write_manifest(manifest, saved.path);
}

void change_manifest(const Saved &saved, const std::function<void(Manifest *)> &change) {
  Manifest manifest = saved.saved.manifest;
  change(&manifest);
  write_manifest(manifest, saved.path);
}

ManifestArray &find(Manifest *manifest, const std::string &name) {
  for (ManifestArray &array : manifest->arrays)
    if (array.name == name) return array;
  return manifest->arrays[0];
}

std::string first_model_file(const Saved &saved) { return saved / saved.saved.manifest.files[0].name; }

std::string damage_is_refused_with_the_file_and_the_tensor() {
  const std::string index = "model.safetensors.index.json", shared = "optimizer/shared.safetensors";
  const Damage damages[] = {
      {"no manifest", [](const Saved &s) { unlink((s / manifest_name).c_str()); }, {manifest_name, "missing"}},
      {"half a manifest", [](const Saved &s) { put_content(s / manifest_name, content_of(s / manifest_name)
                                                                                 .substr(0, 700)); }, {"JSON"}},
      {"an empty manifest", [](const Saved &s) { put_content(s / manifest_name, ""); }, {manifest_name, "JSON"}},
      {"a newer manifest", [](const Saved &s) { replace_in(s / manifest_name, "checkpoint\": 1", "checkpoint\": 2"); },
       {manifest_name, "newer release"}, MXS_NOT_BUILT},
      {"a manifest is a folder", [](const Saved &s) { unlink((s / manifest_name).c_str());
                                                     std::filesystem::create_directory(s / manifest_name); },
       {manifest_name, "not a file"}},
      {"a manifest is a pipe", [](const Saved &s) { unlink((s / manifest_name).c_str());
                                                   mkfifo((s / manifest_name).c_str(), 0600); },
       {manifest_name, "not a file"}},
      {"a manifest of 2^40", [](const Saved &s) { truncate((s / manifest_name).c_str(), int64_t{1} << 40); },
       {manifest_name, "more than 1024 MiB"}},
      {"a manifest of another step", [](const Saved &s) { replace_in(s / manifest_name, "\"step\": 500",
                                                                     "\"step\": 501"); },
       {manifest_name, "hash"}},
      {"another user's bytes", [](const Saved &s) { replace_in(s / manifest_name, "b25l", "b25m"); },
       {manifest_name, "hash"}},
      {"a path upwards", [](const Saved &s) { change_manifest(s, [](Manifest *m) { m->files[0].name =
          "../model-00001-of-00002.safetensors"; }); }, {manifest_name, "\"../"}},
      {"a file that is missing", [&](const Saved &s) { unlink((s / shared).c_str()); }, {shared, "missing"}},
      {"no folder of state", [](const Saved &s) { std::filesystem::remove_all(s / "optimizer"); },
       {"optimizer/", "missing"}},
      {"a file that is a folder", [&](const Saved &s) { unlink((s / shared).c_str());
                                                       std::filesystem::create_directory(s / shared); },
       {shared, "not a file"}},
      {"a file cut off", [&](const Saved &s) { truncate((s / shared).c_str(), 5000); }, {shared, "5000", "cut off"}},
      {"a file of nothing", [&](const Saved &s) { put_content(s / shared, ""); }, {shared, "0 bytes", "cut off"}},
      {"a file too long", [&](const Saved &s) { put_content(s / shared, content_of(s / shared) + "x"); }, {shared}},
      {"a flipped bit in a header", [&](const Saved &s) { flip(s / shared, 4000); }, {shared, "header"}},
      {"a flipped bit in a name", [](const Saved &s) { flip(first_model_file(s), 40); }, {"model-00001-of"}},
      {"a header of 2^60", [](const Saved &s) { std::string text = content_of(first_model_file(s)); text[7] = 16;
                                               put_content(first_model_file(s), text); },
       {"model-00001-of", "header"}},
      {"a header's length", [](const Saved &s) { flip(first_model_file(s), 0); }, {"model-00001-of"}},
      {"a forged dtype", [](const Saved &s) { forge_header(s, s.file_of("w"), "\"BF16\"", "\"F16\" "); },
       {"\"w\"", "another dtype"}},
      {"a forged name", [](const Saved &s) { forge_header(s, s.file_of("w"), "\"w\"", "\"v\""); },
       {"\"v\"", "manifest doesn't have"}},
      {"a forged shape", [](const Saved &s) { forge_header(s, s.file_of("e"), "301,33", "33,301"); },
       {"\"e\"", "shape"}},
      {"a forged overlap", [](const Saved &s) { forge_header(s, 0, "\"data_offsets\":[0,", "\"data_offsets\":[1,"); },
       {"model-00001-of", "tensor"}},
      {"no index", [&](const Saved &s) { unlink((s / index).c_str()); }, {index, "missing"}},
      {"an index of 2^40", [&](const Saved &s) { truncate((s / index).c_str(), int64_t{1} << 40); },
       {index, "more than 256 MiB"}},
      {"an index is a link to itself", [&](const Saved &s) { unlink((s / index).c_str());
                                                            symlink(index.c_str(), (s / index).c_str()); },
       {index, std::strerror(ELOOP)}, MXS_SYSTEM},
      {"half an index", [&](const Saved &s) { put_content(s / index, "{\"weight_map\": {"); }, {index, "JSON"}},
      {"an index that points outside",
       [&](const Saved &s) { replace_in(s / index, "\"w\": \"model-", "\"w\": \"../model-"); },
       {index, "\"w\"", "../"}},
      {"an index of others", [&](const Saved &s) { replace_in(s / index, "\"w\"", "\"v\""); }, {index, "\"v\""}},
      {"an index that lacks one", [&](const Saved &s) { replace_in(s / index, "\"mask\": \"" + s.saved.manifest
          .files[s.file_of("mask")].name + "\"", "\"w\": \"" + s.saved.manifest.files[s.file_of("w")].name + "\""); },
       {index}},
      {"a plan that isn't one", [](const Saved &s) { change_manifest(s, [](Manifest *m) { m->plan = "{}"; }); },
       {manifest_name, "plan"}},
      {"a changed plan", [](const Saved &s) { change_manifest(s, [](Manifest *m) {
          const size_t place = m->plan.find("\"flat_bytes\": 4096");
          if (place != std::string::npos) m->plan.replace(place, 18, "\"flat_bytes\": 8192"); }); },
       {manifest_name, "plan", "finger"}},
      {"a plan of another world", [](const Saved &s) { SavedByHand other; save_by_hand(&other, 2);
          change_manifest(s, [&](Manifest *m) { m->plan = other.manifest.plan; }); }, {manifest_name, "2 ranks"}},
      {"weights said to be extra", [](const Saved &s) { change_manifest(s, [](Manifest *m) { find(m, "w").kind =
          MXS_ARRAY_EXTRA; }); }, {manifest_name, "\"w\""}},
      {"an extra said to be weights", [](const Saved &s) { change_manifest(s, [](Manifest *m) { find(m, "mask").kind =
          MXS_ARRAY_WEIGHTS; }); }, {manifest_name, "\"mask\""}},
      {"state of nobody", [](const Saved &s) { change_manifest(s, [](Manifest *m) { find(m, "w.momentum").tensor =
          "ww"; }); }, {manifest_name, "\"w.momentum\""}},
      {"state of a frozen tensor", [](const Saved &s) { change_manifest(s, [](Manifest *m) { find(m, "w.momentum")
          .tensor = "nothing"; }); }, {manifest_name, "\"w.momentum\"", "stepped"}},
      {"state of a tied tensor", [](const Saved &s) { change_manifest(s, [](Manifest *m) { find(m, "w.momentum")
          .tensor = "hh"; find(m, "w.momentum").tensor.pop_back(); }); }, {manifest_name, "tied"}},
      {"a master of another", [](const Saved &s) { change_manifest(s, [](Manifest *m) { find(m, "w.master").tensor =
          "ee"; find(m, "w.master").tensor.pop_back(); }); }, {manifest_name, "\"w.master\""}},
      {"state of a matrix too many", [](const Saved &s) { change_manifest(s, [](Manifest *m) { find(m, "w.momentum")
          .block = 1000; }); }, {manifest_name, "\"w.momentum\"", "matrix"}},
      {"masters where there are none",
       [](const Saved &s) { change_manifest(s, [](Manifest *m) { m->masters = true; }); },
       {manifest_name, "\"w\"", "dtype"}},
  };
  for (const Damage &each : damages) {
    const Saved saved;
    {
      const Opened opened(saved.path);
      if (opened.status != MXS_OK) return error_of("undamaged");
    }
    each.change(saved);
    mxs_checkpoint *made = nullptr;
    std::string complaint = expect(mxs_checkpoint_open(&made, saved.path.c_str()), each.status, each.said);
    if (complaint.empty() && made) complaint = "the target was touched";
    if (!complaint.empty()) return std::string(each.what) + ": " + complaint;
  }
  return "";
}

std::string what_is_no_checkpoint_is_not_found() {
  const TemporaryFolder folder;
  put_content(folder / "notes.txt", "x");
  for (const std::string &path : {folder / "nothing", folder.path(), folder / "notes.txt", folder / "notes.txt/x"}) {
    const Opened opened(path);
    const std::string complaint = expect(opened.status, MXS_NOT_FOUND, {"checkpoint", path});
    if (!complaint.empty()) return complaint;
  }
  return "";
}

std::string the_newest_of_a_folder_is_opened() {
  const Saved saved;
  std::filesystem::copy(saved.path, saved.folder / "step-00000007", std::filesystem::copy_options::recursive);
  std::filesystem::copy(saved.path, saved.folder / "step-100000000", std::filesystem::copy_options::recursive);
  std::filesystem::copy(saved.path, saved.folder / ".step-900000000.partial-1",
                        std::filesystem::copy_options::recursive);
  {
    const Opened opened(saved.folder.path());
    if (opened.status != MXS_OK || opened.info.path != saved.folder / "step-100000000") return error_of("newest");
  }
  unlink((saved.folder / "step-100000000/matrixshard.json").c_str());
  const Opened opened(saved.folder.path());  // no older one instead, without a word
  return expect(opened.status, MXS_DAMAGED, {"step-100000000", "missing"});
}

// ---- models of others ----

std::string header_text(const std::string &json) {
  std::string text;
  for (int byte = 0; byte < 8; ++byte) text.push_back(static_cast<char>(json.size() >> (8 * byte)));
  return text.append(json);
}

std::string models_of_others_are_opened() {
  const TemporaryFolder folder;
  put_content(folder / "a.safetensors",
              header_text("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                          "\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[8,16]}}") + "01234567abcdefgh");
  put_content(folder / "b.safetensors",
              header_text("{\"f\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,3]},"
                          "\"m\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[3,4]}}") + "xyz1");
  const auto look = [](const Opened &opened, uint64_t count) -> std::string {
    if (opened.status != MXS_OK) return error_of("open");
    if (opened.info.has_manifest || opened.info.rank_count || opened.info.array_count != count || *opened.info.version)
      return "the info";
    uint64_t index = 0;
    mxs_checkpoint_array array = MXS_CHECKPOINT_ARRAY_INIT;
    char read[8] = {};
    if (mxs_checkpoint_find(opened.get(), "n", &index) != MXS_OK ||
        mxs_checkpoint_array_at(opened.get(), index, &array) != MXS_OK ||
        mxs_checkpoint_read(opened.get(), index, 1, 6, read) != MXS_OK)
      return error_of("n");
    if (array.dtype != 0 || std::strcmp(array.dtype_word, "I64") != 0 || array.kind != MXS_ARRAY_WEIGHTS ||
        array.piece_count != 0 || array.bytes != 8 || std::strcmp(read, "bcdefg") != 0)
      return "what it says of n";
    mxs_plan *plan = nullptr;
    const void *data = nullptr;
    if (mxs_checkpoint_plan(opened.get(), &plan) != MXS_NOT_FOUND ||
        mxs_checkpoint_user(opened.get(), 0, &data, &index) != MXS_NOT_FOUND)
      return "a plan or a rank";
    return mxs_checkpoint_verify(opened.get(), nullptr) == MXS_OK ? "" : error_of("verify");
  };
  std::filesystem::create_directory(folder / "optimizer");  // somebody's
  put_content(folder / "optimizer/state.safetensors", "x");
  std::string complaint = look(Opened(folder / "a.safetensors"), 2);
  if (complaint.empty()) complaint = look(Opened(folder.path()), 4);
  put_content(folder / "model.safetensors.index.json",
              "{\"weight_map\": {\"w\": \"a.safetensors\", \"n\": \"a.safetensors\"}}");
  if (complaint.empty()) complaint = look(Opened(folder.path()), 2);
  if (complaint.empty()) complaint = look(Opened(folder / "model.safetensors.index.json"), 2);
  if (!complaint.empty()) return complaint;
  const struct {
    const char *index;
    std::vector<std::string> said;
  } bad[] = {
      {"{\"weight_map\": {\"w\": \"../a.safetensors\"}}", {"\"w\"", "../"}},
      {"{\"weight_map\": {\"w\": \"/a.safetensors\"}}", {"\"w\"", "\"/a"}},
      {"{\"weight_map\": {\"w\": \"c.safetensors\"}}", {"c.safetensors", "missing"}},
      {"{\"weight_map\": {\"w\": \"a.safetensors\"}}", {"\"n\"", "a.safetensors"}},
      {"{\"weight_map\": {\"w\": \"a.safetensors\", \"n\": \"a.safetensors\", \"x\": \"a.safetensors\"}}", {"\"x\""}},
      {"{\"weight_map\": 7}", {"index"}},
      {"{", {"index.json", "JSON"}},
  };
  for (const auto &each : bad) {
    put_content(folder / "model.safetensors.index.json", each.index);
    const Opened opened(folder.path());
    complaint = expect(opened.status, MXS_DAMAGED, each.said);
    if (!complaint.empty()) return std::string(each.index) + ": " + complaint;
  }
  unlink((folder / "model.safetensors.index.json").c_str());
  std::filesystem::copy(folder / "a.safetensors", folder / "c.safetensors");
  const Opened opened(folder.path());
  return expect(opened.status, MXS_DAMAGED, {"a.safetensors", "c.safetensors"});
}

// ---- verifying ----

struct Faults {
  std::vector<std::string> sentences;
  static void note(void *context, const char *sentence) {
    static_cast<Faults *>(context)->sentences.emplace_back(sentence);
  }
};

std::string every_fault_is_told() {
  const Saved saved;
  const Manifest &manifest = saved.saved.manifest;
  const Opened opened(saved.path);
  if (opened.status != MXS_OK) return error_of("open");
  std::vector<const ManifestArray *> hit;
  for (const ManifestArray &array : manifest.arrays) {
    if (array.bytes == 0 || array.name == "e") continue;
    const uint64_t place = manifest.files[array.file].data_offset + array.offset;
    flip(saved / manifest.files[array.file].name, place + array.bytes - 1);
    if (array.bytes > 1) flip(saved / manifest.files[array.file].name, place);
    hit.push_back(&array);
  }
  std::string complaint = expect(mxs_checkpoint_verify(opened.get(), nullptr), MXS_DAMAGED,
                                 {hit[0]->name, manifest.files[hit[0]->file].name});
  if (!complaint.empty()) return complaint;
  Faults faults;
  mxs_verify_options options = MXS_VERIFY_OPTIONS_INIT;
  options.fault = Faults::note;
  options.fault_context = &faults;
  complaint = expect(mxs_checkpoint_verify(opened.get(), &options), MXS_DAMAGED, {hit[0]->name});
  if (!complaint.empty()) return complaint;
  if (faults.sentences.size() != hit.size()) return words("%zu faults", faults.sentences.size());
  for (size_t each = 0; each < hit.size(); ++each)
    for (const std::string &word : {hit[each]->name, manifest.files[hit[each]->file].name})
      if (faults.sentences[each].find(word) == std::string::npos) return faults.sentences[each] + " lacks " + word;
  for (size_t index = 0; index < manifest.arrays.size(); ++index) {
    const bool is_hit = std::find(hit.begin(), hit.end(), &manifest.arrays[index]) != hit.end();
    std::vector<std::byte> target(manifest.arrays[index].bytes);
    const mxs_status status = mxs_checkpoint_read(opened.get(), index, 0, target.size(), target.data());
    if (status != (is_hit ? MXS_DAMAGED : MXS_OK)) return error_of("read " + manifest.arrays[index].name);
  }
  return "";
}

std::string faults_since_open_are_told() {
  const Saved saved;
  const Opened opened(saved.path);
  if (opened.status != MXS_OK) return error_of("open");
  const std::vector<ManifestFile> &files = saved.saved.manifest.files;
  flip(saved / files[0].name, 4000);
  unlink((saved / files[1].name).c_str());
  truncate((saved / files.back().name).c_str(), static_cast<off_t>(files.back().bytes - 1));
  unlink((saved / "model.safetensors.index.json").c_str());
  Faults faults;
  mxs_verify_options options = MXS_VERIFY_OPTIONS_INIT;
  options.fault = Faults::note;
  options.fault_context = &faults;
  const std::string complaint = expect(mxs_checkpoint_verify(opened.get(), &options), MXS_DAMAGED, {"index"});
  if (!complaint.empty()) return complaint;
  if (faults.sentences.size() != 4) return words("%zu faults", faults.sentences.size());
  const std::string wanted[] = {"index.json", files[0].name, files[1].name, files.back().name};
  for (size_t each = 0; each < 4; ++each)
    if (faults.sentences[each].find(wanted[each]) == std::string::npos) return faults.sentences[each];
  return "";
}

struct Progress {
  uint64_t done_bytes = 0, total_bytes = 0;
  bool ascending = true, stop = false;
  static int note(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    auto *progress = static_cast<Progress *>(context);
    progress->ascending = progress->ascending && done_bytes >= progress->done_bytes && done_bytes <= total_bytes;
    progress->done_bytes = done_bytes;
    progress->total_bytes = total_bytes;
    return progress->stop;
  }
};

std::string verifying_tells_how_far_it_is_and_can_be_stopped() {
  const Saved saved;
  const Opened opened(saved.path);
  Progress progress;
  mxs_verify_options options = MXS_VERIFY_OPTIONS_INIT;
  options.progress = Progress::note;
  options.progress_context = &progress;
  if (mxs_checkpoint_verify(opened.get(), &options) != MXS_OK) return error_of("verify");
  if (!progress.ascending || progress.done_bytes != opened.info.bytes || progress.total_bytes != opened.info.bytes)
    return words("%zu of %zu", static_cast<size_t>(progress.done_bytes), static_cast<size_t>(progress.total_bytes));
  progress = {};
  flip(first_model_file(saved), saved.saved.manifest.files[0].data_offset);
  Faults faults;
  options.fault = Faults::note;
  options.fault_context = &faults;
  if (mxs_checkpoint_verify(opened.get(), &options) != MXS_DAMAGED || faults.sentences.size() != 1 ||
      !progress.ascending || progress.done_bytes != opened.info.bytes)
    return "with a fault";
  progress.done_bytes = 0;
  progress.stop = true;
  return expect(mxs_checkpoint_verify(opened.get(), &options), MXS_CANCELLED);
}

std::string threads_read_at_once() {
  const Saved saved;
  const Opened opened(saved.path);
  std::vector<std::string> complaints(4);
  std::vector<std::thread> threads;
  for (std::string &complaint : complaints)
    threads.emplace_back([&] {
      for (size_t index = 0; index < saved.saved.manifest.arrays.size() && complaint.empty(); ++index)
        complaint = read_array(opened, saved.saved.manifest, index);
    });
  for (std::thread &thread : threads) thread.join();
  for (const std::string &complaint : complaints)
    if (!complaint.empty()) return complaint;
  return "";
}

void tells(void **) { assert_true(good(a_checkpoint_tells_what_it_has())); }
// A later release may plan otherwise: it still reads what this one has saved.
std::string another_releases_plan_is_done_without() {
  const Saved saved;
  change_manifest(saved, [](Manifest *manifest) {
    manifest->version = "0.0.9";
    const size_t place = manifest->plan.find("\"flat_bytes\": 4096");
    if (place != std::string::npos) manifest->plan.replace(place, 18, "\"flat_bytes\": 8192");
  });
  const Opened opened(saved.path);
  if (opened.status != MXS_OK) return error_of("open");
  mxs_plan *plan = nullptr;
  const std::string complaint = expect(mxs_checkpoint_plan(opened.get(), &plan), MXS_NOT_BUILT, {"release 0.0.9"});
  if (!complaint.empty() || plan) return "a plan: " + complaint;
  return mxs_checkpoint_verify(opened.get(), nullptr) == MXS_OK ? "" : error_of("verify");
}

void done_without(void **) { assert_true(good(another_releases_plan_is_done_without())); }
void has(void **) { assert_true(good(it_has_plan_groups_and_user_bytes())); }
void arguments(void **) { assert_true(good(bad_arguments_change_nothing())); }
void damage(void **) { assert_true(good(damage_is_refused_with_the_file_and_the_tensor())); }
void nothing(void **) { assert_true(good(what_is_no_checkpoint_is_not_found())); }
void newest(void **) { assert_true(good(the_newest_of_a_folder_is_opened())); }
void others(void **) { assert_true(good(models_of_others_are_opened())); }
void faults(void **) { assert_true(good(every_fault_is_told())); }
void since(void **) { assert_true(good(faults_since_open_are_told())); }
void progress(void **) { assert_true(good(verifying_tells_how_far_it_is_and_can_be_stopped())); }
void threads(void **) { assert_true(good(threads_read_at_once())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      {"a_checkpoint_tells_what_it_has", tells, nullptr, nullptr, nullptr},
      {"it_has_plan_groups_and_user_bytes", has, nullptr, nullptr, nullptr},
      {"another_releases_plan_is_done_without", done_without, nullptr, nullptr, nullptr},
      {"bad_arguments_change_nothing", arguments, nullptr, nullptr, nullptr},
      {"damage_is_refused_with_the_file_and_the_tensor", damage, nullptr, nullptr, nullptr},
      {"what_is_no_checkpoint_is_not_found", nothing, nullptr, nullptr, nullptr},
      {"the_newest_of_a_folder_is_opened", newest, nullptr, nullptr, nullptr},
      {"models_of_others_are_opened", others, nullptr, nullptr, nullptr},
      {"every_fault_is_told", faults, nullptr, nullptr, nullptr},
      {"faults_since_open_are_told", since, nullptr, nullptr, nullptr},
      {"verifying_tells_how_far_it_is_and_can_be_stopped", progress, nullptr, nullptr, nullptr},
      {"threads_read_at_once", threads, nullptr, nullptr, nullptr},
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
