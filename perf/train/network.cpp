// SPDX-License-Identifier: Apache-2.0
// In which order does a micro-batch go through the units, and which products are taken on the way?
//
//   forward   unit 0, 1, ... ; the next one is gathered while this one computes
//   head      forward and backward in one hold
//   backward  the blocks from the last to the first, unit 0; again the next one is gathered ahead
//
// Weights are (out, in): y = x W^T, dx = dy W, dW = dy^T x.
#include "network.hpp"

#include <cmath>
#include <vector>

#include "check.hpp"
#include "layers.hpp"

namespace train {
namespace {

// An array in the operands' dtype.
class Operand {
 public:
  Operand() = default;
  Operand(mxs_dtype dtype, uint64_t count) : bytes_(count * mxs_dtype_bytes(dtype)) {}
  void *data() { return bytes_.data(); }
  uint64_t bytes() const { return bytes_.size(); }

 private:
  std::vector<char> bytes_;
};

// What a block's backward needs of its forward.
struct BlockState {
  std::vector<float> x, x_middle, hidden;  // block's input; after attention; before GELU
  std::vector<float> inverse1, inverse2;
  Operand normed1, normed2, q, k, v, softmax, attended, activated;
};

}  // namespace

struct Network::Inner {
  const Model &model;
  const Shape shape;
  mxs_comm *comm;
  Matmul matmul;
  const mxs_dtype dtype;
  const int64_t rows, width;
  const Heads heads;

  std::vector<BlockState> blocks;
  std::vector<float> x, x_gradient, wide, band, scores, logits, token_gradient, position_gradient, gain_gradient;
  std::vector<float> head_inverse;
  Operand head_normed, logits_gradient, row_operand, wide_operand, band_operand, head_operand, scores_operand;

  Inner(const Model &model, mxs_comm *comm, int thread_count);

  void phase(int phase) {
    if (comm != nullptr) check(mxs_comm_phase(comm, phase), "mxs_comm_phase");
  }

  // y = x W^T
  void forward_product(void *x, const void *weights, int64_t in, int64_t out, std::vector<float> *y) {
    const Product product{1, rows, out, in, As::stored, As::transposed, dtype, MXS_F32};
    matmul.multiply(product, x, weights, y->data());
  }
  // dx = dy W
  void input_gradient(void *dy, const void *weights, int64_t in, int64_t out, std::vector<float> *dx) {
    const Product product{1, rows, in, out, As::stored, As::stored, dtype, MXS_F32};
    matmul.multiply(product, dy, weights, dx->data());
  }
  // dW = dy^T x, in the gradient's dtype
  void weight_gradient(void *dy, void *x, int64_t in, int64_t out, void *gradient) {
    const Product product{1, out, in, rows, As::transposed, As::stored, dtype, shape.gradient_dtype};
    matmul.multiply(product, dy, x, gradient);
  }
  void head_product(int64_t out, int64_t depth, As left, As right, int64_t result_rows, void *a, void *b,
                    std::vector<float> *c) {
    const Product product{heads.matrices(), result_rows, out, depth, left, right, dtype, MXS_F32};
    matmul.multiply(product, a, b, c->data());
  }
  void give_gain_gradient(Placement *placement, int tensor) {
    narrow(shape.gradient_dtype, gain_gradient.data(), width, placement->gradient(tensor, false));
  }

  void block_forward(int block, Placement *placement);
  void block_backward(int block, Placement *placement);
  void attention_forward(BlockState *state);
  void attention_backward(BlockState *state);
  double head(const Batch &batch, Placement *placement);
  void give_token_gradient(Placement *placement);
  double train(const Batch &batch, Placement *placement);
  uint64_t bytes() const;
};

Network::Inner::Inner(const Model &model_in, mxs_comm *comm_in, int thread_count)
    : model(model_in), shape(model_in.shape), comm(comm_in), matmul(thread_count), dtype(shape.dtype),
      rows(shape.tokens()), width(shape.width),
      heads{shape.sequences, shape.context, shape.heads, shape.head_width()} {
  const uint64_t row = rows * width, wide_row = 4 * row, square = heads.matrices() * shape.context * shape.context;
  blocks.resize(shape.layers);
  for (BlockState &state : blocks) {
    state.x.resize(row);
    state.x_middle.resize(row);
    state.hidden.resize(wide_row);
    state.inverse1.resize(rows);
    state.inverse2.resize(rows);
    for (Operand *operand : {&state.normed1, &state.normed2, &state.q, &state.k, &state.v, &state.attended})
      *operand = Operand(dtype, row);
    state.softmax = Operand(dtype, square);
    state.activated = Operand(dtype, wide_row);
  }
  for (auto *array : {&x, &x_gradient, &band}) array->resize(row);
  wide.resize(wide_row);
  scores.resize(square);
  logits.resize(rows * vocabulary);
  token_gradient.resize(vocabulary * width);
  position_gradient.resize(shape.context * width);
  gain_gradient.resize(width);
  head_inverse.resize(rows);
  head_normed = Operand(dtype, row);
  logits_gradient = Operand(dtype, rows * vocabulary);
  for (Operand *operand : {&row_operand, &head_operand}) *operand = Operand(dtype, row);
  wide_operand = Operand(dtype, wide_row);
  band_operand = Operand(dtype, 3 * row);
  scores_operand = Operand(dtype, square);
}

void Network::Inner::attention_forward(BlockState *state) {
  const int64_t context = shape.context, head_width = heads.head_width;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_width));
  split_heads(dtype, heads, wide.data(), 3 * width, 0, scale, state->q.data());
  split_heads(dtype, heads, wide.data(), 3 * width, width, 1.0f, state->k.data());
  split_heads(dtype, heads, wide.data(), 3 * width, 2 * width, 1.0f, state->v.data());
  head_product(context, head_width, As::stored, As::transposed, context, state->q.data(), state->k.data(), &scores);
  causal_softmax(dtype, scores.data(), heads.matrices(), context, state->softmax.data());
  head_product(head_width, context, As::stored, As::stored, context, state->softmax.data(), state->v.data(), &band);
  merge_heads(dtype, heads, band.data(), 1.0f, width, 0, state->attended.data());
}

