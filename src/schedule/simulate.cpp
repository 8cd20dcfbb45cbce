// SPDX-License-Identifier: Apache-2.0
#include "schedule/simulate.hpp"

#include <algorithm>
#include <cassert>
#include <queue>

#include "base/status.hpp"
#include "schedule/cost.hpp"
#include "schedule/simulated_world.hpp"

namespace mxs {

namespace {

enum class EventKind : uint32_t {
  post,     // try to post on a channel
  head,     // a message's first byte is at the in-port
  arrival,  // its last byte has been received
  take,     // try to take on a channel
  done,     // a message has been taken
};

struct Event {
  double time;
  uint64_t order;
  double tail;  // head: when the last byte can have arrived at the earliest
  uint32_t channel;
  EventKind kind;
};

struct Later {
  bool operator()(const Event &a, const Event &b) const {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }
};

// Times in seconds.
struct Port {
  double free = 0;
  uint32_t channels = 0;  // in-port: that have messages in it
};

struct Speed {
  double latency, overhead, rate;
  explicit Speed(const LinkSpeed &speed)
      : latency(1e-9 * speed.latency_ns), overhead(1e-9 * speed.overhead_ns),
        rate(static_cast<double>(speed.bytes_per_second)) {}
};

class Simulator {
 public:
  Simulator(const ScheduleOptions &options, int window, SimulatedWorld *world);
  mxs_status run(Simulated *result);

 private:
  void push(double time, EventKind kind, uint32_t channel, double tail = 0) {
    events_.push({time, next_order_++, tail, channel, kind});
  }
  void handle(const Event &event);
  void post(uint32_t index);
  bool may_post(uint32_t index, const SimulatedChannel &channel);
  void send(uint32_t index, SimulatedChannel *channel);
  void head(uint32_t index, double tail);
  void take(uint32_t index);
  void done(uint32_t index);
  bool ready(uint32_t move, uint32_t channel, EventKind retry);
  bool dependency_done(uint32_t dependency, uint32_t move, uint32_t channel, EventKind retry);
  void wake(uint32_t move);

  size_t rail_of(int rank) const { return rail_of_[static_cast<size_t>(rank)]; }
  double &ring(uint32_t channel, uint32_t message) { return ring_[channel * window_ + message % window_]; }

