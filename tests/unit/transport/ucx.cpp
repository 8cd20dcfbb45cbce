// SPDX-License-Identifier: Apache-2.0
// UCX alone, between processes: order, sizes, credits, leaving, and peers that die. Every case forks before UCX is
// loaded, so that each process has a UCX of its own.
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "support/complaints.hpp"
#include "support/local_world.hpp"
#include "transport/transport.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::words;
using mxs::testing::World;

namespace {

constexpr int window = 4;
constexpr int lane = 2;  // any
constexpr uint64_t second_ns = 1'000'000'000;
const Transport &ucx = ucx_transport;

std::vector<int> all_but(int rank, int rank_count) {
  std::vector<int> peers;
  for (int peer = 0; peer < rank_count; ++peer)
    if (peer != rank) peers.push_back(peer);
  return peers;
}

// Only all_gather is asked of the bootstrap: this test stands below the room that has the rest.
mxs_status share_addresses(Bootstrap &bootstrap, const std::vector<std::byte> &mine,
                           std::vector<std::vector<std::byte>> *all) {
  struct Blob {
    size_t bytes;
    std::byte data[4096];
  };
  Blob blob{mine.size(), {}};
  if (mine.size() > sizeof blob.data) return set_error(MXS_INTERNAL, "an address of %zu bytes", mine.size());
  std::memcpy(blob.data, mine.data(), mine.size());
  std::vector<Blob> blobs(static_cast<size_t>(bootstrap.rank_count()));
  const mxs_status status = bootstrap.all_gather(&blob, blobs.data(), sizeof blob);
  for (const Blob &one : blobs) all->emplace_back(one.data, one.data + one.bytes);
  return status;
}

void meet(Bootstrap &bootstrap) {
  std::vector<char> words(static_cast<size_t>(bootstrap.rank_count()));
  bootstrap.all_gather("x", words.data(), 1);
}

// This rank's link, joined with all others.
struct Joined {
  Link *link = nullptr;
  std::string complaint;

