// SPDX-License-Identifier: Apache-2.0
// A safetensors model as somebody else would write it: one file, without a manifest.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "checkpoint/convert.hpp"
#include "model/safetensors.hpp"
#include "support/temporary_folder.hpp"

namespace mxs::test {

struct PlainTensor {
  std::string name;
  std::vector<int64_t> shape;
  mxs_dtype dtype = MXS_F32;
  std::function<double(uint64_t element)> value;

  uint64_t elements() const {
    uint64_t count = 1;
    for (const int64_t side : shape) count *= static_cast<uint64_t>(side);
    return count;
  }
};

// A header whose length is no multiple of anything, so that numbers lie at odd places.
inline void write_plain_safetensors(const std::string &path, const std::vector<PlainTensor> &tensors) {
  std::string header = "{", data;
  for (const PlainTensor &tensor : tensors) {
    const size_t number_bytes = dtype_bytes(tensor.dtype), begin = data.size();
    for (uint64_t i = 0; i < tensor.elements(); ++i) {
      const double value = tensor.value(i);
      alignas(8) char number[8];
      convert(number, tensor.dtype, &value, MXS_F64, 1);
      data.append(number, number_bytes);
    }
    std::string shape;
    for (const int64_t side : tensor.shape) shape.append(shape.empty() ? "" : ",").append(std::to_string(side));
    header.append(header.size() > 1 ? ",\"" : "\"").append(tensor.name).append("\":{\"dtype\":\"");
    header.append(find_safetensors_format(tensor.dtype)->word).append("\",\"shape\":[").append(shape);
    header.append("],\"data_offsets\":[").append(std::to_string(begin)).append(",");
    header.append(std::to_string(data.size())).append("]}");
  }
  header += "}";
  while (header.size() % 2 == 0) header += " ";
  char length[8];
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  put_content(path, std::string(length, sizeof length) + header + data);
}

}  // namespace mxs::test
