// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz by cublasLt. Each line of an arrangement is one call, D = alpha op(A) B + beta C, out of place, with X
// in turn in two buffers; all matrices of a call are a strided batch.
//
//   standard   bf16 factors and results, fp32 sums
//   gram       fp16: beside bf16's rounding the Gram matrix' small eigenvalues are lost, and it diverges. Restarted as
//              on the host (kernels/linear_newton_schulz.cpp). aI is never added to a matrix that is multiplied but Q.
//
// Which kernel of cublasLt multiplies is asked for once, when this is made, and pinned, so that a shape has the same
// bits at every step. A call of fewer matrices than it was made for multiplies what is left in the workspace, too:
// another batch could mean another kernel, and other bits.
#include <string>
#include <utility>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "cuda/context.hpp"
#include "cuda/cublas_library.hpp"
#include "cuda/linear_launches.hpp"
#include "cuda/orthogonalizer.hpp"

namespace mxs {

namespace {

constexpr uint64_t border = 256;
// What cublasLt may use beside factors and result; NVIDIA's advice for Hopper.
constexpr uint64_t multiply_bytes = uint64_t{32} << 20;
constexpr size_t restart_first = 2, restart_interval = 3;

mxs_status check(cublasStatus_t status, const char *call, const char *what) {
  if (status == CUBLAS_STATUS_SUCCESS) return MXS_OK;
  const mxs_status ours = status == CUBLAS_STATUS_ALLOC_FAILED    ? MXS_OUT_OF_MEMORY
                          : status == CUBLAS_STATUS_NOT_SUPPORTED ? MXS_NOT_BUILT
                                                                  : MXS_DEVICE_FAILED;
  return set_error(ours, "%s of %s: status %d of cuBLAS", call, what, static_cast<int>(status));
}

// One shape of product of a batch: row-major target (rows x columns) = alpha * left * right + beta * addend. cublasLt
// counts by columns, where the same memory is the transpose: target^T = right^T left^T.
class PinnedProduct {
 public:
  PinnedProduct(const CublasLtLibrary &library, cublasLtHandle_t handle) : library_(library), handle_(handle) {}
  PinnedProduct(const PinnedProduct &) = delete;
  PinnedProduct &operator=(const PinnedProduct &) = delete;
  ~PinnedProduct() {
    for (const cublasLtMatrixLayout_t layout : {right_, left_, target_})
      if (layout) library_.destroy_layout(layout);
    if (description_) library_.destroy_description(description_);
  }

