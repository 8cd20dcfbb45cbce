// SPDX-License-Identifier: Apache-2.0
// Saves: what is in the files, in every world, by threads and by processes; what options do; what is refused, on all
// ranks alike; and saves beside training, which are of the moment when they were begun.
#include <sys/resource.h>

#include <cstdio>
#include <functional>

#include "checkpoint_saving.hpp"
#include "support/processes.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

// ---- what is in the files ----

std::string save_and_compare(mxs_comm *comm, const std::string &root, const mxs_checkpoint_options *options) {
  Saver saver;
  std::string complaint = saver.make_all(comm);
  if (complaint.empty()) complaint = saver.train();
  if (complaint.empty()) complaint = want(MXS_OK, saver.save(root, options), "the save");
  const std::string folder = root + "/step-00000002";
  Arrays arrays;
  if (complaint.empty()) complaint = arrays.load(folder);
  if (complaint.empty()) complaint = saver.compare(arrays, options && options->masters);
  Manifest manifest;
  if (complaint.empty() && saver.rank == 0) complaint = check_manifest_of(folder, &manifest);
  if (complaint.empty() && saver.rank == 0 && manifest.arrays.size() != arrays.by_name.size())
    complaint = "the manifest has other arrays than the files";
  return complaint.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK ? error_of("barrier") : complaint;
}

std::string files_have_everything_in_every_world_inner() {
  for (const int rank_count : world_sizes)
    for (const int masters : {0, 1}) {
      TemporaryFolder root;
      mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
      options.masters = masters;
      const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) {
        return save_and_compare(comm, root.path(), &options);
      });
      if (!complaint.empty()) return words("%d ranks: ", rank_count) + complaint;
      if (names_in(root.path()) != "step-00000002") return "there is more: " + names_in(root.path());
    }
  return "";
}

std::string processes_write_what_threads_write_inner() {
  for (const int rank_count : {1, 2, 3, 8}) {
    TemporaryFolder root;
    const std::string complaint = run_processes(rank_count, [&](int, mxs_comm *comm) {
      return save_and_compare(comm, root.path(), nullptr);
    });
    if (!complaint.empty()) return words("%d ranks: ", rank_count) + complaint;
  }
  return "";
}

std::string the_manifest_tells_what_was_saved_inner() {
  TemporaryFolder root;
  const std::string complaint = run_world(3, [&](int rank, mxs_comm *comm) -> std::string {
    Saver saver;
    std::string wrong = saver.make_all(comm);
    if (wrong.empty()) wrong = saver.train();
    const std::string user = rank == 1 ? "" : std::string("rank\0 ", 6).append(std::to_string(rank));
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    options.name = "mine";
    options.user = user.data();
    options.user_bytes = user.size();
    return wrong.empty() ? want(MXS_OK, saver.save(root.path() + "/", &options), "the save") : wrong;
  });
  if (!complaint.empty()) return complaint;
  Manifest manifest;
  const std::string folder = root.path() + "/mine", wrong = check_manifest_of(folder, &manifest);
  if (!wrong.empty()) return wrong;
  if (manifest.version != mxs_version_text() || manifest.step_number != 2 || manifest.rank_count != 3 ||
      manifest.masters || !manifest.has_state)
    return "version, step, ranks or flags are others";
  if (manifest.user.size() != 3 || manifest.user[0] != std::string("rank\0 0", 7) || !manifest.user[1].empty() ||
      manifest.user[2] != std::string("rank\0 2", 7))
    return "the user's bytes are others";
  if (manifest.groups.size() != 3 || !manifest.groups[1] || manifest.groups[1]->lr != 0.02f ||
      manifest.groups[2]->beta1 != 0.95f)
    return "the groups' values are others";
  if (manifest.rules.size() != 4 || manifest.rules[0].rule != MXS_RULE_MUON ||
      manifest.rules[0].preset != MXS_PRESET_NORMUON)
    return "the rules are others";
  if (manifest.plan.find("\"c_attn\"") == std::string::npos) return "the plan isn't there";
  if (names_in(folder).find("matrixshard.json") == std::string::npos || names_in(folder).find(".report") == 0)
    return "the folder has " + names_in(folder);
  const std::string index = content_of(folder + "/model.safetensors.index.json");
  for (const char *word : {"\"weight_map\"", "\"total_size\"", "\"embedding\": \"model-0000", "\"nothing\""})
    if (index.find(word) == std::string::npos) return std::string("the index doesn't have ") + word;
  if (index.find("tied") != std::string::npos || index.find("momentum") != std::string::npos)
    return "the index has what isn't the model's";
  return "";
}

