// SPDX-License-Identifier: Apache-2.0
#include "optimizer/state_header.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/hash.hpp"
#include "base/status.hpp"
#include "base/words.hpp"
#include "kernels/presets.hpp"

namespace mxs {

namespace {

constexpr uint64_t state_magic = 0x6574617473'73786d;  // "mxsstate" in memory
constexpr uint16_t state_version = 1;

uint64_t shape_hash(const StepMatrices &matrices) {
  Fingerprint hash;
  const auto add = [&](int64_t value) { hash.add(static_cast<uint64_t>(value)); };
  for (const int64_t value : {matrices.rows, matrices.columns, matrices.count}) add(value);
  hash.add(matrices.blocks.size());
  for (const StepBlock &block : matrices.blocks)
    for (const int64_t value : {block.first_row, block.rows, block.first_column, block.columns}) add(value);
  return hash.value();
}

uint64_t options_hash(const Stepper &stepper) {
  Fingerprint hash;
  hash.add(stepper.state_meaning());
  for (const StatePart &part : stepper.state_parts())
    hash.add(part.name).add(static_cast<uint64_t>(part.dtype)).add(part.offset).add(part.bytes);
  return hash.value();
}

const char *preset_word(uint8_t number) {
  const Preset *const preset = find_preset(number);
  return preset ? preset->name : "unknown";
}

const char *weights_word(uint8_t weights) {
  switch (weights) {
    case MXS_WEIGHTS_ALONE: return "alone";
    case MXS_WEIGHTS_MASTER: return "beside a master";
    case MXS_WEIGHTS_REMAINDER: return "beside a remainder";
    default: return "unknown";
  }
}

bool is_good(float number) { return std::isfinite(number); }
// Doubles of a state count something.
bool is_good(double number) { return number >= 0 && number < 0x1p53 && number == std::floor(number); }

template <class Number>
mxs_status check_numbers(const StatePart &part, const std::byte *parts) {
  constexpr uint64_t batch = 256;
  Number numbers[batch];
  const uint64_t count = part.bytes / sizeof(Number);
  for (uint64_t first = 0; first < count; first += batch) {
    const uint64_t length = std::min(batch, count - first);
    std::memcpy(numbers, parts + part.offset + first * sizeof(Number), length * sizeof(Number));
    for (uint64_t i = 0; i < length; ++i)
      if (!is_good(numbers[i]))
        return set_error(MXS_MISMATCH, "the state is damaged: element %llu of its \"%s\" is %g",
                         static_cast<unsigned long long>(first + i), part.name.c_str(),
                         static_cast<double>(numbers[i]));
  }
  return MXS_OK;
}

}  // namespace

StateHeader first_header(const StepMatrices &matrices, const Stepper &stepper, mxs_preset preset) {
  StateHeader header;
  header.magic = state_magic;
  header.version = state_version;
  header.rule = static_cast<uint8_t>(stepper.rule());
  header.preset = static_cast<uint8_t>(preset);
  header.dtype = static_cast<uint8_t>(matrices.dtype);
  header.gradient_dtype = static_cast<uint8_t>(matrices.gradient_dtype);
  header.weights = static_cast<uint8_t>(matrices.weights);
  header.shape = shape_hash(matrices);
  header.options = options_hash(stepper);
  header.bytes = sizeof(StateHeader) + stepper.state_bytes();
  return header;
}

mxs_status compare_headers(const StateHeader &wanted, const StateHeader &given) {
  const auto differs = [](const char *what, const char *its, const char *ours) {
    return set_error(MXS_MISMATCH, "the state is of %s %s, this stepper of %s", what, its, ours);
  };
  if (given.magic != wanted.magic)
    return set_error(MXS_MISMATCH, "this is no state of a stepper: make one with mxs_stepper_init");
  if (given.version != wanted.version)
    return set_error(MXS_MISMATCH, "the state is of version %u, this release reads %u", given.version, wanted.version);
  if (given.rule != wanted.rule) return differs("the rule", rule_name(given.rule), rule_name(wanted.rule));
  if (given.preset != wanted.preset)
    return differs("the preset", preset_word(given.preset), preset_word(wanted.preset));
  if (given.dtype != wanted.dtype)
    return differs("weights in", mxs_dtype_name(given.dtype), mxs_dtype_name(wanted.dtype));
  if (given.gradient_dtype != wanted.gradient_dtype)
    return differs("gradients in", mxs_dtype_name(given.gradient_dtype), mxs_dtype_name(wanted.gradient_dtype));
  if (given.weights != wanted.weights)
    return differs("weights", weights_word(given.weights), weights_word(wanted.weights));
  if (given.shape != wanted.shape)
    return set_error(MXS_MISMATCH, "the state is of other matrices: rows, columns, count, blocks or heads differ");
  if (given.options != wanted.options || given.bytes != wanted.bytes)
    return set_error(MXS_MISMATCH, "the state is of other options: it has other parts, or their numbers mean something "
                     "else (momentum as an average or a sum)");
  if (given.reserved != 0 || given.reserved2 != 0)
    return set_error(MXS_MISMATCH, "the state's header has fields that this release doesn't know");
  // Nobody makes so many; the one after the last would be step 0, whose bias corrections divide by 0.
  if (given.step_number >= INT64_MAX)
    return set_error(MXS_MISMATCH, "the state is damaged: it says that it has made %llu steps",
                     static_cast<unsigned long long>(given.step_number));
  return MXS_OK;
}

mxs_status check_parts(const Stepper &stepper, const std::byte *parts) {
  for (const StatePart &part : stepper.state_parts()) {
    mxs_status status = MXS_OK;
    if (part.dtype == MXS_F32) status = check_numbers<float>(part, parts);
    if (part.dtype == MXS_F64) status = check_numbers<double>(part, parts);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

}  // namespace mxs
