// SPDX-License-Identifier: Apache-2.0
// Configurations, lists and indices in JSON.
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "model/safetensors.hpp"
#include "models.hpp"

using namespace mxs;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  nlohmann::json root;
  if (parse_json(fuzz::text_of(data, size), &root) != MXS_OK) return 0;
  std::vector<std::pair<std::string, std::string>> file_of_tensor;
  if (parse_safetensors_index(root, &file_of_tensor) == MXS_OK)
    for (const auto &[tensor, file] : file_of_tensor)
      fuzz::promise(file.find('/') == std::string::npos && file.ends_with(".safetensors"));
  LoadedModel model;
  if (model_from_json(root, &model) == MXS_OK) fuzz::check_model(&model);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
          "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 99, "head_dim": null, "mlp_bias": true,
          "attention_bias": true, "tie_word_embeddings": true, "torch_dtype": "float16"})",
      R"({"architectures": ["MistralForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "vocab_size": 99,
          "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "dtype": "bfloat16"})",
      R"({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
          "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 99})",
      R"({"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 8,
          "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 99})",
      R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_positions": 8, "vocab_size": 99, "n_inner": 31})",
      R"({"model_type": "deepseek_v3", "first_k_dense_replace": 1, "hidden_size": 64, "intermediate_size": 96,
          "kv_lora_rank": 8, "moe_intermediate_size": 16, "moe_layer_freq": 1, "n_routed_experts": 3,
          "n_shared_experts": 1, "num_attention_heads": 2, "num_hidden_layers": 2, "num_nextn_predict_layers": 1,
          "q_lora_rank": 4, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "vocab_size": 99})",
      R"({"tensors": [{"name": "l.0.a", "shape": [8, 4], "dtype": "bf16", "rule": "muon", "block_rows": [4, 4]},
                      {"name": "l.1.b", "shape": [2, 8, 4], "block_columns": [1, 3], "transposed": true, "group": 2},
                      {"name": "c", "shape": [], "fixed_owner": 1, "whole_rows": 16}, {"name": "d", "shape": [0,
                          7]}]})",
      R"({"tensors": [{"name": "a", "shape": [8, 4], "unit": "x", "co_owners": 2, "role": "matrix"},
                      {"name": "b", "shape": [8, 4], "tied_to": "a"}, {"name": "e", "shape": [9], "unit": "y"}]})",
      R"({"tensors": [{"name": "a", "shape": [8, 4], "unit": 3}, {"name": "b", "shape": [8, 4], "unit": 0}]})",
      R"({"metadata": {}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})"};
}
