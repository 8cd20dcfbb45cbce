// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save_report.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <tuple>

#include "base/base64.hpp"
#include "base/json.hpp"
#include "base/json_field.hpp"
#include "base/status.hpp"
#include "plan/stages.hpp"

namespace mxs {

namespace {

constexpr int64_t number_max = int64_t{1} << 62;

// Eight bytes each, the lowest first: a report may have many thousands.
std::string text_of_hashes(const std::vector<uint64_t> &hashes) {
  std::string bytes;
  bytes.reserve(8 * hashes.size());
  for (const uint64_t hash : hashes)
    for (size_t byte = 0; byte < 8; ++byte) bytes.push_back(static_cast<char>(hash >> (8 * byte) & 0xff));
  return base64_text(bytes);
}

void read_hashes(const JsonField &field, std::vector<uint64_t> *hashes) {
  std::string text, bytes;
  field.read_text(&text, SIZE_MAX);
  if (!field.good()) return;
  if (!bytes_of_base64(text, &bytes) || bytes.size() % 8 != 0) {
    field.wrong("is no list of hashes");
    return;
  }
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t hash = 0;
    for (size_t byte = 8; byte-- > 0;) hash = hash << 8 | static_cast<unsigned char>(bytes[at + byte]);
    hashes->push_back(hash);
  }
}

Json array_to_json(const FiledArray &array, int rank) {
  Json pieces = Json::array();
  for (const ManifestPiece &piece : array.pieces)
    if (piece.rank == rank) pieces.push_back(Json::array({piece.first, piece.count, text_of_hashes(piece.hashes)}));
  Json json = {{"name", array.name},     {"dtype", array.dtype_word},          {"dtype_number", array.dtype},
               {"shape", array.shape},   {"number_bytes", array.number_bytes}, {"kind", array.kind},
               {"tensor", array.tensor}, {"part", array.part},                 {"block", array.block},
               {"cut", array.cut},       {"offset", array.offset},             {"bytes", array.bytes},
               {"pieces", std::move(pieces)}};
  return json;
}

void read_array(const JsonField &field, int rank, ManifestArray *array) {
  field["name"].read_name(&array->name);
  field["dtype"].read_name(&array->dtype_word);
  field["dtype_number"].read(&array->dtype, 0, MXS_U8);
  field["shape"].read_numbers(&array->shape, 0, number_max);
  field["number_bytes"].read(&array->number_bytes, 1, 8);
  field["kind"].read(&array->kind, MXS_ARRAY_WEIGHTS, MXS_ARRAY_EXTRA);
  field["tensor"].read_name(&array->tensor);
  if (array->kind == MXS_ARRAY_STATE) field["part"].read_name(&array->part);
  field["block"].read(&array->block, -1, number_max);
  field["cut"].read(&array->cut, -1, number_max);
  field["offset"].read(&array->offset, 0, number_max);
  field["bytes"].read(&array->bytes, 0, number_max);
  const JsonField pieces = field["pieces"];
  if (!pieces.is_list(1, SIZE_MAX)) return;
  for (size_t index = 0; index < pieces.size() && field.good(); ++index) {
    if (!pieces[index].is_list(3, 3)) return;
    ManifestPiece &piece = array->pieces.emplace_back();
    piece.rank = rank;
    pieces[index][size_t{0}].read(&piece.first, 0, number_max);
    pieces[index][size_t{1}].read(&piece.count, 0, number_max);
    read_hashes(pieces[index][size_t{2}], &piece.hashes);
  }
}

bool describes_the_same(const ManifestArray &a, const ManifestArray &b) {
  const auto tie = [](const ManifestArray &array) {
    return std::tie(array.name, array.dtype_word, array.shape, array.kind, array.tensor, array.part, array.block,
                    array.cut, array.file, array.offset, array.bytes);
  };
  return tie(a) == tie(b);
}

}  // namespace

std::string report_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, ".report-%05d.json", rank);
  return name;
}

std::string report_to_json(const SaveContent &content) {
  Json files = Json::array();
  for (const OwnFile &own : content.files) {
    const FiledFile &filed = own.filed;
    Json arrays = Json::array();
    size_t last = SIZE_MAX;
    for (const OwnPiece &piece : own.pieces) {
      if (piece.array != last) arrays.push_back(array_to_json(filed.arrays[piece.array], content.rank));
      last = piece.array;
    }
    files.push_back({{"name", filed.name},
                     {"bytes", filed.bytes},
                     {"header_bytes", filed.data_offset},
                     {"header_hash", hexadecimal_text(hash_chunk(filed.header.data(), filed.header.size()))},
                     {"arrays", std::move(arrays)}});
  }
  return printed_json({{"files", std::move(files)}, {"user", base64_text(content.user)}});
}

