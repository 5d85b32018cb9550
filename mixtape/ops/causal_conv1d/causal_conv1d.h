// Depthwise convolution along time that sees nothing later: every channel has K taps of its own, the last one on
// the current position.
//   a[b,t,c] = bias[c] + sum_j w[c,j] * x[b,t-K+1+j,c]        y = a, or a * s(a)  (s: the logistic function)
//   da = dy, or dy * s(a) (1 + a s(-a))        dx[b,t,c] = sum_j w[c,j] * da[b,t+K-1-j,c], 0 past the end
//   dw[c,j] = sum_b,t da[b,t,c] * x[b,t-K+1+j,c]        dbias[c] = sum_b,t da[b,t,c]
// Shapes: x, y, dy, dx [B,S,C]; w, dw [C,K], K from 1 to 16; bias, dbias [C], or none; history, dhistory
//   [B,K-1,C], or none. f32, bf16, f16; w and bias both of x's dtype or both f32.
// history holds what came before x: x[b,t,c] at t < 0 is history[b,K-1+t,c], 0 where there is none. To go on after
//   this x, the next call's history is the last K-1 rows of [history | x].
// Sums in f32, outputs rounded once.
// Saved for backward: x, w, bias and history. a is computed again.
// Deterministic: dw and dbias add runs of positions whose length follows from the shape, then the runs in order.
// Edges: silu(-inf) is 0 with gradient 0. A NaN reaches the K positions that see it.
// Accuracy (u = 2^-24, A = sum |w x| + |bias|): y 1 unit + (K + 5) u A. With e = 8 u + (K + 1) u A the error of
//   a slope: dx 1 unit + (K u + e) sum |w dy|; dw, dbias 1 unit + (run + runs + 2) u + e times the sum of their
//   terms' magnitudes, where run positions are added up at once.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, or a K outside 1 to 16.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

enum class ConvActivation : std::uint32_t { none, silu };

// bias and history may be null.
void causal_conv1d_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& bias,
                           const Buffer& history, ConvActivation activation, const Buffer& y);

// A target with a null buffer is not computed.
void causal_conv1d_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& bias,
                            const Buffer& history, ConvActivation activation, const Buffer& dy,
                            const Backward::Target& dx, const Backward::Target& dw,
                            const Backward::Target& dbias, const Backward::Target& dhistory);

// bias and history may be null.
Var causal_conv1d(const Var& x, const Var& w, const Var& bias, const Var& history, ConvActivation activation);

}  // namespace mixtape
