// What the front ends of norms by the root of a mean square have in common, which differ in what is done to a normed row.
#pragma once

#include <string>

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/rms_norm/rms_norm_params.h"

namespace mixtape {

// w is x's dtype or f32, one element for each of x's columns; throws invalid_argument.
void check_norm_weight(const char* op, const Buffer& x, const Buffer& w);
// Throws invalid_argument for what is no positive number.
void check_eps(const char* op, float eps);

// `stem` with the dtypes of x and of the weight: rms_norm_forward_bf16_w_f32.
std::string weighted_kernel(const char* stem, const Buffer& x, const Buffer& w);

// Of `rows` whose shares of dw are added up in blocks, as the device wants them.
RmsNormParams norm_params(const CommandEncoder& encoder, std::int64_t rows, std::int64_t cols);

// dw comes in two steps: a partial sum for each block of rows, f32 [blocks, cols], then their sum.
Buffer alloc_partials(const CommandEncoder& encoder, const RmsNormParams& params);
void add_partials(CommandEncoder& encoder, RmsNormParams params, const Buffer& partials,
                  const Backward::Target& dw);

}  // namespace mixtape
