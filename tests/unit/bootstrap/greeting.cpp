// SPDX-License-Identifier: Apache-2.0
// Ranks with secrets, as threads, and those who would like to be one of them: other secrets, none, somebody in the
// middle who changes, repeats and records what goes over the wire.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/greeting.hpp"
#include "matrixshard/version.h"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"
#include "unit/bootstrap/gathers.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::expect;
using mxs::test::free_port;
using mxs::test::gathers;
using mxs::test::good;
using mxs::test::words;

namespace {

constexpr uint64_t second_ns = 1'000'000'000;
const std::string right = "a secret of 30 bytes, or so it", wrong = "a secret of 30 bytes, or so it.";

// "": none. What can't be made is nullptr, too: the tests are skipped then.
std::shared_ptr<const Secret> secret_of(const std::string &text) {
  std::shared_ptr<const Secret> secret;
  if (!text.empty()) (void)Secret::make(&secret, text.data(), text.size());
  return secret;
}

JobEnvironment job_of(int rank, int rank_count, int port, const std::string &secret) {
  JobEnvironment job;
  job.launcher = "torchrun";
  job.rank = rank;
  job.rank_count = rank_count;
  job.address = "127.0.0.1";
  job.port = port;
  job.job = 42;
  job.secret = secret_of(secret);
  return job;
}

using Job = std::function<std::string()>;  // a thread's
using Body = std::function<std::string(Bootstrap &)>;

std::string at_once(const std::vector<Job> &jobs) {
  std::vector<std::string> complaints(jobs.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < jobs.size(); ++i) threads.emplace_back([&, i] { complaints[i] = jobs[i](); });
  for (std::thread &thread : threads) thread.join();
  for (size_t i = 0; i < jobs.size(); ++i)
    if (!complaints[i].empty()) return "thread " + std::to_string(i) + ": " + complaints[i];
  return "";
}

Job runs(const JobEnvironment &job, const Body &body, uint64_t timeout_ns = 60 * second_ns) {
  return [=]() -> std::string {
    std::unique_ptr<Bootstrap> bootstrap;
    if (create_store_bootstrap(&bootstrap, job, timeout_ns) != MXS_OK)
      return std::string("create: ") + last_error_text();
    return body(*bootstrap);
  };
}

Job fails(const JobEnvironment &job, mxs_status status, const std::vector<std::string> &sentence_words,
          uint64_t timeout_ns = 60 * second_ns) {
  return [=]() -> std::string {
    std::unique_ptr<Bootstrap> bootstrap;
    const mxs_status got = create_store_bootstrap(&bootstrap, job, timeout_ns);
    if (std::strstr(last_error_text(), right.c_str())) return "the sentence has the secret in it";
    return expect(got, status, sentence_words);
  };
}

// ---- sockets by hand ----

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

struct Wire {
  int descriptor;
  explicit Wire(int number) : descriptor(number) {}
  Wire(const Wire &) = delete;
  ~Wire() {
    if (descriptor >= 0) close(descriptor);
  }
  void say(const void *data, size_t bytes) const { (void)!send(descriptor, data, bytes, MSG_NOSIGNAL); }
  // What comes within a second; fewer bytes if it ends before.
  std::string hear(size_t bytes) const {
    timeval limit = {1, 0};
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::string text(bytes, '\0');
    size_t count = 0;
    for (ssize_t got; count < bytes; count += static_cast<size_t>(got))
      if ((got = recv(descriptor, text.data() + count, bytes - count, 0)) <= 0) break;
    text.resize(count);
    return text;
  }
};

int dial(int port) {
  const sockaddr_in address = loopback(port);
  for (int tries = 0; tries < 12000; ++tries) {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(connection, reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0) return connection;
    close(connection);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return -1;
}

int listen_on(int port) {
  const sockaddr_in address = loopback(port);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0 && listen(listener, 4) == 0)
    return listener;
  close(listener);
  return -1;
}

// Somebody in the middle: a rank that calls `port` is passed on to `target_port`. What goes by is kept, and may be
// changed: hook(to_host, its offset in the direction, the bytes).
class Middle {
 public:
  using Hook = std::function<void(bool to_host, size_t offset, std::string *bytes)>;

  Middle(int target_port, Hook hook = nullptr)
      : port_(free_port()), target_port_(target_port), hook_(std::move(hook)), listener_(listen_on(port_)),
        thread_([this] { pass_on(); }) {}
  ~Middle() { thread_.join(); }
  int port() const { return port_; }
  const std::string &heard(bool to_host) const { return heard_[to_host ? 1 : 0]; }
  void finish() {
    thread_.join();
    thread_ = std::thread([] {});
  }

