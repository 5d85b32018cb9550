#include "mixtape/ops/attention/attention.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/attention/attention_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_shapes(const char* op, const Buffer& q, const Buffer& k, const Buffer& v) {
  check_values(op, "q", q);
  require(q.shape().rank() == 4, op, ": q is ", q, ", expected [B,Sq,Hq,D]");
  check_values(op, "k", k);
  const Shape& qs = q.shape();
  const Shape& ks = k.shape();
  require(k.dtype() == q.dtype() && ks.rank() == 4 && ks[0] == qs[0] && ks[3] == qs[3], op, ": k is ", k,
          ", expected ", q.dtype(), "[B,Sk,Hkv,D] to go with q ", q);
  check_like(op, "v", v, "k", k);
  require(ks[2] > 0 && qs[2] % ks[2] == 0, op, ": q has ", qs[2], " heads, expected a multiple of the ",
          ks[2], " of k");
  require(qs[3] % 2 == 0 && qs[3] >= 8 && qs[3] <= 256, op, ": head_dim is ", qs[3],
          ", expected an even number from 8 to 256");
}

AttentionParams check(const char* op, const Buffer& q, const Buffer& k, const Buffer& v,
                      const AttentionOptions& o) {
  check_shapes(op, q, k, v);
  const std::int64_t rows = k.shape()[1], keys = o.key_count > 0 ? o.key_count : rows;
  require(o.key_count >= 0 && keys <= rows, op, ": key_count is ", o.key_count, ", expected 0 to the ", rows,
          " positions of k");
  require(q.shape()[1] <= keys, op, ": q has ", q.shape()[1], " positions, expected at most the ", keys,
          " of k");
  require(o.sliding_window >= 0 && (o.sliding_window == 0 || o.causal), op, ": sliding_window is ",
          o.sliding_window, ", expected 0, or more with causal");
  if (o.lengths) check_is(op, "lengths", o.lengths, DType::i32, {q.shape()[0]});
  if (o.sinks) check_is(op, "sinks", o.sinks, DType::f32, {q.shape()[2]});
  return {.batch = q.shape()[0],
          .q_len = q.shape()[1],
          .k_len = keys,
          .k_rows = rows,
          .q_heads = q.shape()[2],
          .kv_heads = k.shape()[2],
          .head_dim = q.shape()[3],
          .sliding_window = o.sliding_window,
          .scale = o.scale,
          .causal = o.causal,
          .has_lengths = static_cast<bool>(o.lengths),
          .has_sinks = static_cast<bool>(o.sinks),
          .wanted = 0,
          .accumulate = 0};
}

Shape lse_shape(const Shape& q) { return {q[0], q[2], q[1]}; }

void read_options(const AttentionOptions& options, std::vector<Buffer>& reads) {
  for (const Buffer& b : {options.sinks, options.lengths}) {
    if (b) reads.push_back(b);
  }
}

}  // namespace

void attention_forward(CommandEncoder& encoder, const Buffer& q, const Buffer& k, const Buffer& v,
                       const AttentionOptions& options, const Buffer& y, const Buffer& lse) {
  const char* op = "attention";
  const AttentionParams params = check(op, q, k, v, options);
  check_like(op, "y", y, "q", q);
  check_is(op, "lse", lse, DType::f32, lse_shape(q.shape()));
  check_no_overlap(op, "y", y, "q", q);
  check_no_overlap(op, "y", y, "k", k);
  check_no_overlap(op, "y", y, "v", v);
  std::vector<Buffer> reads = {q, k, v};
  read_options(options, reads);
  encoder.encode({.kernel = str("attention_forward_", q.dtype()),
                  .params = params_bytes(params),
                  .reads = reads,
                  .writes = {y, lse}});
}

void attention_backward(CommandEncoder& encoder, const Buffer& q, const Buffer& k, const Buffer& v,
                        const AttentionOptions& options, const Buffer& y, const Buffer& lse, const Buffer& dy,
                        const Backward::Target& dq, const Backward::Target& dk, const Backward::Target& dv,
                        const Backward::Target& dsinks) {
  const char* op = "attention_backward";
  AttentionParams params = check(op, q, k, v, options);
  require(params.k_rows == params.k_len, op, ": key_count is ", params.k_len, ", expected all ",
          params.k_rows, " positions of k where there are gradients");
  check_like(op, "y", y, "q", q);
  check_is(op, "lse", lse, DType::f32, lse_shape(q.shape()));
  check_like(op, "dy", dy, "q", q);
  require(options.sinks || !dsinks.buffer, op, ": dsinks is ", dsinks.buffer, " without sinks");
  std::vector<Buffer> reads = {q, k, v, y, lse, dy};
  read_options(options, reads);
  Gradients out(op, encoder);
  out.add("dk", dk, "k", k, reads);
  out.add("dv", dv, "v", v, reads);
  out.add("dq", dq, "q", q, reads);
  out.add("dsinks", dsinks, "sinks", options.sinks, reads);
  if (out.writes().empty()) return;
  params.wanted = out.wanted();
  params.accumulate = out.accumulate();
  encoder.encode({.kernel = str("attention_backward_", q.dtype()),
                  .params = params_bytes(params),
                  .reads = reads,
                  .writes = out.writes(),
                  .is_empty = q.numel() == 0,
                  .adds = out.adds()});
}

Var attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& given, const Var& sinks) {
  AttentionOptions options = given;
  std::vector<Var> inputs = {q, k, v};
  if (sinks.value()) {
    options.sinks = sinks.value();
    inputs.push_back(sinks);
  }
  const bool has_sinks = inputs.size() == 4;
  Tape& tape = common_tape("attention", inputs);
  check_shapes("attention", q.value(), k.value(), v.value());
  const Buffer y = tape.alloc(q.dtype(), q.shape());
  const Buffer lse = tape.alloc(DType::f32, lse_shape(q.shape()));
  attention_forward(tape.encoder(), q.value(), k.value(), v.value(), options, y, lse);
  return tape.record("attention", inputs, y,
                     [q = q.value(), k = k.value(), v = v.value(), options, has_sinks, y, lse](Backward& b) {
                       // In the order in which kernels write them, for inputs that are one variable.
                       const Backward::Target dk = b.grad(1), dv = b.grad(2), dq = b.grad(0);
                       const Backward::Target dsinks = has_sinks ? b.grad(3) : Backward::Target{};
                       attention_backward(b.encoder(), q, k, v, options, y, lse, b.dy(), dq, dk, dv, dsinks);
                     });
}

}  // namespace mixtape
