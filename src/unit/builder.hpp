// SPDX-License-Identifier: Apache-2.0
// UnitBuilder: what mxs_unit_create does, in five files.
//
//   create.cpp          the order of it all, and what must be equal on all ranks
//   create_lists.cpp    which tensors, sums and owned pieces the unit has
//   create_memory.cpp   files, maps and touching
//   create_device.cpp   the same two in CUDA memory
//   create_ways.cpp     by which way bytes go, and the operations that carry them
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/choice.hpp"
#include "collective/comm.hpp"
#include "plan/memory.hpp"
#include "unit/pool.hpp"
#include "unit/unit.hpp"

namespace mxs {

class UnitBuilder {
 public:
  UnitBuilder(Comm &comm, const Plan &plan, int index, const mxs_unit_options &options)
      : comm_(comm), given_plan_(plan), index_(index), options_(options) {}

  mxs_status run(std::unique_ptr<Unit> *unit);

 private:
  mxs_status choose();
  MessageOptions gather_options(const Layout &layout) const;
  MessageOptions reduce_options(const Layout &layout, mxs_dtype dtype) const;
  mxs_status choose_gather(const Layout &layout, Choice *choice) const;
  mxs_status choose_reduce(const Layout &layout, mxs_dtype dtype, Choice *choice) const;
  mxs_status prepare();
  mxs_status check_alignment() const;
  mxs_status check_masters() const;
  mxs_status compare();
  void list_tensors();
  void list_groups();
  void list_owned();
  mxs_status share_pool();
  mxs_status share();
  mxs_status build();
  mxs_status make_range();
  void count_masters();
  mxs_status make_masters();
  void make_canaries();
  uint64_t identity() const;
  mxs_status make_gather();
  mxs_status make_reduce(GradientGroup *group);
  mxs_status make_replica_sum();
  mxs_status check_device_options() const;
  mxs_status open_on_device();
  mxs_status check_buffer() const;
  mxs_status build_on_device();
  mxs_status make_device_memory();
  mxs_status make_device_operations();
  mxs_status compare_replicas(mxs_status own);
  mxs_status touch_peers();
  void log_choice() const;
  mxs_status settle(mxs_status own) const;

  const Plan &plan() const { return unit_->pool_->plan; }
  bool on_device() const { return pool_options_.on_device; }
  const PlannedUnit &planned() const { return plan().units[static_cast<size_t>(index_)]; }
  std::byte *file_memory() const { return unit_->region_.at(comm_.local_place()); }

  Comm &comm_;
  const Plan &given_plan_;
  const int index_;
  const mxs_unit_options &options_;
  PoolOptions pool_options_;
  std::string gather_name_, reduce_name_;  // "": MXS_ALGORITHM, else chosen
  int64_t debug_views_ = 0;
  bool mapped_ = false;  // CUDA memory: all ranks' devices map, and all owners' borders allow it
  bool pool_is_new_ = false;
  std::unique_ptr<Unit> unit_;
};

}  // namespace mxs
