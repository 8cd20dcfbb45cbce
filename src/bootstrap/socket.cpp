// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/socket.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

// All descriptors of this process, for the child of a fork to close.
struct OpenSockets {
  std::mutex mutex;
  std::vector<int> descriptors;
};

OpenSockets &open_sockets() {
  static OpenSockets *const all = [] {
    auto *made = new OpenSockets;  // for ever: a fork may come after the last destructor
    pthread_atfork([] { open_sockets().mutex.lock(); }, [] { open_sockets().mutex.unlock(); },
                   [] {
                     for (const int descriptor : open_sockets().descriptors) close(descriptor);
                     open_sockets().descriptors.clear();
                     open_sockets().mutex.unlock();
                   });
    return made;
  }();
  return *all;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses find_addresses(const std::string &address, int port, bool passive, std::string *why_not) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo *list = nullptr;
  const int failure = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failure != 0) *why_not = failure == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(failure);
  return Addresses(failure == 0 ? list : nullptr, &freeaddrinfo);
}

Socket open_socket(const addrinfo &address) {
  return Socket(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void be_quick(const Socket &socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// A try to connect to a port of this machine on which nobody listens can, by chance, get that very port as its own
// and so meet itself.
bool is_connected_to_itself(const Socket &socket) {
  sockaddr_storage own{}, other{};
  socklen_t own_bytes = sizeof own, other_bytes = sizeof other;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr *>(&own), &own_bytes) != 0) return false;
  if (getpeername(socket.get(), reinterpret_cast<sockaddr *>(&other), &other_bytes) != 0) return false;
  return own_bytes == other_bytes && std::memcmp(&own, &other, own_bytes) == 0;
}

int milliseconds_until(uint64_t deadline_ns) {
  const uint64_t now = now_ns();
  if (now >= deadline_ns) return 0;
  return static_cast<int>(std::min<uint64_t>((deadline_ns - now) / 1'000'000u + 1, 1000));
}

// 0 once connected, else errno.
int finish_connecting(const Socket &socket, uint64_t deadline_ns) {
  pollfd entry = {socket.get(), POLLOUT, 0};
  while (poll(&entry, 1, milliseconds_until(deadline_ns)) == 0)
    if (now_ns() >= deadline_ns) return ETIMEDOUT;
  int failure = 0;
  socklen_t bytes = sizeof failure;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &bytes) != 0) return errno;
  return failure;
}

}  // namespace

Socket::Socket(int descriptor) : descriptor_(descriptor) {
  if (descriptor < 0) return;
  const std::lock_guard lock(open_sockets().mutex);
  open_sockets().descriptors.push_back(descriptor);
}

// Only what is still in the list is ours: in a forked child the number may be somebody else's by now.
Socket::~Socket() {
  if (descriptor_ < 0) return;
  const std::lock_guard lock(open_sockets().mutex);
  if (std::erase(open_sockets().descriptors, descriptor_) != 0) close(descriptor_);
}

mxs_status listen_at(Socket *listener, const std::string &address, int port, int backlog) {
  std::string why_not;
  const Addresses addresses = find_addresses(address, port, true, &why_not);
  if (!addresses)
    return set_error(MXS_SYSTEM, "rank 0 can't find the address \"%s\" to listen on (%s); set MASTER_ADDR to a name "
                     "or address of this machine", address.c_str(), why_not.c_str());
  int failure = 0;
  for (const addrinfo *entry = addresses.get(); entry; entry = entry->ai_next) {
    Socket socket = open_socket(*entry);
    const int on = 1;
    // Else the connections of an earlier comm on this port would keep it taken for a minute.
    if (socket) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket && bind(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0 && listen(socket.get(), backlog) == 0) {
      *listener = std::move(socket);
      return MXS_OK;
    }
    // With several addresses, one in use says more than one that isn't there.
    if (failure != EADDRINUSE) failure = errno;
  }
  if (failure == EADDRINUSE)
    return set_error(MXS_SYSTEM,
                     "rank 0 can't listen on %s port %d: the port is in use, by another job or by one that hasn't "
                     "ended; set MASTER_PORT (or MXS_PORT) to a free one on all ranks", address.c_str(), port);
  if (failure == EADDRNOTAVAIL)
    return set_error(MXS_SYSTEM,
                     "rank 0 can't listen on %s port %d: the address is not of this machine; set MASTER_ADDR to one "
                     "of the machine on which rank 0 runs", address.c_str(), port);
  return set_error(MXS_SYSTEM, "rank 0 can't listen on %s port %d: %s; set MASTER_ADDR or MASTER_PORT to another",
                   address.c_str(), port, std::strerror(failure));
}

