// SPDX-License-Identifier: Apache-2.0
// Headers of safetensors: files, indices and folders as they should be, and every way in which they lie.
#include <sys/stat.h>

#include <algorithm>

#include "base/status.hpp"
#include "model/safetensors.hpp"
#include "models.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

struct Entry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  uint64_t bytes;
};

std::string header_of(const std::vector<Entry> &entries) {
  std::string text = "{\"__metadata__\": {\"format\": \"pt\"}";
  uint64_t offset = 0;
  for (const Entry &entry : entries) {
    text.append(", \"").append(entry.name).append("\": {\"dtype\": \"").append(entry.dtype).append("\", \"shape\": [");
    for (size_t d = 0; d < entry.shape.size(); ++d)
      text.append(d ? ", " : "").append(std::to_string(entry.shape[d]));
    text.append("], \"data_offsets\": [").append(std::to_string(offset)).append(", ");
    offset += entry.bytes;
    text.append(std::to_string(offset)).append("]}");
  }
  return text + "}";
}

std::string length_of(uint64_t bytes) {
  std::string text;
  for (int byte = 0; byte < 8; ++byte) text.push_back(static_cast<char>(bytes >> (8 * byte)));
  return text;
}

// The data stays a hole: it is never read.
void put_safetensors(const std::string &path, const std::vector<Entry> &entries) {
  const std::string header = header_of(entries);
  uint64_t bytes = 8 + header.size();
  for (const Entry &entry : entries) bytes += entry.bytes;
  put(path, length_of(header.size()) + header);
  if (truncate(path.c_str(), static_cast<off_t>(bytes)) != 0) put(path, "");
}

std::vector<Entry> llama(int layer_first, int layer_last) {
  std::vector<Entry> entries;
  for (int layer = layer_first; layer <= layer_last; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    entries.push_back({prefix + "mlp.up_proj.weight", "BF16", {64, 32}, 4096});
    entries.push_back({prefix + "input_layernorm.weight", "F32", {32}, 128});
  }
  return entries;
}

std::string a_file_gives_its_tensors() {
  const Folder folder;
  std::vector<Entry> entries = llama(9, 11);
  entries.push_back({"model.embed_tokens.weight", "F16", {100, 32}, 6400});
  entries.push_back({"lm_head.weight", "BF16", {100, 32}, 6400});
  entries.push_back({"model.layers.9.mlp.experts", "BF16", {4, 8, 8}, 512});
  entries.push_back({"model.layers.9.nothing", "BF16", {0, 8}, 0});
  entries.push_back({"scalar", "F64", {}, 8});
  put_safetensors(folder / "model.safetensors", entries);
  const Loaded loaded(folder / "model.safetensors");
  if (loaded.status != MXS_OK) return error_of("load");
  if (loaded.count != entries.size()) return "the count";
  const char *units[] = {"model.embed_tokens", "model.layers.9", "model.layers.10", "model.layers.11", "lm_head"};
  for (int unit = 0; unit < 5; ++unit)
    if (std::strcmp(mxs_model_unit_name(loaded.model, unit), units[unit]) != 0) return units[unit];
  if (!loaded.has_shape("model.layers.10.mlp.up_proj.weight", {64, 32}) || !loaded.has_shape("scalar", {}) ||
      !loaded.has_shape("model.layers.9.mlp.experts", {4, 8, 8}) || !loaded.has_shape("model.layers.9.nothing", {0, 8}))
    return "shapes";
  if (loaded.find("model.layers.10.mlp.up_proj.weight")->dtype != MXS_BF16 || loaded.find("scalar")->dtype != MXS_F64 ||
      loaded.find("model.layers.10.input_layernorm.weight")->dtype != MXS_F32 ||
      loaded.find("model.embed_tokens.weight")->dtype != MXS_F16)
    return "dtypes";
  if (loaded.find("scalar")->rule != MXS_RULE_FROZEN ||
      loaded.find("model.layers.9.mlp.experts")->rule != MXS_RULE_MUON)
    return "rules";
  for (uint64_t index = 1; index < loaded.count; ++index)
    if (loaded.tensors[index - 1].unit > loaded.tensors[index].unit && loaded.tensors[index].unit > 0 &&
        loaded.tensors[index - 1].unit < 4)
      return "layers are not in order";
  return std::strcmp(mxs_model_title(loaded.model), "safetensors, 3 layers, 12.9 thousand parameters") == 0
             ? ""
             : mxs_model_title(loaded.model);
}

