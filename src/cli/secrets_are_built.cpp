// SPDX-License-Identifier: Apache-2.0
#include "cli/secrets_are_built.hpp"

namespace mxs_cli {

const bool secrets_are_built = true;

}  // namespace mxs_cli
