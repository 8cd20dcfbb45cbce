// SPDX-License-Identifier: Apache-2.0
// Topologies and speeds in files.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/environment.hpp"
#include "base/status.hpp"
#include "machine/machine.hpp"

namespace mxs {

namespace {

constexpr size_t topology_bytes_max = size_t{128} << 20;  // a million ranks have about 50
constexpr size_t speeds_bytes_max = size_t{1} << 20;

// The descriptor closes itself.
struct Open {
  int descriptor;
  ~Open() {
    if (descriptor >= 0) close(descriptor);
  }
};

mxs_status about_file(const char *what, const char *doing, const std::string &path) {
  return set_error(MXS_SYSTEM, "%s: %s %.200s: %s", what, doing, path.c_str(), std::strerror(errno));
}

bool write_all(int descriptor, const std::string &text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(descriptor, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return false;
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  return fsync(descriptor) == 0;
}

void make_folders_of(const std::string &path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    mkdir(path.substr(0, slash).c_str(), 0777);  // a failure shows when the file is made
}

// Where a renamed file replaces what was there: behind symbolic links, which stay. Only a file is replaced; root could
// else turn /dev/null into one.
mxs_status find_place(const char *what, const std::string &path, std::string *place) {
  *place = path;
  struct stat information {};
  if (stat(path.c_str(), &information) != 0) return MXS_OK;  // not there yet, or a failure that opening shows, too
  errno = S_ISDIR(information.st_mode) ? EISDIR : EINVAL;
  if (!S_ISREG(information.st_mode)) return about_file(what, "write", path);
  char *const real = realpath(path.c_str(), nullptr);
  if (!real) return about_file(what, "write", path);
  *place = real;
  free(real);
  return MXS_OK;
}

bool begins_with_tag(const std::string &text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '<';
}

}  // namespace

mxs_status cause_in_file(mxs_status status, const std::string &path) {
  if (status == MXS_OK) return status;
  const std::string cause = last_error_text();
  return set_error(status, "%.200s: %s", path.c_str(), cause.c_str());
}

bool read_file(const std::string &path, size_t bytes_max, std::string *text) {
  const Open file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a pipe without a writer doesn't hang
  struct stat information {};
  if (file.descriptor < 0 || fstat(file.descriptor, &information) != 0) return false;
  errno = S_ISDIR(information.st_mode) ? EISDIR : EINVAL;
  if (!S_ISREG(information.st_mode)) return false;
  errno = EFBIG;  // those of /proc and /sys are said to have 0 bytes
  if (information.st_size > 0 && static_cast<uint64_t>(information.st_size) > bytes_max) return false;
  std::string read_text;
  char piece[16384];
  while (true) {
    const ssize_t got = read(file.descriptor, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    read_text.append(piece, static_cast<size_t>(got));
    errno = EFBIG;
    if (read_text.size() > bytes_max) return false;
  }
  *text = std::move(read_text);
  return true;
}

mxs_status read_file(const char *what, const std::string &path, size_t bytes_max, std::string *text) {
  return read_file(path, bytes_max, text) ? MXS_OK : about_file(what, "read", path);
}

namespace {

// A file that nobody else writes: other threads of this process save to the same path, and one that was killed may
// have left its file behind.
int create_beside(const std::string &path, std::string *beside) {
  static std::atomic<unsigned> number{0};
  int descriptor = -1;
  for (int turn = 0; turn < 100; ++turn) {
    *beside = path + ".new-" + std::to_string(getpid()) + "-" + std::to_string(number++);
    descriptor = open(beside->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0 || errno != EEXIST) break;
  }
  return descriptor;
}

}  // namespace

mxs_status write_file(const char *what, const std::string &given, const std::string &text) {
  std::string path;
  const mxs_status place = find_place(what, given, &path);
  if (place != MXS_OK) return place;
  std::string beside;
  {
    const Open file{create_beside(path, &beside)};
    if (file.descriptor < 0) return about_file(what, "create", beside);
    if (!write_all(file.descriptor, text)) {
      const mxs_status status = about_file(what, "write", beside);
      unlink(beside.c_str());
      return status;
    }
  }
  if (rename(beside.c_str(), path.c_str()) == 0) return MXS_OK;
  const mxs_status status = about_file(what, "rename to", path);
  unlink(beside.c_str());
  return status;
}

mxs_status load_topology(const std::string &path, Topology *topology) {
  std::string text;
  const mxs_status status = read_file("topology", path, topology_bytes_max, &text);
  if (status != MXS_OK) return status;
  if (!begins_with_tag(text)) return cause_in_file(topology_from_json(text, topology), path);
  std::vector<RankView> views;
  const mxs_status read = read_saved_machine(path, 0, &views);
  if (read != MXS_OK) return read;
  Topology made = topology_from_views(views);
  set_speeds(&made, *topology, false);
  *topology = std::move(made);
  return MXS_OK;
}

mxs_status read_topology(const std::string &words_or_path, Topology *topology) {
  return looks_like_words(words_or_path) ? parse_topology(words_or_path, topology, read_saved_machine)
                                         : load_topology(words_or_path, topology);
}

mxs_status save_topology(const Topology &topology, const std::string &path) {
  return write_file("topology", path, topology_to_json(topology));
}

std::string speeds_path(bool *given) {
  const auto named = environment_text("MXS_SPEEDS");
  *given = named.has_value();
  if (named) return *named == "none" ? "" : *named;
  if (const auto cache = environment_text("XDG_CACHE_HOME")) return *cache + "/matrixshard/speeds.json";
  if (const auto home = environment_text("HOME")) return *home + "/.cache/matrixshard/speeds.json";
  return "";
}

mxs_status load_speeds(Speeds *speeds, bool *has_network, std::string *path) {
  path->clear();
  bool given = false;
  const std::string place = speeds_path(&given);
  if (place.empty() || (!given && access(place.c_str(), F_OK) != 0)) return MXS_OK;
  std::string text;
  mxs_status status = read_file("speeds", place, speeds_bytes_max, &text);
  if (status == MXS_OK) status = cause_in_file(speeds_from_json(text, speeds, has_network), "speeds: " + place);
  if (status == MXS_OK) *path = place;
  return status;
}

mxs_status save_speeds(const Speeds &speeds, const std::string &path) {
  std::string place = path;
  if (place.empty()) {
    bool given = false;
    place = speeds_path(&given);
    if (place.empty())
      return set_error(MXS_ENVIRONMENT, given ? "MXS_SPEEDS is \"none\"; name a file to keep the speeds"
                                              : "neither MXS_SPEEDS nor XDG_CACHE_HOME nor HOME says where to keep "
                                                "the speeds");
    make_folders_of(place);
  }
  return write_file("speeds", place, speeds_to_json(speeds));
}

}  // namespace mxs
