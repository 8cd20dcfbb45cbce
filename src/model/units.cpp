// SPDX-License-Identifier: Apache-2.0
// Units: the layers that names count, what comes before the first and what comes after the last.
//
//   model.embed_tokens.weight            unit 0: before
//   model.layers.0.self_attn.q_proj...   unit 1: "model.layers.0"
//   model.layers.1. ...                  unit 2
//   model.norm.weight, lm_head.weight    unit 3: after
//
// Names decide what is before and after where they can; else the order does. Several stacks of layers (an encoder and a
// decoder) stand in the order of their first layers. No layers at all: one unit.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "model/model.hpp"

namespace mxs {
namespace {

constexpr std::string_view names_before[] = {"embed_tokens", "wte", "wpe", "embed", "embedding", "embeddings",
                                             "word_embeddings", "position_embeddings", "token_type_embeddings",
                                             "tok_embeddings", "embed_in", "pos_embed", "patch_embed"};
constexpr std::string_view names_after[] = {"norm", "ln_f", "lm_head", "head", "output", "embed_out", "final_layernorm",
                                            "final_layer_norm", "score", "classifier"};

bool is_number(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), [](char letter) {
    return letter >= '0' && letter <= '9';
  });
}

template <class Names>
bool has_part(std::string_view name, const Names &wanted) {
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (std::find(std::begin(wanted), std::end(wanted), part) != std::end(wanted)) return true;
    begin = end + 1;
  }
  return false;
}

// "7" before "10", whatever their lengths: fewer digits first, then by digit. Leading zeros don't count, but "7" and
// "07" are two layers.
struct ByNumber {
  bool operator()(std::string_view a, std::string_view b) const {
    const std::string_view digits_a = a.substr(std::min(a.find_first_not_of('0'), a.size()));
    const std::string_view digits_b = b.substr(std::min(b.find_first_not_of('0'), b.size()));
    if (digits_a.size() != digits_b.size()) return digits_a.size() < digits_b.size();
    return digits_a != digits_b ? digits_a < digits_b : a < b;
  }
};

// "model.layers." and its layers: number -> name of the layer.
struct Stack {
  std::map<std::string, std::string, ByNumber> layers;
};

struct Stacks {
  std::vector<Stack> stacks;
  std::unordered_map<std::string, size_t> index_of_prefix;

  Stack &of(const std::string &prefix) {
    const auto [place, is_new] = index_of_prefix.emplace(prefix, stacks.size());
    if (is_new) stacks.emplace_back();
    return stacks[place->second];
  }
};

size_t number_begin(std::string_view layer) {
  const size_t dot = layer.rfind('.');
  return dot == std::string_view::npos ? 0 : dot + 1;
}

// The largest tensor gives a unit without a layer its name: "model.embed_tokens", "lm_head".
void name_after_largest(LoadedModel *model, int unit) {
  const LoadedTensor *largest = nullptr;
  double elements_of_largest = -1;
  for (const LoadedTensor &tensor : model->tensors) {
    if (tensor.unit != unit) continue;
    double elements = 1;
    for (const int64_t side : tensor.shape) elements *= static_cast<double>(side);
    if (elements <= elements_of_largest) continue;
    largest = &tensor;
    elements_of_largest = elements;
  }
  if (!largest) return;
  constexpr std::string_view ending = ".weight";
  std::string name = largest->name;
  if (name.size() > ending.size() && name.ends_with(ending)) name.resize(name.size() - ending.size());
  model->unit_names[static_cast<size_t>(unit)] = std::move(name);
}

void number_units(LoadedModel *model, const std::vector<int> &sides, const Stacks &stacks) {
  const bool has_before = std::find(sides.begin(), sides.end(), -1) != sides.end();
  const bool has_after = std::find(sides.begin(), sides.end(), 1) != sides.end();
  std::unordered_map<std::string_view, int> unit_of_layer;
  if (has_before) model->unit_names.emplace_back();
  for (const Stack &stack : stacks.stacks)
    for (const auto &[number, layer] : stack.layers) {
      unit_of_layer.emplace(layer, static_cast<int>(model->unit_names.size()));
      model->unit_names.push_back(layer);
    }
  if (has_after) model->unit_names.emplace_back();
  const int last = static_cast<int>(model->unit_names.size()) - 1;
  for (size_t index = 0; index < sides.size(); ++index) {
    LoadedTensor &tensor = model->tensors[index];
    const std::string_view name = tensor.name;
    tensor.unit = sides[index] < 0 ? 0 : sides[index] > 0 ? last
                                       : unit_of_layer.at(name.substr(0, layer_prefix_bytes(name)));
  }
  if (has_before) name_after_largest(model, 0);
  if (has_after) name_after_largest(model, last);
}

// A tied tensor is where its bytes are.
void follow_ties(LoadedModel *model) {
  std::unordered_map<std::string_view, int> unit_of_name;
  for (const LoadedTensor &tensor : model->tensors) unit_of_name.emplace(tensor.name, tensor.unit);
  for (LoadedTensor &tensor : model->tensors)
    if (const auto found = unit_of_name.find(tensor.tied_to); found != unit_of_name.end()) tensor.unit = found->second;
}

}  // namespace

size_t layer_prefix_bytes(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = name.find('.', begin);
    if (end == std::string_view::npos) return 0;  // the last part numbers a tensor, not a layer
    if (is_number(name.substr(begin, end - begin))) return end;
    begin = end + 1;
  }
  return 0;
}

void assign_units(LoadedModel *model) {
  Stacks stacks;
  std::vector<int> sides(model->tensors.size(), 0);  // -1: before, 0: in a layer, 1: after
  for (size_t index = 0; index < sides.size(); ++index) {
    const std::string &name = model->tensors[index].name;
    const size_t bytes = layer_prefix_bytes(name);
    if (bytes > 0) {
      const std::string layer = name.substr(0, bytes);
      const size_t number = number_begin(layer);
      stacks.of(layer.substr(0, number)).layers.emplace(layer.substr(number), layer);
    } else if (has_part(name, names_before)) {
      sides[index] = -1;
    } else {
      sides[index] = has_part(name, names_after) || !stacks.stacks.empty() ? 1 : -1;
    }
  }
  if (stacks.stacks.empty()) {
    model->unit_names.assign(1, "model");
    for (LoadedTensor &tensor : model->tensors) tensor.unit = 0;
    return;
  }
  number_units(model, sides, stacks);
  follow_ties(model);
}

}  // namespace mxs
