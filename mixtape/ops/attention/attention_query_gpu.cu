// One query of each sequence, as a text that grows by a token asks it: bound by how fast keys and values are read. A
// block takes a chunk of a head's keys and the queries that share them, at most Q; what it found is in memory then, and
// a second kernel adds up the chunks of each query, in order.
#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/attention/attention_query_params.h"
#include "mixtape/ops/attention/attention_range_gpu.h"

namespace mixtape {

constexpr int kWarps = kQueryThreads / kLanes, kDims = 8, kKeysAtOnce = 4;
constexpr int kScratchOf1 = kWarps * (kLanes * kDims + 2);

// Lanes beside each other that share a row of a head, kDims dimensions each: as many teams read a row each at a time.
struct Team {
  int lanes, count, index, d;
  bool is_there;  // whether the head has the lane's dimensions

  MIXTAPE_DEVICE explicit Team(const AttentionParams& p) {
    lanes = 1;
    while (lanes * kDims < p.head_dim) lanes *= 2;
    count = kQueryThreads / lanes;
    index = flat_thread() / lanes;
    d = flat_thread() % lanes * kDims;
    is_there = d < p.head_dim;
  }
};

// What queries know of some keys: the largest score, and relative to it the sum of weights and a lane's part of the sum
// of weighted values.
template <int Q>
struct QueryState {
  float max[Q], sum[Q], out[Q][kDims];

  MIXTAPE_DEVICE QueryState() {
    MIXTAPE_UNROLL
    for (int i = 0; i < Q; ++i) {
      max[i] = float_of(0xff800000u);
      sum[i] = 0.0f;
      MIXTAPE_UNROLL
      for (int e = 0; e < kDims; ++e) out[i][e] = 0.0f;
    }
  }
  // Makes `highest` the largest score of query i.
  MIXTAPE_DEVICE void rise_to(int i, float highest) {
    const float factor = max[i] == highest ? 1.0f : exp_fast(max[i] - highest);
    max[i] = highest;
    sum[i] *= factor;
    MIXTAPE_UNROLL
    for (int e = 0; e < kDims; ++e) out[i][e] *= factor;
  }
  // Of query i and other keys; the same bits whichever is the other.
  MIXTAPE_DEVICE void add(int i, QueryState<1> other) {
    const float highest = max_nan(max[i], other.max[0]);
    rise_to(i, highest);
    other.rise_to(0, highest);
    sum[i] += other.sum[0];
    MIXTAPE_UNROLL
    for (int e = 0; e < kDims; ++e) out[i][e] += other.out[0][e];
  }
  // Of the block's teams. Warps keep theirs in scratch, of kScratchOf1 for each query.
  MIXTAPE_DEVICE void share(const Team& team, Shared<float> scratch) {
    MIXTAPE_UNROLL
    for (int i = 0; i < Q; ++i) {
      for (int mask = team.lanes; mask < kLanes; mask *= 2) {
        QueryState<1> other;
        other.max[0] = lane_xor(max[i], mask);
        other.sum[0] = lane_xor(sum[i], mask);
        MIXTAPE_UNROLL
        for (int e = 0; e < kDims; ++e) other.out[0][e] = lane_xor(out[i][e], mask);
        add(i, other);
      }
      const Shared<float> mine = scratch + (i * kWarps + warp()) * (kLanes * kDims + 2);
      if (lane() == 0) {
        mine[kLanes * kDims] = max[i];
        mine[kLanes * kDims + 1] = sum[i];
      }
      if (lane() >= team.lanes) continue;
      MIXTAPE_UNROLL
      for (int e = 0; e < kDims; ++e) mine[team.d + e] = out[i][e];
    }
    barrier();
  }
};

// Query i of all the block's keys, after its states were shared: a lane's dimensions from `d` on, if there are any.
MIXTAPE_DEVICE QueryState<1> shared_state(int i, int d, std::int64_t head_dim, Shared<float> scratch) {
  QueryState<1> all;
  for (int w = 0; w < kWarps; ++w) {
    const Shared<float> its = scratch + (i * kWarps + w) * (kLanes * kDims + 2);
    QueryState<1> other;
    other.max[0] = its[kLanes * kDims];
    other.sum[0] = its[kLanes * kDims + 1];
    MIXTAPE_UNROLL
    for (int e = 0; e < kDims; ++e) {
      if (d < head_dim) other.out[0][e] = its[d + e];
    }
    all.add(0, other);
  }
  return all;
}

MIXTAPE_DEVICE std::int64_t key_chunks(const AttentionParams& p) {
  return (p.k_len + kQueryKeys - 1) / kQueryKeys;
}

// Which queries and keys are a block's; blocks beside each other read the same keys.
template <int Q>
struct QueryBlock {
  std::int64_t batch, kv_head, head, chunk;
  int heads;  // from `head` on

