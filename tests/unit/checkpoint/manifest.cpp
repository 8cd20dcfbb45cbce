// SPDX-License-Identifier: Apache-2.0
// Manifests: what is written comes back, and every way in which one may contradict itself is refused with a sentence.
#include <bit>
#include <cstring>
#include <functional>

#include "base/arithmetic.hpp"
#include "base/base64.hpp"
#include "base/status.hpp"
#include "manifests.hpp"
#include "support/complaints.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

std::string text_of(const Manifest &manifest) {
  std::string text;
  return manifest_to_json(manifest, &text) == MXS_OK ? text : last_error_text();
}

bool same_bits(const std::optional<mxs_group_values> &a, const std::optional<mxs_group_values> &b) {
  return a.has_value() == b.has_value() && (!a || std::memcmp(&*a, &*b, sizeof *a) == 0);
}

bool same(const ManifestArray &a, const ManifestArray &b) {
  bool pieces = a.pieces.size() == b.pieces.size();
  for (size_t piece = 0; pieces && piece < a.pieces.size(); ++piece)
    pieces = a.pieces[piece].rank == b.pieces[piece].rank && a.pieces[piece].first == b.pieces[piece].first &&
             a.pieces[piece].count == b.pieces[piece].count && a.pieces[piece].hashes == b.pieces[piece].hashes;
  return pieces && a.name == b.name && a.dtype_word == b.dtype_word && a.dtype == b.dtype &&
         a.number_bytes == b.number_bytes && a.shape == b.shape && a.kind == b.kind && a.tensor == b.tensor &&
         a.part == b.part && a.block == b.block && a.cut == b.cut && a.file == b.file && a.offset == b.offset &&
         a.bytes == b.bytes;
}

std::string difference(const Manifest &a, const Manifest &b) {
  if (a.version != b.version || a.step_number != b.step_number || a.rank_count != b.rank_count ||
      a.masters != b.masters || a.has_state != b.has_state || a.rounding != b.rounding)
    return "the head";
  if (a.user != b.user || a.plan != b.plan) return "user or plan";
  if (a.rules.size() != b.rules.size() || a.groups.size() != b.groups.size()) return "the count of rules or groups";
  for (size_t rule = 0; rule < a.rules.size(); ++rule)
    if (a.rules[rule].rule != b.rules[rule].rule || a.rules[rule].preset != b.rules[rule].preset ||
        a.rules[rule].options != b.rules[rule].options)
      return "a rule";
  for (size_t group = 0; group < a.groups.size(); ++group)
    if (!same_bits(a.groups[group], b.groups[group])) return "a group";
  if (a.files.size() != b.files.size() || a.arrays.size() != b.arrays.size()) return "the count of files or arrays";
  for (size_t file = 0; file < a.files.size(); ++file)
    if (a.files[file].name != b.files[file].name || a.files[file].bytes != b.files[file].bytes ||
        a.files[file].data_offset != b.files[file].data_offset ||
        a.files[file].header_hash != b.files[file].header_hash)
      return "a file";
  for (size_t array = 0; array < a.arrays.size(); ++array)
    if (!same(a.arrays[array], b.arrays[array])) return a.arrays[array].name;
  return "";
}

std::string round_trip(const Manifest &manifest) {
  const std::string text = text_of(manifest);
  Manifest read;
  if (manifest_from_json(text, &read) != MXS_OK) return error_of("read") + ": " + text.substr(0, 4000);
  const std::string what = difference(manifest, read);
  if (!what.empty()) return what + " differs";
  return text_of(read) == text ? "" : "it is written otherwise the second time";
}

std::string what_is_written_is_read() {
  Manifest manifest = small_manifest();
  std::string complaint = round_trip(manifest);
  if (!complaint.empty()) return complaint;
  manifest.masters = true;
  manifest.has_state = false;
  manifest.rules.clear();
  manifest.groups.clear();
  manifest.user.clear();
  manifest.plan = "{}";
  complaint = round_trip(manifest);
  if (!complaint.empty()) return complaint;
  manifest.files.clear();
  manifest.arrays.clear();
  return round_trip(manifest);
}

