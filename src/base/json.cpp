// SPDX-License-Identifier: Apache-2.0
// A parser's events become a tree. Not nlohmann's own parse with a callback: at the end of each object that one looks
// through all members of the parent, which is quadratic in the tensors of a header.
#include "base/json.hpp"

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace mxs {
namespace {

using Json = nlohmann::json;

constexpr size_t level_count_max = 64;

// The letters of a text, for the parser; *place is how far it has come: behind the latest letter that it took.
class Letters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char *;
  using reference = const char &;

  Letters(const char *letter, const char **place) : letter_(letter), place_(place) {}
  reference operator*() const { return *letter_; }
  Letters &operator++() {
    *place_ = ++letter_;
    return *this;
  }
  bool operator==(const Letters &other) const { return letter_ == other.letter_; }
  bool operator!=(const Letters &other) const { return letter_ != other.letter_; }

 private:
  const char *letter_;
  const char **place_;
};

class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(Json *root, JsonParts *parts, const char *const *place) : root_(root), parts_(parts), place_(place) {}

  bool null() override { return put_leaf(nullptr); }
  bool boolean(bool value) override { return put_leaf(value); }
  bool number_integer(number_integer_t value) override { return put_leaf(value); }
  bool number_unsigned(number_unsigned_t value) override { return put_leaf(value); }
  bool number_float(number_float_t value, const string_t &) override { return put_leaf(value); }
  bool string(string_t &value) override { return put_leaf(std::move(value)); }
  bool binary(binary_t &) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t &name) override {
    if (passed_level_count_ > 0) return true;
    const auto [place, is_new] = open_.back()->get_ref<Json::object_t &>().emplace(std::move(name), nullptr);
    member_ = &place->second;
    member_name_ = &place->first;
    return is_new || refuse("the name \"" + place->first.substr(0, 200) + "\" stands twice in one object");
  }
  bool parse_error(size_t, const std::string &, const nlohmann::detail::exception &error) override {
    const std::string what = error.what();
    const size_t after_tag = what.find("] ");  // "[json.exception.parse_error.101] parse error at line 1, ..."
    return refuse(what.substr(after_tag == std::string::npos ? 0 : after_tag + 2));
  }
  mxs_status status() const { return status_; }

 private:
  bool refuse(const std::string &why) {
    status_ = set_error(MXS_INVALID_ARGUMENT, "it is not JSON: %.300s", why.c_str());
    return false;
  }
  // Pointers into open containers stay good: nothing is added to a list while one of its elements is open.
  template <class Value>
  Json *put(Value &&value) {
    if (open_.empty()) {
      *root_ = std::forward<Value>(value);
      return root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::forward<Value>(value));
      return &open_.back()->back();
    }
    *member_ = std::forward<Value>(value);
    return member_;
  }
  template <class Value>
  bool put_leaf(Value &&value) {
    if (passed_level_count_ > 0) return true;
    put(std::forward<Value>(value));
    return end_value();
  }
  bool open(Json container) {
    if (open_.size() + passed_level_count_ == level_count_max) return refuse("it has more than 64 levels");
    if (passed_level_count_ > 0) return ++passed_level_count_ > 0;
    const bool is_member = parts_ && open_.size() == 1 && root_->is_object();
    if (is_member && container.is_object() && *member_name_ == parts_->object) {
      put(std::move(container));
      passed_ = *place_ - 1;
      passed_level_count_ = 1;
      return true;
    }
    const bool is_list = is_member && container.is_array() && *member_name_ == parts_->list;
    open_.push_back(put(std::move(container)));
    if (is_list) list_ = open_.back();
    return true;
  }
  bool close() {
    if (passed_level_count_ > 0) {
      if (--passed_level_count_ == 0) parts_->object_text = {passed_, static_cast<size_t>(*place_ - passed_)};
      return true;
    }
    if (open_.back() == list_) list_ = nullptr;
    open_.pop_back();
    return end_value();
  }
  // One is complete: if it is an element of the list that is handed over, it goes now.
  bool end_value() {
    if (!list_ || open_.back() != list_) return true;
    parts_->take(list_count_++, list_->back());
    list_->clear();
    return true;
  }

  Json *root_;
  JsonParts *parts_;  // may be nullptr
  const char *const *place_;
  Json *member_ = nullptr;
  const std::string *member_name_ = nullptr;
  std::vector<Json *> open_;
  Json *list_ = nullptr;  // while it is open
  size_t list_count_ = 0;
  const char *passed_ = nullptr;  // where the object that is passed over begins
  size_t passed_level_count_ = 0;
  mxs_status status_ = MXS_OK;
};

}  // namespace

mxs_status parse_json(std::string_view text, Json *json) { return parse_json(text, nullptr, json); }

mxs_status parse_json(std::string_view text, JsonParts *parts, Json *json) {
  // The library below takes a zero byte for the end, and would not look at what comes after it.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    return set_error(MXS_INVALID_ARGUMENT, "it is not JSON: byte %zu is zero", zero);
  Json read;
  const char *place = text.data();
  Builder builder(&read, parts, &place);
  if (!Json::sax_parse(Letters(place, &place), Letters(place + text.size(), &place), &builder))
    return builder.status() != MXS_OK ? builder.status() : set_error(MXS_INVALID_ARGUMENT, "it is not JSON");
  *json = std::move(read);
  return MXS_OK;
}

}  // namespace mxs
