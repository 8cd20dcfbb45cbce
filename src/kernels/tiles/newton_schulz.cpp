// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz on tiles. X is n x m with n <= m, in bf16, packed in both ways in which products read it:
//
//   A  = X X^T        left: X        right: X, turned strip by strip     blocks on and below the diagonal, both halves
//   M  = bA + cA^2    left: A        right: A, turned                    written
//   X' = aX + M X     left: M        right: X                            a X is added in fp32, before X' is rounded
//
// The last X' goes to the target in fp32. X as a right operand is overwritten column by column, where a column's rows
// fit one part (n <= 512), and has a second buffer otherwise.
//
// Threads share the parts of each product. Of a batch of small matrices each thread takes whole ones: nobody waits.
//
// Of a matrix that ranks share, X is this rank's part of the long side. Blocks of A then go in fp32 to the exchange,
// are summed over the ranks, and only then rounded.
#include <algorithm>
#include <string>
#include <utility>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "kernels/batch.hpp"
#include "kernels/newton_schulz.hpp"
#include "kernels/shared.hpp"
#include "kernels/tiles/level.hpp"
#include "kernels/tiles/product.hpp"

namespace mxs {

namespace {

using namespace tiles;

struct Buffers {
  Operand left, right[2];  // X; right[1] may be right[0]
  Operand gram;            // A, left
  Operand polynomial;      // M, left
};

struct alignas(64) Scratch {
  std::byte bytes[step_bytes];
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
  // sum: of a shared matrix, whose part is an `n` on one side however long the other is.
  TilesOrthogonalizer(const Kernel &kernel, SharedShape shape, NewtonSchulzRecipe recipe, Team *team, GramSum sum)
      : kernel_(kernel), shape_(shape), recipe_(std::move(recipe)), team_(team), sum_(sum),
        name_(std::string("tiles ") + kernel.name + (sum.sum ? " shared" : " standard")),
        row_strips_((static_cast<size_t>(shape.n) - 1) / side + 1),
        column_strips_((static_cast<size_t>(shape.part) - 1) / side + 1) {
    const bool small = is_small({shape.rows(), shape.columns()});
    buffers_.resize(small && !sum.sum ? static_cast<size_t>(team_->size()) : 1);
  }

  uint64_t workspace_bytes() const override {
    return buffers_.size() * buffers_bytes() + static_cast<size_t>(team_->size()) * member_bytes() +
           exchange_floats() * sizeof(float);
  }

  void bind(std::byte *workspace) override {
    const auto take = [&](size_t strips, size_t steps) {
      const Operand operand = {workspace, strips, steps};
      workspace += operand.bytes();
      return operand;
    };
    for (Buffers &buffers : buffers_) {
      buffers.left = take(row_strips_, column_strips_);
      buffers.right[0] = take(column_strips_, row_strips_);
      buffers.right[1] = in_place() ? buffers.right[0] : take(column_strips_, row_strips_);
      buffers.gram = take(row_strips_, row_strips_);
      buffers.polynomial = take(row_strips_, row_strips_);
    }
    members_ = workspace;
    exchange_ = reinterpret_cast<float *>(workspace + static_cast<size_t>(team_->size()) * member_bytes());
  }

  const char *backend() const override { return name_.c_str(); }
  mxs_dtype product_dtype() const override { return MXS_BF16; }
  double flops() const override {
    const double n = static_cast<double>(shape_.n), part = static_cast<double>(shape_.part);
    return static_cast<double>(recipe_.steps.size()) * (4 * part * n * n + 2 * n * n * n);
  }

  mxs_status run(const MatrixSource *sources, const MatrixTarget *targets, size_t count,
                 const double *squares) override {
    BatchSquares sums;
    mxs_status status = sums.form({shape_.rows(), shape_.columns()}, sources, count, squares, team_);
    if (status != MXS_OK) return status;
    if (buffers_.size() > 1 && count > 1) {
      // Nothing is shared here, so nothing fails.
      team_->run(count, [&](size_t i, int member) {
        const Buffers &own = buffers_[static_cast<size_t>(member)];
        (void)orthogonalize(own, sources[i], targets[i], norm_scale(sums.of(i), recipe_), Crew(member));
      });
      return MXS_OK;
    }
    for (size_t i = 0; i < count && status == MXS_OK; ++i)
      status = orthogonalize(buffers_[0], sources[i], targets[i], norm_scale(sums.of(i), recipe_), Crew(team_));
    return status;
  }