  const Topology &topology_;
  SimulatedWorld &world_;
  const size_t window_;
  const Speed local_, network_;
  const double add_rate_, contention_;
  double now_ = 0;
  uint64_t next_order_ = 0;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::vector<double> ring_;               // network: when the latest `window` messages of each channel have left
  std::vector<double> cpu_;                // by rank: free from then on
  std::vector<double> last_;               // by rank: its last event
  std::vector<Port> local_out_, local_in_; // by rank
  std::vector<Port> rail_out_, rail_in_;   // by rail
  std::vector<double> rail_rate_;
  std::vector<size_t> rail_of_;            // by rank
  std::vector<uint64_t> bytes_out_, bytes_in_;  // by rail
};

Simulator::Simulator(const ScheduleOptions &options, int window, SimulatedWorld *world)
    : topology_(*options.topology), world_(*world), window_(static_cast<size_t>(window)),
      local_(topology_.local), network_(topology_.network),
      add_rate_(static_cast<double>(topology_.add_bytes_per_second)), contention_(contention_of(topology_)) {
  const size_t ranks = topology_.ranks.size();
  cpu_.resize(ranks);
  last_.resize(ranks);
  local_out_.resize(ranks);
  local_in_.resize(ranks);
  rail_of_.resize(ranks);
  ring_.resize(world_.channels.size() * window_);
  for (int node = 0; node < topology_.node_count(); ++node) {
    const size_t first = rail_rate_.size();
    for (size_t rail = 0; rail < topology_.node(node).rails.size(); ++rail)
      rail_rate_.push_back(static_cast<double>(topology_.rail_bytes_per_second(node, static_cast<int>(rail))));
    for (const int rank : topology_.node(node).ranks)
      rail_of_[static_cast<size_t>(rank)] =
          first + static_cast<size_t>(topology_.ranks[static_cast<size_t>(rank)].rail);
  }
  rail_out_.resize(rail_rate_.size());
  rail_in_.resize(rail_rate_.size());
  bytes_out_.resize(rail_rate_.size());
  bytes_in_.resize(rail_rate_.size());
}

// ---- dependencies ----

// False: the head of its channel is tried again when it may be done.
bool Simulator::dependency_done(uint32_t dependency, uint32_t move, uint32_t channel, EventKind retry) {
  const SimulatedChannel &other = world_.channels[world_.moves[dependency].channel];
  const bool sends = dependency - other.out_begin < other.count;
  const uint32_t number = dependency - (sends ? other.out_begin : other.in_begin);
  if (!sends || other.local) {
    if (number < other.taken) return true;
  } else if (number < other.posted) {
    if (other.posted - number > window_) return true;
    const double left = ring(world_.moves[dependency].channel, number);
    if (left <= now_) return true;
    push(left, retry, channel);
    return false;
  }
  if (world_.moves[move].next_waiter != SimulatedMove::idle) return false;  // it waits for this one already
  world_.moves[move].next_waiter = world_.moves[dependency].first_waiter;
  world_.moves[dependency].first_waiter = move;
  return false;
}

bool Simulator::ready(uint32_t move, uint32_t channel, EventKind retry) {
  const uint32_t dependency = world_.moves[move].dependency;
  if (dependency == SimulatedMove::none) return true;
  if (!(dependency & SimulatedMove::many)) return dependency_done(dependency, move, channel, retry);
  const uint32_t *list = &world_.lists[dependency & ~SimulatedMove::many];
  for (uint32_t i = 1; i <= list[0]; ++i)
    if (!dependency_done(list[i], move, channel, retry)) return false;
  return true;
}

// Whatever waits for it is the head of its channel.
void Simulator::wake(uint32_t move) {
  uint32_t waiter = world_.moves[move].first_waiter;
  world_.moves[move].first_waiter = SimulatedMove::none;
  while (waiter != SimulatedMove::none) {
    const uint32_t next = world_.moves[waiter].next_waiter;
    world_.moves[waiter].next_waiter = SimulatedMove::idle;
    const uint32_t channel = world_.moves[waiter].channel;
    if (world_.is_send(waiter))
      post(channel);
    else
      take(channel);
    waiter = next;
  }
}

// ---- sending ----

// Is there room in the window? If not, it is tried again when there may be.
bool Simulator::may_post(uint32_t index, const SimulatedChannel &channel) {
  if (channel.local) return channel.posted - channel.taken < window_;  // done() tries again
  if (channel.posted < window_) return true;
  const double left = ring(index, channel.posted);
  if (left <= now_) return true;
  push(left, EventKind::post, index);
  return false;
}

void Simulator::post(uint32_t index) {
  SimulatedChannel &channel = world_.channels[index];
  while (channel.posted < channel.count && may_post(index, channel) &&
         ready(channel.out_begin + channel.posted, index, EventKind::post)) {
    const uint32_t move = channel.out_begin + channel.posted;
    send(index, &channel);
    wake(move);
  }
}

void Simulator::send(uint32_t index, SimulatedChannel *channel) {
  const Speed &speed = channel->local ? local_ : network_;
  const size_t source = static_cast<size_t>(channel->source);
  const size_t rail = rail_of(channel->source);
  const uint32_t bytes = world_.moves[channel->out_begin + channel->posted].bytes;
  double &cpu = cpu_[source];
  cpu = std::max(cpu, now_) + speed.overhead;
  Port &port = channel->local ? local_out_[source] : rail_out_[rail];
  const double begin = std::max(port.free, cpu);
  port.free = begin + bytes / (channel->local ? local_.rate : rail_rate_[rail]);
  if (!channel->local) {
    ring(index, channel->posted) = port.free;
    bytes_out_[rail] += bytes;
  }
  last_[source] = std::max(last_[source], port.free);
  ++channel->posted;
  push(begin + speed.latency, EventKind::head, index, port.free + speed.latency);
}

// ---- receiving ----

void Simulator::head(uint32_t index, double tail) {
  SimulatedChannel &channel = world_.channels[index];
  const size_t rail = rail_of(channel.target);
  Port &port = channel.local ? local_in_[static_cast<size_t>(channel.target)] : rail_in_[rail];
  const uint32_t bytes = world_.moves[channel.in_begin + channel.arrived + channel.in_port].bytes;
  if (channel.in_port++ == 0) ++port.channels;
  double time = bytes / (channel.local ? local_.rate : rail_rate_[rail]);
  if (!channel.local) {
    time *= 1 + contention_ * (1 - 1.0 / port.channels);
    bytes_in_[rail] += bytes;
  }
  port.free = std::max(port.free, now_) + time;
  push(std::max(port.free, tail), EventKind::arrival, index);
}

void Simulator::take(uint32_t index) {
  SimulatedChannel &channel = world_.channels[index];
  while (channel.takes_begun < channel.arrived) {
    const uint32_t move = channel.in_begin + channel.takes_begun;
    if (!ready(move, index, EventKind::take)) return;
    ++channel.takes_begun;
    double &cpu = cpu_[static_cast<size_t>(channel.target)];
    cpu = std::max(cpu, now_) + (channel.local ? local_ : network_).overhead;
    cpu += world_.moves[move].added / add_rate_;
    push(cpu, EventKind::done, index);
  }
}

void Simulator::done(uint32_t index) {
  SimulatedChannel &channel = world_.channels[index];
  const uint32_t number = channel.taken++;
  double &last = last_[static_cast<size_t>(channel.target)];
  last = std::max(last, now_);
  wake(channel.in_begin + number);
  if (!channel.local) return;
  wake(channel.out_begin + number);
  post(index);
}

// ---- the loop ----

void Simulator::handle(const Event &event) {
  SimulatedChannel &channel = world_.channels[event.channel];
  switch (event.kind) {
    case EventKind::post: return post(event.channel);
    case EventKind::head: return head(event.channel, event.tail);
    case EventKind::take: return take(event.channel);
    case EventKind::done: return done(event.channel);
    case EventKind::arrival: break;
  }
  ++channel.arrived;
  if (--channel.in_port == 0)
    --(channel.local ? local_in_[static_cast<size_t>(channel.target)] : rail_in_[rail_of(channel.target)]).channels;
  take(event.channel);
}

mxs_status Simulator::run(Simulated *result) {
  // As the engine does: every rank begins with the rank after it.
  for (int rank = 0; rank < topology_.rank_count(); ++rank) {
    const uint32_t begin = world_.channels_of[static_cast<size_t>(rank)];
    const uint32_t end = world_.channels_of[static_cast<size_t>(rank) + 1];
    uint32_t first = begin;
    while (first < end && world_.channels[first].target < rank) ++first;
    for (uint32_t step = 0; step < end - begin; ++step) post(begin + (first - begin + step) % (end - begin));
  }
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    handle(event);
  }
  Simulated found;
  for (const SimulatedChannel &channel : world_.channels) {
    found.message_count += channel.count;
    if (channel.taken != channel.count)
      return set_error(MXS_INTERNAL, "the schedule stops: rank %d has taken %u of %u messages of rank %d",
                       channel.target, channel.taken, channel.count, channel.source);
  }
  const auto last = std::max_element(last_.begin(), last_.end());
  found.seconds = *last;
  found.last_rank = static_cast<int>(last - last_.begin());
  for (const std::vector<uint64_t> *bytes : {&bytes_out_, &bytes_in_})
    found.rail_bytes_max = std::max(found.rail_bytes_max, *std::max_element(bytes->begin(), bytes->end()));
  *result = found;
  return MXS_OK;
}

}  // namespace

mxs_status simulate(const ScheduleOptions &options, int window, Simulated *result) {
  assert(options.topology && options.topology->rank_count() == options.layout->rank_count && window > 0);
  const double messages = message_estimate(options);
  if (messages > static_cast<double>(simulated_messages_max))
    return set_error(MXS_OVER_BUDGET,
                     "%s over %d ranks in chunks of %llu bytes is about %.0f messages, more than the %llu that are "
                     "simulated; raise chunk_bytes, or take an algorithm with fewer channels",
                     algorithm_name(options.algorithm), options.layout->rank_count,
                     static_cast<unsigned long long>(options.chunk_bytes), messages,
                     static_cast<unsigned long long>(simulated_messages_max));
  std::vector<Piece> pieces;
  mxs_status status = cut_pieces(options, &pieces);
  if (status != MXS_OK) return status;
  SimulatedWorld world;
  status = make_simulated_world(options, pieces, &world);
  if (status != MXS_OK) return status;
  return Simulator(options, window, &world).run(result);
}

}  // namespace mxs
