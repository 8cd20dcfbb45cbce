// SPDX-License-Identifier: Apache-2.0
// mxs run: local ranks with torchrun's variables.
//
// Every rank leads a process group of its own, so that a signal reaches what the rank itself has started. This process
// is the reaper of all descendants (PR_SET_CHILD_SUBREAPER): whatever a rank leaves behind is found and killed at the
// end. A rank dies with this process, however that ends (PR_SET_PDEATHSIG); its group, such as a shell's children, is
// then killed by a guard, a process that sleeps until the launcher's end of a pipe is closed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include "cli/commands.hpp"
#include "cli/secrets_are_built.hpp"

namespace mxs_cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int rank_count_max = 4096;
constexpr std::chrono::seconds patience(5);          // between SIGTERM and SIGKILL
constexpr size_t line_bytes_max = size_t{64} << 10;  // a longer one is cut
const int passed_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH, SIGTSTP};

struct RunOptions {
  int rank_count = 0, port = 0;
  bool prefix = false, keep_going = false;
  Words program;
};

// ---- words ----

bool read_number(const std::string &text, int least, int most, int *value) {
  int number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || stop != text.data() + text.size() || number < least || number > most) return false;
  *value = number;
  return true;
}

// "-n4" and "--ranks=4" are "-n 4" and "--ranks 4"; PROGRAM's own words stay as they are.
Words split_values(const Words &words) {
  Words result;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string &word = words[i];
    if (word == "--" || word[0] != '-') {
      result.insert(result.end(), words.begin() + static_cast<ptrdiff_t>(i), words.end());
      break;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const bool wants_number = name == "-n" || name == "--ranks" || name == "--port";
    if (wants_number && equals != std::string::npos) {
      result.insert(result.end(), {name, word.substr(equals + 1)});
    } else if (word.rfind("-n", 0) == 0 && word.find_first_of("0123456789") == 2) {
      result.insert(result.end(), {"-n", word.substr(2)});
    } else {
      result.push_back(word);
      if (wants_number && i + 1 < words.size()) result.push_back(words[++i]);
    }
  }
  return result;
}

// "" or what is wrong.
std::string read_words(const Words &words, RunOptions *options) {
  size_t i = 0;
  const auto number = [&](int least, int most, int *value) -> std::string {
    const std::string name = words[i];
    if (++i == words.size()) return name + " wants a number";
    if (read_number(words[i], least, most, value)) return "";
    return name + " wants a whole number from " + std::to_string(least) + " to " + std::to_string(most) + ", not \"" +
           words[i] + "\"";
  };
  for (; i < words.size() && words[i][0] == '-'; ++i) {
    std::string complaint;
    if (words[i] == "--") {
      ++i;
      break;
    }
    if (words[i] == "-n" || words[i] == "--ranks") complaint = number(1, rank_count_max, &options->rank_count);
    else if (words[i] == "--port") complaint = number(1, 65535, &options->port);
    else if (words[i] == "--prefix") options->prefix = true;
    else if (words[i] == "--keep-going") options->keep_going = true;
    else complaint = "\"" + words[i] + "\" is not understood";
    if (!complaint.empty()) return complaint;
  }
  options->program.assign(words.begin() + static_cast<ptrdiff_t>(std::min(i, words.size())), words.end());
  if (options->rank_count == 0) return "-n RANKS is missing";
  if (options->program.empty()) return "PROGRAM is missing";
  return "";
}

// Below the ports that Linux gives to outgoing connections (32768 up), so that none of these takes it meanwhile.
int free_port() {
  std::random_device random;
  for (int tries = 0; tries < 1000; ++tries) {
    const int port = 20000 + static_cast<int>(random() % 12000);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return 0;
    const bool is_free = bind(probe, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0;
    close(probe);
    if (is_free) return port;
  }
  return 0;
}

// ---- output ----

// One stream of one rank. Lines of different ranks never mix: each is written at once.
struct Stream {
  int source = -1, target = -1;
  std::string prefix, pending;
  std::function<bool(int target)> wait_for_room;  // hears signals meanwhile; false: not worth it any more

  // False: whoever reads our output is gone. In parts that a pipe takes whole once it has room at all.
  bool write_whole(const std::string &text) const {
    for (size_t done = 0; done < text.size();) {
      if (!wait_for_room(target)) return false;
      const ssize_t count = write(target, text.data() + done, std::min<size_t>(text.size() - done, PIPE_BUF));
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count < 0) return false;
      done += static_cast<size_t>(count);
    }
    return true;
  }

  bool pass_lines(bool at_end) {
    std::string text;
    size_t begin = 0;
    for (size_t end; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1)
      text += prefix + pending.substr(begin, end + 1 - begin);
    pending.erase(0, begin);
    if (pending.size() > line_bytes_max || (at_end && !pending.empty())) {
      text += prefix + pending + '\n';
      pending.clear();
    }
    return write_whole(text);
  }

  bool pass_on() {
    char text[65536];
    ssize_t count = 0;
    while ((count = read(source, text, sizeof text)) > 0) {
      pending.append(text, static_cast<size_t>(count));
      if (!pass_lines(false)) return false;
    }
    if (count == 0) {
      close(source);
      source = -1;
      return pass_lines(true);
    }
    return true;
  }
};

