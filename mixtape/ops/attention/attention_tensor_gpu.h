// What the attention kernels for matrix units share: tiles of 128 queries or keys, in 16 bits.
#pragma once

#include "mixtape/backend/gpu/tensor.h"
#include "mixtape/ops/attention/attention_params.h"
#include "mixtape/ops/attention/attention_range_gpu.h"

namespace mixtape {

constexpr int kQueries = 128;
constexpr float kLog2E = 1.44269504f;

MIXTAPE_DEVICE std::int64_t row_at(std::int64_t batch, std::int64_t length, std::int64_t heads,
                                   std::int64_t head, std::int64_t dim, int first) {
  return ((batch * length + first) * heads + head) * dim;
}
template <class T>
MIXTAPE_DEVICE TensorRows<T> query_rows(const AttentionParams& p, Global<const T> q, std::int64_t batch,
                                        std::int64_t head, int first) {
  return {q + row_at(batch, p.q_len, p.q_heads, head, p.head_dim, first),
          static_cast<int>(p.q_heads * p.head_dim), static_cast<int>(p.q_len) - first,
          static_cast<int>(p.head_dim)};
}
// Keys and values of a head, from a row on.
template <class T>
MIXTAPE_DEVICE TensorRows<T> key_rows(const AttentionParams& p, Global<const T> k, std::int64_t at,
                                      int first) {
  const int step = static_cast<int>(p.kv_heads * p.head_dim);
  return {k + (at + static_cast<std::int64_t>(first) * step), step, static_cast<int>(p.k_len) - first,
          static_cast<int>(p.head_dim)};
}

// Weights in 16 bits, as left operands: [m][j][half] holds columns 8j + 2q, 8j + 2q + 1 of row g or g + 8.
template <int MTiles, int Cols>
using Packed = std::uint32_t[MTiles][Cols / 8][2];

// Stores factors[m][half] * sums, row g or g + 8 of each 16.
template <int D, int MTiles, class T>
MIXTAPE_DEVICE void store_rows(const float (&sums)[MTiles][D / 8][4], const float (&factors)[MTiles][2],
                               Global<T> out, std::int64_t step, int first, int count, int dim,
                               bool accumulate) {
  MIXTAPE_UNROLL
  for (int m = 0; m < MTiles; ++m) {
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = first + m * 16 + half * 8 + lane() / 4;
      const float f = factors[m][half];
      MIXTAPE_UNROLL
      for (int j = 0; j < D / 8; j += 2) {
        const float(&l)[4] = sums[m][j];
        const float(&r)[4] = sums[m][j + 1];
        float v[4];
        const int col = j * 8 + gather_four(f * l[half * 2], f * l[half * 2 + 1], f * r[half * 2],
                                            f * r[half * 2 + 1], v);
        if (row < count && col < dim) store_values(v, out + (row * step + col), accumulate);
      }
    }
  }
}

// Sum and maximum over the four lanes of a row. A NaN may be lost in the maximum, not in the sum.
MIXTAPE_DEVICE float sum_of_4(float v) {
  v += lane_xor(v, 1);
  return v + lane_xor(v, 2);
}
MIXTAPE_DEVICE float max_of_4(float v) {
  v = max_f32(v, lane_xor(v, 1));
  return max_f32(v, lane_xor(v, 2));
}

// Scores outside of each row's range of columns become -inf; column 0 of the tile is `first`.
template <int MTiles, int Cols, class RangeOf>
MIXTAPE_DEVICE void hide_scores(int first_row, int first, const RangeOf& range_of,
                                float (&scores)[MTiles][Cols / 8][4]) {
  MIXTAPE_UNROLL
  for (int m = 0; m < MTiles; ++m) {
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const AttentionRange range = range_of(first_row + m * 16 + half * 8 + lane() / 4);
      MIXTAPE_UNROLL
      for (int j = 0; j < Cols / 8; ++j) {
        MIXTAPE_UNROLL
        for (int e = 0; e < 2; ++e) {
          const int col = first + j * 8 + lane() % 4 * 2 + e;
          if (col < range.begin || col >= range.end) scores[m][j][half * 2 + e] = float_of(0xff800000u);
        }
      }
    }
  }
}

// A block per tile of queries of a head; those that see the most keys come first, heads of a group are
// neighbours.
struct TensorTile {
  std::int64_t batch, head;
  int first;
};
MIXTAPE_DEVICE TensorTile tensor_tile(std::int64_t batches, std::int64_t heads, std::int64_t length,
                                      int height, bool is_last_first) {
  const std::int64_t pairs = batches * heads, tiles = (length + height - 1) / height;
  const std::int64_t pair = block_x() % pairs, tile = block_x() / pairs;
  return {pair / heads, pair % heads, static_cast<int>((is_last_first ? tiles - 1 - tile : tile) * height)};
}

// The keys that any, and those that all of the query rows [begin, end) see.
struct RowsSee {
  AttentionRange any, all;
};
MIXTAPE_DEVICE RowsSee rows_see(const AttentionParams& p, int length, int begin, int end) {
  if (end > p.q_len) end = static_cast<int>(p.q_len);
  if (begin >= end) return {{0, 0}, {0, 0}};
  return {keys_seen(p, length, begin, end),
          {keys_seen(p, length, end - 1, end).begin, keys_seen(p, length, begin, begin + 1).end}};
}

// exp(score - lse): the exponent's base-2 offset of a row. A row that sees nothing has no scores but -inf.
MIXTAPE_DEVICE float base_of(float lse) { return lse == float_of(0xff800000u) ? 0.0f : lse * kLog2E; }

struct TensorReads {
  Global<const bf16> q, k, v, dy;
  Global<const float> lse, delta;
};

// Of rows g and g + 8 of a warp's 16; 0 past the last row.
struct RowValues {
  float base[2], delta[2];
};
MIXTAPE_DEVICE RowValues row_values_of(const AttentionParams& p, const TensorReads& in,
                                       const TensorTile& tile, int first_row) {
  RowValues of;
  MIXTAPE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + half * 8 + lane() / 4;
    const std::int64_t index = (tile.batch * p.q_heads + tile.head) * p.q_len + row;
    of.base[half] = row < p.q_len ? base_of(in.lse[index]) : 0.0f;
    of.delta[half] = row < p.q_len ? static_cast<float>(in.delta[index]) : 0.0f;
  }
  return of;
}

// The tiles of queries that see a tile of keys, in order: head by head of the key head's group.
template <int Queries>
struct QueryTiles {
  const AttentionParams& p;
  const TensorReads& in;
  int batch, end_head;
  AttentionRange all;

  MIXTAPE_DEVICE void advance(int& head, int& first) const {
    first += Queries;
    if (first < all.end) return;
    first = all.begin;
    ++head;
  }
  // Thread t < Queries brings the base of query t, the next ones its delta.
  MIXTAPE_DEVICE float row_value(int head, int first) const {
    const int kind = flat_thread() / Queries, row = first + flat_thread() % Queries;
    if (head >= end_head || kind > 1 || row >= p.q_len) return 0.0f;
    const std::int64_t index = (batch * p.q_heads + head) * p.q_len + row;
    return kind == 0 ? base_of(in.lse[index]) : static_cast<float>(in.delta[index]);
  }
  MIXTAPE_DEVICE static void keep_row_value(Shared<float> row_values, int stage, float value) {
    if (flat_thread() < 2 * Queries) row_values[stage * 2 * Queries + flat_thread()] = value;
  }
};

}  // namespace mixtape
