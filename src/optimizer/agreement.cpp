// SPDX-License-Identifier: Apache-2.0
// The agreement of a step: 392 bytes of every rank, in one exchange.
//
// Squares are summed in fp64 over chunks of 4,096 elements, counted from the beginning of each placement. A placement
// is a whole tensor, a block, or a flat share that begins at a multiple of 4,096 elements, so the chunks of a tensor
// are the same in every world and plan. Chunk sums are added exactly, whatever the order.
//
// Over the caller's sum (units of several comms) the same travels as words that are added: the sums of hashes and of
// step numbers are compared with count * own, and the ranks that found infinities are counted in fields of 8 bits.
//
// A rank that could not update a tensor in a step before says so here, so that all ranks refuse alike instead of
// waiting for one that gave up. So does one that lacks a gradient, where the step takes that as an error.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/hash.hpp"
#include "base/status.hpp"
#include "optimizer/agreement.hpp"
#include "optimizer/optimizer.hpp"

namespace mxs {

float clip_factor(double norm, float clip_norm) {
  if (!(clip_norm > 0)) return 1.0f;
  return static_cast<float>(std::min(1.0, static_cast<double>(clip_norm) / (norm + 1e-6)));
}

// Over a caller's sum, which goes over all replicas, one of them counts in the norm. They have equal bits.
AgreementPart Optimizer::own_part() const {
  AgreementPart part;
  part.step_number = step_number_;
  part.values_hash = values_hash_;
  if (!broken_.empty()) {
    part.broken_rank = comm_.rank;
    part.broken_tensor = broken_tensor_;
  }
  part.backup_kept = backup_ ? backup_->kept() : 0;
  part.backup_is_old = changed_since_backup();
  for (size_t at = 0; missing_is_error_ && at < units_.size() && part.missing_rank < 0; ++at) {
    const int tensor = units_[at]->first_missing();
    if (tensor < 0) continue;
    part.missing_rank = comm_.rank;
    part.missing_tensor = static_cast<int64_t>(at) << 32 | tensor;
  }
  for (const OptimizedPiece &piece : pieces_) {
    ExactSum again;
    const bool counts = comm_.gather || piece.unit->first_replica();
    if (!add_squares(piece.owned->gradient, MXS_F32, piece.owned->element_count, gradient_scale_,
                     counts ? &part.squares : &again))
      part.found_inf_rank = comm_.rank;
  }
  return part;
}

mxs_status Optimizer::exchange(const AgreementPart &mine, AgreementPart *total) {
  mxs_status status = comm_.gather(&mine, gathered_.data(), sizeof mine);
  if (status != MXS_OK) return status;
  for (int rank = 0; rank < comm_.rank_count; ++rank) {
    AgreementPart part;
    std::memcpy(static_cast<void *>(&part), gathered_.data() + static_cast<size_t>(rank) * sizeof part, sizeof part);
    if (rank == 0) {
      *total = part;
      continue;
    }
    if (part.step_number != total->step_number)
      return set_error(MXS_MISMATCH, "rank %d has done %llu steps, but rank 0 %llu; nothing changed", rank,
                       static_cast<unsigned long long>(part.step_number),
                       static_cast<unsigned long long>(total->step_number));
    if (part.values_hash != total->values_hash)
      return set_error(MXS_MISMATCH,
                       "rank %d gives other group values, gradient_scale, clip_norm or missing than rank 0; nothing "
                       "changed", rank);
    if (part.backup_kept != total->backup_kept)
      return set_error(MXS_INTERNAL, "rank %d keeps backup %llu, but rank 0 backup %llu; nothing changed", rank,
                       static_cast<unsigned long long>(part.backup_kept),
                       static_cast<unsigned long long>(total->backup_kept));
    total->add(part);
  }
  if (total->broken_rank >= 0) return stopped(*total);
  return total->missing_rank < 0 ? MXS_OK : missing(*total);
}

mxs_status Optimizer::missing(const AgreementPart &total) const {
  constexpr char advice[] = "nothing changed and the sums are kept: give it, let it count as zero (missing: "
                            "MXS_MISSING_ZERO, in Python 'zero'), or clear";
  const auto rank = static_cast<long long>(total.missing_rank);
  if (total.missing_tensor < 0)
    return set_error(MXS_NOT_OPEN,
                     "rank %lld has not given a gradient since the step before, as its own error says; %s", rank,
                     advice);
  const Unit &unit = *units_[static_cast<size_t>(total.missing_tensor >> 32)];
  const PlannedTensor &tensor = unit.plan().tensors[static_cast<size_t>(total.missing_tensor & 0xffffffff)];
  return set_error(MXS_NOT_OPEN, "rank %lld has not given the gradient of tensor \"%.200s\" (unit %d) since the step "
                   "before; %s", rank, tensor.name.c_str(), unit.index(), advice);
}

// 0 if this rank has no such tensor.
uint64_t Optimizer::hash_of(int64_t tensor) const {
  const size_t at = static_cast<size_t>(tensor >> 32);
  const uint64_t number = static_cast<uint64_t>(tensor & 0xffffffff);
  if (tensor < 0 || at >= units_.size() || number >= units_[at]->plan().tensors.size()) return 0;
  return Fingerprint().add(units_[at]->plan().fingerprint).add(static_cast<uint64_t>(tensor)).value();
}

// Over a caller's sum the other ranks know that there is one, not which.
mxs_status Optimizer::stopped(const AgreementPart &total) const {
  constexpr char advice[] = "nothing changed; load weights and state again into new units";
  if (!broken_.empty()) return set_error(MXS_INTERNAL, "%s; %s", broken_.c_str(), advice);
  const size_t unit = static_cast<size_t>(total.broken_tensor >> 32);
  if (total.broken_tensor < 0 || unit >= units_.size())
    return set_error(MXS_INTERNAL, "some rank left a tensor out of a step before, as its own error says; %s", advice);
  const size_t tensor = static_cast<size_t>(total.broken_tensor & 0xffffffff);
  return set_error(MXS_INTERNAL, "rank %lld left tensor \"%.200s\" out of a step before, as its own error says; %s",
                   static_cast<long long>(total.broken_rank), units_[unit]->plan().tensors[tensor].name.c_str(),
                   advice);
}

// All replicas have the same sums, so what their shard groups agreed on must be the same; and a rank of another replica
// that has failed in its own agreement is heard of here.
mxs_status Optimizer::confirm(mxs_status own, const AgreementPart &total) {
  ReplicaWord mine{};
  mine.total = total;
  mine.status = own;
  if (own != MXS_OK) std::strncpy(mine.sentence, last_error_text(), sizeof mine.sentence - 1);
  const mxs_status status = comm_.gather_replicas(&mine, replica_words_.data(), sizeof mine);
  if (own != MXS_OK) return set_error(own, "%s", mine.sentence);
  if (status != MXS_OK) return status;
  const AgreementPart &first = replica_words_[0].total;
  for (size_t replica = 0; replica < replica_words_.size(); ++replica) {
    ReplicaWord &word = replica_words_[replica];
    word.sentence[sizeof word.sentence - 1] = '\0';
    if (word.status != MXS_OK) return set_error(word.status, "replica %zu: %s", replica, word.sentence);
    const AgreementPart &other = word.total;
    if (other.step_number != first.step_number || other.values_hash != first.values_hash)
      return set_error(MXS_MISMATCH, "replica %zu has done another number of steps than replica 0, or gives other "
                       "group values, gradient_scale, clip_norm or missing; nothing changed", replica);
    if (other.found_inf_rank != first.found_inf_rank ||
        std::memcmp(other.squares.words, first.squares.words, sizeof first.squares.words) != 0)
      return set_error(MXS_MISMATCH, "the summed gradients of replicas 0 and %zu differ: one was changed by its caller "
                       "alone; nothing changed", replica);
  }
  return MXS_OK;
}

namespace {

// Words of exchange_by_sum.
constexpr size_t word_count_at = MXS_NORM_WORDS, word_steps_at = word_count_at + 1, word_hashes_at = word_count_at + 2,
                 word_found_at = word_count_at + 3, word_broken_at = word_count_at + 4,
                 word_missing_at = word_count_at + 5, word_ranks_at = word_count_at + 6;
constexpr int fields_per_word = 8, field_ranks = 1024;  // higher ranks share the last field
constexpr size_t word_total = word_ranks_at + field_ranks / fields_per_word;

}  // namespace

size_t agreement_words() { return std::max<size_t>(word_total, 2 * field_ranks); }

// A second sum, only if something is missing: of each rank that lacks a gradient, 1 << count_shift plus its tensor, and
// a hash of it. Ranks of several comms may share a number, and their units may be others than this rank's: what the
// hash doesn't confirm is not named.
mxs_status Optimizer::find_missing_by_sum(const AgreementPart &mine, AgreementPart *total) {
  constexpr int count_shift = 52;
  std::fill(summed_.begin(), summed_.end(), 0);
  if (mine.missing_rank >= 0) {
    const auto own = static_cast<size_t>(std::min<int64_t>(mine.missing_rank, field_ranks - 1));
    summed_[own] = (int64_t{1} << count_shift) + mine.missing_tensor;
    summed_[field_ranks + own] = static_cast<int64_t>(hash_of(mine.missing_tensor));
  }
  const mxs_status status = comm_.sum(summed_.data(), 2 * field_ranks);
  if (status != MXS_OK) return status;
  const int64_t *const words = summed_.data();
  const int64_t *const first = std::find_if(words, words + field_ranks - 1, [](int64_t word) { return word != 0; });
  const int64_t count = *first >> count_shift;
  total->missing_rank = first - words;
  total->missing_tensor = count > 0 ? (*first & ((int64_t{1} << count_shift) - 1)) / count : -1;
  const uint64_t hashes = static_cast<uint64_t>(first[field_ranks]);
  if (static_cast<uint64_t>(count) * hash_of(total->missing_tensor) == hashes) return missing(*total);
  total->missing_tensor = -1;
  return missing(mine.missing_rank >= 0 ? mine : *total);
}

mxs_status Optimizer::exchange_by_sum(const AgreementPart &mine, AgreementPart *total) {
  std::fill(summed_.begin(), summed_.end(), 0);
  std::copy_n(mine.squares.words, MXS_NORM_WORDS, summed_.begin());
  summed_[word_count_at] = 1;
  summed_[word_steps_at] = static_cast<int64_t>(mine.step_number);
  summed_[word_hashes_at] = static_cast<int64_t>(mine.values_hash >> 1);
  summed_[word_broken_at] = mine.broken_rank >= 0;
  summed_[word_missing_at] = mine.missing_rank >= 0;
  if (mine.found_inf_rank >= 0) {
    const int rank = static_cast<int>(std::min<int64_t>(mine.found_inf_rank, field_ranks - 1));
    summed_[word_found_at] = 1;
    summed_[word_ranks_at + static_cast<size_t>(rank / fields_per_word)] =
        static_cast<int64_t>(uint64_t{1} << (8 * (rank % fields_per_word)));
  }
  const mxs_status status = comm_.sum(summed_.data(), word_total);
  if (status != MXS_OK) return status;
  // Unsigned: sums of hashes wrap.
  const auto word = [&](size_t at) { return static_cast<uint64_t>(summed_[at]); };
  const uint64_t count = word(word_count_at);
  if (word(word_steps_at) != count * mine.step_number)
    return set_error(MXS_MISMATCH, "ranks have done different numbers of steps, this one %llu; nothing changed",
                     static_cast<unsigned long long>(mine.step_number));
  if (word(word_hashes_at) != count * (mine.values_hash >> 1))
    return set_error(MXS_MISMATCH, "ranks give different group values, gradient_scale, clip_norm or missing, or have "
                     "made their optimizers with different options; nothing changed");
  *total = mine;
  if (word(word_broken_at) > 0) return stopped(*total);
  if (word(word_missing_at) > 0) return find_missing_by_sum(mine, total);
  std::copy_n(summed_.begin(), MXS_NORM_WORDS, total->squares.words);
  total->found_inf_rank = -1;
  for (int rank = field_ranks - 1; rank >= 0 && word(word_found_at) > 0; --rank)
    if ((word(word_ranks_at + static_cast<size_t>(rank / fields_per_word)) >> (8 * (rank % fields_per_word))) & 0xff)
      total->found_inf_rank = rank;
  return MXS_OK;
}

// Beyond it squares of gradients that are finite need not be. As steppers alone.
constexpr double norm_max = 0x1p63;

bool Optimizer::agreement_holds() const {
  return agreed_ && agreed_hash_ == values_hash_ && agreed_operations_ == comm_.operations();
}

mxs_status Optimizer::reach_agreement() {
  agreed_ = false;
  if (backup_) {
    const mxs_status status = backup_->finish();
    if (status != MXS_OK) return status;
  }
  for (Unit *unit : units_) {
    const mxs_status status = unit->wait_reduce(0);
    if (status != MXS_OK) return status;
  }
  for (Unit *unit : units_) unit->end_views();
  AgreementPart total;
  const AgreementPart mine = own_part();
  mxs_status status = comm_.gather ? exchange(mine, &total) : exchange_by_sum(mine, &total);
  if (comm_.gather && comm_.gather_replicas) status = confirm(status, total);
  if (status != MXS_OK) return status;

  conclude(total);
  return MXS_OK;
}

void Optimizer::conclude(const AgreementPart &total) {
  verdict_ = MXS_VERDICT_INIT;
  verdict_.found_inf_rank = static_cast<int32_t>(total.found_inf_rank);
  const double norm = std::sqrt(total.squares.value());
  verdict_.skipped = total.found_inf_rank >= 0 || norm > norm_max;
  verdict_.step_number = step_number_ + (verdict_.skipped ? 0 : 1);
  verdict_.norm = verdict_.skipped ? HUGE_VAL : norm;
  verdict_.clip_factor = verdict_.skipped ? 1.0f : clip_factor(verdict_.norm, clip_norm_);
  backup_is_old_ = total.backup_is_old != 0;
  agreed_ = true;
  agreed_hash_ = values_hash_;
  agreed_operations_ = comm_.operations();
}

}  // namespace mxs
