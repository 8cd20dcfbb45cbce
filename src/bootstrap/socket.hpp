// SPDX-License-Identifier: Apache-2.0
// TCP sockets for the store: closed by themselves, never blocking, never raising SIGPIPE, closed on exec, and closed in
// forked children: a data loader's worker that outlived its rank would keep the others from seeing that this has died.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "matrixshard/status.h"

namespace mxs {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor);  // negative: none
  Socket(Socket &&other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// On the address named and on no other. MXS_SYSTEM with address, port and what to do.
mxs_status listen_at(Socket *listener, const std::string &address, int port, int backlog);

// One try at all addresses that the name has, each for at most a second and never beyond the deadline. False:
// *why_not says why.
bool connect_to(Socket *socket, const std::string &address, int port, uint64_t deadline_ns, std::string *why_not);

// On any free port of an address in numbers. MXS_SYSTEM says what it was for: `what`.
mxs_status listen_anywhere(Socket *listener, const std::string &address, int *port, const char *what);

// Sets off for an address in numbers; waits for nothing. 0: under way, or there; else errno.
int begin_connecting(Socket *socket, const std::string &address, int port);
// 0: there. EINPROGRESS: not yet. Else why it has failed.
int look_at_connecting(const Socket &socket);

// This end's address in numbers; empty: it has none.
std::string own_address(int descriptor);

// The next connection; an empty socket if none waits, or if *out_of_files: this process, or the machine, may open no
// more.
Socket accept_from(const Socket &listener, bool *out_of_files);

// Sends all of it, waiting for room until the deadline (0: doesn't wait). False: the connection is of no more use,
// unless *sent is 0.
bool send_all(const Socket &socket, const void *data, size_t bytes, uint64_t deadline_ns, size_t *sent = nullptr);

// Bytes read; 0: none there now; -1: closed or broken.
ptrdiff_t receive_some(const Socket &socket, void *data, size_t bytes);

}  // namespace mxs
