// SPDX-License-Identifier: Apache-2.0
// Manifests of checkpoints. One that is taken must hold what readers of its files rely on, must be written and read
// again as the same, and its plan, if it is one, is compared with its arrays as opening does.
#include "checkpoint/opened_checks.hpp"
#include "fuzz.hpp"
#include "plan/saved.hpp"
#include "unit/checkpoint/saved_by_hand.hpp"

using namespace mxs;

namespace {

// Every byte of each file's data is in one array, and each number of an array in one piece with a hash of its chunk.
void check_places(const Manifest &manifest) {
  const mxs_status status = for_each_file(manifest, [&](size_t file, size_t first, size_t end) {
    uint64_t offset = 0;
    for (; first < end; ++first) {
      const ManifestArray &array = manifest.arrays[first];
      fuzz::promise(array.offset == offset && array.file == file);
      offset += array.bytes;
      uint64_t number = 0;
      for (const ManifestPiece &piece : array.pieces) {
        fuzz::promise(piece.first == number && piece.rank >= 0 && piece.rank < manifest.rank_count);
        fuzz::promise((piece.count * array.number_bytes + hash_chunk_bytes - 1) / hash_chunk_bytes ==
                      piece.hashes.size());
        number += piece.count;
      }
      fuzz::promise(number * array.number_bytes == array.bytes);
    }
    fuzz::promise(manifest.files[file].data_offset + offset == manifest.files[file].bytes);
    return MXS_OK;
  });
  fuzz::promise(status == MXS_OK);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  OpenedCheckpoint opened;
  Manifest &manifest = opened.manifest;
  if (manifest_from_json(fuzz::text_of(data, size), &manifest) != MXS_OK) {
    fuzz::promise(manifest.arrays.empty());
    return 0;
  }
  check_places(manifest);
  std::string text, again_text;
  Manifest again;
  fuzz::promise(manifest_to_json(manifest, &text) == MXS_OK && manifest_from_json(text, &again) == MXS_OK &&
                manifest_to_json(again, &again_text) == MXS_OK && text == again_text);
  for (size_t index = 0; index < manifest.arrays.size(); ++index)
    fuzz::promise(opened.index_of_name.emplace(manifest.arrays[index].name, index).second);
  SavedPlan saved;
  Plan plan;
  if (saved_plan_from_json(manifest.plan, &saved) == MXS_OK && restore_plan(saved, &plan) == MXS_OK)
    check_plan_arrays(opened, plan);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  const auto add = [&seeds](const Manifest &manifest) {
    std::string text;
    fuzz::promise(manifest_to_json(manifest, &text) == MXS_OK);
    seeds.push_back(text);
  };
  test::SavedByHand saved;
  fuzz::promise(test::save_by_hand(&saved) == MXS_OK);
  add(saved.manifest);
  Manifest small = test::small_manifest();
  add(small);
  small.files.clear();
  small.arrays.clear();
  small.plan = "{}";
  add(small);
  return seeds;
}