 private:
  void pass_on() {
    pollfd waiting = {listener_.descriptor, POLLIN, 0};
    if (poll(&waiting, 1, 20000) <= 0) return;
    const Wire guest(accept(listener_.descriptor, nullptr, nullptr)), host(dial(target_port_));
    pollfd entries[2] = {{host.descriptor, POLLIN, 0}, {guest.descriptor, POLLIN, 0}};
    for (;;) {
      poll(entries, 2, 20000);
      bool any = false;
      for (const int to_host : {0, 1}) {
        if (!entries[to_host].revents) continue;
        any = true;
        std::string bytes(65536, '\0');
        const ssize_t count = recv(entries[to_host].fd, bytes.data(), bytes.size(), 0);
        if (count <= 0) return;
        bytes.resize(static_cast<size_t>(count));
        const size_t offset = heard_[to_host].size();
        heard_[to_host] += bytes;
        if (hook_) hook_(to_host == 1, offset, &bytes);
        (to_host ? host : guest).say(bytes.data(), bytes.size());
      }
      if (!any) return;
    }
  }

  const int port_, target_port_;
  const Hook hook_;
  std::string heard_[2];
  const Wire listener_;
  std::thread thread_;
};

// ---- with a secret, without, with another ----

bool worlds() {
  for (const int rank_count : mxs::test::world_sizes) {
    const int port = free_port();
    std::vector<Job> jobs;
    for (int rank = 0; rank < rank_count; ++rank) jobs.push_back(runs(job_of(rank, rank_count, port, right), gathers));
    const std::string complaint = at_once(jobs);
    if (!complaint.empty()) return good(words("world of %d: ", rank_count) + complaint);
  }
  return true;
}

void ranks_with_one_secret_meet_in_every_world(void **) {
  assert_true(worlds());
}

// The guest fails at once; a host with a secret waits on, since anybody may come and say wrong things, and tells at its
// deadline what it has heard.
bool others(const std::string &hosts, const std::string &guests, const std::string &guest_words,
            const std::string &host_words, mxs_status host_status) {
  const int port = free_port();
  return good(at_once({fails(job_of(0, 2, port, hosts), host_status, {host_words}, 2 * second_ns),
                       fails(job_of(1, 2, port, guests), MXS_MISMATCH, {guest_words, "MXS_SECRET"})}));
}

void other_secrets_and_missing_ones_are_told_on_both_sides(void **) {
  assert_true(others(right, wrong, "rank 1 knows another secret", "rank 1 knows another secret", MXS_TIMED_OUT));
  assert_true(others(right, "", "rank 1 has no secret", "rank 1 has no secret", MXS_TIMED_OUT));
  assert_true(others("", right, "rank 1 has a secret, rank 0 has none", "rank 1 has a secret", MXS_MISMATCH));
}

bool rank_after_the_wrong_one() {
  const int port = free_port();
  std::atomic<bool> refused{false};
  return good(at_once({
      runs(job_of(0, 2, port, right), gathers),
      [&]() -> std::string {
        std::string complaint = fails(job_of(1, 2, port, wrong), MXS_MISMATCH, {"another secret"})();
        if (complaint.empty()) complaint = fails(job_of(1, 2, port, ""), MXS_MISMATCH, {"no secret"})();
        JobEnvironment other_version = job_of(1, 3, port, "");  // that nobody has proved ends nothing
        if (complaint.empty()) complaint = fails(other_version, MXS_MISMATCH, {"no secret"})();
        refused.store(true);
        return complaint.empty() ? runs(job_of(1, 2, port, right), gathers)() : complaint;
      },
  }));
}

void whoever_proves_nothing_ends_nothing(void **) {
  assert_true(rank_after_the_wrong_one());
}

bool proven_mismatch() {
  const int port = free_port();
  return good(at_once({fails(job_of(0, 2, port, right), MXS_MISMATCH, {"rank 1", "world of 3", "of 2"}),
                       fails(job_of(1, 3, port, right), MXS_MISMATCH, {"rank 1", "world of 3", "of 2"})}));
}

void a_proven_rank_of_another_world_is_a_mismatch_on_all(void **) {
  assert_true(proven_mismatch());
}

// ---- somebody in the middle ----

bool passive() {
  const int port = free_port();
  Middle middle(port);
  const std::string complaint =
      at_once({runs(job_of(0, 2, port, right), gathers), runs(job_of(1, 2, middle.port(), right), gathers)});
  middle.finish();
  for (const bool to_host : {false, true})
    if (middle.heard(to_host).find(right) != std::string::npos) return good("the secret goes over the wire");
  if (complaint.empty() && middle.heard(true).size() < 100000) return good("nobody was in the middle");
  return good(complaint);
}

void the_secret_never_goes_over_the_wire(void **) {
  assert_true(passive());
}

std::string rounds(Bootstrap &bootstrap) {
  for (int turn = 0; turn < 3; ++turn) {
    uint64_t source = 7, targets[2] = {};
    if (bootstrap.all_gather(&source, targets, sizeof source) != MXS_OK) return "";  // what a changed bit must give
    if (targets[0] != 7 || targets[1] != 7) return "a changed byte was believed";
  }
  return "no failure was seen";
}

// Until it fails, or the rounds are over; never a wrong value.
Job believes_nothing(const JobEnvironment &job, std::atomic<int> *failed) {
  return [=]() -> std::string {
    std::unique_ptr<Bootstrap> bootstrap;
    if (create_store_bootstrap(&bootstrap, job, second_ns) != MXS_OK) {
      ++*failed;
      return "";
    }
    const std::string complaint = rounds(*bootstrap);
    if (complaint.empty()) ++*failed;
    return complaint == "no failure was seen" ? "" : complaint;
  };
}

// One bit of one byte of a direction.
std::string with_a_bit_changed(bool to_host, size_t place) {
  const int port = free_port();
  std::atomic<bool> changed{false};
  Middle middle(port, [&](bool direction, size_t offset, std::string *bytes) {
    if (direction != to_host || place < offset || place >= offset + bytes->size()) return;
    (*bytes)[place - offset] = static_cast<char>((*bytes)[place - offset] ^ (1 << (place % 8)));
    changed.store(true);
  });
  std::atomic<int> failed{0};
  const std::string complaint = at_once({believes_nothing(job_of(0, 2, port, right), &failed),
                                         believes_nothing(job_of(1, 2, middle.port(), right), &failed)});
  if (!complaint.empty()) return complaint;
  return changed.load() && failed.load() == 0 ? "neither side noticed" : "";
}

// Hello 72, challenge 64, proof and accepted 56, then sealed frames of 88 and what they carry: places in each field.
bool changed_bits() {
  std::vector<Job> all;
  for (const bool to_host : {true, false}) {
    std::vector<size_t> places = {0, 9, 13, 17, 21, 25, 33, 37, 41, 70};
    for (size_t place = 72; place < 72 + 56 + 2 * 96 + 56; place += 11) places.push_back(place);
    for (const size_t place : places)
      all.push_back([=] {
        const std::string complaint = with_a_bit_changed(to_host, place);
        return complaint.empty() ? "" : words("byte %zu %s rank 0: ", place, to_host ? "to" : "from") + complaint;
      });
  }
  for (size_t begin = 0; begin < all.size(); begin += 40) {
    const auto first = all.begin() + static_cast<ptrdiff_t>(begin);
    const std::string complaint =
        at_once({first, first + static_cast<ptrdiff_t>(std::min<size_t>(40, all.size() - begin))});
    if (!complaint.empty()) return good(complaint);
  }
  return true;
}

void a_bit_that_is_changed_on_the_way_is_never_believed(void **) {
  assert_true(changed_bits());
}

// A sealed frame comes twice.
bool repeated_frame() {
  const int port = free_port();
  std::string taken;
  Middle middle(port, [&](bool to_host, size_t offset, std::string *bytes) {
    const size_t greeting_bytes = sizeof(Hello) + sizeof(Frame) + sizeof(Code);
    if (to_host && offset >= greeting_bytes && taken.empty()) {
      taken = *bytes;
      *bytes += taken;
    }
  });
  std::atomic<bool> told{false};
  const auto until_failure = [&](Bootstrap &bootstrap) -> std::string {
    for (int turn = 0; turn < 100; ++turn)
      if (bootstrap.barrier() != MXS_OK) {
        if (std::strstr(last_error_text(), "was changed on its way")) told.store(true);
        return "";
      }
    return "a repeated message was believed";
  };
  const std::string complaint = at_once({runs(job_of(0, 2, port, right), until_failure),
                                         runs(job_of(1, 2, middle.port(), right), until_failure)});
  return good(complaint.empty() && !told.load() ? "nobody says why" : complaint);
}

void a_message_that_comes_twice_is_refused(void **) {
  assert_true(repeated_frame());
}

// All that rank 1 said in an earlier run, of the same job and with the same secret, in pieces as it was said.
std::string say_again(int port, const std::string &recorded) {
  const Wire wire(dial(port));
  wire.say(recorded.data(), sizeof(Hello));
  const std::string challenge = wire.hear(sizeof(Frame) + sizeof(Challenge));
  if (challenge.size() != sizeof(Frame) + sizeof(Challenge)) return "no challenge";
  wire.say(recorded.data() + sizeof(Hello), recorded.size() - sizeof(Hello));
  Frame answer{};
  const std::string heard = wire.hear(sizeof answer);
  std::memcpy(&answer, heard.data(), heard.size());
  return heard.size() == sizeof answer && answer.kind != FrameKind::failure ? "it was let in" : "";
}

bool replays() {
  const int port = free_port();
  std::string recorded, of_host;
  {
    Middle middle(port);
    const std::string complaint =
        at_once({runs(job_of(0, 3, port, right), gathers), runs(job_of(1, 3, middle.port(), right), gathers),
                 runs(job_of(2, 3, port, right), gathers)});
    middle.finish();
    recorded = middle.heard(true);
    of_host = middle.heard(false);
    if (!complaint.empty()) return good(complaint);
  }
  std::atomic<bool> done{false};
  std::string complaint = at_once({
      runs(job_of(0, 3, port, right), gathers),
      [&]() -> std::string {
        std::string wrong_in = say_again(port, recorded);
        if (wrong_in.empty()) wrong_in = say_again(port, recorded);
        done.store(true);
        return wrong_in.empty() ? runs(job_of(1, 3, port, right), gathers)() : wrong_in;
      },
      [&]() -> std::string {
        while (!done.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return runs(job_of(2, 3, port, right), gathers)();
      },
  });
  // And all that rank 0 said, to a rank that comes now.
  if (complaint.empty())
    complaint = at_once({
        fails(job_of(1, 3, port, right), MXS_SYSTEM, {"doesn't prove", "127.0.0.1"}),
        [&]() -> std::string {
          const Wire listener(listen_on(port));
          const Wire guest(accept(listener.descriptor, nullptr, nullptr));
          guest.say(of_host.data(), of_host.size());
          guest.hear(1 << 20);
          return "";
        },
    });
  return good(complaint);
}

void what_was_recorded_in_an_earlier_run_opens_nothing(void **) {
  assert_true(replays());
}

// A host that knows nothing sends back what it hears: as its proof, or as its challenge; or asks for none.
std::string host_that(const std::function<void(const Wire &)> &answers) {
  const int port = free_port();
  const Wire listener(listen_on(port));
  return at_once({
      fails(job_of(1, 2, port, right), MXS_SYSTEM, {"doesn't prove that it knows the job's secret"}),
      [&]() -> std::string {
        const Wire guest(accept(listener.descriptor, nullptr, nullptr));
        answers(guest);
        guest.hear(1 << 20);
        return "";
      },
  });
}

void say_frame(const Wire &wire, FrameKind kind, const void *data, size_t bytes) {
  const Frame frame = {kind, 0, 0, bytes};
  wire.say(&frame, sizeof frame);
  wire.say(data, bytes);
}

bool reflections() {
  std::string complaint = host_that([](const Wire &guest) {
    Hello hello{};
    std::memcpy(&hello, guest.hear(sizeof hello).data(), sizeof hello);
    const Challenge challenge = {MXS_VERSION, 0, hello.nonce};
    say_frame(guest, FrameKind::challenge, &challenge, sizeof challenge);
    const std::string proof = guest.hear(sizeof(Frame) + sizeof(Code));
    say_frame(guest, FrameKind::accepted, proof.data() + sizeof(Frame), sizeof(Code));
  });
  if (complaint.empty())
    complaint = host_that([](const Wire &guest) { say_frame(guest, FrameKind::accepted, nullptr, 0); });
  if (complaint.empty())
    complaint = host_that([](const Wire &guest) {
      const Challenge challenge{};
      say_frame(guest, FrameKind::challenge, &challenge, sizeof challenge);
      say_frame(guest, FrameKind::challenge, &challenge, sizeof challenge);
    });
  return good(complaint);
}

void a_rank_joins_nobody_who_sends_its_own_words_back(void **) {
  assert_true(reflections());
}

// ---- slow ones ----

// A byte of a hello each 200 ms is sent away after 5 s, though it is never silent for long; so is one that has a
// challenge and says nothing more. Meanwhile a rank comes in.
bool slow_strangers() {
  const int port = free_port();
  const auto until_sent_away = [](const Wire &wire, const std::string &text) -> std::string {
    const uint64_t begin_ns = now_ns();
    for (size_t i = 0; now_ns() - begin_ns < 20 * second_ns; ++i) {
      if (i < text.size()) wire.say(text.data() + i, 1);
      char bytes[256];
      const ssize_t count = recv(wire.descriptor, bytes, sizeof bytes, MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN))
        return now_ns() - begin_ns < 4 * second_ns ? "it was sent away too early" : "";
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return "it was never sent away";
  };
  Hello hello = {{}, MXS_VERSION, 1, 3, hello_has_secret, 42, OccasionKind::bootstrap, greeting_version, {}};
  std::memcpy(hello.magic, hello_magic, sizeof hello_magic);
  std::string text(sizeof hello, '\0');
  std::memcpy(text.data(), &hello, sizeof hello);
  std::atomic<int> sent_away{0};
  return good(at_once({
      runs(job_of(0, 3, port, right), gathers),
      runs(job_of(1, 3, port, right), gathers),
      [&]() -> std::string {
        const std::string complaint = until_sent_away(Wire(dial(port)), text);
        ++sent_away;
        return complaint;
      },
      [&]() -> std::string {
        const Wire wire(dial(port));
        wire.say(text.data(), text.size());
        const std::string complaint = until_sent_away(wire, "");
        ++sent_away;
        return complaint;
      },
      [&]() -> std::string {
        while (sent_away.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return runs(job_of(2, 3, port, right), gathers)();
      },
  }));
}

void slow_ones_are_sent_away_after_five_seconds(void **) { assert_true(slow_strangers()); }

// ---- the log ----

struct Heard {
  std::mutex mutex;
  std::string text;
};

void hear_line(void *context, int32_t, const char *line) {
  auto *heard = static_cast<Heard *>(context);
  const std::lock_guard lock(heard->mutex);
  heard->text.append(line).append("\n");
}

std::string refused_often() {
  const int port = free_port();
  Heard heard;
  set_log(hear_line, &heard, MXS_LOG_DEBUG);
  const std::string complaint = at_once({
      runs(job_of(0, 2, port, right), gathers),
      [&]() -> std::string {
        for (int i = 0; i < 30; ++i) {
          const std::string told = fails(job_of(1, 2, port, wrong), MXS_MISMATCH, {"another secret"})();
          if (!told.empty()) return told;
        }
        return runs(job_of(1, 2, port, right), gathers)();
      },
  });
  set_log(nullptr, nullptr, MXS_LOG_DEBUG);
  if (!complaint.empty()) return complaint;
  size_t lines = 0;
  for (const char letter : heard.text) lines += letter == '\n';
  if (heard.text.find(right) != std::string::npos) return "the log has the secret in it";
  if (heard.text.find("refused 30 connections") == std::string::npos) return "nobody counts: " + heard.text;
  return lines > 12 ? "the log is flooded: " + heard.text : "";
}

void the_log_has_neither_secrets_nor_a_line_for_each_stranger(void **) { assert_true(good(refused_often())); }

}  // namespace

int main() {
  if (prepare_proofs() != MXS_OK) {
    std::printf("1..0 # SKIP this build has no libsodium\n");
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(ranks_with_one_secret_meet_in_every_world),
      cmocka_unit_test(other_secrets_and_missing_ones_are_told_on_both_sides),
      cmocka_unit_test(whoever_proves_nothing_ends_nothing),
      cmocka_unit_test(a_proven_rank_of_another_world_is_a_mismatch_on_all),
      cmocka_unit_test(the_secret_never_goes_over_the_wire),
      cmocka_unit_test(a_bit_that_is_changed_on_the_way_is_never_believed),
      cmocka_unit_test(a_message_that_comes_twice_is_refused),
      cmocka_unit_test(what_was_recorded_in_an_earlier_run_opens_nothing),
      cmocka_unit_test(a_rank_joins_nobody_who_sends_its_own_words_back),
      cmocka_unit_test(slow_ones_are_sent_away_after_five_seconds),
      cmocka_unit_test(the_log_has_neither_secrets_nor_a_line_for_each_stranger),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
