#include "mixtape/autograd/gradients.h"

#include <utility>

#include "mixtape/runtime/checks.h"

namespace mixtape {

void Gradients::add(const char* name, const Backward::Target& target, const char* like_name,
                    const Buffer& like, const std::vector<Buffer>& apart) {
  const std::uint32_t bit = std::exchange(next_, next_ << 1);
  if (!target.buffer) return;
  const bool adds = target.accumulate == Accumulate::yes;
  check_like(op_.c_str(), name, target.buffer, like_name, like);
  check_device(op_.c_str(), name, target.buffer, device_);
  check_device(op_.c_str(), like_name, like, device_);
  for (const Buffer& input : apart) check_no_overlap(op_.c_str(), name, target.buffer, "an input", input);
  for (std::size_t i = 0; i < writes_.size(); ++i) {
    const bool is_one_variable = adds && writes_[i].bytes() == target.buffer.bytes();
    check_gradients_apart(op_.c_str(), names_[i], writes_[i], name, target.buffer, is_one_variable);
  }
  wanted_ |= bit;
  if (adds) {
    accumulate_ |= bit;
    adds_ |= 1u << writes_.size();
  }
  names_.push_back(name);
  writes_.push_back(target.buffer);
}

}  // namespace mixtape
