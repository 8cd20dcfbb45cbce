// SPDX-License-Identifier: Apache-2.0
// Products of packed tiles: near sums in fp64, and bit for bit equal however they are cut. Newton-Schulz on them:
// batches, strides, threads. For every kernel that runs here.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/team.hpp"
#include "kernels/newton_schulz.hpp"
#include "kernels/tiles/level.hpp"
#include "kernels/tiles/product.hpp"
#include "support/cmocka_all.h"

namespace {

using namespace mxs::tiles;

struct Free {
  void operator()(std::byte *memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

Memory poisoned(size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  Memory memory(static_cast<std::byte *>(std::aligned_alloc(64, bytes)));
  std::memset(memory.get(), 0xff, bytes);  // NaN in fp32 and in bf16
  return memory;
}

struct Matrix {
  size_t rows, columns;
  std::vector<float> values;
  float at(size_t row, size_t column) const { return values[row * columns + column]; }
};

// Numbers that bf16 has exactly, so that packing loses nothing.
Matrix random_matrix(size_t rows, size_t columns, unsigned seed) {
  Matrix matrix = {rows, columns, std::vector<float>(rows * columns)};
  std::mt19937 random(seed);
  for (float &value : matrix.values)
    value = std::ldexp(static_cast<float>(static_cast<int>(random() % 255) - 127), static_cast<int>(random() % 9));
  return matrix;
}

Matrix turned(const Matrix &matrix) {
  Matrix result = {matrix.columns, matrix.rows, std::vector<float>(matrix.values.size())};
  for (size_t r = 0; r < matrix.rows; ++r)
    for (size_t c = 0; c < matrix.columns; ++c) result.values[c * matrix.rows + r] = matrix.at(r, c);
  return result;
}

size_t strips_of(size_t rows) { return (rows + side - 1) / side; }

// A matrix as a left and as a right operand.
struct Packed {
  Memory left_memory, right_memory;
  Operand left, right;
};

// by_columns: packed from the transpose.
Packed pack(const Matrix &matrix, bool by_columns = false) {
  Packed packed;
  const size_t down = strips_of(matrix.rows), across = strips_of(matrix.columns);
  packed.left = {nullptr, down, across};
  packed.right = {nullptr, across, down};
  packed.left_memory = poisoned(packed.left.bytes());
  packed.right_memory = poisoned(packed.right.bytes());
  packed.left.data = packed.left_memory.get();
  packed.right.data = packed.right_memory.get();
  Matrix plain = by_columns ? turned(matrix) : matrix;
  for (size_t i = 0; i < down; ++i)
    for (size_t j = 0; j < across; ++j) {
      const size_t row = (by_columns ? j : i) * side, column = (by_columns ? i : j) * side;
      const Plain block = {plain.values.data() + row * plain.columns + column, plain.columns, plain.rows - row,
                           plain.columns - column, by_columns};
      avx512_passes.load(block, {0.5f, 1.0f, 2.0f}, packed.left.step(i, j), packed.right.step(j, i));
    }
  return packed;
}

// Puts sums into a plain matrix; every block must come once, slice by slice.
struct Collector {
  Matrix *target;
  std::vector<size_t> next_slice;
  bool good = true;

  explicit Collector(Matrix *matrix)
      : target(matrix), next_slice(strips_of(matrix->rows) * strips_of(matrix->columns), 0) {}
  void finish(size_t i, size_t j, float *sums, size_t slice) {
    good = good && next_slice[i * strips_of(target->columns) + j]++ == slice;
    if (slice + 1 < slices) return;
    for (size_t r = 0; r < side; ++r)
      for (size_t c = 0; c < side; ++c) {
        const float sum = sums[r / 16 * 512 + c / 16 * 256 + r % 16 * 16 + c % 16];
        if (i * side + r < target->rows && j * side + c < target->columns)
          target->values[(i * side + r) * target->columns + j * side + c] = sum;
        else
          good = good && sum == 0.0f;
      }
  }
  void fetch(size_t, size_t, size_t part, size_t parts) { good = good && part < parts; }
};

// thread_count: how it is cut. Empty: something came twice or in disorder.
std::vector<float> multiplied(const Kernel &kernel, const PackedProduct &product, size_t rows, size_t columns,
                              int thread_count) {
  Matrix result = {rows, columns, std::vector<float>(rows * columns, 42.0f)};
  Collector collector(&result);
  const Cut cut(product, thread_count);
  const Memory workspace = poisoned(part_bytes(product.left.steps));
  kernel.enter();
  for (size_t part = cut.parts(); part-- > 0;)
    PartProduct(kernel, avx512_passes, product, cut.part(part), workspace.get(), &collector).run();
  kernel.leave();
  return collector.good ? result.values : std::vector<float>();
}

bool is_near(const Matrix &left, const Matrix &right, const std::vector<float> &got) {
  if (got.size() != left.rows * right.columns) return false;
  for (size_t r = 0; r < left.rows; ++r)
    for (size_t c = 0; c < right.columns; ++c) {
      double sum = 0, size = 0;
      for (size_t k = 0; k < left.columns; ++k) {
        const double term = static_cast<double>(left.at(r, k)) * static_cast<double>(right.at(k, c));
        sum += term;
        size += std::fabs(term);
      }
      const double error = std::fabs(static_cast<double>(got[r * right.columns + c]) - sum);
      if (error > size * 0x1p-20 || (size > 0 && std::isnan(error))) {
        print_error("%zu x %zu x %zu: [%zu, %zu] is off by %g of %g\n", left.rows, left.columns, right.columns, r, c,
                    error, size);
        return false;
      }
    }
  return true;
}

template <class Body>
bool for_all_kernels(Body &&body) {
  int count = 0;
  const Kernel *const *kernels = all_kernels(&count);
  for (int i = 0; i < count; ++i)
    if (!body(*kernels[i])) {
      print_error("by %s\n", kernels[i]->name);
      return false;
    }
  return true;
}

// One step and fewer, a group, passes of several groups (more than 1,024 terms), remainders of all.
const size_t products[][3] = {{1, 1, 1},     {7, 5, 3},      {32, 32, 32},   {33, 31, 65},    {40, 256, 70},
                              {100, 257, 9}, {65, 300, 130}, {600, 70, 700}, {70, 1025, 450}, {420, 1300, 33}};

bool products_are_right() {
  return for_all_kernels([](const Kernel &kernel) {
    for (const auto &[rows, inner, columns] : products) {
      const Matrix left = random_matrix(rows, inner, 1), right = random_matrix(inner, columns, 2);
      const Packed packed_left = pack(left), packed_right = pack(right);
      const PackedProduct product = {packed_left.left, packed_right.right, false, false};
      const std::vector<float> got = multiplied(kernel, product, rows, columns, 1);
      if (!is_near(left, right, got)) return false;
      for (const int thread_count : {2, 3, 64})
        if (multiplied(kernel, product, rows, columns, thread_count) != got) return false;
      // Rows of a column together, where they may be.
      if (rows <= 512 && inner <= 1024)
        if (multiplied(kernel, {packed_left.left, packed_right.right, false, true}, rows, columns, 3) != got)
          return false;
    }
    return true;
  });
}

// X X^T up to the diagonal, from the left operand alone, is the whole product to the last bit, and symmetric.
bool symmetric_products_are_whole_ones() {
  return for_all_kernels([](const Kernel &kernel) {
    for (const auto &[rows, inner, columns] : products) {
      const Matrix x = random_matrix(rows, inner, 3);
      const Packed packed = pack(x), packed_turned = pack(turned(x));
      const PackedProduct whole = {packed.left, packed_turned.right, false, false};
      const PackedProduct half = {packed.left, packed.left, true, false};
      const std::vector<float> wanted = multiplied(kernel, whole, rows, rows, 1);
      for (const int thread_count : {1, 2, 64}) {
        const std::vector<float> got = multiplied(kernel, half, rows, rows, thread_count);
        if (got.size() != wanted.size()) return false;
        for (size_t r = 0; r < rows; ++r)
          for (size_t c = 0; c <= r; ++c)
            if (got[r * rows + c] != wanted[r * rows + c] || wanted[r * rows + c] != wanted[c * rows + r]) return false;
      }
    }
    return true;
  });
}

bool packing_from_the_transpose_is_equal() {
  for (const auto &[rows, inner, columns] : products) {
    const Matrix matrix = random_matrix(rows, columns, 4);
    const Packed one = pack(matrix), other = pack(matrix, true);
    if (std::memcmp(one.left.data, other.left.data, one.left.bytes()) != 0 ||
        std::memcmp(one.right.data, other.right.data, one.right.bytes()) != 0)
      return false;
  }
  return true;
}

// ---- Newton-Schulz --------------------------------------------------------------------------------------------------

struct Engine {
  std::unique_ptr<mxs::Team> team;
  std::unique_ptr<mxs::Orthogonalizer> inner;
  Memory workspace;
};

bool make(Engine *engine, size_t rows, size_t columns, int thread_count) {
  const auto r = static_cast<int64_t>(rows), c = static_cast<int64_t>(columns);
  if (mxs::Team::create(&engine->team, thread_count) != MXS_OK ||
      mxs::make_orthogonalizer(&engine->inner, r, c, mxs::recipe_of(MXS_PRESET_DEFAULT), {MXS_BACKEND_TILES, 0},
                               engine->team.get()) != MXS_OK)
    return false;
  engine->workspace = poisoned(engine->inner->workspace_bytes());
  engine->inner->bind(engine->workspace.get());
  return true;
}

// Matrices with gaps after each row and after each matrix; gaps hold `gap`.
struct Batch {
  size_t rows, columns, stride, count;
  std::vector<float> values;
  float *matrix(size_t i) { return values.data() + i * (rows * stride + 5); }
};

Batch batch_of(size_t rows, size_t columns, size_t count, float gap) {
  Batch batch = {rows, columns, columns + 3, count, {}};
  batch.values.assign(count * (rows * batch.stride + 5), gap);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < count; ++i)
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < columns; ++c) batch.matrix(i)[r * batch.stride + c] = normal(random);
  return batch;
}

mxs_status run(Engine *engine, Batch *source, Batch *target, size_t first, size_t count) {
  std::vector<mxs::MatrixSource> sources;
  std::vector<mxs::MatrixTarget> targets;
  for (size_t i = first; i < first + count; ++i) {
    sources.push_back({source->matrix(i), source->stride});
    targets.push_back({target->matrix(i), target->stride});
  }
  return engine->inner->run(sources.data(), targets.data(), count, nullptr);
}

// One call each with one thread, one call for all with several, in place: the same bits; gaps stay as they are.
bool batches_repeat_single_bits() {
  const size_t shapes[][3] = {{5, 3, 300}, {40, 70, 7}, {129, 96, 3}, {530, 600, 2}, {1100, 1030, 2}};
  for (const auto &[rows, columns, count] : shapes) {
    Engine one;
    if (!make(&one, rows, columns, 1)) return false;
    Batch source = batch_of(rows, columns, count, 42.0f), wanted = batch_of(rows, columns, count, 43.0f);
    const Batch before = source;
    for (size_t i = 0; i < count; ++i)
      if (run(&one, &source, &wanted, i, 1) != MXS_OK) return false;
    if (source.values != before.values) return false;
    for (const int thread_count : {1, 2, 3}) {
      Engine many;
      Batch got = batch_of(rows, columns, count, 43.0f);
      if (!make(&many, rows, columns, thread_count) || run(&many, &source, &got, 0, count) != MXS_OK) return false;
      if (got.values != wanted.values) {
        print_error("%zu of %zu x %zu by %d threads: other bits\n", count, rows, columns, thread_count);
        return false;
      }
      Batch both = batch_of(rows, columns, count, 43.0f);
      if (run(&many, &both, &both, 0, count) != MXS_OK || both.values != wanted.values) return false;
    }
  }
  return true;
}

bool one_bad_matrix_leaves_all_targets() {
  for (const int thread_count : {1, 2})
    for (const size_t bad : {size_t{0}, size_t{299}}) {
      Engine engine;
      Batch source = batch_of(9, 8, 300, 0.0f), target = batch_of(9, 8, 300, 43.0f);
      const Batch before = target;
      source.matrix(bad)[3] = NAN;
      if (!make(&engine, 9, 8, thread_count) || run(&engine, &source, &target, 0, 300) != MXS_INVALID_ARGUMENT ||
          target.values != before.values)
        return false;
    }
  return true;
}

void products_agree_with_fp64_however_they_are_cut(void **) { assert_true(products_are_right()); }
void half_a_symmetric_product_is_the_whole(void **) { assert_true(symmetric_products_are_whole_ones()); }
void a_transpose_is_packed_as_the_matrix(void **) { assert_true(packing_from_the_transpose_is_equal()); }
void batches_have_the_bits_of_single_matrices(void **) { assert_true(batches_repeat_single_bits()); }
void a_matrix_that_is_not_finite_leaves_all_targets(void **) { assert_true(one_bad_matrix_leaves_all_targets()); }

// What MXS_TILES forbids: "none", or a kernel that no CPU has.
bool is_refused(mxs_status wanted) {
  Engine engine;
  if (!make(&engine, 64, 64, 1)) {
    std::unique_ptr<mxs::Orthogonalizer> made;
    const auto recipe = mxs::recipe_of(MXS_PRESET_DEFAULT);
    return mxs::make_orthogonalizer(&made, 64, 64, recipe, {MXS_BACKEND_TILES, 0}, engine.team.get()) == wanted &&
           made == nullptr;
  }
  return false;
}
void none_means_no_tiles(void **) { assert_true(is_refused(MXS_NOT_BUILT)); }
void an_unknown_kernel_is_refused(void **) { assert_true(is_refused(MXS_ENVIRONMENT)); }

}  // namespace

int main(int argument_count, char **arguments) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(products_agree_with_fp64_however_they_are_cut),
      cmocka_unit_test(half_a_symmetric_product_is_the_whole),
      cmocka_unit_test(a_transpose_is_packed_as_the_matrix),
      cmocka_unit_test(batches_have_the_bits_of_single_matrices),
      cmocka_unit_test(a_matrix_that_is_not_finite_leaves_all_targets),
  };
  const CMUnitTest none_tests[] = {cmocka_unit_test(none_means_no_tiles)};
  const CMUnitTest unknown_tests[] = {cmocka_unit_test(an_unknown_kernel_is_refused)};
  if (argument_count > 1 && std::strcmp(arguments[1], "none") == 0)
    return cmocka_run_group_tests(none_tests, nullptr, nullptr);
  if (argument_count > 1) return cmocka_run_group_tests(unknown_tests, nullptr, nullptr);
  int count = 0;
  all_kernels(&count);
  if (count == 0) {
    puts("1..0 # SKIP this CPU multiplies no bf16");
    return 0;
  }
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
