// SPDX-License-Identifier: Apache-2.0
// A sum over the ranks of a world in threads, for mxs_optimizer_options.agree.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace mxs::test {

// The caller's sum, as with units of several comms: adds words over threads.
struct Summer {
  explicit Summer(int its_count) : count(its_count) {}
  const int count;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int64_t> sum;
  int come = 0, left = 0;
  static int call(void *context, int64_t *words, uint64_t word_count) {
    Summer &self = *static_cast<Summer *>(context);
    std::unique_lock lock(self.mutex);
    self.changed.wait(lock, [&] { return self.left == 0; });
    if (self.come == 0) self.sum.assign(word_count, 0);
    for (uint64_t i = 0; i < word_count; ++i)
      self.sum[i] = static_cast<int64_t>(static_cast<uint64_t>(self.sum[i]) + static_cast<uint64_t>(words[i]));
    if (++self.come == self.count) {
      self.left = self.count;
      self.come = 0;
      self.changed.notify_all();
    }
    self.changed.wait(lock, [&] { return self.left > 0; });
    std::copy(self.sum.begin(), self.sum.end(), words);
    if (--self.left == 0) self.changed.notify_all();
    return 0;
  }
};

}  // namespace mxs::test
