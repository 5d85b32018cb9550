#include "mixtape/calib/memory.h"

#include <algorithm>
#include <map>
#include <string>

#include "mixtape/calib/logit_blocks.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

constexpr double kFloat = 4.0;  // bytes

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

// Elements of the second moments of a layer's inputs: of its two halves, and of what their last matrices read.
double squares_of(const AttentionSpec& a, double hidden) {
  const auto queries = static_cast<double>(a.heads * a.head_dim);
  return hidden * hidden + queries * queries;
}
double squares_of(const DenseMlpSpec& m, double hidden) {
  const auto width = static_cast<double>(m.width);
  return hidden * hidden + width * width;
}
double squares_of(const SparseMlpSpec& m, double hidden) {
  const auto width = static_cast<double>(m.width);
  return static_cast<double>(m.experts) * (hidden * hidden + width * width);
}

// Bytes by what holds them.
struct Weights {
  double floats = 0.0;               // the model in the activations' type
  double largest = 0.0;              // its largest layer, and what belongs to none
  double codes = 0.0, scales = 0.0;  // of a student; scales with biases, f32
  double learned = 0.0;              // codes that train, as numbers of one byte each
  double largest_matrix = 0.0;       // in f32
};

std::string layer_of(const std::string& name) {
  return name.starts_with("model.layers.") ? name.substr(0, name.find('.', 13)) : "";
}

Weights weigh(const ModelConfig& config, const QuantizationPlan& plan, double element) {
  Weights w;
  std::map<std::string, double> layers;
  for (const ModelTensor& t : tensor_list(config)) {
    const auto count = static_cast<double>(t.shape.numel());
    w.floats += count * element;
    layers[layer_of(t.name)] += count * element;
    const PlannedModule* module = plan.find(module_path(t.name));
    if (module == nullptr || !module->stored) continue;
    w.codes += count * module->stored->bits / 8.0;
    const std::vector<WeightPart> parts =
        codec_of(*module->stored).parts(t.shape, *module->stored, DType::f32);
    for (std::size_t i = 1; i < parts.size(); ++i)
      w.scales += static_cast<double>(parts[i].shape.numel()) * kFloat;
    if (module->kind != TensorKind::embedding) w.learned += count;
    w.largest_matrix = std::max(w.largest_matrix, count * kFloat);
  }
  for (const auto& [name, bytes] : layers) {
    if (!name.empty()) w.largest = std::max(w.largest, bytes);
  }
  w.largest += layers[""];
  return w;
}

// The students, one layer's statistics, a matrix in f32, and what its fit makes of it.
double fitting_bytes(const ModelConfig& config, const Weights& w, double element, const MemoryUse& use) {
  const auto hidden = static_cast<double>(config.hidden_size);
  double bytes = static_cast<double>(use.fits) * (w.codes + w.scales) + 2.0 * w.largest_matrix;
  if (use.statistics == Statistics::none) return bytes;
  bytes += static_cast<double>(use.statistics_tokens) * hidden * element;
  double squares = 0.0;
  for (const LayerSpec& spec : config.layers) {
    const auto of = [&](const auto& s) { return squares_of(s, hidden); };
    squares = std::max(squares, std::visit(of, spec.mixer) + std::visit(of, spec.mlp));
  }
  return use.statistics == Statistics::second_moments ? bytes + squares * kFloat : bytes;
}

double activation_bytes(const ModelConfig& config, double element, const MemoryUse& use) {
  const auto tokens = static_cast<double>(use.batch_tokens);
  double kept = 0.0, largest_layer = 0.0;
  for (const LayerSpec& spec : config.layers) {
    const double layer = kept_per_token(spec, config.hidden_size) * tokens * element;
    largest_layer = std::max(largest_layer, layer);
    kept += use.checkpoint_blocks ? tokens * static_cast<double>(config.hidden_size) * element : layer;
  }
  return use.checkpoint_blocks ? kept + largest_layer : kept;
}

// Two students share their codes; what trains has value, gradient, two moments and best value. Codes that train are
// decoded for each product, and kept so for the backward pass.
double training_bytes(const ModelConfig& config, const Weights& w, double element, const MemoryUse& use) {
  double bytes = w.codes + 6.0 * w.scales + activation_bytes(config, element, use);
  if (use.trains_codes) bytes += w.learned * (5.0 * kFloat + element) + w.largest_matrix;
  return bytes;
}

}  // namespace

double predicted_peak_bytes(const ModelConfig& config, const QuantizationPlan& plan, DType compute,
                            const MemoryUse& use, const Device& device) {
  const auto element = static_cast<double>(size_of(compute));
  const Weights w = weigh(config, plan, element);
  const auto rows = static_cast<double>(std::min(use.batch_tokens, logit_rows(config.vocab_size, device)));
  const double logits = 3.0 * rows * static_cast<double>(config.vocab_size) * kFloat;
  const double training = use.trains ? training_bytes(config, w, element, use) + logits : 0.0;
  // Each fit is measured while the others are there.
  const double fitting = fitting_bytes(config, w, element, use);
  const double measuring = static_cast<double>(use.fits) * (w.codes + w.scales) + logits;
  return (use.stream_teacher ? w.largest : w.floats) + std::max({training, fitting, measuring});
}

}  // namespace mixtape
