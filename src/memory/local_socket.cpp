// SPDX-License-Identifier: Apache-2.0
#include "memory/local_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>

#include "base/clock.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

struct Address {
  sockaddr_un value{};
  socklen_t bytes = 0;
};

Address abstract_address(const std::string &name) {
  Address address;
  address.value.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.value.sun_path - 1);
  std::memcpy(address.value.sun_path + 1, name.data(), length);  // sun_path[0] is 0: abstract
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

mxs_status open_socket(File *file) {
  File opened(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (opened.get() < 0) return set_error(MXS_SYSTEM, "a local socket can't be opened: %s", std::strerror(errno));
  *file = std::move(opened);
  return MXS_OK;
}

// Waits until the socket is ready for `events`.
mxs_status wait_for_socket(int descriptor, short events, uint64_t deadline_ns) {
  while (true) {
    const uint64_t now = now_ns();
    if (now >= deadline_ns) return set_error(MXS_TIMED_OUT, "timed out waiting for a local rank's socket");
    const uint64_t left_ms = std::min<uint64_t>((deadline_ns - now) / 1'000'000 + 1, 1'000'000);
    pollfd entry = {descriptor, events, 0};
    const int count = poll(&entry, 1, static_cast<int>(left_ms));
    if (count > 0) return MXS_OK;
    if (count < 0 && errno != EINTR) return set_error(MXS_SYSTEM, "poll on a local socket: %s", std::strerror(errno));
  }
}

bool same_user(int connection) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

}  // namespace

mxs_status listen_local(File *listener, const std::string &name, int backlog) {
  File opened;
  const mxs_status status = open_socket(&opened);
  if (status != MXS_OK) return status;
  const Address address = abstract_address(name);
  if (bind(opened.get(), reinterpret_cast<const sockaddr *>(&address.value), address.bytes) != 0 ||
      listen(opened.get(), std::max(backlog, 1)) != 0)
    return set_error(MXS_SYSTEM, "local socket @%s: %s", name.c_str(), std::strerror(errno));
  *listener = std::move(opened);
  return MXS_OK;
}

mxs_status connect_local(File *connection, const std::string &name, uint64_t deadline_ns) {
  File opened;
  const mxs_status status = open_socket(&opened);
  if (status != MXS_OK) return status;
  const Address address = abstract_address(name);
  int failure = 0;
  do {
    const int result = connect(opened.get(), reinterpret_cast<const sockaddr *>(&address.value), address.bytes);
    failure = result == 0 ? 0 : errno;
    // Its queue is full: the listener turns away who is none of ours, and then there is room.
    const timespec pause = {0, 1'000'000};
    if (failure == EAGAIN) nanosleep(&pause, nullptr);
  } while (failure == EINTR || (failure == EAGAIN && now_ns() < deadline_ns));
  if (failure == EAGAIN) return set_error(MXS_TIMED_OUT, "no room in the queue of local socket @%s", name.c_str());
  if (failure != 0)
    return set_error(MXS_SYSTEM, "local socket @%s can't be reached (another network namespace?): %s", name.c_str(),
                     std::strerror(failure));
  if (!same_user(opened.get()))
    return set_error(MXS_SYSTEM, "local socket @%s belongs to another user", name.c_str());
  *connection = std::move(opened);
  return MXS_OK;
}

mxs_status accept_local(File *connection, int listener, uint64_t deadline_ns) {
  while (true) {
    const mxs_status status = wait_for_socket(listener, POLLIN, deadline_ns);
    if (status != MXS_OK) return status;
    File accepted(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted.get() < 0) {
      if (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED) continue;
      return set_error(MXS_SYSTEM, "accept on a local socket: %s", std::strerror(errno));
    }
    if (!same_user(accepted.get())) continue;
    *connection = std::move(accepted);
    return MXS_OK;
  }
}

mxs_status send_with_file(int connection, const void *message, size_t bytes, int descriptor, uint64_t deadline_ns) {
  iovec part = {const_cast<void *>(message), bytes};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) unsigned char room[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    header.msg_control = room;
    header.msg_controllen = sizeof room;
    cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  while (sendmsg(connection, &header, MSG_NOSIGNAL) < 0) {
    if (errno == EPIPE || errno == ECONNRESET) return set_error(MXS_PEER_FAILED, "a local rank has hung up");
    if (errno != EINTR && errno != EAGAIN)
      return set_error(MXS_SYSTEM, "sending over a local socket: %s", std::strerror(errno));
    const mxs_status status = wait_for_socket(connection, POLLOUT, deadline_ns);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

mxs_status receive_with_file(int connection, void *message, size_t bytes, File *file, uint64_t deadline_ns) {
  iovec part = {message, bytes};
  alignas(cmsghdr) unsigned char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  ssize_t received = -1;
  while (received < 0) {
    header.msg_control = room;
    header.msg_controllen = sizeof room;
    received = recvmsg(connection, &header, MSG_CMSG_CLOEXEC);
    if (received >= 0) break;
    if (errno == ECONNRESET) return set_error(MXS_PEER_FAILED, "a local rank has hung up");
    if (errno != EINTR && errno != EAGAIN)
      return set_error(MXS_SYSTEM, "receiving over a local socket: %s", std::strerror(errno));
    const mxs_status status = wait_for_socket(connection, POLLIN, deadline_ns);
    if (status != MXS_OK) return status;
  }
  File arrived;
  for (cmsghdr *entry = CMSG_FIRSTHDR(&header); entry; entry = CMSG_NXTHDR(&header, entry)) {
    if (entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS) continue;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(entry), sizeof descriptor);
    arrived = File(descriptor);
  }
  if (received == 0) return set_error(MXS_PEER_FAILED, "a local rank has hung up");
  if (header.msg_flags & MSG_CTRUNC)
    return set_error(MXS_SYSTEM, "a local rank's file can't be taken: %s; raise the limit on open files (ulimit -n)",
                     std::strerror(EMFILE));
  if (static_cast<size_t>(received) != bytes || (header.msg_flags & MSG_TRUNC))
    return set_error(MXS_SYSTEM, "a local rank sent a message of another size (%zd, not %zu bytes)", received, bytes);
  *file = std::move(arrived);
  return MXS_OK;
}

File open_peer_process(int connection) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.pid <= 0) return File();
  return File(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

}  // namespace mxs
