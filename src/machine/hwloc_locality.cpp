// SPDX-License-Identifier: Apache-2.0
// NUMA nodes and NICs by hwloc, of this machine or of one that it has saved. hwloc 2.9 and 3 alike.
#include <hwloc.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "base/status.hpp"
#include "machine/machine.hpp"
#include "machine/xml_shape.hpp"

namespace mxs {

namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Hwloc = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, Destroy>;

// `path` empty: this machine. Disallowed cores stay in: else two containers would number the NUMA nodes differently.
Hwloc load(const std::string &path) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Hwloc topology(raw);
  // What asks GPU drivers would load these into every rank; /sys tells of PCI devices without libpciaccess.
  for (const char *component : {"pci", "opencl", "cuda", "nvml", "rsmi", "levelzero", "gl"})
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (!path.empty() && hwloc_topology_set_xml(raw, path.c_str()) != 0) return nullptr;
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

// hwloc 3 has a set of types where hwloc 2 has one.
template <class Attributes>
bool is_of_type(const Attributes &attributes, hwloc_obj_osdev_type_t type) {
  if constexpr (requires { attributes.types; })
    return (attributes.types & static_cast<unsigned long>(type)) != 0;
  else
    return attributes.type == type;
}

// NUMA nodes with cores. Two with the same cores (a fast and a large memory) are one to us.
std::vector<hwloc_const_cpuset_t> numa_nodes(hwloc_topology_t topology) {
  std::vector<hwloc_const_cpuset_t> sets;
  const int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
  for (int index = 0; index < count; ++index) {
    const hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(index));
    const bool known = std::any_of(sets.begin(), sets.end(), [&](hwloc_const_cpuset_t set) {
      return hwloc_bitmap_isequal(set, node->cpuset);
    });
    if (!known && !hwloc_bitmap_iszero(node->cpuset)) sets.push_back(node->cpuset);
  }
  return sets;
}

int numa_of(const std::vector<hwloc_const_cpuset_t> &nodes, hwloc_const_cpuset_t cores) {
  if (!cores || hwloc_bitmap_iszero(cores)) return -1;
  for (size_t numa = 0; numa < nodes.size(); ++numa)
    if (hwloc_bitmap_isincluded(cores, nodes[numa])) return static_cast<int>(numa);
  return -1;
}

// NICs of one kind, each once, by name.
std::map<std::string, int> devices(hwloc_topology_t topology, hwloc_obj_osdev_type_t type) {
  const std::vector<hwloc_const_cpuset_t> nodes = numa_nodes(topology);
  std::map<std::string, int> found;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_osdev(topology, device)) != nullptr;) {
    if (!device->name || !device->attr || !is_of_type(device->attr->osdev, type)) continue;
    const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, device);
    found.emplace(device->name, place ? numa_of(nodes, place->cpuset) : -1);
  }
  return found;
}

// NICs of a saved machine that can carry messages, as list_nics() chooses them.
std::map<std::string, int> saved_nics(hwloc_topology_t topology) {
  std::map<std::string, int> cards = devices(topology, HWLOC_OBJ_OSDEV_OPENFABRICS);
  if (cards.empty()) cards = devices(topology, HWLOC_OBJ_OSDEV_NETWORK);
  cards.erase("lo");
  return cards;
}

// How many objects are above both: the more, the nearer they are.
int shared_ancestors(hwloc_obj_t a, hwloc_obj_t b) {
  std::vector<hwloc_obj_t> above;
  for (hwloc_obj_t object = a; object; object = object->parent) above.push_back(object);
  int count = 0;
  for (hwloc_obj_t object = b; object; object = object->parent)
    count += std::find(above.begin(), above.end(), object) != above.end();
  return count;
}

// Of those names, the ones that share most with it, in their order.
std::vector<std::string> nearest(hwloc_topology_t topology, hwloc_obj_t device, const std::set<std::string> &nics) {
  std::map<std::string, int> shared;  // a name may be that of several objects
  for (hwloc_obj_t nic = nullptr; (nic = hwloc_get_next_osdev(topology, nic)) != nullptr;)
    if (nic->name && nics.count(nic->name)) {
      int &most = shared[nic->name];
      most = std::max(most, shared_ancestors(device, nic));
    }
  int most = 0;
  for (const auto &[name, count] : shared) most = std::max(most, count);
  std::vector<std::string> names;
  for (const auto &[name, count] : shared)
    if (count == most) names.push_back(name);
  return names;
}

std::string address_of(const hwloc_obj_t device) {
  const auto &pci = device->attr->pcidev;
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", static_cast<unsigned>(pci.domain), pci.bus, pci.dev, pci.func);
  return text;
}

// A display controller (class 03) of NVIDIA's; the board's own would take a turn.
bool is_gpu(const hwloc_obj_t device) {
  return device->attr && device->attr->pcidev.class_id >> 8 == 0x03 && device->attr->pcidev.vendor_id == 0x10de;
}

