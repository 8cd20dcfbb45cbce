// SPDX-License-Identifier: Apache-2.0
#include "switches.hpp"

#include <cstdlib>
#include <functional>
#include <map>

#include "driver.hpp"

namespace standin {

namespace {

using Setter = std::function<void(Switches &switches, const std::string &value)>;

std::vector<std::string> split(const std::string &text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    if (comma > begin) parts.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return parts;
}

int64_t number(const std::string &text, int64_t otherwise) {
  return text.empty() ? otherwise : std::strtoll(text.c_str(), nullptr, 0);
}

bool is_on(const std::string &text) { return !text.empty() && text != "0"; }

// A value that is empty means the default.
const std::map<std::string, Setter> &setters() {
  static const auto *const table = new std::map<std::string, Setter>{
      {"DEVICES", [](Switches &s, const std::string &v) { s.device_count = static_cast<int>(number(v, 1)); }},
      {"DRIVER_VERSION", [](Switches &s, const std::string &v) {
         s.driver_version = static_cast<int>(number(v, 13000));
       }},
      {"MEMORY", [](Switches &s, const std::string &v) {
         s.memory_bytes = static_cast<uint64_t>(number(v, int64_t{4} << 30));
       }},
      {"FAIL_ALLOCATION_AFTER", [](Switches &s, const std::string &v) { s.allocations_left = number(v, -1); }},
      {"FAIL_JOB_AFTER", [](Switches &s, const std::string &v) { s.jobs_left = number(v, -1); }},
      {"DROP_WAIT", [](Switches &s, const std::string &v) { s.waits_left = number(v, -1); }},
      {"NO_VMM", [](Switches &s, const std::string &v) { s.has_vmm = !is_on(v); }},
      {"NO_WAIT_VALUE", [](Switches &s, const std::string &v) { s.has_wait_value = !is_on(v); }},
      {"COMPUTE", [](Switches &s, const std::string &v) { s.compute = static_cast<int>(number(v, 90)); }},
      {"PCI", [](Switches &s, const std::string &v) { s.pci_addresses = split(v); }},
      {"SLOW", [](Switches &s, const std::string &v) { s.slow_microseconds = static_cast<uint64_t>(number(v, 0)); }},
      {"SLOW_STREAMS", [](Switches &s, const std::string &v) {
         s.slows_odd = v != "even";
         s.slows_even = v != "odd";
       }},
      {"SLOW_SEED", [](Switches &s, const std::string &v) {
         s.has_seed = !v.empty();
         s.seed = static_cast<uint64_t>(number(v, 0));
       }},
      {"MISSING", [](Switches &s, const std::string &v) {
         s.missing.clear();
         for (const std::string &name : split(v)) s.missing.insert(name);
       }},
      {"KERNELS", [](Switches &s, const std::string &v) { s.kernels_path = v; }},
      {"GUARD", [](Switches &s, const std::string &v) { s.guards = v.empty() || is_on(v); }},
      // Streams of another device may be reading it without the lock.
      {"TRACE", [](Switches &, const std::string &v) { trace_to(v); }},
  };
  return *table;
}

constexpr char prefix[] = "MXS_STANDIN_";

}  // namespace

bool set_switch(Switches *switches, const char *name, const char *value) {
  const std::string full = name;
  if (full.rfind(prefix, 0) != 0) return false;
  const auto found = setters().find(full.substr(sizeof prefix - 1));
  if (found == setters().end()) return false;
  found->second(*switches, value ? value : "");
  return true;
}

Switches switches_of_environment() {
  Switches switches;
  for (const auto &[name, set] : setters())
    if (const char *const value = std::getenv((prefix + name).c_str())) set(switches, value);
  return switches;
}

}  // namespace standin
