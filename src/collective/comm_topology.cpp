// SPDX-License-Identifier: Apache-2.0
// How all ranks of a comm come to one topology.
//
//   rank 0   view | NIC | told: topology or nothing | speeds  one all-gather of blobs, then a pure function of them:
//   rank 1   view | NIC                                       the same bytes on all ranks, which a hash proves
//   rank 2   view | NIC
//
// NIC: the nearest to this rank's GPU, where the comm was given one and there are several nodes. It is the rank's rail,
// whichever would have been dealt to its cores.
//
// Only rank 0 reads MXS_TOPOLOGY and the file of speeds: ranks of other machines may have another file, or none.
#include "collective/comm_topology.hpp"

#include <algorithm>
#include <cstring>

#include "base/environment.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "device/device.hpp"
#include "machine/machine.hpp"

namespace mxs {

namespace {

// Begins a rank's blob; view, NIC, topology and speeds follow, as long as it says. The last two come from rank 0.
struct BlobHead {
  uint32_t view_bytes = 0, nic_bytes = 0, topology_bytes = 0, speeds_bytes = 0, network_is_measured = 0;
};

struct Parts {
  std::vector<std::byte> view;
  std::string nic, topology, speeds;
  bool network_is_measured = false;
};

std::vector<std::byte> pack(const Parts &parts) {
  const BlobHead head = {static_cast<uint32_t>(parts.view.size()), static_cast<uint32_t>(parts.nic.size()),
                         static_cast<uint32_t>(parts.topology.size()), static_cast<uint32_t>(parts.speeds.size()),
                         parts.network_is_measured};
  std::vector<std::byte> blob(sizeof head + parts.view.size() + parts.nic.size() + parts.topology.size() +
                              parts.speeds.size());
  std::byte *place = blob.data();
  const auto put = [&](const void *data, size_t bytes) {
    if (bytes) std::memcpy(place, data, bytes);
    place += bytes;
  };
  put(&head, sizeof head);
  put(parts.view.data(), parts.view.size());
  put(parts.nic.data(), parts.nic.size());
  put(parts.topology.data(), parts.topology.size());
  put(parts.speeds.data(), parts.speeds.size());
  return blob;
}

bool unpack(const std::vector<std::byte> &blob, Parts *parts) {
  BlobHead head;
  if (blob.size() < sizeof head) return false;
  std::memcpy(&head, blob.data(), sizeof head);
  if (head.nic_bytes > rail_name_bytes_max ||
      blob.size() != sizeof head + uint64_t{head.view_bytes} + head.nic_bytes + head.topology_bytes + head.speeds_bytes)
    return false;
  const std::byte *place = blob.data() + sizeof head;
  parts->view.assign(place, place + head.view_bytes);
  const char *text = reinterpret_cast<const char *>(place + head.view_bytes);
  parts->nic.assign(text, head.nic_bytes);
  text += head.nic_bytes;
  parts->topology.assign(text, head.topology_bytes);
  parts->speeds.assign(text + head.topology_bytes, head.speeds_bytes);
  parts->network_is_measured = head.network_is_measured != 0;
  return true;
}

mxs_status no_sense(size_t rank) {
  return set_error(MXS_INTERNAL, "rank %zu: what it tells of its node makes no sense", rank);
}

// Where its node has that NIC.
void set_rail(Topology *topology, size_t rank, const std::string &nic) {
  const std::vector<Rail> &rails = topology->node(topology->ranks[rank].node).rails;
  for (size_t rail = 0; rail < rails.size(); ++rail)
    if (rails[rail].name == nic) topology->ranks[rank].rail = static_cast<int>(rail);
}

// "": not known, which is no failure here; what CUDA has against this device is told when its memory is used.
std::string nic_of_device(int index) {
  DeviceLibrary *library = nullptr;
  std::string address;
  if (device_library(&library) != MXS_OK || library->pci_address(index, &address) != MXS_OK) return "";
  return nic_near(address);
}

mxs_status merge(const std::vector<std::vector<std::byte>> &blobs, const std::vector<uint64_t> &labels,
                 Topology *topology) {
  std::vector<RankView> views(blobs.size());
  std::vector<std::string> nics(blobs.size());
  Parts first;
  if (!unpack(blobs[0], &first)) return no_sense(0);
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    Parts parts;
    if (!unpack(blobs[rank], &parts)) return no_sense(rank);
    if (unpack_view(parts.view.data(), parts.view.size(), &views[rank]) != MXS_OK) return no_sense(rank);
    views[rank].node_label = labels[rank];
    nics[rank] = parts.nic;
  }
  if (!first.topology.empty()) return topology_from_json(first.topology, topology);
  Topology merged = topology_from_views(views);
  for (size_t rank = 0; rank < nics.size(); ++rank)
    if (!nics[rank].empty()) set_rail(&merged, rank, nics[rank]);
  Speeds speeds;
  bool has_network = false;
  const mxs_status status = speeds_from_json(first.speeds, &speeds, &has_network);
  if (status != MXS_OK) return status;
  set_speeds(&merged, speeds, first.network_is_measured);
  *topology = std::move(merged);
  return MXS_OK;
}

mxs_status compare(Bootstrap &bootstrap, const Topology &topology) {
  const uint64_t own = topology.hash(true);
  std::vector<uint64_t> hashes(static_cast<size_t>(bootstrap.rank_count()));
  const mxs_status status = bootstrap.all_gather(&own, hashes.data(), sizeof own);
  if (status != MXS_OK) return status;
  for (size_t rank = 1; rank < hashes.size(); ++rank)
    if (hashes[rank] != hashes[0])
      return set_error(MXS_MISMATCH, "ranks 0 and %zu come to two topologies from the same views; are the libraries of "
                       "one build, and the machines of one byte order?", rank);
  return MXS_OK;
}

}  // namespace