// ---- options ----

std::string weights_alone_have_no_state_inner() {
  TemporaryFolder root;
  return run_world(2, [&](int rank, mxs_comm *comm) -> std::string {
    Saver saver;
    std::string wrong = saver.make_all(comm);
    if (wrong.empty()) wrong = saver.train();
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    options.weights_only = 1;
    if (wrong.empty()) wrong = want(MXS_OK, saver.save(root.path(), &options), "the save");
    Arrays arrays;
    if (wrong.empty()) wrong = arrays.load(root.path() + "/step-00000002");
    if (wrong.empty()) wrong = saver.compare_weights(arrays);
    if (wrong.empty() && std::filesystem::exists(root.path() + "/step-00000002/optimizer"))
      wrong = "there is a folder optimizer";
    // Without an optimizer there are masters, and step 0.
    mxs_optimizer *const optimizer = saver.optimizer;
    saver.optimizer = nullptr;
    if (wrong.empty()) wrong = want(MXS_OK, saver.save(root.path()), "the save without an optimizer");
    saver.optimizer = optimizer;
    Arrays others;
    if (wrong.empty()) wrong = others.load(root.path() + "/step-00000000");
    if (wrong.empty() && others.by_name.count("embedding.master") == 0) wrong = "no masters are saved";
    if (wrong.empty() && others.by_name.count("embedding.exp_avg") != 0) wrong = "state is saved of no optimizer";
    Manifest manifest;
    if (wrong.empty() && rank == 0) wrong = check_manifest_of(root.path() + "/step-00000000", &manifest);
    return wrong.empty() && rank == 0 && manifest.has_state ? "the manifest tells of state" : wrong;
  });
}

std::string extras_and_companions_come_along_inner() {
  TemporaryFolder root, model;
  std::ofstream(model.path() + "/config.json") << "{}";
  std::ofstream(model.path() + "/old.safetensors") << "no";
  const std::vector<int64_t> numbers = {1, 2, 3};
  const bool flags[2] = {true, false};
  const std::string complaint = run_world(4, [&](int rank, mxs_comm *comm) -> std::string {
    Saver saver;
    const std::string wrong = saver.make_all(comm);
    if (!wrong.empty()) return wrong;
    mxs_extra_tensor extras[3] = {MXS_EXTRA_TENSOR_INIT, MXS_EXTRA_TENSOR_INIT, MXS_EXTRA_TENSOR_INIT};
    extras[0].name = "positions", extras[0].dtype = "I64", extras[0].data = numbers.data();
    extras[0].dimension_count = 1, extras[0].shape[0] = 3;
    extras[1].name = "flags", extras[1].dtype = "BOOL", extras[1].data = flags;
    extras[1].dimension_count = 2, extras[1].shape[0] = 2, extras[1].shape[1] = 1;
    extras[2].name = "no numbers", extras[2].dtype = "F32";
    extras[2].dimension_count = 1;
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    options.extras = extras;
    options.extra_count = rank == 0 ? 3 : 1;  // whether there are any counts, and rank 0's
    options.files_from = model.path().c_str();
    return want(MXS_OK, saver.save(root.path(), &options), "the save");
  });
  if (!complaint.empty()) return complaint;
  const std::string folder = root.path() + "/step-00000000";
  Arrays arrays;
  Manifest manifest;
  std::string wrong = arrays.load(folder);
  if (wrong.empty()) wrong = check_manifest_of(folder, &manifest);
  if (!wrong.empty()) return wrong;
  const Arrays::One &positions = arrays.by_name["positions"];
  if (positions.dtype_word != "I64" || positions.file.find("model-00001-of") != 0 ||
      positions.bytes != std::string(reinterpret_cast<const char *>(numbers.data()), 24))
    return "positions are not what was given";
  if (arrays.by_name["flags"].bytes != std::string("\1\0", 2)) return "flags are not what was given";
  if (arrays.by_name.count("no numbers") == 0) return "the empty extra is missing";
  if (content_of(folder + "/config.json") != "{}") return "config.json is missing";
  return names_in(folder).find("old.safetensors") == std::string::npos ? "" : "old weights have been copied";
}