std::string index_of(const std::vector<std::pair<std::string, std::string>> &pairs) {
  std::string text = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {";
  for (size_t each = 0; each < pairs.size(); ++each)
    text.append(each ?
        ", \"" : "\"").append(pairs[each].first).append("\": \"").append(pairs[each].second).append("\"");
  return text + "}}";
}

std::string sharded_models_are_read_by_index_and_by_folder() {
  const Folder folder;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Entry &entry : llama(0, 1)) pairs.emplace_back(entry.name, "a.safetensors");
  for (const Entry &entry : llama(2, 3)) pairs.emplace_back(entry.name, "b.safetensors");
  put_safetensors(folder / "a.safetensors", llama(0, 1));
  put_safetensors(folder / "b.safetensors", llama(2, 3));
  {
    const Loaded all(folder.path());
    if (all.status != MXS_OK || all.count != 8 || mxs_model_unit_count(all.model) != 4) return error_of("all files");
  }
  put(folder / "model.safetensors.index.json", index_of(pairs));
  put(folder / "config.json", "{\"model_type\": \"llama\"}");
  put_safetensors(folder / "unrelated.safetensors", llama(0, 0));
  for (const std::string &path : {folder.path(), folder / "model.safetensors.index.json"}) {
    const Loaded loaded(path);
    if (loaded.status != MXS_OK || loaded.count != 8) return error_of("index");
    if (std::strncmp(mxs_model_title(loaded.model), "llama, 4 layers", 15) != 0) return mxs_model_title(loaded.model);
  }
  put(folder / "other.safetensors.index.json", index_of(pairs));
  const Loaded two(folder.path());
  return expect(two.status, MXS_INVALID_ARGUMENT, {"2 indices", "other.safetensors.index.json"});
}

std::string gpt2_is_known_by_the_config_beside_it() {
  const Folder folder;
  put(folder / "config.json", "{\"model_type\": \"gpt2\"}");
  put_safetensors(folder / "model.safetensors", {{"wte.weight", "F32", {10, 4}, 160},
                                                 {"h.0.attn.bias", "F32", {1, 1, 8, 8}, 256},
                                                 {"h.0.attn.c_attn.weight", "F32", {4, 12}, 192},
                                                 {"h.0.attn.c_attn.bias", "F32", {12}, 48},
                                                 {"h.0.attn.c_proj.weight", "F32", {4, 4}, 64},
                                                 {"h.0.mlp.c_fc.weight", "F32", {4, 16}, 256},
                                                 {"ln_f.weight", "F32", {4}, 16}});
  const Loaded loaded(folder.path());
  if (loaded.status != MXS_OK) return error_of("load");
  if (loaded.count != 6 || loaded.find("h.0.attn.bias")) return "a mask";
  const mxs_tensor *fused = loaded.find("h.0.attn.c_attn.weight");
  if (!fused->transposed || fused->block_column_count != 3 || fused->block_columns[1] != 4) return "c_attn";
  if (!loaded.find("h.0.mlp.c_fc.weight")->transposed || loaded.find("wte.weight")->transposed) return "transposed";
  const std::string notes = loaded.notes();
  return notes.find("gpt2") != std::string::npos && notes.find("1 causal mask") != std::string::npos ? "" : notes;
}

