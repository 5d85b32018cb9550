#include "mixtape/ops/attention/attention_check.h"

#include <algorithm>
#include <cmath>

#include "mixtape/testing/check_registry.h"

namespace mixtape {

using oracle::AttentionCase;
using testing::Doubles;
using testing::largest;
using testing::OpCheck;

AttentionOptions options_of(const Device& device, const AttentionCase& c) {
  AttentionOptions o{.scale = static_cast<float>(c.scale), .causal = c.causal, .sliding_window = c.window};
  if (!c.lengths.empty()) {
    const std::vector<std::int32_t> lengths(c.lengths.begin(), c.lengths.end());
    o.lengths = Buffer::from(device, {c.batch}, lengths);
  }
  return o;
}

namespace {

// Largest sum of |x| over groups of `size` neighbours.
double largest_sum(const Doubles& x, std::int64_t size) {
  double max = 0.0;
  for (std::size_t i = 0; i < x.size(); i += size) {
    double sum = 0.0;
    for (std::int64_t d = 0; d < size; ++d) sum += std::abs(x[i + d]);
    max = std::max(max, sum);
  }
  return max;
}

double largest_column_sum(const AttentionCase& c, const Doubles& p) {
  double max = 1.0;
  const std::int64_t group = c.q_heads / c.kv_heads;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t kv = 0; kv < c.kv_heads; ++kv) {
      for (std::int64_t j = 0; j < c.k_len; ++j) {
        double sum = 0.0;
        for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
          for (std::int64_t i = 0; i < c.q_len; ++i) sum += p[c.p(b, h, i, j)];
        }
        max = std::max(max, sum);
      }
    }
  }
  return max;
}

// The largest sum of a head's weights of its sink: what its queries' keys leave of 1.
double largest_sink_sum(const AttentionCase& c, const Doubles& p) {
  double max = 0.0;
  for (std::int64_t h = 0; h < c.q_heads; ++h) {
    double sum = 0.0;
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t i = 0; i < c.q_len; ++i) {
        sum += 1.0;
        for (std::int64_t j = 0; j < c.k_len; ++j) sum -= p[c.p(b, h, i, j)];
      }
    }
    max = std::max(max, sum);
  }
  return max;
}

// The bounds of attention.h for |dy| <= 4.
void set_bounds(OpCheck& check, const Device& device, DType dtype, const AttentionCase& c, const Doubles& q,
                const Doubles& k, const Doubles& v, const Doubles& sinks) {
  const double u = 0x1p-24, dim = static_cast<double>(c.head_dim), keys = static_cast<double>(c.k_len);
  const double scores =
      c.scale * std::min(largest_sum(q, c.head_dim) * largest(k), largest_sum(k, c.head_dim) * largest(q));
  const double a = std::max(scores / 2, largest(sinks));
  const Doubles p = oracle::attention_weights(c, q, k, sinks);
  const double columns = largest_column_sum(c, p);
  const double dy_y = 4.0 * largest_sum(oracle::attention(c, q, k, v, sinks), c.head_dim);
  const double weights = (4.0 * dim * a + keys + 8.0) * u;
  // Matrix units of a card take weights in 16 bits, in bf16 their gradients too.
  const bool on_units = dtype != DType::f32 && device.name().starts_with("cuda");
  const double half_unit = epsilon(dtype) / 2, rounded_weight = on_units ? half_unit + keys * u : 0.0;
  const double rounded = on_units && dtype == DType::bf16 ? half_unit : 0.0;
  const double score = c.scale * std::max(largest(q), largest(k)) *
                       (half_unit * dy_y + (weights + 2.0 * rounded) * 2.0 * dim * largest(v));
  check.forward_bound = {1.0, ((2.0 * dim * a + keys + 8.0) * u + rounded_weight) * largest(v)};
  check.backward_bound = {1.0, columns * std::max(score, (weights + rounded) * 4.0)};
  if (sinks.empty()) return;
  const double terms = static_cast<double>(c.batch * c.q_len) * u;
  const double of_sinks =
      largest_sink_sum(c, p) *
      (half_unit * dy_y + (weights + terms + 2.0 * rounded_weight) * 4.0 * dim * largest(v));
  check.backward_bound.absolute = std::max(check.backward_bound.absolute, of_sinks);
}

}  // namespace

