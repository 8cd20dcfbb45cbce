// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/descriptor.hpp"

#include <unistd.h>

#include <cerrno>

namespace mxs {

int Descriptor::close() {
  if (number_ < 0) return 0;
  const int result = ::close(std::exchange(number_, -1));
  return result == 0 || errno == EINTR ? 0 : errno;
}

}  // namespace mxs
