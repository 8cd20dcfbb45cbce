// SPDX-License-Identifier: Apache-2.0
// Names of checkpoints: folders that others have made, and what a caller gives.
#include "checkpoint/folder.hpp"
#include "fuzz.hpp"

using namespace mxs;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string name(fuzz::text_of(data, size));
  uint64_t number = 0;
  if (step_of_folder_name(name, &number)) {
    fuzz::promise(step_folder_name(number) == name && fault_of_name(name) == nullptr);
    return 0;
  }
  if (fault_of_name(name) == nullptr)
    fuzz::promise(!name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
                  name.find('\0') == std::string::npos && name.size() <= 255);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"step-00000500", "step-18446744073709551615", "step-18446744073709551616", "step-000000500", "final",
          ".step-00000500.partial-0f", "a/b", "step-0000050x"};
}
