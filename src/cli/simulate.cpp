// SPDX-License-Identifier: Apache-2.0
// mxs simulate: what a collective would take on a topology that needn't exist, by each algorithm.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "cli/algorithm_names.hpp"
#include "cli/commands.hpp"
#include "cli/json_text.hpp"
#include "cli/layout_words.hpp"
#include "cli/read_topology.hpp"
#include "matrixshard/matrixshard.hpp"

namespace mxs_cli {

namespace {

struct Settings {
  std::string topology, layout = "even", algorithm = "all";
  uint64_t bytes = uint64_t{16} << 20, chunk_bytes = 0;
  double add_rate = 0;  // GB/s
  int kind = MXS_GATHER, window = 0;
  mxs_dtype dtype = MXS_F32;
  bool rank_order = false, json = false;
};

struct Row {
  std::string algorithm, note;  // note: why there is no time, or that it is a formula
  bool chosen = false, formula = false, failed = false;
  mxs_simulation result = MXS_SIMULATION_INIT;
};

std::string read_dtype(const std::string &word, mxs_dtype *dtype) {
  for (const mxs_dtype each : {MXS_F32, MXS_BF16, MXS_F16})
    if (word == mxs_dtype_name(each)) {
      *dtype = each;
      return "";
    }
  return "--dtype \"" + word + "\" is not one of " + mxs_dtype_name(MXS_F32) + ", " + mxs_dtype_name(MXS_BF16) + ", " +
         mxs_dtype_name(MXS_F16);
}

std::string read_option(const std::string &name, const std::string &value, Settings *settings) {
  if (name == "--topology") settings->topology = value;
  else if (name == "--layout") settings->layout = value;
  else if (name == "--algorithm") settings->algorithm = value;
  else if (name == "--bytes" || name == "-b") return read_size(value, &settings->bytes);
  else if (name == "--chunk") return read_size(value, &settings->chunk_bytes);
  else if (name == "--dtype") return read_dtype(value, &settings->dtype);
  else if (name == "--window") {
    if (!read_number(value, &settings->window) || settings->window < 1) return "--window \"" + value + "\" is no count";
  } else if (name == "--add") {
    if (!read_number(value, &settings->add_rate) || !(settings->add_rate > 0 && settings->add_rate < 1e9))
      return "--add \"" + value + "\" is not a rate in GB/s";
  } else if (name == "--kind") {
    if (value != "gather" && value != "reduce") return "--kind \"" + value + "\" is neither gather nor reduce";
    settings->kind = value == "gather" ? MXS_GATHER : MXS_REDUCE;
  } else {
    return "there is no option \"" + name + "\"";
  }
  return "";
}

std::string read_words(const Words &words, Settings *settings) {
  for (size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i], value;
    if (name == "--json") settings->json = true;
    if (name == "--rank-order") settings->rank_order = true;
    if (name == "--json" || name == "--rank-order") continue;
    const size_t equals = name.starts_with("--") ? name.find('=') : std::string::npos;
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    } else {
      return "\"" + name + "\": no value, or no such option";
    }
    const std::string complaint = read_option(name, value, settings);
    if (!complaint.empty()) return complaint;
  }
  if (settings->topology.empty()) return "--topology is missing";
  if (settings->rank_order && settings->kind != MXS_REDUCE) return "--rank-order wants --kind reduce";
  return "";
}

mxs::topology make_topology(const Settings &settings) {
  mxs::topology topology = read_topology(settings.topology);
  if (settings.add_rate <= 0) return topology;
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  speeds.add_bytes_per_second = static_cast<uint64_t>(1e9 * settings.add_rate);
  return mxs::with_speeds(topology, speeds);
}

mxs::layout make_layout(const Settings &settings, int32_t rank_count) {
  const uint64_t element_bytes = settings.kind == MXS_REDUCE ? mxs_dtype_bytes(settings.dtype) : 1;
  std::vector<LayoutPart> parts;
  const std::string complaint = read_layout(settings.layout, settings.bytes, rank_count, element_bytes, &parts);
  if (!complaint.empty()) throw mxs::error(MXS_INVALID_ARGUMENT, complaint);
  return mxs::make_layout(segments_of(parts), rank_count, 1);
}

// ---- formulas, to compare with ----

double seconds_of(uint64_t nanoseconds) { return 1e-9 * static_cast<double>(nanoseconds); }
uint64_t nanoseconds_of(double seconds) { return static_cast<uint64_t>(std::min(1e9 * seconds, 9.2e18)); }

