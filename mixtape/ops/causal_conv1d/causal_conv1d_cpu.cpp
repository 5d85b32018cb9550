#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/causal_conv1d/causal_conv1d_cpu.cpp"
#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/causal_conv1d/causal_conv1d_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// Channels that are worked on at once: their taps and rows stay in the first-level cache.
constexpr std::int64_t kConvTile = 512;

// A run of positions of one sequence, and a tile of channels.
struct ConvPart {
  std::int64_t b, begin, end, channel, tile;
  std::int64_t share;  // which run of all
};

// All of them, spread over the threads.
template <class Body>
void for_each_conv_part(const CausalConv1dParams& p, const Body& body) {
  const std::int64_t tiles = (p.channels + kConvTile - 1) / kConvTile, runs = p.runs();
  cpu::parallel_for(p.batch * runs * tiles, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t run = i / tiles, begin = run % runs * p.run, channel = i % tiles * kConvTile;
      body(ConvPart{run / runs, begin, std::min(begin + p.run, p.length), channel,
                    std::min(kConvTile, p.channels - channel), run});
    }
  });
}

// The inputs, and a part's taps as [K, tile] in f32, then its bias.
template <class T, class W>
struct ConvInputs {
  const CausalConv1dParams& p;
  const T* x;
  const W* w;
  const W* bias;     // may be null
  const T* history;  // may be null

  // Null where there is only zero.
  const T* row(const ConvPart& part, std::int64_t t) const {
    if (t >= 0) return x + (part.b * p.length + t) * p.channels + part.channel;
    if (history == nullptr) return nullptr;
    return history + ((part.b + 1) * (p.taps - 1) + t) * p.channels + part.channel;
  }
  void load_taps(const ConvPart& part, float* taps) const {
    for (std::int64_t c = 0; c < part.tile; ++c) {
      for (std::int64_t j = 0; j < p.taps; ++j)
        taps[j * part.tile + c] = static_cast<float>(w[(part.channel + c) * p.taps + j]);
      taps[p.taps * part.tile + c] = bias ? static_cast<float>(bias[part.channel + c]) : 0.0f;
    }
  }
};

template <class T, class W>
ConvInputs<T, W> conv_inputs(const HostCall& call, const CausalConv1dParams& p) {
  return {p, call.read<T>(0), call.read<W>(1), p.has_bias != 0 ? call.read<W>(2) : nullptr,
          p.has_history != 0 ? call.read<T>(2 + p.has_bias) : nullptr};
}

template <class T>
struct ConvRows {
  const T* rows[kMostConvTaps];

  template <class W>
  ConvRows(const ConvInputs<T, W>& in, const ConvPart& part, std::int64_t t) {
    for (std::int64_t j = 0; j < in.p.taps; ++j) rows[j] = in.row(part, t - in.p.taps + 1 + j);
  }
  // The sum a of n channels from c on.
  HWY_INLINE Floats sum(const float* taps, std::int64_t count, std::int64_t tile, std::int64_t c,
                        std::size_t n) const {
    Floats a = load(taps + count * tile + c, n);
    for (std::int64_t j = 0; j < count; ++j) {
      if (rows[j] != nullptr) a = hn::MulAdd(load(rows[j] + c, n), load(taps + j * tile + c, n), a);
    }
    return a;
  }
};

template <class T>
void conv_row(const ConvRows<T>& rows, const float* taps, const CausalConv1dParams& p, std::int64_t tile,
              T* y) {
  for (std::int64_t c = 0; c < tile; c += static_cast<std::int64_t>(lanes())) {
    const auto n = static_cast<std::size_t>(tile - c);
    const Floats a = rows.sum(taps, p.taps, tile, c, n);
    store(p.silu != 0 ? silu(a) : a, y + c, n);
  }
}

template <class T, class W = T>
void causal_conv1d_forward(const HostCall& call) {
  const auto& p = call.params<CausalConv1dParams>();
  const ConvInputs<T, W> in = conv_inputs<T, W>(call, p);
  T* y = call.write<T>(0);
  for_each_conv_part(p, [&](const ConvPart& part) {
    static thread_local cpu::Scratch scratch;
    float* taps = scratch.get<float>(static_cast<std::size_t>((p.taps + 1) * part.tile));
    in.load_taps(part, taps);
    for (std::int64_t t = part.begin; t < part.end; ++t) {
      T* out = y + (part.b * p.length + t) * p.channels + part.channel;
      conv_row(ConvRows<T>(in, part, t), taps, p, part.tile, out);
    }
  });
}
MIXTAPE_SIMD_KERNEL(causal_conv1d_forward)
[[maybe_unused]] void causal_conv1d_forward_bf16_w_f32(const HostCall& call) {
  causal_conv1d_forward<bf16, float>(call);
}
[[maybe_unused]] void causal_conv1d_forward_f16_w_f32(const HostCall& call) {
  causal_conv1d_forward<f16, float>(call);
}