std::string one_line_is_one_array() {
  const std::string text = text_of(small_manifest());
  const char *const wanted =
      "\n  {\"name\": \"e.exp_avg\", \"dtype\": \"F32\", \"shape\": [3, 5], \"kind\": \"state\", \"tensor\": \"e\", "
      "\"part\": \"exp_avg\", \"file\": 3, \"offset\": 0, \"pieces\": [{\"rank\": 1, \"count\": 10, "
      "\"hashes\": [\"fedcba9876544d68\"]}, {\"rank\": 2, \"count\": 5, \"hashes\": [\"fedcba9876544d68\"]}]}],\n";
  if (text.find(wanted) == std::string::npos) return text;
  const char *const head = "{\"matrixshard_checkpoint\": 1, \"version\": \"0.1.0\", \"step\": 18446744073709551615, "
                           "\"ranks\": 3, \"masters\": false, \"state\": true,\n \"rules\": [\n"
                           "  {\"rule\": \"muon\", \"preset\": \"moonlight\", \"options\": \"123456789abcdef0\"},\n";
  return text.starts_with(head) ? "" : text;
}

// Of a sample of all floats, and of the corners.
std::string group_values_come_back_bit_for_bit() {
  std::vector<float> values = {0.0f, -0.0f, 1.0f, 16777216.0f, 1e-45f, 1.17549435e-38f, 3.4028235e38f, 0.1f, 1e10f};
  for (uint32_t bits = 1; bits < 0x7f800000u; bits += 100003) values.push_back(std::bit_cast<float>(bits));
  Manifest manifest = small_manifest();
  manifest.groups.clear();
  for (const float value : values) {
    mxs_group_values group = MXS_GROUP_VALUES_INIT;
    group.lr = group.epsilon = value;
    manifest.groups.emplace_back(group);
  }
  return round_trip(manifest);
}

