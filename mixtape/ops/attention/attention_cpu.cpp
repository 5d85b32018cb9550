#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/attention/attention_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/blocks.h"
#include "mixtape/backend/cpu/gemm.h"
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/attention/attention_params.h"

// Everything here works on one (sequence, kv head) pair: its query heads lie next to each other in memory, so
// that position i and head g of the group are row i * group + g of a [Sq * group, D] matrix.
#ifndef MIXTAPE_OPS_ATTENTION_VIEW
#define MIXTAPE_OPS_ATTENTION_VIEW
namespace mixtape {

// Query rows and keys of a block of scores. With its rows of q, k, v and y of head_dim 128 that is 640 KB of
// f32, which fit a second-level cache of 1 MB.
constexpr std::int64_t kBlockRows = 192;
constexpr std::int64_t kBlockKeys = 256;
// Below this many (sequence, kv head) pairs the backward also splits the keys, into at most so many parts in
// all.
constexpr std::int64_t kBackwardTasks = 8;

struct Range {
  std::int64_t begin, end;
  bool is_empty() const { return begin >= end; }
};

struct AttentionView {
  AttentionView(const HostCall& call, const AttentionParams& params)
      : p(params), group(p.q_heads / p.kv_heads) {
    lengths.assign(static_cast<std::size_t>(p.batch), p.k_len);
    if (p.has_lengths == 0) return;
    const auto* given = call.read<std::int32_t>(call.reads.size() - 1);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const bool is_good = given[b] >= 0 && given[b] <= p.k_len;
      if (!is_good) call.report_index(b, given[b], p.k_len + 1);
      lengths[static_cast<std::size_t>(b)] = is_good ? given[b] : 0;
    }
  }
  std::int64_t pairs() const { return p.batch * p.kv_heads; }
  std::int64_t rows() const { return p.q_len * group; }
  // Tasks of `task_rows` query rows for one thread at a time: enough work to be worth waking it.
  std::int64_t grain(std::int64_t task_rows) const {
    return std::max<std::int64_t>(1, (1 << 20) / std::max<std::int64_t>(1, task_rows * p.k_len * p.head_dim));
  }
  std::int64_t q_block() const { return std::max<std::int64_t>(1, kBlockRows / group); }
  // Where the pair's part of q-like and k-like buffers begins; the strides between positions.
  std::int64_t q_at(std::int64_t pair) const {
    return pair / p.kv_heads * p.q_len * q_stride() + pair % p.kv_heads * group * p.head_dim;
  }
  std::int64_t k_at(std::int64_t pair) const {
    return pair / p.kv_heads * p.k_rows * k_stride() + pair % p.kv_heads * p.head_dim;
  }
  std::int64_t q_stride() const { return p.q_heads * p.head_dim; }
  std::int64_t k_stride() const { return p.kv_heads * p.head_dim; }
  // Element (i, g) of the pair in lse [B,Hq,Sq].
  std::int64_t lse_at(std::int64_t pair, std::int64_t row) const {
    return (pair * group + row % group) * p.q_len + row / group;
  }
  // The keys that query i of the pair sees.
  Range seen(std::int64_t pair, std::int64_t i) const {
    const std::int64_t position = p.k_len - p.q_len + i;
    Range r{0, lengths[static_cast<std::size_t>(pair / p.kv_heads)]};
    if (p.causal != 0) r.end = std::min(r.end, position + 1);
    if (p.sliding_window > 0) r.begin = std::max<std::int64_t>(0, position + 1 - p.sliding_window);
    return r;
  }
  // The query head of a row.
  std::int64_t head(std::int64_t pair, std::int64_t row) const {
    return pair % p.kv_heads * group + row % group;
  }
  // All keys that queries [begin, end) see; both bounds grow with the position.
  Range seen_by_all(std::int64_t pair, std::int64_t begin, std::int64_t end) const {
    return {seen(pair, begin).begin, seen(pair, end - 1).end};
  }

  const AttentionParams& p;
  std::int64_t group;
  std::vector<std::int64_t> lengths;
};

inline float* floats(cpu::Scratch& scratch, std::int64_t count) {
  return scratch.get<float>(static_cast<std::size_t>(count));
}

