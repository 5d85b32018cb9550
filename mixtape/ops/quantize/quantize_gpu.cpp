#include "mixtape/ops/quantize/quantize_gpu.h"

#include <bit>
#include <utility>

#include "mixtape/ops/quantize/quantize_gpu_params.h"
#include "mixtape/ops/quantize/quantize_params.h"

namespace mixtape::gpu {
namespace {

// What quantize kernels found: see report_weight.
void explain(ErrorSlot& errors, std::uint64_t found, std::int64_t cols, DType scales) {
  const auto position = static_cast<std::int64_t>(found >> 24);
  const float value = std::bit_cast<float>(static_cast<std::uint32_t>(found << 8));
  const std::int64_t row = position / cols, col = position % cols;
  try {
    if (value != 0.0f) refuse_weight("quantize_affine", row, col, value);
    fail(ErrorCode::invalid_argument, "quantize_affine: scale or bias of the group at row ", row, ", column ",
         col, " overflows ", scales);
  } catch (...) {
    errors.report_exception(std::current_exception());
  }
}

void quantize(const Call& call) {
  const auto& p = call.params<QuantizeParams>();
  const DType scales = call.write(1).dtype();
  const Argument errors = call.queue.error_word(
      call.errors,
      [cols = p.cols, scales](ErrorSlot& slot, std::uint64_t found) { explain(slot, found, cols, scales); });
  const QuantizeGpuParams params{p.rows * p.cols, p.affine.bits, p.affine.group_size / kCodesAtOnce,
                                 p.rounding == Rounding::cpu};
  call.launch(str("quantize_", call.dtype(0), "_", scales), grid_for(params.count, kCodesAtOnce), kBlock256,
              params, {call.read(0), call.write(0), call.write(1), call.write(2), errors});
}

void forward(const Call& call) {
  const auto& p = call.params<QuantizeParams>();
  const QuantizedSpan span({call.read(0), call.read(1), call.read(2), p.affine});
  dequantize(call, span, call.write(0), call.write(0).dtype(), p.rows * p.cols);
}

void backward(const Call& call) {
  const auto& p = call.params<QuantizeParams>();
  const QuantizedSpan span({call.read(1), {}, {}, p.affine});
  reduce_codes(call, span, call.read(0), call.dtype(0), p.rows * p.cols, scale_gradients(call, p.out));
}

MIXTAPE_GPU_LAUNCHERS("quantize_affine_forward_", quantize);
MIXTAPE_GPU_LAUNCHERS("dequantize_affine_forward_f32_", forward);
MIXTAPE_GPU_LAUNCHERS("dequantize_affine_forward_bf16_", forward);
MIXTAPE_GPU_LAUNCHERS("dequantize_affine_forward_f16_", forward);
MIXTAPE_GPU_LAUNCHERS("dequantize_affine_backward_f32_", backward);
MIXTAPE_GPU_LAUNCHERS("dequantize_affine_backward_bf16_", backward);
MIXTAPE_GPU_LAUNCHERS("dequantize_affine_backward_f16_", backward);

}  // namespace

std::int32_t group_shift(AffineParams format) {
  return std::countr_zero(static_cast<std::uint32_t>(format.group_size / kCodesAtOnce));
}

QuantizedSpan::QuantizedSpan(const QuantizedWeight& w) : codes(w.codes), format(w.format) {
  if (!w.scales) return;
  scales = w.scales;
  biases = w.biases;
  scale_dtype = w.scales.dtype();
}

QuantizedSpan QuantizedSpan::part(std::int64_t begin, std::int64_t count) const {
  const auto words = [&](std::int64_t n) { return static_cast<std::size_t>(n / 32 * format.bits * 4); };
  const auto bytes = [&](std::int64_t n) {
    return static_cast<std::size_t>(n / format.group_size) * size_of(scale_dtype);
  };
  QuantizedSpan found = *this;
  found.codes = codes.part(words(begin), words(count));
  for (Argument* a : {&found.scales, &found.biases}) {
    if (a->memory != nullptr) *a = a->part(bytes(begin), bytes(count));
  }
  return found;
}

void dequantize(const Call& call, const QuantizedSpan& span, const Argument& w, DType dtype,
                std::int64_t count) {
  call.launch(str("dequantize_", dtype, "_", span.scale_dtype, "_", span.format.bits),
              grid_for(count, 4 * kCodesAtOnce), kBlock256,
              DequantizeGpuParams{count, group_shift(span.format)},
              {span.codes, span.scales, span.biases, w});
}

ScaleGradients scale_gradients(const Call& call, const ScaleBits& out) {
  return {call.write_if(out.wanted, out.dscales), call.write_if(out.wanted, out.dbiases),
          call.write(0).dtype(), out.accumulate};
}

void reduce_codes(const Call& call, const QuantizedSpan& span, const Argument& dw, DType dtype,
                  std::int64_t count, const ScaleGradients& out) {
  const std::uint32_t wanted = (out.dscales.memory != nullptr ? ScaleBits::dscales : 0u) |
                               (out.dbiases.memory != nullptr ? ScaleBits::dbiases : 0u);
  const ReduceCodesParams params{count, group_shift(span.format), {wanted, out.accumulate}};
  call.launch(str("reduce_codes_", dtype, "_", out.dtype, "_", span.format.bits),
              grid_for(count, kCodesAtOnce), kBlock256, params, {dw, span.codes, out.dscales, out.dbiases});
}

}  // namespace mixtape::gpu
