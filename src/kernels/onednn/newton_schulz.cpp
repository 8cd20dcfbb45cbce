// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz in bf16 by oneDNN: bf16 factors, fp32 accumulation.
//
//   1. A = X X^T          in panels of rows, each only up to the diagonal, mirrored: 56% of the products at 8 panels
//   2. M = bA + cA^2      the same, A A_i^T for panel i, so that all operands stay dense; the panel is fp32, and a pass
//                         scales, adds, rounds and mirrors it. Small ones by one primitive: output scale c/b, then + A,
//                         then * b
//   3. X' = aX + M X      one primitive: output scale 1/a, then + X, then * a. Adding a to M's diagonal would cost a
//                         digit: beside it, M's last bits are lost
//
// Of a batch of small matrices each thread takes whole ones. Of a large one threads take panels, each by a primitive of
// one thread: on AMX, oneDNN 2.6.3 cuts sums in other places for 3 or 4 threads than for one (1,088 x 1,088), or for 2
// (1,056 x 1,056 in panels), and its bits are then others.
//
// Sizes are padded with zeros to multiples of 32, which changes nothing in exact arithmetic: odd sizes would leave
// oneDNN's fast path. All shapes are static and all buffers dense, because run-time sizes and padded strides fall back
// to gemm:jit, at half the speed and with other bits; a primitive that isn't "brg" is refused.
#include <oneapi/dnnl/dnnl.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "kernels/batch.hpp"
#include "kernels/linear.hpp"
#include "kernels/newton_schulz.hpp"

namespace mxs {

namespace {

constexpr size_t padding = 32;
constexpr size_t tile = 32;

// Below so many rows panels cost more than they save: of A, and of A^2, which has passes of its own. There are at most
// eight, of at least 128 rows. X' is cut into few, since X is turned into AMX's order anew for each.
constexpr size_t paneled_rows = 512, paneled_square_rows = 1024, panel_count = 8, panel_rows_least = 128;
constexpr size_t next_panel_count = 4;

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
    if (!added_data || !added) return;
    added.set_data_handle(added_data);
    arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, added.get()});
  }
  bool run(const dnnl::stream &stream) const {
    return dnnl_primitive_execute(primitive.get(), stream.get(), static_cast<int>(arguments.size()),
                                  arguments.data()) == dnnl_success;
  }
};

// Padded sizes, and what buffers they need.
struct Sizes {
  NewtonSchulzShape shape;
  size_t n, m, panel_rows;

  explicit Sizes(NewtonSchulzShape of)
      : shape(of), n(align_up(of.n(), padding)), m(align_up(of.m(), padding)),
        panel_rows(n < paneled_rows ? n : std::max(panel_rows_least, align_up(divide_up(n, panel_count), padding))) {}
  size_t x_bytes() const { return align_up(n * m * 2, 64); }
  size_t square_bytes() const { return align_up(n * n * 2, 64); }
  bool square_has_panels() const { return n >= paneled_square_rows; }
  size_t next_rows() const { return n < paneled_rows ? n : align_up(divide_up(n, next_panel_count), padding); }
  // Panel i is as wide as all rows up to its last: where it begins in a row of panels, in elements.
  size_t panel_offset(size_t i) const { return panel_rows * panel_rows * (i * (i + 1) / 2); }
  size_t panel_bytes() const {
    const size_t elements = panel_offset(divide_up(n, panel_rows));
    return n < paneled_rows ? 0 : align_up(elements * (square_has_panels() ? sizeof(float) : 2), 64);
  }
};

struct Buffers {
  uint16_t *x[2];  // X and its successor, which change places
  uint16_t *a, *polynomial;
  void *panels;
  std::byte *scratch;
};

