#include "mixtape/ops/norm_rope/norm_rope_gpu_params.h"
#include "mixtape/ops/rms_norm/rstd_gpu.h"
#include "mixtape/ops/rope/turn_gpu.h"

namespace mixtape {

// The 2N dimensions of a unit, zeros where it has none.
template <class T, int N>
struct UnitPacks {
  Pack<T, N> a, b;

  MIXTAPE_DEVICE void load(Global<const T> head, const RopeUnit& u, bool has) {
    a = b = Pack<T, N>{};
    if (has) a = load_pack<N>(head + u.a);
    if (has && u.has_b) b = load_pack<N>(head + u.b);
  }
  MIXTAPE_DEVICE float at(int i) const { return to_f32(i < N ? a.v[i % N] : b.v[i % N]); }
};

// What a thread of a token's heads knows before it sees them.
template <class W, int N>
struct UnitTurn {
  RopeUnit unit;
  bool has;
  UnitPacks<W, N> weight;

  MIXTAPE_DEVICE void start(const RopeParams& p, int number, Global<const W> w) {
    unit = rope_unit<N>(p, number);
    has = unit.a < p.head_dim;
    weight.load(w, unit, has);
  }
  MIXTAPE_DEVICE void turn_by(const RopeParams& p, std::int64_t angle_at, Global<const float> cos,
                              Global<const float> sin, float (&values)[2 * N]) const {
    if (!has || !unit.is_turned) return;
    turn<N>(values, load_pack<N>(cos + (angle_at + unit.pair)), load_pack<N>(sin + (angle_at + unit.pair)),
            p.is_interleaved != 0);
  }
  template <class T>
  MIXTAPE_DEVICE void put_unit(Global<T> head, const float (&values)[2 * N], bool accumulate) const {
    if (!has) return;
    put<T, N>(head + unit.a, values, accumulate);
    if (unit.has_b) put<T, N>(head + unit.b, values + N, accumulate);
  }
};

template <class T, class W>
MIXTAPE_DEVICE void norm_rope_forward_held(const NormRopeParams& p, Global<const T> x, Global<const W> w,
                                           Global<const float> cos, Global<const float> sin, Global<T> y,
                                           Global<float> rstd) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t heads = p.norm.rows * p.rope.heads, head = row_index(), at = head * p.rope.head_dim;
  UnitTurn<W, kPack> t;
  t.start(p.rope, thread_x(), w);
  UnitPacks<T, kPack> packs;
  packs.load(x + at, t.unit, t.has && head < heads);
  float sum = 0.0f, values[2 * kPack];
  MIXTAPE_UNROLL
  for (int i = 0; i < 2 * kPack; ++i) sum = fma_f32(packs.at(i), packs.at(i), sum);
  const float r = rstd_of(row_lanes_sum(sum), p.norm.cols, p.norm.eps);
  if (head >= heads) return;
  if (thread_x() == 0) rstd[head] = r;
  MIXTAPE_UNROLL
  for (int i = 0; i < 2 * kPack; ++i) values[i] = packs.at(i) * r * t.weight.at(i);
  t.turn_by(p.rope, angle_row(p.rope, quotient(head, p.rope.heads, heads)) * p.rope.pairs, cos, sin, values);
  t.put_unit(y + at, values, false);
}

// Units of one pair, or of two dimensions that have none.
MIXTAPE_DEVICE int units_of_one(const RopeParams& p) {
  return static_cast<int>(p.pairs + (p.head_dim - 2 * p.pairs + 1) / 2);
}

template <class T, class W>
MIXTAPE_DEVICE void norm_rope_forward_any(const NormRopeParams& p, Global<const T> x, Global<const W> w,
                                          Global<const float> cos, Global<const float> sin, Global<T> y,
                                          Global<float> rstd) {
  const std::int64_t head = block_x(), at = head * p.rope.head_dim;
  const std::int64_t angle_at = angle_row(p.rope, quotient(head, p.rope.heads, blocks_x())) * p.rope.pairs;
  float sum = 0.0f;
  for (int c = thread_x(); c < p.rope.head_dim; c += kLanes)
    sum = fma_f32(to_f32(x[at + c]), to_f32(x[at + c]), sum);
  const float r = rstd_of(row_lanes_sum(sum), p.norm.cols, p.norm.eps);
  if (thread_x() == 0) rstd[head] = r;
  for (int unit = thread_x(); unit < units_of_one(p.rope); unit += kLanes) {
    UnitTurn<W, 1> t;
    t.start(p.rope, unit, w);
    UnitPacks<T, 1> packs;
    packs.load(x + at, t.unit, true);
    float values[2] = {packs.at(0) * r * t.weight.at(0), packs.at(1) * r * t.weight.at(1)};
    t.turn_by(p.rope, angle_at, cos, sin, values);
    t.put_unit(y + at, values, false);
  }
}

