// SPDX-License-Identifier: Apache-2.0
// Moves between two layouts, carried out on random bytes and compared with the buffer itself.
#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "api/values.hpp"
#include "base/status.hpp"
#include "layout/layout.hpp"
#include "matrixshard/layout.h"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

using Bytes = std::vector<uint8_t>;

Layout layout_of(const std::vector<std::pair<int, uint64_t>> &owners_and_bytes, int rank_count) {
  std::vector<Segment> segments;
  uint64_t offset = 0;
  for (const auto &[owner, bytes] : owners_and_bytes) {
    segments.push_back({owner, offset, bytes});
    offset += bytes;
  }
  Layout layout;
  if (make_layout(segments, rank_count, 1, &layout) != MXS_OK) print_error("%s\n", last_error_text());
  return layout;
}

Layout random_layout(uint64_t bytes, int rank_count, std::mt19937 *random) {
  std::vector<std::pair<int, uint64_t>> parts;
  while (bytes > 0) {
    const uint64_t part = std::min<uint64_t>(bytes, (*random)() % 40);  // 0 among them: empty segments
    parts.emplace_back(static_cast<int>((*random)() % static_cast<unsigned>(rank_count)), part);
    bytes -= part;
  }
  return layout_of(parts, rank_count);
}

// Each rank's segments one after the other.
std::vector<Bytes> packed(const Bytes &buffer, const Layout &layout) {
  std::vector<Bytes> ranks(static_cast<size_t>(layout.rank_count));
  for (const Segment &segment : layout.segments) {
    Bytes &rank = ranks[static_cast<size_t>(segment.owner)];
    rank.insert(rank.end(), buffer.begin() + static_cast<ptrdiff_t>(segment.offset),
                buffer.begin() + static_cast<ptrdiff_t>(segment.offset + segment.bytes));
  }
  return ranks;
}

bool moves_the_bytes(const Layout &source, const Layout &target, std::mt19937 *random) {
  Bytes buffer(source.bytes);
  for (uint8_t &byte : buffer) byte = static_cast<uint8_t>((*random)());
  const std::vector<Bytes> from = packed(buffer, source), expected = packed(buffer, target);
  std::vector<Bytes> to(from.size());
  for (size_t rank = 0; rank < to.size(); ++rank) to[rank].assign(expected[rank].size(), 0xee);

  std::vector<LayoutMove> moves;
  if (layout_moves(source, target, &moves) != MXS_OK) return false;
  uint64_t moved = 0;
  for (const LayoutMove &move : moves) {
    const Bytes &giver = from.at(static_cast<size_t>(move.source_rank));
    Bytes &taker = to.at(static_cast<size_t>(move.target_rank));
    if (move.bytes == 0 || move.source_offset + move.bytes > giver.size() ||
        move.target_offset + move.bytes > taker.size())
      return false;
    std::memcpy(taker.data() + move.target_offset, giver.data() + move.source_offset, move.bytes);
    moved += move.bytes;
  }
  return moved == source.bytes && to == expected;
}

bool moves_between_all_kinds_of_layouts(int rank_count) {
  std::mt19937 random(static_cast<unsigned>(rank_count));
  for (uint64_t bytes : {0, 1, 2, 97, 1000}) {
    std::vector<Layout> layouts = {layout_of({{0, bytes}}, rank_count),
                                   layout_of({{rank_count - 1, bytes}}, rank_count)};
    layouts.emplace_back();
    if (make_even_layout(bytes, 1, rank_count, &layouts.back()) != MXS_OK) return false;
    for (int repeat = 0; repeat < 10; ++repeat) layouts.push_back(random_layout(bytes, rank_count, &random));
    for (const Layout &source : layouts)
      for (const Layout &target : layouts)
        if (!moves_the_bytes(source, target, &random)) {
          print_error("%d ranks, %d bytes\n", rank_count, static_cast<int>(bytes));
          return false;
        }
  }
  return true;
}

size_t move_count(const Layout &source, const Layout &target) {
  std::vector<LayoutMove> moves;
  return layout_moves(source, target, &moves) == MXS_OK ? moves.size() : SIZE_MAX;
}

bool neighbours_are_one_move() {
  const Layout pieces = layout_of({{0, 3}, {0, 4}, {0, 0}, {0, 5}}, 2);
  return move_count(pieces, layout_of({{1, 12}}, 2)) == 1 && move_count(pieces, pieces) == 1;
}

