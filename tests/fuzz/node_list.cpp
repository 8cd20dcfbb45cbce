// SPDX-License-Identifier: Apache-2.0
// Slurm's lists of nodes: the first host is a name, or there is none.
#include "bootstrap/bootstrap.hpp"
#include "fuzz.hpp"

using namespace mxs;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string list(fuzz::text_of(data, size));
  const std::string host = first_host(list);
  fuzz::promise(host.size() <= list.size() && host.find_first_of("[], ") == std::string::npos);
  fuzz::promise(host.empty() || first_host(host) == host);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"node1", "node[03-07,9]-ib,other", "a,b", "rack[1-2]node[004,7-9]", "n[1", "n]", "[12]", "a b"};
}
