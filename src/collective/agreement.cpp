// SPDX-License-Identifier: Apache-2.0
#include "collective/agreement.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "collective/message_tag.hpp"

namespace mxs {

// ---- in shared memory ----

struct Agreement::Board {
  struct alignas(128) Slot {
    std::atomic<uint64_t> number;  // of the agreement whose bytes are here
    uint64_t bytes;
    uint64_t history;              // of the operations that were started before it
    Comm::Use use;
    alignas(128) std::byte data[Comm::agreement_bytes_max];
  };
  struct alignas(128) Failure {
    std::atomic<mxs_status> status;  // written after the sentence, once
    char sentence[508];
  };
  // What the rank is in, when it has waited for long. Odd: it is being written.
  struct alignas(128) Told {
    std::atomic<uint64_t> version;
    std::atomic<uint64_t> words[Notice::word_count];
  };
  Slot slots[2];
  Failure failure;
  Told told;
};

Agreement::Board &Agreement::board(int local_rank) const {
  return *reinterpret_cast<Board *>(boards_.at(local_rank));
}

void Agreement::leave_failure(mxs_status status, const char *sentence) {
  if (boards_.mappings.empty()) return;
  Board::Failure &failure = board(comm_.local->local_rank()).failure;
  const size_t length = std::min(std::strlen(sentence), sizeof failure.sentence - 1);
  std::memcpy(failure.sentence, sentence, length);
  failure.sentence[length] = '\0';
  failure.status.store(status, std::memory_order_release);
}

mxs_status Agreement::find_failure(const char **sentence) const {
  for (int local = 0; local < static_cast<int>(boards_.mappings.size()); ++local) {
    if (local == comm_.local->local_rank()) continue;
    const Board::Failure &failure = board(local).failure;
    const mxs_status status = failure.status.load(std::memory_order_acquire);
    if (status == MXS_OK) continue;
    *sentence = failure.sentence;
    return status < 0 ? status : MXS_INTERNAL;
  }
  return MXS_OK;
}

void Agreement::tell(const Notice &notice) {
  if (boards_.mappings.empty()) return;
  Board::Told &told = board(comm_.local->local_rank()).told;
  const uint64_t version = told.version.load(std::memory_order_relaxed);
  told.version.store(version + 1, std::memory_order_seq_cst);
  for (int i = 0; i < Notice::word_count; ++i) told.words[i].store(notice.words[i], std::memory_order_seq_cst);
  told.version.store(version + 2, std::memory_order_seq_cst);
}

bool Agreement::told_by(int local_rank, Notice *notice) const {
  const Board::Told &told = board(local_rank).told;
  const uint64_t version = told.version.load(std::memory_order_seq_cst);
  if (version == 0 || version % 2) return false;
  for (int i = 0; i < Notice::word_count; ++i) notice->words[i] = told.words[i].load(std::memory_order_seq_cst);
  return told.version.load(std::memory_order_seq_cst) == version;
}

void Agreement::report(Situation *situation) const {
  situation->last = comm_.queue.last();
  situation->agreements = come_to_.load(std::memory_order_acquire);
  situation->agreement_at = come_at_.load(std::memory_order_relaxed);
  situation->in_agreement = inside_.load(std::memory_order_relaxed);
}

namespace {

// A rank that only sends may be through with its collective in good faith, whatever the others were in.
mxs_status other_history(int other, int rank) {
  return set_error(MXS_MISMATCH,
                   "rank %d has started other collectives (kind, layout, dtype, algorithm, memory or flags) before "
                   "this agreement than rank %d: all ranks must start the same collectives in the same order",
                   other, rank);
}

const char *use_name(Comm::Use use) {
  switch (use) {
    case Comm::Use::barrier: return "a barrier";
    case Comm::Use::sum: return "a sum of floating-point numbers";
    case Comm::Use::sum_words: return "a sum of integers";
    case Comm::Use::compare: return "a call that creates something";
    case Comm::Use::settle: return "the end of a call that creates, saves or loads something";
    case Comm::Use::step: return "a step";
    default: return "another call";
  }
}

mxs_status other_use(int other, Comm::Use theirs, int rank, Comm::Use own) {
  return set_error(MXS_MISMATCH, "rank %d is in %s, but rank %d in %s: all ranks must make the same calls in the same "
                   "order", other, use_name(theirs), rank, use_name(own));
}

}  // namespace

// Its event, from coming to leaving.
class TracedAgreement {
 public:
  TracedAgreement(const Comm &comm, const char *what, uint64_t sequence, size_t bytes) : tracer_(comm.tracer.get()) {
    if (!tracer_) return;
    TraceEvent event;
    event.kind = MXS_EVENT_AGREEMENT;
    event.name = tracer_->name(what);
    event.algorithm = tracer_->name(comm.domain ? "memory" : "messages");
    event.phase = comm.phase.load(std::memory_order_relaxed);
    event.sequence = sequence;
    event.bytes_out = event.bytes_in = bytes * static_cast<uint64_t>(comm.rank_count - 1);
    tracer_->note_agreement(sequence);
    ticket_ = tracer_->begin(event);
  }
  TracedAgreement(const TracedAgreement &) = delete;
  ~TracedAgreement() {
    if (tracer_) tracer_->end(ticket_);
  }
  uint64_t ticket() const { return ticket_; }

