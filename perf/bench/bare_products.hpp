// SPDX-License-Identifier: Apache-2.0
// The peers of Newton-Schulz, by oneDNN's plain bf16 matmuls. Built without oneDNN there are none.
//
//   bare products   the 15 that five steps need, with nothing attached, on numbers that nobody asked for
//   plain form      Newton-Schulz as one writes it with them: norm, rounding to bf16, three matmuls a step with the
//                   sums attached (scale, add, scale), and back to fp32. Every product is whole
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace bench {

class BareProducts {
 public:
  virtual ~BareProducts() = default;
  virtual void run() = 0;  // the 15 of each matrix, one matrix after the other
  virtual std::string implementation() const = 0;
};

class PlainForm {
 public:
  virtual ~PlainForm() = default;
  virtual void run(const float *source, float *target) = 0;  // of one matrix
  virtual std::string implementation() const = 0;
};

// None: `why` tells. Each of `count` matrices has memory of its own.
std::unique_ptr<BareProducts> make_bare_products(int64_t rows, int64_t columns, int64_t count, int threads,
                                                 std::string *why);
// Of five steps (a, b, c).
std::unique_ptr<PlainForm> make_plain_form(int64_t rows, int64_t columns, const double (*steps)[3], int threads,
                                           std::string *why);

}  // namespace bench
