// SPDX-License-Identifier: Apache-2.0
// Does a manifest agree with itself? Anybody may have written it; what is read by it later relies on this.
#include <cinttypes>
#include <tuple>
#include <unordered_set>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/manifest_words.hpp"
#include "kernels/presets.hpp"
#include "model/safetensors.hpp"

namespace mxs {
namespace {

constexpr uint64_t header_length_bytes = 8;
constexpr std::string_view folder = "optimizer/", ending = ".safetensors";

// Digits at the front; returns how many.
size_t take_digits(std::string_view *text) {
  const size_t count = std::min(text->find_first_not_of("0123456789"), text->size());
  text->remove_prefix(count);
  return count;
}

bool take(std::string_view *text, std::string_view word) {
  if (!text->starts_with(word)) return false;
  text->remove_prefix(word.size());
  return true;
}

// "00001-of-00004", "00003"
bool are_numbers(std::string_view text, bool is_model) {
  if (take_digits(&text) < 5) return false;
  return is_model ? take(&text, "-of-") && take_digits(&text) >= 5 && text.empty() : text.empty();
}

class Check {
 public:
  explicit Check(const Manifest &manifest) : manifest_(manifest) {}

  mxs_status head() const {
    if (manifest_.rank_count < 1 || manifest_.rank_count > rank_count_max)
      return set_error(MXS_DAMAGED, "ranks is %d, not from 1 to %d", manifest_.rank_count, rank_count_max);
    if (manifest_.user.size() > static_cast<size_t>(manifest_.rank_count))
      return set_error(MXS_DAMAGED, "user has %zu texts, but there are %d ranks", manifest_.user.size(),
                       manifest_.rank_count);
    for (size_t rank = 0; rank < manifest_.user.size(); ++rank)
      if (manifest_.user[rank].size() > user_bytes_max)
        return set_error(MXS_DAMAGED, "user[%zu] has more than %" PRIu64 " bytes", rank, user_bytes_max);
    return rules();
  }

  mxs_status files() const {
    std::unordered_set<std::string_view> names;
    for (const ManifestFile &file : manifest_.files) {
      if (!is_checkpoint_file_name(file.name))
        return set_error(MXS_DAMAGED,
                         "the file \"%.200s\" is no file of a checkpoint, such as model-00001-of-00004.safetensors or "
                         "optimizer/rank-00000.safetensors", file.name.c_str());
      if (!names.insert(file.name).second)
        return set_error(MXS_DAMAGED, "the file %.200s stands there twice", file.name.c_str());
      if (file.data_offset < header_length_bytes ||
          file.data_offset - header_length_bytes > safetensors_header_bytes_max || file.bytes < file.data_offset ||
          file.bytes > bytes_max)
        return set_error(MXS_DAMAGED, "%.200s is said to have a header of %" PRIu64 " bytes, and %" PRIu64 " in all",
                         file.name.c_str(), file.data_offset, file.bytes);
    }
    return MXS_OK;
  }

  // Each has its place in its file, and together they fill the files.
  mxs_status arrays() const {
    std::unordered_set<std::string_view> names;
    names.reserve(manifest_.arrays.size());
    size_t file = 0;
    uint64_t end = 0;  // of what is taken of its data
    for (const ManifestArray &array : manifest_.arrays) {
      if (!names.insert(array.name).second) return wrong(array, "stands there twice");
      if (array.name.empty() || array.name == "__metadata__") return wrong(array, "has a name that none can have");
      if (array.file >= manifest_.files.size()) return wrong(array, "is in a file that isn't there");
      if (array.file < file) return wrong(array, "stands behind arrays of a later file");
      for (; file < array.file; ++file, end = 0)
        if (const mxs_status status = check_filled(file, end); status != MXS_OK) return status;
      mxs_status status = check_numbers(array);
      if (status == MXS_OK) status = check_place(array, &end);
      if (status == MXS_OK) status = check_pieces(array);
      if (status != MXS_OK) return status;
    }
    for (; file < manifest_.files.size(); ++file, end = 0)
      if (const mxs_status status = check_filled(file, end); status != MXS_OK) return status;
    return MXS_OK;
  }

