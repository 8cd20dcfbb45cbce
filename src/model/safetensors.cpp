// SPDX-License-Identifier: Apache-2.0
// What a header and an index say, from their text. See safetensors.hpp.
#include "model/safetensors.hpp"

#include <algorithm>
#include <cinttypes>
#include <nlohmann/json.hpp>

#include "base/arithmetic.hpp"
#include "base/json.hpp"
#include "base/status.hpp"

namespace mxs {
namespace {

using Json = nlohmann::json;

constexpr SafetensorsFormat formats[] = {
    {"F64", 8, MXS_F64}, {"F32", 4, MXS_F32}, {"BF16", 2, MXS_BF16}, {"F16", 2, MXS_F16}, {"U8", 1, MXS_U8},
    {"F8_E4M3", 1, 0},   {"F8_E5M2", 1, 0},   {"F8_E8M0", 1, 0},     {"BOOL", 1, 0},      {"I8", 1, 0},
    {"I16", 2, 0},       {"U16", 2, 0},       {"I32", 4, 0},         {"U32", 4, 0},       {"I64", 8, 0},
    {"U64", 8, 0},       {"C64", 8, 0}};

std::string known_formats() {
  std::string text;
  for (const SafetensorsFormat &each : formats) text.append(text.empty() ? "" : ", ").append(each.word);
  return text;
}

// One tensor's member of the header.
class Member {
 public:
  Member(const std::string &name, const Json &value, mxs_status *status) : name_(name), value_(value),
                                                                           status_(status) {}

  bool read(SafetensorsEntry *entry) const {
    if (!value_.is_object()) return wrong("is not an object");
    for (const auto &[field, value] : value_.items())
      if (field != "dtype" && field != "shape" && field != "data_offsets")
        return wrong(("has a field that is not known: " + field.substr(0, 60)).c_str());
    entry->name = name_;
    uint64_t bytes = 0;
    return read_format(entry, &bytes) && read_shape(entry, &bytes) && read_offsets(entry, bytes);
  }

 private:
  bool read_format(SafetensorsEntry *entry, uint64_t *bytes) const {
    const auto found = value_.find("dtype");
    if (found == value_.end() || !found->is_string()) return wrong("has no dtype, or one that is not a text");
    entry->dtype_word = found->get<std::string>();
    if (const SafetensorsFormat *format = find_safetensors_format(entry->dtype_word)) {
      entry->dtype = format->dtype;
      *bytes = format->number_bytes;
      return true;
    }
    return wrong(("has the dtype \"" + entry->dtype_word.substr(0, 40) + "\", which isn't known; known are " +
                  known_formats()).c_str());
  }
  bool read_shape(SafetensorsEntry *entry, uint64_t *bytes) const {
    const auto found = value_.find("shape");
    if (found == value_.end() || !found->is_array()) return wrong("has no shape, or one that is not a list");
    if (found->size() > MXS_DIMENSIONS_MAX) return wrong("has more than 8 dimensions");
    for (const Json &side : *found) {
      if (!side.is_number_unsigned() || side.get<uint64_t>() > bytes_max)
        return wrong("has a side that is not a whole number from 0 to 2^62");
      entry->shape.push_back(side.get<int64_t>());
    }
    for (const int64_t side : entry->shape)
      if (side == 0) *bytes = 0;
    for (const int64_t side : entry->shape)
      if (!checked_multiply(*bytes, static_cast<uint64_t>(side), bytes)) return wrong("has more than 2^62 bytes");
    return true;
  }
  bool read_offsets(SafetensorsEntry *entry, uint64_t bytes) const {
    const auto found = value_.find("data_offsets");
    if (found == value_.end() || !found->is_array() || found->size() != 2 || !(*found)[0].is_number_unsigned() ||
        !(*found)[1].is_number_unsigned())
      return wrong("has no data_offsets of two whole numbers");
    entry->begin = (*found)[0].get<uint64_t>();
    entry->end = (*found)[1].get<uint64_t>();
    if (entry->begin <= entry->end && entry->end - entry->begin == bytes) return true;
    return wrong(std::string("has data_offsets from ").append(std::to_string(entry->begin)).append(" to ")
                     .append(std::to_string(entry->end)).append(", but its shape has ")
                     .append(std::to_string(bytes)).append(" bytes").c_str());
  }
  bool wrong(const char *what) const {
    *status_ = set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\" %s", name_.c_str(), what);
    return false;
  }

