// SPDX-License-Identifier: Apache-2.0
// How a comm comes about.
//
//   1 bootstrap      the environment's store, or the caller's callbacks
//   2 identities     everybody tells version, node, process, transport wanted: all ranks know all, and decide alike
//   3 topology       equal node labels are one node, unless MXS_TOPOLOGY tells other nodes; the domain proves it
//   4 transports     per pair: one process -> loopback, one node -> shm, else ucx; or the one that was asked for
//   5 links          opened, addresses exchanged, connected
//   6 rendezvous     a place for the living to meet after a failure (comm_shrink.cpp)
//   7 trace          if any rank's environment asks for it: clocks are compared, rings made
//
// The progress thread, if there is to be one, comes with step 3; it sleeps until an operation is in flight.
//
// After each step that can fail on one rank alone all ranks compare how it went (Bootstrap::settle), so that a failure
// on one is the same failure on all, and nobody waits for a rank that has given up.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "bootstrap/interface.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/secret.hpp"
#include "collective/agreement.hpp"
#include "collective/comm.hpp"
#include "collective/comm_topology.hpp"
#include "collective/process.hpp"
#include "kernels/kernels.hpp"
#include "machine/machine.hpp"
#include "matrixshard/version.h"
#include "trace/process_state.hpp"

namespace mxs {

namespace {

constexpr uint64_t second_ns = 1'000'000'000u;
constexpr uint64_t default_timeout_ns = 300 * second_ns;

struct Identity {
  uint32_t version;
  int32_t core_count;
  uint64_t node, network, process, session;
  uint64_t told;       // a hash of MXS_TOPOLOGY, 0 without
  uint64_t timeout_ns;
  char transport[16];  // asked for; empty: any
  uint64_t job;        // rank 0's counts
  uint64_t traces;     // 1: this rank writes a ring
  KnownProcess where;
};

mxs_status read_timeout(const mxs_comm_options &options, uint64_t *timeout_ns) {
  *timeout_ns = options.timeout_ns ? std::min(options.timeout_ns, Comm::timeout_max_ns) : default_timeout_ns;
  if (options.timeout_ns) return MXS_OK;
  int64_t seconds = default_timeout_ns / second_ns;
  const mxs_status status = environment_number("MXS_TIMEOUT", 1, Comm::timeout_max_ns / second_ns, &seconds);
  *timeout_ns = static_cast<uint64_t>(seconds) * second_ns;
  return status;
}

// Empty: nothing was asked for.
mxs_status read_transport(const mxs_comm_options &options, std::string *name) {
  const bool from_environment = !options.transport;
  *name = from_environment ? environment_text("MXS_TRANSPORT").value_or("") : options.transport;
  if (from_environment && name->empty()) return MXS_OK;
  const char *where = from_environment ? "MXS_TRANSPORT" : "options.transport";
  const Transport *transport = find_transport(*name);
  if (!transport && (*name == "ucx" || *name == "shm" || *name == "loopback"))
    return set_error(MXS_NOT_BUILT, "%s is \"%s\", which is not in this build (it has %s)", where, name->c_str(),
                     transport_names().c_str());
  if (!transport)
    return set_error(from_environment ? MXS_ENVIRONMENT : MXS_INVALID_ARGUMENT,
                     "%s is \"%.32s\"; this build has %s", where, name->c_str(), transport_names().c_str());
  std::string why_not;
  if (!transport->usable(&why_not))
    return set_error(MXS_TRANSPORT_FAILED, "%s is \"%s\", which can't be used here: %s", where, name->c_str(),
                     why_not.c_str());
  return MXS_OK;
}

mxs_status read_progress(const mxs_comm_options &options, int *progress) {
  *progress = options.progress;
  const auto asked = environment_text("MXS_PROGRESS");
  if (options.progress != MXS_PROGRESS_CHOSEN || !asked) return MXS_OK;
  if (*asked != "manual" && *asked != "thread")
    return set_error(MXS_ENVIRONMENT, "MXS_PROGRESS is \"%.32s\", neither \"manual\" nor \"thread\"", asked->c_str());
  *progress = *asked == "thread" ? MXS_PROGRESS_THREAD : MXS_PROGRESS_MANUAL;
  return MXS_OK;
}

}  // namespace

class CommBuilder {
 public:
  explicit CommBuilder(Comm *comm) : comm_(*comm) {}
  mxs_status build(const mxs_comm_options &options);
  mxs_status build_over(std::unique_ptr<Bootstrap> bootstrap, const Topology &topology,
                        const mxs_comm_options &options, uint64_t job, bool traced);

