// SPDX-License-Identifier: Apache-2.0
// How many bytes has a placement taken, and for what?
#include "ledger.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

#include "check.hpp"

namespace train {
namespace {

constexpr uint64_t page_bytes = 4096;

uint64_t round_to_pages(uint64_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

}  // namespace

uint64_t page_slack(uint64_t bytes) { return round_to_pages(bytes) - bytes; }

void add_bytes(mxs_memory *memory, Use use, uint64_t bytes) {
  switch (use) {
    case Use::weights: memory->weights += bytes; break;
    case Use::masters: memory->masters += bytes; break;
    case Use::gradients: memory->gradients += bytes; break;
    case Use::state: memory->state += bytes; break;
    case Use::slots: memory->slots += bytes; break;
    case Use::gradient_slots: memory->gradient_slots += bytes; break;
    case Use::workspace: memory->workspace += bytes; break;
  }
}

void add_up(mxs_memory *memory) {
  memory->rest = memory->weights + memory->masters + memory->gradients + memory->state + memory->slack;
  memory->peak = memory->rest + memory->slots + memory->gradient_slots + memory->workspace;
}

Ledger::~Ledger() {
  for (void *memory : own_) std::free(memory);
  for (void *memory : shared_) mxs_comm_free(comm_, memory);
}

void *Ledger::take(Use use, uint64_t bytes) {
  const uint64_t whole = round_to_pages(bytes);
  if (whole == 0) return nullptr;
  void *memory = std::aligned_alloc(page_bytes, whole);
  if (memory == nullptr) throw std::bad_alloc();
  own_.push_back(memory);
  std::memset(memory, 0, whole);
  add_bytes(&memory_, use, bytes);
  memory_.slack += whole - bytes;
  return memory;
}

void *Ledger::take_shared(Use use, uint64_t bytes, uint64_t used) {
  const uint64_t whole = round_to_pages(bytes);
  if (whole == 0) return nullptr;
  void *memory = nullptr;
  check(mxs_comm_allocate(comm_, whole, MXS_HOST, &memory), "mxs_comm_allocate");
  shared_.push_back(memory);
  add_bytes(&memory_, use, used);
  memory_.slack += whole - used;
  return memory;
}

void Ledger::note(Use use, uint64_t bytes) { add_bytes(&memory_, use, bytes); }

mxs_memory Ledger::counted() const {
  mxs_memory memory = memory_;
  add_up(&memory);
  return memory;
}

}  // namespace train
