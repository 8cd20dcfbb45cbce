// SPDX-License-Identifier: Apache-2.0
// Linear algebra by our own kernels: the bits of the host's reference (kernels/reference/linear.cpp).
#include "cuda/reference_linear.hpp"

#include "cuda/linear_launches.hpp"
#include "kernels/linear.hpp"

namespace mxs {

namespace {

FactorArgument factor_of(const LinearFactor &factor) { return {factor.data, factor.stride, 0, factor.turned}; }

class ReferenceDeviceLinear final : public DeviceLinear {
 public:
  explicit ReferenceDeviceLinear(Device &device) : device_(device) {}

  const char *backend() const override { return "reference"; }

  mxs_status multiply(const LinearProduct &product, DeviceStream stream) override {
    MultiplyArguments a;
    a.rows = product.rows, a.columns = product.columns, a.inner = product.inner;
    a.left = factor_of(product.left), a.right = factor_of(product.right);
    a.target = product.target, a.target_stride = product.target_stride;
    if (product.beta != 0) a.addend = product.target, a.addend_stride = product.target_stride;
    a.alpha = product.alpha, a.beta = product.beta;
    a.symmetric = product.symmetric;
    return launch_multiply(device_, a, stream);
  }

  mxs_status update(const LinearUpdate &update, DeviceStream stream) override {
    LinearProduct product;
    product.rows = product.columns = update.n, product.inner = update.inner;
    product.left = product.right = update.factor;
    product.right.turned = !update.factor.turned;
    product.target = update.target, product.target_stride = update.target_stride;
    product.alpha = update.alpha, product.beta = update.beta;
    product.symmetric = true;
    return multiply(product, stream);
  }

  mxs_status workspace_bytes(uint64_t n, uint64_t *bytes) override {
    *bytes = decompose_bytes(n);
    return MXS_OK;
  }

  mxs_status eigh(uint64_t n, float *matrix, uint64_t stride, float *values, std::byte *workspace, int32_t *failed,
                  DeviceStream stream) override {
    return launch_decompose(device_, "mxs_eigh", {n, stride, matrix, values, workspace, failed}, stream);
  }

  mxs_status qr(uint64_t n, float *matrix, uint64_t stride, std::byte *workspace, int32_t *failed,
                DeviceStream stream) override {
    return launch_decompose(device_, "mxs_qr", {n, stride, matrix, nullptr, workspace, failed}, stream);
  }

 private:
  Device &device_;
};

}  // namespace

std::unique_ptr<DeviceLinear> make_reference_device_linear(Device &device) {
  return std::make_unique<ReferenceDeviceLinear>(device);
}

}  // namespace mxs
