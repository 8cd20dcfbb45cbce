// SPDX-License-Identifier: Apache-2.0
// mxs-train: the training loop. Micro-batch j of a step is taken by rank j mod p in its turn j div p. Where the last
// turn has fewer than p, the others go along without counting.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>

#include "check.hpp"
#include "checkpoints.hpp"
#include "meter.hpp"
#include "network.hpp"
#include "options.hpp"
#include "pieces.hpp"
#include "random.hpp"
#include "report.hpp"
#include "text.hpp"
#include "weights.hpp"

namespace train {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// The ranks of this job; alone without a comm.
class World {
 public:
  explicit World(const Options &options) {
    if (options.placement == "single") return;
    mxs_comm_options comm_options = MXS_COMM_OPTIONS_INIT;
    comm_options.thread_count = options.placing.thread_count;
    mxs_comm *made = nullptr;
    check(mxs_comm_create(&made, &comm_options), "mxs_comm_create");
    comm_.reset(made);
    rank_ = rank_of(made);
    ranks_ = rank_count_of(made);
  }

  // Of the ranks of a failed comm that are alive. Gives the old one, for the caller to destroy when nothing of it is
  // left.
  CommOwner shrink() {
    mxs_comm *made = nullptr;
    check(mxs_comm_shrink(&made, comm_.get(), nullptr), "mxs_comm_shrink");
    CommOwner old = std::move(comm_);
    comm_.reset(made);
    rank_ = rank_of(made);
    ranks_ = rank_count_of(made);
    std::vector<int32_t> was(ranks_);
    for (int rank = 0; rank < ranks_; ++rank) {
      check(mxs_comm_origin(made, rank, &was[rank]), "mxs_comm_origin");
      if (!was_.empty()) was[rank] = was_[was[rank]];
    }
    was_ = std::move(was);
    return old;
  }
  // By rank: its number in the comm that was there before the first shrink since the latest forget_origins.
  const std::vector<int32_t> &origins() const { return was_; }
  void forget_origins() { was_.clear(); }

  mxs_comm *comm() const { return comm_.get(); }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  void barrier() const {
    if (comm_) check(mxs_comm_barrier(comm_.get(), nullptr), "mxs_comm_barrier");
  }
  void tell_phase(int phase) const {
    if (comm_) check(mxs_comm_phase(comm_.get(), phase), "mxs_comm_phase");
  }
  void sum(std::vector<double> *values) const {
    if (comm_) check(mxs_comm_sum(comm_.get(), values->data(), values->size(), nullptr), "mxs_comm_sum");
  }
  // Every rank's value, in rank order. A sum with zeros is exact.
  std::vector<double> from_all(double value) const {
    std::vector<double> values(ranks_);
    values[rank_] = value;
    sum(&values);
    return values;
  }
  double worst(double value) const {
    const std::vector<double> values = from_all(value);
    return *std::max_element(values.begin(), values.end());
  }

