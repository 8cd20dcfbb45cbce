// SPDX-License-Identifier: Apache-2.0
// Element passes of a step: how many bytes they read and write in a second, beside what memory gives.
//
// Bytes are those that a pass must read and write once; what a cache line's first write fetches isn't counted. A pass
// of the C interface works on one thread, so several threads take a piece each; steppers cut by themselves.
#include "bench/local_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "bench/stepper.hpp"
#include "bench/turns.hpp"

namespace bench {

namespace {

// work(first, count) on each of some threads, in pieces that begin on pages.
void in_pieces(size_t elements, int threads, const std::function<void(size_t, size_t)> &work) {
  constexpr size_t page_elements = 1024;
  const size_t pages = (elements + page_elements - 1) / page_elements, share = static_cast<size_t>(threads);
  std::vector<std::thread> others;
  const auto first_of = [&](size_t i) { return std::min(elements, pages * i / share * page_elements); };
  for (size_t i = 1; i < share; i++)
    others.emplace_back([&, i] { work(first_of(i), first_of(i + 1) - first_of(i)); });
  work(0, first_of(1));
  for (std::thread &other : others) other.join();
}

// A contender and its bytes in an element.
struct Pass {
  const char *name;
  int element_bytes;
  std::function<void()> body;
};

struct Arrays {
  explicit Arrays(size_t count) : gradient(count), momentum(count), second(count), update(count), weights(count),
                                  narrow(count) {
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count; i++) weights[i] = gradient[i] = update[i] = normal(random);
  }
  mxs_elements piece(size_t first, size_t count) {
    mxs_elements elements = MXS_ELEMENTS_INIT;
    elements.dtype = MXS_F32;
    elements.count = count;
    elements.gradient = gradient.data() + first;
    elements.gradient_scale = 0.5f;
    elements.update_scale = 1.5f;
    elements.momentum = elements.exp_avg = momentum.data() + first;
    elements.exp_avg_sq = second.data() + first;
    elements.update = update.data() + first;
    elements.weights = weights.data() + first;
    elements.step_number = 10;
    return elements;
  }
  std::vector<float> gradient, momentum, second, update, weights;
  std::vector<uint16_t> narrow;
};

using ElementPass = mxs_status (*)(const mxs_elements *, const mxs_group_values *);

class PassTable {
 public:
  PassTable(const Options &options, int threads)
      : options_(options), threads_(threads), count_(options.pass_elements), arrays_(count_) {
    add_peers();
    add_passes();
    add_steppers();
  }
  void measure() {
    for (const Pass &pass : passes_) contenders_.push_back({pass.name, pass.body, {}, {}});
    take_turns(&contenders_, options_.warmups, options_.iterations);
  }
  void print_and_write(JsonFile *json) const;

 private:
  void add_peers();
  void add_passes();
  void add_steppers();
  void add(const char *name, int element_bytes, std::function<void(size_t, size_t)> work) {
    passes_.push_back({name, element_bytes, [this, work] { in_pieces(count_, threads_, work); }});
  }
  void add_pass(const char *name, int element_bytes, ElementPass pass, bool to_bf16);

