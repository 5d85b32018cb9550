#include "mixtape/ops/quantized_embedding/quantized_embedding.h"

#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/ops/quantized_embedding/quantized_embedding_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

Shape checked_table(const char* op, const Buffer& codes, const Buffer& scales, const Buffer& biases,
                    AffineParams params) {
  const Shape table = dequantized_shape(op, codes, scales, biases, params);
  require(table.rank() == 2, op, ": codes is ", codes, ", expected [rows, words]");
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
  check_not_empty(op, "ids", ids);
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
  const Buffer& other = dbiases.buffer ? dbiases.buffer : wanted;
  const Shape table = checked_table(op, codes, wanted, other, params);
  check_indices(op, "ids", ids);
  check_not_empty(op, "ids", ids);
  check_values(op, "dy", dy);
  check_is(op, "dy", dy, dy.dtype(), output_shape(ids, table[1]));
  check_gradients_apart(op, "dscales", dscales.buffer, "dbiases", dbiases.buffer,
                        dbiases.accumulate == Accumulate::yes);
  QuantizedEmbeddingParams p = params_of(table, ids, params);
  p.wants_scales = dscales.buffer ? 1 : 0;
  p.wants_biases = dbiases.buffer ? 1 : 0;
  p.accumulate_scales = static_cast<std::uint32_t>(dscales.accumulate);
  p.accumulate_biases = static_cast<std::uint32_t>(dbiases.accumulate);
  std::vector<Buffer> writes;
  if (dscales.buffer) writes.push_back(dscales.buffer);
  if (dbiases.buffer) writes.push_back(dbiases.buffer);
  encoder.encode({.kernel = str("quantized_embedding_backward_", dy.dtype(), "_", wanted.dtype()),
                  .params = params_bytes(p),
                  .reads = {codes, ids, dy},
                  .writes = writes});
}

Var quantized_embedding(const Var& codes, const Var& scales, const Var& biases, const Buffer& ids,
                        AffineParams params, DType dtype) {
  const char* op = "quantized_embedding";
  Tape& tape = common_tape(op, {codes, scales, biases});
  const Shape table = checked_table(op, codes.value(), scales.value(), biases.value(), params);
  check_indices(op, "ids", ids);
  const Buffer y = tape.alloc(dtype, output_shape(ids, table[1]));
  if (ids.numel() > 0) {
    quantized_embedding_forward(tape.encoder(), codes.value(), scales.value(), biases.value(), ids, y,
                                params);
  }
  return tape.record(op, {codes, scales, biases}, y, [packed = codes.value(), ids, params](Backward& b) {
    if (ids.numel() == 0) return b.pass_zeros();
    const Backward::Target dscales = b.grad(1),
                           dbiases = b.grad(2);  // in this order: they may be one variable
    quantized_embedding_backward(b.encoder(), packed, ids, b.dy(), dscales, dbiases, params);
  });
}

}  // namespace mixtape
