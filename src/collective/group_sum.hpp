// SPDX-License-Identifier: Apache-2.0
// Group sum: fp32 sums over some ranks of a comm, such as those that share a matrix. A reduce in rank order and a
// gather, through buffers that are made once.
//
//   values -> source buffer -> reduce, each of the group its own share -> gather -> values
//
// Sums are ((g0 + g1) + g2) + ... from zero in the order of members, so all of the group get equal bits, whatever the
// transport.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collective/collective.hpp"
#include "collective/comm.hpp"

namespace mxs {

class GroupSum {
 public:
  // Collective over the parent, also for ranks that are no members: their *made stays empty. members: ascending, two or
  // more. The parent outlives it. values_max: the most numbers of one sum, the same on all members.
  static mxs_status create(std::unique_ptr<GroupSum> *made, Comm &parent, const std::vector<int> &members,
                           uint64_t values_max);
  ~GroupSum();

  // Collective over the group, in place. No allocation. A failure fails the group's comm, and the parent with it.
  mxs_status sum(float *values, uint64_t count);

  int member() const { return comm_->rank; }  // of this rank, counted from 0
  int member_count() const { return comm_->rank_count; }

 private:
  // Sums of one length: a reduce and a gather over the even layout of so many numbers.
  struct Piece {
    uint64_t count = 0;
    Layout layout;
    std::unique_ptr<Collective> reduce, gather;
  };

  explicit GroupSum(Comm &parent) : parent_(parent) {}
  mxs_status build(uint64_t values_max);
  mxs_status build_piece(Piece *piece, uint64_t count);
  mxs_status sum_piece(const Piece &piece, float *values, uint64_t count);

  Comm &parent_;
  std::unique_ptr<Comm> comm_;
  Piece small_, large_;
  void *source_ = nullptr, *target_ = nullptr;
};

}  // namespace mxs
