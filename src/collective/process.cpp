// SPDX-License-Identifier: Apache-2.0
#include "collective/process.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "base/hash.hpp"

namespace mxs {

namespace {

std::atomic<uint64_t> generation{1};

std::string boot_id() {
  char text[64];
  const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const ssize_t bytes = read(file, text, sizeof text);
  close(file);
  return std::string(text, bytes > 0 ? static_cast<size_t>(bytes) : 0);
}

uint64_t inode(const char *path) {
  struct stat information {};
  return stat(path, &information) == 0 ? information.st_ino : 0;
}

}  // namespace

uint64_t process_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
  (void)registered;
  return generation.load(std::memory_order_relaxed);
}

uint64_t random_number() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number))
    number = Fingerprint().add(now_ns()).add(static_cast<uint64_t>(getpid())).value();
  return number;
}

// The number is drawn once and so is inherited by forked children, which the generation tells apart; the pid alone can
// be equal in two PID namespaces.
uint64_t process_label() {
  static const uint64_t drawn = random_number();
  return Fingerprint().add(drawn).add(process_generation()).add(static_cast<uint64_t>(getpid())).value();
}

uint64_t node_label() {
  if (const auto name = environment_text("MXS_NODE"))
    return Fingerprint().add(std::string_view("name")).add(std::string_view(*name)).value();
  return Fingerprint().add(std::string_view(boot_id())).add(inode("/proc/self/ns/net")).add(inode("/proc/self/ns/ipc"))
      .value();
}

uint64_t network_label() {
  return Fingerprint().add(std::string_view(boot_id())).add(inode("/proc/self/ns/net")).value();
}

int usable_core_count() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace mxs
