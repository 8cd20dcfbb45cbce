// SPDX-License-Identifier: Apache-2.0
// The job of a gather.
//
//   out of place   each rank's own bytes are packed in a source; the library brings them into the target as well
//   in place       they stand in the target already (source NULL)
//
// Its peer: every rank copies as many bytes by memcpy, from private memory, at the same time.
#include <cstring>

#include "bench/job.hpp"

namespace bench {

namespace {

class GatherJob final : public Job {
 public:
  GatherJob(Ranks &ranks, const Options &options, uint64_t bytes)
      : Job(ranks, options, bytes), source_(allocate(packed_bytes_max_)), target_(allocate(bytes_)) {}

  void prepare(Form form, int turn) override;
  uint64_t count_wrong(Form form, int turn) const override;
  void damage(Form) const override { flip(target_.data(), bytes_); }
  std::unique_ptr<Contender> make(const std::string &algorithm) override;
  std::unique_ptr<Contender> make_peer() override;
  double busiest_bytes() const override { return static_cast<double>(bytes_ - owned_bytes_min_); }

  void gather(const mxs::collective &collective, Form form) const {
    carry_out(collective, form == Form::in_place ? nullptr : source_.data(), target_.data());
  }
  void copy(const Buffer &whole) const { std::memcpy(target_.data(), whole.data(), bytes_); }

 private:
  Buffer source_, target_;
};

void GatherJob::prepare(Form form, int turn) {
  poison(target_.data(), bytes_);
  std::byte *packed = source_.data();
  for (const mxs_segment &segment : segments_) {
    if (segment.owner != ranks_.rank()) continue;
    std::byte *const own = form == Form::in_place ? target_.data() + segment.offset : packed;
    fill_gathered(own, run_of(segment), segment.owner, turn);
    packed += segment.bytes;
  }
}

uint64_t GatherJob::count_wrong(Form, int turn) const {
  uint64_t wrong = 0;
  for (const mxs_segment &segment : segments_)
    wrong += count_wrong_gathered(target_.data() + segment.offset, run_of(segment), segment.owner, turn);
  return wrong;
}

class Gather final : public Contender {
 public:
  Gather(const GatherJob &job, mxs::collective collective) : job_(job), collective_(std::move(collective)) {}
  std::string name() const override { return describe().algorithm; }
  void run(Form form) override { job_.gather(collective_, form); }
  mxs_collective_info describe() const override {
    mxs_collective_info info = MXS_COLLECTIVE_INFO_INIT;
    mxs::check(mxs_collective_describe(collective_.get(), &info));
    return info;
  }

 private:
  const GatherJob &job_;
  mxs::collective collective_;
};

class Memcpy final : public Contender {
 public:
  Memcpy(const GatherJob &job, Buffer whole) : job_(job), whole_(std::move(whole)) {}
  std::string name() const override { return "memcpy"; }
  bool is_peer() const override { return true; }
  bool has(Form form) const override { return form == Form::in_place; }
  void run(Form) override { job_.copy(whole_); }

 private:
  const GatherJob &job_;
  Buffer whole_;
};

std::unique_ptr<Contender> GatherJob::make(const std::string &algorithm) {
  return std::make_unique<Gather>(*this, make_collective(MXS_GATHER, algorithm));
}

std::unique_ptr<Contender> GatherJob::make_peer() { return std::make_unique<Memcpy>(*this, allocate(bytes_)); }

}  // namespace

std::unique_ptr<Job> make_gather(Ranks &ranks, const Options &options, uint64_t bytes) {
  return std::make_unique<GatherJob>(ranks, options, bytes);
}

}  // namespace bench
