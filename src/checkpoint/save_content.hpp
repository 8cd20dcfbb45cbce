// SPDX-License-Identifier: Apache-2.0
// What one rank writes in a save: files, and where in memory each of its pieces lies.
//
// Collected from units and optimizer, which then may change no more until the bytes are written; or until they have
// been copied (take_snapshot), after which nothing here refers to them.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/filing.hpp"
#include "checkpoint/io_file.hpp"
#include "checkpoint/save.hpp"

namespace mxs {

struct SaveSpan {
  const std::byte *data = nullptr;
  uint64_t bytes = 0;
  bool on_device = false;
};

// Of an array: a piece that this rank writes.
struct OwnPiece {
  size_t array = 0, piece = 0;   // within the file's arrays, and the array's pieces
  std::vector<SaveSpan> spans;   // one after the other
};

// A file that this rank writes in.
struct OwnFile {
  FiledFile filed;
  std::vector<OwnPiece> pieces;  // by offset
};

struct SaveContent {
  int rank = 0;
  std::vector<OwnFile> files;
  uint64_t bytes = 0;               // that this rank writes, with headers
  std::string user;
  std::vector<std::string> common;  // rank 0: files that must be there, whoever writes them
  Manifest manifest;                // rank 0: all but user, files and arrays
  Device *device = nullptr;         // of spans that are there

  IoMemory snapshot;
  uint64_t snapshot_bytes = 0;
};

// Local. The units have been checked: all of a plan, idle.
mxs_status collect_content(const std::vector<Unit *> &units, const Optimizer *optimizer, const SaveSettings &settings,
                           SaveContent *content);

// Copies all that lies elsewhere. MXS_OUT_OF_MEMORY. In checkpoint/snapshot.cpp.
mxs_status take_snapshot(SaveContent *content);

}  // namespace mxs