 private:
  mxs_status connect_bootstrap(const mxs_comm_options &options);
  mxs_status join(const mxs_comm_options &options);
  mxs_status exchange_identities(const mxs_comm_options &options);
  mxs_status check_identities() const;
  mxs_status check_places() const;
  mxs_status open_domain();
  bool wants_thread() const;
  mxs_status open_links();
  mxs_status open_rendezvous();
  mxs_status open_trace();
  mxs_status compare_clocks(TraceIdentity *own) const;
  mxs_status open_link(const char *name, const std::vector<int> &peers);
  std::vector<int> peers_by(const char *name) const;
  const char *transport_between(int a, int b) const;
  bool one_process(int node) const;
  int cores_each() const;

  Comm &comm_;
  std::string forced_;
  int64_t debug_buffers_ = 0;
  const Topology *known_topology_ = nullptr;  // nullptr: to be found
  std::vector<Identity> identities_;
  const uint64_t begin_ns_ = now_ns();
  uint64_t job_ = 0;  // 0: the first comm's session is it
  bool traced_ = true;
  TraceSettings trace_;
};

mxs_status CommBuilder::connect_bootstrap(const mxs_comm_options &options) {
  mxs_status status = MXS_OK;
  if (options.bootstrap) {
    status = create_callback_bootstrap(&comm_.bootstrap, *options.bootstrap, comm_.timeout_ns);
  } else {
    // One after the other in a process: they all meet on the one port that the environment names.
    static std::mutex door;
    const std::lock_guard lock(door);
    JobEnvironment job;
    status = read_job_environment(&job);
    job.secret = comm_.secret;
    job_ = job.job;
    if (status == MXS_OK) status = create_store_bootstrap(&comm_.bootstrap, job, comm_.timeout_ns);
  }
  return status;
}

mxs_status CommBuilder::exchange_identities(const mxs_comm_options &options) {
  OwnPicture picture;
  mxs_status status = read_transport(options, &forced_);
  if (status == MXS_OK) status = read_progress(options, &comm_.forced_progress);
  if (status == MXS_OK && traced_) status = read_trace_settings(&trace_);
  if (status == MXS_OK && !known_topology_) status = read_own_picture(comm_.rank, comm_.rank_count, &picture);
  picture.device = options.device - 1;  // of MXS_DEVICE(index)
  status = comm_.bootstrap->settle(status);
  if (status != MXS_OK) return status;
  Identity own = {MXS_VERSION, usable_core_count(), node_label(), network_label(), process_label(), random_number(),
                  picture.told_hash, comm_.timeout_ns, {}, job_, trace_.on(), this_process()};
  std::memcpy(own.transport, forced_.c_str(), std::min(forced_.size(), sizeof own.transport - 1));
  identities_.resize(static_cast<size_t>(comm_.rank_count));
  status = comm_.bootstrap->all_gather(&own, identities_.data(), sizeof own);
  if (status == MXS_OK) status = check_identities();
  if (status != MXS_OK) return status;
  for (const Identity &identity : identities_) comm_.processes.push_back(identity.where);
  comm_.session = identities_[0].session;
  comm_.job = identities_[0].job ? identities_[0].job : comm_.session;
  if (known_topology_) {
    comm_.topology = *known_topology_;
    return check_places();
  }
  std::vector<uint64_t> labels;
  for (const Identity &identity : identities_) labels.push_back(identity.node);
  status = exchange_topology(*comm_.bootstrap, picture, labels, &comm_.topology);
  return status == MXS_OK ? check_places() : status;
}

mxs_status CommBuilder::check_identities() const {
  const Identity &first = identities_[0];
  for (int rank = 0; rank < comm_.rank_count; ++rank) {
    const Identity &other = identities_[static_cast<size_t>(rank)];
    if (other.version != first.version)
      return set_error(MXS_MISMATCH, "rank %d has matrixshard %u.%u.%u, rank 0 has %u.%u.%u; all ranks need the same",
                       rank, other.version / 1'000'000, other.version / 1000 % 1000, other.version % 1000,
                       first.version / 1'000'000, first.version / 1000 % 1000, first.version % 1000);
    if (std::strncmp(other.transport, first.transport, sizeof first.transport) != 0)
      return set_error(MXS_MISMATCH, "rank %d asks for transport \"%.15s\", rank 0 for \"%.15s\" (empty: any); set "
                       "MXS_TRANSPORT to the same on all ranks", rank, other.transport, first.transport);
    if (other.told != 0 && other.told != first.told)
      return set_error(MXS_MISMATCH, "MXS_TOPOLOGY of rank %d is not that of rank 0, which counts for all; set it to "
                       "the same on all ranks, or on rank 0 alone", rank);
  }
  return MXS_OK;
}

bool CommBuilder::one_process(int node) const {
  uint64_t process = 0;
  for (int rank = 0; rank < comm_.rank_count; ++rank) {
    if (comm_.topology.node_of(rank) != node) continue;
    if (process == 0) process = identities_[static_cast<size_t>(rank)].process;
    if (identities_[static_cast<size_t>(rank)].process != process) return false;
  }
  return true;
}

// Can what was asked for join these ranks?
mxs_status CommBuilder::check_places() const {
  if (forced_ != "loopback" && forced_ != "shm") return MXS_OK;
  for (int rank = 1; rank < comm_.rank_count; ++rank) {
    if (comm_.topology.node_of(rank) != comm_.topology.node_of(0))
      return set_error(MXS_INVALID_ARGUMENT, "transport \"%s\" joins ranks of one node, but ranks 0 and %d are on two; "
                       "leave MXS_TRANSPORT unset", forced_.c_str(), rank);
    if (forced_ == "loopback" && identities_[static_cast<size_t>(rank)].process != identities_[0].process)
      return set_error(MXS_INVALID_ARGUMENT, "transport \"loopback\" joins threads of one process, but ranks 0 and %d "
                       "are two processes; use shm or ucx, or leave MXS_TRANSPORT unset", rank);
  }
  return MXS_OK;
}

mxs_status CommBuilder::open_domain() {
  if (forced_ != "ucx" && comm_.topology.node_count() < comm_.rank_count) {
    std::vector<int> local_ranks = comm_.topology.node(comm_.topology.node_of(comm_.rank)).ranks;
    // Nobody waits on for one that has given up already: it would be heard of only after this rank's own deadline.
    uint64_t least_timeout_ns = comm_.timeout_ns;
    for (const int rank : local_ranks)
      least_timeout_ns = std::min(least_timeout_ns, identities_[static_cast<size_t>(rank)].timeout_ns);
    const mxs_status status =
        create_domain(&comm_.local, *comm_.bootstrap, local_ranks, comm_.session, least_timeout_ns);
    if (status != MXS_OK) return status;
    if (local_ranks.size() == 1) comm_.local.reset();
    if (static_cast<int>(local_ranks.size()) == comm_.rank_count) comm_.domain = comm_.local.get();
  }
  comm_.agreement_ = std::make_unique<Agreement>(comm_);
  comm_.heard_.resize(static_cast<size_t>(comm_.rank_count));
  comm_.heard_ns_.resize(static_cast<size_t>(comm_.rank_count));
  mxs_status own = comm_.agreement_->open();
  if (own == MXS_OK && wants_thread()) own = fenced([this] { return comm_.start_thread(); });
  return comm_.bootstrap->settle(own);
}

// Only where it is asked for.
bool CommBuilder::wants_thread() const { return comm_.forced_progress == MXS_PROGRESS_THREAD; }

const char *CommBuilder::transport_between(int a, int b) const {
  if (!forced_.empty()) return forced_.c_str();
  const int node = comm_.topology.node_of(a);
  if (node != comm_.topology.node_of(b)) return "ucx";
  return one_process(node) ? "loopback" : "shm";
}

std::vector<int> CommBuilder::peers_by(const char *name) const {
  std::vector<int> peers;
  for (int rank = 0; rank < comm_.rank_count; ++rank)
    if (rank != comm_.rank && std::strcmp(transport_between(comm_.rank, rank), name) == 0) peers.push_back(rank);
  return peers;
}

// Every rank comes here for every transport, with or without peers for it: the address exchange is everybody's.
mxs_status CommBuilder::open_link(const char *name, const std::vector<int> &peers) {
  const Transport *transport = find_transport(name);
  Link *link = nullptr;
  std::vector<std::byte> address;
  mxs_status status = MXS_OK;
  if (!peers.empty()) {
    std::string why_not;
    if (!transport) {
      status = set_error(MXS_NOT_BUILT, "ranks %d and %d are to be joined by %s, which is not in this build (it has "
                         "%s)", comm_.rank, peers[0], name, transport_names().c_str());
    } else if (!transport->usable(&why_not)) {
      status = set_error(MXS_TRANSPORT_FAILED, "ranks %d and %d are to be joined by %s, which can't be used here: %s",
                         comm_.rank, peers[0], name, why_not.c_str());
    } else {
      LinkOptions options;
      options.rank = comm_.rank;
      options.rank_count = comm_.rank_count;
      options.session = comm_.session;
      options.timeout_ns = comm_.timeout_ns;
      options.domain = comm_.local.get();
      for (const RankPlace &place : comm_.topology.ranks) options.node_of_rank.push_back(place.node);
      options.device = comm_.own_nic();
      status = transport->open(&link, options, &address);
      if (status == MXS_OK) comm_.links.emplace_back(transport, link);
    }
  }
  status = comm_.bootstrap->settle(status);
  if (status != MXS_OK) return status;
  std::vector<std::vector<std::byte>> addresses;
  status = comm_.bootstrap->all_gather_blobs(address, &addresses);
  if (status != MXS_OK) return status;
  if (link) status = transport->connect(link, addresses, peers);
  status = comm_.bootstrap->settle(status);
  if (status != MXS_OK) return status;
  for (const int peer : peers) comm_.routes[static_cast<size_t>(peer)] = {transport, link};
  return MXS_OK;
}

mxs_status CommBuilder::open_links() {
  comm_.routes.resize(static_cast<size_t>(comm_.rank_count));
  for (const char *name : {"loopback", "shm", "ucx"}) {
    // Decided from what all ranks know, so that all come to the same exchanges.
    bool used = false;
    if (!forced_.empty()) {
      used = comm_.rank_count > 1 && forced_ == name;
    } else if (std::strcmp(name, "ucx") == 0) {
      used = comm_.topology.node_count() > 1;
    } else {
      for (int node = 0; node < comm_.topology.node_count(); ++node)
        used |= comm_.topology.node(node).rank_count() > 1 &&
                one_process(node) == (std::strcmp(name, "loopback") == 0);
    }
    if (!used) continue;
    const std::vector<int> peers = peers_by(name);
    const mxs_status status = open_link(name, peers);
    if (status != MXS_OK) return status;
    if (!peers.empty()) comm_.transports.append(comm_.transports.empty() ? "" : " ").append(name);
  }
  if (comm_.transports.empty()) comm_.transports = "none";
  return MXS_OK;
}

// Ranks of the environment have talked to each other at addresses. Those of callbacks know of none but what
// MXS_INTERFACE says, unless all are on one machine.
mxs_status CommBuilder::open_rendezvous() {
  if (comm_.rank_count == 1) return MXS_OK;
  std::string address;
  const mxs_status own = read_interface(&address);
  if (address.empty()) address = comm_.bootstrap->own_address();
  const bool is_one_machine = std::all_of(identities_.begin(), identities_.end(), [&](const Identity &identity) {
    return identity.network == identities_[0].network;
  });
  if (address.empty() && is_one_machine) address = "127.0.0.1";
  return Rendezvous::open(&comm_.rendezvous, *comm_.bootstrap, own, address, comm_.session, comm_.secret);
}

// Rank 0 tells its time in exchanges that all take part in. What it tells in one it has read after the exchange before
// began everywhere, and before this one ended anywhere: so it lies between two times of each rank. The narrowest of
// some such intervals counts.
mxs_status CommBuilder::compare_clocks(TraceIdentity *own) const {
  constexpr int exchanges = 8;
  std::vector<uint64_t> times(static_cast<size_t>(comm_.rank_count));
  uint64_t begin_ns = 0, narrowest_ns = UINT64_MAX;
  for (int number = 0; number <= exchanges; ++number) {
    const uint64_t told_ns = now_ns();
    const mxs_status status = comm_.bootstrap->all_gather(&told_ns, times.data(), sizeof told_ns);
    if (status != MXS_OK) return status;
    const uint64_t end_ns = now_ns();
    if (number > 0 && end_ns - begin_ns < narrowest_ns) {
      narrowest_ns = end_ns - begin_ns;
      own->clock_offset_ns = static_cast<int64_t>(times[0] - (begin_ns + narrowest_ns / 2));
      own->clock_uncertainty_ns = narrowest_ns / 2;
    }
    begin_ns = told_ns;
  }
  // Ranks of rank 0's node have its clock.
  if (comm_.topology.node_of(comm_.rank) == comm_.topology.node_of(0))
    own->clock_offset_ns = 0, own->clock_uncertainty_ns = 0;
  return MXS_OK;
}

// A trace that was asked for and can't be written is no comm, on no rank.
mxs_status CommBuilder::open_trace() {
  const auto traces = [](const Identity &identity) { return identity.traces != 0; };
  if (std::none_of(identities_.begin(), identities_.end(), traces)) return MXS_OK;
  TraceIdentity own;
  own.job = comm_.job;
  own.comm = comm_.session;
  own.rank = comm_.rank;
  own.rank_count = comm_.rank_count;
  mxs_status status = comm_.topology.node_count() > 1 ? compare_clocks(&own) : MXS_OK;
  if (status != MXS_OK) return status;
  if (trace_.on()) status = fenced([&] { return Tracer::create(&comm_.tracer, trace_, own); });
  status = comm_.bootstrap->settle(status);
  if (status != MXS_OK || !comm_.tracer) {
    if (comm_.tracer) comm_.tracer->discard();
    return status;
  }
  TraceEvent event;
  event.name = comm_.tracer->name("create");
  event.begin_ns = begin_ns_;
  comm_.tracer->mark(event, now_ns());
  comm_.queue.trace_to(comm_.tracer.get(), &comm_.phase);
  log_line(MXS_LOG_INFO, "trace: %s", comm_.tracer->ring_path().c_str());
  return MXS_OK;
}

int CommBuilder::cores_each() const {
  const int local_count = comm_.topology.node(comm_.topology.node_of(comm_.rank)).rank_count();
  return std::max(1, identities_[static_cast<size_t>(comm_.rank)].core_count / local_count);
}

mxs_status CommBuilder::build(const mxs_comm_options &options) {
  mxs_status status = check_comm_options(options);
  if (status == MXS_OK) status = check_kernels();
  if (status == MXS_OK) status = read_timeout(options, &comm_.timeout_ns);
  if (status == MXS_OK) status = read_secret(&comm_.secret, options.secret);
  if (status == MXS_OK) status = environment_number("MXS_DEBUG_BUFFERS", 0, 1, &debug_buffers_);
  if (status == MXS_OK) status = connect_bootstrap(options);
  if (status == MXS_OK) status = join(options);
  return status == MXS_OK ? open_rendezvous() : status;
}

mxs_status CommBuilder::build_over(std::unique_ptr<Bootstrap> bootstrap, const Topology &topology,
                                   const mxs_comm_options &options, uint64_t job, bool traced) {
  comm_.bootstrap = std::move(bootstrap);
  job_ = job;
  traced_ = traced;
  known_topology_ = &topology;
  mxs_status status = read_timeout(options, &comm_.timeout_ns);
  if (status == MXS_OK) status = environment_number("MXS_DEBUG_BUFFERS", 0, 1, &debug_buffers_);
  return status == MXS_OK ? join(options) : status;
}

mxs_status CommBuilder::join(const mxs_comm_options &options) {
  comm_.debug_buffers = debug_buffers_ == 1;
  comm_.rank = comm_.bootstrap->rank();
  comm_.rank_count = comm_.bootstrap->rank_count();
  comm_.asked_device = options.device;
  comm_.given_nccl = options.nccl_comm;
  mxs_status status = exchange_identities(options);
  if (status == MXS_OK) status = open_domain();
  if (status == MXS_OK) status = open_links();
  if (status == MXS_OK) status = open_trace();
  if (status != MXS_OK) return status;
  comm_.forced_transport = forced_;
  comm_.thread_count = options.thread_count ? options.thread_count : cores_each();
  // Between nodes rank 0 passes failures on at once, also while its caller computes: the others find a dead rank's
  // neighbours gone as well, and know from rank 0 alone who was first.
  if (comm_.topology.node_count() > 1) comm_.bootstrap->watch();
  if (comm_.rank == 0)
    log_line(MXS_LOG_INFO, "comm: %d ranks on %d nodes, found by %s, joined by %s, %d threads each, progress %s",
             comm_.rank_count, comm_.topology.node_count(), comm_.bootstrap->name(), comm_.transports.c_str(),
             comm_.thread_count, comm_.has_thread() ? "by a thread" : "in calls");
  return MXS_OK;
}

mxs_status check_comm_options(const mxs_comm_options &options) {
  if (options.thread_count < 0 || options.thread_count > 4096)
    return set_error(MXS_INVALID_ARGUMENT, "options.thread_count is %d, not from 0 to 4096", options.thread_count);
  if (options.progress < MXS_PROGRESS_CHOSEN || options.progress > MXS_PROGRESS_THREAD)
    return set_error(MXS_INVALID_ARGUMENT, "options.progress is %d, not one of MXS_PROGRESS_...", options.progress);
  if (options.device < 0)
    return set_error(MXS_INVALID_ARGUMENT, "options.device is %d, neither 0 nor an MXS_DEVICE(index)", options.device);
  return MXS_OK;
}

mxs_status create_comm(std::unique_ptr<Comm> *result, const mxs_comm_options &options) {
  auto comm = std::make_unique<mxs_comm>();
  const mxs_status status = CommBuilder(comm.get()).build(options);
  if (status != MXS_OK && comm->tracer) comm->tracer->discard();
  if (status == MXS_OK) *result = std::move(comm);
  return status;
}

mxs_status create_comm_over(std::unique_ptr<Comm> *result, std::unique_ptr<Bootstrap> bootstrap,
                            const Topology &topology, const mxs_comm_options &options, uint64_t job,
                            bool traced) {
  auto comm = std::make_unique<mxs_comm>();
  const mxs_status status = CommBuilder(comm.get()).build_over(std::move(bootstrap), topology, options, job, traced);
  if (status == MXS_OK) *result = std::move(comm);
  return status;
}

}  // namespace mxs
