// SPDX-License-Identifier: Apache-2.0
// The object behind mxs_collective: a collective in messages, inside a domain, or both, of which memory decides at
// each start:
//
//   gather   target in memory of mxs_comm_allocate: by fan-out; a packed source is copied into the target first
//   reduce   source in such memory: co-operatively; the target must be in such memory as well
//   else     in messages
//
// Or one over CUDA memory, which device_collective.hpp carries.
//
// The buffer that decides is one that all ranks have, so that all decide alike when they pass the same kind of memory.
// A caller who promises such memory (MXS_MAPPED_MEMORY) is held to it on every comm, and where it decides, nothing is
// made for messages.
#pragma once

#include <cstdint>
#include <memory>

#include "collective/buffer_watch.hpp"
#include "collective/choice.hpp"
#include "collective/device_collective.hpp"
#include "collective/engine.hpp"
#include "collective/node_collective.hpp"
#include "layout/layout.hpp"
#include "matrixshard/collective.h"

namespace mxs {

class Comm;
struct SharedBuffer;

struct CollectiveOptions {
  MessageOptions messages;          // but `algorithm`, which is chosen
  const char *algorithm = nullptr;  // as the caller named it
  bool mapped_memory = false;       // promised
  bool on_device = false;           // MXS_CUDA
  bool own_memory = false;          // buffers are the library's, in host memory: no look at them, which may allocate
};

class Collective {
 public:
  Collective(Comm &comm, const CollectiveOptions &options);
  ~Collective();

  // Local: schedules, scratch.
  mxs_status build(const char *algorithm);
  // Collective: the rest of one in CUDA memory.
  mxs_status build_on_device();
  // Which of the comm's collectives it is, once all ranks have come to the same.
  void set_identity(uint64_t identity);
  // Of what must be equal on all ranks.
  uint64_t fingerprint() const;

  // stream: orders CUDA memory; nullptr with host memory.
  mxs_status start(const void *source, void *target, int priority, uint64_t *request, void *stream = nullptr);
  mxs_status wait(uint64_t timeout_ns, void *stream = nullptr);
  bool on_device() const { return on_device_; }
  mxs_collective_info describe() const;
  bool in_flight() const;
  const char *kind_name() const;
  Comm &comm() const { return comm_; }

 private:
  mxs_status check_buffers(const void *source, const void *target) const;
  mxs_status check_promise(const void *source, const void *target) const;
  mxs_status check_on_host(const void *source, const void *target);
  mxs_status start_on_device(const void *source, void *target, void *stream);
  void count(uint64_t bytes_out, uint64_t bytes_in) const;
  mxs_status prepare_node(const void *source, void *target, bool *by_node);
  mxs_status prepare_gather(const void *source, void *target, const SharedBuffer *target_buffer);
  mxs_status prepare_reduce(const void *source, const void *target, const SharedBuffer *source_buffer);
  void watch(const void *source, const void *target, bool by_node);
  mxs_status end_watch(const Operation &operation) const;
  uint64_t bytes_out(bool by_node) const;
  uint64_t bytes_in(bool by_node) const;
  std::string count_routes() const;
  uint64_t source_bytes() const;
  uint64_t target_bytes() const;
  mxs_collective_info describe_device() const;

  Comm &comm_;
  MessageOptions options_;
  bool mapped_memory_ = false, on_device_ = false, own_memory_ = false;
  const void *source_on_host_ = nullptr, *target_on_host_ = nullptr;  // known to be memory of the host
  Layout layout_, target_layout_;
  Choice choice_;
  std::string routes_, node_routes_;
  std::unique_ptr<MessageOperation> messages_;
  std::unique_ptr<NodeCollective> node_;
  std::unique_ptr<DeviceOperation> device_;  // then there is no other
  bool by_node_ = false;    // the latest start; before the first: what describe tells
  uint64_t sequence_ = 0;   // of the latest start
  uint64_t identity_ = 0;
  BufferWatch watch_;       // MXS_DEBUG_BUFFERS
};

// Takes part in the create of other ranks, so that they are told instead of waiting. Returns `own`.
mxs_status refuse_collective(Comm &comm, mxs_status own);

// Collective: builds on every rank, compares over all of them.
mxs_status create_collective(std::unique_ptr<Collective> *collective, Comm &comm, const CollectiveOptions &options);

}  // namespace mxs

// The public handle holds the object.
struct mxs_collective {
  std::unique_ptr<mxs::Collective> inner;
};
