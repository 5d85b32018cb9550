#include "mixtape/calib/recipe.h"

#include <algorithm>

#include "mixtape/calib/block_codes.h"
#include "mixtape/calib/following.h"
#include "mixtape/calib/gptq.h"
#include "mixtape/calib/least_squares.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape {

double weights_per_token(const ModelConfig& config) {
  double used_experts = 0.0;  // share of the stacked ones
  for (const LayerSpec& layer : config.layers) {
    if (const auto* sparse = std::get_if<SparseMlpSpec>(&layer.mlp))
      used_experts = static_cast<double>(sparse->experts_per_token) / static_cast<double>(sparse->experts);
  }
  double weights = 0.0;
  for (const ModelTensor& t : tensor_list(config)) {
    if (t.kind == TensorKind::vector || (t.kind == TensorKind::embedding && !config.tie_word_embeddings))
      continue;
    weights += static_cast<double>(t.shape.numel()) * (t.shape.rank() == 3 ? used_experts : 1.0);
  }
  return weights;
}

std::vector<Method> fits(InitialFit fit, Rounding rounding, Learning next) {
  std::vector<Method> methods = {plain_rounding({rounding})};
  if (fit != InitialFit::rounding) methods.push_back(least_squares());
  if (fit != InitialFit::gptq) return methods;
  methods.push_back(gptq());
  if (next == Learning::nothing || next == Learning::scales)
    std::transform(methods.begin() + 1, methods.end(), methods.begin() + 1, following);
  return methods;
}

std::int64_t statistics_rows_of(const ModelConfig& config, std::int64_t length, const Device& device) {
  const std::int64_t most = CalibrationOptions{}.statistics_rows;
  if (!device.caps().has_host_memory) return most;
  const double rows = 1e13 / (2.0 * weights_per_token(config) * static_cast<double>(length));
  return static_cast<std::int64_t>(std::clamp(rows, 32.0, static_cast<double>(most)));
}

std::int64_t sampled_rows_of(const ModelConfig& config, std::int64_t length, const Device& device) {
  constexpr double kFewest = 32.0;
  if (device.caps().has_host_memory) return static_cast<std::int64_t>(kFewest);
  std::int64_t numbers = 0;  // kept of a token
  for (const LayerSpec& layer : config.layers) {
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer)) numbers += 2 * a->kv_heads * a->head_dim;
  }
  const double rows = 2e9 / (2.0 * static_cast<double>(std::max<std::int64_t>(1, numbers) * length));
  return static_cast<std::int64_t>(std::clamp(rows, kFewest, 256.0));
}

Training training_of(Effort effort, const ModelConfig& config, std::int64_t length, const Device& device) {
  if (effort == Effort::fast) return {};
  const bool is_cpu = device.caps().has_host_memory;
  const double operations = is_cpu ? 6e13 : 2e16;
  // Small batches where steps are dear; a GPU wants long products.
  const std::int64_t batch = is_cpu ? 4 : 16;
  constexpr std::int64_t kMost = 200;
  const double step = 8.0 * weights_per_token(config) * static_cast<double>(batch * length);
  const auto good = static_cast<std::int64_t>(std::clamp(operations / step, 20.0, double{kMost}));
  const std::int64_t steps = effort == Effort::best ? 4 * good : good;
  double weights = 0.0;
  for (const ModelTensor& t : tensor_list(config)) weights += static_cast<double>(t.shape.numel());
  return {batch, steps, std::max<std::int64_t>(1, steps / (good < kMost ? 4 : 10)),
          weights <= (is_cpu ? 2.5e8 : 1e9) ? Learning::codes : Learning::blocks};
}

std::vector<Method> training_methods(Learning learning, DwqOptions o) {
  std::vector<Method> methods;
  o.trains_codes = learning == Learning::codes;
  if (learning == Learning::blocks) {
    BlockCodesOptions blocks{.train = o.train, .rate_from_start = o.rate_from_start, .seed = o.seed};
    blocks.train.validate_every = 0;
    methods.push_back(block_codes(blocks));
  }
  if (learning != Learning::nothing) methods.push_back(dwq(o));
  return methods;
}

CalibrationOptions calibration_options(Effort effort, const ModelConfig& config, std::int64_t length,
                                       const Device& device, std::uint64_t seed) {
  const bool is_fast = effort == Effort::fast;
  const Training training = training_of(is_fast ? Effort::good : effort, config, length, device);
  const Learning learning = is_fast ? Learning::nothing : training.learning;
  DwqOptions o;
  o.rate_from_start = true;
  o.seed = seed;
  o.train.batch_size = training.batch_size;
  o.train.steps = training.steps;
  o.train.validate_every = training.validate_every;
  CalibrationOptions options;
  options.methods = fits(InitialFit::gptq, Rounding::gpu, learning);
  const std::vector<Method> trains = training_methods(learning, o);
  options.methods.insert(options.methods.end(), trains.begin(), trains.end());
  options.evaluation_batch = training.batch_size;
  options.statistics_rows = statistics_rows_of(config, length, device);
  return options;
}

SensitivityOptions sensitivity_of(const ModelConfig& config, std::int64_t length, const Device& device,
                                  bool in_blocks) {
  SensitivityOptions o;
  o.references = reference_formats(in_blocks);
  if (!device.caps().has_host_memory) return o;
  const std::vector<ModelTensor> tensors = tensor_list(config);
  const auto modules = std::count_if(tensors.begin(), tensors.end(),
                                     [](const ModelTensor& t) { return t.kind != TensorKind::vector; });
  // Half the layers are run again for a module, and the output layer: about as many operations as weights.
  const double row = static_cast<double>(modules * length) * weights_per_token(config);
  const auto rows = [&](std::size_t formats) { return 3e13 / (row * static_cast<double>(formats)); };
  if (rows(o.references.size()) >= static_cast<double>(o.kl_rows)) return o;
  o.references = {o.references[1]};
  o.kl_rows = static_cast<std::int64_t>(std::clamp(rows(1), 1.0, static_cast<double>(o.kl_rows)));
  return o;
}

}  // namespace mixtape
