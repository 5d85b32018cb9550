#include "mixtape/nn/attention_layer.h"

#include <algorithm>

#include "mixtape/ops/attention/attention.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/layout/layout.h"

namespace mixtape {
namespace {

// Positions that a cache has room for beyond those that it is made for, at least: so seldom is it copied to a longer one.
constexpr std::int64_t kRoom = 64;

// Writes `now` [B, S, Hkv, D] to a cache that holds `length` positions; one that is too short is replaced.
void append(Buffer& cache, std::int64_t length, const Var& now) {
  Tape& tape = now.tape();
  const Shape& shape = now.shape();
  const std::int64_t end = length + shape[1];
  if (!cache || cache.shape()[1] < end) {
    const Buffer longer =
        tape.alloc(now.dtype(), {shape[0], end + std::max(kRoom, length / 2), shape[2], shape[3]});
    if (cache) concat_forward(tape.encoder(), cache, 1, 0, longer);
    cache = longer;
  }
  concat_forward(tape.encoder(), now.value(), 1, length, cache);
}

}  // namespace

AttentionLayer::AttentionLayer(TapeWeights& weights, const std::string& at, const AttentionSpec& spec,
                               const NormSettings& norms)
    : spec_(spec),
      q_(load(weights, at, spec.fused ? "qkv" : "q", spec.qk_norms ? &norms : nullptr)),
      k_(spec.fused ? Projection() : load(weights, at, "k", spec.qk_norms ? &norms : nullptr)),
      v_(spec.fused ? Projection() : load(weights, at, "v", nullptr)),
      sinks_(spec.sinks ? weights.vector(at + "sinks") : Var()),
      output_(weights.matrix(at + "o_proj")) {
  if (spec.output_bias) output_bias_ = weights.vector(at + "o_proj.bias");
}

AttentionLayer::Projection AttentionLayer::load(TapeWeights& weights, const std::string& at,
                                                const char* letter, const NormSettings* norm) const {
  const std::string path = at + letter + "_proj";
  return {weights.matrix(path), spec_.qkv_bias ? weights.vector(path + ".bias") : Var(),
          norm ? Norm(weights, at + letter + "_norm.weight", *norm) : Norm()};
}

AttentionLayer::Flat AttentionLayer::project(const Var& x) const {
  const auto product = [&](const Projection& p) { return add_bias(linear(x, p.weight), p.bias); };
  if (!spec_.fused) return {product(q_), product(k_), product(v_)};
  const Var all = product(q_);
  const std::int64_t q = spec_.heads * spec_.head_dim, kv = spec_.kv_heads * spec_.head_dim;
  return {slice(all, -1, 0, q), slice(all, -1, q, q + kv), slice(all, -1, q + kv, q + 2 * kv)};
}

// [B, S, count, D], or 2D with a gate.
Var AttentionLayer::by_head(const Var& flat, std::int64_t count) const {
  return reshape(flat, {flat.shape()[0], flat.shape()[1], count, -1});
}

Var AttentionLayer::turned(const Var& heads, const Norm& norm, const Buffer& positions,
                           const Rotation& rotation) const {
  const RopeTurns turns{positions, rotation.frequencies, {.factor = rotation.factor}};
  if (!spec_.joint_norms) return turns.inv_freq ? norm(heads, turns) : norm(heads);
  const Shape& shape = heads.shape();
  const Var normed = reshape(norm(reshape(heads, {shape[0], shape[1], shape[2] * shape[3]})), shape);
  return turns.inv_freq ? Norm()(normed, turns) : normed;
}

Var AttentionLayer::forward(const Var& x, const Buffer& positions, const Rotation& rotation,
                            AttentionState* state, const Buffer& lengths, const Var& onto) const {
  const std::int64_t dim = spec_.head_dim;
  const Flat flat = project(x);
  Var q = by_head(flat.q, spec_.heads), gate;
  if (spec_.output_gate) {
    gate = slice(q, -1, dim, 2 * dim);  // [B, S, Hq, D]
    q = slice(q, -1, 0, dim);
  }
  q = turned(q, q_.norm, positions, rotation);                                    // [B, S, Hq, D]
  Var k = turned(by_head(flat.k, spec_.kv_heads), k_.norm, positions, rotation);  // [B, S, Hkv, D]
  Var v = by_head(flat.v, spec_.kv_heads);                                        // [B, S, Hkv, D]
  AttentionOptions options{.scale = static_cast<float>(spec_.score_scale()), .sliding_window = spec_.window};
  if (state) {
    if (lengths) {
      put_forward(x.tape().encoder(), k.value(), 1, positions, state->keys);
      put_forward(x.tape().encoder(), v.value(), 1, positions, state->values);
      options.lengths = lengths;
      options.sliding_window = 0;  // which the room does not exceed
    } else {
      append(state->keys, state->length, k);
      append(state->values, state->length, v);
      options.key_count = state->length += x.shape()[1];
    }
    k = x.tape().constant(state->keys), v = x.tape().constant(state->values);  // [B, room, Hkv, D]
  }
  const Var sinks = sinks_.value() ? in_dtype(sinks_, DType::f32) : Var();
  Var y = attention(q, k, v, options, sinks);  // [B, S, Hq, D]
  if (spec_.output_gate) y *= sigmoid(gate);
  const Var joined = reshape(y, {x.shape()[0], x.shape()[1], spec_.heads * spec_.head_dim});
  return linear_onto(onto, joined, output_, output_bias_);  // [B, S, hidden]
}

}  // namespace mixtape
