// SPDX-License-Identifier: Apache-2.0
// gather, reduce and allreduce: for each size every contender in each form, taking turns.
//
// In a turn every contender runs once, a barrier before it; who begins changes from turn to turn. So what else the
// machine does meanwhile hits all alike. Checked turns stand before and after the timed ones.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bench/commands.hpp"
#include "bench/job.hpp"
#include "bench/report.hpp"
#include "cli/layout_words.hpp"

namespace bench {

namespace {

struct Entry {
  std::unique_ptr<Contender> contender;
  std::vector<double> times_us[2];  // by form, of this rank
  uint64_t wrong[2] = {0, 0};
};

class Measurement {
 public:
  Measurement(Ranks &ranks, const Options &options, Job &job) : ranks_(ranks), options_(options), job_(job) {
    add_contenders();
  }

  std::vector<Row> run() {
    for (const Form form : options_.forms) run(form);
    std::vector<Row> rows;
    for (Entry &entry : entries_) rows.push_back(row_of(entry));
    return rows;
  }

 private:
  void add_contenders();
  void add(std::unique_ptr<Contender> contender) {
    entries_.emplace_back();
    entries_.back().contender = std::move(contender);
  }
  void try_algorithm(const std::string &name);
  void run(Form form);
  void check_turn(Form form);
  void turn(Form form, size_t first, bool timed);
  Row row_of(Entry &entry);
  std::optional<Times> times_of(Entry &entry, Form form);

