// SPDX-License-Identifier: Apache-2.0
// What a process sees of its machine, and machines that hwloc has saved: test_machine_machine FOLDER.
#include "machine/machine.hpp"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "matrixshard/topology.h"
#include "support/complaints.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::good;

namespace {

std::string folder;
bool has_hwloc = true;

std::string words_for(const char *words, const char *file) {
  return std::string(words) + " hwloc:" + folder + "/" + file;
}

// Numbers of NUMA nodes and names of rails, rank by rank.
std::string told(const Topology &topology) {
  std::string text;
  for (const RankPlace &place : topology.ranks) {
    text.append(std::to_string(place.node)).append(":").append(std::to_string(place.numa)).append(":");
    text.append(topology.node(place.node).rails[static_cast<size_t>(place.rail)].name).append(" ");
  }
  return text;
}

std::string a_saved_machine_becomes_nodes() {
  const struct {
    const char *words, *file, *expected;
  } table[] = {
      {"ranks:2", "two_numa_two_nics.xml", "0:0:mlx5_1 0:1:mlx5_0 "},
      {"ranks:4", "two_numa_two_nics.xml", "0:0:mlx5_1 0:0:mlx5_1 0:1:mlx5_0 0:1:mlx5_0 "},
      {"nodes:2 ranks:2", "two_numa_two_nics.xml", "0:0:mlx5_1 0:1:mlx5_0 1:0:mlx5_1 1:1:mlx5_0 "},
      {"ranks:1+2", "two_numa_two_nics.xml", "0:-1:mlx5_0 1:0:mlx5_1 1:1:mlx5_0 "},
      {"ranks:2 nic:25", "two_numa_no_nics.xml", "0:0: 0:1: "},
  };
  for (const auto &line : table) {
    Topology topology;
    if (parse_topology(words_for(line.words, line.file), &topology, read_saved_machine) != MXS_OK)
      return last_error_text();
    if (told(topology) != line.expected) return std::string(line.words) + ": " + told(topology);
    if (topology.node(0).numa_count != 2) return "not two NUMA nodes";
  }
  return "";
}

std::string a_gpu_has_the_nic_behind_its_switch() {
  std::map<std::string, DevicePlace> places;
  if (read_saved_device_places(folder + "/two_numa_four_gpus.xml", &places) != MXS_OK) return last_error_text();
  std::string told;
  for (const auto &[address, place] : places)
    told += address + " " + std::to_string(place.numa) + " " + place.nic + "; ";
  // The second shares its socket with mlx5_1 alone; the last two are equally near to both and take turns.
  return told == "0000:13:00.0 0 mlx5_1; 0000:22:00.0 0 mlx5_1; 0000:82:00.0 1 mlx5_0; 0000:83:00.0 1 mlx5_2; " ? ""
                                                                                                             : told;
}

std::string places_of_gpus_are_not_made_up() {
  std::map<std::string, DevicePlace> places;
  if (read_saved_device_places(folder + "/two_numa_no_nics.xml", &places) != MXS_OK) return last_error_text();
  if (!places.empty()) return "a GPU where there is none";
  if (read_saved_device_places(folder + "/README.md", &places) != MXS_INVALID_ARGUMENT) return "a text is a machine";
  if (read_saved_device_places(folder + "/nothing.xml", &places) != MXS_SYSTEM) return "a file that is not there";
  for (const auto &[address, place] : read_device_places())  // whatever this machine has
    if (address.size() < 12 || place.numa < -1) return "this machine's " + address;
  return "";
}

std::string more_ranks_than_cores_are_dealt() {
  Topology topology;
  if (parse_topology(words_for("ranks:9", "two_numa_two_nics.xml"), &topology, read_saved_machine) != MXS_OK)
    return last_error_text();
  int count[2] = {0, 0};
  for (const RankPlace &place : topology.ranks)
    if (place.numa >= 0) ++count[place.numa];
  return count[0] + count[1] == 9 && count[0] >= 4 && count[1] >= 4 ? "" : told(topology);
}

std::string xml_is_loaded_as_one_node() {
  Topology topology;
  topology.network.latency_ns = 77;
  if (load_topology(folder + "/two_numa_two_nics.xml", &topology) != MXS_OK) return last_error_text();
  if (topology.network.latency_ns != 77) return "speeds are gone";
  return told(topology) == "0:0:mlx5_1 0:1:mlx5_0 " ? "" : told(topology);
}

std::string text_of(const std::string &path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string bad_xml_gets_a_sentence() {
  char name[] = "/tmp/matrixshard-test-XXXXXX";
  const int file = mkstemp(name);
  if (file < 0) return "no file";
  close(file);
  const std::string whole = text_of(folder + "/two_numa_two_nics.xml");
  std::mt19937 random(11);
  std::string wrong;
  for (int turn = 0; turn < 300 && wrong.empty(); ++turn) {
    std::string text = turn == 0 ? "<" : turn == 1 ? "<topology/>" : whole;
    if (turn >= 2) text.resize(static_cast<size_t>(random()) % whole.size() / 2 + 1);  // cut: never whole
    std::ofstream(name) << text;
    Topology topology;
    const mxs_status status = load_topology(name, &topology);
    if (status != MXS_INVALID_ARGUMENT || topology.rank_count() != 0) wrong = "accepted: " + text;
  }
  unlink(name);
  Topology untouched;
  return wrong.empty() ? mxs::test::expect(load_topology(folder + "/none.xml", &untouched),
                                           MXS_SYSTEM, {"none.xml"})
                       : wrong;
}

std::string without_hwloc_it_is_said() {
  mxs_topology *topology = nullptr;
  return mxs::test::expect(mxs_topology_create(&topology, words_for("ranks:2", "two_numa_no_nics.xml").c_str()),
                           MXS_NOT_BUILT, {"hwloc", "libhwloc-dev"});
}

std::string this_machine_is_seen() {
  const RankView view = look_at_machine();
  if (view.numa_count < 1 || view.numa >= view.numa_count || view.numa < -1) return "NUMA nodes make no sense";
  std::set<std::string> names;
  for (const Rail &rail : view.rails) {
    if (rail.name.empty() || rail.name == "lo" || !names.insert(rail.name).second) return "rail " + rail.name;
    if (rail.numa < -1 || rail.numa >= view.numa_count) return "rail " + rail.name + " is in no NUMA node";
  }
  return look_at_machine() == view ? "" : "it changes";
}

// Every core is in one NUMA node, or none is known.
std::string every_core_has_a_numa_node() {
  const Locality where = read_locality();
  if (where.cores_of_numa.empty()) return "";
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return "";
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    int count = 0;
    for (const std::vector<int> &cores : where.cores_of_numa)
      for (const int one : cores) count += one == core;
    if (count > 1 || (CPU_ISSET(static_cast<size_t>(core), &allowed) && count != 1))
      return "core " + std::to_string(core) + " is in " + std::to_string(count) + " NUMA nodes";
  }
  return "";
}

// hwloc can be told to see another machine, which has two of everything.
std::string hwloc_tells_cores_and_devices() {
  setenv("HWLOC_XMLFILE", (folder + "/two_numa_two_nics.xml").c_str(), 1);
  const Locality where = read_locality();
  unsetenv("HWLOC_XMLFILE");
  const std::map<std::string, int> devices = {{"eth0", 0}, {"eth1", 1}, {"mlx5_0", 1}, {"mlx5_1", 0}};
  return where.cores_of_numa == std::vector<std::vector<int>>{{0, 1}, {2, 3}} && where.numa_of_device == devices
             ? "" : "other ones";
}

std::string named_devices_are_the_rails() {
  const std::vector<Rail> all = list_nics();
  if (all.empty()) return "";
  setenv("UCX_NET_DEVICES", ("nosuch," + all[0].name + ":1").c_str(), 1);
  const std::vector<Rail> one = list_nics();
  setenv("UCX_NET_DEVICES", "all", 1);
  const bool unchanged = list_nics() == all;
  unsetenv("UCX_NET_DEVICES");
  return one.size() == 1 && one[0].name == all[0].name && unchanged ? "" : "they are not";
}

void a_machine_that_hwloc_saved_can_be_every_node(void **) {
  assert_true(good(has_hwloc ? a_saved_machine_becomes_nodes() : without_hwloc_it_is_said()));
}
void ranks_beyond_cores_are_spread_evenly(void **) {
  assert_true(good(has_hwloc ? more_ranks_than_cores_are_dealt() : ""));
}
void a_machine_that_hwloc_saved_is_one_node(void **) {
  assert_true(good(has_hwloc ? xml_is_loaded_as_one_node() : ""));
}
void xml_that_is_cut_gets_a_sentence(void **) { assert_true(good(has_hwloc ? bad_xml_gets_a_sentence() : "")); }
void this_machine_has_a_numa_node_and_rails(void **) { assert_true(good(this_machine_is_seen())); }
void every_core_is_in_one_numa_node(void **) { assert_true(good(every_core_has_a_numa_node())); }
void hwloc_tells_which_numa_node_has_what(void **) {
  assert_true(good(has_hwloc ? hwloc_tells_cores_and_devices() : ""));
}
void a_gpu_gets_the_nearest_nic(void **) {
  assert_true(good(has_hwloc ? a_gpu_has_the_nic_behind_its_switch() : ""));
}
void without_gpus_none_is_placed(void **) { assert_true(good(has_hwloc ? places_of_gpus_are_not_made_up() : "")); }
void ucx_net_devices_chooses_the_rails(void **) { assert_true(good(named_devices_are_the_rails())); }

}  // namespace

int main(int count, char **arguments) {
  if (count != 2) return 2;
  folder = arguments[1];
  std::vector<RankView> views;
  has_hwloc = read_saved_machine(folder + "/two_numa_no_nics.xml", 1, &views) != MXS_NOT_BUILT;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_machine_that_hwloc_saved_can_be_every_node),
      cmocka_unit_test(ranks_beyond_cores_are_spread_evenly),
      cmocka_unit_test(a_machine_that_hwloc_saved_is_one_node),
      cmocka_unit_test(xml_that_is_cut_gets_a_sentence),
      cmocka_unit_test(this_machine_has_a_numa_node_and_rails),
      cmocka_unit_test(every_core_is_in_one_numa_node),
      cmocka_unit_test(hwloc_tells_which_numa_node_has_what),
      cmocka_unit_test(a_gpu_gets_the_nearest_nic),
      cmocka_unit_test(without_gpus_none_is_placed),
      cmocka_unit_test(ucx_net_devices_chooses_the_rails),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