void Network::Inner::block_forward(int block, Placement *placement) {
  const BlockTensors &tensors = model.blocks[block];
  BlockState &state = blocks[block];
  state.x = x;
  rms_norm(dtype, x.data(), placement->weights(tensors.norm1), rows, width, state.normed1.data(),
           state.inverse1.data());
  forward_product(state.normed1.data(), placement->weights(tensors.qkv), width, 3 * width, &wide);
  attention_forward(&state);
  forward_product(state.attended.data(), placement->weights(tensors.projection), width, width, &band);
  add(band.data(), band.size(), x.data());

  state.x_middle = x;
  rms_norm(dtype, x.data(), placement->weights(tensors.norm2), rows, width, state.normed2.data(),
           state.inverse2.data());
  forward_product(state.normed2.data(), placement->weights(tensors.up), width, 4 * width, &state.hidden);
  gelu(dtype, state.hidden.data(), state.hidden.size(), state.activated.data());
  forward_product(state.activated.data(), placement->weights(tensors.down), 4 * width, width, &band);
  add(band.data(), band.size(), x.data());
}

// From the gradient of what was attended (in `band`) to that of qkv (in band_operand).
void Network::Inner::attention_backward(BlockState *state) {
  const int64_t context = shape.context, head_width = heads.head_width;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_width));
  split_heads(dtype, heads, band.data(), width, 0, 1.0f, head_operand.data());
  head_product(head_width, context, As::transposed, As::stored, context, state->softmax.data(), head_operand.data(),
               &band);
  merge_heads(dtype, heads, band.data(), 1.0f, 3 * width, 2 * width, band_operand.data());
  head_product(context, head_width, As::stored, As::transposed, context, head_operand.data(), state->v.data(),
               &scores);
  causal_softmax_backward(dtype, state->softmax.data(), scores.data(), heads.matrices(), context,
                          scores_operand.data());
  head_product(head_width, context, As::stored, As::stored, context, scores_operand.data(), state->k.data(), &band);
  merge_heads(dtype, heads, band.data(), scale, 3 * width, 0, band_operand.data());
  // q was stored scaled, so k's gradient needs no scale of its own.
  head_product(head_width, context, As::transposed, As::stored, context, scores_operand.data(), state->q.data(),
               &band);
  merge_heads(dtype, heads, band.data(), 1.0f, 3 * width, width, band_operand.data());
}

void Network::Inner::block_backward(int block, Placement *placement) {
  const BlockTensors &tensors = model.blocks[block];
  BlockState &state = blocks[block];
  narrow(dtype, x_gradient.data(), x_gradient.size(), row_operand.data());
  weight_gradient(row_operand.data(), state.activated.data(), 4 * width, width,
                  placement->gradient(tensors.down, false));
  input_gradient(row_operand.data(), placement->weights(tensors.down), 4 * width, width, &wide);
  gelu_backward(dtype, state.hidden.data(), wide.data(), state.hidden.size(), wide_operand.data());
  weight_gradient(wide_operand.data(), state.normed2.data(), width, 4 * width, placement->gradient(tensors.up, false));
  input_gradient(wide_operand.data(), placement->weights(tensors.up), width, 4 * width, &band);
  rms_norm_backward(dtype, band.data(), state.x_middle.data(), placement->weights(tensors.norm2),
                    state.inverse2.data(), rows, width, x_gradient.data(), gain_gradient.data());
  give_gain_gradient(placement, tensors.norm2);

  narrow(dtype, x_gradient.data(), x_gradient.size(), row_operand.data());
  weight_gradient(row_operand.data(), state.attended.data(), width, width,
                  placement->gradient(tensors.projection, false));
  input_gradient(row_operand.data(), placement->weights(tensors.projection), width, width, &band);
  attention_backward(&state);
  weight_gradient(band_operand.data(), state.normed1.data(), width, 3 * width,
                  placement->gradient(tensors.qkv, false));
  input_gradient(band_operand.data(), placement->weights(tensors.qkv), width, 3 * width, &band);
  rms_norm_backward(dtype, band.data(), state.x.data(), placement->weights(tensors.norm1), state.inverse1.data(), rows,
                    width, x_gradient.data(), gain_gradient.data());
  give_gain_gradient(placement, tensors.norm1);
}

