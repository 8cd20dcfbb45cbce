// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_list.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "cli/checkpoint_commands.hpp"
#include "cli/checkpoint_view.hpp"
#include "cli/json_writer.hpp"
#include "cli/plan_text.hpp"
#include "cli/table.hpp"

namespace mxs_cli {

namespace {

namespace fs = std::filesystem;

enum class Place { other, checkpoint, partial, gone, old };

bool is_model_file(const fs::path &path) {
  const std::string name = path.filename().string();
  return name == "matrixshard.json" || name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

// step-00000500, or any folder with a manifest; hidden ones that a save makes.
Place place_of(const fs::directory_entry &entry) {
  std::error_code error;
  if (!entry.is_directory(error)) return Place::other;
  const std::string name = entry.path().filename().string();
  if (name.starts_with(".")) {
    if (name.find(".partial-") != std::string::npos) return Place::partial;
    if (name.find(".gone-") != std::string::npos) return Place::gone;
    return name.find(".old-") != std::string::npos ? Place::old : Place::other;
  }
  const bool has_digits = name.size() > 5 && name.find_first_not_of("0123456789", 5) == std::string::npos;
  if (name.starts_with("step-") && has_digits) return Place::checkpoint;
  return fs::exists(entry.path() / "matrixshard.json", error) ? Place::checkpoint : Place::other;
}

uint64_t bytes_below(const fs::path &path) {
  std::error_code error;
  uint64_t bytes = 0;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code of_file;
    const uint64_t size = it->is_regular_file(of_file) ? it->file_size(of_file) : 0;
    if (!of_file) bytes += size;
  }
  return bytes;
}

struct Listed {
  std::string name, fault;
  uint64_t step_number = 0, array_count = 0, bytes = 0;
  int32_t rank_count = 0;
  std::string version;
  bool is_newest = false;
};

struct Leftover {
  std::string name;
  Place place;
  uint64_t bytes;
};

struct Listing {
  std::vector<Listed> checkpoints;
  std::vector<Leftover> leftovers;
};

Listed look_at(const fs::path &path) {
  Listed listed;
  listed.name = path.filename().string();
  try {
    const CheckpointView view = view_checkpoint(path.string());
    listed.step_number = view.info.step_number;
    listed.array_count = view.info.array_count;
    listed.rank_count = view.info.rank_count;
    listed.version = view.info.version;
  } catch (const mxs::error &error) {
    listed.fault = error.what();
  }
  listed.bytes = bytes_below(path);
  return listed;
}

// mxs_checkpoint_open takes the step-* folder with the highest number of a folder.
uint64_t step_of_name(const std::string &name) {
  const size_t digits = name.find_first_not_of('0', 5);
  if (!name.starts_with("step-") || digits == std::string::npos || name.size() - digits > 19) return 0;
  return name.find_first_not_of("0123456789", digits) == std::string::npos ? std::stoull(name.substr(digits)) : 0;
}

Listing list(const std::string &path) {
  Listing listing;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    const Place place = place_of(*it);
    if (place == Place::checkpoint) listing.checkpoints.push_back(look_at(it->path()));
    else if (place != Place::other)
      listing.leftovers.push_back({it->path().filename().string(), place, bytes_below(it->path())});
  }
  if (error) throw mxs::error(MXS_SYSTEM, path + " can't be listed: " + error.message());
  const auto key = [](const Listed &listed) { return std::make_pair(step_of_name(listed.name), listed.name); };
  std::sort(listing.checkpoints.begin(), listing.checkpoints.end(),
            [&](const Listed &a, const Listed &b) { return key(a) < key(b); });
  std::sort(listing.leftovers.begin(), listing.leftovers.end(),
            [](const Leftover &a, const Leftover &b) { return a.name < b.name; });
  if (!listing.checkpoints.empty() && listing.checkpoints.back().name.starts_with("step-"))
    listing.checkpoints.back().is_newest = true;
  return listing;
}

const char *leftover_text(Place place) {
  return place == Place::partial ? "is being written, or was left by a save that was killed: the next save removes it"
         : place == Place::gone  ? "is being deleted: the next save goes on with it"
                                 : "was to be replaced: the next save or load puts it back if its place is empty";
}

std::string list_table(const std::string &path, const Listing &listing) {
  uint64_t bytes = 0;
  for (const Listed &listed : listing.checkpoints) bytes += listed.bytes;
  std::string text = short_name(path, 80).append(": ");
  text.append(counted_text(listing.checkpoints.size(), "checkpoint", "checkpoints")).append(", ");
  text.append(bytes_text(bytes)).append("\n");
  Table table({"checkpoint", ">step", ">ranks", ">arrays", ">on disk", "version", ""});
  for (const Listed &listed : listing.checkpoints) {
    if (listed.fault.empty())
      table.add({short_name(listed.name), std::to_string(listed.step_number), std::to_string(listed.rank_count),
                 count_text(listed.array_count), bytes_text(listed.bytes), printable(listed.version),
                 listed.is_newest ? "newest" : ""});
    else
      table.add({short_name(listed.name), "-", "-", "-", bytes_text(listed.bytes), "-",
                 listed.is_newest ? "newest, but it can't be read" : "can't be read"});
  }
  if (!table.empty()) text.append("\n").append(table.text());
  if (!listing.leftovers.empty()) text.append("\n");
  for (const Leftover &leftover : listing.leftovers)
    text.append(short_name(leftover.name)).append(" (").append(bytes_text(leftover.bytes)).append(") ").append(
        leftover_text(leftover.place)).append("\n");
  for (const Listed &listed : listing.checkpoints)
    if (!listed.fault.empty())
      text.append("\n").append(wrapped(short_name(listed.name).append(": ").append(printable(listed.fault)), 2));
  return text;
}

std::string list_json(const std::string &path, const Listing &listing) {
  JsonText json;
  json.open('{').add("path", path).key("checkpoints").open('[');
  for (const Listed &listed : listing.checkpoints) {
    json.open('{').add("name", listed.name).add("step", listed.step_number).add_signed("ranks", listed.rank_count);
    json.add("arrays", listed.array_count).add("disk_bytes", listed.bytes).add("version", listed.version);
    json.add_truth("newest", listed.is_newest).add("fault", listed.fault).close('}');
  }
  json.close(']').key("leftovers").open('[');
  for (const Leftover &leftover : listing.leftovers)
    json.open('{').add("name", leftover.name).add("disk_bytes", leftover.bytes).close('}');
  return json.close(']').close('}').take().append("\n");
}

}  // namespace

bool is_folder_of_checkpoints(const std::string &path) {
  std::error_code error;
  bool has_any = false;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (is_model_file(it->path())) return false;
    has_any = has_any || place_of(*it) != Place::other;
  }
  return has_any;
}

int list_checkpoints(const std::string &path, bool json) {
  const Listing listing = list(path);
  print_text(json ? list_json(path, listing) : list_table(path, listing));
  return std::any_of(listing.checkpoints.begin(), listing.checkpoints.end(),
                     [](const Listed &listed) { return !listed.fault.empty(); });
}

}  // namespace mxs_cli
