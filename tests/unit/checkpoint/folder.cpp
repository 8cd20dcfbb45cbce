// SPDX-License-Identifier: Apache-2.0
// Folders of checkpoints: they come whole, go whole, and whatever is killed when, what was there can be found.
#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/status.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/folder_tools.hpp"
#include "support/complaints.hpp"
#include "unit/checkpoint/faults.hpp"
#include "support/temporary_folder.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::content_of;
using mxs::test::expect;
using mxs::test::faults;
using mxs::test::good;
using mxs::test::put_content;
using mxs::test::TemporaryFolder;
using mxs::test::words;

namespace {

// What a file system can; all tests that care run on each.
enum class Abilities { all, no_flags, no_flags_no_folder_locks };
constexpr Abilities all_abilities[] = {Abilities::all, Abilities::no_flags, Abilities::no_flags_no_folder_locks};

void set_abilities(Abilities abilities) {
  faults.renames_have_flags = abilities == Abilities::all;
  faults.folders_have_locks = abilities != Abilities::no_flags_no_folder_locks;
}

template <class Body>
std::string on_each_file_system(Body &&body) {
  std::string complaint;
  for (const Abilities abilities : all_abilities) {
    set_abilities(abilities);
    if (!complaint.empty()) break;
    complaint = body();
    if (!complaint.empty()) complaint += words(" (file system %d)", static_cast<int>(abilities));
  }
  set_abilities(Abilities::all);
  return complaint;
}

std::vector<std::string> entries_of(const std::string &path) {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(path)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

bool has_entries(const std::string &path, const std::vector<std::string> &wanted) {
  const std::vector<std::string> got = entries_of(path);
  if (got == wanted) return true;
  for (const std::string &name : got) print_error("%s has %s\n", path.c_str(), name.c_str());
  return false;
}

// A checkpoint of which each file has its generation's text.
constexpr const char *files_of_one[] = {"model-00001-of-00001.safetensors", "optimizer/shared.safetensors",
                                        "matrixshard.json"};

mxs_status fill(const std::string &path, const std::string &generation) {
  for (const char *file : files_of_one) {
    const mxs_status status = write_synced(path + "/" + file, generation);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

void make_whole(const std::string &path, const std::string &generation) {
  std::filesystem::create_directories(path + "/optimizer");
  for (const char *file : files_of_one) put_content(path + "/" + file, generation);
}

// "": it is not whole.
std::string generation_of(const std::string &path) {
  const std::string generation = content_of(path + "/" + files_of_one[0]);
  for (const char *file : files_of_one)
    if (content_of(path + "/" + file) != generation) return "";
  return generation;
}

mxs_status save(const std::string &root, const std::string &name, const std::string &generation) {
  PartialFolder partial;
  mxs_status status = partial.begin(root, name);
  if (status == MXS_OK) status = fill(partial.path(), generation);
  return status == MXS_OK ? partial.commit() : status;
}

void names_of_steps_are_read_and_written(void **) {
  uint64_t number = 7;
  assert_string_equal(step_folder_name(500).c_str(), "step-00000500");
  assert_string_equal(step_folder_name(UINT64_MAX).c_str(), "step-18446744073709551615");
  for (const uint64_t wanted : {uint64_t{0}, uint64_t{99'999'999}, uint64_t{100'000'000}, UINT64_MAX}) {
    assert_true(step_of_folder_name(step_folder_name(wanted), &number));
    assert_true(number == wanted);
  }
  number = 7;
  for (const char *name : {"", "step-", "step-500", "step-000000500", "step-0000050x", "Step-00000500",
                           ".step-00000500", "step-00000500 ", "step-18446744073709551616", "step--0000500",
                           "step-99999999999999999999999999"})
    assert_false(step_of_folder_name(name, &number));
  assert_true(number == 7);
}

std::string a_save_comes_whole() {
  const TemporaryFolder folder;
  for (const char *root : {"/plain", "/a/b//c///", "/plain/"}) {
    const std::string path = folder / root;
    PartialFolder partial;
    if (partial.begin(path, "step-00000001") != MXS_OK) return last_error_text();
    const bool hidden = partial.path().find("/.step-00000001.partial-") != std::string::npos;
    if (!hidden || newest_checkpoint(path) == partial.final_path()) return "it is there too early";
    if (fill(partial.path(), "one") != MXS_OK || partial.commit() != MXS_OK) return last_error_text();
    if (generation_of(partial.final_path()) != "one") return "it isn't whole";
    partial.remove();  // has no say any more
    if (newest_checkpoint(path + "//") != partial.final_path()) return "another is the newest";
    if (!has_entries(path, {"step-00000001"})) return "something else is there";
    std::filesystem::remove_all(partial.final_path());
  }
  return "";
}

void a_checkpoint_comes_whole(void **) { assert_true(good(on_each_file_system(a_save_comes_whole))); }

std::string relative_paths_work() {
  const TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  std::string complaint;
  for (const char *root : {"checkpoints", "./x/../x/y", "."})
    if (complaint.empty() && save(root, "mine", "one") != MXS_OK) complaint = last_error_text();
  std::filesystem::current_path(before);
  for (const char *path : {"checkpoints/mine", "x/y/mine", "mine"})
    if (complaint.empty() && generation_of(folder / path) != "one") complaint = path;
  return complaint;
}

void paths_may_be_relative(void **) { assert_true(good(on_each_file_system(relative_paths_work))); }

std::string what_is_left_goes() {
  const TemporaryFolder folder;
  {
    PartialFolder partial;
    if (partial.begin(folder.path(), "step-00000001") != MXS_OK) return last_error_text();
    if (fill(partial.path(), "one") != MXS_OK) return last_error_text();
    std::filesystem::create_symlink("/", partial.path() + "/link");
  }
  return has_entries(folder.path(), {}) ? "" : "the partial folder stayed";
}

void without_commit_nothing_stays(void **) { assert_true(good(on_each_file_system(what_is_left_goes))); }

std::string an_old_one_is_replaced() {
  const TemporaryFolder folder;
  for (const char *generation : {"one", "two", "three"}) {
    if (save(folder.path(), "step-00000001", generation) != MXS_OK) return last_error_text();
    if (generation_of(folder / "step-00000001") != generation) return std::string(generation) + " isn't there";
    if (!has_entries(folder.path(), {"step-00000001"})) return "something else is there";
  }
  return "";
}

void an_old_one_of_that_name_is_replaced(void **) { assert_true(good(on_each_file_system(an_old_one_is_replaced))); }

// Folders of people who call theirs as a checkpoint is to be called.
std::string strangers_stay() {
  const TemporaryFolder folder;
  const auto is_refused = [&](const std::string &name) {
    const std::string complaint =
        expect(save(folder.path(), name, "new"), MXS_SYSTEM, {name, "in the way", "no matrixshard.json", "photo"});
    return complaint.empty() && content_of(folder / (name + "/photo")) != "dear" ? "it is gone" : complaint;
  };
  for (const char *name : {"data", "step-00000002"}) {
    std::filesystem::create_directory(folder / name);
    put_content(folder / (std::string(name) + "/photo"), "dear");
    const std::string complaint = is_refused(name);
    if (!complaint.empty()) return complaint;
  }
  std::filesystem::create_directory(folder / "empty");
  if (save(folder.path(), "empty", "new") != MXS_OK) return last_error_text();
  if (!has_entries(folder.path(), {"data", "empty", "step-00000002"})) return "something is left";
  // One that comes while the save writes.
  PartialFolder partial;
  if (partial.begin(folder.path(), "late") != MXS_OK || fill(partial.path(), "new") != MXS_OK) return last_error_text();
  std::filesystem::create_directory(folder / "late");
  put_content(folder / "late/photo", "dear");
  std::string complaint = expect(partial.commit(), MXS_SYSTEM, {"late", "in the way"});
  if (!complaint.empty() || content_of(folder / "late/photo") != "dear") return "late: " + complaint;
  partial.remove();
  if (!has_entries(folder.path(), {"data", "empty", "late", "step-00000002"})) return "something is left of late";
  make_whole(folder / "step-00000001", "old");
  make_whole(folder / "step-00000003", "old");
  keep_newest(folder.path(), 1, "step-00000003");
  return has_entries(folder.path(), {"data", "empty", "late", "step-00000002", "step-00000003"}) ? "" : "keep";
}

void folders_that_are_no_checkpoints_are_never_deleted(void **) {
  assert_true(good(on_each_file_system(strangers_stay)));
}

std::string bad_paths_are_refused() {
  const TemporaryFolder folder;
  put_content(folder / "file", "text");
  put_content(folder / "step-00000001", "text");
  const struct {
    std::string root, name;
    mxs_status status;
    const char *word;
  } cases[] = {
      {folder.path(), "", MXS_INVALID_ARGUMENT, "empty"},
      {folder.path(), ".", MXS_INVALID_ARGUMENT, "dot"},
      {folder.path(), "..", MXS_INVALID_ARGUMENT, "dot"},
      {folder.path(), ".hidden", MXS_INVALID_ARGUMENT, "dot"},
      {folder.path(), "a/b", MXS_INVALID_ARGUMENT, "slash"},
      {folder.path(), "/", MXS_INVALID_ARGUMENT, "slash"},
      {folder.path(), std::string("a\0b", 3), MXS_INVALID_ARGUMENT, "zero byte"},
      {folder.path(), std::string(201, 'x'), MXS_INVALID_ARGUMENT, "200"},
      {"", "step-00000002", MXS_INVALID_ARGUMENT, "empty"},
      {folder / "file", "step-00000002", MXS_SYSTEM, "file"},
      {folder / "file/below", "step-00000002", MXS_SYSTEM, "file"},
      {folder.path(), "step-00000001", MXS_SYSTEM, "in the way"},
      {"/proc/none/here", "step-00000002", MXS_SYSTEM, "/proc/none"},
      {folder / std::string(300, 'x'), "step-00000002", MXS_SYSTEM, "can't make the folder"},
  };
  for (const auto &each : cases) {
    PartialFolder partial;
    const std::string complaint = expect(partial.begin(each.root, each.name), each.status, {each.word});
    if (!complaint.empty()) return each.root + " " + each.name + ": " + complaint;
  }
  return has_entries(folder.path(), {"file", "step-00000001"}) ? "" : "something is left";
}

void bad_names_and_paths_are_refused(void **) { assert_true(good(bad_paths_are_refused())); }

// ---- sweeping ----

std::string others_are_told_apart() {
  const TemporaryFolder folder;
  const std::string digits = "0123456789abcdef";
  PartialFolder live;
  if (live.begin(folder.path(), "step-00000009") != MXS_OK || fill(live.path(), "live") != MXS_OK)
    return last_error_text();
  make_whole(folder / "step-00000003", "three");
  make_whole(folder / (".step-00000001.partial-" + digits), "killed");
  make_whole(folder / (".step-00000002.gone-" + digits), "gone");
  make_whole(folder / (".step-00000003.old-" + digits), "replaced");
  make_whole(folder / (".step-00000004.old-" + digits), "four");
  // Not ours.
  make_whole(folder / ".step-00000005.partial-0123456789abcdeg", "no number");
  make_whole(folder / ".cache", "a stranger's");
  put_content(folder / (".step-00000006.partial-" + digits), "a file");
  std::filesystem::create_symlink("/", folder / (".step-00000007.gone-" + digits));
  if (save(folder.path(), "step-00000008", "eight") != MXS_OK) return last_error_text();
  if (live.commit() != MXS_OK) return last_error_text();
  if (!has_entries(folder.path(), {".cache", ".step-00000005.partial-0123456789abcdeg",
                                   ".step-00000006.partial-" + digits, ".step-00000007.gone-" + digits,
                                   "step-00000003", "step-00000004", "step-00000008", "step-00000009"}))
    return "wrong ones";
  for (const auto &[number, generation] : {std::pair{3, "three"}, {4, "four"}, {8, "eight"}, {9, "live"}})
    if (generation_of(folder / step_folder_name(static_cast<uint64_t>(number))) != generation) return generation;
  return "";
}

void leftovers_are_swept_and_live_ones_are_not(void **) {
  assert_true(good(on_each_file_system(others_are_told_apart)));
}

std::string nothing_is_swept_without_locks() {
  const TemporaryFolder folder;
  int warnings = 0;
  set_log([](void *context, int32_t, const char *) { ++*static_cast<int *>(context); }, &warnings, MXS_LOG_WARNING);
  faults.folders_have_locks = faults.files_have_locks = false;
  std::string complaint;
  {
    PartialFolder live;
    if (live.begin(folder.path(), "step-00000001") != MXS_OK || fill(live.path(), "live") != MXS_OK ||
        save(folder.path(), "step-00000002", "two") != MXS_OK || live.commit() != MXS_OK)
      complaint = last_error_text();
  }
  faults.folders_have_locks = faults.files_have_locks = true;
  set_log(nullptr, nullptr, 0);
  if (complaint.empty() && warnings != 2) complaint = words("%d warnings", warnings);
  return complaint.empty() && !has_entries(folder.path(), {"step-00000001", "step-00000002"}) ? "left" : complaint;
}

void without_locks_nothing_that_lives_is_swept(void **) { assert_true(good(nothing_is_swept_without_locks())); }

std::string newest_of_many() {
  const TemporaryFolder folder;
  if (!newest_checkpoint(folder.path()).empty() || !newest_checkpoint(folder / "none").empty()) return "of nothing";
  for (const uint64_t step : {9, 10, 100'000'000, 99'999'999}) make_whole(folder / step_folder_name(step), "x");
  make_whole(folder / "step-200000000x", "x");
  put_content(folder / "step-300000000", "a file");
  if (newest_checkpoint(folder.path() + "/") != folder / "step-100000000") return "not the newest";
  std::filesystem::create_directory_symlink("step-00000009", folder / "step-400000000");
  if (newest_checkpoint(folder.path()) != folder / "step-400000000") return "a link isn't followed";
  make_whole(folder / ".step-500000000.old-0123456789abcdef", "x");
  if (newest_checkpoint(folder.path()) != folder / "step-500000000") return "not put back";
  return "";
}

void the_newest_is_that_with_the_highest_number(void **) { assert_true(good(on_each_file_system(newest_of_many))); }

std::string newest_of_a_read_only_folder() {
  const TemporaryFolder folder;
  make_whole(folder / "step-00000001", "one");
  make_whole(folder / ".step-00000002.old-0123456789abcdef", "two");
  if (!mxs::test::mount_read_only(folder.path())) return "can't mount";
  const std::string newest = newest_checkpoint(folder.path());
  PartialFolder partial;
  std::string complaint = expect(partial.begin(folder.path(), "step-00000003"), MXS_SYSTEM, {std::strerror(EROFS)});
  if (generation_of(newest) != "two") complaint += "the old one isn't found: " + newest;
  keep_newest(folder.path(), 1, "step-00000003");
  umount2(folder.path().c_str(), MNT_DETACH);
  return complaint.empty() && generation_of(folder / "step-00000001") != "one" ? "something is lost" : complaint;
}

void a_read_only_folder_is_read_and_refused(void **) {
  assert_true(good(mxs::test::with_own_mounts(newest_of_a_read_only_folder)));
}

std::string the_newest_stay() {
  const TemporaryFolder folder;
  const auto fill_all = [&] {
    for (const uint64_t step : {1, 2, 3, 10}) make_whole(folder / step_folder_name(step), "x");
  };
  make_whole(folder / "step-4", "not ours");
  make_whole(folder / "mine", "not ours");
  std::filesystem::create_directory_symlink("mine", folder / "step-00000005");
  fill_all();
  keep_newest(folder.path(), 0, "step-00000010");
  keep_newest(folder.path(), 4, "step-00000010");
  keep_newest(folder / "none", 1, "x");
  if (!has_entries(folder.path(), {"mine", "step-00000001", "step-00000002", "step-00000003", "step-00000005",
                                   "step-00000010", "step-4"}))
    return "too many are deleted";
  keep_newest(folder.path() + "/", 2, folder / "step-00000001/");
  if (!has_entries(folder.path(), {"mine", "step-00000001", "step-00000003", "step-00000005", "step-00000010",
                                   "step-4"}))
    return "of four";
  keep_newest(folder.path(), 1, "mine");
  return has_entries(folder.path(), {"mine", "step-00000005", "step-00000010", "step-4"}) ? "" : "of three";
}

void all_but_the_newest_are_deleted(void **) { assert_true(good(on_each_file_system(the_newest_stay))); }

// ---- kill -9 ----

// step-3 is replaced and step-1 has no place any more, or step-4 is new and step-2 has none either.
void save_and_forget(const std::string &root, const std::string &name) {
  if (save(root, name, "new") == MXS_OK) keep_newest(root, 2, name);
}

// How many calls it made; 0: it was killed.
long killed_at(long call, const std::string &root, const std::string &name) {
  const pid_t child = fork();
  if (child == 0) {
    faults.calls = 0;
    faults.kill_at = call;
    save_and_forget(root, name);
    _exit(faults.calls > 250 ? 250 : static_cast<int>(faults.calls));
  }
  int result = 0;
  waitpid(child, &result, 0);
  return WIFEXITED(result) ? WEXITSTATUS(result) : 0;
}

std::string check_what_is_found(const std::string &root, const std::string &name) {
  const std::string newest = newest_checkpoint(root);
  const std::string wanted_old = name == "step-00000003" ? "old" : "";
  if (newest != root + "/step-00000003" && newest != root + "/" + name) return "the newest is " + newest;
  const std::string generation = generation_of(newest);
  if (generation.empty() || (newest == root + "/" + name && generation != "new" && generation != wanted_old))
    return newest + " isn't whole";
  // The next save clears up.
  if (save(root, "other", "other") != MXS_OK) return last_error_text();
  for (const std::string &entry : entries_of(root)) {
    if (entry[0] == '.') return entry + " is left";
    if (generation_of(root + "/" + entry).empty()) return entry + " isn't whole";
  }
  return newest_checkpoint(root) == newest ? "" : "another is the newest then";
}

std::string killed_anywhere() {
  for (const char *name : {"step-00000003", "step-00000004"}) {
    long calls = 0;
    for (long call = 0; calls == 0; ++call) {
      const TemporaryFolder folder;
      for (const uint64_t step : {1, 2, 3}) make_whole(folder / step_folder_name(step), "old");
      make_whole(folder / ".step-00000003.partial-0123456789abcdef", "killed before");
      calls = killed_at(call, folder.path(), name);
      const std::string complaint = check_what_is_found(folder.path(), name);
      if (!complaint.empty()) return words("%s, killed at call %ld: ", name, call) + complaint;
      if (calls > 0 && call < 30) return words("only %ld calls were counted", call);
    }
  }
  return "";
}

void killed_at_any_call_the_last_whole_one_is_found(void **) {
  assert_true(good(on_each_file_system(killed_anywhere)));
}

// A sweep meets a folder that has just been made, whose maker comes to lock it at any call of the sweep: who has the
// lock has the folder.
std::string who_locks_has_it() {
  int tries = 0, got = 0;
  for (long at = 0; tries == at; ++at) {
    const TemporaryFolder folder;
    const std::string made = folder / ".step-00000001.partial-0123456789abcdef";
    std::filesystem::create_directory(made);
    Descriptor lock;
    Lock locked = Lock::missing;
    long call = 0;
    faults.before_call = [&] {
      if (call++ != at) return;
      ++tries;
      locked = lock_folder(made, true, &lock);
    };
    sweep(folder.path());
    faults.before_call = nullptr;
    got += locked == Lock::taken;
    const bool stays = is_there(made);
    unlock(&lock);
    if (stays != (locked == Lock::taken)) return words("call %ld: %s", at, stays ? "nobody's" : "locked, and gone");
    if (locked == Lock::none) return words("call %ld: taken for a file system without locks", at);
  }
  return got > 0 && tries >= 4 ? "" : words("%d of %d tries got the lock", got, tries);
}

void a_sweep_leaves_what_its_maker_has_locked(void **) { assert_true(good(on_each_file_system(who_locks_has_it))); }

// The same of one that is being moved aside and deleted: it has no lock to be had any more, and has had one.
std::string the_deleted_is_missing() {
  for (long at = 0, struck = 1; struck != 0; ++at) {
    const TemporaryFolder folder;
    make_whole(folder / "step-00000001", "old");
    long call = 0;
    struck = 0;
    faults.before_call = [&] {
      if (call++ != at) return;
      struck = 1;
      discard(folder.path(), "step-00000001");
    };
    Descriptor lock;
    const Lock locked = lock_folder(folder / "step-00000001", false, &lock);
    faults.before_call = nullptr;
    unlock(&lock);
    if (locked != (struck ? Lock::missing : Lock::taken)) return words("call %ld: %d", at, static_cast<int>(locked));
    if (!struck && at == 0) return "nothing was tried";
  }
  return "";
}

void what_is_deleted_before_it_is_locked_is_missing(void **) {
  assert_true(good(on_each_file_system(the_deleted_is_missing)));
}

// Others move it aside and back, at each look or at some: it is one checkpoint all the time, and the newest.
std::string looks_find_what_moves() {
  for (unsigned pattern = 0; pattern < 256; ++pattern) {
    const TemporaryFolder folder;
    const std::string place = folder / "step-00000002", aside = folder / ".step-00000002.old-0123456789abcdef";
    make_whole(folder / "step-00000001", "one");
    make_whole(place, "two");
    std::filesystem::create_directory(folder / ".step-00000002.partial-0123456789abcdef");
    unsigned look = 0;
    faults.before_look = [&] {
      if (look++ < 8 && pattern >> (look - 1) & 1 && rename(place.c_str(), aside.c_str()) != 0)
        rename(aside.c_str(), place.c_str());
    };
    const std::string newest = newest_checkpoint(folder.path());
    faults.before_look = nullptr;
    if (newest != place) return words("moves %x: ", pattern) + (newest.empty() ? "nothing" : newest);
  }
  return "";
}

void a_look_finds_what_is_being_moved(void **) { assert_true(good(looks_find_what_moves())); }

// Saves of one name beside each other, loads beside them.
std::string many_at_a_time() {
  const TemporaryFolder folder;
  make_whole(folder / "step-00000001", "first");
  std::atomic<int> saving{3}, missed{0}, failed{0};
  std::string first_cause;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread)
    threads.emplace_back([&, thread] {
      for (int turn = 0; turn < 12; ++turn)
        if (save(folder.path(), "step-00000001", "from " + std::to_string(thread)) != MXS_OK && failed++ == 0)
          first_cause = last_error_text();
      --saving;
    });
  while (saving > 0) missed += newest_checkpoint(folder.path()).empty();
  for (std::thread &thread : threads) thread.join();
  if (failed > 0 || missed > 0)
    return words("%d saves failed, %d looks missed it; ", failed.load(), missed.load()) + first_cause;
  if (generation_of(folder / "step-00000001").empty()) return "it isn't whole";
  if (save(folder.path(), "other", "other") != MXS_OK) return last_error_text();
  return has_entries(folder.path(), {"other", "step-00000001"}) ? "" : "something is left";
}

void saves_of_one_name_beside_each_other_leave_one_whole(void **) {
  assert_true(good(on_each_file_system(many_at_a_time)));
}

// ---- failures ----

// Each fsync of a save fails in turn; then all is as before.
std::string syncs_fail() {
  for (long at = 0;; ++at) {
    const TemporaryFolder folder;
    make_whole(folder / "step-00000001", "old");
    faults.fsync_error = EIO;
    faults.fsync_fails_at = at;
    const mxs_status status = save(folder.path(), "step-00000001", "new");
    const bool struck = faults.fsync_fails_at < 0;
    faults.fsync_fails_at = -1;
    if (!struck) return status == MXS_OK && at >= 6 ? "" : words("%ld syncs, %s", at, mxs_status_name(status));
    const std::string generation = generation_of(folder / "step-00000001");
    if (status == MXS_OK && generation == "new") continue;  // what is left of the old one couldn't be removed
    const std::string complaint = expect(status, MXS_SYSTEM, {folder.path(), std::strerror(EIO)});
    if (!complaint.empty()) return words("sync %ld: ", at) + complaint;
    if (generation != "old" || !has_entries(folder.path(), {"step-00000001"})) return words("sync %ld: not undone", at);
  }
}

void a_sync_that_fails_leaves_all_as_before(void **) { assert_true(good(on_each_file_system(syncs_fail))); }

std::string small_files_are_written() {
  const TemporaryFolder folder;
  for (const std::string &text : {std::string(3'000'000, 'x'), std::string("short"), std::string()})
    if (write_synced(folder / "file", text) != MXS_OK || content_of(folder / "file") != text) return last_error_text();
  return expect(write_synced(folder / "none/file", "x"), MXS_SYSTEM, {"none/file", std::strerror(ENOENT)});
}

void small_files_come_whole(void **) { assert_true(good(small_files_are_written())); }

std::string companions_are_copied() {
  const TemporaryFolder folder;
  const std::string from = folder / "from", to = folder / "to";
  std::filesystem::create_directories(from + "/folder");
  std::filesystem::create_directories(to);
  const std::vector<std::string> copied = {"config.json", "linked.json", "merges.txt", "tokenizer.json"};
  for (const char *name : {"config.json", "merges.txt", "model.safetensors", "model.safetensors.index.json",
                           "pytorch_model.bin", "x.pt", "x.pth", "matrixshard.json", ".gitattributes", "x.gguf",
                           "optimizer"})
    put_content(from + "/" + name, name);
  put_content(from + "/tokenizer.json", std::string(5'000'001, 't'));
  put_content(folder / "blob", "linked.json");
  std::filesystem::create_symlink("../blob", from + "/linked.json");
  std::filesystem::create_symlink("../nothing", from + "/dangling.json");
  std::filesystem::create_symlink("loop.json", from + "/loop.json");
  std::filesystem::create_symlink("folder", from + "/linked_folder");
  if (mkfifo((from + "/pipe").c_str(), 0666) != 0) return "no pipe";
  put_content(from + "/huge.json", "");
  std::filesystem::resize_file(from + "/huge.json", (uint64_t{256} << 20) + 1);
  if (copy_companions(from, to) != MXS_OK) return last_error_text();
  if (!has_entries(to, copied)) return "wrong files";
  for (const std::string &name : copied)
    if (content_of(to + "/" + name) != content_of(from + "/" + name)) return name + " has other bytes";
  if (std::filesystem::is_symlink(to + "/linked.json")) return "a link was copied as one";
  std::string complaint = expect(copy_companions(from, to), MXS_SYSTEM, {"config.json", std::strerror(EEXIST)});
  if (complaint.empty()) complaint = expect(copy_companions(folder / "none", to), MXS_SYSTEM, {"none"});
  if (complaint.empty()) complaint = expect(copy_companions(from + "/config.json", to), MXS_SYSTEM, {"config.json"});
  return complaint.empty() ? expect(copy_companions(from, folder / "none"), MXS_SYSTEM, {"none"}) : complaint;
}

void companions_are_files_that_are_no_weights(void **) { assert_true(good(companions_are_copied())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(names_of_steps_are_read_and_written),
      cmocka_unit_test(a_checkpoint_comes_whole),
      cmocka_unit_test(paths_may_be_relative),
      cmocka_unit_test(without_commit_nothing_stays),
      cmocka_unit_test(an_old_one_of_that_name_is_replaced),
      cmocka_unit_test(folders_that_are_no_checkpoints_are_never_deleted),
      cmocka_unit_test(bad_names_and_paths_are_refused),
      cmocka_unit_test(leftovers_are_swept_and_live_ones_are_not),
      cmocka_unit_test(without_locks_nothing_that_lives_is_swept),
      cmocka_unit_test(the_newest_is_that_with_the_highest_number),
      cmocka_unit_test(a_read_only_folder_is_read_and_refused),
      cmocka_unit_test(all_but_the_newest_are_deleted),
      cmocka_unit_test(killed_at_any_call_the_last_whole_one_is_found),
      cmocka_unit_test(a_sweep_leaves_what_its_maker_has_locked),
      cmocka_unit_test(what_is_deleted_before_it_is_locked_is_missing),
      cmocka_unit_test(a_look_finds_what_is_being_moved),
      cmocka_unit_test(saves_of_one_name_beside_each_other_leave_one_whole),
      cmocka_unit_test(a_sync_that_fails_leaves_all_as_before),
      cmocka_unit_test(small_files_come_whole),
      cmocka_unit_test(companions_are_files_that_are_no_weights),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
