#include "mixtape/autograd/tape.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace mixtape {

// Unlinks the chain of records one by one: a long graph must not be freed by recursion, and freeing must not
// allocate.
GradSlot::~GradSlot() {
  std::shared_ptr<Record> pending = std::move(producer);
  while (pending) {
    const std::shared_ptr<Record> record = std::move(pending);
    pending = std::move(record->next_freed);
    if (record.use_count() > 1) continue;
    for (auto& input : record->slots) {  // one by one: an input may be named twice
      const std::shared_ptr<GradSlot> slot = std::move(input);
      if (!slot || slot.use_count() > 1 || !slot->producer) continue;
      const std::shared_ptr<Record> next = std::move(slot->producer);
      next->next_freed = std::move(pending);
      pending = next;
    }
  }
}

Tape& Var::tape() const {
  require(tape_ != nullptr, "var: null, expected a value on a tape");
  require(*tape_ != nullptr, "var: the tape of ", value_, " is gone, expected it to outlive the ops");
  return **tape_;
}

void Var::clear_grad() const {
  if (!slot_) return;
  slot_->grad = Buffer();
  slot_->is_shared = false;
}

Var Var::detach() const { return Var(tape_, value_, nullptr); }

void Tape::own(GradSlot& slot) {
  if (!std::exchange(slot.is_shared, false) || slot.grad.is_unique()) return;
  const Buffer copy = alloc(slot.grad.dtype(), slot.grad.shape());
  encoder_.copy(slot.grad, copy);
  slot.grad = copy;
}

Backward::Target Backward::grad(std::size_t input) {
  given_[input] = true;
  if (!wants(input)) return {Buffer(), Accumulate::no};
  GradSlot& slot = *record_.slots[input];
  if (slot.grad) {
    tape_.own(slot);
    return {slot.grad, Accumulate::yes};
  }
  slot.grad = tape_.alloc(record_.inputs[input].first, record_.inputs[input].second);
  return {slot.grad, Accumulate::no};
}

void Backward::pass(std::size_t input, const Buffer& dx) {
  given_[input] = true;
  if (!wants(input)) return;
  GradSlot& slot = *record_.slots[input];
  if (slot.grad) {
    tape_.own(slot);
    encoder_.accumulate(dx, slot.grad);
  } else {
    slot.grad = dx.reshape(record_.inputs[input].second);
    slot.is_shared = true;
  }
}

Buffer Backward::grad_for_partial(std::size_t input) {
  const Target target = grad(input);
  if (target.buffer && target.accumulate == Accumulate::no) encoder_.fill(target.buffer, 0.0f);
  return target.buffer;
}

void Backward::run_rule(const StaleReads& stale) {
  const StaleReads* before = encoder_.refuse_stale(&stale);
  try {
    record_.rule(*this);
  } catch (...) {
    encoder_.refuse_stale(before);
    throw;
  }
  encoder_.refuse_stale(before);
  for (std::size_t i = 0; i < given_.size(); ++i) {
    const auto& [dtype, shape] = record_.inputs[i];
    require(given_[i] || !wants(i), "backward of ", record_.op, ": its rule left out the gradient of input ",
            i, " ", dtype, shape, ", expected a contribution to every input that wants one");
  }
}

void Tape::check_device(const char* what, const Buffer& value) const {
  if (value.device() == device()) return;
  fail(ErrorCode::invalid_argument, what, ": ", value, " is on ", value.device().name(), ", expected ",
       device().name());
}

Var Tape::parameter(const Buffer& value) {
  require(value && is_value(value.dtype()), "parameter: ", value,
          " cannot have a gradient, expected f32, bf16 or f16");
  check_device("parameter", value);
  return Var(self_, value, std::make_shared<GradSlot>());
}

Var Tape::constant(const Buffer& value) {
  require(static_cast<bool>(value), "constant: buffer is null");
  check_device("constant", value);
  return Var(self_, value, nullptr);
}

Var Tape::record(const std::string& op, const std::vector<Var>& inputs, const Buffer& output,
                 BackwardFn rule) {
  const bool wanted =
      std::any_of(inputs.begin(), inputs.end(), [](const Var& v) { return v.requires_grad(); });
  if (!wanted) return constant(output);
  if (!recording_) {
    suppressed_ = true;
    return constant(output);
  }
  if (!rule) fail(ErrorCode::not_supported, op, ": has no backward, but an input requires a gradient");
  return attach(op, inputs, output, std::move(rule));
}

