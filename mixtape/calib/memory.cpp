#include "mixtape/calib/memory.h"

#include <algorithm>

#include "mixtape/calib/logit_blocks.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

// Elements per token that the backward pass keeps of a mixer, and of an MLP.
double kept_of(const AttentionSpec& a, double hidden) {
  const auto queries = static_cast<double>(a.heads * a.head_dim);
  const auto kv = static_cast<double>(a.kv_heads * a.head_dim);
  return 4.0 * hidden + 2.0 * queries + 2.0 * kv + (a.qk_norms ? queries + kv : 0.0);
}
double kept_of(const DenseMlpSpec& m, double) { return 3.0 * static_cast<double>(m.width); }
double kept_of(const SparseMlpSpec& m, double hidden) {
  return static_cast<double>(m.experts_per_token) * (2.0 * hidden + 3.0 * static_cast<double>(m.width));
}

double kept_per_token(const LayerSpec& layer, std::int64_t hidden) {
  const auto kept = [&](const auto& spec) { return kept_of(spec, static_cast<double>(hidden)); };
  return std::visit(kept, layer.mixer) + std::visit(kept, layer.mlp);
}

}  // namespace

double predicted_peak_bytes(const ModelConfig& config, const QuantizationPlan& plan, DType compute,
                            std::int64_t tokens, bool checkpoint_blocks, const Device& device) {
  const auto element = static_cast<double>(size_of(compute));
  double weights = 0.0, student = 0.0;
  for (const ModelTensor& t : tensor_list(config)) {
    const auto count = static_cast<double>(t.shape.numel());
    weights += count * element;
    const PlannedModule* module = plan.find(module_path(t.name));
    if (module == nullptr || !module->stored) continue;
    double scales = 0.0;
    const std::vector<WeightPart> parts =
        codec_of(*module->stored).parts(t.shape, *module->stored, DType::f32);
    for (std::size_t i = 1; i < parts.size(); ++i) scales += static_cast<double>(parts[i].shape.numel());
    student +=
        count * module->stored->bits / 8.0 + scales * 4.0 * 5.0;  // value, gradient, two moments, best state
  }
  double activations = 0.0, largest_layer = 0.0;
  for (const LayerSpec& spec : config.layers) {
    const double layer = kept_per_token(spec, config.hidden_size) * static_cast<double>(tokens) * element;
    largest_layer = std::max(largest_layer, layer);
    activations += checkpoint_blocks ? static_cast<double>(tokens * config.hidden_size) * element : layer;
  }
  if (checkpoint_blocks) activations += largest_layer;
  const auto rows = static_cast<double>(std::min(tokens, logit_rows(config.vocab_size, device)));
  const double logits = 3.0 * rows * static_cast<double>(config.vocab_size) * 4.0;
  return weights + student + activations + logits;
}

}  // namespace mixtape