std::string base64_is_strict() {
  const char *const bytes[] = {"", "f", "fo", "foo", "foob", "fooba", "foobar"};
  const char *const texts[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (size_t each = 0; each < std::size(bytes); ++each) {
    std::string read = "poison";
    if (base64_text(bytes[each]) != texts[each]) return base64_text(bytes[each]);
    if (!bytes_of_base64(texts[each], &read) || read != bytes[each]) return texts[each];
  }
  std::string all, read;
  for (int letter = 0; letter < 256; ++letter) all.push_back(static_cast<char>(letter));
  if (!bytes_of_base64(base64_text(all), &read) || read != all) return "all letters";
  for (const char *bad : {"Z", "Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "====", "=", "Zm 9", "Zm9v\n", "Zm-_", "Z=g=",
                          "Zg==Zg==", "\xff\xff\xff\xff"}) {
    read = "poison";
    if (bytes_of_base64(bad, &read) || read != "poison") return std::string("it takes ") + bad;
  }
  return "";
}

// Known answers of XXH3: checkpoints that are there must stay readable.
std::string hashes_stay_what_they_are() {
  std::vector<unsigned char> chunk(hash_chunk_bytes);
  for (size_t byte = 0; byte < chunk.size(); ++byte) chunk[byte] = static_cast<unsigned char>(byte * 131 >> 3);
  const std::pair<uint64_t, uint64_t> answers[] = {{hash_chunk("", 0), 0x2d06800538d394c2u},
                                                   {hash_chunk("a", 1), 0xe6c632b61e964e1fu},
                                                   {hash_chunk("abc", 3), 0x78af5f94892f3950u}};
  for (const auto &[got, wanted] : answers)
    if (got != wanted) return words("%016zx instead of %016zx", static_cast<size_t>(got), static_cast<size_t>(wanted));
  return hash_chunk(chunk.data(), chunk.size()) == hash_chunk(chunk.data(), chunk.size() - 1) ? "all the same" : "";
}

struct Bad {
  const char *what;
  std::function<void(Manifest *)> change;
  std::vector<std::string> said;
};

std::string refused(const std::string &text, mxs_status wanted, const std::vector<std::string> &said) {
  Manifest manifest;
  manifest.version = "poison";
  const mxs_status status = manifest_from_json(text, &manifest);
  if (manifest.version != "poison" || !manifest.arrays.empty()) return "the target was touched";
  return expect(status, wanted, said);
}

std::string contradictions_are_refused() {
  const uint64_t huge = uint64_t{1} << 60;
  const std::vector<Bad> bad = {
      {"two arrays of a name", [](Manifest *m) { m->arrays[3].name = m->arrays[3].tensor = m->arrays[0].name; },
       {"\"w\"", "twice"}},
      {"two files of a name", [](Manifest *m) { m->files[1].name = m->files[0].name; }, {"00001-of", "twice"}},
      {"a path upwards", [](Manifest *m) { m->files[0].name = "../model-00001-of-00002.safetensors"; }, {"\"../"}},
      {"a path within", [](Manifest *m) { m->files[0].name = "optimizer/../rank-00000.safetensors"; }, {"/../"}},
      {"an absolute path", [](Manifest *m) { m->files[0].name = "/etc/model-00001-of-00002.safetensors"; }, {"/etc"}},
      {"another file", [](Manifest *m) { m->files[0].name = "config.json"; }, {"config.json"}},
      {"no file", [](Manifest *m) { m->files[0].name = "model"; }, {"\"model\""}},
      {"a header of nothing", [](Manifest *m) { m->files[0].data_offset = 7; }, {"00001-of", "7"}},
      {"a header of 2^60", [=](Manifest *m) { m->files[0].data_offset = huge; }, {"00001-of", "header"}},
      {"a header beyond its file", [](Manifest *m) { m->files[0].bytes = 4000; }, {"00001-of", "4000"}},
      {"a file of 2^60", [=](Manifest *m) { m->files[0].bytes = huge; }, {"00001-of", "bytes of data"}},
      {"a file of 2^63", [](Manifest *m) { m->files[0].bytes = uint64_t{1} << 63; }, {"files[0].bytes"}},
      {"a file too short", [](Manifest *m) { m->files[3].bytes -= 1; }, {"\"e.exp_avg\"", "shared"}},
      {"a file too long", [](Manifest *m) { m->files[3].bytes += 1; }, {"shared", "61 bytes"}},
      {"arrays over each other", [](Manifest *m) { m->arrays[1].offset -= 1; }, {"\"nothing\"", "00001-of", "ends"}},
      {"a gap", [](Manifest *m) { m->arrays[1].offset += 4; }, {"\"nothing\"", "4 bytes of no array"}},
      {"a gap in front", [](Manifest *m) { m->arrays[3].offset = 1; }, {"\"e\"", "1 bytes of no array"}},
      {"an offset of 2^62", [](Manifest *m) { m->arrays[1].offset = uint64_t{1} << 62; }, {"\"nothing\""}},
      {"an offset of 2^63", [](Manifest *m) { m->arrays[1].offset = uint64_t{1} << 63; }, {"arrays[1].offset"}},
      {"no such file", [](Manifest *m) { m->arrays[7].file = 4; }, {"\"e.exp_avg\"", "isn't there"}},
      {"a file of 2^60th", [=](Manifest *m) { m->arrays[7].file = huge; }, {"\"e.exp_avg\"", "isn't there"}},
      {"files in disorder", [](Manifest *m) { std::swap(m->arrays[2], m->arrays[3]); }, {"00001-of", "of data"}},
      {"disorder at the end", [](Manifest *m) { std::swap(m->arrays[6], m->arrays[7]); }, {"rank-00000"}},
      {"a file of no array", [](Manifest *m) { m->arrays.pop_back(); }, {"shared", "60 bytes", "0"}},
      {"sides that overflow", [](Manifest *m) { m->arrays[0].shape = {int64_t{1} << 40, int64_t{1} << 40}; },
       {"arrays[0].shape"}},
      {"bytes that overflow", [](Manifest *m) { m->arrays[0].shape = {int64_t{1} << 61, 2}; }, {"arrays[0].shape"}},
      {"a side of 2^60", [](Manifest *m) { m->arrays[0].shape = {int64_t{1} << 60}; }, {"\"w\"", "00001-of"}},
      {"a side below 0", [](Manifest *m) { m->arrays[0].shape = {-4096, -1024}; }, {"arrays[0].shape[0]"}},
      {"nine sides", [](Manifest *m) { m->arrays[3].shape = {3, 5, 1, 1, 1, 1, 1, 1, 1}; }, {"arrays[3].shape"}},
      {"another shape", [](Manifest *m) { m->arrays[3].shape = {3, 4}; }, {"\"e\"", "has pieces of more"}},
      {"another dtype", [](Manifest *m) { m->arrays[3].dtype_word = "BF16"; }, {"00002-of", "30"}},
      {"no dtype", [](Manifest *m) { m->arrays[3].dtype_word = "f32"; }, {"arrays[3].dtype"}},
      {"no kind", [](Manifest *m) { m->arrays[3].kind = 0; }, {"\"e\"", "no kind"}},
      {"unknown kind", [](Manifest *m) { m->arrays[3].kind = 77; }, {"arrays[3].kind"}},
      {"a name for metadata", [](Manifest *m) { m->arrays[3].name = "__metadata__"; }, {"__metadata__"}},
      {"an empty name", [](Manifest *m) { m->arrays[3].name.clear(); }, {"arrays[3].name"}},
      {"a name with a zero", [](Manifest *m) { m->arrays[3].name = std::string("e\0", 2); }, {"arrays[3].name"}},
      {"no tensor", [](Manifest *m) { m->arrays[4].tensor.clear(); }, {"arrays[4].tensor"}},
      {"no part", [](Manifest *m) { m->arrays[7].part.clear(); }, {"arrays[7].part"}},
      {"a cut of no block", [](Manifest *m) { m->arrays[5].block = -1; }, {"\"w.factor_left\"", "no block"}},
      {"a block of weights", [](Manifest *m) { m->arrays[0].block = 0; }, {"arrays[0].block"}},
      {"state among weights", [](Manifest *m) { m->arrays[3].kind = MXS_ARRAY_STATE, m->arrays[3].part = "momentum"; },
       {"\"e\"", "model's file"}},
      {"weights among state", [](Manifest *m) { m->arrays[4].kind = MXS_ARRAY_WEIGHTS; },
       {"\"w.master\"", "optimizer's"}},
      {"two masters", [](Manifest *m) { m->arrays[5].kind = MXS_ARRAY_MASTER, m->arrays[5].block = -1,
                                        m->arrays[5].cut = -1; }, {"\"w.factor_left\"", "\"w.master\""}},
      {"state twice", [](Manifest *m) { m->arrays[6].part = "factor_left", m->arrays[6].block = 0,
                                        m->arrays[6].cut = 3; }, {"\"w.scale\"", "\"w.factor_left\""}},
      {"pieces that lack", [](Manifest *m) { m->arrays[3].pieces[1].count = 4; }, {"\"e\"", "14 numbers", "15"}},
      {"no pieces", [](Manifest *m) { m->arrays[3].pieces.clear(); }, {"\"e\"", "0 numbers"}},
      {"pieces too long", [](Manifest *m) { m->arrays[3].pieces[1].count = 6; }, {"\"e\"", "more than"}},
      {"a piece of 2^60", [=](Manifest *m) { m->arrays[3].pieces[0].count = huge; }, {"\"e\"", "more than"}},
      {"pieces of 2^63", [](Manifest *m) { m->arrays[3].pieces[0].count = m->arrays[3].pieces[1].count = bytes_max; },
       {"arrays[3].pieces[1].count"}},
      {"a rank outside", [](Manifest *m) { m->arrays[3].pieces[1].rank = 3; }, {"\"e\"", "rank 3"}},
      {"a rank of 2^31", [](Manifest *m) { m->arrays[3].pieces[1].rank = INT32_MAX; }, {"pieces[1].rank"}},
      {"a hash too few", [](Manifest *m) { m->arrays[0].pieces[0].hashes.pop_back(); }, {"\"w\"", "1 hashes", "2"}},
      {"a hash too many", [](Manifest *m) { m->arrays[3].pieces[0].hashes.push_back(1); }, {"\"e\"", "2 hashes"}},
      {"a hash of nothing", [](Manifest *m) { m->arrays[1].pieces[0].hashes.push_back(1); }, {"\"nothing\""}},
      {"no ranks", [](Manifest *m) { m->rank_count = 0; }, {"ranks"}},
      {"2^30 ranks", [](Manifest *m) { m->rank_count = 1 << 30; }, {"ranks"}},
      {"user bytes of others", [](Manifest *m) { m->user.resize(4); }, {"user", "4"}},
      {"user bytes too many", [](Manifest *m) { m->user[0].resize((1 << 20) + 3); }, {"user[0]"}},
      {"user bytes too many by one", [](Manifest *m) { m->user[0].resize((1 << 20) + 1); }, {"user[0]"}},
      {"a rule that steps nothing", [](Manifest *m) { m->rules[0].rule = MXS_RULE_FROZEN; }, {"rules"}},
      {"a rule twice", [](Manifest *m) { m->rules[1].rule = MXS_RULE_MUON; }, {"rules", "twice"}},
      {"a preset of another rule", [](Manifest *m) { m->rules[1].preset = MXS_PRESET_SOAP; }, {"preset"}},
      {"an unknown preset", [](Manifest *m) { m->rules[1].preset = 99; }, {"rules[1].preset"}},
      {"a rate below 0", [](Manifest *m) { m->groups[0]->lr = -1; }, {"groups[0].lr"}},
      {"no plan", [](Manifest *m) { m->plan = "[]"; }, {"plan", "object"}},
  };
  for (const Bad &each : bad) {
    Manifest manifest = small_manifest();
    each.change(&manifest);
    const std::string complaint = refused(text_of(manifest), MXS_DAMAGED, each.said);
    if (!complaint.empty()) return std::string(each.what) + ": " + complaint;
  }
  return "";
}

// Of a manifest that is made, not read: one that is taken here must be one that a reader takes.
std::string what_state_alone_has_is_refused_of_others() {
  const Bad bad[] = {
      {"a block of weights", [](Manifest *m) { m->arrays[0].block = 0; }, {"\"w\"", "no state"}},
      {"a cut of a master", [](Manifest *m) { m->arrays[4].cut = 0; }, {"\"w.master\"", "no state"}},
      {"a part of weights", [](Manifest *m) { m->arrays[3].part = "momentum"; }, {"\"e\"", "no state"}},
  };
  for (const Bad &each : bad) {
    Manifest manifest = small_manifest();
    each.change(&manifest);
    const std::string complaint = expect(check_manifest(manifest), MXS_DAMAGED, each.said);
    if (!complaint.empty()) return std::string(each.what) + ": " + complaint;
  }
  return "";
}

std::string replaced(std::string text, const std::string &old, const std::string &by) {
  const size_t place = text.find(old);
  return place == std::string::npos ? "there is no " + old : text.replace(place, old.size(), by);
}

std::string texts_that_are_no_manifest_are_refused() {
  const std::string good = text_of(small_manifest());
  const struct {
    std::string old, by;
    mxs_status status;
    std::vector<std::string> said;
  } bad[] = {
      {"checkpoint\": 1", "checkpoint\": 2", MXS_NOT_BUILT, {"newer release", "version 2", "reads 1", "update"}},
      {"checkpoint\": 1", "checkpoint\": 2, \"new field\": 1, \"arrays\": 7", MXS_DAMAGED, {"\"arrays\"", "twice"}},
      {"checkpoint\": 1", "checkpoint\": 0", MXS_DAMAGED, {"matrixshard_checkpoint"}},
      {"checkpoint\": 1", "checkpoint\": \"1\"", MXS_DAMAGED, {"matrixshard_checkpoint"}},
      {"{\"matrixshard_checkpoint\": 1, ", "{", MXS_DAMAGED, {"no manifest"}},
      {"\"step\": 18446744073709551615", "\"step\": 18446744073709551616", MXS_DAMAGED, {"step"}},
      {"\"step\": 18446744073709551615", "\"step\": -1", MXS_DAMAGED, {"step"}},
      {"\"step\": 18446744073709551615", "\"step\": 1.5", MXS_DAMAGED, {"step"}},
      {"\"ranks\": 3", "\"rank\": 3", MXS_DAMAGED, {"rank is not a known field"}},
      {"\"masters\": false", "\"masters\": 0", MXS_DAMAGED, {"masters"}},
      {"\"moonlight\"", "\"sunlight\"", MXS_DAMAGED, {"rules[0].preset"}},
      {"\"muon\"", "\"muan\"", MXS_DAMAGED, {"rules[0].rule"}},
      {"\"123456789abcdef0\"", "\"123456789abcdef\"", MXS_DAMAGED, {"rules[0].options", "16 digits"}},
      {"\"123456789abcdef0\"", "\"123456789abcdefg\"", MXS_DAMAGED, {"rules[0].options"}},
      {"\"123456789abcdef0\"", "\"123456789ABCDEF0\"", MXS_DAMAGED, {"rules[0].options"}},
      {"\"123456789abcdef0\"", "81985529216486895", MXS_DAMAGED, {"rules[0].options"}},
      {"\"lr\": 0.1", "\"lr\": 1e39", MXS_DAMAGED, {"groups[0].lr"}},
      {"\"lr\": 0.1", "\"lr\": \"0.1\"", MXS_DAMAGED, {"groups[0].lr"}},
      {"\"lr\": 0.1, ", "", MXS_DAMAGED, {"groups[0].lr", "missing"}},
      {"\"YQ==\"", "\"YQ=\"", MXS_DAMAGED, {"user[2]", "base64"}},
      {"\"files\": [", "\"files\": [7, ", MXS_DAMAGED, {"files[0]"}},
      {"\"files\": [", "\"files\": {}, \"unknown\": [", MXS_DAMAGED, {"unknown"}},
      {"\"arrays\": [", "\"arrays\": [[], ", MXS_DAMAGED, {"arrays[0]"}},
      {"\"arrays\": [", "\"arrays\": [\"}\", ", MXS_DAMAGED, {"arrays[0]"}},
      {"\"arrays\": [", "\"arrays\": 7, \"array\": [", MXS_DAMAGED, {"array"}},
      {"\"arrays\": [", "\"arrays\": {\"a\": [{}]}, \"array\": [", MXS_DAMAGED, {"array"}},
      {"\"dtype\": \"BF16\"", "\"dtype\": \"BF16\", \"dtype\": \"BF16\"", MXS_DAMAGED, {"twice"}},
      {"\"dtype\": \"BF16\"", "\"type\": \"BF16\"", MXS_DAMAGED, {"arrays[0].type"}},
      {"\"hashes\": [\"", "\"hashes\": [1, \"", MXS_DAMAGED, {"arrays[0].pieces[0].hashes[0]"}},
      {"\"hashes\": [\"", "\"hashes\": \"\", \"hash\": [\"", MXS_DAMAGED, {"arrays[0].pieces[0].hash "}},
      {"\"plan\": {", "\"plan\": null, \"plans\": {", MXS_DAMAGED, {"plans"}},
      {"\"plan\": {", "\"plan\": [{", MXS_DAMAGED, {"not JSON"}},
      {"\"e.exp_avg\"", "\"\xff\"", MXS_DAMAGED, {"not JSON"}},
  };
  for (const auto &each : bad) {
    const std::string complaint = refused(replaced(good, each.old, each.by), each.status, each.said);
    if (!complaint.empty()) return each.by + ": " + complaint;
  }
  for (size_t bytes = 0; bytes + 2 < good.size(); bytes += 7) {
    const std::string complaint = refused(good.substr(0, bytes), MXS_DAMAGED, {"not JSON"});
    if (!complaint.empty()) return std::to_string(bytes) + " bytes: " + complaint;
  }
  for (const char *text : {"[]", "7", "null", "{}", "\"a\""})
    if (const std::string complaint = refused(text, MXS_DAMAGED, {"no manifest"}); !complaint.empty()) return complaint;
  return refused(good + "{}", MXS_DAMAGED, {"not JSON"});
}

// Many flips leave it as a manifest that agrees with itself: of another step, with other bytes of the user's.
std::string a_bit_that_is_flipped_anywhere_is_noticed() {
  const std::string good = text_of(small_manifest());
  if (check_manifest_hash(good) != MXS_OK) return error_of("the good one");
  size_t by_hash_count = 0;
  for (size_t byte = 0; byte < good.size(); ++byte) {
    std::string bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ 1 << byte % 7);
    Manifest manifest;
    if (manifest_from_json(bad, &manifest) != MXS_OK) continue;
    ++by_hash_count;
    const std::string complaint = expect(check_manifest_hash(bad), MXS_DAMAGED, {"hash"});
    if (!complaint.empty()) return "byte " + std::to_string(byte) + ": " + complaint;
  }
  return by_hash_count > 100 ? "" : "only " + std::to_string(by_hash_count) + " of them needed the hash";
}

