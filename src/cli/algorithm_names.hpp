// SPDX-License-Identifier: Apache-2.0
// Names of algorithms in messages, for commands that take all of them. Which of them a collective has shows in asking
// for it: MXS_NOT_FOUND. perf/ walks the same list; a test compares it with src/schedule's.
#pragma once

namespace mxs_cli {

constexpr const char *message_algorithms[] = {"flat",           "chain",           "spread",             "circulant",
                                              "two-level-flat", "two-level-chain", "two-level-circulant"};

}  // namespace mxs_cli
