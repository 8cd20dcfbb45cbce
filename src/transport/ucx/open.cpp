// SPDX-License-Identifier: Apache-2.0
// Opening: a context and a worker of this rank, then an endpoint to each peer.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "transport/ucx/link.hpp"

namespace mxs {

namespace {

constexpr int rank_count_max = 1 << (64 - ucx_source_shift);
constexpr size_t control_receives = 16;  // posted at a time, for all peers together

// The address blob: this, then the worker's address.
struct AddressHead {
  uint32_t magic, major, minor, release;
};
constexpr uint32_t address_magic = 0x4d585355;

ucs_status_t make_context(UcxLink *link, int rank_count, const std::string &device) {
  const UcxLibrary &ucx = *link->ucx;
  ucp_config_t *config = nullptr;
  ucs_status_t status = ucx.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return status;
  // Eager for all sizes, and a dead process of the same node is seen within a second or two, not twenty.
  if (!environment_text("UCX_RNDV_THRESH")) ucx.config_modify(config, "RNDV_THRESH", "inf");
  if (!environment_text("UCX_KEEPALIVE_INTERVAL")) ucx.config_modify(config, "KEEPALIVE_INTERVAL", "1s");
  if (!device.empty()) ucx.config_modify(config, "NET_DEVICES", device.c_str());
  ucp_params_t parameters{};
  parameters.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  parameters.tag_sender_mask = ucx_match_mask;
  parameters.estimated_num_eps = static_cast<size_t>(rank_count);
  status = ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config, &link->context);
  ucx.config_release(config);
  return status;
}

// With the NIC that is this rank's, so that ranks of a node share its NICs evenly: UCX would give all of them the same.
// One that UCX can't use, such as a card that is down, is not worth a failure.
mxs_status make_context_near(UcxLink *link, const LinkOptions &options) {
  std::string device;
  if (!options.device.empty() && !environment_text("UCX_NET_DEVICES")) device = ucx_device(options.device);
  ucs_status_t status = make_context(link, options.rank_count, device);
  if (status != UCS_OK && !device.empty()) {
    log_line(MXS_LOG_WARNING, "ucx: rank %d can't use %s, the network card nearest to it (%s), and takes any other",
             link->rank, device.c_str(), link->ucx->status_string(status));
    status = make_context(link, options.rank_count, "");
  }
  if (status == UCS_OK) return MXS_OK;
  return link->refused("no usable device, or a variable that it can't read (UCX_TLS, UCX_NET_DEVICES?)", status);
}

mxs_status make_worker(UcxLink *link, std::vector<std::byte> *address) {
  const UcxLibrary &ucx = *link->ucx;
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucx.worker_create(link->context, &parameters, &link->worker);
  if (status != UCS_OK) return link->refused("no worker", status);
  status = ucx.worker_get_efd(link->worker, &link->event_file);
  if (status != UCS_OK) return link->refused("the worker has no event file", status);
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
  status = ucx.worker_query(link->worker, &attributes);
  if (status != UCS_OK) return link->refused("the worker has no address", status);
  const AddressHead head = {address_magic, ucx.major, ucx.minor, ucx.release};
  address->resize(sizeof head + attributes.address_length);
  std::memcpy(address->data(), &head, sizeof head);
  std::memcpy(address->data() + sizeof head, attributes.address, attributes.address_length);
  ucx.worker_release_address(link->worker, attributes.address);
  return MXS_OK;
}

// UCX 1.13 ends the program by an assertion when it finds no descriptor for its own thread, so it isn't even asked
// without. A worker and its endpoints took 17 where this was tried, with tcp and shared memory in the node.
mxs_status check_descriptors(int rank) {
  constexpr size_t needed = 32;
  std::vector<int> taken;
  taken.reserve(needed);
  while (taken.size() < needed) {
    const int descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) break;
    taken.push_back(descriptor);
  }
  const int cause = errno;
  for (const int descriptor : taken) ::close(descriptor);
  if (taken.size() == needed) return MXS_OK;
  return set_error(MXS_SYSTEM, "ucx: rank %d can open %zu files more, but needs %zu: %s; raise the limit (ulimit -n)",
                   rank, taken.size(), needed, std::strerror(cause));
}

}  // namespace