std::string manifests_that_were_edited_are_refused() {
  const std::string good = text_of(small_manifest());
  const std::string end = good.substr(good.rfind(",\n \"hash\""));
  const std::pair<std::string, const char *> bad[] = {
      {replaced(good, "\"step\": 18446744073709551615", "\"step\": 7"), "hash is another"},
      {good + "\n", "hash is another"},
      {good.substr(0, good.size() - 1), "hash is another"},
      {replaced(good, end, replaced(end, "\n ", " ")), "doesn't end with its hash"}};
  for (const auto &[text, said] : bad) {
    Manifest manifest;
    if (manifest_from_json(text, &manifest) != MXS_OK) return error_of("read");
    const std::string complaint = expect(check_manifest_hash(text), MXS_DAMAGED, {"edited", said});
    if (!complaint.empty()) return complaint;
  }
  const std::string complaint = refused(replaced(good, end, "}\n"), MXS_DAMAGED, {"hash is missing"});
  return complaint.empty() ? refused(replaced(good, end, ", \"hash\": 7}"), MXS_DAMAGED, {"hash is not"}) : complaint;
}

std::string other_releases_are_told_from_damage() {
  return refused("{\"arrays\": [7], \"plan\": [], \"colour\": \"blue\", \"matrixshard_checkpoint\": 2}", MXS_NOT_BUILT,
                 {"newer release"});
}