OpCheck attention_check(const Device& device, DType dtype, AttentionCase c) {
  c.scale = static_cast<double>(static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim))));
  OpCheck check;
  check.name = str("attention ", dtype, " ", c.batch, "x", c.q_len, "/", c.k_len, " heads ", c.q_heads, "/",
                   c.kv_heads, " dim ", c.head_dim, c.causal ? " causal" : "", " window ", c.window,
                   c.has_sinks ? " sinks" : "");
  check.inputs = {testing::random_tensor(dtype, {c.batch, c.q_len, c.q_heads, c.head_dim}, 1),
                  testing::random_tensor(dtype, {c.batch, c.k_len, c.kv_heads, c.head_dim}, 2),
                  testing::random_tensor(dtype, {c.batch, c.k_len, c.kv_heads, c.head_dim}, 3)};
  if (c.has_sinks) check.inputs.push_back(testing::random_tensor(DType::f32, {c.q_heads}, 4));
  check.op = [o = options_of(device, c)](const std::vector<Var>& v) {
    return attention(v[0], v[1], v[2], o, v.size() > 3 ? v[3] : Var());
  };
  const auto forward = [c](const auto& x) {
    using Values = std::decay_t<decltype(x[0])>;
    return oracle::attention(c, x[0], x[1], x[2], x.size() > 3 ? x[3] : Values());
  };
  check.forward = forward;
  check.complex_forward = forward;
  check.backward = [c](const auto& x, const Doubles& dy) {
    auto gradients = oracle::attention_backward(c, x[0], x[1], x[2], dy, x.size() > 3 ? x[3] : Doubles());
    gradients.resize(x.size());
    return gradients;
  };
  set_bounds(check, device, dtype, c, check.inputs[0].values, check.inputs[1].values, check.inputs[2].values,
             c.has_sinks ? check.inputs[3].values : Doubles());
  check.prove_oracle = c.batch * c.q_len * c.k_len * c.q_heads * c.head_dim < 2000;
  return check;
}

std::vector<OpCheck> attention_checks(const Device& device, DType dtype) {
  std::vector<AttentionCase> cases = {
      {.batch = 0, .q_len = 2, .k_len = 3, .q_heads = 2, .kv_heads = 1, .head_dim = 8},
      {.batch = 1, .q_len = 0, .k_len = 3, .q_heads = 2, .kv_heads = 1, .head_dim = 8},
      {.batch = 2, .q_len = 5, .k_len = 5, .q_heads = 2, .kv_heads = 1, .head_dim = 8},
      {.batch = 1, .q_len = 3, .k_len = 7, .q_heads = 2, .kv_heads = 2, .head_dim = 10, .causal = false},
      {.batch = 2, .q_len = 4, .k_len = 9, .q_heads = 4, .kv_heads = 2, .head_dim = 8},
      {.batch = 1, .q_len = 1, .k_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 64},
      {.batch = 2, .q_len = 1, .k_len = 33, .q_heads = 6, .kv_heads = 2, .head_dim = 16},
      {.batch = 1, .q_len = 7, .k_len = 9, .q_heads = 2, .kv_heads = 1, .head_dim = 8, .window = 2},
      {.batch = 4,
       .q_len = 6,
       .k_len = 6,
       .q_heads = 2,
       .kv_heads = 1,
       .head_dim = 8,
       .window = 2,
       .lengths = {6, 3, 0, 1}}};
  for (AttentionCase c : std::vector(cases)) {
    c.has_sinks = true;
    cases.push_back(c);
  }
  std::vector<OpCheck> checks;
  for (const AttentionCase& c : cases) checks.push_back(attention_check(device, dtype, c));
  return checks;
}

MIXTAPE_OP_CHECKS(attention, testing::kValueDtypes, attention_checks)

}  // namespace mixtape