  Ranks &ranks_;
  const Options &options_;
  Job &job_;
  std::vector<Entry> entries_;
  std::string chosen_;
  int turn_number_ = 0;
};

void Measurement::add_contenders() {
  if (options_.compare.empty()) {
    add(job_.make(options_.algorithm));
    if (options_.algorithm.empty()) chosen_ = entries_.back().contender->name();
  } else {
    chosen_ = job_.make("")->name();
    if (options_.compare == std::vector<std::string>{"all"})
      for (const std::string &name : known_algorithms()) try_algorithm(name);
    else
      for (const std::string &name : options_.compare) add(job_.make(name));
  }
  if (options_.peers) add(job_.make_peer());
}

// One that there is not, or that doesn't take this memory, is no contender. Every rank comes to the same answer.
void Measurement::try_algorithm(const std::string &name) {
  try {
    auto contender = job_.make(name);
    const Form form = contender->has(options_.forms[0]) ? options_.forms[0] : Form::out_of_place;
    job_.prepare(form, 0);
    contender->run(form);
    for (const Entry &other : entries_)
      if (other.contender->name() == contender->name()) return;  // two names of one thing
    add(std::move(contender));
  } catch (const mxs::error &error) {
    if (!shows_absence(error.status())) throw;
  }
}

void Measurement::run(Form form) {
  if (options_.check > 0) check_turn(form);
  else job_.prepare(form, ++turn_number_);  // numbers that can be added
  const auto count = entries_.size();
  for (int turn_index = -options_.warmups; turn_index < options_.iterations; turn_index++)
    turn(form, static_cast<size_t>(turn_index + options_.warmups) % count, turn_index >= 0);
  if (options_.check > 0) check_turn(form);
}

void Measurement::check_turn(Form form) {
  for (Entry &entry : entries_) {
    if (entry.contender->is_peer() || !entry.contender->has(form)) continue;
    job_.prepare(form, ++turn_number_);
    entry.contender->run(form);
    if (options_.plant_fault && ranks_.is_first()) job_.damage(form);
    entry.wrong[static_cast<int>(form)] += job_.count_wrong(form, turn_number_);
  }
}

void Measurement::turn(Form form, size_t first, bool timed) {
  for (size_t i = 0; i < entries_.size(); i++) {
    Entry &entry = entries_[(first + i) % entries_.size()];
    if (!entry.contender->has(form)) continue;
    const bool checked = timed && options_.check == 2 && !entry.contender->is_peer();
    if (checked) job_.prepare(form, ++turn_number_);
    ranks_.barrier();
    const double start = now_us();
    entry.contender->run(form);
    // A peer waits for nobody. With more ranks than cores, one that gets a core late would start its clock late, too,
    // and nobody's time would be that of all the work.
    if (entry.contender->is_peer()) ranks_.barrier();
    const double time = now_us() - start;
    if (timed) entry.times_us[static_cast<int>(form)].push_back(time);
    if (checked) entry.wrong[static_cast<int>(form)] += job_.count_wrong(form, turn_number_);
  }
}

std::optional<Times> Measurement::times_of(Entry &entry, Form form) {
  const auto index = static_cast<int>(form);
  const std::vector<double> &mine = entry.times_us[index];
  if (mine.empty()) return {};
  const std::vector<std::vector<double>> all = ranks_.share(mine);
  std::vector<double> turns;
  for (size_t turn = 0; turn < mine.size(); turn++) {
    std::vector<double> ranks;
    for (const std::vector<double> &one : all) ranks.push_back(one[turn]);
    const double sum = std::accumulate(ranks.begin(), ranks.end(), 0.0);
    turns.push_back(options_.over_ranks == "rank0" ? ranks[0]
                    : options_.over_ranks == "avg" ? sum / static_cast<double>(ranks.size())
                    : options_.over_ranks == "min" ? *std::min_element(ranks.begin(), ranks.end())
                                                   : *std::max_element(ranks.begin(), ranks.end()));
  }
  Times times;
  times.least = *std::min_element(turns.begin(), turns.end());
  times.median = median(turns);
  times.most = *std::max_element(turns.begin(), turns.end());
  std::vector<double> medians;
  for (const std::vector<double> &one : all) medians.push_back(median(one));
  times.rank_least = *std::min_element(medians.begin(), medians.end());
  times.rank_mean = std::accumulate(medians.begin(), medians.end(), 0.0) / static_cast<double>(medians.size());
  times.rank_most = *std::max_element(medians.begin(), medians.end());
  if (options_.check > 0 && !entry.contender->is_peer()) {
    const std::vector<double> wrong = ranks_.share(static_cast<double>(entry.wrong[index]));
    times.wrong = static_cast<uint64_t>(std::accumulate(wrong.begin(), wrong.end(), 0.0));
  }
  return times;
}

Row Measurement::row_of(Entry &entry) {
  Row row;
  row.bytes = job_.bytes();
  row.count = job_.count();
  row.owners = job_.owner_count();
  row.algorithm = entry.contender->name();
  row.peer = entry.contender->is_peer();
  row.chosen = !row.peer && row.algorithm == chosen_;
  row.busiest_bytes = job_.busiest_bytes();
  row.info = entry.contender->describe();
  row.routes = row.info.routes ? row.info.routes : "";
  row.reason = row.info.reason ? row.info.reason : "";
  row.info.routes = row.info.reason = row.info.algorithm = row.info.transports =
      nullptr;  // don't outlive the contender
  // In one node memory is the bound, and measured; between nodes the cost model's, by the speeds that the comm knows.
  row.bound_us = ranks_.info().node_count == 1
                     ? ranks_.largest(static_cast<double>(row.info.bytes_in_least)) / ranks_.copy_rate()
                     : static_cast<double>(row.info.bound_ns) * 1e-3;
  row.predicted_us = static_cast<double>(row.info.predicted_ns) * 1e-3;
  row.out_of_place = times_of(entry, Form::out_of_place);
  row.in_place = times_of(entry, Form::in_place);
  return row;
}

std::unique_ptr<Job> make_job(Ranks &ranks, const Options &options, uint64_t bytes) {
  if (options.command == Command::gather) return make_gather(ranks, options, bytes);
  if (options.command == Command::reduce) return make_reduce(ranks, options, bytes);
  return make_allreduce(ranks, options, bytes);
}

std::string title(const Options &options) {
  std::string text = fmt::format("{}, layout {}, {} memory", command_name(options.command), options.layout,
                                 options.heap ? "heap" : "mapped");
  if (options.rank_order) text += ", in rank order";
  if (options.accumulate) text += ", accumulating";
  return text + fmt::format(", {} turns after {}, medians of the turns, {} over ranks", options.iterations,
                            options.warmups, options.over_ranks);
}

// A file says its own size, whatever -b and -e are.
bool has_own_size(const std::string &layout) {
  return layout != "even" && layout != "one" && !layout.starts_with("k:") && !layout.starts_with("zipf:");
}

struct Totals {
  uint64_t wrong = 0;
  double busbw = 0;
  int count = 0;
  void add(const Row &row) {
    for (const auto &times : {row.out_of_place, row.in_place}) {
      if (!times || row.peer) continue;
      wrong += times->wrong.value_or(0);
      if (times->median > 0) busbw += row.busiest_bytes / times->median * 1e-3;
      count++;
    }
  }
};

}  // namespace

int sweep(const Options &given) {
  Options options = given;
  if (options.command == Command::reduce) options.forms = {Form::out_of_place};
  Ranks ranks(options);
  JsonFile json(ranks.is_first() ? options.json : "");
  std::vector<uint64_t> list = sizes(options);
  if (has_own_size(options.layout)) list.resize(1);
  make_job(ranks, options, list[0]);  // words that are wrong are told before the table begins
  ranks.print_header(title(options));
  const Setting setting{options, ranks.count(), ranks.info().node_count, ranks.info().transports, ranks.copy_rate()};
  if (ranks.is_first()) print_titles(setting);
  Totals totals;
  for (const uint64_t bytes : list) {
    const auto job = make_job(ranks, options, bytes);
    for (const Row &row : Measurement(ranks, options, *job).run()) {
      totals.add(row);
      if (!ranks.is_first()) continue;
      print_row(setting, row);
      write_row(setting, row, &json);
    }
  }
  if (ranks.is_first())
    fmt::print("# wrong values: {}\n# average busbw: {:.3f} GB/s\n",
               options.check ? fmt::format("{} {}", totals.wrong, totals.wrong ? "FAILED" : "OK") : "not checked",
               totals.count ? totals.busbw / totals.count : 0);
  return ranks.end(totals.wrong > 0);
}

}  // namespace bench