 private:
  size_t rows() const { return static_cast<size_t>(shape_.rows()); }
  size_t columns() const { return static_cast<size_t>(shape_.columns()); }
  // The lower half's blocks, row by row.
  size_t exchange_floats() const { return sum_.sum ? row_strips_ * (row_strips_ + 1) / 2 * block_floats : 0; }
  float *exchanged(size_t i, size_t j) const { return exchange_ + (i * (i + 1) / 2 + j) * block_floats; }
  bool in_place() const { return row_strips_ <= resident_strips; }
  size_t buffers_bytes() const {
    return step_bytes * row_strips_ * ((in_place() ? 2 : 3) * column_strips_ + 2 * row_strips_);
  }
  size_t member_bytes() const { return std::max(part_bytes(row_strips_), part_bytes(column_strips_)); }

  mxs_status orthogonalize(const Buffers &own, MatrixSource source, MatrixTarget target, const NormScale &scale,
                           Crew crew) {
    if (scale.zero) {
      for (size_t row = 0; row < rows(); ++row)
        std::fill_n(target.data + row * target.row_stride, columns(), 0.0f);
      return MXS_OK;
    }
    load(own, source, scale, crew);
    for (size_t step = 0; step < recipe_.steps.size(); ++step) {
      if (!sum_.sum) {
        form_gram(own, crew);
      } else if (const mxs_status status = sum_gram(own, crew); status != MXS_OK) {
        return status;
      }
      form_polynomial(own, recipe_.steps[step], crew);
      if (step + 1 < recipe_.steps.size())
        advance(own, step, crew);
      else
        finish(own, step, target, crew);
    }
    return MXS_OK;
  }

  // The part of plain memory that block (i, j) stands for.
  Plain plain_of(float *data, size_t stride, size_t i, size_t j) const {
    const size_t row = (shape_.turned ? j : i) * side, column = (shape_.turned ? i : j) * side;
    return {data + row * stride + column, stride, rows() - row, columns() - column, shape_.turned};
  }

  void load(const Buffers &own, MatrixSource source, const NormScale &scale, Crew crew) {
    const Scale factors = {scale.first, scale.second, scale.third};
    // Turned sources are read by rows, too.
    const size_t outer = shape_.turned ? column_strips_ : row_strips_;
    const size_t inner = shape_.turned ? row_strips_ : column_strips_;
    crew.run(outer, [&](size_t strip, int) {
      for (size_t step = 0; step < inner; ++step) {
        const size_t i = shape_.turned ? step : strip, j = shape_.turned ? strip : step;
        avx512_passes.load(plain_of(const_cast<float *>(source.data), source.row_stride, i, j), factors,
                           own.left.step(i, j), own.right[0].step(j, i));
      }
    });
  }

  // Makes a finisher of two bodies: see PartProduct.
  template <class Finish, class Fetch>
  struct Finisher {
    Finish finish;
    Fetch fetch;
  };

  template <class Finish, class Fetch>
  void multiply(const PackedProduct &product, Crew crew, const Finish &finish, const Fetch &fetch) {
    const Cut cut(product, crew.size());
    crew.run(cut.parts(), [&](size_t part, int member) {
      const Ready ready(kernel_);
      Finisher<Finish, Fetch> finisher = {finish, fetch};
      std::byte *const workspace = members_ + static_cast<size_t>(member) * member_bytes();
      PartProduct(kernel_, avx512_passes, product, cut.part(part), workspace, &finisher).run();
    });
  }

  // A part of one block of an operand.
  static void fetch_block(std::byte *block, size_t part, size_t parts) {
    const size_t lines = step_bytes / 64;
    avx512_passes.fetch_to_write(block + part * lines / parts * 64,
                                 (part + 1) * lines / parts - part * lines / parts);
  }

  void form_gram(const Buffers &own, Crew crew) {
    multiply(
        {own.left, own.left, true, false}, crew,
        [&, scratch = Scratch()](size_t i, size_t j, float *sums, size_t slice) mutable {
          avx512_passes.place_symmetric(sums, own.gram.step(i, j), i == j ? nullptr : own.gram.step(j, i),
                                        scratch.bytes, slice);
        },
        [&](size_t i, size_t j, size_t part, size_t parts) {
          fetch_block(own.gram.step(i, j), part, parts);
          fetch_block(own.gram.step(j, i), part, parts);
        });
  }

