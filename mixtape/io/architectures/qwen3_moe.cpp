// qwen3_moe: qwen3 with a mixture of experts in some or all layers.
#include "mixtape/io/architectures/qwen3_moe.h"

#include <algorithm>

#include "mixtape/io/architecture.h"
#include "mixtape/io/architectures/qwen3.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_keys.h"

namespace mixtape {
namespace {

using nlohmann::json;

// Both spellings occur.
std::int64_t read_expert_count(const ConfigReader& in) {
  const bool both = in.has("num_experts") && in.has("num_local_experts");
  if (both && in.at("num_experts") != in.at("num_local_experts")) {
    in.bad("num_experts is ", in.at("num_experts").dump(), " but num_local_experts is ",
           in.at("num_local_experts").dump());
  }
  const char* key = in.has("num_experts") ? "num_experts" : "num_local_experts";
  return in.range(key, in.at(key), 0, ConfigReader::kMaxSize);
}

SparseMlpSpec read_experts(const ConfigReader& in) {
  SparseMlpSpec mlp;
  mlp.experts = read_expert_count(in);
  mlp.normalized_weights = in.boolean("norm_topk_prob", false);
  if (mlp.experts == 0) return mlp;
  mlp.experts_per_token = in.range("num_experts_per_tok", in.at("num_experts_per_tok"), 1, mlp.experts);
  mlp.width = in.size("moe_intermediate_size");
  return mlp;
}

std::vector<std::int64_t> read_dense_layers(const ConfigReader& in, std::int64_t layers) {
  std::vector<std::int64_t> dense;
  const json* list = in.find("mlp_only_layers");
  if (list == nullptr) return dense;
  if (!list->is_array()) in.bad("mlp_only_layers is ", list->dump(), ", expected a list");
  for (const json& layer : *list) dense.push_back(in.range("mlp_only_layers", layer, 0, layers - 1));
  return dense;
}

}  // namespace

void read_qwen3_moe(const ConfigReader& in, ModelConfig& config) {
  const AttentionSpec attention = read_qwen3_attention(in, config.hidden_size);
  config.layers = equal_layers(in, {attention, DenseMlpSpec{in.size("intermediate_size"), false}});
  const SparseMlpSpec experts = read_experts(in);
  const std::int64_t step = in.size("decoder_sparse_step", 1);
  const std::vector<std::int64_t> dense = read_dense_layers(in, std::ssize(config.layers));
  for (std::int64_t i = 0; i < std::ssize(config.layers) && experts.experts > 0; ++i) {
    const bool stays_dense = std::find(dense.begin(), dense.end(), i) != dense.end();
    if (!stays_dense && (i + 1) % step == 0) config.layers[static_cast<std::size_t>(i)].mlp = experts;
  }
}

// Keys that mlx-lm insists on, with the values that their absence means.
void write_qwen3_moe_mlx(const ModelConfig& config, json& out, const std::string& where) {
  write_qwen3_mlx(config, out, where);
  if (!out.contains("num_experts")) out["num_experts"] = out.at("num_local_experts");
  const json defaults = {
      {"norm_topk_prob", false}, {"decoder_sparse_step", 1}, {"mlp_only_layers", json::array()}};
  for (const auto& [key, value] : defaults.items()) {
    if (!out.contains(key) || out[key].is_null()) out[key] = value;
  }
}

namespace {

void write_mlx(const ModelConfig& config, json& out, const std::string& where) {
  const RopeType type = config.ropes.front().type;
  if (type != RopeType::plain) {
    fail(ErrorCode::not_supported, where, ": rope type is ", name(type), ", which mlx-lm has not in ",
         config.architecture->model_type);
  }
  write_qwen3_moe_mlx(config, out, where);
}

}  // namespace

// llama.cpp's class has experts in every layer and normalises their weights.
void write_qwen3_moe_gguf(const ModelConfig& config, json& out, const std::string& where) {
  write_qwen3_gguf(config, out, where);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const auto* mlp = std::get_if<SparseMlpSpec>(&config.layers[i].mlp);
    if (mlp && mlp->normalized_weights) continue;
    fail(ErrorCode::not_supported, where, ": layer ", i,
         mlp ? " has norm_topk_prob = false" : " has no experts",
         ", llama.cpp has experts with normalised weights in every layer of ",
         config.architecture->model_type);
  }
  if (!out.contains("num_experts")) out["num_experts"] = out.at("num_local_experts");
}

void read_qwen3_moe_gguf(const GgufKeys& keys, json& config) {
  read_qwen3_gguf(keys, config);
  for (const GgufKey& key : kExpertKeys) config[key.config] = keys.positive(key.key);
  config["norm_topk_prob"] = true;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = json::array();
}

namespace {

[[maybe_unused]] const bool registered = register_architecture(
    {.model_type = "qwen3_moe",
     .class_name = "Qwen3MoeForCausalLM",
     .gguf = "qwen3moe",
     .reads = {"attention_bias", "sliding_window", "decoder_sparse_step", "mlp_only_layers",
               "moe_intermediate_size", "norm_topk_prob", "num_experts", "num_local_experts",
               "num_experts_per_tok", "use_qk_norm"},
     .harmless = {"max_window_layers", "output_router_logits", "router_aux_loss_coef"},
     .passes_over_unknown = true,
     .gguf_keys = {kExpertKeys[0].key, kExpertKeys[1].key, kExpertKeys[2].key},
     .read = read_qwen3_moe,
     .write_mlx = write_mlx,
     .read_gguf = read_qwen3_moe_gguf});
[[maybe_unused]] const bool written =
    register_gguf_architecture("qwen3_moe", {.name = "qwen3moe",
                                             .keys = {std::begin(kExpertKeys), std::end(kExpertKeys)},
                                             .write = write_qwen3_moe_gguf});

}  // namespace
}  // namespace mixtape
