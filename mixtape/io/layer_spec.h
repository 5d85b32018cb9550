// What the layers of a decoder are made of. A layer is
//   h = x + s after(mixer(before(x)));  out = h + s after(mlp(before(h)))
// with a number s and norms before its halves, after them, or both.
#pragma once

#include <cmath>
#include <cstdint>
#include <variant>

namespace mixtape {

inline constexpr std::int64_t kNoRope = -1;

// Grouped-query attention with rotary positions.
struct AttentionSpec {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads
  std::int64_t head_dim = 0;  // even
  std::int64_t window = 0;    // keys that a query sees, its own included; 0: all before it
  std::int64_t rope = 0;      // which of the config's rope tables; kNoRope: heads are not rotated
  double scale = 0.0;         // of q k^T; 0: 1/sqrt(head_dim)
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norms = false;     // rms_norm over head_dim of q and k, before they are rotated
  bool joint_norms = false;  // these are over all heads of q at once, and of k
  bool fused = false;        // q, k and v are one matrix, in this order, and have no norms
  bool sinks = false;        // a logit of each head's own is one more term of its softmax's denominator
  bool output_gate =
      false;  // q's matrix gives q and a gate for each head: y is multiplied by the gate's sigmoid

  double score_scale() const { return scale > 0.0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_dim)); }
};

// A linear attention with a state: the gated delta rule on q, k and v that a convolution along time has mixed, its
// output normed and gated.
struct DeltaNetSpec {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;  // a multiple of key_heads
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t taps = 0;  // of the convolution
  bool fused = true;      // for each key head q, k, v and z are rows of one matrix, b and a of another

  std::int64_t keys() const { return key_heads * key_dim; }
  std::int64_t values() const { return value_heads * value_dim; }
  std::int64_t channels() const { return 2 * keys() + values(); }
};

enum class Activation { silu, gelu_tanh };

// down(activation(gate(x)) * up(x))
struct DenseMlpSpec {
  std::int64_t width = 0;
  bool bias = false;
  Activation activation = Activation::silu;
  bool fused = false;  // gate and up are one matrix, in this order
};

// The sum of the chosen experts' outputs, each a dense MLP, weighted by the softmax over all experts.
struct SparseMlpSpec {
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t width = 0;           // of one expert
  bool normalized_weights = false;  // the chosen experts' weights are divided by their sum
  std::int64_t shared_width =
      0;                      // of an expert that every token takes, times the sigmoid of its gate; 0: none
  bool bias = false;          // of the router and of the experts' matrices
  double swiglu_limit = 0.0;  // clamped_swiglu joins gate and up; 0: silu(gate) * up
  double swiglu_alpha = 1.0;  // its alpha
  // What mlx-lm calls them below "mlp.".
  const char* router_name = "gate";
  const char* experts_name = "switch_mlp";
};

// A new kind of mixer or MLP is an alternative here, its tensors in tensor_list.cpp, and a class in nn/.
using MixerSpec = std::variant<AttentionSpec, DeltaNetSpec>;
using MlpSpec = std::variant<DenseMlpSpec, SparseMlpSpec>;

enum class NormPlaces { before, after, both };

// Names of a layer's norms below "model.layers.i."; "" where there is none.
struct NormNames {
  const char *before_mixer, *after_mixer, *before_mlp, *after_mlp;
};
constexpr NormNames norm_names(NormPlaces places) {
  if (places == NormPlaces::before) return {"input_layernorm", "", "post_attention_layernorm", ""};
  if (places == NormPlaces::after) return {"", "post_attention_layernorm", "", "post_feedforward_layernorm"};
  return {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
          "post_feedforward_layernorm"};
}

struct LayerSpec {
  MixerSpec mixer;
  MlpSpec mlp;
  NormPlaces norms = NormPlaces::before;
  double residual_scale = 1.0;  // of what each half adds

  bool is_sparse() const { return std::holds_alternative<SparseMlpSpec>(mlp); }
};

// A visitor made of lambdas, one for each alternative.
template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;  // clang 14 deduces no aggregate

}  // namespace mixtape
