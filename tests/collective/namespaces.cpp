// SPDX-License-Identifier: Apache-2.0
// Two nodes on one machine: each rank moves into a network namespace of its own, joined by a pair of virtual cards. So
// nothing is forced: the comm itself must find two nodes and join them by UCX over TCP. Namespaces and cards vanish
// with the processes, however these end. Needs root; skipped where that isn't allowed.
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "cases.hpp"
#include "support/processes.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

constexpr const char *card = "mxsv";  // the same name in both namespaces

struct Board {
  std::atomic<int> moved{0};  // ranks in their namespace
};

// Shared with the ranks.
Board *make_board() {
  void *memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Board();
}

bool run(const std::string &command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

bool wait_until(const auto &ready) {
  for (int turn = 0; turn < 2000; ++turn) {
    if (ready()) return true;
    usleep(5000);
  }
  return false;
}

// UCX looks for cards under /sys/class/net, which shows those of the namespace in which it was mounted.
bool unshare_network() {
  return unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 && mount("none", "/", "", MS_REC | MS_PRIVATE, nullptr) == 0 &&
         (umount2("/sys", MNT_DETACH) == 0 || errno == EINVAL) && mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0;
}

// What the environment must allow, tried in a child, whose namespace is gone at once. "": all of it.
std::string why_not() {
  if (geteuid() != 0) return "network namespaces need root";
  if (!run("ip -V")) return "there is no ip command (iproute2)";
  const pid_t child = fork();
  if (child == 0) {
    if (!unshare_network()) _exit(1);
    _exit(run("ip link add mxsa type veth peer name mxsb") ? 0 : 2);
  }
  int result = 0;
  waitpid(child, &result, 0);
  if (WEXITSTATUS(result) == 1) return "no new network namespace is allowed here";
  return WEXITSTATUS(result) == 2 ? "no virtual network cards are allowed here" : "";
}

// Both ends are up: UCX takes no other card.
bool card_runs() {
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "%s", card);
  const int socket_number = socket(AF_INET, SOCK_DGRAM, 0);
  const bool known = ioctl(socket_number, SIOCGIFFLAGS, &request) == 0;
  close(socket_number);
  return known && (request.ifr_flags & IFF_RUNNING);
}

std::string move_into_a_namespace(int rank, Board *board) {
  if (!unshare_network()) return "no namespace";
  ++board->moved;
  if (!wait_until([] { return if_nametoindex(card) != 0; })) return "no card came";
  if (!run("ip link set lo up") || !run(std::string("ip link set ") + card + " up") ||
      !run("ip addr add 10.111.0." + std::to_string(rank + 1) + "/24 dev " + card))
    return "the card can't be set up";
  if (!wait_until(card_runs)) return "the card doesn't run";
  setenv("MASTER_ADDR", "10.111.0.1", 1);
  setenv("UCX_TLS", "tcp,self", 1);
  setenv("UCX_NET_DEVICES", card, 1);
  return "";
}

// Each node's only rail is the card in its namespace, though /sys and hwloc may show others.
std::string has_the_card_as_rail(mxs_comm *comm) {
  mxs_topology *topology = nullptr;
  if (mxs_comm_topology(comm, &topology) != MXS_OK) return error_of("topology");
  std::string wrong;
  for (int node = 0; node < 2 && wrong.empty(); ++node) {
    mxs_node_info info = MXS_NODE_INFO_INIT;
    mxs_rail_info rail = MXS_RAIL_INFO_INIT;
    if (mxs_topology_node(topology, node, &info) != MXS_OK || mxs_topology_rail(topology, node, 0, &rail) != MXS_OK)
      wrong = error_of("query");
    else if (info.rail_count != 1 || std::strcmp(rail.name, card) != 0)
      wrong = std::to_string(info.rail_count) + " rails, the first is " + rail.name;
  }
  mxs_topology_destroy(&topology);
  return wrong;
}

