// SPDX-License-Identifier: Apache-2.0
// Topologies from words ("nodes:2 ranks:4") and from what ranks say of their nodes.
#include "topology/topology.hpp"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <unordered_map>
#include <utility>

#include "base/arithmetic.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"

namespace mxs {
namespace {

constexpr std::string_view blanks = " \t\n";
constexpr int shown_max = 64;  // of a word in a sentence

int shown(std::string_view word) { return std::min(static_cast<int>(std::min<size_t>(word.size(), 1000)), shown_max); }

// The next word, which leaves *text; empty at the end.
std::string_view next_word(std::string_view *text) {
  const size_t begin = std::min(text->find_first_not_of(blanks), text->size());
  const size_t end = std::min(text->find_first_of(blanks, begin), text->size());
  const std::string_view word = text->substr(begin, end - begin);
  text->remove_prefix(end);
  return word;
}

// "ranks:4" -> 4, if the word begins with that name.
mxs_status read_count(std::string_view word, std::string_view name, uint64_t *count) {
  if (*count != 0)
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\": %.*s is given twice", shown(word), word.data(),
                     static_cast<int>(name.size()), name.data());
  const std::string_view digits = word.substr(name.size() + 1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range)
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" is more than %d", shown(word), word.data(),
                     rank_count_max);
  if (error != std::errc() || end != digits.data() + digits.size())
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" is not a name with a number, such as \"ranks:4\"",
                     shown(word), word.data());
  if (value == 0)
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" makes a world of 0 ranks", shown(word), word.data());
  if (value > static_cast<uint64_t>(rank_count_max))
    return set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" is more than %d", shown(word), word.data(),
                     rank_count_max);
  *count = value;
  return MXS_OK;
}

}  // namespace

mxs_status parse_topology(std::string_view text, Topology *topology) {
  uint64_t node_count = 0, local_count = 0;
  for (std::string_view word = next_word(&text); !word.empty(); word = next_word(&text)) {
    mxs_status status;
    if (word.starts_with("nodes:"))
      status = read_count(word, "nodes", &node_count);
    else if (word.starts_with("ranks:"))
      status = read_count(word, "ranks", &local_count);
    else
      status = set_error(MXS_INVALID_ARGUMENT, "topology: \"%.*s\" is not understood; known are nodes:N and ranks:N",
                         shown(word), word.data());
    if (status != MXS_OK) return status;
  }
  if (local_count == 0)
    return set_error(MXS_INVALID_ARGUMENT, "topology: ranks:N is missing, so this is a world of 0 ranks");
  node_count = std::max<uint64_t>(node_count, 1);
  if (node_count * local_count > static_cast<uint64_t>(rank_count_max))  // both are at most 2^20
    return set_error(MXS_INVALID_ARGUMENT, "topology: %" PRIu64 " nodes of %" PRIu64 " ranks are more than %d ranks",
                     node_count, local_count, rank_count_max);

  std::vector<uint64_t> node_of_rank;
  node_of_rank.reserve(node_count * local_count);
  for (uint64_t rank = 0; rank < node_count * local_count; ++rank) node_of_rank.push_back(rank / local_count);
  *topology = topology_from_nodes(node_of_rank);
  return MXS_OK;
}

Topology topology_from_nodes(const std::vector<uint64_t> &node_of_rank) {
  Topology result;
  result.ranks.reserve(node_of_rank.size());
  std::unordered_map<uint64_t, int> number_of_label;
  for (size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const auto [entry, is_new] = number_of_label.emplace(node_of_rank[rank], result.node_count());
    if (is_new) {
      result.nodes.emplace_back();
      result.nodes.back().rails.resize(1);
    }
    Node &node = result.nodes[static_cast<size_t>(entry->second)];
    RankPlace place;
    place.node = entry->second;
    place.local_rank = node.rank_count();
    result.ranks.push_back(place);
    node.ranks.push_back(static_cast<int>(rank));
  }
  return result;
}

namespace {
void add_speed(Fingerprint *fingerprint, const LinkSpeed &speed) {
  fingerprint->add(speed.latency_ns).add(speed.overhead_ns).add(speed.bytes_per_second);
}
}  // namespace

uint64_t Topology::hash(bool with_speeds) const {
  Fingerprint fingerprint;
  fingerprint.add(ranks.size());
  for (const RankPlace &place : ranks) fingerprint.add(static_cast<uint64_t>(place.node));
  if (!with_speeds) return fingerprint.value();
  for (const RankPlace &place : ranks)
    fingerprint.add(static_cast<uint64_t>(place.numa)).add(static_cast<uint64_t>(place.rail));
  for (const Node &node : nodes)
    for (const Rail &rail : node.rails)
      fingerprint.add(rail.name).add(static_cast<uint64_t>(rail.numa)).add(rail.bytes_per_second);
  add_speed(&fingerprint, local);
  add_speed(&fingerprint, network);
  fingerprint.add(add_bytes_per_second);
  return fingerprint.value();
}

}  // namespace mxs
