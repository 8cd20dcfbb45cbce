// SPDX-License-Identifier: Apache-2.0
// A matrix whose rows several ranks have: its Newton-Schulz beside that of one owner, threads standing for ranks.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/team.hpp"
#include "optimizer/shared.hpp"
#include "plan/memory.hpp"
#include "support/thinned.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

struct Shape {
  int64_t rows, columns;
};

// Sums of a group in rank order.
class Group {
 public:
  explicit Group(int count) : barrier_(count), given_(static_cast<size_t>(count)) {}
  mxs_status sum(int member, float *values, uint64_t count) {
    given_[static_cast<size_t>(member)].assign(values, values + count);
    barrier_.arrive_and_wait();
    for (uint64_t i = 0; i < count; i++) {
      float total = 0;
      for (const std::vector<float> &each : given_) total += each[i];
      values[i] = total;
    }
    barrier_.arrive_and_wait();
    return MXS_OK;
  }

 private:
  std::barrier<> barrier_;
  std::vector<std::vector<float>> given_;
};

struct Member {
  Group *group;
  int number;
  static mxs_status sum(void *context, float *values, uint64_t count) {
    Member &self = *static_cast<Member *>(context);
    return self.group->sum(self.number, values, count);
  }
};

std::vector<float> gaussian(Shape shape, float scale) {
  std::vector<float> values(static_cast<size_t>(shape.rows * shape.columns));
  std::mt19937 random(static_cast<unsigned>(shape.rows * 31 + shape.columns));
  std::normal_distribution<float> normal;
  for (float &value : values) value = normal(random) * scale;
  return values;
}

// Rows of a member: uneven on purpose, the last ones short.
int64_t first_row(Shape shape, int member, int count) {
  const int64_t each = (shape.rows - 1) / count + 1;
  // Everybody has one row at least.
  return std::min(each * member, shape.rows - (count - member));
}

struct Memory {
  explicit Memory(uint64_t bytes)
      : data(static_cast<std::byte *>(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64)), std::free) {
    std::memset(data.get(), 0x7f, bytes);  // poison: large numbers, and NaN as bf16
  }
  std::unique_ptr<std::byte, decltype(&std::free)> data;
};

std::string step_member(const std::vector<float> &whole, Shape shape, int member, int count, Group *group,
                        OrthogonalizerChoice choice, float *result) {
  const int64_t first = first_row(shape, member, count);
  const int64_t rows = (member + 1 < count ? first_row(shape, member + 1, count) : shape.rows) - first;
  Member self = {group, member};
  SharedMatrix shared;
  shared.whole_rows = shape.rows;
  shared.first_row = first;
  shared.member = member;
  shared.member_count = count;
  shared.sum = Member::sum;
  shared.context = &self;
  std::unique_ptr<Team> team;
  std::unique_ptr<Orthogonalizer> made;
  if (Team::create(&team, 1 + member % 2) != MXS_OK) return "no team";
  if (make_shared_newton_schulz(&made, shared, rows, shape.columns, recipe_of(MXS_PRESET_DEFAULT), choice,
                                team.get()) != MXS_OK)
    return std::string("create: ") + mxs_last_error();
  const uint64_t predicted = co_owned_workspace_bytes(rows, shape.rows, shape.columns, count, team->size());
  if (made->workspace_bytes() > predicted)
    return "it needs " + std::to_string(made->workspace_bytes()) + " bytes, but " + std::to_string(predicted) +
           " are predicted";
  const Memory workspace(made->workspace_bytes());
  float *const own = result + first * shape.columns;
  std::copy_n(whole.data() + first * shape.columns, rows * shape.columns, own);
  double squares = 0;
  for (int64_t i = 0; i < rows * shape.columns; i++)
    squares += static_cast<double>(own[i]) * static_cast<double>(own[i]);
  made->bind(workspace.data.get());
  const MatrixSource source = {own, static_cast<size_t>(shape.columns)};
  const MatrixTarget target = {own, static_cast<size_t>(shape.columns)};
  const mxs_status status = made->run(&source, &target, 1, &squares);
  return status == MXS_OK ? "" : std::string(mxs_last_error());
}

