// SPDX-License-Identifier: Apache-2.0
#include "support/processes.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "support/complaints.hpp"

namespace mxs::test {

namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t process = -1;
  int pipe = -1;  // its complaint comes here, and the end of the pipe when it ends
  std::string complaint;
};

void set_environment(int rank, int rank_count, int port, const ProcessOptions &options) {
  for (const char *name : {"MXS_PORT", "MXS_TRANSPORT", "MXS_NODE", "MXS_TIMEOUT", "TORCHELASTIC_USE_AGENT_STORE"})
    unsetenv(name);
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(rank_count).c_str(), 1);
  if (!options.nodes.empty())
    setenv("MXS_NODE", ("node " + std::to_string(options.nodes[static_cast<size_t>(rank)])).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  for (const std::string &entry : options.environment) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
}

[[noreturn]] void be_child(int rank, int pipe, const std::function<std::string(int)> &body) {
  // cmocka's handlers would go on with the program's other tests, in this process.
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) signal(number, SIG_DFL);
  std::string complaint;
  try {
    complaint = body(rank);
  } catch (const std::exception &error) {
    complaint = std::string("exception: ") + error.what();
  }
  for (size_t written = 0; written < complaint.size();) {
    const ssize_t count = write(pipe, complaint.data() + written, complaint.size() - written);
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  // Not exit: what the parent has buffered and registered is the parent's.
  _exit(complaint.empty() ? 0 : 1);
}

// Until all pipes have ended. False: the time was over.
bool collect(std::vector<Child> &children, Clock::time_point deadline) {
  for (;;) {
    std::vector<pollfd> entries;
    std::vector<Child *> owners;
    for (Child &child : children)
      if (child.pipe >= 0) {
        entries.push_back({child.pipe, POLLIN, 0});
        owners.push_back(&child);
      }
    if (entries.empty()) return true;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    poll(entries.data(), entries.size(), static_cast<int>(left));
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!entries[i].revents) continue;
      char text[4096];
      const ssize_t count = read(entries[i].fd, text, sizeof text);
      if (count > 0) {
        owners[i]->complaint.append(text, static_cast<size_t>(count));
      } else {
        close(entries[i].fd);
        owners[i]->pipe = -1;
      }
    }
  }
}

std::string end_of(int result) {
  if (WIFSIGNALED(result)) return std::string("killed by signal ") + strsignal(WTERMSIG(result));
  return "ended with status " + std::to_string(WEXITSTATUS(result));
}

std::string reap(std::vector<Child> &children, bool in_time, const ProcessOptions &options) {
  std::vector<std::string> complaints(children.size());
  for (size_t rank = 0; rank < children.size(); ++rank) {
    Child &child = children[rank];
    if (child.process < 0) continue;
    if (!in_time) kill(child.process, SIGKILL);
    int result = 0;
    waitpid(child.process, &result, 0);
    if (child.pipe >= 0) close(child.pipe);
    std::string &complaint = complaints[rank];
    complaint = std::move(child.complaint);
    const bool is_expendable = (options.any_may_die && in_time) || static_cast<int>(rank) == options.may_die ||
                               std::count(options.expendable.begin(), options.expendable.end(), rank) != 0;
    const bool may_die = is_expendable && WIFSIGNALED(result);
    if (complaint.empty() && result != 0 && !may_die) complaint = in_time ? end_of(result) : "hangs; killed";
  }
  const std::string complaint = complaint_of_ranks(complaints);
  return complaint.empty() && !in_time ? "timed out" : complaint;
}

}  // namespace

int free_port() {
  std::random_device random;
  for (int tries = 0; tries < 1000; ++tries) {
    const int port = 20000 + static_cast<int>(random() % 12000);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const int socket_number = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_free = bind(socket_number, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0;
    close(socket_number);
    if (is_free) return port;
  }
  return 0;
}

std::string run_processes_bare(int rank_count, const std::function<std::string(int rank)> &body,
                               const ProcessOptions &options) {
  const Clock::time_point deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                        std::chrono::duration<double>(options.timeout_seconds));
  const int port = free_port();
  const pid_t parent = getpid();
  std::fflush(nullptr);
  std::vector<Child> children(static_cast<size_t>(rank_count));
  std::string trouble;
  for (int rank = 0; rank < rank_count && trouble.empty(); ++rank) {
    int ends[2];
    if (pipe(ends) != 0) {
      trouble = "no pipe";
      break;
    }
    Child &child = children[static_cast<size_t>(rank)];
    child.process = fork();
    if (child.process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      close(ends[0]);
      for (const Child &other : children)
        if (other.pipe >= 0) close(other.pipe);
      set_environment(rank, rank_count, port, options);
      be_child(rank, ends[1], body);
    }
    close(ends[1]);
    child.pipe = ends[0];
    if (child.process < 0) trouble = "no process";
  }
  if (trouble.empty() && options.meanwhile) {
    std::vector<pid_t> processes;
    for (const Child &child : children) processes.push_back(child.process);
    options.meanwhile(processes);
  }
  const bool in_time = trouble.empty() && collect(children, deadline);
  const std::string complaint = reap(children, in_time, options);
  return trouble.empty() ? complaint : trouble;
}

std::string run_processes(int rank_count, const std::function<std::string(int rank, mxs_comm *comm)> &body,
                          const ProcessOptions &options) {
  return run_processes_bare(
      rank_count,
      [&](int rank) -> std::string {
        mxs_comm_options comm_options = MXS_COMM_OPTIONS_INIT;
        comm_options.transport = options.transport;
        comm_options.thread_count = options.thread_count;
        comm_options.timeout_ns = static_cast<uint64_t>(options.comm_timeout_seconds * 1e9);
        mxs_comm *comm = nullptr;
        if (mxs_comm_create(&comm, &comm_options) != MXS_OK) return std::string("mxs_comm_create: ") + mxs_last_error();
        std::string complaint = body(rank, comm);
        if (!complaint.empty()) mxs_comm_abort(comm, complaint.c_str());
        if (mxs_comm_destroy(&comm) != MXS_OK && complaint.empty())
          complaint = std::string("mxs_comm_destroy: ") + mxs_last_error();
        return complaint;
      },
      options);
}

}  // namespace mxs::test
