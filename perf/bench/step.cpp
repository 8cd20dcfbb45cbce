// SPDX-License-Identifier: Apache-2.0
// step: one training step of a model without the model: gather all units in turn, give every gradient, reduce, step.
//
//   gather   from the first mxs_unit_gather to the last wait; one unit is gathered ahead, as a trainer would
//   reduce   of all units, one after the other: mxs_unit_reduce until mxs_unit_wait_reduce returns
//   step     mxs_optimizer_step: agreement, Newton-Schulz and the update of what a rank owns
//
// The first turn is checked: whole weights and summed gradients, element by element; and after the last all ranks
// compare what they gather. Filling gradients is not timed.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "bench/commands.hpp"
#include "bench/model.hpp"
#include "bench/report.hpp"
#include "bench/values.hpp"

namespace bench {

namespace {

struct StepTimes {
  std::vector<double> gather_us, reduce_us, step_us;
};

class Trainer {
 public:
  Trainer(const Ranks &ranks, const Options &options);

  uint64_t check_once();  // elements that are wrong on this rank
  void turn(StepTimes *times);
  uint64_t weights_hash();
  uint64_t bytes_in(int kind) const;  // since statistics were reset, outside of steps
  uint64_t bytes_in_steps() const;    // agreements included
  double flops() const;
  int matrix_count() const;
  const Model &model() const { return model_; }

 private:
  void make_units();
  void write_weights();
  void fill_gradients(int unit);
  template <class Body>
  void gather_all(Body &&with_unit);
  void reduce_all(double *time_us);
  uint64_t count_wrong_weights(int unit);
  uint64_t count_wrong_sums_of(int unit);
  // Tensors of all units are numbered through; their values lie one tensor behind the other.
  Run run_of(const mxs_placement &placement, size_t element_bytes) const;
  int first_tensor(int unit) const { return unit * tensors_per_unit_; }

