// SPDX-License-Identifier: Apache-2.0
#include "collective/collective.hpp"

#include <cinttypes>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "base/dtype.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "collective/device_comm.hpp"
#include "device/host_memory.hpp"
#include "schedule/cost.hpp"

namespace mxs {

Collective::Collective(Comm &comm, const CollectiveOptions &options)
    : comm_(comm), options_(options.messages), mapped_memory_(options.mapped_memory), on_device_(options.on_device),
      own_memory_(options.own_memory), layout_(*options_.layout) {
  options_.layout = &layout_;
  if (options_.target_layout) target_layout_ = *options_.target_layout;
  options_.target_layout = options_.target_layout ? &target_layout_ : nullptr;
  ++comm_.children;
}

// What a failed comm left in flight may still be read by peers, until the comm's links are closed.
Collective::~Collective() {
  if (messages_ && messages_->in_flight()) comm_.queue.bury(std::move(messages_));
  if (node_ && node_->in_flight()) comm_.queue.bury(std::move(node_));
  --comm_.children;
}

const char *Collective::kind_name() const {
  return options_.kind == MXS_GATHER ? "gather" : options_.kind == MXS_REDUCE ? "reduce" : "reshard";
}

// ---- create ----

mxs_status Collective::build(const char *algorithm) {
  mxs_status status = check_message_options(options_, "the comm", comm_.rank_count);
  if (status != MXS_OK || on_device_) return status;
  status = choose(comm_, options_, algorithm, &choice_);
  if (status != MXS_OK) return status;
  apply(choice_, &options_);
  if (choice_.node && mapped_memory_) choice_.messages = false;
  if (choice_.messages) {
    status = make_message_operation(&messages_, comm_, options_);
    if (status != MXS_OK) return status;
    routes_ = count_routes();
  }
  if (choice_.node && options_.kind == MXS_GATHER) {
    NodeGatherOptions node;
    node.layout = &layout_;
    node_ = make_node_gather(comm_, node);
  } else if (choice_.node) {
    NodeReduceOptions node;
    node.layout = &layout_;
    node.dtype = options_.dtype;
    node.accumulate = options_.accumulate;
    node_ = make_node_reduce(comm_, node);
  }
  if (comm_.debug_buffers && messages_) messages_->set_end([this] { return end_watch(*messages_); });
  if (comm_.debug_buffers && node_) node_->set_end([this] { return end_watch(*node_); });
  if (node_)
    node_->set_label(comm_.label(options_.kind == MXS_GATHER ? "fanout" : "cooperative", bytes_out(true),
                                 bytes_in(true)));
  node_routes_ = "memory " + std::to_string(comm_.rank_count - 1);
  by_node_ = !choice_.messages;
  return MXS_OK;
}

// Once all ranks have come to the same.
mxs_status Collective::build_on_device() {
  mxs_status status = open_device(comm_);
  if (status != MXS_OK) return status;
  DeviceCollectiveOptions options;
  options.kind = options_.kind;
  options.layout = &layout_;
  options.target_layout = options_.target_layout;
  options.dtype = options_.dtype;
  options.rank_order = options_.rank_order;
  options.accumulate = options_.accumulate;
  options.identity = identity_;
  const mxs_status own = fenced([&] { return make_device_operation(&device_, comm_, options); });
  return settle_over_ranks(comm_, own, "mxs_collective_create in CUDA memory");
}

void Collective::set_identity(uint64_t identity) {
  identity_ = identity;
  if (messages_) messages_->set_identity(identity);
  if (node_) node_->set_identity(identity);
}

uint64_t Collective::fingerprint() const {
  Fingerprint hash;
  hash.add("collective").add(static_cast<uint64_t>(options_.kind)).add(layout_.hash());
  hash.add(options_.target_layout ? target_layout_.hash() : 0);
  hash.add(static_cast<uint64_t>(options_.kind == MXS_REDUCE ? options_.dtype : 0));
  hash.add(options_.rank_order).add(options_.accumulate).add(mapped_memory_).add(on_device_);
  hash.add(choice_.node).add(choice_.messages).add(static_cast<uint64_t>(choice_.algorithm));
  hash.add(messages_ ? messages_->chunk_bytes() : 0);
  return hash.value();
}

namespace {
constexpr char create_name[] = "mxs_collective_create (kind, layout, dtype, flags, algorithm, chunk_bytes, memory)";
}  // namespace

mxs_status refuse_collective(Comm &comm, mxs_status own) {
  const std::string sentence = last_error_text();
  compare_over_ranks(comm, Fingerprint().add(sentence).value(), create_name);
  return set_error(own, "%s", sentence.c_str());
}

mxs_status create_collective(std::unique_ptr<Collective> *collective, Comm &comm,
                             const CollectiveOptions &options) {
  mxs_status status = comm.check();
  if (status != MXS_OK) return status;
  auto made = std::make_unique<Collective>(comm, options);
  const mxs_status own = fenced([&] { return made->build(options.algorithm); });
  if (own != MXS_OK) return refuse_collective(comm, own);
  status = compare_over_ranks(comm, made->fingerprint(), create_name);
  // Equal ones are told apart by the order of their creation, so that ranks which start others are found.
  if (status == MXS_OK) made->set_identity(Fingerprint().add("collective").add(++comm.collectives_made).value());
  if (status == MXS_OK && options.on_device) status = made->build_on_device();
  if (status != MXS_OK) return status;
  const mxs_collective_info info = made->describe();
  if (comm.rank == 0)
    log_line(MXS_LOG_INFO, "%s of %" PRIu64 " bytes over %d ranks by %s (%s), chunks of %" PRIu64
             " bytes, window %d: %s",
             made->kind_name(), options.messages.layout->bytes, comm.rank_count, info.algorithm,
             info.transports, info.chunk_bytes, info.window, info.reason);
  *collective = std::move(made);
  return MXS_OK;
}

// ---- start ----

uint64_t Collective::source_bytes() const {
  return options_.kind == MXS_REDUCE ? layout_.bytes : layout_.owned_bytes(comm_.rank);
}

uint64_t Collective::target_bytes() const {
  const uint64_t owned = layout_.owned_bytes(comm_.rank);
  switch (options_.kind) {
    case MXS_GATHER: return layout_.bytes;
    case MXS_REDUCE: return owned / dtype_bytes(options_.dtype) * sizeof(float);
    default: return target_layout_.owned_bytes(comm_.rank);
  }
}

mxs_status Collective::check_buffers(const void *source, const void *target) const {
  if (!target && target_bytes() > 0)
    return set_error(MXS_INVALID_ARGUMENT, "target is NULL, but rank %d is to get %" PRIu64 " bytes of this %s",
                     comm_.rank, target_bytes(), kind_name());
  if (!source && source_bytes() > 0 && options_.kind != MXS_GATHER)
    return set_error(MXS_INVALID_ARGUMENT, "source is NULL, but rank %d gives %" PRIu64 " bytes to this %s",
                     comm_.rank, source_bytes(), kind_name());
  if (options_.kind != MXS_REDUCE) return MXS_OK;
  const uint64_t element_bytes = dtype_bytes(options_.dtype);
  if (reinterpret_cast<uintptr_t>(source) % element_bytes || reinterpret_cast<uintptr_t>(target) % sizeof(float))
    return set_error(MXS_INVALID_ARGUMENT, "reduce: source %p or target %p is not aligned to its elements", source,
                     target);
  return MXS_OK;
}

mxs_status Collective::start(const void *source, void *target, int priority, uint64_t *request, void *stream) {
  mxs_status status = comm_.check();
  if (status != MXS_OK) return status;
  if (on_device_) {
    status = start_on_device(source, target, stream);
    if (status == MXS_OK) *request = sequence_;
    return status;
  }
  if (in_flight())
    return set_error(MXS_HELD, "this %s is still in flight (operation %" PRIu64 "); wait for it before it is started "
                     "again", kind_name(), sequence_);
  status = check_buffers(source, target);
  if (status == MXS_OK) status = check_on_host(source, target);
  if (status == MXS_OK && mapped_memory_) status = check_promise(source, target);
  bool by_node = false;
  if (status == MXS_OK) status = prepare_node(source, target, &by_node);
  if (status != MXS_OK) return status;
  if (!by_node) messages_->prepare(source, target);
  Operation *const operation = by_node ? static_cast<Operation *>(node_.get()) : messages_.get();
  if (comm_.debug_buffers) watch(source, target, by_node);
  uint64_t sequence = 0;
  status = comm_.queue.enqueue(operation, &sequence, priority);
  if (status != MXS_OK) return status;
  by_node_ = by_node;
  sequence_ = sequence;
  *request = sequence;
  count(bytes_out(by_node), bytes_in(by_node));
  comm_.set_off();
  return MXS_OK;
}

// What peers read, or what is on its way to them: of a gather in place, and inside a domain, that is in the target.
// Numbers are of segments, or 0 for a packed source.
void Collective::watch(const void *source, const void *target, bool by_node) {
  watch_.clear();
  const auto *from = static_cast<const std::byte *>(source), *to = static_cast<const std::byte *>(target);
  const bool in_place = options_.kind == MXS_GATHER && (!source || by_node);
  const bool apart = in_place || !from || !to || from + source_bytes() <= to || to + target_bytes() <= from;
  if (!apart) return;  // what is in both changes rightly
  if (options_.kind == MXS_REDUCE || in_place) {
    for (size_t i = 0; i < layout_.segments.size(); ++i) {
      const Segment &segment = layout_.segments[i];
      if (in_place && segment.owner != comm_.rank) continue;
      watch_.add((in_place ? to : from) + segment.offset, segment.bytes, static_cast<int>(i));
    }
  } else {
    watch_.add(from, source_bytes(), 0);
  }
  watch_.begin();
}

// Bytes that others have already may be wrong, so it is a failure of the comm.
mxs_status Collective::end_watch(const Operation &operation) const {
  const int segment = watch_.changed();
  if (segment < 0) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "rank %d: the source of a %s (operation %" PRIu64 "), in segment %d, was "
                   "written to while it was in flight; other ranks may have got either (found by MXS_DEBUG_BUFFERS)",
                   comm_.rank, kind_name(), operation.sequence(), segment);
}

