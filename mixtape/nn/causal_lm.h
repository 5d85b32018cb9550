// llama, qwen3 and qwen3_moe: one decoder, read off its config.
//   h = x + attention(rms_norm(x));  out = h + mlp(rms_norm(h));  logits = head(rms_norm(out))
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "mixtape/nn/tape_weights.h"

namespace mixtape {

// Keys and values of the tokens seen so far, per layer [B, S, Hkv, D]; for generation.
struct KeyValueCache {
  std::vector<Var> keys, values;
  std::int64_t length() const { return keys.empty() || !keys[0].value() ? 0 : keys[0].shape()[1]; }
};

struct Attention {
  Matrix q_proj, k_proj, v_proj, o_proj;
  Var q_bias, k_bias, v_bias, o_bias;  // null where the model has none
  Var q_norm, k_norm;                  // null but in qwen3 models
};

struct DenseMlp {
  Matrix gate_proj, up_proj, down_proj;
  Var gate_bias, up_bias, down_bias;
};

struct SparseMlp {
  Matrix router, gate_proj, up_proj, down_proj;
};

struct Block {
  Var input_norm, post_attention_norm;
  Attention attention;
  DenseMlp dense;
  SparseMlp sparse;
  bool is_sparse = false;
};

struct ForwardOptions {
  KeyValueCache* cache = nullptr;
  bool checkpoint_blocks = false;  // recompute each block in the backward pass
  // Called with each sparse layer's expert offsets, u32 [E+1] on the device.
  std::function<void(std::int64_t layer, const Buffer& offsets)> on_routing;
};

class CausalLm {
 public:
  // Activations are computed in `dtype`: f32 or bf16.
  // Streamed weights are loaded block by block in each pass, but for the embedding and the output layer.
  CausalLm(const ModelConfig& config, TapeWeights& weights, DType dtype);
  bool is_streamed() const { return weights_.is_streamed(); }

  const ModelConfig& config() const { return config_; }
  // ids u32 [B, S] -> final normed activations [B, S, D].
  Var hidden(const Buffer& ids, const ForwardOptions& options = {}) const;
  // hidden [..., D] -> logits [..., V].
  Var logits(const Var& hidden, DType dtype = DType::f32) const;

 private:
  Var attention(const Block& block, std::int64_t layer, const Var& x, const Buffer& positions,
                KeyValueCache* cache) const;
  Var mlp(const Block& block, std::int64_t layer, const Var& x, const ForwardOptions& options) const;
  Var sparse_mlp(const SparseMlp& mlp, std::int64_t layer, const Var& x, const ForwardOptions& options) const;
  Var block(const Block& block, std::int64_t layer, const Var& x, const Buffer& positions,
            const ForwardOptions& options) const;
  Block block_at(std::int64_t layer) const;
  float eps() const { return static_cast<float>(config_.rms_norm_eps); }
  Buffer positions(std::int64_t batch, std::int64_t begin, std::int64_t length) const;

  ModelConfig config_;
  DType dtype_;
  TapeWeights& weights_;
  Tape& tape_;
  Matrix embedding_, head_;
  std::vector<Block> blocks_;
  Var final_norm_;
  Buffer inverse_frequencies_;
  mutable std::map<std::pair<std::int64_t, std::int64_t>, Buffer> positions_;  // by [B, S], from 0 on
};

}  // namespace mixtape
