// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz in bf16 by oneDNN: bf16 factors, fp32 accumulation.
//
//   1. A = X X^T   in panels of rows, each only up to the diagonal, mirrored: 56% of the products at 8 panels
//   2. M = bA + cA^2, one primitive: output scale c/b, then + A, then * b (c alone if b is 0).  Then + a on the
//      diagonal
//   3. X' = M X    the bare product. With a X added by the primitive it took 15% longer (1024 x 4096, AMX)
//
// Sizes are padded with zeros to multiples of 32, which changes nothing in exact arithmetic: odd sizes would leave
// oneDNN's fast path. All shapes are static and all buffers dense, because run-time sizes and padded strides fall back
// to gemm:jit, at half the speed and with other bits; a primitive that isn't "brg" is refused.
#include <oneapi/dnnl/dnnl.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "kernels/newton_schulz.hpp"

namespace mxs {

namespace {

constexpr size_t padding = 32;
constexpr size_t panel_rows = 128;

// oneDNN's OpenMP takes the thread count of whoever calls, so it is set for the call and put back. Looked up, not
// linked: it must be the runtime that oneDNN itself brought along.
class ThreadCount {
 public:
  explicit ThreadCount(int count) {
    static const auto get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    static const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (!get || !set) return;
    set_ = set;
    before_ = get();
    set_(count);
  }
  ~ThreadCount() {
    if (set_) set_(before_);
  }
  ThreadCount(const ThreadCount &) = delete;
  ThreadCount &operator=(const ThreadCount &) = delete;

 private:
  void (*set_)(int) = nullptr;
  int before_ = 0;
};

using Type = dnnl::memory::data_type;

dnnl::memory::desc dense(size_t rows, size_t columns, Type type = Type::bf16) {
  const auto r = static_cast<dnnl::memory::dim>(rows), c = static_cast<dnnl::memory::dim>(columns);
  return {{r, c}, type, dnnl::memory::dims{c, 1}};
}

// columns x rows, seen through a dense rows x columns buffer.
dnnl::memory::desc dense_turned(size_t rows, size_t columns) {
  const auto r = static_cast<dnnl::memory::dim>(rows), c = static_cast<dnnl::memory::dim>(columns);
  return {{c, r}, Type::bf16, dnnl::memory::dims{1, c}};
}

// One product with its operands. Memories are objects of the primitive, whose addresses are set at bind.
struct BoundProduct {
  dnnl::matmul primitive;
  dnnl::memory source, weights, target, added, scratch;
  size_t scratch_bytes = 0;
  bool adds = false;
  std::string implementation;
  std::vector<dnnl_exec_arg_t> arguments;

  void bind(void *source_data, void *weights_data, void *target_data, void *added_data, void *scratch_data) {
    source.set_data_handle(source_data);
    weights.set_data_handle(weights_data);
    target.set_data_handle(target_data);
    scratch.set_data_handle(scratch_data);
    arguments = {{DNNL_ARG_SRC, source.get()},
                 {DNNL_ARG_WEIGHTS, weights.get()},
                 {DNNL_ARG_DST, target.get()},
                 {DNNL_ARG_SCRATCHPAD, scratch.get()}};
    if (!added_data || !adds) return;
    added.set_data_handle(added_data);
    arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, added.get()});
  }
  bool run(const dnnl::stream &stream) const {
    return dnnl_primitive_execute(primitive.get(), stream.get(), static_cast<int>(arguments.size()),
                                  arguments.data()) == dnnl_success;
  }
};

class OnednnOrthogonalizer final : public Orthogonalizer {
 public:
  OnednnOrthogonalizer(NewtonSchulzShape shape, NewtonSchulzRecipe recipe, int thread_count)
      : shape_(shape), n_(align_up(shape.n(), padding)), m_(align_up(shape.m(), padding)),
        recipe_(std::move(recipe)), thread_count_(thread_count) {
    const ThreadCount threads(thread_count_);
    engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
    stream_ = dnnl::stream(engine_);
    const size_t height = n_ >= 4 * panel_rows ? panel_rows : n_;
    for (size_t row = 0; row < n_; row += height) {
      const size_t rows = std::min(height, n_ - row);
      gram_.push_back(make(dense(rows, m_), dense_turned(row + rows, m_), dense(rows, row + rows), nullptr));
    }
    for (size_t i = 0; i < recipe_.steps.size(); ++i)
      square_.push_back(make(dense(n_, n_), dense(n_, n_), dense(n_, n_), &recipe_.steps[i]));
    product_ = make(dense(n_, n_), dense(n_, m_), dense(n_, m_), nullptr);
    height_ = height;
    name_ = "onednn " + product_.implementation + " standard";
  }

  // The first primitive that isn't oneDNN's fast path, "" if all are.
  std::string slow_path() const {
    std::string found;
    const auto look = [&](const BoundProduct &product) {
      if (found.empty() && product.implementation.rfind("brg", 0) != 0) found = product.implementation;
    };
    for (const BoundProduct &product : gram_) look(product);
    for (const BoundProduct &product : square_) look(product);
    look(product_);
    return found;
  }

