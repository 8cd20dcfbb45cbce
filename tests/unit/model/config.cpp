// SPDX-License-Identifier: Apache-2.0
// Configurations: every parameter of the known architectures with its name and shape, and sentences for bad ones.
#include <nlohmann/json.hpp>

#include "models.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

std::string folder;  // of the configurations

std::string path_of(const char *name) { return folder + "/" + name + ".json"; }

std::string totals_are_those_that_are_published() {
  const struct {
    const char *name, *title;
    uint64_t parameters;
    int32_t units;
  } models[] = {{"gpt2-xl", "gpt2, 48 layers, 1.6 billion parameters", 1'557'611'200, 50},
                {"llama-3-8b", "llama, 32 layers, 8.0 billion parameters", 8'030'261'248, 34},
                {"llama-3-70b", "llama, 80 layers, 70.6 billion parameters", 70'553'706'496, 82},
                {"mistral-7b", "mistral, 32 layers, 7.2 billion parameters", 7'241'732'096, 34},
                {"qwen2-7b", "qwen2, 28 layers, 7.6 billion parameters", 7'615'616'512, 30},
                {"qwen3-32b", "qwen3, 64 layers, 32.8 billion parameters", 32'762'123'264, 66},
                {"deepseek-v3", "deepseek_v3, 61 layers, 671.0 billion parameters", 671'026'419'200, 63}};
  for (const auto &each : models) {
    const Loaded loaded(path_of(each.name));
    if (loaded.status != MXS_OK) return error_of(each.name);
    if (loaded.parameters() != each.parameters)
      return words("%s has %llu parameters", each.name, static_cast<unsigned long long>(loaded.parameters()));
    if (mxs_model_title(loaded.model) != std::string(each.title)) return mxs_model_title(loaded.model);
    if (mxs_model_unit_count(loaded.model) != each.units) return words("%s: units", each.name);
  }
  return "";
}

std::string a_llama_has_its_names_shapes_and_units() {
  const Loaded loaded(path_of("llama-3-70b"));
  if (loaded.status != MXS_OK) return error_of("load");
  if (loaded.count != 80 * 9 + 3) return words("%d tensors", static_cast<int>(loaded.count));
  if (!loaded.has_shape("model.embed_tokens.weight", {128256, 8192}) || !loaded.has_shape("model.norm.weight", {8192})
      ||
      !loaded.has_shape("lm_head.weight", {128256, 8192}))
    return "a tensor outside of the layers";
  if (!loaded.has_shape("model.layers.79.self_attn.q_proj.weight", {8192, 8192}) ||
      !loaded.has_shape("model.layers.0.self_attn.k_proj.weight", {1024, 8192}) ||
      !loaded.has_shape("model.layers.0.self_attn.v_proj.weight", {1024, 8192}) ||
      !loaded.has_shape("model.layers.0.self_attn.o_proj.weight", {8192, 8192}) ||
      !loaded.has_shape("model.layers.0.mlp.gate_proj.weight", {28672, 8192}) ||
      !loaded.has_shape("model.layers.0.mlp.up_proj.weight", {28672, 8192}) ||
      !loaded.has_shape("model.layers.0.mlp.down_proj.weight", {8192, 28672}) ||
      !loaded.has_shape("model.layers.0.input_layernorm.weight", {8192}) ||
      !loaded.has_shape("model.layers.0.post_attention_layernorm.weight", {8192}))
    return "a tensor of a layer";
  const char *names[] = {"model.embed_tokens", "model.layers.0", "model.layers.1"};
  for (int unit = 0; unit < 3; ++unit)
    if (std::strcmp(mxs_model_unit_name(loaded.model, unit), names[unit]) != 0)
      return mxs_model_unit_name(loaded.model, unit);
  if (std::strcmp(mxs_model_unit_name(loaded.model, 80), "model.layers.79") != 0 ||
      std::strcmp(mxs_model_unit_name(loaded.model, 81), "lm_head") != 0 || mxs_model_unit_name(loaded.model, 82) ||
      mxs_model_unit_name(loaded.model, -1))
    return "names of units";
  const mxs_tensor *query = loaded.find("model.layers.79.self_attn.q_proj.weight");
  if (query->unit != 80 || query->rule != MXS_RULE_MUON || query->dtype != MXS_BF16 || query->transposed)
    return "a query's fields";
  if (loaded.find("model.norm.weight")->unit != 81 || loaded.find("model.norm.weight")->rule != MXS_RULE_ADAMW)
    return "the last norm";
  for (const char *name : {"model.embed_tokens.weight", "lm_head.weight"})
    if (loaded.find(name)->rule != MXS_RULE_ADAMW) return name;
  return "";
}

std::string gpt2_is_transposed_and_its_qkv_are_columns() {
  const Loaded loaded(path_of("gpt2-xl"));
  if (loaded.status != MXS_OK) return error_of("load");
  const mxs_tensor *fused = loaded.find("transformer.h.47.attn.c_attn.weight");
  if (!fused || !fused->transposed || fused->shape[0] != 1600 || fused->shape[1] != 4800 ||
      fused->block_column_count != 3 || fused->block_columns[0] != 1600 || fused->block_columns[2] != 1600 ||
      fused->block_rows || fused->unit != 48)
    return "c_attn";
  const mxs_tensor *up = loaded.find("transformer.h.0.mlp.c_fc.weight");
  if (!up || !up->transposed || up->shape[1] != 6400 || up->block_columns) return "c_fc";
  if (!loaded.has_shape("transformer.h.0.mlp.c_proj.weight", {6400, 1600}) ||
      !loaded.has_shape("transformer.h.0.attn.c_attn.bias", {4800}) ||
      !loaded.has_shape("transformer.wpe.weight", {1024, 1600}) || loaded.find("lm_head.weight"))
    return "shapes";
  for (const char *name : {"transformer.wte.weight", "transformer.wpe.weight"})
    if (loaded.find(name)->rule != MXS_RULE_ADAMW || loaded.find(name)->unit != 0) return name;
  if (loaded.find("transformer.ln_f.bias")->unit != 49) return "ln_f";
  if (std::strcmp(mxs_model_unit_name(loaded.model, 0), "transformer.wte") != 0) return "the first unit's name";
  const std::string notes = loaded.notes();
  for (const char *said : {"lm_head is tied to transformer.wte", "no torch_dtype", "(in, out)"})
    if (notes.find(said) == std::string::npos) return notes + " -- doesn't say: " + said;
  return "";
}

std::string qwens_have_their_biases_and_norms() {
  const Loaded two(path_of("qwen2-7b"));
  if (two.status != MXS_OK) return error_of("qwen2");
  if (!two.has_shape("model.layers.3.self_attn.q_proj.bias", {3584}) ||
      !two.has_shape("model.layers.3.self_attn.k_proj.bias", {512}) ||
      two.find("model.layers.3.self_attn.o_proj.bias") || two.find("model.layers.3.self_attn.q_norm.weight"))
    return "qwen2";
  const Loaded three(path_of("qwen3-32b"));
  if (three.status != MXS_OK) return error_of("qwen3");
  if (!three.has_shape("model.layers.3.self_attn.q_proj.weight", {8192, 5120}) ||
      !three.has_shape("model.layers.3.self_attn.o_proj.weight", {5120, 8192}) ||
      !three.has_shape("model.layers.3.self_attn.q_norm.weight", {128}) ||
      !three.has_shape("model.layers.3.self_attn.k_norm.weight", {128}) ||
      three.find("model.layers.3.self_attn.q_proj.bias"))
    return "qwen3";
  if (three.find("model.layers.3.self_attn.q_norm.weight")->rule != MXS_RULE_ADAMW) return "a norm's rule";
  return "";
}

std::string deepseek_has_dense_layers_experts_and_routers() {
  const Loaded loaded(path_of("deepseek-v3"));
  if (loaded.status != MXS_OK) return error_of("load");
  if (loaded.count != 61 * 9 + 3 * 3 + 58 * (256 * 3 + 5) + 3) return words("%d tensors",
      static_cast<int>(loaded.count));
  if (!loaded.has_shape("model.layers.60.self_attn.q_a_proj.weight", {1536, 7168}) ||
      !loaded.has_shape("model.layers.60.self_attn.q_a_layernorm.weight", {1536}) ||
      !loaded.has_shape("model.layers.60.self_attn.q_b_proj.weight", {24576, 1536}) ||
      !loaded.has_shape("model.layers.60.self_attn.kv_a_proj_with_mqa.weight", {576, 7168}) ||
      !loaded.has_shape("model.layers.60.self_attn.kv_a_layernorm.weight", {512}) ||
      !loaded.has_shape("model.layers.60.self_attn.kv_b_proj.weight", {32768, 512}) ||
      !loaded.has_shape("model.layers.60.self_attn.o_proj.weight", {7168, 16384}))
    return "attention";
  if (!loaded.has_shape("model.layers.2.mlp.gate_proj.weight", {18432, 7168}) ||
      loaded.find("model.layers.3.mlp.gate_proj.weight") || loaded.find("model.layers.2.mlp.gate.weight"))
    return "the dense layers";
  if (!loaded.has_shape("model.layers.3.mlp.experts.255.down_proj.weight", {7168, 2048}) ||
      !loaded.has_shape("model.layers.3.mlp.shared_experts.up_proj.weight", {2048, 7168}) ||
      !loaded.has_shape("model.layers.3.mlp.gate.weight", {256, 7168}) ||
      !loaded.has_shape("model.layers.3.mlp.gate.e_score_correction_bias", {256}) ||
      loaded.find("model.layers.3.mlp.experts.256.up_proj.weight"))
    return "the experts";
  if (loaded.find("model.layers.60.mlp.gate.weight")->rule != MXS_RULE_ADAMW ||
      loaded.find("model.layers.60.mlp.experts.0.gate_proj.weight")->rule != MXS_RULE_MUON ||
      loaded.find("model.layers.60.mlp.experts.0.gate_proj.weight")->unit != 61)
    return "rules and units";
  const std::string notes = loaded.notes();
  for (const char *said : {"routers of experts (58 tensors) get adamw", "1 layer that predict"})
    if (notes.find(said) == std::string::npos) return notes + " -- doesn't say: " + said;
  return "";
}

using Json = nlohmann::json;

// A configuration with some keys changed, through the pure reader and the finish.
mxs_status read(Json config, LoadedModel *model) {
  const mxs_status status = model_from_json(std::string_view(config.dump()), model);
  return status == MXS_OK ? finish_model(ModelSettings(), model) : status;
}

const LoadedTensor *find(const LoadedModel &model, const std::string &name) {
  for (const LoadedTensor &tensor : model.tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

std::string options_of_architectures_are_honoured() {
  Json llama = Json::parse(text_of(path_of("llama-3-8b")));
  llama["attention_bias"] = llama["mlp_bias"] = llama["tie_word_embeddings"] = true;
  llama["head_dim"] = 64;
  llama.erase("torch_dtype");
  llama["dtype"] = "float32";
  LoadedModel model;
  if (read(llama, &model) != MXS_OK) return error_of("llama");
  for (const char *name : {"self_attn.q_proj.bias", "self_attn.o_proj.bias", "mlp.up_proj.bias"})
    if (!find(model, std::string("model.layers.0.") + name)) return name;
  if (find(model, "lm_head.weight") || find(model, "model.norm.weight")->unit != 33 ||
      model.unit_names[33] != "model.norm")
    return "a tied head";
  if (find(model, "model.layers.0.self_attn.q_proj.weight")->shape != std::vector<int64_t>{2048, 4096})
      return "head_dim";
  if (model.tensors.front().dtype != MXS_F32) return "dtype";
  llama["head_dim"] = nullptr;  // as if it were not there
  llama.erase("num_key_value_heads");
  llama.erase("architectures");
  if (read(llama, &model) != MXS_OK) return error_of("without architectures");
  if (find(model, "model.layers.0.self_attn.k_proj.weight")->shape != std::vector<int64_t>{4096, 4096})
      return "key heads";

  Json deepseek = Json::parse(text_of(path_of("deepseek-v3")));
  deepseek["q_lora_rank"] = nullptr;
  deepseek["n_shared_experts"] = nullptr;
  deepseek["topk_method"] = "greedy";
  deepseek["moe_layer_freq"] = 2;
  if (read(deepseek, &model) != MXS_OK) return error_of("deepseek");
  if (!find(model, "model.layers.4.self_attn.q_proj.weight") || find(model,
      "model.layers.4.self_attn.q_a_proj.weight") ||
      find(model, "model.layers.4.mlp.shared_experts.up_proj.weight") ||
      find(model, "model.layers.4.mlp.gate.e_score_correction_bias") || !find(model,
          "model.layers.5.mlp.up_proj.weight"))
    return "deepseek's options";

  Json gpt2 = Json::parse(text_of(path_of("gpt2-xl")));
  gpt2["n_inner"] = 1000;
  gpt2["tie_word_embeddings"] = false;
  if (read(gpt2, &model) != MXS_OK) return error_of("gpt2");
  if (find(model, "transformer.h.0.mlp.c_fc.weight")->shape != std::vector<int64_t>{1600, 1000} ||
      !find(model, "lm_head.weight"))
    return "gpt2's options";
  return "";
}

// Every key that a file of ours has and an architecture needs is missed by name, or has a default that is documented.
std::string a_missing_key_is_named() {
  const struct {
    const char *name;
    std::vector<std::string> optional;
  } models[] = {{"gpt2-xl", {"n_head"}},
                {"llama-3-8b", {"num_key_value_heads", "tie_word_embeddings"}},
                {"mistral-7b", {"tie_word_embeddings"}},
                {"qwen2-7b", {"tie_word_embeddings"}},
                {"qwen3-32b", {"tie_word_embeddings", "attention_bias"}},
                {"deepseek-v3", {"tie_word_embeddings", "attention_bias", "moe_layer_freq", "n_shared_experts",
                                 "num_nextn_predict_layers", "q_lora_rank", "topk_method"}}};
  for (const auto &each : models) {
    const Json config = Json::parse(text_of(path_of(each.name)));
    for (const auto &[key, value] : config.items()) {
      Json less = config;
      less.erase(key);
      LoadedModel model;
      const mxs_status status = model_from_json(std::string_view(less.dump()), &model);
      const bool may_miss = key == "architectures" || key == "model_type" || key == "torch_dtype" ||
                            std::find(each.optional.begin(), each.optional.end(), key) != each.optional.end();
      if (may_miss && status != MXS_OK) return error_of(std::string(each.name) + " without " + key);
      if (may_miss) continue;
      const std::string complaint = expect(status, MXS_INVALID_ARGUMENT, {key + " is missing"});
      if (!complaint.empty()) return std::string(each.name) + ": " + complaint;
    }
  }
  return "";
}

std::string bad_configurations_get_a_sentence() {
  const Json good_one = Json::parse(text_of(path_of("llama-3-8b")));
  const auto with = [&](const char *key, const Json &value) {
    Json changed = good_one;
    changed[key] = value;
    return changed.dump();
  };
  const struct {
    std::string text;
    mxs_status status;
    std::vector<std::string> said;
  } bad[] = {
      {"", MXS_INVALID_ARGUMENT, {"not JSON"}},
      {"{\"model_type\": \"llama\"", MXS_INVALID_ARGUMENT, {"not JSON"}},
      {"[]", MXS_INVALID_ARGUMENT, {"neither"}},
      {"{}", MXS_INVALID_ARGUMENT, {"architectures", "model_type"}},
      {"{\"model_type\": \"llama\", \"model_type\": \"gpt2\"}", MXS_INVALID_ARGUMENT, {"\"model_type\"", "twice"}},
      {std::string(1000, '[') + std::string(1000, ']'), MXS_INVALID_ARGUMENT, {"levels"}},
      {"{\"model_type\": 3}", MXS_INVALID_ARGUMENT, {"model_type", "text"}},
      {"{\"architectures\": \"LlamaForCausalLM\"}", MXS_INVALID_ARGUMENT, {"architectures", "list"}},
      {"{\"architectures\": [\"MambaForCausalLM\"], \"model_type\": \"mamba\"}", MXS_NOT_BUILT,
       {"MambaForCausalLM", "mamba", "llama", "deepseek_v3", "\"name\"", "\"shape\""}},
      {with("architectures", {"LlamaForSequenceClassification"}), MXS_NOT_BUILT, {"LlamaForSequenceClassification"}},
      {with("hidden_size", 0), MXS_INVALID_ARGUMENT, {"hidden_size", "whole number"}},
      {with("hidden_size", -4096), MXS_INVALID_ARGUMENT, {"hidden_size"}},
      {with("hidden_size", 4096.0), MXS_INVALID_ARGUMENT, {"hidden_size"}},
      {with("hidden_size", "4096"), MXS_INVALID_ARGUMENT, {"hidden_size"}},
      {with("hidden_size", UINT64_MAX), MXS_INVALID_ARGUMENT, {"hidden_size"}},
      {with("hidden_size", 4097), MXS_INVALID_ARGUMENT, {"num_attention_heads", "divide"}},
      {with("num_hidden_layers", 1 << 30), MXS_INVALID_ARGUMENT, {"num_hidden_layers", "tensors"}},
      {with("tie_word_embeddings", 1), MXS_INVALID_ARGUMENT, {"tie_word_embeddings"}},
      {with("torch_dtype", "int8"), MXS_INVALID_ARGUMENT, {"torch_dtype", "int8"}},
      {with("torch_dtype", 16), MXS_INVALID_ARGUMENT, {"torch_dtype"}},
  };
  for (const auto &each : bad) {
    LoadedModel model;
    const std::string complaint = expect(model_from_json(std::string_view(each.text), &model), each.status, each.said);
    if (!complaint.empty()) return each.text.substr(0, 200) + ": " + complaint;
    if (!model.tensors.empty()) return "the output was touched";
  }
  Json vast = Json::parse(text_of(path_of("deepseek-v3")));
  vast["n_routed_experts"] = 1 << 30;
  LoadedModel model;
  std::string complaint = expect(model_from_json(std::string_view(vast.dump()), &model), MXS_INVALID_ARGUMENT,
      {"n_routed_experts"});
  if (!complaint.empty()) return complaint;
  // Each side is allowed, their product isn't.
  vast = good_one;
  for (const char *key : {"hidden_size", "intermediate_size", "vocab_size", "num_attention_heads", "head_dim"})
    vast[key] = 1 << 30;
  return expect(read(vast, &model), MXS_INVALID_ARGUMENT, {"2^62"});
}

void totals(void **) { assert_true(good(totals_are_those_that_are_published())); }
void llama(void **) { assert_true(good(a_llama_has_its_names_shapes_and_units())); }
void gpt2(void **) { assert_true(good(gpt2_is_transposed_and_its_qkv_are_columns())); }
void qwens(void **) { assert_true(good(qwens_have_their_biases_and_norms())); }
void deepseek(void **) { assert_true(good(deepseek_has_dense_layers_experts_and_routers())); }
void options(void **) { assert_true(good(options_of_architectures_are_honoured())); }
void missing(void **) { assert_true(good(a_missing_key_is_named())); }
void bad(void **) { assert_true(good(bad_configurations_get_a_sentence())); }

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  folder = argv[1];
  const CMUnitTest tests[] = {
      {"totals_are_those_that_are_published", totals, nullptr, nullptr, nullptr},
      {"a_llama_has_its_names_shapes_and_units", llama, nullptr, nullptr, nullptr},
      {"gpt2_is_transposed_and_its_qkv_are_columns", gpt2, nullptr, nullptr, nullptr},
      {"qwens_have_their_biases_and_norms", qwens, nullptr, nullptr, nullptr},
      {"deepseek_has_dense_layers_experts_and_routers", deepseek, nullptr, nullptr, nullptr},
      {"options_of_architectures_are_honoured", options, nullptr, nullptr, nullptr},
      {"a_missing_key_is_named", missing, nullptr, nullptr, nullptr},
      {"bad_configurations_get_a_sentence", bad, nullptr, nullptr, nullptr},
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