// ---- ranks ----

struct Rank {
  pid_t process = -1;  // also its group
  bool ended = false;
};

// Outlives a launcher that is killed by SIGKILL by as long as it takes to kill the ranks' groups. Told of each rank's
// start (its number) and end (the number negated), because the number of one that was reaped may be somebody else's.
class Guard {
 public:
  void start();
  void tell(pid_t number) const {
    if (pipe_ >= 0) (void)!write(pipe_, &number, sizeof number);
  }

 private:
  [[noreturn]] static void watch(int pipe);
  int pipe_ = -1;
};

void Guard::watch(int pipe) {
  setsid();  // a signal for the launcher's group is none for this
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(descriptor);
  std::vector<pid_t> groups;
  pid_t number = 0;
  ssize_t count = 0;
  while ((count = read(pipe, &number, sizeof number)) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof number) break;
    if (number > 0) groups.push_back(number);
    else std::erase(groups, -number);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

// Without one, for lack of descriptors or processes, ranks themselves still die with the launcher.
void Guard::start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  const pid_t process = fork();
  if (process == 0) {
    close(ends[1]);
    watch(ends[0]);
  }
  close(ends[0]);
  if (process > 0) pipe_ = ends[1];
  else close(ends[1]);
}

class Launcher {
 public:
  explicit Launcher(const RunOptions &options) : options_(options), ranks_(static_cast<size_t>(options.rank_count)) {}
  int run();

 private:
  bool start(int rank);
  [[noreturn]] void be_rank(int rank, const int *ends, int report);
  void set_environment(int rank) const;
  void draw_secret();
  void loop();
  bool wait_for_room(int target);
  void kill_in_time();
  void hear_signals();
  void pass_signal(int signal);
  void reap();
  void note_end(size_t rank, int result);
  void end_all(int status);
  void end_for(int status);
  void signal_all(int signal) const;
  void leave_nothing();
  int running() const {
    return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const Rank &rank) {
      return rank.process > 0 && !rank.ended;
    }));
  }

  const RunOptions &options_;
  std::vector<Rank> ranks_;
  std::vector<Stream> streams_;
  Guard guard_;
  std::string secret_;  // for the ranks; empty: they have one already, or can't use any
  sigset_t old_mask_{};
  int signals_ = -1, status_ = 0, interrupts_ = 0;
  bool ending_ = false, killed_ = false, some_ended_well_ = false;
  Clock::time_point kill_time_{};
};

void Launcher::set_environment(int rank) const {
  const std::string count = std::to_string(options_.rank_count), number = std::to_string(rank);
  setenv("RANK", number.c_str(), 1);
  setenv("LOCAL_RANK", number.c_str(), 1);
  setenv("WORLD_SIZE", count.c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", count.c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(options_.port).c_str(), 1);
  // Tells the jobs of one machine apart; and there is no agent that would hold MASTER_PORT.
  setenv("TORCHELASTIC_RUN_ID", ("mxs-" + std::to_string(getppid()) + "-" + std::to_string(options_.port)).c_str(), 1);
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  unsetenv("MXS_INTERFACE");  // of ranks that listen beyond this machine
  if (!secret_.empty()) setenv("MXS_SECRET", secret_.c_str(), 1);
}

// Others on this machine can reach the ranks' port, too.
void Launcher::draw_secret() {
  for (char **entry = environ; *entry; ++entry)
    for (const std::string name : {"MXS_SECRET=", "MXS_SECRET_FILE="})
      if (std::strncmp(*entry, name.c_str(), name.size()) == 0 && (*entry)[name.size()] != '\0') return;
  if (!secrets_are_built) return;
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return;  // never, of up to 256 bytes
  for (const unsigned char byte : bytes) {
    secret_ += "0123456789abcdef"[byte >> 4];
    secret_ += "0123456789abcdef"[byte & 15];
  }
}

void Launcher::be_rank(int rank, const int *ends, int report) {
  setpgid(0, 0);
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (rank > 0 || isatty(STDIN_FILENO)) {
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    if (nothing > STDERR_FILENO) close(nothing);
  }
  if (options_.prefix) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[3], STDERR_FILENO);
  }
  set_environment(rank);
  std::vector<char *> arguments;
  for (const std::string &word : options_.program) arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int failure = errno;
  (void)!write(report, &failure, sizeof failure);
  _exit(failure == ENOENT ? 127 : 126);
}

