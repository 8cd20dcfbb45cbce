// SPDX-License-Identifier: Apache-2.0
// Bootstrap over the caller's own all-gather: MPI, torch.distributed, a test.
#include <sched.h>

#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "bootstrap/bootstrap.hpp"

namespace mxs {

namespace {

class CallbackBootstrap : public Bootstrap {
 public:
  CallbackBootstrap(const mxs_bootstrap &callbacks, uint64_t timeout_ns)
      : callbacks_(callbacks), timeout_ns_(timeout_ns) {}

  int rank() const override { return callbacks_.rank; }
  int rank_count() const override { return callbacks_.rank_count; }
  const char *name() const override { return "callbacks"; }

  mxs_status all_gather(const void *source, void *target, size_t bytes) override;

 private:
  mxs_status wait_for(void *request, size_t bytes);

  // A round that was given up may still be written by the caller's side, so its buffers live as long as we do.
  struct Round {
    std::vector<std::byte> source, target;
  };

  mxs_bootstrap callbacks_;
  uint64_t timeout_ns_;
  uint64_t round_count_ = 0;
  std::vector<std::unique_ptr<Round>> abandoned_;
};

mxs_status CallbackBootstrap::wait_for(void *request, size_t bytes) {
  const uint64_t deadline_ns = now_ns() + timeout_ns_;
  for (int polls = 0;; ++polls) {
    const int answer = callbacks_.test(callbacks_.context, request);
    if (answer == 0) return MXS_OK;
    if (answer != 1)
      return set_error(MXS_TRANSPORT_FAILED, "bootstrap.test returned %d in round %llu, neither 0 nor 1", answer,
                       static_cast<unsigned long long>(round_count_));
    if (interrupted()) return set_error(MXS_ABORTED, "the comm has failed while rank %d exchanged addresses", rank());
    if (now_ns() > deadline_ns)
      return set_error(MXS_TIMED_OUT,
                       "bootstrap.all_gather of %zu bytes (round %llu, rank %d of %d) was not complete within %.3g s; "
                       "a rank has not called, or the caller's callbacks lost it",
                       bytes, static_cast<unsigned long long>(round_count_), rank(), rank_count(),
                       static_cast<double>(timeout_ns_) * 1e-9);
    // Quick at first: ranks mostly come together. Then gently, because they may be minutes apart.
    if (polls < 200) {
      sched_yield();
    } else {
      const timespec pause = {0, polls < 2000 ? 50'000 : 1'000'000};
      nanosleep(&pause, nullptr);
    }
  }
}

mxs_status CallbackBootstrap::all_gather(const void *source, void *target, size_t bytes) {
  if (bytes == 0) return MXS_OK;
  ++round_count_;
  auto round = std::make_unique<Round>();
  round->source.resize(bytes);
  std::memcpy(round->source.data(), source, bytes);
  round->target.resize(bytes * static_cast<size_t>(rank_count()));
  void *request = nullptr;
  const int answer =
      callbacks_.all_gather(callbacks_.context, round->source.data(), round->target.data(), bytes, &request);
  if (answer != 0)
    return set_error(MXS_TRANSPORT_FAILED, "bootstrap.all_gather returned %d for %zu bytes in round %llu", answer,
                     bytes, static_cast<unsigned long long>(round_count_));
  const mxs_status status = wait_for(request, bytes);
  const int freed = callbacks_.free_request(callbacks_.context, request);
  if (status != MXS_OK) {
    abandoned_.push_back(std::move(round));
    return status;
  }
  if (freed != 0)
    return set_error(MXS_TRANSPORT_FAILED, "bootstrap.free_request returned %d in round %llu", freed,
                     static_cast<unsigned long long>(round_count_));
  std::memcpy(target, round->target.data(), round->target.size());
  return MXS_OK;
}

}  // namespace

mxs_status create_callback_bootstrap(std::unique_ptr<Bootstrap> *bootstrap, const mxs_bootstrap &callbacks,
                                     uint64_t timeout_ns) {
  if (callbacks.rank_count < 1 || callbacks.rank_count > 1 << 20)
    return set_error(MXS_INVALID_ARGUMENT, "bootstrap.rank_count is %d, not from 1 to 1,048,576", callbacks.rank_count);
  if (callbacks.rank < 0 || callbacks.rank >= callbacks.rank_count)
    return set_error(MXS_INVALID_ARGUMENT, "bootstrap.rank is %d, outside a world of %d ranks", callbacks.rank,
                     callbacks.rank_count);
  if (!callbacks.all_gather || !callbacks.test || !callbacks.free_request)
    return set_error(MXS_INVALID_ARGUMENT, "bootstrap.%s is NULL",
                     !callbacks.all_gather ? "all_gather" : !callbacks.test ? "test" : "free_request");
  *bootstrap = std::make_unique<CallbackBootstrap>(callbacks, timeout_ns);
  return MXS_OK;
}

}  // namespace mxs
