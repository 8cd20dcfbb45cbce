// SPDX-License-Identifier: Apache-2.0
// Sockets between ranks of a machine: how files pass, and who is at the other end.
//
// Names are abstract (no file is left behind) and live in the network namespace, so ranks in different containers
// don't find each other. Names are seen by all users of a machine, so both ends look who is at the other
// (SO_PEERCRED): processes of another user are turned away, whatever they do. SOCK_SEQPACKET keeps messages apart and
// shows a dead peer as an end of file.
#pragma once

#include <cstdint>
#include <string>

#include "matrixshard/status.h"
#include "memory/region.hpp"

namespace mxs {

// Listens on an abstract name; as many as `backlog` peers may connect before the first accept.
mxs_status listen_local(File *listener, const std::string &name, int backlog);

// Doesn't wait for the listener to accept, but for room in its queue, which others may have filled.
mxs_status connect_local(File *connection, const std::string &name, uint64_t deadline_ns);

// MXS_TIMED_OUT if nobody comes. Others than this user's processes are turned away.
mxs_status accept_local(File *connection, int listener, uint64_t deadline_ns);

// One message of at most 4 KiB, with a file (descriptor -1: none).
mxs_status send_with_file(int connection, const void *message, size_t bytes, int descriptor, uint64_t deadline_ns);

// A message of exactly `bytes`. MXS_TIMED_OUT; MXS_PEER_FAILED at an end of file; MXS_SYSTEM for another size.
mxs_status receive_with_file(int connection, void *message, size_t bytes, File *file, uint64_t deadline_ns);

// A pidfd of the process at the other end; -1 where there is none (older kernels, another pid namespace).
File open_peer_process(int connection);

}  // namespace mxs
