// SPDX-License-Identifier: Apache-2.0
#include "optimizer/backup.hpp"

#include <cstdlib>
#include <cstring>

#include "base/arithmetic.hpp"
#include "base/status.hpp"

namespace mxs {

mxs_status Backup::create(std::unique_ptr<Backup> *backup, const MakeExchange &make, const Topology &topology,
                          int rank, PackedRanks packed, std::vector<Live> live) {
  std::unique_ptr<Backup> made(new Backup);
  made->rank_ = rank;
  made->packed_ = std::move(packed);
  made->live_ = std::move(live);
  made->wards_ = wards_of(topology, rank);
  if (!made->alone()) {
    const mxs_status status = made->make_exchange(make, topology);
    if (status != MXS_OK) return status;
  }
  *backup = std::move(made);
  return MXS_OK;
}

// Memory last: a rank that has none has helped the others to make the exchange, and the caller tells them of it.
mxs_status Backup::make_exchange(const MakeExchange &make, const Topology &topology) {
  std::vector<Segment> sources, targets;
  uint64_t offset = 0;
  for (int rank = 0; rank < packed_.rank_count(); ++rank) {
    const uint64_t bytes = packed_.of(rank).bytes;
    if (bytes == 0) continue;
    sources.push_back({rank, offset, bytes});
    targets.push_back({keeper_of(topology, rank), offset, bytes});
    offset += bytes;
  }
  Layout source, target;
  mxs_status status = make_layout(std::move(sources), packed_.rank_count(), 1, &source);
  if (status == MXS_OK) status = make_layout(std::move(targets), packed_.rank_count(), 1, &target);
  if (status == MXS_OK) status = make(&exchange_, source, target);
  return status == MXS_OK ? take_memory() : status;
}

// Touched, so that all pages are taken now.
mxs_status Backup::take_memory() {
  own_bytes_ = packed_.of(rank_).bytes;
  for (const int ward : wards_) wards_bytes_ += packed_.of(ward).bytes;
  memory_bytes_ = 2 * (own_bytes_ + wards_bytes_);
  if (memory_bytes_ == 0) return MXS_OK;
  auto *const taken = static_cast<std::byte *>(std::aligned_alloc(backup_alignment, memory_bytes_));
  if (!taken)
    return set_error(MXS_OUT_OF_MEMORY, "rank %d has no %llu bytes for its backup: two copies of the %llu bytes that "
                     "it owns, and two of the %llu that it keeps for others", rank_,
                     static_cast<unsigned long long>(memory_bytes_), static_cast<unsigned long long>(own_bytes_),
                     static_cast<unsigned long long>(wards_bytes_));
  memory_ = std::shared_ptr<std::byte>(taken, [](std::byte *memory) { std::free(memory); });
  std::memset(taken, 0, memory_bytes_);
  std::byte *next = taken;
  for (Place &place : places_) {
    place.own = next;
    place.wards = next + own_bytes_;
    next += own_bytes_ + wards_bytes_;
  }
  return MXS_OK;
}

Backup::~Backup() {
  if (in_flight_ && exchange_->wait() != MXS_OK) exchange_->keep(std::move(memory_));
}

void Backup::pack(std::byte *copy) const {
  const std::vector<PackedPiece> &pieces = packed_.of(rank_).pieces;
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::memcpy(copy + pieces[i].values_offset, live_[i].values, pieces[i].values_bytes);
    if (pieces[i].state) std::memcpy(copy + pieces[i].state_offset, live_[i].state, pieces[i].state->bytes);
  }
}

mxs_status Backup::begin(uint64_t step_number, bool in_disorder) {
  if (alone()) return MXS_OK;
  // A step's agreement has waited for it; a recovery into an optimizer that has just stepped has not.
  const mxs_status before = finish();
  if (before != MXS_OK) return before;
  const uint64_t number = ++number_;
  Place &place = place_of(number);
  place.own_tag = place.wards_tag = BackupTag();
  if (own_bytes_) {
    BackupHead head;
    head.number = number;
    head.step_number = step_number;
    head.disorder = in_disorder;
    std::memcpy(place.own, &head, sizeof head);
    pack(place.own);
  }
  if (!in_disorder) place.own_tag = {number, step_number};
  place.wards_tag.step_number = step_number;  // complete when its number is set
  const mxs_status status = exchange_->start(place.own, place.wards);
  in_flight_ = status == MXS_OK;
  return status;
}

// Wards in disorder have nothing here that would be good for anything.
mxs_status Backup::read_heads(const Place &place, uint64_t *step_number, bool *in_disorder) const {
  const std::byte *copy = place.wards;
  for (const int ward : wards_) {
    if (packed_.of(ward).bytes == 0) continue;
    BackupHead head;
    std::memcpy(&head, copy, sizeof head);
    copy += packed_.of(ward).bytes;
    if (head.number != number_ || head.step_number != *step_number)
      return set_error(MXS_MISMATCH, "rank %d keeps backup %llu of step %llu, but rank %d has sent backup %llu of step "
                       "%llu: the ranks have done different things", rank_,
                       static_cast<unsigned long long>(number_), static_cast<unsigned long long>(*step_number), ward,
                       static_cast<unsigned long long>(head.number), static_cast<unsigned long long>(head.step_number));
    *in_disorder = *in_disorder || head.disorder != 0;
  }
  return MXS_OK;
}

mxs_status Backup::finish() {
  if (!in_flight_) return MXS_OK;
  const mxs_status status = exchange_->wait();
  return status == MXS_OK ? arrived() : status;
}

mxs_status Backup::arrived() {
  in_flight_ = false;
  Place &place = place_of(number_);
  bool in_disorder = false;
  const mxs_status status = read_heads(place, &place.wards_tag.step_number, &in_disorder);
  if (status != MXS_OK) return status;
  if (!in_disorder) place.wards_tag.number = number_;
  kept_ = number_;
  return MXS_OK;
}

void Backup::forget() { forgotten_ = number_; }

std::array<BackupTag, 2> Backup::own() const {
  std::array<BackupTag, 2> tags;
  for (size_t i = 0; i < 2; ++i)
    if (places_[i].own_tag.number > forgotten_) tags[i] = places_[i].own_tag;
  return tags;
}

std::array<BackupTag, 2> Backup::of_wards() const {
  std::array<BackupTag, 2> tags;
  for (size_t i = 0; i < 2; ++i)
    if (places_[i].wards_tag.number > forgotten_) tags[i] = places_[i].wards_tag;
  return tags;
}

const std::byte *Backup::own_copy(uint64_t number) const {
  return place_of(number).own_tag.number == number ? place_of(number).own : nullptr;
}

const std::byte *Backup::ward_copy(int ward, uint64_t number) const {
  const std::byte *copy = place_of(number).wards;
  if (place_of(number).wards_tag.number != number) return nullptr;
  for (const int each : wards_) {
    if (each == ward) return copy;
    copy += packed_.of(each).bytes;
  }
  return nullptr;
}

}  // namespace mxs
