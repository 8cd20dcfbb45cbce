// SPDX-License-Identifier: Apache-2.0
// What isn't at its place: removed, or put back. See folder.hpp.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/folder_tools.hpp"

namespace mxs {

namespace {

constexpr int look_turns = 1000;  // of 10 ms while one is between two renames, who may have no CPU for seconds
constexpr unsigned turn_us = 10'000;

// An old one whose place is empty. Its replacer is dead, or is about to fill the place: then it has the lock.
bool put_back(const std::string &root, const std::string &entry, const std::string &name) {
  if (!rename_to_free_place(root + "/" + entry, root + "/" + name)) return false;
  sync_folder(root);
  log_line(MXS_LOG_WARNING, "%s/%s: put back what a killed save had moved away", root.c_str(), name.c_str());
  return true;
}

void sweep_old(const std::string &root, const std::string &entry, const std::string &name) {
  Descriptor lock;
  const Lock locked = lock_folder(root + "/" + entry, false, &lock);
  if (locked == Lock::busy || locked == Lock::missing) return;
  if (is_there(root + "/" + name)) discard(root, entry);
  else if (!put_back(root, entry, name))
    log_line(MXS_LOG_WARNING, "%s/%s: can't put it back as %s: %s", root.c_str(), entry.c_str(), name.c_str(),
             std::strerror(errno));
  unlock(&lock);
}

struct Newest {
  bool any = false;
  uint64_t step_number = 0;
  std::string entry;

  void offer(uint64_t number, const std::string &name) {
    if (any && number <= step_number) return;
    any = true;
    step_number = number;
    entry = name;
  }
};

struct Look {
  Newest here, aside;   // aside: an old one whose place is empty
  Newest vanished;      // was listed, and wasn't there when it was asked for
  bool moving = false;  // somebody may be renaming
  std::vector<std::string> entries;

  bool is_newer(const Newest &other) const {
    return other.any && (!here.any || other.step_number > here.step_number);
  }
  bool is_settled(const Look &before) const {
    return !is_newer(aside) && !is_newer(vanished) && (!moving || entries == before.entries);
  }
};

enum class Place { folder, other, empty };

// One look tells all: between two of them a folder may have come or gone. Nobody moves links.
Place look_at_place(const std::string &path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) return Place::empty;
  return S_ISDIR(found.st_mode) || (S_ISLNK(found.st_mode) && leads_to_folder(path)) ? Place::folder : Place::other;
}

// A place that is listed may be empty when it is asked for, since the one there has been moved aside after the listing,
// which so has nothing of its new name. And a listing that is under way while folders are renamed may have neither name
// of one: so hidden ones are asked for their places, too. Hidden names are random: two listings that have the same ones
// have seen nobody come to his place in between.
bool look_around(const std::string &root, Look *look) {
  *look = {};
  if (!list_folder(root, &look->entries)) return false;
  std::sort(look->entries.begin(), look->entries.end());
  for (const std::string &entry : look->entries) {
    const std::string old = name_of_hidden(entry, old_word), partial = name_of_hidden(entry, partial_word);
    const std::string &name = !old.empty() ? old : !partial.empty() ? partial : entry;
    uint64_t number = 0;
    if (!step_of_folder_name(name, &number)) continue;
    look->moving = look->moving || name != entry;
    const Place place = look_at_place(root + "/" + name);
    if (place == Place::folder) look->here.offer(number, name);
    else if (place == Place::empty && !old.empty()) look->aside.offer(number, entry);
    else if (place == Place::empty && name == entry) look->vanished.offer(number, entry);
  }
  return true;
}

}  // namespace

std::string without_last_slashes(const std::string &path) {
  const size_t last = path.find_last_not_of('/');
  return last == std::string::npos ? path.substr(0, 1) : path.substr(0, last + 1);
}

void discard(const std::string &root, const std::string &entry) {
  std::string name = entry;
  for (const char *word : {old_word, partial_word})
    if (const std::string hidden = name_of_hidden(entry, word); !hidden.empty()) name = hidden;
  const std::string gone = root + "/" + hidden_name(name, gone_word);
  if (rename((root + "/" + entry).c_str(), gone.c_str()) != 0 || !sync_folder(root)) {
    log_line(MXS_LOG_WARNING, "%s/%s: can't remove it: %s", root.c_str(), entry.c_str(), std::strerror(errno));
    return;
  }
  remove_or_log(gone);
}

void sweep(const std::string &root) {
  std::vector<std::string> entries;
  list_folder(root, &entries);
  for (const std::string &entry : entries) {
    const std::string path = root + "/" + entry;
    if (entry[0] != '.' || !is_folder(path)) continue;
    if (!name_of_hidden(entry, gone_word).empty()) remove_or_log(path);
    const std::string name = name_of_hidden(entry, old_word);
    if (!name.empty()) sweep_old(root, entry, name);
    Descriptor lock;
    if (!name_of_hidden(entry, partial_word).empty() && lock_folder(path, true, &lock) == Lock::taken) {
      discard(root, entry);
      unlock(&lock);
    }
  }
}

void keep_newest(const std::string &given_root, int keep, const std::string &current) {
  const std::string root = without_last_slashes(given_root);
  const std::string current_path = without_last_slashes(current);
  const std::string current_name = current_path.substr(current_path.rfind('/') + 1);
  std::vector<std::string> entries;
  if (keep <= 0 || !list_folder(root, &entries)) return;
  std::vector<std::pair<uint64_t, std::string>> steps;
  uint64_t number = 0;
  for (const std::string &entry : entries)
    if (step_of_folder_name(entry, &number) && is_folder(root + "/" + entry) && has_manifest(root + "/" + entry))
      steps.emplace_back(number, entry);
  std::sort(steps.rbegin(), steps.rend());
  for (size_t i = static_cast<size_t>(keep); i < steps.size(); ++i)
    if (steps[i].second != current_name) discard(root, steps[i].second);
}

std::string newest_checkpoint(const std::string &given_root) {
  const std::string root = without_last_slashes(given_root);
  Look look, before;
  for (int turn = 0; turn < look_turns; ++turn) {
    before = std::move(look);
    if (!look_around(root, &look)) return "";
    if (look.is_settled(before)) return look.here.any ? root + "/" + look.here.entry : "";
    if (!look.is_newer(look.aside)) continue;
    const Newest &aside = look.aside;
    Descriptor lock;
    const Lock locked = lock_folder(root + "/" + aside.entry, false, &lock);
    const bool readable_only = (locked == Lock::taken || locked == Lock::none) &&
                               !put_back(root, aside.entry, name_of_hidden(aside.entry, old_word)) &&
                               (errno == EROFS || errno == EACCES || errno == EPERM);
    unlock(&lock);
    if (readable_only) return root + "/" + aside.entry;
    if (locked == Lock::busy) usleep(turn_us);
  }
  // Whoever is between two renames has stopped there: the old one is whole as long as he does.
  const Newest &newest = look.is_newer(look.aside) ? look.aside : look.here;
  return newest.any ? root + "/" + newest.entry : "";
}

}  // namespace mxs
