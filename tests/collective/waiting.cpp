// SPDX-License-Identifier: Apache-2.0
// Waiting is cheap: a rank that waits a second for another one hardly uses its core. What was used is told beside the
// result; the test itself is content with half.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.hpp"
#include "cases.hpp"
#include "support/processes.hpp"
#include "support/transports.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

uint64_t used_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto nanoseconds = [](const timeval &time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_usec) * 1000u;
  };
  return nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
}

// Rank 1 comes a second late.
std::string waits(int rank, mxs_comm *comm, const char *transport) {
  TestLayout layout("all of rank 1", 1);
  layout.add(1, 100'000);
  Case each;
  each.layout = &layout;
  OwnedCollective gather;
  if (make(&gather, comm, each, 2) != MXS_OK) return error_of("create");
  std::vector<std::byte> target(layout.bytes);
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  if (rank == 1) usleep(1'000'000);
  const uint64_t used_before = used_ns(), before = mxs::now_ns();
  if (mxs_collective_start(gather.value, nullptr, target.data(), nullptr) != MXS_OK) return error_of("start");
  if (mxs_collective_wait(gather.value, nullptr) != MXS_OK) return error_of("wait");
  if (rank == 1) return "";
  const double share = static_cast<double>(used_ns() - used_before) / static_cast<double>(mxs::now_ns() - before);
  std::fprintf(stderr, "# over %s a wait of a second took %.2f%% of a core\n", transport, share * 100);
  return share < 0.5 ? "" : words("%.0f%% of a core were used while waiting", share * 100);
}

bool cheap_over(const char *transport) {
  if (!has_transport(transport)) return true;
  ProcessOptions options;
  options.transport = transport;
  return good(run_processes(2, [=](int rank, mxs_comm *comm) { return waits(rank, comm, transport); }, options));
}

void waiting_over_shm_is_cheap(void **) { assert_true(cheap_over("shm")); }
void waiting_over_ucx_is_cheap(void **) { assert_true(cheap_over("ucx")); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(waiting_over_shm_is_cheap), cmocka_unit_test(waiting_over_ucx_is_cheap)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