// As a caller sees it: rank r of one world is rank r of the other.
Bytes carry_out(const mxs_layout_move &move, const std::vector<Bytes> &from) {
  const Bytes &giver = from.at(static_cast<size_t>(move.source_rank));
  const auto begin = giver.begin() + static_cast<ptrdiff_t>(move.source_offset);
  return {begin, begin + static_cast<ptrdiff_t>(move.bytes)};
}

bool moves_into_another_world(const Layout &source, const Layout &target, std::mt19937 *random) {
  Bytes buffer(source.bytes);
  for (uint8_t &byte : buffer) byte = static_cast<uint8_t>((*random)());
  const std::vector<Bytes> from = packed(buffer, source), expected = packed(buffer, target);
  std::vector<Bytes> to(expected.size());
  for (size_t rank = 0; rank < to.size(); ++rank) to[rank].assign(expected[rank].size(), 0xee);

  const mxs_layout a{source}, b{target};
  uint64_t count = UINT64_MAX;
  if (mxs_layout_moves(&a, &b, nullptr, 0, &count) != MXS_OK) return false;
  std::vector<mxs_layout_move> moves(count + 2, mxs_layout_move MXS_LAYOUT_MOVE_INIT);
  moves[count].bytes = 77;
  uint64_t again = 0, moved = 0;
  if (mxs_layout_moves(&a, &b, moves.data(), moves.size(), &again) != MXS_OK || again != count) return false;
  if (moves[count].bytes != 77) return false;
  for (uint64_t index = 0; index < count; ++index) {
    const mxs_layout_move &move = moves[index];
    const Bytes bytes = carry_out(move, from);
    Bytes &taker = to.at(static_cast<size_t>(move.target_rank));
    if (move.size != sizeof move || move.target_offset + move.bytes > taker.size()) return false;
    std::copy(bytes.begin(), bytes.end(), taker.begin() + static_cast<ptrdiff_t>(move.target_offset));
    moved += move.bytes;
  }
  return moved == source.bytes && to == expected;
}

bool moves_between_all_worlds() {
  std::mt19937 random(5);
  for (const int before : {1, 2, 3, 4, 7, 8})
    for (const int after : {1, 2, 3, 4, 7, 8})
      for (const uint64_t bytes : {0, 1, 97, 1000})
        for (int repeat = 0; repeat < 4; ++repeat)
          if (!moves_into_another_world(random_layout(bytes, before, &random), random_layout(bytes, after, &random),
                                        &random)) {
            print_error("%d bytes from %d to %d ranks\n", static_cast<int>(bytes), before, after);
            return false;
          }
  return true;
}

// A caller that was built against a later release has larger elements; their rest is left alone.
bool strides_are_the_callers() {
  struct Later {
    mxs_layout_move move;
    uint64_t field;
  };
  const mxs_layout a{layout_of({{0, 8}, {1, 8}}, 2)}, b{layout_of({{2, 4}, {0, 12}}, 3)};
  Later moves[3] = {};
  for (Later &each : moves) each = {MXS_LAYOUT_MOVE_INIT, 99}, each.move.size = sizeof(Later);
  uint64_t count = 0;
  if (mxs_layout_moves(&a, &b, &moves[0].move, 2, &count) != MXS_OK || count != 3) return false;
  return moves[0].move.target_rank == 2 && moves[0].move.bytes == 4 && moves[1].move.bytes == 4 &&
         moves[1].move.size == sizeof(Later) && moves[0].field == 99 && moves[1].field == 99 &&
         moves[2].move.bytes == 0 && moves[2].field == 99;
}

bool call_is_refused(const mxs_layout *a, const mxs_layout *b, mxs_layout_move *moves, uint64_t capacity,
                     uint64_t *count, const char *word) {
  if (mxs_layout_moves(a, b, moves, capacity, count) == MXS_INVALID_ARGUMENT && std::strstr(last_error_text(), word))
    return true;
  print_error("not refused with %s: %s\n", word, last_error_text());
  return false;
}