// False: the program can't be started; status_ is set.
bool Launcher::start(int rank) {
  int ends[4] = {-1, -1, -1, -1}, report[2] = {-1, -1};
  bool opened = pipe2(report, O_CLOEXEC) == 0;
  if (options_.prefix) opened = opened && pipe2(ends, O_CLOEXEC) == 0 && pipe2(ends + 2, O_CLOEXEC) == 0;
  const pid_t launcher = getpid();
  const pid_t process = opened ? fork() : -1;
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);  // it ended before the line above
    be_rank(rank, ends, report[1]);
  }
  const int failure_to_fork = errno;
  for (const int descriptor : {ends[1], ends[3], report[1]})
    if (descriptor >= 0) close(descriptor);
  if (process < 0) {
    std::fprintf(stderr, "mxs run: can't start rank %d: %s\n", rank, std::strerror(failure_to_fork));
    status_ = 126;
    return false;
  }
  setpgid(process, process);  // whoever of the two is first
  guard_.tell(process);
  ranks_[static_cast<size_t>(rank)].process = process;
  for (const int which : {0, 2}) {
    if (ends[which] < 0) continue;
    fcntl(ends[which], F_SETFL, O_NONBLOCK);
    std::string prefix = "[";
    prefix.append(std::to_string(rank)).append("] ");
    streams_.push_back({ends[which], which == 0 ? STDOUT_FILENO : STDERR_FILENO, prefix, "",
                        [this](int target) { return wait_for_room(target); }});
  }
  // Ends without a word when the program has been started.
  int failure = 0;
  ssize_t told = 0;
  while ((told = read(report[0], &failure, sizeof failure)) < 0 && errno == EINTR) {
  }
  close(report[0]);
  if (told != sizeof failure) return true;
  const std::string &program = options_.program[0];
  const bool sought = failure == ENOENT && program.find('/') == std::string::npos;
  std::fprintf(stderr, "mxs run: can't start \"%s\": %s\n", program.c_str(),
               sought ? "no folder of PATH has it; a program of this folder is ./NAME" : std::strerror(failure));
  status_ = failure == ENOENT ? 127 : 126;
  return false;
}

void Launcher::signal_all(int signal) const {
  for (const Rank &rank : ranks_)
    if (rank.process > 0 && !rank.ended) kill(-rank.process, signal);
}

void Launcher::end_all(int status) {
  if (ending_) return;
  ending_ = true;
  status_ = status;
  kill_time_ = Clock::now() + patience;
  signal_all(SIGTERM);
  signal_all(SIGCONT);  // one that is stopped can't end
}

void Launcher::note_end(size_t rank, int result) {
  ranks_[rank].ended = true;
  some_ended_well_ = some_ended_well_ || result == 0;
  if (result == 0 || ending_) return;
  const int others = running();
  const std::string number = others == 1 ? "one" : std::to_string(others);
  const std::string rest = others == 0            ? ""
                           : options_.keep_going ? "; the other " + number + (others == 1 ? " goes on" : " go on")
                                                 : "; ending the other " + number;
  if (WIFSIGNALED(result)) {
    std::fprintf(stderr, "mxs run: rank %zu was killed by signal %d (%s)%s\n", rank, WTERMSIG(result),
                 strsignal(WTERMSIG(result)), rest.c_str());
    end_for(128 + WTERMSIG(result));
  } else {
    std::fprintf(stderr, "mxs run: rank %zu ended with status %d%s\n", rank, WEXITSTATUS(result), rest.c_str());
    end_for(WEXITSTATUS(result));
  }
}

// A rank has ended badly. With --keep-going that is up to the others: the job went well if any of them ends well.
void Launcher::end_for(int status) {
  if (!options_.keep_going) end_all(status);
  else if (status_ == 0) status_ = status;
}