// The primitives of one shape, and one matrix at a time.
class Lane {
 public:
  // team nullptr: the thread that calls, alone. Bits are the same.
  Lane(const Sizes &sizes, const NewtonSchulzRecipe &recipe, Team *team)
      : sizes_(sizes), recipe_(recipe), team_(team) {
    const ThreadCount one(1);
    engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
    for (int member = 0; member < thread_count(); ++member) streams_.emplace_back(engine_);
    const size_t n = sizes_.n, m = sizes_.m;
    for (size_t row = 0; row < n; row += sizes_.panel_rows) {
      const size_t rows = std::min(sizes_.panel_rows, n - row), width = row + rows;
      gram_.push_back(make(dense(rows, m), dense_turned(width, m), dense(rows, width), 0.0f, 1.0f));
      if (sizes_.square_has_panels())
        square_.push_back(make(dense(rows, n), dense_turned(width, n), dense(rows, width, Type::f32), 0.0f, 1.0f));
    }
    for (const NewtonSchulzRecipe::Step &step : recipe_.steps) {
      for (size_t row = 0; row < n; row += sizes_.next_rows()) {
        const size_t rows = std::min(sizes_.next_rows(), n - row);
        next_.push_back(make(dense(rows, n), dense(n, m), dense(rows, m), step.a, 1.0f));
      }
      if (!sizes_.square_has_panels())
        square_.push_back(make(dense(n, n), dense(n, n), dense(n, n), step.b, step.c));
    }
  }

  // The first primitive that isn't oneDNN's fast path, "" if all are.
  std::string slow_path() const {
    for (const std::vector<BoundProduct> *products : {&gram_, &square_, &next_})
      for (const BoundProduct &product : *products)
        if (product.implementation.rfind("brg", 0) != 0) return product.implementation;
    return "";
  }
  const std::string &implementation() const { return next_[0].implementation; }
  size_t scratch_bytes() const { return streams_.size() * scratch_bytes_; }

  void bind(const Buffers &own) {
    own_ = own;
    const size_t n = sizes_.n, m = sizes_.m, rows = sizes_.panel_rows;
    for (size_t i = 0; i < gram_.size(); ++i) {
      const size_t offset = sizes_.panel_offset(i);
      void *const target = gram_.size() > 1 ? static_cast<uint16_t *>(own.panels) + offset : own.a;
      gram_[i].bind(own.x[0] + i * rows * m, own.x[0], target, nullptr, own.scratch);
      if (sizes_.square_has_panels())
        square_[i].bind(own.a + i * rows * n, own.a, static_cast<float *>(own.panels) + offset, nullptr, own.scratch);
    }
    for (size_t i = 0; i < recipe_.steps.size(); ++i) {
      if (!sizes_.square_has_panels()) square_[i].bind(own.a, own.a, own.polynomial, own.a, own.scratch);
      uint16_t *const x = own.x[i % 2], *const next = own.x[(i + 1) % 2];
      for (size_t k = 0; k < next_parts(); ++k) {
        const size_t row = k * sizes_.next_rows();
        next_[i * next_parts() + k].bind(own.polynomial + row * n, x, next + row * m, x + row * m, own.scratch);
      }
    }
  }

  bool orthogonalize(MatrixSource source, MatrixTarget target, const NormScale &scale) {
    if (scale.zero) {
      for (int64_t row = 0; row < sizes_.shape.rows; ++row)
        std::fill_n(target.data + static_cast<size_t>(row) * target.row_stride, sizes_.shape.columns, 0.0f);
      return true;
    }
    load(source, scale);
    for (size_t i = 0; i < recipe_.steps.size(); ++i)
      if (!form_gram(own_.x[i % 2]) || !form_polynomial(i) || !run(&next_[i * next_parts()], next_parts()))
        return false;
    store(target, own_.x[recipe_.steps.size() % 2]);
    return true;
  }

 private:
  int thread_count() const { return team_ ? team_->size() : 1; }
  size_t next_parts() const { return divide_up(sizes_.n, sizes_.next_rows()); }