std::string the_newest_are_kept_and_the_same_is_replaced_inner() {
  TemporaryFolder root;
  return run_world(3, [&](int rank, mxs_comm *comm) -> std::string {
    Saver saver;
    std::string wrong = saver.make_all(comm);
    if (wrong.empty()) wrong = saver.fill(1);
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    options.keep = 2;
    for (uint64_t step = 1; step <= 4 && wrong.empty(); step++) {
      wrong = want(MXS_OK, mxs_optimizer_set_step_number(saver.optimizer, step), "set_step_number");
      if (wrong.empty()) wrong = want(MXS_OK, saver.save(root.path(), &options), "the save");
    }
    if (wrong.empty() && rank == 0 && names_in(root.path()) != "step-00000003,step-00000004")
      wrong = "there are " + names_in(root.path());
    if (wrong.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) wrong = error_of("barrier");
    if (wrong.empty()) wrong = saver.fill(2);
    if (wrong.empty()) wrong = want(MXS_OK, saver.save(root.path(), &options), "the second save of one step");
    if (wrong.empty() && rank == 0 && names_in(root.path()) != "step-00000003,step-00000004")
      wrong = "after the second save of one step there are " + names_in(root.path());
    Arrays arrays;
    if (wrong.empty()) wrong = arrays.load(root.path() + "/step-00000004");
    return wrong.empty() ? saver.compare_weights(arrays) : wrong;
  });
}

// ---- what is refused ----

// All ranks call with options that differ where `change` changes them; all must be told the same.
std::string all_are_told(int rank_count, mxs_status status, const std::vector<std::string> &said,
                         const std::function<void(int rank, Saver &saver, std::string *path,
                                                  mxs_checkpoint_options *options)> &change) {
  TemporaryFolder root;
  for (const bool beside : {false, true}) {
    const std::string complaint = run_world(rank_count, [&](int rank, mxs_comm *comm) -> std::string {
      Saver saver;
      std::string wrong = saver.make_all(comm);
      if (!wrong.empty()) return wrong;
      std::string path = root.path() + "/checkpoints";
      mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
      change(rank, saver, &path, &options);
      mxs_save *save = nullptr;
      const mxs_status got = beside ? saver.start(&save, path, &options) : saver.save(path, &options);
      wrong = expect(got, status, said);
      if (wrong.empty() && save) wrong = "there is a save";
      for (mxs_unit *unit : saver.units) mxs_unit_release(unit, MXS_FREE, nullptr);
      // The comm goes on to work.
      if (beside) return wrong.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK ? error_of("barrier") : wrong;
      if (wrong.empty()) wrong = want(MXS_OK, mxs_optimizer_set_step_number(saver.optimizer, 9), "set_step_number");
      if (wrong.empty()) wrong = want(MXS_OK, saver.save(root.path() + "/after"), "a save after it");
      return wrong;
    });
    if (!complaint.empty()) return complaint;
    if (names_in(root.path()) != "after") return "there are " + names_in(root.path());
  }
  return "";
}

std::string ranks_that_differ_are_named_inner() {
  const auto told = [](const char *what, auto change) {
    const std::string complaint = all_are_told(3, MXS_MISMATCH, {"rank 1", what},
                                               [&](int rank, Saver &saver, std::string *path,
                                                   mxs_checkpoint_options *options) {
                                                 if (rank == 1) change(saver, path, options);
                                               });
    return complaint.empty() ? "" : std::string(what) + ": " + complaint;
  };
  static const mxs_extra_tensor extra = MXS_EXTRA_TENSOR_INIT;
  using Path = std::string *;
  using Options = mxs_checkpoint_options *;
  for (const std::string &complaint :
       {told("keep", [](Saver &, Path, Options options) { options->keep = 3; }),
        told("path", [](Saver &, Path path, Options) { *path += "2"; }),
        told("masters", [](Saver &, Path, Options options) { options->masters = 1; }),
        told("weights_only", [](Saver &, Path, Options options) { options->weights_only = 1; }),
        told("name", [](Saver &, Path, Options options) { options->name = "other"; }),
        told("step number", [](Saver &saver, Path, Options) { mxs_optimizer_set_step_number(saver.optimizer, 7); }),
        told("extras", [](Saver &, Path, Options options) { options->extras = &extra, options->extra_count = 1; })})
    if (!complaint.empty()) return complaint;
  return "";
}