  explicit Joined(Bootstrap &bootstrap) {
    LinkOptions options;
    options.rank = bootstrap.rank();
    options.rank_count = bootstrap.rank_count();
    options.window_max = window;
    std::vector<std::byte> address;
    std::vector<std::vector<std::byte>> addresses;
    if (ucx.open(&link, options, &address) != MXS_OK ||
        share_addresses(bootstrap, address, &addresses) != MXS_OK ||
        ucx.connect(link, addresses, all_but(options.rank, options.rank_count)) != MXS_OK)
      complaint = last_error_text();
    meet(bootstrap);  // nobody closes while others still connect
  }
  ~Joined() { ucx.close(link, second_ns); }
  Joined(const Joined &) = delete;
};

// Repeats progress until ready() or something fails.
template <class Ready>
mxs_status progress_until(Link *link, Ready &&ready, uint64_t at_most_ns = 60 * second_ns) {
  const uint64_t deadline_ns = now_ns() + at_most_ns;
  for (;;) {
    const mxs_status status = ucx.progress(link);
    if (status != MXS_OK) return status;
    if (ready()) return MXS_OK;
    if (now_ns() > deadline_ns) return set_error(MXS_TIMED_OUT, "nothing came of it");
    ucx.sleep(link, second_ns / 20);
  }
}

// ---- Streams of all sizes between all pairs. ------------------------------------------------------------------------

constexpr size_t sizes[] = {8, 0, 1, 7, 8192, 8193, 65536, 131072, 1 << 20, 3, 100000};
constexpr size_t size_max = 1 << 20;
constexpr uint64_t message_count = 60;

size_t message_bytes(uint64_t number) { return sizes[number % std::size(sizes)]; }
std::byte content(int source, uint64_t number, size_t index) {
  return static_cast<std::byte>(static_cast<size_t>(source) * 31 + number * 7 + index * 13 + index / 251);
}
uint64_t message_tag(uint64_t number) { return (number * 0x9e3779b97f4a7c15u) & tag_mask; }

struct Stream {  // with one peer, both ways
  std::vector<std::vector<std::byte>> out, in;
  uint64_t posted = 0, wanted = 0, got = 0;
  Stream() : out(window, std::vector<std::byte>(size_max)), in(window, std::vector<std::byte>(size_max)) {}
};

std::string take(Link *link, int peer, Stream *stream) {
  while (const Arrival *arrival = ucx.arrived(link, peer, lane)) {
    const std::byte *data = static_cast<const std::byte *>(arrival->data);
    if (arrival->bytes != message_bytes(stream->got) || arrival->tag != message_tag(stream->got))
      return words("message %d of rank %d has %zu bytes, tag %llx; not %zu, tag %llx", static_cast<int>(stream->got),
                   peer, arrival->bytes, static_cast<unsigned long long>(arrival->tag), message_bytes(stream->got),
                   static_cast<unsigned long long>(message_tag(stream->got)));
    for (size_t i = 0; i < arrival->bytes; ++i)
      if (data[i] != content(peer, stream->got, i))
        return words("message %d of rank %d is wrong at %zu", static_cast<int>(stream->got), peer, i);
    ucx.retire(link, peer, lane);
    ++stream->got;
  }
  return "";
}

void give(Link *link, int rank, int peer, Stream *stream) {
  while (stream->posted < message_count && stream->posted - ucx.sent(link, peer, lane) < window) {
    std::vector<std::byte> &data = stream->out[stream->posted % window];
    const size_t bytes = message_bytes(stream->posted);
    for (size_t i = 0; i < bytes; ++i) data[i] = content(rank, stream->posted, i);
    ucx.send(link, peer, lane, message_tag(stream->posted), data.data(), bytes);
    ++stream->posted;
  }
  for (; stream->wanted < message_count && stream->wanted < stream->got + window; ++stream->wanted)
    ucx.receive(link, peer, lane, stream->in[stream->wanted % window].data(), message_bytes(stream->wanted));
}

std::string exchange(int rank, Bootstrap &bootstrap) {
  Joined joined(bootstrap);
  if (!joined.complaint.empty()) return joined.complaint;
  const std::vector<int> peers = all_but(rank, bootstrap.rank_count());
  std::vector<Stream> streams(static_cast<size_t>(bootstrap.rank_count()));
  std::string complaint;
  const mxs_status status = progress_until(joined.link, [&] {
    bool finished = true;
    for (const int peer : peers) {
      Stream &stream = streams[static_cast<size_t>(peer)];
      give(joined.link, rank, peer, &stream);
      if (complaint.empty()) complaint = take(joined.link, peer, &stream);
      finished &= stream.got == message_count && ucx.sent(joined.link, peer, lane) == message_count;
    }
    return finished || !complaint.empty();
  });
  return status == MXS_OK ? complaint : last_error_text();
}

bool streams_arrive(int rank_count, const char *devices) {
  World world(rank_count);
  const std::string complaint = world.run_processes([&](int rank, Bootstrap &bootstrap) {
    if (devices) setenv("UCX_TLS", devices, 1);
    return exchange(rank, bootstrap);
  });
  if (!complaint.empty())
    print_error("%d ranks, %s: %s\n", rank_count, devices ? devices : "default", complaint.c_str());
  return complaint.empty();
}

// ---- Credits. -------------------------------------------------------------------------------------------------------

std::string hold_back(int rank, Bootstrap &bootstrap) {
  Joined joined(bootstrap);
  if (!joined.complaint.empty()) return joined.complaint;
  std::vector<std::byte> data(size_max, static_cast<std::byte>(rank + 1));
  if (rank == 0) {
    for (int i = 0; i < window; ++i)
      if (ucx.send(joined.link, 1, lane, 5, data.data(), data.size()) != MXS_OK) return last_error_text();
    if (ucx.send(joined.link, 1, lane, 5, data.data(), 1) != MXS_INTERNAL)
      return "a message beyond the window was taken";
    progress_until(joined.link, [] { return false; }, second_ns / 5);
    if (ucx.sent(joined.link, 1, lane) != 0) return "a large message went before a receive was posted for it";
  }
  meet(bootstrap);
  if (rank == 0) {
    if (progress_until(joined.link, [&] { return ucx.sent(joined.link, 1, lane) == window; }) != MXS_OK)
      return last_error_text();
    return "";
  }
  std::vector<std::vector<std::byte>> landings(window, std::vector<std::byte>(size_max));
  for (std::vector<std::byte> &landing : landings) ucx.receive(joined.link, 0, lane, landing.data(), landing.size());
  if (ucx.receive(joined.link, 0, lane, data.data(), 1) != MXS_INTERNAL) return "a receive beyond the window was taken";
  for (int got = 0; got < window; ++got) {
    if (progress_until(joined.link, [&] { return ucx.arrived(joined.link, 0, lane) != nullptr; }) != MXS_OK)
      return last_error_text();
    ucx.retire(joined.link, 0, lane);
  }
  for (const std::vector<std::byte> &landing : landings)
    if (landing.front() != std::byte{1} || landing.back() != std::byte{1}) return "a message is wrong";
  return "";
}

// Small messages complete at once, so only credits can stop a sender that is far ahead.
std::string run_ahead(int rank, Bootstrap &bootstrap) {
  Joined joined(bootstrap);
  if (!joined.complaint.empty()) return joined.complaint;
  constexpr uint64_t count = 10 * window;
  uint64_t word = 1, posted = 0, got = 0;
  const auto give_more = [&] {
    for (; posted < count && posted - ucx.sent(joined.link, 1, lane) < window; ++posted)
      ucx.send(joined.link, 1, lane, posted, &word, sizeof word);
    return ucx.sent(joined.link, 1, lane) == count;
  };
  if (rank == 0) {
    const auto window_is_sent = [&] { return give_more() || ucx.sent(joined.link, 1, lane) >= window; };
    if (progress_until(joined.link, window_is_sent) != MXS_OK) return last_error_text();
    progress_until(joined.link, give_more, second_ns / 5);
    const uint64_t sent = ucx.sent(joined.link, 1, lane);
    if (sent != window) return words("%d went ahead", static_cast<int>(sent));
  }
  meet(bootstrap);
  if (rank == 0) return progress_until(joined.link, give_more) == MXS_OK ? "" : last_error_text();
  while (got < count) {
    if (posted == got) ucx.receive(joined.link, 0, lane, &word, sizeof word), ++posted;
    if (progress_until(joined.link, [&] { return ucx.arrived(joined.link, 0, lane) != nullptr; }) != MXS_OK)
      return last_error_text();
    if (ucx.arrived(joined.link, 0, lane)->tag != got) return "out of order";
    ucx.retire(joined.link, 0, lane);
    ++got;
  }
  return "";
}

// A lane full of messages that nobody takes holds up no other.
std::string pass_a_full_lane(int rank, Bootstrap &bootstrap) {
  Joined joined(bootstrap);
  if (!joined.complaint.empty()) return joined.complaint;
  std::vector<std::byte> data(65536);
  std::vector<std::vector<std::byte>> landings(window, data);
  uint64_t word = 42, got = 0;
  if (rank == 0) {
    for (size_t i = 0; i < window; ++i) ucx.send(joined.link, 1, 0, i, data.data(), data.size());
    ucx.send(joined.link, 1, agreement_lane, 1, &word, sizeof word);
    const auto all_sent = [&] { return ucx.sent(joined.link, 1, 0) == window; };
    return progress_until(joined.link, all_sent) == MXS_OK ? "" : last_error_text();
  }
  ucx.receive(joined.link, 0, agreement_lane, &got, sizeof got);
  const auto arrived = [&] { return ucx.arrived(joined.link, 0, agreement_lane) != nullptr; };
  if (progress_until(joined.link, arrived) != MXS_OK) return last_error_text();
  if (got != word) return "a message is wrong";
  ucx.retire(joined.link, 0, agreement_lane);
  for (std::vector<std::byte> &landing : landings) ucx.receive(joined.link, 0, 0, landing.data(), landing.size());
  for (size_t i = 0; i < window; ++i) {
    if (progress_until(joined.link, [&] { return ucx.arrived(joined.link, 0, 0) != nullptr; }) != MXS_OK)
      return last_error_text();
    ucx.retire(joined.link, 0, 0);
  }
  return "";
}

// A receive that is posted while the sender has enough is told of later, and by then nothing else is called.
std::string wait_for_the_last_receive(int rank, Bootstrap &bootstrap) {
  Joined joined(bootstrap);
  if (!joined.complaint.empty()) return joined.complaint;
  constexpr size_t count = 3, bytes = 65536;
  std::vector<std::byte> data(count * bytes, std::byte{5});
  if (rank == 0) {
    for (size_t i = 0; i < count; ++i) ucx.send(joined.link, 1, lane, i, data.data() + i * bytes, bytes);
    const auto all_sent = [&] { return ucx.sent(joined.link, 1, lane) == count; };
    return progress_until(joined.link, all_sent, 10 * second_ns) == MXS_OK ? "" : last_error_text();
  }
  for (size_t i = 0; i < count; ++i) {
    ucx.receive(joined.link, 0, lane, data.data() + i * bytes, bytes);
    if (i + 2 == count) ucx.progress(joined.link);  // two are told of, the third is one more
  }
  for (size_t i = 0; i < count; ++i) {
    const auto arrived = [&] { return ucx.arrived(joined.link, 0, lane) != nullptr; };
    if (progress_until(joined.link, arrived, 10 * second_ns) != MXS_OK)
      return words("message %d: ", static_cast<int>(i)) + last_error_text();
    ucx.retire(joined.link, 0, lane);
  }
  return "";
}

// ---- Leaving. -------------------------------------------------------------------------------------------------------

// Rank 0 sends and closes at once; rank 1 looks only later.
std::string leave_early(int rank, Bootstrap &bootstrap) {
  std::vector<std::byte> data(65536 * window, std::byte{9}), landing(data.size());
  {
    Joined joined(bootstrap);
    if (!joined.complaint.empty()) return joined.complaint;
    if (rank == 1)
      for (size_t i = 0; i < window; ++i) ucx.receive(joined.link, 0, lane, landing.data() + 65536 * i, 65536);
    if (rank == 0) {
      for (size_t i = 0; i < window; ++i) ucx.send(joined.link, 1, lane, i, data.data() + 65536 * i, 65536);
      if (progress_until(joined.link, [&] { return ucx.sent(joined.link, 1, lane) == window; }) != MXS_OK)
        return last_error_text();
    } else {
      progress_until(joined.link, [] { return false; }, second_ns / 100);  // says that its receives are posted
      usleep(100'000);
      for (size_t got = 0; got < window; ++got) {
        if (progress_until(joined.link, [&] { return ucx.arrived(joined.link, 0, lane) != nullptr; }) != MXS_OK)
          return last_error_text();
        ucx.retire(joined.link, 0, lane);
      }
    }
  }
  return rank == 1 && landing != data ? "bytes are missing" : "";
}

std::string wait_for_one_that_leaves(int rank, Bootstrap &bootstrap) {
  Joined joined(bootstrap);
  if (!joined.complaint.empty()) return joined.complaint;
  int word = 0;
  if (rank == 0) {  // so that both have met
    if (ucx.send(joined.link, 1, lane, 1, &word, sizeof word) != MXS_OK ||
        progress_until(joined.link, [&] { return ucx.sent(joined.link, 1, lane) == 1; }) != MXS_OK)
      return last_error_text();
    return "";
  }
  ucx.receive(joined.link, 0, lane, &word, sizeof word);
  ucx.receive(joined.link, 0, lane, &word, sizeof word);
  const mxs_status status = progress_until(joined.link, [] { return false; });
  if (status != MXS_PEER_FAILED || !std::strstr(last_error_text(), "rank 0"))
    return words("status %d: %s", status, last_error_text());
  return ucx.arrived(joined.link, 0, lane) ? "" : "what it sent before it left is gone";
}

// ---- Dying. ---------------------------------------------------------------------------------------------------------

std::string lose_rank_1(int rank, Bootstrap &bootstrap, World &world) {
  Joined joined(bootstrap);
  if (!joined.complaint.empty()) return joined.complaint;
  const int rank_count = bootstrap.rank_count();
  std::vector<int> words_in(static_cast<size_t>(rank_count)), words_out(static_cast<size_t>(rank_count), rank);
  for (const int peer : all_but(rank, rank_count)) {  // all have met
    ucx.receive(joined.link, peer, lane, &words_in[static_cast<size_t>(peer)], sizeof(int));
    ucx.send(joined.link, peer, lane, 1, &words_out[static_cast<size_t>(peer)], sizeof(int));
  }
  const mxs_status met = progress_until(joined.link, [&] {
    bool all = true;
    for (const int peer : all_but(rank, rank_count)) all &= ucx.arrived(joined.link, peer, lane) != nullptr;
    return all;
  });
  if (met != MXS_OK) return last_error_text();
  world.board().flags[rank].store(1);
  if (rank == 1)
    for (;;) pause();
  ucx.receive(joined.link, 1, lane, words_in.data(), sizeof(int));
  const mxs_status status = progress_until(joined.link, [] { return false; });
  if (status != MXS_PEER_FAILED || !std::strstr(last_error_text(), "rank 1"))
    return words("status %d: %s", status, last_error_text());
  return "";
}

bool survivors_name_the_dead(const char *devices) {
  constexpr int rank_count = 3;
  World world(rank_count);
  const auto kill_rank_1 = [&] {
    for (int rank = 0; rank < rank_count; ++rank)
      while (world.board().flags[rank].load() == 0) usleep(1000);
    kill(world.process(1), SIGKILL);
    waitpid(world.process(1), nullptr, 0);  // UCX takes a zombie for alive
  };
  const std::string complaint = world.run_processes(
      [&](int rank, Bootstrap &bootstrap) {
        if (devices) setenv("UCX_TLS", devices, 1);
        return lose_rank_1(rank, bootstrap, world);
      },
      kill_rank_1, 1);
  if (!complaint.empty()) print_error("%s: %s\n", devices ? devices : "default", complaint.c_str());
  return complaint.empty();
}

// ---- Wrong calls. ---------------------------------------------------------------------------------------------------

std::string send_too_much(int rank, Bootstrap &bootstrap) {
  Joined joined(bootstrap);
  if (!joined.complaint.empty()) return joined.complaint;
  std::vector<std::byte> data(4096);
  if (rank == 0) ucx.send(joined.link, 1, lane, 1, data.data(), data.size());
  if (rank == 1) {
    ucx.receive(joined.link, 0, lane, data.data(), 8);
    const mxs_status status = progress_until(joined.link, [] { return false; });
    if (status != MXS_MISMATCH || !std::strstr(last_error_text(), "rank 0"))
      return words("status %d: %s", status, last_error_text());
  }
  meet(bootstrap);
  return "";
}

std::string meet_another_version(int, Bootstrap &) {
  LinkOptions options;
  options.rank_count = 2;
  std::vector<std::byte> address;
  Link *link = nullptr;
  if (ucx.open(&link, options, &address) != MXS_OK) return last_error_text();
  std::vector<std::vector<std::byte>> addresses = {address, address};
  addresses[1][8] ^= std::byte{64};  // its minor version
  std::string complaint;
  if (ucx.connect(link, addresses, {1}) != MXS_MISMATCH || !std::strstr(last_error_text(), "rank 1"))
    complaint = words("another version: %s", last_error_text());
  addresses[1].resize(5);
  if (ucx.connect(link, addresses, {1}) != MXS_MISMATCH) complaint = words("no address: %s", last_error_text());
  ucx.close(link, second_ns);
  return complaint;
}

// ---- The process around it. -----------------------------------------------------------------------------------------

std::string signals_after_open(int, Bootstrap &) {
  constexpr int signals[] = {SIGHUP, SIGILL, SIGBUS, SIGFPE, SIGSEGV};
  setenv("UCX_DEBUG_SIGNO", "", 1);                  // empty is not set
  setenv("UCX_MM_ERROR_HANDLING", "n", 1);           // the user's choice stays
  void (*before[std::size(signals)])(int);
  struct sigaction action {};
  for (size_t i = 0; i < std::size(signals); ++i) {
    sigaction(signals[i], nullptr, &action);
    before[i] = action.sa_handler;
  }
  std::string why_not;
  if (!ucx.usable(&why_not)) return why_not;
  for (size_t i = 0; i < std::size(signals); ++i) {
    sigaction(signals[i], nullptr, &action);
    if (action.sa_handler != before[i]) return words("signal %d has another handler", signals[i]);
  }
  if (std::strcmp(std::getenv("UCX_MM_ERROR_HANDLING"), "n") != 0) return "the user's variable was overwritten";
  if (std::strcmp(std::getenv("UCX_HANDLE_ERRORS"), "none") != 0) return "UCX_HANDLE_ERRORS was not set";
  return "";
}

int open_file_count() {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

std::string open_and_close(int, Bootstrap &bootstrap) {
  { const Joined first(bootstrap); }
  const int before = open_file_count();
  for (int i = 0; i < 5; ++i) {
    const Joined joined(bootstrap);
    if (!joined.complaint.empty()) return joined.complaint;
  }
  const int after = open_file_count();
  return after > before ? words("%d files were open, now %d", before, after) : "";
}

bool all_ranks_are_content(int rank_count, const World::Body &body) {
  World world(rank_count);
  const std::string complaint = world.run_processes(body);
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

// Both ends give their memory back in the middle of a message, and close: UCX must not touch it again.
struct Halves {
  std::atomic<bool> begun{false};  // some of it has come
};

std::byte *mapped(size_t bytes, int flags) {
  void *const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte *>(memory);
}

std::string leave_in_a_message(int rank, Bootstrap &bootstrap, Halves *halves) {
  constexpr size_t bytes = 32 << 20;  // more than queues and sockets hold
  std::byte *const memory = mapped(bytes, MAP_PRIVATE);
  if (!memory) return "no memory";
  const std::atomic_ref<std::byte> first(*memory);
  if (rank == 1) std::memset(memory, 1, bytes);
  Joined joined(bootstrap);
  if (!joined.complaint.empty()) return joined.complaint;
  const mxs_status status = rank == 0 ? ucx.receive(joined.link, 1, lane, memory, bytes)
                                      : ucx.send(joined.link, 0, lane, 7, memory, bytes);
  if (status != MXS_OK) return last_error_text();
  const auto ready = [&] { return rank == 0 ? first.load() == std::byte{1} : halves->begun.load(); };
  if (progress_until(joined.link, ready) != MXS_OK) return last_error_text();
  if (rank == 0 && ucx.arrived(joined.link, 1, lane)) return "the message came in one piece";
  halves->begun = true;
  munmap(memory, bytes);
  if (rank == 0) usleep(20'000);  // more of it is on its way by then
  return "";
}

bool memory_is_left_alone(const char *devices) {
  void *const page = mapped(sizeof(Halves), MAP_SHARED);
  if (!page) return false;
  Halves *const halves = new (page) Halves;
  const bool content = all_ranks_are_content(2, [&](int rank, Bootstrap &bootstrap) {
    if (devices) setenv("UCX_TLS", devices, 1);
    return leave_in_a_message(rank, bootstrap, halves);
  });
  munmap(page, sizeof(Halves));
  return content;
}

void streams_of_all_sizes_arrive_in_order(void **) {
  assert_true(streams_arrive(2, nullptr));
  assert_true(streams_arrive(3, nullptr));
}
void streams_arrive_over_tcp(void **) { assert_true(streams_arrive(3, "tcp,self")); }
void large_messages_wait_for_their_receives(void **) { assert_true(all_ranks_are_content(2, hold_back)); }
void a_full_lane_holds_up_no_other(void **) { assert_true(all_ranks_are_content(2, pass_a_full_lane)); }
void the_last_receive_is_told_of(void **) { assert_true(all_ranks_are_content(2, wait_for_the_last_receive)); }
void small_messages_are_a_window_ahead_at_most(void **) { assert_true(all_ranks_are_content(2, run_ahead)); }
void closing_loses_nothing_that_was_sent(void **) { assert_true(all_ranks_are_content(2, leave_early)); }
void waiting_for_one_that_left_fails(void **) { assert_true(all_ranks_are_content(2, wait_for_one_that_leaves)); }
void a_killed_rank_is_named(void **) { assert_true(survivors_name_the_dead(nullptr)); }
void a_killed_rank_is_named_over_tcp(void **) { assert_true(survivors_name_the_dead("tcp,self")); }
void a_message_that_is_too_long_is_a_mismatch(void **) { assert_true(all_ranks_are_content(2, send_too_much)); }
void another_version_of_ucx_is_refused(void **) { assert_true(all_ranks_are_content(1, meet_another_version)); }
void signal_handlers_and_variables_stay(void **) { assert_true(all_ranks_are_content(1, signals_after_open)); }
void closing_in_a_message_leaves_memory_alone(void **) { assert_true(memory_is_left_alone(nullptr)); }
void closing_in_a_message_leaves_memory_alone_over_tcp(void **) { assert_true(memory_is_left_alone("tcp,self")); }
void closing_gives_files_back(void **) { assert_true(all_ranks_are_content(2, open_and_close)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(streams_of_all_sizes_arrive_in_order),
      cmocka_unit_test(streams_arrive_over_tcp),
      cmocka_unit_test(large_messages_wait_for_their_receives),
      cmocka_unit_test(small_messages_are_a_window_ahead_at_most),
      cmocka_unit_test(a_full_lane_holds_up_no_other),
      cmocka_unit_test(the_last_receive_is_told_of),
      cmocka_unit_test(closing_loses_nothing_that_was_sent),
      cmocka_unit_test(waiting_for_one_that_left_fails),
      cmocka_unit_test(a_killed_rank_is_named),
      cmocka_unit_test(a_killed_rank_is_named_over_tcp),
      cmocka_unit_test(a_message_that_is_too_long_is_a_mismatch),
      cmocka_unit_test(another_version_of_ucx_is_refused),
      cmocka_unit_test(signal_handlers_and_variables_stay),
      cmocka_unit_test(closing_in_a_message_leaves_memory_alone),
      cmocka_unit_test(closing_in_a_message_leaves_memory_alone_over_tcp),
      cmocka_unit_test(closing_gives_files_back),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
