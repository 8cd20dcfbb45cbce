// SPDX-License-Identifier: Apache-2.0
// The comparison before a unit is created. Two small rounds when all is well; the tensors' names and hashes travel only
// when plans differ, so that every rank can name the first tensor that does.
#include "unit/compare.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "collective/comm.hpp"

namespace mxs {

namespace {

struct Record {
  uint64_t fingerprint, tensor_count;
  UnitDescription description;
};

// A tensor of another rank's plan, as it came over.
struct RemoteTensor {
  uint64_t hash = 0;
  std::string name;
};

void append(std::vector<std::byte> *blob, const void *data, size_t bytes) {
  const auto *first = static_cast<const std::byte *>(data);
  blob->insert(blob->end(), first, first + bytes);
}

std::vector<std::byte> write_tensors(const Plan &plan) {
  std::vector<std::byte> blob;
  for (const PlannedTensor &tensor : plan.tensors) {
    const uint64_t name_bytes = tensor.name.size();
    append(&blob, &tensor.hash, sizeof tensor.hash);
    append(&blob, &name_bytes, sizeof name_bytes);
    append(&blob, tensor.name.data(), tensor.name.size());
  }
  return blob;
}

// Stops at what doesn't fit: the blob is another rank's.
std::vector<RemoteTensor> read_tensors(const std::vector<std::byte> &blob) {
  std::vector<RemoteTensor> tensors;
  size_t at = 0;
  uint64_t fields[2];
  while (blob.size() - at >= sizeof fields) {
    std::memcpy(fields, blob.data() + at, sizeof fields);
    at += sizeof fields;
    if (fields[1] > blob.size() - at) break;
    tensors.push_back({fields[0], std::string(reinterpret_cast<const char *>(blob.data() + at), fields[1])});
    at += fields[1];
  }
  return tensors;
}

// "tensor 3 is 'wq' on rank 0, but 'wk' on rank 2"
std::string first_difference(const std::vector<RemoteTensor> &a, const std::vector<RemoteTensor> &b, int rank_a,
                             int rank_b) {
  // Two long names must leave room for the rest of the sentence.
  const auto name = [](const RemoteTensor &tensor) { return tensor.name.substr(0, 200); };
  const std::string on_a = " on rank " + std::to_string(rank_a), on_b = " on rank " + std::to_string(rank_b);
  for (size_t i = 0; i < std::max(a.size(), b.size()); i++) {
    const std::string number = "tensor " + std::to_string(i);
    if (i >= a.size()) return number + ", '" + name(b[i]) + "', is only" + on_b;
    if (i >= b.size()) return number + ", '" + name(a[i]) + "', is only" + on_a;
    if (a[i].name != b[i].name)
      return number + " is '" + name(a[i]) + "'" + on_a + ", but '" + name(b[i]) + "'" + on_b;
    if (a[i].hash != b[i].hash)
      return "the first tensor that differs is " + std::to_string(i) + ", '" + name(a[i]) + "'," + on_a + " and" +
             on_b + " (its shape, dtypes, unit, rule, group, role, owner, blocks, tie, transposed or whole size)";
  }
  return "all tensors are equal, so the topology or the plan's options differ" + on_a + " and" + on_b;
}

mxs_status report_plans(Comm &comm, const Plan &plan, int differing_rank) {
  std::vector<std::vector<std::byte>> blobs;
  const mxs_status status = gather_over_ranks(comm, write_tensors(plan), &blobs);
  if (status != MXS_OK) return status;
  const auto tensors = [&](int rank) { return read_tensors(blobs[static_cast<size_t>(rank)]); };
  return set_error(MXS_MISMATCH, "ranks have different plans: %s; mxs_plan_create needs equal arguments on all ranks",
                   first_difference(tensors(0), tensors(differing_rank), 0, differing_rank).c_str());
}

}  // namespace

mxs_status compare_units(Comm &comm, const Plan &plan, const UnitDescription &description) {
  const Record mine = {plan.fingerprint, plan.tensors.size(), description};
  std::vector<Record> records(static_cast<size_t>(comm.rank_count));
  const mxs_status status = comm.agree(&mine, records.data(), sizeof mine, 0);
  if (status != MXS_OK) return status;
  const Record &first = records[0];
  const auto differs = [&](auto &&field) {
    const auto it = std::find_if(records.begin(), records.end(),
                                 [&](const Record &record) { return field(record) != field(first); });
    return it == records.end() ? -1 : static_cast<int>(it - records.begin());
  };
  int rank = differs([](const Record &record) { return record.fingerprint; });
  if (rank >= 0) return report_plans(comm, plan, rank);
  rank = differs([](const Record &record) { return record.description.index; });
  if (rank >= 0)
    return set_error(MXS_MISMATCH, "rank 0 creates unit %llu, but rank %d unit %llu; ranks create units in one order",
                     static_cast<unsigned long long>(first.description.index), rank,
                     static_cast<unsigned long long>(records[static_cast<size_t>(rank)].description.index));
  rank = differs([](const Record &record) { return record.description.options_hash; });
  if (rank >= 0)
    return set_error(MXS_MISMATCH,
                     "unit %llu: its options (memory, gather, slots, gradient_slots, flags, algorithm, a buffer or "
                     "none, own_slot, the size of replicas and the rank in them) or MXS_ALGORITHM differ on rank 0 and "
                     "rank %d",
                     static_cast<unsigned long long>(description.index), rank);
  rank = differs([](const Record &record) { return record.description.has_pool; });
  if (rank >= 0)
    return set_error(MXS_MISMATCH,
                     "unit %llu: either rank 0 or rank %d still has other units of this plan, the other has not; all "
                     "ranks create and destroy units in one order",
                     static_cast<unsigned long long>(description.index), rank);
  return MXS_OK;
}

}  // namespace mxs
