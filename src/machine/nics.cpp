// SPDX-License-Identifier: Apache-2.0
// Which NICs can carry messages between nodes.
//
// hwloc shows devices on the PCI bus: a virtual machine's eth0 and the veth of a network namespace are often not among
// them, and it reads /sys, which may show another namespace. So the system is asked for the interfaces of this one.
// Whatever is up and has an address may be a tunnel or a bridge of containers, too: these come only if nothing else is
// there.
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/environment.hpp"
#include "machine/machine.hpp"

namespace mxs {

namespace {

bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

// The number with which a file begins, 0 without.
uint64_t number_in(const std::string &path) {
  std::string text;
  uint64_t number = 0;
  if (read_file(path, 4096, &text)) std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::vector<std::string> entries_of(const std::string &folder) {
  std::vector<std::string> names;
  DIR *open = opendir(folder.c_str());
  if (!open) return names;
  while (const dirent *entry = readdir(open))
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  closedir(open);
  std::sort(names.begin(), names.end());
  return names;
}

// Those with an active port, with its rate: "100 Gb/sec (4X EDR)".
std::vector<Rail> rdma_devices() {
  const std::string root = "/sys/class/infiniband/";
  std::vector<Rail> rails;
  for (const std::string &name : entries_of(root)) {
    for (const std::string &port : entries_of(root + name + "/ports")) {
      const std::string folder = root + name + "/ports/" + port;
      std::string state;
      if (!read_file(folder + "/state", 4096, &state) || state.find("ACTIVE") == std::string::npos)
        continue;
      Rail rail;
      rail.name = name.substr(0, rail_name_bytes_max);
      rail.bytes_per_second = number_in(folder + "/rate") * 1'000'000'000 / 8;
      rails.push_back(rail);
      break;
    }
  }
  return rails;
}

bool has_useful_address(const sockaddr *address) {
  if (!address) return false;
  if (address->sa_family == AF_INET) return true;
  if (address->sa_family != AF_INET6) return false;
  return !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6 *>(address)->sin6_addr);
}

// In Mbit/s there, -1 if the driver doesn't know. One without a device behind it (veth, tunnel) makes its rate up.
uint64_t rate_of(const std::string &name) {
  const std::string folder = "/sys/class/net/" + name;
  return exists(folder + "/device") ? number_in(folder + "/speed") * 1'000'000 / 8 : 0;
}

std::vector<Rail> interfaces() {
  std::vector<Rail> first, second;
  ifaddrs *list = nullptr;
  if (getifaddrs(&list) != 0) return first;
  for (const ifaddrs *entry = list; entry; entry = entry->ifa_next) {
    if (!(entry->ifa_flags & IFF_UP) || !(entry->ifa_flags & IFF_RUNNING) || (entry->ifa_flags & IFF_LOOPBACK) ||
        !has_useful_address(entry->ifa_addr))
      continue;
    Rail rail;
    rail.name = entry->ifa_name;
    rail.bytes_per_second = rate_of(rail.name);
    const bool is_makeshift =
        (entry->ifa_flags & IFF_POINTOPOINT) || exists("/sys/class/net/" + rail.name + "/bridge");
    (is_makeshift ? second : first).push_back(std::move(rail));
  }
  freeifaddrs(list);
  return first.empty() ? second : first;
}

// "mlx5_0:1,eth0" names mlx5_0 and eth0; "all" and "^eth0" name none.
bool is_named(const std::string &devices, const std::string &name) {
  for (size_t begin = 0; begin <= devices.size();) {
    const size_t end = std::min(devices.find(',', begin), devices.size());
    std::string entry = devices.substr(begin, end - begin);
    begin = end + 1;
    if (entry == name || entry.substr(0, entry.find(':')) == name) return true;
  }
  return false;
}

}  // namespace

std::vector<Rail> list_nics() {
  std::vector<Rail> rails = rdma_devices(), cards = interfaces();
  if (const auto devices = environment_text("UCX_NET_DEVICES")) {
    std::vector<Rail> named;
    for (const std::vector<Rail> *list : {&rails, &cards})
      std::copy_if(list->begin(), list->end(), std::back_inserter(named),
                   [&](const Rail &rail) { return is_named(*devices, rail.name); });
    if (!named.empty()) rails = std::move(named);
  }
  if (rails.empty()) rails = std::move(cards);
  std::sort(rails.begin(), rails.end(), [](const Rail &a, const Rail &b) { return a.name < b.name; });
  // An interface has an entry for each of its addresses.
  rails.erase(std::unique(rails.begin(), rails.end(), [](const Rail &a, const Rail &b) { return a.name == b.name; }),
              rails.end());
  if (rails.size() > rails_per_node_max) rails.resize(rails_per_node_max);
  return rails;
}

}  // namespace mxs
