// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz on tiles. X is n x m with n <= m, in bf16, packed in the three ways in which products read it:
//
//   A  = X X^T        left: X        right: X^T     blocks on and below the diagonal, both halves written
//   M  = bA + cA^2    left: A        right: A       the same
//   X' = aX + M X     left: M        right: X       a X is added in fp32, before X' is rounded
//
// The last X' goes to the target in fp32. X as a right operand has a second buffer, since products read it while X' is
// written; the other two are overwritten block by block.
//
// Threads share the parts of each product. Of a batch of small matrices each thread takes whole ones: nobody waits.
#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "kernels/newton_schulz.hpp"
#include "kernels/tiles/level.hpp"
#include "kernels/tiles/product.hpp"

namespace mxs {

namespace {

using namespace tiles;

// Up to so many elements a matrix is too little for several threads, and each thread has buffers for one of its own.
constexpr size_t small_elements = size_t{1} << 19;

struct Buffers {
  Operand left, turned, right[2];      // X
  Operand gram_left, gram_right;       // A
  Operand polynomial;                  // M
};

// A thread with its kernel made ready.
class Ready {
 public:
  explicit Ready(const Kernel &kernel) : kernel_(kernel) { kernel_.enter(); }
  ~Ready() { kernel_.leave(); }
  Ready(const Ready &) = delete;
  Ready &operator=(const Ready &) = delete;

 private:
  const Kernel &kernel_;
};

// Who does the parts of one matrix: the team, or a single member of it.
class Crew {
 public:
  explicit Crew(Team *team) : team_(team) {}
  explicit Crew(int member) : member_(member) {}
  int size() const { return team_ ? team_->size() : 1; }
  // body(part, member)
  template <class Body>
  void run(size_t part_count, Body &&body) const {
    if (team_) return team_->run(part_count, body);
    for (size_t part = 0; part < part_count; ++part) body(part, member_);
  }

 private:
  Team *team_ = nullptr;
  int member_ = 0;
};

class TilesOrthogonalizer final : public Orthogonalizer {
 public:
  TilesOrthogonalizer(const Kernel &kernel, NewtonSchulzShape shape, NewtonSchulzRecipe recipe, Team *team)
      : kernel_(kernel), shape_(shape), recipe_(std::move(recipe)), team_(team),
        name_(std::string("tiles ") + kernel.name + " standard"), row_strips_((shape.n() - 1) / side + 1),
        column_strips_((shape.m() - 1) / side + 1) {
    const bool small = row_strips_ * column_strips_ * side * side <= small_elements;
    buffers_.resize(small ? static_cast<size_t>(team_->size()) : 1);
  }

  uint64_t workspace_bytes() const override {
    return buffers_.size() * buffers_bytes() + static_cast<size_t>(team_->size()) * sums_bytes();
  }

  void bind(std::byte *workspace) override {
    const auto take = [&](size_t strips, size_t steps) {
      const Operand operand = {workspace, strips, steps};
      workspace += operand.bytes();
      return operand;
    };
    for (Buffers &buffers : buffers_) {
      buffers.left = take(row_strips_, column_strips_);
      buffers.turned = take(row_strips_, column_strips_);
      for (Operand &right : buffers.right) right = take(column_strips_, row_strips_);
      buffers.gram_left = take(row_strips_, row_strips_);
      buffers.gram_right = take(row_strips_, row_strips_);
      buffers.polynomial = take(row_strips_, row_strips_);
    }
    sums_ = reinterpret_cast<float *>(workspace);
  }

  const char *backend() const override { return name_.c_str(); }
  mxs_dtype product_dtype() const override { return MXS_BF16; }
  double flops() const override { return shape_.flops(recipe_.steps.size()); }

  mxs_status run(const MatrixSource *sources, const MatrixTarget *targets, size_t count,
                 const double *squares) override {
    if (!squares) {
      const mxs_status status = form_squares(sources, count);
      if (status != MXS_OK) return status;
    }
    const auto scale_of = [&](size_t i) {
      double sum = squares ? squares[i] : i < squares_.size() ? squares_[i] : 0;
      if (!squares && i >= squares_.size()) (void)find_squares(sources[i], rows(), columns(), &sum);  // once more
      return norm_scale(sum, recipe_);
    };
    if (buffers_.size() > 1 && count > 1) {
      team_->run(count, [&](size_t i, int member) {
        const Buffers &own = buffers_[static_cast<size_t>(member)];
        orthogonalize(own, sources[i], targets[i], scale_of(i), Crew(member));
      });
      return MXS_OK;
    }
    for (size_t i = 0; i < count; ++i) orthogonalize(buffers_[0], sources[i], targets[i], scale_of(i), Crew(team_));
    return MXS_OK;
  }

 private:
  size_t rows() const { return static_cast<size_t>(shape_.rows); }
  size_t columns() const { return static_cast<size_t>(shape_.columns); }
  size_t buffers_bytes() const { return step_bytes * row_strips_ * (4 * column_strips_ + 3 * row_strips_); }
  size_t sums_bytes() const {
    return sizeof(float) * block_floats * std::max(sum_blocks(row_strips_), sum_blocks(column_strips_));
  }
  float *sums_of(int member) const {
    return sums_ + static_cast<size_t>(member) * (sums_bytes() / sizeof(float));
  }

