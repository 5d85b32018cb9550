#include "mixtape/backend/gpu/lanes.h"
#include "mixtape/backend/gpu/ranking.h"
#include "mixtape/ops/moe_route/moe_route_params.h"

namespace mixtape {

// A token per warp: its logits are read once, ranked in registers, and the k best weighted. Lane j has the
// j-th.
template <class T, int Held>
MIXTAPE_DEVICE void moe_route_forward_held(const MoeRouteParams& p, Global<const T> logits,
                                           Global<float> weights, Global<std::uint32_t> indices) {
  const std::int64_t token = row_index();
  if (token >= p.tokens) return;
  RankedKeys<Held> held;
  load_ranked<T, Held>(logits + token * p.experts, p.experts, held);
  rank_held(held);
  const float max = key_value(lane_max_u32(held.key[0]));
  float others = 0.0f;
  if (p.normalise == 0) {
    MIXTAPE_UNROLL
    for (int h = 0; h < Held; ++h) others += held.key[h] != 0 ? exp_f32(key_value(held.key[h]) - max) : 0.0f;
  }
  const int k = static_cast<int>(p.k);
  const Ranked mine = take_largest_k(held, k);
  const float e = lane() < k ? exp_f32(key_value(mine.key) - max) : 0.0f;
  const float sum = lane_sum(p.normalise != 0 ? e : others);
  if (lane() >= k) return;
  weights[token * p.k + lane()] = e / sum;
  indices[token * p.k + lane()] = mine.column;
}
#define FORWARD_HELD(T, HELD)                                                                       \
  MIXTAPE_KERNEL(moe_route_forward_##T##_held##HELD, 256, MoeRouteParams p, Global<const T> logits, \
                 Global<float> weights, Global<std::uint32_t> indices) {                            \
    await_earlier();                                                                                \
    moe_route_forward_held<T, HELD>(p, logits, weights, indices);                                   \
  }

template <class T>
MIXTAPE_DEVICE float sum_of_exp(Global<const T> row, float max, std::int64_t cols) {
  float sum = 0.0f;
  for (std::int64_t c = lane(); c < cols; c += kLanes) sum += exp_f32(to_f32(row[c]) - max);
  return lane_sum(sum);
}

// The weights of experts that are ranked already, a token per warp.
template <class T>
MIXTAPE_DEVICE void moe_route_weights(const MoeRouteParams& p, Global<const T> logits,
                                      Global<const std::uint32_t> indices, Global<float> weights) {
  const std::int64_t token = row_index();
  if (token >= p.tokens) return;
  const Global<const T> row = logits + token * p.experts;
  const std::int64_t first = token * p.k;
  const float max = to_f32(row[indices[first]]);
  float sum = 0.0f;
  for (std::int64_t j = lane(); j < p.k; j += kLanes) sum += exp_f32(to_f32(row[indices[first + j]]) - max);
  sum = p.normalise != 0 ? lane_sum(sum) : sum_of_exp<T>(row, max, p.experts);
  for (std::int64_t j = lane(); j < p.k; j += kLanes)
    weights[first + j] = exp_f32(to_f32(row[indices[first + j]]) - max) / sum;
}
#define FORWARD(T)                                                                     \
  FORWARD_HELD(T, 1)                                                                   \
  FORWARD_HELD(T, 2)                                                                   \
  FORWARD_HELD(T, 4)                                                                   \
  FORWARD_HELD(T, 8)                                                                   \
  FORWARD_HELD(T, 16)                                                                  \
  MIXTAPE_KERNEL(moe_route_weights_##T, 256, MoeRouteParams p, Global<const T> logits, \
                 Global<const std::uint32_t> indices, Global<float> weights) {         \
    await_earlier();                                                                   \
    moe_route_weights<T>(p, logits, indices, weights);                                 \
  }
MIXTAPE_VALUE_KERNELS(FORWARD)

// What the softmax over all experts adds to a row's gradient: factor * exp(logits - max), or nothing.
struct SoftmaxPart {
  bool is_there;
  float max, factor;
};
template <class T, int N>
MIXTAPE_DEVICE SoftmaxPart softmax_part(Global<const T> row, std::int64_t experts, float dot) {
  float max = float_of(0xff800000u), sum = 0.0f;
  for (std::int64_t c = lane() * N; c < experts; c += kLanes * N) {
    const auto x = load_pack<N>(row + c);
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) max = max_nan(max, to_f32(x.v[i]));
  }
  max = lane_max(max);
  for (std::int64_t c = lane() * N; c < experts; c += kLanes * N) {
    const auto x = load_pack<N>(row + c);
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) sum += exp_f32(to_f32(x.v[i]) - max);
  }
  return {true, max, -dot / lane_sum(sum)};
}

