// SPDX-License-Identifier: Apache-2.0
// What stands between this program and the library's C interface: a status becomes an exception that carries the
// library's sentence, a handle becomes an owner.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "matrixshard/matrixshard.h"

namespace train {

// A call that has failed; `status` tells whether the ranks that are left can go on.
struct Failure : std::runtime_error {
  Failure(mxs_status its_status, const std::string &sentence) : std::runtime_error(sentence), status(its_status) {}
  mxs_status status;
};

inline void check(mxs_status status, const std::string &what) {
  if (status == MXS_OK) return;
  throw Failure(status, what + ": " + mxs_last_error() + " (" + mxs_status_name(status) + ")");
}

// A comm that is none stands for a process alone.
inline int rank_of(const mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (comm != nullptr) check(mxs_comm_query(comm, &info), "mxs_comm_query");
  return info.rank;
}

inline int rank_count_of(const mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  info.rank_count = 1;
  if (comm != nullptr) check(mxs_comm_query(comm, &info), "mxs_comm_query");
  return info.rank_count;
}

template <class Handle, auto destroy>
struct Destroy {
  void operator()(Handle *handle) const { destroy(&handle); }
};

using CommOwner = std::unique_ptr<mxs_comm, Destroy<mxs_comm, mxs_comm_destroy>>;
using TopologyOwner = std::unique_ptr<mxs_topology, Destroy<mxs_topology, mxs_topology_destroy>>;
using PlanOwner = std::unique_ptr<mxs_plan, Destroy<mxs_plan, mxs_plan_destroy>>;
using LayoutOwner = std::unique_ptr<mxs_layout, Destroy<mxs_layout, mxs_layout_destroy>>;
using CollectiveOwner = std::unique_ptr<mxs_collective, Destroy<mxs_collective, mxs_collective_destroy>>;
using UnitOwner = std::unique_ptr<mxs_unit, Destroy<mxs_unit, mxs_unit_destroy>>;
using OptimizerOwner = std::unique_ptr<mxs_optimizer, Destroy<mxs_optimizer, mxs_optimizer_destroy>>;
using StepperOwner = std::unique_ptr<mxs_stepper, Destroy<mxs_stepper, mxs_stepper_destroy>>;
using OrthogonalizerOwner =
    std::unique_ptr<mxs_orthogonalizer, Destroy<mxs_orthogonalizer, mxs_orthogonalizer_destroy>>;

}  // namespace train
