#include "mixtape/ops/moe_route/grouped_swiglu.h"

#include "mixtape/ops/grouped_matmul/grouped_matmul.h"
#include "mixtape/ops/silu_mul/silu_mul.h"

namespace mixtape {

Var grouped_swiglu(const Var& x, const Var& gate, const Var& up, const Buffer& offsets) {
  const char* op = "grouped_swiglu";
  Tape& tape = common_tape(op, {x, gate, up});
  require(x.shape().rank() == 2 && gate.shape().rank() == 3 && up.shape() == gate.shape(), op, ": x is ",
          x.value(), ", gate is ", gate.value(), ", up is ", up.value(),
          ", expected [T,K] and twice [E,N,K]");
  const Shape shape{x.shape()[0], gate.shape()[1]};
  const auto product = [&](const Var& w) {
    Buffer y = tape.alloc(x.dtype(), shape);
    grouped_matmul_forward(tape.encoder(), x.value(), w.value(), offsets, y);
    return y;
  };
  const Buffer gated = product(gate), upper = product(up), y = tape.alloc(x.dtype(), shape);
  silu_mul_forward(tape.encoder(), gated, upper, y);
  return tape.record(
      op, {x, gate, up}, y,
      [x = x.value(), gate = gate.value(), up = up.value(), offsets, gated, upper](Backward& b) {
        const auto dx = b.grad(0), dgate = b.grad(1), dup = b.grad(2);
        const Buffer dgated = b.tape().alloc(gated.dtype(), gated.shape());
        const Buffer dupper = b.tape().alloc(gated.dtype(), gated.shape());
        silu_mul_backward(b.encoder(), gated, upper, b.dy(), {dgated, Accumulate::no},
                          {dupper, Accumulate::no});
        if (dx.buffer) grouped_matmul_backward_pair(b.encoder(), gate, dgated, up, dupper, offsets, dx);
        if (dgate.buffer) grouped_matmul_backward(b.encoder(), x, {}, offsets, dgated, {}, dgate);
        if (dup.buffer) grouped_matmul_backward(b.encoder(), x, {}, offsets, dupper, {}, dup);
      });
}

}  // namespace mixtape