std::string collect(int rank, mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return error_of("query");
  if (info.node_count != 2 || info.node != rank || std::strcmp(info.transports, "ucx") != 0)
    return std::to_string(info.node_count) + " nodes, this one is " + std::to_string(info.node) + ", joined by " +
           info.transports;
  const std::string wrong = has_the_card_as_rail(comm);
  if (!wrong.empty()) return wrong;
  for (const TestLayout &layout : test_layouts(2, 4, 20001))
    for (const int32_t kind : {MXS_GATHER, MXS_REDUCE}) {
      Case each;
      each.layout = &layout;
      each.kind = kind;
      const std::string complaint = run_case(rank, 2, comm, each);
      if (!complaint.empty()) return complaint;
    }
  return "";
}

std::string make_comm_and_collect(int rank) {
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.timeout_ns = 30'000'000'000u;
  mxs_comm *comm = nullptr;
  if (mxs_comm_create(&comm, &options) != MXS_OK) return error_of("create");
  const std::string wrong = collect(rank, comm);
  if (!wrong.empty()) mxs_comm_abort(comm, wrong.c_str());
  if (mxs_comm_destroy(&comm) != MXS_OK && wrong.empty()) return error_of("destroy");
  return wrong;
}

// By name or by topology: who claims to share a node must show memory, and these can't.
std::string claim_one_node(const char *variable, const char *value) {
  setenv(variable, value, 1);
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.timeout_ns = 30'000'000'000u;
  mxs_comm *comm = nullptr;
  const mxs_status status = mxs_comm_create(&comm, &options);
  unsetenv(variable);
  if (status == MXS_OK) return std::string(variable) + " is believed";
  return std::strstr(mxs_last_error(), "joining the ranks of its node") ? "" : error_of("another sentence");
}

std::string make_false_claims(int) {
  const std::string wrong = claim_one_node("MXS_NODE", "one");
  return wrong.empty() ? claim_one_node("MXS_TOPOLOGY", "ranks:2") : wrong;
}

// ---- ranks that know no addresses -----------------------------------------------------------------------------------

// An all-gather of two processes in memory that they share, for mxs_comm_options.bootstrap. Rounds are used once.
struct SharedRounds {
  static constexpr size_t round_count = 256, bytes_max = 70'000;
  std::atomic<int> come[round_count];
  char data[round_count][2][bytes_max];
};

struct SharedEnd {
  SharedRounds *rounds;
  int rank;
  size_t round = 0;
};

struct SharedRequest {
  size_t round, bytes;
  void *target;
};

int start_gather(void *context, const void *source, void *target, size_t bytes, void **request) {
  SharedEnd &end = *static_cast<SharedEnd *>(context);
  if (bytes > SharedRounds::bytes_max || end.round == SharedRounds::round_count) return 1;
  std::memcpy(end.rounds->data[end.round][end.rank], source, bytes);
  ++end.rounds->come[end.round];
  *request = new SharedRequest{end.round++, bytes, target};
  return 0;
}

int test_gather(void *context, void *request) {
  SharedEnd &end = *static_cast<SharedEnd *>(context);
  const SharedRequest &gather = *static_cast<SharedRequest *>(request);
  if (end.rounds->come[gather.round] < 2) return 1;
  for (size_t rank = 0; rank < 2; ++rank)
    std::memcpy(static_cast<char *>(gather.target) + rank * gather.bytes, end.rounds->data[gather.round][rank],
                gather.bytes);
  return 0;
}

int free_gather(void *, void *request) {
  delete static_cast<SharedRequest *>(request);
  return 0;
}

SharedRounds *shared_rounds = nullptr;  // mapped before the ranks are forked; rounds go on from comm to comm

mxs_status create_by_callbacks(mxs_comm **comm, SharedEnd *end) {
  mxs_bootstrap bootstrap = MXS_BOOTSTRAP_INIT;
  bootstrap.rank = end->rank;
  bootstrap.rank_count = 2;
  bootstrap.context = end;
  bootstrap.all_gather = start_gather;
  bootstrap.test = test_gather;
  bootstrap.free_request = free_gather;
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.bootstrap = &bootstrap;
  options.timeout_ns = 30'000'000'000u;
  return mxs_comm_create(comm, &options);
}

