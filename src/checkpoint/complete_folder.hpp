// SPDX-License-Identifier: Apache-2.0
// The last of a save, when all arrays are written: index, manifest, companions, commit.
#pragma once

#include <string>

#include "checkpoint/folder.hpp"
#include "checkpoint/io_progress.hpp"
#include "checkpoint/manifest.hpp"

namespace mxs {

// files_from: a folder whose companions come along; "": none. Afterwards the checkpoint is there; on failure the folder
// is still the caller's, to be removed.
mxs_status complete_folder(const Manifest &manifest, const std::string &files_from, IoProgress *progress,
                           PartialFolder *folder);

}  // namespace mxs
