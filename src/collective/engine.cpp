// SPDX-License-Identifier: Apache-2.0
// The engine: one schedule, its channels, and rounds in each of which whatever can be done is done.
//
//   channel out   sends in key order: posted while the window has room and what they read is there
//   channel in    receives in key order: posted ahead by a window; a message is taken when what it writes is free
//
// A message of one range is sent from where it lies; one of several is packed into its channel's staging memory first.
// It is copied or added, range by range, straight from where the transport shows it (the sender's memory on loopback
// and shm, a landing on a network) and retired at once, so nothing is held between two calls. Nothing is allocated
// after create.
//
// Ranks that call different things are found by the tags of messages that arrive where others are due. Inside a domain
// every rank also says there what it is in, so that it is found without a message, and if some use no messages at all.
#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/environment.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "collective/engine.hpp"
#include "collective/message_tag.hpp"
#include "collective/node_operation.hpp"
#include "collective/situation.hpp"
#include "kernels/kernels.hpp"
#include "matrixshard/collective.h"

namespace mxs {

namespace {

// Memory that exists: every page has been touched.
struct Scratch {
  std::byte *data = nullptr;
  uint64_t bytes = 0;

  Scratch() = default;
  Scratch(const Scratch &) = delete;
  ~Scratch() { std::free(data); }
  void take(uint64_t wanted) {
    if (wanted == 0) return;
    bytes = align_up(wanted, 4096);
    data = static_cast<std::byte *>(std::aligned_alloc(4096, bytes));
    if (!data) throw std::bad_alloc();
    std::memset(data, 0, bytes);
  }
};

struct Channel {
  int peer = -1;
  Route route;
  std::vector<uint32_t> moves;
  size_t posted = 0, done = 0;
  uint64_t sent_before = 0;      // out: sends that the link had completed when the operation began
  // One per message of the window, or nullptr. In: where messages land. Out: where those of several ranges are packed.
  std::byte *staging = nullptr;
  uint64_t staging_bytes = 0;

  std::byte *staging_of(size_t message, size_t window) const { return staging + message % window * staging_bytes; }
};

class Engine final : public MessageOperation {
 public:
  Engine(Comm &comm, const MessageOptions &options, Schedule schedule, uint64_t signature);

  void prepare(const void *source, void *target) override {
    source_ = static_cast<const std::byte *>(source);
    target_ = static_cast<std::byte *>(target);
  }
  const Schedule &schedule() const override { return schedule_; }
  uint64_t scratch_bytes() const override { return scratch_.bytes; }
  uint64_t chunk_bytes() const override { return schedule_.options.chunk_bytes; }

  mxs_status begin(uint64_t sequence) override;
  mxs_status advance(Turn *turn) override;
  bool uses_messages() const override { return true; }
  bool has_more_to_send() const override { return sends_left_ > 0; }
  int kind() const override { return kind_; }
  uint64_t signature() const override { return signature_ ^ identity_; }
  void set_identity(uint64_t identity) override {
    identity_ = identity;
    if (entry_) entry_->set_variant(identity);
  }
  int waits_for() const override;
  int sends_to() const override;
  const char *name() const override { return collective_name(kind_); }

 private:
  void make_channels();
  void take_scratch();
  bool ready(const Move &move) const;
  mxs_status post_sends(Channel *channel, Turn *turn);
  mxs_status post_receives(Channel *channel);
  mxs_status take_arrival(Channel *channel, bool *moved);
  mxs_status complain(const Channel &channel, const Arrival &arrival, uint64_t expected_bytes) const;
  void run_locals();

  const std::byte *message_of(const Move &move, std::byte *staging) const;
  const std::byte *sent_place_of(const Range &range) const;
  std::byte *place_of(const Range &range) const;
  bool lands_in_place(const Move &move) const;
  void take_in(const Move &move, const void *message) const;
  void copy_in(const Range &range, const void *message) const;
  void add_in(const Range &range, bool sums, const void *message) const;
  const void *own_gradient(const Range &range) const { return source_ + range.offset; }

