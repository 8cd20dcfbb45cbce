// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_commands.hpp"

#include <algorithm>
#include <cstdio>

#include "cli/option_words.hpp"
#include "cli/plan_text.hpp"

namespace mxs_cli {

std::string read_paths(const Words &words, std::initializer_list<const char *> names,
                       std::initializer_list<std::pair<const char *, bool *>> flags, std::vector<std::string> *paths) {
  for (const std::string &word : words) {
    const auto flag = std::find_if(flags.begin(), flags.end(), [&](const auto &each) { return word == each.first; });
    if (flag != flags.end()) *flag->second = true;
    else if (word.starts_with("-")) return "there is no option " + in_quotes(word);
    else if (word.empty()) return "a path is empty";
    else if (paths->size() == names.size()) return in_quotes(word) + " is one path too many";
    else paths->push_back(word);
  }
  if (paths->size() < names.size()) return std::string(names.begin()[paths->size()]) + " is missing";
  return "";
}

int failed(const char *command, const std::string &sentence, int status) {
  std::fprintf(stderr, "mxs %s: %s\n", command, printable(sentence).c_str());
  return status;
}

void print_text(const std::string &text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace mxs_cli