mxs_status read_own_picture(int rank, int rank_count, OwnPicture *picture) {
  const std::string told = environment_text("MXS_TOPOLOGY").value_or("");
  if (!told.empty()) picture->told_hash = hash_bytes(told.data(), told.size()) | 1;
  if (rank != 0) return MXS_OK;
  mxs_status status = load_speeds(&picture->topology, &picture->network_is_measured, &picture->speeds_path);
  if (status != MXS_OK || told.empty()) return status;
  picture->is_told = true;
  status = read_topology(told, &picture->topology);
  if (status == MXS_OK && picture->topology.rank_count() != rank_count)
    return set_error(MXS_ENVIRONMENT, "MXS_TOPOLOGY is \"%.64s\", a world of %d ranks, but there are %d", told.c_str(),
                     picture->topology.rank_count(), rank_count);
  if (status == MXS_OK) return MXS_OK;
  const std::string cause = last_error_text();
  return set_error(MXS_ENVIRONMENT, "MXS_TOPOLOGY: %s", cause.c_str());
}

mxs_status exchange_topology(Bootstrap &bootstrap, const OwnPicture &own, const std::vector<uint64_t> &labels,
                             Topology *topology) {
  Parts parts;
  parts.view = pack_view(look_at_machine());
  const bool several_nodes = std::count(labels.begin(), labels.end(), labels[0]) < bootstrap.rank_count();
  if (own.device >= 0 && several_nodes) parts.nic = nic_of_device(own.device).substr(0, rail_name_bytes_max);
  if (bootstrap.rank() == 0) {
    if (own.is_told) parts.topology = topology_to_json(own.topology);
    parts.speeds = speeds_to_json(own.topology);
    parts.network_is_measured = own.network_is_measured;
  }
  std::vector<std::vector<std::byte>> blobs;
  mxs_status status = bootstrap.all_gather_blobs(pack(parts), &blobs);
  Topology merged;
  if (status == MXS_OK) status = merge(blobs, labels, &merged);
  if (status != MXS_OK) return status;
  if (merged.rank_count() != bootstrap.rank_count()) return no_sense(0);
  status = compare(bootstrap, merged);
  if (status != MXS_OK) return status;
  *topology = std::move(merged);
  if (bootstrap.rank() != 0) return MXS_OK;
  if (!own.speeds_path.empty())
    log_line(MXS_LOG_INFO, "comm: speeds are those of %s", own.speeds_path.c_str());
  if (own.is_told) log_line(MXS_LOG_INFO, "comm: nodes are those of MXS_TOPOLOGY, not those found");
  return MXS_OK;
}

}  // namespace mxs
