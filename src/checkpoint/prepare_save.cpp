// SPDX-License-Identifier: Apache-2.0
// The first half of a save: may these units be saved, do all ranks want the same, and where to?
#include <cinttypes>
#include <cstring>
#include <filesystem>
#include <unordered_set>

#include "base/hash.hpp"
#include "base/status.hpp"
#include "checkpoint/describe.hpp"
#include "checkpoint/patience.hpp"
#include "checkpoint/prepared_save.hpp"

namespace mxs {

namespace {

constexpr char what[] = "the save";

// One plan, one comm; each unit that has tensors, once.
mxs_status check_whole(const std::vector<Unit *> &units) {
  const Plan &plan = units[0]->plan();
  std::vector<char> given(plan.units.size());
  for (const Unit *unit : units) {
    if (&unit->comm() != &units[0]->comm() || unit->replicas() != units[0]->replicas())
      return set_error(MXS_NOT_BUILT, "units %d and %d are of different comms; this release saves units of one",
                       units[0]->index(), unit->index());
    if (unit->plan().fingerprint != plan.fingerprint)
      return set_error(MXS_NOT_BUILT, "units %d and %d are of different plans; save each plan by itself",
                       units[0]->index(), unit->index());
    if (given[static_cast<size_t>(unit->index())])
      return set_error(MXS_INVALID_ARGUMENT, "unit %d is given twice", unit->index());
    given[static_cast<size_t>(unit->index())] = 1;
  }
  for (size_t index = 0; index < given.size(); ++index)
    if (!given[index] && !plan.units[index].tensors.empty())
      return set_error(MXS_INVALID_ARGUMENT, "unit %zu (with tensor \"%.200s\") is missing; a save takes all units of "
                       "the plan that have tensors", index,
                       plan.tensors[static_cast<size_t>(plan.units[index].tensors[0])].name.c_str());
  return MXS_OK;
}

// It steps these units and no others, all that are stepped.
mxs_status check_optimizer(const std::vector<Unit *> &units, const Optimizer &optimizer) {
  const std::unordered_set<const Unit *> saved(units.begin(), units.end());
  const std::unordered_set<const Unit *> stepped(optimizer.units().begin(), optimizer.units().end());
  for (const Unit *unit : optimizer.units())
    if (!saved.count(unit))
      return set_error(MXS_INVALID_ARGUMENT, "the optimizer steps unit %d, which isn't among the %zu units to be saved",
                       unit->index(), units.size());
  for (const Unit *unit : units) {
    if (stepped.count(unit)) continue;
    for (const int tensor : unit->plan().units[static_cast<size_t>(unit->index())].tensors)
      if (has_state(unit->plan().tensors[static_cast<size_t>(tensor)]))
        return set_error(MXS_NOT_BUILT, "tensor \"%.200s\" (unit %d) is not stepped by the optimizer that is given; "
                         "this release saves the state of one optimizer of all units",
                         unit->plan().tensors[static_cast<size_t>(tensor)].name.c_str(), unit->index());
  }
  if (!optimizer.left_out().empty())
    return set_error(MXS_INTERNAL, "%s; a checkpoint of it would be in disorder: load an older one",
                     optimizer.left_out().c_str());
  return MXS_OK;
}

// In CUDA memory a step may be on its way; whoever wants a sum waits for it.
mxs_status wait_for_step(Unit *unit) {
  const std::vector<uint64_t> &placements = unit->plan().units[static_cast<size_t>(unit->index())].placements;
  if (!unit->device() || placements.empty()) return MXS_OK;
  mxs_view ignored = MXS_VIEW_INIT;
  return unit->shard_gradient(placements[0], &ignored);
}

mxs_status wait_until_idle(const std::vector<Unit *> &units) {
  for (const Unit *unit : units) {
    const mxs_status status = unit->check_idle("a save");
    if (status != MXS_OK) return status;
  }
  for (Unit *unit : units) {
    mxs_status status = unit->wait_reduce(0);
    if (status == MXS_OK) status = wait_for_step(unit);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// A folder of checkpoints is opened, and kept, by the numbers in names.
mxs_status check_name(const std::string &name, const Optimizer *optimizer) {
  uint64_t named = 0;
  if (!optimizer || !step_of_folder_name(name, &named) || named == optimizer->step_number()) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "options.name is %s, but the optimizer's step number is %" PRIu64 "; give "
                   "NULL, or a name that is of no step", name.c_str(), optimizer->step_number());
}

mxs_status check_companions(const std::string &folder) {
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return MXS_OK;
  return set_error(MXS_SYSTEM, "options.files_from is %.400s, which is no folder%s%s", folder.c_str(),
                   error ? ": " : "", error ? error.message().c_str() : "");
}

// What must be the same on all ranks, one by one, so that a sentence names it.
mxs_status compare_settings(Comm &comm, const SaveSettings &settings, const Optimizer *optimizer) {
  const auto text = [](const std::string &value) { return Fingerprint().add(std::string_view(value)).value(); };
  const struct {
    uint64_t hash;
    const char *name;
  } fields[] = {
      {settings.beside_training, "a save (the call: mxs_checkpoint_save or mxs_save_start)"},
      {text(settings.path), "path of a save"},
      {optimizer != nullptr, "optimizer (or NULL) of a save"},
      {optimizer ? optimizer->step_number() : 0, "optimizer's step number in a save"},
      {text(settings.name), "options.name of a save"},
      {settings.masters, "options.masters of a save"},
      {settings.weights_only, "options.weights_only of a save"},
      {static_cast<uint64_t>(settings.keep), "options.keep of a save"},
      {settings.extras.empty(), "options.extras (some, or none) of a save"},
  };
  for (const auto &field : fields) {
    const mxs_status status = compare_over_ranks(comm, field.hash, field.name);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// The process may change its folder while a save goes on beside it.
mxs_status make_absolute(SaveSettings *settings) {
  for (std::string *path : {&settings->path, &settings->files_from}) {
    std::error_code error;
    if (!path->empty()) *path = std::filesystem::absolute(*path, error);
    if (error) return set_error(MXS_SYSTEM, "the folder that the process is in can't be told: %s; pass a path that "
                                "begins with a slash", error.message().c_str());
  }
  return MXS_OK;
}

// Rank 0 makes the folder and tells its name, which is no longer than a file's.
mxs_status make_folder(Comm &comm, PreparedSave *save) {
  const mxs_status own = fenced([&] {
    const mxs_status known = make_absolute(&save->settings);
    if (known != MXS_OK || comm.rank != 0) return known;
    return save->folder.begin(save->settings.path, save->settings.name);
  });
  mxs_status status = settle_over_ranks(comm, failed_on_rank(comm.rank, own), what, save->patience_ns);
  if (status != MXS_OK) return status;
  struct Told {
    char name[512];
  };
  Told told{};
  const std::string made = std::filesystem::path(save->folder.path()).filename();
  std::strncpy(told.name, made.c_str(), sizeof told.name - 1);
  std::vector<Told> all(static_cast<size_t>(comm.rank_count));
  status = comm.agree(&told, all.data(), sizeof told, save->patience_ns);
  if (status == MXS_OK) save->partial_path = save->settings.path + "/" + all[0].name;
  return status;
}

}  // namespace

mxs_status prepare_save(const std::vector<Unit *> &units, Optimizer *optimizer, const SaveSettings &settings,
                        PreparedSave *save) {
  Comm &comm = units[0]->comm();
  save->settings = settings;
  save->patience_ns = patience_of(settings.timeout_ns);
  if (save->settings.name.empty()) save->settings.name = step_folder_name(optimizer ? optimizer->step_number() : 0);
  mxs_status status = fenced([&] {
    mxs_status own = check_whole(units);
    if (own == MXS_OK && optimizer) own = check_optimizer(units, *optimizer);
    if (own == MXS_OK) own = check_name(save->settings.name, optimizer);
    if (own == MXS_OK) own = wait_until_idle(units);
    if (own == MXS_OK && comm.rank == 0) own = check_companions(settings.files_from);
    if (own == MXS_OK) own = collect_content(units, optimizer, settings, &save->content);
    return own;
  });
  status = settle_over_ranks(comm, status, what);
  if (status == MXS_OK) status = compare_settings(comm, save->settings, optimizer);
  if (status == MXS_OK) status = make_folder(comm, save);
  // They are the caller's.
  save->settings.user = nullptr;
  save->settings.extras.clear();
  return status;
}

}  // namespace mxs