// c (+)= op(a) op(b), dense f32 matrices.
inline void dense_gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
                       const float* a, const float* b, float* c, bool accumulate) {
  const cpu::Gemm gemm{.trans_a = trans_a,
                       .trans_b = trans_b,
                       .m = m,
                       .n = n,
                       .k = k,
                       .lda = trans_a ? m : k,
                       .ldb = trans_b ? k : n,
                       .ldc = n,
                       .accumulate = accumulate};
  cpu::gemm_on_this_thread(gemm, a, b, c);
}

}  // namespace mixtape
#endif

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

void scale_by(float* x, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; i += static_cast<std::int64_t>(lanes())) {
    const auto left = static_cast<std::size_t>(n - i);
    store(hn::Mul(load(x + i, left), set(factor)), x + i, left);
  }
}

// Columns seen of a row of scores become exp(s - max), the others 0. `max` and `sum` are the row's so far;
// returns what earlier sums have to be multiplied by. A NaN may be lost in max, but never in sum.
float softmax_step(float* s, std::int64_t cols, Range seen, float& max, float& sum) {
  const auto n = static_cast<std::size_t>(seen.end - seen.begin);
  std::fill(s, s + seen.begin, 0.0f);
  std::fill(s + seen.end, s + cols, 0.0f);
  float* x = s + seen.begin;
  Floats highest = set(max);
  std::size_t c = 0;
  for (; c + lanes() <= n; c += lanes()) highest = hn::Max(highest, load(x + c));
  if (c < n) highest = hn::Max(highest, keep_first(load(x + c, n - c), n - c, highest));
  const float new_max = hn::GetLane(hn::MaxOfLanes(kF, highest));
  const Floats at = set(new_max);
  Floats sums = zero();
  for (c = 0; c + lanes() <= n; c += lanes()) {
    const Floats e = exp(hn::Sub(load(x + c), at));
    sums = hn::Add(sums, e);
    store(e, x + c);
  }
  if (c < n) {
    const Floats e = keep_first(exp(hn::Sub(load(x + c, n - c), at)), n - c, zero());
    sums = hn::Add(sums, e);
    store(e, x + c, n - c);
  }
  const float factor = hn::GetLane(exp(set(max - new_max)));
  sum = sum * factor + sum_lanes(sums);
  max = new_max;
  return factor;
}

// Scores become weights exp(s - lse), gradients of weights become gradients of scores.
void softmax_step_backward(float* s, float* dp, std::int64_t cols, Range seen, float lse, float delta) {
  for (float* row : {s, dp}) {
    std::fill(row, row + seen.begin, 0.0f);
    std::fill(row + seen.end, row + cols, 0.0f);
  }
  const auto n = static_cast<std::size_t>(seen.end);
  for (auto c = static_cast<std::size_t>(seen.begin); c < n; c += lanes()) {
    const Floats weight = exp(hn::Sub(load(s + c, n - c), set(lse)));
    store(weight, s + c, n - c);
    store(hn::Mul(weight, hn::Sub(load(dp + c, n - c), set(delta))), dp + c, n - c);
  }
}

float dot(const float* a, const float* b, std::int64_t count) {
  const auto n = static_cast<std::size_t>(count);
  Floats sums = zero();
  for (std::size_t i = 0; i < n; i += lanes())
    sums = hn::MulAdd(load(a + i, n - i), load(b + i, n - i), sums);
  return sum_lanes(sums);
}

// The part of `seen` inside keys [begin, begin + count), counted from `begin`.
Range within(Range seen, std::int64_t begin, std::int64_t count) {
  const std::int64_t first = std::clamp<std::int64_t>(seen.begin - begin, 0, count);
  return {first, std::clamp<std::int64_t>(seen.end - begin, first, count)};
}

// oneDNN compiles a product for each size and keeps it: text that grows by a token at a time would have one for each length.
std::int64_t rounded_keys(std::int64_t count) { return (count + 15) / 16 * 16; }

// What a row has gathered over the key blocks so far; a sink is there from the start.
struct RowState {
  float max, sum;
};