  // Products side by side, each on one thread; after(i) where product i was made. The last are the largest.
  template <class After>
  bool run(BoundProduct *products, size_t count, After &&after) {
    std::atomic<bool> good{true};
    const auto run_one = [&](size_t part, int member) {
      const ThreadCount one(1);
      const size_t i = count - 1 - part;
      products[i].scratch.set_data_handle(own_.scratch + static_cast<size_t>(member) * scratch_bytes_);
      if (!products[i].run(streams_[static_cast<size_t>(member)])) good = false;
      after(i);
    };
    if (team_)
      team_->run(count, run_one);
    else
      for (size_t part = 0; part < count; ++part) run_one(part, 0);
    return good;
  }
  bool run(BoundProduct *products, size_t count) {
    return run(products, count, [](size_t) {});
  }

  // target = added_factor * added + factor * source * weights; without the first where its factor is 0.
  BoundProduct make(const dnnl::memory::desc &source, const dnnl::memory::desc &weights,
                    const dnnl::memory::desc &target, float added_factor, float factor) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (added_factor != 0.0f) {
      attributes.set_output_scales(0, {factor / added_factor});
      dnnl::post_ops after;
      after.append_binary(dnnl::algorithm::binary_add, target);
      after.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, added_factor, 0.0f);
      attributes.set_post_ops(after);
    } else if (factor != 1.0f) {
      attributes.set_output_scales(0, {factor});
    }
    const dnnl::matmul::primitive_desc description({source, weights, target}, attributes, engine_);
    BoundProduct product;
    product.primitive = dnnl::matmul(description);
    product.implementation = description.impl_info_str();
    product.source = dnnl::memory(source, engine_, nullptr);
    product.weights = dnnl::memory(weights, engine_, nullptr);
    product.target = dnnl::memory(target, engine_, nullptr);
    product.scratch = dnnl::memory(description.scratchpad_desc(), engine_, nullptr);
    if (added_factor != 0.0f) product.added = dnnl::memory(target, engine_, nullptr);
    scratch_bytes_ = std::max<size_t>(scratch_bytes_, align_up(description.scratchpad_desc().get_size(), 64));
    return product;
  }

  bool form_gram(uint16_t *x) {
    const size_t rows = sizes_.panel_rows;
    for (size_t i = 0; i < gram_.size(); ++i) {
      gram_[i].source.set_data_handle(x + i * rows * sizes_.m);
      gram_[i].weights.set_data_handle(x);
    }
    return run(gram_.data(), gram_.size(), [&](size_t i) {
      if (gram_.size() == 1) return;  // all of A, in its place
      const uint16_t *const panel = static_cast<const uint16_t *>(own_.panels) + sizes_.panel_offset(i);
      place_panel(own_.a, i, [&](size_t row, uint16_t *target, size_t width) {
        std::memcpy(target, panel + row * width, width * sizeof *target);
      });
    });
  }

  bool form_polynomial(size_t index) {
    if (!sizes_.square_has_panels()) return run(&square_[index], 1);
    return run(square_.data(), square_.size(), [&](size_t i) {
      const float *const panel = static_cast<const float *>(own_.panels) + sizes_.panel_offset(i);
      const uint16_t *const a = own_.a + i * sizes_.panel_rows * sizes_.n;
      place_panel(own_.polynomial, i, [&](size_t row, uint16_t *target, size_t width) {
        add_row(target, a + row * sizes_.n, panel + row * width, width, recipe_.steps[index]);
      });
    });
  }

  // target = b A + c A^2, of one row.
  static void add_row(uint16_t *target, const uint16_t *a, const float *square, size_t width,
                      const NewtonSchulzRecipe::Step &step) {
    constexpr size_t piece = 1024;
    float sums[piece];
    for (size_t first = 0; first < width; first += piece) {
      const size_t length = std::min(piece, width - first);
      kernels().widen(sums, a + first, MXS_BF16, length);
      for (size_t k = 0; k < length; ++k) sums[k] = step.b * sums[k] + step.c * square[first + k];
      kernels().narrow(target + first, MXS_BF16, sums, length);
    }
  }

  // Panel i of a symmetric matrix: its rows up to the diagonal by fill(row of the panel, target, width); what is left
  // of the panel's own square is the upper half, too.
  template <class FillRow>
  void place_panel(uint16_t *matrix, size_t i, FillRow &&fill) {
    const size_t n = sizes_.n, first = i * sizes_.panel_rows, last = std::min(first + sizes_.panel_rows, n);
    for (size_t row = first; row < last; row += tile) {
      const size_t row_end = std::min(row + tile, last);
      for (size_t r = row; r < row_end; ++r) fill(r - first, matrix + r * n, last);
      for (size_t column = 0; column < first; column += tile)
        for (size_t c = column; c < std::min(column + tile, first); ++c)
          for (size_t r = row; r < row_end; ++r) matrix[c * n + r] = matrix[r * n + c];
    }
  }

  // Source -> X in bf16, scaled and padded, in strips of 32 rows of X.
  void load(MatrixSource source, const NormScale &scale) {
    const size_t n = sizes_.shape.n(), m = sizes_.shape.m();
    uint16_t *const x = own_.x[0];
    if (n != sizes_.n || m != sizes_.m) std::memset(x, 0, sizes_.x_bytes());
    run_parts(team_, divide_up(n, tile), [&](size_t part) {
      const size_t first = part * tile, last = std::min(first + tile, n);
      if (!sizes_.shape.turned()) {
        for (size_t row = first; row < last; ++row)
          load_row(x + row * sizes_.m, source.data + row * source.row_stride, m, scale);
        return;
      }
      uint16_t rows[tile][tile];
      for (size_t row = 0; row < m; row += tile) {
        const size_t height = std::min(tile, m - row), width = last - first;
        for (size_t r = 0; r < height; ++r)
          load_row(rows[r], source.data + (row + r) * source.row_stride + first, width, scale);
        for (size_t c = 0; c < width; ++c)
          for (size_t r = 0; r < height; ++r) x[(first + c) * sizes_.m + row + r] = rows[r][c];
      }
    });
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
    const size_t n = sizes_.shape.n(), m = sizes_.shape.m();
    run_parts(team_, divide_up(n, tile), [&](size_t part) {
      const size_t first = part * tile, last = std::min(first + tile, n);
      if (!sizes_.shape.turned()) {
        for (size_t row = first; row < last; ++row)
          kernels().widen(target.data + row * target.row_stride, x + row * sizes_.m, MXS_BF16, m);
        return;
      }
      for (size_t row = 0; row < m; row += tile)
        for (size_t r = row; r < std::min(row + tile, m); ++r)
          for (size_t c = first; c < last; ++c)
            target.data[r * target.row_stride + c] = float_from_bf16(x[c * sizes_.m + r]);
    });
  }

  const Sizes &sizes_;
  const NewtonSchulzRecipe &recipe_;
  Team *team_;
  dnnl::engine engine_;
  std::vector<dnnl::stream> streams_;  // by thread
  std::vector<BoundProduct> gram_;    // by panel
  std::vector<BoundProduct> square_;  // by panel, or by step where there are none
  std::vector<BoundProduct> next_;    // by step and panel
  size_t scratch_bytes_ = 0;
  Buffers own_ = {};
};