  uint64_t workspace_bytes() const override {
    return 2 * x_bytes() + 2 * square_bytes() + panel_bytes() + scratch_bytes_;
  }

  void bind(std::byte *workspace) override {
    const auto take = [&](size_t bytes) {
      std::byte *const taken = workspace;
      workspace += bytes;
      return reinterpret_cast<uint16_t *>(taken);
    };
    x_ = take(x_bytes());
    next_ = take(x_bytes());
    a_ = take(square_bytes());
    polynomial_ = take(square_bytes());
    panel_ = take(panel_bytes());
    scratch_ = take(scratch_bytes_);
    for (size_t i = 0; i < gram_.size(); ++i)
      gram_[i].bind(x_ + i * height_ * m_, x_, gram_target(), nullptr, scratch_);
    for (BoundProduct &square : square_) square.bind(a_, a_, polynomial_, a_, scratch_);
    product_.bind(polynomial_, x_, next_, nullptr, scratch_);
  }

  const char *backend() const override { return name_.c_str(); }
  mxs_dtype product_dtype() const override { return MXS_BF16; }
  double flops() const override { return shape_.flops(recipe_.steps.size()); }

  mxs_status run(const MatrixSource *sources, const MatrixTarget *targets, size_t count,
                 const double *squares) override {
    for (size_t i = 0; i < count; ++i) {
      double sum = squares ? squares[i] : 0;
      mxs_status status = MXS_OK;
      if (!squares)
        status = find_squares(sources[i], static_cast<size_t>(shape_.rows), static_cast<size_t>(shape_.columns), &sum);
      if (status == MXS_OK) status = run_one(sources[i], targets[i], norm_scale(sum, recipe_));
      if (status != MXS_OK) return status;
    }
    return MXS_OK;
  }

 private:
  mxs_status run_one(MatrixSource source, MatrixTarget target, const NormScale &scale) {
    if (scale.zero) {
      for (int64_t row = 0; row < shape_.rows; ++row)
        std::fill_n(target.data + static_cast<size_t>(row) * target.row_stride, shape_.columns, 0.0f);
      return MXS_OK;
    }
    load(source, scale);
    const ThreadCount threads(thread_count_);
    bool good = true;
    for (size_t i = 0; i < recipe_.steps.size() && good; ++i) {
      // X and its successor change places: two addresses are set, nothing is copied.
      set_x(i % 2 == 0 ? x_ : next_, i % 2 == 0 ? next_ : x_);
      good = form_gram() && square_[i].run(stream_);
      add_to_diagonal(recipe_.steps[i].a);
      good = good && product_.run(stream_);
    }
    if (!good) return set_error(MXS_INTERNAL, "oneDNN failed to multiply %zu x %zu matrices in bf16", n_, m_);
    store(target, recipe_.steps.size() % 2 == 0 ? x_ : next_);
    return MXS_OK;
  }

  size_t x_bytes() const { return align_up(n_ * m_ * 2, 64); }
  size_t square_bytes() const { return align_up(n_ * n_ * 2, 64); }
  size_t panel_bytes() const { return gram_.size() > 1 ? align_up(height_ * n_ * 2, 64) : 0; }
  uint16_t *gram_target() const { return gram_.size() > 1 ? panel_ : a_; }

