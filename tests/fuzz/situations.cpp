// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other that have waited for long: two notices. What is unpacked can be packed again, and whatever
// they hold, comparing them gives a sentence or none; of a notice with itself, none.
#include <cstring>

#include "collective/situation.hpp"
#include "fuzz.hpp"
#include "matrixshard/comm.h"

using namespace mxs;

namespace {

std::string text_of(const Situation &situation) {
  const Notice notice = situation.pack();
  return {reinterpret_cast<const char *>(notice.words), sizeof notice.words};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Notice notices[2] = {};
  std::memcpy(notices, data, std::min(size, sizeof notices));
  const Situation mine = Situation::unpack(notices[0]), theirs = Situation::unpack(notices[1]);
  for (const Situation &each : {mine, theirs}) {
    fuzz::promise(each.count >= 0 && each.count <= Situation::entries_max);
    const Notice again = each.pack();
    fuzz::promise(text_of(Situation::unpack(again)) == text_of(each));
    fuzz::promise(!each.text().empty());
  }
  const auto record_of = [](const Situation &situation) {
    return [&situation](uint64_t sequence) {
      for (int i = 0; i < situation.count; ++i)
        if (situation.entries[i].sequence == sequence) return situation.entries[i];
      return OperationQueue::Record{};
    };
  };
  const auto reference_of = [&mine](uint64_t number) { return number == mine.references ? mine.reference_unit : -1; };
  const std::string complaint = compare_situations(0, mine, 1, theirs, record_of(mine), reference_of);
  fuzz::promise(complaint.size() < 512);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  Situation mine, theirs;
  mine.last = theirs.last = 7;
  mine.add({7, MXS_GATHER, 0x1234});
  theirs.add({7, MXS_REDUCE, 0x1234});
  theirs.question = true;
  Situation agrees;
  agrees.last = 5;
  agrees.agreements = 3;
  agrees.agreement_at = 5;
  agrees.in_agreement = true;
  Situation refers;
  refers.references = refers.reference = 4;
  refers.reference_at = 2;
  refers.reference_unit = 6;
  return {text_of(refers) + text_of(agrees), text_of(mine) + text_of(theirs), text_of(agrees) + text_of(mine),
          text_of(mine) + text_of(mine)};
}
