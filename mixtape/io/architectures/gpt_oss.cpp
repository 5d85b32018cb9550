// gpt_oss: attention with sinks and biases, windows in every second layer, experts with biases and a clamped SwiGLU.
#include <algorithm>
#include <cmath>

#include "mixtape/io/architecture.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_keys.h"

namespace mixtape {
namespace {

using nlohmann::json;

// Hugging Face's defaults; mlx-lm knows no other alpha and limit.
constexpr std::int64_t kInterval = 2, kWindow = 128, kPositions = 131072;
constexpr double kTheta = 150000.0, kAlpha = 1.702, kLimit = 7.0;

constexpr GgufKey kKeys[] = {{"expert_count", "num_local_experts"},
                             {"expert_feed_forward_length", "intermediate_size"},
                             {"expert_used_count", "num_experts_per_tok"},
                             {"attention.sliding_window", "sliding_window"}};

// Where nothing is said of scaling there is some.
RopeConfig read_table(const ConfigReader& in) {
  if (in.has("rope_scaling") || in.has("rope_parameters")) return read_rope(in, kTheta);
  const json settings = {{"rope_theta", in.positive("rope_theta", kTheta)},
                         {"max_position_embeddings", in.size("max_position_embeddings", kPositions)},
                         {"rope_scaling",
                          {{"rope_type", "yarn"},
                           {"factor", 32.0},
                           {"truncate", false},
                           {"original_max_position_embeddings", 4096}}}};
  return read_rope(ConfigReader(settings, in.where()), kTheta);
}

AttentionSpec read_sinks_attention(const ConfigReader& in, std::int64_t hidden_size) {
  AttentionSpec a = read_attention(in, hidden_size);
  a.qkv_bias = a.output_bias = in.boolean("attention_bias", true);
  a.sinks = true;
  return a;
}

SparseMlpSpec read_experts(const ConfigReader& in) {
  SparseMlpSpec mlp;
  mlp.experts = in.size("num_local_experts");
  mlp.experts_per_token = in.range("num_experts_per_tok", in.at("num_experts_per_tok"), 1, mlp.experts);
  mlp.width = in.size("intermediate_size");
  mlp.normalized_weights = true;  // the softmax is over those that were chosen
  mlp.bias = true;
  mlp.swiglu_alpha = in.positive("swiglu_alpha", kAlpha);
  mlp.swiglu_limit = in.positive("swiglu_limit", kLimit);
  mlp.router_name = "router";
  mlp.experts_name = "experts";
  return mlp;
}

void read(const ConfigReader& in, ModelConfig& config) {
  config.layers = equal_layers(in, {read_sinks_attention(in, config.hidden_size), read_experts(in)});
  const std::vector<bool> sliding = sliding_layers(in, config.layers.size(), kInterval);
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    if (!sliding[i]) continue;
    std::get<AttentionSpec>(config.layers[i].mixer).window =
        in.is_null("sliding_window") ? in.size("sliding_window") : in.size("sliding_window", kWindow);
  }
  config.ropes = {read_table(in)};
}

std::int64_t window(const LayerSpec& layer) { return std::get<AttentionSpec>(layer.mixer).window; }

// What neither mlx-lm's nor llama.cpp's class has a setting for.
template <class Refuse>
void refuse_settings(const ModelConfig& config, const char* program, const Refuse& refuse) {
  if (!std::get<AttentionSpec>(config.layers.front().mixer).qkv_bias)
    refuse("attention_bias = false, ", program, " has biases");
  if (config.tie_word_embeddings) refuse("embeddings are tied, ", program, " wants an output matrix");
  const auto& mlp = std::get<SparseMlpSpec>(config.layers.front().mlp);
  if (mlp.swiglu_alpha != kAlpha)
    refuse("swiglu_alpha is ", mlp.swiglu_alpha, ", ", program, " has ", kAlpha);
  if (mlp.swiglu_limit != kLimit)
    refuse("swiglu_limit is ", mlp.swiglu_limit, ", ", program, " has ", kLimit);
}

void write_mlx(const ModelConfig& config, json& out, const std::string& where) {
  const auto refuse = [&](const auto&... parts) {
    fail(ErrorCode::not_supported, where, ": ", parts..., " in ", config.architecture->model_type);
  };
  refuse_settings(config, "mlx-lm", refuse);
  if (config.ropes.front().type == RopeType::longrope) refuse("rope type is longrope, which mlx-lm has not");
  json types = json::array();
  for (const LayerSpec& layer : config.layers) {
    types.push_back(window(layer) > 0 ? kSlidingAttention : kFullAttention);
    if (window(layer) > 0) out["sliding_window"] = window(layer);
  }
  out["layer_types"] = types;
  for (const char* kind : {kSlidingAttention, kFullAttention}) {
    if (std::find(types.begin(), types.end(), kind) == types.end())
      refuse("no layer is of type ", kind, ", mlx-lm wants one");
  }
}

void write_gguf(const ModelConfig& config, json& out, const std::string& where) {
  const auto refuse = [&](const auto&... parts) {
    fail(ErrorCode::not_supported, where, ": ", parts..., " in ", config.architecture->model_type);
  };
  refuse_settings(config, "llama.cpp", refuse);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const bool slides = window(config.layers[i]) > 0;
    if (slides == ((i + 1) % kInterval != 0)) continue;
    refuse("layer ", i, " sees ", slides ? "a window" : "everything",
           ", llama.cpp has one that sees everything in every ", kInterval);
  }
  out["sliding_window"] = window(config.layers.front());
}

void read_gguf(const GgufKeys& keys, json& config) {
  for (const GgufKey& key : kKeys) config[key.config] = keys.positive(key.key);
}

[[maybe_unused]] const bool registered =
    register_architecture({.model_type = "gpt_oss",
                           .class_name = "GptOssForCausalLM",
                           .gguf = "gpt-oss",
                           .gguf_mlp_norm = "post_attention_norm",
                           .reads = {"attention_bias", "layer_types", "num_local_experts",
                                     "num_experts_per_tok", "sliding_window", "swiglu_alpha", "swiglu_limit"},
                           .interleaves_experts = true,
                           .others_round_yarn = true,
                           .harmless = {"experts_per_token", "initial_context_length", "output_router_logits",
                                        "router_aux_loss_coef"},
                           .gguf_keys = {kKeys[0].key, kKeys[1].key, kKeys[2].key, kKeys[3].key},
                           .read = read,
                           .write_mlx = write_mlx,
                           .read_gguf = read_gguf});
[[maybe_unused]] const bool written = register_gguf_architecture(
    "gpt_oss", {.name = "gpt-oss", .keys = {std::begin(kKeys), std::end(kKeys)}, .write = write_gguf});

}  // namespace
}  // namespace mixtape
