// SPDX-License-Identifier: Apache-2.0
// Lists as CSV (RFC 4180): a header line that names the fields, then a line for each tensor.
//
//   name,shape,dtype,rule,block_rows
//   w,4096x1024,bf16,,
//   "odd, name",12288x4096,bf16,muon,4096x4096x4096
//
// Cells in quotes may hold commas, line breaks and doubled quotes; blanks around a cell don't count; an empty cell is
// the default; empty lines are passed over. Faults are named by the line that they begin on, counted from 1.
#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <nlohmann/json.hpp>

#include "base/status.hpp"
#include "base/text.hpp"
#include "model/list.hpp"

namespace mxs {
namespace {

using Json = nlohmann::json;

constexpr size_t cell_count_max = 64;

mxs_status at_line(size_t line, const char *what) {
  return set_error(MXS_INVALID_ARGUMENT, "line %zu: %s", line, what);
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Takes record after record off a text.
class Records {
 public:
  explicit Records(std::string_view text) : text_(text) {
    constexpr std::string_view mark = "\xef\xbb\xbf";  // of UTF-8, as spreadsheets write it
    if (text_.starts_with(mark)) text_.remove_prefix(mark.size());
  }
  size_t line() const { return line_; }  // that the record began on

  // *cells empty: the end.
  mxs_status next(std::vector<std::string> *cells) {
    cells->clear();
    while (cells->empty() && place_ < text_.size()) {
      line_ = next_line_;
      bool at_end = false;
      while (!at_end) {
        if (cells->size() == cell_count_max) return at_line(line_, "more than 64 cells");
        cells->emplace_back();
        const mxs_status status = take_cell(&cells->back(), &at_end);
        if (status != MXS_OK) return status;
      }
      if (cells->size() == 1 && cells->front().empty()) cells->clear();
    }
    return MXS_OK;
  }

 private:
  mxs_status take_cell(std::string *cell, bool *at_end) {
    place_ = std::min(text_.find_first_not_of(" \t", place_), text_.size());
    if (place_ < text_.size() && text_[place_] == '"') {
      const mxs_status status = take_quoted(cell);
      if (status != MXS_OK) return status;
    } else {
      const size_t end = std::min(text_.find_first_of(",\r\n", place_), text_.size());
      *cell = trimmed(text_.substr(place_, end - place_));
      if (cell->find('"') != std::string::npos)
        return at_line(line_, "a quote inside a cell that doesn't begin with one");
      place_ = end;
    }
    if (!is_utf8(*cell)) return at_line(line_, "it is not UTF-8");
    return take_separator(at_end);
  }

  mxs_status take_quoted(std::string *cell) {
    const size_t begun = next_line_;
    for (++place_; place_ < text_.size(); ++place_) {
      if (text_[place_] == '"') {
        if (place_ + 1 == text_.size() || text_[place_ + 1] != '"') {
          place_ = std::min(text_.find_first_not_of(" \t", place_ + 1), text_.size());
          return MXS_OK;
        }
        ++place_;
      }
      next_line_ += text_[place_] == '\n';
      cell->push_back(text_[place_]);
    }
    return at_line(begun, "a quote is not closed");
  }

  mxs_status take_separator(bool *at_end) {
    *at_end = true;
    if (place_ == text_.size()) return MXS_OK;
    const char separator = text_[place_++];
    *at_end = separator != ',';
    if (separator == ',') return MXS_OK;
    if (separator == '\r' && place_ < text_.size() && text_[place_] == '\n') ++place_;
    else if (separator != '\n') return at_line(line_, separator == '\r' ? "a carriage return without a line feed"
                                                                        : "text after a closing quote");
    ++next_line_;
    return MXS_OK;
  }

  std::string_view text_;
  size_t place_ = 0, line_ = 1, next_line_ = 1;
};

// null: it is no number.
Json number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  return fault == std::errc() && end == text.data() + text.size() && !text.empty() ? Json(number) : Json(nullptr);
}

// What the same field would be in JSON; a value that doesn't fit is refused there.
Json value_of(const std::string &cell, FieldKind kind) {
  if (kind == FieldKind::number) return number_of(cell);
  if (kind == FieldKind::flag) {
    if (cell == "1" || cell == "true") return true;
    return cell == "0" || cell == "false" ? Json(false) : Json(cell);
  }
  if (kind == FieldKind::number_or_text) {
    const Json number = number_of(cell);
    return number.is_null() ? Json(cell) : number;
  }
  if (kind != FieldKind::numbers) return cell;
  Json numbers = Json::array();
  for (size_t begin = 0; begin <= cell.size();) {
    const size_t end = std::min(cell.find('x', begin), cell.size());
    const std::string_view part = trimmed(std::string_view(cell).substr(begin, end - begin));
    numbers.push_back(number_of(part));
    if (numbers.back().is_null()) numbers.back() = part;
    begin = end + 1;
  }
  return numbers;
}

mxs_status check_header(const std::vector<std::string> &header, size_t line) {
  for (size_t column = 0; column < header.size(); ++column) {
    const char *name = header[column].c_str();
    if (field_kind(header[column]) == FieldKind::unknown)
      return set_error(MXS_INVALID_ARGUMENT, "line %zu: column \"%.60s\" is not a known field; known are %s", line,
                       name, known_fields().c_str());
    if (std::find(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(column), header[column]) !=
        header.begin() + static_cast<std::ptrdiff_t>(column))
      return set_error(MXS_INVALID_ARGUMENT, "line %zu: column \"%.60s\" stands there twice", line, name);
  }
  for (const char *needed : {"name", "shape"})
    if (std::find(header.begin(), header.end(), needed) == header.end())
      return set_error(MXS_INVALID_ARGUMENT,
                       "line %zu: no column \"%s\"; the first line names the columns: name,shape,...", line, needed);
  return MXS_OK;
}

mxs_status read_record(const std::vector<std::string> &header, const std::vector<std::string> &cells, size_t line,
                       LoadedTensor *tensor, UnitNames *units) {
  const std::string where = std::string("line ").append(std::to_string(line));
  if (cells.size() != header.size())
    return set_error(MXS_INVALID_ARGUMENT, "%s: %zu cells, but the first line names %zu columns", where.c_str(),
                     cells.size(), header.size());
  for (size_t column = 0; column < header.size(); ++column) {
    if (cells[column].empty()) {
      if (header[column] != "name" && header[column] != "shape") continue;
      return set_error(MXS_INVALID_ARGUMENT, "%s: %s is empty%s", where.c_str(), header[column].c_str(),
                       header[column] == "shape" ? "; write 1 for a scalar" : "");
    }
    const Json value = value_of(cells[column], field_kind(header[column]));
    const mxs_status status = set_field(where, header[column], value, tensor, units);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

}  // namespace

mxs_status model_from_csv(std::string_view text, LoadedModel *model) {
  Records records(text);
  std::vector<std::string> header, cells;
  mxs_status status = records.next(&header);
  if (status == MXS_OK && header.empty()) status = at_line(1, "no header that names the columns: name,shape,...");
  if (status == MXS_OK) status = check_header(header, records.line());
  LoadedModel read;
  read.kind = "list";
  UnitNames units;
  while (status == MXS_OK) {
    status = records.next(&cells);
    if (status != MXS_OK || cells.empty()) break;
    if (read.tensors.size() == tensor_count_max) return at_line(records.line(), "more than 1048576 tensors");
    read.tensors.emplace_back();
    status = read_record(header, cells, records.line(), &read.tensors.back(), &units);
  }
  if (status == MXS_OK) status = units.finish(&read);
  if (status == MXS_OK) *model = std::move(read);
  return status;
}

}  // namespace mxs