// Most starts pass what the one before passed.
mxs_status Collective::check_on_host(const void *source, const void *target) {
  if (own_memory_ || (source == source_on_host_ && target == target_on_host_)) return MXS_OK;
  mxs_status status = source_bytes() > 0 ? check_host_memory("source", source) : MXS_OK;
  if (status == MXS_OK && target_bytes() > 0) status = check_host_memory("target", target);
  if (status != MXS_OK) return status;
  source_on_host_ = source;
  target_on_host_ = target;
  return MXS_OK;
}

void Collective::count(uint64_t bytes_out, uint64_t bytes_in) const {
  Comm::Counter &counter = comm_.counter(options_.kind);
  counter.calls.fetch_add(1, std::memory_order_relaxed);
  counter.bytes_out.fetch_add(bytes_out, std::memory_order_relaxed);
  counter.bytes_in.fetch_add(bytes_in, std::memory_order_relaxed);
}

mxs_status Collective::start_on_device(const void *source, void *target, void *stream) {
  mxs_status status = check_buffers(source, target);
  if (status == MXS_OK && source) status = check_device_buffer(comm_, "source", source, source_bytes());
  if (status == MXS_OK && target) status = check_device_buffer(comm_, "target", target, target_bytes());
  if (status == MXS_OK) status = device_->start(source, target, stream, &sequence_);
  if (status == MXS_OK) count(device_->bytes_out(), device_->bytes_in());
  return status;
}

