// SPDX-License-Identifier: Apache-2.0
// Headers of safetensors files, one or many, as the tensors of a model.
#include <algorithm>
#include <map>

#include "base/status.hpp"
#include "model/weights.hpp"

namespace mxs {
namespace {

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

size_t digits_end(std::string_view text, size_t place) {
  while (place < text.size() && is_digit(text[place])) ++place;
  return place;
}

// "layers.9" before "layers.10". Headers are sorted by name or by nothing; models are read best in the order of layers.
bool stands_before(std::string_view a, std::string_view b) {
  size_t in_a = 0, in_b = 0;
  while (in_a < a.size() && in_b < b.size()) {
    if (!is_digit(a[in_a]) || !is_digit(b[in_b])) {
      if (a[in_a] != b[in_b]) return a[in_a] < b[in_b];
      ++in_a;
      ++in_b;
      continue;
    }
    const size_t end_a = digits_end(a, in_a), end_b = digits_end(b, in_b);
    std::string_view number_a = a.substr(in_a, end_a - in_a), number_b = b.substr(in_b, end_b - in_b);
    number_a.remove_prefix(std::min(number_a.find_first_not_of('0'), number_a.size()));
    number_b.remove_prefix(std::min(number_b.find_first_not_of('0'), number_b.size()));
    if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
    if (number_a != number_b) return number_a < number_b;
    in_a = end_a;
    in_b = end_b;
  }
  if (a.size() - in_a != b.size() - in_b) return a.size() - in_a < b.size() - in_b;
  return a < b;  // "07" and "7"
}

// Causal masks that GPT-2's files carry: (1, 1, n, n), and what they are filled with.
bool is_mask(const LoadedTensor &tensor) {
  const std::string_view name = tensor.name;
  return (name.ends_with("attn.bias") && tensor.shape.size() == 4) || name.ends_with("attn.masked_bias");
}

void mark_gpt2(LoadedTensor *tensor) {
  const std::string_view name = tensor->name;
  if (tensor->shape.size() != 2) return;
  const bool fused = name.ends_with("attn.c_attn.weight");
  if (!fused && !name.ends_with(".c_proj.weight") && !name.ends_with("mlp.c_fc.weight")) return;
  tensor->transposed = true;
  const int64_t columns = tensor->shape[1];
  if (fused && columns > 0 && columns % 3 == 0) tensor->block_columns = {columns / 3, columns / 3, columns / 3};
}

}  // namespace

mxs_status add_weights(SafetensorsHeader &&header, bool any_dtype, LoadedModel *model) {
  for (SafetensorsEntry &entry : header.entries) {
    if (entry.dtype == 0 && !any_dtype)
      return set_error(MXS_INVALID_ARGUMENT,
                       "tensor \"%.200s\" has the dtype %s, which no plan has; give mxs_model_options.dtype, "
                       "or leave the tensor out of the file",
                       entry.name.c_str(), entry.dtype_word.c_str());
    model->tensors.emplace_back();
    LoadedTensor &tensor = model->tensors.back();
    tensor.name = std::move(entry.name);
    tensor.shape = std::move(entry.shape);
    tensor.dtype = entry.dtype;
  }
  return MXS_OK;
}

void arrange_weights(const std::string &kind, LoadedModel *model) {
  model->kind = kind.empty() ? "safetensors" : kind;
  if (kind == "gpt2") {
    const size_t masks = std::erase_if(model->tensors, is_mask);
    for (LoadedTensor &tensor : model->tensors) mark_gpt2(&tensor);
    model->notes.push_back(
        "gpt2 by its config.json: weights are stored (in, out), and q, k, v are columns of c_attn");
    if (masks > 0) model->notes.push_back(counted(masks, "causal mask").append(" of attention left out"));
  }
  std::sort(model->tensors.begin(), model->tensors.end(), [](const LoadedTensor &a, const LoadedTensor &b) {
    return stands_before(a.name, b.name);
  });
}

}  // namespace mxs
