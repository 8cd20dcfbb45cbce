// SPDX-License-Identifier: Apache-2.0
// checkpoint: a model with its optimizer's state saved and loaded, in turns with dd of as many bytes in that folder.
//
//   save   mxs_checkpoint_save, of all ranks: on disk, renamed
//   load   mxs_checkpoint_load into weights that were overwritten, with the files out of the page cache
//   dd     rank 0's, while the others wait: blocks of 8 MiB, conv=fsync; direct, and through the page cache
//
// Weights and state are those after a step. After each load every rank compares its weights' hash with the one before.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "bench/commands.hpp"
#include "bench/disk.hpp"
#include "bench/model.hpp"
#include "bench/report.hpp"
#include "bench/values.hpp"

namespace bench {

namespace {

constexpr char checkpoint_name[] = "step-00000001";

class Saver {
 public:
  Saver(const Ranks &ranks, const Options &options);

  void save(const std::string &folder);
  void load(const std::string &folder);
  void overwrite();
  uint64_t hash();  // of the weights that this rank owns
  uint64_t element_count() const { return model_.element_count; }

 private:
  template <class Body>
  void each_shard(Body &&with_view);
  void step();
  std::vector<mxs_unit *> handles() const;

  const Ranks &ranks_;
  Model model_;
  mxs::topology topology_;
  mxs::plan plan_;
  std::vector<mxs::unit> units_;
  mxs::optimizer optimizer_;
};

Saver::Saver(const Ranks &ranks, const Options &options) : ranks_(ranks), model_(make_model(options)) {
  topology_ = mxs::topology_of(ranks.comm());
  plan_ = mxs::make_plan(model_.tensors, topology_);
  for (int index = 0; index < model_.unit_count; index++)
    units_.push_back(mxs::make_unit(ranks.comm(), plan_, index));
  mxs_optimizer_options optimizer = MXS_OPTIMIZER_OPTIONS_INIT;
  optimizer.thread_count = options.threads;
  optimizer_ = mxs::make_optimizer(units_, &optimizer);
  each_shard([&](mxs_view *view, uint64_t index) {
    const uint64_t element_bytes = mxs_dtype_bytes(view->dtype);
    fill_term(view->data, {index * 1'000'003, view->bytes / element_bytes, element_bytes}, view->dtype, 0, 0);
  });
  step();
}

template <class Body>
void Saver::each_shard(Body &&with_view) {
  for (uint64_t index = 0; index < mxs_plan_placement_count(plan_.get()); index++) {
    mxs_placement placement = MXS_PLACEMENT_INIT;
    mxs::check(mxs_plan_placement(plan_.get(), index, &placement));
    if (placement.owner != ranks_.rank()) continue;
    mxs_unit *const unit = units_[static_cast<size_t>(placement.unit)].get();
    mxs_view view = MXS_VIEW_INIT;
    mxs::check(mxs_unit_shard(unit, index, &view));
    with_view(&view, index);
    mxs::check(mxs_unit_commit(unit, &view));
  }
  ranks_.barrier();
}

// Gradients of any values, so that state is no zeros.
void Saver::step() {
  for (uint64_t tensor = model_.tensors.size(); tensor-- > 0;) {
    const mxs_tensor &given = model_.tensors[tensor];
    if (given.rule == MXS_RULE_FROZEN) continue;
    mxs_view view = MXS_VIEW_INIT;
    mxs::check(mxs_unit_gradient(units_[static_cast<size_t>(given.unit)].get(), static_cast<int32_t>(tensor), MXS_WRITE,
                                 &view));
    const uint64_t element_bytes = mxs_dtype_bytes(view.dtype);
    fill_term(view.data, {tensor * 1'000'003, view.bytes / element_bytes, element_bytes}, view.dtype, ranks_.rank(), 1);
    if (tensor > 0 && model_.tensors[tensor - 1].unit == given.unit) continue;
    mxs::check(mxs_unit_reduce(units_[static_cast<size_t>(given.unit)].get(), nullptr));
    mxs::check(mxs_unit_wait_reduce(units_[static_cast<size_t>(given.unit)].get(), nullptr));
  }
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_step step = MXS_STEP_INIT;
  step.groups = &values;
  step.group_count = 1;
  mxs::check(mxs_optimizer_step(optimizer_.get(), &step, nullptr));
}

std::vector<mxs_unit *> Saver::handles() const {
  std::vector<mxs_unit *> list;
  for (const mxs::unit &unit : units_) list.push_back(unit.get());
  return list;
}

void Saver::save(const std::string &folder) {
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.name = checkpoint_name;
  mxs::check(mxs_checkpoint_save(folder.c_str(), handles().data(), units_.size(), optimizer_.get(), &options));
}

void Saver::load(const std::string &folder) {
  const mxs::checkpoint checkpoint = mxs::open_checkpoint((folder + "/" + checkpoint_name).c_str());
  mxs::check(mxs_checkpoint_load(checkpoint.get(), handles().data(), units_.size(), optimizer_.get(), nullptr));
}

void Saver::overwrite() {
  each_shard([](mxs_view *view, uint64_t) { std::memset(view->data, 0, view->bytes); });
}

// FNV-1a of 8 bytes at a time.
uint64_t Saver::hash() {
  uint64_t hash = 0xcbf29ce484222325u;
  each_shard([&](mxs_view *view, uint64_t) {
    const auto *bytes = static_cast<const unsigned char *>(view->data);
    for (uint64_t i = 0; i < view->bytes; i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + i, std::min<uint64_t>(sizeof word, view->bytes - i));
      hash = (hash ^ word) * 0x100000001b3u;
    }
  });
  return hash;
}

// One rank's folder, known to all, removed by that rank.
class SharedFolder {
 public:
  SharedFolder(const Ranks &ranks, const std::string &where) : ranks_(ranks) {
    std::string name = where + "/mxs-perf-XXXXXX";
    double letters[6] = {};
    if (ranks.is_first() && mkdtemp(name.data()))
      for (size_t i = 0; i < 6; i++) letters[i] = name[name.size() - 6 + i];
    for (size_t i = 0; i < 6; i++) name[name.size() - 6 + i] = static_cast<char>(ranks.largest(letters[i]));
    if (name.back() == '\0') throw mxs::error(MXS_SYSTEM, fmt::format("no folder can be made in {}", where));
    path_ = name;
  }
  ~SharedFolder() {
    std::error_code ignored;
    if (ranks_.is_first()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string &path() const { return path_; }

 private:
  const Ranks &ranks_;
  std::string path_;
};

// Milliseconds of turns, of the slowest rank.
struct Part {
  const char *name;
  std::vector<double> ours, direct, cached;
  double memory_mib = 0;  // beyond the model, of the rank with most
};

struct Measurement {
  Part save = {"save", {}, {}, {}, 0}, load = {"load", {}, {}, {}, 0};
  uint64_t bytes = 0, wrong = 0;  // wrong: ranks, over turns; equal on all ranks, as bytes are
};

template <class Body>
void time_ours(const Ranks &ranks, Part *part, Body &&body) {
  MemoryPeak peak;
  peak.restart();
  ranks.barrier();
  const double start = now_us();
  body();
  part->ours.push_back(ranks.largest((now_us() - start) * 1e-3));
  part->memory_mib = std::max(part->memory_mib, ranks.largest(peak.mib()));
}

void save_and_load(const Ranks &ranks, const Options &options, const std::string &folder, Saver *saver,
                   Measurement *measured) {
  const uint64_t hash = saver->hash();
  time_ours(ranks, &measured->save, [&] { saver->save(folder); });
  saver->overwrite();
  measured->bytes = bytes_of_files(folder + "/" + checkpoint_name);
  if (ranks.is_first()) forget_cached(folder);
  time_ours(ranks, &measured->load, [&] { saver->load(folder); });
  if (options.plant_fault && ranks.is_first()) saver->overwrite();
  else if (options.plant_fault) ranks.barrier();
  const bool differs = saver->hash() != hash;
  const std::vector<double> all = ranks.share(differs ? 1.0 : 0.0);
  measured->wrong += static_cast<uint64_t>(std::accumulate(all.begin(), all.end(), 0.0));
}

void dd_beside(const Ranks &ranks, const std::string &folder, Measurement *measured) {
  if (ranks.is_first()) {
    const DdFile file(folder, measured->bytes);
    // Of whole blocks; as if it were of as many bytes as ours.
    const double part = static_cast<double>(measured->bytes) / static_cast<double>(file.bytes());
    measured->save.cached.push_back(file.write(Way::cached) * part);
    measured->save.direct.push_back(file.write(Way::direct) * part);
    measured->load.direct.push_back(file.read(Way::direct) * part);
    measured->load.cached.push_back(file.read(Way::cached) * part);
  }
  ranks.barrier();
}

// By how much ours is faster: the median over turns of the ratio in each.
double ratio(const std::vector<double> &peer_ms, const std::vector<double> &our_ms) {
  std::vector<double> ratios;
  for (size_t i = 0; i < our_ms.size(); i++) ratios.push_back(peer_ms[i] / our_ms[i]);
  return median(ratios);
}

void print_line(const char *name, const std::vector<double> &turns_ms, uint64_t bytes, const std::string &rest) {
  fmt::print("{:>24} {:>12.1f} {:>12.1f} {:>12.1f} {:>8.3f} {}\n", name, median(turns_ms),
             *std::min_element(turns_ms.begin(), turns_ms.end()), *std::max_element(turns_ms.begin(), turns_ms.end()),
             static_cast<double>(bytes) / median(turns_ms) * 1e-6, rest);
}

void print_part(const Part &part, uint64_t bytes) {
  const std::string memory = part.memory_mib < 0 ? "n/a" : fmt::format("{:.1f} MiB", part.memory_mib);
  print_line(part.name, part.ours, bytes,
             fmt::format("{:>8.2f} {:>8.2f} {:>12}", ratio(part.direct, part.ours), ratio(part.cached, part.ours),
                         memory));
  print_line("dd, direct", part.direct, bytes, "");
  print_line("dd, page cache", part.cached, bytes, "");
}

std::string times_of_json(const std::vector<double> &turns_ms) {
  return fmt::format("{{\"min\": {:.3f}, \"median\": {:.3f}, \"max\": {:.3f}}}",
                     *std::min_element(turns_ms.begin(), turns_ms.end()), median(turns_ms),
                     *std::max_element(turns_ms.begin(), turns_ms.end()));
}

std::string line_of_json(const Ranks &ranks, const Options &options, const Saver &saver, const Measurement &measured,
                         const Part &part) {
  const std::string memory = part.memory_mib < 0 ? "null" : fmt::format("{:.3f}", part.memory_mib);
  return fmt::format(
      "{{\"operation\": \"checkpoint\", \"part\": {}, \"units\": {}, \"shapes\": {}, \"dtype\": {}, \"elements\": {}, "
      "\"bytes\": {}, \"ranks\": {}, \"nodes\": {}, \"time_ms\": {}, \"dd_direct_ms\": {}, \"dd_cached_ms\": {}, "
      "\"of_dd_direct\": {:.4f}, \"of_dd_cached\": {:.4f}, \"memory_mib\": {}, \"wrong\": {}}}",
      quoted(part.name), options.units, quoted(options.shapes), quoted(mxs_dtype_name(options.dtype)),
      saver.element_count(), measured.bytes, ranks.count(), ranks.info().node_count, times_of_json(part.ours),
      times_of_json(part.direct), times_of_json(part.cached), ratio(part.direct, part.ours),
      ratio(part.cached, part.ours), memory, measured.wrong);
}

}  // namespace

int checkpoint(const Options &options) {
  Ranks ranks(options);
  JsonFile json(ranks.is_first() ? options.json : "");
  const SharedFolder folder(ranks, options.folder);
  Saver saver(ranks, options);
  ranks.print_header(fmt::format("checkpoint: {} units of {} in {}; {} elements; in {}; {} turns after {}",
                                 options.units, options.shapes, mxs_dtype_name(options.dtype), saver.element_count(),
                                 options.folder, options.iterations, options.warmups));
  Measurement warm, measured;
  for (int turn = -options.warmups; turn < options.iterations; turn++) {
    Measurement *const into = turn < 0 ? &warm : &measured;
    into->bytes = std::max(into->bytes, warm.bytes);
    const bool dd_first = turn % 2 != 0 && into->bytes > 0;
    if (dd_first) dd_beside(ranks, folder.path(), into);
    save_and_load(ranks, options, folder.path(), &saver, into);
    if (!dd_first) dd_beside(ranks, folder.path(), into);
  }
  const bool wrong = measured.wrong + warm.wrong > 0;
  if (!ranks.is_first()) return ranks.end(wrong);
  fmt::print("# {} bytes in files\n#\n# {:>22} {:>12} {:>12} {:>12} {:>8} {:>8} {:>8} {:>12}\n", measured.bytes, "part",
             "median (ms)", "least", "most", "GB/s", "of dd", "cached", "memory above");
  for (const Part *part : {&measured.save, &measured.load}) {
    print_part(*part, measured.bytes);
    json.write_line(line_of_json(ranks, options, saver, measured, *part));
  }
  fmt::print("# ranks with other weights after a load: {} {}\n", measured.wrong + warm.wrong, wrong ? "FAILED" : "OK");
  return ranks.end(wrong);
}

}  // namespace bench
