// SPDX-License-Identifier: Apache-2.0
// Are the weights of two runs the same, whoever had them?
#include "weights.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "random.hpp"

namespace train {
namespace {

// In 16-bit quarters, so that sums over ranks are exact as doubles.
uint64_t sum_over_ranks(mxs_comm *comm, uint64_t value) {
  if (comm == nullptr) return value;
  double quarters[4];
  for (int i = 0; i < 4; ++i) quarters[i] = static_cast<double>(value >> (16 * i) & 0xffffu);
  check(mxs_comm_sum(comm, quarters, 4, nullptr), "sum of the hash");
  uint64_t total = 0;
  for (int i = 0; i < 4; ++i) total += static_cast<uint64_t>(quarters[i]) << (16 * i);
  return total;
}

void barrier(mxs_comm *comm) {
  if (comm != nullptr) check(mxs_comm_barrier(comm, nullptr), "mxs_comm_barrier");
}

// Where each tensor begins in the file, in bytes.
std::vector<uint64_t> file_offsets(const Model &model) {
  std::map<std::string, size_t> by_name;
  for (size_t t = 0; t < model.tensors.size(); ++t)
    if (model.tensors[t].tied_to.empty()) by_name[model.tensors[t].name] = t;
  std::vector<uint64_t> offsets(model.tensors.size());
  uint64_t offset = 0;
  for (const auto &[name, t] : by_name) {
    offsets[t] = offset;
    offset += model.tensors[t].count() * sizeof(float);
  }
  return offsets;
}

void write_all(int file, const std::string &path, const void *data, uint64_t bytes, uint64_t offset) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t written = pwrite(file, static_cast<const char *>(data) + done, bytes - done,
                                   static_cast<off_t>(offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
    done += static_cast<uint64_t>(written);
  }
}

int open_file(const std::string &path, int flags) {
  const int file = open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (file < 0) throw std::runtime_error("cannot open " + path + ": " + std::strerror(errno));
  return file;
}

}  // namespace

uint64_t hash_weights(const Model &model, mxs_comm *comm, Placement *placement) {
  uint64_t hash = 0;
  placement->visit_masters([&](int tensor, uint64_t element_offset, const float *masters, uint64_t count) {
    const uint64_t key = hash_name(model.tensors[tensor].name);
    for (uint64_t i = 0; i < count; ++i) hash += mix(mix(key, element_offset + i), std::bit_cast<uint32_t>(masters[i]));
  });
  return sum_over_ranks(comm, hash);
}

void save_weights(const std::string &path, const Model &model, mxs_comm *comm, Placement *placement) {
  if (rank_of(comm) == 0) close(open_file(path, O_WRONLY | O_CREAT | O_TRUNC));
  barrier(comm);
  const std::vector<uint64_t> offsets = file_offsets(model);
  const int file = open_file(path, O_WRONLY);
  placement->visit_masters([&](int tensor, uint64_t element_offset, const float *masters, uint64_t count) {
    write_all(file, path, masters, count * sizeof(float), offsets[tensor] + element_offset * sizeof(float));
  });
  close(file);
  barrier(comm);
}

}  // namespace train