std::string step_group(const std::vector<float> &whole, Shape shape, int count, OrthogonalizerChoice choice,
                       std::vector<float> *result) {
  Group group(count);
  result->assign(whole.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<std::string> complaints(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int member = 0; member < count; member++)
    threads.emplace_back([&, member] {
      complaints[static_cast<size_t>(member)] =
          step_member(whole, shape, member, count, &group, choice, result->data());
    });
  for (std::thread &thread : threads) thread.join();
  for (const std::string &complaint : complaints)
    if (!complaint.empty()) return complaint;
  return "";
}

std::vector<float> step_alone(const std::vector<float> &whole, Shape shape) {
  std::unique_ptr<Team> team;
  std::unique_ptr<Orthogonalizer> alone;
  std::vector<float> result(whole.size());
  if (Team::create(&team, 1) != MXS_OK ||
      make_orthogonalizer(&alone, shape.rows, shape.columns, recipe_of(MXS_PRESET_DEFAULT),
                          {MXS_BACKEND_REFERENCE, MXS_ALGORITHM_STANDARD}, team.get()) != MXS_OK)
    return {};
  const Memory workspace(alone->workspace_bytes());
  alone->bind(workspace.data.get());
  const MatrixSource source = {whole.data(), static_cast<size_t>(shape.columns)};
  const MatrixTarget target = {result.data(), static_cast<size_t>(shape.columns)};
  return alone->run(&source, &target, 1, nullptr) == MXS_OK ? result : std::vector<float>();
}

// Of two results, each within `bound` of the exact one.
std::string compare(const std::vector<float> &got, const std::vector<float> &wanted, double bound) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); i++) {
    const double one = static_cast<double>(got[i]), other = static_cast<double>(wanted[i]);
    difference += (one - other) * (one - other);
    norm += other * other;
  }
  if (std::sqrt(difference) <= 2 * bound * std::sqrt(norm)) return "";
  return "differs by " + std::to_string(std::sqrt(difference / norm)) + " of the norm";
}

std::string groups_agree_with_one_owner(OrthogonalizerChoice choice, double bound) {
  const std::vector<Shape> shapes = test::thinned<Shape>(
      {{611, 128}, {33, 32}, {64, 1024}, {96, 96}, {8, 200}, {200, 8}, {257, 33}, {37, 41}});
  for (const Shape shape : shapes)
    for (const int count : {2, 3, 4, 7, 8}) {
      const float scale = count == 3 ? 1e30f : count == 4 ? 1e-30f : 1.0f;
      const std::vector<float> whole = gaussian(shape, scale), wanted = step_alone(whole, shape);
      std::vector<float> got, again;
      std::string complaint = step_group(whole, shape, count, choice, &got);
      if (complaint.empty()) complaint = compare(got, wanted, bound);
      if (complaint.empty()) complaint = step_group(whole, shape, count, choice, &again);
      if (complaint.empty() && std::memcmp(got.data(), again.data(), got.size() * sizeof(float)) != 0)
        complaint = "two runs differ";
      if (!complaint.empty())
        return std::to_string(shape.rows) + " x " + std::to_string(shape.columns) + " over " + std::to_string(count) +
               ": " + complaint;
    }
  return "";
}

std::string zero_maps_to_zero() {
  for (const Shape shape : {Shape{40, 9}, Shape{9, 40}}) {
    std::vector<float> whole(360), got;
    const std::string complaint = step_group(whole, shape, 3, {}, &got);
    if (!complaint.empty()) return complaint;
    if (got != whole) return "zero became something";
  }
  return "";
}

// What one part holds, all ranks refuse, and nobody waits.
std::string infinities_are_refused_by_all() {
  const Shape shape = {40, 9};
  std::vector<float> whole = gaussian(shape, 1), got;
  whole[200] = std::numeric_limits<float>::infinity();
  const std::string complaint = step_group(whole, shape, 4, {}, &got);
  return complaint.find("not finite") != std::string::npos ? "" : "said: " + complaint;
}

bool is_well(const std::string &complaint) {
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

// 1e-5 of the bound for full rank; square Gaussian matrices of this size are within 3e-6.
void groups_equal_one_owner_in_fp32(void **) {
  assert_true(is_well(groups_agree_with_one_owner({MXS_BACKEND_REFERENCE, MXS_ALGORITHM_AUTO}, 1e-5)));
}
// bf16 where the CPU has it: the bound of Gaussian matrices of so few rows.
void groups_equal_one_owner_by_default(void **) {
  assert_true(is_well(groups_agree_with_one_owner({}, 2e-2)));
}
void zero_stays_zero(void **) { assert_true(is_well(zero_maps_to_zero())); }
void infinities_are_everybodys(void **) { assert_true(is_well(infinities_are_refused_by_all())); }

}  // namespace

int main() {
  mxs_orthogonalizer *probe = nullptr;
  if (mxs_orthogonalizer_create(&probe, 64, 64, nullptr) == MXS_ENVIRONMENT) {
    std::printf("1..0 # SKIP %s\n", mxs_last_error());
    return 0;
  }
  mxs_orthogonalizer_destroy(&probe);
  const CMUnitTest tests[] = {
      cmocka_unit_test(groups_equal_one_owner_in_fp32),
      cmocka_unit_test(groups_equal_one_owner_by_default),
      cmocka_unit_test(zero_stays_zero),
      cmocka_unit_test(infinities_are_everybodys),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
