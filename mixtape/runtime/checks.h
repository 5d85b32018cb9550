// Argument checks that op front ends share. Messages: `softmax_backward: dy is f32[3,8], expected f32[4,8]
// like y`.
#pragma once

#include "mixtape/runtime/buffer.h"

namespace mixtape {

// A value buffer (f32, bf16, f16) of rank 1 or more.
void check_values(const char* op, const char* argument, const Buffer& found);
// The same dtype and shape as `wanted`.
void check_like(const char* op, const char* argument, const Buffer& found, const char* like,
                const Buffer& wanted);
void check_is(const char* op, const char* argument, const Buffer& found, DType dtype, const Shape& shape);
// No dimension is 0.
void check_not_empty(const char* op, const char* argument, const Buffer& found);
// The last dimension isn't 0: a row has an element. There may be no row: an empty batch.
void check_row(const char* op, const char* argument, const Buffer& found);
// u32, or i32 whose negative values are out of range.
void check_indices(const char* op, const char* argument, const Buffer& found);
// Outputs must not share memory with inputs that are still read.
void check_no_overlap(const char* op, const char* output, const Buffer& a, const char* input,
                      const Buffer& b);
// Two gradients are one buffer only if the second is added to: inputs that are one variable. Either may be
// null.
void check_gradients_apart(const char* op, const char* first, const Buffer& a, const char* second,
                           const Buffer& b, bool is_second_added);
// For ops that encode several times, or do not hand a buffer to the kernel.
void check_device(const char* op, const char* argument, const Buffer& found, const Device& device);

}  // namespace mixtape
