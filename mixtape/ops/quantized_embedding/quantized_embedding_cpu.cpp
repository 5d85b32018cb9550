#include "mixtape/ops/embedding/embedding_cpu.h"
#include "mixtape/ops/quantize/quantize_cpu.h"
#include "mixtape/ops/quantized_embedding/quantized_embedding_params.h"

namespace mixtape {
namespace {

template <class T>
void quantized_embedding_forward(const HostCall& call) {
  const auto& p = call.params<QuantizedEmbeddingParams>();
  const cpu::QuantizedRows table({call.reads[0], call.reads[1], call.reads[2], p.affine});
  const auto* ids = call.read<std::uint32_t>(3);
  T* y = call.write<T>(0);
  const std::int64_t hidden = p.lookup.hidden;
  cpu::parallel_for(p.lookup.count, cpu::row_grain(hidden), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t id = id_at(ids, p.lookup.ids_are_signed != 0, b);
      T* row = y + row_offset(b, hidden);
      if (0 <= id && id < p.lookup.rows) {
        cpu::dequantize_rows(table, id, id + 1, row);
      } else {
        std::fill(row, row + hidden, T(0.0f));
        call.report_index(b, id, p.lookup.rows);
      }
    }
  });
}

template <class S>
void clear_row(void* values, Accumulate accumulate, std::int64_t row, std::int64_t groups) {
  if (values == nullptr || accumulate == Accumulate::yes) return;
  S* first = static_cast<S*>(values) + row_offset(row, groups);
  std::fill(first, first + groups, S(0.0f));
}

template <class T, class S>
void quantized_embedding_backward(const HostCall& call) {
  const auto& p = call.params<QuantizedEmbeddingParams>();
  const std::int64_t hidden = p.lookup.hidden, groups = p.affine.groups(hidden);
  const cpu::QuantizedRows table({call.reads[0], {}, {}, p.affine});
  const cpu::Segments segments = cpu::sort_ids(call, call.read<std::uint32_t>(1), p.lookup);
  const cpu::ScaleGradients out = cpu::scale_gradients(call, p.out);
  cpu::sum_segments(segments, call.read<T>(2), p.lookup.rows, hidden, [&](std::int64_t id, const float* dw) {
    if (dw != nullptr) return cpu::reduce_rows(table, id, id + 1, dw, out);
    clear_row<S>(out.dscales, out.accumulate_scales, id, groups);
    clear_row<S>(out.dbiases, out.accumulate_biases, id, groups);
  });
}

#define MIXTAPE_QUANTIZED_EMBEDDING(t, T, s, S)                                                  \
  MIXTAPE_HOST_KERNEL("quantized_embedding_forward_" #t "_" #s, quantized_embedding_forward<T>); \
  MIXTAPE_HOST_KERNEL("quantized_embedding_backward_" #t "_" #s, quantized_embedding_backward<T, S>);
MIXTAPE_QUANTIZE_PAIRS(MIXTAPE_QUANTIZED_EMBEDDING)

}  // namespace
}  // namespace mixtape
