// One thread takes a head, forward a value head and backward a key head with its value heads, and goes from chunk to
// chunk; within a chunk all but the triangular solves are matrix products.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/gated_delta_rule/gated_delta_rule_cpu.cpp"
#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/gemm.h"
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// A matrix in f32, dense.
struct Dense {
  float* at = nullptr;
  std::int64_t rows = 0, cols = 0;
  float* row(std::int64_t r) const { return at + r * cols; }
};

// c (+)= op(a) op(b), on this thread.
void multiply(const Dense& a, bool trans_a, const Dense& b, bool trans_b, const Dense& c, bool accumulate) {
  cpu::Gemm gemm;
  gemm.trans_a = trans_a;
  gemm.trans_b = trans_b;
  gemm.m = c.rows;
  gemm.n = c.cols;
  gemm.k = trans_a ? a.rows : a.cols;
  gemm.lda = a.cols;
  gemm.ldb = b.cols;
  gemm.ldc = c.cols;
  gemm.accumulate = accumulate;
  cpu::gemm_on_this_thread(gemm, a.at, b.at, c.at);
}

// y += factor * x
void add_row(float factor, const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes())
    store(hn::MulAdd(set(factor), load(x + i, n - i), load(y + i, n - i)), y + i, n - i);
}
void scale_row(float factor, const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes()) store(hn::Mul(set(factor), load(x + i, n - i)), y + i, n - i);
}
void scale_rows(const float* factors, const Dense& x, const Dense& y) {
  for (std::int64_t r = 0; r < x.rows; ++r)
    scale_row(factors[r], x.row(r), y.row(r), static_cast<std::size_t>(x.cols));
}
float dot_rows(const Dense& a, const Dense& b, std::int64_t r) {
  return dot_of(a.row(r), b.row(r), static_cast<std::size_t>(a.cols));
}

// Memory of a thread, handed out in order.
class DeltaScratch {
 public:
  explicit DeltaScratch(std::int64_t floats) {
    static thread_local cpu::Scratch scratch;
    next_ = scratch.get<float>(static_cast<std::size_t>(floats));
  }
  Dense matrix(std::int64_t rows, std::int64_t cols) {
    const Dense made{next_, rows, cols};
    next_ += (rows * cols + 15) / 16 * 16;
    return made;
  }

 private:
  float* next_;
};
// Enough for the matrices below, with a state more for each value head of a group.
std::int64_t delta_scratch_floats(const GatedDeltaRuleParams& p, std::int64_t states) {
  const std::int64_t widest = std::max({p.key_dim, p.value_dim, std::int64_t{kDeltaChunk}}) + 16;
  return 24 * kDeltaChunk * widest + states * (p.state_size() + 16);
}

// The first `count` rows are those of a head, `stride` elements from one position to the next; the others are 0.
template <class T>
void load_rows(const T* from, std::int64_t stride, std::int64_t count, const Dense& to) {
  std::fill(to.row(count), to.row(to.rows), 0.0f);
  for (std::int64_t r = 0; r < count; ++r) {
    const auto n = static_cast<std::size_t>(to.cols);
    for (std::size_t i = 0; i < n; i += lanes())
      store(load(from + r * stride + i, n - i), to.row(r) + i, n - i);
  }
}
template <class T>
void store_rows(const Dense& from, std::int64_t count, T* to, std::int64_t stride, bool accumulate) {
  for (std::int64_t r = 0; r < count; ++r) {
    const auto n = static_cast<std::size_t>(from.cols);
    for (std::size_t i = 0; i < n; i += lanes()) {
      T* out = to + r * stride + i;
      const Floats v = load(from.row(r) + i, n - i);
      store(accumulate ? hn::Add(load(out, n - i), v) : v, out, n - i);
    }
  }
}

template <class T>
struct DeltaBuffers {
  const GatedDeltaRuleParams& p;
  const T *q, *k, *v;
  const float *g, *beta;

  DeltaBuffers(const HostCall& call, const GatedDeltaRuleParams& params)
      : p(params),
        q(call.read<T>(0)),
        k(call.read<T>(1)),
        v(call.read<T>(2)),
        g(call.read<float>(3)),
        beta(call.read<float>(4)) {}
  std::int64_t keys_at(std::int64_t b, std::int64_t t, std::int64_t key_head) const {
    return ((b * p.length + t) * p.key_heads + key_head) * p.key_dim;
  }
  std::int64_t gates_at(std::int64_t b, std::int64_t t, std::int64_t head) const {
    return (b * p.length + t) * p.value_heads + head;
  }
  std::int64_t values_at(std::int64_t b, std::int64_t t, std::int64_t head) const {
    return gates_at(b, t, head) * p.value_dim;
  }
  std::int64_t key_stride() const { return p.key_heads * p.key_dim; }
  std::int64_t value_stride() const { return p.value_heads * p.value_dim; }
  std::int64_t count(std::int64_t begin) const {
    return std::min<std::int64_t>(kDeltaChunk, p.length - begin);
  }
};

