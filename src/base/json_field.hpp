// SPDX-License-Identifier: Apache-2.0
// Reading JSON strictly: a field that is not known, missing, or of a wrong kind or size is MXS_INVALID_ARGUMENT, with a
// sentence that names the field. People write such files by hand, and a mistyped name must not be a silent default.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"

namespace mxs {

using Json = nlohmann::json;  // not ordered_json, which looks up by walking: quadratic in what a bad file holds

// A value and how one gets there: "nodes[2].rails[0].numa". The first fault stays.
class JsonField {
 public:
  JsonField(const Json *value, std::string path, mxs_status *status) : value_(value), path_(std::move(path)),
                                                                   status_(status) {}
  bool good() const { return *status_ == MXS_OK; }

  // Is it an object with these members and no others?
  bool is_object(std::initializer_list<const char *> members) const {
    if (!good()) return false;
    if (!value_->is_object()) return wrong("is not an object");
    for (const auto &[name, member] : value_->items())
      if (std::none_of(members.begin(), members.end(), [&name = name](const char *known) { return name == known; }))
        return JsonField(&member, path_of(name), status_).wrong("is not a known field");
    return true;
  }
  bool is_list(size_t least, size_t most) const {
    if (!good()) return false;
    if (!value_->is_array()) return wrong("is not a list");
    if (value_->size() < least) return wrong("is empty");
    return value_->size() <= most || wrong("is too long");
  }
  // use(name, member) of an object, until one is wrong.
  template <class Use>
  void for_each_member(Use &&use) const {
    for (const auto &[name, member] : value_->items()) {
      if (!good()) return;
      use(name, JsonField(&member, path_of(name), status_));
    }
  }
  bool has(const char *name) const { return good() && value_->is_object() && value_->contains(name); }
  size_t size() const { return value_->size(); }
  JsonField operator[](const char *name) const {
    static const Json nothing;
    if (has(name)) return JsonField(&(*value_)[name], path_of(name), status_);
    JsonField missing(&nothing, path_of(name), status_);
    missing.wrong("is missing");
    return missing;
  }
  JsonField operator[](size_t index) const {
    return JsonField(&(*value_)[index], path_ + "[" + std::to_string(index) + "]", status_);
  }

  template <class Number>
  void read(Number *number, int64_t least, int64_t most) const {
    if (!good()) return;
    if (is_whole(*value_, least, most))
      *number = static_cast<Number>(value_->get<int64_t>());
    else
      wrong(("is not a whole number from " + std::to_string(least) + " to " + std::to_string(most)).c_str());
  }
  // Up to 2^64 - 1.
  void read_unsigned(uint64_t *number) const {
    if (!good()) return;
    if (value_->is_number_unsigned())
      *number = value_->get<uint64_t>();
    else
      wrong("is not a whole number from 0 to 2^64 - 1");
  }
  // A list of numbers. Paths of elements are made only where one is wrong, since lists may be long.
  template <class Number>
  void read_numbers(std::vector<Number> *numbers, int64_t least, int64_t most) const {
    if (!good()) return;
    if (!value_->is_array()) {
      wrong("is not a list");
      return;
    }
    std::vector<Number> read_numbers;
    read_numbers.reserve(size());
    for (size_t index = 0; index < size(); ++index) {
      const Json &element = (*value_)[index];
      if (!is_whole(element, least, most)) {
        Number unused{};
        (*this)[index].read(&unused, least, most);
        return;
      }
      read_numbers.push_back(static_cast<Number>(element.template get<int64_t>()));
    }
    *numbers = std::move(read_numbers);
  }
  void read_text(std::string *text, size_t bytes_max) const {
    if (!good()) return;
    if (!value_->is_string())
      wrong("is not a text");
    else if (value_->get_ref<const std::string &>().size() > bytes_max)
      wrong(("is longer than " + std::to_string(bytes_max) + " bytes").c_str());
    else
      *text = value_->get<std::string>();
  }
  // Of a tensor or unit: somebody will look for it, and C has it without its length.
  void read_name(std::string *name) const {
    std::string read;
    read_text(&read, SIZE_MAX);
    if (good() && read.empty()) wrong("is empty");
    if (good() && read.find('\0') != std::string::npos) wrong("has a zero byte");
    if (good()) *name = std::move(read);
  }
  // A hash: 16 digits, as a text, since numbers beyond 2^53 don't survive every reader of JSON.
  void read_hexadecimal(uint64_t *number) const {
    std::string text;
    read_text(&text, 16);
    if (!good()) return;
    uint64_t read = 0;
    for (const char digit : text) {
      const size_t place = std::string_view("0123456789abcdef").find(digit);
      if (place == std::string_view::npos) text.clear();
      if (place == std::string_view::npos) break;
      read = read << 4 | place;
    }
    if (text.size() != 16)
      wrong("is not a text of 16 digits 0-9a-f");
    else
      *number = read;
  }
  void read_flag(bool *flag) const {
    if (!good()) return;
    if (value_->is_boolean())
      *flag = value_->get<bool>();
    else
      wrong("is neither true nor false");
  }
  // One of some words; receives its place among them.
  void read_word(int *place, const char *const *words, size_t word_count) const {
    if (!good()) return;
    std::string known;
    for (size_t index = 0; index < word_count; ++index) {
      if (value_->is_string() && value_->get_ref<const std::string &>() == words[index]) {
        *place = static_cast<int>(index);
        return;
      }
      known.append(index ? ", " : "").append(words[index]);
    }
    wrong(("is none of " + known).c_str());
  }
  const Json &value() const { return *value_; }
  static bool is_whole(const Json &value, int64_t least, int64_t most) {
    if (!value.is_number_integer()) return false;
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
    return value.get<int64_t>() >= least && value.get<int64_t>() <= most;
  }

  bool wrong(const char *what) const {
    if (good()) *status_ = set_error(MXS_INVALID_ARGUMENT, "%.160s %s", path_.empty() ? "it" : path_.c_str(), what);
    return false;
  }

 private:
  std::string path_of(const std::string &name) const {
    return (path_.empty() ? "" : path_ + ".") + name.substr(0, 64);
  }

  const Json *value_;
  std::string path_;
  mxs_status *status_;
};

// Names may be any bytes; JSON is UTF-8.
inline std::string printed_json(const Json &json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mxs
