// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/store_wire.hpp"

#include <cstring>

#include "base/status.hpp"

namespace mxs {

void Peer::seal(const Code &key, bool is_host) {
  key_ = key;
  sealed_ = true;
  is_host_ = is_host;
  sent_count_ = read_count_ = 0;
}

Code Peer::code_of_frame(const SealedFrame &frame, bool to_host, uint64_t count) const {
  const uint64_t place[2] = {to_host ? 1u : 2u, count};
  return code_of(key_.data(), key_.size(),
                 {{place, sizeof place}, {&frame.frame, sizeof frame.frame}, {frame.hash.data(), frame.hash.size()}});
}

bool Peer::send(FrameKind kind, mxs_status status, uint64_t sequence, const void *data, size_t bytes,
                uint64_t deadline_ns) {
  if (broken_) return false;
  SealedFrame head = {{kind, status, sequence, bytes}, {}, {}};
  if (sealed_) {
    head.hash = hash_of(data, bytes);
    head.code = code_of_frame(head, !is_host_, sent_count_);
  }
  const size_t head_bytes = sealed_ ? sizeof head : sizeof head.frame;
  size_t sent = 0;
  if (!send_all(socket_, &head, head_bytes, deadline_ns, &sent)) {
    broken_ = sent > 0;
    return false;
  }
  ++sent_count_;
  broken_ = !send_all(socket_, data, bytes, deadline_ns);
  return !broken_;
}

// Looks at a head once, and before anything is believed that it says.
Peer::Reading Peer::open_head(const Frame &frame, size_t bytes_max) {
  if (frame.kind < FrameKind::accepted || frame.kind > frame_kind_last) return Reading::garbage;
  if (sealed_ && !head_is_good_) {
    SealedFrame head;
    std::memcpy(&head, input_.data(), sizeof head);
    if (!equal_codes(head.code, code_of_frame(head, is_host_, read_count_))) return Reading::forged;
  }
  head_is_good_ = true;
  return frame.bytes > bytes_max ? Reading::garbage : Reading::frame;
}

Peer::Reading Peer::read(Frame *frame, std::vector<std::byte> *payload, size_t bytes_max) {
  const size_t head_bytes = sealed_ ? sizeof(SealedFrame) : sizeof(Frame);
  for (;;) {
    if (input_.size() >= head_bytes) {
      std::memcpy(frame, input_.data(), sizeof *frame);
      const Reading head = open_head(*frame, bytes_max);
      if (head != Reading::frame) return head;
      if (input_.size() >= head_bytes + frame->bytes) {
        const auto begin = input_.begin() + static_cast<ptrdiff_t>(head_bytes);
        const auto end = begin + static_cast<ptrdiff_t>(frame->bytes);
        payload->assign(begin, end);
        Code hash{};
        std::memcpy(hash.data(), input_.data() + sizeof(Frame), sealed_ ? sizeof hash : 0);
        if (sealed_ && !equal_codes(hash, hash_of(payload->data(), payload->size()))) return Reading::forged;
        input_.erase(input_.begin(), end);
        head_is_good_ = false;
        ++read_count_;
        return Reading::frame;
      }
    }
    const size_t had = input_.size();
    input_.resize(had + (size_t{64} << 10));
    const ptrdiff_t count = receive_some(socket_, input_.data() + had, input_.size() - had);
    input_.resize(had + static_cast<size_t>(count > 0 ? count : 0));
    if (count == 0) return Reading::nothing;
    if (count < 0) return Reading::closed;
  }
}

mxs_status set_reading_error(Peer::Reading reading, int rank) {
  if (reading == Peer::Reading::forged)
    return set_error(MXS_TRANSPORT_FAILED, "a bootstrap message of rank %d was changed on its way, or is somebody "
                     "else's: its code doesn't fit the job's secret", rank);
  return set_error(MXS_TRANSPORT_FAILED, "rank %d sent what is no bootstrap message", rank);
}

}  // namespace mxs
