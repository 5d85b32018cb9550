#include "mixtape/calib/memory.h"

#include <algorithm>

#include "mixtape/calib/evaluate.h"
#include "mixtape/nn/tensor_list.h"

namespace mixtape {
namespace {

// Elements per token that the backward pass of layer i keeps.
double kept_per_token(const ModelConfig& c, std::int64_t i) {
  const auto d = static_cast<double>(c.hidden_size);
  const auto heads = static_cast<double>(c.num_attention_heads + c.num_key_value_heads);
  const auto queries = static_cast<double>(c.num_attention_heads * c.head_dim);
  const auto kv = static_cast<double>(c.num_key_value_heads * c.head_dim);
  const double head_norms =
      c.architecture == Architecture::llama ? 0.0 : heads * static_cast<double>(c.head_dim);
  const double attention = 4.0 * d + 2.0 * queries + 2.0 * kv + head_norms;
  if (!c.is_sparse(i)) return attention + 3.0 * static_cast<double>(c.intermediate_size);
  const auto chosen = static_cast<double>(c.num_experts_per_tok);
  return attention + chosen * (2.0 * d + 3.0 * static_cast<double>(c.moe_intermediate_size));
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
    const double scales = 2.0 * count / module->stored->group_size;
    student +=
        count * module->stored->bits / 8.0 + scales * 4.0 * 5.0;  // value, gradient, two moments, best state
  }
  double activations = 0.0, largest_layer = 0.0;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const double layer = kept_per_token(config, i) * static_cast<double>(tokens) * element;
    largest_layer = std::max(largest_layer, layer);
    activations += checkpoint_blocks ? static_cast<double>(tokens * config.hidden_size) * element : layer;
  }
  if (checkpoint_blocks) activations += largest_layer;
  const auto rows = static_cast<double>(std::min(tokens, logit_rows(config.vocab_size, device)));
  const double logits = 3.0 * rows * static_cast<double>(config.vocab_size) * 4.0;
  return weights + student + activations + logits;
}

}  // namespace mixtape
