// A weight in GGUF's blocks of small weighted squared error; quantize/block_format.h has the formats.
//   error of a block = sum over its columns c of h[c] sqrt(m + w[r,c]^2) (w[r,c] - value[r,c])^2,  m = 2 mean w^2
// Each group is fitted by itself first: from ranges between the extremes of its weights, codes := nearest, scale and
// bias := weighted least squares on the codes. From the groups' scales and biases, and those of their extremes, start
// searches over the block:
//   turn: codes := nearest
//         whole numbers of each group := those of least error for the codes
//         d, e := weighted least squares on codes and whole numbers, rounded to f16
// From the best of them all groups try the neighbours of their whole numbers, with codes of their own. What gave the
// least error of all is stored. BlockFit::plain takes the extremes, without search or importance.
// Shapes: w f32 [..., N, K], K a multiple of the block; importance h f32 [K], or [E, K] with w [E, N, K], or null: all
//   count alike; q.codes u32 [..., N, K/32*bits]; q.blocks as block_format.h says, f32: scales and biases [..., N,
//   K/block], sub_scales and sub_biases [..., N, K/group], where the type has them. q.scales and q.biases are left
//   alone.
// Saved for backward: nothing, the fit has no gradient.
// Deterministic: sums run over columns in order, in f32, without fused products, so that the CPU and GPUs give the
//   same bits.
// Accuracy: outer scales and biases hold f16 numbers, the others whole numbers of their grids. A block's error is at most
//   that of plain rounding, within 2^-16 relative and 2^-43 * sum h * (max abs w)^3; codes are nearest within 2^-20 of a
//   step. It is that of the same search in f64 within 2 %, where the two don't end in different minima.
// Edges: a block whose importance is all 0 counts alike; in others a group of no importance is fitted by itself and
//   has no say in d and e. A weight of importance 0 takes the nearest code. Without rows nothing is written.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, a weight without blocks, rows without
//   a weight; at wait, for the first importance that is negative or not finite, with its position; else for the first
//   weight (or wmax - wmin of its group) that is not finite, with row and column, and for a block whose scale or bias
//   f16 can't hold.
#pragma once

#include "mixtape/ops/quantize/quantized_weight.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

enum class BlockFit : std::uint32_t { plain, search };

// Memory for a weight of `shape` in blocks, with undefined contents; scales and biases stay null.
QuantizedWeight alloc_blocks(const Device& device, const Shape& shape, BlockType type);

void fit_blocks_forward(CommandEncoder& encoder, const Buffer& w, const Buffer& importance,
                        const QuantizedWeight& q, BlockFit how = BlockFit::search);

}  // namespace mixtape