std::string names_that_no_text_can_hold_are_refused() {
  Manifest manifest = small_manifest();
  manifest.arrays[3].name = "caf\xe9";
  std::string text = "poison";
  const std::string complaint = expect(manifest_to_json(manifest, &text), MXS_INVALID_ARGUMENT, {"UTF-8"});
  if (!complaint.empty()) return complaint;
  return text == "poison" ? "" : "the target was touched";
}

std::string file_names_are_those_of_checkpoints() {
  for (const char *name : {"model-00001-of-00001.safetensors", "model-123456-of-123456.safetensors",
                           "optimizer/rank-00000.safetensors", "optimizer/shared.safetensors"})
    if (!is_checkpoint_file_name(name)) return name;
  for (const char *name : {"", ".safetensors", "model-00001-of-00001", "model-1-of-1.safetensors", "model.safetensors",
                           "model-00001-of-.safetensors", "model-0000a-of-00001.safetensors",
                           "model-00001-of-00001/.safetensors", "optimizer/.safetensors", "shared.safetensors",
                           "optimizer/rank-.safetensors", "optimizer/rank-00000-of-00001.safetensors",
                           "optimizer//shared.safetensors", "optimizer/../optimizer/shared.safetensors",
                           "./optimizer/shared.safetensors", "/optimizer/shared.safetensors", "rank-00000.safetensors",
                           "optimizer/model-00001-of-00001.safetensors"})
    if (is_checkpoint_file_name(name)) return std::string("it takes ") + name;
  return is_checkpoint_file_name("model-" + std::string(300, '1') + "-of-00001.safetensors") ? "a long one" : "";
}

