// Reverse-mode differentiation: a Var is a buffer that remembers how it was made.
//
// A Tape must live as long as ops are applied to its Vars; a Var that outlives it still has its value and
// gradient, but every op refuses it. What an op's gradient needs must not be overwritten before `backward`,
// by the host or by a kernel: that throws invalid_argument (writes through a host pointer go unseen).
//
// The graph hangs on the Vars themselves: dropping the last Var of a graph frees it. A record keeps only what
// its gradient rule captured, so an activation lives as long as a rule or a Var needs it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mixtape/runtime/buffer.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

class Tape;
class Backward;
struct Record;

// Where the gradient of one Var gathers.
struct GradSlot {
  Buffer grad;                       // null until something contributed
  bool is_shared = false;            // grad is also seen elsewhere: copy before adding in place
  bool is_released = false;          // its record was walked and is gone
  std::shared_ptr<Record> producer;  // null for a leaf
  ~GradSlot();
};

class Var {
 public:
  Var() = default;
  const Buffer& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }
  bool requires_grad() const { return slot_ != nullptr; }
  // The gradient that backward left in a leaf; null if nothing reached it. It shares memory with nothing
  // else; the next backward adds to it in place, unless clear_grad let go of it.
  Buffer grad() const { return slot_ ? slot_->grad : Buffer(); }
  void clear_grad() const;
  // Throws invalid_argument for a null Var and for one whose tape is gone.
  Tape& tape() const;
  bool has_tape() const { return tape_ && *tape_ != nullptr; }
  // The same value, cut off from the graph.
  Var detach() const;

 private:
  friend class Tape;
  friend class Backward;
  Var(std::shared_ptr<Tape* const> tape, Buffer value, std::shared_ptr<GradSlot> slot)
      : tape_(std::move(tape)), value_(std::move(value)), slot_(std::move(slot)) {}
  std::shared_ptr<Tape* const> tape_;  // points to null once the tape is gone
  Buffer value_;
  std::shared_ptr<GradSlot> slot_;
};

// A gradient rule: reads the upstream gradient, writes or adds the gradients of the inputs that want one. To
// leave one out is an error.
using BackwardFn = std::function<void(Backward&)>;

// One op on the graph. `slots` are null for inputs that need no gradient.
struct Record {
  std::string op;
  std::int64_t sequence = 0;
  std::uint64_t recorded = 0;  // by the write clock
  std::vector<std::shared_ptr<GradSlot>> slots;
  std::vector<std::pair<DType, Shape>> inputs;
  BackwardFn rule;
  std::shared_ptr<Record> next_freed = nullptr;  // only while a graph is freed
};

// What a gradient rule is called with.
class Backward {
 public:
  CommandEncoder& encoder() const { return encoder_; }
  Tape& tape() const { return tape_; }
  const Buffer& dy() const { return dy_; }
  bool wants(std::size_t input) const { return record_.slots[input] != nullptr; }

  struct Target {
    Buffer buffer;
    Accumulate accumulate;
  };
  // The buffer for input i's gradient: fresh and to be overwritten, or existing and to be added to.
  // dtype and shape are the input's. A null buffer where input i wants no gradient.
  Target grad(std::size_t input);
  // The gradient of input i is exactly `dx` (reshaped to the input's shape): no copy for the first
  // contribution.
  void pass(std::size_t input, const Buffer& dx);
  // The gradient of input i, zero-filled first if nothing contributed yet: for rules that touch a part.
  Buffer grad_for_partial(std::size_t input);
  // The output does not depend on input i: nothing is added to its gradient.
  void pass_nothing(std::size_t input) { given_[input] = true; }

 private:
  friend class Tape;
  Backward(Tape& tape, CommandEncoder& encoder, const Record& record, Buffer dy)
      : tape_(tape), encoder_(encoder), record_(record), dy_(std::move(dy)), given_(record.slots.size()) {}
  void run_rule(const StaleReads& stale);
  Tape& tape_;
  CommandEncoder& encoder_;
  const Record& record_;
  Buffer dy_;
  std::vector<bool> given_;  // by the rule, per input
};

// Records ops and walks them backwards. Owns the encoder that its ops are encoded on. Not thread-safe.
class Tape {
 public:
  explicit Tape(const Device& device) : encoder_(device) {}
  ~Tape() { *self_ = nullptr; }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  const Device& device() const { return encoder_.device(); }
  CommandEncoder& encoder() { return encoder_; }

  // A trainable leaf: value dtypes only. Leaves are on the tape's device.
  Var parameter(const Buffer& value);
  // A leaf without gradient.
  Var constant(const Buffer& value);
  Buffer alloc(DType dtype, const Shape& shape) const { return device().alloc_uninitialized(dtype, shape); }

  // For op front ends: makes the Var of `output`, and a record if an input requires a gradient and recording
  // is on. A null rule on such an input throws not_supported naming the op.
  Var record(const std::string& op, const std::vector<Var>& inputs, const Buffer& output, BackwardFn rule);

  // Adds d loss / d leaf to every leaf's gradient. `loss` has one element; or give the upstream gradient dy,
  // of loss's dtype and shape. Each record is released after its rule ran.
  void backward(const Var& loss);
  void backward(const Var& output, const Buffer& dy);

  // fn's value without its inner activations; they are recomputed from `inputs` in the backward pass.
  Var checkpoint(const std::vector<Var>& inputs, const std::function<Var(const std::vector<Var>&)>& fn);

  bool is_recording() const { return recording_; }

 private:
  friend class NoGrad;
  friend class Backward;
  void check_device(const char* what, const Buffer& value) const;
  Var attach(const std::string& op, const std::vector<Var>& inputs, const Buffer& output, BackwardFn rule);
  void seed(GradSlot& slot, const Buffer& dy);
  void own(GradSlot& slot);
  CommandEncoder encoder_;
  std::shared_ptr<Tape*> self_ = std::make_shared<Tape*>(this);  // what its Vars know it by
  std::int64_t next_sequence_ = 0;
  bool recording_ = true;
  bool suppressed_ = false;  // an op that has a gradient was not recorded
};

// While it lives, the tape records nothing.
class NoGrad {
 public:
  explicit NoGrad(Tape& tape) : tape_(tape), before_(tape.recording_) { tape_.recording_ = false; }
  ~NoGrad() { tape_.recording_ = before_; }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Tape& tape_;
  bool before_;
};

// The tape that all vars share; throws invalid_argument naming the op for a null Var or two tapes.
Tape& common_tape(const std::string& op, const std::vector<Var>& vars);

}  // namespace mixtape
