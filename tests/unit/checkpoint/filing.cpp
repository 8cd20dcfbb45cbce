// SPDX-License-Identifier: Apache-2.0
// What a plan's tensors become in files: every header is one that the reader of safetensors takes, every number of
// every array is one rank's, and what lies where does not depend on who asks.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../plan/models.hpp"
#include "checkpoint/describe.hpp"
#include "checkpoint/filing.hpp"
#include "model/safetensors.hpp"
#include "state_parts.hpp"
#include "support/complaints.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::good;
using mxs::test::part_of;
using mxs::test::words;

namespace {

const std::vector<int> worlds = {1, 2, 3, 4, 7, 8};

// Every role: matrices, blocks of rows and of columns, a stack, flat, tail, frozen, empty, scalar, tied.
Model odd_model() {
  Model model;
  model.options.flat_bytes = 4096;
  model.add("embedding", {611, 64}, 0, MXS_RULE_ADAMW).dtype = MXS_BF16;
  model.add("scale", {}, 0);
  model.add_blocks("qkv", {32, 32, 64}, 64, 1, MXS_RULE_SHAMPOO).dtype = MXS_BF16;
  model.add("experts", {5, 32, 64}, 1).dtype = MXS_BF16;
  model.add("bias", {33}, 1).dtype = MXS_F16;
  model.add("plain", {17, 19}, 1, MXS_RULE_SOAP);
  mxs_tensor &same = model.add("same", {64, 3}, 1);
  same.dtype = same.master_dtype = MXS_BF16;
  mxs_tensor &columns = model.add("columns", {12, 30}, 2);
  columns.dtype = MXS_BF16;
  model.cut_columns(&columns, {10, 8, 12});
  model.add("nothing", {0, 12}, 3);
  model.add("table", {333, 40}, 3, MXS_RULE_FROZEN);
  mxs_tensor &bytes = model.add("bytes", {7}, 3, MXS_RULE_FROZEN);
  bytes.dtype = MXS_U8;
  model.add("head", {41, 64}, 4).dtype = MXS_F16;
  mxs_tensor &tied = model.add("tied", {41, 64}, 4);
  tied.dtype = MXS_F16;
  tied.tied_to = "head";
  return model;
}

const std::vector<StatePart> &parts_of(mxs_rule rule) {
  static const std::vector<StatePart> muon = {part_of("momentum", StateScope::element),
                                              part_of("second_momentum", StateScope::row)};
  static const std::vector<StatePart> adamw = {part_of("exp_avg", StateScope::element),
                                               part_of("exp_avg_sq", StateScope::element)};
  static const std::vector<StatePart> others = {part_of("exp_avg", StateScope::element),
                                                part_of("factor_left", StateScope::matrix)};
  return rule == MXS_RULE_MUON ? muon : rule == MXS_RULE_ADAMW ? adamw : others;
}

uint64_t product(const std::vector<int64_t> &shape) {
  uint64_t count = 1;
  for (const int64_t side : shape) count *= static_cast<uint64_t>(side);
  return count;
}

// Pieces follow each other from the first number to the last, neighbours are of other ranks.
std::string check_pieces(const FiledArray &array) {
  uint64_t next = 0;
  for (size_t i = 0; i < array.pieces.size(); ++i) {
    const ManifestPiece &piece = array.pieces[i];
    if (piece.first != next) return array.name + ": a piece doesn't begin where the one before ends";
    if (piece.count == 0 && array.pieces.size() > 1) return array.name + ": an empty piece among others";
    if (i > 0 && array.pieces[i - 1].rank == piece.rank) return array.name + ": neighbours of one rank are two pieces";
    next += piece.count;
  }
  if (next * array.number_bytes != array.bytes) return array.name + ": the pieces don't cover it";
  if (product(array.shape) * array.number_bytes != array.bytes) return array.name + ": shape and bytes differ";
  return "";
}

std::string check_file(const FiledFile &file, size_t number) {
  const std::string &header = file.header;
  if (header.size() % 4096 != 0 || file.data_offset != header.size()) return file.name + ": the header has odd bytes";
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(header[i]);
  if (length != header.size() - 8) return file.name + ": a wrong length of the header";
  SafetensorsHeader read;
  if (parse_safetensors_header(std::string_view(header).substr(8), file.bytes - file.data_offset, &read) != MXS_OK)
    return file.name + ": " + mxs_last_error();
  if (read.metadata != decltype(read.metadata){{"format", "pt"}}) return file.name + ": not the metadata that is due";
  if (read.entries.size() != file.arrays.size()) return file.name + ": more or fewer arrays than in its header";
  std::map<std::string, const SafetensorsEntry *> entries;
  for (const SafetensorsEntry &entry : read.entries) entries[entry.name] = &entry;
  uint64_t at = 0;
  bool first_writes = false;
  for (const FiledArray &array : file.arrays) {
    const SafetensorsEntry *const entry = entries[array.name];
    if (!entry || entry->dtype_word != array.dtype_word || entry->shape != array.shape ||
        entry->begin != array.offset || entry->end != array.offset + array.bytes)
      return file.name + ": " + array.name + " is not what its header says";
    if (array.offset != at || array.file != number || array.offset % array.number_bytes != 0)
      return file.name + ": " + array.name + " lies where it shouldn't";
    at += array.bytes;
    const std::string complaint = check_pieces(array);
    if (!complaint.empty()) return complaint;
    for (const ManifestPiece &piece : array.pieces) {
      first_writes = first_writes || piece.rank == file.first_rank;
      if (piece.rank < file.first_rank) return file.name + ": its first rank is not the first";
    }
  }
  return first_writes ? "" : file.name + ": whoever writes the header has nothing of it";
}

std::string check_files(const std::vector<FiledFile> &files, const std::vector<FiledArray> &arrays, bool model) {
  std::set<std::string> names;
  int last_rank = -1;
  for (size_t number = 0; number < files.size(); ++number) {
    const FiledFile &file = files[number];
    std::string complaint = check_file(file, number);
    if (!complaint.empty()) return complaint;
    std::set<int> ranks;
    for (const FiledArray &array : file.arrays) {
      if (!names.insert(array.name).second) return array.name + " is there twice";
      std::set<int> writers;
      for (const ManifestPiece &piece : array.pieces) writers.insert(piece.rank);
      ranks.insert(writers.begin(), writers.end());
      const bool last = number + 1 == files.size();
      if (writers.size() > 1 && !last) return array.name + " is of several ranks, but not in the last file";
    }
    const std::string wanted =
        model ? words("model-%05zu-of-%05zu.safetensors", number + 1, files.size())
              : ranks.size() > 1 ? "optimizer/shared.safetensors"
                                 : words("optimizer/rank-%05d.safetensors", *ranks.begin());
    if (file.name != wanted) return file.name + " is not called " + wanted;
    if (ranks.size() == 1 && *ranks.begin() <= last_rank) return file.name + " is not in the order of ranks";
    last_rank = ranks.size() == 1 ? *ranks.begin() : last_rank;
  }
  return names.size() == arrays.size() ? "" : words("%zu of %zu arrays are filed", names.size(), arrays.size());
}

// What one rank describes of the optimizer: its own and what is of several.
std::vector<FiledArray> seen_by(int rank, const std::vector<FiledArray> &arrays) {
  std::vector<FiledArray> seen;
  for (const FiledArray &array : arrays) {
    std::set<int> writers;
    for (const ManifestPiece &piece : array.pieces) writers.insert(piece.rank);
    if (writers.size() > 1 || *writers.begin() == rank) seen.push_back(array);
  }
  return seen;
}

std::string check_world(const Model &model, int rank_count) {
  Plan plan;
  if (make(model, rank_count, &plan) != MXS_OK) return mxs_last_error();
  for (const bool masters : {false, true}) {
    const std::vector<FiledArray> weights = describe_model(plan, masters);
    std::string complaint = check_files(file_model(weights), weights, true);
    if (!complaint.empty()) return complaint;
    std::vector<FiledArray> state = describe_optimizer(plan, masters, parts_of);
    for (uint64_t number = 0; number < plan.placements.size(); ++number) {
      const Placement &placement = plan.placements[number];
      const mxs_rule rule = plan.tensors[static_cast<size_t>(placement.tensor)].rule;
      if (rule != MXS_RULE_SHAMPOO && rule != MXS_RULE_SOAP) continue;
      const int64_t rows = placement.shape[0];
      state.push_back(describe_matrix_state(plan, number, part_of("factor_left", StateScope::matrix, {rows, rows})));
    }
    const std::vector<FiledFile> files = file_optimizer(state);
    complaint = check_files(files, state, false);
    if (!complaint.empty()) return complaint;
    for (int rank = 0; rank < rank_count; ++rank) {
      const std::vector<FiledArray> all = describe_optimizer(plan, masters, parts_of);
      if (describe_optimizer(plan, masters, parts_of, rank).size() != seen_by(rank, all).size())
        return words("rank %d describes others' arrays, or not all of its own", rank);
    }
    for (int rank = 0; rank < rank_count; ++rank)
      for (const FiledFile &file : file_optimizer(seen_by(rank, state))) {
        const auto same = std::find_if(files.begin(), files.end(),
                                       [&](const FiledFile &other) { return other.name == file.name; });
        if (same == files.end() || same->header != file.header) return file.name + " is another to one rank";
      }
  }
  return "";
}

std::string every_header_can_be_read_and_every_number_is_one_ranks_inner() {
  for (const int rank_count : worlds) {
    const std::string complaint = check_world(odd_model(), rank_count);
    if (!complaint.empty()) return words("%d ranks: ", rank_count) + complaint;
  }
  return "";
}

std::string co_owners_share_a_file_inner() {
  for (const int rank_count : {2, 4, 8}) {
    Model model;
    model.options.co_owners_max = 8;
    mxs_tensor &wide = model.add("wide", {256, 512}, 0, MXS_RULE_MUON);
    wide.co_owners = 2;
    wide.dtype = MXS_BF16;
    Plan plan;
    if (make(model, rank_count, &plan) != MXS_OK) return mxs_last_error();
    if (plan.placements[0].co_owner_count != 2) return "the plan has no co-owners";
    const std::string complaint = check_world(model, rank_count);
    if (!complaint.empty()) return complaint;
    const std::vector<FiledFile> files = file_optimizer(describe_optimizer(plan, false, parts_of));
    if (files.size() != 1 || files[0].name != "optimizer/shared.safetensors") return "not one shared file";
    for (const FiledArray &array : files[0].arrays)
      if (array.pieces.size() != 2) return array.name + " is not of two";
  }
  return "";
}

std::string ranks_that_own_nothing_have_no_file_inner() {
  Model model;
  model.add("only", {16, 16});
  Plan plan;
  if (make(model, 8, &plan) != MXS_OK) return mxs_last_error();
  const std::vector<FiledFile> files = file_model(describe_model(plan, false));
  if (files.size() != 1 || files[0].name != "model-00001-of-00001.safetensors") return "not one file";
  if (!file_model({}).empty() || !file_optimizer({}).empty()) return "files of no arrays";
  return "";
}

std::string names_and_shapes_are_as_documented_inner() {
  Plan plan;
  if (make(odd_model(), 3, &plan) != MXS_OK) return mxs_last_error();
  std::map<std::string, FiledArray> arrays;
  for (const FiledArray &array : describe_optimizer(plan, false, parts_of)) arrays[array.name] = array;
  for (const char *name : {"embedding.master", "embedding.exp_avg_sq", "experts.momentum", "columns.second_momentum",
                           "bias.exp_avg", "head.master", "qkv.exp_avg"})
    if (!arrays.count(name)) return std::string(name) + " is missing";
  for (const char *name : {"same.master", "plain.master", "tied.master", "tied.momentum", "table.exp_avg",
                           "nothing.momentum", "nothing.master", "qkv.factor_left", "bytes.master"})
    if (arrays.count(name)) return std::string(name) + " is there";
  if (arrays["columns.second_momentum"].shape != std::vector<int64_t>{3, 12}) return "columns' rows have another shape";
  if (arrays["experts.second_momentum"].shape != std::vector<int64_t>{5, 32}) return "experts' rows have another shape";
  if (arrays["embedding.exp_avg"].tensor != "embedding" || arrays["embedding.exp_avg"].part != "exp_avg" ||
      arrays["embedding.exp_avg"].kind != MXS_ARRAY_STATE || arrays["embedding.exp_avg"].block != -1)
    return "exp_avg is not described as what it is";
  size_t qkv = 0;
  while (plan.tensors[qkv].name != "qkv") ++qkv;
  const StatePart part = part_of("root_left.7", StateScope::matrix, {4, 4});
  const FiledArray block = describe_matrix_state(plan, plan.tensors[qkv].placement_index + 2, part);
  if (block.name != "qkv.root_left.2.7" || block.part != "root_left" || block.block != 2 || block.cut != 7)
    return block.name + " is not the third block's eighth cut";
  for (const FiledArray &array : describe_model(plan, true))
    if (array.name == "embedding" && (array.dtype != MXS_F32 || array.kind != MXS_ARRAY_WEIGHTS))
      return "a model of masters has other weights";
  for (const FiledArray &array : describe_optimizer(plan, true, {}))
    return array.name + " is there beside a model of masters, without state";
  return "";
}

std::string parts_lose_their_numbers_inner() {
  int64_t number = 0;
  if (part_without_number("failures", &number) != "failures" || number != -1) return "failures";
  if (part_without_number("factor_left.12", &number) != "factor_left" || number != 12) return "factor_left.12";
  if (part_without_number("a.b", &number) != "a.b" || number != -1) return "a.b";
  if (part_without_number("a.", &number) != "a." || number != -1) return "a.";
  return "";
}

void every_header_can_be_read_and_every_number_is_one_ranks(void **) {
  assert_true(good(every_header_can_be_read_and_every_number_is_one_ranks_inner()));
}
void co_owners_share_a_file(void **) { assert_true(good(co_owners_share_a_file_inner())); }
void ranks_that_own_nothing_have_no_file(void **) { assert_true(good(ranks_that_own_nothing_have_no_file_inner())); }
void names_and_shapes_are_as_documented(void **) { assert_true(good(names_and_shapes_are_as_documented_inner())); }
void parts_lose_their_numbers(void **) { assert_true(good(parts_lose_their_numbers_inner())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_header_can_be_read_and_every_number_is_one_ranks),
      cmocka_unit_test(co_owners_share_a_file),
      cmocka_unit_test(ranks_that_own_nothing_have_no_file),
      cmocka_unit_test(names_and_shapes_are_as_documented),
      cmocka_unit_test(parts_lose_their_numbers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