 private:
  CommOwner comm_;
  int rank_ = 0, ranks_ = 1;
  std::vector<int32_t> was_;
};

void refuse_bad_use(const Options &options, const World &world) {
  if (world.ranks() > 64) throw std::runtime_error("mxs-train runs on at most 64 ranks");
  if (options.micro_batches % world.ranks() != 0 && options.placement != "owner")
    throw std::runtime_error(std::to_string(world.ranks()) + " ranks don't divide --micro-batches " +
                             std::to_string(options.micro_batches) + ": choose either so that each rank takes as many");
  if (world.rank() > 0) return;
  for (const std::string &path : {options.json_path, options.weights_path})  // not after minutes of training
    if (!path.empty() && !std::ofstream(path, std::ios::app)) throw std::runtime_error("cannot write " + path);
}

std::vector<mxs_memory> memory_of_all(const World &world, const mxs_memory &mine) {
  std::vector<mxs_memory> all(world.ranks(), mxs_memory MXS_MEMORY_INIT);
  constexpr uint64_t mxs_memory::*columns[] = {
      &mxs_memory::weights, &mxs_memory::masters, &mxs_memory::gradients, &mxs_memory::state,
      &mxs_memory::slack, &mxs_memory::rest, &mxs_memory::slots, &mxs_memory::gradient_slots,
      &mxs_memory::workspace, &mxs_memory::backup, &mxs_memory::peak};
  for (auto column : columns) {
    const std::vector<double> values = world.from_all(static_cast<double>(mine.*column));
    for (int rank = 0; rank < world.ranks(); ++rank) all[rank].*column = static_cast<uint64_t>(values[rank]);
  }
  return all;
}

// Bytes that left this rank for others' weights, gradients or updates during optimizer steps so far.
double bytes_sent_in_steps(const World &world) {
  if (world.comm() == nullptr) return 0;
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  check(mxs_comm_query_stats(world.comm(), &stats), "mxs_comm_query_stats");
  double bytes = 0;
  for (int kind : {MXS_GATHER, MXS_REDUCE, MXS_RESHARD})
    bytes += static_cast<double>(stats.counters[kind][MXS_PHASE_STEP].bytes_out);
  return bytes;
}

// A preset's own momentum, betas and epsilon; of no preset, those of the rule.
mxs_group_values matrix_values(const Options &options) {
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_preset preset = options.placing.preset;
  if (preset == MXS_PRESET_DEFAULT && options.shape.matrix_rule == MXS_RULE_SHAMPOO) preset = MXS_PRESET_SHAMPOO;
  if (preset == MXS_PRESET_DEFAULT && options.shape.matrix_rule == MXS_RULE_SOAP) preset = MXS_PRESET_SOAP;
  if (preset != MXS_PRESET_DEFAULT) check(mxs_preset_values(preset, &values), "mxs_preset_values");
  values.lr = matrix_lr(options);
  values.weight_decay = options.weight_decay;
  return values;
}

class Run {
 public:
  Run(const Options &options, World &world)
      : options_(options), world_(world), first_rank_(world.rank()), model_(make_model(options.shape)),
        text_(read_text(options.text_path, static_cast<size_t>(options.shape.context) + 2)),
        network_(model_, world.comm(), options.placing.thread_count) {
    groups_[0] = matrix_values(options);
    groups_[1] = MXS_GROUP_VALUES_INIT;
    groups_[1].lr = options.adamw_lr;
    groups_[1].weight_decay = options.weight_decay;
    figures_.text_bytes = text_.size();
    figures_.product_dtype = network_.product_dtype();
    for (const Piece &piece : whole_pieces(model_)) {
      figures_.parameters += piece.count();
      if (!model_.tensors[piece.tensor].is_matrix()) continue;
      ++figures_.matrices;
      figures_.matrix_parameters += piece.count();
    }
    create_placement();
    checkpoints_ = std::make_unique<Checkpoints>(options, placement_->trained());
    position_ = checkpoints_->resume();
    figures_.first_step = position_.steps;
    note_position();
  }

  void train() {
    std::optional<Progress> progress;
    progress.emplace(options_.placement, options_.steps, world_.rank() == 0 && !options_.quiet);
    if (!position_.from.empty())
      progress->say("goes on from " + position_.from + ", after step " + std::to_string(position_.steps));
    while (position_.steps < static_cast<uint64_t>(options_.steps)) {
      try {
        one_step(position_.steps);
        ++position_.steps;
        note_position();
        progress->show(static_cast<int64_t>(position_.steps), figures_.losses.back());
        checkpoints_->after_step(position_);
      } catch (const Failure &failure) {
        go_on(failure);
        progress.emplace(options_.placement, options_.steps, world_.rank() == 0 && !options_.quiet);
        progress->say("goes on with " + std::to_string(world_.ranks()) + " ranks, after step " +
                      std::to_string(position_.steps) + ": " + failure.what());
      }
    }
    checkpoints_->finish();
    figures_.ranks = world_.ranks();
    if (!options_.checkpoints.path.empty())
      progress->say("step " + std::to_string(position_.steps) + " is saved in " + options_.checkpoints.path);
    figures_.skipped_steps = position_.skipped_steps;
    figures_.by_rank.step_matrix_bytes =
        world_.from_all(bytes_sent_in_steps(world_) / static_cast<double>(figures_.losses.size()));
    const Costs costs = meter_.costs();
    for (size_t cost = 0; cost < cost_count; ++cost) figures_.by_rank.costs[cost] = world_.from_all(costs[cost]);
    figures_.activation_bytes = network_.activation_bytes();
    figures_.weights_hash = hash_weights(model_, world_.comm(), placement_.get());
    if (!options_.weights_path.empty()) save_weights(options_.weights_path, model_, world_.comm(), placement_.get());
  }

  const RunFigures &figures() const { return figures_; }

