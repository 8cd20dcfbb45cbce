// SPDX-License-Identifier: Apache-2.0
// Loading a model that somebody else has written, in every world; and all that is refused, of which no rank's weights,
// masters, sums or state may show anything.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "matrixshard/matrixshard.h"
#include "support/complaints.hpp"
#include "support/loads.hpp"
#include "support/plain_safetensors.hpp"
#include "support/unit_model.hpp"
#include "support/unit_ways.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

std::string open_plain(const std::string &folder, const std::string &file, OwnCheckpoint *checkpoint) {
  mxs_checkpoint *opened = nullptr;
  if (mxs_checkpoint_open(&opened, (folder + "/" + file).c_str()) != MXS_OK) return error_of("mxs_checkpoint_open");
  checkpoint->reset(opened);
  return "";
}

// The tensors of a model with weight_value's numbers, in their own dtypes or in one.
std::vector<PlainTensor> tensors_of(const Model &model, uint64_t version, mxs_dtype dtype = 0) {
  std::vector<PlainTensor> tensors;
  for (size_t number = 0; number < model.tensors.size(); ++number) {
    const mxs_tensor &given = model.tensors[number];
    if (given.tied_to) continue;
    PlainTensor tensor;
    tensor.name = model.names[number];
    tensor.shape.assign(given.shape, given.shape + given.dimension_count);
    tensor.dtype = dtype ? dtype : given.dtype;
    tensor.value = [number, version](uint64_t element) {
      return static_cast<double>(weight_value(static_cast<int>(number), element, version));
    };
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

PlainTensor &find(std::vector<PlainTensor> *tensors, const std::string &name) {
  return *std::find_if(tensors->begin(), tensors->end(),
                       [&](const PlainTensor &tensor) { return tensor.name == name; });
}

// All that a load may change on this rank.
std::string everything(const Units &units, mxs_optimizer *optimizer = nullptr) {
  std::string text;
  const auto add = [&](const void *data, uint64_t bytes) { text.append(static_cast<const char *>(data), bytes); };
  for (const mxs_unit *unit : units.units) {
    for (const OwnedPlacement &owned : unit->owned()) {
      add(owned.weights, owned.element_count * dtype_bytes(owned.dtype));
      if (owned.master) add(owned.master, owned.element_count * dtype_bytes(owned.master_dtype));
      if (owned.gradient) add(owned.gradient, owned.element_count * sizeof(float));
    }
    text.append(std::to_string(unit->generation())).append(";");
  }
  for (uint64_t i = 0; i < mxs_optimizer_state_count(optimizer); ++i) {
    mxs_state_info info = MXS_STATE_INFO_INIT;
    mxs_optimizer_state(optimizer, i, &info);
    add(info.view.data, info.view.bytes);
  }
  return text.append(std::to_string(mxs_optimizer_step_number(optimizer)));
}

// Masters and weights of what this rank owns are these numbers, rounded to their dtypes.
std::string check_owned(const Units &units, const std::function<double(int tensor, uint64_t element)> &value) {
  for (const mxs_unit *unit : units.units)
    for (const OwnedPlacement &owned : unit->owned()) {
      const Placement &piece = unit->plan().placements[owned.placement];
      const std::string &name = unit->plan().tensors[static_cast<size_t>(owned.tensor)].name;
      for (uint64_t i = 0; i < owned.element_count; ++i) {
        const float master = static_cast<float>(value(owned.tensor, piece.element_offset + i));
        uint32_t wanted = 0, found = 0;
        write_value(&wanted, owned.dtype, 0, master);
        std::memcpy(&found, static_cast<const char *>(owned.weights) + i * dtype_bytes(owned.dtype),
                    dtype_bytes(owned.dtype));
        if (found != wanted) return words("%s, element %llu: wrong weights", name.c_str(), 0ull + i);
        if (!owned.master) continue;
        if (static_cast<const float *>(owned.master)[i] != master)
          return words("%s, element %llu: a wrong master", name.c_str(), 0ull + i);
      }
    }
  return "";
}

mxs_load_options options_of(int flags, Told *told = nullptr) {
  mxs_load_options options = MXS_LOAD_OPTIONS_INIT;
  options.flags = flags;
  options.tell = told ? Told::note : nullptr;
  options.tell_context = told;
  return options;
}

// Runs a body with units of a model that hold version 1, and sums of one round of gradients.
using UnitsBody = std::function<std::string(int rank, Units *units)>;
std::string with_units(int rank_count, const Model &model, const UnitsBody &body,
                       const mxs_unit_options *unit_options = nullptr) {
  return run_world(rank_count, [&](int rank, mxs_comm *comm) -> std::string {
    Units units;
    std::string complaint = units.make(comm, model, unit_options);
    if (complaint.empty()) complaint = units.fill(1);
    for (int index = 0; index < static_cast<int>(units.units.size()) && complaint.empty(); ++index) {
      complaint = units.write_gradients(index, 0, MXS_WRITE);
      mxs_unit *const unit = units.units[static_cast<size_t>(index)];
      const mxs_status reduced =
          info_of(unit).gradients_state == MXS_OPEN ? mxs_unit_reduce(unit, nullptr) : mxs_unit_skip(unit, nullptr);
      if (complaint.empty() && reduced != MXS_OK) complaint = error_of("reduce");
      if (complaint.empty() && mxs_unit_wait_reduce(unit, nullptr) != MXS_OK) complaint = error_of("wait_reduce");
    }
    return complaint.empty() ? body(rank, &units) : complaint;
  });
}

std::string over_worlds(const std::function<std::string(int rank_count)> &body) {
  for (const int rank_count : world_sizes) {
    const std::string complaint = body(rank_count);
    if (!complaint.empty()) return words("%d ranks: ", rank_count) + complaint;
  }
  return "";
}

// ---- what is loaded ----

std::string check_import(const TemporaryFolder &folder, Units *units) {
  OwnCheckpoint checkpoint;
  std::string complaint = open_plain(folder.path(), "model.safetensors", &checkpoint);
  if (!complaint.empty()) return complaint;
  mxs_view stale = MXS_VIEW_INIT;
  uint64_t owned = UINT64_MAX;
  for (const mxs_unit *unit : units->units)
    if (!unit->owned().empty()) owned = unit->owned()[0].placement;
  if (owned != UINT64_MAX) {
    mxs_unit *const unit = units->units[static_cast<size_t>(units->inner().placements[owned].unit)];
    if (mxs_unit_shard(unit, owned, &stale) != MXS_OK) return error_of("shard");
  }
  Told told;
  struct Progress {
    uint64_t done = 0, total = 0;
    static int note(void *context, uint64_t done, uint64_t total) {
      Progress *const self = static_cast<Progress *>(context);
      self->done = done, self->total = total;
      return 0;
    }
  } progress;
  mxs_load_options options = options_of(0, &told);
  options.progress = Progress::note;
  options.progress_context = &progress;
  for (int times = 0; times < 2; ++times) {
    if (times == 1) complaint = units->fill(3);
    if (!complaint.empty()) return complaint;
    if (mxs_checkpoint_load(checkpoint.get(), units->units.data(), units->units.size(), nullptr, &options) != MXS_OK)
      return error_of("load");
    if (!told.text.empty()) return "something is told: " + told.text;
    complaint = check_owned(*units, [](int tensor, uint64_t element) { return weight_value(tensor, element, 2); });
    if (!complaint.empty()) return complaint;
    if (progress.done > progress.total) return "more is done than there is";
  }
  for (int index = 0; index < static_cast<int>(units->units.size()); ++index) {
    complaint = units->gather_and_check(index, 2);
    if (!complaint.empty()) return complaint;
  }
  for (const mxs_unit *unit : units->units)
    for (const OwnedPlacement &each : unit->owned())
      for (uint64_t i = 0; each.gradient && i < each.element_count; ++i)
        if (each.gradient[i] != 0.0f) return "a sum of gradients is left";
  if (owned == UINT64_MAX) return "";
  mxs_unit *const unit = units->units[static_cast<size_t>(units->inner().placements[owned].unit)];
  return want(MXS_STALE_VIEW, mxs_unit_commit(unit, &stale), "a view from before");
}

std::string a_model_of_others_comes_into_every_world_inner() {
  TemporaryFolder folder;
  write_plain_safetensors(folder / "model.safetensors", tensors_of(odd_model(), 2));
  return over_worlds([&](int rank_count) {
    return with_units(rank_count, odd_model(), [&](int, Units *units) { return check_import(folder, units); });
  });
}

std::string peers_that_read_by_reference_see_it_inner() {
  TemporaryFolder folder;
  write_plain_safetensors(folder / "model.safetensors", tensors_of(odd_model(), 2));
  for (const Way &way : ways) {
    const mxs_unit_options unit_options = mxs::test::options_of(way, 4);
    const std::string complaint = with_units(
        3, odd_model(),
        [&](int, Units *units) -> std::string {
          // Pinned, as after a forward.
          for (int index = 0; index < static_cast<int>(units->units.size()); ++index) {
            const std::string wrong = units->gather_and_check(index, 1, index < 2 ? MXS_PIN : MXS_FREE);
            if (!wrong.empty()) return wrong;
          }
          OwnCheckpoint checkpoint;
          const std::string wrong = open_plain(folder.path(), "model.safetensors", &checkpoint);
          if (!wrong.empty()) return wrong;
          mxs_unit *const *const all = units->units.data();
          if (mxs_checkpoint_load(checkpoint.get(), all, units->units.size(), nullptr, nullptr) != MXS_OK)
            return error_of("load");
          for (int index = 0; index < static_cast<int>(units->units.size()); ++index) {
            const std::string old = units->gather_and_check(index, 2);
            if (!old.empty()) return old;
          }
          return "";
        },
        &unit_options);
    if (!complaint.empty()) return std::string(way.name) + ": " + complaint;
  }
  return "";
}

// Numbers that no narrow dtype has.
double odd_value(int tensor, uint64_t element) {
  return static_cast<double>(hashed(static_cast<uint64_t>(tensor), element, 5)) * 1.7 + 1e-9;
}

std::string other_dtypes_are_converted_if_allowed_inner() {
  const std::string all_told =
      "C:embedding C:scale C:qkv C:experts C:bias C:plain C:same C:nothing C:table C:head";
  for (const mxs_dtype dtype : {MXS_F64, MXS_F32}) {
    TemporaryFolder folder;
    std::vector<PlainTensor> tensors = tensors_of(odd_model(), 2, dtype);
    int number = 0;
    for (PlainTensor &tensor : tensors) {
      tensor.value = [number](uint64_t element) { return odd_value(number, element); };
      ++number;
    }
    write_plain_safetensors(folder / "model.safetensors", tensors);
    const std::string complaint = with_units(3, odd_model(), [&](int, Units *units) -> std::string {
      OwnCheckpoint checkpoint;
      std::string wrong = open_plain(folder.path(), "model.safetensors", &checkpoint);
      if (!wrong.empty()) return wrong;
      const std::string before = everything(*units);
      Told strict, told;
      mxs_load_options options = options_of(0, &strict);
      wrong = expect(mxs_checkpoint_load(checkpoint.get(), units->units.data(), units->units.size(), nullptr, &options),
                     MXS_MISMATCH, {"\"embedding\" is bf16", "MXS_LOAD_OTHER_DTYPES", "model.safetensors"});
      if (!wrong.empty()) return wrong;
      if (everything(*units) != before) return "a refused load has changed something";
      options = options_of(MXS_LOAD_OTHER_DTYPES, &told);
      if (mxs_checkpoint_load(checkpoint.get(), units->units.data(), units->units.size(), nullptr, &options) != MXS_OK)
        return error_of("load");
      if (strict.text != told.text) return "another thing is told of a refusal";
      const std::string f32_told = "C:embedding C:qkv C:experts C:bias C:same C:head";
      if (dtype == MXS_F64 && told.text != all_told) return "told: " + told.text;
      if (dtype == MXS_F32 && told.text.find(f32_told.substr(0, 30)) != 0) return "told: " + told.text;
      return check_owned(*units, odd_value);
    });
    if (!complaint.empty()) return std::string(mxs_dtype_name(dtype)) + ": " + complaint;
  }
  return "";
}

std::string a_tied_tensor_is_found_by_its_other_name_inner() {
  TemporaryFolder folder;
  std::vector<PlainTensor> tensors = tensors_of(odd_model(), 2);
  find(&tensors, "head").name = "tied";
  write_plain_safetensors(folder / "model.safetensors", tensors);
  return with_units(2, odd_model(), [&](int, Units *units) -> std::string {
    OwnCheckpoint checkpoint;
    const std::string wrong = open_plain(folder.path(), "model.safetensors", &checkpoint);
    if (!wrong.empty()) return wrong;
    if (mxs_checkpoint_load(checkpoint.get(), units->units.data(), units->units.size(), nullptr, nullptr) != MXS_OK)
      return error_of("load");
    return units->gather_and_check(4, 2);
  });
}

std::string units_that_are_not_named_stay_as_they_are_inner() {
  TemporaryFolder folder;
  write_plain_safetensors(folder / "model.safetensors", tensors_of(odd_model(), 2));
  return with_units(3, odd_model(), [&](int, Units *units) -> std::string {
    OwnCheckpoint checkpoint;
    std::string wrong = open_plain(folder.path(), "model.safetensors", &checkpoint);
    if (!wrong.empty()) return wrong;
    mxs_unit *const some[] = {units->units[4], units->units[1]};
    if (mxs_checkpoint_load(checkpoint.get(), some, 2, nullptr, nullptr) != MXS_OK) return error_of("load");
    for (const int index : {0, 1, 3, 4}) {
      wrong = units->gather_and_check(index, index == 1 || index == 4 ? 2 : 1);
      if (!wrong.empty()) return wrong;
    }
    return "";
  });
}

std::string an_optimizer_of_some_of_the_units_is_refused_inner() {
  TemporaryFolder folder;
  write_plain_safetensors(folder / "model.safetensors", tensors_of(odd_model(), 2));
  return with_units(3, odd_model(), [&](int, Units *units) -> std::string {
    OwnCheckpoint checkpoint;
    std::string wrong = open_plain(folder.path(), "model.safetensors", &checkpoint);
    mxs_optimizer *half = nullptr;
    if (!wrong.empty()) return wrong;
    if (mxs_optimizer_create(&half, units->units.data(), 2, nullptr) != MXS_OK) return error_of("optimizer");
    mxs_load_options options = options_of(0);
    const std::string before = everything(*units, half);
    const auto load = [&] {
      return mxs_checkpoint_load(checkpoint.get(), units->units.data(), units->units.size(), half, &options);
    };
    wrong = expect(load(), MXS_INVALID_ARGUMENT, {"\"head\"", "unit 4", "not stepped by the optimizer"});
    if (wrong.empty() && everything(*units, half) != before) wrong = "something has changed";
    options.flags = MXS_LOAD_WEIGHTS_ONLY;
    if (wrong.empty()) wrong = expect(load(), MXS_OK);
    mxs_optimizer_destroy(&half);
    return wrong.empty() ? units->gather_and_check(4, 2) : wrong;
  });
}

std::string missing_and_extra_tensors_are_told_on_every_rank_inner() {
  TemporaryFolder folder;
  std::vector<PlainTensor> tensors = tensors_of(odd_model(), 2);
  find(&tensors, "qkv").name = "q";
  find(&tensors, "plain").name = "p";
  write_plain_safetensors(folder / "model.safetensors", tensors);
  return over_worlds([&](int rank_count) {
    return with_units(rank_count, odd_model(), [&](int, Units *units) -> std::string {
      OwnCheckpoint checkpoint;
      std::string wrong = open_plain(folder.path(), "model.safetensors", &checkpoint);
      if (!wrong.empty()) return wrong;
      const std::string before = everything(*units);
      const auto load = [&](int flags, Told *told) {
        const mxs_load_options options = options_of(flags, told);
        return mxs_checkpoint_load(checkpoint.get(), units->units.data(), units->units.size(), nullptr, &options);
      };
      Told told[3];
      wrong = expect(load(0, &told[0]), MXS_NOT_FOUND, {"2 of the plan's tensors", "\"qkv\", \"plain\""});
      if (wrong.empty())
        wrong = expect(load(MXS_LOAD_ALLOW_MISSING, &told[1]), MXS_NOT_FOUND, {"2 tensors of", "\"q\", \"p\""});
      if (wrong.empty() && everything(*units) != before) wrong = "a refused load has changed something";
      if (wrong.empty()) wrong = expect(load(MXS_LOAD_ALLOW_MISSING | MXS_LOAD_ALLOW_EXTRA, &told[2]), MXS_OK);
      if (!wrong.empty()) return wrong;
      for (const Told &each : told)
        if (each.text != "M:qkv M:plain X:q X:p") return "told: " + each.text;
      const std::vector<PlannedTensor> &planned = units->inner().tensors;
      return check_owned(*units, [&](int tensor, uint64_t element) {
        const std::string &name = planned[static_cast<size_t>(tensor)].name;
        return weight_value(tensor, element, name == "qkv" || name == "plain" ? 1 : 2);
      });
    });
  });
}

// ---- what is refused ----

struct Attempt {
  const mxs_checkpoint *checkpoint;
  std::vector<mxs_unit *> units;
  mxs_optimizer *optimizer;
  mxs_load_options options;
};

struct Refusal {
  const char *name;
  mxs_status status;
  std::vector<std::string> words;  // on the rank that is at fault
  // Spoils the attempt of one rank, or of all.
  std::function<void(int rank, Attempt *attempt)> spoil;
};

std::string check_refusal(const Refusal &refusal, int rank, const Attempt &good_attempt, Units *units,
                          mxs_optimizer *optimizer) {
  Attempt attempt = good_attempt;
  refusal.spoil(rank, &attempt);
  const std::string before = everything(*units, optimizer);
  const mxs_status status = mxs_checkpoint_load(attempt.checkpoint, attempt.units.data(), attempt.units.size(),
                                                attempt.optimizer, &attempt.options);
  const std::string wrong = expect(status, refusal.status, refusal.words);
  if (!wrong.empty()) return std::string(refusal.name) + ": " + wrong;
  if (everything(*units, optimizer) != before) return std::string(refusal.name) + " has changed something";
  return "";
}

std::string whoever_refuses_all_refuse_and_nothing_changes_inner() {
  TemporaryFolder folder;
  write_plain_safetensors(folder / "model.safetensors", tensors_of(odd_model(), 2));
  write_plain_safetensors(folder / "other.safetensors", tensors_of(odd_model(), 2));
  std::vector<PlainTensor> tensors = tensors_of(odd_model(), 2);
  find(&tensors, "qkv").shape = {33, 96};
  write_plain_safetensors(folder / "shape.safetensors", tensors);
  return over_worlds([&](int rank_count) {
    const int at_fault = rank_count - 1;
    return with_units(rank_count, odd_model(), [&](int rank, Units *units) -> std::string {
      OwnCheckpoint model, other, shape;
      std::string wrong = open_plain(folder.path(), "model.safetensors", &model);
      if (wrong.empty()) wrong = open_plain(folder.path(), "other.safetensors", &other);
      if (wrong.empty()) wrong = open_plain(folder.path(), "shape.safetensors", &shape);
      if (!wrong.empty()) return wrong;
      mxs_optimizer *optimizer = nullptr;
      if (mxs_optimizer_create(&optimizer, units->units.data(), units->units.size(), nullptr) != MXS_OK)
        return error_of("optimizer");
      mxs_optimizer_set_step_number(optimizer, 41);
      const Attempt good_attempt = {model.get(), units->units, optimizer, options_of(MXS_LOAD_WEIGHTS_ONLY)};
      std::vector<Refusal> refusals = {
          {"no checkpoint", MXS_INVALID_ARGUMENT, {"checkpoint is NULL"},
           [&](int its_rank, Attempt *attempt) { if (its_rank == at_fault) attempt->checkpoint = nullptr; }},
          {"unknown flags", MXS_INVALID_ARGUMENT, {"options.flags is 0x40"},
           [&](int its_rank, Attempt *attempt) { if (its_rank == at_fault) attempt->options.flags = 64; }},
          {"a wrong size", MXS_INVALID_ARGUMENT, {"options.size is 3"},
           [&](int its_rank, Attempt *attempt) { if (its_rank == at_fault) attempt->options.size = 3; }},
          {"a unit twice", MXS_INVALID_ARGUMENT, {"unit 1, which is there twice"},
           [&](int its_rank, Attempt *attempt) {
             if (its_rank == at_fault) attempt->units.push_back(units->units[1]);
           }},
          {"an optimizer of more units", MXS_INVALID_ARGUMENT, {"the optimizer has unit 4"},
           [&](int its_rank, Attempt *attempt) { if (its_rank == at_fault) attempt->units.pop_back(); }},
          {"state that isn't there", MXS_NOT_FOUND, {"no optimizer state", "MXS_LOAD_WEIGHTS_ONLY"},
           [&](int, Attempt *attempt) { attempt->options.flags = 0; }},
          {"another shape", MXS_MISMATCH, {"\"qkv\" is (96, 33)", "(33, 96)", "shape.safetensors"},
           [&](int, Attempt *attempt) { attempt->checkpoint = shape.get(); }},
      };
      if (rank_count > 1) {
        refusals.push_back({"another checkpoint", MXS_MISMATCH, {"another checkpoint than rank 0"},
                            [&](int its_rank, Attempt *attempt) {
                              if (its_rank == at_fault) attempt->checkpoint = other.get();
                            }});
        refusals.push_back({"other flags", MXS_MISMATCH, {"other units or flags", "rank 0"},
                            [&](int its_rank, Attempt *attempt) {
                              if (its_rank == at_fault) attempt->options.flags |= MXS_LOAD_ALLOW_EXTRA;
                            }});
      }
      for (const Refusal &refusal : refusals) {
        wrong = check_refusal(refusal, rank, good_attempt, units, optimizer);
        if (!wrong.empty()) break;
      }
      // What is held on one rank.
      if (wrong.empty() && mxs_unit_gather(units->units[0], nullptr) != MXS_OK) wrong = error_of("gather");
      if (wrong.empty() && rank != at_fault && mxs_unit_release(units->units[0], MXS_FREE, nullptr) != MXS_OK)
        wrong = error_of("release");
      if (wrong.empty())
        wrong = check_refusal({"a unit that is gathered", MXS_HELD, {"unit 0 is gathered"}, [](int, Attempt *) {}},
                              rank, good_attempt, units, optimizer);
      if (wrong.empty() && rank == at_fault && mxs_unit_release(units->units[0], MXS_FREE, nullptr) != MXS_OK)
        wrong = error_of("release");
      // And after all that it can be loaded; the optimizer stays as it is.
      if (wrong.empty())
        wrong = expect(mxs_checkpoint_load(model.get(), units->units.data(), units->units.size(), optimizer,
                                           &good_attempt.options), MXS_OK);
      if (wrong.empty() && mxs_optimizer_step_number(optimizer) != 41) wrong = "the step number has changed";
      if (wrong.empty()) wrong = units->gather_and_check(1, 2);
      mxs_optimizer_destroy(&optimizer);
      return wrong;
    });
  });
}

std::string nothing_at_all_is_refused_alone_inner() {
  mxs_unit *no_unit = nullptr;
  std::string wrong = expect(mxs_checkpoint_load(nullptr, nullptr, 1, nullptr, nullptr), MXS_INVALID_ARGUMENT);
  if (wrong.empty())
    wrong = expect(mxs_checkpoint_load(nullptr, &no_unit, 1, nullptr, nullptr), MXS_INVALID_ARGUMENT, {"NULL"});
  return wrong.empty() ? expect(mxs_checkpoint_load(nullptr, &no_unit, 0, nullptr, nullptr), MXS_INVALID_ARGUMENT)
                       : wrong;
}

// ---- what fails while it is read ----

std::string failure_while_reading(int rank_count, const TemporaryFolder &folder, mxs_status status,
                                  const std::function<void(int rank, mxs_load_options *options)> &spoil) {
  return with_units(rank_count, odd_model(), [&](int rank, Units *units) -> std::string {
    OwnCheckpoint checkpoint, good_one;
    std::string wrong = open_plain(folder.path(), "bad.safetensors", &checkpoint);
    if (wrong.empty()) wrong = open_plain(folder.path(), "model.safetensors", &good_one);
    if (!wrong.empty()) return wrong;
    // All have opened it before it is spoiled.
    if (mxs_comm_barrier(units->comm, nullptr) != MXS_OK) return error_of("barrier");
    mxs_load_options options = options_of(0);
    spoil(rank, &options);
    if (mxs_comm_barrier(units->comm, nullptr) != MXS_OK) return error_of("barrier");
    wrong = expect(mxs_checkpoint_load(checkpoint.get(), units->units.data(), units->units.size(), nullptr, &options),
                   status);
    if (!wrong.empty()) return wrong;
    if (mxs_checkpoint_load(good_one.get(), units->units.data(), units->units.size(), nullptr, nullptr) != MXS_OK)
      return error_of("another load");
    return units->gather_and_check(1, 2);
  });
}

std::string a_read_that_fails_anywhere_fails_everywhere_inner() {
  TemporaryFolder folder;
  write_plain_safetensors(folder / "model.safetensors", tensors_of(odd_model(), 2));
  const std::string whole = content_of(folder / "model.safetensors");
  return over_worlds([&](int rank_count) -> std::string {
    put_content(folder / "bad.safetensors", whole);
    std::string wrong =
        failure_while_reading(rank_count, folder, MXS_CANCELLED, [&](int rank, mxs_load_options *options) {
          // The rank that stops must own something; the others don't know of it.
          (void)rank;
          options->progress = [](void *, uint64_t, uint64_t) { return 1; };
        });
    if (!wrong.empty()) return "cancelled: " + wrong;
    wrong = failure_while_reading(rank_count, folder, MXS_DAMAGED, [&](int rank, mxs_load_options *) {
      if (rank == 0) put_content(folder / "bad.safetensors", whole.substr(0, whole.size() / 2));
    });
    return wrong.empty() ? "" : "truncated: " + wrong;
  });
}

std::string replicas_load_alike_inner() {
  TemporaryFolder folder;
  write_plain_safetensors(folder / "model.safetensors", tensors_of(odd_model(), 2));
  const auto load = [&](mxs_comm *world, int rank, int shards) -> std::string {
    mxs_comm *shard_comm = nullptr, *replicas = nullptr;
    if (mxs_comm_split(&shard_comm, world, rank / shards, 0, nullptr) != MXS_OK) return error_of("shards");
    if (mxs_comm_split(&replicas, world, rank % shards, 0, nullptr) != MXS_OK) return error_of("replicas");
    std::string wrong;
    {
      Units units;
      mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
      options.replicas = replicas;
      wrong = units.make(shard_comm, odd_model(), &options);
      OwnCheckpoint checkpoint;
      if (wrong.empty()) wrong = units.fill(1);
      if (wrong.empty()) wrong = open_plain(folder.path(), "model.safetensors", &checkpoint);
      // The last rank of all refuses.
      const mxs_load_options bad = options_of(rank == 3 ? 64 : 0);
      if (wrong.empty())
        wrong = expect(mxs_checkpoint_load(checkpoint.get(), units.units.data(), units.units.size(), nullptr, &bad),
                       MXS_INVALID_ARGUMENT, {"options.flags is 0x40"});
      if (wrong.empty())
        wrong = expect(mxs_checkpoint_load(checkpoint.get(), units.units.data(), units.units.size(), nullptr, nullptr),
                       MXS_OK);
      for (const int index : {0, 1, 3, 4})
        if (wrong.empty()) wrong = units.gather_and_check(index, 2);
    }
    mxs_comm_destroy(&replicas);
    mxs_comm_destroy(&shard_comm);
    return wrong;
  };
  return run_world(4, [&](int rank, mxs_comm *world) { return load(world, rank, 2); });
}

void a_model_of_others_comes_into_every_world(void **) {
  assert_true(good(a_model_of_others_comes_into_every_world_inner()));
}
void peers_that_read_by_reference_see_it(void **) { assert_true(good(peers_that_read_by_reference_see_it_inner())); }
void other_dtypes_are_converted_if_allowed(void **) {
  assert_true(good(other_dtypes_are_converted_if_allowed_inner()));
}
void a_tied_tensor_is_found_by_its_other_name(void **) {
  assert_true(good(a_tied_tensor_is_found_by_its_other_name_inner()));
}
void units_that_are_not_named_stay_as_they_are(void **) {
  assert_true(good(units_that_are_not_named_stay_as_they_are_inner()));
}
void an_optimizer_of_some_of_the_units_is_refused(void **) {
  assert_true(good(an_optimizer_of_some_of_the_units_is_refused_inner()));
}
void missing_and_extra_tensors_are_told_on_every_rank(void **) {
  assert_true(good(missing_and_extra_tensors_are_told_on_every_rank_inner()));
}
void whoever_refuses_all_refuse_and_nothing_changes(void **) {
  assert_true(good(whoever_refuses_all_refuse_and_nothing_changes_inner()));
}
void nothing_at_all_is_refused_alone(void **) { assert_true(good(nothing_at_all_is_refused_alone_inner())); }
void a_read_that_fails_anywhere_fails_everywhere(void **) {
  assert_true(good(a_read_that_fails_anywhere_fails_everywhere_inner()));
}
void replicas_load_alike(void **) { assert_true(good(replicas_load_alike_inner())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_model_of_others_comes_into_every_world),
      cmocka_unit_test(peers_that_read_by_reference_see_it),
      cmocka_unit_test(other_dtypes_are_converted_if_allowed),
      cmocka_unit_test(a_tied_tensor_is_found_by_its_other_name),
      cmocka_unit_test(units_that_are_not_named_stay_as_they_are),
      cmocka_unit_test(an_optimizer_of_some_of_the_units_is_refused),
      cmocka_unit_test(missing_and_extra_tensors_are_told_on_every_rank),
      cmocka_unit_test(whoever_refuses_all_refuse_and_nothing_changes),
      cmocka_unit_test(nothing_at_all_is_refused_alone),
      cmocka_unit_test(a_read_that_fails_anywhere_fails_everywhere),
      cmocka_unit_test(replicas_load_alike),
  };
  return cmocka_run_group_tests_name("loading checkpoints", tests, nullptr, nullptr);
}
