// SPDX-License-Identifier: Apache-2.0
// NUMA nodes and NICs as Linux shows them in /sys: compiled where there is no hwloc.
#include <unistd.h>

#include <charconv>

#include "base/status.hpp"
#include "machine/machine.hpp"

namespace mxs {

namespace {

constexpr int numa_max = 1024;  // more than any kernel of today is built for

// "0-3,8" -> 0 1 2 3 8. What makes no sense ends it.
std::vector<int> numbers_of(const std::string &text) {
  std::vector<int> numbers;
  const char *place = text.data(), *const end = text.data() + text.size();
  while (place < end) {
    int first = 0;
    auto [stop, failure] = std::from_chars(place, end, first);
    if (failure != std::errc()) break;
    int last = first;
    if (stop < end && *stop == '-') {
      const auto [after, wrong] = std::from_chars(stop + 1, end, last);
      if (wrong != std::errc()) break;
      stop = after;
    }
    for (int number = first; number <= last && numbers.size() < 65536; ++number) numbers.push_back(number);
    place = stop + 1;  // a comma, or the end of the line
  }
  return numbers;
}

mxs_status without_hwloc(const std::string &path) {
  return set_error(MXS_NOT_BUILT, "%.200s is to be read by hwloc, which is not in this build; install hwloc "
                   "(Debian: libhwloc-dev) and build again", path.c_str());
}

}  // namespace

Locality read_locality() {
  Locality result;
  std::map<int, int> own_number;  // nodes without cores are not counted
  for (int numa = 0; numa < numa_max; ++numa) {
    std::string text;
    const std::string path = "/sys/devices/system/node/node" + std::to_string(numa) + "/cpulist";
    if (access(path.c_str(), R_OK) != 0 || !read_file(path, 65536, &text)) continue;
    std::vector<int> cores = numbers_of(text);
    if (cores.empty()) continue;
    own_number.emplace(numa, static_cast<int>(result.cores_of_numa.size()));
    result.cores_of_numa.push_back(std::move(cores));
  }
  for (const Rail &rail : list_nics())
    for (const char *kind : {"infiniband", "net"}) {
      std::string text;
      int numa = -1;
      if (!read_file(std::string("/sys/class/") + kind + "/" + rail.name + "/device/numa_node", 64, &text)) continue;
      std::from_chars(text.data(), text.data() + text.size(), numa);
      const auto known = own_number.find(numa);
      if (known != own_number.end()) result.numa_of_device.emplace(rail.name, known->second);
    }
  return result;
}

std::map<std::string, DevicePlace> read_device_places() { return {}; }

mxs_status read_saved_device_places(const std::string &path, std::map<std::string, DevicePlace> *) {
  return without_hwloc(path);
}

mxs_status read_saved_machine(const std::string &path, int, std::vector<RankView> *) { return without_hwloc(path); }

}  // namespace mxs