// da of a position.
template <class T>
void conv_slopes(const ConvRows<T>& rows, const float* taps, const CausalConv1dParams& p, std::int64_t tile,
                 const T* dy, float* da) {
  for (std::int64_t c = 0; c < tile; c += static_cast<std::int64_t>(lanes())) {
    const auto n = static_cast<std::size_t>(tile - c);
    Floats d = load(dy + c, n);
    if (p.silu != 0) {
      const Floats a = rows.sum(taps, p.taps, tile, c, n);
      d = hn::Mul(d, silu_slope(a, sigmoids(a)));
    }
    store(d, da + c, n);
  }
}

// dx at position t; da begins with the position `first`, and ends with `end`.
template <class T>
void conv_dx_row(const float* da, std::int64_t first, std::int64_t end, std::int64_t t, const float* taps,
                 std::int64_t count, std::int64_t tile, T* dx, bool accumulate) {
  for (std::int64_t c = 0; c < tile; c += static_cast<std::int64_t>(lanes())) {
    const auto n = static_cast<std::size_t>(tile - c);
    Floats sum = zero();
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t from = t + count - 1 - j;
      if (from < first || from >= end) continue;
      sum = hn::MulAdd(load(taps + j * tile + c, n), load(da + (from - first) * tile + c, n), sum);
    }
    store(accumulate ? hn::Add(load(dx + c, n), sum) : sum, dx + c, n);
  }
}

// Adds a position's part of dw and dbias.
template <class T>
void conv_dw_row(const ConvRows<T>& rows, const float* da, std::int64_t count, std::int64_t tile,
                 std::int64_t channels, float* share) {
  for (std::int64_t c = 0; c < tile; c += static_cast<std::int64_t>(lanes())) {
    const auto n = static_cast<std::size_t>(tile - c);
    const Floats d = load(da + c, n);
    for (std::int64_t j = 0; j < count; ++j) {
      float* to = share + j * channels + c;
      if (rows.rows[j] != nullptr) store(hn::MulAdd(d, load(rows.rows[j] + c, n), load(to, n)), to, n);
    }
    float* to = share + count * channels + c;
    store(hn::Add(d, load(to, n)), to, n);
  }
}

template <class T>
struct ConvOutputs {
  T *dx, *dhistory;  // may be null
  float* shares;     // may be null
  bool add_dx, add_dhistory;
};

template <class T, class W>
void conv_backward_part(const ConvInputs<T, W>& in, const ConvOutputs<T>& out, const T* dy,
                        const ConvPart& part) {
  static thread_local cpu::Scratch scratch;
  const CausalConv1dParams& p = in.p;
  const std::int64_t tile = part.tile, end = std::min(part.end + p.taps - 1, p.length);
  float* taps = scratch.get<float>(static_cast<std::size_t>((p.taps + 1 + end - part.begin) * tile));
  float* da = taps + (p.taps + 1) * tile;
  in.load_taps(part, taps);
  const auto at = [&](std::int64_t t) { return (part.b * p.length + t) * p.channels + part.channel; };
  for (std::int64_t t = part.begin; t < end; ++t)
    conv_slopes(ConvRows<T>(in, part, t), taps, p, tile, dy + at(t), da + (t - part.begin) * tile);
  const auto put = [&](std::int64_t t, T* dx, bool accumulate) {
    conv_dx_row(da, part.begin, end, t, taps, p.taps, tile, dx, accumulate);
  };
  for (std::int64_t t = part.begin; t < part.end && out.dx != nullptr; ++t)
    put(t, out.dx + at(t), out.add_dx);
  for (std::int64_t t = 1 - p.taps; t < 0 && part.begin == 0 && out.dhistory != nullptr; ++t) {
    T* dx = out.dhistory + ((part.b + 1) * (p.taps - 1) + t) * p.channels + part.channel;
    put(t, dx, out.add_dhistory);
  }
  if (out.shares == nullptr) return;
  float* share = out.shares + part.share * (p.taps + 1) * p.channels + part.channel;
  for (std::int64_t j = 0; j <= p.taps; ++j)
    std::fill(share + j * p.channels, share + j * p.channels + tile, 0.0f);
  for (std::int64_t t = part.begin; t < part.end; ++t)
    conv_dw_row(ConvRows<T>(in, part, t), da + (t - part.begin) * tile, p.taps, tile, p.channels, share);
}

