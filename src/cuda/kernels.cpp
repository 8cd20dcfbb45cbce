// SPDX-License-Identifier: Apache-2.0
// Sums and conversions of device memory: one launch each.
#include "cuda/kernels.hpp"

#include <algorithm>

#include "base/status.hpp"
#include "cuda/kernels/arguments.hpp"

namespace mxs {

namespace {

constexpr uint32_t threads = 256;
// Of each multiprocessor: as many as it holds at a time, so that a thread's loop takes several elements of long arrays.
constexpr uint64_t blocks_per_multiprocessor = 8;

mxs_status check_dtype(const char *what, mxs_dtype dtype) {
  if (dtype == MXS_F32 || dtype == MXS_BF16 || dtype == MXS_F16) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "%s on the device takes f32, bf16 and f16; dtype %d is none of them", what,
                   static_cast<int>(dtype));
}

class CudaKernels final : public DeviceKernels {
 public:
  explicit CudaKernels(Device &device) : device_(device) {}

  mxs_status add(float *target, const void *source, mxs_dtype dtype, uint64_t elements, DeviceStream stream) override {
    return launch("mxs_add", "a sum", dtype, AddArguments{target, source, dtype, elements}, stream);
  }

  mxs_status sum_in_order(float *target, const float *base, const void *const *sources, int count, mxs_dtype dtype,
                          uint64_t elements, DeviceStream stream) override {
    static_assert(SumInOrderArguments::sources_max == sources_max);
    if (count < 0 || count > sources_max)
      return set_error(MXS_INVALID_ARGUMENT, "a sum on the device takes 0 to %d sources at a time, not %d",
                       sources_max, count);
    SumInOrderArguments arguments;
    arguments.target = target, arguments.base = base;
    arguments.dtype = dtype, arguments.count = count, arguments.elements = elements;
    std::copy_n(sources, count, arguments.sources);
    return launch("mxs_sum_in_order", "a sum", dtype, arguments, stream);
  }

  mxs_status narrow(void *target, mxs_dtype dtype, const float *source, uint64_t elements,
                    DeviceStream stream) override {
    return launch("mxs_narrow", "a conversion", dtype, ConvertArguments{target, source, dtype, elements}, stream);
  }

  mxs_status widen(float *target, const void *source, mxs_dtype dtype, uint64_t elements,
                   DeviceStream stream) override {
    return launch("mxs_widen", "a conversion", dtype, ConvertArguments{target, source, dtype, elements}, stream);
  }

 private:
  template <class Arguments>
  mxs_status launch(const char *kernel, const char *what, mxs_dtype dtype, const Arguments &arguments,
                    DeviceStream stream) {
    const mxs_status status = check_dtype(what, dtype);
    if (status != MXS_OK || arguments.elements == 0) return status;
    const uint64_t wanted = (arguments.elements + threads - 1) / threads;
    const uint64_t most = static_cast<uint64_t>(std::max(device_.info().multiprocessors, 1)) *
                          blocks_per_multiprocessor;
    return device_.launch(kernel, &arguments, sizeof arguments, static_cast<uint32_t>(std::min(wanted, most)), threads,
                          stream);
  }

  Device &device_;
};

}  // namespace

std::unique_ptr<DeviceKernels> make_device_kernels(Device &device) { return std::make_unique<CudaKernels>(device); }

}  // namespace mxs
