// SPDX-License-Identifier: Apache-2.0
// Can ranks of this build use a secret? One of two files says so; the build chooses.
#pragma once

namespace mxs_cli {

extern const bool secrets_are_built;

}  // namespace mxs_cli