  // form_gram over all ranks.
  mxs_status sum_gram(const Buffers &own, Crew crew) {
    constexpr size_t slice_floats = block_floats / slices;
    multiply(
        {own.left, own.left, true, false}, crew,
        [&](size_t i, size_t j, float *sums, size_t slice) {
          std::copy_n(sums + slice * slice_floats, slice_floats, exchanged(i, j) + slice * slice_floats);
        },
        [&](size_t i, size_t j, size_t part, size_t parts) {
          fetch_block(reinterpret_cast<std::byte *>(exchanged(i, j)), part, parts);
        });
    const mxs_status status = sum_.sum(sum_.context, exchange_, exchange_floats());
    if (status != MXS_OK) return status;
    crew.run(row_strips_, [&](size_t i, int) {
      Scratch scratch;
      for (size_t j = 0; j <= i; ++j)
        for (size_t slice = 0; slice < slices; ++slice)
          avx512_passes.place_symmetric(exchanged(i, j), own.gram.step(i, j), i == j ? nullptr : own.gram.step(j, i),
                                        scratch.bytes, slice);
    });
    return MXS_OK;
  }

  void form_polynomial(const Buffers &own, const NewtonSchulzRecipe::Step &step, Crew crew) {
    multiply(
        {own.gram, own.gram, true, false}, crew,
        [&, scratch = Scratch()](size_t i, size_t j, float *sums, size_t slice) mutable {
          avx512_passes.place_polynomial(sums, own.gram.step(i, j), step.b, step.c, own.polynomial.step(i, j),
                                         i == j ? nullptr : own.polynomial.step(j, i), scratch.bytes, slice);
        },
        [&](size_t i, size_t j, size_t part, size_t parts) {
          fetch_block(own.polynomial.step(i, j), part, parts);
          fetch_block(own.polynomial.step(j, i), part, parts);
        });
  }

  void advance(const Buffers &own, size_t step, Crew crew) {
    const float a = recipe_.steps[step].a;
    const Operand &right = own.right[step % 2], &next = own.right[(step + 1) % 2];
    multiply(
        {own.polynomial, right, false, in_place()}, crew,
        [&](size_t i, size_t j, float *sums, size_t slice) {
          avx512_passes.place_next(sums, a, right.step(j, i), own.left.step(i, j), next.step(j, i), slice);
        },
        [&](size_t i, size_t j, size_t part, size_t parts) {
          fetch_block(own.left.step(i, j), part, parts);
          fetch_block(next.step(j, i), part, parts);
        });
  }

  void finish(const Buffers &own, size_t step, MatrixTarget target, Crew crew) {
    const float a = recipe_.steps[step].a;
    const Operand &right = own.right[step % 2];
    multiply(
        {own.polynomial, right, false, false}, crew,
        [&](size_t i, size_t j, float *sums, size_t slice) {
          avx512_passes.store_last(sums, a, right.step(j, i), plain_of(target.data, target.row_stride, i, j), slice);
        },
        [&](size_t i, size_t j, size_t part, size_t parts) {
          const Plain plain = plain_of(target.data, target.row_stride, i, j);
          for (size_t row = part * side / parts; row < (part + 1) * side / parts && row < plain.rows; ++row)
            avx512_passes.fetch_to_write(reinterpret_cast<std::byte *>(plain.data + row * plain.stride), 2);
        });
  }

  const Kernel &kernel_;
  SharedShape shape_;
  NewtonSchulzRecipe recipe_;
  Team *team_;
  GramSum sum_;
  std::string name_;
  size_t row_strips_, column_strips_;
  std::vector<Buffers> buffers_;
  float *exchange_ = nullptr;
  std::byte *members_ = nullptr;  // what each member of the team needs for a part
};

}  // namespace

mxs_status make_shared_tiles_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, SharedShape shape,
                                            const NewtonSchulzRecipe &recipe, Team *team, GramSum sum) {
  const mxs_status status = check_choice();
  if (status != MXS_OK) return status;
  const Kernel *const kernel = chosen_kernel();
  if (!kernel)
    return set_error(MXS_NOT_BUILT, "the tiles backend wants a CPU with avx512_bf16 or AMX, and MXS_TILES not none; "
                                    "take MXS_BACKEND_AUTO");
  *orthogonalizer = std::make_unique<TilesOrthogonalizer>(*kernel, shape, recipe, team, sum);
  return MXS_OK;
}

mxs_status make_tiles_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, NewtonSchulzShape shape,
                                     const NewtonSchulzRecipe &recipe, Team *team) {
  const SharedShape alone = {std::min(shape.rows, shape.columns), std::max(shape.rows, shape.columns), shape.turned()};
  return make_shared_tiles_orthogonalizer(orthogonalizer, alone, recipe, team, {});
}

std::string tiles_name() {
  const Kernel *const kernel = chosen_kernel();
  return kernel ? std::string("tiles ") + kernel->name : "no tiles";
}

}  // namespace mxs
