// SPDX-License-Identifier: Apache-2.0
// Machine: what this process sees of the machine it runs on, and the files in which topologies and speeds are kept.
// The room that looks, so that topology/ can stay pure.
//
//   machine.cpp           this process' view: its NUMA node, the node's NICs
//   nics.cpp              which NICs there are
//   hwloc_locality.cpp    which NUMA node has which cores and devices, and which NIC is nearest to a GPU, by hwloc;
//                         machines that hwloc has saved
//   plain_locality.cpp    the same without hwloc, compiled in its place
//   files.cpp             save and load
#pragma once

#include <map>
#include <string>
#include <vector>

#include "matrixshard/status.h"
#include "topology/topology.hpp"

namespace mxs {

// This process and its node; the label is left to the caller. What can't be found out stays unknown.
RankView look_at_machine();

// NICs that can carry messages, ordered by name, their NUMA nodes unknown (-1): RDMA devices with an active port if
// there are any; else interfaces of this network namespace that are up, no loopback, and have an address. Of these,
// UCX_NET_DEVICES chooses if it names some.
std::vector<Rail> list_nics();

// NUMA nodes that have cores, numbered as all processes of the machine number them.
struct Locality {
  std::vector<std::vector<int>> cores_of_numa;  // by the system's number; may be empty: not known
  std::map<std::string, int> numa_of_device;    // of NICs, by name; those that are near to one node
};
Locality read_locality();

// Cores of the NUMA node that a NIC is near to. Empty: not known, or there is one NUMA node only.
std::vector<int> cores_near(const std::string &nic);

// Where a PCI device lies: "0000:3b:00.0".
struct DevicePlace {
  int numa = -1;    // numbered as in Locality; -1: not known, or near to several
  std::string nic;  // of list_nics(), the one that shares most PCI bridges with the device, or its socket. Devices to
                    // which several are equally near take these in turns. "": not known
};
// NVIDIA's GPUs of this machine, by their PCI addresses. Empty without hwloc.
std::map<std::string, DevicePlace> read_device_places();
// Of one; "": not known. They are looked for once.
std::string nic_near(const std::string &pci_address);
// Those of a machine that hwloc has saved. MXS_NOT_BUILT without hwloc.
mxs_status read_saved_device_places(const std::string &path, std::map<std::string, DevicePlace> *places);

// As many ranks as asked for, on a machine that hwloc has saved as XML; 0 ranks: one for each NUMA node. Labels are 0.
// MXS_NOT_BUILT without hwloc.
mxs_status read_saved_machine(const std::string &path, int rank_count, std::vector<RankView> *views);

// A file of at most bytes_max. False, or MXS_SYSTEM with a sentence that `what` begins: it can't be read.
bool read_file(const std::string &path, size_t bytes_max, std::string *text);
mxs_status read_file(const char *what, const std::string &path, size_t bytes_max, std::string *text);
// The failure of what was read from a file, its sentence with the file's name before it.
mxs_status cause_in_file(mxs_status status, const std::string &path);
// Whole or not at all: beside its place, then renamed.
mxs_status write_file(const char *what, const std::string &path, const std::string &text);

// Words, or else a path: JSON, or XML by hwloc. Speeds that it doesn't tell stay as they are in *topology.
mxs_status read_topology(const std::string &words_or_path, Topology *topology);
mxs_status load_topology(const std::string &path, Topology *topology);
mxs_status save_topology(const Topology &topology, const std::string &path);

// Where speeds are kept: MXS_SPEEDS, else under XDG_CACHE_HOME, else ~/.cache. Empty: nowhere, since MXS_SPEEDS is
// "none" or there is no home. given: by MXS_SPEEDS.
std::string speeds_path(bool *given);
// Those of speeds_path. A file that is not there is no failure unless MXS_SPEEDS names it: *path is then empty.
mxs_status load_speeds(Speeds *speeds, bool *has_network, std::string *path);
// path "": speeds_path, and its folders are made.
mxs_status save_speeds(const Speeds &speeds, const std::string &path);

}  // namespace mxs
