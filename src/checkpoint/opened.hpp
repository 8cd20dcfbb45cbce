// SPDX-License-Identifier: Apache-2.0
// A checkpoint that is open for reading: manifest and headers, found to agree with each other. Or a safetensors model
// without a manifest, from which one is made up: without hashes, plan, step number.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "checkpoint/manifest.hpp"
#include "plan/plan.hpp"

namespace mxs {

struct OpenedCheckpoint {
  OpenedCheckpoint() = default;
  OpenedCheckpoint(const OpenedCheckpoint &) = delete;  // the map looks into the manifest

  std::string path;  // the folder
  bool has_manifest = false;
  Manifest manifest;
  std::unordered_map<std::string_view, size_t> index_of_name;  // of arrays
  // nullptr without a manifest, or where another release has made a plan that this one wouldn't: loads do without.
  std::unique_ptr<Plan> plan;
  std::string plan_fault;  // why there is none, though there is a manifest
  uint64_t hash = 0;           // of all that was read: equal if two ranks have opened the same
  uint64_t bytes = 0;          // of all arrays
};

// See mxs_checkpoint_open.
mxs_status open_checkpoint(const std::string &path, OpenedCheckpoint *opened);

// See mxs_checkpoint_verify. In checkpoint/verify.cpp.
mxs_status verify_checkpoint(const OpenedCheckpoint &opened, const mxs_verify_options &options);

}  // namespace mxs
