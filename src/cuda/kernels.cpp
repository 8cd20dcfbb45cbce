// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels.hpp"

#include "base/status.hpp"

namespace mxs {

namespace {

mxs_status not_built() { return set_error(MXS_NOT_BUILT, "sums and conversions on the device are not in this build"); }

class NoKernels final : public DeviceKernels {
 public:
  mxs_status add(float *, const void *, mxs_dtype, uint64_t, DeviceStream) override { return not_built(); }
  mxs_status sum_in_order(float *, const float *, const void *const *, int, mxs_dtype, uint64_t,
                          DeviceStream) override {
    return not_built();
  }
  mxs_status narrow(void *, mxs_dtype, const float *, uint64_t, DeviceStream) override { return not_built(); }
  mxs_status widen(float *, const void *, mxs_dtype, uint64_t, DeviceStream) override { return not_built(); }
};

}  // namespace

std::unique_ptr<DeviceKernels> make_device_kernels(Device &) { return std::make_unique<NoKernels>(); }

}  // namespace mxs