 private:
  Tracer *const tracer_;
  uint64_t ticket_ = 0;
};

mxs_status Agreement::run_in_memory(const void *source, void *target, size_t bytes, uint64_t timeout_ns,
                                    const char *what, Comm::Use use) {
  // Peers that gave up on this rank have published before they did.
  const mxs_status heeded = comm_.heed();
  if (heeded != MXS_OK) return heeded;
  Domain &domain = *comm_.domain;
  const uint64_t number = ++number_;
  come_at_.store(comm_.queue.last(), std::memory_order_relaxed);
  come_to_.store(number, std::memory_order_release);
  struct Inside {
    std::atomic<bool> &flag;
    ~Inside() { flag.store(false, std::memory_order_relaxed); }
  } inside{inside_};
  inside_.store(true, std::memory_order_relaxed);
  Board::Slot &own = board(domain.local_rank()).slots[number % 2];
  std::memcpy(own.data, source, bytes);
  own.bytes = bytes;
  own.history = comm_.queue.history();
  own.use = use;
  own.number.store(number, std::memory_order_release);
  domain.post();

  const TracedAgreement traced(comm_, what, number, bytes);
  const Comm::Inside caller(comm_);
  Comm::Wait wait = comm_.begin_wait(timeout_ns);
  wait.in_memory = true;
  wait.traced.join(traced.ticket());
  int next = 0;  // ranks before it have published
  const auto all_have_come = [&] {
    while (next < comm_.rank_count && board(next).slots[number % 2].number.load(std::memory_order_acquire) >= number)
      ++next;
    return next == comm_.rank_count;
  };
  for (;;) {
    comm_.look(&wait);
    if (all_have_come()) break;
    // A peer may need this rank's messages before it can come here.
    mxs_status status = comm_.queue.idle() ? comm_.check() : comm_.progress(&wait.more);
    if (status == MXS_OK) status = comm_.pause(&wait, next, "agreement");
    // Who has it all may give up, or end, right behind it: then this rank, which was about to see it, has it as well.
    if (status != MXS_OK && !all_have_come()) return status;
  }
  for (int rank = 0; rank < comm_.rank_count; ++rank) {
    const Board::Slot &slot = board(rank).slots[number % 2];
    if (slot.use != use) return comm_.fail(other_use(rank, slot.use, comm_.rank, use));
    if (slot.bytes != bytes)
      return comm_.fail(set_error(MXS_MISMATCH, "rank %d gave %llu bytes to an agreement, rank %d gave %zu: all ranks "
                                  "must make the same calls in the same order", rank,
                                  static_cast<unsigned long long>(slot.bytes), comm_.rank, bytes));
    if (slot.history != own.history) return comm_.fail(other_history(rank, comm_.rank));
    std::memcpy(static_cast<std::byte *>(target) + static_cast<size_t>(rank) * bytes, slot.data, bytes);
  }
  return MXS_OK;
}

// ---- in messages ----

class MessageAgreement final : public Operation {
 public:
  explicit MessageAgreement(Comm &comm)
      : comm_(comm), landing_(static_cast<size_t>(comm.rank_count) * stride),
        sent_before_(static_cast<size_t>(comm.rank_count)), here_(static_cast<size_t>(comm.rank_count)) {}