#define FORWARD_AS(NAME, THREADS, T, W, ...)                                                                \
  MIXTAPE_KERNEL(norm_rope_forward_##NAME, THREADS, NormRopeParams p, Global<const T> x, Global<const W> w, \
                 Global<const float> cos, Global<const float> sin, Global<T> y, Global<float> rstd) {       \
    await_earlier();                                                                                        \
    __VA_ARGS__(p, x, w, cos, sin, y, rstd);                                                                \
  }
#define FORWARD(NAME, T, W)                                        \
  FORWARD_AS(NAME##_held, 256, T, W, norm_rope_forward_held<T, W>) \
  FORWARD_AS(NAME##_any, 32, T, W, norm_rope_forward_any<T, W>)
FORWARD(f32, f32, f32)
FORWARD(bf16, bf16, bf16)
FORWARD(f16, f16, f16)
FORWARD(bf16_w_f32, bf16, f32)
FORWARD(f16_w_f32, f16, f32)

// Token i of a block, counted from position to position, the sequences side by side, as x has them.
MIXTAPE_DEVICE std::int64_t token_of(const NormRopeParams& p, std::int64_t i) {
  const std::int64_t s = quotient(i, p.rope.batch, p.norm.rows + 1);
  return (i - s * p.rope.batch) * p.rope.length + s;
}

// g, which dy becomes, of 2N dimensions of a head; g*w*x is added to `dot`, g*x*rstd to dw.
template <class T, class W, int N>
MIXTAPE_DEVICE void add_unit(const UnitPacks<T, N>& x, const UnitPacks<W, N>& w, const float (&g)[2 * N],
                             float rstd, float& dot, float (&dw)[2 * N]) {
  MIXTAPE_UNROLL
  for (int i = 0; i < 2 * N; ++i) {
    dot = fma_f32(g[i] * w.at(i), x.at(i), dot);
    dw[i] = fma_f32(g[i], x.at(i) * rstd, dw[i]);
  }
}

// g becomes dx = rstd * (g*w - x*slope).
template <class T, class W, int N>
MIXTAPE_DEVICE void make_dx(const UnitPacks<T, N>& x, const UnitPacks<W, N>& w, float (&g)[2 * N], float rstd,
                            float slope) {
  MIXTAPE_UNROLL
  for (int i = 0; i < 2 * N; ++i) g[i] = rstd * fma_f32(-x.at(i), slope, g[i] * w.at(i));
}

MIXTAPE_DEVICE float slope_of(const NormRopeParams& p, float dot, float rstd) {
  return dot * rstd / static_cast<float>(p.norm.cols) * rstd;
}

// The block's share of dw: heads that ran side by side are added up in order.
template <class W, int N>
MIXTAPE_DEVICE void put_share(const NormRopeParams& p, const UnitTurn<W, N>& t, const float (&dw)[2 * N],
                              Global<float> partial, Shared<float> rows) {
  const int dims = static_cast<int>(p.rope.head_dim);
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) {
    if (t.has) rows[thread_y() * dims + t.unit.a + i] = dw[i];
    if (t.has && t.unit.has_b) rows[thread_y() * dims + t.unit.b + i] = dw[N + i];
  }
  barrier();
  for (int c = flat_thread(); c < dims; c += block_threads()) {
    float sum = 0.0f;
    for (int y = 0; y < threads_y(); ++y) sum += rows[y * dims + c];
    partial[c] = sum;
  }
}

// A block goes through its tokens: dx of each, and its share of dw in registers. dx comes last: it may overwrite dy.
template <class T, class W>
MIXTAPE_DEVICE void norm_rope_backward_held(const NormRopeParams& p, Global<const T> x, Global<const W> w,
                                            Global<const float> cos, Global<const float> sin,
                                            Global<const float> rstd, Global<const T> dy, Global<T> dx,
                                            Global<float> partials, Shared<float> rows) {
  constexpr int kPack = 16 / sizeof(T), kHeads = kNormRopeBackwardHeads;
  const std::int64_t heads = p.rope.heads, groups = (heads + kHeads - 1) / kHeads;
  const std::int64_t begin = block_x() * p.norm.row_block, left = p.norm.rows - begin,
                     count = (left < p.norm.row_block ? left : p.norm.row_block) * groups;
  UnitTurn<W, kPack> t;
  t.start(p.rope, thread_x(), w);
  float dw[2 * kPack] = {};
  for (std::int64_t from = 0; from < count; from += threads_y()) {
    const std::int64_t row = from + thread_y() < count ? from + thread_y() : count;
    const std::int64_t above = quotient(row, groups, count + 1), first = (row - above * groups) * kHeads;
    const std::int64_t token = row < count ? token_of(p, begin + above) : 0;
    UnitPacks<T, kPack> in[kHeads], upstream[kHeads];
    float r[kHeads];
    MIXTAPE_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      const std::int64_t head = token * heads + first + h;
      const bool has = row < count && first + h < heads;
      r[h] = has ? static_cast<float>(rstd[head]) : 0.0f;
      in[h].load(x + head * p.rope.head_dim, t.unit, t.has && has);
      upstream[h].load(dy + head * p.rope.head_dim, t.unit, t.has && has);
    }
    const std::int64_t angle_at = angle_row(p.rope, token) * p.rope.pairs;
    MIXTAPE_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      const std::int64_t head = token * heads + first + h;
      float dot = 0.0f, g[2 * kPack];
      MIXTAPE_UNROLL
      for (int i = 0; i < 2 * kPack; ++i) g[i] = upstream[h].at(i);
      t.turn_by(p.rope, angle_at, cos, sin, g);
      add_unit(in[h], t.weight, g, r[h], dot, dw);
      const float slope = slope_of(p, row_lanes_sum(dot), r[h]);
      if ((p.wanted & p.dx) == 0 || row >= count || first + h >= heads) continue;
      make_dx(in[h], t.weight, g, r[h], slope);
      t.put_unit(dx + head * p.rope.head_dim, g, (p.accumulate & p.dx) != 0);
    }
  }
  if ((p.wanted & p.dw) != 0) put_share<W, kPack>(p, t, dw, partials + block_x() * p.norm.cols, rows);
}

