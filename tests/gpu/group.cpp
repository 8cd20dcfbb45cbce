// SPDX-License-Identifier: Apache-2.0
// A group's calls, in every world, with every NCCL that has its names: bytes arrive, sums are sums, nothing else is
// written.
#include "gpu.hpp"
#include "group_case.hpp"
#include "support/cmocka_all.h"

namespace {

using mxs::DeviceMemory;
using mxs::GroupMessage;
using mxs::GroupPart;
using mxs::test::GroupRank;
using mxs::test::GroupWorld;
using mxs::test::nccl_variable;
using mxs::test::run_group;

const std::vector<int> worlds = {1, 2, 3, 4, 7, 8};

uint8_t letter(int rank, size_t place) { return static_cast<uint8_t>(static_cast<size_t>(rank + 3) * 29 + place * 13); }

std::vector<uint8_t> letters(int rank, size_t count) {
  std::vector<uint8_t> made(count);
  for (size_t i = 0; i < count; ++i) made[i] = letter(rank, i);
  return made;
}

const std::vector<uint8_t> poison(300003, 0xee);

// Each rank owns some; rank 1 owns nothing, and ranks from 3 on own two parts. Owners' parts are in place or not.
std::string broadcasts(GroupRank &own) {
  DeviceMemory target = own.upload(poison);
  std::vector<DeviceMemory> sources;
  std::vector<GroupPart> parts;
  std::vector<uint8_t> wanted = poison;
  uint64_t place = 5;
  for (int i = 0; i < 2 * own.rank_count; ++i) {
    const int root = i % own.rank_count;
    const uint64_t bytes = root == 1 || (i >= own.rank_count && root < 3) ? 0 : static_cast<uint64_t>(1777 * (i + 1));
    GroupPart part;
    part.root = root;
    part.target = target.data() + place;
    part.count = bytes;
    part.dtype = MXS_U8;
    if (root == own.rank) {
      sources.push_back(own.upload(letters(i, bytes)));
      part.source = sources.back().data();
      if (root % 2 == 0) {
        own.device->copy(part.target, part.source, bytes, own.stream);
        part.source = part.target;
      }
    }
    parts.push_back(part);
    const std::vector<uint8_t> text = letters(i, bytes);
    std::copy(text.begin(), text.end(), wanted.begin() + static_cast<std::ptrdiff_t>(place));
    place += bytes + 3;  // the gaps keep their poison
  }
  for (int round = 0; round < 3; ++round)
    if (own.group->broadcast(parts, own.stream) != MXS_OK) return mxs::last_error_text();
  return own.download<uint8_t>(target, wanted.size()) == wanted ? "" : "broadcast: other bytes";
}

uint16_t bf16_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);  // small whole numbers only
}
uint16_t f16_of(int value) {  // 0 <= value <= 2048
  if (value == 0) return 0;
  int exponent = 0;
  while (value >> (exponent + 1)) ++exponent;
  return static_cast<uint16_t>((exponent + 15) << 10 | ((value << 10 >> exponent) & 1023));
}

template <class Value>
std::string reduces_one(GroupRank &own, mxs_dtype dtype, Value (*make)(int)) {
  const int world = own.rank_count;
  std::vector<DeviceMemory> sources, targets;
  std::vector<GroupPart> parts;
  const auto count_of = [](int root) { return root == 1 ? size_t{0} : static_cast<size_t>(501 + 100 * root); };
  for (int root = 0; root < world; ++root) {
    std::vector<Value> mine;
    for (size_t i = 0; i < count_of(root); ++i) mine.push_back(make(own.rank + static_cast<int>(i % 7)));
    sources.push_back(own.upload(mine));
    targets.push_back(own.upload(std::vector<uint8_t>(count_of(root) * sizeof(Value), 0xee)));
    GroupPart part;
    part.root = root;
    part.source = sources.back().data();
    part.target = root == own.rank ? targets.back().data() : nullptr;
    part.count = count_of(root);
    part.dtype = dtype;
    parts.push_back(part);
  }
  if (own.group->reduce(parts, own.stream) != MXS_OK) return mxs::last_error_text();
  for (int root = 0; root < world; ++root) {
    const size_t count = count_of(root);
    std::vector<Value> wanted;
    for (size_t i = 0; i < count; ++i)
      wanted.push_back(make(world * (world - 1) / 2 + world * static_cast<int>(i % 7)));
    const DeviceMemory &target = targets[static_cast<size_t>(root)];
    if (root == own.rank && own.download<Value>(target, count) != wanted) return "reduce: another sum";
    if (root != own.rank && own.download<uint8_t>(target, count * sizeof(Value)) !=
                                std::vector<uint8_t>(count * sizeof(Value), 0xee))
      return "reduce: written at another rank than the root";
  }
  return "";
}

