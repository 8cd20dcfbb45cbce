// SPDX-License-Identifier: Apache-2.0
// NVTX ranges, in a domain of the library's. The headers load a profiler's library if the profiler has named one
// (NVTX_INJECTION64_PATH), at the first range; without one a range is a load and a branch.
#include <nvtx3/nvToolsExt.h>

#include "cuda/device.hpp"

namespace mxs {

namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("matrixshard");
  return made;
}

}  // namespace

void CudaDevice::push_range(const char *name) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &attributes);
}

void CudaDevice::pop_range() { nvtxDomainRangePop(domain()); }

}  // namespace mxs