// A chunk of one value head. Beyond its `count` positions there are zeros up to n, a multiple of 16: products of
// few sizes are compiled. A single position stays one.
struct DeltaChunk {
  std::int64_t count, n;
  Dense q, k;                     // [n, Dk]
  Dense products;                 // [n, n]: k[t].k[j]
  Dense decay;                    // [n, n]: D[t,j] for j <= t, else 0
  Dense weights;                  // [n, n]: scale D[t,j] q[t].k[j]
  Dense a;                        // [n, n]: A, 0 on and above the diagonal
  Dense z, u;                     // [n, Dv]: v - D[t] S k, and what is added along the keys
  float from_start[kDeltaChunk];  // D[t]
  float to_end[kDeltaChunk];      // D of the last position and t
  float beta[kDeltaChunk];
  float whole;  // the chunk's decay

  DeltaChunk(DeltaScratch& scratch, const GatedDeltaRuleParams& p, std::int64_t positions)
      : count(positions),
        n(count == 1 ? 1 : (count + 15) / 16 * 16),
        q(scratch.matrix(n, p.key_dim)),
        k(scratch.matrix(n, p.key_dim)),
        products(scratch.matrix(n, n)),
        decay(scratch.matrix(n, n)),
        weights(scratch.matrix(n, n)),
        a(scratch.matrix(n, n)),
        z(scratch.matrix(n, p.value_dim)),
        u(scratch.matrix(n, p.value_dim)) {}

  // Sums of logarithms in f64: their differences keep f32's precision.
  void load_gates(const float* g, const float* betas, std::int64_t stride) {
    double sum[kDeltaChunk], total = 0.0;
    for (std::int64_t t = 0; t < n; ++t) {
      if (t < count) total += static_cast<double>(g[t * stride]);
      sum[t] = total;
      beta[t] = t < count ? betas[t * stride] : 0.0f;
    }
    whole = static_cast<float>(std::exp(total));
    for (std::int64_t t = 0; t < n; ++t) {
      from_start[t] = static_cast<float>(std::exp(sum[t]));
      to_end[t] = static_cast<float>(std::exp(total - sum[t]));
      for (std::int64_t j = 0; j < n; ++j)
        decay.row(t)[j] = j <= t ? std::exp(static_cast<float>(sum[t] - sum[j])) : 0.0f;
    }
  }

  template <class T>
  void load(const DeltaBuffers<T>& in, std::int64_t b, std::int64_t begin, std::int64_t head) {
    const std::int64_t keys = in.keys_at(b, begin, head / in.p.group()), gates = in.gates_at(b, begin, head);
    load_rows(in.q + keys, in.key_stride(), count, q);
    load_rows(in.k + keys, in.key_stride(), count, k);
    load_rows(in.v + in.values_at(b, begin, head), in.value_stride(), count, z);
    load_gates(in.g + gates, in.beta + gates, in.p.value_heads);
    multiply(k, false, k, true, products, false);
    multiply(q, false, k, true, weights, false);
    for (std::int64_t t = 0; t < n; ++t) {
      for (std::int64_t j = 0; j < n; ++j) {
        weights.row(t)[j] = j <= t ? weights.row(t)[j] * in.p.scale * decay.row(t)[j] : 0.0f;
        a.row(t)[j] = j < t ? products.row(t)[j] * beta[t] * decay.row(t)[j] : 0.0f;
      }
    }
  }

  // z and u; `state` [Dv,Dk] is the one before the chunk.
  void solve(const Dense& state) {
    multiply(k, false, state, true, u, false);
    const auto dim = static_cast<std::size_t>(z.cols);
    for (std::int64_t t = 0; t < n; ++t) {
      add_row(-from_start[t], u.row(t), z.row(t), dim);
      scale_row(beta[t], z.row(t), u.row(t), dim);
      for (std::int64_t j = 0; j < t; ++j) add_row(-a.row(t)[j], u.row(j), u.row(t), dim);
    }
  }
};

