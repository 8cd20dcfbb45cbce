// SPDX-License-Identifier: Apache-2.0
// Joining ranks. All of them say first whether they can, with which NCCL, and rank 0 gives the unique id; then each one
// joins without blocking, and says whether it has. So a failure of one is a failure of all, with that rank's sentence.
#include <cstring>
#include <vector>

#include "base/status.hpp"
#include "cuda/nccl.hpp"
#include "cuda/nccl_call.hpp"
#include "cuda/nccl_end.hpp"
#include "cuda/nccl_group.hpp"

namespace mxs {

namespace {

struct Word {  // of one rank to all
  int32_t status = MXS_OK;
  int32_t version = 0;
  int32_t is_given = 0;
  char sentence[500] = {};
  NcclId id{};
  void put(mxs_status new_status) {
    status = new_status;
    if (status != MXS_OK) std::strncpy(sentence, last_error_text(), sizeof sentence - 1);
  }
};

class Maker {
 public:
  Maker(const Driver &driver, CUcontext context, int device, const GroupOptions &options)
      : driver_(driver), context_(context), device_(device), options_(options),
        words_(static_cast<size_t>(options.rank_count)) {}

  mxs_status make(std::unique_ptr<DeviceGroup> *group) {
    Word own;
    own.is_given = options_.existing != nullptr;
    own.put(prepare(&own));
    mxs_status status = agree(own);
    if (status != MXS_OK) return status;
    if (options_.existing) return finish(group);
    Word outcome;
    outcome.put(join());
    if (outcome.status != MXS_OK) leave();  // at once, so that NCCL tells those who wait for this rank
    status = agree(outcome);
    if (status == MXS_OK) return finish(group);
    leave();
    return status;
  }

 private:
  mxs_status prepare(Word *own) {
    const mxs_status status = load_nccl(&nccl_);
    if (status != MXS_OK) return status;
    own->version = nccl_->version;
    const CurrentContext current(driver_, context_);
    if (current.result() != CUDA_SUCCESS)
      return driver_failed(driver_, current.result(), device_, "cuCtxPushCurrent");
    sweep_retired_nccl_comms();
    if (options_.existing) return check_existing();
    if (options_.rank != 0) return MXS_OK;
    const int result = nccl_->get_unique_id(&own->id);
    return result == nccl_success ? MXS_OK : nccl_failed(*nccl_, result, nullptr, "ncclGetUniqueId");
  }

  mxs_status check_existing() {
    const NcclComm comm = options_.existing;
    int count = -1, rank = -1, device = -1;
    int result = nccl_->comm_count(comm, &count);
    if (result == nccl_success) result = nccl_->comm_user_rank(comm, &rank);
    if (result == nccl_success) result = nccl_->comm_device(comm, &device);
    if (result != nccl_success)
      return nccl_failed(*nccl_, result, comm, "the ncclComm_t that was given can't be used: ncclCommCount");
    if (count != options_.rank_count || rank != options_.rank)
      return set_error(MXS_INVALID_ARGUMENT, "the ncclComm_t that was given is of rank %d of %d, this is rank %d of %d",
                       rank, count, options_.rank, options_.rank_count);
    if (device != device_)
      return set_error(MXS_INVALID_ARGUMENT, "rank %d: the ncclComm_t that was given is of device %d, but the comm's "
                       "is %d", rank, device, device_);
    return MXS_OK;
  }

  // What rank 0 says last stays in words_.
  mxs_status agree(const Word &own) {
    std::vector<Word> all(words_.size());
    const mxs_status status = options_.gather(&own, all.data(), sizeof own);
    if (status != MXS_OK) return status;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const Word &word = all[rank];
      if (word.status != MXS_OK)
        return set_error(word.status, "rank %zu: %.499s", rank, word.sentence);
      if (word.is_given != all[0].is_given)
        return set_error(MXS_INVALID_ARGUMENT, "rank %d was given an ncclComm_t, but rank %d was not",
                         word.is_given ? static_cast<int>(rank) : 0, word.is_given ? 0 : static_cast<int>(rank));
      // NCCL's ranks understand each other within one release only.
      if (word.version != all[0].version)
        return set_error(MXS_MISMATCH, "rank 0 has NCCL %s, rank %zu has %s: all ranks must load the same",
                         nccl_version_text(all[0].version).c_str(), rank, nccl_version_text(word.version).c_str());
    }
    words_ = std::move(all);
    return MXS_OK;
  }

  mxs_status join() {
    NcclConfig config;
    config.blocking = 0;
    const CurrentContext current(driver_, context_);
    int result = nccl_->comm_init_rank_config(&comm_, options_.rank_count, words_[0].id, options_.rank, &config);
    Poll poll(options_.timeout_ns);
    while (result == nccl_in_progress || result == nccl_success) {
      int state = nccl_success;
      result = nccl_->comm_get_async_error(comm_, &state);
      if (result == nccl_success && state == nccl_success) return MXS_OK;
      if (result == nccl_success) result = state;
      if (result != nccl_in_progress) break;
      const mxs_status status = options_.poll ? options_.poll() : MXS_OK;
      if (status != MXS_OK) return status;
      if (!poll.wait())
        return set_error(MXS_TIMED_OUT, "the ranks did not meet in NCCL within %.1f s: rank %d of %d on device %d "
                         "waits for others", seconds(), options_.rank, options_.rank_count, device_);
    }
    return nccl_failed(*nccl_, result, comm_, "ncclCommInitRankConfig");
  }

  void leave() {
    const CurrentContext current(driver_, context_);
    if (comm_) nccl_->comm_abort(comm_);
    comm_ = nullptr;
  }

  double seconds() const {
    return static_cast<double>(options_.timeout_ns ? options_.timeout_ns : nccl_timeout_default_ns) * 1e-9;
  }

  mxs_status finish(std::unique_ptr<DeviceGroup> *group) {
    const bool is_borrowed = options_.existing != nullptr;
    *group = std::make_unique<NcclGroup>(*nccl_, driver_, context_, device_, is_borrowed ? options_.existing : comm_,
                                         is_borrowed, options_);
    return MXS_OK;
  }

  const Driver &driver_;
  const CUcontext context_;
  const int device_;
  const GroupOptions &options_;
  const NcclLibrary *nccl_ = nullptr;
  NcclComm comm_ = nullptr;
  std::vector<Word> words_;
};

}  // namespace

mxs_status make_nccl_group(std::unique_ptr<DeviceGroup> *group, const Driver &driver, CUcontext context, int device,
                           const GroupOptions &options) {
  return fenced([&] { return Maker(driver, context, device, options).make(group); });
}

}  // namespace mxs
