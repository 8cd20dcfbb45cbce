// SPDX-License-Identifier: Apache-2.0
// The pure values behind handles: what a caller's mxs_layout, mxs_topology and mxs_plan hold.
#pragma once

#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layout/layout.hpp"
#include "matrixshard/topology.h"
#include "model/model.hpp"
#include "plan/plan.hpp"
#include "topology/topology.hpp"

struct mxs_layout {
  mxs::Layout value;
};

struct mxs_topology {
  explicit mxs_topology(mxs::Topology topology) : value(std::move(topology)) {
    for (const auto &[algorithm, per_mille] : value.factors)
      factors.push_back({sizeof(mxs_algorithm_factor), per_mille, algorithm.c_str()});
  }
  mxs_topology(const mxs_topology &) = delete;  // factors look into the value
  mxs_topology(mxs_topology &&) = default;

  mxs::Topology value;
  std::vector<mxs_algorithm_factor> factors;
};

struct mxs_plan {
  explicit mxs_plan(mxs::Plan &&plan);  // api/plan.cpp
  mxs_plan(const mxs_plan &) = delete;  // the map looks into the value

  mxs::Plan value;
  std::unordered_map<std::string_view, int32_t> index_of_name;
  std::vector<uint64_t> gather_bound_ns;  // of each unit
};

struct mxs_model {
  explicit mxs_model(mxs::LoadedModel &&model);  // api/model.cpp
  mxs_model(const mxs_model &) = delete;         // tensors look into the value

  mxs::LoadedModel value;
  std::vector<mxs_tensor> tensors;
};
