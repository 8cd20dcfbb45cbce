// SPDX-License-Identifier: Apache-2.0
// A manifest as text. See manifest_words.hpp.
#include <charconv>
#include <cstdlib>

#include "base/base64.hpp"
#include "base/json_field.hpp"
#include "base/status.hpp"
#include "base/words.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/manifest_words.hpp"
#include "kernels/presets.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

constexpr size_t array_line_bytes = 320;  // about, of one with one hash

template <class Number>
std::string number_text(Number number) {
  char text[32];
  const std::to_chars_result result = std::to_chars(text, text + sizeof text, number);
  std::string written(text, result.ptr);
  // "-0" would be read as a whole number, which has no sign.
  return written.find_first_not_of("-0123456789") == std::string::npos ? written + ".0" : written;
}

// So that a reader who rounds to double and then to float gets the same bits: nearly always the shortest text does it.
std::string float_text(float value) {
  const std::string shortest = number_text(value);
  double read = 0;
  std::from_chars(shortest.data(), shortest.data() + shortest.size(), read);
  return static_cast<float>(read) == value ? shortest : number_text(static_cast<double>(value));
}

std::string quoted_hash(uint64_t hash) { return std::string("\"").append(hexadecimal_text(hash)).append("\""); }

class Writer {
 public:
  Writer(const Manifest &manifest, std::string *text) : manifest_(manifest), text_(*text) {}

  // Throws Json::exception at what isn't UTF-8; name is then whose.
  void write(std::string *name) {
    text_.reserve(manifest_.arrays.size() * array_line_bytes + manifest_.plan.size());
    write_head();
    begin_list("files");
    for (size_t index = 0; index < manifest_.files.size(); ++index) {
      *name = manifest_.files[index].name;
      write_file(index);
    }
    text_.append("]");
    begin_list("arrays");
    for (size_t index = 0; index < manifest_.arrays.size(); ++index) {
      *name = manifest_.arrays[index].name;
      write_array(index);
    }
    text_.append("],\n \"plan\": ").append(manifest_.plan);
    while (text_.ends_with('\n')) text_.pop_back();
    const uint64_t hash = hash_chunk(text_.data(), text_.size());
    text_.append(manifest_hash_member).append(hexadecimal_text(hash)).append(manifest_end);
  }

 private:
  std::string &field(const char *name) { return text_.append(", \"").append(name).append("\": "); }
  void put_text(const char *name, const std::string &value) { field(name).append(Json(value).dump()); }
  void put_number(const char *name, uint64_t value) { field(name).append(std::to_string(value)); }
  void put_flag(const char *name, bool value) { field(name).append(value ? "true" : "false"); }
  void begin_list(const char *name) { text_.append(",\n \"").append(name).append("\": ["); }
  void begin_line(size_t index) { text_.append(index == 0 ? "\n  " : ",\n  "); }

  void write_head() {
    text_.append("{\"matrixshard_checkpoint\": ").append(std::to_string(manifest_version));
    put_text("version", manifest_.version);
    put_number("step", manifest_.step_number);
    put_number("ranks", static_cast<uint64_t>(manifest_.rank_count));
    put_flag("masters", manifest_.masters);
    put_flag("state", manifest_.has_state);
    begin_list("rules");
    for (size_t index = 0; index < manifest_.rules.size(); ++index) write_rule(index);
    text_.append("],\n \"rounding\": ").append(quoted_hash(manifest_.rounding));
    begin_list("groups");
    for (size_t index = 0; index < manifest_.groups.size(); ++index) write_group(index);
    text_.append("]");
    begin_list("user");
    for (size_t rank = 0; rank < manifest_.user.size(); ++rank)
      text_.append(rank == 0 ? "\"" : ", \"").append(base64_text(manifest_.user[rank])).append("\"");
    text_.append("]");
  }
  void write_rule(size_t index) {
    const ManifestRule &rule = manifest_.rules[index];
    const Preset *const preset = find_preset(rule.preset);
    begin_line(index);
    text_.append("{\"rule\": \"").append(rule_name(rule.rule)).append("\"");
    put_text("preset", preset ? preset->name : "unknown");
    field("options").append(quoted_hash(rule.options)).append("}");
  }
  void write_group(size_t index) {
    begin_line(index);
    if (!manifest_.groups[index]) {
      text_.append("null");
      return;
    }
    text_.append("{");
    for (const GroupField &each : group_fields)
      text_.append(&each == group_fields ? "\"" : ", \"").append(each.name).append("\": ")
          .append(float_text((*manifest_.groups[index]).*each.member));
    text_.append("}");
  }
  void write_file(size_t index) {
    const ManifestFile &file = manifest_.files[index];
    begin_line(index);
    text_.append("{\"name\": ").append(Json(file.name).dump());
    put_number("bytes", file.bytes);
    put_number("header_bytes", file.data_offset);
    field("header_hash").append(quoted_hash(file.header_hash)).append("}");
  }
  void write_array(size_t index) {
    const ManifestArray &array = manifest_.arrays[index];
    begin_line(index);
    text_.append("{\"name\": ").append(Json(array.name).dump());
    put_text("dtype", array.dtype_word);
    field("shape").append("[");
    for (size_t d = 0; d < array.shape.size(); ++d)
      text_.append(d ? ", " : "").append(std::to_string(array.shape[d]));
    text_.append("]");
    put_text("kind", word_of(array_kind_words, array.kind));
    if (array.kind == MXS_ARRAY_MASTER || array.kind == MXS_ARRAY_STATE) put_text("tensor", array.tensor);
    if (array.kind == MXS_ARRAY_STATE) put_text("part", array.part);
    if (array.block >= 0) put_number("block", static_cast<uint64_t>(array.block));
    if (array.cut >= 0) put_number("cut", static_cast<uint64_t>(array.cut));
    put_number("file", array.file);
    put_number("offset", array.offset);
    field("pieces").append("[");
    for (const ManifestPiece &piece : array.pieces) {
      text_.append(&piece == array.pieces.data() ? "" : ", ");
      write_piece(piece);
    }
    text_.append("]}");
  }
  void write_piece(const ManifestPiece &piece) {
    text_.append("{\"rank\": ").append(std::to_string(piece.rank));
    put_number("count", piece.count);
    field("hashes").append("[");
    for (const uint64_t &hash : piece.hashes)
      text_.append(&hash == piece.hashes.data() ? "" : ", ").append(quoted_hash(hash));
    text_.append("]}");
  }

  const Manifest &manifest_;
  std::string &text_;
};

}  // namespace

mxs_status manifest_to_json(const Manifest &manifest, std::string *text) {
  std::string written, name = "version";
  try {
    Writer(manifest, &written).write(&name);
  } catch (const Json::exception &) {
    return set_error(MXS_INVALID_ARGUMENT, "the name \"%.200s\" is not UTF-8, which JSON can't hold", name.c_str());
  }
  *text = std::move(written);
  return MXS_OK;
}

}  // namespace mxs
