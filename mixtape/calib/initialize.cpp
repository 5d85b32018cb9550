#include "mixtape/calib/initialize.h"

#include "mixtape/core/random.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape {
namespace {

constexpr const char* kStage = "initializing";
constexpr std::size_t kValuesBetweenQuestions = 1 << 20;  // whether to stop: some 20 ms

std::vector<float> initial_values(const ModelTensor& t, std::uint64_t stream, const RunHooks& hooks) {
  const auto count = static_cast<std::size_t>(t.shape.numel());
  if (t.deviation == 0.0) return std::vector<float>(count, t.value);
  std::vector<float> values;
  values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (i % kValuesBetweenQuestions == 0) hooks.throw_if_stopped(kStage);
    values.push_back(static_cast<float>(t.deviation * normal(stream, i)));
  }
  return values;
}

}  // namespace

Parameters initial_parameters(const ModelConfig& config, std::uint64_t seed, const Device& device,
                              const RunHooks& hooks) {
  const std::vector<ModelTensor> tensors = tensor_list(config);
  Parameters parameters;
  std::uint64_t stream = seed;
  for (const ModelTensor& t : tensors) {
    hooks.throw_if_stopped(kStage);
    parameters.dense.emplace(t.name, Buffer::from(device, t.shape, initial_values(t, ++stream, hooks)));
    hooks.report({.stage = kStage,
                  .done = std::ssize(parameters.dense),
                  .total = std::ssize(tensors),
                  .unit = "tensors"});
  }
  return parameters;
}

}  // namespace mixtape
