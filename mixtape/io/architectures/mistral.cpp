// mistral: a llama whose layers may all see a window only. GGUF files store it as llama, without its window.
#include "mixtape/io/architecture.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"

namespace mixtape {
namespace {

// Hugging Face's default where the key is absent; null means no window.
constexpr std::int64_t kDefaultWindow = 4096;

void read(const ConfigReader& in, ModelConfig& config) {
  AttentionSpec attention = read_attention(in, config.hidden_size);
  if (!in.is_null("sliding_window")) attention.window = in.size("sliding_window", kDefaultWindow);
  config.layers = equal_layers(in, {attention, DenseMlpSpec{in.size("intermediate_size"), false}});
}

// mlx-lm's class cannot have windows throughout and runs this type without any: the same up to the window's
// length. Its converter does likewise, as does llama.cpp's.
[[maybe_unused]] const bool registered = register_architecture({.model_type = "mistral",
                                                                .class_name = "MistralForCausalLM",
                                                                .gguf_interleaves_heads = true,
                                                                .reads = {"sliding_window"},
                                                                .passes_over_unknown = true,
                                                                .read = read});

[[maybe_unused]] const bool written =
    register_gguf_architecture("mistral", {.name = "llama", .has_rope_freqs = true});

}  // namespace
}  // namespace mixtape