// The chosen experts of a row.
struct Choice {
  Global<const float> weights;
  Global<const std::uint32_t> indices;
  Global<const float> dweights;
  std::int64_t k;
  float dot;
};
// Replaces d, the gradients of N columns from c on, where they are chosen. The whole warp takes part.
template <int N>
MIXTAPE_DEVICE void put_chosen(const Choice& choice, std::int64_t c, float* d) {
  for (std::int64_t done = 0; done < choice.k; done += kLanes) {
    const int count = static_cast<int>(choice.k - done < kLanes ? choice.k - done : kLanes);
    const std::int64_t j = done + (lane() < count ? lane() : 0);
    const std::uint32_t my_column = choice.indices[j];
    const float my_d = choice.weights[j] * (choice.dweights[j] - choice.dot);
    for (int from = 0; from < count; ++from) {
      const std::int64_t offset = lane_shuffle(my_column, from) - c;
      const float chosen = lane_shuffle(my_d, from);
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) d[i] = offset == i ? chosen : d[i];
    }
  }
}

// A token per warp.
template <class T, int N>
MIXTAPE_DEVICE void moe_route_backward(const MoeRouteParams& p, Global<const T> row, const Choice& choice,
                                       Global<T> out) {
  SoftmaxPart part{false, 0.0f, 0.0f};
  if (p.normalise == 0 && choice.indices[0] < p.experts)
    part = softmax_part<T, N>(row, p.experts, choice.dot);
  for (std::int64_t c0 = 0; c0 < p.experts; c0 += kLanes * N) {
    const std::int64_t c = c0 + lane() * N;
    const bool is_inside = c < p.experts;
    Pack<T, N> x, sum;
    if (part.is_there && is_inside) x = load_pack<N>(row + c);
    if (p.accumulate != 0 && is_inside) sum = load_pack<N>(out + c);
    float d[N];
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i)
      d[i] = part.is_there && is_inside ? exp_f32(to_f32(x.v[i]) - part.max) * part.factor : 0.0f;
    put_chosen<N>(choice, c, d);
    if (!is_inside) continue;
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) sum.v[i] = from_f32<T>(p.accumulate != 0 ? to_f32(sum.v[i]) + d[i] : d[i]);
    store_pack(out + c, sum);
  }
}
template <class T>
MIXTAPE_DEVICE void moe_route_backward_row(const MoeRouteParams& p, Global<const T> logits,
                                           Global<const float> weights, Global<const std::uint32_t> indices,
                                           Global<const float> dweights, Global<T> dlogits,
                                           Global<std::uint64_t> errors) {
  constexpr int kPack = 4;
  const std::int64_t token = row_index();
  if (token >= p.tokens) return;
  const std::int64_t first = token * p.k;
  Choice choice{weights + first, indices + first, dweights + first, p.k, 0.0f};
  for (std::int64_t j = lane(); j < p.k; j += kLanes) {
    choice.dot += choice.dweights[j] * choice.weights[j];
    const std::uint32_t column = choice.indices[j];
    if (column >= p.experts) report_index(errors, first + j, column);
  }
  choice.dot = lane_sum(choice.dot);
  const Global<const T> row = logits + token * p.experts;
  const Global<T> out = dlogits + token * p.experts;
  constexpr int kBytes = kPack * sizeof(T);
  if (p.experts % kPack == 0 && is_aligned(logits, kBytes) && is_aligned(dlogits, kBytes)) {
    moe_route_backward<T, kPack>(p, row, choice, out);
  } else {
    moe_route_backward<T, 1>(p, row, choice, out);
  }
}
#define BACKWARD(T)                                                                               \
  MIXTAPE_KERNEL(moe_route_backward_##T, 256, MoeRouteParams p, Global<const T> logits,           \
                 Global<const float> weights, Global<const std::uint32_t> indices,                \
                 Global<const float> dweights, Global<T> dlogits, Global<std::uint64_t> errors) { \
    await_earlier();                                                                              \
    moe_route_backward_row<T>(p, logits, weights, indices, dweights, dlogits, errors);            \
  }
MIXTAPE_VALUE_KERNELS(BACKWARD)

// From the slots sorted by expert: what moe_plan hands out besides their number per expert.
MIXTAPE_KERNEL(moe_plan_places, 256, MoePlanParams p, Global<const std::uint32_t> sorted,
               Global<const std::uint32_t> indices, Global<std::uint32_t> order, Global<std::uint32_t> rows,
               Global<std::uint32_t> inverse, Global<std::uint32_t> experts) {
  await_earlier();
  const std::int64_t i = global_thread();
  if (i >= p.slots) return;
  const std::uint32_t slot = sorted[i];
  order[i] = slot;
  rows[i] = static_cast<std::uint32_t>(divide(slot, p.k));
  inverse[slot] = static_cast<std::uint32_t>(i);
  experts[i] = indices[slot];
}

}  // namespace mixtape