// One waits, the others write beside training: neither kind of call may think that it is done.
std::string calls_that_differ_are_told_inner() {
  TemporaryFolder root;
  const std::string complaint = run_world(3, [&](int rank, mxs_comm *comm) -> std::string {
    Saver saver;
    std::string wrong = saver.make_all(comm);
    mxs_save *save = nullptr;
    if (wrong.empty())
      wrong = expect(rank == 1 ? saver.save(root.path() + "/x") : saver.start(&save, root.path() + "/x"), MXS_MISMATCH,
                     {"rank 1", "mxs_checkpoint_save or mxs_save_start"});
    if (wrong.empty() && save) wrong = "there is a save";
    return wrong.empty() ? want(MXS_OK, saver.save(root.path() + "/after"), "a save after it") : wrong;
  });
  return complaint.empty() && names_in(root.path()) != "after" ? "there are " + names_in(root.path()) : complaint;
}

std::string what_one_rank_gets_wrong_is_refused_on_all_inner() {
  static mxs_extra_tensor strange = MXS_EXTRA_TENSOR_INIT, twin = MXS_EXTRA_TENSOR_INIT, long_side = twin, minus = twin;
  strange.name = "buffer", strange.dtype = "F99", strange.data = &strange;
  long_side.name = "long", long_side.dtype = "U8", long_side.dimension_count = 2;
  long_side.shape[0] = (int64_t{1} << 62) + 1;  // times 0
  minus.name = "minus", minus.dtype = "U8", minus.dimension_count = 2, minus.shape[1] = -1;
  twin.name = "bias", twin.dtype = "U8", twin.data = &twin;
  using Path = std::string *;
  using Options = mxs_checkpoint_options *;
  const struct {
    mxs_status status;
    std::vector<std::string> said;
    std::function<void(int rank, Saver &saver, Path path, Options options)> change;
  } cases[] = {
      {MXS_HELD, {"rank 1", "unit 2"}, [](int rank, Saver &saver, Path, Options) {
         // By reference and by copy alike: the gather is collective.
         mxs_unit_gather(saver.units[2], nullptr);
         mxs_unit_wait(saver.units[2], nullptr);
         if (rank != 1) mxs_unit_release(saver.units[2], MXS_FREE, nullptr);
       }},
      {MXS_INVALID_ARGUMENT, {"keep", "-1"}, [](int rank, Saver &, Path, Options options) {
         if (rank == 2) options->keep = -1;
       }},
      {MXS_INVALID_ARGUMENT, {"masters"}, [](int, Saver &, Path, Options options) { options->masters = 2; }},
      {MXS_INVALID_ARGUMENT, {"weights_only"}, [](int, Saver &, Path, Options options) { options->weights_only = -1; }},
      {MXS_INVALID_ARGUMENT, {"options.name", "slash"}, [](int, Saver &, Path, Options options) {
         options->name = "a/b";
       }},
      {MXS_INVALID_ARGUMENT, {"options.name", "dot"}, [](int, Saver &, Path, Options options) {
         options->name = "..";
       }},
      {MXS_INVALID_ARGUMENT, {"options.name", "empty"}, [](int, Saver &, Path, Options options) {
         options->name = "";
       }},
      {MXS_INVALID_ARGUMENT, {"path"}, [](int, Saver &, Path path, Options) { path->clear(); }},
      {MXS_INVALID_ARGUMENT, {"options.size"}, [](int rank, Saver &, Path, Options options) {
         if (rank == 0) options->size = 3;
       }},
      {MXS_INVALID_ARGUMENT, {"user_bytes"}, [](int rank, Saver &, Path, Options options) {
         options->user = "x";
         options->user_bytes = rank == 1 ? (uint64_t{1} << 20) + 1 : 1;
       }},
      {MXS_INVALID_ARGUMENT, {"options.user is NULL"}, [](int, Saver &, Path, Options options) {
         options->user_bytes = 1;
       }},
      {MXS_SYSTEM, {"files_from"}, [](int rank, Saver &, Path, Options options) {
         if (rank == 0) options->files_from = "/no/such/folder";
       }},
      {MXS_INVALID_ARGUMENT, {"buffer", "F99"}, [](int, Saver &, Path, Options options) {
         options->extras = &strange;
         options->extra_count = 1;
       }},
      {MXS_INVALID_ARGUMENT, {"\"long\"", "no tensor"}, [](int, Saver &, Path, Options options) {
         options->extras = &long_side;
         options->extra_count = 1;
       }},
      {MXS_INVALID_ARGUMENT, {"\"minus\"", "no tensor"}, [](int, Saver &, Path, Options options) {
         options->extras = &minus;
         options->extra_count = 1;
       }},
      {MXS_INVALID_ARGUMENT, {"step-00000500", "step number is 0"}, [](int, Saver &, Path, Options options) {
         options->name = "step-00000500";
       }},
      {MXS_INVALID_ARGUMENT, {"\"bias\""}, [](int, Saver &, Path, Options options) {
         options->extras = &twin;
         options->extra_count = 1;
       }},
  };
  for (const auto &each : cases) {
    const std::string complaint = all_are_told(3, each.status, each.said, each.change);
    if (!complaint.empty()) return each.said[0] + ": " + complaint;
  }
  return "";
}

