// SPDX-License-Identifier: Apache-2.0
// MXS_INTERFACE: the network interface by which ranks of other nodes reach this one.
#pragma once

#include <string>

#include "matrixshard/status.h"

namespace mxs {

// The address of the interface that MXS_INTERFACE names, in numbers: IPv4 before IPv6. Empty: the variable isn't set.
// MXS_ENVIRONMENT: there is no such interface, or it has no address; says which there are.
mxs_status read_interface(std::string *address);

// The same for a name.
mxs_status interface_address(const std::string &name, std::string *address);

}  // namespace mxs
