// SPDX-License-Identifier: Apache-2.0
// Ledger: the memory of a placement, and what it is for. Every byte that a placement takes goes through it, so that
// the table's columns are counts and not estimates.
#pragma once

#include <cstdint>
#include <vector>

#include "matrixshard/matrixshard.h"

namespace train {

enum class Use { weights, masters, gradients, state, slots, gradient_slots, workspace };

class Ledger {
 public:
  explicit Ledger(mxs_comm *comm) : comm_(comm) {}
  ~Ledger();
  Ledger(const Ledger &) = delete;
  Ledger &operator=(const Ledger &) = delete;

  // Zeroed pages of this rank's own.
  void *take(Use use, uint64_t bytes);
  // Pages that peers reach. All ranks pass the same `bytes`; this rank needs `used` of them, the rest is slack.
  void *take_shared(Use use, uint64_t bytes, uint64_t used);
  // Bytes that somebody else took for us, such as an orthogonalizer's workspace.
  void note(Use use, uint64_t bytes);

  mxs_memory counted() const;

 private:
  mxs_comm *comm_;
  mxs_memory memory_ = MXS_MEMORY_INIT;
  std::vector<void *> own_, shared_;
};

// Adds to one column; fills in `rest` and `peak` from the others.
void add_bytes(mxs_memory *memory, Use use, uint64_t bytes);
void add_up(mxs_memory *memory);
// What take adds beyond the bytes asked for.
uint64_t page_slack(uint64_t bytes);

}  // namespace train
