// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace mxs {

// A file descriptor that is ours to close. Movable.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor &&other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  int close();  // errno of it or 0. Some file systems tell of a write's failure only here

 private:
  int number_ = -1;
};

}  // namespace mxs