// Queries [begin, end) of one pair, all heads of the group.
template <class T>
void forward_block(const AttentionView& view, const HostCall& call, std::int64_t pair, std::int64_t begin,
                   std::int64_t end) {
  thread_local cpu::Scratch q_scratch, k_scratch, v_scratch, s_scratch, y_scratch, state_scratch;
  const std::int64_t dim = view.p.head_dim, rows = (end - begin) * view.group;
  const DType dtype = dtype_of<T>();
  float* q = floats(q_scratch, rows * dim);
  float* y = floats(y_scratch, rows * dim);
  auto* states = state_scratch.get<RowState>(static_cast<std::size_t>(rows));
  const float* sinks = view.p.has_sinks != 0 ? call.read<float>(3) : nullptr;
  for (std::int64_t r = 0; r < rows; ++r)
    states[r] = sinks ? RowState{sinks[view.head(pair, r)], 1.0f} : RowState{-HUGE_VALF, 0.0f};
  std::fill_n(y, rows * dim, 0.0f);
  const std::int64_t q_at = view.q_at(pair) + begin * view.q_stride();
  cpu::load_block(dtype, call.read<T>(0) + q_at, view.q_stride(), end - begin, view.group * dim, q,
                  view.group * dim);
  scale_by(q, rows * dim, view.p.scale);
  const Range keys = view.seen_by_all(pair, begin, end);
  for (std::int64_t k0 = keys.begin; k0 < keys.end; k0 += kBlockKeys) {
    const std::int64_t count = std::min(kBlockKeys, keys.end - k0);
    const std::int64_t wide = rounded_keys(count), k_at = view.k_at(pair) + k0 * view.k_stride();
    float* k = floats(k_scratch, wide * dim);
    float* v = floats(v_scratch, wide * dim);
    float* s = floats(s_scratch, rows * wide);
    cpu::load_block(dtype, call.read<T>(1) + k_at, view.k_stride(), count, dim, k, dim);
    cpu::load_block(dtype, call.read<T>(2) + k_at, view.k_stride(), count, dim, v, dim);
    std::fill_n(k + count * dim, (wide - count) * dim, 0.0f);
    std::fill_n(v + count * dim, (wide - count) * dim, 0.0f);
    dense_gemm(false, true, rows, wide, dim, q, k, s, false);
    for (std::int64_t r = 0; r < rows; ++r) {
      const Range seen = within(view.seen(pair, begin + r / view.group), k0, count);
      if (seen.is_empty()) {
        std::fill_n(s + r * wide, wide, 0.0f);
        continue;
      }
      const float factor = softmax_step(s + r * wide, count, seen, states[r].max, states[r].sum);
      if (factor != 1.0f) scale_by(y + r * dim, dim, factor);
      std::fill_n(s + r * wide + count, wide - count, 0.0f);
    }
    dense_gemm(false, false, rows, dim, wide, s, v, y, true);
  }
  float* lse = call.write<float>(1);
  for (std::int64_t r = 0; r < rows; ++r) {
    const bool sees_any = !view.seen(pair, begin + r / view.group).is_empty();
    const RowState state = states[r];
    lse[view.lse_at(pair, begin * view.group + r)] = sees_any ? state.max + std::log(state.sum) : state.max;
    if (sees_any) {
      scale_by(y + r * dim, dim, 1.0f / state.sum);
    } else {
      std::fill_n(y + r * dim, dim, 0.0f);
    }
  }
  cpu::store_block(y, view.group * dim, end - begin, view.group * dim, dtype, call.write<T>(0) + q_at,
                   view.q_stride(), false);
}

template <class T>
void attention_forward(const HostCall& call) {
  const AttentionView view(call, call.params<AttentionParams>());
  const std::int64_t q_block = view.q_block();
  const std::int64_t blocks = (view.p.q_len + q_block - 1) / q_block;
  cpu::parallel_for(
      view.pairs() * blocks, view.grain(q_block * view.group), [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
          const std::int64_t begin = (blocks - 1 - i % blocks) * q_block;  // causal: the longest first
          forward_block<T>(view, call, i / blocks, begin, std::min(begin + q_block, view.p.q_len));
        }
      });
}
MIXTAPE_SIMD_KERNEL(attention_forward)

// f32 copies of what one pair's backward reads and gathers.
struct BackwardPair {
  const float* q;      // scaled, [Sq * group, D]
  const float* dy;     // [Sq * group, D]
  const float* lse;    // [Sq * group]
  const float* delta;  // dy . y, [Sq * group]
  float* dq;           // sum of ds * k, not yet scaled
};

