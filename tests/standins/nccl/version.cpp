// SPDX-License-Identifier: Apache-2.0
#include "version.hpp"

namespace standin {

const int built_version = STANDIN_NCCL_VERSION;

}  // namespace standin
