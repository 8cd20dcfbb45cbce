// SPDX-License-Identifier: Apache-2.0
// A parser's events become a tree. Not nlohmann's own parse with a callback: at the end of each object that one looks
// through all members of the parent, which is quadratic in the tensors of a header.
#include "base/json.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace mxs {
namespace {

using Json = nlohmann::json;

constexpr size_t level_count_max = 64;

class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(Json *root) : root_(root) {}

  bool null() override { return put(nullptr) != nullptr; }
  bool boolean(bool value) override { return put(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return put(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return put(value) != nullptr; }
  bool number_float(number_float_t value, const string_t &) override { return put(value) != nullptr; }
  bool string(string_t &value) override { return put(std::move(value)) != nullptr; }
  bool binary(binary_t &) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t &name) override {
    const auto [place, is_new] = open_.back()->get_ref<Json::object_t &>().emplace(std::move(name), nullptr);
    member_ = &place->second;
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
  bool open(Json container) {
    if (open_.size() == level_count_max) return refuse("it has more than 64 levels");
    open_.push_back(put(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json *root_;
  Json *member_ = nullptr;
  std::vector<Json *> open_;
  mxs_status status_ = MXS_OK;
};

}  // namespace

mxs_status parse_json(std::string_view text, Json *json) {
  // The library below takes a zero byte for the end, and would not look at what comes after it.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    return set_error(MXS_INVALID_ARGUMENT, "it is not JSON: byte %zu is zero", zero);
  Json read;
  Builder builder(&read);
  if (!Json::sax_parse(text, &builder))
    return builder.status() != MXS_OK ? builder.status() : set_error(MXS_INVALID_ARGUMENT, "it is not JSON");
  *json = std::move(read);
  return MXS_OK;
}

}  // namespace mxs