template <class T>
BackwardPair load_pair(const AttentionView& view, const HostCall& call, std::int64_t pair, float* dq) {
  thread_local cpu::Scratch q_scratch, dy_scratch, y_scratch, lse_scratch, delta_scratch;
  const std::int64_t dim = view.p.head_dim, rows = view.rows(), width = view.group * dim;
  float* q = floats(q_scratch, rows * dim);
  float* dy = floats(dy_scratch, rows * dim);
  float* y = floats(y_scratch, rows * dim);
  float* lse = floats(lse_scratch, rows);
  float* delta = floats(delta_scratch, rows);
  const auto load_q = [&](std::size_t read, float* to) {
    cpu::load_block(dtype_of<T>(), call.read<T>(read) + view.q_at(pair), view.q_stride(), view.p.q_len, width,
                    to, width);
  };
  load_q(0, q);
  load_q(3, y);
  load_q(5, dy);
  scale_by(q, rows * dim, view.p.scale);
  for (std::int64_t r = 0; r < rows; ++r) {
    lse[r] = call.read<float>(4)[view.lse_at(pair, r)];
    delta[r] = dot(dy + r * dim, y + r * dim, dim);
  }
  std::fill_n(dq, rows * dim, 0.0f);
  return {q, dy, lse, delta, dq};
}

// Keys [k0, k0 + count) against queries [begin, end): adds to dq, dk, dv.
void backward_block(const AttentionView& view, std::int64_t pair, const BackwardPair& in, std::int64_t begin,
                    std::int64_t end, std::int64_t k0, std::int64_t count, const float* k, const float* v,
                    float* dk, float* dv) {
  thread_local cpu::Scratch s_scratch, dp_scratch;
  const std::int64_t dim = view.p.head_dim, rows = (end - begin) * view.group, at = begin * view.group;
  float* s = floats(s_scratch, rows * count);
  float* dp = floats(dp_scratch, rows * count);
  dense_gemm(false, true, rows, count, dim, in.q + at * dim, k, s, false);
  dense_gemm(false, true, rows, count, dim, in.dy + at * dim, v, dp, false);
  for (std::int64_t r = 0; r < rows; ++r) {
    const Range seen = within(view.seen(pair, begin + r / view.group), k0, count);
    softmax_step_backward(s + r * count, dp + r * count, count, seen, in.lse[at + r], in.delta[at + r]);
  }
  dense_gemm(true, false, count, dim, rows, s, in.dy + at * dim, dv, true);
  dense_gemm(true, false, count, dim, rows, dp, in.q + at * dim, dk, true);
  dense_gemm(false, false, rows, dim, count, dp, k, in.dq + at * dim, true);
}

template <class T>
void store_keys(const AttentionView& view, const HostCall& call, std::uint32_t bit, std::int64_t at,
                std::int64_t count, const float* values) {
  T* out = call.write_if<T>(view.p.wanted, bit);
  if (out == nullptr) return;
  const std::int64_t dim = view.p.head_dim;
  cpu::store_block(values, dim, count, dim, dtype_of<T>(), out + at, view.k_stride(),
                   (view.p.accumulate & bit) != 0);
}

template <class T>
void store_queries(const AttentionView& view, const HostCall& call, std::int64_t pair, float* dq) {
  T* out = call.write_if<T>(view.p.wanted, view.p.dq);
  if (out == nullptr) return;
  const std::int64_t width = view.group * view.p.head_dim;
  scale_by(dq, view.p.q_len * width, view.p.scale);
  cpu::store_block(dq, width, view.p.q_len, width, dtype_of<T>(), out + view.q_at(pair), view.q_stride(),
                   (view.p.accumulate & view.p.dq) != 0);
}

