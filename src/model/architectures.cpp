// SPDX-License-Identifier: Apache-2.0
// Architectures: from the keys of a configuration to the names and shapes of Hugging Face's parameters.
//
//   llama, mistral, qwen2, qwen3   one decoder: q k v o, a gated MLP; they differ in biases and norms
//   gpt2                           weights stored (in, out); q k v are columns of one
//   deepseek_v3                    latent attention; some dense layers, then experts, each a tensor of its own
#include "base/status.hpp"
#include "model/config.hpp"

namespace mxs {
namespace {

// Adds tensors whose names begin alike.
class Writer {
 public:
  Writer(LoadedModel *model, std::string prefix) : model_(model), prefix_(std::move(prefix)) {}

  LoadedTensor &add(const std::string &name, std::vector<int64_t> shape) const {
    model_->tensors.emplace_back();
    LoadedTensor &tensor = model_->tensors.back();
    tensor.name = prefix_ + name;
    tensor.shape = std::move(shape);
    return tensor;
  }
  // A linear map as torch.nn.Linear stores it: (out, in).
  void linear(const std::string &name, int64_t out, int64_t in, bool bias = false) const {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  }
  // As GPT-2's Conv1D stores it: (in, out), always with a bias.
  LoadedTensor &transposed(const std::string &name, int64_t in, int64_t out) const {
    add(name + ".weight", {in, out}).transposed = true;
    add(name + ".bias", {out});
    return model_->tensors[model_->tensors.size() - 2];
  }
  void norm(const std::string &name, int64_t width) const { add(name + ".weight", {width}); }

