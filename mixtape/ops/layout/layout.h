// Moving elements: no arithmetic, apart from the sums of gradients.
//   permute    y[i_axes[0], i_axes[1], ...] = x[i_0, i_1, ...]       dx is dy permuted back
//   transpose  permute of the last two axes
//   slice      y = x[..., start:stop, ...]                           dx is dy in that part, 0 elsewhere
//   concat     y = x0, x1, ... one after the other along an axis     each dx is its part of dy
//   put        y[..., s:s+n, ...] = x, with s from a buffer
//   reshape    a view                                                dx is a view of dy
//   expand     y = x broadcast as NumPy does: axes of size 1 and axes that x lacks in front repeat
//              (on the tape, with its gradient, a sum: reduce/axes.h)
//   repeat     every entry of an axis `times` times in a row         dx sums over the copies
// Shapes: rank 1 to 8; axes count from the end where negative. A slice of the first axis is a view; all else
//   copies. Any dtype forward; gradients f32, bf16, f16.
// Saved for backward: nothing.
// Deterministic.
// Accuracy: forward is exact; the gradients of an entry repeated n times are summed in f32 in order and
//   rounded once: half a unit + n 2^-24 of the sum of their magnitudes.
// Errors: invalid_argument for an invalid axis, a range outside its axis, shapes, dtypes or devices that
//   disagree.
#pragma once

#include <initializer_list>
#include <vector>

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

using Axes = std::vector<std::int64_t>;

// Axis i of y is axis axes[i] of x.
void permute_forward(CommandEncoder& encoder, const Buffer& x, const Axes& axes, const Buffer& y);
void permute_backward(CommandEncoder& encoder, const Axes& axes, const Buffer& dy, const Buffer& dx,
                      Accumulate accumulate = Accumulate::no);

// y's size along the axis says where the slice stops.
void slice_forward(CommandEncoder& encoder, const Buffer& x, std::int64_t axis, std::int64_t start,
                   const Buffer& y);
// Adds dy to its part of dx.
void slice_backward(CommandEncoder& encoder, std::int64_t axis, std::int64_t start, const Buffer& dy,
                    const Buffer& dx);

// Writes x into y at `start` along the axis; the rest of y stays.
void concat_forward(CommandEncoder& encoder, const Buffer& x, std::int64_t axis, std::int64_t start,
                    const Buffer& y);
// Writes x into y at start[0] along the axis, which the device reads: start u32 [1]. Where x doesn't fit there,
// index_out_of_range surfaces at wait and y stays.
void put_forward(CommandEncoder& encoder, const Buffer& x, std::int64_t axis, const Buffer& start,
                 const Buffer& y);
void concat_backward(CommandEncoder& encoder, std::int64_t axis, std::int64_t start, const Buffer& dy,
                     const Buffer& dx, Accumulate accumulate = Accumulate::no);

void expand_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& y);

void repeat_forward(CommandEncoder& encoder, const Buffer& x, std::int64_t axis, std::int64_t times,
                    const Buffer& y);
void repeat_backward(CommandEncoder& encoder, std::int64_t axis, std::int64_t times, const Buffer& dy,
                     const Buffer& dx, Accumulate accumulate = Accumulate::no);

// What shapes a and b are broadcast to, as NumPy's: aligned at their ends, sizes equal or one of them 1.
// Throws invalid_argument naming `op`.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

Var permute(const Var& x, const Axes& axes);
Var transpose(const Var& x);
Var slice(const Var& x, std::int64_t axis, std::int64_t start, std::int64_t stop);
Var concat(const std::vector<Var>& parts, std::int64_t axis);
Var reshape(const Var& x, const Shape& shape);
// One of the sizes may be -1: what the others leave.
Var reshape(const Var& x, std::initializer_list<std::int64_t> sizes);
Var repeat(const Var& x, std::int64_t axis, std::int64_t times);

// What a reduction goes over: one axis, or several: sum(x, -1), sum(x, {0, 2}).
class ReducedAxes {
 public:
  ReducedAxes(std::int64_t axis) : axes_{axis} {}                         // NOLINT: sum(x, -1)
  ReducedAxes(std::initializer_list<std::int64_t> axes) : axes_(axes) {}  // NOLINT: sum(x, {0, 2})
  ReducedAxes(Axes axes) : axes_(std::move(axes)) {}                      // NOLINT
  const Axes& axes() const { return axes_; }

 private:
  Axes axes_;
};

// x with the reduced axes last, as one row for each position on the others; copies where they weren't last.
struct ReductionRows {
  Var rows;     // [positions, elements]
  Shape shape;  // of the reduction's result: with sizes of 1 if dimensions are kept; [1] where none is left
};
ReductionRows reduction_rows(const char* op, Var x, const ReducedAxes& over, bool keepdims);

}  // namespace mixtape
