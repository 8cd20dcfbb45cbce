// SPDX-License-Identifier: Apache-2.0
// An object or a list of JSON, written piece by piece into one line.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "cli/json_text.hpp"

namespace mxs_cli {

// Grows an object or a list: commas where they belong.
class JsonText {
 public:
  JsonText &open(char bracket) {
    begin();
    text_ += bracket;
    first_ = true;
    return *this;
  }
  JsonText &close(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  JsonText &key(const char *name) {
    begin();
    text_.append(1, '"').append(name).append("\": ");
    first_ = true;  // its value follows without a comma
    return *this;
  }
  JsonText &number(uint64_t value) { return bare(std::to_string(value)); }
  JsonText &signed_number(int64_t value) { return bare(std::to_string(value)); }
  JsonText &truth(bool value) { return bare(value ? "true" : "false"); }
  // JSON has no infinity and no NaN: null.
  JsonText &real(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.9g", value);
    return bare(std::isfinite(value) ? text : "null");
  }
  JsonText &text(const std::string &value) { return bare(quoted(value)); }
  JsonText &add(const char *name, uint64_t value) { return key(name).number(value); }
  JsonText &add_signed(const char *name, int64_t value) { return key(name).signed_number(value); }
  JsonText &add(const char *name, const std::string &value) { return key(name).text(value); }
  JsonText &add_truth(const char *name, bool value) { return key(name).truth(value); }
  JsonText &add_real(const char *name, double value) { return key(name).real(value); }

  std::string take() { return std::move(text_); }

 private:
  JsonText &bare(const std::string &value) {
    begin();
    text_ += value;
    return *this;
  }
  void begin() {
    if (!first_) text_ += ", ";
    first_ = false;
  }

  std::string text_;
  bool first_ = true;
};

}  // namespace mxs_cli
