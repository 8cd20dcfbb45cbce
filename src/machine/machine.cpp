// SPDX-License-Identifier: Apache-2.0
// This process' view of its node.
//
// hwloc tells which NUMA node has which cores and NICs; it is asked once per process, and only where there are several
// NUMA nodes, since loading it costs 30 ms and more (a loop of init and load, hwloc 2.9, 2 cores with other work), and
// every rank creates comms. With one NUMA node there is nothing to tell: everything is near.
//
// NICs and cores are looked at each time, for 0.04 ms: a process may move to another network namespace, or be bound.
#include "machine/machine.hpp"

#include <sched.h>

#include <algorithm>

#include "base/status.hpp"

namespace mxs {

namespace {

// "0" in most machines, "0-1" with two; not there: a kernel without NUMA.
bool has_several_numa_nodes() {
  std::string online;
  if (!read_file("/sys/devices/system/node/online", 4096, &online)) return false;
  return online.find_first_of("-,") != std::string::npos;
}

const Locality &locality() {
  static const Locality found = has_several_numa_nodes() ? read_locality() : Locality{{{}}, {}};
  return found;
}

// The NUMA node that has all cores that this thread may use; -1: several.
int own_numa(const Locality &where) {
  if (where.cores_of_numa.size() <= 1) return static_cast<int>(where.cores_of_numa.size()) - 1;
  // More than a cpu_set_t holds: larger machines are not known, not wrong.
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
  for (size_t numa = 0; numa < where.cores_of_numa.size(); ++numa) {
    const auto &cores = where.cores_of_numa[numa];
    const auto mine = std::count_if(cores.begin(), cores.end(), [&](int core) {
      return core >= 0 && core < CPU_SETSIZE && CPU_ISSET(static_cast<size_t>(core), &allowed);
    });
    if (mine > 0) return mine == CPU_COUNT(&allowed) ? static_cast<int>(numa) : -1;
  }
  return -1;
}

}  // namespace

RankView look_at_machine() {
  const Locality &where = locality();
  RankView view;
  view.numa_count = std::max(1, static_cast<int>(where.cores_of_numa.size()));
  view.numa = own_numa(where);
  view.rails = list_nics();
  for (Rail &rail : view.rails) {
    const auto known = where.numa_of_device.find(rail.name);
    if (known != where.numa_of_device.end())
      rail.numa = known->second;
    else if (where.cores_of_numa.size() == 1)
      rail.numa = 0;
  }
  return view;
}

std::string nic_near(const std::string &pci_address) {
  static const std::map<std::string, DevicePlace> places = read_device_places();
  const auto found = places.find(pci_address);
  return found == places.end() ? "" : found->second.nic;
}

std::vector<int> cores_near(const std::string &nic) {
  const Locality &where = locality();
  const auto known = where.numa_of_device.find(nic);
  if (where.cores_of_numa.size() <= 1 || known == where.numa_of_device.end()) return {};
  const auto numa = static_cast<size_t>(known->second);
  return numa < where.cores_of_numa.size() ? where.cores_of_numa[numa] : std::vector<int>();
}

}  // namespace mxs
