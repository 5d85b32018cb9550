// gemma3_text: Gemma 3. Norms of (1 + w) before and after both halves of a layer, a scaled embedding, and layers that see
// a window, with rotary frequencies of their own, between layers that see everything.
#include <algorithm>
#include <cmath>

#include "mixtape/io/architecture.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_keys.h"

namespace mixtape {
namespace {

using nlohmann::json;

constexpr std::string_view kFull = kFullAttention, kSliding = kSlidingAttention, kGelu = "gelu_pytorch_tanh";
// Hugging Face's defaults.
constexpr std::int64_t kInterval = 6, kWindow = 4096, kScalar = 256, kPositions = 131072;
constexpr double kTheta = 1e6, kLocalTheta = 1e4;
constexpr std::int64_t kLayersOf27B = 62;

constexpr GgufKey kWindowKey = {"attention.sliding_window", "sliding_window"};
constexpr GgufKey kIntervalKey = {"attention.sliding_window_pattern", "sliding_window_pattern"};
constexpr GgufKey kLocalThetaKey = {"rope.freq_base_swa", "rope_local_base_freq"};

// One kind of layer's settings: nested below its name, or, in older files, at the top.
RopeConfig read_table(const ConfigReader& in, std::string_view kind, const char* theta, double fallback) {
  json settings = json::object();
  const json* nested = in.find("rope_parameters");
  if (nested != nullptr && nested->contains(kind))
    settings["rope_parameters"] = nested->at(std::string(kind));
  if (in.has(theta)) settings["rope_theta"] = in.at(theta);
  if (kind == kFull && in.has("rope_scaling")) settings["rope_scaling"] = in.at("rope_scaling");
  if (in.has("max_position_embeddings"))
    settings["max_position_embeddings"] = in.at("max_position_embeddings");
  return read_rope(ConfigReader(settings, in.where()), fallback);
}

void read_ropes(const ConfigReader& in, ModelConfig& config) {
  if (const json* nested = in.find("rope_parameters")) {
    for (const auto& [kind, value] : nested->items()) {
      if (kind != kFull && kind != kSliding) in.unsupported("rope_parameters of '", kind, "'");
    }
  }
  config.ropes = {read_table(in, kFull, "rope_theta", kTheta),
                  read_table(in, kSliding, "rope_local_base_freq", kLocalTheta)};
  if (config.ropes[1].type != RopeType::plain)
    in.unsupported("rope type '", name(config.ropes[1].type), "' of ", kSliding);
}

void read(const ConfigReader& in, ModelConfig& config) {
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    if (in.has(key) && in.text(key) != kGelu) in.unsupported(key, " '", in.text(key), "'");
  }
  in.refuse_true("use_bidirectional_attention");
  AttentionSpec attention = read_attention(in, config.hidden_size);
  attention.qk_norms = true;
  attention.scale = 1.0 / std::sqrt(in.positive("query_pre_attn_scalar", static_cast<double>(kScalar)));
  const DenseMlpSpec mlp{in.size("intermediate_size"), false, Activation::gelu_tanh};
  config.layers = equal_layers(in, {attention, mlp, NormPlaces::both});
  const char* key = in.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  const std::vector<bool> sliding = sliding_layers(in, config.layers.size(), in.size(key, kInterval));
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    if (!sliding[i]) continue;
    auto& local = std::get<AttentionSpec>(config.layers[i].mixer);
    local.window =
        in.is_null("sliding_window") ? in.size("sliding_window") : in.size("sliding_window", kWindow);
    local.rope = 1;
  }
  read_ropes(in, config);
  config.norm_offset = 1.0;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.tie_word_embeddings = in.boolean("tie_word_embeddings", true);
}