std::string fail_and_shrink(SharedEnd *end, mxs_status wanted, const char *word) {
  mxs_comm *comm = nullptr, *next = nullptr;
  if (create_by_callbacks(&comm, end) != MXS_OK) return error_of("create");
  std::string complaint;
  // Word of the first that gives up may come before the last message of this.
  const mxs_status met = mxs_comm_barrier(comm, nullptr);
  if (met != MXS_OK && met != MXS_ABORTED) complaint = error_of("barrier");
  mxs_comm_abort(comm, "on purpose");
  const mxs_status status = mxs_comm_shrink(&next, comm, nullptr);
  if (complaint.empty() && status != wanted) complaint = error_of("shrink");
  if (complaint.empty() && status != MXS_OK && !std::strstr(mxs_last_error(), word)) complaint = error_of("sentence");
  if (complaint.empty() && next && mxs_comm_barrier(next, nullptr) != MXS_OK) complaint = error_of("new barrier");
  mxs_comm_destroy(&next);
  mxs_comm_destroy(&comm);
  return complaint;
}

std::string shrink_without_addresses(int rank) {
  SharedEnd end = {shared_rounds, rank};
  std::string complaint = fail_and_shrink(&end, MXS_NOT_BUILT, "set MXS_INTERFACE");
  setenv("MXS_INTERFACE", rank == 1 ? "mxs-nowhere" : card, 1);
  mxs_comm *comm = nullptr;
  if (complaint.empty() && create_by_callbacks(&comm, &end) != MXS_ENVIRONMENT) complaint = "a wrong name is taken";
  if (complaint.empty() && !std::strstr(mxs_last_error(), "mxs-nowhere")) complaint = error_of("wrong name");
  setenv("MXS_INTERFACE", card, 1);
  return complaint.empty() ? fail_and_shrink(&end, MXS_OK, "") : complaint;
}

using Joined = std::string (*)(int rank);  // what a rank does once both can reach each other

bool in_two_namespaces(Joined body) {
  Board *board = make_board();
  ProcessOptions options;
  bool joined = false;
  options.meanwhile = [&](const std::vector<pid_t> &ranks) {
    joined = wait_until([&] { return board->moved == 2; }) &&
             run(std::string("ip link add ") + card + " netns " + std::to_string(ranks[0]) +
                 " type veth peer name " + card + " netns " + std::to_string(ranks[1]));
  };
  const std::string complaint = run_processes_bare(2, [&](int rank) -> std::string {
    const std::string wrong = move_into_a_namespace(rank, board);
    return wrong.empty() ? body(rank) : wrong;
  }, options);
  munmap(board, sizeof *board);
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return joined && complaint.empty();
}

void two_namespaces_are_two_nodes_joined_by_ucx(void **) { assert_true(in_two_namespaces(make_comm_and_collect)); }
void two_namespaces_that_claim_one_node_are_found_out(void **) { assert_true(in_two_namespaces(make_false_claims)); }

void ranks_of_callbacks_meet_at_the_interface_that_is_named(void **) {
  void *memory = mmap(nullptr, sizeof(SharedRounds), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  shared_rounds = new (memory) SharedRounds();
  const bool good = in_two_namespaces(shrink_without_addresses);
  munmap(memory, sizeof(SharedRounds));
  assert_true(good);
}

}  // namespace

int main() {
  const std::string reason = why_not();
  if (!reason.empty()) {
    std::printf("1..0 # SKIP %s\n", reason.c_str());
    return 0;
  }
  const CMUnitTest tests[] = {cmocka_unit_test(two_namespaces_are_two_nodes_joined_by_ucx),
                              cmocka_unit_test(two_namespaces_that_claim_one_node_are_found_out),
                              cmocka_unit_test(ranks_of_callbacks_meet_at_the_interface_that_is_named)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
