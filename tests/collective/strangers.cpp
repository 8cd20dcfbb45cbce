// SPDX-License-Identifier: Apache-2.0
// Strangers at rank 0's port: they hold connections open, say nothing, half a hello, noise, or a hello of this very job
// that they can't prove, and come back whenever they are sent away. Ranks meet all the same, make units and an
// optimizer, and train, to the bits of a rank that trains alone. Then the strangers go to the place where rank 0 would
// meet the living after a failure; the comm fails, and all shrink it and train again.
//
// 300 of them; another number by the first argument: b/tests/collective/test_strangers 1000
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/greeting.hpp"
#include "bootstrap/bootstrap.hpp"
#include "matrixshard/comm.h"
#include "matrixshard/version.h"
#include "support/backed_up.hpp"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/sanitized.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::error_of;
using mxs::test::good;
using mxs::test::ProcessOptions;
using mxs::test::words;

namespace {

constexpr int rank_count = 4, steps = 4;
int stranger_count = 300;
mxs::test::Undisturbed alone;

// In memory that all processes share.
struct Crowd {
  std::atomic<int> port{0};           // where they knock; 0: at the job's
  std::atomic<bool> crowded[2] = {};  // every stranger is there at once: at the job's port, at the other
  std::atomic<int> done{0};           // ranks that have trained twice
  std::atomic<uint64_t> connections{0};
};

// ---- the strangers, all in one process ----

struct Visitor {
  int descriptor = -1, kind = 0;
};

Hello hello_of(const JobEnvironment &job, bool has_secret) {
  Hello hello = {{}, MXS_VERSION, 1, rank_count, has_secret ? hello_has_secret : 0, job.job, OccasionKind::bootstrap,
                 greeting_version, {}};
  std::memcpy(hello.magic, hello_magic, sizeof hello_magic);
  hello.nonce.fill(7);
  return hello;
}

// Says what its kind says, without waiting.
void speak(const Visitor &visitor, const JobEnvironment &job) {
  const std::string noise(100'000, '\xff');
  const Hello hello = hello_of(job, true);
  const auto say = [&](const void *data, size_t bytes) {
    (void)!send(visitor.descriptor, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  };
  switch (visitor.kind) {
    case 0: break;                               // silent
    case 1: say("GET / HTTP/1.1\r\n\r\n", 18); break;
    case 2: say(&hello, 40); break;              // half of a hello
    case 3: say(noise.data(), noise.size()); break;
    case 4: say(&hello, sizeof hello); break;    // and then no proof
    default: {                                   // a proof with it that is none
      say(&hello, sizeof hello);
      const struct {
        Frame frame;
        Code code;
      } proof = {{FrameKind::proof, 0, 0, sizeof(Code)}, {}};
      say(&proof, sizeof proof);
    }
  }
}

bool knock(Visitor *visitor, const JobEnvironment &job, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port ? port : job.port));
  visitor->descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(visitor->descriptor, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0) {
    speak(*visitor, job);
    return true;
  }
  close(visitor->descriptor);
  visitor->descriptor = -1;
  return false;
}

bool was_sent_away(const Visitor &visitor) {
  char bytes[256];
  for (;;) {
    const ssize_t count = recv(visitor.descriptor, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
    if (count < 0) return false;
  }
}

std::string be_strangers(const JobEnvironment &job, Crowd *crowd) {
  std::vector<Visitor> strangers(static_cast<size_t>(stranger_count));
  for (size_t i = 0; i < strangers.size(); ++i) strangers[i].kind = static_cast<int>(i % 6);
  const uint64_t begin_ns = now_ns();
  int before = 0;
  while (crowd->done.load() < rank_count && now_ns() - begin_ns < 100'000'000'000u) {
    size_t in = 0;
    const int port = crowd->port.load();
    const bool have_moved = port != before;
    before = port;
    for (Visitor &visitor : strangers) {
      if (visitor.descriptor >= 0 && (have_moved || was_sent_away(visitor))) {
        close(visitor.descriptor);
        visitor.descriptor = -1;
      }
      if (visitor.descriptor < 0 && knock(&visitor, job, port)) ++crowd->connections;
      in += visitor.descriptor >= 0;
    }
    if (in == strangers.size()) crowd->crowded[port != 0].store(true);
    usleep(2000);
  }
  for (const Visitor &visitor : strangers)
    if (visitor.descriptor >= 0) close(visitor.descriptor);
  return crowd->crowded[0].load() && crowd->crowded[1].load() ? "" : "the strangers never came";
}

// ---- the ranks ----

std::string work(mxs_comm *comm) {
  for (int step = 0; step < 50; ++step) {
    double loss = 1;
    if (mxs_comm_sum(comm, &loss, 1, nullptr) != MXS_OK) return error_of("sum");
    if (loss != rank_count) return words("the sum is %g", loss);
  }
  mxs::test::BackedUpRank rank;
  std::string complaint = rank.make(comm);
  if (complaint.empty()) complaint = rank.steps_to(steps);
  if (complaint.empty()) complaint = rank.compare(alone.after[steps]);
  return complaint.empty() ? rank.compare_gathered(alone.weights) : complaint;
}

// Of the only socket of this process that listens: the comm's rendezvous.
int listening_port() {
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    int listens = 0;
    socklen_t bytes = sizeof listens;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || !listens) continue;
    sockaddr_in address{};
    bytes = sizeof address;
    if (getsockname(descriptor, reinterpret_cast<sockaddr *>(&address), &bytes) == 0 && address.sin_family == AF_INET)
      return ntohs(address.sin_port);
  }
  return 0;
}

