// SPDX-License-Identifier: Apache-2.0
// The peer of Newton-Schulz: the 15 products that five steps need, each as oneDNN's plain bf16 matmul of that shape
// with nothing attached. Built without oneDNN there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace bench {

class BareProducts {
 public:
  virtual ~BareProducts() = default;
  virtual void run() = 0;  // the 15 of one matrix
  virtual std::string implementation() const = 0;
};

// None: `why` tells.
std::unique_ptr<BareProducts> make_bare_products(int64_t rows, int64_t columns, int threads, std::string *why);

}  // namespace bench
