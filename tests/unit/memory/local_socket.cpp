// SPDX-License-Identifier: Apache-2.0
// Another user of the machine at a rank's local socket: he fills its queue and comes first, and disturbs nobody. And a
// socket of his own isn't taken for a rank's.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "memory/local_socket.hpp"
#include "support/complaints.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::error_of;
using mxs::test::expect;
using mxs::test::good;

namespace {

constexpr uid_t nobody = 65534;
constexpr uint64_t second_ns = 1'000'000'000u;

std::string name_of(const char *what) { return "matrixshard-test-" + std::to_string(getpid()) + "-" + what; }

// A process of another user, which says by a byte that it is ready, and lives until this object goes.
class OtherUser {
 public:
  explicit OtherUser(const std::function<void()> &act) {
    int ends[2];
    if (pipe(ends) != 0) return;
    process_ = fork();
    if (process_ == 0) {
      alarm(60);
      if (setresuid(nobody, nobody, nobody) != 0) _exit(2);
      act();
      (void)!write(ends[1], "x", 1);
      for (;;) pause();
    }
    close(ends[1]);
    char byte = 0;
    is_ready_ = read(ends[0], &byte, 1) == 1;
    close(ends[0]);
  }
  ~OtherUser() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  bool is_ready() const { return is_ready_; }

 private:
  pid_t process_ = -1;
  bool is_ready_ = false;
};

void fill_queue(const std::string &name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  for (int i = 0; i < 200; ++i) {
    const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(connection, reinterpret_cast<sockaddr *>(&address), bytes) != 0) return;
    (void)!send(connection, "noise", 5, MSG_NOSIGNAL);
  }
}

std::string ours_gets_in() {
  const std::string name = name_of("queue");
  File listener, connection, accepted, file;
  const uint64_t deadline_ns = now_ns() + 20 * second_ns;
  if (listen_local(&listener, name, 4) != MXS_OK) return error_of("listen");
  const OtherUser other([&] { fill_queue(name); });
  if (!other.is_ready()) return "no process of another user";
  std::string complaint;
  std::thread caller([&] {
    const int number = 7;
    if (connect_local(&connection, name, deadline_ns) != MXS_OK) complaint = error_of("connect");
    else if (send_with_file(connection.get(), &number, sizeof number, -1, deadline_ns) != MXS_OK)
      complaint = error_of("send");
  });
  int number = 0;
  mxs_status status = accept_local(&accepted, listener.get(), deadline_ns);
  if (status == MXS_OK) status = receive_with_file(accepted.get(), &number, sizeof number, &file, deadline_ns);
  const std::string sentence = last_error_text();
  caller.join();
  if (!complaint.empty()) return complaint;
  return status != MXS_OK ? sentence : number == 7 ? "" : "another's words were taken for ours";
}

void a_rank_gets_in_past_another_user(void **) {
  if (geteuid() != 0) test::not_run("only root can be another user");
  else assert_true(good(ours_gets_in()));
}

std::string his_is_refused() {
  const std::string name = name_of("his");
  const OtherUser other([&] {
    static File listener;  // of the child, for as long as it lives
    (void)listen_local(&listener, name, 4);
  });
  if (!other.is_ready()) return "no process of another user";
  File connection;
  return expect(connect_local(&connection, name, now_ns() + second_ns), MXS_SYSTEM, {"another user"});
}

void a_socket_of_another_user_is_refused(void **) {
  if (geteuid() != 0) test::not_run("only root can be another user");
  else assert_true(good(his_is_refused()));
}

std::string full_queue() {
  const std::string name = name_of("full");
  File listener, connections[64];
  if (listen_local(&listener, name, 1) != MXS_OK) return error_of("listen");
  mxs_status status = MXS_OK;
  for (File &connection : connections)
    if (status == MXS_OK) status = connect_local(&connection, name, now_ns() + second_ns / 20);
  return expect(status, MXS_TIMED_OUT, {"no room", name});
}

void a_queue_that_stays_full_is_a_timeout(void **) { assert_true(good(full_queue())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_gets_in_past_another_user),
      cmocka_unit_test(a_socket_of_another_user_is_refused),
      cmocka_unit_test(a_queue_that_stays_full_is_a_timeout),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
