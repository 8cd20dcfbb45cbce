// SPDX-License-Identifier: Apache-2.0
// Layouts and sizes in words, for programs: `--layout WORDS --bytes 16M`. perf/ reads the same words.
//
//   even       every rank owns alike, as far as elements go
//   one        rank 0 owns all
//   k:N        N owners with equal parts, spread over the ranks: owner i is rank i * p / N
//   k:N+tail   the same, but 1/32 of the bytes is a tail of the rank after the last of them
//   zipf:S     the share of rank i is proportional to 1 / (i + 1)^S
//   FILE       one line per segment: "owner bytes"; blank lines and what follows # are skipped. --bytes is ignored
//
// Functions that read return what is wrong, or "".
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "matrixshard/layout.h"

namespace mxs_cli {

struct LayoutPart {
  int owner;
  uint64_t bytes;
};

template <class Number>
bool read_number(std::string_view text, Number *number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// "16M", "1.5K", "4096": K, M, G and T are powers of 1024.
inline std::string read_size(const std::string &text, uint64_t *bytes) {
  std::string_view digits = text;
  const char *const units = "KMGT";
  const char *unit = digits.empty() ? nullptr : std::strchr(units, digits.back());
  const int shift = unit ? 10 * static_cast<int>(unit - units + 1) : 0;
  if (unit) digits.remove_suffix(1);
  double number = 0;
  if (!read_number(digits, &number) || !(number >= 0) || std::ldexp(number, shift) > 1e15)
    return "\"" + text + "\" is not a size, such as 4096, 16M or 1.5G, of at most 10^15 bytes";
  *bytes = static_cast<uint64_t>(std::ldexp(number, shift));
  return "";
}

namespace layout_words {

// Parts that add up to `bytes`, in proportion to the weights, cut on whole elements; what is less than one is left out.
inline void cut(const std::vector<double> &weights, const std::vector<int> &owners, uint64_t bytes,
                uint64_t element_bytes, std::vector<LayoutPart> *parts) {
  const uint64_t elements = bytes / element_bytes;
  double total = 0, done = 0;
  for (const double weight : weights) total += weight;
  uint64_t begin = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    done += weights[i];
    const double share = i + 1 == weights.size() ? 1 : done / total;
    const uint64_t end = std::min(elements, static_cast<uint64_t>(share * static_cast<double>(elements) + 0.5));
    parts->push_back({owners[i], (end - begin) * element_bytes});
    begin = end;
  }
}

inline std::string read_file(const std::string &path, int rank_count, uint64_t element_bytes,
                             std::vector<LayoutPart> *parts) {
  // A folder would be a layout without segments, and /dev/zero a line without end. A pipe will do.
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  std::ifstream file(path);
  if (!file || (kind != std::filesystem::file_type::regular && kind != std::filesystem::file_type::fifo))
    return "layout \"" + path + "\" is neither even, one, k:N, k:N+tail or zipf:S nor a file that can be read";
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::istringstream words(line);
    std::string owner_word, bytes_word, rest;
    words >> owner_word >> bytes_word >> rest;
    LayoutPart part{};
    const std::string where = path + ", line " + std::to_string(number) + ": ";
    if (!read_number(owner_word, &part.owner) || bytes_word.empty() || !rest.empty())
      return where + "not \"owner bytes\"";
    const std::string complaint = read_size(bytes_word, &part.bytes);
    if (!complaint.empty()) return where + complaint;
    if (part.owner < 0 || part.owner >= rank_count)
      return where + "owner " + owner_word + " is not one of " + std::to_string(rank_count) + " ranks";
    if (part.bytes % element_bytes)
      return where + bytes_word + " bytes are not whole elements of " + std::to_string(element_bytes);
    parts->push_back(part);
  }
  return file.bad() ? path + " can't be read to its end" : "";
}

inline std::string read_owners(const std::string &word, uint64_t bytes, int rank_count, uint64_t element_bytes,
                               std::vector<LayoutPart> *parts) {
  std::string_view text = std::string_view(word).substr(2);
  const bool tail = text.ends_with("+tail");
  if (tail) text.remove_suffix(5);
  int count = 0;
  if (!read_number(text, &count) || count < 1 || count > rank_count)
    return "layout \"" + word + "\": from 1 to all " + std::to_string(rank_count) + " ranks can own";
  std::vector<int> owners;
  std::vector<double> weights(static_cast<size_t>(count), tail ? 31.0 / count : 1.0);
  for (int i = 0; i < count; ++i) owners.push_back(static_cast<int>(int64_t{i} * rank_count / count));
  if (tail) {
    owners.push_back((owners.back() + 1) % rank_count);
    weights.push_back(1);
  }
  cut(weights, owners, bytes, element_bytes, parts);
  return "";
}

}  // namespace layout_words

// In the buffer's order, without gaps.
inline std::string read_layout(const std::string &word, uint64_t bytes, int rank_count, uint64_t element_bytes,
                               std::vector<LayoutPart> *parts) {
  parts->clear();
  if (word == "one") {
    parts->push_back({0, bytes / element_bytes * element_bytes});
    return "";
  }
  if (word.starts_with("k:")) return layout_words::read_owners(word, bytes, rank_count, element_bytes, parts);
  double exponent = 0;
  if (word.starts_with("zipf:") && (!read_number(std::string_view(word).substr(5), &exponent) || !(exponent >= 0)))
    return "layout \"" + word + "\" is not zipf:S with a number S of at least 0";
  if (word != "even" && !word.starts_with("zipf:"))
    return layout_words::read_file(word, rank_count, element_bytes, parts);
  std::vector<int> owners;
  std::vector<double> weights;
  for (int rank = 0; rank < rank_count; ++rank) {
    owners.push_back(rank);
    weights.push_back(std::pow(rank + 1.0, -exponent));
  }
  layout_words::cut(weights, owners, bytes, element_bytes, parts);
  return "";
}

// For mxs_layout_create with alignment 1.
inline std::vector<mxs_segment> segments_of(const std::vector<LayoutPart> &parts) {
  std::vector<mxs_segment> segments;
  uint64_t offset = 0;
  for (const LayoutPart &part : parts) {
    mxs_segment segment = MXS_SEGMENT_INIT;
    segment.owner = part.owner;
    segment.offset = offset;
    segment.bytes = part.bytes;
    segments.push_back(segment);
    offset += part.bytes;
  }
  return segments;
}

}  // namespace mxs_cli
