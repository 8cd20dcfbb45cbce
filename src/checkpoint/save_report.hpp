// SPDX-License-Identifier: Apache-2.0
// Reports: what each rank has written, as a file of the partial folder, from which rank 0 makes the manifest.
//
//   .report-00003.json   {"files": [{"name", "bytes", "header_bytes", "header_hash", "arrays": [{..., "pieces"}]}],
//                         "user": base64}
//
// They are gone before the folder gets its name.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/save_content.hpp"

namespace mxs {

std::string report_name(int rank);  // ".report-00003.json"

// Of files that have been written: pieces of this rank have their hashes.
std::string report_to_json(const SaveContent &content);

// Adds one rank's to the manifest: files and arrays, or pieces of arrays that others have reported, and its user's
// bytes. MXS_INTERNAL: it contradicts what others have reported.
class ReportMerger {
 public:
  explicit ReportMerger(Manifest *manifest) : manifest_(*manifest) {
    manifest_.user.resize(static_cast<size_t>(manifest_.rank_count));
  }
  mxs_status add(int rank, const std::string &text);
  // When all are there: brings files, arrays and pieces into their order, and checks that nothing is missing.
  // common: files that must be there.
  mxs_status finish(const std::vector<std::string> &common);

 private:
  mxs_status add_file(const ManifestFile &file, std::vector<ManifestArray> arrays);

  Manifest &manifest_;
  std::unordered_map<std::string, size_t> file_of_name_, array_of_name_;
};

}  // namespace mxs
