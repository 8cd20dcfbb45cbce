// SPDX-License-Identifier: Apache-2.0
#include "bench/bare_products.hpp"

namespace bench {

std::unique_ptr<BareProducts> make_bare_products(int64_t, int64_t, int64_t, int, std::string *why) {
  *why = "mxs-perf was built without oneDNN (libdnnl-dev), so there are no bare products to compare with";
  return nullptr;
}

std::unique_ptr<PlainForm> make_plain_form(int64_t, int64_t, const double (*)[3], int, std::string *why) {
  *why = "mxs-perf was built without oneDNN (libdnnl-dev), so there is no plain form to compare with";
  return nullptr;
}

}  // namespace bench
