// SPDX-License-Identifier: Apache-2.0
// The job of a reduce. It has one form: the source is a whole buffer in the gradient's dtype, the target packed fp32.
//
// Its peer, a bare sum: every rank adds its part, 1/p of the bytes, of p arrays of its own, in one pass, to an fp32
// array: as many reads and writes as a reduce that is nothing but the sum, without any waiting for others.
#include <algorithm>
#include <cstring>

#include "bench/job.hpp"

namespace bench {

namespace {

class ReduceJob final : public Job {
 public:
  ReduceJob(Ranks &ranks, const Options &options, uint64_t bytes)
      : Job(ranks, options, bytes),
        sums_bytes_(packed_bytes_ / element_bytes_ * sizeof(float)),
        source_(allocate(bytes_)),
        sums_(allocate(packed_bytes_max_ / element_bytes_ * sizeof(float))) {}

  void prepare(Form form, int turn) override;
  uint64_t count_wrong(Form form, int turn) const override;
  void damage(Form) const override { flip(sums_.data(), sums_bytes_); }
  std::unique_ptr<Contender> make(const std::string &algorithm) override;
  std::unique_ptr<Contender> make_peer() override;
  double busiest_bytes() const override;

  void reduce(const mxs::collective &collective) const { carry_out(collective, source_.data(), sums_.data()); }

 private:
  // body(segment's run, the sums of it) for each of this rank's segments.
  template <class Body>
  void for_own(Body &&body) const {
    float *sums = sums_.floats();
    for (const mxs_segment &segment : segments_) {
      if (segment.owner != ranks_.rank()) continue;
      const Run run = run_of(segment);
      body(run, sums);
      sums += run.count;
    }
  }

  uint64_t sums_bytes_;
  Buffer source_, sums_;
};

void ReduceJob::prepare(Form, int turn) {
  fill_term(source_.data(), {0, count(), element_bytes_}, options_.dtype, ranks_.rank(), turn);
  poison(sums_.data(), sums_bytes_);
  if (options_.accumulate) for_own([&](const Run &run, float *sums) { fill_base(sums, run, turn); });
}

uint64_t ReduceJob::count_wrong(Form, int turn) const {
  uint64_t wrong = 0;
  for_own([&](const Run &run, float *sums) {
    wrong += count_wrong_sums(sums, run, ranks_.count(), turn, options_.accumulate);
  });
  return wrong;
}

// Out: its terms of all that others own. In: of what it owns one fp32 sum, or the others' terms if these are less.
double ReduceJob::busiest_bytes() const {
  const uint64_t others = static_cast<uint64_t>(ranks_.count()) - 1;
  if (others == 0) return 0;
  const uint64_t in = std::min(packed_bytes_max_ / element_bytes_ * sizeof(float), others * packed_bytes_max_);
  return static_cast<double>(std::max(bytes_ - owned_bytes_min_, in));
}

class Reduce final : public Contender {
 public:
  Reduce(const ReduceJob &job, mxs::collective collective) : job_(job), collective_(std::move(collective)) {}
  std::string name() const override { return describe().algorithm; }
  bool has(Form form) const override { return form == Form::out_of_place; }
  void run(Form) override { job_.reduce(collective_); }
  mxs_collective_info describe() const override {
    mxs_collective_info info = MXS_COLLECTIVE_INFO_INIT;
    mxs::check(mxs_collective_describe(collective_.get(), &info));
    return info;
  }

 private:
  const ReduceJob &job_;
  mxs::collective collective_;
};

// Blocks of the sum stay in the first-level cache while the arrays pass by, two at a time.
class BareSum final : public Contender {
 public:
  BareSum(uint64_t count, int arrays, Buffer terms, Buffer sum)
      : count_(count), arrays_(arrays), terms_(std::move(terms)), sum_(std::move(sum)) {}
  std::string name() const override { return "bare-sum"; }
  bool is_peer() const override { return true; }
  bool has(Form form) const override { return form == Form::out_of_place; }
  void run(Form) override {
    for (uint64_t at = 0; at < count_; at += block) add_block(at, std::min(block, count_ - at));
  }

 private:
  static constexpr uint64_t block = 2048;

  void add_block(uint64_t at, uint64_t count) const {
    float *__restrict const sum = sum_.floats() + at;
    for (uint64_t i = 0; i < count; i++) sum[i] = 0;
    int array = 0;
    for (; array + 1 < arrays_; array += 2) {
      const float *const first = terms_.floats() + static_cast<uint64_t>(array) * count_ + at;
      const float *const second = first + count_;
      for (uint64_t i = 0; i < count; i++) sum[i] = sum[i] + first[i] + second[i];
    }
    if (array == arrays_) return;
    const float *const last = terms_.floats() + static_cast<uint64_t>(array) * count_ + at;
    for (uint64_t i = 0; i < count; i++) sum[i] += last[i];
  }

  uint64_t count_;
  int arrays_;
  Buffer terms_, sum_;
};

std::unique_ptr<Contender> ReduceJob::make(const std::string &algorithm) {
  return std::make_unique<Reduce>(*this, make_collective(MXS_REDUCE, algorithm));
}

std::unique_ptr<Contender> ReduceJob::make_peer() {
  if (options_.dtype != MXS_F32)
    throw mxs::error(MXS_INVALID_ARGUMENT, "--peers of a reduce: the bare sum is fp32 only");
  const int arrays = ranks_.count();
  const uint64_t share = count() / static_cast<uint64_t>(arrays);
  return std::make_unique<BareSum>(share, arrays, allocate(share * static_cast<uint64_t>(arrays) * sizeof(float)),
                                   allocate(share * sizeof(float)));
}

}  // namespace

std::unique_ptr<Job> make_reduce(Ranks &ranks, const Options &options, uint64_t bytes) {
  return std::make_unique<ReduceJob>(ranks, options, bytes);
}

}  // namespace bench
