// SPDX-License-Identifier: Apache-2.0
// mxs checkpoint diff: two checkpoints, or models, array by array. They may lie in other files, of other worlds.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "cli/checkpoint_commands.hpp"
#include "cli/checkpoint_view.hpp"
#include "cli/json_writer.hpp"
#include "cli/number_compare.hpp"
#include "cli/plan_text.hpp"
#include "cli/progress_line.hpp"
#include "cli/table.hpp"

namespace mxs_cli {

namespace {

// Of each of the two at a time; a read may take up to 4 MiB more at either end for the hashes.
constexpr uint64_t piece_bytes = uint64_t{16} << 20;
constexpr size_t rows_max = 200;

struct Row {
  std::string name, what;  // "only in A", "only in B", "shape", "dtype", "numbers"
  std::string a, b;        // what differs, on either side
  bool is_compared = false;
  Difference difference;
};

struct Differences {
  std::string a_title, b_title, a_path, b_path;
  std::vector<Row> rows;
  uint64_t equal_count = 0, different_count = 0, other_form_count = 0, only_a_count = 0, only_b_count = 0, bytes = 0;
};

uint64_t number_count_of(const mxs_checkpoint_array &array) {
  uint64_t count = 1;
  for (int32_t d = 0; d < array.dimension_count; ++d) count *= static_cast<uint64_t>(array.shape[d]);
  return count;
}

bool same_shape(const mxs_checkpoint_array &a, const mxs_checkpoint_array &b) {
  return a.dimension_count == b.dimension_count && std::equal(a.shape, a.shape + a.dimension_count, b.shape);
}

// Reads both in pieces of whole numbers.
class Comparer {
 public:
  Comparer(const CheckpointView &a, const CheckpointView &b, ProgressLine *line, uint64_t total_bytes)
      : a_(a), b_(b), line_(line), total_bytes_(total_bytes) {}

  Difference compare(uint64_t a_index, uint64_t b_index) {
    const mxs_checkpoint_array &a = a_.arrays[a_index], &b = b_.arrays[b_index];
    const uint64_t count = number_count_of(a);
    const size_t a_bytes = count ? a.bytes / count : 0, b_bytes = count ? b.bytes / count : 0;
    NumberComparison comparison(a.dtype_word, a_bytes, b.dtype_word, b_bytes);
    const uint64_t at_once = count ? piece_bytes / std::max<size_t>({a_bytes, b_bytes, 1}) : 0;
    for (uint64_t first = 0; first < count; first += at_once) {
      const uint64_t numbers = std::min(at_once, count - first);
      read(a_, a_index, first * a_bytes, numbers * a_bytes, &a_room_);
      read(b_, b_index, first * b_bytes, numbers * b_bytes, &b_room_);
      comparison.add(a_room_.data(), b_room_.data(), numbers);
      done_bytes_ += numbers * a_bytes;
      line_->show(done_bytes_, total_bytes_);
    }
    return comparison.difference();
  }

 private:
  static void read(const CheckpointView &view, uint64_t index, uint64_t offset, uint64_t bytes,
                   std::vector<std::byte> *room) {
    room->resize(std::max<size_t>(room->size(), bytes));
    mxs::check(mxs_checkpoint_read(view.handle.get(), index, offset, bytes, room->data()));
  }

