#include "mixtape/ops/quantized_embedding/quantized_embedding.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/ops/quantized_embedding/quantized_embedding_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

QuantizedEmbeddingParams checked(const char* op, const QuantizedWeight& table, const Buffer& ids) {
  const Shape shape = dequantized_shape(op, table);
  require(shape.rank() == 2 && shape[0] > 0, op, ": codes is ", table.codes, ", expected [rows, words]");
  check_indices(op, "ids", ids);
  QuantizedEmbeddingParams params{};
  params.lookup = {shape[0], shape[1], ids.numel(), ids.dtype() == DType::i32 ? 1u : 0u, 0};
  params.affine = table.format;
  return params;
}

Shape output_shape(const Buffer& ids, std::int64_t hidden) {
  std::vector<std::int64_t> dims = ids.shape().dims();
  dims.push_back(hidden);
  return Shape(dims);
}

}  // namespace

void quantized_embedding_forward(CommandEncoder& encoder, const QuantizedWeight& table, const Buffer& ids,
                                 const Buffer& y) {
  const char* op = "quantized_embedding";
  const QuantizedEmbeddingParams params = checked(op, table, ids);
  check_values(op, "y", y);
  check_is(op, "y", y, y.dtype(), output_shape(ids, params.lookup.hidden));
  encoder.encode({.kernel = str("quantized_embedding_forward_", y.dtype(), "_", table.scales.dtype()),
                  .params = params_bytes(params),
                  .reads = {table.codes, table.scales, table.biases, ids},
                  .writes = {y}});
}

void quantized_embedding_backward(CommandEncoder& encoder, const QuantizedWeight& table, const Buffer& ids,
                                  const Buffer& dy, const Backward::Target& dscales,
                                  const Backward::Target& dbiases) {
  const char* op = "quantized_embedding_backward";
  QuantizedEmbeddingParams params = checked(op, table, ids);
  check_values(op, "dy", dy);
  check_is(op, "dy", dy, dy.dtype(), output_shape(ids, params.lookup.hidden));
  Gradients out(op, encoder);
  const std::vector<Buffer> inputs = {table.codes, table.scales, table.biases, ids, dy};
  out.add("dscales", dscales, "scales", table.scales, inputs);
  out.add("dbiases", dbiases, "biases", table.biases, inputs);
  if (out.writes().empty()) return;
  params.out = {out.wanted(), out.accumulate()};
  encoder.encode({.kernel = str("quantized_embedding_backward_", dy.dtype(), "_", table.scales.dtype()),
                  .params = params_bytes(params),
                  .reads = {table.codes, ids, dy},
                  .writes = out.writes(),
                  .is_empty = ids.numel() == 0,
                  .adds = out.adds()});
}

Var quantized_embedding(const QuantizedVar& table, const Buffer& ids, DType dtype) {
  const char* op = "quantized_embedding";
  Tape& tape = common_tape(op, {table.scales, table.biases});
  const QuantizedWeight weight = table.value();
  const Buffer y = tape.alloc(dtype, output_shape(ids, checked(op, weight, ids).lookup.hidden));
  quantized_embedding_forward(tape.encoder(), weight, ids, y);
  return tape.record(op, {table.scales, table.biases}, y, [weight, ids](Backward& b) {
    const auto dscales = b.grad(0), dbiases = b.grad(1);
    quantized_embedding_backward(b.encoder(), weight, ids, b.dy(), dscales, dbiases);
  });
}

}  // namespace mixtape