void written(void **) { assert_true(good(what_is_written_is_read())); }
void lines(void **) { assert_true(good(one_line_is_one_array())); }
void floats(void **) { assert_true(good(group_values_come_back_bit_for_bit())); }
void base64(void **) { assert_true(good(base64_is_strict())); }
void hashes(void **) { assert_true(good(hashes_stay_what_they_are())); }
void contradictions(void **) { assert_true(good(contradictions_are_refused())); }
void what_state_alone_has(void **) { assert_true(good(what_state_alone_has_is_refused_of_others())); }
void texts(void **) { assert_true(good(texts_that_are_no_manifest_are_refused())); }
void flips(void **) { assert_true(good(a_bit_that_is_flipped_anywhere_is_noticed())); }
void edits(void **) { assert_true(good(manifests_that_were_edited_are_refused())); }
void releases(void **) { assert_true(good(other_releases_are_told_from_damage())); }
void names(void **) { assert_true(good(names_that_no_text_can_hold_are_refused())); }
void files(void **) { assert_true(good(file_names_are_those_of_checkpoints())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      {"what_is_written_is_read", written, nullptr, nullptr, nullptr},
      {"one_line_is_one_array", lines, nullptr, nullptr, nullptr},
      {"group_values_come_back_bit_for_bit", floats, nullptr, nullptr, nullptr},
      {"base64_is_strict", base64, nullptr, nullptr, nullptr},
      {"hashes_stay_what_they_are", hashes, nullptr, nullptr, nullptr},
      {"contradictions_are_refused", contradictions, nullptr, nullptr, nullptr},
      {"what_state_alone_has_is_refused_of_others", what_state_alone_has, nullptr, nullptr, nullptr},
      {"texts_that_are_no_manifest_are_refused", texts, nullptr, nullptr, nullptr},
      {"a_bit_that_is_flipped_anywhere_is_noticed", flips, nullptr, nullptr, nullptr},
      {"manifests_that_were_edited_are_refused", edits, nullptr, nullptr, nullptr},
      {"other_releases_are_told_from_damage", releases, nullptr, nullptr, nullptr},
      {"names_that_no_text_can_hold_are_refused", names, nullptr, nullptr, nullptr},
      {"file_names_are_those_of_checkpoints", files, nullptr, nullptr, nullptr},
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
