// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "cuda/context.hpp"
#include "cuda/nccl_library.hpp"
#include "device/group.hpp"

namespace mxs {

class NcclGroup final : public DeviceGroup {
 public:
  // Takes the communicator, which is ready; a borrowed one stays its owner's.
  NcclGroup(const NcclLibrary &nccl, const Driver &driver, CUcontext context, int device, NcclComm comm,
            bool is_borrowed, const GroupOptions &options)
      : nccl_(nccl), driver_(driver), context_(context), device_(device), rank_(options.rank),
        rank_count_(options.rank_count), timeout_ns_(options.timeout_ns), is_borrowed_(is_borrowed), comm_(comm) {}
  ~NcclGroup() override;

  int rank() const override { return rank_; }
  int rank_count() const override { return rank_count_; }
  int version() const override { return nccl_.version; }
  mxs_status broadcast(const std::vector<GroupPart> &parts, DeviceStream stream) override;
  mxs_status reduce(const std::vector<GroupPart> &parts, DeviceStream stream) override;
  mxs_status exchange(const std::vector<GroupMessage> &sends, const std::vector<GroupMessage> &receives,
                      DeviceStream stream) override;
  mxs_status sum(int64_t *words, uint64_t count, DeviceStream stream) override;
  mxs_status sum(float *values, uint64_t count, DeviceStream stream) override;
  mxs_status check() override;
  void abort() override;
  mxs_status register_buffer(void *data, uint64_t bytes) override;
  void deregister_buffers() override;

 private:
  template <class Body>
  mxs_status call(const char *name, Body &&body);
  template <class Body>
  int group(Body &&body);
  template <class Item, class Body>
  int grouped(const std::vector<Item> &items, Body &&body);
  int settle();
  mxs_status failed(const char *name, int result);
  mxs_status all_reduce(void *data, uint64_t count, int type, DeviceStream stream);

  const NcclLibrary &nccl_;
  const Driver &driver_;
  const CUcontext context_;
  const int device_, rank_, rank_count_;
  const uint64_t timeout_ns_;
  const bool is_borrowed_;
  std::mutex mutex_;  // held around NCCL's calls: an abort comes from any thread
  std::atomic<bool> is_aborted_{false};
  std::atomic<bool> has_failed_{false};
  NcclComm comm_;
  std::vector<void *> buffers_;
};

}  // namespace mxs
