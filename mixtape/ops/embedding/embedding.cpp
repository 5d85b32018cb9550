#include "mixtape/ops/embedding/embedding.h"

#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

// Only where there is no id may the table have no row.
void check_table(const char* op, const char* argument, const Buffer& table, const Buffer& ids) {
  check_indices(op, "ids", ids);
  check_values(op, argument, table);
  require(table.shape().rank() == 2, op, ": ", argument, " is ", table, ", expected [rows, hidden]");
  if (ids.numel() > 0) check_not_empty(op, argument, table);
  check_row(op, argument, table);
}

Shape output_shape(const Buffer& ids, const Buffer& table) {
  std::vector<std::int64_t> dims = ids.shape().dims();
  dims.push_back(table.shape().cols());
  return Shape(dims);
}

EmbeddingParams params_of(const Buffer& table, const Buffer& ids, Accumulate accumulate) {
  return {.rows = table.shape()[0],
          .hidden = table.shape()[1],
          .count = ids.numel(),
          .ids_are_signed = ids.dtype() == DType::i32 ? 1u : 0u,
          .accumulate = static_cast<std::uint32_t>(accumulate)};
}

}  // namespace

void embedding_forward(CommandEncoder& encoder, const Buffer& table, const Buffer& ids, const Buffer& y) {
  check_table("embedding", "table", table, ids);
  check_is("embedding", "y", y, table.dtype(), output_shape(ids, table));
  check_no_overlap("embedding", "y", y, "table", table);
  encoder.encode({.kernel = str("embedding_forward_", table.dtype()),
                  .params = params_bytes(params_of(table, ids, Accumulate::no)),
                  .reads = {table, ids},
                  .writes = {y}});
}

void embedding_backward(CommandEncoder& encoder, const Buffer& ids, const Buffer& dy, const Buffer& dtable,
                        Accumulate accumulate) {
  check_table("embedding_backward", "dtable", dtable, ids);
  check_is("embedding_backward", "dy", dy, dtable.dtype(), output_shape(ids, dtable));
  check_no_overlap("embedding_backward", "dtable", dtable, "dy", dy);
  encoder.encode({.kernel = str("embedding_backward_", dtable.dtype()),
                  .params = params_bytes(params_of(dtable, ids, accumulate)),
                  .reads = {ids, dy},
                  .writes = {dtable},
                  .is_empty = ids.numel() == 0,
                  .adds = accumulate == Accumulate::yes});
}

Var embedding(const Var& table, const Buffer& ids) {
  Tape& tape = common_tape("embedding", {table});
  check_table("embedding", "table", table.value(), ids);
  const Buffer y = tape.alloc(table.dtype(), output_shape(ids, table.value()));
  embedding_forward(tape.encoder(), table.value(), ids, y);
  return tape.record("embedding", {table}, y, [ids](Backward& b) {
    const auto [dtable, accumulate] = b.grad(0);
    embedding_backward(b.encoder(), ids, b.dy(), dtable, accumulate);
  });
}

}  // namespace mixtape
