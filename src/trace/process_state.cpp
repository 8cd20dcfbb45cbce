// SPDX-License-Identifier: Apache-2.0
#include "trace/process_state.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/hash.hpp"

namespace mxs {

namespace {

std::string read_small(const std::string &path) {
  char text[1024];
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const ssize_t bytes = read(file, text, sizeof text);
  close(file);
  return std::string(text, bytes > 0 ? static_cast<size_t>(bytes) : 0);
}

// /proc/N/stat: "N (name) S ...", where the name may hold anything, parentheses among it. The state is field 3, the
// start field 22.
bool read_stat(int64_t process, char *state, uint64_t *start) {
  const std::string text = read_small("/proc/" + std::to_string(process) + "/stat");
  size_t place = text.rfind(')');
  if (place == std::string::npos || place + 2 >= text.size()) return false;
  *state = text[place + 2];
  for (int field = 2; field < 22 && place != std::string::npos; ++field) place = text.find(' ', place + 1);
  if (place == std::string::npos) return false;
  *start = std::strtoull(text.c_str() + place + 1, nullptr, 10);
  return *start != 0;
}

uint64_t this_machine() {
  const std::string boot = read_small("/proc/sys/kernel/random/boot_id");
  struct stat names {};
  if (boot.empty() || stat("/proc/self/ns/pid", &names) != 0) return 0;
  return Fingerprint().add(std::string_view(boot)).add(names.st_ino).value();
}

}  // namespace

KnownProcess this_process() {
  KnownProcess process;
  char state = 0;
  process.machine = this_machine();
  process.id = getpid();
  if (!read_stat(process.id, &state, &process.start)) process.start = 0;
  return process;
}

std::string host_name() {
  char text[65] = {};
  return gethostname(text, sizeof text - 1) == 0 ? text : "";
}

// A process that nobody has waited for yet (Z) has ended all the same.
ProcessState look_at_process(const KnownProcess &process) {
  if (process.machine == 0 || process.machine != this_machine() || process.id <= 0 || process.start == 0) return {};
  char state = 0;
  uint64_t found = 0;
  if (!read_stat(process.id, &state, &found) || found != process.start || std::strchr("ZXx", state)) return {0, false};
  return {1, state == 'T' || state == 't'};
}

}  // namespace mxs
