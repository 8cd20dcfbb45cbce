// SPDX-License-Identifier: Apache-2.0
// Layouts in words, names of algorithms and texts as JSON, as `mxs simulate` and mxs-perf have them.
#include "cli/layout_words.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cli/algorithm_names.hpp"
#include "cli/json_text.hpp"
#include "schedule/schedule.hpp"
#include "support/cmocka_all.h"

using namespace mxs_cli;

namespace {

// "owner:bytes owner:bytes", or the complaint.
std::string shown(const std::string &word, uint64_t bytes, int rank_count, uint64_t element_bytes = 4) {
  std::vector<LayoutPart> parts;
  const std::string complaint = read_layout(word, bytes, rank_count, element_bytes, &parts);
  if (!complaint.empty()) return complaint;
  std::string text;
  for (const LayoutPart &part : parts)
    text.append(text.empty() ? "" : " ").append(std::to_string(part.owner)).append(":").append(
        std::to_string(part.bytes));
  return text;
}

bool same(const std::string &found, const std::string &wanted) {
  if (found == wanted) return true;
  print_error("'%s', not '%s'\n", found.c_str(), wanted.c_str());
  return false;
}

bool has(const std::string &sentence, const std::string &part) {
  if (sentence.find(part) != std::string::npos) return true;
  print_error("'%s' lacks '%s'\n", sentence.c_str(), part.c_str());
  return false;
}

bool words_hold() {
  return same(shown("even", 64, 4), "0:16 1:16 2:16 3:16") && same(shown("even", 20, 4), "0:4 1:8 2:4 3:4") &&
         same(shown("one", 66, 4), "0:64") && same(shown("k:2", 64, 4), "0:32 2:32") &&
         same(shown("k:1+tail", 128, 2), "0:124 1:4") && same(shown("k:3+tail", 384, 8), "0:124 2:124 5:124 6:12") &&
         same(shown("zipf:1", 22, 3, 1), "0:12 1:6 2:4") && same(shown("even", 3, 2), "0:0 1:0");
}

bool bad_words_are_refused() {
  return has(shown("k:0", 64, 4), "from 1 to all 4 ranks") && has(shown("k:5", 64, 4), "from 1 to all 4") &&
         has(shown("k:x", 64, 4), "k:x") && has(shown("zipf:", 64, 4), "zipf:") &&
         has(shown("zipf:-1", 64, 4), "at least 0") && has(shown("zipf:nan", 64, 4), "zipf:nan") &&
         has(shown("evn", 64, 4), "evn");
}

bool sizes_hold() {
  uint64_t bytes = 0;
  const auto size = [&](const char *text) { return read_size(text, &bytes).empty() ? bytes : UINT64_MAX; };
  if (size("4096") != 4096 || size("16M") != 16u << 20 || size("1.5K") != 1536 || size("0") != 0) return false;
  for (const char *text : {"", "K", "-1", "1 M", "12X", "nan", "inf", "1e30", "99999999T", "0x10"})
    if (size(text) != UINT64_MAX) {
      print_error("\"%s\" was taken for %llu\n", text, static_cast<unsigned long long>(bytes));
      return false;
    }
  return true;
}

std::string of_file(const char *text) {
  char path[] = "layout_words_XXXXXX";
  const int file = mkstemp(path);
  if (file < 0 || !write(file, text, std::strlen(text))) return "no file";
  close(file);
  const std::string result = shown(path, 0, 4);
  std::remove(path);
  return result;
}

bool files_hold() {
  return same(of_file("# matrices\n 3 16K\n\n0 8 # tail\n3 4\n"), "3:16384 0:8 3:4") &&
         has(of_file("0 8\n4 8\n"), "line 2: owner 4 is not one of 4 ranks") && has(of_file("0\n"), "line 1") &&
         has(of_file("0 8 9\n"), "owner bytes") && has(of_file("0 6\n"), "whole elements") &&
         has(of_file("0 x\n"), "not a size") && has(shown(".", 0, 4), "a file that can be read") &&
         has(shown("/dev/zero", 0, 4), "a file that can be read");
}

bool names_are_complete() {
  for (const mxs::Algorithm algorithm : mxs::all_algorithms) {
    const std::string name = mxs::algorithm_name(algorithm);
    bool listed = algorithm == mxs::Algorithm::direct;
    for (const char *each : message_algorithms) listed = listed || name == each;
    if (!listed) {
      print_error("%s is in no list of cli/algorithm_names.hpp\n", name.c_str());
      return false;
    }
  }
  return true;
}

bool texts_hold() {
  return same(quoted("a \"b\" \\ c"), "\"a \\\"b\\\" \\\\ c\"") && same(quoted("1\n2\x1f"), "\"1\\u000a2\\u001f\"") &&
         same(quoted(""), "\"\"") && same(quoted("\xc3\xa9"), "\"\xc3\xa9\"");
}

bool bytes_that_are_no_text_hold() {
  const std::string lost = "\\ufffd";
  for (const char *good : {"\xe6\xbc\xa2", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"})
    if (!same(quoted(good), std::string("\"").append(good).append("\""))) return false;
  return same(quoted("a\xff z"), "\"a" + lost + " z\"") && same(quoted("\xc3"), "\"" + lost + "\"") &&
         same(quoted("\xc0\xaf"), "\"" + lost + lost + "\"") &&
         same(quoted("\xed\xa0\x80"), "\"" + lost + lost + lost + "\"") &&
         same(quoted("\xf4\x90\x80\x80"), "\"" + lost + lost + lost + lost + "\"") &&
         same(quoted("\xe6\xbc\""), "\"" + lost + lost + "\\\"\"");
}

void words_say_who_owns_what(void **) { assert_true(words_hold()); }
void words_that_make_no_sense_are_refused(void **) { assert_true(bad_words_are_refused()); }
void sizes_have_units(void **) { assert_true(sizes_hold()); }
void a_file_has_a_line_per_segment(void **) { assert_true(files_hold()); }
void every_algorithm_has_its_name_in_the_list(void **) { assert_true(names_are_complete()); }
void texts_are_escaped_in_json(void **) { assert_true(texts_hold() && bytes_that_are_no_text_hold()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(words_say_who_owns_what),
      cmocka_unit_test(words_that_make_no_sense_are_refused),
      cmocka_unit_test(sizes_have_units),
      cmocka_unit_test(a_file_has_a_line_per_segment),
      cmocka_unit_test(every_algorithm_has_its_name_in_the_list),
      cmocka_unit_test(texts_are_escaped_in_json),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
