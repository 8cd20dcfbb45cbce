// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/filing.hpp"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/arithmetic.hpp"
#include "base/json_field.hpp"

namespace mxs {

namespace {

constexpr uint64_t header_border = 4096;
constexpr int shared = -1;  // instead of a rank: the file of several

// The rank that writes all of an array, or `shared`.
int writer_of(const FiledArray &array) {
  assert(!array.pieces.empty());
  const int rank = array.pieces[0].rank;
  const auto same = [rank](const ManifestPiece &piece) { return piece.rank == rank; };
  return std::all_of(array.pieces.begin(), array.pieces.end(), same) ? rank : shared;
}

// {"w": {"dtype": "BF16", "shape": [4, 2], "data_offsets": [0, 16]}: written by hand, so that members come in the
// order of the bytes.
void append_member(const FiledArray &array, std::string *text) {
  text->append(printed_json(Json(array.name))).append(":{\"dtype\":\"").append(array.dtype_word);
  text->append("\",\"shape\":[");
  for (size_t i = 0; i < array.shape.size(); ++i)
    text->append(i ? "," : "").append(std::to_string(array.shape[i]));
  text->append("],\"data_offsets\":[").append(std::to_string(array.offset)).append(1, ',');
  text->append(std::to_string(array.offset + array.bytes)).append("]}");
}

std::string header_of(const std::vector<FiledArray> &arrays) {
  std::string text(8, '\0');
  text.append("{\"__metadata__\":{\"format\":\"pt\"}");  // transformers refuses files that don't say so
  for (const FiledArray &array : arrays) {
    text.append(1, ',');
    append_member(array, &text);
  }
  text.append(1, '}');
  text.resize(align_up(text.size(), header_border), ' ');
  const uint64_t length = text.size() - 8;
  for (size_t byte = 0; byte < 8; ++byte) text[byte] = static_cast<char>(length >> (8 * byte) & 0xff);
  return text;
}

FiledFile lay_out(std::vector<FiledArray> arrays, std::string name, size_t number) {
  FiledFile file;
  file.name = std::move(name);
  std::stable_sort(arrays.begin(), arrays.end(),
                   [](const FiledArray &a, const FiledArray &b) { return a.number_bytes > b.number_bytes; });
  file.first_rank = arrays[0].pieces[0].rank;
  for (FiledArray &array : arrays) {
    array.file = number;
    array.offset = file.bytes;
    file.bytes += array.bytes;
    for (const ManifestPiece &piece : array.pieces) file.first_rank = std::min(file.first_rank, piece.rank);
  }
  file.header = header_of(arrays);
  file.data_offset = file.header.size();
  file.bytes += file.data_offset;
  file.arrays = std::move(arrays);
  return file;
}

// Ranks ascending, the shared one last.
std::vector<std::pair<int, std::vector<FiledArray>>> by_writer(std::vector<FiledArray> arrays) {
  std::map<int, std::vector<FiledArray>> sorted;
  std::vector<FiledArray> of_several;
  for (FiledArray &array : arrays) {
    const int writer = writer_of(array);
    (writer == shared ? of_several : sorted[writer]).push_back(std::move(array));
  }
  std::vector<std::pair<int, std::vector<FiledArray>>> result(std::make_move_iterator(sorted.begin()),
                                                              std::make_move_iterator(sorted.end()));
  if (!of_several.empty()) result.emplace_back(shared, std::move(of_several));
  return result;
}

std::string formatted(const char *format, size_t first, size_t second = 0) {
  char text[64];
  std::snprintf(text, sizeof text, format, first, second);
  return text;
}

}  // namespace

std::vector<FiledFile> file_model(std::vector<FiledArray> arrays) {
  std::vector<FiledFile> files;
  auto writers = by_writer(std::move(arrays));
  for (auto &[rank, own] : writers)
    files.push_back(lay_out(std::move(own), formatted("model-%05zu-of-%05zu.safetensors", files.size() + 1,
                                                      writers.size()), files.size()));
  return files;
}

std::vector<FiledFile> file_optimizer(std::vector<FiledArray> arrays) {
  std::vector<FiledFile> files;
  for (auto &[rank, own] : by_writer(std::move(arrays)))
    files.push_back(lay_out(std::move(own),
                            rank == shared ? "optimizer/shared.safetensors"
                                           : formatted("optimizer/rank-%05zu.safetensors", static_cast<size_t>(rank)),
                            files.size()));
  return files;
}

uint64_t numbers_of_elements(uint64_t array_numbers, uint64_t elements, uint64_t tensor_elements) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{array_numbers} * elements;
  assert(tensor_elements != 0 && product % tensor_elements == 0);
  return static_cast<uint64_t>(product / tensor_elements);
}

}  // namespace mxs