class OnednnOrthogonalizer final : public Orthogonalizer {
 public:
  OnednnOrthogonalizer(NewtonSchulzShape shape, NewtonSchulzRecipe recipe, Team *team)
      : sizes_(shape), recipe_(std::move(recipe)), team_(team), whole_(sizes_, recipe_, team) {
    const bool small = is_small(shape) && team->size() > 1;
    for (int member = 0; member < (small ? team->size() : 0); ++member)
      lanes_.push_back(std::make_unique<Lane>(sizes_, recipe_, nullptr));
    name_ = "onednn " + whole_.implementation() + " standard";
  }

  std::string slow_path() const {
    const std::string found = whole_.slow_path();
    return found.empty() && !lanes_.empty() ? lanes_[0]->slow_path() : found;
  }

  uint64_t workspace_bytes() const override {
    const size_t whole = buffers_bytes() + whole_.scratch_bytes();
    return lanes_.empty() ? whole : std::max(whole, lanes_.size() * lane_bytes());
  }

  // The team's lane takes turns with the others.
  void bind(std::byte *workspace) override {
    whole_.bind(buffers_at(workspace));
    for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i]->bind(buffers_at(workspace + i * lane_bytes()));
  }

  const char *backend() const override { return name_.c_str(); }
  mxs_dtype product_dtype() const override { return MXS_BF16; }
  double flops() const override { return sizes_.shape.flops(recipe_.steps.size()); }

  mxs_status run(const MatrixSource *sources, const MatrixTarget *targets, size_t count,
                 const double *squares) override {
    BatchSquares sums;
    const mxs_status status = sums.form(sizes_.shape, sources, count, squares, team_);
    if (status != MXS_OK) return status;
    std::atomic<bool> good{true};
    const auto orthogonalize = [&](Lane &lane, size_t i) {
      if (!lane.orthogonalize(sources[i], targets[i], norm_scale(sums.of(i), recipe_))) good = false;
    };
    if (!lanes_.empty() && count > 1)
      team_->run(count, [&](size_t i, int member) { orthogonalize(*lanes_[static_cast<size_t>(member)], i); });
    else
      for (size_t i = 0; i < count; ++i) orthogonalize(whole_, i);
    if (good) return MXS_OK;
    return set_error(MXS_INTERNAL, "oneDNN failed to multiply %zu x %zu matrices in bf16", sizes_.n, sizes_.m);
  }

 private:
  size_t buffers_bytes() const {
    return 2 * sizes_.x_bytes() + 2 * sizes_.square_bytes() + sizes_.panel_bytes();
  }
  size_t lane_bytes() const { return buffers_bytes() + lanes_[0]->scratch_bytes(); }
  Buffers buffers_at(std::byte *workspace) const {
    const auto take = [&](size_t bytes) {
      std::byte *const taken = workspace;
      workspace += bytes;
      return reinterpret_cast<uint16_t *>(taken);
    };
    Buffers buffers;
    for (uint16_t *&x : buffers.x) x = take(sizes_.x_bytes());
    buffers.a = take(sizes_.square_bytes());
    buffers.polynomial = take(sizes_.square_bytes());
    buffers.panels = take(sizes_.panel_bytes());
    buffers.scratch = workspace;  // of each thread
    return buffers;
  }

  const Sizes sizes_;
  const NewtonSchulzRecipe recipe_;
  Team *team_;
  Lane whole_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // of one thread each, where matrices are small and threads several
  std::string name_;
};

}  // namespace