// Keys [keys.begin, keys.end) of one pair against all its queries; dq gets their share.
template <class T>
void backward_keys(const AttentionView& view, const HostCall& call, std::int64_t pair, Range keys,
                   float* dq) {
  thread_local cpu::Scratch k_scratch, v_scratch, dk_scratch, dv_scratch;
  const std::int64_t dim = view.p.head_dim, q_block = view.q_block();
  const BackwardPair in = load_pair<T>(view, call, pair, dq);
  for (std::int64_t k0 = keys.begin; k0 < keys.end; k0 += kBlockKeys) {
    const std::int64_t count = std::min(kBlockKeys, keys.end - k0);
    const std::int64_t k_at = view.k_at(pair) + k0 * view.k_stride();
    float* k = floats(k_scratch, count * dim);
    float* v = floats(v_scratch, count * dim);
    float* dk = floats(dk_scratch, count * dim);
    float* dv = floats(dv_scratch, count * dim);
    cpu::load_block(dtype_of<T>(), call.read<T>(1) + k_at, view.k_stride(), count, dim, k, dim);
    cpu::load_block(dtype_of<T>(), call.read<T>(2) + k_at, view.k_stride(), count, dim, v, dim);
    std::fill_n(dk, count * dim, 0.0f);
    std::fill_n(dv, count * dim, 0.0f);
    for (std::int64_t begin = 0; begin < view.p.q_len; begin += q_block) {
      const std::int64_t end = std::min(begin + q_block, view.p.q_len);
      const Range seen = within(view.seen_by_all(pair, begin, end), k0, count);
      if (seen.is_empty()) continue;
      const std::int64_t first = seen.begin;
      backward_block(view, pair, in, begin, end, k0 + first, seen.end - first, k + first * dim,
                     v + first * dim, dk + first * dim, dv + first * dim);
    }
    store_keys<T>(view, call, view.p.dk, k_at, count, dk);
    store_keys<T>(view, call, view.p.dv, k_at, count, dv);
  }
}

// -sum over the batch and the queries of exp(sink - lse) * (dy . y).
template <class T>
float sink_gradient(const AttentionParams& p, const HostCall& call, std::int64_t head) {
  const float sink = call.read<float>(6)[head];
  float sum = 0.0f;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      const float lse = call.read<float>(4)[(b * p.q_heads + head) * p.q_len + i];
      if (lse == -HUGE_VALF) continue;  // a sink of -inf that no key is beside
      const std::int64_t at = ((b * p.q_len + i) * p.q_heads + head) * p.head_dim;
      sum -= std::exp(sink - lse) *
             dot_of(call.read<T>(5) + at, call.read<T>(3) + at, static_cast<std::size_t>(p.head_dim));
    }
  }
  return sum;
}

template <class T>
void store_sinks(const AttentionParams& p, const HostCall& call) {
  auto* out = call.write_if<float>(p.wanted, p.dsinks);
  if (out == nullptr) return;
  const std::int64_t grain = cpu::row_grain(p.batch * p.q_len * p.head_dim);
  cpu::parallel_for(p.q_heads, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t h = begin; h < end; ++h) {
      const float gradient = sink_gradient<T>(p, call, h);
      out[h] = (p.accumulate & p.dsinks) != 0 ? out[h] + gradient : gradient;
    }
  });
}

template <class T>
void attention_backward(const HostCall& call) {
  const AttentionView view(call, call.params<AttentionParams>());
  store_sinks<T>(view.p, call);
  if ((view.p.wanted & ~view.p.dsinks) == 0) return;
  const std::int64_t blocks = (view.p.k_len + kBlockKeys - 1) / kBlockKeys;
  const std::int64_t parts = std::clamp<std::int64_t>(kBackwardTasks / view.pairs(), 1, blocks);
  const std::int64_t part = (blocks + parts - 1) / parts * kBlockKeys;
  const std::int64_t size = view.rows() * view.p.head_dim;
  std::vector<float> partials(static_cast<std::size_t>(parts > 1 ? view.pairs() * parts * size : 0));
  cpu::parallel_for(
      view.pairs() * parts, view.grain(view.rows() / parts), [&](std::int64_t first, std::int64_t last) {
        thread_local cpu::Scratch dq_scratch;
        for (std::int64_t i = first; i < last; ++i) {
          const std::int64_t begin = i % parts * part;
          float* dq = parts > 1 ? partials.data() + i * size : floats(dq_scratch, size);
          backward_keys<T>(view, call, i / parts, {begin, std::min(begin + part, view.p.k_len)}, dq);
          if (parts == 1) store_queries<T>(view, call, i, dq);
        }
      });
  if (parts == 1) return;
  cpu::parallel_for(view.pairs(), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t pair = first; pair < last; ++pair) {
      float* dq = partials.data() + pair * parts * size;
      for (std::int64_t i = 1; i < parts; ++i)
        cpu::store_block(dq + i * size, size, 1, size, DType::f32, dq, size, true);
      store_queries<T>(view, call, pair, dq);
    }
  });
}
MIXTAPE_SIMD_KERNEL(attention_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(attention_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(attention_backward)
}  // namespace mixtape
#endif
