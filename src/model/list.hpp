// SPDX-License-Identifier: Apache-2.0
// What lists in JSON and in CSV share: the fields of a tensor, and the units that they name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

#include "model/model.hpp"

namespace mxs {

enum class FieldKind { unknown, text, number, numbers, flag, number_or_text };

FieldKind field_kind(std::string_view field);
std::string known_fields();  // "name, shape, ..."

// Units by number or by name, as the file writes them; not both in one file, and all tensors or none (tied ones may
// leave it out: they are where their bytes are).
class UnitNames {
 public:
  mxs_status add(const std::string &where, int64_t number, LoadedTensor *tensor);
  mxs_status add(const std::string &where, const std::string &name, LoadedTensor *tensor);
  mxs_status finish(LoadedModel *model) const;  // fills in unit_names; leaves them empty if no tensor has a unit

 private:
  std::unordered_map<std::string, int> unit_of_name_;
  std::vector<std::string> names_;
  int number_max_ = -1;
};

// The sentence begins with where: "tensors[3]", "line 7".
mxs_status set_field(const std::string &where, const std::string &field, const nlohmann::json &value,
                     LoadedTensor *tensor, UnitNames *units);

}  // namespace mxs