// Any head, read twice; the share of dw grows in memory, in the same thread for the same dimensions.
template <class T, class W>
MIXTAPE_DEVICE void norm_rope_backward_any(const NormRopeParams& p, Global<const T> x, Global<const W> w,
                                           Global<const float> cos, Global<const float> sin,
                                           Global<const float> rstd, Global<const T> dy, Global<T> dx,
                                           Global<float> partials, Shared<float>) {
  const std::int64_t begin = block_x() * p.norm.row_block,
                     end = begin + p.norm.row_block < p.norm.rows ? begin + p.norm.row_block : p.norm.rows;
  const Global<float> partial = partials + block_x() * p.norm.cols;
  for (std::int64_t row = begin * p.rope.heads; row < end * p.rope.heads; ++row) {
    const std::int64_t i = row / p.rope.heads, token = token_of(p, i);
    const std::int64_t head = token * p.rope.heads + row - i * p.rope.heads, at = head * p.rope.head_dim;
    const std::int64_t angle_at = angle_row(p.rope, token) * p.rope.pairs;
    const float r = rstd[head];
    float dot = 0.0f, slope = 0.0f;
    for (int pass = 0; pass < 2; ++pass) {
      for (int number = thread_x(); number < units_of_one(p.rope); number += kLanes) {
        UnitTurn<W, 1> t;
        t.start(p.rope, number, w);
        UnitPacks<T, 1> in, upstream;
        in.load(x + at, t.unit, true);
        upstream.load(dy + at, t.unit, true);
        float g[2] = {upstream.at(0), upstream.at(1)};
        t.turn_by(p.rope, angle_at, cos, sin, g);
        if (pass == 0) {
          UnitPacks<float, 1> sum;
          sum.load(partial, t.unit, (p.wanted & p.dw) != 0 && row > begin * p.rope.heads);
          float share[2] = {sum.at(0), sum.at(1)};
          add_unit(in, t.weight, g, r, dot, share);
          if ((p.wanted & p.dw) != 0) t.put_unit(partial, share, false);
        } else if ((p.wanted & p.dx) != 0) {
          make_dx(in, t.weight, g, r, slope);
          t.put_unit(dx + at, g, (p.accumulate & p.dx) != 0);
        }
      }
      slope = slope_of(p, row_lanes_sum(dot), r);
    }
  }
}

#define BACKWARD_AS(NAME, THREADS, ROWS, T, W, ...)                                                          \
  MIXTAPE_KERNEL(norm_rope_backward_##NAME, THREADS, NormRopeParams p, Global<const T> x, Global<const W> w, \
                 Global<const float> cos, Global<const float> sin, Global<const float> rstd,                 \
                 Global<const T> dy, Global<T> dx, Global<float> partials) {                                 \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED(float, rows, ROWS);                                                                       \
    __VA_ARGS__(p, x, w, cos, sin, rstd, dy, dx, partials, rows);                                            \
  }
#define BACKWARD(NAME, T, W)                                                                   \
  BACKWARD_AS(NAME##_held, 256, 256 * 2 * 16 / sizeof(T), T, W, norm_rope_backward_held<T, W>) \
  BACKWARD_AS(NAME##_any, 32, 1, T, W, norm_rope_backward_any<T, W>)
BACKWARD(f32, f32, f32)
BACKWARD(bf16, bf16, bf16)
BACKWARD(f16, f16, f16)
BACKWARD(bf16_w_f32, bf16, f32)
BACKWARD(f16_w_f32, f16, f32)

}  // namespace mixtape
