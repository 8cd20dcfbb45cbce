// SPDX-License-Identifier: Apache-2.0
// Every algorithm and kind in every world on every layout, ranks as threads over loopback.
#include "cases.hpp"
#include "layout/layout.hpp"
#include "schedule/schedule.hpp"
#include "support/complaints.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

// All layouts of a world, with elements of a dtype, by one body.
template <class RunLayout>
bool in_all_worlds(uint64_t element_bytes, RunLayout &&run_layout) {
  for (const int rank_count : world_sizes) {
    const std::vector<TestLayout> layouts = test_layouts(rank_count, element_bytes, 301);
    const std::string complaint = run_world(rank_count, [&](int rank, mxs_comm *comm) -> std::string {
      for (const TestLayout &layout : layouts) {
        const std::string wrong = run_layout(rank, rank_count, comm, layout);
        if (!wrong.empty()) return wrong;
      }
      return "";
    });
    if (!good(complaint)) return false;
  }
  return true;
}

bool gathers(const char *algorithm) {
  return in_all_worlds(1, [&](int rank, int rank_count, mxs_comm *comm, const TestLayout &layout) -> std::string {
    for (const bool packed : {false, true})
      for (const uint64_t chunk_bytes : {uint64_t{0}, uint64_t{64}}) {
        Case each;
        each.layout = &layout;
        each.algorithm = algorithm;
        each.chunk_bytes = chunk_bytes;
        each.window = packed ? 1 : 0;
        each.packed = packed;
        const std::string complaint = run_case(rank, rank_count, comm, each);
        if (!complaint.empty()) return complaint;
      }
    return "";
  });
}

bool reduces(const char *algorithm, int32_t flags) {
  for (const mxs_dtype dtype : {MXS_F32, MXS_BF16, MXS_F16})
    if (!in_all_worlds(mxs_dtype_bytes(dtype), [&](int rank, int rank_count, mxs_comm *comm, const TestLayout &layout) {
          std::string complaint;
          for (const int32_t accumulate : {0, MXS_ACCUMULATE}) {
            Case each;
            each.layout = &layout;
            each.kind = MXS_REDUCE;
            each.algorithm = algorithm;
            each.dtype = dtype;
            each.flags = flags | accumulate;
            each.chunk_bytes = accumulate ? 192 : 0;
            each.window = accumulate ? 2 : 0;
            if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
          }
          return complaint;
        }))
      return false;
  return true;
}

// Is there a message of several ranges at all? Else the cases below would show nothing.
bool travels_in_several_ranges(const TestLayout &test, int rank_count, mxs::Algorithm algorithm) {
  std::vector<mxs::Segment> segments;
  for (const TestSegment &segment : test.segments) segments.push_back({segment.owner, segment.offset, segment.bytes});
  mxs::Layout layout;
  if (mxs::make_layout(segments, rank_count, test.alignment, &layout) != MXS_OK) return false;
  mxs::ScheduleOptions options;
  options.algorithm = algorithm;
  options.layout = &layout;
  options.chunk_bytes = 1024;
  for (const mxs::Direction direction : {mxs::Direction::gather, mxs::Direction::reduce}) {
    options.direction = direction;
    options.element_bytes = direction == mxs::Direction::gather ? 1 : 4;
    std::vector<mxs::Piece> pieces;
    if (mxs::cut_pieces(options, &pieces) != MXS_OK) return false;
    int found = 0;
    for (const mxs::Move &move : mxs::make_schedule(options, pieces, 1).moves) found += move.range_count > 1;
    if (found == 0) return false;
  }
  return true;
}

bool carries_several_ranges() {
  for (const int rank_count : {2, 3, 4, 7, 8}) {
    const TestLayout layout = small_segments(rank_count);
    for (const mxs::Algorithm algorithm : {mxs::Algorithm::chain, mxs::Algorithm::spread})
      if (rank_count >= 4 && !travels_in_several_ranges(layout, rank_count, algorithm)) {
        print_error("%d ranks by %s: every message has one range\n", rank_count, mxs::algorithm_name(algorithm));
        return false;
      }
    if (!good(run_world(rank_count, [&](int rank, mxs_comm *comm) {
          std::string complaint;
          for (const Case &each : cases_of_several_ranges(layout))
            if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
          return complaint;
        })))
      return false;
  }
  return true;
}

bool reshards() {
  for (const int rank_count : world_sizes) {
    const std::vector<TestLayout> layouts = test_layouts(rank_count, 1, 301);
    if (!good(run_world(rank_count, [&](int rank, mxs_comm *comm) -> std::string {
          for (TestLayout from : layouts)
            for (TestLayout to : layouts) {
              if (from.alignment != 1 || to.alignment != 1) continue;
              if (from.bytes < to.bytes) from.add(rank_count - 1, to.bytes - from.bytes);
              if (to.bytes < from.bytes) to.add(0, from.bytes - to.bytes);
              const std::string complaint = reshard_once(rank, rank_count, comm, from, to, 64);
              if (!complaint.empty()) return complaint;
            }
          return "";
        })))
      return false;
  }
  return true;
}