std::string reduces(GroupRank &own) {
  const std::pair<const char *, std::string> results[] = {
      {"f32", reduces_one<float>(own, MXS_F32, [](int value) { return static_cast<float>(value); })},
      {"bf16", reduces_one<uint16_t>(own, MXS_BF16, [](int value) { return bf16_of(static_cast<float>(value)); })},
      {"f16", reduces_one<uint16_t>(own, MXS_F16, f16_of)},
      {"f64", reduces_one<double>(own, MXS_F64, [](int value) { return static_cast<double>(value); })},
      {"u8", reduces_one<uint8_t>(own, MXS_U8, [](int value) { return static_cast<uint8_t>(value); })}};
  for (const auto &[name, complaint] : results)
    if (!complaint.empty()) return std::string(name) + ": " + complaint;
  return "";
}

// Everybody to everybody but a neighbour, itself among them; sizes differ, some are zero on both sides.
std::string exchanges(GroupRank &own) {
  const auto bytes_of = [&](int from, int to) -> size_t {
    const bool is_empty = (from + 1) % own.rank_count == to && own.rank_count > 1;
    return is_empty ? 0 : static_cast<size_t>(from * 3001 + to * 90001 + 1);
  };
  std::vector<DeviceMemory> outgoing, incoming;
  std::vector<GroupMessage> sends, receives;
  for (int peer = 0; peer < own.rank_count; ++peer) {
    outgoing.push_back(own.upload(letters(own.rank * 8 + peer, bytes_of(own.rank, peer))));
    incoming.push_back(own.upload(std::vector<uint8_t>(bytes_of(peer, own.rank), 0xee)));
    sends.push_back({peer, outgoing.back().data(), bytes_of(own.rank, peer)});
    receives.push_back({peer, incoming.back().data(), bytes_of(peer, own.rank)});
  }
  if (own.group->exchange(sends, receives, own.stream) != MXS_OK) return mxs::last_error_text();
  for (int peer = 0; peer < own.rank_count; ++peer)
    if (own.download<uint8_t>(incoming[static_cast<size_t>(peer)], bytes_of(peer, own.rank)) !=
        letters(peer * 8 + own.rank, bytes_of(peer, own.rank)))
      return "exchange: other bytes from rank " + std::to_string(peer);
  return "";
}

// Integers wrap around.
std::string sums(GroupRank &own) {
  const DeviceMemory words = own.upload(std::vector<int64_t>{own.rank, INT64_MAX, -1, int64_t{1} << 62});
  const DeviceMemory values = own.upload(std::vector<float>{1.5f, static_cast<float>(own.rank)});
  if (own.group->sum(reinterpret_cast<int64_t *>(words.data()), 4, own.stream) != MXS_OK) return mxs::last_error_text();
  if (own.group->sum(reinterpret_cast<float *>(values.data()), 2, own.stream) != MXS_OK) return mxs::last_error_text();
  const auto world = static_cast<uint64_t>(own.rank_count);
  const std::vector<int64_t> wanted = {
      own.rank_count * (own.rank_count - 1) / 2, static_cast<int64_t>(world * static_cast<uint64_t>(INT64_MAX)),
      -own.rank_count, static_cast<int64_t>(world << 62)};
  if (own.download<int64_t>(words, 4) != wanted) return "sum: another int64";
  const float triangle = static_cast<float>(own.rank_count * (own.rank_count - 1) / 2);
  return own.download<float>(values, 2) == std::vector<float>{1.5f * static_cast<float>(own.rank_count), triangle}
             ? "" : "sum: another float";
}

std::string nothing_at_all(GroupRank &own) {
  if (own.group->broadcast({}, own.stream) != MXS_OK || own.group->reduce({}, own.stream) != MXS_OK ||
      own.group->exchange({}, {}, own.stream) != MXS_OK ||
      own.group->sum(static_cast<float *>(nullptr), 0, own.stream) != MXS_OK)
    return mxs::last_error_text();
  return own.group->broadcast({GroupPart{}, GroupPart{}}, own.stream) == MXS_OK ? "" : mxs::last_error_text();
}

