#include "mixtape/nn/generation_step.h"

#include <algorithm>

#include "mixtape/ops/layout/layout.h"

namespace mixtape {
namespace {

// A cache of `room` positions with what the old one holds. What it doesn't is masked, but must be numbers.
Buffer in_room(Tape& tape, const Buffer& cache, std::int64_t length, std::int64_t room) {
  const Shape& shape = cache.shape();
  const Buffer longer = tape.device().alloc(cache.dtype(), {shape[0], room, shape[2], shape[3]});  // zeros
  const Buffer held = tape.alloc(cache.dtype(), {shape[0], length, shape[2], shape[3]});
  slice_forward(tape.encoder(), cache, 1, 0, held);
  concat_forward(tape.encoder(), held, 1, 0, longer);
  return longer;
}

}  // namespace

bool GenerationStep::is_possible(const CausalLm& model, const Device& device, std::int64_t length) {
  const auto& layers = model.config().layers;
  const auto& ropes = model.config().ropes;
  return device.backend().can_record() && !model.is_streamed() &&
         std::all_of(ropes.begin(), ropes.end(),
                     [&](const RopeConfig& rope) { return rope.allows(length); }) &&
         std::all_of(layers.begin(), layers.end(), [&](const LayerSpec& layer) {
           const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
           return attention == nullptr || attention->window == 0 || attention->window >= length;
         });
}

GenerationStep::GenerationStep(const CausalLm& model, Tape& tape, GenerationState& state, std::int64_t most)
    : model_(model), tape_(tape), state_(state), most_(most) {
  require(state.length > 0, "generation: the state is empty, expected one that a pass has filled");
}

void GenerationStep::make_room() {
  require(state_.length < most_, "generation: the state holds ", state_.length,
          " tokens, expected fewer than ", most_);
  if (state_.length < room_) return;
  room_ = std::min(most_, std::max<std::int64_t>(1024, 2 * state_.length));
  for (LayerState& layer : state_.layers) {
    auto* attention = std::get_if<AttentionState>(&layer);
    if (attention == nullptr) continue;
    attention->keys = in_room(tape_, attention->keys, state_.length, room_);
    attention->values = in_room(tape_, attention->values, state_.length, room_);
  }
  tape_.encoder().commit_and_wait();
  is_warm_ = false;
  replay_ = nullptr;
}

void GenerationStep::encode() {
  ForwardOptions options;
  options.state = &state_;
  options.positions = positions_;
  options.lengths = lengths_;
  const Var hidden = model_.hidden(ids_, options);  // [B, 1, D]
  logits_ = model_.logits(reshape(hidden, {ids_.numel(), hidden.shape().cols()})).value();
}

Buffer GenerationStep::logits(const std::vector<std::uint32_t>& ids) {
  make_room();
  const Device& device = tape_.device();
  const auto batch = static_cast<std::int64_t>(ids.size());
  if (!ids_) {
    ids_ = device.alloc(DType::u32, {batch, 1});
    positions_ = device.alloc(DType::u32, {1});
    lengths_ = device.alloc(DType::i32, {batch});
  }
  const auto position = static_cast<std::uint32_t>(state_.length);
  const std::vector<std::int32_t> lengths(ids.size(), static_cast<std::int32_t>(state_.length + 1));
  ids_.copy_from(std::span<const std::uint32_t>(ids));
  positions_.copy_from(std::span<const std::uint32_t>(&position, 1));
  lengths_.copy_from(std::span<const std::int32_t>(lengths));
  // The first step in a room loads kernels and fills the pool of memory, which a recording can't.
  if (!is_warm_) {
    encode();
    is_warm_ = true;
  } else {
    if (!replay_) replay_ = tape_.encoder().record([this] { encode(); });
    replay_->run();
  }
  ++state_.length;
  for (LayerState& layer : state_.layers) {
    if (auto* attention = std::get_if<AttentionState>(&layer)) attention->length = state_.length;
  }
  return logits_;
}

}  // namespace mixtape