std::string onednn_name() {
  const dnnl_version_t *const version = dnnl_version();
  return "onednn " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " isa " + std::to_string(static_cast<int>(dnnl_get_effective_cpu_isa()));
}

mxs_status make_onednn_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, NewtonSchulzShape shape,
                                      const NewtonSchulzRecipe &recipe, Team *team) {
  std::unique_ptr<OnednnOrthogonalizer> made;
  try {
    made = std::make_unique<OnednnOrthogonalizer>(shape, recipe, team);
  } catch (const dnnl::error &error) {
    if (error.status != dnnl_unimplemented) throw;
    return set_error(MXS_NOT_BUILT,
                     "oneDNN has no bf16 products of %zu x %zu matrices on this CPU (it wants AVX-512 for them); take "
                     "MXS_BACKEND_AUTO, _OPENBLAS or _REFERENCE",
                     shape.n(), shape.m());
  }
  if (const std::string slow = made->slow_path(); !slow.empty())
    return set_error(MXS_NOT_BUILT,
                     "oneDNN offers %s for bf16 products of %zu x %zu matrices on this CPU, which is not its fast "
                     "path; take MXS_BACKEND_AUTO, _OPENBLAS or _REFERENCE",
                     slow.c_str(), shape.n(), shape.m());
  *orthogonalizer = std::move(made);
  return MXS_OK;
}

}  // namespace mxs
