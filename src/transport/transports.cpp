// SPDX-License-Identifier: Apache-2.0
// The list of transports in this build, one line each.
#include "mxs_build.h"
#include "transport/transport.hpp"

namespace mxs {

namespace {

const Transport *const transports[] = {
    &loopback_transport,
    &shm_transport,
#if MXS_HAVE_UCX
    &ucx_transport,
#endif
};

}  // namespace

const Transport *find_transport(const std::string &name) {
  for (const Transport *transport : transports)
    if (name == transport->name) return transport;
  return nullptr;
}

std::string transport_names() {
  std::string names;
  for (const Transport *transport : transports) names.append(names.empty() ? "" : ", ").append(transport->name);
  return names;
}

}  // namespace mxs
