// SPDX-License-Identifier: Apache-2.0
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <random>
#include <unordered_map>
#include <vector>

#include "bench/bare_products.hpp"

extern "C" void omp_set_num_threads(int count);

namespace bench {

namespace {

using dnnl::memory;

struct Product {
  dnnl::matmul primitive;
  std::unordered_map<int, memory> arguments;
};

class OnednnProducts : public BareProducts {
 public:
  OnednnProducts(memory::dim n, memory::dim m, int threads)
      : threads_(threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    omp_set_num_threads(threads);
    const auto type = memory::data_type::bf16;
    const memory::desc wide({n, m}, type, memory::dims{m, 1}), wide_turned({m, n}, type, memory::dims{1, m});
    const memory::desc square({n, n}, type, memory::dims{n, 1});
    const memory x(wide, engine_), next(wide, engine_), a(square, engine_), b(square, engine_);
    // Numbers of the size that Newton-Schulz meets: zeros or denormals could run at another speed.
    std::mt19937 random(1);
    for (const memory &filled : {x, a, b}) {
      uint16_t *const bits = static_cast<uint16_t *>(filled.get_data_handle());
      const size_t count = filled.get_desc().get_size() / 2;
      for (size_t i = 0; i < count; ++i)
        bits[i] = static_cast<uint16_t>(0x3a00u + random() % 0x200u + (random() & 1) * 0x8000u);
    }
    add(wide, x, wide_turned, memory(wide_turned, engine_, x.get_data_handle()), square, a);
    add(square, a, square, a, square, b);
    add(square, b, wide, x, wide, next);
  }
  void run() override {
    omp_set_num_threads(threads_);  // others set their own in between
    for (int step = 0; step < 5; ++step)
      for (Product &product : products_) product.primitive.execute(stream_, product.arguments);
    stream_.wait();
  }
  std::string implementation() const override { return implementation_; }

 private:
  void add(const memory::desc &source_shape, const memory &source, const memory::desc &weights_shape,
           const memory &weights, const memory::desc &target_shape, const memory &target) {
    const dnnl::matmul::primitive_desc description({source_shape, weights_shape, target_shape}, engine_);
    implementation_ = description.impl_info_str();
    products_.push_back({dnnl::matmul(description),
                         {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, target}}});
  }
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<Product> products_;
  std::string implementation_;
};

}  // namespace

std::unique_ptr<BareProducts> make_bare_products(int64_t rows, int64_t columns, int threads, std::string *why) {
  try {
    return std::make_unique<OnednnProducts>(std::min(rows, columns), std::max(rows, columns), threads);
  } catch (const dnnl::error &error) {
    *why = std::string("oneDNN has no bf16 matmul here: ") + error.message;
    return nullptr;
  }
}

}  // namespace bench