bool bad_calls_are_refused() {
  const mxs_layout a{layout_of({{0, 8}, {1, 8}}, 2)}, b{layout_of({{1, 8}, {0, 8}}, 2)};
  const mxs_layout longer{layout_of({{0, 17}}, 1)}, none{};
  Layout gapped_layout;
  if (make_layout({{0, 0, 7}, {1, 8, 8}}, 2, 8, &gapped_layout) != MXS_OK) return false;
  const mxs_layout gapped{gapped_layout};
  mxs_layout_move moves[2] = {MXS_LAYOUT_MOVE_INIT, MXS_LAYOUT_MOVE_INIT};
  moves[0].bytes = 5;
  uint64_t count = 33;
  bool good = call_is_refused(nullptr, &b, moves, 2, &count, "source is NULL") &&
              call_is_refused(&a, nullptr, moves, 2, &count, "target is NULL") &&
              call_is_refused(&a, &b, nullptr, 2, &count, "moves is NULL") &&
              call_is_refused(&a, &b, moves, 2, nullptr, "move_count is NULL") &&
              call_is_refused(&a, &longer, moves, 2, &count, "17") &&
              call_is_refused(&a, &none, moves, 2, &count, "bytes") &&
              call_is_refused(&a, &gapped, moves, 2, &count, "target layout has gaps");
  for (const uint32_t size : {0u, 8u, 39u, 41u, 5000u}) {
    moves[0].size = size;
    good = good && call_is_refused(&a, &b, moves, 2, &count, "moves->size");
  }
  moves[0].size = sizeof moves[0];
  moves[1].size = 0;
  good = good && call_is_refused(&a, &b, moves, 2, &count, "moves[1].size is 0");
  return good && count == 33 && moves[0].bytes == 5 && mxs_layout_moves(&a, &b, moves, 1, &count) == MXS_OK &&
         count == 2;
}

bool is_refused(const Layout &source, const Layout &target, const char *word) {
  std::vector<LayoutMove> moves(3);
  return layout_moves(source, target, &moves) == MXS_INVALID_ARGUMENT && moves.size() == 3 &&
         std::strstr(last_error_text(), word);
}

bool strangers_are_refused() {
  const Layout two = layout_of({{0, 8}, {1, 8}}, 2), longer = layout_of({{0, 8}, {1, 9}}, 2);
  Layout gapped;
  if (make_layout({{0, 0, 7}, {1, 8, 8}}, 2, 8, &gapped) != MXS_OK) return false;
  return is_refused(two, layout_of({{0, 16}}, 3), "2 ranks") && is_refused(two, longer, "16 bytes") &&
         is_refused(gapped, two, "source layout has gaps") && is_refused(two, gapped, "target layout has gaps");
}

bool hashes_differ() {
  const Layout one = layout_of({{0, 8}, {1, 8}}, 2);
  return one.hash() == layout_of({{0, 8}, {1, 8}}, 2).hash() && one.hash() != layout_of({{1, 8}, {0, 8}}, 2).hash() &&
         one.hash() != layout_of({{0, 8}, {1, 8}}, 3).hash() && one.hash() != layout_of({{0, 7}, {1, 9}}, 2).hash();
}

void every_byte_arrives_at_its_new_place_in_every_world(void **) {
  for (int rank_count : {1, 2, 3, 4, 7, 8}) assert_true(moves_between_all_kinds_of_layouts(rank_count));
}
void every_byte_arrives_in_another_world(void **) { assert_true(moves_between_all_worlds()); }
void elements_have_the_callers_size(void **) { assert_true(strides_are_the_callers()); }
void bad_calls_change_nothing_and_say_why(void **) { assert_true(bad_calls_are_refused()); }
void neighbouring_pieces_of_one_pair_are_one_move(void **) { assert_true(neighbours_are_one_move()); }
void refuses_layouts_that_do_not_fit_each_other(void **) { assert_true(strangers_are_refused()); }
void the_hash_of_a_layout_tells_layouts_apart(void **) { assert_true(hashes_differ()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_byte_arrives_at_its_new_place_in_every_world),
      cmocka_unit_test(every_byte_arrives_in_another_world),
      cmocka_unit_test(elements_have_the_callers_size),
      cmocka_unit_test(bad_calls_change_nothing_and_say_why),
      cmocka_unit_test(neighbouring_pieces_of_one_pair_are_one_move),
      cmocka_unit_test(refuses_layouts_that_do_not_fit_each_other),
      cmocka_unit_test(the_hash_of_a_layout_tells_layouts_apart),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
