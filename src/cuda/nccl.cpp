// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl.hpp"

#include "base/status.hpp"
#include "cuda/nccl_library.hpp"

namespace mxs {

int nccl_version(std::string *why_not) {
  const NcclLibrary *library = nullptr;
  if (load_nccl(&library) == MXS_OK) return library->version;
  *why_not = last_error_text();
  return 0;
}

}  // namespace mxs
