// SPDX-License-Identifier: Apache-2.0
// make_page FILE: the page of the plan whose JSON comes by standard input, as `mxs plan --html` writes it.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>

#include "cli/plan_page.hpp"

int main(int count, char **arguments) {
  if (count != 2) return 2;
  const std::string plan_json{std::istreambuf_iterator<char>(std::cin), {}};
  const std::string complaint = mxs_cli::write_plan_page(arguments[1], plan_json);
  if (complaint.empty()) return 0;
  std::fprintf(stderr, "%s\n", complaint.c_str());
  return 1;
}
