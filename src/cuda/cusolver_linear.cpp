// SPDX-License-Identifier: Apache-2.0
// Eigenvalues and QR by cuSOLVER, in fp32; products by our own kernels. cuSOLVER counts by columns, so that matrices go
// turned through the workspace:
//
//   | matrix, n * n | tau or signs, n each | info | what cuSOLVER wants |
#include "cuda/cusolver_linear.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "cuda/context.hpp"
#include "cuda/cublas_library.hpp"
#include "cuda/linear_launches.hpp"
#include "cuda/reference_linear.hpp"

namespace mxs {

namespace {

constexpr uint64_t border = 256;

mxs_status check(cusolverStatus_t status, const char *call, uint64_t n) {
  if (status == CUSOLVER_STATUS_SUCCESS) return MXS_OK;
  return set_error(status == CUSOLVER_STATUS_ALLOC_FAILED ? MXS_OUT_OF_MEMORY : MXS_DEVICE_FAILED,
                   "%s of a %llu x %llu matrix: status %d of cuSOLVER", call, static_cast<unsigned long long>(n),
                   static_cast<unsigned long long>(n), static_cast<int>(status));
}

// Where things lie in a workspace.
struct Room {
  float *matrix, *tau, *signs;
  int32_t *info;
  std::byte *rest;

  static uint64_t rest_at(uint64_t n) {
    return align_up(n * n * sizeof(float), border) + 2 * align_up(n * sizeof(float), border) + border;
  }
  Room(std::byte *workspace, uint64_t n) {
    const uint64_t matrix_bytes = align_up(n * n * sizeof(float), border);
    const uint64_t row_bytes = align_up(n * sizeof(float), border);
    matrix = reinterpret_cast<float *>(workspace);
    tau = reinterpret_cast<float *>(workspace + matrix_bytes);
    signs = reinterpret_cast<float *>(workspace + matrix_bytes + row_bytes);
    info = reinterpret_cast<int32_t *>(workspace + matrix_bytes + 2 * row_bytes);
    rest = workspace + rest_at(n);
  }
};

// What cuSOLVER wants, in bytes; of orgqr in numbers of 4 bytes.
struct Wants {
  size_t syevd = 0, syevd_host = 0, geqrf = 0, geqrf_host = 0;
  int orgqr = 0;
};

class CusolverLinear final : public DeviceLinear {
 public:
  CusolverLinear(CudaDevice &device, const CusolverLibrary &library)
      : device_(device), library_(library), products_(make_reference_device_linear(device)),
        name_(library.name + ", products reference") {}
  ~CusolverLinear() override {
    const CurrentContext current(device_.driver(), device_.context());
    if (parameters_) library_.destroy_parameters(parameters_);
    if (handle_) library_.destroy(handle_);
  }

  mxs_status prepare() {
    const CurrentContext current(device_.driver(), device_.context());
    if (current.result() != CUDA_SUCCESS) return device_.failed(current.result(), "cuCtxPushCurrent", "");
    const mxs_status status = check(library_.create(&handle_), "cusolverDnCreate", 0);
    return status == MXS_OK ? check(library_.create_parameters(&parameters_), "cusolverDnCreateParams", 0) : status;
  }

  const char *backend() const override { return name_.c_str(); }
  mxs_status multiply(const LinearProduct &product, DeviceStream stream) override {
    return products_->multiply(product, stream);
  }
  mxs_status update(const LinearUpdate &update, DeviceStream stream) override {
    return products_->update(update, stream);
  }

  mxs_status workspace_bytes(uint64_t n, uint64_t *bytes) override {
    Wants wants;
    const mxs_status status = ask(n, &wants);
    if (status != MXS_OK) return status;
    const size_t most = std::max({wants.syevd, wants.geqrf, static_cast<size_t>(wants.orgqr) * sizeof(float)});
    *bytes = Room::rest_at(n) + align_up(most, border);
    host_room_.resize(std::max({host_room_.size(), wants.syevd_host, wants.geqrf_host}));
    return MXS_OK;
  }

  mxs_status eigh(uint64_t n, float *matrix, uint64_t stride, float *values, std::byte *workspace, int32_t *failed,
                  DeviceStream stream) override {
    const Room room(workspace, n);
    Wants wants;
    mxs_status status = ask(n, &wants);
    if (status == MXS_OK) status = move(n, matrix, stride, room.matrix, n, false, stream);
    if (status == MXS_OK) status = find_eigenvalues(n, room, values, wants, stream);
    if (status == MXS_OK) status = launch("mxs_end_eigh", {n, 0, nullptr, values, room.info, failed}, 1, stream);
    return status == MXS_OK ? move(n, room.matrix, n, matrix, stride, true, stream) : status;
  }

  mxs_status qr(uint64_t n, float *matrix, uint64_t stride, std::byte *workspace, int32_t *failed,
                DeviceStream stream) override {
    const Room room(workspace, n);
    Wants wants;
    mxs_status status = ask(n, &wants);
    if (status == MXS_OK) status = move(n, matrix, stride, room.matrix, n, true, stream);
    if (status == MXS_OK) status = factorise(n, room, wants, stream);
    if (status == MXS_OK)
      status = launch("mxs_take_signs", {n, n, room.matrix, room.signs, room.info, failed}, 1, stream);
    if (status == MXS_OK) status = form_q(n, room, wants, stream);
    if (status == MXS_OK) status = move(n, room.matrix, n, matrix, stride, true, stream);
    if (status != MXS_OK) return status;
    return launch("mxs_flip_columns", {n, stride, matrix, room.signs, nullptr, nullptr},
                  divide_up(n * n, decompose_threads), stream);
  }