std::string dtypes_that_no_plan_has_want_another() {
  const Folder folder;
  put_safetensors(folder / "f8.safetensors", {{"w", "F8_E4M3", {8, 8}, 64}, {"u", "U8", {8, 8}, 64}});
  {
    const Loaded loaded(folder / "f8.safetensors");
    const std::string complaint =
        expect(loaded.status, MXS_INVALID_ARGUMENT, {"f8.safetensors", "\"w\"", "F8_E4M3", "mxs_model_options.dtype"});
    if (!complaint.empty()) return complaint;
  }
  mxs_model_options options = MXS_MODEL_OPTIONS_INIT;
  options.dtype = MXS_BF16;
  const Loaded loaded(folder / "f8.safetensors", &options);
  if (loaded.status != MXS_OK) return error_of("with a dtype");
  return loaded.find("w")->dtype == MXS_BF16 && loaded.find("w")->rule == MXS_RULE_MUON ? "" : "w";
}

std::string headers_that_lie_are_refused() {
  const auto one = [](const std::string &members) { return "{\"w\": {" + members + "}}"; };
  const std::string w = "\"dtype\": \"F32\", \"shape\": [2, 2], \"data_offsets\": [0, 16]";
  const struct {
    std::string text;
    uint64_t data_bytes;
    std::vector<std::string> said;
  } bad[] = {
      {"", 0, {"no safetensors file"}},
      {"  {}", 0, {"no safetensors file"}},
      {"[]", 0, {"no safetensors file"}},
      {"{\"w\": ", 0, {"not JSON"}},
      {"{\"\xff\": 1}", 0, {"not JSON"}},
      {"{\"w\": {" + w + "}, \"w\": {" + w + "}}", 16, {"\"w\" stands twice"}},
      {"{\"__metadata__\": 3}", 0, {"__metadata__"}},
      {"{\"__metadata__\": {\"a\": 3}}", 0, {"__metadata__", "\"a\""}},
      {"{\"w\": 3}", 0, {"\"w\"", "not an object"}},
      {one(w + ", \"more\": 1"), 16, {"\"w\"", "more"}},
      {one("\"shape\": [2, 2], \"data_offsets\": [0, 16]"), 16, {"\"w\"", "no dtype"}},
      {one("\"dtype\": \"F33\", \"shape\": [2, 2], \"data_offsets\": [0, 16]"), 16, {"\"w\"", "F33", "BF16",
          "F8_E4M3"}},
      {one("\"dtype\": \"F32\", \"data_offsets\": [0, 16]"), 16, {"\"w\"", "no shape"}},
      {one("\"dtype\": \"F32\", \"shape\": [-2, 2], \"data_offsets\": [0, 16]"), 16, {"\"w\"", "side"}},
      {one("\"dtype\": \"F32\", \"shape\": [2.0, 2], \"data_offsets\": [0, 16]"), 16, {"\"w\"", "side"}},
      {one("\"dtype\": \"F32\", \"shape\": [1,1,1,1,1,1,1,1,4], \"data_offsets\": [0, 16]"), 16, {"\"w\"",
          "8 dimensions"}},
      {one("\"dtype\": \"F32\", \"shape\": [4611686018427387904, 4], \"data_offsets\": [0, 16]"), 16, {"\"w\"",
          "2^62"}},
      {one("\"dtype\": \"F32\", \"shape\": [18446744073709551615], \"data_offsets\": [0, 16]"), 16, {"\"w\"", "side"}},
      {one("\"dtype\": \"F32\", \"shape\": [2, 2]"), 16, {"\"w\"", "data_offsets"}},
      {one("\"dtype\": \"F32\", \"shape\": [2, 2], \"data_offsets\": [0]"), 16, {"\"w\"", "data_offsets"}},
      {one("\"dtype\": \"F32\", \"shape\": [2, 2], \"data_offsets\": [-16, 0]"), 16, {"\"w\"", "data_offsets"}},
      {one("\"dtype\": \"F32\", \"shape\": [2, 2], \"data_offsets\": [16, 0]"), 16, {"\"w\"", "from 16 to 0",
          "16 bytes"}},
      {one("\"dtype\": \"F32\", \"shape\": [2, 2], \"data_offsets\": [0, 15]"), 16, {"\"w\"", "0 to 15", "16 bytes"}},
      {one("\"dtype\": \"F32\", \"shape\": [0, 2], \"data_offsets\": [0, 8]"), 16, {"\"w\"", "0 bytes"}},
      {one("\"dtype\": \"F32\", \"shape\": [2, 2], \"data_offsets\": [18446744073709551600, 0]"), 16, {"\"w\"",
          "to 0"}},
      {one(w), 15, {"\"w\"", "byte 16", "has 15"}},
      {one(w), 17, {"1 bytes of no tensor"}},
      {one("\"dtype\": \"F32\", \"shape\": [2, 2], \"data_offsets\": [4, 20]"), 20, {"\"w\"", "4 bytes of no tensor"}},
      {"{\"w\": {" + w + "}, \"v\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [12, 20]}}", 20,
       {"\"v\" overlaps \"w\"", "12", "16"}},
      {"{\"w\": {" + w + "}, \"v\": {" + w + "}}", 16, {"overlaps"}},
  };
  for (const auto &each : bad) {
    SafetensorsHeader header;
    const std::string complaint =
        expect(parse_safetensors_header(each.text, each.data_bytes, &header), MXS_INVALID_ARGUMENT, each.said);
    if (!complaint.empty()) return each.text + ": " + complaint;
    if (!header.entries.empty()) return "the output was touched";
  }
  return "";
}

