// SPDX-License-Identifier: Apache-2.0
// Topologies from words: "nodes:8 ranks:8 nic:25 local:200". What they mean: include/matrixshard/topology.h.
#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <optional>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "topology/topology.hpp"

namespace mxs {
namespace {

constexpr std::string_view blanks = " \t\n";
constexpr int shown_max = 64;  // of a word in a sentence

// What is unsaid is 0, empty or nothing.
struct Words {
  uint64_t nodes = 0, rails = 0;
  std::vector<uint64_t> ranks;  // one number: of every node; several: of each
  std::optional<double> nic, local, latency, overhead, local_latency, local_overhead;
  std::string machine;  // a path
};

struct CountWord {
  const char *name;
  uint64_t Words::*value;
};
constexpr CountWord count_words[] = {{"nodes", &Words::nodes}, {"rails", &Words::rails}};

// A number with a unit, in fixed notation.
struct AmountWord {
  const char *name;
  std::optional<double> Words::*value;
  double least, most;
  const char *unit;
};
constexpr AmountWord amount_words[] = {
    {"nic", &Words::nic, 1e-6, 1e6, "GB/s"},
    {"local", &Words::local, 1e-6, 1e6, "GB/s"},
    {"latency", &Words::latency, 0, 4e6, "microseconds"},
    {"overhead", &Words::overhead, 0, 4e6, "microseconds"},
    {"local-latency", &Words::local_latency, 0, 4e6, "microseconds"},
    {"local-overhead", &Words::local_overhead, 0, 4e6, "microseconds"},
};
constexpr const char *known_words =
    "nodes:N, ranks:N or ranks:N+N, rails:N, nic:GB/s, local:GB/s, latency:us, overhead:us, local-latency:us, "
    "local-overhead:us and, last, hwloc:PATH";

int shown(std::string_view word) { return std::min(static_cast<int>(std::min<size_t>(word.size(), 1000)), shown_max); }

// The next word, which leaves *text; empty at the end. What follows hwloc: is a path, to the end of the text.
std::string_view next_word(std::string_view *text) {
  const size_t begin = std::min(text->find_first_not_of(blanks), text->size());
  size_t end = std::min(text->find_first_of(blanks, begin), text->size());
  if (text->substr(begin).starts_with("hwloc:")) end = std::min(text->find_last_not_of(blanks) + 1, text->size());
  const std::string_view word = text->substr(begin, end - begin);
  text->remove_prefix(end);
  return word;
}

mxs_status given_twice(std::string_view word, const char *name) {
  return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\": %s is given twice", shown(word), word.data(), name);
}

// One whole number from 1 to 1,048,576. `word` is for the sentence.
mxs_status read_count(std::string_view word, const char *name, std::string_view digits, uint64_t *count) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_number = error != std::errc::invalid_argument && end == digits.data() + digits.size();
  if (!is_number)
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" is not a name with a number, such as \"%s:4\"",
                     shown(word), word.data(), name);
  if (error == std::errc::result_out_of_range || value > static_cast<uint64_t>(rank_count_max))
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" is more than %d", shown(word), word.data(),
                     rank_count_max);
  if (value == 0)
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" makes a world of 0 ranks or rails", shown(word),
                     word.data());
  *count = value;
  return MXS_OK;
}

// "3+5"
mxs_status read_ranks(std::string_view word, std::string_view digits, std::vector<uint64_t> *ranks) {
  if (!ranks->empty()) return given_twice(word, "ranks");
  uint64_t sum = 0;
  while (true) {
    const size_t plus = digits.find('+');
    uint64_t count = 0;
    const mxs_status status = read_count(word, "ranks", digits.substr(0, plus), &count);
    if (status != MXS_OK) return status;
    sum += count;
    if (sum > static_cast<uint64_t>(rank_count_max))
      return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" is more than %d", shown(word), word.data(),
                       rank_count_max);
    ranks->push_back(count);
    if (plus == std::string_view::npos) return MXS_OK;
    digits.remove_prefix(plus + 1);
  }
}

mxs_status read_amount(std::string_view word, const AmountWord &kind, std::string_view digits,
                       std::optional<double> *amount) {
  if (*amount) return given_twice(word, kind.name);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value,
                                            std::chars_format::fixed);
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value))
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" is not a name with a number of %s, such as \"%s:2.5\"",
                     shown(word), word.data(), kind.unit, kind.name);
  if (value < kind.least || value > kind.most)
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" is not from %g to %g %s", shown(word), word.data(),
                     kind.least, kind.most, kind.unit);
  *amount = value;
  return MXS_OK;
}

mxs_status read_word(std::string_view word, Words *words) {
  const size_t colon = word.find(':');
  const std::string_view name = word.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? "" : word.substr(colon + 1);
  if (colon != std::string_view::npos) {
    if (name == "ranks") return read_ranks(word, rest, &words->ranks);
    for (const CountWord &kind : count_words)
      if (name == kind.name)
        return words->*kind.value ? given_twice(word, kind.name)
                                  : read_count(word, kind.name, rest, &(words->*kind.value));
    for (const AmountWord &kind : amount_words)
      if (name == kind.name) return read_amount(word, kind, rest, &(words->*kind.value));
    if (name == "hwloc" && rest.empty())
      return set_error(MXS_INVALID_ARGUMENT, "topology: \"hwloc:\" lacks the path of an XML file");
    if (name == "hwloc") {
      words->machine = rest;
      return MXS_OK;
    }
  }
  return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" is not understood; known are %s", shown(word),
                   word.data(), known_words);
}

