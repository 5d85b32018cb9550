// Products of few rows, as a text that grows by a token makes them: bound by how fast the weight is read.
#pragma once

#include "mixtape/ops/quantize/quantize_cpu.h"

namespace mixtape::cpu {

// y[t, n - begin] = sum_k x[t, k] w[n, k] for rows begin <= n < end of the weight; x [count, cols], y [count, ldy]. On
// the calling thread. A row's sum does not depend on begin and end.
void multiply_few_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, const float* x,
                       std::int64_t count, float* y, std::int64_t ldy);

}  // namespace mixtape::cpu