std::map<std::string, DevicePlace> places_of(hwloc_topology_t topology, const std::set<std::string> &nics) {
  const std::vector<hwloc_const_cpuset_t> nodes = numa_nodes(topology);
  std::map<std::string, hwloc_obj_t> found;  // in the order of addresses, which is CUDA_DEVICE_ORDER=PCI_BUS_ID's
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device)) != nullptr;)
    if (is_gpu(device)) found.emplace(address_of(device), device);
  std::map<std::string, DevicePlace> places;
  std::map<std::vector<std::string>, size_t> turns;
  for (const auto &[address, device] : found) {
    DevicePlace place;
    const hwloc_obj_t above = hwloc_get_non_io_ancestor_obj(topology, device);
    if (above) place.numa = numa_of(nodes, above->cpuset);
    const std::vector<std::string> names = nearest(topology, device, nics);
    if (!names.empty()) place.nic = names[turns[names]++ % names.size()];
    places.emplace(address, std::move(place));
  }
  return places;
}

mxs_status load_saved(const std::string &path, Hwloc *topology) {
  std::string text;
  const mxs_status status = read_file("machine", path, size_t{64} << 20, &text);
  if (status != MXS_OK) return status;
  if (is_whole_xml(text, "topology")) *topology = load(path);
  return *topology ? MXS_OK : set_error(MXS_INVALID_ARGUMENT, "%.200s is not a machine that hwloc has saved as XML",
                                        path.c_str());
}

mxs_status spread(hwloc_topology_t topology, const std::vector<hwloc_const_cpuset_t> &nodes, int rank_count,
                  std::vector<RankView> *views) {
  std::vector<hwloc_cpuset_t> sets(static_cast<size_t>(rank_count), nullptr);
  hwloc_obj_t root = hwloc_get_root_obj(topology);
  const int failed = hwloc_distrib(topology, &root, 1, sets.data(), static_cast<unsigned>(rank_count), INT_MAX, 0);
  views->assign(static_cast<size_t>(rank_count), RankView());
  for (size_t rank = 0; rank < sets.size(); ++rank) {
    if (!sets[rank]) continue;
    (*views)[rank].numa = numa_of(nodes, sets[rank]);
    hwloc_bitmap_free(sets[rank]);
  }
  return failed == 0 ? MXS_OK : set_error(MXS_SYSTEM, "hwloc can't spread %d ranks over its cores", rank_count);
}

}  // namespace

Locality read_locality() {
  Locality result;
  const Hwloc topology = load("");
  if (!topology) return result;
  for (hwloc_const_cpuset_t set : numa_nodes(topology.get())) {
    std::vector<int> &cores = result.cores_of_numa.emplace_back();
    for (int core = hwloc_bitmap_first(set); core >= 0; core = hwloc_bitmap_next(set, core)) cores.push_back(core);
  }
  for (const hwloc_obj_osdev_type_t type : {HWLOC_OBJ_OSDEV_OPENFABRICS, HWLOC_OBJ_OSDEV_NETWORK})
    for (const auto &[name, numa] : devices(topology.get(), type))
      if (numa >= 0) result.numa_of_device.emplace(name, numa);
  return result;
}

std::map<std::string, DevicePlace> read_device_places() {
  const Hwloc topology = load("");
  if (!topology) return {};
  std::set<std::string> nics;
  for (const Rail &rail : list_nics()) nics.insert(rail.name);
  return places_of(topology.get(), nics);
}

mxs_status read_saved_device_places(const std::string &path, std::map<std::string, DevicePlace> *places) {
  Hwloc topology;
  const mxs_status status = load_saved(path, &topology);
  if (status != MXS_OK) return status;
  std::set<std::string> nics;
  for (const auto &[name, numa] : saved_nics(topology.get())) nics.insert(name);
  *places = places_of(topology.get(), nics);
  return MXS_OK;
}

mxs_status read_saved_machine(const std::string &path, int rank_count, std::vector<RankView> *views) {
  Hwloc topology;
  mxs_status status = load_saved(path, &topology);
  if (status != MXS_OK) return status;
  const std::vector<hwloc_const_cpuset_t> nodes = numa_nodes(topology.get());
  if (nodes.empty()) return set_error(MXS_INVALID_ARGUMENT, "%.200s has no NUMA node with cores", path.c_str());
  std::vector<RankView> read;
  status = spread(topology.get(), nodes, rank_count ? rank_count : static_cast<int>(nodes.size()), &read);
  if (status != MXS_OK) return status;
  for (const auto &[name, numa] : saved_nics(topology.get())) {
    if (read[0].rails.size() == rails_per_node_max) break;
    Rail rail;
    rail.name = name.substr(0, rail_name_bytes_max);
    rail.numa = numa;
    read[0].rails.push_back(std::move(rail));
  }
  for (RankView &view : read) {
    view.numa_count = static_cast<int>(nodes.size());
    view.rails = read[0].rails;
  }
  *views = std::move(read);
  return MXS_OK;
}

}  // namespace mxs