// The other programs know layers by an interval.
void write_layers(const ModelConfig& config, json& out, const std::string& where, const char* program) {
  const auto window = [&](std::size_t i) { return std::get<AttentionSpec>(config.layers[i].mixer).window; };
  std::size_t interval = 1;
  while (interval <= config.layers.size() && window(interval - 1) > 0) ++interval;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if ((window(i) > 0) == ((i + 1) % interval != 0)) continue;
    fail(ErrorCode::not_supported, where, ": layer ", i, " sees ", window(i) > 0 ? "a window" : "everything",
         ", ", program, " has one that sees everything in every ", interval);
  }
  out["sliding_window_pattern"] = interval;
  out["sliding_window"] = out.contains("sliding_window") ? out["sliding_window"] : json(kWindow);
  out["rope_local_base_freq"] = config.ropes[1].theta;
  if (config.max_position_embeddings == 0) out["max_position_embeddings"] = kPositions;
}

void write_mlx(const ModelConfig& config, json& out, const std::string& where) {
  write_layers(config, out, where, "mlx-lm");
  if (out["sliding_window_pattern"] > config.layers.size())
    fail(ErrorCode::not_supported, where, ": no layer sees everything, mlx-lm wants one in ",
         config.architecture->model_type);
  if (!out.contains("query_pre_attn_scalar")) out["query_pre_attn_scalar"] = kScalar;
}

// What llama.cpp takes for query_pre_attn_scalar.
std::int64_t scalar_of_llama_cpp(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                                 std::int64_t head_dim) {
  return layers == kLayersOf27B ? hidden / heads : head_dim;
}

void write_gguf(const ModelConfig& config, json& out, const std::string& where) {
  write_layers(config, out, where, "llama.cpp");
  const auto& a = std::get<AttentionSpec>(config.layers.front().mixer);
  const std::int64_t wanted =
      scalar_of_llama_cpp(std::ssize(config.layers), config.hidden_size, a.heads, a.head_dim);
  const json found = out.value("query_pre_attn_scalar", json(kScalar));
  if (found != wanted) {
    fail(ErrorCode::not_supported, where, ": query_pre_attn_scalar is ", found.dump(), ", llama.cpp has ",
         wanted, " in such a model of ", config.architecture->model_type);
  }
}

void read_gguf(const GgufKeys& keys, json& config) {
  config.erase("hidden_act");
  config["hidden_activation"] = kGelu;
  config[kLocalThetaKey.config] =
      keys.has(kLocalThetaKey.key) ? keys.number(kLocalThetaKey.key) : kLocalTheta;
  // A file without a window is of a model without windows.
  const bool has_window = keys.has(kWindowKey.key);
  if (has_window) config[kWindowKey.config] = keys.positive(kWindowKey.key);
  config[kIntervalKey.config] = has_window ? keys.positive(kIntervalKey.key, kInterval) : 1;
  config["query_pre_attn_scalar"] = scalar_of_llama_cpp(config["num_hidden_layers"], config["hidden_size"],
                                                        config["num_attention_heads"], config["head_dim"]);
}

[[maybe_unused]] const bool registered = register_architecture(
    {.model_type = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .gguf = "gemma3",
     .reads = {"hidden_act", "hidden_activation", "layer_types", "query_pre_attn_scalar",
               "rope_local_base_freq", "sliding_window", "sliding_window_pattern", "_sliding_window_pattern",
               "use_bidirectional_attention"},
     .multimodal = "gemma3",
     .text_defaults = R"({"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
                          "rms_norm_eps": 1e-6, "vocab_size": 262208})",
     .gguf_keys = {kWindowKey.key, kIntervalKey.key, kLocalThetaKey.key},
     .read = read,
     .write_mlx = write_mlx,
     .read_gguf = read_gguf});

[[maybe_unused]] const bool written = register_gguf_architecture(
    "gemma3_text",
    {.name = "gemma3", .keys = {kWindowKey, kIntervalKey}, .reals = {kLocalThetaKey}, .write = write_gguf});

}  // namespace
}  // namespace mixtape