// The way of libraries whose ring passes whole blocks, in rounds that wait for each other: of its p - 1 hops the
// largest block M takes N over borders of N nodes, at L + M b each, the others inside, with the speeds of each. Kind:
// where blocks cross borders in different rounds, more rounds are slow.
Row whole_block_ring(const mxs_topology *topology, const mxs_layout *layout, const mxs_speeds &speeds) {
  const int32_t ranks = mxs_topology_rank_count(topology), nodes = mxs_topology_node_count(topology);
  uint64_t largest = 0;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const uint64_t owned = mxs_layout_owned_bytes(layout, rank);
    largest = owned > largest ? owned : largest;
  }
  const double block = static_cast<double>(largest);
  const double hops = ranks - 1, crossings = nodes > 1 ? std::min<double>(nodes, hops) : 0;
  const double over = crossings * (seconds_of(uint64_t{speeds.network_latency_ns} + speeds.network_overhead_ns) +
                                   block / static_cast<double>(speeds.network_bytes_per_second));
  const double inside = (hops - crossings) *
                        (seconds_of(uint64_t{speeds.local_latency_ns} + speeds.local_overhead_ns) +
                         block / static_cast<double>(speeds.local_bytes_per_second));
  Row row;
  row.algorithm = "whole-block ring";
  row.formula = true;
  row.result.time_ns = nanoseconds_of(over + inside);
  return row;
}

// What a step would pay if every tensor were cut evenly over all ranks: each brings in all that it doesn't own, over
// all rails and hops at once, by a ring per rail (without its pipeline's detail).
Row even_all_gather(const mxs_topology *topology, const mxs_layout *layout, const mxs_speeds &speeds, double rails) {
  const double ranks = mxs_topology_rank_count(topology), nodes = mxs_topology_node_count(topology);
  const double bytes = static_cast<double>(mxs_layout_bytes(layout));
  const double over = nodes > 1 ? (nodes - 1) / nodes * bytes /
                                      (rails * static_cast<double>(speeds.network_bytes_per_second))
                                : 0;
  const double inside =
      ranks > nodes ? (ranks - 1) / ranks * bytes / static_cast<double>(speeds.local_bytes_per_second) : 0;
  Row row;
  row.algorithm = "even all-gather";
  row.formula = true;
  row.result.time_ns = nanoseconds_of(std::max(over, inside));
  return row;
}

// ---- the table ----

std::string time_text(uint64_t nanoseconds) {
  char text[32];
  const double us = 1e-3 * static_cast<double>(nanoseconds);
  std::snprintf(text, sizeof text, us < 1000 ? "%.1f us" : us < 1e6 ? "%.3f ms" : "%.3f s",
                us < 1000 ? us : us < 1e6 ? us / 1e3 : us / 1e6);
  return text;
}

std::string size_text(uint64_t bytes) {
  char text[32];
  if (bytes >= 1u << 20) std::snprintf(text, sizeof text, "%.4gM", static_cast<double>(bytes) / (1 << 20));
  else std::snprintf(text, sizeof text, "%.4gK", static_cast<double>(bytes) / 1024);
  return text;
}

void print_table(const std::vector<Row> &rows) {
  std::printf("  %-20s %8s %6s %12s %12s %12s %7s %12s %10s\n", "algorithm", "chunk", "window", "simulated",
              "by formula", "bound", "ratio", "messages", "rail bytes");
  uint64_t bound_ns = 0;
  for (const Row &row : rows)
    if (!row.formula && !row.failed) bound_ns = row.result.bound_ns;
  for (const Row &row : rows) {
    const mxs_simulation &result = row.result;
    const char *mark = row.chosen ? "*" : " ";
    if (row.failed) {
      std::printf("%s %-20s %s\n", mark, row.algorithm.c_str(), row.note.c_str());
      continue;
    }
    const double ratio = bound_ns ? static_cast<double>(result.time_ns) / static_cast<double>(bound_ns) : 0;
    if (row.formula) {
      std::printf("%s %-20s %8s %6s %12s %12s %12s %7.2f %12s %10s\n", mark, row.algorithm.c_str(), "-", "-", "-",
                  time_text(result.time_ns).c_str(), "-", ratio, "-", "-");
      continue;
    }
    std::printf("%s %-20s %8s %6d %12s %12s %12s %7.2f %12" PRIu64 " %10s\n", mark, row.algorithm.c_str(),
                size_text(result.chunk_bytes).c_str(), result.window, time_text(result.time_ns).c_str(),
                time_text(result.predicted_ns).c_str(), time_text(result.bound_ns).c_str(), ratio,
                result.message_count, size_text(result.rail_bytes_max).c_str());
  }
  std::printf("* is what would be chosen. By formula are the cost model's predictions, and ways of other libraries.\n");
}

