// SPDX-License-Identifier: Apache-2.0
// Where do the bytes come from, and which of them does a micro-batch see?
#include "text.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "random.hpp"

namespace train {
namespace {

constexpr const char *licences = "/usr/share/common-licenses";

void append_file(const std::filesystem::path &path, std::vector<uint8_t> *text) {
  if (std::filesystem::is_directory(path))
    throw std::runtime_error(path.string() + " is a folder; give a text with --text FILE");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string() + "; give a text with --text FILE");
  text->insert(text->end(), std::istreambuf_iterator<char>(file), {});
  if (file.bad()) throw std::runtime_error("cannot read " + path.string());
}

// Links are left out: GPL, say, is another name of GPL-3.
std::vector<std::filesystem::path> licence_files() {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(licences, error))
    if (!entry.is_symlink() && entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<uint8_t> read_text(const std::string &path, size_t bytes_min) {
  std::vector<uint8_t> text;
  if (!path.empty()) {
    append_file(path, &text);
  } else {
    for (const auto &file : licence_files()) append_file(file, &text);
  }
  if (text.size() < bytes_min)
    throw std::runtime_error((path.empty() ? std::string(licences) : path) + " has " + std::to_string(text.size()) +
                             " bytes, and one sequence needs " + std::to_string(bytes_min) +
                             "; give a longer text with --text FILE");
  return text;
}

void take_batch(const std::vector<uint8_t> &text, uint64_t seed, uint64_t step, uint64_t micro_batch,
                int64_t sequences, int64_t context, Batch *batch) {
  batch->inputs.clear();
  batch->targets.clear();
  const uint64_t key = mix(mix(seed, step), micro_batch);
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const auto start = text.begin() + static_cast<int64_t>(mix(key, sequence) % (text.size() - context));
    batch->inputs.insert(batch->inputs.end(), start, start + context);
    batch->targets.insert(batch->targets.end(), start + 1, start + 1 + context);
  }
}

}  // namespace train