// Also reaps what ranks have left to us; that is nobody's failure. A rank's group is killed before the rank is reaped:
// until then its number can't go to a group of somebody else.
void Launcher::reap() {
  for (;;) {
    siginfo_t ended{};
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(),
                                   [&](const Rank &entry) { return entry.process == ended.si_pid && !entry.ended; });
    if (rank != ranks_.end()) {
      kill(-rank->process, SIGKILL);
      guard_.tell(-rank->process);
    }
    int result = 0;
    if (waitpid(ended.si_pid, &result, 0) < 0) return;
    if (rank != ranks_.end()) note_end(static_cast<size_t>(rank - ranks_.begin()), result);
  }
}

void Launcher::pass_signal(int signal) {
  signal_all(signal);
  if (signal == SIGTSTP) raise(SIGSTOP);
  // Somebody who presses the key a third time means it.
  if (signal == SIGINT && ++interrupts_ == 3) signal_all(SIGKILL);
}

void Launcher::hear_signals() {
  signalfd_siginfo information{};
  while (read(signals_, &information, sizeof information) == sizeof information) {
    const int signal = static_cast<int>(information.ssi_signo);
    if (signal == SIGCHLD) reap();
    else pass_signal(signal);
  }
}

void Launcher::kill_in_time() {
  if (!ending_ || killed_ || Clock::now() < kill_time_) return;
  killed_ = true;
  signal_all(SIGKILL);
}

// Whoever reads our output may be slow, or stopped; signals are heard all the same. Once no rank is left, and one of
// them or a signal is why, it is waited for no longer than for a rank.
bool Launcher::wait_for_room(int target) {
  const Clock::time_point end = Clock::now() + patience;
  for (;;) {
    pollfd entries[] = {{target, POLLOUT, 0}, {signals_, POLLIN, 0}};
    if (poll(entries, 2, 100) < 0) continue;
    if (entries[1].revents) hear_signals();
    if (entries[0].revents) return true;
    kill_in_time();
    if (running() > 0) continue;
    if ((ending_ && Clock::now() > kill_time_) || (interrupts_ > 0 && Clock::now() > end)) return false;
  }
}

void Launcher::loop() {
  while (running() > 0) {
    std::vector<pollfd> entries = {{signals_, POLLIN, 0}};
    std::vector<Stream *> owners = {nullptr};
    for (Stream &stream : streams_)
      if (stream.source >= 0) {
        entries.push_back({stream.source, POLLIN, 0});
        owners.push_back(&stream);
      }
    int wait_ms = -1;
    if (ending_ && !killed_) {
      kill_in_time();
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(kill_time_ - Clock::now()).count();
      wait_ms = static_cast<int>(std::max<long>(left, 0)) + 1;
    }
    if (poll(entries.data(), entries.size(), wait_ms) < 0) continue;
    for (size_t i = 1; i < entries.size(); ++i)
      if (entries[i].revents && !owners[i]->pass_on()) {
        // Nobody reads us any more: as if SIGPIPE had come.
        close(owners[i]->source);
        owners[i]->source = -1;
        end_all(128 + SIGPIPE);
      }
    if (entries[0].revents) hear_signals();
  }
}

// All ranks have ended. What they started and left, in whatever group or session, is our child by now.
void Launcher::leave_nothing() {
  const std::string path = "/proc/self/task/" + std::to_string(getpid()) + "/children";
  for (int round = 0; round < 100; ++round) {
    std::ifstream file(path);
    bool any = false;
    for (pid_t process; file >> process; any = true) kill(process, SIGKILL);
    if (!any) break;
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    usleep(1000);
  }
  for (Stream &stream : streams_)
    if (stream.source >= 0 && stream.pass_on() && stream.source >= 0) stream.pass_lines(true);
}

int Launcher::run() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  for (const int signal : passed_signals) sigaddset(&mask, signal);
  sigprocmask(SIG_BLOCK, &mask, &old_mask_);
  signal(SIGPIPE, SIG_IGN);
  guard_.start();
  draw_secret();
  signals_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  for (int rank = 0; rank < options_.rank_count; ++rank)
    if (!start(rank)) {
      const int status = status_;
      end_all(status);
      signal_all(SIGKILL);  // they have done nothing yet
      break;
    }
  loop();
  leave_nothing();
  return options_.keep_going && some_ended_well_ && !ending_ ? 0 : status_;
}

}  // namespace

int run(const Words &words) {
  RunOptions options;
  const std::string complaint = read_words(split_values(words), &options);
  if (!complaint.empty()) return bad_use("run", complaint);
  if (options.port == 0) options.port = free_port();
  if (options.port == 0) {
    std::fprintf(stderr, "mxs run: found no free port from 20000 to 31999; give one by --port\n");
    return 1;
  }
  return Launcher(options).run();
}

}  // namespace mxs_cli