std::string units_that_are_not_all_of_one_plan_are_refused_inner() {
  TemporaryFolder root;
  return run_world(2, [&](int rank, mxs_comm *comm) -> std::string {
    Saver saver;
    Units others;
    std::string wrong = saver.make_all(comm);
    if (wrong.empty()) wrong = others.make(comm, plain_model(1));
    if (!wrong.empty()) return wrong;
    const std::string path = root.path() + "/none";
    const auto save = [&](std::vector<mxs_unit *> units, mxs_optimizer *optimizer) {
      return mxs_checkpoint_save(path.c_str(), units.data(), units.size(), optimizer, nullptr);
    };
    std::vector<mxs_unit *> units = saver.units;
    units.erase(units.begin() + 1);
    wrong = expect(save(units, nullptr), MXS_INVALID_ARGUMENT, {"unit 1", "is missing"});
    units = saver.units;
    units.erase(units.begin() + 3);  // it has no tensors
    if (wrong.empty()) wrong = expect(save(units, saver.optimizer), MXS_INVALID_ARGUMENT, {"unit 3", "optimizer"});
    units = saver.units;
    units.push_back(units[0]);
    if (wrong.empty()) wrong = expect(save(units, saver.optimizer), MXS_INVALID_ARGUMENT, {"unit 0 is given twice"});
    units = saver.units;
    units.push_back(others.units[0]);
    if (wrong.empty()) wrong = expect(save(units, saver.optimizer), MXS_NOT_BUILT, {"plans"});
    if (wrong.empty()) wrong = expect(save(others.units, saver.optimizer), MXS_INVALID_ARGUMENT, {"optimizer"});
    units = saver.units;
    if (rank == 1) units[1] = nullptr;
    if (wrong.empty()) wrong = expect(save(units, saver.optimizer), MXS_INVALID_ARGUMENT, {"units[1] is NULL"});
    if (wrong.empty()) wrong = expect(save({}, saver.optimizer), MXS_INVALID_ARGUMENT, {"unit_count 0"});
    mxs_comm *copy = nullptr;
    if (wrong.empty()) wrong = want(MXS_OK, mxs_comm_split(&copy, comm, 0, rank, nullptr), "the split");
    if (wrong.empty()) {
      Units elsewhere;
      wrong = elsewhere.make(copy, every_rule());
      units = saver.units;
      units[0] = elsewhere.units[0];
      if (wrong.empty()) wrong = expect(save(units, nullptr), MXS_NOT_BUILT, {"comms"});
    }
    mxs_comm_destroy(&copy);
    return wrong.empty() && rank == 0 && !names_in(root.path()).empty() ? "there are " + names_in(root.path()) : wrong;
  });
}

std::string names_that_collide_are_refused_inner() {
  TemporaryFolder root;
  return run_world(2, [&](int, mxs_comm *comm) -> std::string {
    Model model;
    model.add("w", 0, {32, 32}, MXS_BF16);
    model.add("w.master", 0, {8});
    model.finish();
    Saver saver;
    const std::string wrong = saver.make_all(comm, model);
    if (!wrong.empty()) return wrong;
    return expect(saver.save(root.path()), MXS_INVALID_ARGUMENT, {"\"w.master\"", "another name"});
  });
}