// One object a line.
void print_json(const Settings &settings, const std::vector<Row> &rows, int32_t ranks, uint64_t bytes) {
  for (const Row &row : rows) {
    const mxs_simulation &result = row.result;
    std::printf("{\"operation\": \"%s\", \"topology\": %s, \"layout\": %s, \"ranks\": %d, \"bytes\": %" PRIu64
                ", \"algorithm\": %s, \"chosen\": %s, \"formula\": %s",
                settings.kind == MXS_GATHER ? "gather" : "reduce", quoted(settings.topology).c_str(),
                quoted(settings.layout).c_str(), ranks, bytes, quoted(row.algorithm).c_str(),
                row.chosen ? "true" : "false", row.formula ? "true" : "false");
    if (row.failed) std::printf(", \"error\": %s", quoted(row.note).c_str());
    else std::printf(", \"time_us\": %.3f", 1e-3 * static_cast<double>(result.time_ns));
    if (!row.failed && !row.formula)
      std::printf(", \"predicted_us\": %.3f, \"bound_us\": %.3f, \"messages\": %" PRIu64 ", \"rail_bytes\": %" PRIu64
                  ", \"chunk_bytes\": %" PRIu64 ", \"window\": %d, \"last_rank\": %d",
                  1e-3 * static_cast<double>(result.predicted_ns), 1e-3 * static_cast<double>(result.bound_ns),
                  result.message_count, result.rail_bytes_max, result.chunk_bytes, result.window, result.last_rank);
    std::printf("}\n");
  }
}

class Simulation {
 public:
  Simulation(const Settings &settings, const mxs_topology *topology, const mxs_layout *layout)
      : settings_(settings), topology_(topology), layout_(layout) {}

  // False: nothing could be simulated; the last error says why.
  bool run(std::vector<Row> *rows);

 private:
  mxs_status simulate(const char *algorithm, mxs_simulation *result) const;
  double rails_per_node() const;

  const Settings &settings_;
  const mxs_topology *topology_;
  const mxs_layout *layout_;
};

mxs_status Simulation::simulate(const char *algorithm, mxs_simulation *result) const {
  if (mxs_topology_rank_count(topology_) >= 1024)
    std::fprintf(stderr, "mxs simulate: %s over %d ranks ...\n", algorithm ? algorithm : "the chosen one",
                 mxs_topology_rank_count(topology_));
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = settings_.kind;
  options.layout = layout_;
  options.dtype = settings_.dtype;
  options.flags = settings_.rank_order ? MXS_RANK_ORDER : 0;
  options.algorithm = algorithm;
  options.chunk_bytes = settings_.chunk_bytes;
  options.window = settings_.window;
  return mxs_simulate(topology_, &options, result);
}

double Simulation::rails_per_node() const {
  mxs_node_info info = MXS_NODE_INFO_INIT;
  return mxs_topology_node(topology_, 0, &info) == MXS_OK ? std::max(info.rail_count, 1) : 1;
}

bool Simulation::run(std::vector<Row> *rows) {
  Row chosen;
  if (simulate(settings_.algorithm == "all" ? nullptr : settings_.algorithm.c_str(), &chosen.result) != MXS_OK)
    return false;
  chosen.algorithm = chosen.result.algorithm;
  chosen.chosen = settings_.algorithm == "all";
  rows->push_back(chosen);
  if (settings_.algorithm != "all") return true;
  for (const char *name : message_algorithms) {
    if (chosen.algorithm == name) continue;
    Row row;
    row.algorithm = name;
    const mxs_status status = simulate(name, &row.result);
    if (status == MXS_NOT_FOUND) continue;  // not for this kind
    row.failed = status != MXS_OK;
    if (row.failed) row.note = mxs_last_error();
    rows->push_back(row);
  }
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  if (settings_.kind == MXS_GATHER && mxs_topology_speeds(topology_, &speeds) == MXS_OK) {
    rows->push_back(whole_block_ring(topology_, layout_, speeds));
    rows->push_back(even_all_gather(topology_, layout_, speeds, rails_per_node()));
  }
  return true;
}

}  // namespace

int simulate(const Words &words) {
  Settings settings;
  const std::string complaint = read_words(words, &settings);
  if (!complaint.empty()) return bad_use("simulate", complaint);
  mxs::topology topology;
  mxs::layout layout;
  try {
    topology = make_topology(settings);
    layout = make_layout(settings, mxs_topology_rank_count(topology.get()));
  } catch (const mxs::error &error) {
    return bad_use("simulate", error.what());
  }
  std::vector<Row> rows;
  if (!Simulation(settings, topology.get(), layout.get()).run(&rows)) {
    std::fprintf(stderr, "mxs simulate: %s\n", mxs_last_error());
    return 1;
  }
  const int32_t ranks = mxs_topology_rank_count(topology.get());
  const uint64_t bytes = mxs_layout_bytes(layout.get());
  if (settings.json) {
    print_json(settings, rows, ranks, bytes);
    return 0;
  }
  std::printf("%s of %s, layout %s, on %s: %d ranks, %d nodes\n", settings.kind == MXS_GATHER ? "gather" : "reduce",
              size_text(bytes).c_str(), settings.layout.c_str(), settings.topology.c_str(), ranks,
              mxs_topology_node_count(topology.get()));
  print_table(rows);
  return 0;
}

}  // namespace mxs_cli
