// SPDX-License-Identifier: Apache-2.0
// A configuration's keys, and the architectures that know what they mean.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/model.hpp"

namespace mxs {

// Keys by name. The first fault stays: read all that is wanted, then ask status().
class Config {
 public:
  explicit Config(const nlohmann::json &root) : root_(root) {}

  bool has(const char *key) const;                                // there, and not null
  int64_t count(const char *key) const;                           // from 1; a key that is not there is a fault
  int64_t count_or(const char *key, int64_t otherwise) const;
  int64_t whole_number(const char *key, int64_t least) const;     // a key that is not there is a fault
  bool flag(const char *key, bool otherwise) const;
  std::string text(const char *key) const;                        // "" if it is not there
  bool wrong(const char *key, const std::string &what) const;     // false
  mxs_status status() const { return status_; }

 private:
  const nlohmann::json &root_;
  mutable mxs_status status_ = MXS_OK;
};

// One model_type, or several that are made alike.
struct Architecture {
  const char *kind;   // model_type
  const char *class_name;  // in "architectures"
  mxs_status (*build)(const Config &config, LoadedModel *model);
};

const Architecture *find_architecture(const std::string &class_name, const std::string &kind);  // nullptr: unknown
std::string known_architectures();  // "llama, mistral, ..."

}  // namespace mxs