  const CheckpointView &a_, &b_;
  ProgressLine *const line_;
  const uint64_t total_bytes_;
  uint64_t done_bytes_ = 0;
  std::vector<std::byte> a_room_, b_room_;
};

bool is_looked_at(const mxs_checkpoint_array &array, bool weights_only) { return !weights_only || is_of_model(array); }

// The index of an array of that name in the other one; UINT64_MAX: it has none.
uint64_t find(const CheckpointView &view, const char *name, bool weights_only) {
  uint64_t index = 0;
  const mxs_status status = mxs_checkpoint_find(view.handle.get(), name, &index);
  if (status == MXS_NOT_FOUND) return UINT64_MAX;
  mxs::check(status);
  return is_looked_at(view.arrays[index], weights_only) ? index : UINT64_MAX;
}

// Numbers of known dtypes are compared across dtypes, too.
bool can_be_compared(const mxs_checkpoint_array &a, const mxs_checkpoint_array &b) {
  if (!same_shape(a, b)) return false;
  const bool same_dtype = std::string(a.dtype_word) == b.dtype_word;
  return same_dtype ? a.bytes == b.bytes : number_bytes_of(a.dtype_word) && number_bytes_of(b.dtype_word);
}

void compare_pair(Comparer *comparer, const CheckpointView &from, uint64_t index, const CheckpointView &with,
                  uint64_t other, Differences *found) {
  const mxs_checkpoint_array &a = from.arrays[index], &b = with.arrays[other];
  Row row;
  row.name = a.name;
  const std::string a_word = a.dtype_word, b_word = b.dtype_word;
  row.is_compared = can_be_compared(a, b);
  if (row.is_compared) row.difference = comparer->compare(index, other);
  if (!same_shape(a, b)) {
    row.what = "shape";
    row.a = shape_text(a);
    row.b = shape_text(b);
  } else if (a_word != b_word) {
    row.what = "dtype";
    row.a = a_word;
    row.b = b_word;
  } else if (row.difference.different_count > 0) {
    row.what = "numbers";
  } else {
    ++found->equal_count;
    return;
  }
  ++(row.what == "numbers" ? found->different_count : found->other_form_count);
  found->rows.push_back(std::move(row));
}

Differences differences_of(const CheckpointView &a, const CheckpointView &b, bool weights_only) {
  Differences found;
  found.a_title = title_text(a), found.a_path = a.path;
  found.b_title = title_text(b), found.b_path = b.path;
  for (const mxs_checkpoint_array &array : a.arrays)
    if (is_looked_at(array, weights_only)) found.bytes += array.bytes;
  ProgressLine line("diff");
  Comparer comparer(a, b, &line, found.bytes);
  for (uint64_t index = 0; index < a.arrays.size(); ++index) {
    if (!is_looked_at(a.arrays[index], weights_only)) continue;
    const uint64_t other = find(b, a.arrays[index].name, weights_only);
    if (other != UINT64_MAX) {
      compare_pair(&comparer, a, index, b, other, &found);
    } else {
      ++found.only_a_count;
      found.rows.push_back({a.arrays[index].name, "only in A", shape_text(a.arrays[index]), "", false, Difference()});
    }
  }
  for (const mxs_checkpoint_array &array : b.arrays)
    if (is_looked_at(array, weights_only) && find(a, array.name, weights_only) == UINT64_MAX) {
      ++found.only_b_count;
      found.rows.push_back({array.name, "only in B", "", shape_text(array), false, Difference()});
    }
  return found;
}

std::string real_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string summary_of(const Differences &found) {
  std::string text = counted_text(found.equal_count, "array", "arrays").append(" equal");
  const std::pair<uint64_t, const char *> others[] = {{found.different_count, " with other numbers"},
                                                      {found.other_form_count, " of other shape or dtype"},
                                                      {found.only_a_count, " only in A"},
                                                      {found.only_b_count, " only in B"}};
  for (const auto &[count, what] : others)
    if (count > 0) text.append(", ").append(count_text(count)).append(what);
  return text;
}

std::string diff_table(const Differences &found) {
  std::string text;
  for (const auto &[name, path, title] : {std::tie("A: ", found.a_path, found.a_title),
                                          std::tie("B: ", found.b_path, found.b_title)})
    text.append(wrapped(std::string(name).append(short_name(path, 80)).append(": ").append(title), 3));
  text.append("\n");
  Table table({"array", "what", "A", "B", ">differ", ">of", ">NaN", ">largest", ">relative"});
  for (size_t index = 0; index < found.rows.size() && index < rows_max; ++index) {
    const Row &row = found.rows[index];
    const Difference &difference = row.difference;
    std::vector<std::string> cells = {short_name(row.name), row.what, short_name(row.a, 24), short_name(row.b, 24)};
    if (row.is_compared) {
      cells.push_back(count_text(difference.different_count));
      cells.push_back(count_text(difference.number_count));
      cells.push_back(count_text(difference.nan_count));
      cells.push_back(difference.has_distance ? real_text(difference.absolute_max) : "-");
      cells.push_back(difference.has_distance ? real_text(difference.relative_max) : "-");
    }
    table.add(std::move(cells));
  }
  if (!table.empty()) text.append(table.text());
  if (found.rows.size() > rows_max)
    text.append("and ").append(count_text(found.rows.size() - rows_max)).append(" more, which --json lists\n");
  return text.append(table.empty() ? "" : "\n").append(summary_of(found)).append("\n");
}

std::string diff_json(const Differences &found) {
  JsonText json;
  json.open('{').add("a", found.a_path).add("b", found.b_path).add("equal", found.equal_count);
  json.add("different", found.different_count).add("other_form", found.other_form_count);
  json.add("only_a", found.only_a_count).add("only_b", found.only_b_count).key("arrays").open('[');
  for (const Row &row : found.rows) {
    const Difference &difference = row.difference;
    json.open('{').add("name", row.name).add("differs", row.what).add("a", row.a).add("b", row.b);
    if (row.is_compared) {
      json.add("numbers", difference.number_count).add("different", difference.different_count);
      json.add("nan", difference.nan_count);
    }
    if (row.is_compared && difference.has_distance)
      json.add_real("absolute_max", difference.absolute_max).add_real("relative_max", difference.relative_max);
    json.close('}');
  }
  return json.close(']').close('}').take().append("\n");
}

}  // namespace

int checkpoint_diff(const Words &words) {
  bool json = false, weights_only = false;
  std::vector<std::string> paths;
  const std::string complaint =
      read_paths(words, {"A", "B"}, {{"--json", &json}, {"--weights-only", &weights_only}}, &paths);
  if (!complaint.empty()) return bad_use("checkpoint diff", complaint);
  try {
    const CheckpointView a = view_checkpoint(paths[0]), b = view_checkpoint(paths[1]);
    const Differences found = differences_of(a, b, weights_only);
    print_text(json ? diff_json(found) : diff_table(found));
    return found.rows.empty() ? 0 : 1;
  } catch (const mxs::error &error) {
    return failed("checkpoint diff", error.what(), status_bad_use);
  }
}

}  // namespace mxs_cli