  const std::string &name_;
  const Json &value_;
  mxs_status *status_;
};

mxs_status read_metadata(const Json &value, SafetensorsHeader *header) {
  if (!value.is_object()) return set_error(MXS_INVALID_ARGUMENT, "__metadata__ is not an object");
  for (const auto &[name, text] : value.items()) {
    if (!text.is_string())
      return set_error(MXS_INVALID_ARGUMENT, "__metadata__: \"%.60s\" is not a text", name.c_str());
    header->metadata.emplace_back(name, text.get<std::string>());
  }
  return MXS_OK;
}

// Sorts by place, and refuses gaps and overlaps.
mxs_status check_cover(uint64_t data_bytes, std::vector<SafetensorsEntry> *entries) {
  std::sort(entries->begin(), entries->end(), [](const SafetensorsEntry &a, const SafetensorsEntry &b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.end != b.end ? a.end < b.end : a.name < b.name;
  });
  uint64_t end = 0;
  const char *before = "";
  for (const SafetensorsEntry &entry : *entries) {
    if (entry.end > data_bytes)
      return set_error(MXS_INVALID_ARGUMENT,
                       "tensor \"%.200s\" ends at byte %" PRIu64 " of the data, but the file has %" PRIu64,
                       entry.name.c_str(), entry.end, data_bytes);
    if (entry.begin < end)
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\" overlaps \"%.200s\": it begins at byte %" PRIu64
                       ", that one ends at %" PRIu64,
                       entry.name.c_str(), before, entry.begin, end);
    if (entry.begin > end)
      return set_error(MXS_INVALID_ARGUMENT, "before tensor \"%.200s\" there are %" PRIu64 " bytes of no tensor",
                       entry.name.c_str(), entry.begin - end);
    end = entry.end;
    before = entry.name.c_str();
  }
  if (end == data_bytes) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "after the last tensor there are %" PRIu64 " bytes of no tensor",
                   data_bytes - end);
}

// A plain name: nothing outside of the index's folder.
bool is_file_name(const std::string &name) {
  return name.ends_with(".safetensors") && name.size() <= 255 && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

const SafetensorsFormat *find_safetensors_format(std::string_view word) {
  for (const SafetensorsFormat &each : formats)
    if (word == each.word) return &each;
  return nullptr;
}

const SafetensorsFormat *find_safetensors_format(mxs_dtype dtype) {
  for (const SafetensorsFormat &each : formats)
    if (dtype != 0 && dtype == each.dtype) return &each;
  return nullptr;
}

mxs_status parse_safetensors_header(std::string_view text, uint64_t data_bytes, SafetensorsHeader *header) {
  if (text.empty() || text.front() != '{')
    return set_error(MXS_INVALID_ARGUMENT, "its header doesn't begin with {: it is no safetensors file");
  Json root;
  mxs_status status = parse_json(text, &root);
  if (status != MXS_OK) return status;
  SafetensorsHeader read;
  for (const auto &[name, value] : root.items()) {
    if (name == "__metadata__") {
      status = read_metadata(value, &read);
    } else {
      read.entries.emplace_back();
      const Member member(name, value, &status);
      member.read(&read.entries.back());
    }
    if (status != MXS_OK) return status;
  }
  status = check_cover(data_bytes, &read.entries);
  if (status == MXS_OK) *header = std::move(read);
  return status;
}

mxs_status parse_safetensors_index(const Json &root,
                                   std::vector<std::pair<std::string, std::string>> *file_of_tensor) {
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object())
    return set_error(MXS_INVALID_ARGUMENT, "it is no index: it has no object weight_map");
  std::vector<std::pair<std::string, std::string>> read;
  for (const auto &[tensor, file] : root["weight_map"].items()) {
    if (!file.is_string() || !is_file_name(file.get_ref<const std::string &>()))
      return set_error(MXS_INVALID_ARGUMENT,
                       "weight_map: tensor \"%.200s\" is in \"%.200s\"; it must be the name of a *.safetensors file in "
                       "the folder of the index",
                       tensor.c_str(), file.is_string() ? file.get_ref<const std::string &>().c_str() : "no text");
    read.emplace_back(tensor, file.get<std::string>());
  }
  *file_of_tensor = std::move(read);
  return MXS_OK;
}

}  // namespace mxs