// In ranges that are registered where that can be.
std::string registered(GroupRank &own) {
  const DeviceMemory memory = own.upload(poison);
  for (int i = 0; i < 3; ++i)
    if (own.group->register_buffer(memory.data() + 4096 * i, 4096) != MXS_OK) return mxs::last_error_text();
  if (own.group->register_buffer(nullptr, 0) != MXS_OK) return mxs::last_error_text();
  own.group->deregister_buffers();
  if (own.group->register_buffer(memory.data(), 4096) != MXS_OK) return mxs::last_error_text();
  const std::string complaint = broadcasts(own);
  return complaint.empty() && own.group->check() != MXS_OK ? mxs::last_error_text() : complaint;
}

std::string everything(GroupRank &own) {
  if (own.group->rank() != own.rank || own.group->rank_count() != own.rank_count) return "another rank";
  for (const auto &body : {broadcasts, reduces, exchanges, sums, nothing_at_all, registered}) {
    const std::string complaint = body(own);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

bool is_good(const std::string &complaint) {
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

bool in_every_world(bool as_processes) {
  for (const int rank_count : worlds) {
    GroupWorld world;
    world.rank_count = rank_count;
    world.as_processes = as_processes;
    const std::string complaint = run_group(world, everything);
    if (!is_good(complaint.empty() ? "" : std::to_string(rank_count) + " ranks: " + complaint)) return false;
  }
  return true;
}

bool with_every_version() {
  for (const auto &[version, number] : {std::pair{"2.18", 21805}, std::pair{"2.21", 22105}, std::pair{"2.28", 22809},
                                        std::pair{"2.30", 23004}}) {
    GroupWorld world;
    world.rank_count = 3;
    world.environment = {nccl_variable(version)};
    const std::string complaint = run_group(world, [&, wanted = number](GroupRank &own) {
      return own.group->version() == wanted ? everything(own) : "version " + std::to_string(own.group->version());
    });
    if (!is_good(complaint.empty() ? "" : std::string(version) + ": " + complaint)) return false;
  }
  return true;
}

// Calls go on for a while after NCCL has returned: the group waits until they are on their streams.
bool in_progress() {
  GroupWorld world;
  world.rank_count = 3;
  world.environment = {"MXS_STANDIN_NCCL_IN_PROGRESS_MS=15"};
  if (!is_good(run_group(world, everything))) return false;
  world.as_processes = true;
  return is_good(run_group(world, everything));
}

// Each job of a stream sleeps first.
bool on_slow_streams() {
  GroupWorld world;
  world.rank_count = 3;
  world.environment = {"MXS_STANDIN_SLOW=300"};
  return is_good(run_group(world, everything));
}

// Two groups of the same ranks, used in turn.
bool two_groups() {
  GroupWorld world;
  world.rank_count = 4;
  return is_good(run_group(world, [](GroupRank &own) -> std::string {
    std::unique_ptr<mxs::DeviceGroup> first = std::move(own.group);
    if (own.join() != MXS_OK) return mxs::last_error_text();
    for (int i = 0; i < 3; ++i) {
      std::string complaint = broadcasts(own);
      std::swap(first, own.group);
      if (complaint.empty()) complaint = sums(own);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }));
}

void threads_are_joined_in_every_world(void **) { assert_true(in_every_world(false)); }
void processes_are_joined_in_every_world(void **) { assert_true(in_every_world(true)); }
void every_nccl_from_2_18_on_does(void **) { assert_true(with_every_version()); }
void what_nccl_has_not_finished_is_waited_for(void **) { assert_true(in_progress()); }
void slow_streams_change_nothing(void **) { assert_true(on_slow_streams()); }
void two_groups_of_the_same_ranks_live_side_by_side(void **) { assert_true(two_groups()); }

}  // namespace

int main(int, char **arguments) {
  if (!mxs::test::gpu_is_there(arguments)) return 0;
  const CMUnitTest tests[] = {
      cmocka_unit_test(threads_are_joined_in_every_world),
      cmocka_unit_test(processes_are_joined_in_every_world),
      cmocka_unit_test(every_nccl_from_2_18_on_does),
      cmocka_unit_test(what_nccl_has_not_finished_is_waited_for),
      cmocka_unit_test(slow_streams_change_nothing),
      cmocka_unit_test(two_groups_of_the_same_ranks_live_side_by_side),
  };
  return cmocka_run_group_tests_name("groups", tests, nullptr, nullptr);
}