 private:
  mxs_status launch(const char *kernel, const CusolverArguments &arguments, uint64_t blocks,
                    DeviceStream stream) const {
    return launch_parts(device_, kernel, arguments, blocks, decompose_threads, stream);
  }

  // target = source, or its transpose.
  mxs_status move(uint64_t n, const float *source, uint64_t source_stride, float *target, uint64_t target_stride,
                  bool turned, DeviceStream stream) const {
    MoveArguments a;
    a.rows = a.columns = n;
    a.source = source, a.source_stride = source_stride;
    a.target = target, a.target_stride = target_stride;
    a.turned = turned;
    return launch_store(device_, a, stream);
  }

  // call() with the context current.
  template <class Call>
  mxs_status run(const char *name, uint64_t n, Call &&call) const {
    const CurrentContext current(device_.driver(), device_.context());
    if (current.result() != CUDA_SUCCESS) return device_.failed(current.result(), "cuCtxPushCurrent", "");
    return check(call(), name, n);
  }

  mxs_status ask(uint64_t n, Wants *wants) const {
    if (n < 1 || n > INT32_MAX / 2)
      return set_error(MXS_INVALID_ARGUMENT, "cuSOLVER decomposes no %llu x %llu matrix",
                       static_cast<unsigned long long>(n), static_cast<unsigned long long>(n));
    const int64_t side = static_cast<int64_t>(n);
    const int narrow = static_cast<int>(n);
    return run("asking for a workspace", n, [&] {
      cusolverStatus_t status = library_.syevd_bytes(
          handle_, parameters_, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, side, CUDA_R_32F, nullptr, side,
          CUDA_R_32F, nullptr, CUDA_R_32F, &wants->syevd, &wants->syevd_host);
      if (status == CUSOLVER_STATUS_SUCCESS)
        status = library_.geqrf_bytes(handle_, parameters_, side, side, CUDA_R_32F, nullptr, side, CUDA_R_32F, nullptr,
                                      CUDA_R_32F, &wants->geqrf, &wants->geqrf_host);
      if (status == CUSOLVER_STATUS_SUCCESS)
        status = library_.orgqr_numbers(handle_, narrow, narrow, narrow, nullptr, narrow, nullptr, &wants->orgqr);
      return status;
    });
  }

  // Rows of the lower half are, by columns, the upper one.
  mxs_status find_eigenvalues(uint64_t n, const Room &room, float *values, const Wants &wants, DeviceStream stream) {
    const int64_t side = static_cast<int64_t>(n);
    return run("cusolverDnXsyevd", n, [&] {
      const cusolverStatus_t status = library_.set_stream(handle_, static_cast<cudaStream_t>(stream));
      if (status != CUSOLVER_STATUS_SUCCESS) return status;
      return library_.syevd(handle_, parameters_, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, side, CUDA_R_32F,
                            room.matrix, side, CUDA_R_32F, values, CUDA_R_32F, room.rest, wants.syevd,
                            host_room_.data(), wants.syevd_host, room.info);
    });
  }

  mxs_status factorise(uint64_t n, const Room &room, const Wants &wants, DeviceStream stream) {
    const int64_t side = static_cast<int64_t>(n);
    return run("cusolverDnXgeqrf", n, [&] {
      const cusolverStatus_t status = library_.set_stream(handle_, static_cast<cudaStream_t>(stream));
      if (status != CUSOLVER_STATUS_SUCCESS) return status;
      return library_.geqrf(handle_, parameters_, side, side, CUDA_R_32F, room.matrix, side, CUDA_R_32F, room.tau,
                            CUDA_R_32F, room.rest, wants.geqrf, host_room_.data(), wants.geqrf_host, room.info);
    });
  }

  mxs_status form_q(uint64_t n, const Room &room, const Wants &wants, DeviceStream) {
    const int side = static_cast<int>(n);
    return run("cusolverDnSorgqr", n, [&] {
      return library_.orgqr(handle_, side, side, side, room.matrix, side, room.tau,
                            reinterpret_cast<float *>(room.rest), wants.orgqr, room.info);
    });
  }

  CudaDevice &device_;
  const CusolverLibrary &library_;
  std::unique_ptr<DeviceLinear> products_;
  const std::string name_;
  cusolverDnHandle_t handle_ = nullptr;
  cusolverDnParams_t parameters_ = nullptr;
  std::vector<std::byte> host_room_;  // as large as workspace_bytes() has asked for
};

}  // namespace

mxs_status make_cusolver_linear(std::unique_ptr<DeviceLinear> *linear, CudaDevice &device) {
  const CusolverLibrary *library = nullptr;
  mxs_status status = load_cusolver(&library);
  if (status != MXS_OK) return status;
  auto made = std::make_unique<CusolverLinear>(device, *library);
  status = made->prepare();
  if (status == MXS_OK) *linear = std::move(made);
  return status;
}

}  // namespace mxs