std::string files_that_lie_are_refused() {
  const Folder folder;
  const std::string header = header_of({{"w", "F32", {2, 2}, 16}});
  const std::string whole = length_of(header.size()) + header + std::string(16, '\0');
  const struct {
    std::string bytes;
    std::vector<std::string> said;
  } bad[] = {{"", {"less than the 8 bytes"}},
             {"1234567", {"less than the 8 bytes"}},
             {length_of(0), {"no safetensors file"}},
             {length_of(uint64_t{1} << 60) + header, {"1152921504606846976 bytes", "100000000"}},
             {length_of(UINT64_MAX), {"18446744073709551615 bytes"}},
             {length_of(header.size() + 17) + header + std::string(16, '\0'), {"is said to have"}},
             {length_of(header.size() - 1) + header + std::string(16, '\0'), {"not JSON"}},
             {length_of(header.size() + 1) + header + std::string(16, '\0'), {"not JSON", "zero"}},
             {whole.substr(0, whole.size() - 1), {"\"w\"", "has 15"}},
             {whole + " ", {"1 bytes of no tensor"}},
             {length_of(2) + "{}", {"no tensor"}}};
  const std::string path = folder / "bad.safetensors";
  for (const auto &each : bad) {
    put(path, each.bytes);
    std::vector<std::string> said = each.said;
    said.push_back("bad.safetensors");
    const Loaded loaded(path);
    const std::string complaint = expect(loaded.status, MXS_INVALID_ARGUMENT, said);
    if (!complaint.empty()) return complaint;
  }
  // Longer than the format allows, though the file has that much.
  put(path, length_of(100'000'001) + header);
  if (truncate(path.c_str(), 200'000'000) != 0) return "truncate";
  {
    const Loaded loaded(path);
    const std::string complaint = expect(loaded.status, MXS_INVALID_ARGUMENT, {"100000001", "allows 100000000"});
    if (!complaint.empty()) return complaint;
  }
  if (mkfifo((folder / "pipe.safetensors").c_str(), 0600) != 0 ||
      mkdir((folder / "folder.safetensors").c_str(), 0700) != 0)
    return "mkfifo";
  const Loaded pipe(folder / "pipe.safetensors"), empty(folder / "folder.safetensors"),
      none(folder / "none.safetensors");
  std::string complaint = expect(pipe.status, MXS_INVALID_ARGUMENT);
  if (complaint.empty()) complaint = expect(empty.status, MXS_INVALID_ARGUMENT);
  return complaint.empty() ? expect(none.status, MXS_SYSTEM) : complaint;
}

