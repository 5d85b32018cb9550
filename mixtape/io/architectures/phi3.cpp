// phi3 (Phi-3 and Phi-4): one matrix for q, k and v, and one for gate and up; all layers may see a window only.
#include "mixtape/io/architecture.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_keys.h"

namespace mixtape {
namespace {

using nlohmann::json;

constexpr const char* kWindow = "attention.sliding_window";

void read(const ConfigReader& in, ModelConfig& config) {
  AttentionSpec attention = read_attention(in, config.hidden_size);
  attention.fused = true;
  attention.window = in.has("sliding_window") ? in.size("sliding_window") : 0;
  DenseMlpSpec mlp{in.size("intermediate_size")};
  mlp.fused = true;
  config.layers = equal_layers(in, {attention, mlp});
  config.ropes = {read_rope(in)};
  const RopeType type = config.ropes.front().type;
  if (type != RopeType::plain && type != RopeType::longrope)
    in.unsupported("rope type '", name(type), "' of ", config.architecture->model_type);
}

// The other programs' classes run this type without windows, which is the same up to the window's length.
void write_mlx(const ModelConfig& config, json& out, const std::string& where) {
  require_whole_heads(config, where, "mlx-lm");
  const RopeConfig& rope = config.ropes.front();
  out["partial_rotary_factor"] = rope.partial_rotary_factor;
  if (rope.type == RopeType::longrope)
    out["original_max_position_embeddings"] = rope.original_max_position_embeddings;
}

void write_gguf(const ModelConfig& config, json&, const std::string& where) {
  require_whole_heads(config, where, "llama.cpp");
}

// 0 is what llama.cpp's converter writes for none.
void read_gguf(const GgufKeys& keys, json& config) {
  if (keys.has(kWindow) && keys.file.integer(keys.full(kWindow)) != 0)
    config["sliding_window"] = keys.positive(kWindow);
}

[[maybe_unused]] const bool registered =
    register_architecture({.model_type = "phi3",
                           .class_name = "Phi3ForCausalLM",
                           .gguf = "phi3",
                           .reads = {"partial_rotary_factor", "sliding_window"},
                           .harmless = {"embd_pdrop", "resid_pdrop"},
                           .gguf_keys = {kWindow},
                           .read = read,
                           .write_mlx = write_mlx,
                           .read_gguf = read_gguf});
[[maybe_unused]] const bool written = register_gguf_architecture(
    "phi3", {.name = "phi3", .has_rope_factors = true, .has_partial_rope = true, .write = write_gguf});

}  // namespace
}  // namespace mixtape