 private:
  LoadedModel *model_;
  std::string prefix_;
};

std::string numbered(const char *name, int64_t number) {
  return std::string(name).append(std::to_string(number)).append(".");
}

mxs_status check_tensor_count(const char *key, int64_t layers, int64_t tensors_of_layer) {
  if (tensors_of_layer <= static_cast<int64_t>(tensor_count_max) &&
      layers * tensors_of_layer <= static_cast<int64_t>(tensor_count_max))
    return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "%s makes more than %zu tensors", key, tensor_count_max);
}

void add_head(const Writer &writer, bool tied, const char *embedding, int64_t rows, int64_t columns,
              LoadedModel *model) {
  if (!tied)
    writer.linear("lm_head", rows, columns);
  else
    model->notes.push_back(std::string("lm_head is tied to ").append(embedding)
                               .append(" and left out: its bytes are there once"));
}

// ---- llama, mistral, qwen2, qwen3 ----

struct Decoder {
  int64_t vocabulary, hidden, inner, layers, heads, head_width = 0, key_value_heads = 0;
  bool tied, qkv_bias = false, output_bias = false, inner_bias = false, head_norms = false;
};

Decoder read_decoder(const Config &config) {
  Decoder decoder;
  decoder.vocabulary = config.count("vocab_size");
  decoder.hidden = config.count("hidden_size");
  decoder.inner = config.count("intermediate_size");
  decoder.layers = config.count("num_hidden_layers");
  decoder.heads = config.count("num_attention_heads");
  decoder.tied = config.flag("tie_word_embeddings", false);
  return decoder;
}

void read_head_width(const Config &config, Decoder *decoder) {
  decoder->head_width = config.count_or("head_dim", decoder->hidden / decoder->heads);
  if (!config.has("head_dim") && decoder->hidden % decoder->heads != 0)
    config.wrong("num_attention_heads", "doesn't divide hidden_size, and there is no head_dim");
}

void add_decoder_layer(const Decoder &decoder, int64_t layer, LoadedModel *model) {
  const Writer writer(model, numbered("model.layers.", layer));
  const int64_t query_rows = decoder.heads * decoder.head_width;
  const int64_t key_rows = decoder.key_value_heads * decoder.head_width;
  writer.linear("self_attn.q_proj", query_rows, decoder.hidden, decoder.qkv_bias);
  writer.linear("self_attn.k_proj", key_rows, decoder.hidden, decoder.qkv_bias);
  writer.linear("self_attn.v_proj", key_rows, decoder.hidden, decoder.qkv_bias);
  writer.linear("self_attn.o_proj", decoder.hidden, query_rows, decoder.output_bias);
  if (decoder.head_norms) {
    writer.norm("self_attn.q_norm", decoder.head_width);
    writer.norm("self_attn.k_norm", decoder.head_width);
  }
  writer.linear("mlp.gate_proj", decoder.inner, decoder.hidden, decoder.inner_bias);
  writer.linear("mlp.up_proj", decoder.inner, decoder.hidden, decoder.inner_bias);
  writer.linear("mlp.down_proj", decoder.hidden, decoder.inner, decoder.inner_bias);
  writer.norm("input_layernorm", decoder.hidden);
  writer.norm("post_attention_layernorm", decoder.hidden);
}

mxs_status add_decoder(const Config &config, const Decoder &decoder, LoadedModel *model) {
  mxs_status status = config.status();
  if (status == MXS_OK) status = check_tensor_count("num_hidden_layers", decoder.layers, 18);
  if (status != MXS_OK) return status;
  const Writer writer(model, "");
  writer.add("model.embed_tokens.weight", {decoder.vocabulary, decoder.hidden});
  for (int64_t layer = 0; layer < decoder.layers; ++layer) add_decoder_layer(decoder, layer, model);
  writer.norm("model.norm", decoder.hidden);
  add_head(writer, decoder.tied, "model.embed_tokens", decoder.vocabulary, decoder.hidden, model);
  return MXS_OK;
}

mxs_status build_llama(const Config &config, LoadedModel *model) {
  Decoder decoder = read_decoder(config);
  read_head_width(config, &decoder);
  decoder.key_value_heads = config.count_or("num_key_value_heads", decoder.heads);
  decoder.qkv_bias = decoder.output_bias = config.flag("attention_bias", false);
  decoder.inner_bias = config.flag("mlp_bias", false);
  return add_decoder(config, decoder, model);
}

mxs_status build_mistral(const Config &config, LoadedModel *model) {
  Decoder decoder = read_decoder(config);
  read_head_width(config, &decoder);
  decoder.key_value_heads = config.count("num_key_value_heads");
  return add_decoder(config, decoder, model);
}

mxs_status build_qwen2(const Config &config, LoadedModel *model) {
  Decoder decoder = read_decoder(config);
  read_head_width(config, &decoder);
  decoder.key_value_heads = config.count("num_key_value_heads");
  decoder.qkv_bias = true;
  return add_decoder(config, decoder, model);
}

mxs_status build_qwen3(const Config &config, LoadedModel *model) {
  Decoder decoder = read_decoder(config);
  decoder.head_width = config.count("head_dim");  // not hidden_size by heads in most of them
  decoder.key_value_heads = config.count("num_key_value_heads");
  decoder.qkv_bias = decoder.output_bias = config.flag("attention_bias", false);
  decoder.head_norms = true;
  return add_decoder(config, decoder, model);
}

// ---- gpt2 ----

void add_gpt2_layer(int64_t layer, int64_t width, int64_t inner, LoadedModel *model) {
  const Writer writer(model, numbered("transformer.h.", layer));
  const auto norm = [&](const std::string &name) {
    writer.norm(name, width);
    writer.add(name + ".bias", {width});
  };
  norm("ln_1");
  writer.transposed("attn.c_attn", width, 3 * width).block_columns = {width, width, width};
  writer.transposed("attn.c_proj", width, width);
  norm("ln_2");
  writer.transposed("mlp.c_fc", width, inner);
  writer.transposed("mlp.c_proj", inner, width);
}

mxs_status build_gpt2(const Config &config, LoadedModel *model) {
  const int64_t vocabulary = config.count("vocab_size"), width = config.count("n_embd");
  const int64_t layers = config.count("n_layer"), positions = config.count("n_positions");
  const int64_t inner = config.count_or("n_inner", 4 * width);
  const bool tied = config.flag("tie_word_embeddings", true);
  if (config.flag("add_cross_attention", false))
    return set_error(MXS_NOT_BUILT, "add_cross_attention is true: GPT-2 as a decoder of another model isn't known");
  mxs_status status = config.status();
  if (status == MXS_OK) status = check_tensor_count("n_layer", layers, 12);
  if (status != MXS_OK) return status;
  const Writer writer(model, "");
  writer.add("transformer.wte.weight", {vocabulary, width});
  writer.add("transformer.wpe.weight", {positions, width});
  for (int64_t layer = 0; layer < layers; ++layer) add_gpt2_layer(layer, width, inner, model);
  writer.norm("transformer.ln_f", width);
  writer.add("transformer.ln_f.bias", {width});
  add_head(writer, tied, "transformer.wte", vocabulary, width, model);
  model->notes.push_back("weights of gpt2 are stored (in, out), and q, k, v are columns of c_attn");
  return MXS_OK;
}

// ---- deepseek_v3 ----

struct Latent {
  int64_t vocabulary, hidden, inner, expert_inner, layers, heads, query_rank = 0, key_value_rank;
  int64_t plain_width, rotary_width, value_width;  // of a head: without and with positions; of its values
  int64_t dense_layers, layer_step, experts, shared_experts;
  bool tied, bias, correction;
};

Latent read_latent(const Config &config) {
  Latent latent;
  latent.vocabulary = config.count("vocab_size");
  latent.hidden = config.count("hidden_size");
  latent.inner = config.count("intermediate_size");
  latent.expert_inner = config.count("moe_intermediate_size");
  latent.layers = config.count("num_hidden_layers");
  latent.heads = config.count("num_attention_heads");
  if (config.has("q_lora_rank")) latent.query_rank = config.count("q_lora_rank");
  latent.key_value_rank = config.count("kv_lora_rank");
  latent.plain_width = config.count("qk_nope_head_dim");
  latent.rotary_width = config.count("qk_rope_head_dim");
  latent.value_width = config.count("v_head_dim");
  latent.dense_layers = config.whole_number("first_k_dense_replace", 0);
  latent.layer_step = config.count_or("moe_layer_freq", 1);
  latent.experts = config.count("n_routed_experts");
  latent.shared_experts = config.has("n_shared_experts") ? config.whole_number("n_shared_experts", 0) : 0;
  latent.tied = config.flag("tie_word_embeddings", false);
  latent.bias = config.flag("attention_bias", false);
  const std::string method = config.text("topk_method");
  latent.correction = method.empty() || method == "noaux_tc";
  return latent;
}

void add_gated(const Writer &writer, const std::string &name, int64_t inner, int64_t hidden) {
  writer.linear(name + "gate_proj", inner, hidden);
  writer.linear(name + "up_proj", inner, hidden);
  writer.linear(name + "down_proj", hidden, inner);
}

void add_latent_attention(const Latent &latent, const Writer &writer) {
  const int64_t query_rows = latent.heads * (latent.plain_width + latent.rotary_width);
  if (latent.query_rank > 0) {
    writer.linear("self_attn.q_a_proj", latent.query_rank, latent.hidden, latent.bias);
    writer.norm("self_attn.q_a_layernorm", latent.query_rank);
    writer.linear("self_attn.q_b_proj", query_rows, latent.query_rank);
  } else {
    writer.linear("self_attn.q_proj", query_rows, latent.hidden);
  }
  writer.linear("self_attn.kv_a_proj_with_mqa", latent.key_value_rank + latent.rotary_width, latent.hidden,
                latent.bias);
  writer.norm("self_attn.kv_a_layernorm", latent.key_value_rank);
  writer.linear("self_attn.kv_b_proj", latent.heads * (latent.plain_width + latent.value_width),
                latent.key_value_rank);
  writer.linear("self_attn.o_proj", latent.hidden, latent.heads * latent.value_width, latent.bias);
}

void add_latent_layer(const Latent &latent, int64_t layer, LoadedModel *model) {
  const Writer writer(model, numbered("model.layers.", layer));
  add_latent_attention(latent, writer);
  if (layer < latent.dense_layers || layer % latent.layer_step != 0) {
    add_gated(writer, "mlp.", latent.inner, latent.hidden);
  } else {
    for (int64_t expert = 0; expert < latent.experts; ++expert)
      add_gated(writer, numbered("mlp.experts.", expert), latent.expert_inner, latent.hidden);
    writer.linear("mlp.gate", latent.experts, latent.hidden);
    if (latent.correction) writer.add("mlp.gate.e_score_correction_bias", {latent.experts});
    if (latent.shared_experts > 0)
      add_gated(writer, "mlp.shared_experts.", latent.expert_inner * latent.shared_experts, latent.hidden);
  }
  writer.norm("input_layernorm", latent.hidden);
  writer.norm("post_attention_layernorm", latent.hidden);
}

mxs_status build_deepseek_v3(const Config &config, LoadedModel *model) {
  const Latent latent = read_latent(config);
  const int64_t predictors =
      config.has("num_nextn_predict_layers") ? config.whole_number("num_nextn_predict_layers", 0) : 0;
  mxs_status status = config.status();
  if (status == MXS_OK) status = check_tensor_count("n_routed_experts", latent.layers, 18 + 3 * latent.experts);
  if (status != MXS_OK) return status;
  const Writer writer(model, "");
  writer.add("model.embed_tokens.weight", {latent.vocabulary, latent.hidden});
  for (int64_t layer = 0; layer < latent.layers; ++layer) add_latent_layer(latent, layer, model);
  writer.norm("model.norm", latent.hidden);
  add_head(writer, latent.tied, "model.embed_tokens", latent.vocabulary, latent.hidden, model);
  if (predictors > 0)
    model->notes.push_back(counted(static_cast<size_t>(predictors), "layer")
                               .append(predictors == 1 ? " that predicts" : " that predict")
                               .append(" further tokens (num_nextn_predict_layers) ")
                               .append(predictors == 1 ? "is left out" : "are left out"));
  return MXS_OK;
}

constexpr Architecture architectures[] = {
    {"llama", "LlamaForCausalLM", build_llama},
    {"mistral", "MistralForCausalLM", build_mistral},
    {"qwen2", "Qwen2ForCausalLM", build_qwen2},
    {"qwen3", "Qwen3ForCausalLM", build_qwen3},
    {"gpt2", "GPT2LMHeadModel", build_gpt2},
    {"deepseek_v3", "DeepseekV3ForCausalLM", build_deepseek_v3},
};

}  // namespace

const Architecture *find_architecture(const std::string &class_name, const std::string &kind) {
  for (const Architecture &each : architectures)
    if (class_name.empty() ? kind == each.kind : class_name == each.class_name) return &each;
  return nullptr;
}

std::string known_architectures() {
  std::string text;
  for (const Architecture &each : architectures)
    text.append(text.empty() ? "" : ", ").append(each.class_name).append(" (").append(each.kind).append(")");
  return text;
}

}  // namespace mxs
