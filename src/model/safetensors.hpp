// SPDX-License-Identifier: Apache-2.0
// Headers of safetensors files:
//
//   | 8 bytes: n | n bytes of JSON: {"w": {"dtype": "BF16", "shape": [4, 2], "data_offsets": [0, 16]}, ...} | data |
//
// What a header says is believed only if all of it fits: each tensor's bytes are those of its shape, and together they
// cover the data without gap or overlap. The data itself is never read.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "matrixshard/types.h"

namespace mxs {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_word;  // "BF16"
  mxs_dtype dtype = 0;     // 0: none of ours, such as F8_E4M3
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes within the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by begin
  std::vector<std::pair<std::string, std::string>> metadata;
  uint64_t data_offset = 0;               // within the file
};

// What a header calls a number: "BF16", of 2 bytes. dtype 0: none of ours.
struct SafetensorsFormat {
  const char *word;
  uint32_t number_bytes;
  mxs_dtype dtype;
};
// nullptr: there is none.
const SafetensorsFormat *find_safetensors_format(std::string_view word);
const SafetensorsFormat *find_safetensors_format(mxs_dtype dtype);

// The format's own limit.
constexpr uint64_t safetensors_header_bytes_max = 100'000'000;

// Pure. text: the JSON alone. Sentences name the tensor.
mxs_status parse_safetensors_header(std::string_view text, uint64_t data_bytes, SafetensorsHeader *header);

// Of *.safetensors.index.json: which file, in the index's own folder, has which tensor.
mxs_status parse_safetensors_index(const nlohmann::json &root,
                                   std::vector<std::pair<std::string, std::string>> *file_of_tensor);

// Reads the header of a file and nothing else. Sentences name the file. bytes: receives the file's first data_offset
// bytes; may be nullptr.
mxs_status read_safetensors_header(const std::string &path, SafetensorsHeader *header, std::string *bytes = nullptr);
// The same in two steps, for whoever wants to look at the bytes before he believes them.
mxs_status read_safetensors_bytes(const std::string &path, std::string *bytes, uint64_t *data_bytes);
mxs_status parse_safetensors_bytes(const std::string &path, const std::string &bytes, uint64_t data_bytes,
                                   SafetensorsHeader *header);

}  // namespace mxs
