// SPDX-License-Identifier: Apache-2.0
#include "soak/group.hpp"

#include <cstring>

#include "soak/drawn.hpp"

namespace soak {

namespace {

constexpr uint64_t margin = 64;

int gather_of_one(void *, const void *source, void *target, size_t bytes, void **request) {
  std::memcpy(target, source, bytes);
  *request = nullptr;
  return 0;
}

int is_there(void *, void *) { return 0; }

}  // namespace

std::byte *Buffers::take(uint64_t bytes) {
  Block block;
  block.bytes = bytes;
  block.memory.reset(new std::byte[bytes + 2 * margin]);
  std::memset(block.memory.get(), poison, bytes + 2 * margin);
  const auto address = reinterpret_cast<uintptr_t>(block.memory.get());
  block.data = block.memory.get() + (margin - address % margin) % margin;
  blocks_.push_back(std::move(block));
  return blocks_.back().data;
}

void Buffers::check_ends() const {
  for (const Block &block : blocks_)
    for (const std::byte *end = block.data + block.bytes; end < block.memory.get() + block.bytes + 2 * margin; end++)
      if (*end != std::byte{poison}) throw Wrong("memory is written behind a buffer of " + std::to_string(block.bytes));
}

Shared::Shared(mxs_comm *comm, uint64_t bytes) : comm_(comm) {
  mxs::check(mxs_comm_allocate(comm, bytes, MXS_HOST, &memory_));
}

mxs::comm comm_of_one() {
  mxs_bootstrap bootstrap = MXS_BOOTSTRAP_INIT;
  bootstrap.rank_count = 1;
  bootstrap.all_gather = gather_of_one;
  bootstrap.test = is_there;
  bootstrap.free_request = is_there;
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.bootstrap = &bootstrap;
  options.thread_count = 1;
  options.progress = MXS_PROGRESS_MANUAL;
  return mxs::make_comm(&options);
}

void run_case(const Group &group, uint64_t key) {
  Choices choices(mix(key, 1));
  const int64_t kind = choices.between(0, 9);
  if (kind < 6) run_collectives(group, key);
  else if (kind < 7) run_sums(group, key);
  else run_units(group, key);
  group.buffers->check_ends();
  group.buffers->clear();
  group.tally->cases++;
}

void run_sums(const Group &group, uint64_t key) {
  Choices choices(mix(key, 2));
  const auto count = static_cast<uint64_t>(choices.between(1, 64));
  group.tally->doing = "sums of " + std::to_string(count) + " numbers";
  std::vector<double> values(count), sums(count, 0.0);
  std::vector<int64_t> words(count), word_sums(count, 0);
  for (uint64_t i = 0; i < count; i++)
    for (int rank = 0; rank < group.rank_count(); rank++) {
      const uint64_t random = mix(key + static_cast<uint64_t>(rank), i);
      const double value = static_cast<double>(static_cast<int64_t>(random)) / static_cast<double>(1 + random % 1000);
      sums[i] += value;
      word_sums[i] = static_cast<int64_t>(static_cast<uint64_t>(word_sums[i]) + random);
      if (rank == group.rank()) values[i] = value, words[i] = static_cast<int64_t>(random);
    }
  mxs::check(mxs_comm_sum(group.comm, values.data(), count, nullptr));
  if (std::memcmp(values.data(), sums.data(), count * sizeof(double)) != 0) throw Wrong("mxs_comm_sum differs");
  mxs::check(mxs_comm_sum_words(group.comm, words.data(), count, nullptr));
  if (words != word_sums) throw Wrong("mxs_comm_sum_words differs");
  mxs::check(mxs_comm_barrier(group.comm, nullptr));
  group.tally->bytes += count * (sizeof(double) + sizeof(int64_t));
  group.tally->kinds["sums"]++;
}

}  // namespace soak