  // Of a tensor there is one master, and each part of its state once.
  mxs_status belongings() const {
    struct Hash {
      size_t operator()(const ManifestArray *array) const {
        const std::hash<std::string_view> of;
        return of(array->tensor) * 31 + of(array->part) * 17 + static_cast<size_t>(array->block) * 0x9e3779b97f4a7c15u +
               static_cast<size_t>(array->cut) * 0xc2b2ae3d27d4eb4fu;
      }
    };
    struct Equal {
      bool operator()(const ManifestArray *a, const ManifestArray *b) const {
        return std::tie(a->tensor, a->part, a->block, a->cut) == std::tie(b->tensor, b->part, b->block, b->cut);
      }
    };
    std::unordered_set<const ManifestArray *, Hash, Equal> known;
    for (const ManifestArray &array : manifest_.arrays) {
      if (array.kind < MXS_ARRAY_WEIGHTS || array.kind > MXS_ARRAY_EXTRA) return wrong(array, "is of no kind");
      const bool belongs = array.kind == MXS_ARRAY_MASTER || array.kind == MXS_ARRAY_STATE;
      if (belongs != std::string_view(manifest_.files[array.file].name).starts_with(folder))
        return wrong(array, belongs ? "is of an optimizer, but in a model's file"
                                    : "is of a model, but in an optimizer's file");
      if (array.kind != MXS_ARRAY_STATE && (array.block >= 0 || array.cut >= 0 || !array.part.empty()))
        return wrong(array, "has a part, block or cut, but is no state");
      if (!belongs) {
        if (array.tensor != array.name) return wrong(array, "is of another tensor, but neither master nor state");
        continue;
      }
      if (array.kind == MXS_ARRAY_STATE && array.part.empty()) return wrong(array, "is state, but of no part");
      if (array.cut >= 0 && array.block < 0) return wrong(array, "has a cut, but no block");
      const auto [place, is_new] = known.insert(&array);
      if (!is_new) return wrong(array, "is the same of its tensor as \"" + (*place)->name.substr(0, 200) + "\"");
    }
    return MXS_OK;
  }

 private:
  mxs_status wrong(const ManifestArray &array, const std::string &what) const {
    const char *const file = array.file < manifest_.files.size() ? manifest_.files[array.file].name.c_str() : "no file";
    return set_error(MXS_DAMAGED, "array \"%.200s\" (%.100s) %.500s", array.name.c_str(), file, what.c_str());
  }

  mxs_status rules() const {
    bool is_there[MXS_RULE_SOAP + 1] = {};
    for (const ManifestRule &each : manifest_.rules) {
      const bool steps = each.rule == MXS_RULE_MUON || each.rule == MXS_RULE_ADAMW || each.rule == MXS_RULE_SHAMPOO ||
                         each.rule == MXS_RULE_SOAP;
      if (!steps) return set_error(MXS_DAMAGED, "rules has one that steps nothing");
      if (is_there[each.rule]) return set_error(MXS_DAMAGED, "rules has one twice");
      is_there[each.rule] = true;
      const Preset *const preset = find_preset(each.preset);
      if (!preset || (preset->rule != MXS_RULE_AUTO && preset->rule != each.rule))
        return set_error(MXS_DAMAGED, "rules has a preset of another rule");
    }
    return MXS_OK;
  }

  // dtype, shape and bytes.
  mxs_status check_numbers(const ManifestArray &array) const {
    const SafetensorsFormat *const format = find_safetensors_format(array.dtype_word);
    if (!format || format->dtype != array.dtype || format->number_bytes != array.number_bytes)
      return wrong(array, "has a dtype that isn't one of safetensors'");
    if (array.shape.size() > MXS_DIMENSIONS_MAX) return wrong(array, "has more than 8 dimensions");
    uint64_t numbers = 0, bytes = 0;
    if (!numbers_of_shape(array.shape, &numbers) || !checked_multiply(numbers, array.number_bytes, &bytes))
      return wrong(array, "has more than 2^62 bytes");
    return bytes == array.bytes ? MXS_OK : wrong(array, "has not as many bytes as its shape");
  }

