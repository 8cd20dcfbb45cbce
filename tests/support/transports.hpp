// SPDX-License-Identifier: Apache-2.0
// Which transports a test can be run over.
#pragma once

#include <cstdio>
#include <string>

#include "transport/transport.hpp"

namespace mxs::test {

// Is it in this build, and can it be used on this machine? If not, the test's log says so.
inline bool has_transport(const char *name) {
  const Transport *const transport = find_transport(name);
  std::string why_not = "not in this build";
  if (transport && transport->usable(&why_not)) return true;
  std::printf("# %s is not tested: %s\n", name, why_not.c_str());
  std::fflush(stdout);  // what lies in a buffer would come again from forked ranks
  return false;
}

}  // namespace mxs::test