  // The source is copied: a peer may read it after this rank has gone on.
  void prepare(const void *source, size_t bytes, Comm::Use use) {
    const Head head = {comm_.queue.history(), use};
    std::memcpy(landing(comm_.rank), &head, sizeof head);
    std::memcpy(landing(comm_.rank) + sizeof head, source, bytes);
    bytes_ = bytes + sizeof head;
  }
  const std::byte *result(int rank) const {
    return landing_.data() + static_cast<size_t>(rank) * stride + sizeof(Head);
  }
  // MXS_MISMATCH if a rank had started other operations before, or agrees about something else.
  mxs_status compare_histories() const;

  mxs_status begin(uint64_t sequence) override;
  mxs_status advance(Turn *turn) override;
  bool uses_messages() const override { return true; }
  int kind() const override { return MXS_AGREE; }
  uint64_t signature() const override { return bytes_; }
  int waits_for() const override { return waits_for_; }
  const char *name() const override { return "agreement"; }

 private:
  // A message: its head, then what the rank gives.
  struct Head {
    uint64_t history;
    Comm::Use use;
  };
  static constexpr size_t stride = Comm::agreement_bytes_max + sizeof(Head);
  static_assert(stride <= agreement_message_bytes_max);
  std::byte *landing(int rank) { return landing_.data() + static_cast<size_t>(rank) * stride; }

