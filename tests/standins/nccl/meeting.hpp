// SPDX-License-Identifier: Apache-2.0
// How the ranks of a communicator meet: whoever comes first listens on an abstract Unix socket with a random name, the
// others say who they are, and get a memory (memfd) that all of them map. The kernel forgets both with the processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace standin {

struct Guest {
  std::string name;  // equal on all ranks, from the unique id
  int rank = 0, rank_count = 1;
  std::string device;          // equal for equal devices of one host
  int ranks_per_device = 1;    // more are refused
  uint64_t memory_bytes = 0;
};

enum class Meeting { good, refused, lost, stopped };

// Waits for all ranks, 120 s at most, or until `stopped` says true. *memory is mapped, zeroed at first, and to be
// unmapped. `lost`: a rank died or did not come; `refused`: *why.
Meeting meet(const Guest &guest, const std::function<bool()> &stopped, void **memory, std::string *why);

}  // namespace standin
