// SPDX-License-Identifier: Apache-2.0
// A comm's part in CUDA memory while it lives: memory, scratch, the flag, what happens after a failure. And flights:
// how the queue learns that a start is over.
#include "collective/device_state.hpp"

#include <algorithm>
#include <cinttypes>
#include <new>

#include "base/clock.hpp"
#include "base/dtype.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"

namespace mxs {

// ---- the end ----

DeviceState::~DeviceState() {
  if (comm_.failed()) abort();
  whole_.reset();
  node_.reset();
  for (std::unique_ptr<Comm> *wire : {&wire_, &rail_}) {
    if (*wire) comm_.untie_from(**wire);
    wire->reset();  // before the memory that its peers may still read
  }
  if (device_) device_->destroy_stream(stream_);
}

// Whoever enqueues a wait meanwhile looks at aborted_ afterwards.
void DeviceState::abort() {
  aborted_.store(true, std::memory_order_seq_cst);
  release_flag(issued_.load(std::memory_order_seq_cst));
  if (whole_) whole_->abort();
  if (node_) node_->abort();
}

mxs_status DeviceState::check_groups() const {
  for (DeviceGroup *const group : {whole_.get(), node_.get()})
    if (group)
      if (const mxs_status status = group->check(); status != MXS_OK) return status;
  return MXS_OK;
}

// ---- memory ----

// Behind starts that are in flight the stream may wait for messages, which nobody would carry while this waits for it.
mxs_status DeviceState::allocate(uint64_t bytes, void **memory) {
  DeviceMemory made;
  mxs_status status = settle();
  if (status == MXS_OK) status = device_->allocate(bytes, &made);
  if (status == MXS_OK) status = device_->zero(made.data(), bytes, stream_);
  if (status == MXS_OK) status = device_->synchronize(stream_);
  if (status != MXS_OK) return status;
  *memory = made.data();
  buffers_.push_back(std::move(made));
  return MXS_OK;
}

bool DeviceState::owns(const void *memory) const {
  return std::any_of(buffers_.begin(), buffers_.end(),
                     [&](const DeviceMemory &buffer) { return buffer.data() == memory; });
}

void DeviceState::free(void *memory) {
  std::erase_if(buffers_, [&](const DeviceMemory &buffer) { return buffer.data() == memory; });
}

// The old memory goes only when nothing uses it any more: giving it back would wait for the device, which may wait for
// messages that this thread carries.
mxs_status DeviceState::want_scratch(uint64_t bytes) {
  if (bytes <= scratch_.bytes()) return MXS_OK;
  mxs_status status = settle();
  if (status != MXS_OK) return status;
  DeviceMemory larger;
  status = device_->allocate(bytes, &larger);
  if (status == MXS_OK) scratch_ = std::move(larger);
  return status;
}

mxs_status DeviceState::want_pinned(uint64_t bytes) {
  if (bytes <= pinned_.bytes()) return MXS_OK;
  mxs_status status = settle();
  if (status != MXS_OK) return status;
  PinnedMemory larger;
  status = device_->allocate_pinned(bytes, &larger);
  if (status == MXS_OK) pinned_ = std::move(larger);
  return status;
}

// ---- the flag ----

mxs_status DeviceState::wait_for_flag(uint32_t number) {
  const mxs_status status = device_->wait_value(stream_, reinterpret_cast<const uint32_t *>(flag_), number);
  if (aborted_.load(std::memory_order_seq_cst)) release_flag(number);
  return status;
}

// It never goes back, whoever comes last: an abort has given more free than an operation that ends just then.
void DeviceState::release_flag(uint32_t number) {
  if (!flag_) return;
  uint32_t now = flag_->load(std::memory_order_relaxed);
  while (static_cast<int32_t>(number - now) > 0 &&
         !flag_->compare_exchange_weak(now, number, std::memory_order_seq_cst, std::memory_order_relaxed)) {
  }
}

// ---- starts ----

mxs_status DeviceState::take_flight(DeviceFlight **flight) {
  DeviceFlight &next = flights_[launched_ % flights_.size()];
  for (;;) {
    const uint64_t in_the_way = next.in_flight() ? next.sequence() : comm_.queue.in_the_way();
    if (in_the_way == 0) break;
    const mxs_status status = comm_.wait(in_the_way, 0, comm_.queue.describe(in_the_way).kind);
    if (status != MXS_OK) return status;
    // A pass counts what it completed at its end.
    if (const mxs_status moved = comm_.progress(); moved != MXS_OK) return moved;
  }
  *flight = &next;
  return MXS_OK;
}

mxs_status DeviceState::settle() {
  if (launched_ == 0) return MXS_OK;
  const DeviceFlight &last = flights_[(launched_ - 1) % flights_.size()];
  return last.in_flight() ? comm_.wait(last.sequence(), 0, last.kind()) : comm_.check();
}

void DeviceState::forget(const DeviceCollective &collective) {
  for (DeviceFlight &flight : flights_) flight.forget(collective);
}

// ---- flights ----

DeviceFlight::~DeviceFlight() {
  if (!state_) return;
  state_->device().destroy_event(ready_);
  state_->device().destroy_event(done_);
}

mxs_status DeviceFlight::make(DeviceState &state) {
  state_ = &state;
  const mxs_status status = state.device().create_event(&ready_);
  return status == MXS_OK ? state.device().create_event(&done_) : status;
}

void DeviceFlight::prepare(DeviceCollective &collective, uint64_t number) {
  collective_ = &collective;
  kind_ = collective.kind();
  signature_ = collective.signature();
  name_ = collective.name();
  set_label(collective.label());
  number_ = number;
  running_since_ns_ = 0;
  over_ = false;
  all_entered_ = true;
  entry_.reset();
  if (Domain *const local = state_->comm().local.get()) {
    entry_.emplace(*local, name_, signature_);
    all_entered_ = false;
  }
}

void DeviceFlight::forget(const DeviceCollective &collective) {
  if (collective_ == &collective) collective_ = nullptr;
}

mxs_status DeviceFlight::begin(uint64_t sequence) {
  if (entry_) entry_->enter(sequence, 0, 0);
  return MXS_OK;
}

// Starts are over in their order, which is the stream's. A peer that started something else is found before anything of
// it is taken for good.
mxs_status DeviceFlight::advance(Turn *turn) {
  mxs_status status = all_entered_ ? MXS_OK : entry_->all_entered(&all_entered_);
  if (status == MXS_OK && state_->is_front(number_) && !over_) status = look(turn);
  if (status != MXS_OK || !over_ || !all_entered_) return status;
  if (entry_) entry_->note_idle();
  state_->complete_front();
  turn->complete = turn->moved = true;
  return MXS_OK;
}

// The deadline is counted from when the caller's stream and the starts before it left the device to this one.
mxs_status DeviceFlight::look(Turn *turn) {
  mxs_status status = state_->check_groups();
  if (status == MXS_OK && running_since_ns_ == 0) {
    status = state_->device().query(ready_);
    if (status == MXS_IN_PROGRESS) return MXS_OK;
    running_since_ns_ = now_ns();
  }
  if (status == MXS_OK && collective_) status = collective_->carry(&turn->moved);
  if (status == MXS_OK) status = state_->device().query(done_);
  if (status == MXS_OK) over_ = true;
  if (status != MXS_IN_PROGRESS) return status;
  const uint64_t timeout_ns = state_->comm().timeout_ns;
  if (now_ns() - running_since_ns_ < timeout_ns) return MXS_OK;
  return set_error(MXS_TIMED_OUT, "%s in CUDA memory (operation %" PRIu64 "): not over on rank %d's device %.3g s "
                   "after it could begin%s", name_, sequence(), state_->comm().rank,
                   static_cast<double>(timeout_ns) * 1e-9,
                   all_entered_ ? "" : "; not all ranks of the node have started it");
}

int DeviceFlight::waits_for() const {
  if (entry_ && !all_entered_) return entry_->waits_for();
  return collective_ ? collective_->waits_for() : -1;
}

// ---- collectives ----

namespace {

uint64_t signature_of(const DeviceCollectiveOptions &options, DeviceRoute route) {
  Fingerprint hash;
  hash.add("device collective").add(static_cast<uint64_t>(route)).add(static_cast<uint64_t>(options.kind));
  hash.add(options.layout->hash()).add(options.target_layout ? options.target_layout->hash() : 0);
  hash.add(static_cast<uint64_t>(options.kind == MXS_REDUCE ? options.dtype : 0));
  return hash.add(options.rank_order).add(options.accumulate).add(options.identity).value();
}

}  // namespace

DeviceCollective::DeviceCollective(DeviceState &state, const DeviceCollectiveOptions &options)
    : state_(state), kind_(options.kind), dtype_(options.kind == MXS_REDUCE ? options.dtype : MXS_U8),
      element_bytes_(dtype_bytes(dtype_)), rank_order_(options.rank_order), accumulate_(options.accumulate),
      identity_(options.identity), layout_(*options.layout), unit_(options.unit),
      signature_(signature_of(options, state.route())) {
  if (options.target_layout) target_layout_ = *options.target_layout;
}

DeviceCollective::~DeviceCollective() { state_.forget(*this); }

const char *DeviceCollective::name() const {
  switch (kind_) {
    case MXS_GATHER: return "gather";
    case MXS_REDUCE: return "reduce";
    case MXS_AGREE: return "agreement of a step";
    default: return "reshard";
  }
}

mxs_status DeviceCollective::start(const void *source, void *target, DeviceStream stream, uint64_t *sequence) {
  Comm &comm = state_.comm();
  bool capturing = false;
  mxs_status status = comm.check();
  if (status == MXS_OK) status = state_.device().is_capturing(stream, &capturing);
  if (status == MXS_OK && capturing)
    return set_error(MXS_NOT_BUILT, "rank %d: the stream of a %s is being captured into a graph; collectives are in no "
                     "graph yet: end the capture before it", comm.rank, name());
  if (status == MXS_OK && !overlaps())
    status = state_.blocks() ? state_.settle() : in_flight() ? comm.wait(sequence_, 0, kind_) : MXS_OK;
  DeviceFlight *flight = nullptr;
  if (status == MXS_OK) status = state_.take_flight(&flight);
  if (status != MXS_OK) return status;
  // From here on other ranks count on this one.
  status = launch(flight, source, target, stream);
  if (status == MXS_OK) status = comm.queue.enqueue(flight, &sequence_);
  if (status != MXS_OK) return comm.fail(status);
  latest_ = flight;
  *sequence = sequence_;
  comm.set_off();
  return MXS_OK;
}

mxs_status DeviceCollective::launch(DeviceFlight *flight, const void *source, void *target, DeviceStream stream) {
  Device &device = state_.device();
  flight->prepare(*this, state_.next_number());
  mxs_status status = device.record(flight->ready(), stream);
  if (status == MXS_OK) status = device.wait(state_.stream(), flight->ready());
  if (status != MXS_OK) return status;
  device.push_range(name());
  status = enqueue(static_cast<const std::byte *>(source), static_cast<std::byte *>(target));
  device.pop_range();
  return status == MXS_OK ? device.record(flight->done(), state_.stream()) : status;
}

// A flight that has gone to another start was complete before.
mxs_status DeviceCollective::wait_stream(DeviceStream stream) {
  mxs_status status = state_.comm().check();
  if (status != MXS_OK || !in_flight()) return status;
  bool capturing = false;
  status = state_.device().is_capturing(stream, &capturing);
  if (status == MXS_OK && capturing)
    return set_error(MXS_NOT_BUILT, "rank %d: the stream that is to wait for a %s is being captured into a graph; wait "
                     "before the capture", state_.comm().rank, name());
  return status == MXS_OK ? state_.device().wait(stream, latest_->done()) : status;
}

std::vector<DeviceRun> runs_of(const Layout &layout) {
  std::vector<DeviceRun> runs;
  std::vector<uint64_t> packed(static_cast<size_t>(layout.rank_count), 0);
  for (const Segment &segment : layout.segments) {
    if (segment.bytes == 0) continue;
    uint64_t &place = packed[static_cast<size_t>(segment.owner)];
    const bool touches = !runs.empty() && runs.back().owner == segment.owner &&
                         runs.back().offset + runs.back().bytes == segment.offset;
    if (touches) runs.back().bytes += segment.bytes;
    else runs.push_back({segment.owner, segment.offset, place, segment.bytes});
    place += segment.bytes;
  }
  return runs;
}

}  // namespace mxs