std::string handles_that_are_null_are_refused_inner() {
  mxs_save *none = nullptr;
  mxs_save_info info = MXS_SAVE_INFO_INIT;
  std::string wrong = expect(mxs_save_query(nullptr, &info), MXS_INVALID_ARGUMENT, {"save is NULL"});
  if (wrong.empty()) wrong = expect(mxs_save_wait(nullptr, 0), MXS_INVALID_ARGUMENT);
  if (wrong.empty()) wrong = expect(mxs_save_cancel(nullptr), MXS_INVALID_ARGUMENT);
  if (wrong.empty()) wrong = expect(mxs_save_destroy(nullptr), MXS_OK);
  if (wrong.empty()) wrong = expect(mxs_save_destroy(&none), MXS_OK);
  if (wrong.empty()) wrong = expect(mxs_checkpoint_save("x", nullptr, 0, nullptr, nullptr), MXS_INVALID_ARGUMENT);
  if (wrong.empty()) wrong = expect(mxs_save_start(&none, "x", nullptr, 1, nullptr, nullptr), MXS_INVALID_ARGUMENT);
  return wrong;
}

// ---- beside training ----

// Weights of version 1 and the state after two steps are saved, while four more steps are done.
std::string train_beside(mxs_comm *comm, const std::string &root) {
  Saver saver;
  std::string wrong = saver.make_all(comm);
  if (wrong.empty()) wrong = saver.train();
  if (wrong.empty()) wrong = want(MXS_OK, saver.save(root + "/alone"), "the save");
  mxs_save *first = nullptr, *second = nullptr;
  if (wrong.empty()) wrong = want(MXS_OK, saver.start(&first, root + "/beside"), "the first save beside training");
  if (wrong.empty()) wrong = saver.train(3, 2);
  if (wrong.empty()) wrong = want(MXS_OK, saver.start(&second, root + "/beside"), "the second save beside training");
  if (wrong.empty()) wrong = saver.train(5, 2);
  for (mxs_save *save : {first, second}) {
    if (!wrong.empty()) return wrong;
    mxs_save_info info = MXS_SAVE_INFO_INIT;
    wrong = want(MXS_OK, mxs_save_wait(save, 0), "the wait");
    if (wrong.empty()) wrong = want(MXS_OK, mxs_save_wait(save, 1), "a second wait");
    if (wrong.empty()) wrong = want(MXS_OK, mxs_save_query(save, &info), "the query");
    if (wrong.empty() && (!info.finished || info.done_bytes != info.total_bytes))
      wrong = words("finished is %d, after %llu of %llu bytes", info.finished,
                    static_cast<unsigned long long>(info.done_bytes),
                    static_cast<unsigned long long>(info.total_bytes));
    const uint64_t owned = saver.owned_bytes();
    if (wrong.empty() && (info.snapshot_bytes < owned || info.snapshot_bytes > owned + (2u << 20)))
      wrong = words("the copy has %llu bytes of %llu owned", static_cast<unsigned long long>(info.snapshot_bytes),
                    static_cast<unsigned long long>(owned));
    const std::string path = root + (save == first ? "/beside/step-00000002" : "/beside/step-00000004");
    if (wrong.empty() && info.path != path) wrong = std::string("the path is ") + info.path;
  }
  if (wrong.empty()) wrong = want(MXS_OK, mxs_save_destroy(&first), "the first one's end");
  if (wrong.empty()) wrong = want(MXS_OK, mxs_save_destroy(&second), "the second one's end");
  if (wrong.empty() && (first || second)) wrong = "a handle stays";
  // What was saved alone and what was saved beside are one.
  Arrays alone, beside;
  if (wrong.empty()) wrong = alone.load(root + "/alone/step-00000002");
  if (wrong.empty()) wrong = beside.load(root + "/beside/step-00000002");
  for (const auto &[name, array] : alone.by_name)
    if (wrong.empty() && beside.by_name[name].bytes != array.bytes) wrong = name + " is not of the moment of the start";
  return wrong;
}