  const Options &options_;
  int threads_;
  size_t count_;
  Arrays arrays_;
  mxs_group_values values_ = MXS_GROUP_VALUES_INIT;
  std::vector<std::unique_ptr<Stepper>> steppers_;
  std::vector<Pass> passes_;
  std::vector<Contender> contenders_;
  std::vector<std::string> missing_;
};

void PassTable::add_peers() {
  add("memcpy", 8, [this](size_t first, size_t count) {
    std::memcpy(arrays_.update.data() + first, arrays_.gradient.data() + first, count * sizeof(float));
  });
  add("in-place scale", 8, [this](size_t first, size_t count) {
    float *const values = arrays_.weights.data() + first;
    for (size_t i = 0; i < count; i++) values[i] *= 0.999f;
  });
}

void PassTable::add_pass(const char *name, int element_bytes, ElementPass pass, bool to_bf16) {
  add(name, element_bytes, [this, pass, to_bf16](size_t first, size_t count) {
    mxs_elements elements = arrays_.piece(first, count);
    if (to_bf16) {
      elements.dtype = MXS_BF16;
      elements.master = arrays_.weights.data() + first;
      elements.weights = arrays_.narrow.data() + first;
    }
    mxs::check(pass(&elements, &values_));
  });
}

void PassTable::add_passes() {
  values_.lr = 1e-4f;
  add_pass("adamw", 28, mxs_adamw, false);
  add_pass("adamw to bf16", 30, mxs_adamw, true);
  add_pass("momentum", 16, mxs_muon_momentum, false);
  add("norm", 4, [this](size_t first, size_t count) {
    int64_t words[MXS_NORM_WORDS] = {};
    int32_t not_finite = 0;
    mxs::check(mxs_norm_add(words, arrays_.gradient.data() + first, count, 0.5f, &not_finite));
  });
  add_pass("update", 12, mxs_muon_apply, false);
  add_pass("update to bf16", 14, mxs_muon_apply, true);
}

// One matrix, for Muon of few rows, so that the update that is applied is soon made.
void PassTable::add_steppers() {
  const Batch wide = {64, static_cast<int64_t>(count_ / 64), 1};
  if (wide.columns == 0) return;
  const auto add_stepper = [&](const char *name, int element_bytes, std::unique_ptr<Stepper> stepper, auto &&body) {
    if (!stepper) return missing_.push_back(std::string(name) + ": " + mxs_last_error());
    steppers_.push_back(std::move(stepper));
    passes_.push_back({name, element_bytes, [inner = steppers_.back().get(), body] { body(inner); }});
  };
  const auto step = [](Stepper *stepper) { stepper->step(); };
  const auto apply = [](Stepper *stepper) { stepper->apply(); };
  const auto updated = [](std::unique_ptr<Stepper> stepper) {
    if (stepper) stepper->update();
    return stepper;
  };
  add_stepper("adamw step", 28, make_adamw_stepper(wide, threads_, MXS_F32), step);
  add_stepper("adamw step, bf16", 30, make_adamw_stepper(wide, threads_, MXS_BF16), step);
  add_stepper("muon apply", 12, updated(make_muon_stepper(wide, threads_, MXS_F32)), apply);
  add_stepper("muon apply, bf16", 14, updated(make_muon_stepper(wide, threads_, MXS_BF16)), apply);
}

void PassTable::print_and_write(JsonFile *json) const {
  fmt::print("#\n# passes over {} elements, {} thread{}, {} turns after {}\n", count_, threads_,
             threads_ > 1 ? "s" : "", options_.iterations, options_.warmups);
  for (const std::string &sentence : missing_) fmt::print("# not here: {}\n", sentence);
  fmt::print("# {:>18} {:>11} {:>11} {:>8} {:>8} {:>8} {:>8} {:>8}  {}\n", "", "wall (ms)", "cpu (ms)", "cpu/wall",
             "GB/s", "x memcpy", "x scale", "by cpu", "bytes/element");
  for (size_t i = 0; i < passes_.size(); i++) {
    const Contender &contender = contenders_[i], &copy = contenders_[0], &scale = contenders_[1];
    const double wall = contender.wall(), cpu = contender.cpu(), bytes = passes_[i].element_bytes,
                 rate = static_cast<double>(count_) * bytes / wall * 1e-6;
    // Rates beside the peers', who move as many bytes an element as each other.
    const double of = bytes / passes_[0].element_bytes, of_copy = of * faster(copy.wall_ms, contender.wall_ms),
                 of_scale = of * faster(scale.wall_ms, contender.wall_ms),
                 by_cpu = of * faster(scale.cpu_ms, contender.cpu_ms);
    fmt::print("  {:>18} {:>11.3f} {:>11.3f} {:>8.2f} {:>8.2f} {:>8.3f} {:>8.3f} {:>8.3f}  {}\n", contender.name, wall,
               cpu, cpu / wall, rate, of_copy, of_scale, by_cpu, bytes);
    json->write_line(fmt::format(
        "{{\"operation\": \"step-local\", \"part\": \"pass\", \"elements\": {}, \"threads\": {}, \"contender\": {}, "
        "\"element_bytes\": {}, \"wall_ms\": {{\"min\": {:.6f}, \"median\": {:.6f}, \"max\": {:.6f}}}, "
        "\"cpu_ms\": {:.6f}, \"gigabytes_per_second\": {:.3f}, \"of_memcpy\": {:.4f}, \"of_scale\": {:.4f}, "
        "\"of_scale_by_cpu\": {:.4f}}}",
        count_, threads_, quoted(contender.name), bytes, contender.least(), wall, contender.most(), cpu, rate, of_copy,
        of_scale, by_cpu));
  }
}

}  // namespace

void measure_passes(const Options &options, int threads, JsonFile *json) {
  PassTable table(options, threads);
  table.measure();
  table.print_and_write(json);
}

}  // namespace bench
