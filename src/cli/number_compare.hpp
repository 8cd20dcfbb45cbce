// SPDX-License-Identifier: Apache-2.0
// Two arrays' bytes, number by number: are the bits equal, and if not, how far apart are the values? Through double,
// which holds every number of the floating dtypes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace mxs_cli {

struct Difference {
  uint64_t number_count = 0;      // compared
  uint64_t different_count = 0;   // other bits; of other dtypes: other values
  uint64_t nan_count = 0;         // of these: pairs of which one or both are NaN, which have no distance
  double absolute_max = 0, relative_max = 0;  // relative: to the larger of both
  bool has_distance = true;       // false: numbers of a dtype that isn't known here, compared as bytes
};

// Of one number; 0: no such dtype of safetensors, or one whose numbers are known as bytes alone.
size_t number_bytes_of(const std::string &dtype_word);

class NumberComparison {
 public:
  // number_bytes: of the two arrays.
  NumberComparison(const std::string &a_dtype, size_t a_number_bytes, const std::string &b_dtype,
                   size_t b_number_bytes);
  // The next numbers of both.
  void add(const std::byte *a, const std::byte *b, uint64_t number_count);
  const Difference &difference() const { return difference_; }

  using Read = double (*)(const std::byte *number);

 private:
  void add_different(const std::byte *a, const std::byte *b, uint64_t number_count);
  void add_pair(const std::byte *a, const std::byte *b);

  Read a_read_, b_read_;
  size_t a_bytes_, b_bytes_;
  bool same_dtype_;
  Difference difference_;
};

}  // namespace mxs_cli