  MIXTAPE_DEVICE explicit QueryBlock(const AttentionParams& p) {
    const std::int64_t group = p.q_heads / p.kv_heads, parts = (group + Q - 1) / Q;
    std::int64_t rest = block_x();
    const std::int64_t part = rest % parts;
    rest /= parts;
    kv_head = rest % p.kv_heads;
    rest /= p.kv_heads;
    chunk = rest % key_chunks(p);
    batch = rest / key_chunks(p);
    head = kv_head * group + part * Q;
    heads = static_cast<int>(group - part * Q < Q ? group - part * Q : Q);
  }
};

// A key and a value for each of kKeysAtOnce rows from key `first` on, a row per team; 0 past `end`.
template <class T>
struct QueryRows {
  Pack<T, kDims> keys[kKeysAtOnce], values[kKeysAtOnce];

  MIXTAPE_DEVICE void load(Global<const T> k, Global<const T> v, std::int64_t step, int first, int end,
                           const Team& team) {
    MIXTAPE_UNROLL
    for (int n = 0; n < kKeysAtOnce; ++n) {
      keys[n] = values[n] = {};
      const int j = first + n * team.count + team.index;
      if (j >= end || !team.is_there) continue;
      keys[n] = load_pack<kDims>(k + j * step);
      values[n] = load_pack<kDims>(v + j * step);
    }
  }
  // scores[n] = query . key n
  MIXTAPE_DEVICE void scores(const float (&query)[kDims], const Team& team,
                             float (&scores)[kKeysAtOnce]) const {
    MIXTAPE_UNROLL
    for (int n = 0; n < kKeysAtOnce; ++n) {
      scores[n] = 0.0f;
      MIXTAPE_UNROLL
      for (int e = 0; e < kDims; ++e) scores[n] = fma_f32(query[e], to_f32(keys[n].v[e]), scores[n]);
    }
    for (int mask = team.lanes / 2; mask > 0; mask /= 2) {
      MIXTAPE_UNROLL
      for (int n = 0; n < kKeysAtOnce; ++n) scores[n] += lane_xor(scores[n], mask);
    }
  }
};

// scores[n] is that of key first + n * team.count + team.index.
template <class T, int Q>
MIXTAPE_DEVICE void add_keys(QueryState<Q>& state, int i, const float (&scores)[kKeysAtOnce],
                             const QueryRows<T>& rows, int first, int end, const Team& team) {
  const auto sees = [&](int n) { return first + n * team.count + team.index < end; };
  float highest = state.max[i];
  MIXTAPE_UNROLL
  for (int n = 0; n < kKeysAtOnce; ++n) highest = sees(n) ? max_nan(highest, scores[n]) : highest;
  state.rise_to(i, highest);
  MIXTAPE_UNROLL
  for (int n = 0; n < kKeysAtOnce; ++n) {
    const float weight = sees(n) ? exp_fast(scores[n] - highest) : 0.0f;
    state.sum[i] += weight;
    MIXTAPE_UNROLL
    for (int e = 0; e < kDims; ++e)
      state.out[i][e] = fma_f32(weight, to_f32(rows.values[n].v[e]), state.out[i][e]);
  }
}

// states [B,Hq,chunks,2] become the largest score and the sum of weights, outs [B,Hq,chunks,D] the sums of weighted
// values, which are left as they are where no key is seen.
template <class T, int Q>
MIXTAPE_DEVICE void attention_query(const AttentionParams& p, Global<const T> q, Global<const T> k,
                                    Global<const T> v, Global<const std::int32_t> lengths,
                                    Global<float> states, Global<float> outs, Global<std::uint64_t> errors,
                                    Shared<float> scratch) {
  const QueryBlock<Q> block(p);
  const Team team(p);
  const AttentionRange seen = keys_seen(p, attention_length(p, lengths, block.batch, errors), 0, 1);
  const int chunk = static_cast<int>(block.chunk) * kQueryKeys;
  const int begin = seen.begin > chunk ? seen.begin : chunk;
  const int end = seen.end < chunk + kQueryKeys ? seen.end : chunk + kQueryKeys;
  float queries[Q][kDims];
  MIXTAPE_UNROLL
  for (int i = 0; i < Q; ++i) {
    Pack<T, kDims> pack = {};
    if (i < block.heads && team.is_there)
      pack = load_pack<kDims>(q + ((block.batch * p.q_heads + block.head + i) * p.head_dim + team.d));
    MIXTAPE_UNROLL
    for (int e = 0; e < kDims; ++e) queries[i][e] = p.scale * to_f32(pack.v[e]);
  }
  const std::int64_t at = (block.batch * p.k_rows * p.kv_heads + block.kv_head) * p.head_dim + team.d;
  QueryState<Q> state;
  for (int first = begin; first < end; first += kKeysAtOnce * team.count) {
    QueryRows<T> rows;
    rows.load(k + at, v + at, p.kv_heads * p.head_dim, first, end, team);
    MIXTAPE_UNROLL
    for (int i = 0; i < Q; ++i) {
      float scores[kKeysAtOnce];
      rows.scores(queries[i], team, scores);
      add_keys(state, i, scores, rows, first, end, team);
    }
  }
  state.share(team, scratch);
  for (int i = warp(); i < block.heads; i += kWarps) {
    const int d = lane() * kDims;
    const QueryState<1> all = shared_state(i, d, p.head_dim, scratch);
    const std::int64_t to = (block.batch * p.q_heads + block.head + i) * key_chunks(p) + block.chunk;
    if (lane() == 0) {
      states[2 * to] = all.max[0];
      states[2 * to + 1] = all.sum[0];
    }
    if (d >= p.head_dim || begin >= end) continue;
    Pack<float, kDims> pack;
    MIXTAPE_UNROLL
    for (int e = 0; e < kDims; ++e) pack.v[e] = all.out[0][e];
    store_pack(outs + (to * p.head_dim + d), pack);
  }
}

// y and lse of the query of each block, of its chunks and its sink.
template <class T>
MIXTAPE_DEVICE void attention_query_sum(const AttentionParams& p, Global<const float> states,
                                        Global<const float> outs, Global<const float> sinks, Global<T> y,
                                        Global<float> lse, Shared<float> scratch) {
  const std::int64_t row = block_x(), chunks = key_chunks(p);
  const Team team(p);
  QueryState<1> state;
  for (std::int64_t chunk = team.index; chunk < chunks; chunk += team.count) {
    const std::int64_t at = row * chunks + chunk;
    QueryState<1> other;
    other.max[0] = states[2 * at];
    other.sum[0] = states[2 * at + 1];
    if (other.sum[0] == 0.0f) continue;  // no key is seen
    if (team.is_there) {
      const auto out = load_pack<kDims>(outs + (at * p.head_dim + team.d));
      MIXTAPE_UNROLL
      for (int e = 0; e < kDims; ++e) other.out[0][e] = out.v[e];
    }
    state.add(0, other);
  }
  state.share(team, scratch);
  if (warp() > 0) return;
  const int d = lane() * kDims;
  QueryState<1> all = shared_state(0, d, p.head_dim, scratch);
  const bool sees = all.sum[0] != 0.0f;
  if (p.has_sinks != 0) {
    QueryState<1> sink;
    sink.max[0] = sinks[row % p.q_heads];
    sink.sum[0] = 1.0f;
    all.add(0, sink);
  }
  if (lane() == 0) lse[row] = sees ? all.max[0] + log_f32(all.sum[0]) : all.max[0];
  if (d >= p.head_dim) return;
  const float factor = sees ? 1.0f / all.sum[0] : 0.0f;
  Pack<T, kDims> pack;
  MIXTAPE_UNROLL
  for (int e = 0; e < kDims; ++e) pack.v[e] = from_f32<T>(all.out[0][e] * factor);
  store_pack(y + (row * p.head_dim + d), pack);
}

#define QUERY_OF(T, Q)                                                                           \
  MIXTAPE_KERNEL(attention_query_##T##_##Q, kQueryThreads, AttentionParams p, Global<const T> q, \
                 Global<const T> k, Global<const T> v, Global<const std::int32_t> lengths,       \
                 Global<float> states, Global<float> outs, Global<std::uint64_t> errors) {       \
    await_earlier();                                                                             \
    MIXTAPE_SHARED(float, scratch, Q* kScratchOf1);                                              \
    attention_query<T, Q>(p, q, k, v, lengths, states, outs, errors, scratch);                   \
  }
#define QUERY(T)                                                                                        \
  QUERY_OF(T, 1)                                                                                        \
  QUERY_OF(T, 2)                                                                                        \
  QUERY_OF(T, 4)                                                                                        \
  MIXTAPE_KERNEL(attention_query_sum_##T, kQueryThreads, AttentionParams p, Global<const float> states, \
                 Global<const float> outs, Global<const float> sinks, Global<T> y, Global<float> lse) { \
    await_earlier();                                                                                    \
    MIXTAPE_SHARED(float, scratch, kScratchOf1);                                                        \
    attention_query_sum<T>(p, states, outs, sinks, y, lse, scratch);                                    \
  }
MIXTAPE_VALUE_KERNELS(QUERY)

}  // namespace mixtape
