// SPDX-License-Identifier: Apache-2.0
// Lanes: the devices by which UCX reaches a peer, as it prints them. Which it takes depends on what it finds usable, on
// its version and many variables; so what it took is told, not what was wished.
//
//   ucx_ep_print_info:  "lane[0]:  1:posix/memory.0 md[1]  -> md[1]/posix/sysdev[255] am am_bw#0"
//   in the log:         "ucx: rank 0 by tcp/eth0 to 6 peers, by posix/memory and tcp/eth0 to rank 1"
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/log.hpp"
#include "transport/ucx/link.hpp"

namespace mxs {

namespace {

// Between processes of a node; "self" is a rank itself.
constexpr const char *memory_transports[] = {"posix/", "sysv/", "cma/", "knem/", "xpmem/", "self/"};

std::string printed(const UcxLink &link, ucp_ep_h endpoint) {
  char *text = nullptr;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  if (!stream) return "";
  link.ucx->ep_print_info(endpoint, stream);
  fclose(stream);
  std::string result(text, bytes);
  std::free(text);
  return result;
}

// "posix/memory and tcp/eth0"; each once.
std::string lanes_in(const std::string &text) {
  std::vector<std::string> lanes;
  for (size_t at = text.find("lane["); at != std::string::npos; at = text.find("lane[", at + 1)) {
    const size_t line_end = std::min(text.find('\n', at), text.size());
    const size_t number = text.find(':', at);
    const size_t name = number < line_end ? text.find(':', number + 1) : line_end;
    if (name >= line_end) continue;
    std::string lane = text.substr(name + 1, text.find_first_of(" \n", name + 1) - name - 1);
    const size_t path = lane.rfind('.');  // ".0": which of a device's paths
    if (path != std::string::npos && lane.find_first_not_of("0123456789", path + 1) == std::string::npos)
      lane.resize(path);
    if (std::find(lanes.begin(), lanes.end(), lane) == lanes.end()) lanes.push_back(lane);
  }
  std::string joined;
  for (const std::string &lane : lanes) joined.append(joined.empty() ? "" : " and ").append(lane);
  return joined.empty() ? "lanes that it doesn't tell" : joined;
}

bool uses_memory(const std::string &lanes) {
  return std::any_of(std::begin(memory_transports), std::end(memory_transports),
                     [&](const char *name) { return lanes.find(name) != std::string::npos; });
}

std::string list_of(const std::vector<int> &ranks) {
  if (ranks.size() > 4) return std::to_string(ranks.size()) + " peers";
  std::string list = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) list.append(i ? ", " : "").append(std::to_string(ranks[i]));
  return list;
}

}  // namespace

std::string ucx_device(const std::string &nic) {
  if (access(("/sys/class/net/" + nic).c_str(), F_OK) == 0) return nic;
  if (access(("/sys/class/infiniband/" + nic).c_str(), F_OK) != 0) return "";
  return nic.find(':') == std::string::npos ? nic + ":1" : nic;  // UCX wants the port, too
}

void log_ucx_lanes(const UcxLink &link, const std::vector<int> &peers) {
  std::map<std::string, std::vector<int>> ranks;  // by lanes
  std::vector<int> estranged;                     // of this node, but reached over the network
  for (const int peer : peers) {
    const size_t number = static_cast<size_t>(peer), own = static_cast<size_t>(link.rank);
    const std::string lanes = lanes_in(printed(link, link.peers[number]->endpoint));
    ranks[lanes].push_back(peer);
    const bool same_node = number < link.node_of_rank.size() && link.node_of_rank[number] == link.node_of_rank[own];
    if (same_node && !uses_memory(lanes)) estranged.push_back(peer);
  }
  std::string text;
  for (const auto &[lanes, list] : ranks)
    text.append(text.empty() ? "by " : ", by ").append(lanes).append(" to ").append(list_of(list));
  log_line(MXS_LOG_INFO, "ucx: rank %d %.400s", link.rank, text.c_str());
  if (estranged.empty()) return;
  log_line(MXS_LOG_WARNING,
           "ucx: rank %d reaches %.100s of the same node over the network, not in shared memory, which is several "
           "times as fast: see UCX_TLS, UCX_NET_DEVICES and, before UCX is loaded, UCX_MM_ERROR_HANDLING=y", link.rank,
           list_of(estranged).c_str());
}

}  // namespace mxs