std::string indices_that_lie_are_refused() {
  const Folder folder;
  put_safetensors(folder / "a.safetensors", {{"w", "F32", {2, 2}, 16}, {"v", "F32", {2}, 8}});
  put_safetensors(folder / "b.safetensors", {{"w", "F32", {2, 2}, 16}});
  const struct {
    std::string text;
    mxs_status status;
    std::vector<std::string> said;
  } bad[] = {
      {"{}", MXS_INVALID_ARGUMENT, {"weight_map"}},
      {"{\"weight_map\": []}", MXS_INVALID_ARGUMENT, {"weight_map"}},
      {"{\"weight_map\": {}}", MXS_INVALID_ARGUMENT, {"no tensor"}},
      {"{\"weight_map\": {\"w\": 3}}", MXS_INVALID_ARGUMENT, {"\"w\"", "no text"}},
      {index_of({{"w", "../a.safetensors"}}), MXS_INVALID_ARGUMENT, {"\"w\"", "../a.safetensors", "folder"}},
      {index_of({{"w", "/etc/passwd"}}), MXS_INVALID_ARGUMENT, {"/etc/passwd"}},
      {index_of({{"w", "a.bin"}}), MXS_INVALID_ARGUMENT, {"a.bin"}},
      {index_of({{"w", "none.safetensors"}}), MXS_SYSTEM, {"none.safetensors"}},
      {index_of({{"w", "a.safetensors"}, {"v", "a.safetensors"}, {"x", "a.safetensors"}}), MXS_INVALID_ARGUMENT,
       {"\"x\"", "a.safetensors", "hasn't got it"}},
      {index_of({{"w", "a.safetensors"}}), MXS_INVALID_ARGUMENT, {"a.safetensors", "\"v\"", "doesn't look for"}},
      {index_of({{"w", "a.safetensors"}, {"w", "b.safetensors"}}), MXS_INVALID_ARGUMENT, {"\"w\" stands twice"}},
  };
  const std::string path = folder / "model.safetensors.index.json";
  for (const auto &each : bad) {
    put(path, each.text);
    const Loaded loaded(path);
    const std::string complaint = expect(loaded.status, each.status, each.said);
    if (!complaint.empty()) return each.text + ": " + complaint;
  }
  unlink(path.c_str());
  {
    const Loaded loaded(folder.path());
    const std::string complaint =
        expect(loaded.status, MXS_INVALID_ARGUMENT, {"\"w\"", "a.safetensors", "b.safetensors"});
    if (!complaint.empty()) return complaint;
  }
  const Folder nothing;
  const Loaded loaded(nothing.path());
  return expect(loaded.status, MXS_INVALID_ARGUMENT, {"neither", "config.json"});
}

void file(void **) { assert_true(good(a_file_gives_its_tensors())); }
void sharded(void **) { assert_true(good(sharded_models_are_read_by_index_and_by_folder())); }
void gpt2(void **) { assert_true(good(gpt2_is_known_by_the_config_beside_it())); }
void dtypes(void **) { assert_true(good(dtypes_that_no_plan_has_want_another())); }
void headers(void **) { assert_true(good(headers_that_lie_are_refused())); }
void files(void **) { assert_true(good(files_that_lie_are_refused())); }
void indices(void **) { assert_true(good(indices_that_lie_are_refused())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      {"a_file_gives_its_tensors", file, nullptr, nullptr, nullptr},
      {"sharded_models_are_read_by_index_and_by_folder", sharded, nullptr, nullptr, nullptr},
      {"gpt2_is_known_by_the_config_beside_it", gpt2, nullptr, nullptr, nullptr},
      {"dtypes_that_no_plan_has_want_another", dtypes, nullptr, nullptr, nullptr},
      {"headers_that_lie_are_refused", headers, nullptr, nullptr, nullptr},
      {"files_that_lie_are_refused", files, nullptr, nullptr, nullptr},
      {"indices_that_lie_are_refused", indices, nullptr, nullptr, nullptr},
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