 private:
  // oneDNN compiles its kernels on first use, and keeps them: they are no memory of a placement's.
  void compile_kernels() {
    Stepper stepper(model_, nullptr, options_.placing);
    stepper.prepare(whole_pieces(model_));
    if (options_.shape.matrix_rule == MXS_RULE_MUON)
      stepper.prepare_slices(matrix_shapes(model_, whole_pieces(model_)));
    figures_.newton_schulz_steps = stepper.newton_schulz_steps();
    malloc_trim(0);
  }

  // With what it takes: Pss before and after, each when all ranks have come so far.
  void create_placement() {
    compile_kernels();
    world_.barrier();
    const uint64_t before = pss_bytes();
    world_.barrier();
    placement_ = make_placement(options_.placement, model_, world_.comm(), options_.placing);
    make_mortal_if_asked();
    world_.barrier();
    const uint64_t after = pss_bytes();
    world_.barrier();
    figures_.by_rank.pss_bytes = world_.from_all(static_cast<double>(after) - static_cast<double>(before));
    tell_memory();
  }

  void tell_memory() {
    figures_.by_rank.predicted = memory_of_all(world_, placement_->predicted());
    figures_.by_rank.counted = memory_of_all(world_, placement_->counted());
  }

  // ---- ranks that die ----

  void make_mortal_if_asked() {
    const auto is_own = [&](const Options::Death &death) { return death.rank == first_rank_; };
    if (std::none_of(options_.deaths.begin(), options_.deaths.end(), is_own)) return;
    std::unique_ptr<Mortal> mortal = make_mortal(std::move(placement_));
    mortal_ = mortal.get();
    placement_ = std::move(mortal);
  }

  // Steps that were skipped don't count for the optimizer, which tells where a recovery has gone back to.
  void note_position() {
    if (!options_.placing.backup) return;
    positions_.emplace(mxs_optimizer_step_number(placement_->trained().optimizer), position_);
  }

  // Where this rank is once the optimizer has counted the step that begins now. A recovery may take it for done though
  // this rank heard of a death before it had left the step.
  void note_next_position() {
    if (!options_.placing.backup) return;
    Position next = position_;
    ++next.steps;
    positions_.insert_or_assign(mxs_optimizer_step_number(placement_->trained().optimizer) + 1, next);
  }

  // The ranks that are left go on from what they have, and from what they keep of those that are gone. What fails here
  // in turn, another death say, is tried again with whoever is left then.
  void go_on(const Failure &failure) {
    const auto begin = Clock::now();
    if (!options_.placing.backup) throw failure;
    const int ranks_before = world_.ranks();
    for (bool done = false; !done;) {
      const mxs_recovery recovery = recover();
      try {
        take_up(recovery);
        done = true;
      } catch (const Failure &again) {
        if (again.status != MXS_PEER_FAILED) throw;
      }
    }
    figures_.restarts.push_back({position_.steps, world_.ranks(), ranks_before - world_.ranks(),
                                 std::chrono::duration<double>(Clock::now() - begin).count()});
  }

  mxs_recovery recover() {
    checkpoints_.reset();  // ends saves that are under way
    mxs_recovery recovery = MXS_RECOVERY_INIT;
    std::vector<CommOwner> old_comms;
    std::unique_ptr<Placement> next;
    while (!next) {
      old_comms.push_back(world_.shrink());
      try {
        next = placement_->go_on(world_.comm(), world_.origins(), &recovery);
      } catch (const Failure &again) {
        if (again.status == MXS_NOT_FOUND || again.status == MXS_MISMATCH) throw;  // no comm will help
      }
    }
    placement_ = std::move(next);
    make_mortal_if_asked();
    while (!old_comms.empty()) old_comms.pop_back();
    world_.forget_origins();
    network_.use(world_.comm());
    return recovery;
  }

  void take_up(const mxs_recovery &recovery) {
    checkpoints_ = std::make_unique<Checkpoints>(options_, placement_->trained());
    go_back_to(positions_.at(recovery.step_number));
    tell_memory();
  }

  // Losses of a step that was done have been heard by all; its times maybe by some, or by none: then they are 0.
  void go_back_to(const Position &position) {
    position_ = position;
    const size_t count = static_cast<size_t>(position.steps - figures_.first_step);
    for (std::vector<double> *list : {&figures_.losses, &figures_.step_ms, &figures_.optimizer_ms}) {
      const double had = static_cast<double>(std::min(list->size(), count));
      const std::vector<double> all_had = world_.from_all(had);
      list->resize(count);
      const std::vector<double> last = world_.from_all(count > 0 ? list->back() : 0);
      for (size_t rank = 0; rank < all_had.size() && count > 0; ++rank)
        if (all_had[rank] == static_cast<double>(count)) list->back() = last[rank];
    }
    positions_.erase(positions_.upper_bound(mxs_optimizer_step_number(placement_->trained().optimizer)),
                     positions_.end());
  }

