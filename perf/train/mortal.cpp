// SPDX-License-Identifier: Apache-2.0
// Mortal: what happens to the others when a rank dies in the middle of a step?
//
// Forward and backward end in the middle of the model's units, a step where the others are in its agreement.
#include <csignal>
#include <optional>

#include "placement.hpp"

namespace train {
namespace {

class MortalPlacement : public Mortal {
 public:
  explicit MortalPlacement(std::unique_ptr<Placement> placement) : placement_(std::move(placement)) {}

  void arm(Moment moment) override {
    moment_ = moment;
    calls_ = 0;
  }

  void gather(int unit) override { placement_->gather(unit); }
  void wait(int unit) override {
    die_in(Moment::forward);
    placement_->wait(unit);
  }
  void release(int unit, bool after_forward) override { placement_->release(unit, after_forward); }
  const void *weights(int tensor) override { return placement_->weights(tensor); }
  void *gradient(int tensor, bool add) override { return placement_->gradient(tensor, add); }
  void reduce(int unit) override {
    die_in(Moment::backward);
    placement_->reduce(unit);
  }
  void count_gradients(bool counts) override { placement_->count_gradients(counts); }
  void finish_gradients() override { placement_->finish_gradients(); }
  mxs_verdict step(const mxs_step &step) override {
    calls_ = calls_before_death;
    die_in(Moment::step);
    return placement_->step(step);
  }
  void visit_masters(const MasterVisitor &visitor) override { placement_->visit_masters(visitor); }
  Trained trained() override { return placement_->trained(); }
  std::unique_ptr<Placement> go_on(mxs_comm *comm, const std::vector<int32_t> &was, mxs_recovery *recovery) override {
    return placement_->go_on(comm, was, recovery);
  }
  mxs_memory counted() override { return placement_->counted(); }
  mxs_memory predicted() override { return placement_->predicted(); }

 private:
  static constexpr int calls_before_death = 2;
  void die_in(Moment moment) {
    if (moment_ == moment && ++calls_ > calls_before_death) raise(SIGKILL);
  }

  const std::unique_ptr<Placement> placement_;
  std::optional<Moment> moment_;
  int calls_ = 0;
};

}  // namespace

std::unique_ptr<Mortal> make_mortal(std::unique_ptr<Placement> placement) {
  return std::make_unique<MortalPlacement>(std::move(placement));
}

}  // namespace train
