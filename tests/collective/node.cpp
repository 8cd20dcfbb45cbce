// SPDX-License-Identifier: Apache-2.0
// Gather and reduce inside a domain: worlds x layouts x sizes x dtypes, as threads and as processes; ranks that run
// apart by a whole window; ranks that start different things; ranks that are lost.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "collective/node_collective.hpp"
#include "layout/layout.hpp"
#include "support/complaints.hpp"
#include "support/local_world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::error_of;
using mxs::testing::World;

namespace {

constexpr uint64_t second_ns = 1'000'000'000;
constexpr uint64_t mib = uint64_t{1} << 20;

struct Shape {
  const char *name;
  std::vector<Segment> segments;
  uint64_t alignment = 1;
};

// Sizes are multiples of 8 here; odd ones are a gather's matter, see odd_shapes.
std::vector<Shape> shapes(int rank_count, uint64_t bytes) {
  std::vector<Shape> result;
  Shape even{"even", {}}, some{"some own nothing", {}}, aligned{"aligned to 4 KiB", {}, 4096}, small{"alternating", {}};
  const uint64_t share = align_down(bytes / rank_count, 8);
  uint64_t at = 0;
  for (int rank = 0; rank < rank_count; rank++) {
    even.segments.push_back({rank, share * rank, share});
    aligned.segments.push_back({rank_count - 1 - rank, at, share});
    at = align_up(at + share, 4096);
  }
  some.segments = {{rank_count - 1, 0, align_down(bytes / 3, 8)}};
  some.segments.push_back({rank_count / 2, some.segments[0].bytes, bytes - some.segments[0].bytes});
  for (uint64_t i = 0; i < 400; i++) small.segments.push_back({static_cast<int>(i % rank_count), i * 104, 104});
  result.push_back(even);
  result.push_back({"one owner", {{rank_count - 1, 0, bytes}}});
  result.push_back(some);
  result.push_back(aligned);
  result.push_back(small);
  result.push_back({"all empty but one element", {{0, 0, 0}, {rank_count - 1, 0, 8}}});
  result.push_back({"empty", {{0, 0, 0}}});
  return result;
}

std::vector<Shape> odd_shapes(int rank_count, uint64_t bytes) {
  Shape odd{"odd", {}};
  uint64_t at = 0;
  for (int rank = 0; rank < rank_count; rank++) {
    const uint64_t share = bytes / rank_count + 13 * rank + 1;
    odd.segments.push_back({rank, at, share});
    at += share;
  }
  return {odd, {"one byte", {{rank_count / 2, 0, 1}}}};
}

std::byte pattern(uint64_t offset, int owner, int turn) {
  return static_cast<std::byte>((offset * 2654435761u >> 7) + 31 * owner + 17 * turn);
}

std::vector<int> all_ranks(int rank_count) {
  std::vector<int> ranks(rank_count);
  for (int rank = 0; rank < rank_count; rank++) ranks[rank] = rank;
  return ranks;
}

// A rank with its queue, as a comm has it.
struct Rank {
  std::unique_ptr<Domain> domain;
  OperationQueue queue;