bool ucx_usable(std::string *why_not) { return ucx_library(why_not) != nullptr; }

mxs_status open_ucx(Link **link_out, const LinkOptions &options, std::vector<std::byte> *address) {
  std::string why_not;
  const UcxLibrary *ucx = ucx_library(&why_not);
  if (!ucx) return set_error(MXS_NOT_BUILT, "%s", why_not.c_str());
  if (options.rank_count > rank_count_max)
    return set_error(MXS_INVALID_ARGUMENT, "ucx: %d ranks, %d are the most", options.rank_count, rank_count_max);
  const mxs_status enough = check_descriptors(options.rank);
  if (enough != MXS_OK) return enough;
  auto link = std::make_unique<UcxLink>();
  link->ucx = ucx;
  link->rank = options.rank;
  link->node_of_rank = options.node_of_rank;
  link->window = static_cast<size_t>(std::max(options.window_max, 1));
  link->peers.resize(static_cast<size_t>(options.rank_count));
  link->busy.reserve(2 * link->peers.size());
  mxs_status status = make_context_near(link.get(), options);
  if (status == MXS_OK) status = make_worker(link.get(), address);
  if (status != MXS_OK) return status;
  link->controls.resize(control_receives);
  for (UcxControlReceive &receive : link->controls) receive.link = link.get();
  status = link->post_control_receives();
  if (status != MXS_OK) return status;
  *link_out = link.release();
  return MXS_OK;
}

namespace {

mxs_status check_address(const UcxLink &link, int peer, const std::vector<std::byte> &address) {
  AddressHead head{};
  if (address.size() > sizeof head) std::memcpy(&head, address.data(), sizeof head);
  if (head.magic != address_magic)
    return set_error(MXS_MISMATCH, "rank %d gave no UCX address; do all ranks use the same transport?", peer);
  // Two versions may not understand each other on the wire: 1.13 and 1.22 failed in both directions.
  if (head.major != link.ucx->major || head.minor != link.ucx->minor || head.release != link.ucx->release)
    return set_error(MXS_MISMATCH, "rank %d has UCX %u.%u.%u, rank %d has %u.%u.%u; all ranks need the same", peer,
                     head.major, head.minor, head.release, link.rank, link.ucx->major, link.ucx->minor,
                     link.ucx->release);
  return MXS_OK;
}

mxs_status make_endpoint(UcxLink *link, int rank, const std::vector<std::byte> &address) {
  auto peer = std::make_unique<UcxPeer>();
  peer->link = link;
  peer->rank = rank;
  for (int number = 0; number < lane_count; ++number) {
    UcxLane &lane = peer->lanes[number];
    lane.peer = peer.get();
    lane.number = number;
    const size_t window = number == agreement_lane ? size_t{agreement_window} : link->window;
    lane.sends.resize(window);
    lane.receives.resize(window);
    for (UcxSend &slot : lane.sends) slot.lane = &lane;
    for (UcxReceive &slot : lane.receives) slot.lane = &lane;
  }
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t *>(address.data() + sizeof(AddressHead));
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = on_ucx_endpoint_failure;
  parameters.err_handler.arg = peer.get();
  const ucs_status_t status = link->ucx->ep_create(link->worker, &parameters, &peer->endpoint);
  if (status != UCS_OK)
    return set_error(MXS_TRANSPORT_FAILED, "ucx: rank %d can't reach rank %d: %s (UCX_TLS, UCX_NET_DEVICES?)",
                     link->rank, rank, link->ucx->status_string(status));
  link->peers[static_cast<size_t>(rank)] = std::move(peer);
  return MXS_OK;
}

}  // namespace

mxs_status connect_ucx(Link *base, const std::vector<std::vector<std::byte>> &addresses,
                       const std::vector<int> &peers) {
  UcxLink &link = UcxLink::of(base);
  for (const int peer : peers) {
    const std::vector<std::byte> &address = addresses[static_cast<size_t>(peer)];
    mxs_status status = check_address(link, peer, address);
    if (status == MXS_OK) status = make_endpoint(&link, peer, address);
    if (status != MXS_OK) return status;
  }
  log_ucx_lanes(link, peers);
  return MXS_OK;
}

}  // namespace mxs
