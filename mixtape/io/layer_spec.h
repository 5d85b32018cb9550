// What the layers of a decoder are made of. A layer is
//   h = x + mixer(rms_norm(x));  out = h + mlp(rms_norm(h))
#pragma once

#include <cstdint>
#include <variant>

namespace mixtape {

// Grouped-query attention with rotary positions.
struct AttentionSpec {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads
  std::int64_t head_dim = 0;  // even
  std::int64_t window = 0;    // keys that a query sees, its own included; 0: all before it
  std::int64_t rope = 0;      // which of the config's rope tables
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norms = false;  // rms_norm over head_dim of q and k, before they are rotated
  bool output_gate =
      false;  // q's matrix gives q and a gate for each head: y is multiplied by the gate's sigmoid
};

// A linear attention with a state: the gated delta rule on q, k and v that a convolution along time has mixed, its
// output normed and gated.
struct DeltaNetSpec {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;  // a multiple of key_heads
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t taps = 0;  // of the convolution

  std::int64_t keys() const { return key_heads * key_dim; }
  std::int64_t values() const { return value_heads * value_dim; }
  std::int64_t channels() const { return 2 * keys() + values(); }
};

// down(silu(gate(x)) * up(x))
struct DenseMlpSpec {
  std::int64_t width = 0;
  bool bias = false;
};

// The sum of the chosen experts' outputs, each a dense MLP, weighted by the softmax over all experts.
struct SparseMlpSpec {
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t width = 0;           // of one expert
  bool normalized_weights = false;  // the chosen experts' weights are divided by their sum
  std::int64_t shared_width =
      0;  // of an expert that every token takes, times the sigmoid of its gate; 0: none
};

// A new kind of mixer or MLP is an alternative here, its tensors in tensor_list.cpp, and a class in nn/.
using MixerSpec = std::variant<AttentionSpec, DeltaNetSpec>;
using MlpSpec = std::variant<DenseMlpSpec, SparseMlpSpec>;

struct LayerSpec {
  MixerSpec mixer;
  MlpSpec mlp;

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