Var Tape::attach(const std::string& op, const std::vector<Var>& inputs, const Buffer& output,
                 BackwardFn rule) {
  auto slot = std::make_shared<GradSlot>();
  slot->producer =
      std::make_shared<Record>(Record{op, next_sequence_++, write_clock(), {}, {}, std::move(rule)});
  for (const Var& v : inputs) {
    slot->producer->slots.push_back(v.slot_);
    slot->producer->inputs.emplace_back(v.dtype(), v.shape());
  }
  return Var(self_, output, std::move(slot));
}

void Tape::backward(const Var& loss) {
  require(loss.value() && loss.value().numel() == 1, "backward: loss is ", loss.value(),
          ", expected one element");
  const Buffer one = alloc(loss.dtype(), loss.shape());
  encoder_.fill(one, 1.0f);
  backward(loss, one);
}

// Records are walked by falling sequence number: every consumer of a value has a higher one than its
// producer. Sharing ends where the user may look: at the leaves.
void Tape::backward(const Var& output, const Buffer& dy) {
  require(output.requires_grad(), "backward: no parameter leads to ", output.value());
  require(&output.tape() == this, "backward: ", output.value(), " is on another tape");
  require(dy && dy.dtype() == output.dtype() && dy.shape() == output.shape(),
          "backward: upstream gradient is ", dy, ", expected ", output.value());
  using Item = std::pair<std::int64_t, std::shared_ptr<GradSlot>>;
  const auto earlier = [](const Item& a, const Item& b) { return a.first < b.first; };
  std::priority_queue<Item, std::vector<Item>, decltype(earlier)> pending(earlier);
  std::vector<std::shared_ptr<GradSlot>> shared_leaves;
  const auto add = [&](const std::shared_ptr<GradSlot>& slot, const std::string& op) {
    require(!slot->is_released, "backward: ", op, " leads to a part of the graph that was walked already");
    if (slot->producer && slot->grad) pending.emplace(slot->producer->sequence, slot);
    if (!slot->producer && slot->is_shared) shared_leaves.push_back(slot);
  };
  seed(*output.slot_, dy);
  add(output.slot_, "the output");
  const std::uint64_t began = write_clock();
  while (!pending.empty()) {
    const std::shared_ptr<GradSlot> slot = pending.top().second;
    pending.pop();
    const std::shared_ptr<Record> record = std::move(slot->producer);
    if (!record) continue;  // reached through several consumers, already done
    slot->is_released = true;
    Backward context(*this, encoder_, *record, std::exchange(slot->grad, Buffer()));
    context.run_rule({record->op, record->recorded, began, &dy.memory()});
    record->rule = nullptr;
    for (const auto& input : record->slots) {
      if (input) add(input, record->op);
    }
  }
  for (const auto& leaf : shared_leaves) own(*leaf);
}

void Tape::seed(GradSlot& slot, const Buffer& dy) {
  if (slot.grad) {
    const Buffer sum = alloc(dy.dtype(), dy.shape());
    encoder_.copy(slot.grad, sum);
    encoder_.accumulate(dy, sum);
    slot.grad = sum;
    slot.is_shared = false;
  } else {
    slot.grad = dy;
    slot.is_shared = true;
  }
}

Var Tape::checkpoint(const std::vector<Var>& inputs, const std::function<Var(const std::vector<Var>&)>& fn) {
  const bool suppressed_before = std::exchange(suppressed_, false);
  Buffer output;
  {
    const NoGrad guard(*this);
    output = fn(inputs).value();
  }
  const bool has_gradient = suppressed_;  // of an input, or of a parameter that fn captured
  suppressed_ |= suppressed_before;
  if (!has_gradient || !recording_) return constant(output);
  std::vector<Buffer> values;
  for (const Var& v : inputs) values.push_back(v.value());
  return attach("checkpoint", inputs, output, [fn, values](Backward& b) {
    std::vector<Var> leaves;
    for (std::size_t i = 0; i < values.size(); ++i) {
      leaves.push_back(b.wants(i) ? b.tape().parameter(values[i]) : b.tape().constant(values[i]));
    }
    b.tape().backward(fn(leaves), b.dy());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Buffer dx = leaves[i].grad();
      dx ? b.pass(i, dx) : b.pass_nothing(i);
    }
  });
}

Tape& common_tape(const std::string& op, const std::vector<Var>& vars) {
  require(!vars.empty(), op, ": no inputs");
  for (const Var& v : vars) {
    require(static_cast<bool>(v.value()), op, ": an input is null");
    require(v.has_tape(), op, ": the tape of ", v.value(), " is gone, expected it to outlive the ops");
    require(&v.tape() == &vars.front().tape(), op, ": inputs are on two tapes");
  }
  return vars.front().tape();
}

}  // namespace mixtape