  // right_turned: right is given as columns x inner.
  mxs_status make(cudaDataType type, uint64_t rows, uint64_t columns, uint64_t inner, bool right_turned,
                  uint32_t count) {
    name_ = std::to_string(rows) + " x " + std::to_string(columns) + " x " + std::to_string(inner);
    mxs_status status = check(library_.create_description(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                              "cublasLtMatmulDescCreate", name_.c_str());
    const cublasOperation_t turned = CUBLAS_OP_T;
    if (status == MXS_OK && right_turned)
      status = check(library_.set_description(description_, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned),
                     "cublasLtMatmulDescSetAttribute", name_.c_str());
    if (status == MXS_OK)
      status = right_turned ? make_layout(&right_, type, inner, columns, count)
                            : make_layout(&right_, type, columns, inner, count);
    if (status == MXS_OK) status = make_layout(&left_, type, inner, rows, count);
    if (status == MXS_OK) status = make_layout(&target_, type, columns, rows, count);
    return status == MXS_OK ? pin() : status;
  }

  mxs_status run(void *target, float alpha, const void *left, const void *right, float beta, const void *addend,
                 std::byte *room, DeviceStream stream) const {
    return check(library_.matmul(handle_, description_, &alpha, right, right_, left, left_, &beta,
                                 addend ? addend : target, target_, target, target_, &kernel_, room, multiply_bytes,
                                 static_cast<cudaStream_t>(stream)),
                 "cublasLtMatmul", name_.c_str());
  }

 private:
  // fast: what lies side by side.
  mxs_status make_layout(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t fast, uint64_t slow,
                         uint32_t count) {
    cublasStatus_t status = library_.create_layout(layout, type, fast, slow, static_cast<int64_t>(fast));
    const int32_t batch = static_cast<int32_t>(count);
    const int64_t stride = static_cast<int64_t>(fast * slow);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = library_.set_layout(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = library_.set_layout(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    return check(status, "cublasLtMatrixLayoutCreate", name_.c_str());
  }

  mxs_status pin() {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasStatus_t status = library_.create_preference(&preference);
    const uint64_t bytes = multiply_bytes;
    if (status == CUBLAS_STATUS_SUCCESS)
      status = library_.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    if (status == CUBLAS_STATUS_SUCCESS)
      status = library_.get_heuristic(handle_, description_, right_, left_, target_, target_, preference, 1, &best,
                                      &found);
    if (preference) library_.destroy_preference(preference);
    if (status == CUBLAS_STATUS_SUCCESS && found == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
    kernel_ = best.algo;
    return check(status, "cublasLtMatmulAlgoGetHeuristic", name_.c_str());
  }

  const CublasLtLibrary &library_;
  const cublasLtHandle_t handle_;
  std::string name_;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t right_ = nullptr, left_ = nullptr, target_ = nullptr;
  cublasLtMatmulAlgo_t kernel_{};
};

// One call: the first failure ends it.
struct Call {
  DeviceStream stream;
  std::byte *room;  // cublasLt's
  mxs_status status = MXS_OK;
};

class CublasOrthogonalizer final : public DeviceOrthogonalizer {
 public:
  CublasOrthogonalizer(CudaDevice &device, const CublasLtLibrary &library, const DeviceNewtonSchulz &wanted)
      : device_(device), library_(library), wanted_(wanted), gram_(wanted.algorithm == MXS_ALGORITHM_GRAM),
        n_(wanted.shape.n()), m_(wanted.shape.m()),
        name_(library.name + (gram_ ? " fp16 gram" : " bf16 standard")) {}
  ~CublasOrthogonalizer() override {
    const CurrentContext current(device_.driver(), device_.context());
    products_.clear();
    if (handle_) library_.destroy(handle_);
  }

  mxs_status prepare() {
    const CurrentContext current(device_.driver(), device_.context());
    if (current.result() != CUDA_SUCCESS) return device_.failed(current.result(), "cuCtxPushCurrent", "");
    mxs_status status = check(library_.create(&handle_), "cublasLtCreate", device_.info().name.c_str());
    if (status == MXS_OK) status = add_product(n_, n_, m_, true);
    if (status == MXS_OK) status = add_product(n_, n_, n_, false);
    if (status == MXS_OK) status = add_product(n_, m_, n_, false);
    return status;
  }

  uint64_t workspace_bytes() const override {
    return multiply_bytes + 2 * x_bytes() + (gram_ ? 4 : 2) * square_bytes();
  }
  const char *backend() const override { return name_.c_str(); }
  mxs_dtype product_dtype() const override { return gram_ ? MXS_F16 : MXS_BF16; }

  mxs_status enqueue(float *matrices, uint64_t count, const double *squares, const int32_t *skip,
                     std::byte *workspace, DeviceStream stream) override {
    std::byte *x = workspace + multiply_bytes, *spare = x + x_bytes();
    std::byte *const rest = spare + x_bytes();
    MoveArguments move = move_of(count, squares, skip);
    move.source = matrices, move.target = x;
    move.source_stride = static_cast<uint64_t>(wanted_.shape.columns), move.target_stride = m_;
    const mxs_status status = launch_load(device_, move, stream);
    if (status != MXS_OK) return status;
    Call call{stream, workspace};
    multiply(call, &x, &spare, rest);
    if (call.status != MXS_OK) return call.status;
    move.source = x, move.target = matrices;
    std::swap(move.source_stride, move.target_stride);
    return launch_store(device_, move, stream);
  }

 private:
  uint64_t x_bytes() const { return align_up(wanted_.count_most * n_ * m_ * 2, border); }
  uint64_t square_bytes() const { return align_up(wanted_.count_most * n_ * n_ * 2, border); }

  mxs_status add_product(uint64_t rows, uint64_t columns, uint64_t inner, bool right_turned) {
    products_.push_back(std::make_unique<PinnedProduct>(library_, handle_));
    return products_.back()->make(gram_ ? CUDA_R_16F : CUDA_R_16BF, rows, columns, inner, right_turned,
                                  static_cast<uint32_t>(wanted_.count_most));
  }

  MoveArguments move_of(uint64_t count, const double *squares, const int32_t *skip) const {
    MoveArguments a;
    a.rows = static_cast<uint64_t>(wanted_.shape.rows), a.columns = static_cast<uint64_t>(wanted_.shape.columns);
    a.source_matrix = a.target_matrix = a.rows * a.columns;
    a.dtype = product_dtype();
    a.turned = wanted_.shape.turned();
    a.norm = {squares, wanted_.recipe.epsilon, wanted_.recipe.safety, wanted_.recipe.adds_epsilon};
    a.count = static_cast<uint32_t>(count), a.skip = skip;
    return a;
  }

  void multiply(Call &call, std::byte **x, std::byte **spare, std::byte *rest) const {
    const CurrentContext current(device_.driver(), device_.context());
    if (current.result() != CUDA_SUCCESS)
      call.status = device_.failed(current.result(), "cuCtxPushCurrent", "");
    else if (gram_)
      run_gram(call, x, spare, rest);
    else
      run_standard(call, x, spare, rest);
  }

  enum Form { gram_of_x, square_by_square, square_by_x };  // in the order of prepare()
  void product(Call &call, Form form, std::byte *target, float alpha, const std::byte *left, const std::byte *right,
               float beta, const std::byte *addend) const {
    if (call.status == MXS_OK)
      call.status = products_[form]->run(target, alpha, left, right, beta, addend, call.room, call.stream);
  }

  void run_standard(Call &call, std::byte **x, std::byte **spare, std::byte *rest) const {
    std::byte *const gram = rest, *const polynomial = rest + square_bytes();
    for (const NewtonSchulzRecipe::Step &step : wanted_.recipe.steps) {
      product(call, gram_of_x, gram, 1, *x, *x, 0, nullptr);
      product(call, square_by_square, polynomial, step.c, gram, gram, step.b, gram);
      product(call, square_by_x, *spare, 1, polynomial, *x, step.a, *x);
      std::swap(*x, *spare);
    }
  }

  static bool is_restart(size_t step) {
    return step >= restart_first && (step - restart_first) % restart_interval == 0;
  }
  void apply(Call &call, std::byte **x, std::byte **spare, const std::byte *q) const {
    product(call, square_by_x, *spare, 1, q, *x, 0, nullptr);
    std::swap(*x, *spare);
  }

  void run_gram(Call &call, std::byte **x, std::byte **spare, std::byte *rest) const {
    std::byte *r = rest, *z = rest + square_bytes(), *other = rest + 2 * square_bytes();
    std::byte *q = rest + 3 * square_bytes();
    const std::vector<NewtonSchulzRecipe::Step> &steps = wanted_.recipe.steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool starts = i == 0 || is_restart(i);
      if (starts) {
        if (i > 0) apply(call, x, spare, q);
        product(call, gram_of_x, r, 1, *x, *x, 0, nullptr);
      }
      product(call, square_by_square, z, steps[i].c, r, r, steps[i].b, r);
      if (starts) {
        add_diagonal(call, q, z, steps[i].a);
      } else {
        product(call, square_by_square, other, 1, q, z, steps[i].a, q);
        std::swap(other, q);
      }
      if (i + 1 == steps.size() || is_restart(i + 1)) continue;
      product(call, square_by_square, other, 1, r, z, steps[i].a, r);
      product(call, square_by_square, r, 1, other, z, steps[i].a, other);
    }
    apply(call, x, spare, q);
  }

  void add_diagonal(Call &call, std::byte *target, const std::byte *source, float a) const {
    AddDiagonalArguments arguments;
    arguments.target = target, arguments.source = source;
    arguments.dtype = product_dtype();
    arguments.a = a, arguments.n = n_, arguments.count = static_cast<uint32_t>(wanted_.count_most);
    if (call.status == MXS_OK) call.status = launch_add_diagonal(device_, arguments, call.stream);
  }

  CudaDevice &device_;
  const CublasLtLibrary &library_;
  const DeviceNewtonSchulz wanted_;
  const bool gram_;
  const uint64_t n_, m_;
  const std::string name_;
  cublasLtHandle_t handle_ = nullptr;
  std::vector<std::unique_ptr<PinnedProduct>> products_;
};

}  // namespace

mxs_status make_cublas_orthogonalizer(std::unique_ptr<DeviceOrthogonalizer> *orthogonalizer, CudaDevice &device,
                                      const DeviceNewtonSchulz &wanted) {
  const CublasLtLibrary *library = nullptr;
  mxs_status status = load_cublaslt(&library);
  if (status != MXS_OK) return status;
  auto made = std::make_unique<CublasOrthogonalizer>(device, *library, wanted);
  status = made->prepare();
  if (status == MXS_OK) *orthogonalizer = std::move(made);
  return status;
}

}  // namespace mxs
