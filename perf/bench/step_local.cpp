// SPDX-License-Identifier: Apache-2.0
// step --local: the kernels of a step alone, in one process, without ranks.
//
//   products   Newton-Schulz of each shape by each backend, in turns with the same shape's bare products by oneDNN,
//              with Newton-Schulz as one writes it with them, and with a whole Muon step of it
//   passes     AdamW, momentum, norm and update, in turns with memcpy and an in-place scale of the same arrays
//
// What the backends make of one source is compared: a fast kernel that is wrong must not look good.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>

#include "bench/bare_products.hpp"
#include "bench/commands.hpp"
#include "bench/local_passes.hpp"
#include "bench/model.hpp"
#include "bench/report.hpp"
#include "bench/stepper.hpp"
#include "bench/turns.hpp"

namespace bench {

namespace {

// bf16 is 1e-2 off the formula for Gaussians (tests/kernels/newton_schulz_oracle.cpp); what is wrong is off by 1.
constexpr double difference_max = 5e-2;
constexpr const char *bare_name = "bare products", *plain_name = "plain form", *step_name = "muon step";
// The default's table, "you"; see docs/optimizers.md.
constexpr double default_steps[5][3] = {{4.0848, -6.8946, 2.9270},
                                        {3.9505, -6.3029, 2.6377},
                                        {3.7418, -5.5913, 2.3037},
                                        {2.8769, -3.1427, 1.2046},
                                        {2.8366, -3.0525, 1.2012}};

// "openblas-gram" and the like.
mxs_newton_schulz newton_schulz_of(const std::string &word, int threads) {
  mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
  options.thread_count = threads;
  const size_t dash = word.find('-');
  const std::string algorithm = dash == std::string::npos ? "" : word.substr(dash + 1);
  for (const mxs_backend backend :
       {MXS_BACKEND_TILES, MXS_BACKEND_ONEDNN, MXS_BACKEND_OPENBLAS, MXS_BACKEND_REFERENCE})
    if (word.substr(0, dash) == mxs_backend_name(backend)) options.backend = backend;
  if (algorithm == "standard") options.algorithm = MXS_ALGORITHM_STANDARD;
  if (algorithm == "gram") options.algorithm = MXS_ALGORITHM_GRAM;
  if (options.backend == MXS_BACKEND_AUTO || (dash != std::string::npos && options.algorithm == MXS_ALGORITHM_AUTO))
    throw mxs::error(MXS_INVALID_ARGUMENT, "--backends: \"" + word + "\" is not tiles, onednn, openblas or reference, "
                                           "perhaps with -standard or -gram");
  return options;
}

struct DestroyOrthogonalizer {
  void operator()(mxs_orthogonalizer *orthogonalizer) const { mxs_orthogonalizer_destroy(&orthogonalizer); }
};
using Orthogonalizer = std::unique_ptr<mxs_orthogonalizer, DestroyOrthogonalizer>;

// None: this build or CPU hasn't got it, as mxs_last_error tells.
Orthogonalizer orthogonalizer_of(const Batch &batch, const mxs_newton_schulz &options) {
  mxs_orthogonalizer *made = nullptr;
  const mxs_status status = mxs_orthogonalizer_create(&made, batch.rows, batch.columns, &options);
  if (status != MXS_NOT_BUILT) mxs::check(status);
  return Orthogonalizer(made);
}

double relative_difference(const std::vector<float> &one, const std::vector<float> &other) {
  double off = 0, all = 0;
  for (size_t i = 0; i < one.size(); i++) {
    off += std::pow(static_cast<double>(one[i]) - static_cast<double>(other[i]), 2);
    all += std::pow(static_cast<double>(one[i]), 2);
  }
  return all > 0 ? std::sqrt(off / all) : std::numeric_limits<double>::infinity();
}

// One shape with one number of threads.
class ProductTable {
 public:
  ProductTable(const Options &options, const Batch &batch, int threads);
  void measure();
  bool print_and_write(JsonFile *json) const;  // true: nothing was wrong

 private:
  void add_bare();
  void add_plain();
  void add_target();
  void add_backend(const std::string &word);
  void add_step();
  void write(size_t i, bool chosen, JsonFile *json) const;
  bool is_newton_schulz(size_t i) const {
    const std::string &name = contenders_[i].name;
    return name != bare_name && name != plain_name && name != step_name;
  }
  double flops() const;  // as they are commonly counted