std::string a_save_beside_training_is_of_its_beginning_inner() {
  for (const int rank_count : world_sizes) {
    TemporaryFolder root;
    const std::string complaint =
        run_world(rank_count, [&](int, mxs_comm *comm) { return train_beside(comm, root.path()); });
    if (!complaint.empty()) return words("%d ranks: ", rank_count) + complaint;
  }
  TemporaryFolder root;
  return run_processes(3, [&](int, mxs_comm *comm) { return train_beside(comm, root.path()); });
}

std::string units_and_comm_may_go_while_a_save_runs_inner() {
  TemporaryFolder root;
  std::vector<mxs_save *> saves(3);
  const std::string complaint = run_world(3, [&](int rank, mxs_comm *comm) -> std::string {
    std::string wrong;
    {
      Saver saver;
      wrong = saver.make_all(comm);
      if (wrong.empty()) wrong = saver.train();
      mxs_save *&save = saves[static_cast<size_t>(rank)];
      if (wrong.empty()) wrong = want(MXS_OK, saver.start(&save, root.path()), "the start");
      // Over or not: it never is half of either.
      if (wrong.empty() && save) {
        const mxs_status status = mxs_save_destroy(&save);
        if (status != MXS_OK) wrong = expect(status, MXS_HELD, {"mxs_save_wait"});
      }
    }
    return wrong;
  });
  if (!complaint.empty()) return complaint;
  for (mxs_save *&save : saves) {
    if (!save) continue;
    if (mxs_save_wait(save, 0) != MXS_OK) return error_of("the wait");
    if (mxs_save_destroy(&save) != MXS_OK) return error_of("the end");
  }
  Manifest manifest;
  return check_manifest_of(root.path() + "/step-00000002", &manifest);
}

std::string progress_is_for_saves_that_are_waited_for_inner() {
  TemporaryFolder root;
  return run_world(2, [&](int, mxs_comm *comm) -> std::string {
    Saver saver;
    std::string wrong = saver.make_all(comm);
    struct Told {
      uint64_t done = 0, total = 0;
      int calls = 0;
    } told;
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    options.progress_context = &told;
    options.progress = [](void *context, uint64_t done, uint64_t total) {
      auto *const all = static_cast<Told *>(context);
      if (done < all->done || done > total) return 1;
      *all = {done, total, all->calls + 1};
      return 0;
    };
    if (wrong.empty()) wrong = want(MXS_OK, saver.save(root.path(), &options), "the save");
    if (wrong.empty() && (told.calls == 0 || told.done != told.total || told.total < saver.owned_bytes()))
      wrong = words("told %d times, last of %llu of %llu", told.calls, static_cast<unsigned long long>(told.done),
                    static_cast<unsigned long long>(told.total));
    mxs_save *save = nullptr;
    if (wrong.empty()) wrong = expect(saver.start(&save, root.path(), &options), MXS_INVALID_ARGUMENT, {"progress"});
    return wrong;
  });
}

std::string no_memory_for_the_copy_is_told_to_all_inner() {
  TemporaryFolder root;
  const std::string complaint = run_processes(3, [&](int rank, mxs_comm *comm) -> std::string {
    Model model;
    for (int index = 0; index < 6; index++)
      model.add(words("w%d", index).c_str(), 0, {1024, 1024}).rule = MXS_RULE_EXTERNAL;
    model.finish();
    Saver saver;
    std::string wrong = saver.make_all(comm, model);
    if (!wrong.empty()) return wrong;
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    if (rank == 1) {  // it owns 8 MiB
      uint64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlimit limit = {pages * 4096 + (4u << 20), before.rlim_max};
      setrlimit(RLIMIT_AS, &limit);
    }
    mxs_save *save = nullptr;
    wrong = expect(saver.start(&save, root.path() + "/none"), MXS_OUT_OF_MEMORY, {"rank 1", "copy"});
    setrlimit(RLIMIT_AS, &before);
    if (wrong.empty() && rank == 0 && !names_in(root.path() + "/none").empty()) wrong = "something is left";
    return wrong.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK ? error_of("barrier") : wrong;
  });
  return complaint;
}

