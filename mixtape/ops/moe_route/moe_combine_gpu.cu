#include "mixtape/backend/gpu/lanes.h"
#include "mixtape/ops/moe_route/moe_route_params.h"

namespace mixtape {

// A pack of a token's columns per thread; four of its rows are under way at a time: the lane_barrier keeps
// the compiler from reading them one by one.
template <class T, int N>
MIXTAPE_DEVICE void moe_combine_forward(const MoeCombineParams& p, Global<const T> x,
                                        Global<const float> weights, Global<const std::uint32_t> inverse,
                                        Global<const T> addend, Global<T> y, Global<std::uint64_t> errors) {
  constexpr int kRows = 4;
  const std::int64_t packs = p.cols / N, slots = p.tokens * p.k;
  const bool is_inside = global_thread() < p.tokens * packs;
  const std::int64_t i = is_inside ? global_thread() : 0;
  const std::int64_t token = divide(i, packs), c = (i - token * packs) * N;
  float sum[N];
  MIXTAPE_UNROLL
  for (int n = 0; n < N; ++n) sum[n] = 0.0f;
  for (std::int64_t first = 0; first < p.k; first += kRows) {
    Pack<T, N> rows[kRows];
    std::uint32_t place[kRows];
    float weight[kRows];
    bool is_there[kRows];
    MIXTAPE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t slot = token * p.k + (first + r < p.k ? first + r : 0);
      place[r] = inverse[slot];
      weight[r] = weights[slot];
      is_there[r] = is_inside && first + r < p.k && place[r] < slots;
    }
    MIXTAPE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (is_there[r]) rows[r] = load_pack<N>(x + (place[r] * p.cols + c));
      if (is_inside && c == 0 && first + r < p.k && place[r] >= slots)
        report_index(errors, token * p.k + first + r, place[r]);
    }
    lane_barrier();
    MIXTAPE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (!is_there[r]) continue;
      MIXTAPE_UNROLL
      for (int n = 0; n < N; ++n) sum[n] = fma_f32(weight[r], to_f32(rows[r].v[n]), sum[n]);
    }
  }
  if (!is_inside) return;
  Pack<T, N> out;
  if (p.has_addend != 0) out = load_pack<N>(addend + (token * p.cols + c));
  MIXTAPE_UNROLL
  for (int n = 0; n < N; ++n) out.v[n] = from_f32<T>(p.has_addend != 0 ? sum[n] + to_f32(out.v[n]) : sum[n]);
  store_pack(y + (token * p.cols + c), out);
}
#define FORWARD_OF(T, N, name)                                                                             \
  MIXTAPE_KERNEL(moe_combine_forward_##T##name, 256, MoeCombineParams p, Global<const T> x,                \
                 Global<const float> weights, Global<const std::uint32_t> inverse, Global<const T> addend, \
                 Global<T> y, Global<std::uint64_t> errors) {                                              \
    await_earlier();                                                                                       \
    moe_combine_forward<T, N>(p, x, weights, inverse, addend, y, errors);                                  \
  }
#define FORWARD(T)                      \
  FORWARD_OF(T, 16 / sizeof(T), _packs) \
  FORWARD_OF(T, 1, _any)
MIXTAPE_VALUE_KERNELS(FORWARD)

// A slot per warp: those of a token stand in one block, which reads dy once. Two packs per lane at a time.
template <class T, int N>
MIXTAPE_DEVICE void moe_combine_backward(const MoeCombineParams& p, Global<const T> x,
                                         Global<const float> weights, Global<const std::uint32_t> inverse,
                                         Global<const T> dy, Global<T> dx, Global<float> dweights,
                                         Global<std::uint64_t> errors) {
  constexpr int kPacks = 2;
  const std::int64_t slot = row_index(), slots = p.tokens * p.k;
  if (slot >= slots) return;
  const std::uint32_t place = inverse[slot];
  const bool is_there = place < slots;
  if (!is_there && lane() == 0) report_index(errors, slot, place);
  const float weight = weights[slot];
  const std::int64_t token = divide(slot, p.k) * p.cols, row = is_there ? place * p.cols : 0;
  const bool wants_dx = (p.wanted & p.dx) != 0 && is_there,
             wants_dot = (p.wanted & p.dweights) != 0 && is_there;
  float dot = 0.0f;
  for (std::int64_t c0 = 0; is_there && c0 < p.cols; c0 += kPacks * kLanes * N) {
    Pack<T, N> upstream[kPacks], in[kPacks], out[kPacks];
    MIXTAPE_UNROLL
    for (int h = 0; h < kPacks; ++h) {
      const std::int64_t c = c0 + (h * kLanes + lane()) * N;
      if (c >= p.cols) continue;
      upstream[h] = load_pack<N>(dy + (token + c));
      if (wants_dot) in[h] = load_pack<N>(x + (row + c));
      if (wants_dx && (p.accumulate & p.dx) != 0) out[h] = load_pack<N>(dx + (row + c));
    }
    lane_barrier();
    MIXTAPE_UNROLL
    for (int h = 0; h < kPacks; ++h) {
      const std::int64_t c = c0 + (h * kLanes + lane()) * N;
      if (c >= p.cols) continue;
      MIXTAPE_UNROLL
      for (int n = 0; n < N; ++n) {
        const float u = to_f32(upstream[h].v[n]), d = u * weight;
        if (wants_dot) dot = fma_f32(to_f32(in[h].v[n]), u, dot);
        out[h].v[n] = from_f32<T>(wants_dx && (p.accumulate & p.dx) != 0 ? to_f32(out[h].v[n]) + d : d);
      }
      if (wants_dx) store_pack(dx + (row + c), out[h]);
    }
  }
  dot = lane_sum(dot);
  if ((p.wanted & p.dweights) != 0 && lane() == 0)
    dweights[slot] = (p.accumulate & p.dweights) != 0 ? static_cast<float>(dweights[slot]) + dot : dot;
}
#define BACKWARD_OF(T, N, name)                                                                        \
  MIXTAPE_KERNEL(moe_combine_backward_##T##name, 256, MoeCombineParams p, Global<const T> x,           \
                 Global<const float> weights, Global<const std::uint32_t> inverse, Global<const T> dy, \
                 Global<T> dx, Global<float> dweights, Global<std::uint64_t> errors) {                 \
    await_earlier();                                                                                   \
    moe_combine_backward<T, N>(p, x, weights, inverse, dy, dx, dweights, errors);                      \
  }
#define BACKWARD(T)                      \
  BACKWARD_OF(T, 16 / sizeof(T), _packs) \
  BACKWARD_OF(T, 1, _any)
MIXTAPE_VALUE_KERNELS(BACKWARD)

}  // namespace mixtape
