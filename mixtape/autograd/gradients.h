// The optional outputs of a backward call: which gradients are wanted, and where each one goes.
#pragma once

#include <string>
#include <vector>

#include "mixtape/autograd/tape.h"

namespace mixtape {

// Takes an op's gradients in the order of the bits in its parameter struct, and keeps those that are wanted:
//
//   Gradients out("silu_mul_backward", encoder);
//   out.add("dgate", dgate, "gate", gate);
//   out.add("dup", dup, "up", up);
//   if (out.writes().empty()) return;
//   const SiluMulParams params{gate.numel(), out.wanted(), out.accumulate()};
//   encoder.encode({..., .writes = out.writes(), .is_empty = gate.numel() == 0, .adds = out.adds()});
//
// A tape rule takes its targets one after the other, in the same order: `const auto dgate = b.grad(0), dup =
// b.grad(1);`. Kernels find a gradient by its bit: write_if of HostCall and of gpu::Call.
class Gradients {
 public:
  Gradients(std::string op, const CommandEncoder& encoder) : op_(std::move(op)), device_(encoder.device()) {}

  // The next gradient, like the input `like`, both on the encoder's device, sharing no memory with any of `apart`.
  // It may be the buffer of one that was added before only if it is added to: inputs that are one variable,
  // whose kernels write in this order. Throws invalid_argument naming it.
  void add(const char* name, const Backward::Target& target, const char* like_name, const Buffer& like,
           const std::vector<Buffer>& apart = {});

  // Bit i: the i-th gradient that was offered is wanted, and is added to.
  std::uint32_t wanted() const { return wanted_; }
  std::uint32_t accumulate() const { return accumulate_; }
  // Those that are wanted, in order; bit i of adds(): writes()[i] is added to.
  const std::vector<Buffer>& writes() const { return writes_; }
  std::uint32_t adds() const { return adds_; }

 private:
  std::string op_;
  Device device_;
  std::vector<const char*> names_;  // of writes_
  std::vector<Buffer> writes_;
  std::uint32_t next_ = 1, wanted_ = 0, accumulate_ = 0, adds_ = 0;
};

}  // namespace mixtape
