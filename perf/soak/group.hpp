// SPDX-License-Identifier: Apache-2.0
// Where a case runs: a comm, what the rank holds for it, and what has been counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "matrixshard/matrixshard.hpp"

namespace soak {

// The library returned no error, and what it gave is wrong.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr unsigned char poison = 0xa5;

// Poisoned memory, which outlives the comm that it was used with if a case fails: peers may still read it then.
class Buffers {
 public:
  std::byte *take(uint64_t bytes);
  // Nobody has written behind it.
  void check_ends() const;
  void clear() { blocks_.clear(); }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::byte *data;
    uint64_t bytes;
  };
  std::vector<Block> blocks_;
};

// Memory of mxs_comm_allocate while this object lives.
class Shared {
 public:
  Shared(mxs_comm *comm, uint64_t bytes);
  Shared(const Shared &) = delete;
  ~Shared() { mxs_comm_free(comm_, memory_); }
  std::byte *data() const { return static_cast<std::byte *>(memory_); }

 private:
  mxs_comm *comm_;
  void *memory_ = nullptr;
};

struct Tally {
  uint64_t cases = 0, bytes = 0, worlds = 0, groups = 0, steps = 0, checkpoints = 0, shrinks = 0;
  std::map<std::string, uint64_t> kinds;
  std::string doing;  // for sentences of failure
};

struct Group {
  mxs_comm *comm = nullptr;
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  std::vector<int> origins;  // by rank of the group: its rank in the world
  uint64_t bytes_max = 0;
  std::string folder;  // for checkpoints; "": none
  Buffers *buffers = nullptr;
  Tally *tally = nullptr;
  bool plant_fault = false;

  int rank() const { return info.rank; }
  int rank_count() const { return info.rank_count; }
  bool maps_memory() const { return std::string(info.transports) == "shm"; }
};

// Thrown on all ranks of a group: a save in the background has failed on some, by its own comm. The group's is well.
struct SaveFailed {
  std::optional<mxs::error> here;  // on this rank
};

// A comm of this process alone: what is computed on it needs nobody else.
mxs::comm comm_of_one();

// One case, drawn from the key: the same on all ranks of the group. Throws Wrong, or mxs::error of the library.
void run_case(const Group &group, uint64_t key);

// Parts of it.
void run_collectives(const Group &group, uint64_t key);
void run_sums(const Group &group, uint64_t key);
void run_units(const Group &group, uint64_t key);

}  // namespace soak