  // Of all matrices before any target is written: one that is not finite leaves all targets as they are.
  mxs_status form_squares(const MatrixSource *sources, size_t count) {
    std::atomic<bool> finite{true};
    team_->run(count, [&](size_t i, int) {
      double sum = 0;
      if (find_squares(sources[i], rows(), columns(), &sum) != MXS_OK) finite = false;
      if (i < squares_.size()) squares_[i] = sum;
    });
    if (finite) return MXS_OK;
    return set_error(MXS_INVALID_ARGUMENT, "the source of Newton-Schulz has an element that is not finite");
  }

  void orthogonalize(const Buffers &own, MatrixSource source, MatrixTarget target, const NormScale &scale, Crew crew) {
    if (scale.zero) {
      for (size_t row = 0; row < rows(); ++row)
        std::fill_n(target.data + row * target.row_stride, columns(), 0.0f);
      return;
    }
    load(own, source, scale, crew);
    for (size_t step = 0; step < recipe_.steps.size(); ++step) {
      form_gram(own, crew);
      form_polynomial(own, recipe_.steps[step], crew);
      if (step + 1 < recipe_.steps.size())
        advance(own, step, crew);
      else
        finish(own, step, target, crew);
    }
  }

  // The part of plain memory that block (i, j) stands for.
  Plain plain_of(float *data, size_t stride, size_t i, size_t j) const {
    const size_t row = (shape_.turned() ? j : i) * side, column = (shape_.turned() ? i : j) * side;
    return {data + row * stride + column, stride, rows() - row, columns() - column, shape_.turned()};
  }

  static BlockPlaces places_of(const Buffers &own, size_t step, size_t i, size_t j) {
    return {own.left.step(i, j), own.turned.step(i, j), own.right[step % 2].step(j, i)};
  }

  void load(const Buffers &own, MatrixSource source, const NormScale &scale, Crew crew) {
    const Scale factors = {scale.first, scale.second, scale.third};
    // Turned sources are read by rows, too.
    const size_t outer = shape_.turned() ? column_strips_ : row_strips_;
    const size_t inner = shape_.turned() ? row_strips_ : column_strips_;
    crew.run(outer, [&](size_t strip, int member) {
      for (size_t step = 0; step < inner; ++step) {
        const size_t i = shape_.turned() ? step : strip, j = shape_.turned() ? strip : step;
        avx512_passes.load(plain_of(const_cast<float *>(source.data), source.row_stride, i, j), factors,
                           sums_of(member), places_of(own, 0, i, j));
      }
    });
  }

  // finish_block(i, j, sums) for every block of the product.
  template <class FinishBlock>
  void multiply(const PackedProduct &product, Crew crew, FinishBlock &&finish_block) {
    const Cut cut(product, crew.size());
    crew.run(cut.parts(), [&](size_t part, int member) {
      const Ready ready(kernel_);
      multiply_part(kernel_, product, cut.part(part), sums_of(member), finish_block);
    });
  }

  void form_gram(const Buffers &own, Crew crew) {
    const auto places = [&](size_t i, size_t j) -> BlockPlaces {
      return {own.gram_left.step(i, j), own.gram_right.step(i, j), nullptr};
    };
    multiply({own.left, own.turned, true}, crew, [&](size_t i, size_t j, float *sums) {
      BlockPlaces mirrored;
      if (i != j) mirrored = {own.gram_left.step(j, i), nullptr, own.gram_right.step(j, i)};
      avx512_passes.place_symmetric(sums, places(i, j), mirrored);
    });
  }

  void form_polynomial(const Buffers &own, const NewtonSchulzRecipe::Step &step, Crew crew) {
    multiply({own.gram_left, own.gram_right, true}, crew, [&](size_t i, size_t j, float *sums) {
      avx512_passes.place_polynomial(sums, own.gram_left.step(i, j), step.b, step.c, own.polynomial.step(i, j),
                                     i == j ? nullptr : own.polynomial.step(j, i));
    });
  }

  void advance(const Buffers &own, size_t step, Crew crew) {
    const float a = recipe_.steps[step].a;
    multiply({own.polynomial, own.right[step % 2], false}, crew, [&](size_t i, size_t j, float *sums) {
      avx512_passes.place_next(sums, a, places_of(own, step + 1, i, j));
    });
  }

  void finish(const Buffers &own, size_t step, MatrixTarget target, Crew crew) {
    const float a = recipe_.steps[step].a;
    multiply({own.polynomial, own.right[step % 2], false}, crew, [&](size_t i, size_t j, float *sums) {
      avx512_passes.store_last(sums, a, own.left.step(i, j), plain_of(target.data, target.row_stride, i, j));
    });
  }

  const Kernel &kernel_;
  NewtonSchulzShape shape_;
  NewtonSchulzRecipe recipe_;
  Team *team_;
  std::string name_;
  size_t row_strips_, column_strips_;
  std::vector<Buffers> buffers_;
  float *sums_ = nullptr;
  std::array<double, 256> squares_{};  // of a batch's first matrices; further ones are summed twice
};

}  // namespace

mxs_status make_tiles_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, NewtonSchulzShape shape,
                                     const NewtonSchulzRecipe &recipe, Team *team) {
  const mxs_status status = check_choice();
  if (status != MXS_OK) return status;
  const Kernel *const kernel = chosen_kernel();
  if (!kernel)
    return set_error(MXS_NOT_BUILT, "the tiles backend wants a CPU with avx512_bf16 or AMX, and MXS_TILES not none; "
                                    "take MXS_BACKEND_AUTO");
  *orthogonalizer = std::make_unique<TilesOrthogonalizer>(*kernel, shape, recipe, team);
  return MXS_OK;
}

std::string tiles_name() {
  const Kernel *const kernel = chosen_kernel();
  return kernel ? std::string("tiles ") + kernel->name : "no tiles";
}

}  // namespace mxs