  Comm &comm_;
  std::vector<std::byte> landing_;
  std::vector<uint64_t> sent_before_;
  std::vector<char> here_;
  size_t bytes_ = 0;
  uint64_t tag_ = 0;
  int waits_for_ = -1;
};

mxs_status MessageAgreement::begin(uint64_t sequence) {
  tag_ = MessageTag::first(MXS_AGREE, sequence, bytes_);
  for (int step = 1; step < comm_.rank_count; ++step) {
    const int peer = (comm_.rank + step) % comm_.rank_count;
    const Route &route = comm_.routes[static_cast<size_t>(peer)];
    here_[static_cast<size_t>(peer)] = 0;
    sent_before_[static_cast<size_t>(peer)] = route.transport->sent(route.link, peer, lane());
    mxs_status status = route.transport->receive(route.link, peer, lane(), landing(peer), stride);
    if (status == MXS_OK) status = route.transport->send(route.link, peer, lane(), tag_, landing(comm_.rank), bytes_);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

mxs_status MessageAgreement::advance(Turn *turn) {
  waits_for_ = -1;
  bool all_sent = true;
  for (int peer = 0; peer < comm_.rank_count; ++peer) {
    if (peer == comm_.rank) continue;
    const Route &route = comm_.routes[static_cast<size_t>(peer)];
    char &here = here_[static_cast<size_t>(peer)];
    if (!here) {
      const Arrival *arrival = route.transport->arrived(route.link, peer, lane());
      if (!arrival) {
        if (waits_for_ < 0) waits_for_ = peer;
        continue;
      }
      if (arrival->tag != tag_ || arrival->bytes != bytes_)
        return set_error(MXS_MISMATCH, "rank %d is in another call than rank %d, which is in an agreement of %zu "
                         "bytes: all ranks must make the same calls in the same order", peer, comm_.rank, bytes_);
      if (arrival->data != landing(peer)) std::memcpy(landing(peer), arrival->data, bytes_);
      route.transport->retire(route.link, peer, lane());
      here = 1;
    }
    all_sent &= route.transport->sent(route.link, peer, lane()) > sent_before_[static_cast<size_t>(peer)];
  }
  turn->complete = waits_for_ < 0 && all_sent;
  return MXS_OK;
}

mxs_status MessageAgreement::compare_histories() const {
  Head own;
  std::memcpy(&own, result(comm_.rank) - sizeof own, sizeof own);
  for (int rank = 0; rank < comm_.rank_count; ++rank) {
    Head head;
    std::memcpy(&head, result(rank) - sizeof head, sizeof head);
    if (head.use != own.use) return other_use(rank, head.use, comm_.rank, own.use);
    if (head.history != own.history) return other_history(rank, comm_.rank);
  }
  return MXS_OK;
}

mxs_status Agreement::run_in_messages(const void *source, void *target, size_t bytes, uint64_t timeout_ns,
                                      const char *what, Comm::Use use) {
  messages_->prepare(source, bytes, use);
  uint64_t sequence = 0;
  mxs_status status = comm_.queue.enqueue(messages_.get(), &sequence);
  if (status != MXS_OK) return status;
  const TracedAgreement traced(comm_, what, sequence, bytes);
  status = comm_.wait(sequence, timeout_ns, MXS_AGREE, traced.ticket());
  if (status != MXS_OK) return status;
  status = messages_->compare_histories();
  if (status != MXS_OK) return comm_.fail(status);
  for (int rank = 0; rank < comm_.rank_count; ++rank)
    std::memcpy(static_cast<std::byte *>(target) + static_cast<size_t>(rank) * bytes, messages_->result(rank), bytes);
  return MXS_OK;
}

// ---- both ----

Agreement::Agreement(Comm &comm)
    : comm_(comm), scratch_(static_cast<size_t>(comm.rank_count) * Comm::agreement_bytes_max) {
  if (comm.domain || comm.rank_count == 1) return;
  messages_ = std::make_unique<MessageAgreement>(comm);
  Operation::Label label;
  label.told = false;
  messages_->set_label(label);
}

Agreement::~Agreement() = default;

mxs_status Agreement::open() {
  if (!comm_.local) return MXS_OK;
  const mxs_status status = comm_.local->share(sizeof(Board), "agreement", &boards_);
  if (status != MXS_OK) return status;
  // Touched by its owner; a new file is zero, and zero is "no agreement, no failure yet".
  return touch(boards_.at(comm_.local->local_rank()), {{0, sizeof(Board)}}, nullptr);
}

mxs_status Agreement::run(const void *source, void *target, size_t bytes, uint64_t timeout_ns, const char *what,
                          Comm::Use use) {
  if (comm_.rank_count == 1) {
    std::memcpy(target, source, bytes);
    return MXS_OK;
  }
  if (!comm_.domain) return run_in_messages(source, target, bytes, timeout_ns, what, use);
  const uint64_t begin_ns = now_ns();
  const mxs_status status = run_in_memory(source, target, bytes, timeout_ns, what, use);
  comm_.counter(MXS_AGREE).wait_ns.fetch_add(now_ns() - begin_ns, std::memory_order_relaxed);
  return status;
}

mxs_status Comm::agree(const void *source, void *target, size_t bytes, uint64_t timeout, const char *what, Use use) {
  const mxs_status status = check();
  if (status != MXS_OK) return status;
  if (bytes == 0 || bytes > agreement_bytes_max)
    return set_error(MXS_INTERNAL, "an agreement of %zu bytes, not from 1 to %zu", bytes, agreement_bytes_max);
  Counter &count = counter(MXS_AGREE);
  const uint64_t peer_count = static_cast<uint64_t>(rank_count - 1);
  count.calls.fetch_add(1, std::memory_order_relaxed);
  count.bytes_out.fetch_add(bytes * peer_count, std::memory_order_relaxed);
  count.bytes_in.fetch_add(bytes * peer_count, std::memory_order_relaxed);
  return agreement_->run(source, target, bytes, timeout, what, use);
}

mxs_status Comm::barrier(uint64_t timeout) {
  const char here = 1;
  return agree(&here, agreement_->scratch(), sizeof here, timeout, "barrier", Use::barrier);
}

namespace {

// all: `count` numbers of each rank.
template <class Number, class Memory>
void add_ranks(const std::byte *all, int rank_count, Memory *sums, uint64_t count) {
  static_assert(sizeof(Number) == sizeof(Memory));
  for (uint64_t i = 0; i < count; ++i) {
    Number total{};
    for (int rank = 0; rank < rank_count; ++rank) {
      Number value;
      std::memcpy(&value, all + (static_cast<uint64_t>(rank) * count + i) * sizeof value, sizeof value);
      total = rank == 0 ? value : total + value;
    }
    std::memcpy(&sums[i], &total, sizeof total);
  }
}

}  // namespace

mxs_status Comm::sum(double *values, uint64_t count, uint64_t timeout) {
  const mxs_status status = agree(values, agreement_->scratch(), count * sizeof *values, timeout, "sum", Use::sum);
  if (status == MXS_OK) add_ranks<double>(agreement_->scratch(), rank_count, values, count);
  return status;
}

mxs_status Comm::sum(int64_t *words, uint64_t count, uint64_t timeout) {
  const mxs_status status =
      agree(words, agreement_->scratch(), count * sizeof *words, timeout, "sum", Use::sum_words);
  if (status == MXS_OK) add_ranks<uint64_t>(agreement_->scratch(), rank_count, words, count);
  return status;
}

mxs_status settle_over_ranks(Comm &comm, mxs_status own, const char *what, uint64_t timeout_ns) {
  struct Outcome {
    mxs_status status;
    char sentence[508];
  };
  Outcome outcome{};
  outcome.status = own;
  if (own != MXS_OK) std::strncpy(outcome.sentence, last_error_text(), sizeof outcome.sentence - 1);
  std::vector<Outcome> outcomes(static_cast<size_t>(comm.rank_count));
  const mxs_status status =
      comm.agree(&outcome, outcomes.data(), sizeof outcome, timeout_ns, "agreement", Comm::Use::settle);
  if (own != MXS_OK) return set_error(own, "%s", outcome.sentence);
  if (status != MXS_OK) return status;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    Outcome &other = outcomes[rank];
    if (other.status == MXS_OK) continue;
    other.sentence[sizeof other.sentence - 1] = '\0';
    return set_error(other.status, "%s failed on rank %zu: %s", what, rank, other.sentence);
  }
  return MXS_OK;
}

// The rank that is named differs from what most ranks passed.
mxs_status compare_over_ranks(Comm &comm, uint64_t hash, const char *what) {
  std::vector<uint64_t> hashes(static_cast<size_t>(comm.rank_count));
  const mxs_status status = comm.agree(&hash, hashes.data(), sizeof hash, 0, "agreement", Comm::Use::compare);
  if (status != MXS_OK) return status;
  std::vector<uint64_t> sorted = hashes;
  std::sort(sorted.begin(), sorted.end());
  uint64_t common = sorted[0];
  ptrdiff_t most = 0;
  for (auto begin = sorted.begin(); begin != sorted.end();) {
    const auto end = std::upper_bound(begin, sorted.end(), *begin);
    if (end - begin > most) {
      most = end - begin;
      common = *begin;
    }
    begin = end;
  }
  for (int rank = 0; rank < comm.rank_count; ++rank)
    if (hashes[static_cast<size_t>(rank)] != common)
      return set_error(MXS_MISMATCH, "rank %d passes something else to %s than %td of %d ranks do; all must pass the "
                       "same", rank, what, most, comm.rank_count);
  return MXS_OK;
}

mxs_status gather_over_ranks(Comm &comm, const std::vector<std::byte> &blob,
                             std::vector<std::vector<std::byte>> *blobs) {
  const size_t count = static_cast<size_t>(comm.rank_count);
  const uint64_t own_bytes = blob.size();
  std::vector<uint64_t> sizes(count);
  mxs_status status = comm.agree(&own_bytes, sizes.data(), sizeof own_bytes, 0);
  if (status != MXS_OK) return status;
  const uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::vector<std::byte>> result(count);
  std::vector<std::byte> pieces(count * Comm::agreement_bytes_max);
  for (uint64_t offset = 0; offset < longest; offset += Comm::agreement_bytes_max) {
    std::byte piece[Comm::agreement_bytes_max] = {};
    if (offset < own_bytes)
      std::memcpy(piece, blob.data() + offset, std::min<uint64_t>(sizeof piece, own_bytes - offset));
    status = comm.agree(piece, pieces.data(), sizeof piece, 0);
    if (status != MXS_OK) return status;
    for (size_t rank = 0; rank < count; ++rank) {
      if (offset >= sizes[rank]) continue;
      const auto begin = pieces.begin() + static_cast<ptrdiff_t>(rank * sizeof piece);
      const uint64_t bytes = std::min<uint64_t>(sizeof piece, sizes[rank] - offset);
      result[rank].insert(result[rank].end(), begin, begin + static_cast<ptrdiff_t>(bytes));
    }
  }
  *blobs = std::move(result);
  return MXS_OK;
}

}  // namespace mxs
