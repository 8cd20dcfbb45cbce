// SPDX-License-Identifier: Apache-2.0
// What one group of calls does, worked out: copies, transfers, sums, all by their places in one pinned memory.
#pragma once

#include <memory>
#include <vector>

#include "communicator.hpp"

namespace standin {

struct Copy {
  void *device = nullptr;
  uint64_t place = 0, bytes = 0;
};

struct Move {  // a transfer, before the memory is known
  int peer = 0;
  uint64_t place = 0, bytes = 0, call = 0;
};

struct Sum {
  uint64_t target = 0;
  std::vector<uint64_t> sources;  // by rank
  uint64_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t operation = ncclSum;
};

struct Local {  // a message to oneself
  uint64_t source = 0, target = 0, bytes = 0;
};

struct Job {
  std::shared_ptr<Communicator> communicator;
  size_t operations = 0;
  uint64_t bytes = 64;  // the first 64 are the flag's
  std::vector<Copy> copies_in, copies_out;
  std::vector<Move> sends, receives;
  std::vector<Local> locals;
  std::vector<Sum> sums;
  std::byte *memory = nullptr;  // pinned
  uint64_t memory_bytes = 0;
  CUevent event = nullptr;      // after it all
  // The stream waits until it is 1.
  std::atomic<uint32_t> &flag() { return *reinterpret_cast<std::atomic<uint32_t> *>(memory); }
};

std::shared_ptr<Job> make_job(const std::vector<Operation> &operations, int rank, int rank_count);

// Pinned memory and an event for it, from those that are free. Of the current context.
bool equip(Job &job, int device);
// They may be used again once the event is over.
void give_back(Job &job, int device);

}  // namespace standin
