// SPDX-License-Identifier: Apache-2.0
#include "bench/values.hpp"

#include <array>
#include <cstring>

namespace bench {

namespace {

// Mixes so that no shift of a buffer by a chunk gives equal values, not even in the lower 16 bits.
inline uint32_t mixed(uint64_t position, uint32_t seed) {
  uint32_t bits = (static_cast<uint32_t>(position) + seed) * 0x9E3779B1u;
  bits ^= bits >> 16;
  return bits;
}

constexpr uint32_t seed_of(int rank, int turn) {
  return static_cast<uint32_t>(rank) * 0x01000193u + static_cast<uint32_t>(turn) * 0x00985A4Du + 1;
}

template <class Element>
void fill_as(Element *memory, const Run &run, uint32_t seed) {
  for (uint64_t i = 0; i < run.count; i++) memory[i] = static_cast<Element>(mixed(run.first + i, seed));
}

template <class Element>
uint64_t count_as(const Element *memory, const Run &run, uint32_t seed) {
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < run.count; i++) wrong += memory[i] != static_cast<Element>(mixed(run.first + i, seed));
  return wrong;
}

// A rank's term is a part of the position and a part of its own, so that a sum is known without adding p terms.
constexpr uint32_t own_values = 32, place_values = 64;
inline uint32_t place_part(uint64_t position, int turn) { return mixed(position, seed_of(0, turn)) % place_values; }
constexpr uint32_t own_part(int rank, int turn) { return static_cast<uint32_t>(rank * 5 + turn * 3) % own_values; }
inline uint32_t base_part(uint64_t position, int turn) { return mixed(position, seed_of(7, turn)) % 16; }

// Bits of the whole numbers 0 ... 95 in a dtype of 16 bits.
std::array<uint16_t, own_values + place_values> bits_of(mxs_dtype dtype) {
  std::array<uint16_t, own_values + place_values> table{};
  for (uint32_t value = 1; value < table.size(); value++) {
    const float number = static_cast<float>(value);
    uint32_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    const uint32_t exponent = (bits >> 23) - 127 + 15, fraction = (bits >> 13) & 0x3ff;
    table[value] = static_cast<uint16_t>(dtype == MXS_BF16 ? bits >> 16 : exponent << 10 | fraction);
  }
  return table;
}

}  // namespace

void fill_gathered(void *memory, const Run &run, int owner, int turn) {
  const uint32_t seed = seed_of(owner, turn);
  if (run.element_bytes == 4) fill_as(static_cast<uint32_t *>(memory), run, seed);
  else fill_as(static_cast<uint16_t *>(memory), run, seed);
}

uint64_t count_wrong_gathered(const void *memory, const Run &run, int owner, int turn) {
  const uint32_t seed = seed_of(owner, turn);
  return run.element_bytes == 4 ? count_as(static_cast<const uint32_t *>(memory), run, seed)
                                : count_as(static_cast<const uint16_t *>(memory), run, seed);
}

void fill_term(void *memory, const Run &run, mxs_dtype dtype, int rank, int turn) {
  const uint32_t own = own_part(rank, turn);
  if (dtype == MXS_F32) {
    auto *numbers = static_cast<float *>(memory);
    for (uint64_t i = 0; i < run.count; i++) numbers[i] = static_cast<float>(own + place_part(run.first + i, turn));
    return;
  }
  const auto table = bits_of(dtype);
  auto *bits = static_cast<uint16_t *>(memory);
  for (uint64_t i = 0; i < run.count; i++) bits[i] = table[own + place_part(run.first + i, turn)];
}

void fill_base(float *memory, const Run &run, int turn) {
  for (uint64_t i = 0; i < run.count; i++) memory[i] = static_cast<float>(base_part(run.first + i, turn));
}

uint64_t count_wrong_sums(const float *memory, const Run &run, int rank_count, int turn, bool on_base) {
  uint32_t own = 0;
  for (int rank = 0; rank < rank_count; rank++) own += own_part(rank, turn);
  const auto ranks = static_cast<uint32_t>(rank_count);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < run.count; i++) {
    const uint64_t at = run.first + i;
    const uint32_t sum = own + ranks * place_part(at, turn) + (on_base ? base_part(at, turn) : 0);
    wrong += memory[i] != static_cast<float>(sum);
  }
  return wrong;
}

void poison(void *memory, uint64_t bytes) {
  if (bytes > 0) std::memset(memory, 0xA5, bytes);
}

}  // namespace bench
