// SPDX-License-Identifier: Apache-2.0
#include "soak/faults.hpp"

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace soak {

namespace {

struct Order {
  FaultKind kind;
  int64_t delay_us, pause_ms;
};

void sleep_ns(int64_t ns) {
  timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&time, nullptr);
}

void carry_out(const Order &order, int rank, pid_t child) {
  sleep_ns(order.delay_us * 1000);
  const int64_t at = now_ns();
  kill(child, order.kind == FaultKind::kill ? SIGKILL : SIGSTOP);
  siginfo_t state{};
  if (waitid(P_PID, static_cast<id_t>(child), &state, WEXITED | WSTOPPED | WNOWAIT) != 0) return;
  const bool hit = state.si_code == (order.kind == FaultKind::kill ? CLD_KILLED : CLD_STOPPED);
  if (!hit) return;  // it had ended by itself
  tell(rank, "fault", "\"at\": " + std::to_string(at));
  if (order.kind == FaultKind::kill) return;
  sleep_ns(order.pause_ms * 1'000'000);
  kill(child, SIGCONT);
  tell(rank, "woken", "\"at\": " + std::to_string(now_ns()));
}

[[noreturn]] void be_nurse(int rank, int pipe, pid_t child) {
  Order order{};
  while (read(pipe, &order, sizeof order) == sizeof order) carry_out(order, rank, child);
  int status = 0;
  waitpid(child, &status, 0);
  std::fflush(nullptr);
  if (WIFSIGNALED(status)) _exit(order.kind == FaultKind::kill && WTERMSIG(status) == SIGKILL ? 0
                                                                                             : 128 + WTERMSIG(status));
  _exit(WEXITSTATUS(status));
}

}  // namespace

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

std::string json_text(const std::string &text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    if (static_cast<unsigned char>(letter) >= 0x20) out += letter;
    else out += ' ';
  }
  return out + "\"";
}

void tell(int rank, const std::string &event, const std::string &fields) {
  const std::string line = "{\"rank\": " + std::to_string(rank) + ", \"event\": " + json_text(event) +
                           (fields.empty() ? "" : ", ") + fields + "}\n";
  // One write: lines of ranks and nurses, which may share an output, aren't mixed.
  for (size_t at = 0; at < line.size();) {
    const ssize_t count = write(STDOUT_FILENO, line.data() + at, line.size() - at);
    if (count <= 0) return;
    at += static_cast<size_t>(count);
  }
}

Nurse Nurse::attend(int rank) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t nurse = getpid(), child = fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child > 0) {
    close(ends[1]);
    be_nurse(rank, ends[0], child);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != nurse) _exit(1);
  close(ends[0]);
  Nurse made;
  made.pipe_ = ends[1];
  return made;
}

void Nurse::order(const Fault &fault) const {
  const Order order{fault.kind, fault.delay_us, fault.pause_ms};
  if (pipe_ < 0 || write(pipe_, &order, sizeof order) != sizeof order) throw std::runtime_error("there is no nurse");
}

Holdings Holdings::count() {
  Holdings found;
  if (DIR *directory = opendir("/proc/self/fd")) {
    const std::string own = std::to_string(dirfd(directory));
    while (const dirent *entry = readdir(directory)) {
      if (entry->d_name[0] == '.' || own == entry->d_name) continue;
      char target[256] = "";
      const std::string path = std::string("/proc/self/fd/") + entry->d_name;
      const ssize_t length = readlink(path.c_str(), target, sizeof target - 1);
      found.files.push_back(std::string(target, target + std::max<ssize_t>(0, length)));
    }
    closedir(directory);
  }
  if (DIR *directory = opendir("/proc/self/task")) {
    while (const dirent *entry = readdir(directory)) found.threads += entry->d_name[0] != '.';
    closedir(directory);
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    found.shared_maps += line.find("memfd:") != std::string::npos || line.find("/dev/shm/") != std::string::npos;
  std::ifstream pages("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  pages >> total >> resident;
  found.resident_bytes = resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return found;
}

std::string Holdings::more_than(const Holdings &before) const {
  std::ostringstream sentence;
  if (files.size() > before.files.size()) {
    std::vector<std::string> rest = files;
    for (const std::string &known : before.files) {
      const auto at = std::find(rest.begin(), rest.end(), known);
      if (at != rest.end()) rest.erase(at);
    }
    sentence << files.size() - before.files.size() << " descriptors more:";
    for (size_t i = 0; i < rest.size() && i < 8; i++) sentence << ' ' << rest[i];
    sentence << "; ";
  }
  if (shared_maps > before.shared_maps)
    sentence << shared_maps - before.shared_maps << " maps of shared memory more; ";
  if (threads > before.threads) sentence << threads - before.threads << " threads more";
  return sentence.str();
}

}  // namespace soak
