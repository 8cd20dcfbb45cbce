// SPDX-License-Identifier: Apache-2.0
// The caller's own all-gather: answers that are neither yes nor no, and rounds that are given up.
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "bootstrap/bootstrap.hpp"
#include "support/complaints.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::good;
using mxs::test::ThreadBootstrap;

namespace {

// A world of 2 whose callbacks answer what a test wants.
struct Answers {
  int all_gather = 0, test = 0, free_request = 0;
  int calls = 0, frees = 0;
};

mxs_bootstrap callbacks_of(Answers *answers) {
  mxs_bootstrap callbacks = MXS_BOOTSTRAP_INIT;
  callbacks.rank_count = 2;
  callbacks.context = answers;
  callbacks.all_gather = [](void *context, const void *source, void *target, size_t bytes, void **request) {
    auto *answers = static_cast<Answers *>(context);
    ++answers->calls;
    std::memcpy(target, source, bytes);
    std::memcpy(static_cast<char *>(target) + bytes, source, bytes);
    *request = answers;
    return answers->all_gather;
  };
  callbacks.test = [](void *context, void *) { return static_cast<Answers *>(context)->test; };
  callbacks.free_request = [](void *context, void *) {
    ++static_cast<Answers *>(context)->frees;
    return static_cast<Answers *>(context)->free_request;
  };
  return callbacks;
}

bool answer_gives(const Answers &wanted, mxs_status status, const char *word, int frees) {
  Answers answers = wanted;
  std::unique_ptr<Bootstrap> bootstrap;
  if (create_callback_bootstrap(&bootstrap, callbacks_of(&answers), 100'000'000) != MXS_OK) return false;
  const uint32_t source = 0x12345678;
  uint32_t target[2] = {1, 1};
  const mxs_status got = bootstrap->all_gather(&source, target, sizeof source);
  const bool said = status == MXS_OK || std::string(last_error_text()).find(word) != std::string::npos;
  const bool data = status == MXS_OK ? target[0] == source && target[1] == source : target[0] == 1 && target[1] == 1;
  if (got != status || !said || !data) print_error("%s: %s\n", mxs_status_name(got), last_error_text());
  return got == status && said && data && answers.frees == frees;
}

void answers_of_callbacks_are_understood(void **) {
  assert_true(answer_gives({0, 0, 0}, MXS_OK, "", 1));
  assert_true(answer_gives({5, 0, 0}, MXS_TRANSPORT_FAILED, "all_gather returned 5", 0));
  assert_true(answer_gives({0, -3, 0}, MXS_TRANSPORT_FAILED, "test returned -3", 1));
  assert_true(answer_gives({0, 2, 0}, MXS_TRANSPORT_FAILED, "test returned 2", 1));
  assert_true(answer_gives({0, 0, 9}, MXS_TRANSPORT_FAILED, "free_request returned 9", 1));
  assert_true(answer_gives({0, 1, 0}, MXS_TIMED_OUT, "rank 0 of 2", 1));
}

bool interrupted_round_ends() {
  Answers answers;
  answers.test = 1;  // for ever "not yet"
  std::unique_ptr<Bootstrap> bootstrap;
  if (create_callback_bootstrap(&bootstrap, callbacks_of(&answers), 60'000'000'000) != MXS_OK) return false;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    bootstrap->announce_failure(MXS_ABORTED, "stop");
  });
  const mxs_status status = bootstrap->barrier();
  other.join();
  return status == MXS_ABORTED && answers.frees == 1;
}

void a_failure_ends_a_round_that_waits(void **) { assert_true(interrupted_round_ends()); }

// ---- what all bootstraps share, over threads ----

std::string in_threads(int rank_count, const std::function<std::string(Bootstrap &)> &body) {
  ThreadBootstrap world(rank_count);
  std::vector<std::string> complaints(static_cast<size_t>(rank_count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < rank_count; ++rank)
    threads.emplace_back([&, rank] {
      std::unique_ptr<Bootstrap> bootstrap;
      std::string &complaint = complaints[static_cast<size_t>(rank)];
      const mxs_status status = create_callback_bootstrap(&bootstrap, world.of(rank), 60'000'000'000);
      complaint = status == MXS_OK ? body(*bootstrap) : last_error_text();
    });
  for (std::thread &thread : threads) thread.join();
  for (const std::string &complaint : complaints)
    if (!complaint.empty()) return complaint;
  return world.requests_alive() == 0 ? "" : "requests were not freed";
}

std::byte byte_of(int rank, size_t i) { return static_cast<std::byte>((static_cast<size_t>(rank) * 31 + i * 7) & 255); }

std::string exchanges_blobs(Bootstrap &bootstrap) {
  // Nothing, one byte, a border, a megabyte and a bit: each rank another.
  const size_t sizes[] = {0, 1, 65536, 65537, 1000003, 17, 0, 65535};
  const auto size_of = [&](int rank) { return sizes[static_cast<size_t>(rank)]; };
  std::vector<std::byte> blob(size_of(bootstrap.rank()));
  for (size_t i = 0; i < blob.size(); ++i) blob[i] = byte_of(bootstrap.rank(), i);
  std::vector<std::vector<std::byte>> blobs;
  if (bootstrap.all_gather_blobs(blob, &blobs) != MXS_OK) return last_error_text();
  for (int rank = 0; rank < bootstrap.rank_count(); ++rank) {
    const std::vector<std::byte> &other = blobs[static_cast<size_t>(rank)];
    if (other.size() != size_of(rank)) return "a size is wrong";
    for (size_t i = 0; i < other.size(); ++i)
      if (other[i] != byte_of(rank, i)) return "a byte is wrong";
  }
  return "";
}

void blobs_of_any_sizes_are_exchanged(void **) {
  for (const int rank_count : mxs::test::world_sizes)
    assert_true(good(in_threads(rank_count, exchanges_blobs)));
}

std::string refuses_a_huge_blob(Bootstrap &bootstrap) {
  std::vector<std::byte> blob(bootstrap.rank() == 1 ? Bootstrap::blob_bytes_max + 1 : 3);
  std::vector<std::vector<std::byte>> blobs;
  const mxs_status status = bootstrap.all_gather_blobs(blob, &blobs);
  if (status != MXS_INVALID_ARGUMENT || !blobs.empty()) return "it was not refused";
  return std::string(last_error_text()).find("rank 1") == std::string::npos ? last_error_text() : "";
}

void a_blob_that_is_too_large_is_refused_on_all(void **) {
  assert_true(good(in_threads(3, refuses_a_huge_blob)));
}

std::string settles(Bootstrap &bootstrap) {
  if (bootstrap.settle(MXS_OK) != MXS_OK) return last_error_text();
  const bool fails = bootstrap.rank() >= 1;
  const mxs_status own = fails ? set_error(MXS_SYSTEM, "trouble of %d", bootstrap.rank()) : MXS_OK;
  const mxs_status status = bootstrap.settle(own);
  if (status != MXS_SYSTEM) return "the failure got lost";
  // Others hear of the lowest rank that failed.
  return std::string(last_error_text()).find("trouble of 1") == std::string::npos ? last_error_text() : "";
}

void a_failure_on_one_rank_is_settled_on_all(void **) { assert_true(good(in_threads(3, settles))); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(answers_of_callbacks_are_understood),
      cmocka_unit_test(a_failure_ends_a_round_that_waits),
      cmocka_unit_test(blobs_of_any_sizes_are_exchanged),
      cmocka_unit_test(a_blob_that_is_too_large_is_refused_on_all),
      cmocka_unit_test(a_failure_on_one_rank_is_settled_on_all),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