  void maybe_die(uint64_t step_number) {
    for (const Options::Death &death : options_.deaths)
      if (death.rank == first_rank_ && static_cast<uint64_t>(death.step) == step_number + 1)
        mortal_->arm(static_cast<Moment>(mix(options_.placing.seed, step_number) % 3));
  }

  void one_step(uint64_t step_number) {
    meter_.begin_step(world_.comm());
    const auto begin = Clock::now();
    maybe_die(step_number);
    std::vector<double> losses(options_.micro_batches);
    for (int64_t first = 0; first < options_.micro_batches; first += world_.ranks()) {
      const int64_t j = first + world_.rank();
      const bool counts = j < options_.micro_batches;
      take_batch(text_, options_.placing.seed, step_number, static_cast<uint64_t>(j), options_.shape.sequences,
                 options_.shape.context, &batch_);
      placement_->count_gradients(counts);
      const double loss = network_.train(batch_, placement_.get());
      if (counts) losses[j] = loss;
    }
    world_.tell_phase(MXS_PHASE_BACKWARD);
    placement_->finish_gradients();
    world_.tell_phase(MXS_PHASE_OTHER);
    record_loss(std::move(losses));
    note_next_position();
    world_.barrier();
    meter_.begin_optimizer();
    const auto middle = Clock::now();
    mxs_step step = MXS_STEP_INIT;
    step.groups = groups_;
    step.group_count = 2;
    step.gradient_scale = 1.0f / static_cast<float>(options_.micro_batches);
    step.clip_norm = options_.clip_norm;
    world_.tell_phase(MXS_PHASE_STEP);
    position_.skipped_steps += placement_->step(step).skipped;
    world_.tell_phase(MXS_PHASE_OTHER);
    const auto end = Clock::now();
    meter_.end_step();
    const double worst_step_ms = world_.worst(milliseconds(begin, end));
    const double worst_optimizer_ms = world_.worst(milliseconds(middle, end));
    figures_.step_ms.push_back(worst_step_ms);
    figures_.optimizer_ms.push_back(worst_optimizer_ms);
  }

  // The sum over ranks only brings zeros, so the mean is formed in the order of the micro-batches, for every world.
  // Before the step, so that whoever has done the step knows it.
  void record_loss(std::vector<double> losses) {
    world_.sum(&losses);
    double total = 0;
    for (double loss : losses) total += loss;
    figures_.losses.push_back(total / static_cast<double>(losses.size()));
  }

  const Options &options_;
  World &world_;
  const int first_rank_;  // at the start
  const Model model_;
  const std::vector<uint8_t> text_;
  Network network_;
  Batch batch_;
  std::unique_ptr<Placement> placement_;
  std::unique_ptr<Checkpoints> checkpoints_;  // after the placement: its saves end before the units do
  Meter meter_;
  Position position_;
  std::map<uint64_t, Position> positions_;  // by the optimizer's step number
  Mortal *mortal_ = nullptr;                // placement_, if this rank is to die
  mxs_group_values groups_[2];
  RunFigures figures_;
};

void run(const Options &options) {
  World world(options);
  refuse_bad_use(options, world);
  Run run(options, world);
  run.train();
  if (world.rank() != 0) return;
  if (!options.json_path.empty()) write_json(options.json_path, options, run.figures());
  if (!options.quiet) print_summary(options, run.figures());
}

// One complaint is enough for a mistake that all ranks make alike.
bool first_rank() {
  const char *rank = std::getenv("RANK");
  return rank == nullptr || std::strcmp(rank, "0") == 0;
}

}  // namespace
}  // namespace train

int main(int argument_count, char **arguments) {
  train::Options options;
  try {
    options = train::read_options(argument_count, arguments);
    if (options.help) {
      if (train::first_rank()) std::fputs(train::help_text().c_str(), stdout);
      return 0;
    }
    train::make_model(options.shape);
    if (options.check) return 0;
  } catch (const std::exception &error) {
    if (train::first_rank()) std::fprintf(stderr, "mxs-train: %s\n", error.what());
    return 2;
  }
  try {
    train::run(options);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "mxs-train: %s\n", error.what());
    return 1;
  }
  return 0;
}
