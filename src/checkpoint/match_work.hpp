// SPDX-License-Identifier: Apache-2.0
// What the two halves of match share: look-ups, and the first refusal. Each goes on to the end, so that all can be
// told.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/match.hpp"

namespace mxs {

struct MatchWork {
  MatchWork(const OpenedCheckpoint &opened_checkpoint, const LoadRequest &load_request, LoadMatch *result);

  // Of this kind, or no_array.
  size_t find(const std::string &name, mxs_array_kind kind) const;
  // Of the plan that was saved; nullptr: there is none, or no such tensor.
  const PlannedTensor *saved_tensor(const std::string &name) const;
  std::string file_of(const ManifestArray &array) const;
  void refuse(mxs_status status, std::string sentence);  // the first one stays

  const OpenedCheckpoint &opened;
  const LoadRequest &request;
  const Plan &plan;
  LoadMatch *match;
  std::unordered_map<std::string_view, const PlannedTensor *> saved_tensors;
  mxs_status refusal = MXS_OK;
  std::string refusal_sentence;
};

// After weights: needs tensors and their saved names.
void match_state(MatchWork *work);

}  // namespace mxs