// The state after the chunk. `keys` [n, Dk] is overwritten.
void advance(const DeltaChunk& c, const Dense& keys, const Dense& state) {
  scale_row(c.whole, state.at, state.at, static_cast<std::size_t>(state.rows * state.cols));
  scale_rows(c.to_end, c.k, keys);
  multiply(c.u, true, keys, false, state, true);
}

void copy_or_zero(const float* from, const Dense& to) {
  const std::int64_t count = to.rows * to.cols;
  if (from != nullptr) {
    std::copy_n(from, count, to.at);
  } else {
    std::fill_n(to.at, count, 0.0f);
  }
}

template <class T>
void forward_head(const DeltaBuffers<T>& in, std::int64_t b, std::int64_t head, const float* initial, T* y,
                  const Dense& state, float* states) {
  copy_or_zero(initial, state);
  const GatedDeltaRuleParams& p = in.p;
  float factors[kDeltaChunk];
  for (std::int64_t begin = 0; begin < p.length; begin += kDeltaChunk) {
    if (states != nullptr)
      std::copy_n(state.at, p.state_size(), states + begin / kDeltaChunk * p.state_size());
    DeltaScratch scratch(delta_scratch_floats(p, 0));
    DeltaChunk c(scratch, p, in.count(begin));
    c.load(in, b, begin, head);
    c.solve(state);
    const Dense out = scratch.matrix(c.n, p.value_dim), keys = scratch.matrix(c.n, p.key_dim);
    multiply(c.q, false, state, true, out, false);
    for (std::int64_t t = 0; t < c.n; ++t) factors[t] = c.from_start[t] * p.scale;
    scale_rows(factors, out, out);
    multiply(c.weights, false, c.u, false, out, true);
    store_rows(out, c.count, y + in.values_at(b, begin, head), in.value_stride(), false);
    advance(c, keys, state);
  }
}

template <class T>
void gated_delta_rule_forward(const HostCall& call) {
  const auto& p = call.params<GatedDeltaRuleParams>();
  const DeltaBuffers<T> in(call, p);
  const float* initial = p.has_initial != 0 ? call.read<float>(5) : nullptr;
  T* y = call.write<T>(0);
  float* final_state = call.write<float>(1);
  float* states = p.keeps_states != 0 ? call.write<float>(2) : nullptr;
  cpu::parallel_for(p.batch * p.value_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Dense state{final_state + i * p.state_size(), p.value_dim, p.key_dim};
      forward_head(in, i / p.value_heads, i % p.value_heads, initial ? initial + i * p.state_size() : nullptr,
                   y, state, states ? states + i * p.chunks() * p.state_size() : nullptr);
    }
  });
}
MIXTAPE_SIMD_KERNEL(gated_delta_rule_forward)

template <class T>
struct DeltaGradients {
  T *dq, *dk, *dv;
  float *dg, *dbeta, *dinitial;
  std::uint32_t accumulate;

  DeltaGradients(const HostCall& call, const GatedDeltaRuleParams& p)
      : dq(call.write_if<T>(p.wanted, p.dq)),
        dk(call.write_if<T>(p.wanted, p.dk)),
        dv(call.write_if<T>(p.wanted, p.dv)),
        dg(call.write_if<float>(p.wanted, p.dg)),
        dbeta(call.write_if<float>(p.wanted, p.dbeta)),
        dinitial(call.write_if<float>(p.wanted, p.dinitial)),
        accumulate(p.accumulate) {}
  bool adds(std::uint32_t bit) const { return (accumulate & bit) != 0; }
};

// What a chunk's gradients are made of, and where they go.
struct DeltaSlopes {
  Dense dy, dr;               // [n, Dv]: dr of the right-hand side beta (V - D[t] K S^T)
  Dense dweights, da;         // [n, n]: of q[t].k[j] and beta[t] k[t].k[j], with the decay
  Dense queries, rows, cols;  // [n, Dk]: dq; dk where k asks, and where it is asked
  Dense part;                 // [n, Dk]
  Dense dkeys;                // [n, Dk]: queries and keys, summed over the heads of a group
  Dense dqueries;
  float dbeta[kDeltaChunk], dg[kDeltaChunk];

  DeltaSlopes(DeltaScratch& scratch, const GatedDeltaRuleParams& p, std::int64_t n)
      : dy(scratch.matrix(n, p.value_dim)),
        dr(scratch.matrix(n, p.value_dim)),
        dweights(scratch.matrix(n, n)),
        da(scratch.matrix(n, n)),
        queries(scratch.matrix(n, p.key_dim)),
        rows(scratch.matrix(n, p.key_dim)),
        cols(scratch.matrix(n, p.key_dim)),
        part(scratch.matrix(n, p.key_dim)),
        dkeys(scratch.matrix(n, p.key_dim)),
        dqueries(scratch.matrix(n, p.key_dim)) {}
};

