// Rows of a table by number: embedding lookup, and the row gather of an expert layer.
//   y[b,h] = table[ids[b],h]        dtable[id,h] = sum over b with ids[b] == id of dy[b,h]
// Shapes: table, dtable [rows, hidden], f32, bf16 or f16; ids u32 or i32 of any shape;
//   y, dy [ids..., hidden]. y is a copy, byte for byte.
// Saved for backward: ids.
// Deterministic: the order of the sum is the same on every device. The occurrences of one id, in the order of
//   ids, are cut into blocks of kSegmentBlock; a block is summed left to right in f32 from +0, the block sums
//   are added left to right, with Accumulate::yes the old value is added last, then one rounding. A row that
//   no id names is +0, or is not touched.
// Cost: O(rows*hidden + ids*hidden), accumulating O(rows + ids*hidden): a stable sort of the ids, then sums.
// Accuracy: half a unit of the result + (min(n, kSegmentBlock) + n/kSegmentBlock) * 2^-24 * sum |dy| for n
//   occurrences.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, or an empty row or table;
//   index_out_of_range at wait for an id outside the table: its row of y is 0, its gradient is dropped.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/embedding/embedding_params.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void embedding_forward(CommandEncoder& encoder, const Buffer& table, const Buffer& ids, const Buffer& y);

void embedding_backward(CommandEncoder& encoder, const Buffer& ids, const Buffer& dy, const Buffer& dtable,
                        Accumulate accumulate = Accumulate::no);

Var embedding(const Var& table, const Buffer& ids);

}  // namespace mixtape
