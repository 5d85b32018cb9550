#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/latent_codes/latent_codes_gpu_params.h"
#include "mixtape/ops/quantize/codes_gpu.h"

namespace mixtape {

// What u stands for; NaN for 0.
MIXTAPE_DEVICE float latent_code(float u, float largest) {
  return u > 0.0f ? rint_f32(u < largest ? u : largest) : 0.0f;
}

template <class T>
MIXTAPE_DEVICE void latent_codes_forward(const LatentForwardParams& p, Global<const float> u,
                                         Global<const float> scales, Global<const float> biases,
                                         Global<T> w) {
  const std::int64_t chunk = global_thread(), at = chunk * kCodesAtOnce;
  if (at >= p.groups.count) return;
  float v[kCodesAtOnce];
  load_eight(u, at, p.groups.count, v);
  const float scale = scales[chunk >> p.groups.group_shift], bias = biases[chunk >> p.groups.group_shift];
  Pack<T, kCodesAtOnce> out;
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i)
    out.v[i] = from_f32<T>(fma_f32(latent_code(v[i], p.largest), scale, bias));
  store_eight(w + at, out, is_aligned(w, 16));
}

// The gradient of u passes where its rounding stays in the range.
MIXTAPE_DEVICE void put_latent(const LatentBackwardParams& p, std::int64_t at, float scale,
                               const float (&dw)[kCodesAtOnce], const float (&u)[kCodesAtOnce],
                               Global<float> du) {
  float before[kCodesAtOnce];
  if (p.accumulate_u != 0) load_eight<float>(du, at, p.groups.count, before);
  Pack<float, kCodesAtOnce> out;
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i) {
    const float d = u[i] >= -0.5f && u[i] <= p.largest + 0.5f ? dw[i] * scale : 0.0f;
    out.v[i] = p.accumulate_u != 0 ? before[i] + d : d;
  }
  store_eight(du + at, out, is_aligned(du, 16));
}

template <class T>
MIXTAPE_DEVICE void latent_codes_backward(const LatentBackwardParams& p, Global<const T> dw,
                                          Global<const float> u, Global<const float> scales, Global<float> du,
                                          Global<float> dscales, Global<float> dbiases) {
  const std::int64_t chunk = global_thread(), at = chunk * kCodesAtOnce;
  float d[kCodesAtOnce], v[kCodesAtOnce];
  load_eight(dw, at, p.groups.count, d);
  load_eight(u, at, p.groups.count, v);
  float products = 0.0f, sum = 0.0f;
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i) {
    products = fma_f32(d[i], latent_code(v[i], p.largest), products);
    sum += d[i];
  }
  if (p.wants_u != 0 && at < p.groups.count) {
    put_latent(p, at, scales[chunk >> p.groups.group_shift], d, v, du);
  }
  put_group_sums(p.groups, chunk, products, sum, dscales, dbiases);
}

#define LATENT(T)                                                                                            \
  MIXTAPE_KERNEL(latent_codes_forward_##T, 256, LatentForwardParams p, Global<const float> u,                \
                 Global<const float> scales, Global<const float> biases, Global<T> w) {                      \
    await_earlier();                                                                                         \
    latent_codes_forward<T>(p, u, scales, biases, w);                                                        \
  }                                                                                                          \
  MIXTAPE_KERNEL(latent_codes_backward_##T, 256, LatentBackwardParams p, Global<const T> dw,                 \
                 Global<const float> u, Global<const float> scales, Global<float> du, Global<float> dscales, \
                 Global<float> dbiases) {                                                                    \
    await_earlier();                                                                                         \
    latent_codes_backward<T>(p, dw, u, scales, du, dscales, dbiases);                                        \
  }
MIXTAPE_VALUE_KERNELS(LATENT)

// Remembers the lowest position of a NaN.
MIXTAPE_KERNEL(pack_codes_forward, 256, PackCodesParams p, Global<const float> u, Global<std::uint32_t> words,
               Global<std::uint64_t> errors) {
  await_earlier();
  const std::int64_t chunk = global_thread(), at = chunk * kCodesAtOnce;
  float v[kCodesAtOnce];
  load_eight(u, at, p.count, v);
  std::uint64_t codes = 0;
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i) {
    if (v[i] != v[i]) atomic_min(errors, static_cast<std::uint64_t>(at + i));
    codes |= static_cast<std::uint64_t>(latent_code(v[i], p.largest)) << (i * p.bits);
  }
  store_codes(words, chunk, at < p.count, p.bits, codes);
}

}  // namespace mixtape
