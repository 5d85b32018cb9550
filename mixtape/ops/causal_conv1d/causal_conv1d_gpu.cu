// A thread takes a run of positions of one or two channels and holds the last K inputs in registers: every input is
// read once, but for K - 1 at a run's edges. _four: K = 4 and an even number of channels, two a thread; _any: the
// rest, one a thread.
#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/sigmoid.h"
#include "mixtape/ops/causal_conv1d/causal_conv1d_params.h"

namespace mixtape {

// The last Most values of N channels, the newest last.
template <int Most, int N>
struct ConvWindow {
  float v[Most][N];

  MIXTAPE_DEVICE void clear() {
    MIXTAPE_UNROLL
    for (int i = 0; i < Most; ++i) {
      MIXTAPE_UNROLL
      for (int c = 0; c < N; ++c) v[i][c] = 0.0f;
    }
  }
  MIXTAPE_DEVICE void push(const float (&newest)[N]) {
    MIXTAPE_UNROLL
    for (int i = 0; i + 1 < Most; ++i) {
      MIXTAPE_UNROLL
      for (int c = 0; c < N; ++c) v[i][c] = v[i + 1][c];
    }
    MIXTAPE_UNROLL
    for (int c = 0; c < N; ++c) v[Most - 1][c] = newest[c];
  }
};

// The run and the channels of this thread: blocks of threads_x channel groups and threads_y runs.
template <int N>
struct ConvPlace {
  std::int64_t channel, run, b, begin, end;
  bool is_valid;

  MIXTAPE_DEVICE explicit ConvPlace(const CausalConv1dParams& p) {
    const std::int64_t groups = (p.channels + N * threads_x() - 1) / (N * threads_x());
    const std::int64_t block = block_x();
    channel = (block % groups * threads_x() + thread_x()) * N;
    run = block / groups * threads_y() + thread_y();
    b = run / p.runs();
    begin = run % p.runs() * p.run;
    end = begin + p.run < p.length ? begin + p.run : p.length;
    is_valid = channel < p.channels && b < p.batch;
  }
};

template <class T, class W, int Most, int N>
struct ConvThread {
  const CausalConv1dParams& p;
  ConvPlace<N> place;
  Global<const T> x, history;
  ConvWindow<Most, N> taps, inputs;  // tap j is taps.v[j], and meets inputs.v[Most - K + j]
  float bias[N];

  MIXTAPE_DEVICE ConvThread(const CausalConv1dParams& params, Global<const T> x_in, Global<const W> w,
                            Global<const W> bias_in, Global<const T> history_in)
      : p(params), place(params), x(x_in), history(history_in) {
    taps.clear();
    inputs.clear();
    if (!place.is_valid) return;
    MIXTAPE_UNROLL
    for (int c = 0; c < N; ++c) {
      MIXTAPE_UNROLL
      for (int i = 0; i < Most; ++i) {
        if (i < p.taps) taps.v[i][c] = to_f32(w[(place.channel + c) * p.taps + i]);
      }
      bias[c] = p.has_bias != 0 ? to_f32(bias_in[place.channel + c]) : 0.0f;
    }
    for (std::int64_t t = place.begin - p.taps + 1; t < place.begin; ++t) push(t);
  }

