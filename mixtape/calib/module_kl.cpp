#include "mixtape/calib/module_kl.h"

#include "mixtape/calib/logit_blocks.h"
#include "mixtape/ops/kl_div/kl_div.h"

namespace mixtape {
namespace {

const std::string kStage = "measuring modules";

// The first layer that a matrix is part of: -1 for the embedding, the number of layers for the output layer.
std::int64_t layer_of(const std::string& path, std::int64_t layers) {
  for (std::int64_t i = 0; i < layers; ++i) {
    if (path.starts_with(str("model.layers.", i, "."))) return i;
  }
  return path == "lm_head" ? layers : -1;
}

}  // namespace

ModuleKl::ModuleKl(const Teacher& teacher, std::span<const TokenRow> rows, std::int64_t batch_size,
                   const RunHooks& hooks)
    : teacher_(teacher), hooks_(hooks) {
  require(batch_size > 0, kStage, ": batch size is ", batch_size, ", expected 1 or more");
  require(count_positions(rows) > 0, kStage, ": found no row of two tokens or more, expected at least one");
  Tape& tape = teacher.tape();
  const NoGrad guard(tape);
  const CausalLm& model = teacher.model();
  for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(batch_size)) {
    hooks.throw_if_stopped(kStage);
    const auto size = std::min(static_cast<std::size_t>(batch_size), rows.size() - begin);
    Part part{make_batch(tape.device(), rows.subspan(begin, size)), {}, {}};
    positions_ += part.batch.total_weight;
    part.states.push_back(model.embed(part.batch.ids).value());
    for (std::int64_t i = 0; i < std::ssize(model.config().layers); ++i)
      part.states.push_back(model.layer(i)(tape.constant(part.states.back())).value());
    const Buffer hidden = final_rows(model, part.states.back());
    for_each_logit_block(model, hidden.shape()[0], tape.device(), [&](std::int64_t from, std::int64_t to) {
      part.logits.push_back(model.logits(tape.constant(hidden.slice(from, to))).value());
    });
    tape.encoder().commit_and_wait();
    parts_.push_back(std::move(part));
  }
}

double ModuleKl::with(const std::string& path, const QuantizedWeight& weight) const {
  const NoGrad guard(teacher_.tape());
  TapeWeights weights = teacher_.weights();
  weights.replace(path, weight);
  const ModelConfig& config = teacher_.model().config();
  const CausalLm model(config, weights, teacher_.compute());
  const std::int64_t first = layer_of(path, std::ssize(config.layers));
  double sum = 0.0;
  for (const Part& part : parts_) {
    hooks_.throw_if_stopped(kStage);
    sum += sum_of_kl(model, part, last_state(model, part, first));
  }
  return sum / positions_;
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
  const Buffer normed = model.final_norm(teacher_.tape().constant(state)).value();
  return normed.reshape({normed.shape().rows(), normed.shape().cols()});
}

double ModuleKl::sum_of_kl(const CausalLm& model, const Part& part, const Buffer& state) const {
  Tape& tape = teacher_.tape();
  const Buffer hidden = final_rows(model, state);
  double sum = 0.0;
  std::size_t block = 0;
  for_each_logit_block(model, hidden.shape()[0], tape.device(), [&](std::int64_t begin, std::int64_t end) {
    const Var logits = model.logits(tape.constant(hidden.slice(begin, end)));
    const Var kl = kl_div(logits, part.logits[block++], {.temperature = 1.0f});
    tape.encoder().commit_and_wait();
    const std::vector<float> values = kl.value().to_vector<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto weight = part.batch.weights[static_cast<std::size_t>(begin) + i];
      if (weight > 0.0f) sum += static_cast<double>(values[i]);
    }
  });
  return sum;
}

}  // namespace mixtape
