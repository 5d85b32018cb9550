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
};

// A new kind of mixer or MLP is an alternative here, its tensors in tensor_list.cpp, and a class in nn/.
using MixerSpec = std::variant<AttentionSpec>;
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