  // K, known to the compiler where it is Most.
  MIXTAPE_DEVICE int count() const { return Most == 4 ? 4 : static_cast<int>(p.taps); }
  MIXTAPE_DEVICE std::int64_t at(std::int64_t t) const {
    return (place.b * p.length + t) * p.channels + place.channel;
  }
  MIXTAPE_DEVICE std::int64_t history_at(std::int64_t t) const {
    return ((place.b + 1) * (p.taps - 1) + t) * p.channels + place.channel;
  }
  MIXTAPE_DEVICE static void read(Global<const T> from, float (&values)[N]) {
    const Pack<T, N> pack = load_pack<N>(from);
    MIXTAPE_UNROLL
    for (int c = 0; c < N; ++c) values[c] = to_f32(pack.v[c]);
  }
  MIXTAPE_DEVICE void push(std::int64_t t) {
    float values[N] = {};
    if (t >= 0) {
      read(x + at(t), values);
    } else if (p.has_history != 0) {
      read(history + history_at(t), values);
    }
    inputs.push(values);
  }
  // a of the newest position.
  MIXTAPE_DEVICE float sum(int c) const {
    float a = bias[c];
    MIXTAPE_UNROLL
    for (int i = 0; i < Most; ++i) {
      if (i < count()) a = fma_f32(inputs.v[Most - count() + i][c], taps.v[i][c], a);
    }
    return a;
  }
};

template <int N, class T>
MIXTAPE_DEVICE void put_values(Global<T> to, const float (&values)[N], bool accumulate) {
  Pack<T, N> pack;
  if (accumulate) pack = load_pack<N>(to);
  MIXTAPE_UNROLL
  for (int c = 0; c < N; ++c) pack.v[c] = from_f32<T>(accumulate ? to_f32(pack.v[c]) + values[c] : values[c]);
  store_pack(to, pack);
}

template <class T, class W, int Most, int N>
MIXTAPE_DEVICE void conv_forward(const CausalConv1dParams& p, Global<const T> x, Global<const W> w,
                                 Global<const W> bias, Global<const T> history, Global<T> y) {
  ConvThread<T, W, Most, N> thread(p, x, w, bias, history);
  if (!thread.place.is_valid) return;
  MIXTAPE_ROLLED
  for (std::int64_t t = thread.place.begin; t < thread.place.end; ++t) {
    thread.push(t);
    float out[N];
    MIXTAPE_UNROLL
    for (int c = 0; c < N; ++c) out[c] = p.silu != 0 ? silu_of(thread.sum(c)) : thread.sum(c);
    put_values<N>(y + thread.at(t), out, false);
  }
}

// From the last values of da: dx of the position K - 1 before the newest.
template <class T, class W, int Most, int N>
MIXTAPE_DEVICE void conv_dx(const ConvThread<T, W, Most, N>& thread, const ConvWindow<Most, N>& slopes,
                            float (&out)[N]) {
  MIXTAPE_UNROLL
  for (int c = 0; c < N; ++c) {
    out[c] = 0.0f;
    MIXTAPE_UNROLL
    for (int j = 0; j < Most; ++j) {
      if (j < thread.count()) out[c] = fma_f32(slopes.v[Most - 1 - j][c], thread.taps.v[j][c], out[c]);
    }
  }
}

// The runs' shares of dw, tap by tap, and of dbias.
template <int Most, int N>
struct ConvShares {
  ConvWindow<Most, N> dw;
  float dbias[N] = {};

