// SPDX-License-Identifier: Apache-2.0
// Network: one micro-batch through the model, forward and backward, unit by unit.
#pragma once

#include <memory>

#include "matmul.hpp"
#include "model.hpp"
#include "placement.hpp"
#include "text.hpp"

namespace train {

class Network {
 public:
  // `comm` may be nullptr: then no phases are told to it.
  Network(const Model &model, mxs_comm *comm, int thread_count);
  ~Network();

  // Another comm from here on.
  void use(mxs_comm *comm);

  // The mean loss of the batch. Every gradient of the placement is written, and reduced.
  double train(const Batch &batch, Placement *placement);

  // Bytes of activations and scratch so far, equal in all placements; beside what a placement counts.
  uint64_t activation_bytes() const;
  // fp32 where this CPU's oneDNN has no products of the operands' type.
  mxs_dtype product_dtype() const;

 private:
  struct Inner;
  std::unique_ptr<Inner> inner_;
};

}  // namespace train