  Comm &comm_;
  const int kind_;
  const mxs_dtype dtype_;
  const size_t window_;
  const uint64_t signature_;
  uint64_t identity_ = 0;
  const Kernels &kernels_;
  const Schedule schedule_;
  const uint64_t element_bytes_;
  std::vector<Channel> out_, in_;
  std::vector<uint32_t> locals_;
  std::vector<uint8_t> done_;  // by move
  Scratch scratch_;            // slots, then staging
  std::unique_ptr<NodeOperation> entry_;  // if all ranks share a domain

  // Of the start in flight.
  const std::byte *source_ = nullptr;
  std::byte *target_ = nullptr;
  uint64_t sequence_ = 0;
  uint64_t tag_ = 0;
  size_t sends_left_ = 0;  // not posted yet
  bool locals_done_ = false;
  bool all_entered_ = false;
};

Engine::Engine(Comm &comm, const MessageOptions &options, Schedule schedule, uint64_t signature)
    : comm_(comm), kind_(options.kind), dtype_(options.dtype), window_(static_cast<size_t>(options.window)),
      signature_(signature), kernels_(kernels()), schedule_(std::move(schedule)),
      element_bytes_(schedule_.options.element_bytes) {
  make_channels();
  done_.resize(schedule_.moves.size());
  take_scratch();
  if (comm.domain) entry_ = std::make_unique<NodeOperation>(*comm.domain, collective_name(kind_), signature);
}

void Engine::make_channels() {
  std::map<int, Channel> out, in;
  for (uint32_t index = 0; index < schedule_.moves.size(); ++index) {
    const Move &move = schedule_.moves[index];
    if (move.kind == MoveKind::local) {
      locals_.push_back(index);
      continue;
    }
    Channel &channel = (move.kind == MoveKind::send ? out : in)[move.peer];
    channel.peer = move.peer;
    channel.route = comm_.routes[static_cast<size_t>(move.peer)];
    channel.moves.push_back(index);
    const bool staged = move.kind == MoveKind::send
                            ? move.range_count > 1
                            : channel.route.transport->needs_landing && !lands_in_place(move);
    if (staged) channel.staging_bytes = std::max(channel.staging_bytes, align_up(schedule_.message_bytes(move), 64));
  }
  // Begins with the next rank, so that not all ranks turn to the same peer first.
  const auto add = [&](std::map<int, Channel> &from, std::vector<Channel> *to) {
    for (int step = 1; step < comm_.rank_count; ++step) {
      const auto found = from.find((comm_.rank + step) % comm_.rank_count);
      if (found != from.end()) to->push_back(std::move(found->second));
    }
  };
  add(out, &out_);
  add(in, &in_);
}

void Engine::take_scratch() {
  const uint64_t slots = static_cast<uint64_t>(schedule_.slot_count) * schedule_.slot_bytes;
  uint64_t bytes = slots;
  for (const std::vector<Channel> *channels : {&out_, &in_})
    for (const Channel &channel : *channels) bytes += channel.staging_bytes * window_;
  scratch_.take(bytes);
  uint64_t offset = slots;
  for (std::vector<Channel> *channels : {&out_, &in_})
    for (Channel &channel : *channels) {
      if (channel.staging_bytes == 0) continue;
      channel.staging = scratch_.data + offset;
      offset += channel.staging_bytes * window_;
    }
}

mxs_status Engine::begin(uint64_t sequence) {
  sequence_ = sequence;
  tag_ = MessageTag::first(kind_, sequence, signature());
  std::fill(done_.begin(), done_.end(), uint8_t{0});
  locals_done_ = false;
  for (std::vector<Channel> *channels : {&out_, &in_})
    for (Channel &channel : *channels) channel.posted = channel.done = 0;
  sends_left_ = 0;
  for (Channel &channel : out_) {
    channel.sent_before = channel.route.transport->sent(channel.route.link, channel.peer, lane());
    sends_left_ += channel.moves.size();
  }
  all_entered_ = !entry_;
  if (entry_) entry_->enter(sequence, 0, 0);
  return MXS_OK;
}

bool Engine::ready(const Move &move) const {
  for (uint32_t d = 0; d < move.dependency_count; ++d)
    if (!done_[schedule_.dependencies[move.first_dependency + d]]) return false;
  return true;
}

mxs_status Engine::advance(Turn *turn) {
  mxs_status status = MXS_OK;
  for (Channel &channel : in_)
    if ((status = post_receives(&channel)) != MXS_OK) return status;
  for (Channel &channel : out_)
    if ((status = post_sends(&channel, turn)) != MXS_OK) return status;
  if (!locals_done_) {
    run_locals();
    turn->moved = true;  // sends may wait for them
  }
  for (Channel &channel : in_)
    if ((status = take_arrival(&channel, &turn->moved)) != MXS_OK) return status;
  const auto finished = [](const Channel &channel) { return channel.done == channel.moves.size(); };
  turn->complete = std::all_of(out_.begin(), out_.end(), finished) && std::all_of(in_.begin(), in_.end(), finished);
  return turn->complete || all_entered_ ? MXS_OK : entry_->all_entered(&all_entered_);
}

mxs_status Engine::post_sends(Channel *channel, Turn *turn) {
  const Transport &transport = *channel->route.transport;
  const uint64_t sent = transport.sent(channel->route.link, channel->peer, lane()) - channel->sent_before;
  for (; channel->done < std::min<uint64_t>(sent, channel->posted); ++channel->done) {
    done_[channel->moves[channel->done]] = 1;
    turn->moved = true;
  }
  const size_t window = turn->yields ? 1 : window_;
  while (channel->posted < channel->moves.size() && channel->posted - channel->done < window) {
    const Move &move = schedule_.moves[channel->moves[channel->posted]];
    if (!ready(move)) break;
    const mxs_status status =
        transport.send(channel->route.link, channel->peer, lane(), tag_ | (channel->posted & MessageTag::message_mask),
                       message_of(move, channel->staging_of(channel->posted, window_)), schedule_.message_bytes(move));
    if (status != MXS_OK) return status;
    ++channel->posted;
    --sends_left_;
    turn->moved = true;
  }
  return MXS_OK;
}

mxs_status Engine::post_receives(Channel *channel) {
  const Transport &transport = *channel->route.transport;
  for (; channel->posted < channel->moves.size() && channel->posted - channel->done < window_; ++channel->posted) {
    const Move &move = schedule_.moves[channel->moves[channel->posted]];
    void *landing = nullptr;
    if (transport.needs_landing)
      landing = lands_in_place(move) ? place_of(schedule_.ranges_of(move)[0])
                                     : channel->staging_of(channel->posted, window_);
    const mxs_status status =
        transport.receive(channel->route.link, channel->peer, lane(), landing, schedule_.message_bytes(move));
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// One message at most, so that channels take turns.
mxs_status Engine::take_arrival(Channel *channel, bool *moved) {
  if (channel->done == channel->posted) return MXS_OK;
  const uint32_t index = channel->moves[channel->done];
  const Move &move = schedule_.moves[index];
  if (!ready(move)) return MXS_OK;
  const Transport &transport = *channel->route.transport;
  const Arrival *arrival = transport.arrived(channel->route.link, channel->peer, lane());
  if (!arrival) return MXS_OK;
  const uint64_t bytes = schedule_.message_bytes(move);
  // Not retired, so that the sender is not told that it was received.
  if (arrival->tag != (tag_ | (channel->done & MessageTag::message_mask)) || arrival->bytes != bytes)
    return complain(*channel, *arrival, bytes);
  take_in(move, arrival->data);
  transport.retire(channel->route.link, channel->peer, lane());
  done_[index] = 1;
  ++channel->done;
  *moved = true;
  return post_receives(channel);
}

mxs_status Engine::complain(const Channel &channel, const Arrival &arrival, uint64_t expected_bytes) const {
  const int kind = MessageTag::kind(arrival.tag);
  const uint64_t sequence = MessageTag::sequence(arrival.tag), expected = MessageTag::sequence(tag_);
  const char *what = kind != kind_ ? "another collective"
                     : sequence != expected
                         ? "another operation"
                         : !MessageTag::same_operation(arrival.tag, tag_)
                               ? "another collective or unit, or another layout, dtype, algorithm or flags"
                               : "messages of other sizes";
  if (kind == MXS_AGREE)
    return set_error(MXS_MISMATCH,
                     "rank %d is in a %s (operation %llu) and rank %d in an agreement. All ranks must start the same "
                     "collectives in the same order",
                     comm_.rank, name(), static_cast<unsigned long long>(sequence_), channel.peer);
  return set_error(MXS_MISMATCH,
                   "rank %d is in a %s (operation %llu) and rank %d sent it a message of a %s (operation %llu modulo "
                   "%d, %zu bytes; %llu were expected): %s. All ranks must start the same collectives in the same "
                   "order",
                   comm_.rank, name(), static_cast<unsigned long long>(sequence_), channel.peer, collective_name(kind),
                   static_cast<unsigned long long>(sequence), 1 << MessageTag::sequence_bits, arrival.bytes,
                   static_cast<unsigned long long>(expected_bytes), what);
}

int Engine::sends_to() const {
  for (const Channel &channel : out_)
    if (channel.done < channel.moves.size()) return channel.peer;
  return -1;
}

int Engine::waits_for() const {
  // A message that could be taken says most; then any that is due; then a peer that doesn't take ours.
  for (const Channel &channel : in_)
    if (channel.done < channel.moves.size() && ready(schedule_.moves[channel.moves[channel.done]]))
      return channel.peer;
  for (const std::vector<Channel> *channels : {&in_, &out_})
    for (const Channel &channel : *channels)
      if (channel.done < channel.moves.size()) return channel.peer;
  return -1;
}

// ---- places ----

const std::byte *Engine::message_of(const Move &move, std::byte *staging) const {
  const std::span<const Range> ranges = schedule_.ranges_of(move);
  if (ranges.size() == 1) return sent_place_of(ranges[0]);
  std::byte *end = staging;
  for (const Range &range : ranges) {
    const uint64_t bytes = schedule_.message_bytes(range.bytes, move.sums);
    std::memcpy(end, sent_place_of(range), bytes);
    end += bytes;
  }
  return staging;
}

const std::byte *Engine::sent_place_of(const Range &range) const {
  if (range.place != Place::source) return place_of(range);
  switch (schedule_.options.direction) {
    case Direction::gather: return source_ ? source_ + range.packed : target_ + range.offset;
    case Direction::reshard: return source_ + range.packed;
    default: return source_ + range.offset;
  }
}

std::byte *Engine::place_of(const Range &range) const {
  if (range.place == Place::slot) return scratch_.data + static_cast<uint64_t>(range.slot) * schedule_.slot_bytes;
  switch (schedule_.options.direction) {
    case Direction::gather: return target_ + range.offset;
    case Direction::reshard: return target_ + range.target_packed;
    default: return target_ + range.packed / element_bytes_ * sizeof(float);
  }
}

// A message that is copied as it is, to one place, goes there without a landing. It may be posted before its
// dependency is done: the finished sum of an ordered reduce is sent only after the accumulator it replaces has been
// taken.
bool Engine::lands_in_place(const Move &move) const {
  if (move.range_count != 1) return false;
  const Direction direction = schedule_.options.direction;
  const Range &range = schedule_.ranges_of(move)[0];
  return direction == Direction::gather || direction == Direction::reshard ||
         (range.place == Place::target && (range.flags & move_copies));
}

void Engine::take_in(const Move &move, const void *message) const {
  const bool copies =
      schedule_.options.direction == Direction::gather || schedule_.options.direction == Direction::reshard;
  const auto *part = static_cast<const std::byte *>(message);
  for (const Range &range : schedule_.ranges_of(move)) {
    if (copies)
      copy_in(range, part);
    else
      add_in(range, move.sums, part);
    part += schedule_.message_bytes(range.bytes, move.sums);
  }
}

void Engine::copy_in(const Range &range, const void *message) const {
  std::byte *place = place_of(range);
  if (place != message)
    kernels_.copy_to_many(&place, 1, static_cast<const std::byte *>(message), range.bytes);
}

// The steps of a range's flags in their order; each is one pass, or shares one with the next.
void Engine::add_in(const Range &range, bool sums, const void *message) const {
  const size_t elements = range.bytes / element_bytes_;
  auto *place = reinterpret_cast<float *>(place_of(range));
  const mxs_dtype message_dtype = sums ? MXS_F32 : dtype_;
  const bool starts = range.flags & move_starts;
  if (range.flags & move_copies) {
    if (static_cast<const void *>(place) != message) std::memcpy(place, message, elements * sizeof(float));
  } else if (!(range.flags & move_own_before)) {
    kernels_.sum_in_order(place, starts ? nullptr : place, &message, 1, message_dtype, elements);
  } else if (message_dtype == dtype_) {
    const void *terms[2] = {own_gradient(range), message};
    kernels_.sum_in_order(place, starts ? nullptr : place, terms, 2, dtype_, elements);
  } else {
    const void *own = own_gradient(range);
    kernels_.sum_in_order(place, starts ? nullptr : place, &own, 1, dtype_, elements);
    kernels_.add(place, message, message_dtype, elements);
  }
  if (range.flags & move_own_after) kernels_.add(place, own_gradient(range), dtype_, elements);
  if (range.flags & move_into_target)
    kernels_.add(reinterpret_cast<float *>(target_ + range.packed / element_bytes_ * sizeof(float)), place, MXS_F32,
                 elements);
}

// What an owner does without anybody: its own bytes of a gather from a packed source, those of a reshard that stay,
// a reduce alone in the world.
void Engine::run_locals() {
  locals_done_ = true;
  for (const uint32_t index : locals_) {
    const Range &range = schedule_.ranges_of(schedule_.moves[index])[0];
    done_[index] = 1;
    switch (schedule_.options.direction) {
      case Direction::gather:
        if (source_) copy_in(range, source_ + range.packed);
        break;
      case Direction::reshard: copy_in(range, source_ + range.packed); break;
      default: {
        const void *own = own_gradient(range);
        auto *place = reinterpret_cast<float *>(place_of(range));
        kernels_.sum_in_order(place, range.flags & move_starts ? nullptr : place, &own, 1, dtype_,
                              range.bytes / element_bytes_);
      }
    }
  }
}

// MXS_DEBUG_SCHEDULES=1: the checker of tests, on the very layouts of a program. Costs p schedules on each rank.
mxs_status prove(const ScheduleOptions &plan, const std::vector<Piece> &pieces, int rank_count, int window) {
  int64_t wanted = 0;
  const mxs_status status = environment_number("MXS_DEBUG_SCHEDULES", 0, 1, &wanted);
  if (status != MXS_OK || wanted == 0) return status;
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < rank_count; ++rank) schedules.push_back(make_schedule(plan, pieces, rank));
  const std::string complaint = check_schedules(*plan.layout, plan.target_layout, schedules, window);
  if (complaint.empty()) return MXS_OK;
  return set_error(MXS_INTERNAL, "a schedule of %s over %d ranks is wrong: %.300s", algorithm_name(plan.algorithm),
                   rank_count, complaint.c_str());
}

}  // namespace

mxs_status make_message_operation(std::unique_ptr<MessageOperation> *operation, Comm &comm,
                                  const MessageOptions &options) {
  assert(options.window > 0);
  mxs_status status = check_message_options(options, "the comm", comm.rank_count);
  if (status != MXS_OK) return status;
  const ScheduleOptions plan = schedule_options(comm.topology, options);
  std::vector<Piece> pieces;
  status = cut_pieces(plan, &pieces);
  if (status == MXS_OK) status = prove(plan, pieces, comm.rank_count, options.window);
  if (status != MXS_OK) return status;
  Fingerprint signature;
  signature.add(options.layout->hash()).add(options.target_layout ? options.target_layout->hash() : 0);
  signature.add(static_cast<uint64_t>(plan.direction)).add(static_cast<uint64_t>(plan.algorithm));
  signature.add(static_cast<uint64_t>(options.kind == MXS_REDUCE ? options.dtype : 0));
  signature.add(plan.accumulate).add(plan.chunk_bytes);
  *operation = std::make_unique<Engine>(comm, options, make_schedule(plan, pieces, comm.rank), signature.value());
  const Schedule &schedule = (*operation)->schedule();
  (*operation)->set_label(comm.label(algorithm_name(plan.algorithm), schedule.bytes_out, schedule.bytes_in));
  return MXS_OK;
}

}  // namespace mxs
