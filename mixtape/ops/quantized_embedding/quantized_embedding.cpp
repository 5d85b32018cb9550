#include "mixtape/ops/quantized_embedding/quantized_embedding.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/ops/quantized_embedding/quantized_embedding_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

Shape checked_table(const char* op, const Buffer& codes, const Buffer& scales, const Buffer& biases,
                    AffineParams params) {
  const Shape table = dequantized_shape(op, codes, scales, biases, params);
  require(table.rank() == 2 && table[0] > 0, op, ": codes is ", codes, ", expected [rows, words]");
  return table;
}

Shape output_shape(const Buffer& ids, std::int64_t hidden) {
  std::vector<std::int64_t> dims = ids.shape().dims();
  dims.push_back(hidden);
  return Shape(dims);
}

QuantizedEmbeddingParams params_of(const Shape& table, const Buffer& ids, AffineParams affine) {
  QuantizedEmbeddingParams params{};
  params.lookup = {table[0], table[1], ids.numel(), ids.dtype() == DType::i32 ? 1u : 0u, 0};
  params.affine = affine;
  return params;
}

}  // namespace

void quantized_embedding_forward(CommandEncoder& encoder, const Buffer& codes, const Buffer& scales,
                                 const Buffer& biases, const Buffer& ids, const Buffer& y,
                                 AffineParams params) {
  const char* op = "quantized_embedding";
  const Shape table = checked_table(op, codes, scales, biases, params);
  check_indices(op, "ids", ids);
  check_values(op, "y", y);
  check_is(op, "y", y, y.dtype(), output_shape(ids, table[1]));
  encoder.encode({.kernel = str("quantized_embedding_forward_", y.dtype(), "_", scales.dtype()),
                  .params = params_bytes(params_of(table, ids, params)),
                  .reads = {codes, scales, biases, ids},
                  .writes = {y}});
}

void quantized_embedding_backward(CommandEncoder& encoder, const Buffer& codes, const Buffer& ids,
                                  const Buffer& dy, const Backward::Target& dscales,
                                  const Backward::Target& dbiases, AffineParams params) {
  const char* op = "quantized_embedding_backward";
  const Buffer& wanted = dscales.buffer ? dscales.buffer : dbiases.buffer;
  if (!wanted) return;
  const Shape table = checked_table(op, codes, wanted, wanted, params);
  check_indices(op, "ids", ids);
  check_values(op, "dy", dy);
  check_is(op, "dy", dy, dy.dtype(), output_shape(ids, table[1]));
  Gradients out(op, encoder);
  out.add("dscales", dscales, "dscales or dbiases", wanted);
  out.add("dbiases", dbiases, "dscales or dbiases", wanted);
  QuantizedEmbeddingParams p = params_of(table, ids, params);
  p.out = {out.wanted(), out.accumulate()};
  encoder.encode({.kernel = str("quantized_embedding_backward_", dy.dtype(), "_", wanted.dtype()),
                  .params = params_bytes(p),
                  .reads = {codes, ids, dy},
                  .writes = out.writes(),
                  .is_empty = ids.numel() == 0,
                  .adds = out.adds()});
}

Var quantized_embedding(const Var& codes, const Var& scales, const Var& biases, const Buffer& ids,
                        AffineParams params, DType dtype) {
  const char* op = "quantized_embedding";
  Tape& tape = common_tape(op, {codes, scales, biases});
  const Shape table = checked_table(op, codes.value(), scales.value(), biases.value(), params);
  check_indices(op, "ids", ids);
  const Buffer y = tape.alloc(dtype, output_shape(ids, table[1]));
  quantized_embedding_forward(tape.encoder(), codes.value(), scales.value(), biases.value(), ids, y, params);
  return tape.record(op, {codes, scales, biases}, y, [packed = codes.value(), ids, params](Backward& b) {
    const auto dscales = b.grad(1), dbiases = b.grad(2);
    quantized_embedding_backward(b.encoder(), packed, ids, b.dy(), dscales, dbiases, params);
  });
}

}  // namespace mixtape
