/* SPDX-License-Identifier: Apache-2.0 */
// Numbers in device memory, for tests: put there and read back, with poison behind them that must stay.
#pragma once

#include <cstring>
#include <vector>

#include "device/device.hpp"
#include "matrixshard/status.h"

namespace mxs::test {

template <class Number>
class DeviceArray {
 public:
  // Poisoned.
  DeviceArray(Device &device, size_t count) : device_(device), count_(count) {
    const std::vector<unsigned char> poison(count * sizeof(Number) + guard_bytes, poison_byte);
    is_good_ = device.allocate(poison.size(), &memory_) == MXS_OK && put(poison.data(), poison.size());
  }
  DeviceArray(Device &device, const std::vector<Number> &numbers) : DeviceArray(device, numbers.size()) {
    if (!numbers.empty()) is_good_ = is_good_ && put(numbers.data(), count_ * sizeof(Number));
  }

  bool is_good() const { return is_good_; }
  Number *data() const { return reinterpret_cast<Number *>(memory_.data()); }
  std::byte *bytes() const { return memory_.data(); }

  // After all that the stream holds. Empty: a failure, or something was written behind the array.
  std::vector<Number> get(DeviceStream stream = nullptr) const {
    std::vector<unsigned char> bytes(count_ * sizeof(Number) + guard_bytes);
    if (!is_good_ || device_.copy(bytes.data(), memory_.data(), bytes.size(), stream) != MXS_OK ||
        device_.synchronize(stream) != MXS_OK)
      return {};
    for (size_t i = count_ * sizeof(Number); i < bytes.size(); ++i)
      if (bytes[i] != poison_byte) return {};
    std::vector<Number> numbers(count_);
    if (count_ > 0) std::memcpy(numbers.data(), bytes.data(), count_ * sizeof(Number));
    return numbers;
  }

 private:
  static constexpr size_t guard_bytes = 64;
  static constexpr unsigned char poison_byte = 0xa5;

  bool put(const void *source, size_t bytes) {
    return device_.copy(memory_.data(), source, bytes, nullptr) == MXS_OK && device_.synchronize(nullptr) == MXS_OK;
  }

  Device &device_;
  size_t count_;
  DeviceMemory memory_;
  bool is_good_ = false;
};

template <class Number>
bool same_bits(const std::vector<Number> &left, const std::vector<Number> &right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(Number)) == 0);
}

}  // namespace mxs::test