  mxs_status check_place(const ManifestArray &array, uint64_t *end) const {
    const ManifestFile &file = manifest_.files[array.file];
    const uint64_t data_bytes = file.bytes - file.data_offset;
    if (array.offset < *end)
      return wrong(array, "begins at byte " + std::to_string(array.offset) +
                   " of the data, but the one before ends at " + std::to_string(*end));
    if (array.offset > *end)
      return wrong(array, "begins at byte " + std::to_string(array.offset) + " of the data: before it there are " +
                   std::to_string(array.offset - *end) + " bytes of no array");
    if (array.bytes > data_bytes - *end)  // *end was checked by the one before
      return wrong(array, "has " + std::to_string(array.bytes) + " bytes from byte " + std::to_string(array.offset) +
                   " of the data on, but the file has " + std::to_string(data_bytes));
    *end += array.bytes;
    return MXS_OK;
  }

  mxs_status check_filled(size_t index, uint64_t end) const {
    const ManifestFile &file = manifest_.files[index];
    const uint64_t data_bytes = file.bytes - file.data_offset;
    if (end == data_bytes) return MXS_OK;
    return set_error(MXS_DAMAGED, "%.200s is said to have %" PRIu64 " bytes of data, but its arrays have %" PRIu64,
                     file.name.c_str(), data_bytes, end);
  }

  mxs_status check_pieces(const ManifestArray &array) const {
    const uint64_t numbers = numbers_of(array);
    uint64_t end = 0;
    for (const ManifestPiece &piece : array.pieces) {
      if (piece.rank < 0 || piece.rank >= manifest_.rank_count)
        return wrong(array, "has a piece of rank " + std::to_string(piece.rank) + ", but there are " +
                     std::to_string(manifest_.rank_count) + " ranks");
      if (piece.first != end) return wrong(array, "has pieces that don't go on where the one before ended");
      if (piece.count > numbers - end) return wrong(array, "has pieces of more than its numbers");
      end += piece.count;
      const uint64_t chunk_count = divide_up(piece.count * array.number_bytes, hash_chunk_bytes);
      if (piece.hashes.size() != chunk_count)
        return wrong(array, "has a piece of " + std::to_string(piece.count) + " numbers with " +
                     std::to_string(piece.hashes.size()) + " hashes instead of " + std::to_string(chunk_count));
    }
    if (end == numbers) return MXS_OK;
    return wrong(array, "has pieces of " + std::to_string(end) + " numbers, but its shape has " +
                 std::to_string(numbers));
  }

  const Manifest &manifest_;
};

}  // namespace

mxs_status check_manifest(const Manifest &manifest) {
  const Check check(manifest);
  mxs_status status = check.head();
  if (status == MXS_OK) status = check.files();
  if (status == MXS_OK) status = check.arrays();
  if (status == MXS_OK) status = check.belongings();
  return status;
}

bool numbers_of_shape(const std::vector<int64_t> &shape, uint64_t *numbers) {
  uint64_t product = 1;
  for (const int64_t side : shape) {
    if (side < 0 || static_cast<uint64_t>(side) > bytes_max) return false;
    if (side == 0) product = 0;
  }
  for (const int64_t side : shape)
    if (!checked_multiply(product, static_cast<uint64_t>(side), &product)) return false;
  *numbers = product;
  return true;
}

bool is_checkpoint_file_name(std::string_view name) {
  if (name.size() > 255 || !name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  if (take(&name, "model-")) return are_numbers(name, true);
  if (!take(&name, folder)) return false;
  return name == "shared" || (take(&name, "rank-") && are_numbers(name, false));
}

}  // namespace mxs
