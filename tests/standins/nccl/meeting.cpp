// SPDX-License-Identifier: Apache-2.0
#include "meeting.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

namespace standin {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto patience = std::chrono::seconds(120);
constexpr int nap_ms = 20;

struct Hello {
  int32_t rank = 0, rank_count = 0;
  char device[64] = {};
};

struct Answer {
  int32_t is_good = 0;
  char why[252] = {};
};

struct Socket {
  int number = -1;
  Socket() = default;
  explicit Socket(int number_in) : number(number_in) {}
  Socket(Socket &&other) noexcept : number(other.number) { other.number = -1; }
  Socket &operator=(Socket &&other) noexcept {
    std::swap(number, other.number);
    return *this;
  }
  ~Socket() {
    if (number >= 0) close(number);
  }
};

class Waiting {
 public:
  explicit Waiting(const std::function<bool()> &stopped) : stopped_(stopped), end_(Clock::now() + patience) {}
  // False: it is to end, and *meeting says how.
  bool goes_on(Meeting *meeting) const {
    if (stopped_()) *meeting = Meeting::stopped;
    else if (Clock::now() > end_) *meeting = Meeting::lost;
    else return true;
    return false;
  }
  // Until it can be read. False as above.
  bool wait(int socket, Meeting *meeting) const {
    while (goes_on(meeting)) {
      pollfd entry = {socket, POLLIN, 0};
      if (poll(&entry, 1, nap_ms) > 0) return true;
    }
    return false;
  }

 private:
  const std::function<bool()> &stopped_;
  Clock::time_point end_;
};

socklen_t make_address(const std::string &name, sockaddr_un *address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address->sun_path - 1);
  std::memcpy(address->sun_path + 1, name.data(), length);  // after a zero: abstract
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

Hello hello_of(const Guest &guest) {
  Hello hello;
  hello.rank = guest.rank;
  hello.rank_count = guest.rank_count;
  std::snprintf(hello.device, sizeof hello.device, "%s", guest.device.c_str());
  return hello;
}

void *map(int file, uint64_t bytes) {
  void *const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// What is wrong with those who have come; "": nothing.
std::string fault_of(const std::vector<Hello> &guests, int ranks_per_device) {
  char words[252];
  for (size_t i = 0; i < guests.size(); ++i) {
    int on_this_device = 1;
    for (size_t k = 0; k < i; ++k) {
      if (guests[i].rank_count != guests[k].rank_count || guests[i].rank == guests[k].rank) {
        std::snprintf(words, sizeof words, "ranks %d of %d and %d of %d joined one communicator", guests[k].rank,
                      guests[k].rank_count, guests[i].rank, guests[i].rank_count);
        return words;
      }
      if (std::strcmp(guests[i].device, guests[k].device) == 0 && ++on_this_device > ranks_per_device) {
        std::snprintf(words, sizeof words, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %s",
                      guests[i].rank, guests[k].rank, guests[k].device);
        return words;
      }
    }
  }
  return "";
}

bool tell(int socket, const Answer &answer, int file) {
  Answer copy = answer;
  iovec part = {&copy, sizeof copy};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr *const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(head), &file, sizeof file);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof copy);
}

bool hear(int socket, Answer *answer, Socket *file) {
  iovec part = {answer, sizeof *answer};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof file->number)] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != static_cast<ssize_t>(sizeof *answer)) return false;
  if (const cmsghdr *const head = CMSG_FIRSTHDR(&message))
    std::memcpy(&file->number, CMSG_DATA(head), sizeof file->number);
  return true;
}

Meeting receive_guests(int listener, const Guest &guest, const Waiting &waiting, std::vector<Hello> *hellos,
                       std::vector<Socket> *sockets) {
  Meeting meeting = Meeting::good;
  while (static_cast<int>(hellos->size()) < guest.rank_count) {
    if (!waiting.wait(listener, &meeting)) return meeting;
    Socket socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.number < 0) continue;
    if (!waiting.wait(socket.number, &meeting)) return meeting;
    Hello hello;
    if (recv(socket.number, &hello, sizeof hello, MSG_WAITALL) != static_cast<ssize_t>(sizeof hello))
      return Meeting::lost;
    hellos->push_back(hello);
    sockets->push_back(std::move(socket));
  }
  return meeting;
}

Meeting be_host(int listener, const Guest &guest, const Waiting &waiting, void **memory, std::string *why) {
  std::vector<Hello> hellos = {hello_of(guest)};
  std::vector<Socket> sockets;
  const Meeting meeting = receive_guests(listener, guest, waiting, &hellos, &sockets);
  if (meeting != Meeting::good) return meeting;
  *why = fault_of(hellos, guest.ranks_per_device);
  Answer answer;
  answer.is_good = why->empty();
  std::snprintf(answer.why, sizeof answer.why, "%s", why->c_str());
  Socket file;
  if (answer.is_good) {
    file.number = memfd_create("nccl-standin", MFD_CLOEXEC);
    if (file.number < 0 || ftruncate(file.number, static_cast<off_t>(guest.memory_bytes)) != 0) return Meeting::lost;
    *memory = map(file.number, guest.memory_bytes);
    if (!*memory) return Meeting::lost;
  }
  for (const Socket &socket : sockets) tell(socket.number, answer, file.number);
  return answer.is_good ? Meeting::good : Meeting::refused;
}

Meeting be_guest(int socket, const Guest &guest, const Waiting &waiting, void **memory, std::string *why) {
  const Hello hello = hello_of(guest);
  if (send(socket, &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) return Meeting::lost;
  Meeting meeting = Meeting::good;
  if (!waiting.wait(socket, &meeting)) return meeting;
  Answer answer;
  Socket file;
  if (!hear(socket, &answer, &file)) return Meeting::lost;
  *why = std::string(answer.why, strnlen(answer.why, sizeof answer.why));
  if (!answer.is_good) return Meeting::refused;
  *memory = map(file.number, guest.memory_bytes);
  return *memory ? Meeting::good : Meeting::lost;
}

}  // namespace

Meeting meet(const Guest &guest, const std::function<bool()> &stopped, void **memory, std::string *why) {
  if (guest.rank_count == 1) {
    *memory = mmap(nullptr, guest.memory_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *memory != MAP_FAILED ? Meeting::good : Meeting::lost;
  }
  const Waiting waiting(stopped);
  sockaddr_un address;
  const socklen_t length = make_address(guest.name, &address);
  const auto *const place = reinterpret_cast<const sockaddr *>(&address);
  Meeting meeting = Meeting::good;
  while (waiting.goes_on(&meeting)) {
    const Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(socket.number, place, length) == 0) {
      if (listen(socket.number, guest.rank_count) != 0) return Meeting::lost;
      return be_host(socket.number, guest, waiting, memory, why);
    }
    const Socket caller(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(caller.number, place, length) == 0) return be_guest(caller.number, guest, waiting, memory, why);
    usleep(1000);  // the host has bound its name and does not listen yet
  }
  return meeting;
}

}  // namespace standin
