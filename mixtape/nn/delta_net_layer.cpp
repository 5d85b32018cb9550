#include "mixtape/nn/delta_net_layer.h"

#include <cmath>

#include "mixtape/ops/causal_conv1d/causal_conv1d.h"
#include "mixtape/ops/elementwise/cast.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/gated_delta_rule/gated_delta_rule.h"
#include "mixtape/ops/gated_rms_norm/gated_rms_norm.h"
#include "mixtape/ops/l2_norm/l2_norm.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/runtime/creation.h"

namespace mixtape {
namespace {

constexpr float kKeyEps = 1e-6f;  // Hugging Face's

Var f32(const Var& x) { return x.dtype() == DType::f32 ? x : cast(x, DType::f32); }

// log(1 + e^x). Above 80 it is x in f32, where a sigmoid near 0 loses its bits.
Var softplus(const Var& x) { return relu(x - 80.0) - log(sigmoid(-minimum(x, 80.0))); }

// Takes the next columns of the last axis.
class Columns {
 public:
  explicit Columns(const Var& x) : x_(x) {}
  // [B, S, Hk, count] as [B, S, size / width, width].
  Var take(std::int64_t count, std::int64_t width) {
    const Var part = slice(x_, -1, begin_, begin_ + count);
    begin_ += count;
    return reshape(part, {x_.shape()[0], x_.shape()[1], -1, width});
  }

 private:
  Var x_;
  std::int64_t begin_ = 0;
};

// [B, S, heads, D] as [B, S, heads * D]
Var flat(const Var& x) { return reshape(x, {x.shape()[0], x.shape()[1], x.shape()[2] * x.shape()[3]}); }

}  // namespace

DeltaNetLayer::DeltaNetLayer(TapeWeights& weights, const std::string& at, const DeltaNetSpec& spec, float eps)
    : spec_(spec),
      eps_(eps),
      qkv_(weights.matrix(at + (spec.fused ? "in_proj_qkvz" : "in_proj_qkv"))),
      z_(spec.fused ? Matrix() : weights.matrix(at + "in_proj_z")),
      b_(weights.matrix(at + (spec.fused ? "in_proj_ba" : "in_proj_b"))),
      a_(spec.fused ? Matrix() : weights.matrix(at + "in_proj_a")),
      taps_(weights.vector(at + "conv1d.weight")),
      dt_bias_(weights.vector(at + "dt_bias")),
      a_log_(weights.vector(at + "A_log")),
      norm_(weights.vector(at + "norm.weight")),
      output_(weights.matrix(at + "out_proj")) {}

Var DeltaNetLayer::convolved(const Var& qkv, DeltaNetState* state) const {
  const Var taps = reshape(taps_, {spec_.channels(), spec_.taps});
  if (state == nullptr) return causal_conv1d(qkv, taps, Var(), Var(), ConvActivation::silu);
  Var& history = state->history;
  if (!history.value()) {
    const Shape before{qkv.shape()[0], spec_.taps - 1, spec_.channels()};
    history = qkv.tape().constant(zeros(qkv.tape().device(), before, qkv.dtype()));
  }
  const Var y = causal_conv1d(qkv, taps, Var(), history, ConvActivation::silu);
  const Var seen = concat({history, qkv}, 1);  // [B, taps - 1 + S, C]
  history = slice(seen, 1, qkv.shape()[1], seen.shape()[1]);
  return y;
}

Var DeltaNetLayer::log_decay(const Var& a) const {
  return -(exp(f32(a_log_)) * softplus(f32(a) + f32(dt_bias_)));  // f32 [B, S, Hv]
}

DeltaNetLayer::Parts DeltaNetLayer::fused_parts(const Var& x) const {
  const std::int64_t batch = x.shape()[0], length = x.shape()[1], group = spec_.value_heads / spec_.key_heads;
  const std::int64_t dk = spec_.key_dim, dv = spec_.value_dim;
  Columns parts(reshape(linear(x, qkv_), {batch, length, spec_.key_heads, -1}));  // [B, S, Hk, q|k|v|z]
  const Var q = parts.take(dk, dk), k = parts.take(dk, dk);                       // [B, S, Hk, Dk]
  const Var v = parts.take(group * dv, dv), z = parts.take(group * dv, dv);       // [B, S, Hv, Dv]
  Columns gates(reshape(linear(x, b_), {batch, length, spec_.key_heads, -1}));    // [B, S, Hk, b|a]
  const Var b = reshape(gates.take(group, group), {batch, length, spec_.value_heads});
  const Var a = reshape(gates.take(group, group), {batch, length, spec_.value_heads});
  return {concat({flat(q), flat(k), flat(v)}, -1), z, b, a};
}

DeltaNetLayer::Parts DeltaNetLayer::parts(const Var& x) const {
  if (spec_.fused) return fused_parts(x);
  const Shape heads{x.shape()[0], x.shape()[1], spec_.value_heads, spec_.value_dim};
  return {linear(x, qkv_), reshape(linear(x, z_), heads), linear(x, b_), linear(x, a_)};
}

Var DeltaNetLayer::forward(const Var& x, DeltaNetState* state, const Var& onto) const {
  const std::int64_t batch = x.shape()[0], length = x.shape()[1];
  const std::int64_t dk = spec_.key_dim, dv = spec_.value_dim;
  const auto [qkv, z, b, a] = parts(x);

  const Var mixed = convolved(qkv, state);  // [B, S, C]
  Columns columns(reshape(mixed, {batch, length, 1, spec_.channels()}));
  const Var queries = l2_norm(columns.take(spec_.keys(), dk), kKeyEps);  // [B, S, Hk, Dk]
  const Var keys = l2_norm(columns.take(spec_.keys(), dk), kKeyEps);     // [B, S, Hk, Dk]
  const Var values = columns.take(spec_.values(), dv);                   // [B, S, Hv, Dv]
  const float scale = 1.0f / std::sqrt(static_cast<float>(dk));
  const DeltaRule out = gated_delta_rule(queries, keys, values, log_decay(a), sigmoid(f32(b)),
                                         state ? state->state : Var(), scale);
  if (state) state->state = x.tape().constant(out.final_state);
  return linear_onto(onto, flat(gated_rms_norm(out.y, z, norm_, eps_)), output_, Var());  // [B, S, hidden]
}

}  // namespace mixtape