void files_have_everything_in_every_world(void **) { assert_true(good(files_have_everything_in_every_world_inner())); }
// A path that is relative is made absolute, which one rank can't: the others are told, and don't wait for it.
std::string a_rank_whose_folder_is_gone_is_told_to_all_inner() {
  TemporaryFolder root;
  const std::string gone = root / "gone";
  const std::string complaint = run_processes(2, [&](int rank, mxs_comm *comm) -> std::string {
    Saver saver;
    const std::string wrong = saver.make_all(comm);
    if (!wrong.empty()) return wrong;
    if (rank == 1) std::filesystem::create_directory(gone);
    std::filesystem::current_path(rank == 1 ? gone : root.path());
    if (rank == 1) std::filesystem::remove(gone);
    return expect(saver.save("checkpoints"), MXS_SYSTEM, {"rank 1", "process is in"});
  });
  if (!complaint.empty()) return complaint;
  return names_in(root / "checkpoints").empty() ? "" : "there are " + names_in(root / "checkpoints");
}

void a_rank_whose_folder_is_gone_is_told_to_all(void **) {
  assert_true(good(a_rank_whose_folder_is_gone_is_told_to_all_inner()));
}
void processes_write_what_threads_write(void **) { assert_true(good(processes_write_what_threads_write_inner())); }
void the_manifest_tells_what_was_saved(void **) { assert_true(good(the_manifest_tells_what_was_saved_inner())); }
void weights_alone_have_no_state(void **) { assert_true(good(weights_alone_have_no_state_inner())); }
void extras_and_companions_come_along(void **) { assert_true(good(extras_and_companions_come_along_inner())); }
void the_newest_are_kept_and_the_same_is_replaced(void **) {
  assert_true(good(the_newest_are_kept_and_the_same_is_replaced_inner()));
}
void ranks_that_differ_are_named(void **) { assert_true(good(ranks_that_differ_are_named_inner())); }
void calls_that_differ_are_told(void **) { assert_true(good(calls_that_differ_are_told_inner())); }
void what_one_rank_gets_wrong_is_refused_on_all(void **) {
  assert_true(good(what_one_rank_gets_wrong_is_refused_on_all_inner()));
}
void units_that_are_not_all_of_one_plan_are_refused(void **) {
  assert_true(good(units_that_are_not_all_of_one_plan_are_refused_inner()));
}
void names_that_collide_are_refused(void **) { assert_true(good(names_that_collide_are_refused_inner())); }
void handles_that_are_null_are_refused(void **) { assert_true(good(handles_that_are_null_are_refused_inner())); }
void a_save_beside_training_is_of_its_beginning(void **) {
  assert_true(good(a_save_beside_training_is_of_its_beginning_inner()));
}
void units_and_comm_may_go_while_a_save_runs(void **) {
  assert_true(good(units_and_comm_may_go_while_a_save_runs_inner()));
}
void progress_is_for_saves_that_are_waited_for(void **) {
  assert_true(good(progress_is_for_saves_that_are_waited_for_inner()));
}
void no_memory_for_the_copy_is_told_to_all(void **) {
  if (under_tool()) return not_run("a sanitizer or valgrind has no addresses left, either");
  assert_true(good(no_memory_for_the_copy_is_told_to_all_inner()));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(files_have_everything_in_every_world),
      cmocka_unit_test(processes_write_what_threads_write),
      cmocka_unit_test(a_rank_whose_folder_is_gone_is_told_to_all),
      cmocka_unit_test(the_manifest_tells_what_was_saved),
      cmocka_unit_test(weights_alone_have_no_state),
      cmocka_unit_test(extras_and_companions_come_along),
      cmocka_unit_test(the_newest_are_kept_and_the_same_is_replaced),
      cmocka_unit_test(ranks_that_differ_are_named),
      cmocka_unit_test(calls_that_differ_are_told),
      cmocka_unit_test(what_one_rank_gets_wrong_is_refused_on_all),
      cmocka_unit_test(units_that_are_not_all_of_one_plan_are_refused),
      cmocka_unit_test(names_that_collide_are_refused),
      cmocka_unit_test(handles_that_are_null_are_refused),
      cmocka_unit_test(a_save_beside_training_is_of_its_beginning),
      cmocka_unit_test(units_and_comm_may_go_while_a_save_runs),
      cmocka_unit_test(progress_is_for_saves_that_are_waited_for),
      cmocka_unit_test(no_memory_for_the_copy_is_told_to_all),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
