// SPDX-License-Identifier: Apache-2.0
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <unordered_map>
#include <vector>

#include "bench/bare_products.hpp"

extern "C" void omp_set_num_threads(int count);

namespace bench {

namespace {

using dnnl::memory;
using Type = memory::data_type;
using Arguments = std::unordered_map<int, memory>;

// Of Newton-Schulz: X is n x m, n <= m.
struct Shapes {
  memory::dim n, m;
  memory::desc wide{{n, m}, Type::bf16, memory::dims{m, 1}};
  memory::desc wide_turned{{m, n}, Type::bf16, memory::dims{1, m}};
  memory::desc square{{n, n}, Type::bf16, memory::dims{n, 1}};
};

class OnednnProducts : public BareProducts {
 public:
  OnednnProducts(memory::dim n, memory::dim m, int64_t count, int threads)
      : threads_(threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    omp_set_num_threads(threads);
    const Shapes shapes{n, m};
    const memory a(shapes.square, engine_), b(shapes.square, engine_);
    fill(a);
    fill(b);
    for (const auto &[source, weights, target] : {std::array{shapes.wide, shapes.wide_turned, shapes.square},
                                                  std::array{shapes.square, shapes.square, shapes.square},
                                                  std::array{shapes.square, shapes.wide, shapes.wide}}) {
      const dnnl::matmul::primitive_desc description({source, weights, target}, engine_);
      implementation_ = description.impl_info_str();
      products_.emplace_back(description);
    }
    for (int64_t i = 0; i < count; ++i) {
      const memory x(shapes.wide, engine_), next(shapes.wide, engine_);
      const memory turned(shapes.wide_turned, engine_, x.get_data_handle());
      fill(x);
      matrices_.push_back({Arguments{{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, turned}, {DNNL_ARG_DST, a}},
                           Arguments{{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, a}, {DNNL_ARG_DST, b}},
                           Arguments{{DNNL_ARG_SRC, b}, {DNNL_ARG_WEIGHTS, x}, {DNNL_ARG_DST, next}}});
    }
  }
  void run() override {
    omp_set_num_threads(threads_);  // others set their own in between
    for (const auto &matrix : matrices_)
      for (int step = 0; step < 5; ++step)
        for (size_t i = 0; i < 3; ++i) products_[i].execute(stream_, matrix[i]);
    stream_.wait();
  }
  std::string implementation() const override { return implementation_; }