mxs_status ReportMerger::add(int rank, const std::string &text) {
  Json json;
  mxs_status status = parse_json(text, &json);
  if (status != MXS_OK) return status;
  const JsonField root(&json, "", &status);
  std::string user;
  root["user"].read_text(&user, SIZE_MAX);
  if (root.good() && !bytes_of_base64(user, &manifest_.user[static_cast<size_t>(rank)]))
    root["user"].wrong("is not base64");
  const JsonField files = root["files"];
  if (!files.is_list(0, SIZE_MAX)) return status;
  for (size_t index = 0; index < files.size(); ++index) {
    const JsonField field = files[index];
    ManifestFile file;
    field["name"].read_name(&file.name);
    field["bytes"].read(&file.bytes, 0, number_max);
    field["header_bytes"].read(&file.data_offset, 0, number_max);
    field["header_hash"].read_hexadecimal(&file.header_hash);
    std::vector<ManifestArray> arrays;
    const JsonField list = field["arrays"];
    if (!list.is_list(1, SIZE_MAX)) return status;
    for (size_t number = 0; number < list.size(); ++number) read_array(list[number], rank, &arrays.emplace_back());
    if (status == MXS_OK) status = add_file(file, std::move(arrays));
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

mxs_status ReportMerger::add_file(const ManifestFile &file, std::vector<ManifestArray> arrays) {
  const auto [file_place, file_is_new] = file_of_name_.emplace(file.name, manifest_.files.size());
  if (file_is_new) manifest_.files.push_back(file);
  const ManifestFile &known = manifest_.files[file_place->second];
  if (known.bytes != file.bytes || known.data_offset != file.data_offset || known.header_hash != file.header_hash)
    return set_error(MXS_INTERNAL, "ranks have laid out %.200s in different ways", file.name.c_str());
  for (ManifestArray &array : arrays) {
    array.file = file_place->second;
    const auto [place, is_new] = array_of_name_.emplace(array.name, manifest_.arrays.size());
    if (is_new) {
      manifest_.arrays.push_back(std::move(array));
      continue;
    }
    ManifestArray &same = manifest_.arrays[place->second];
    if (!describes_the_same(same, array))
      return set_error(MXS_INTERNAL, "ranks have written array \"%.200s\" in different ways", array.name.c_str());
    for (ManifestPiece &piece : array.pieces) same.pieces.push_back(std::move(piece));
  }
  return MXS_OK;
}

mxs_status ReportMerger::finish(const std::vector<std::string> &common) {
  std::vector<size_t> order(manifest_.files.size()), place_of(order.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // "model-..." before "optimizer/rank-..." before "optimizer/shared"; a rank beyond 99,999 has more digits.
  std::sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    const std::string &one = manifest_.files[a].name, &other = manifest_.files[b].name;
    const bool both_are_of_ranks = one.starts_with("optimizer/rank-") && other.starts_with("optimizer/rank-");
    return both_are_of_ranks && one.size() != other.size() ? one.size() < other.size() : one < other;
  });
  std::vector<ManifestFile> files;
  for (size_t place = 0; place < order.size(); ++place) {
    place_of[order[place]] = place;
    files.push_back(std::move(manifest_.files[order[place]]));
  }
  manifest_.files = std::move(files);
  for (ManifestArray &array : manifest_.arrays) {
    array.file = place_of[array.file];
    std::sort(array.pieces.begin(), array.pieces.end(),
              [](const ManifestPiece &a, const ManifestPiece &b) { return a.first < b.first; });
  }
  std::stable_sort(manifest_.arrays.begin(), manifest_.arrays.end(),
                   [](const ManifestArray &a, const ManifestArray &b) {
                     return std::tie(a.file, a.offset, a.bytes) < std::tie(b.file, b.offset, b.bytes);
                   });
  for (const std::string &name : common)
    if (!file_of_name_.count(name))
      return set_error(MXS_INTERNAL, "no rank has written %.200s", name.c_str());
  const mxs_status status = check_manifest(manifest_);
  if (status == MXS_OK) return MXS_OK;
  return set_error(MXS_INTERNAL, "what ranks have written doesn't fit together: %s",
                   std::string(last_error_text()).c_str());
}

}  // namespace mxs
