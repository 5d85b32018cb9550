// Models of real shapes with random weights.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mixtape/core/random.h"
#include "mixtape/io/model_source.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape {

// Random values under the names of a real model: one block of numbers, repeated from a place that the name
// gives.
class RandomSource final : public ModelSource {
 public:
  explicit RandomSource(nlohmann::json config) : config_(std::move(config)) {
    for (const ModelTensor& t : tensor_list(ModelSource::config())) tensors_.emplace(t.name, t);
    for (std::uint64_t i = 0; i < (1u << 20) + 7; ++i)
      block_.push_back(static_cast<float>(0.02 * normal(1, i)));
  }
  std::string where() const override { return "random"; }
  const nlohmann::json& config_json() const override { return config_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }
  bool has(const std::string& name) const override { return tensors_.contains(name); }
  Shape shape(const std::string& name) const override { return tensors_.at(name).shape; }
  DType stored_dtype(const std::string&) const override { return DType::bf16; }
  Buffer load(const std::string& name, DType wanted, const Device& device) const override {
    const ModelTensor& t = tensors_.at(name);
    if (wanted == DType::bf16 && t.kind != TensorKind::vector) return load_bf16(t, device);
    std::vector<float> values(static_cast<std::size_t>(t.shape.numel()), 1.0f);
    if (t.kind != TensorKind::vector) fill(values, std::hash<std::string>()(name) % block_.size());
    if (wanted == DType::f32) return Buffer::from(device, t.shape, values);
    std::vector<bf16> rounded(values.begin(), values.end());
    return Buffer::from(device, t.shape, rounded);
  }
  nlohmann::json tokenizer_json() const override { return {}; }
  nlohmann::json tokenizer_config_json() const override { return {}; }
  std::map<std::string, std::string> extra_files() const override { return {}; }

 private:
  void fill(std::vector<float>& values, std::size_t at) const {
    for (std::size_t done = 0; done < values.size(); at = 0) {
      const std::size_t n = std::min(values.size() - done, block_.size() - at);
      std::copy_n(block_.begin() + static_cast<std::ptrdiff_t>(at), n,
                  values.begin() + static_cast<std::ptrdiff_t>(done));
      done += n;
    }
  }
  // The same values, from repetitions of the block that no cache holds, as a file's would come from memory.
  Buffer load_bf16(const ModelTensor& t, const Device& device) const {
    constexpr std::size_t kMostRepeats = 128;  // 256 MB
    const std::size_t period = block_.size(), count = static_cast<std::size_t>(t.shape.numel());
    while (repeated_.size() < std::min(count + period, kMostRepeats * period))
      for (const float v : block_) repeated_.emplace_back(v);
    const std::size_t place = std::hash<std::string>()(t.name), repeats = repeated_.size() / period;
    const Buffer made = device.alloc_uninitialized(DType::bf16, t.shape);
    const Buffer flat = made.reshape({t.shape.numel()});
    std::size_t at = place % period + place / period % repeats * period;
    for (std::size_t done = 0; done < count; at = 0) {
      const std::size_t n = std::min(count - done, repeated_.size() - at);
      flat.slice(static_cast<std::int64_t>(done), static_cast<std::int64_t>(done + n))
          .write_bytes(repeated_.data() + at);
      done += n;
    }
    return made;
  }

  nlohmann::json config_;
  std::map<std::string, ModelTensor> tensors_;
  std::vector<float> block_;
  mutable std::vector<bf16> repeated_;  // block_, rounded, as often as was needed
};

inline nlohmann::json config_of_shape(const std::string& shape) {
  if (shape == "smollm2") {
    return {{"model_type", "llama"},       {"hidden_size", 576},       {"intermediate_size", 1536},
            {"num_hidden_layers", 30},     {"num_attention_heads", 9}, {"num_key_value_heads", 3},
            {"vocab_size", 49152},         {"rms_norm_eps", 1e-5},     {"rope_theta", 100000.0},
            {"tie_word_embeddings", true}, {"hidden_act", "silu"},     {"torch_dtype", "bfloat16"}};
  }
  if (shape == "qwen3-next-1b") {  // three delta nets to one attention, 64 experts, as Qwen3-Next is built
    return {{"model_type", "qwen3_next"},
            {"hidden_size", 1024},
            {"intermediate_size", 2048},
            {"num_hidden_layers", 8},
            {"full_attention_interval", 4},
            {"num_attention_heads", 16},
            {"num_key_value_heads", 2},
            {"head_dim", 128},
            {"partial_rotary_factor", 0.25},
            {"linear_conv_kernel_dim", 4},
            {"linear_key_head_dim", 128},
            {"linear_num_key_heads", 8},
            {"linear_num_value_heads", 16},
            {"linear_value_head_dim", 128},
            {"num_experts", 64},
            {"num_experts_per_tok", 8},
            {"norm_topk_prob", true},
            {"decoder_sparse_step", 1},
            {"moe_intermediate_size", 512},
            {"shared_expert_intermediate_size", 512},
            {"vocab_size", 151936},
            {"rms_norm_eps", 1e-6},
            {"rope_theta", 10000000.0},
            {"tie_word_embeddings", true},
            {"hidden_act", "silu"},
            {"torch_dtype", "bfloat16"}};
  }
  if (shape == "qwen3-30b-a3b") {
    return {{"model_type", "qwen3_moe"},
            {"hidden_size", 2048},
            {"intermediate_size", 6144},
            {"num_hidden_layers", 48},
            {"num_attention_heads", 32},
            {"num_key_value_heads", 4},
            {"head_dim", 128},
            {"num_experts", 128},
            {"num_experts_per_tok", 8},
            {"moe_intermediate_size", 768},
            {"decoder_sparse_step", 1},
            {"norm_topk_prob", true},
            {"mlp_only_layers", nlohmann::json::array()},
            {"vocab_size", 151936},
            {"rms_norm_eps", 1e-6},
            {"rope_theta", 1000000.0},
            {"tie_word_embeddings", false},
            {"hidden_act", "silu"},
            {"torch_dtype", "bfloat16"}};
  }
  struct Qwen3 {
    const char* name;
    int hidden, width, layers, heads;
    bool is_tied;
  };
  constexpr Qwen3 kShapes[] = {
      {"qwen3-0.6b", 1024, 3072, 28, 16, true},  {"qwen3-1.7b", 2048, 6144, 28, 16, true},
      {"qwen3-4b", 2560, 9728, 36, 32, true},    {"qwen3-8b", 4096, 12288, 36, 32, false},
      {"qwen3-14b", 5120, 17408, 40, 40, false}, {"qwen3-32b", 5120, 25600, 64, 64, false}};
  const auto found =
      std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Qwen3& q) { return shape == q.name; });
  require(found != std::end(kShapes), "shape '", shape,
          "' is unknown, expected smollm2, qwen3-next-1b, qwen3-30b-a3b, or qwen3-0.6b, -1.7b, -4b, -8b, "
          "-14b or -32b");
  return {{"model_type", "qwen3"},
          {"hidden_size", found->hidden},
          {"intermediate_size", found->width},
          {"num_hidden_layers", found->layers},
          {"num_attention_heads", found->heads},
          {"num_key_value_heads", 8},
          {"head_dim", 128},
          {"vocab_size", 151936},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1000000.0},
          {"tie_word_embeddings", found->is_tied},
          {"hidden_act", "silu"},
          {"torch_dtype", "bfloat16"}};
}

}  // namespace mixtape
