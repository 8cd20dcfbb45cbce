// SPDX-License-Identifier: Apache-2.0
// Whole documents, such that are cut at any byte, and such that are wrong in another way.
#include "machine/xml_shape.hpp"

#include <fstream>
#include <sstream>
#include <string>

#include "support/complaints.hpp"
#include "support/cmocka_all.h"

using mxs::is_whole_xml;
using mxs::test::good;

namespace {

std::string folder;

std::string machines_are_whole_and_their_beginnings_are_not() {
  for (const char *name : {"two_numa_four_gpus.xml", "two_numa_no_nics.xml", "two_numa_two_nics.xml"}) {
    std::stringstream read;
    read << std::ifstream(folder + "/" + name).rdbuf();
    const std::string text = read.str();
    if (!is_whole_xml(text, "topology") || is_whole_xml(text, "object")) return name;
    const size_t last = text.rfind('>');
    for (size_t bytes = 0; bytes <= last; ++bytes)
      if (is_whole_xml(std::string_view(text).substr(0, bytes), "topology"))
        return std::string(name) + " is whole after " + std::to_string(bytes) + " bytes";
  }
  return "";
}

std::string odd_documents_are_told_apart() {
  for (const char *text : {"<a/>", "<a></a>", "<?xml version=\"1.0\"?>\n<a>text<b c='>'/></a>\n", "<a b=\"<\">\n</a >",
                           "<!-- < > --><a><!-- </a> --></a>"})
    if (!is_whole_xml(text, "a")) return std::string("refused: ") + text;
  for (const char *text : {"", "a", "<", "<>", "</a>", "<a>", "<a", "<a b=\"/>", "<a><b></a></b>", "<a/><a/>",
                           "<a></a></a>", "<aa/>", "<a><a>", "<a <b/></a>", "<!-- <a/>", "<?a?>"})
    if (is_whole_xml(text, "a")) return std::string("accepted: ") + text;
  return "";
}

void machines(void **) { assert_true(good(machines_are_whole_and_their_beginnings_are_not())); }
void odd(void **) { assert_true(good(odd_documents_are_told_apart())); }

}  // namespace

int main(int count, char **arguments) {
  if (count != 2) return 2;
  folder = arguments[1];
  const CMUnitTest tests[] = {
      {"machines_are_whole_and_their_beginnings_are_not", machines, nullptr, nullptr, nullptr},
      {"odd_documents_are_told_apart", odd, nullptr, nullptr, nullptr},
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
