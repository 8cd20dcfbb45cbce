// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace standin {

extern const int built_version;  // 23004: which NCCL a file stands for; each has a list of the names that one had

}  // namespace standin
