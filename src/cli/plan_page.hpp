// SPDX-License-Identifier: Apache-2.0
// The page of `mxs plan --html`: one file that shows a plan in any browser and asks nothing of any network.
//
// plan_page.html is the page, with a small plan in it so that it can be opened and edited as it is. The program carries
// that file (meson.build) and puts the plan at hand in the small one's place.
#pragma once

#include <string>

namespace mxs_cli {

// The page's text. plan_json is what `mxs plan --json` prints; names in it may be anything, they stay text.
std::string plan_page(const std::string &plan_json);

// Writes it to path, completely or not at all. Returns an empty text, or a sentence that says what failed.
std::string write_plan_page(const std::string &path, const std::string &plan_json);

}  // namespace mxs_cli