// (I + A)^T dr = du, from the last position on; du = weights^T dy + D[end,t] dS k.
void solve_back(const DeltaChunk& c, const DeltaSlopes& s, const Dense& dstate) {
  multiply(c.k, false, dstate, true, s.dr, false);
  scale_rows(c.to_end, s.dr, s.dr);
  multiply(c.weights, true, s.dy, false, s.dr, true);
  for (std::int64_t t = c.n - 1; t >= 0; --t) {
    for (std::int64_t j = 0; j < t; ++j)
      add_row(-c.a.row(t)[j], s.dr.row(t), s.dr.row(j), static_cast<std::size_t>(s.dr.cols));
  }
}

// Of the products of queries and keys, and of keys, both with their decay.
void slope_products(const DeltaChunk& c, const DeltaSlopes& s, float scale) {
  multiply(s.dy, false, c.u, true, s.dweights, false);
  multiply(s.dr, false, c.u, true, s.da, false);
  for (std::int64_t t = 0; t < c.n; ++t) {
    for (std::int64_t j = 0; j < c.n; ++j) {
      const float decay = c.decay.row(t)[j];
      s.dweights.row(t)[j] = j <= t ? s.dweights.row(t)[j] * scale * decay : 0.0f;
      s.da.row(t)[j] = j < t ? -s.da.row(t)[j] * decay : 0.0f;
    }
  }
}

// dq, dk, dg of the chunk, and what dbeta lacks of it; dS becomes that of the state before it. dy and dr end scaled.
void chunk_slopes(const DeltaChunk& c, DeltaSlopes& s, const Dense& state, const Dense& dstate, float scale) {
  const auto dim = static_cast<std::size_t>(c.k.cols);
  slope_products(c, s, scale);
  float dy_factor[kDeltaChunk], dr_factor[kDeltaChunk];
  for (std::int64_t t = 0; t < c.n; ++t) {
    dy_factor[t] = scale * c.from_start[t];
    dr_factor[t] = -c.beta[t] * c.from_start[t];
  }
  scale_rows(dy_factor, s.dy, s.dy);
  scale_rows(dr_factor, s.dr, s.dr);
  multiply(s.dy, false, state, false, s.queries, false);
  multiply(s.dweights, false, c.k, false, s.queries, true);
  multiply(s.dr, false, state, false, s.rows, false);
  multiply(s.da, false, c.k, false, s.part, false);
  for (std::int64_t t = 0; t < c.n; ++t) {
    s.dbeta[t] += dot_rows(c.k, s.part, t);
    add_row(c.beta[t], s.part.row(t), s.rows.row(t), dim);
  }
  multiply(c.u, false, dstate, false, s.cols, false);
  scale_rows(c.to_end, s.cols, s.cols);
  float last = 0.0f;  // of the sum of all logarithms
  for (std::int64_t t = 0; t < c.n; ++t) last += dot_rows(c.k, s.cols, t);
  last += c.whole * dot_of(state.at, dstate.at, static_cast<std::size_t>(state.rows * state.cols));
  multiply(s.dweights, true, c.q, false, s.cols, true);
  scale_rows(c.beta, c.k, s.part);
  multiply(s.da, true, s.part, false, s.cols, true);
  for (std::int64_t t = c.n - 1; t >= 0; --t) {
    last += dot_rows(c.q, s.queries, t) + dot_rows(c.k, s.rows, t) - dot_rows(c.k, s.cols, t);
    s.dg[t] = last;
  }
  scale_row(c.whole, dstate.at, dstate.at, static_cast<std::size_t>(state.rows * state.cols));
  multiply(s.dy, true, c.q, false, dstate, true);
  multiply(s.dr, true, c.k, false, dstate, true);
}

void put_gates(const float* from, std::int64_t count, float* to, std::int64_t stride, bool accumulate) {
  for (std::int64_t t = 0; t < count && to != nullptr; ++t)
    to[t * stride] = accumulate ? to[t * stride] + from[t] : from[t];
}

