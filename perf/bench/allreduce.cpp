// SPDX-License-Identifier: Apache-2.0
// The job of an all-reduce: a reduce to an even layout, and a gather of the sums, one after the other.
//
//   out of place   sums are packed in memory of their own, and gathered from there into the target
//   in place       sums are formed where the gather wants them: in the owner's part of the target
//
// The source is never overwritten.
#include "bench/job.hpp"

namespace bench {

namespace {

class AllreduceJob final : public Job {
 public:
  AllreduceJob(Ranks &ranks, const Options &options, uint64_t bytes)
      : Job(ranks, options, bytes), source_(allocate(bytes_)), sums_(allocate(packed_bytes_max_)),
        target_(allocate(bytes_)) {}

  void prepare(Form, int turn) override {
    fill_term(source_.data(), {0, count(), element_bytes_}, MXS_F32, ranks_.rank(), turn);
    poison(sums_.data(), packed_bytes_);
    poison(target_.data(), bytes_);
  }
  uint64_t count_wrong(Form, int turn) const override {
    return count_wrong_sums(target_.floats(), {0, count(), element_bytes_}, ranks_.count(), turn, false);
  }
  void damage(Form) const override { flip(target_.data(), bytes_); }
  std::unique_ptr<Contender> make(const std::string &algorithm) override;
  // 2 (p - 1) / p of the bytes, as nccl-tests count it.
  double busiest_bytes() const override { return 2 * static_cast<double>(bytes_ - owned_bytes_min_); }

  void run(const mxs::collective &reduce, const mxs::collective &gather, Form form) const {
    // An even layout has one segment of each rank, in the order of ranks.
    const mxs_segment &own = segments_[static_cast<size_t>(ranks_.rank())];
    std::byte *const sums = form == Form::in_place ? target_.data() + own.offset : sums_.data();
    carry_out(reduce, source_.data(), sums);
    carry_out(gather, form == Form::in_place ? nullptr : sums, target_.data());
  }

 private:
  Buffer source_, sums_, target_;
};

class Allreduce final : public Contender {
 public:
  Allreduce(const AllreduceJob &job, mxs::collective reduce, mxs::collective gather)
      : job_(job), reduce_(std::move(reduce)), gather_(std::move(gather)) {}
  std::string name() const override {
    const std::string reduce = info_of(reduce_).algorithm, gather = info_of(gather_).algorithm;
    return reduce == gather ? reduce : reduce + "+" + gather;
  }
  void run(Form form) override { job_.run(reduce_, gather_, form); }
  mxs_collective_info describe() const override {
    const mxs_collective_info second = info_of(gather_);
    mxs_collective_info info = info_of(reduce_);
    info.bytes_in += second.bytes_in;
    info.bytes_out += second.bytes_out;
    info.message_count += second.message_count;
    info.bytes_in_least += second.bytes_in_least;
    info.bound_ns += second.bound_ns;
    // If one of them is not predicted, neither is both.
    info.predicted_ns = info.predicted_ns && second.predicted_ns ? info.predicted_ns + second.predicted_ns : 0;
    return info;
  }

 private:
  static mxs_collective_info info_of(const mxs::collective &collective) {
    mxs_collective_info info = MXS_COLLECTIVE_INFO_INIT;
    mxs::check(mxs_collective_describe(collective.get(), &info));
    return info;
  }

  const AllreduceJob &job_;
  mxs::collective reduce_, gather_;
};

std::unique_ptr<Contender> AllreduceJob::make(const std::string &algorithm) {
  // Inside a node the two kinds have one algorithm each, under two names.
  const bool node = algorithm == "fanout" || algorithm == "cooperative";
  return std::make_unique<Allreduce>(*this, make_collective(MXS_REDUCE, node ? "cooperative" : algorithm),
                                     make_collective(MXS_GATHER, node ? "fanout" : algorithm));
}

}  // namespace

std::unique_ptr<Job> make_allreduce(Ranks &ranks, const Options &options, uint64_t bytes) {
  return std::make_unique<AllreduceJob>(ranks, options, bytes);
}

}  // namespace bench