 private:
  // Numbers of the size that Newton-Schulz meets: zeros or denormals could run at another speed.
  void fill(const memory &filled) {
    uint16_t *const bits = static_cast<uint16_t *>(filled.get_data_handle());
    const size_t count = filled.get_desc().get_size() / 2;
    for (size_t i = 0; i < count; ++i)
      bits[i] = static_cast<uint16_t>(0x3a00u + random_() % 0x200u + (random_() & 1) * 0x8000u);
  }
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::mt19937 random_{1};
  std::vector<dnnl::matmul> products_;
  std::vector<std::array<Arguments, 3>> matrices_;
  std::string implementation_;
};

class OnednnPlainForm : public PlainForm {
 public:
  OnednnPlainForm(int64_t rows, int64_t columns, const double (*steps)[3], int threads)
      : threads_(threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_),
        shapes_{std::min(rows, columns), std::max(rows, columns)}, x_(shapes_.wide, engine_),
        next_(shapes_.wide, engine_), gram_(shapes_.square, engine_), sum_(shapes_.square, engine_),
        scale_({{1}, Type::f32, memory::format_tag::x}, engine_),
        given_({shapes_.n, shapes_.m}, Type::f32,
               rows <= columns ? memory::dims{columns, 1} : memory::dims{1, columns}) {
    omp_set_num_threads(threads);
    const dnnl::matmul::primitive_desc gram({shapes_.wide, shapes_.wide_turned, shapes_.square}, engine_);
    implementation_ = gram.impl_info_str();
    product_ = dnnl::matmul(gram);
    for (int i = 0; i < 5; ++i) {
      sums_.push_back(with_sum({shapes_.square, shapes_.square, shapes_.square}, steps[i][2], steps[i][1]));
      advances_.push_back(with_sum({shapes_.square, shapes_.wide, shapes_.wide}, 1, steps[i][0]));
    }
    dnnl::primitive_attr scaled;
    scaled.set_output_scales(0, {DNNL_RUNTIME_F32_VAL});
    read_ = dnnl::reorder({engine_, given_, engine_, shapes_.wide, scaled});
    write_ = dnnl::reorder({engine_, shapes_.wide, engine_, given_});
  }
  void run(const float *source, float *target) override {
    omp_set_num_threads(threads_);
    const memory from(given_, engine_, const_cast<float *>(source)), to(given_, engine_, target);
    *static_cast<float *>(scale_.get_data_handle()) = static_cast<float>(1 / norm_of(source));
    read_.execute(stream_, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, x_}, {DNNL_ARG_ATTR_OUTPUT_SCALES, scale_}});
    for (size_t i = 0; i < 5; ++i) {
      const memory &x = i % 2 ? next_ : x_, &next = i % 2 ? x_ : next_;
      const memory turned(shapes_.wide_turned, engine_, x.get_data_handle());
      product_.execute(stream_, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, turned}, {DNNL_ARG_DST, gram_}});
      sums_[i].execute(stream_, arguments(gram_, gram_, gram_, sum_));
      advances_[i].execute(stream_, arguments(sum_, x, x, next));
    }
    write_.execute(stream_, {{DNNL_ARG_FROM, next_}, {DNNL_ARG_TO, to}});
    stream_.wait();
  }
  std::string implementation() const override { return implementation_; }

 private:
  // by_product * (source weights) + by_added * added, as the form that costs oneDNN least: scale, add, scale.
  dnnl::matmul with_sum(const std::array<memory::desc, 3> &shapes, double by_product, double by_added) {
    dnnl::primitive_attr attributes;
    attributes.set_output_scales(0, {static_cast<float>(by_product / by_added)});
    dnnl::post_ops after;
    after.append_binary(dnnl::algorithm::binary_add, shapes[2]);
    after.append_eltwise(1, dnnl::algorithm::eltwise_linear, static_cast<float>(by_added), 0);
    attributes.set_post_ops(after);
    return dnnl::matmul(
        dnnl::matmul::primitive_desc({shapes[0], shapes[1], shapes[2]}, attributes, engine_));
  }
  static Arguments arguments(const memory &source, const memory &weights, const memory &added, const memory &target) {
    return {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, target},
            {DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, added}};
  }
  double norm_of(const float *source) const {
    constexpr size_t lanes = 32;
    const size_t count = static_cast<size_t>(shapes_.n * shapes_.m);
    float sums[lanes] = {};
    double total = 0;
    size_t i = 0;
    for (; i + lanes <= count; i += lanes)
      for (size_t lane = 0; lane < lanes; ++lane) sums[lane] += source[i + lane] * source[i + lane];
    for (const float sum : sums) total += static_cast<double>(sum);
    for (; i < count; ++i) total += static_cast<double>(source[i]) * static_cast<double>(source[i]);
    return std::sqrt(total);
  }

  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Shapes shapes_;
  memory x_, next_, gram_, sum_, scale_;
  memory::desc given_;
  dnnl::matmul product_;
  std::vector<dnnl::matmul> sums_, advances_;
  dnnl::reorder read_, write_;
  std::string implementation_;
};

}  // namespace

std::unique_ptr<BareProducts> make_bare_products(int64_t rows, int64_t columns, int64_t count, int threads,
                                                 std::string *why) {
  try {
    return std::make_unique<OnednnProducts>(std::min(rows, columns), std::max(rows, columns), count, threads);
  } catch (const dnnl::error &error) {
    *why = std::string("oneDNN has no bf16 matmul here: ") + error.message;
    return nullptr;
  }
}

std::unique_ptr<PlainForm> make_plain_form(int64_t rows, int64_t columns, const double (*steps)[3], int threads,
                                           std::string *why) {
  try {
    return std::make_unique<OnednnPlainForm>(rows, columns, steps, threads);
  } catch (const dnnl::error &error) {
    *why = std::string("oneDNN has no bf16 matmul with sums here: ") + error.message;
    return nullptr;
  }
}

}  // namespace bench
