#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/adam/adam_gpu_params.h"

namespace mixtape {

// An element's random bits.
MIXTAPE_DEVICE std::uint32_t random_bits(std::int64_t index, std::uint32_t seed) {
  std::uint32_t x = static_cast<std::uint32_t>(index) * kAdamLow +
                    static_cast<std::uint32_t>(index >> 32) * kAdamHigh + seed;
  x = (x ^ (x >> 16)) * kAdamMix0;
  x = (x ^ (x >> 13)) * kAdamMix1;
  return x ^ (x >> 16);
}
// A moment as it is stored: f32 as it is, bf16 up or down by 16 random bits.
template <class M>
MIXTAPE_DEVICE M moment(float v, std::uint32_t bits) {
  if constexpr (sizeof(M) == 4) {
    return from_f32<M>(v);
  } else {
    const std::uint32_t u = bits_of(v);
    if ((u & 0x7f800000u) == 0x7f800000u) return from_f32<M>(v);
    return from_f32<M>(float_of((u + (bits & 0xffffu)) & 0xffff0000u));
  }
}

// Neighbouring elements from `index` on: their m, v and p in, then out.
template <class P, class G, class M, int N>
MIXTAPE_DEVICE void update(const AdamParams& o, float rate, std::int64_t index, const Pack<G, N>& g,
                           Pack<M, N>& m, Pack<M, N>& v, Pack<P, N>& p) {
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) {
    const float gradient = o.grad_scale * to_f32(g.v[i]);
    const float mean = fma_f32(o.beta1, to_f32(m.v[i]), o.one_minus_beta1 * gradient);
    const float square = fma_f32(o.beta2, to_f32(v.v[i]), o.one_minus_beta2 * (gradient * gradient));
    const float step = rate * mean / (sqrt_f32(square * o.correction2) + o.eps);
    p.v[i] = from_f32<P>(fma_f32(o.keep, to_f32(p.v[i]), -step));
    const std::uint32_t bits = sizeof(M) == 2 ? random_bits(index + i, o.seed) : 0u;
    m.v[i] = moment<M>(mean, bits);
    v.v[i] = moment<M>(square, bits >> 16);
  }
}
template <class P, class G, class M, int N>
MIXTAPE_DEVICE void update_at(const AdamParams& o, float rate, std::int64_t i, Global<const G> g, Global<P> p,
                              Global<M> m, Global<M> v) {
  const auto gradient = load_pack<N>(g + i);
  auto mean = load_pack<N>(m + i), square = load_pack<N>(v + i);
  auto parameter = load_pack<N>(p + i);
  update<P, G, M, N>(o, rate, i, gradient, mean, square, parameter);
  store_pack(m + i, mean);
  store_pack(v + i, square);
  store_pack(p + i, parameter);
}

// Which of the launch's tensors a block works on.
MIXTAPE_DEVICE int tensor_of_block(const AdamGroupParams& a) {
  int tensor = 0;
  MIXTAPE_UNROLL
  for (int t = 1; t < kAdamTensors; ++t) {
    if (a.counts[t] > 0 && block_x() >= a.first_blocks[t]) tensor = t;
  }
  return tensor;
}
template <class T>
MIXTAPE_DEVICE T one_of(int i, T t0, T t1, T t2, T t3, T t4, T t5, T t6, T t7) {
  const T low = i < 2 ? (i == 0 ? t0 : t1) : (i == 2 ? t2 : t3);
  const T high = i < 6 ? (i == 4 ? t4 : t5) : (i == 6 ? t6 : t7);
  return i < 4 ? low : high;
}

template <class P, class G, class M>
MIXTAPE_DEVICE void adam_step(const AdamGroupParams& a, int tensor, float unit, Global<const G> g,
                              Global<P> p, Global<M> m, Global<M> v) {
  constexpr int kPack = static_cast<int>(kAdamPack);
  const std::int64_t count = one_of<std::int64_t>(tensor, a.counts[0], a.counts[1], a.counts[2], a.counts[3],
                                                  a.counts[4], a.counts[5], a.counts[6], a.counts[7]);
  const std::int64_t first =
      one_of<std::int64_t>(tensor, a.first_blocks[0], a.first_blocks[1], a.first_blocks[2], a.first_blocks[3],
                           a.first_blocks[4], a.first_blocks[5], a.first_blocks[6], a.first_blocks[7]);
  const std::int64_t i = (block_x() - first) * kAdamLaunchBlock + thread_x() * kPack;
  const float rate = a.options.lr * unit * a.options.correction1;
  if (is_aligned(g, 16) && is_aligned(p, 16) && is_aligned(m, 16) && is_aligned(v, 16) && i + kPack <= count)
    return update_at<P, G, M, kPack>(a.options, rate, i, g, p, m, v);
  for (int c = 0; c < kPack && i + c < count; ++c) update_at<P, G, M, 1>(a.options, rate, i + c, g, p, m, v);
}
#define ADAM_OF(T, name)                                                                         \
  Global<T> name##0, Global<T> name##1, Global<T> name##2, Global<T> name##3, Global<T> name##4, \
      Global<T> name##5, Global<T> name##6, Global<T> name##7