// Loss, and the gradient of the last block's output into x_gradient.
double Network::Inner::head(const Batch &batch, Placement *placement) {
  rms_norm(dtype, x.data(), placement->weights(model.head_norm), rows, width, head_normed.data(),
           head_inverse.data());
  forward_product(head_normed.data(), placement->weights(model.head), width, vocabulary, &logits);
  const double loss =
      cross_entropy(dtype, logits.data(), batch.targets.data(), rows, vocabulary, logits_gradient.data());
  phase(MXS_PHASE_BACKWARD);
  weight_gradient(logits_gradient.data(), head_normed.data(), width, vocabulary,
                  placement->gradient(model.head, false));
  input_gradient(logits_gradient.data(), placement->weights(model.head), width, vocabulary, &band);
  std::fill(x_gradient.begin(), x_gradient.end(), 0.0f);
  rms_norm_backward(dtype, band.data(), x.data(), placement->weights(model.head_norm), head_inverse.data(), rows,
                    width, x_gradient.data(), gain_gradient.data());
  give_gain_gradient(placement, model.head_norm);
  return loss;
}

// Tied, the head has written its part already: this one is added to it.
void Network::Inner::give_token_gradient(Placement *placement) {
  void *gradient = placement->gradient(model.token_embedding, shape.tied);
  if (shape.tied) {
    std::vector<float> written(token_gradient.size());
    widen(shape.gradient_dtype, gradient, written.size(), written.data());
    add(written.data(), written.size(), token_gradient.data());
  }
  narrow(shape.gradient_dtype, token_gradient.data(), token_gradient.size(), gradient);
}

double Network::Inner::train(const Batch &batch, Placement *placement) {
  const int layers = static_cast<int>(shape.layers);
  phase(MXS_PHASE_FORWARD);
  placement->gather(0);
  placement->gather(1);
  placement->wait(0);
  embed(dtype, batch.inputs.data(), rows, shape.context, width, placement->weights(model.token_embedding),
        placement->weights(model.position_embedding), x.data());
  placement->release(0, true);
  for (int block = 0; block < layers; ++block) {
    placement->gather(block + 1 < layers ? block + 2 : model.head_unit);
    placement->wait(block + 1);
    block_forward(block, placement);
    placement->release(block + 1, true);
  }

  phase(MXS_PHASE_BACKWARD);  // whose the gather ahead is
  placement->gather(layers);
  phase(MXS_PHASE_FORWARD);
  placement->wait(model.head_unit);
  const double loss = head(batch, placement);
  if (model.head_unit != 0) placement->reduce(model.head_unit);
  placement->release(model.head_unit, false);

  for (int block = layers - 1; block >= 0; --block) {
    if (block > 0) placement->gather(block);
    placement->wait(block + 1);
    block_backward(block, placement);
    placement->reduce(block + 1);
    placement->release(block + 1, false);
  }
  // The embedding's gradient doesn't depend on its weights: unit 0 needn't be gathered again.
  embed_backward(batch.inputs.data(), rows, shape.context, width, x_gradient.data(), token_gradient.data(),
                 position_gradient.data());
  give_token_gradient(placement);
  narrow(shape.gradient_dtype, position_gradient.data(), position_gradient.size(),
         placement->gradient(model.position_embedding, false));
  placement->reduce(0);
  phase(MXS_PHASE_OTHER);
  return loss;
}

uint64_t Network::Inner::bytes() const {
  uint64_t floats = 0, operands = 0;
  for (const BlockState &state : blocks) {
    for (const auto *array : {&state.x, &state.x_middle, &state.hidden, &state.inverse1, &state.inverse2})
      floats += array->size();
    for (const Operand *operand : {&state.normed1, &state.normed2, &state.q, &state.k, &state.v, &state.softmax,
                                   &state.attended, &state.activated})
      operands += operand->bytes();
  }
  for (const auto *array : {&x, &x_gradient, &wide, &band, &scores, &logits, &token_gradient, &position_gradient,
                            &gain_gradient, &head_inverse})
    floats += array->size();
  for (const Operand *operand : {&head_normed, &logits_gradient, &row_operand, &wide_operand, &band_operand,
                                 &head_operand, &scores_operand})
    operands += operand->bytes();
  return floats * sizeof(float) + operands + matmul.scratch_bytes();
}

Network::Network(const Model &model, mxs_comm *comm, int thread_count)
    : inner_(std::make_unique<Inner>(model, comm, thread_count)) {}

void Network::use(mxs_comm *comm) { inner_->comm = comm; }
Network::~Network() = default;

double Network::train(const Batch &batch, Placement *placement) { return inner_->train(batch, placement); }
uint64_t Network::activation_bytes() const { return inner_->bytes(); }
mxs_dtype Network::product_dtype() const { return inner_->matmul.multiplied_in(inner_->dtype); }

}  // namespace train