  const Ranks &ranks_;
  const Options &options_;
  Model model_;
  int tensors_per_unit_;
  std::vector<uint64_t> first_element_;  // by tensor
  mxs::topology topology_;
  mxs::plan plan_;
  std::vector<mxs::unit> units_;
  mxs::optimizer optimizer_;
  bool damaged_ = false;
};

Trainer::Trainer(const Ranks &ranks, const Options &options)
    : ranks_(ranks), options_(options), model_(make_model(options)),
      tensors_per_unit_(static_cast<int>(model_.tensors.size()) / model_.unit_count) {
  uint64_t first = 0;
  for (const mxs_tensor &tensor : model_.tensors) {
    first_element_.push_back(first);
    uint64_t elements = 1;
    for (int d = 0; d < tensor.dimension_count; d++) elements *= static_cast<uint64_t>(tensor.shape[d]);
    first += elements;
  }
  topology_ = mxs::topology_of(ranks.comm());
  plan_ = mxs::make_plan(model_.tensors, topology_);
  make_units();
  write_weights();
}

void Trainer::make_units() {
  mxs_unit_options unit = MXS_UNIT_OPTIONS_INIT;
  unit.gather = options_.by_reference ? MXS_GATHER_BY_REFERENCE : MXS_GATHER_BY_COPY;
  unit.slots = options_.slots;
  unit.flags = options_.rank_order ? MXS_RANK_ORDER : 0;
  unit.algorithm = options_.algorithm.empty() ? nullptr : options_.algorithm.c_str();
  for (int index = 0; index < model_.unit_count; index++)
    units_.push_back(mxs::make_unit(ranks_.comm(), plan_, index, &unit));
  mxs_optimizer_options optimizer = MXS_OPTIMIZER_OPTIONS_INIT;
  optimizer.thread_count = options_.threads;
  optimizer_ = mxs::make_optimizer(units_, &optimizer);
}

Run Trainer::run_of(const mxs_placement &placement, size_t element_bytes) const {
  return {first_element_[static_cast<size_t>(placement.tensor)] + placement.element_offset, placement.element_count,
          element_bytes};
}

void Trainer::write_weights() {
  for (uint64_t index = 0; index < mxs_plan_placement_count(plan_.get()); index++) {
    mxs_placement placement = MXS_PLACEMENT_INIT;
    mxs::check(mxs_plan_placement(plan_.get(), index, &placement));
    if (placement.owner != ranks_.rank()) continue;
    mxs_unit *const unit = units_[static_cast<size_t>(placement.unit)].get();
    mxs_view view = MXS_VIEW_INIT;
    mxs::check(mxs_unit_shard(unit, index, &view));
    fill_term(view.data, run_of(placement, sizeof(float)), view.dtype, 0, 0);
    mxs::check(mxs_unit_commit(unit, &view));
  }
  ranks_.barrier();  // by reference, peers read these pages
}

// with_unit(unit) sees each unit whole.
template <class Body>
void Trainer::gather_all(Body &&with_unit) {
  const int ahead = options_.slots == 1 ? 0 : 1;
  for (int unit = 0; unit < model_.unit_count + ahead; unit++) {
    if (unit < model_.unit_count) mxs::check(mxs_unit_gather(units_[static_cast<size_t>(unit)].get(), nullptr));
    if (unit < ahead) continue;
    mxs_unit *const whole = units_[static_cast<size_t>(unit - ahead)].get();
    mxs::check(mxs_unit_wait(whole, nullptr));
    with_unit(unit - ahead);
    mxs::check(mxs_unit_release(whole, MXS_FREE, nullptr));
  }
}

void Trainer::fill_gradients(int unit) {
  for (int tensor = first_tensor(unit); tensor < first_tensor(unit + 1); tensor++) {
    mxs_view view = MXS_VIEW_INIT;
    mxs::check(mxs_unit_gradient(units_[static_cast<size_t>(unit)].get(), tensor, MXS_WRITE, &view));
    const uint64_t elements = view.bytes / mxs_dtype_bytes(view.dtype);
    fill_term(view.data, {first_element_[static_cast<size_t>(tensor)], elements, mxs_dtype_bytes(view.dtype)},
              view.dtype, ranks_.rank(), 1);
  }
}

void Trainer::reduce_all(double *time_us) {
  *time_us = 0;
  for (int unit = model_.unit_count - 1; unit >= 0; unit--) {
    fill_gradients(unit);
    ranks_.barrier();
    const double start = now_us();
    mxs::check(mxs_unit_reduce(units_[static_cast<size_t>(unit)].get(), nullptr));
    mxs::check(mxs_unit_wait_reduce(units_[static_cast<size_t>(unit)].get(), nullptr));
    *time_us += now_us() - start;
  }
}

uint64_t Trainer::count_wrong_weights(int unit) {
  uint64_t wrong = 0;
  std::vector<std::byte> wanted;
  for (int tensor = first_tensor(unit); tensor < first_tensor(unit + 1); tensor++) {
    mxs_view view = MXS_VIEW_INIT;
    mxs::check(mxs_unit_tensor(units_[static_cast<size_t>(unit)].get(), tensor, &view));
    const size_t element_bytes = mxs_dtype_bytes(view.dtype);
    wanted.resize(view.bytes);
    fill_term(wanted.data(), {first_element_[static_cast<size_t>(tensor)], view.bytes / element_bytes, element_bytes},
              view.dtype, 0, 0);
    const auto *found = static_cast<const std::byte *>(view.data);
    for (uint64_t at = 0; at < view.bytes; at += element_bytes)
      wrong += std::memcmp(found + at, wanted.data() + at, element_bytes) != 0;
  }
  return wrong;
}

uint64_t Trainer::count_wrong_sums_of(int unit) {
  uint64_t wrong = 0;
  for (uint64_t index = 0; index < mxs_plan_placement_count(plan_.get()); index++) {
    mxs_placement placement = MXS_PLACEMENT_INIT;
    mxs::check(mxs_plan_placement(plan_.get(), index, &placement));
    if (placement.owner != ranks_.rank() || placement.unit != unit) continue;
    mxs_view view = MXS_VIEW_INIT;
    mxs::check(mxs_unit_shard_gradient(units_[static_cast<size_t>(unit)].get(), index, &view));
    auto *sums = static_cast<float *>(view.data);
    if (options_.plant_fault && ranks_.is_first() && !damaged_ && view.bytes > 0) {
      sums[0] += 1;
      damaged_ = true;
    }
    wrong += count_wrong_sums(sums, run_of(placement, sizeof(float)), ranks_.count(), 1, false);
  }
  return wrong;
}

uint64_t Trainer::check_once() {
  uint64_t wrong = 0;
  gather_all([&](int unit) { wrong += count_wrong_weights(unit); });
  double time_us = 0;
  reduce_all(&time_us);
  for (int unit = 0; unit < model_.unit_count; unit++) wrong += count_wrong_sums_of(unit);
  mxs::check(mxs_optimizer_clear(optimizer_.get()));
  return wrong;
}

void Trainer::turn(StepTimes *times) {
  ranks_.barrier();
  double start = now_us(), reduce_us = 0;
  gather_all([](int) {});
  times->gather_us.push_back(now_us() - start);
  reduce_all(&reduce_us);
  times->reduce_us.push_back(reduce_us);
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_step step = MXS_STEP_INIT;
  step.groups = &values;
  step.group_count = 1;
  step.gradient_scale = 1.0f / static_cast<float>(ranks_.count());
  step.clip_norm = 1;
  ranks_.barrier();
  start = now_us();
  mxs::check(mxs_optimizer_step(optimizer_.get(), &step, nullptr));
  times->step_us.push_back(now_us() - start);
}

// FNV-1a over all whole weights, in 48 bits, which a double holds.
uint64_t Trainer::weights_hash() {
  uint64_t hash = 0xcbf29ce484222325u;
  gather_all([&](int unit) {
    for (int tensor = first_tensor(unit); tensor < first_tensor(unit + 1); tensor++) {
      mxs_view view = MXS_VIEW_INIT;
      mxs::check(mxs_unit_tensor(units_[static_cast<size_t>(unit)].get(), tensor, &view));
      const auto *bytes = static_cast<const unsigned char *>(view.data);
      for (uint64_t i = 0; i < view.bytes; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
  });
  return hash >> 16;
}

uint64_t Trainer::bytes_in(int kind) const {
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  mxs::check(mxs_comm_query_stats(ranks_.comm().get(), &stats));
  uint64_t bytes = 0;
  for (int phase = 0; phase < MXS_PHASE_COUNT; phase++)
    if (phase != MXS_PHASE_STEP) bytes += stats.counters[kind][phase].bytes_in;
  return bytes;
}

uint64_t Trainer::bytes_in_steps() const {
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  mxs::check(mxs_comm_query_stats(ranks_.comm().get(), &stats));
  uint64_t bytes = 0;
  for (const auto &phases : stats.counters) bytes += phases[MXS_PHASE_STEP].bytes_in;
  return bytes;
}

double Trainer::flops() const {
  mxs_rank_load load = MXS_RANK_LOAD_INIT;
  mxs::check(mxs_plan_rank(plan_.get(), ranks_.rank(), &load));
  return load.step_flops;
}

int Trainer::matrix_count() const {
  mxs_rank_load load = MXS_RANK_LOAD_INIT;
  mxs::check(mxs_plan_rank(plan_.get(), ranks_.rank(), &load));
  return load.matrix_count;
}

// Of the slowest rank in each turn: least, median and most.
struct Summary {
  double least, median, most;
};

Summary summary(const Ranks &ranks, const std::vector<double> &mine) {
  std::vector<double> turns(mine.size(), 0.0);
  for (const std::vector<double> &one : ranks.share(mine))
    for (size_t i = 0; i < one.size(); i++) turns[i] = std::max(turns[i], one[i]);
  return {*std::min_element(turns.begin(), turns.end()), median(turns), *std::max_element(turns.begin(), turns.end())};
}

void print_part(const char *name, const Summary &time, double bytes, double flops) {
  fmt::print("{:>8} {:>12.2f} {:>12.2f} {:>12.2f} {:>16.0f}", name, time.median, time.least, time.most, bytes);
  if (flops > 0) fmt::print("   {:.2f} Gflop/s on the rank with most work", flops / time.median * 1e-3);
  fmt::print("\n");
}

std::string part_of_json(const char *name, const Summary &time, double bytes) {
  return fmt::format(
      "\"{}\": {{\"time_us\": {{\"min\": {:.3f}, \"median\": {:.3f}, \"max\": {:.3f}}}, \"bytes_in\": {:.0f}}}", name,
      time.least, time.median, time.most, bytes);
}

}  // namespace

int step(const Options &options) {
  Ranks ranks(options);
  JsonFile json(ranks.is_first() ? options.json : "");
  Trainer trainer(ranks, options);
  ranks.print_header(fmt::format("step: {} units of {} in {}, gathered by {}; {} elements; {} turns after {}",
                                 options.units, options.shapes, mxs_dtype_name(options.dtype),
                                 options.by_reference ? "reference" : "copy", trainer.model().element_count,
                                 options.iterations, options.warmups));
  const double wrong_here = static_cast<double>(trainer.check_once());
  StepTimes warm, times;
  for (int i = 0; i < options.warmups; i++) trainer.turn(&warm);
  mxs::check(mxs_comm_reset_stats(ranks.comm().get()));
  for (int i = 0; i < options.iterations; i++) trainer.turn(&times);
  const auto a_turn = [&](uint64_t bytes) { return ranks.largest(static_cast<double>(bytes) / options.iterations); };
  const double step_bytes = a_turn(trainer.bytes_in_steps()), gather_bytes = a_turn(trainer.bytes_in(MXS_GATHER)),
               reduce_bytes = a_turn(trainer.bytes_in(MXS_REDUCE));
  const std::vector<double> hashes = ranks.share(static_cast<double>(trainer.weights_hash()));
  const auto differing = std::count_if(hashes.begin(), hashes.end(), [&](double hash) { return hash != hashes[0]; });
  const std::vector<double> wrong_by_rank = ranks.share(wrong_here);
  const double wrong = std::accumulate(wrong_by_rank.begin(), wrong_by_rank.end(), static_cast<double>(differing));
  const Summary gather = summary(ranks, times.gather_us), reduce = summary(ranks, times.reduce_us),
                step = summary(ranks, times.step_us);
  const double flops = ranks.largest(trainer.flops()), matrices = ranks.largest(trainer.matrix_count());
  if (!ranks.is_first()) return ranks.end(wrong > 0);
  fmt::print("#\n# {:>6} {:>12} {:>12} {:>12} {:>16}\n", "part", "median (us)", "least", "most", "bytes in, most");
  print_part("gather", gather, gather_bytes, 0);
  print_part("reduce", reduce, reduce_bytes, 0);
  print_part("step", step, step_bytes, flops);
  fmt::print("# matrices of the rank with most: {}; wrong elements and differing ranks: {} {}\n", matrices, wrong,
             wrong > 0 ? "FAILED" : "OK");
  json.write_line(fmt::format(
      "{{\"operation\": \"step\", \"units\": {}, \"shapes\": {}, \"dtype\": {}, \"elements\": {}, "
      "\"ranks\": {}, \"nodes\": {}, {}, {}, {}, \"flops_max\": {:.0f}, \"matrices_max\": {}, "
      "\"wrong\": {:.0f}}}",
      options.units, quoted(options.shapes), quoted(mxs_dtype_name(options.dtype)), trainer.model().element_count,
      ranks.count(), ranks.info().node_count, part_of_json("gather", gather, gather_bytes),
      part_of_json("reduce", reduce, reduce_bytes), part_of_json("step", step, step_bytes), flops, matrices, wrong));
  return ranks.end(wrong > 0);
}

}  // namespace bench
