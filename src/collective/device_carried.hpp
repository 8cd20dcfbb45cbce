// SPDX-License-Identifier: Apache-2.0
// CarriedCollective: one whose bytes go in messages, by way of pinned host memory, in parts that follow each other
// through a few slots of it:
//
//   the stream   fetch 0 | fetch 1 | fetch 2 | flag 0 . deliver 0 | fetch 3 | flag 1 . deliver 1 | ...
//   the host            messages 0 . . . . . . | messages 1 . . . . . | ...
//
// fetch brings a part's bytes into its slot; then the host sends and receives them there over a comm of its own (the
// wire), where every part is an operation; then it gives the flag free, and deliver takes them away. All of it is put
// on the stream at the start. Only the oldest start on a comm is carried, so all of them share the slots.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/device_state.hpp"
#include "collective/engine.hpp"

namespace mxs {

class CarriedCollective : public DeviceCollective {
 public:
  CarriedCollective(DeviceState &state, const DeviceCollectiveOptions &options, Comm &wire)
      : DeviceCollective(state, options), wire_(wire) {}
  ~CarriedCollective() override;

  const char *algorithm() const override { return algorithm_; }
  const char *routes() const override { return routes_.c_str(); }
  uint64_t bytes_out() const override { return bytes_out_; }
  uint64_t bytes_in() const override { return bytes_in_; }
  uint64_t message_count() const override { return message_count_; }
  uint64_t scratch_bytes() const override { return scratch_bytes_; }

  mxs_status carry(bool *moved) override;
  int waits_for() const override;

  // Local: messages, slots, scratch memory.
  virtual mxs_status make() = 0;

 protected:
  static constexpr size_t slots = 3;

  // Between the device and a part's slot.
  struct Copy {
    uint64_t device = 0, slot = 0, bytes = 0;
  };
  struct Part {
    std::unique_ptr<MessageOperation> messages;
    uint64_t result = 0;  // of messages: where their target lies in the slot
    bool in_place = false;  // a gather: the target is the slot itself
    DeviceEvent fetched = nullptr;
    uint32_t flag = 0;
    uint64_t sequence = 0;
  };

  // Of the start that is being enqueued.
  const std::byte *source_ = nullptr;
  std::byte *target_ = nullptr;

  // What comes before all parts; what brings a part into its slot, or takes it away.
  virtual mxs_status prelude() = 0;
  virtual mxs_status fetch(size_t part, std::byte *slot) = 0;
  virtual mxs_status deliver(size_t part, const std::byte *slot) = 0;

  mxs_status enqueue(const std::byte *source, std::byte *target) override;
  bool overlaps() const override { return false; }

  // A part's messages; the algorithm is chosen for its layout.
  mxs_status add_part(const MessageOptions &options, uint64_t slot_bytes, uint64_t result, const char *how);
  mxs_status take_slots();
  mxs_status take_scratch(uint64_t bytes) {
    scratch_bytes_ = bytes;
    return state_.want_scratch(bytes);
  }
  mxs_status copy_in(const std::vector<Copy> &copies, std::byte *slot, const std::byte *device);
  mxs_status copy_out(const std::vector<Copy> &copies, const std::byte *slot, std::byte *device);

  Comm &wire_;
  std::vector<Part> parts_;
  std::string routes_;
  const char *algorithm_ = "staged";
  uint64_t bytes_out_ = 0, bytes_in_ = 0, message_count_ = 0, scratch_bytes_ = 0;

 private:
  std::byte *slot_of(size_t part) const { return state_.pinned() + part % slots * slot_bytes_; }
  mxs_status put_fetch(size_t part);
  mxs_status await(size_t part);
  mxs_status carry_once(bool *moved);

  uint64_t slot_bytes_ = 0;
  size_t put_ = 0, begun_ = 0, arrived_ = 0;  // parts of the start in flight: fetched on the stream, sent, here
};

// "ucx 6": to whom messages of a comm go, by transport; "none".
std::string peers_by_transport(const Comm &comm);

mxs_status make_staged_collective(std::unique_ptr<DeviceOperation> *operation, DeviceState &state,
                                  const DeviceCollectiveOptions &options);
mxs_status make_levels_collective(std::unique_ptr<DeviceOperation> *operation, DeviceState &state,
                                  const DeviceCollectiveOptions &options);

}  // namespace mxs
