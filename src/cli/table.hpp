// SPDX-License-Identifier: Apache-2.0
// Rows of cells as lines: each column as wide as its widest cell, numbers to the right. Names that others chose are
// made printable and cut before they come here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace mxs_cli {

class Table {
 public:
  // Titles; one that begins with '>' is of a column of numbers.
  explicit Table(const std::vector<std::string> &titles) {
    for (const std::string &title : titles) right_.push_back(title.starts_with('>'));
    std::vector<std::string> head;
    for (const std::string &title : titles) head.push_back(title.starts_with('>') ? title.substr(1) : title);
    rows_.push_back(std::move(head));
  }

  void add(std::vector<std::string> cells) {
    cells.resize(right_.size());
    rows_.push_back(std::move(cells));
  }
  bool empty() const { return rows_.size() == 1; }

  std::string text() const {
    std::vector<size_t> widths(right_.size());
    for (const auto &row : rows_)
      for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], letters(row[c]));
    std::string text;
    for (const auto &row : rows_) {
      std::string line;
      for (size_t c = 0; c < row.size(); ++c) {
        const std::string blanks(widths[c] - letters(row[c]), ' ');
        line.append(c ? "  " : "").append(right_[c] ? blanks + row[c] : row[c] + blanks);
      }
      text.append(line, 0, line.find_last_not_of(' ') + 1).append("\n");
    }
    return text;
  }

 private:
  static size_t letters(const std::string &cell) {
    const auto begins = [](char byte) { return (byte & 0xc0) != 0x80; };
    return static_cast<size_t>(std::count_if(cell.begin(), cell.end(), begins));
  }

  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace mxs_cli