// Memory of mxs_comm_allocate: by load and store. Also the same collective on both kinds of memory in turn.
bool shared_memory(int32_t kind, const char *algorithm, mxs_dtype dtype, int32_t flags = 0) {
  return in_all_worlds(mxs_dtype_bytes(dtype), [&](int rank, int rank_count, mxs_comm *comm, const TestLayout &layout) {
    if (rank_count == 1 && algorithm) return std::string();  // one rank has no peers to reach
    void *source = nullptr, *target = nullptr;
    std::string complaint;
    if (mxs_comm_allocate(comm, layout.bytes * 2 + 4096, MXS_HOST, &source) != MXS_OK) return error_of("allocate");
    if (mxs_comm_allocate(comm, layout.bytes * 2 + 4096, MXS_HOST, &target) != MXS_OK) return error_of("allocate");
    for (const bool packed : {false, true}) {
      Case each;
      each.layout = &layout;
      each.kind = kind;
      each.algorithm = algorithm;
      each.dtype = dtype;
      each.packed = packed;
      each.source = static_cast<std::byte *>(source);
      each.target = static_cast<std::byte *>(target) + 64;
      each.flags = flags | (kind == MXS_REDUCE ? MXS_ACCUMULATE : 0);
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
    }
    mxs_comm_free(comm, source);
    mxs_comm_free(comm, target);
    return complaint;
  });
}

void gather_by_flat(void **) { assert_true(gathers("flat")); }
void gather_by_chain(void **) { assert_true(gathers("chain")); }
void gather_by_spread(void **) { assert_true(gathers("spread")); }
void gather_by_circulant(void **) { assert_true(gathers("circulant")); }
void gather_by_two_levels(void **) {
  for (const char *algorithm : {"two-level-flat", "two-level-chain", "two-level-circulant"})
    assert_true(gathers(algorithm));
}
void gather_by_choice(void **) { assert_true(gathers(nullptr)); }
void reduce_by_flat(void **) { assert_true(reduces("flat", 0)); }
void reduce_by_chain(void **) { assert_true(reduces("chain", 0)); }
void reduce_by_spread(void **) { assert_true(reduces("spread", 0)); }
void reduce_by_circulant(void **) { assert_true(reduces("circulant", 0)); }
void reduce_by_two_levels(void **) { assert_true(reduces("two-level-circulant", 0)); }
void reduce_by_choice(void **) { assert_true(reduces(nullptr, 0)); }
void reduce_in_rank_order_by_flat(void **) { assert_true(reduces("flat", MXS_RANK_ORDER)); }
void reduce_in_rank_order_by_spread(void **) { assert_true(reduces("spread", MXS_RANK_ORDER)); }
void reduce_in_rank_order_by_chain(void **) { assert_true(reduces("chain", MXS_RANK_ORDER)); }
void messages_of_several_ranges(void **) { assert_true(carries_several_ranges()); }
void reshard_between_layouts(void **) { assert_true(reshards()); }
void gather_by_fanout(void **) { assert_true(shared_memory(MXS_GATHER, "fanout", MXS_U8)); }
void gather_in_shared_memory_by_choice(void **) { assert_true(shared_memory(MXS_GATHER, nullptr, MXS_U8)); }
void gather_in_promised_memory(void **) {
  assert_true(shared_memory(MXS_GATHER, nullptr, MXS_U8, MXS_MAPPED_MEMORY));
}
void reduce_in_promised_memory(void **) {
  assert_true(shared_memory(MXS_REDUCE, nullptr, MXS_BF16, MXS_MAPPED_MEMORY));
}
void reduce_cooperatively(void **) {
  for (const mxs_dtype dtype : {MXS_F32, MXS_BF16, MXS_F16})
    assert_true(shared_memory(MXS_REDUCE, "cooperative", dtype));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(gather_by_flat),
      cmocka_unit_test(gather_by_chain),
      cmocka_unit_test(gather_by_spread),
      cmocka_unit_test(gather_by_circulant),
      cmocka_unit_test(gather_by_two_levels),
      cmocka_unit_test(gather_by_choice),
      cmocka_unit_test(reduce_by_flat),
      cmocka_unit_test(reduce_by_chain),
      cmocka_unit_test(reduce_by_spread),
      cmocka_unit_test(reduce_by_circulant),
      cmocka_unit_test(reduce_by_two_levels),
      cmocka_unit_test(reduce_by_choice),
      cmocka_unit_test(reduce_in_rank_order_by_flat),
      cmocka_unit_test(reduce_in_rank_order_by_spread),
      cmocka_unit_test(reduce_in_rank_order_by_chain),
      cmocka_unit_test(messages_of_several_ranges),
      cmocka_unit_test(reshard_between_layouts),
      cmocka_unit_test(gather_by_fanout),
      cmocka_unit_test(gather_in_shared_memory_by_choice),
      cmocka_unit_test(gather_in_promised_memory),
      cmocka_unit_test(reduce_in_promised_memory),
      cmocka_unit_test(reduce_cooperatively),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
