// SPDX-License-Identifier: Apache-2.0
// Job: one size of one collective; its layout, its buffers, and what they hold in a checked turn.
// Contender: one way of doing it: an algorithm of the library, or a peer to compare with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/ranks.hpp"
#include "bench/values.hpp"

namespace bench {

// Host memory, zeroed and touched: of mxs_comm_allocate (all ranks give equal bytes), or of the heap.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Ranks &ranks, uint64_t bytes, bool heap);
  Buffer(Buffer &&other) noexcept { *this = std::move(other); }
  Buffer &operator=(Buffer &&other) noexcept;
  ~Buffer();

  std::byte *data() const { return data_; }
  float *floats() const { return reinterpret_cast<float *>(data_); }

 private:
  mxs_comm *comm_ = nullptr;  // nullptr: of the heap
  std::byte *data_ = nullptr;
};

class Contender {
 public:
  virtual ~Contender() = default;
  virtual std::string name() const = 0;
  virtual bool is_peer() const { return false; }
  virtual bool has(Form) const { return true; }
  virtual void run(Form form) = 0;  // until it is complete on this rank
  // Zeros of a peer. Of several collectives in a row: their sums.
  virtual mxs_collective_info describe() const { return MXS_COLLECTIVE_INFO_INIT; }
};

// Names that a collective may have; which it has here shows in making it.
const std::vector<std::string> &known_algorithms();
// The status says that an algorithm is not there, or not for this kind or memory.
bool shows_absence(mxs_status status);

class Job {
 public:
  Job(Ranks &ranks, const Options &options, uint64_t bytes);
  virtual ~Job() = default;

  uint64_t bytes() const { return bytes_; }
  uint64_t count() const { return bytes_ / element_bytes_; }
  int owner_count() const { return owner_count_; }

  // Fills sources with a turn's values and poisons targets.
  virtual void prepare(Form form, int turn) = 0;
  // Elements that differ from the turn's. After damage() at least one does, if rank 0 gets anything.
  virtual uint64_t count_wrong(Form form, int turn) const = 0;
  virtual void damage(Form form) const = 0;

  // algorithm "": what the library chooses. Throws mxs::error. Collective.
  virtual std::unique_ptr<Contender> make(const std::string &algorithm) = 0;
  virtual std::unique_ptr<Contender> make_peer() { return nullptr; }

  // The most bytes that any rank must send or receive: busbw is this over the time.
  virtual double busiest_bytes() const = 0;

 protected:
  mxs::collective make_collective(int32_t kind, const std::string &algorithm) const;
  // Starts and waits.
  void carry_out(const mxs::collective &collective, const void *source, void *target) const;
  Buffer allocate(uint64_t bytes) const { return Buffer(ranks_, bytes, options_.heap); }
  Run run_of(const mxs_segment &segment) const;
  static void flip(std::byte *result, uint64_t bytes);

  Ranks &ranks_;
  const Options &options_;
  size_t element_bytes_;
  uint64_t bytes_ = 0, packed_bytes_ = 0, packed_bytes_max_ = 0, owned_bytes_min_ = 0;  // packed: this rank's segments
  int owner_count_ = 0;
  std::vector<mxs_segment> segments_;
  mxs::layout layout_;
};

std::unique_ptr<Job> make_gather(Ranks &ranks, const Options &options, uint64_t bytes);
std::unique_ptr<Job> make_reduce(Ranks &ranks, const Options &options, uint64_t bytes);
std::unique_ptr<Job> make_allreduce(Ranks &ranks, const Options &options, uint64_t bytes);

}  // namespace bench
