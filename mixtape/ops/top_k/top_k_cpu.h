// Selection for host kernels that rank rows themselves.
#pragma once

#include <cstdint>

#include "mixtape/core/bf16.h"
#include "mixtape/core/f16.h"

namespace mixtape::cpu {

// The places of the k largest of each row, in top_k's order, to indices [rows, k]. On the calling thread.
void top_k_rows(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t k, std::uint32_t* indices);
void top_k_rows(const bf16* x, std::int64_t rows, std::int64_t cols, std::int64_t k, std::uint32_t* indices);
void top_k_rows(const f16* x, std::int64_t rows, std::int64_t cols, std::int64_t k, std::uint32_t* indices);

}  // namespace mixtape::cpu
