#include "mixtape/ops/sampling/sampling.h"

#include <algorithm>
#include <cmath>

#include "mixtape/core/mix.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/sampling/sampling_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

Shape index_shape(const Shape& x) {
  std::vector<std::int64_t> dims = x.dims();
  dims.pop_back();
  return dims.empty() ? Shape{1} : Shape(dims);
}

void check(const char* op, const char* argument, const Buffer& x, const Buffer& indices,
           std::int64_t most_cols) {
  check_values(op, argument, x);
  check_row(op, argument, x);
  require(x.shape().cols() <= most_cols, op, ": ", argument, " is ", x, ", expected at most ", most_cols,
          " columns");
  check_is(op, "indices", indices, DType::u32, index_shape(x.shape()));
}

void check_options(const SamplingOptions& o) {
  require(std::isfinite(o.temperature) && o.temperature >= 0.0, "sample: temperature is ", o.temperature,
          ", expected 0 or more");
  require(o.top_p >= 0.0 && o.top_p <= 1.0, "sample: top_p is ", o.top_p, ", expected 0 to 1");
  require(o.top_k >= 0, "sample: top_k is ", o.top_k, ", expected 0 or more");
  require(o.min_p >= 0.0 && o.min_p <= 1.0, "sample: min_p is ", o.min_p, ", expected 0 to 1");
  require(o.step < std::uint64_t{1} << 32, "sample: step is ", o.step, ", expected less than 2^32");
}

void encode(CommandEncoder& encoder, const char* kernel, const SamplingParams& params, const Buffer& x,
            const Buffer& indices) {
  encoder.encode(
      {.kernel = str(kernel, x.dtype()), .params = params_bytes(params), .reads = {x}, .writes = {indices}});
}

SamplingParams params_of(const Buffer& x) {
  SamplingParams params{};
  params.rows = x.shape().rows();
  params.cols = x.shape().cols();
  return params;
}

}  // namespace

void argmax_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& indices) {
  check("argmax", "x", x, indices, (std::int64_t{1} << 32) - 1);
  encode(encoder, "argmax_forward_", params_of(x), x, indices);
}

void sample_forward(CommandEncoder& encoder, const Buffer& logits, const SamplingOptions& options,
                    const Buffer& indices) {
  check("sample", "logits", logits, indices, std::int64_t{1} << 23);
  check_options(options);
  if (options.temperature == 0.0) return argmax_forward(encoder, logits, indices);
  SamplingParams params = params_of(logits);
  // Where log2(e)/temperature overflows, all but the largest are out of reach.
  params.factor = static_cast<float>(std::min(1.4426950408889634 / options.temperature, 3e38));
  params.cuts_tail = options.top_p < 1.0 ? 1 : 0;
  params.top_p = params.cuts_tail ? static_cast<std::uint64_t>(options.top_p * 0x1p64) : 0;
  params.top_k = options.top_k < params.cols ? static_cast<std::uint64_t>(options.top_k) : 0;
  params.most_steps =
      options.min_p > 0.0 ? draw_steps(static_cast<float>(-std::log2(options.min_p))) : kNoSteps;
  params.seed = mix_bits(options.seed);
  params.step = options.step;
  encode(encoder, "sample_forward_", params, logits, indices);
}

Var argmax(const Var& x, std::int64_t axis, bool keepdims) {
  Tape& tape = common_tape("argmax", {x});
  check_values("argmax", "x", x.value());
  const auto [rows, shape] = reduction_rows("argmax", x.detach(), axis, keepdims);
  require(rows.shape().cols() > 0, "argmax: x is ", x.value(), ", expected no axis of 0 to choose from");
  const Buffer indices = tape.alloc(DType::u32, shape);
  argmax_forward(tape.encoder(), rows.value(), indices.reshape({indices.numel()}));
  return tape.constant(indices);
}

Var sample(const Var& logits, const SamplingOptions& options) {
  Tape& tape = common_tape("sample", {logits});
  check_values("sample", "logits", logits.value());
  const Buffer indices = tape.alloc(DType::u32, index_shape(logits.shape()));
  sample_forward(tape.encoder(), logits.value(), options, indices);
  return tape.constant(indices);
}

}  // namespace mixtape