std::string shrink_and_work(int rank, mxs_comm *comm, Crowd *crowd) {
  const uint64_t patience_ns = now_ns() + 60'000'000'000u;
  while (!crowd->crowded[1].load())
    if (usleep(1000); now_ns() > patience_ns) return "the strangers never came to where the living meet";
  mxs_comm_abort(comm, "on purpose");
  const uint64_t begin_ns = now_ns();
  mxs_comm *next = nullptr;
  if (mxs_comm_shrink(&next, comm, nullptr) != MXS_OK) return error_of("shrink");
  if (rank == 1) std::printf("# shrunk within %.0f ms\n", static_cast<double>(now_ns() - begin_ns) * 1e-6);
  std::fflush(stdout);
  const std::string complaint = work(next);
  mxs_comm_destroy(&next);
  return complaint;
}

std::string be_rank(int rank, Crowd *crowd) {
  if (rank > 0)
    while (!crowd->crowded[0].load()) usleep(1000);
  const uint64_t begin_ns = now_ns();
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.timeout_ns = 60'000'000'000u;
  mxs_comm *comm = nullptr;
  if (mxs_comm_create(&comm, &options) != MXS_OK) return error_of("create");
  if (rank == 1)
    std::printf("# %d strangers, %llu connections: ranks met within %.0f ms\n", stranger_count,
                static_cast<unsigned long long>(crowd->connections.load()),
                static_cast<double>(now_ns() - begin_ns) * 1e-6);
  std::fflush(stdout);
  std::string complaint = work(comm);
  if (complaint.empty() && rank == 0) crowd->port.store(listening_port());
  if (complaint.empty()) complaint = shrink_and_work(rank, comm, crowd);
  ++crowd->done;
  mxs_comm_destroy(&comm);
  return complaint;
}

// descriptors: how many rank 0 may open; 0: as many as there are.
std::string among_strangers(const std::string &secret, rlim_t descriptors) {
  void *memory = mmap(nullptr, sizeof(Crowd), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto *crowd = new (memory) Crowd;
  const auto body = [=](int rank) -> std::string {
    setenv("WORLD_SIZE", std::to_string(rank_count).c_str(), 1);
    JobEnvironment job;
    if (rank == rank_count) setenv("RANK", "0", 1);
    if (read_job_environment(&job) != MXS_OK) return error_of("environment");
    if (rank == rank_count) return be_strangers(job, crowd);
    const rlimit limit = {descriptors, descriptors};
    if (rank == 0 && descriptors && setrlimit(RLIMIT_NOFILE, &limit) != 0) return "setrlimit";
    return be_rank(rank, crowd);
  };
  ProcessOptions options;
  options.timeout_seconds = 110;
  if (!secret.empty()) options.environment = {"MXS_SECRET=" + secret};
  const std::string complaint = mxs::test::run_processes_bare(rank_count + 1, body, options);
  munmap(memory, sizeof(Crowd));
  return complaint;
}

void ranks_with_a_secret_meet_among_strangers(void **) {
  if (prepare_proofs() != MXS_OK) test::not_run("this build has no libsodium");
  else assert_true(good(among_strangers("a secret of this test alone", 0)));
}

void ranks_meet_among_strangers_though_descriptors_end(void **) {
  if (test::needs_descriptors()) return test::not_run("UBSan or valgrind needs descriptors");
  if (prepare_proofs() != MXS_OK) test::not_run("this build has no libsodium");
  else assert_true(good(among_strangers("a secret of this test alone", 64)));
}

}  // namespace

int main(int count, char **words_given) {
  if (count > 1) stranger_count = std::max(1, std::atoi(words_given[1]));
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  stranger_count = std::min<int>(stranger_count, static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 100'000)) - 64);
  if (!good(alone.run(steps))) return 1;
  const CMUnitTest tests[] = {
      cmocka_unit_test(ranks_with_a_secret_meet_among_strangers),
      cmocka_unit_test(ranks_meet_among_strangers_though_descriptors_end),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
