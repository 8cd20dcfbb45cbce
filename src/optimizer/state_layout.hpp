// SPDX-License-Identifier: Apache-2.0
// Where the parts of a stepper's state lie: one behind the other, each at a 64-byte border.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

class StateLayout {
 public:
  // count: of matrices, the first dimension if there are several. Returns the part's offset.
  uint64_t add(StateScope scope, std::string name, int64_t count, std::initializer_list<int64_t> shape,
               mxs_dtype dtype = MXS_F32) {
    StatePart part;
    part.scope = scope;
    part.name = std::move(name);
    part.dtype = dtype;
    if (count > 1) part.shape.push_back(count);
    part.shape.insert(part.shape.end(), shape);
    part.offset = bytes_;
    part.bytes = dtype_bytes(dtype);
    for (const int64_t side : part.shape) part.bytes *= static_cast<uint64_t>(side);
    bytes_ += align_up(part.bytes, 64);
    parts_.push_back(std::move(part));
    return parts_.back().offset;
  }

  const std::vector<StatePart> &parts() const { return parts_; }
  uint64_t bytes() const { return bytes_; }  // a multiple of 64

 private:
  std::vector<StatePart> parts_;
  uint64_t bytes_ = 0;
};

}  // namespace mxs