// On every comm: a program that breaks its promise should learn of it before it runs where the promise counts.
mxs_status Collective::check_promise(const void *source, const void *target) const {
  const bool reduces = options_.kind == MXS_REDUCE;
  const bool source_is = !reduces || layout_.bytes == 0 || comm_.buffer_of(source, layout_.bytes);
  const bool target_is = layout_.bytes == 0 || (target && comm_.buffer_of(target, target_bytes()));
  if (source_is && target_is) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "this %s was created with MXS_MAPPED_MEMORY, but rank %d's %s (%p) is not "
                   "memory of mxs_comm_allocate", kind_name(), comm_.rank, source_is ? "target" : "source",
                   source_is ? target : source);
}

// Decides by the buffer that all ranks have.
mxs_status Collective::prepare_node(const void *source, void *target, bool *by_node) {
  if (!choice_.node) return MXS_OK;
  const bool gathers = options_.kind == MXS_GATHER;
  const SharedBuffer *buffer = layout_.bytes ? comm_.buffer_of(gathers ? target : source, layout_.bytes) : nullptr;
  *by_node = buffer != nullptr;
  if (buffer) return gathers ? prepare_gather(source, target, buffer) : prepare_reduce(source, target, buffer);
  if (choice_.messages) return MXS_OK;
  if (layout_.bytes == 0) {  // nothing to do, but the order of operations is to be kept: any region will do
    *by_node = true;
    return MXS_OK;
  }
  return set_error(MXS_INVALID_ARGUMENT, "%s wants memory of mxs_comm_allocate, but rank %d's %s (%p, %" PRIu64
                   " bytes) is not", gathers ? "fanout" : "cooperative", comm_.rank, gathers ? "target" : "source",
                   gathers ? target : source, layout_.bytes);
}

uint64_t offset_in(const SharedBuffer &buffer, const void *memory) {
  return static_cast<uint64_t>(static_cast<const std::byte *>(memory) - buffer.region.at(buffer.local_rank));
}

mxs_status Collective::prepare_gather(const void *source, void *target, const SharedBuffer *target_buffer) {
  const auto *packed = static_cast<const std::byte *>(source);
  if (packed)
    for (const Segment &segment : layout_.segments)
      if (segment.owner == comm_.rank) {
        std::memcpy(static_cast<std::byte *>(target) + segment.offset, packed, segment.bytes);
        packed += segment.bytes;
      }
  node_->use(target_buffer->region, target_buffer->region, target_buffer->number);
  const uint64_t offset = offset_in(*target_buffer, target);
  node_->prepare(offset, offset);
  return MXS_OK;
}