// Ranks of each node.
mxs_status count_ranks(const Words &words, std::vector<uint64_t> *ranks) {
  if (words.ranks.empty())
    return set_error(MXS_INVALID_ARGUMENT, "topology: ranks:N is missing, so this is a world of 0 ranks");
  if (words.ranks.size() > 1 && words.nodes != 0 && words.nodes != words.ranks.size())
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"nodes:%" PRIu64 "\", but ranks: tells of %zu nodes",
                     words.nodes, words.ranks.size());
  *ranks = words.ranks;
  if (words.ranks.size() > 1) return MXS_OK;
  const uint64_t node_count = std::max<uint64_t>(words.nodes, 1);
  if (node_count * ranks->front() > static_cast<uint64_t>(rank_count_max))  // both are at most 2^20
    return set_error(MXS_INVALID_ARGUMENT, "topology: %" PRIu64 " nodes of %" PRIu64 " ranks are more than %d ranks",
                     node_count, ranks->front(), rank_count_max);
  ranks->assign(node_count, words.ranks.front());
  return MXS_OK;
}

void apply_speeds(const Words &words, Speeds *speeds) {
  const auto rate = [](const std::optional<double> &giga, uint64_t *bytes_per_second) {
    if (giga) *bytes_per_second = static_cast<uint64_t>(std::llround(*giga * 1e9));
  };
  const auto time = [](const std::optional<double> &micro, uint32_t *nanoseconds) {
    if (micro) *nanoseconds = static_cast<uint32_t>(std::llround(*micro * 1e3));
  };
  rate(words.nic, &speeds->network.bytes_per_second);
  rate(words.local, &speeds->local.bytes_per_second);
  time(words.latency, &speeds->network.latency_ns);
  time(words.overhead, &speeds->network.overhead_ns);
  time(words.local_latency, &speeds->local.latency_ns);
  time(words.local_overhead, &speeds->local.overhead_ns);
}

mxs_status make_up_nodes(const Words &words, const std::vector<uint64_t> &ranks, Topology *made) {
  const uint64_t node_count = ranks.size();
  if (words.rails * node_count > static_cast<uint64_t>(rank_count_max))
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"rails:%" PRIu64 "\" on %" PRIu64 " nodes are more than %d "
                     "rails", words.rails, node_count, rank_count_max);
  std::vector<uint64_t> labels;
  for (uint64_t node = 0; node < node_count; ++node) labels.insert(labels.end(), ranks[node], node);
  *made = topology_from_nodes(labels);
  for (Node &node : made->nodes)
    node.rails.resize(words.rails ? words.rails : words.nic ? node.ranks.size() : 1);
  deal_rails(made);
  return MXS_OK;
}

mxs_status copy_machine(const Words &words, const std::vector<uint64_t> &ranks, const ReadMachine &read_machine,
                        Topology *made) {
  if (words.rails)
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"rails:%" PRIu64 "\" and \"hwloc:%.64s\" both tell the NICs",
                     words.rails, words.machine.c_str());
  if (!read_machine)
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"hwloc:%.64s\" can't be read here", words.machine.c_str());
  std::vector<RankView> all, of_node;
  for (uint64_t node = 0; node < ranks.size(); ++node) {
    if (of_node.size() != ranks[node]) {
      const mxs_status status = read_machine(words.machine, static_cast<int>(ranks[node]), &of_node);
      if (status != MXS_OK) return status;
    }
    if ((node + 1) * of_node.front().rails.size() > static_cast<size_t>(rank_count_max))
      return set_error(MXS_INVALID_ARGUMENT, "topology: %zu nodes like \"hwloc:%.64s\" have more than %d rails",
                       ranks.size(), words.machine.c_str(), rank_count_max);
    for (const RankView &one : of_node) {
      RankView view = one;
      view.node_label = node;
      if (&one != &of_node.front()) view.rails.clear();  // the same, and there may be a million ranks
      all.push_back(std::move(view));
    }
  }
  *made = topology_from_views(all);
  return MXS_OK;
}

}  // namespace

bool looks_like_words(std::string_view text) {
  const std::string_view word = next_word(&text);
  const size_t colon = word.find(':');
  return colon != std::string_view::npos && colon > 0 &&
         word.substr(0, colon).find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == std::string_view::npos;
}

mxs_status parse_topology(std::string_view text, Topology *topology, const ReadMachine &read_machine) {
  Words words;
  for (std::string_view word = next_word(&text); !word.empty(); word = next_word(&text)) {
    const mxs_status status = read_word(word, &words);
    if (status != MXS_OK) return status;
  }
  std::vector<uint64_t> ranks;
  mxs_status status = count_ranks(words, &ranks);
  if (status != MXS_OK) return status;
  Topology made;
  status = words.machine.empty() ? make_up_nodes(words, ranks, &made)
                                 : copy_machine(words, ranks, read_machine, &made);
  if (status != MXS_OK) return status;
  Speeds speeds = *topology;
  apply_speeds(words, &speeds);
  set_speeds(&made, speeds, words.nic.has_value());
  *topology = std::move(made);
  return MXS_OK;
}

}  // namespace mxs
