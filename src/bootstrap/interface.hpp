// SPDX-License-Identifier: Apache-2.0
// MXS_INTERFACE: the network interface by which ranks of other nodes reach this one, and on which rank 0 listens.
#pragma once

#include <string>

#include "matrixshard/status.h"

namespace mxs {

// The address of the interface that MXS_INTERFACE names, in numbers: IPv4 before IPv6. Empty: the variable isn't set.
// MXS_ENVIRONMENT: there is no such interface, or it has no address; says which there are.
mxs_status read_interface(std::string *address);

// The same for a name.
mxs_status interface_address(const std::string &name, std::string *address);

// Others look for rank 0 at `address`, a name or numbers. MXS_ENVIRONMENT if this leads to this machine, but not to the
// interface, so that nobody would find the listener. An address that isn't this machine's (a translated one) passes.
mxs_status check_interface_is_found(const std::string &name, const std::string &address);

// Is what the socket is bound to reached from this machine alone?
bool is_bound_to_loopback(int descriptor);

}  // namespace mxs
