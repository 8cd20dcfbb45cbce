// SPDX-License-Identifier: Apache-2.0
// Reports of a save, which rank 0 reads from a folder that others can write into: those of two ranks, with a zero byte
// between. A manifest that is made of them must be one that readers take.
#include "checkpoint/save_report.hpp"
#include "fuzz.hpp"
#include "unit/checkpoint/saved_by_hand.hpp"

using namespace mxs;

namespace {

constexpr int rank_count = 2;

Manifest empty_manifest() {
  Manifest manifest = test::small_manifest();
  manifest.rank_count = rank_count;
  manifest.plan = "{}";
  manifest.user.clear();
  manifest.files.clear();
  manifest.arrays.clear();
  return manifest;
}

// What `rank` would report, had it written all its pieces.
std::string report_of(const std::vector<FiledFile> &files, int rank) {
  SaveContent content;
  content.rank = rank;
  content.user = rank == 0 ? "bytes" : "";
  for (const FiledFile &file : files) {
    OwnFile own;
    own.filed = file;
    for (size_t array = 0; array < own.filed.arrays.size(); ++array)
      for (size_t number = 0; number < own.filed.arrays[array].pieces.size(); ++number) {
        ManifestPiece &piece = own.filed.arrays[array].pieces[number];
        if (piece.rank != rank) continue;
        const uint64_t bytes = piece.count * own.filed.arrays[array].number_bytes;
        piece.hashes.assign((bytes + hash_chunk_bytes - 1) / hash_chunk_bytes, 0x0123456789abcdef);
        own.pieces.push_back({array, number, {}});
      }
    if (!own.pieces.empty()) content.files.push_back(std::move(own));
  }
  return report_to_json(content);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string text(fuzz::text_of(data, size));
  Manifest manifest = empty_manifest();
  ReportMerger merger(&manifest);
  const size_t border = text.find('\0');
  mxs_status status = merger.add(0, text.substr(0, border));
  if (status == MXS_OK) status = merger.add(1, border == std::string::npos ? "" : text.substr(border + 1));
  if (status == MXS_OK) status = merger.finish({});
  if (status != MXS_OK) return 0;
  std::string written, again_written;
  Manifest again;
  fuzz::promise(manifest_to_json(manifest, &written) == MXS_OK && manifest_from_json(written, &again) == MXS_OK &&
                manifest_to_json(again, &again_written) == MXS_OK && written == again_written);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  test::SavedByHand saved;
  fuzz::promise(test::save_by_hand(&saved, rank_count) == MXS_OK);
  const std::vector<FiledFile> model = file_model(describe_model(saved.plan, false)),
                               state = file_optimizer(describe_optimizer(saved.plan, false, test::parts_to_save));
  std::vector<FiledFile> all = model;
  all.insert(all.end(), state.begin(), state.end());
  const auto both = [](const std::vector<FiledFile> &files) {
    return report_of(files, 0).append(1, '\0').append(report_of(files, 1));
  };
  return {both(all), both(model), both({}), std::string(R"({"files": [], "user": "AAEC"})").append(1, '\0')};
}