  MIXTAPE_DEVICE void add(const float (&da)[N], const ConvWindow<Most, N>& inputs) {
    MIXTAPE_UNROLL
    for (int c = 0; c < N; ++c) {
      dbias[c] += da[c];
      MIXTAPE_UNROLL
      for (int i = 0; i < Most; ++i) dw.v[i][c] = fma_f32(da[c], inputs.v[i][c], dw.v[i][c]);
    }
  }
  MIXTAPE_DEVICE void write(const CausalConv1dParams& p, const ConvPlace<N>& place,
                            Global<float> shares) const {
    const Global<float> share = shares + (place.run * (p.taps + 1) * p.channels + place.channel);
    MIXTAPE_UNROLL
    for (int i = 0; i < Most; ++i) {
      const std::int64_t j = i - Most + p.taps;
      if (j >= 0) put_values<N>(share + j * p.channels, dw.v[i], false);
    }
    put_values<N>(share + p.taps * p.channels, dbias, false);
  }
};

template <class T, class W, int Most, int N>
MIXTAPE_DEVICE void conv_backward(const CausalConv1dParams& p, Global<const T> x, Global<const W> w,
                                  Global<const W> bias, Global<const T> history, Global<const T> dy,
                                  Global<T> dx, Global<T> dhistory, Global<float> shares) {
  ConvThread<T, W, Most, N> thread(p, x, w, bias, history);
  const ConvPlace<N>& place = thread.place;
  if (!place.is_valid) return;
  ConvWindow<Most, N> slopes;
  ConvShares<Most, N> own;
  slopes.clear();
  own.dw.clear();
  MIXTAPE_ROLLED
  for (std::int64_t t = place.begin; t < place.end + thread.count() - 1; ++t) {
    float da[N] = {};
    if (t < p.length) {
      thread.push(t);
      thread.read(dy + thread.at(t), da);
      MIXTAPE_UNROLL
      for (int c = 0; c < N && p.silu != 0; ++c) {
        const float a = thread.sum(c);
        da[c] *= silu_slope(a, sigmoids(a));
      }
    }
    if (t < place.end) own.add(da, thread.inputs);
    slopes.push(da);
    const std::int64_t to = t - thread.count() + 1;
    float out[N];
    conv_dx<T, W, Most, N>(thread, slopes, out);
    if (to >= place.begin && (p.wanted & p.dx) != 0)
      put_values<N>(dx + thread.at(to), out, (p.accumulate & p.dx) != 0);
    if (to < 0 && place.begin == 0 && (p.wanted & p.dhistory) != 0)
      put_values<N>(dhistory + thread.history_at(to), out, (p.accumulate & p.dhistory) != 0);
  }
  if ((p.wanted & (p.dw | p.dbias)) != 0) own.write(p, place, shares);
}

#define CONV_AS(NAME, KERNEL, T, W, MOST, N)                                                             \
  MIXTAPE_KERNEL(causal_conv1d_forward_##KERNEL##_##NAME, 256, CausalConv1dParams p, Global<const T> x,  \
                 Global<const W> w, Global<const W> bias, Global<const T> history, Global<T> y) {        \
    await_earlier();                                                                                     \
    conv_forward<T, W, MOST, N>(p, x, w, bias, history, y);                                              \
  }                                                                                                      \
  MIXTAPE_KERNEL(causal_conv1d_backward_##KERNEL##_##NAME, 256, CausalConv1dParams p, Global<const T> x, \
                 Global<const W> w, Global<const W> bias, Global<const T> history, Global<const T> dy,   \
                 Global<T> dx, Global<T> dhistory, Global<float> shares) {                               \
    await_earlier();                                                                                     \
    conv_backward<T, W, MOST, N>(p, x, w, bias, history, dy, dx, dhistory, shares);                      \
  }
#define CONV(KERNEL, T, W)          \
  CONV_AS(four, KERNEL, T, W, 4, 2) \
  CONV_AS(any, KERNEL, T, W, kMostConvTaps, 1)
CONV(f32, f32, f32)
CONV(bf16, bf16, bf16)
CONV(f16, f16, f16)
CONV(bf16_w_f32, bf16, f32)
CONV(f16_w_f32, f16, f32)

// A thread adds up one column of the shares: a tap of a channel, or its bias.
#define CONV_WEIGHT(W)                                                                                     \
  MIXTAPE_KERNEL(causal_conv1d_backward_weight_##W, 256, CausalConv1dParams p, Global<const float> shares, \
                 Global<W> dw, Global<W> dbias) {                                                          \
    await_earlier();                                                                                       \
    const std::int64_t column = global_thread(), step = (p.taps + 1) * p.channels;                         \
    if (column >= step) return;                                                                            \
    const std::int64_t j = column / p.channels, c = column % p.channels;                                   \
    const std::uint32_t bit = j < p.taps ? p.dw : p.dbias;                                                 \
    if ((p.wanted & bit) == 0) return;                                                                     \
    float sum = 0.0f;                                                                                      \
    MIXTAPE_UNROLL_4                                                                                       \
    for (std::int64_t r = 0; r < p.batch * p.runs(); ++r) sum += shares[r * step + column];                \
    const float values[1] = {sum};                                                                         \
    put_values<1>(j < p.taps ? dw + (c * p.taps + j) : dbias + c, values, (p.accumulate & bit) != 0);      \
  }
MIXTAPE_VALUE_KERNELS(CONV_WEIGHT)

}  // namespace mixtape
