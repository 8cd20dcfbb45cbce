// SPDX-License-Identifier: Apache-2.0
// How does a product of matrices become one call of oneDNN?
#include "matmul.hpp"

#include <dlfcn.h>

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "layers.hpp"

namespace train {
namespace {

using dnnl::memory;

memory::data_type onednn_type(mxs_dtype dtype) {
  return dtype == MXS_BF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc describe(int64_t batch, int64_t rows, int64_t columns, As as, mxs_dtype dtype) {
  const memory::dims strides = as == As::stored ? memory::dims{rows * columns, columns, 1}
                                                : memory::dims{rows * columns, 1, rows};
  if (batch == 1)
    return memory::desc({rows, columns}, onednn_type(dtype), memory::dims{strides[1], strides[2]});
  return memory::desc({batch, rows, columns}, onednn_type(dtype), strides);
}

// oneDNN of Debian runs on OpenMP, which has read OMP_NUM_THREADS before main began: only this call is left. It is
// looked up rather than linked, so that no second OpenMP comes in beside oneDNN's own.
void set_onednn_threads(int thread_count) {
  using SetThreads = void (*)(int);
  const auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set == nullptr)
    throw std::runtime_error("this oneDNN doesn't run on OpenMP; its thread count can't be set from here");
  set(thread_count);
}

struct Prepared {
  dnnl::matmul primitive;
  memory left, right, result;
};

bool multiplies_bf16(const dnnl::engine &engine) {
  const memory::desc operand = describe(1, 16, 16, As::stored, MXS_BF16);
  const memory::desc result = describe(1, 16, 16, As::stored, MXS_F32);
  const bool may_be_none = true;
  return static_cast<bool>(
      dnnl::matmul::primitive_desc(dnnl::matmul::desc(operand, operand, result), engine, may_be_none));
}

}  // namespace

bool Product::operator<(const Product &other) const {
  const auto key = [](const Product &p) {
    return std::make_tuple(p.batch, p.rows, p.columns, p.depth, p.left, p.right, p.operands, p.result);
  };
  return key(*this) < key(other);
}

struct Matmul::Inner {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  const bool has_bf16 = multiplies_bf16(engine);
  std::map<Product, Prepared> prepared;
  std::vector<float> left, right, result;  // widened

  Prepared &prepare(const Product &product) {
    const auto found = prepared.find(product);
    if (found != prepared.end()) return found->second;
    const auto left = describe(product.batch, product.rows, product.depth, product.left, product.operands);
    const auto right = describe(product.batch, product.depth, product.columns, product.right, product.operands);
    const auto result = describe(product.batch, product.rows, product.columns, As::stored, product.result);
    Prepared made;
    made.primitive = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(left, right, result), engine));
    made.left = memory(left, engine, nullptr);
    made.right = memory(right, engine, nullptr);
    made.result = memory(result, engine, nullptr);
    return prepared.emplace(product, std::move(made)).first->second;
  }

  void multiply(const Product &product, const void *left_data, const void *right_data, void *result_data) {
    Prepared &made = prepare(product);
    made.left.set_data_handle(const_cast<void *>(left_data));
    made.right.set_data_handle(const_cast<void *>(right_data));
    made.result.set_data_handle(result_data);
    made.primitive.execute(stream, {{DNNL_ARG_SRC, made.left},
                                    {DNNL_ARG_WEIGHTS, made.right},
                                    {DNNL_ARG_DST, made.result}});
    stream.wait();
  }

  void multiply_widened(Product product, const void *left_data, const void *right_data, void *result_data) {
    left.resize(product.batch * product.rows * product.depth);
    right.resize(product.batch * product.depth * product.columns);
    result.resize(product.batch * product.rows * product.columns);
    widen(product.operands, left_data, left.size(), left.data());
    widen(product.operands, right_data, right.size(), right.data());
    const mxs_dtype wanted = product.result;
    product.operands = product.result = MXS_F32;
    multiply(product, left.data(), right.data(), result.data());
    narrow(wanted, result.data(), result.size(), result_data);
  }
};

Matmul::Matmul(int thread_count) : inner_(std::make_unique<Inner>()) { set_onednn_threads(thread_count); }
Matmul::~Matmul() = default;

mxs_dtype Matmul::multiplied_in(mxs_dtype operands) const { return inner_->has_bf16 ? operands : MXS_F32; }

uint64_t Matmul::scratch_bytes() const {
  return (inner_->left.capacity() + inner_->right.capacity() + inner_->result.capacity()) * sizeof(float);
}

void Matmul::multiply(const Product &product, const void *left, const void *right, void *result) {
  const bool has_all = inner_->has_bf16 || (product.operands == MXS_F32 && product.result == MXS_F32);
  if (has_all)
    inner_->multiply(product, left, right, result);
  else
    inner_->multiply_widened(product, left, right, result);
}

}  // namespace train
