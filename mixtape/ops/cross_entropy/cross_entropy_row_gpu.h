// One row in the GPU kernels of cross_entropy: its target, its gradient.
#pragma once

#include "mixtape/backend/gpu/logits.h"
#include "mixtape/ops/cross_entropy/cross_entropy_params.h"

namespace mixtape {

// The row's target, or -1 where it is ignored or out of range, which one thread of the row reports.
MIXTAPE_DEVICE std::int64_t target_of(const CrossEntropyParams& p, Global<const std::uint32_t> targets,
                                      std::int64_t row, Global<std::uint64_t> errors, bool reports) {
  const std::uint32_t bits = targets[row];
  if (bits == kIgnoreTarget) return -1;
  const std::int64_t target = index_value(bits, p.is_signed != 0);
  if (target >= 0 && target < p.cols) return target;
  if (reports) report_index(errors, row, bits);
  return -1;
}

// What a row's gradient is made of; no target: 0.
struct CrossEntropyRow {
  std::int64_t target;
  float max, log_sum, dloss;
};

// The first element is at column `at`.
template <class T, int N>
MIXTAPE_DEVICE void store_gradient(const CrossEntropyRow& r, bool accumulate, std::int64_t at,
                                   const Pack<T, N>& x, Global<T> dx) {
  Pack<T, N> out;
  if (accumulate) out = load_pack<N>(dx);
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) {
    const float q = r.target < 0 ? 0.0f : softmax_at(to_f32(x.v[i]), 1.0f, r.max, r.log_sum);
    const float d = r.target < 0 ? 0.0f : r.dloss * (at + i == r.target ? q - 1.0f : q);
    out.v[i] = from_f32<T>(accumulate ? to_f32(out.v[i]) + d : d);
  }
  store_pack(dx, out);
}

}  // namespace mixtape