// Writes dx and dhistory, and a run's shares of dw and dbias.
template <class T, class W = T>
void causal_conv1d_backward(const HostCall& call) {
  const auto& p = call.params<CausalConv1dParams>();
  const ConvInputs<T, W> in = conv_inputs<T, W>(call, p);
  const T* dy = call.read<T>(2 + p.has_bias + p.has_history);
  ConvOutputs<T> out{};
  out.dx = call.write_if<T>(p.wanted, p.dx);
  out.dhistory = call.write_if<T>(p.wanted, p.dhistory);
  out.add_dx = (p.accumulate & p.dx) != 0;
  out.add_dhistory = (p.accumulate & p.dhistory) != 0;
  const std::uint32_t inputs = p.dx | p.dhistory;
  if ((p.wanted & ~inputs) != 0) out.shares = call.write<float>(output_index(p.wanted, p.dw));
  for_each_conv_part(p, [&](const ConvPart& part) { conv_backward_part(in, out, dy, part); });
}
MIXTAPE_SIMD_KERNEL(causal_conv1d_backward)
[[maybe_unused]] void causal_conv1d_backward_bf16_w_f32(const HostCall& call) {
  causal_conv1d_backward<bf16, float>(call);
}
[[maybe_unused]] void causal_conv1d_backward_f16_w_f32(const HostCall& call) {
  causal_conv1d_backward<f16, float>(call);
}

// The sum over the runs, for n channels; to[c * stride].
template <class W>
void add_conv_shares(const float* shares, std::int64_t runs, std::int64_t step, std::size_t n, W* to,
                     std::int64_t stride, bool accumulate) {
  Floats sum = zero();
  for (std::int64_t r = 0; r < runs; ++r) sum = hn::Add(sum, load(shares + r * step, n));
  HWY_ALIGN float lane[HWY_MAX_BYTES / sizeof(float)];
  store(sum, static_cast<float*>(lane));
  for (std::size_t c = 0; c < std::min(n, lanes()); ++c) {
    W& out = to[static_cast<std::int64_t>(c) * stride];
    out = W(accumulate ? static_cast<float>(out) + lane[c] : lane[c]);
  }
}

template <class W>
void causal_conv1d_backward_weight(const HostCall& call) {
  const auto& p = call.params<CausalConv1dParams>();
  const float* shares = call.read<float>(0);
  const std::uint32_t wanted = p.wanted / p.dw;  // of the two that are written here
  W* dw = call.write_if<W>(wanted, 1);
  W* dbias = call.write_if<W>(wanted, p.dbias / p.dw);
  const std::int64_t runs = p.batch * p.runs(), step = (p.taps + 1) * p.channels;
  cpu::parallel_for(p.channels, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; c += static_cast<std::int64_t>(lanes())) {
      const auto n = static_cast<std::size_t>(end - c);
      for (std::int64_t j = 0; j < p.taps && dw != nullptr; ++j) {
        add_conv_shares(shares + j * p.channels + c, runs, step, n, dw + c * p.taps + j, p.taps,
                        (p.accumulate & p.dw) != 0);
      }
      if (dbias == nullptr) continue;
      add_conv_shares(shares + p.taps * p.channels + c, runs, step, n, dbias + c, 1,
                      (p.accumulate & p.dbias) != 0);
    }
  });
}
MIXTAPE_SIMD_KERNEL(causal_conv1d_backward_weight)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(causal_conv1d_forward)
MIXTAPE_REGISTER_SIMD_ONE(causal_conv1d_forward_bf16_w_f32)
MIXTAPE_REGISTER_SIMD_ONE(causal_conv1d_forward_f16_w_f32)
MIXTAPE_REGISTER_SIMD_KERNEL(causal_conv1d_backward)
MIXTAPE_REGISTER_SIMD_ONE(causal_conv1d_backward_bf16_w_f32)
MIXTAPE_REGISTER_SIMD_ONE(causal_conv1d_backward_f16_w_f32)
MIXTAPE_REGISTER_SIMD_KERNEL(causal_conv1d_backward_weight)
}  // namespace mixtape
#endif
