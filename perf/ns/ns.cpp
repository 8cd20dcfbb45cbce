// SPDX-License-Identifier: Apache-2.0
// mxs-perf-ns: Newton-Schulz of one shape beside its bare products.
//
//   mxs-perf-ns [rows columns [threads [rounds]]]
//
// The bare products are the 15 that five steps need, each as oneDNN's plain bf16 matmul of that shape with nothing
// attached. Both are measured in turns in the same run; medians are printed, of wall time and of cpu time. Where the
// two differ, somebody else had the cores, and the ratio of cpu times is the better one (for one thread).
#include <matrixshard/matrixshard.h>

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <unordered_map>
#include <vector>

extern "C" void omp_set_num_threads(int count);

namespace {

using dnnl::memory;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Measured {
  std::vector<double> wall, cpu;
};

double median_ms(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2] * 1e3;
}

void measure(Measured *measured, const std::function<void()> &body) {
  const double cpu = cpu_seconds(), wall = wall_seconds();
  body();
  measured->wall.push_back(wall_seconds() - wall);
  measured->cpu.push_back(cpu_seconds() - cpu);
}

struct Product {
  dnnl::matmul primitive;
  std::unordered_map<int, memory> arguments;
};

class BareProducts {
 public:
  BareProducts(memory::dim n, memory::dim m) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
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
    keep_ = {x, next, a, b};
  }
  void run_five_steps() {
    for (int step = 0; step < 5; ++step)
      for (Product &product : products_) product.primitive.execute(stream_, product.arguments);
    stream_.wait();
  }
  const char *implementation() const { return implementation_.c_str(); }

 private:
  void add(const memory::desc &source_shape, const memory &source, const memory::desc &weights_shape,
           const memory &weights, const memory::desc &target_shape, const memory &target) {
    const dnnl::matmul::primitive_desc description({source_shape, weights_shape, target_shape}, engine_);
    implementation_ = description.impl_info_str();
    products_.push_back({dnnl::matmul(description),
                         {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, target}}});
  }
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<Product> products_;
  std::vector<memory> keep_;
  std::string implementation_;
};

int complain(const char *what) {
  std::fprintf(stderr, "%s: %s\n", what, mxs_last_error());
  return 1;
}

int run(long rows, long columns, int threads, int rounds) {
  omp_set_num_threads(threads);
  mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
  options.thread_count = threads;
  mxs_orthogonalizer *orthogonalizer = nullptr;
  if (mxs_orthogonalizer_create(&orthogonalizer, rows, columns, &options) != MXS_OK) return complain("create");
  BareProducts bare(std::min(rows, columns), std::max(rows, columns));
  std::vector<float> source(static_cast<size_t>(rows * columns)), target(source.size());
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (float &value : source) value = normal(random);

  Measured ours, theirs;
  for (int round = 0; round < rounds + 1; ++round) {
    if (round == 1) ours = theirs = {};  // the first warms caches and pages
    measure(&theirs, [&] { bare.run_five_steps(); });
    mxs_status status = MXS_OK;
    measure(&ours, [&] { status = mxs_orthogonalize(orthogonalizer, source.data(), target.data()); });
    if (status != MXS_OK) return complain("orthogonalize");
  }
  const double ours_wall = median_ms(ours.wall), theirs_wall = median_ms(theirs.wall);
  const double ours_cpu = median_ms(ours.cpu), theirs_cpu = median_ms(theirs.cpu);
  std::printf("%ld x %ld, %d thread(s), %d rounds, %s, workspace %.1f MiB\n", rows, columns, threads, rounds,
              mxs_orthogonalizer_backend(orthogonalizer),
              static_cast<double>(mxs_orthogonalizer_workspace_bytes(orthogonalizer)) / 1048576.0);
  std::printf("                    wall ms     cpu ms\n");
  std::printf("  15 bare products %8.3f   %8.3f   %s\n", theirs_wall, theirs_cpu, bare.implementation());
  std::printf("  newton-schulz    %8.3f   %8.3f\n", ours_wall, ours_cpu);
  std::printf("  ratio            %8.3f   %8.3f\n", ours_wall / theirs_wall, ours_cpu / theirs_cpu);
  mxs_orthogonalizer_destroy(&orthogonalizer);
  return 0;
}

}  // namespace

int main(int argument_count, char **arguments) {
  const auto number = [&](int index, long fallback) {
    return argument_count > index ? std::atol(arguments[index]) : fallback;
  };
  constexpr const char *usage =
      "usage: mxs-perf-ns [ROWS COLUMNS [THREADS [ROUNDS]]]   (1024 4096 1 9)\n"
      "  Newton-Schulz of one matrix beside its 15 bare bf16 products by oneDNN\n";
  if (argument_count > 1 && (std::strcmp(arguments[1], "--help") == 0 || std::strcmp(arguments[1], "-h") == 0)) {
    std::fputs(usage, stdout);
    return 0;
  }
  const long rows = number(1, 1024), columns = number(2, 4096);
  const long threads = number(3, 1), rounds = number(4, 9);
  if (rows < 1 || columns < 1 || threads < 1 || rounds < 1) {
    std::fputs(usage, stderr);
    return 2;
  }
  return run(rows, columns, static_cast<int>(threads), static_cast<int>(rounds));
}
