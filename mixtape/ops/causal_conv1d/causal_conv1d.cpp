#include "mixtape/ops/causal_conv1d/causal_conv1d.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/causal_conv1d/causal_conv1d_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_inputs(const char* op, const Buffer& x, const Buffer& w, const Buffer& bias,
                  const Buffer& history) {
  check_values(op, "x", x);
  check_row(op, "x", x);
  require(x.shape().rank() == 3, op, ": x is ", x, ", expected [B,S,C]");
  const std::int64_t channels = x.shape()[2];
  require(w && (w.dtype() == x.dtype() || w.dtype() == DType::f32) && w.shape().rank() == 2 &&
              w.shape()[0] == channels,
          op, ": w is ", w, ", expected ", x.dtype(), " or f32 [", channels, ",K] for x ", x);
  require(w.shape()[1] >= 1 && w.shape()[1] <= kMostConvTaps, op, ": w is ", w, ", expected 1 to ",
          kMostConvTaps, " taps");
  if (bias) check_is(op, "bias", bias, w.dtype(), {channels});
  if (history) check_is(op, "history", history, x.dtype(), {x.shape()[0], w.shape()[1] - 1, channels});
}

CausalConv1dParams params_of(const CommandEncoder& encoder, const Buffer& x, const Buffer& w,
                             const Buffer& bias, const Buffer& history, ConvActivation activation) {
  CausalConv1dParams params{};
  params.batch = x.shape()[0];
  params.length = x.shape()[1];
  params.channels = x.shape()[2];
  params.taps = w.shape()[1];
  params.run = encoder.device().caps().rows_per_block(params.batch * params.length);
  params.has_bias = bias ? 1 : 0;
  params.has_history = history && history.numel() > 0 ? 1 : 0;
  params.silu = activation == ConvActivation::silu ? 1 : 0;
  return params;
}

std::string kernel_name(const char* stem, const Buffer& x, const Buffer& w) {
  return str(stem, x.dtype(), w.dtype() == x.dtype() ? "" : "_w_f32");
}

// In the order in which kernels find them.
std::vector<Buffer> reads_of(const CausalConv1dParams& params, const Buffer& x, const Buffer& w,
                             const Buffer& bias, const Buffer& history) {
  std::vector<Buffer> reads = {x, w};
  if (params.has_bias != 0) reads.push_back(bias);
  if (params.has_history != 0) reads.push_back(history);
  return reads;
}

// The runs' shares of dw and dbias, added up.
void encode_weight_gradients(CommandEncoder& encoder, const CausalConv1dParams& params, const Buffer& shares,
                             const Backward::Target& dw, const Backward::Target& dbias) {
  std::vector<Buffer> writes;
  std::uint32_t adds = 0;
  for (const Backward::Target& target : {dw, dbias}) {
    if (!target.buffer) continue;
    adds |= static_cast<std::uint32_t>(target.accumulate) << writes.size();
    writes.push_back(target.buffer);
  }
  const DType dtype = writes.front().dtype();
  encoder.encode({.kernel = str("causal_conv1d_backward_weight_", dtype),
                  .params = params_bytes(params),
                  .reads = {shares},
                  .writes = writes,
                  .is_empty = shares.numel() == 0,
                  .adds = adds});
}

}  // namespace

void causal_conv1d_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& bias,
                           const Buffer& history, ConvActivation activation, const Buffer& y) {
  const char* op = "causal_conv1d";
  check_inputs(op, x, w, bias, history);
  check_like(op, "y", y, "x", x);
  check_no_overlap(op, "y", y, "x", x);
  const CausalConv1dParams params = params_of(encoder, x, w, bias, history, activation);
  if (history) check_device(op, "history", history, encoder.device());
  encoder.encode({.kernel = kernel_name("causal_conv1d_forward_", x, w),
                  .params = params_bytes(params),
                  .reads = reads_of(params, x, w, bias, history),
                  .writes = {y}});
}

void causal_conv1d_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& bias,
                            const Buffer& history, ConvActivation activation, const Buffer& dy,
                            const Backward::Target& dx, const Backward::Target& dw,
                            const Backward::Target& dbias, const Backward::Target& dhistory) {
  // Inputs that are one variable: dx and dhistory share their buffer, whose positions are written at once.
  if (dx.buffer && overlap(dx.buffer, dhistory.buffer) && dhistory.accumulate == Accumulate::yes) {
    causal_conv1d_backward(encoder, x, w, bias, history, activation, dy, dx, dw, dbias, {});
    return causal_conv1d_backward(encoder, x, w, bias, history, activation, dy, {}, {}, {}, dhistory);
  }
  const char* op = "causal_conv1d_backward";
  check_inputs(op, x, w, bias, history);
  check_like(op, "dy", dy, "x", x);
  require(bias || !dbias.buffer, op, ": dbias is ", dbias.buffer, " without a bias");
  require(history || !dhistory.buffer, op, ": dhistory is ", dhistory.buffer, " without a history");
  if (history) check_device(op, "history", history, encoder.device());
  CausalConv1dParams params = params_of(encoder, x, w, bias, history, activation);
  std::vector<Buffer> reads = reads_of(params, x, w, bias, history);
  reads.push_back(dy);
  Gradients out(op, encoder);
  out.add("dx", dx, "x", x, reads);
  out.add("dhistory", dhistory, "history", history, reads);
  out.add("dw", dw, "w", w, reads);
  out.add("dbias", dbias, "bias", bias, reads);
  if (out.writes().empty()) return;
  params.wanted = out.wanted();
  params.accumulate = out.accumulate();
  constexpr std::uint32_t kInputs = CausalConv1dParams::dx | CausalConv1dParams::dhistory;
  std::vector<Buffer> writes;
  for (const Backward::Target& target : {dx, dhistory}) {
    if (target.buffer) writes.push_back(target.buffer);
  }
  const std::uint32_t adds = out.adds() & ((1u << writes.size()) - 1);
  Buffer shares;  // [runs of all sequences, K + 1, C]: of dw tap by tap, then of dbias
  if ((params.wanted & ~kInputs) != 0) {
    shares = encoder.device().alloc_uninitialized(
        DType::f32, {params.batch * params.runs(), params.taps + 1, params.channels});
    writes.push_back(shares);
  }
  encoder.encode({.kernel = kernel_name("causal_conv1d_backward_", x, w),
                  .params = params_bytes(params),
                  .reads = reads,
                  .writes = writes,
                  .is_empty = x.numel() == 0,
                  .adds = adds});
  if (shares) encode_weight_gradients(encoder, params, shares, dw, dbias);
}

Var causal_conv1d(const Var& x, const Var& w, const Var& bias, const Var& history,
                  ConvActivation activation) {
  const char* op = "causal_conv1d";
  std::vector<Var> given = {x, w};
  for (const Var& v : {bias, history}) {
    if (v.value()) given.push_back(v);
  }
  Tape& tape = common_tape(op, given);
  check_values(op, "x", x.value());
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  causal_conv1d_forward(tape.encoder(), x.value(), w.value(), bias.value(), history.value(), activation, y);
  return tape.record(
      op, {x, w, bias, history}, y,
      [x = x.value(), w = w.value(), bias = bias.value(), history = history.value(),
       activation](Backward& b) {
        // In the order in which kernels write them, for inputs that are one variable.
        const Backward::Target dx = b.grad(0), dhistory = b.grad(3), dw = b.grad(1), dbias = b.grad(2);
        causal_conv1d_backward(b.encoder(), x, w, bias, history, activation, b.dy(), dx, dw, dbias, dhistory);
      });
}

}  // namespace mixtape
