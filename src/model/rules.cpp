// SPDX-License-Identifier: Apache-2.0
// Rules: the caller's patterns first, then what the file says, then by name and shape:
//
//   embeddings and heads                 adamw     by name
//   routers of experts                   adamw     by name
//   norms, biases, one dimension, four   adamw     by name and shape
//   buffers, dtypes that no rule steps   frozen
//   matrices, stacks of matrices         matrix_rule
#include <algorithm>

#include "base/status.hpp"
#include "model/model.hpp"

namespace mxs {
namespace {

constexpr std::string_view embedding_names[] = {
    "embed_tokens", "wte", "wpe", "embed", "embedding", "embeddings", "word_embeddings", "position_embeddings",
    "token_type_embeddings", "tok_embeddings", "embed_in", "pos_embed", "lm_head", "head", "embed_out"};
constexpr std::string_view router_names[] = {"gate", "router", "shared_expert_gate"};
constexpr std::string_view buffer_names[] = {"inv_freq", "position_ids", "masked_bias"};

enum Kind { matrix, embedding, router, vector, buffer, unsteppable, kind_count };

// The part that names a module: of "mlp.gate.weight" it is "gate", of "wte" itself.
std::string_view module_of(std::string_view name) {
  for (const std::string_view ending : {".weight", ".bias"})
    if (name.size() > ending.size() && name.ends_with(ending)) name.remove_suffix(ending.size());
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

template <class Names>
bool is_one_of(std::string_view word, const Names &names) {
  return std::find(std::begin(names), std::end(names), word) != std::end(names);
}

bool is_vector_by_name(std::string_view name) {
  const std::string_view module = module_of(name);
  return name.ends_with("bias") || module.find("norm") != std::string_view::npos || module.starts_with("ln_") ||
         module.find("conv") != std::string_view::npos;
}

bool is_matrix_by_shape(const std::vector<int64_t> &shape) {
  if (shape.size() != 2 && shape.size() != 3) return false;
  return shape[shape.size() - 2] > 1 && shape.back() > 1;
}

Kind kind_of(const LoadedTensor &tensor) {
  if (is_one_of(module_of(tensor.name), buffer_names)) return buffer;
  if (tensor.dtype == MXS_U8 || tensor.dtype == MXS_F64) return unsteppable;
  if (is_one_of(module_of(tensor.name), embedding_names)) return embedding;
  if (tensor.name == "output.weight") return embedding;  // the head, where the embedding is tok_embeddings
  const bool is_matrix = is_matrix_by_shape(tensor.shape) && !is_vector_by_name(tensor.name);
  if (is_matrix && is_one_of(module_of(tensor.name), router_names)) return router;
  if (tensor.role == MXS_ROLE_TAIL || tensor.role == MXS_ROLE_FLAT) return vector;
  return is_matrix ? matrix : vector;
}

const ModelRule *first_match(const std::vector<ModelRule> &rules, const std::string &name, std::vector<char> *matched,
                             std::vector<char> *used) {
  const ModelRule *first = nullptr;
  for (size_t index = 0; index < rules.size(); ++index) {
    if ((first && (*matched)[index]) || !pattern_matches(rules[index].pattern, name)) continue;
    (*matched)[index] = 1;
    if (first) continue;
    first = &rules[index];
    (*used)[index] = 1;
  }
  return first;
}

void add_kind_notes(const size_t (&counts)[kind_count], LoadedModel *model) {
  const auto note = [&](Kind kind, const char *what, const char *rule) {
    if (counts[kind] > 0)
      model->notes.push_back(
          std::string(what).append(" (").append(counted(counts[kind], "tensor")).append(") get ").append(rule));
  };
  note(embedding, "embeddings and heads", "adamw");
  note(router, "routers of experts", "adamw");
  note(vector, "norms, biases and whatever else is no matrix", "adamw");
  note(buffer, "buffers that no optimizer steps", "frozen");
  note(unsteppable, "tensors of a dtype that no rule steps", "frozen");
}

mxs_status check_patterns(const std::vector<ModelRule> &rules, const std::vector<char> &matched,
                          const std::vector<char> &used, LoadedModel *model) {
  for (size_t index = 0; index < rules.size(); ++index) {
    const char *pattern = rules[index].pattern.c_str();
    if (!matched[index])
      return set_error(MXS_NOT_FOUND,
                       "rules[%zu]: the pattern \"%.200s\" matches none of %zu tensors, such as \"%.200s\"", index,
                       pattern, model->tensors.size(), model->tensors.front().name.c_str());
    if (!used[index])
      model->notes.push_back(std::string("the pattern \"").append(pattern)
                                 .append("\" changes nothing: patterns before it match all of its tensors"));
  }
  return MXS_OK;
}

}  // namespace

mxs_status assign_rules(const ModelSettings &settings, LoadedModel *model) {
  std::vector<char> matched(settings.rules.size(), 0), used(settings.rules.size(), 0);
  size_t counts[kind_count] = {};
  for (LoadedTensor &tensor : model->tensors) {
    if (const ModelRule *rule = first_match(settings.rules, tensor.name, &matched, &used)) {
      tensor.rule = rule->rule;
      tensor.group = rule->group;
    }
    if (tensor.rule != MXS_RULE_AUTO || !tensor.tied_to.empty()) continue;
    const Kind kind = kind_of(tensor);
    ++counts[kind];
    tensor.rule = kind == matrix                            ? settings.matrix_rule
                  : kind == buffer || kind == unsteppable ? MXS_RULE_FROZEN
                                                          : MXS_RULE_ADAMW;
  }
  add_kind_notes(counts, model);
  return check_patterns(settings.rules, matched, used, model);
}

}  // namespace mxs
