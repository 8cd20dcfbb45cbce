// SPDX-License-Identifier: Apache-2.0
// Which linear algebra a device takes: see device/linear.hpp.
#include <mutex>
#include <string>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "cuda/cusolver_linear.hpp"
#include "cuda/device.hpp"
#include "cuda/orthogonalizer.hpp"
#include "cuda/reference_linear.hpp"

namespace mxs {

namespace {

// AUTO becomes what MXS_BACKEND says, if that is one of the device's.
mxs_status read_backend(mxs_backend *backend) {
  if (*backend == MXS_BACKEND_AUTO) {
    const std::string text = environment_text("MXS_BACKEND").value_or("");
    if (text == "reference") *backend = MXS_BACKEND_REFERENCE;
    if (text == "cublas") *backend = MXS_BACKEND_CUBLAS;
  }
  if (*backend == MXS_BACKEND_AUTO || *backend == MXS_BACKEND_REFERENCE || *backend == MXS_BACKEND_CUBLAS)
    return MXS_OK;
  return set_error(MXS_NOT_BUILT, "backend %d multiplies matrices on the CPU; CUDA memory takes MXS_BACKEND_AUTO, "
                   "_CUBLAS or _REFERENCE", static_cast<int>(*backend));
}

// make(backend), of CUBLAS first where AUTO was asked for; that it can't be had is logged once.
template <class Make>
mxs_status make_either(mxs_backend backend, Make &&make) {
  const mxs_status status = read_backend(&backend);
  if (status != MXS_OK || backend != MXS_BACKEND_AUTO) return status == MXS_OK ? make(backend) : status;
  const mxs_status tried = make(MXS_BACKEND_CUBLAS);
  if (tried != MXS_NOT_BUILT) return tried;
  static std::once_flag told;
  std::call_once(told, [] {
    log_line(MXS_LOG_WARNING, "matrices in CUDA memory are multiplied by our own fp32 kernels, which are slow: %s",
             last_error_text());
  });
  return make(MXS_BACKEND_REFERENCE);
}

}  // namespace

mxs_status CudaDevice::make_orthogonalizer(std::unique_ptr<DeviceOrthogonalizer> *orthogonalizer, int64_t rows,
                                           int64_t columns, uint64_t count_most, const NewtonSchulzRecipe &recipe,
                                           const OrthogonalizerChoice &choice) {
  if (rows < 1 || columns < 1 || count_most < 1 || count_most > INT32_MAX)
    return set_error(MXS_INVALID_ARGUMENT, "Newton-Schulz on the device of %llu matrices of %lld x %lld",
                     static_cast<unsigned long long>(count_most), static_cast<long long>(rows),
                     static_cast<long long>(columns));
  const DeviceNewtonSchulz wanted{{rows, columns}, count_most, recipe, choice.algorithm};
  return make_either(choice.backend, [&](mxs_backend backend) {
    if (backend == MXS_BACKEND_CUBLAS) return make_cublas_orthogonalizer(orthogonalizer, *this, wanted);
    *orthogonalizer = make_reference_device_orthogonalizer(*this, wanted);
    return MXS_OK;
  });
}

mxs_status CudaDevice::make_linear(std::unique_ptr<DeviceLinear> *linear, mxs_backend backend) {
  return make_either(backend, [&](mxs_backend chosen) {
    if (chosen == MXS_BACKEND_CUBLAS) return make_cusolver_linear(linear, *this);
    *linear = make_reference_device_linear(*this);
    return MXS_OK;
  });
}

}  // namespace mxs