bool connect_to(Socket *result, const std::string &address, int port, uint64_t deadline_ns, std::string *why_not) {
  const Addresses addresses = find_addresses(address, port, false, why_not);
  for (const addrinfo *entry = addresses.get(); entry; entry = entry->ai_next) {
    Socket socket = open_socket(*entry);
    int failure = socket ? 0 : errno;
    if (socket && connect(socket.get(), entry->ai_addr, entry->ai_addrlen) != 0) failure = errno;
    if (failure == EINPROGRESS)
      failure = finish_connecting(socket, std::min<uint64_t>(deadline_ns, now_ns() + 1'000'000'000u));
    if (failure == 0 && is_connected_to_itself(socket)) failure = ECONNREFUSED;
    if (failure == 0) {
      be_quick(socket);
      *result = std::move(socket);
      return true;
    }
    *why_not = std::strerror(failure);
  }
  return false;
}

namespace {

// Of an address in numbers: looks nothing up.
bool to_sockaddr(const std::string &address, int port, sockaddr_storage *result, socklen_t *bytes, int *family) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST;
  addrinfo *list = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return false;
  const Addresses addresses(list, &freeaddrinfo);
  std::memcpy(result, list->ai_addr, list->ai_addrlen);
  *bytes = list->ai_addrlen;
  *family = list->ai_family;
  return true;
}

}  // namespace

mxs_status listen_anywhere(Socket *listener, const std::string &address, int *port, const char *what) {
  sockaddr_storage place{};
  socklen_t bytes = 0;
  int family = 0;
  if (!to_sockaddr(address, 0, &place, &bytes, &family))
    return set_error(MXS_SYSTEM, "%s: \"%s\" is no address in numbers", what, address.c_str());
  Socket made(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t bound_bytes = sizeof place;
  if (!made || bind(made.get(), reinterpret_cast<sockaddr *>(&place), bytes) != 0 ||
      listen(made.get(), SOMAXCONN) != 0 ||
      getsockname(made.get(), reinterpret_cast<sockaddr *>(&place), &bound_bytes) != 0)
    return set_error(MXS_SYSTEM, "%s: can't listen on %s: %s", what, address.c_str(), std::strerror(errno));
  *port = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6 &>(place).sin6_port
                                   : reinterpret_cast<sockaddr_in &>(place).sin_port);
  *listener = std::move(made);
  return MXS_OK;
}

int begin_connecting(Socket *result, const std::string &address, int port) {
  sockaddr_storage place{};
  socklen_t bytes = 0;
  int family = 0;
  if (!to_sockaddr(address, port, &place, &bytes, &family)) return EINVAL;
  Socket made(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return errno;
  if (connect(made.get(), reinterpret_cast<sockaddr *>(&place), bytes) != 0 && errno != EINPROGRESS) return errno;
  be_quick(made);
  *result = std::move(made);
  return 0;
}

int look_at_connecting(const Socket &socket) {
  pollfd entry = {socket.get(), POLLOUT, 0};
  if (poll(&entry, 1, 0) == 0) return EINPROGRESS;
  const int failure = finish_connecting(socket, 0);
  return failure == 0 && is_connected_to_itself(socket) ? ECONNREFUSED : failure;
}

std::string own_address(int descriptor) {
  sockaddr_storage place{};
  socklen_t bytes = sizeof place;
  char text[NI_MAXHOST];
  if (getsockname(descriptor, reinterpret_cast<sockaddr *>(&place), &bytes) != 0) return "";
  if (getnameinfo(reinterpret_cast<sockaddr *>(&place), bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return text;
}

Socket accept_from(const Socket &listener, bool *out_of_files) {
  *out_of_files = false;
  for (;;) {
    Socket socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) be_quick(socket);
    if (socket || errno == EAGAIN || errno == EWOULDBLOCK) return socket;
    *out_of_files = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (*out_of_files || errno == EBADF || errno == EINVAL || errno == ENOTSOCK) return socket;
    // Else this one had ended before it was accepted, or its network failed: the next.
  }
}

bool send_all(const Socket &socket, const void *data, size_t bytes, uint64_t deadline_ns, size_t *sent_bytes) {
  const char *next = static_cast<const char *>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket.get(), next, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      next += sent;
      bytes -= static_cast<size_t>(sent);
      if (sent_bytes) *sent_bytes += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (now_ns() >= deadline_ns) return false;
      pollfd entry = {socket.get(), POLLOUT, 0};
      poll(&entry, 1, milliseconds_until(deadline_ns));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

ptrdiff_t receive_some(const Socket &socket, void *data, size_t bytes) {
  for (;;) {
    const ssize_t count = recv(socket.get(), data, bytes, MSG_DONTWAIT);
    if (count > 0) return count;
    if (count == 0) return -1;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return -1;
  }
}

}  // namespace mxs