  mxs_status join(Bootstrap &bootstrap) {
    return create_domain(&domain, bootstrap, all_ranks(bootstrap.rank_count()), 77, 60 * second_ns);
  }
  mxs_status wait(uint64_t sequence, uint64_t timeout_ns = 60 * second_ns) {
    const uint64_t deadline = now_ns() + timeout_ns;
    while (true) {
      const uint64_t seen = domain->event();
      mxs_status status = queue.advance();
      if (status != MXS_OK || queue.complete(sequence)) return status;
      domain->pause(seen, Domain::slice_ns);
      const Operation *operation = queue.find(sequence);
      status = domain->check_peers(operation->waits_for());
      if (status != MXS_OK) {
        // A peer that failed may have left the reason where this rank sees it too, such as another signature.
        const mxs_status own = queue.advance();
        return own != MXS_OK ? own : domain->check_peers(operation->waits_for());
      }
      if (now_ns() > deadline)
        return set_error(MXS_TIMED_OUT, "timed out waiting for rank %d", operation->waits_for());
    }
  }
};

std::string gather_once(Rank &self, const Layout &layout, const SharedRegion &source, const SharedRegion &target,
                        int turn) {
  const int rank = self.domain->local_rank();
  const std::unique_ptr<NodeCollective> gather = make_node_gather(*self.domain, {&layout, &source, &target});
  const uint64_t target_offset = 4096 + 64 * rank;  // a place of its own in each rank's region
  std::byte *mine = target.at(rank) + target_offset;
  std::fill_n(mine, layout.bytes, std::byte{0xee});
  for (const Segment &segment : layout.segments)
    for (uint64_t i = 0; segment.owner == rank && i < segment.bytes; i++)
      source.at(rank)[segment.offset + i] = pattern(segment.offset + i, rank, turn);
  gather->prepare(0, target_offset);
  uint64_t sequence = 0;
  if (self.queue.enqueue(gather.get(), &sequence) != MXS_OK) return error_of("enqueue");
  if (self.wait(sequence) != MXS_OK) return error_of("wait");
  for (const Segment &segment : layout.segments)
    for (uint64_t i = 0; i < segment.bytes; i++) {
      const std::byte want =
          segment.owner == rank ? std::byte{0xee} : pattern(segment.offset + i, segment.owner, turn);
      if (mine[segment.offset + i] != want)
        return "byte " + std::to_string(segment.offset + i) + " of owner " + std::to_string(segment.owner);
    }
  return "";
}

std::string gather_all_shapes(int rank, Bootstrap &bootstrap, const std::vector<uint64_t> &sizes) {
  Rank self;
  if (self.join(bootstrap) != MXS_OK) return error_of("join");
  const int rank_count = bootstrap.rank_count();
  SharedRegion source, target;
  const uint64_t room = *std::max_element(sizes.begin(), sizes.end()) + 128 * 1024;
  if (self.domain->share(room, "source", &source) != MXS_OK) return error_of("source");
  if (self.domain->share(room, "target", &target) != MXS_OK) return error_of("target");
  uint64_t huge = 0;
  if (touch(target.at(rank), {{0, room}}, &huge) != MXS_OK) return error_of("touch");
  int turn = 0;
  for (const uint64_t bytes : sizes) {
    std::vector<Shape> list = shapes(rank_count, bytes);
    for (const Shape &shape : odd_shapes(rank_count, bytes)) list.push_back(shape);
    for (const Shape &shape : list) {
      Layout layout;
      if (make_layout(shape.segments, rank_count, shape.alignment, &layout) != MXS_OK) return error_of(shape.name);
      const std::string complaint = gather_once(self, layout, source, target, ++turn);
      if (!complaint.empty()) return std::string(shape.name) + ", " + std::to_string(bytes) + " bytes: " + complaint;
    }
  }
  return "";
}

void store_element(std::byte *at, mxs_dtype dtype, float value) {
  const uint16_t half = dtype == MXS_BF16 ? bf16_from_float(value) : f16_from_float(value);
  if (dtype == MXS_F32)
    std::memcpy(at, &value, 4);
  else
    std::memcpy(at, &half, 2);
}

float load_element(const std::byte *at, mxs_dtype dtype) {
  float value = 0;
  uint16_t half = 0;
  if (dtype == MXS_F32) {
    std::memcpy(&value, at, 4);
    return value;
  }
  std::memcpy(&half, at, 2);
  return dtype == MXS_BF16 ? float_from_bf16(half) : float_from_f16(half);
}

// Numbers whose sum depends on the order, so that another order is noticed.
float gradient_value(uint64_t element, int rank, int turn) {
  const auto mixed = static_cast<uint32_t>((element + 1) * 2654435761u + 40503u * rank + 97u * turn);
  return (static_cast<float>(mixed >> 8) - 8388608.0f) / static_cast<float>(1 << (mixed % 23));
}

std::string reduce_once(Rank &self, const Layout &layout, const SharedRegion &source, const SharedRegion &target,
                        mxs_dtype dtype, bool accumulate, int turn) {
  const int rank = self.domain->local_rank(), rank_count = self.domain->local_count();
  const size_t element_bytes = dtype_bytes(dtype);
  const std::unique_ptr<NodeCollective> reduce =
      make_node_reduce(*self.domain, {&layout, dtype, &source, &target, accumulate});
  const uint64_t source_offset = 128 * rank, target_offset = 4096 - 64 * rank;
  for (uint64_t at = 0; at + element_bytes <= layout.bytes; at += element_bytes)
    store_element(source.at(rank) + source_offset + at, dtype, gradient_value(at / element_bytes, rank, turn));
  auto *accumulator = reinterpret_cast<float *>(target.at(rank) + target_offset);
  const uint64_t owned = layout.owned_bytes(rank) / element_bytes;
  for (uint64_t i = 0; i < owned + 4; i++) accumulator[i] = static_cast<float>(i) * 0.37f;
  reduce->prepare(source_offset, target_offset);
  uint64_t sequence = 0;
  if (self.queue.enqueue(reduce.get(), &sequence) != MXS_OK) return error_of("enqueue");
  if (self.wait(sequence) != MXS_OK) return error_of("wait");
  uint64_t packed = 0;
  for (const Segment &segment : layout.segments)
    for (uint64_t at = 0; segment.owner == rank && at < segment.bytes; at += element_bytes, packed++) {
      float sum = accumulate ? static_cast<float>(packed) * 0.37f : 0.0f;
      for (int other = 0; other < rank_count; other++) {
        std::byte stored[4] = {};
        store_element(stored, dtype, gradient_value((segment.offset + at) / element_bytes, other, turn));
        sum += load_element(stored, dtype);
      }
      if (std::memcmp(&sum, &accumulator[packed], 4) != 0)
        return "element " + std::to_string(packed) + " is " + std::to_string(accumulator[packed]) + ", not " +
               std::to_string(sum);
    }
  for (uint64_t i = owned; i < owned + 4; i++)
    if (accumulator[i] != static_cast<float>(i) * 0.37f) return "written beyond the accumulator";
  return "";
}

std::string reduce_all_shapes(int rank, Bootstrap &bootstrap, const std::vector<uint64_t> &sizes) {
  Rank self;
  if (self.join(bootstrap) != MXS_OK) return error_of("join");
  const int rank_count = bootstrap.rank_count();
  SharedRegion source, target;
  const uint64_t room = *std::max_element(sizes.begin(), sizes.end()) + 128 * 1024;
  if (self.domain->share(room, "source", &source) != MXS_OK) return error_of("source");
  if (self.domain->share(2 * room, "target", &target) != MXS_OK) return error_of("target");
  if (touch(source.at(rank), {{0, room}}, nullptr) != MXS_OK) return error_of("touch");
  int turn = 0;
  for (const uint64_t bytes : sizes)
    for (const mxs_dtype dtype : {MXS_F32, MXS_BF16, MXS_F16})
      for (const Shape &shape : shapes(rank_count, bytes)) {
        Layout layout;
        if (make_layout(shape.segments, rank_count, shape.alignment, &layout) != MXS_OK) return error_of(shape.name);
        turn++;
        const std::string complaint = reduce_once(self, layout, source, target, dtype, turn % 2 == 0, turn);
        if (!complaint.empty())
          return std::string(shape.name) + ", " + std::to_string(bytes) + " bytes, dtype " + std::to_string(dtype) +
                 ": " + complaint;
      }
  return "";
}

using Collective = std::string (*)(int, Bootstrap &, const std::vector<uint64_t> &);

bool works_in_every_world(Collective body, const std::vector<uint64_t> &sizes) {
  for (const bool threads : {true, false})
    for (const int rank_count : {1, 2, 3, 4, 7, 8}) {
      World world(rank_count);
      const auto run = [&](int rank, Bootstrap &bootstrap) { return body(rank, bootstrap, sizes); };
      const std::string complaint = threads ? world.run_threads(run) : world.run_processes(run);
      if (complaint.empty()) continue;
      print_error("%d %s: %s\n", rank_count, threads ? "threads" : "processes", complaint.c_str());
      return false;
    }
  return true;
}

// Many operations in flight on ranks of different speed: gathers (pulled and fanned out) and reduces in turn. Each
// has its own place in the regions, and is checked before that is used again.
std::string run_apart(int rank, Bootstrap &bootstrap) {
  constexpr int places = 12, rounds = 25;
  Rank self;
  if (self.join(bootstrap) != MXS_OK) return error_of("join");
  const int rank_count = bootstrap.rank_count();
  const uint64_t sizes[3] = {40'960, 1'100'032, 65'536};  // pull, fan-out, reduce
  const uint64_t place_bytes = 1'200'128;
  SharedRegion region, sums;
  if (self.domain->share(place_bytes * places, "region", &region) != MXS_OK) return error_of("share");
  if (self.domain->share(place_bytes * places, "sums", &sums) != MXS_OK) return error_of("share");
  Layout layouts[3];
  for (int kind = 0; kind < 3; kind++)
    if (make_even_layout(sizes[kind], 4, rank_count, &layouts[kind]) != MXS_OK) return error_of("layout");
  std::vector<std::unique_ptr<NodeCollective>> gathers(places);
  std::vector<std::unique_ptr<NodeCollective>> reduces(places);
  std::vector<uint64_t> sequences(places, 0);
  for (int place = 0; place < places; place++) {
    if (place % 3 < 2)
      gathers[place] = make_node_gather(*self.domain, {&layouts[place % 3], &region, &region});
    else
      reduces[place] = make_node_reduce(*self.domain, {&layouts[2], MXS_F32, &region, &sums, false});
  }
  std::mt19937 random(static_cast<unsigned>(rank));
  const auto value = [](int round, int place, int owner) {
    return static_cast<uint32_t>(round * 1000 + place * 10 + owner + 1);
  };
  const auto sum_of = [&](int round) {
    return static_cast<float>(round * rank_count + rank_count * (rank_count - 1) / 2);
  };
  for (int round = 0; round <= rounds; round++)
    for (int place = 0; place < places; place++) {
      auto *words = reinterpret_cast<uint32_t *>(region.at(rank) + place * place_bytes);
      auto *sum = reinterpret_cast<float *>(sums.at(rank) + place * place_bytes);
      const Layout &layout = layouts[place % 3];
      if (round > 0) {
        if (self.wait(sequences[place]) != MXS_OK) return error_of("wait");
        for (const Segment &segment : layout.segments)
          for (uint64_t i = segment.offset / 4; i < (segment.offset + segment.bytes) / 4; i++) {
            if (place % 3 < 2 && words[i] != value(round - 1, place, segment.owner)) return "a wrong word";
            if (place % 3 == 2 && segment.owner == rank &&
                sum[i - segment.offset / 4] != sum_of(round - 1))
              return "a wrong sum";
          }
      }
      if (round == rounds) continue;
      if (random() % 16 == 0) usleep(random() % 2000);
      for (const Segment &segment : layout.segments)
        for (uint64_t i = segment.offset / 4; i < (segment.offset + segment.bytes) / 4; i++) {
          if (place % 3 < 2) words[i] = segment.owner == rank ? value(round, place, rank) : 0xeeeeeeee;
          if (place % 3 == 2) reinterpret_cast<float *>(words)[i] = static_cast<float>(round + rank);
        }
      const uint64_t offset = place * place_bytes;
      if (gathers[place]) gathers[place]->prepare(offset, offset);
      if (reduces[place]) reduces[place]->prepare(offset, offset);
      Operation *operation = gathers[place] ? static_cast<Operation *>(gathers[place].get()) : reduces[place].get();
      if (self.queue.enqueue(operation, &sequences[place]) != MXS_OK) return error_of("enqueue");
    }
  return "";
}

bool ranks_may_run_apart() {
  for (const bool threads : {true, false}) {
    World world(4);
    const std::string complaint = threads ? world.run_threads(run_apart) : world.run_processes(run_apart);
    if (complaint.empty()) continue;
    print_error("%s: %s\n", threads ? "threads" : "processes", complaint.c_str());
    return false;
  }
  return true;
}

bool different_calls_are_a_mismatch() {
  for (const uint64_t bytes : {uint64_t{4096}, 2 * mib}) {
    World world(2);
    const std::string complaint = world.run_processes([&](int rank, Bootstrap &bootstrap) -> std::string {
      Rank self;
      if (self.join(bootstrap) != MXS_OK) return error_of("join");
      SharedRegion region;
      if (self.domain->share(4 * mib, "region", &region) != MXS_OK) return error_of("share");
      Layout layout, other;
      if (make_even_layout(bytes, 4, 2, &layout) != MXS_OK) return error_of("layout");
      if (make_even_layout(bytes + 8, 4, 2, &other) != MXS_OK) return error_of("layout");
      const auto gather = make_node_gather(*self.domain, {rank ? &other : &layout, &region, &region});
      gather->prepare(0, 0);
      uint64_t sequence = 0;
      if (self.queue.enqueue(gather.get(), &sequence) != MXS_OK) return error_of("enqueue");
      if (self.wait(sequence) != MXS_MISMATCH) return error_of("status");
      const char *names = last_error_text();
      return std::strstr(names, "rank 0") && std::strstr(names, "rank 1") ? "" : error_of("ranks");
    });
    if (complaint.empty()) continue;
    print_error("%s\n", complaint.c_str());
    return false;
  }
  return true;
}

bool partial_elements_are_refused() {
  World world(1);
  const std::string complaint = world.run_threads([](int, Bootstrap &bootstrap) -> std::string {
    Rank self;
    if (self.join(bootstrap) != MXS_OK) return error_of("join");
    SharedRegion region;
    if (self.domain->share(4096, "region", &region) != MXS_OK) return error_of("share");
    Layout layout;
    if (make_layout({{0, 0, 10}}, 1, 1, &layout) != MXS_OK) return error_of("layout");
    const auto reduce = make_node_reduce(*self.domain, {&layout, MXS_F32, &region, &region, false});
    reduce->prepare(0, 0);
    uint64_t sequence = 0;
    return self.queue.enqueue(reduce.get(), &sequence) == MXS_INVALID_ARGUMENT ? "" : error_of("status");
  });
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

// Rank 1 of 3 is lost (killed, or stopped) between gathers; the others are named who it was.
bool a_lost_rank_is_named(int signal_number, mxs_status expected) {
  World world(3);
  const auto body = [&](int rank, Bootstrap &bootstrap) -> std::string {
    Rank self;
    if (self.join(bootstrap) != MXS_OK) return error_of("join");
    SharedRegion region;
    if (self.domain->share(3 * mib, "region", &region) != MXS_OK) return error_of("share");
    Layout layout;
    if (make_even_layout(2 * mib, 4, 3, &layout) != MXS_OK) return error_of("layout");
    const auto gather = make_node_gather(*self.domain, {&layout, &region, &region});
    for (int turn = 0; turn < 1'000'000; turn++) {
      gather->prepare(0, 0);
      uint64_t sequence = 0;
      if (self.queue.enqueue(gather.get(), &sequence) != MXS_OK) return error_of("enqueue");
      // A dead rank is noticed by itself, a stopped one only by the deadline.
      const mxs_status status = self.wait(sequence, expected == MXS_TIMED_OUT ? 5 * second_ns : 60 * second_ns);
      if (status != MXS_OK) {
        self.domain->announce_failure(last_error_text());
        // Whoever noticed second may hear of it from the first, with the same sentence.
        if ((status != expected && status != MXS_PEER_FAILED) || !std::strstr(last_error_text(), "rank 1"))
          return error_of("status");
        return "";
      }
      world.board().flags[rank].store(turn + 1);
    }
    return "nothing was noticed";
  };
  const auto meanwhile = [&] {
    while (world.board().flags[0].load() < 3) usleep(1000);
    kill(world.process(1), signal_number);
  };
  const std::string complaint = world.run_processes(body, meanwhile, 1);
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

void gather_brings_every_owners_bytes_everywhere(void **) {
  assert_true(works_in_every_world(gather_all_shapes, {3000, 1'300'000}));
}
void reduce_adds_in_rank_order_bit_by_bit(void **) {
  assert_true(works_in_every_world(reduce_all_shapes, {2'400, 160'000}));
}
void ranks_may_be_a_window_of_operations_apart(void **) { assert_true(ranks_may_run_apart()); }
void ranks_that_start_different_things_get_an_error(void **) { assert_true(different_calls_are_a_mismatch()); }
void parts_of_elements_are_refused(void **) { assert_true(partial_elements_are_refused()); }
void a_killed_rank_is_named(void **) { assert_true(a_lost_rank_is_named(SIGKILL, MXS_PEER_FAILED)); }
void a_stopped_rank_is_named_at_the_deadline(void **) { assert_true(a_lost_rank_is_named(SIGSTOP, MXS_TIMED_OUT)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(gather_brings_every_owners_bytes_everywhere),
      cmocka_unit_test(reduce_adds_in_rank_order_bit_by_bit),
      cmocka_unit_test(ranks_may_be_a_window_of_operations_apart),
      cmocka_unit_test(ranks_that_start_different_things_get_an_error),
      cmocka_unit_test(parts_of_elements_are_refused),
      cmocka_unit_test(a_killed_rank_is_named),
      cmocka_unit_test(a_stopped_rank_is_named_at_the_deadline),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
