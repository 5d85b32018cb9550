#include "mixtape/calib/module_kl.h"

#include <algorithm>

#include "mixtape/calib/logit_blocks.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/ops/kl_div/kl_div.h"

namespace mixtape {
namespace {

const std::string kStage = "measuring modules";

Buffer flat_rows(const Buffer& x) { return x.reshape({x.shape().rows(), x.shape().cols()}); }

}  // namespace

ModuleKl::ModuleKl(const Teacher& teacher, std::span<const TokenRow> rows, std::int64_t batch_size,
                   const RunHooks& hooks, Matrices quantized)
    : teacher_(teacher), hooks_(hooks), base_(std::move(quantized)) {
  require(batch_size > 0, kStage, ": batch size is ", batch_size, ", expected 1 or more");
  require(count_positions(rows) > 0, kStage, ": found no row of two tokens or more, expected at least one");
  const NoGrad guard(teacher.tape());
  TapeWeights weights = weights_with(base_);
  const CausalLm base(teacher.model().config(), weights, teacher.compute());
  for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(batch_size)) {
    hooks.throw_if_stopped(kStage);
    const auto size = std::min(static_cast<std::size_t>(batch_size), rows.size() - begin);
    parts_.push_back(part_of(base, make_batch(teacher.tape().device(), rows.subspan(begin, size))));
  }
}

ModuleKl::Part ModuleKl::part_of(const CausalLm& base, Batch batch) const {
  Tape& tape = teacher_.tape();
  const CausalLm& model = teacher_.model();
  Part part{std::move(batch), {}, {}};
  part.states.push_back(base.embed(part.batch.ids).value());
  for (std::int64_t i = 0; i < std::ssize(base.config().layers); ++i)
    part.states.push_back(base.layer(i)(tape.constant(part.states.back())).value());
  const Buffer hidden =
      base_.empty() ? final_rows(base, part.states.back()) : flat_rows(model.hidden(part.batch.ids).value());
  for_each_logit_block(model, hidden.shape()[0], tape.device(), [&](std::int64_t from, std::int64_t to) {
    part.logits.push_back(model.logits(tape.constant(hidden.slice(from, to))).value());
  });
  tape.encoder().commit_and_wait();
  return part;
}

// The teacher's, but for these.
TapeWeights ModuleKl::weights_with(const Matrices& matrices) const {
  TapeWeights weights = teacher_.weights();
  for (const auto& [path, weight] : matrices) weights.replace(path, weight);
  return weights;
}

std::vector<float> ModuleKl::of_base() const {
  return kl(base_, std::ssize(teacher_.model().config().layers));
}

std::vector<float> ModuleKl::with(const Matrices& matrices) const {
  Matrices all = base_;
  std::int64_t first = std::ssize(teacher_.model().config().layers);
  for (const auto& [path, weight] : matrices) {
    all.insert_or_assign(path, weight);
    first = std::min(first, first_layer_of(path));
  }
  return kl(all, first);
}

// -1 for the embedding, the number of layers for the output layer.
std::int64_t ModuleKl::first_layer_of(const std::string& path) const {
  return layer_of(path).value_or(path == "lm_head" ? std::ssize(teacher_.model().config().layers) : -1);
}

// Of the model that has these matrices and is the base before this layer.
std::vector<float> ModuleKl::kl(const Matrices& matrices, std::int64_t first_layer) const {
  const NoGrad guard(teacher_.tape());
  TapeWeights weights = weights_with(matrices);
  const CausalLm model(teacher_.model().config(), weights, teacher_.compute());
  std::vector<float> found;
  for (const Part& part : parts_) {
    hooks_.throw_if_stopped(kStage);
    add_kl(model, part, last_state(model, part, first_layer), found);
  }
  return found;
}

// What the final norm takes, [B, S, hidden].
Buffer ModuleKl::last_state(const CausalLm& model, const Part& part, std::int64_t first_layer) const {
  Buffer x = first_layer < 0 ? model.embed(part.batch.ids).value()
                             : part.states[static_cast<std::size_t>(first_layer)];
  for (std::int64_t i = std::max<std::int64_t>(first_layer, 0); i < std::ssize(model.config().layers); ++i)
    x = model.layer(i)(teacher_.tape().constant(x)).value();
  return x;
}

// What the output layer takes, [B*S, hidden].
Buffer ModuleKl::final_rows(const CausalLm& model, const Buffer& state) const {
  return flat_rows(model.final_norm(teacher_.tape().constant(state)).value());
}

void ModuleKl::add_kl(const CausalLm& model, const Part& part, const Buffer& state,
                      std::vector<float>& found) const {
  Tape& tape = teacher_.tape();
  const Buffer hidden = final_rows(model, state);
  std::size_t block = 0;
  for_each_logit_block(model, hidden.shape()[0], tape.device(), [&](std::int64_t begin, std::int64_t end) {
    const Var logits = model.logits(tape.constant(hidden.slice(begin, end)));
    const Var kl = kl_div(logits, part.logits[block++], {.temperature = 1.0f});
    tape.encoder().commit_and_wait();
    const std::vector<float> values = kl.value().to_vector<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (part.batch.weights[static_cast<std::size_t>(begin) + i] > 0.0f) found.push_back(values[i]);
    }
  });
}

}  // namespace mixtape
