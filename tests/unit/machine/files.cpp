// SPDX-License-Identifier: Apache-2.0
// Topologies and speeds in files: what is saved comes back, and bad files get a sentence.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "machine/machine.hpp"
#include "matrixshard/topology.h"
#include "support/complaints.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::good;

namespace {

std::string folder;  // of this program alone, empty at the end

std::string path_of(const char *name) { return folder + "/" + name; }

void put(const std::string &path, const std::string &text) { std::ofstream(path) << text; }

std::string text_of(const std::string &path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// As uneven and odd as it gets.
Topology odd_topology() {
  Topology made = topology_from_views({{7, 0, 2, {{"eth1", 1, 0}, {"a \"name\"", 0, 100}}},
                                       {9, -1, 1, {}},
                                       {7, 1, 2, {{"zz", -1, 5}}},
                                       {3, 0, 1, {{"\xff", 0, 7}}},
                                       {9, -1, 1, {}}});
  made.local = {1, 2, 3};
  made.network = {0, UINT32_MAX, 25'000'000};
  made.add_bytes_per_second = 1;
  made.set_factor("spread", 1250);
  made.set_factor("chain", 1);
  made.set_factor("a", 1'000'000);
  return made;
}

std::string what_is_saved_comes_back() {
  Topology saved = odd_topology();
  for (Node &node : saved.nodes)
    for (Rail &rail : node.rails)
      if (rail.name == "\xff") rail.name = "plain";  // JSON holds UTF-8 only: other bytes are replaced
  const std::string path = path_of("topology.json");
  if (save_topology(saved, path) != MXS_OK) return last_error_text();
  Topology loaded;
  if (load_topology(path, &loaded) != MXS_OK) return last_error_text();
  if (!(loaded == saved)) return "it changed on the way: " + text_of(path);
  if (loaded.hash(true) != saved.hash(true)) return "the hash changed on the way";
  if (save_topology(odd_topology(), path) != MXS_OK || load_topology(path, &loaded) != MXS_OK)
    return "a name that is no UTF-8: " + std::string(last_error_text());
  return "";
}

std::string the_public_functions_save_and_load() {
  mxs_topology *made = nullptr, *loaded = nullptr;
  const std::string path = path_of("public.json");
  if (mxs_topology_create(&made, "ranks:1+6+2 nic:25 rails:2") != MXS_OK ||
      mxs_topology_save(made, path.c_str()) != MXS_OK || mxs_topology_load(&loaded, path.c_str()) != MXS_OK)
    return mxs_last_error();
  mxs_rank_info info = MXS_RANK_INFO_INIT;
  std::string wrong;
  if (mxs_topology_rank_count(loaded) != 9 || mxs_topology_node_count(loaded) != 3 ||
      mxs_topology_rank(loaded, 8, &info) != MXS_OK || info.rail != 1 || info.local_rank != 1 || info.node != 2)
    wrong = "another topology came back";
  mxs_topology_destroy(&made);
  mxs_topology_destroy(&loaded);
  return wrong;
}

const char *const good_text =
    "{\"matrixshard_topology\": 1, \"nodes\": [{\"numa_count\": 2, \"rails\": [{\"name\": \"a\", \"numa\": 1}],"
    " \"ranks\": [{\"rank\": 0, \"numa\": 1, \"rail\": 0}, {\"rank\": 2}]}, {\"ranks\": [{\"rank\": 1}]}]}";

std::string with(const std::string &from, const std::string &to) {
  std::string text = good_text;
  const size_t place = text.find(from);
  return place == std::string::npos ? "the test is wrong" : text.replace(place, from.size(), to);
}

std::string bad_files_name_the_field() {
  const struct {
    std::string text, word;
  } table[] = {
      {"", "it is not JSON"},
      {"{", "it is not JSON"},
      {"{\"matrixshard_topology\": 1, \"matrixshard_topology\": 1}", "\"matrixshard_topology\" stands twice"},
      {"[]", "it is not an object"},
      {"{}", "matrixshard_topology is missing"},
      {with("\": 1,", "\": 2,"), "matrixshard_topology is not a whole number from 1 to 1"},
      {with("\": 1,", "\": \"1\","), "matrixshard_topology is not"},
      {with("nodes", "nods"), "nods is not a known field"},
      {with("\"nodes\"", "\"local\": 3, \"nodes\""), "local is not an object"},
      {with("\"nodes\"", "\"network\": {\"latency_ns\": -1}, \"nodes\""), "network.latency_ns"},
      {with("\"nodes\"", "\"network\": {\"latency\": 1}, \"nodes\""), "network.latency is not a known"},
      {with("\"nodes\"", "\"network\": {\"bytes_per_second\": 0}, \"nodes\""), "network.bytes_per_second"},
      {with("\"nodes\"", "\"network\": {\"bytes_per_second\": 18446744073709551615}, \"nodes\""), "bytes_per_second"},
      {with("\"nodes\"", "\"factors\": {\"chain\": 0}, \"nodes\""), "factors.chain is not a number"},
      {with("\"nodes\"", "\"factors\": {\"\": 1}, \"nodes\""), "has a name that is empty"},
      {with("\"nodes\"", "\"factors\": [1], \"nodes\""), "factors is not an object"},
      {"{\"matrixshard_topology\": 1}", "nodes is missing"},
      {"{\"matrixshard_topology\": 1, \"nodes\": []}", "nodes is empty"},
      {"{\"matrixshard_topology\": 1, \"nodes\": [3]}", "nodes[0] is not an object"},
      {"{\"matrixshard_topology\": 1, \"nodes\": [{\"ranks\": []}]}", "nodes[0].ranks is empty"},
      {with("\"numa_count\": 2", "\"numa_count\": 0"), "nodes[0].numa_count"},
      {with("\"numa_count\": 2", "\"numa_count\": 1"), "nodes[0].rails[0].numa"},
      {with("\"name\": \"a\"", "\"name\": 1"), "nodes[0].rails[0].name is not a text"},
      {with("\"name\": \"a\"", "\"name\": \"" + std::string(64, 'x') + "\""), "nodes[0].rails[0].name is longer"},
      {with("\"rail\": 0", "\"rail\": 1"), "nodes[0].ranks[0].rail"},
      {with("\"rank\": 0", "\"rank\": 1048576"), "nodes[0].ranks[0].rank"},
      {with("\"rank\": 0", "\"rank\": 0.5"), "nodes[0].ranks[0].rank"},
      {with("\"rank\": 2", "\"rank\": 0"), "nodes[0].ranks[1].rank is not greater"},
      {with("{\"rank\": 1}", "{\"rank\": 2}"), "nodes[1].ranks[0].rank stands there twice"},
      {with("{\"rank\": 1}", "{\"rank\": 3}"), "no rank 1 of 4"},
      {with("\"rank\": 0", "\"rank\": 1"), "nodes[1].ranks[0].rank stands there twice"},
  };
  const std::string path = path_of("bad.json");
  Topology before = odd_topology();
  put(path, good_text);
  Topology fine;
  if (load_topology(path, &fine) != MXS_OK) return last_error_text();
  for (const auto &line : table) {
    put(path, line.text);
    Topology topology = before;
    const std::string wrong = mxs::test::expect(load_topology(path, &topology), MXS_INVALID_ARGUMENT,
                                                {line.word, "bad.json"});
    if (!wrong.empty()) return line.text + ": " + wrong;
    if (!(topology == before)) return line.text + ": changed the topology";
  }
  return "";
}

std::string what_is_no_file_gets_a_sentence() {
  Topology topology;
  const std::string missing = mxs::test::expect(load_topology(path_of("none"), &topology), MXS_SYSTEM, {"none"});
  if (!missing.empty()) return missing;
  const std::string a_folder = mxs::test::expect(load_topology(folder, &topology), MXS_SYSTEM, {folder});
  if (!a_folder.empty()) return a_folder;
  mkfifo(path_of("pipe").c_str(), 0600);
  const std::string pipe = mxs::test::expect(load_topology(path_of("pipe"), &topology), MXS_SYSTEM, {"pipe"});
  if (!pipe.empty()) return pipe;
  if (load_topology("/dev/zero", &topology) != MXS_SYSTEM) return "/dev/zero is a file";
  return mxs::test::expect(save_topology(topology, path_of("no/such/place")), MXS_SYSTEM, {"no/such/place"});
}

std::string only_files_are_replaced() {
  const mxs::Topology topology = topology_from_nodes({0, 0});
  const std::string pipe = path_of("pipe"), file = path_of("topology.json"), link = path_of("link");
  unlink(pipe.c_str());
  if (mkfifo(pipe.c_str(), 0600) != 0) return "no pipe";
  std::string wrong = mxs::test::expect(save_topology(topology, pipe), MXS_SYSTEM, {"pipe"});
  if (wrong.empty()) wrong = mxs::test::expect(save_speeds(topology, pipe), MXS_SYSTEM, {"pipe"});
  if (wrong.empty()) wrong = mxs::test::expect(save_speeds(topology, folder), MXS_SYSTEM, {"directory"});
  struct stat information {};
  if (stat(pipe.c_str(), &information) != 0 || !S_ISFIFO(information.st_mode)) return "the pipe has become a file";
  put(file, "old");
  if (symlink("topology.json", link.c_str()) != 0) return "no link";
  if (save_topology(topology, link) != MXS_OK) return last_error_text();
  if (lstat(link.c_str(), &information) != 0 || !S_ISLNK(information.st_mode)) return "the link has become a file";
  if (text_of(file) == "old") return "what the link leads to is as before";
  return wrong;
}

// Thousands of files that are nearly right. Any answer but a crash, a hang, or a topology that doesn't hold together.
std::string mutated_files_never_crash() {
  std::mt19937 random(3);
  const std::string letters = "{}[]\",:0123456789.-e \\u\xff\n";
  const std::string seeds[] = {good_text, topology_to_json(odd_topology()), speeds_to_json(odd_topology())};
  int accepted = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    std::string text = seeds[turn % 3];
    for (unsigned change = 0; change <= random() % 3; ++change) {
      const size_t place = random() % text.size();
      switch (random() % 3) {
        case 0: text[place] = letters[random() % letters.size()]; break;
        case 1: text.erase(place, 1 + random() % 6); break;
        default: text.insert(text.begin() + static_cast<long>(place), letters[random() % letters.size()]);
      }
    }
    Topology topology;
    bool has_network = false;
    const mxs_status status = turn % 3 == 2 ? speeds_from_json(text, &topology, &has_network)
                                            : topology_from_json(text, &topology);
    if (status != MXS_OK && (status != MXS_INVALID_ARGUMENT || !*last_error_text())) return text;
    if (status != MXS_OK) continue;
    ++accepted;
    for (const RankPlace &place : topology.ranks)
      if (place.node < 0 || place.node >= topology.node_count() || place.rail < 0 ||
          place.rail >= static_cast<int>(topology.node(place.node).rails.size()))
        return "accepted: " + text;
  }
  return accepted > 100 ? "" : "nothing was accepted";
}

std::string deep_and_wide_files_are_refused() {
  Topology topology;
  const std::string deep(1'000'000, '[');
  std::string wrong = mxs::test::expect(topology_from_json(deep, &topology), MXS_INVALID_ARGUMENT, {"not JSON"});
  if (!wrong.empty()) return wrong;
  const std::string closed = deep.substr(0, 100000) + std::string(100000, ']');
  wrong = mxs::test::expect(topology_from_json(closed, &topology), MXS_INVALID_ARGUMENT, {"64 levels"});
  if (!wrong.empty()) return wrong;
  std::string wide = "{\"matrixshard_topology\": 1";
  for (int i = 0; i < 100000; ++i) wide += ", \"k" + std::to_string(i) + "\": 1";
  return mxs::test::expect(topology_from_json(wide + "}", &topology), MXS_INVALID_ARGUMENT, {"is not a known field"});
}

// ---- speeds ----

std::string speeds_are_kept_where_comms_look() {
  unsetenv("MXS_SPEEDS");
  const std::string cache = path_of("cache");
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  Speeds read;
  bool has_network = true;
  std::string from = "x";
  if (load_speeds(&read, &has_network, &from) != MXS_OK || !from.empty() || !(read == Speeds()))
    return "a file that isn't there is no failure";
  mxs_topology *topology = nullptr;
  if (mxs_topology_create(&topology, "ranks:2 nic:3 latency:4") != MXS_OK ||
      mxs_topology_save_speeds(topology, nullptr) != MXS_OK)
    return mxs_last_error();
  mxs_topology_destroy(&topology);
  if (load_speeds(&read, &has_network, &from) != MXS_OK) return last_error_text();
  if (from != cache + "/matrixshard/speeds.json" || !has_network || read.network.latency_ns != 4000 ||
      read.network.bytes_per_second != 3'000'000'000u)
    return "other speeds came back from " + from;
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", folder.c_str(), 1);
  bool given = true;
  if (speeds_path(&given) != folder + "/.cache/matrixshard/speeds.json" || given) return "HOME is not looked at";
  return "";
}

std::string a_named_file_of_speeds_must_be_there() {
  const std::string path = path_of("speeds.json");
  setenv("MXS_SPEEDS", path.c_str(), 1);
  Speeds read;
  bool has_network = false;
  std::string from;
  std::string wrong = mxs::test::expect(load_speeds(&read, &has_network, &from), MXS_SYSTEM, {"speeds.json"});
  if (!wrong.empty()) return wrong;
  put(path, "{\"matrixshard_speeds\": 1, \"local\": {\"latency_ns\": 5}, \"factors\": {\"chain\": 1.0004}}");
  if (load_speeds(&read, &has_network, &from) != MXS_OK) return last_error_text();
  if (read.local.latency_ns != 5 || has_network || from != path || read.factor_per_mille("chain") != 1000)
    return "other speeds";
  put(path, "{\"matrixshard_speeds\": 1, \"speed\": 5}");
  wrong = mxs::test::expect(load_speeds(&read, &has_network, &from), MXS_INVALID_ARGUMENT,
                            {"speeds.json", "speed is not a known field"});
  if (!wrong.empty()) return wrong;
  setenv("MXS_SPEEDS", "none", 1);
  if (load_speeds(&read, &has_network, &from) != MXS_OK || !from.empty()) return "none is a file";
  return mxs::test::expect(save_speeds(Speeds(), ""), MXS_ENVIRONMENT, {"MXS_SPEEDS"});
}

void a_topology_comes_back_from_its_file(void **) { assert_true(good(what_is_saved_comes_back())); }
void save_and_load_are_public(void **) { assert_true(good(the_public_functions_save_and_load())); }
void a_bad_file_gets_a_sentence_with_the_field(void **) { assert_true(good(bad_files_name_the_field())); }
void what_is_not_a_file_gets_a_sentence(void **) { assert_true(good(what_is_no_file_gets_a_sentence())); }
void only_a_file_is_replaced(void **) { assert_true(good(only_files_are_replaced())); }
void files_that_are_nearly_right_never_crash(void **) { assert_true(good(mutated_files_never_crash())); }
void deep_and_wide_files_do_no_harm(void **) { assert_true(good(deep_and_wide_files_are_refused())); }
void speeds_are_saved_for_later_comms(void **) { assert_true(good(speeds_are_kept_where_comms_look())); }
void a_file_of_speeds_that_is_named_must_be_good(void **) { assert_true(good(a_named_file_of_speeds_must_be_there())); }

void save_and_load_refuse_nulls(void **) {
  mxs_topology *topology = nullptr;
  assert_int_equal(mxs_topology_load(nullptr, "x"), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_load(&topology, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_load(&topology, ""), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_save(nullptr, "x"), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_create(&topology, "ranks:1"), MXS_OK);
  assert_int_equal(mxs_topology_save(topology, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_save_speeds(topology, ""), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_save_speeds(nullptr, "x"), MXS_INVALID_ARGUMENT);
  mxs_topology_destroy(&topology);
}

bool threads_save_to_one_path() {
  Topology topology;
  if (parse_topology("nodes:4 ranks:8", &topology) != MXS_OK) return false;
  const std::string path = path_of("shared.json");
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 30; ++turn) failures += save_topology(topology, path) != MXS_OK;
    });
  for (std::thread &thread : threads) thread.join();
  Topology loaded;
  return failures == 0 && load_topology(path, &loaded) == MXS_OK && loaded == topology;
}

void threads_that_save_to_one_path_leave_a_whole_file(void **) { assert_true(threads_save_to_one_path()); }

}  // namespace

int main() {
  char name[] = "/tmp/matrixshard-test-XXXXXX";
  if (!mkdtemp(name)) return 1;
  folder = name;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_topology_comes_back_from_its_file),
      cmocka_unit_test(save_and_load_are_public),
      cmocka_unit_test(save_and_load_refuse_nulls),
      cmocka_unit_test(a_bad_file_gets_a_sentence_with_the_field),
      cmocka_unit_test(what_is_not_a_file_gets_a_sentence),
      cmocka_unit_test(only_a_file_is_replaced),
      cmocka_unit_test(files_that_are_nearly_right_never_crash),
      cmocka_unit_test(deep_and_wide_files_do_no_harm),
      cmocka_unit_test(speeds_are_saved_for_later_comms),
      cmocka_unit_test(a_file_of_speeds_that_is_named_must_be_good),
      cmocka_unit_test(threads_that_save_to_one_path_leave_a_whole_file),
  };
  const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
  for (const char *left : {"topology.json", "public.json", "bad.json", "pipe", "link", "speeds.json", "shared.json",
                           "cache/matrixshard/speeds.json"})
    unlink(path_of(left).c_str());
  for (const char *left : {"cache/matrixshard", "cache", ""}) rmdir(path_of(left).c_str());
  return failed;
}
