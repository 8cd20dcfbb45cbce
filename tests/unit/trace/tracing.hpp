// SPDX-License-Identifier: Apache-2.0
// Rings for tests: written by tracers, with times and words as the test says.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>

#include "base/status.hpp"
#include "support/temporary_folder.hpp"
#include "trace/reader.hpp"
#include "trace/ring.hpp"
#include "trace/tracer.hpp"

namespace mxs::test {

struct RingOptions {
  int rank = 0, rank_count = 1;
  uint64_t event_count = 128, comm = 0x1234567890abcdef;
  int64_t clock_offset_ns = 0;
  bool timeline = false;
};

inline std::unique_ptr<Tracer> make_tracer(const std::string &folder, const RingOptions &options = {}) {
  TraceSettings settings;
  settings.ring_folder = folder;
  if (options.timeline) settings.timeline_folder = folder;
  settings.event_count = options.event_count;
  TraceIdentity identity;
  identity.job = 7;
  identity.comm = options.comm;
  identity.rank = options.rank;
  identity.rank_count = options.rank_count;
  identity.clock_offset_ns = options.clock_offset_ns;
  std::unique_ptr<Tracer> tracer;
  return Tracer::create(&tracer, settings, identity) == MXS_OK ? std::move(tracer) : nullptr;
}

inline mxs_status read_text(const std::string &text, const std::string &name, Ring *ring) {
  return read_ring(reinterpret_cast<const std::byte *>(text.data()), text.size(), name, ring);
}

inline Ring ring_at(const std::string &path) {
  Ring ring;
  return read_text(content_of(path), path, &ring) == MXS_OK ? ring : Ring();
}

}  // namespace mxs::test
