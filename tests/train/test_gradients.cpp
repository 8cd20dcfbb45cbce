// SPDX-License-Identifier: Apache-2.0
// Are the demo's loss and gradients those of the model as written down plainly in fp64, by finite differences?
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "layers.hpp"
#include "network.hpp"
#include "plain_gpt.hpp"
#include "random.hpp"
#include "support/cmocka_all.h"

namespace {

// Everything in plain arrays of this process.
class Arrays : public train::Placement {
 public:
  Arrays(const train::Model &model, plain::Weights *exact)
      : weights_(model.tensors.size()), gradients_(model.tensors.size()) {
    const size_t weight_bytes = mxs_dtype_bytes(model.shape.dtype);
    for (size_t t = 0; t < model.tensors.size(); ++t) {
      const train::Tensor &tensor = model.tensors[t];
      if (!tensor.tied_to.empty()) continue;
      std::vector<float> values(tensor.count());
      // Larger than at the start of training, so that softmax and norms are far from flat.
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = (tensor.spread == 0 ? 1.0f : 0.0f) + 0.4f * train::uniform(train::hash_name(tensor.name), i);
      weights_[t].resize(values.size() * weight_bytes);
      train::narrow(model.shape.dtype, values.data(), values.size(), weights_[t].data());
      train::widen(model.shape.dtype, weights_[t].data(), values.size(), values.data());
      (*exact)[tensor.name].assign(values.begin(), values.end());
      gradients_[t].resize(values.size() * mxs_dtype_bytes(model.shape.gradient_dtype));
    }
  }
  const void *weights(int tensor) override { return weights_[tensor].data(); }
  void *gradient(int tensor, bool add) override {
    if (!add) std::fill(gradients_[tensor].begin(), gradients_[tensor].end(), 0x7f);
    return gradients_[tensor].data();
  }
  void reduce(int) override {}
  mxs_verdict step(const mxs_step &) override { return MXS_VERDICT_INIT; }
  void visit_masters(const train::MasterVisitor &) override {}
  mxs_memory counted() override { return MXS_MEMORY_INIT; }
  mxs_memory predicted() override { return MXS_MEMORY_INIT; }

 private:
  std::vector<std::vector<char>> weights_, gradients_;
};

train::Shape tiny_shape(bool tied, mxs_dtype dtype) {
  train::Shape shape;
  shape.layers = 2;
  shape.width = 12;
  shape.heads = 3;
  shape.context = 5;
  shape.sequences = 2;
  shape.tied = tied;
  shape.dtype = shape.gradient_dtype = dtype;
  return shape;
}

double difference_quotient(plain::Weights *weights, double *value, const train::Shape &shape,
                           const train::Batch &batch) {
  const double kept = *value, width = 1e-5;
  *value = kept + width;
  const double above = plain::loss(*weights, shape, batch.inputs, batch.targets);
  *value = kept - width;
  const double below = plain::loss(*weights, shape, batch.inputs, batch.targets);
  *value = kept;
  return (above - below) / (2 * width);
}

// Elements of one tensor, spread over it: |gradient - quotient| beside the largest quotient among them.
bool tensor_agrees(const train::Model &model, int t, train::Placement *placement, plain::Weights *exact,
                   const train::Batch &batch, double tolerance) {
  const train::Tensor &tensor = model.tensors[t];
  std::vector<float> gradient(tensor.count());
  train::widen(model.shape.gradient_dtype, placement->gradient(t, true), gradient.size(), gradient.data());
  std::vector<double> &values = (*exact)[tensor.name];
  double largest = 0, worst = 0;
  for (uint64_t probe = 0; probe < 12; ++probe) {
    // A seen token's row for the embedding; anywhere else for the others.
    uint64_t index = train::mix(t, probe) % tensor.count();
    if (tensor.name == "embedding.token")
      index = static_cast<uint64_t>(batch.inputs[probe % batch.inputs.size()] * tensor.columns()) + probe % 12;
    const double quotient = difference_quotient(exact, &values[index], model.shape, batch);
    largest = std::max(largest, std::abs(quotient));
    worst = std::max(worst, std::abs(quotient - static_cast<double>(gradient[index])));
  }
  if (worst <= tolerance * largest && largest > 0) return true;
  print_error("%s: off by %g where the largest is %g\n", tensor.name.c_str(), worst, largest);
  return false;
}

bool all_agree(const train::Shape &shape, double loss_tolerance, double gradient_tolerance) {
  const train::Model model = train::make_model(shape);
  plain::Weights exact;
  Arrays placement(model, &exact);
  std::vector<uint8_t> text(1000);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<uint8_t>(train::mix(7, i));
  train::Batch batch;
  train::take_batch(text, 1, 2, 3, shape.sequences, shape.context, &batch);
  train::Network network(model, nullptr, 1);
  const double loss = network.train(batch, &placement);
  const double expected = plain::loss(exact, shape, batch.inputs, batch.targets);
  bool good = std::abs(loss - expected) <= loss_tolerance;
  if (!good) print_error("loss %.9g, not %.9g\n", loss, expected);
  for (size_t t = 0; t < model.tensors.size(); ++t)
    if (model.tensors[t].tied_to.empty())
      good &= tensor_agrees(model, static_cast<int>(t), &placement, &exact, batch, gradient_tolerance);
  return good;
}

void loss_and_gradients_are_those_of_the_plain_model(void **) {
  assert_true(all_agree(tiny_shape(false, MXS_F32), 2e-6, 2e-5));
}
void a_tied_heads_gradients_add_up(void **) { assert_true(all_agree(tiny_shape(true, MXS_F32), 2e-6, 2e-5)); }
// bf16 has 8 bits: products of rounded operands, and rounded gradients.
void bf16_is_the_same_model_rounded(void **) { assert_true(all_agree(tiny_shape(false, MXS_BF16), 0.03, 0.06)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(loss_and_gradients_are_those_of_the_plain_model),
      cmocka_unit_test(a_tied_heads_gradients_add_up),
      cmocka_unit_test(bf16_is_the_same_model_rounded),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
