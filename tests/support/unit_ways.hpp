// SPDX-License-Identifier: Apache-2.0
// The ways by which a unit's weights come here, for tests that try each; and the options and state of a unit.
#pragma once

#include <cstdint>

#include "matrixshard/unit.h"

namespace mxs::test {

struct Way {
  const char *name;
  int gather;
  const char *algorithm;
};
constexpr Way ways[] = {{"by copy", MXS_GATHER_BY_COPY, nullptr},
                        {"by reference", MXS_GATHER_BY_REFERENCE, nullptr},
                        {"by flat messages", MXS_GATHER_BY_COPY, "flat"},
                        {"by chained messages", MXS_GATHER_BY_COPY, "chain"}};

inline mxs_unit_options options_of(const Way &way, int slots = 2, int flags = 0) {
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.gather = way.gather;
  options.algorithm = way.algorithm;
  options.flags = flags;
  options.slots = slots;
  return options;
}

inline mxs_unit_info info_of(mxs_unit *unit) {
  mxs_unit_info info = MXS_UNIT_INFO_INIT;
  mxs_unit_query(unit, &info);
  return info;
}

}  // namespace mxs::test