  BoundProduct make(const dnnl::memory::desc &source, const dnnl::memory::desc &weights,
                    const dnnl::memory::desc &target, const NewtonSchulzRecipe::Step *step) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (step && step->b == 0) {
      attributes.set_output_scales(0, {step->c});
    } else if (step) {
      attributes.set_output_scales(0, {step->c / step->b});
      dnnl::post_ops after;
      after.append_binary(dnnl::algorithm::binary_add, target);
      after.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, step->b, 0.0f);
      attributes.set_post_ops(after);
    }
    const dnnl::matmul::primitive_desc description({source, weights, target}, attributes, engine_);
    BoundProduct product;
    product.primitive = dnnl::matmul(description);
    product.implementation = description.impl_info_str();
    product.source = dnnl::memory(source, engine_, nullptr);
    product.weights = dnnl::memory(weights, engine_, nullptr);
    product.target = dnnl::memory(target, engine_, nullptr);
    product.scratch = dnnl::memory(description.scratchpad_desc(), engine_, nullptr);
    product.scratch_bytes = description.scratchpad_desc().get_size();
    product.adds = step && step->b != 0;
    if (product.adds) product.added = dnnl::memory(target, engine_, nullptr);
    scratch_bytes_ = std::max<size_t>(scratch_bytes_, align_up(product.scratch_bytes, 64));
    return product;
  }

  void set_x(uint16_t *x, uint16_t *next) {
    for (size_t i = 0; i < gram_.size(); ++i) {
      gram_[i].source.set_data_handle(x + i * height_ * m_);
      gram_[i].weights.set_data_handle(x);
    }
    product_.weights.set_data_handle(x);
    product_.target.set_data_handle(next);
  }

  bool form_gram() {
    for (size_t i = 0; i < gram_.size(); ++i) {
      if (!gram_[i].run(stream_)) return false;
      if (gram_.size() > 1) place_panel(i * height_, std::min(height_, n_ - i * height_));
    }
    return true;
  }

  // The panel has rows [row, row + rows) of A up to the diagonal; what lies left of its square is A's upper half, too.
  void place_panel(size_t row, size_t rows) {
    const size_t width = row + rows;
    for (size_t r = 0; r < rows; ++r) std::memcpy(a_ + (row + r) * n_, panel_ + r * width, width * 2);
    constexpr size_t tile = 32;
    for (size_t column = 0; column < row; column += tile)
      for (size_t first = 0; first < rows; first += tile)
        for (size_t c = column; c < std::min(column + tile, row); ++c)
          for (size_t r = first; r < std::min(first + tile, rows); ++r)
            a_[c * n_ + row + r] = panel_[r * width + c];
  }

  void add_to_diagonal(float a) {
    for (size_t i = 0; i < n_; ++i) {
      uint16_t &entry = polynomial_[i * (n_ + 1)];
      entry = bf16_from_float(float_from_bf16(entry) + a);
    }
  }

  // Source -> X in bf16, scaled and padded, in pieces that stay in the first-level cache.
  void load(MatrixSource source, const NormScale &scale) {
    const size_t n = shape_.n(), m = shape_.m();
    if (n != n_ || m != m_) std::memset(x_, 0, x_bytes());
    if (!shape_.turned()) {
      for (size_t row = 0; row < n; ++row) load_row(x_ + row * m_, source.data + row * source.row_stride, m, scale);
      return;
    }
    constexpr size_t tile = 32;
    uint16_t rows[tile][tile];
    for (size_t row = 0; row < m; row += tile)
      for (size_t column = 0; column < n; column += tile) {
        const size_t height = std::min(tile, m - row), width = std::min(tile, n - column);
        for (size_t r = 0; r < height; ++r)
          load_row(rows[r], source.data + (row + r) * source.row_stride + column, width, scale);
        for (size_t c = 0; c < width; ++c)
          for (size_t r = 0; r < height; ++r) x_[(column + c) * m_ + row + r] = rows[r][c];
      }
  }

  static void load_row(uint16_t *target, const float *source, size_t elements, const NormScale &scale) {
    constexpr size_t piece = 1024;
    float scaled[piece];
    for (size_t first = 0; first < elements; first += piece) {
      const size_t length = std::min(piece, elements - first);
      scale_to_norm(scaled, source + first, length, scale);
      kernels().narrow(target + first, MXS_BF16, scaled, length);
    }
  }

  void store(MatrixTarget target, const uint16_t *x) const {
    const size_t n = shape_.n(), m = shape_.m();
    if (!shape_.turned()) {
      for (size_t row = 0; row < n; ++row)
        kernels().widen(target.data + row * target.row_stride, x + row * m_, MXS_BF16, m);
      return;
    }
    constexpr size_t tile = 32;
    for (size_t row = 0; row < m; row += tile)
      for (size_t column = 0; column < n; column += tile)
        for (size_t r = row; r < std::min(row + tile, m); ++r)
          for (size_t c = column; c < std::min(column + tile, n); ++c)
            target.data[r * target.row_stride + c] = float_from_bf16(x[c * m_ + r]);
  }

  NewtonSchulzShape shape_;
  size_t n_, m_;  // padded
  NewtonSchulzRecipe recipe_;
  int thread_count_;
  size_t height_ = 0, scratch_bytes_ = 0;
  std::string name_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<BoundProduct> gram_;    // by panel
  std::vector<BoundProduct> square_;  // by step
  BoundProduct product_;
  uint16_t *x_ = nullptr, *next_ = nullptr, *a_ = nullptr, *polynomial_ = nullptr, *panel_ = nullptr,
           *scratch_ = nullptr;
};

}  // namespace

std::string onednn_name() {
  const dnnl_version_t *const version = dnnl_version();
  return "onednn " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " isa " + std::to_string(static_cast<int>(dnnl_get_effective_cpu_isa()));
}

mxs_status make_onednn_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, NewtonSchulzShape shape,
                                      const NewtonSchulzRecipe &recipe, Team *team) {
  auto made = std::make_unique<OnednnOrthogonalizer>(shape, recipe, team->size());
  if (const std::string slow = made->slow_path(); !slow.empty())
    return set_error(MXS_NOT_BUILT,
                     "oneDNN offers %s for bf16 products of %zu x %zu matrices on this CPU, which is not its fast "
                     "path; use the reference backend",
                     slow.c_str(), shape.n(), shape.m());
  *orthogonalizer = std::move(made);
  return MXS_OK;
}

}  // namespace mxs