#define ADAM_ONE(name) one_of(tensor, name##0, name##1, name##2, name##3, name##4, name##5, name##6, name##7)
#define ADAM(P, G, M)                                                                                    \
  MIXTAPE_KERNEL(adam_step_##P##_##G##_##M, 256, AdamGroupParams a, Global<const float> units,           \
                 ADAM_OF(const G, g), ADAM_OF(P, p), ADAM_OF(M, m), ADAM_OF(M, v)) {                     \
    await_earlier();                                                                                     \
    const int tensor = tensor_of_block(a);                                                               \
    adam_step<P, G, M>(a, tensor, units[a.first_tensor + tensor], ADAM_ONE(g), ADAM_ONE(p), ADAM_ONE(m), \
                       ADAM_ONE(v));                                                                     \
  }
#define ADAMS(P)    \
  ADAM(P, f32, f32) \
  ADAM(P, bf16, f32) ADAM(P, f16, f32) ADAM(P, f32, bf16) ADAM(P, bf16, bf16) ADAM(P, f16, bf16)
MIXTAPE_VALUE_KERNELS(ADAMS)

// A block of kAdamBlock elements per block: four packs of each thread are under way at a time.
template <class T, int N>
MIXTAPE_DEVICE float squares_of_thread(Global<const T> x, std::int64_t begin, std::int64_t end) {
  constexpr int kPacks = 4;
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  float sum = 0.0f;
  for (std::int64_t first = begin; first < end; first += kPacks * step) {
    Pack<T, N> packs[kPacks];
    MIXTAPE_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t i = first + p * step + thread_x() * N;
      MIXTAPE_UNROLL
      for (int c = 0; c < N; ++c) packs[p].v[c] = from_f32<T>(0.0f);
      if (i + N <= end) packs[p] = load_pack<N>(x + i);
      for (int c = 0; c < N && i + N > end && i + c < end; ++c) {
        const float value = to_f32(x[i + c]);
        sum = fma_f32(value, value, sum);
      }
    }
    lane_barrier();
    MIXTAPE_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      MIXTAPE_UNROLL
      for (int c = 0; c < N; ++c) sum = fma_f32(to_f32(packs[p].v[c]), to_f32(packs[p].v[c]), sum);
    }
  }
  return sum;
}
#define SQUARES(T)                                                                                     \
  MIXTAPE_KERNEL(squares_of_blocks_##T, 256, SquaresParams p, Global<const T> x, Global<float> sums) { \
    await_earlier();                                                                                   \
    MIXTAPE_SHARED(float, scratch, 32);                                                                \
    constexpr int kPack = 16 / sizeof(T);                                                              \
    const std::int64_t begin = block_x() * kAdamBlock;                                                 \
    const std::int64_t end = begin + kAdamBlock < p.count ? begin + kAdamBlock : p.count;              \
    const float mine = is_aligned(x, 16) ? squares_of_thread<T, kPack>(x, begin, end)                  \
                                         : squares_of_thread<T, 1>(x, begin, end);                     \
    const float all = block_sum(mine, scratch);                                                        \
    if (thread_x() == 0) sums[block_x()] = all;                                                        \
  }
MIXTAPE_VALUE_KERNELS(SQUARES)

// All sums by one block.
MIXTAPE_KERNEL(squares_of_all, 1024, SquaresParams p, Global<const float> sums, Global<float> out) {
  await_earlier();
  MIXTAPE_SHARED(float, scratch, 32);
  float mine = 0.0f;
  for (std::int64_t i = thread_x(); i < p.count; i += threads_x()) mine += sums[i];
  const float all = block_sum(mine, scratch);
  if (thread_x() == 0) out[0] = all;
}

}  // namespace mixtape
