// For the tape's tests.
#pragma once

#include <vector>

#include "mixtape/autograd/tape.h"

namespace mixtape {

using Values = std::vector<float>;

inline Buffer values(const Device& device, const Values& v) {
  return Buffer::from(device, {static_cast<std::int64_t>(v.size())}, v);
}

// Two ops made of host loops, so that the tape is tested without the library's ops.
inline void multiply(const HostCall& call) {  // writes[0] (+)= reads[0] * reads[1]
  const bool accumulate = call.params<std::uint32_t>() != 0;
  const auto *a = call.read<float>(0), *b = call.read<float>(1);
  auto* y = call.write<float>(0);
  for (std::int64_t i = 0; i < call.writes[0].numel(); ++i) y[i] = a[i] * b[i] + (accumulate ? y[i] : 0.0f);
}
MIXTAPE_HOST_KERNEL("tape_test_multiply", multiply);

inline void encode_multiply(CommandEncoder& encoder, const Buffer& a, const Buffer& b, const Buffer& y,
                            Accumulate accumulate) {
  encoder.encode({.kernel = "tape_test_multiply",
                  .params = params_bytes(static_cast<std::uint32_t>(accumulate)),
                  .reads = {a, b},
                  .writes = {y}});
}

inline Var times(const Var& a, const Var& b) {
  Tape& tape = common_tape("times", {a, b});
  const Buffer y = tape.alloc(a.dtype(), a.shape());
  encode_multiply(tape.encoder(), a.value(), b.value(), y, Accumulate::no);
  return tape.record("times", {a, b}, y, [a = a.value(), b = b.value()](Backward& back) {
    if (const auto [da, accumulate] = back.grad(0); da)
      encode_multiply(back.encoder(), back.dy(), b, da, accumulate);
    if (const auto [db, accumulate] = back.grad(1); db)
      encode_multiply(back.encoder(), back.dy(), a, db, accumulate);
  });
}

inline Var plus(const Var& a, const Var& b) {
  Tape& tape = common_tape("plus", {a, b});
  const Buffer y = tape.alloc(a.dtype(), a.shape());
  tape.encoder().copy(a.value(), y);
  tape.encoder().accumulate(b.value(), y);
  return tape.record("plus", {a, b}, y, [](Backward& back) {
    back.pass(0, back.dy());
    back.pass(1, back.dy());
  });
}

}  // namespace mixtape