mxs_status Collective::prepare_reduce(const void *source, const void *target, const SharedBuffer *source_buffer) {
  const SharedBuffer *target_buffer = comm_.buffer_of(target, target_bytes());
  if (!target || !target_buffer)
    return set_error(MXS_INVALID_ARGUMENT, "reduce: rank %d's source is memory of mxs_comm_allocate, so its target "
                     "must be too (also on ranks that own nothing), but %p is not", comm_.rank, target);
  node_->use(source_buffer->region, target_buffer->region,
             Fingerprint().add(source_buffer->number).add(target_buffer->number).value());
  node_->prepare(offset_in(*source_buffer, source), offset_in(*target_buffer, target));
  return MXS_OK;
}

// ---- after start ----

bool Collective::in_flight() const {
  return (messages_ && messages_->in_flight()) || (node_ && node_->in_flight()) || (device_ && device_->in_flight());
}

mxs_status Collective::wait(uint64_t timeout_ns, void *stream) {
  return stream ? device_->wait_stream(stream) : comm_.wait(sequence_, timeout_ns, options_.kind);
}

uint64_t Collective::bytes_out(bool by_node) const {
  if (!by_node) return messages_->schedule().bytes_out;
  const uint64_t owned = layout_.owned_bytes(comm_.rank);
  uint64_t total = 0;
  for (const Segment &segment : layout_.segments) total += segment.bytes;
  return options_.kind == MXS_GATHER ? owned * static_cast<uint64_t>(comm_.rank_count - 1) : total - owned;
}

uint64_t Collective::bytes_in(bool by_node) const {
  if (!by_node) return messages_->schedule().bytes_in;
  const uint64_t owned = layout_.owned_bytes(comm_.rank);
  uint64_t total = 0;
  for (const Segment &segment : layout_.segments) total += segment.bytes;
  return options_.kind == MXS_GATHER ? total - owned : owned * static_cast<uint64_t>(comm_.rank_count - 1);
}

// "shm 1, ucx 6": how many peers this rank talks to by each transport.
std::string Collective::count_routes() const {
  std::map<std::string, std::set<int>> peers;
  for (const Move &move : messages_->schedule().moves)
    if (move.kind != MoveKind::local)
      peers[comm_.routes[static_cast<size_t>(move.peer)].transport->name].insert(move.peer);
  std::string text;
  for (const auto &[name, ranks] : peers)
    text.append(text.empty() ? "" : ", ").append(name).append(" ").append(std::to_string(ranks.size()));
  return text.empty() ? "none" : text;
}

mxs_collective_info Collective::describe_device() const {
  mxs_collective_info info = MXS_COLLECTIVE_INFO_INIT;
  info.kind = options_.kind;
  info.algorithm = device_->algorithm();
  info.transports = info.reason = comm_.device()->describe();
  info.bytes_out = device_->bytes_out();
  info.bytes_in = device_->bytes_in();
  info.message_count = device_->message_count();
  info.scratch_bytes = device_->scratch_bytes();
  ScheduleOptions bound = schedule_options(comm_.topology, options_);
  if (bound.direction == Direction::ordered_reduce) bound.direction = Direction::reduce;
  info.bytes_in_least = bytes_in_least(bound, comm_.rank);
  info.routes = device_->routes();
  return info;
}

mxs_collective_info Collective::describe() const {
  if (device_) return describe_device();
  mxs_collective_info info = MXS_COLLECTIVE_INFO_INIT;
  info.kind = options_.kind;
  info.algorithm = !by_node_                      ? algorithm_name(choice_.algorithm)
                   : options_.kind == MXS_GATHER ? "fanout"
                                                  : "cooperative";
  info.transports = comm_.transports.c_str();
  info.bytes_out = bytes_out(by_node_);
  info.bytes_in = bytes_in(by_node_);
  info.message_count = by_node_ ? 0 : messages_->schedule().message_count;
  info.chunk_bytes = by_node_ ? 0 : messages_->chunk_bytes();
  info.scratch_bytes = messages_ ? messages_->scratch_bytes() : 0;
  ScheduleOptions bound = schedule_options(comm_.topology, options_);
  if (bound.direction == Direction::ordered_reduce) bound.direction = Direction::reduce;
  info.bytes_in_least = bytes_in_least(bound, comm_.rank);
  info.bound_ns = nanoseconds_of(choice_.bound_s);
  info.routes = by_node_ ? node_routes_.c_str() : routes_.c_str();
  info.reason = by_node_ && choice_.messages ? "memory that all ranks map" : choice_.reason.c_str();
  if (by_node_) return info;
  info.predicted_ns = nanoseconds_of(choice_.predicted_s);
  info.window = options_.window;
  return info;
}

}  // namespace mxs