  const Options &options_;
  Batch batch_;
  int threads_;
  std::vector<float> source_;
  std::unique_ptr<BareProducts> bare_;
  std::unique_ptr<PlainForm> plain_;
  std::vector<Orthogonalizer> orthogonalizers_;
  // What contenders that orthogonalise make; the plain form, if there is one, is the first.
  std::vector<std::vector<float>> targets_;
  std::vector<size_t> target_contenders_;
  std::unique_ptr<Stepper> stepper_;
  std::vector<Contender> contenders_;
  std::vector<std::string> what_;            // of each contender
  std::vector<double> differences_;          // of each contender; NaN: nothing to compare
  std::string auto_;                         // what AUTO takes
  std::vector<std::string> missing_;
};

ProductTable::ProductTable(const Options &options, const Batch &batch, int threads)
    : options_(options), batch_(batch), threads_(threads), source_(batch.elements()) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (float &value : source_) value = normal(random);
  orthogonalizers_.reserve(options.backends.size());
  targets_.reserve(options.backends.size() + 1);
  add_bare();
  add_plain();
  for (const std::string &word : options.backends) add_backend(word);
  add_step();
  mxs_newton_schulz chosen = MXS_NEWTON_SCHULZ_INIT;
  chosen.thread_count = threads;
  auto_ = mxs_orthogonalizer_backend(orthogonalizer_of(batch, chosen).get());
}

void ProductTable::add_bare() {
  std::string why;
  bare_ = make_bare_products(batch_.rows, batch_.columns, batch_.count, threads_, &why);
  if (!bare_) return missing_.push_back(why);
  contenders_.push_back({bare_name, [this] { bare_->run(); }, {}, {}});
  what_.push_back("onednn " + bare_->implementation());
}

void ProductTable::add_plain() {
  std::string why;
  plain_ = make_plain_form(batch_.rows, batch_.columns, default_steps, threads_, &why);
  if (!plain_) return missing_.push_back(why);
  add_target();
  contenders_.push_back({plain_name, [this, target = targets_.back().data()] {
                           const size_t elements = batch_.elements() / static_cast<size_t>(batch_.count);
                           for (size_t i = 0; i < batch_.elements(); i += elements)
                             plain_->run(source_.data() + i, target + i);
                         }, {}, {}});
  what_.push_back("onednn " + plain_->implementation());
}

// Of the contender that comes next.
void ProductTable::add_target() {
  targets_.emplace_back(batch_.elements());
  target_contenders_.push_back(contenders_.size());
}

void ProductTable::add_backend(const std::string &word) {
  Orthogonalizer made = orthogonalizer_of(batch_, newton_schulz_of(word, threads_));
  if (!made) return missing_.push_back(word + ": " + mxs_last_error());
  orthogonalizers_.push_back(std::move(made));
  add_target();
  contenders_.push_back({word, [this, inner = orthogonalizers_.back().get(), target = targets_.back().data()] {
                           mxs::check(batch_.count == 1 ? mxs_orthogonalize(inner, source_.data(), target)
                                                        : mxs_orthogonalize_batch(inner, source_.data(), nullptr,
                                                                                  target, nullptr, batch_.count));
                         }, {}, {}});
  what_.push_back(mxs_orthogonalizer_backend(orthogonalizers_.back().get()));
}

void ProductTable::add_step() {
  stepper_ = make_muon_stepper(batch_, threads_, MXS_F32);
  if (!stepper_) return missing_.push_back(std::string("muon step: ") + mxs_last_error());
  contenders_.push_back({step_name, [this] { stepper_->step(); }, {}, {}});
  what_.push_back(stepper_->backend());
}

double ProductTable::flops() const {
  const double n = static_cast<double>(std::min(batch_.rows, batch_.columns)),
               m = static_cast<double>(std::max(batch_.rows, batch_.columns));
  return 5 * (4 * m * n * n + 2 * n * n * n) * static_cast<double>(batch_.count);
}

void ProductTable::measure() {
  take_turns(&contenders_, options_.warmups, options_.iterations);
  if (options_.plant_fault && targets_.size() > 1) targets_.back()[source_.size() / 2] += 1e3f;
  differences_.assign(contenders_.size(), std::numeric_limits<double>::quiet_NaN());
  for (size_t i = 1; i < targets_.size(); i++)
    differences_[target_contenders_[i]] = relative_difference(targets_[0], targets_[i]);
}

// By how much a contender is faster than a peer; null where there is no such peer.
struct Ratios {
  std::optional<double> by_wall, by_cpu;
};

Ratios beside(const std::vector<Contender> &contenders, const char *peer_name, const Contender &contender) {
  for (const Contender &peer : contenders)
    if (peer.name == peer_name)
      return {faster(peer.wall_ms, contender.wall_ms), faster(peer.cpu_ms, contender.cpu_ms)};
  return {};
}

std::string shown(const std::optional<double> &ratio) { return ratio ? fmt::format("{:.3f}", *ratio) : "n/a"; }
std::string in_json(const std::optional<double> &ratio) { return ratio ? fmt::format("{:.4f}", *ratio) : "null"; }

void ProductTable::write(size_t i, bool chosen, JsonFile *json) const {
  const Contender &contender = contenders_[i];
  const Ratios bare = beside(contenders_, bare_name, contender), plain = beside(contenders_, plain_name, contender);
  json->write_line(fmt::format(
      "{{\"operation\": \"step-local\", \"part\": {}, \"rows\": {}, \"columns\": {}, \"count\": {}, \"threads\": {}, "
      "\"contender\": {}, \"kernels\": {}, \"chosen\": {}, \"wall_ms\": "
      "{{\"min\": {:.6f}, \"median\": {:.6f}, \"max\": {:.6f}}}, \"cpu_ms\": {:.6f}, \"flops\": {:.0f}, "
      "\"gflops\": {:.2f}, \"faster_than_bare\": {}, \"faster_than_bare_by_cpu\": {}, \"faster_than_plain\": {}, "
      "\"faster_than_plain_by_cpu\": {}, \"difference\": {}}}",
      quoted(is_newton_schulz(i) ? "newton-schulz" : contender.name), batch_.rows, batch_.columns, batch_.count,
      threads_, quoted(contender.name), quoted(what_[i]), chosen, contender.least(), contender.wall(), contender.most(),
      contender.cpu(), flops(), flops() / contender.wall() * 1e-6, in_json(bare.by_wall), in_json(bare.by_cpu),
      in_json(plain.by_wall), in_json(plain.by_cpu),
      std::isnan(differences_[i]) ? "null" : fmt::format("{:.3e}", differences_[i])));
}

bool ProductTable::print_and_write(JsonFile *json) const {
  bool right = true;
  fmt::print("#\n# {} x {}{}, {} thread{}, {} turns after {}\n", batch_.rows, batch_.columns,
             batch_.count > 1 ? fmt::format(" * {}", batch_.count) : "", threads_, threads_ > 1 ? "s" : "",
             options_.iterations, options_.warmups);
  for (const std::string &sentence : missing_) fmt::print("# not here: {}\n", sentence);
  fmt::print("# {:>18} {:>11} {:>11} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}  {}\n", "", "wall (ms)", "cpu (ms)",
             "cpu/wall", "Gflop/s", "x bare", "by cpu", "x plain", "by cpu", "differs", "kernels; *: chosen");
  for (size_t i = 0; i < contenders_.size(); i++) {
    const Contender &contender = contenders_[i];
    const Ratios bare = beside(contenders_, bare_name, contender), plain = beside(contenders_, plain_name, contender);
    const bool chosen = is_newton_schulz(i) && what_[i] == auto_, compared = !std::isnan(differences_[i]);
    right = right && !(compared && !(differences_[i] <= difference_max));
    fmt::print("  {:>18} {:>11.3f} {:>11.3f} {:>8.2f} {:>8.1f} {:>8} {:>8} {:>8} {:>8} {:>9}  {}\n",
               contender.name + (chosen ? "*" : ""), contender.wall(), contender.cpu(),
               contender.cpu() / contender.wall(), flops() / contender.wall() * 1e-6, shown(bare.by_wall),
               shown(bare.by_cpu), shown(plain.by_wall), shown(plain.by_cpu),
               compared ? fmt::format("{:.1e}", differences_[i]) : "", what_[i]);
    write(i, chosen, json);
  }
  return right;
}

std::vector<Batch> batches_of(const Options &options) {
  std::vector<Batch> batches;
  for (const Shape &shape : read_shapes(options.shapes)) {
    if (shape.sides.size() != 2 || shape.frozen)
      throw mxs::error(MXS_INVALID_ARGUMENT, "--shapes: with --local each is ROWSxCOLUMNS, perhaps *COUNT");
    batches.push_back({shape.sides[0], shape.sides[1], shape.count});
    if (batches.back().elements() > size_t{1} << 31)
      throw mxs::error(MXS_INVALID_ARGUMENT, "--shapes: a batch has more than 2^31 elements");
  }
  return batches;
}

}  // namespace

int step_local(const Options &options) {
  const std::vector<Batch> batches = batches_of(options);
  for (const std::string &word : options.backends) newton_schulz_of(word, 1);
  JsonFile json(options.json);
  fmt::print("# step --local: medians; GB/s and Gflop/s by wall time; flops 5 (4 m n^2 + 2 n^3) whoever multiplies\n");
  bool right = true;
  for (const Batch &batch : batches)
    for (const int threads : options.local_threads) {
      ProductTable table(options, batch, threads);
      table.measure();
      right = table.print_and_write(&json) && right;
      std::fflush(stdout);
    }
  if (options.pass_elements > 0)
    for (const int threads : options.local_threads) measure_passes(options, threads, &json);
  fmt::print("#\n# results beside the first: {}\n", right ? "OK" : "FAILED");
  return right ? 0 : 1;
}

}  // namespace bench