// One chunk of one value head; `is_first` of its group.
template <class T>
void backward_chunk(const DeltaBuffers<T>& in, const DeltaGradients<T>& out, const T* dy, std::int64_t b,
                    std::int64_t begin, std::int64_t head, bool is_first, const Dense& state,
                    const Dense& dstate, DeltaChunk& c, DeltaSlopes& s) {
  const GatedDeltaRuleParams& p = in.p;
  c.load(in, b, begin, head);
  c.solve(state);
  load_rows(dy + in.values_at(b, begin, head), in.value_stride(), c.count, s.dy);
  solve_back(c, s, dstate);
  for (std::int64_t t = 0; t < c.n; ++t) s.dbeta[t] = dot_rows(s.dr, c.z, t);
  if (out.dv != nullptr) {
    scale_rows(c.beta, s.dr, c.z);
    store_rows(c.z, c.count, out.dv + in.values_at(b, begin, head), in.value_stride(), out.adds(p.dv));
  }
  chunk_slopes(c, s, state, dstate, p.scale);
  put_gates(s.dg, c.count, out.dg ? out.dg + in.gates_at(b, begin, head) : nullptr, p.value_heads,
            out.adds(p.dg));
  put_gates(s.dbeta, c.count, out.dbeta ? out.dbeta + in.gates_at(b, begin, head) : nullptr, p.value_heads,
            out.adds(p.dbeta));
  const auto count = static_cast<std::size_t>(c.n * p.key_dim);
  if (is_first) {
    std::copy_n(s.queries.at, count, s.dqueries.at);
    std::copy_n(s.rows.at, count, s.dkeys.at);
  } else {
    add_row(1.0f, s.queries.at, s.dqueries.at, count);
    add_row(1.0f, s.rows.at, s.dkeys.at, count);
  }
  add_row(1.0f, s.cols.at, s.dkeys.at, count);
}

// A key head: dstate holds the gradients of its value heads' states.
template <class T>
void backward_heads(const DeltaBuffers<T>& in, const DeltaGradients<T>& out, const float* states, const T* dy,
                    std::int64_t b, std::int64_t key_head, float* dstate) {
  const GatedDeltaRuleParams& p = in.p;
  const std::int64_t first = key_head * p.group();
  for (std::int64_t chunk = p.chunks() - 1; chunk >= 0; --chunk) {
    const std::int64_t begin = chunk * kDeltaChunk;
    DeltaScratch scratch(delta_scratch_floats(p, 0));
    DeltaChunk c(scratch, p, in.count(begin));
    DeltaSlopes s(scratch, p, c.n);
    for (std::int64_t i = 0; i < p.group(); ++i) {
      const std::int64_t head = first + i;
      const std::int64_t at = ((b * p.value_heads + head) * p.chunks() + chunk) * p.state_size();
      const Dense state{const_cast<float*>(states) + at, p.value_dim, p.key_dim};
      const Dense own{dstate + i * p.state_size(), p.value_dim, p.key_dim};
      backward_chunk(in, out, dy, b, begin, head, i == 0, state, own, c, s);
    }
    const std::int64_t keys = in.keys_at(b, begin, key_head);
    if (out.dq != nullptr) store_rows(s.dqueries, c.count, out.dq + keys, in.key_stride(), out.adds(p.dq));
    if (out.dk != nullptr) store_rows(s.dkeys, c.count, out.dk + keys, in.key_stride(), out.adds(p.dk));
  }
}

template <class T>
void gated_delta_rule_backward(const HostCall& call) {
  const auto& p = call.params<GatedDeltaRuleParams>();
  const DeltaBuffers<T> in(call, p);
  const float* states = call.read<float>(5);
  const T* dy = call.read<T>(6);
  const float* dfinal = p.has_dfinal != 0 ? call.read<float>(7) : nullptr;
  const DeltaGradients<T> out(call, p);
  const std::int64_t size = p.group() * p.state_size();
  cpu::parallel_for(p.batch * p.key_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    static thread_local cpu::Scratch scratch;
    float* dstate = scratch.get<float>(static_cast<std::size_t>(size));
    for (std::int64_t i = begin; i < end; ++i) {
      const Dense all{dstate, p.group() * p.value_dim, p.key_dim};
      copy_or_zero(dfinal ? dfinal + i * size : nullptr, all);
      backward_heads(in, out, states, dy, i / p.key_heads, i % p.key_heads, dstate);
      if (out.dinitial != nullptr)
        store_rows(Dense{dstate, 1, size}, 1, out.dinitial + i * size, size, out.adds(p.dinitial));
    }
  });
}
MIXTAPE_SIMD_KERNEL(gated_delta_rule_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(gated_delta_rule_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(gated_delta_rule_backward)
}  // namespace mixtape
#endif
