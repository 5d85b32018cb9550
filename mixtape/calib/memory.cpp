#include "mixtape/calib/memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <variant>

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
// Of the delta rule: its states, one for each 64 positions, f32.
double kept_of(const DeltaNetSpec& d, double hidden) {
  const auto keys = static_cast<double>(d.keys()), values = static_cast<double>(d.values());
  return 4.0 * hidden + 10.0 * keys + 8.0 * values + static_cast<double>(d.key_dim) * values / 64.0;
}
double kept_of(const DenseMlpSpec& m, double) {
  return (m.activation == Activation::silu ? 3.0 : 4.0) * static_cast<double>(m.width);
}
double kept_of(const SparseMlpSpec& m, double hidden) {
  const double shared = m.shared_width > 0 ? hidden + 3.0 * static_cast<double>(m.shared_width) : 0.0;
  return static_cast<double>(m.experts_per_token) * (2.0 * hidden + 3.0 * static_cast<double>(m.width)) +
         shared;
}

double kept_per_token(const LayerSpec& layer, std::int64_t hidden) {
  const auto kept = [&](const auto& spec) { return kept_of(spec, static_cast<double>(hidden)); };
  const double after = layer.norms == NormPlaces::both ? 2.0 * static_cast<double>(hidden) : 0.0;
  return std::visit(kept, layer.mixer) + std::visit(kept, layer.mlp) + after;
}

// Elements of the second moments of a layer's inputs: of its two halves, and of what their last matrices read.
double squares_of(const AttentionSpec& a, double hidden) {
  const auto queries = static_cast<double>(a.heads * a.head_dim);
  return hidden * hidden + queries * queries;
}
double squares_of(const DeltaNetSpec& d, double hidden) {
  const auto values = static_cast<double>(d.values());
  return hidden * hidden + values * values;
}
double squares_of(const DenseMlpSpec& m, double hidden) {
  const auto width = static_cast<double>(m.width);
  return hidden * hidden + width * width;
}
double squares_of(const SparseMlpSpec& m, double hidden) {
  const auto width = static_cast<double>(m.width);
  const auto shared = static_cast<double>(m.shared_width);
  return static_cast<double>(m.experts) * (hidden * hidden + width * width) + shared * shared;
}

// Bytes by what holds them.
struct Weights {
  double floats = 0.0;               // the model in the activations' type
  double codes = 0.0, scales = 0.0;  // of a student; scales with biases, f32
  double learned = 0.0;              // codes that train, as numbers of one byte each
};

struct ModelWeights {
  Weights all, layer, outside;  // layer: the most of any layer; outside: embedding, head, last norm
  double largest_matrix = 0.0;  // in f32
};

Weights weigh(const ModelTensor& t, const PlannedModule* module, double element) {
  const auto count = static_cast<double>(t.shape.numel());
  Weights w{.floats = count * element};
  if (module == nullptr || !module->stored) return w;
  w.codes = count * module->stored->bits / 8.0;
  const std::vector<WeightPart> parts = codec_of(*module->stored).parts(t.shape, *module->stored, DType::f32);
  for (std::size_t i = 1; i < parts.size(); ++i)
    w.scales += static_cast<double>(parts[i].shape.numel()) * kFloat;
  if (module->kind != TensorKind::embedding) w.learned = count;
  return w;
}

ModelWeights weigh(const ModelConfig& config, const QuantizationPlan& plan, double element) {
  constexpr double Weights::*kParts[] = {&Weights::floats, &Weights::codes, &Weights::scales,
                                         &Weights::learned};
  ModelWeights w;
  std::map<std::optional<std::int64_t>, Weights> layers;
  for (const ModelTensor& t : tensor_list(config)) {
    const PlannedModule* module = plan.find(module_path(t.name));
    const Weights tensor = weigh(t, module, element);
    for (const auto part : kParts) layers[layer_of(t.name)].*part += tensor.*part;
    if (module && module->stored)
      w.largest_matrix = std::max(w.largest_matrix, static_cast<double>(t.shape.numel()) * kFloat);
  }
  w.outside = layers[std::nullopt];
  for (const auto& [number, layer] : layers) {
    for (const auto part : kParts) {
      w.all.*part += layer.*part;
      if (number) w.layer.*part = std::max(w.layer.*part, layer.*part);
    }
  }
  return w;
}

double student_bytes(const ModelWeights& w) { return w.all.codes + w.all.scales; }

// The students, one layer's statistics, a matrix in f32, and what its fit makes of it.
double fitting_bytes(const ModelConfig& config, const ModelWeights& w, double element, const MemoryUse& use) {
  const auto hidden = static_cast<double>(config.hidden_size);
  double bytes = static_cast<double>(use.fits) * student_bytes(w) + 2.0 * w.largest_matrix;
  if (use.statistics == Statistics::none) return bytes;
  const double passes =
      use.statistics == Statistics::cross_moments ? 2.0 : 1.0;  // the teacher's, the student's
  bytes += passes * static_cast<double>(use.statistics_tokens) * hidden * element;
  double squares = 0.0;
  for (const LayerSpec& spec : config.layers) {
    const auto of = [&](const auto& s) { return squares_of(s, hidden); };
    squares = std::max(squares, std::visit(of, spec.mixer) + std::visit(of, spec.mlp));
  }
  return use.statistics >= Statistics::second_moments ? bytes + passes * squares * kFloat : bytes;
}

// Of a row that grows: elements for each token, and f32 of a delta net's state.
double seen_bytes(const AttentionSpec& a, double length, double element) {
  return 2.0 * static_cast<double>(a.kv_heads * a.head_dim) * length * element;
}
double seen_bytes(const DeltaNetSpec& d, double, double) {
  return static_cast<double>(d.key_dim * d.values()) * kFloat;
}

// What all layers keep of the rows; half of a layer's is copied when a token comes to it; and the logits.
double sampling_bytes(const ModelConfig& config, double element, const MemoryUse& use) {
  double all = 0.0, layer = 0.0;
  for (const LayerSpec& spec : config.layers) {
    const double kept = std::visit(
        [&](const auto& s) { return seen_bytes(s, static_cast<double>(use.sampled_length), element); },
        spec.mixer);
    all += kept;
    layer = std::max(layer, kept);
  }
  return static_cast<double>(use.sampled_rows) *
         (all + 0.5 * layer + static_cast<double>(config.vocab_size) * kFloat);
}

// Kept for the backward pass: of all layers, and of the one that keeps most.
struct Activations {
  double all = 0.0, layer = 0.0;
};

Activations activation_bytes(const ModelConfig& config, double element, const MemoryUse& use) {
  const auto tokens = static_cast<double>(use.batch_tokens);
  Activations a;
  for (const LayerSpec& spec : config.layers) {
    const double layer = kept_per_token(spec, config.hidden_size) * tokens * element;
    a.layer = std::max(a.layer, layer);
    a.all += use.checkpoint_blocks ? tokens * static_cast<double>(config.hidden_size) * element : layer;
  }
  if (use.checkpoint_blocks) a.all += a.layer;
  return a;
}

// Codes that train are decoded for each product, and kept so for the backward pass; beside that their value, gradient,
// two moments and best value.
double learned_bytes(const ModelWeights& w, const Weights& what, double element) {
  return what.learned * (5.0 * kFloat + element) + w.largest_matrix;
}

// All layers together. Two students share their codes, unless those have learned; scales that train have value,
// gradient, two moments and best value.
double training_bytes(const ModelConfig& config, const ModelWeights& w, double element,
                      const MemoryUse& use) {
  const double codes = (use.learning == Learning::blocks ? 2.0 : 1.0) * w.all.codes;
  const double bytes = codes + 6.0 * w.all.scales + activation_bytes(config, element, use).all;
  return use.learning == Learning::codes ? bytes + learned_bytes(w, w.all, element) : bytes;
}

// Layer by layer: what one takes, beside the hidden states of teacher and student.
double layer_training_bytes(const ModelConfig& config, const ModelWeights& w, double element,
                            const MemoryUse& use) {
  const double hidden = 2.0 * static_cast<double>(use.held_tokens * config.hidden_size) * element;
  return 2.0 * student_bytes(w) + 4.0 * w.layer.scales + learned_bytes(w, w.layer, element) + hidden +
         activation_bytes(config, element, use).layer;
}

}  // namespace

double predicted_host_bytes(const ModelConfig& config, std::uint64_t mapped_bytes, const MemoryUse& use,
                            int threads) {
  constexpr double kLibraries = 11e6;        // and a dense model's products: 7.5 and 14 MB on two machines
  constexpr double kSampling = 6e6;          // products of a token for each row
  constexpr double kSizes = 4 * 8 * 0.43e6;  // four octaves of numbers of rows, eight in each, three products
  constexpr double kDepth = 0.2e6;           // backward and second moments: the rows are a depth, in sixteens
  constexpr double kScratch = 0.5e6, kTraining = 1.5e6, kExperts = 6e6;  // of each thread after the second
  const bool trains = use.learning != Learning::nothing;
  double thread = kScratch + (trains ? kTraining : 0.0), experts = 0.0;
  for (const LayerSpec& spec : config.layers) {
    const auto* sparse = std::get_if<SparseMlpSpec>(&spec.mlp);
    if (!sparse) continue;
    const double rows = static_cast<double>(use.batch_tokens * sparse->experts_per_token) /
                        static_cast<double>(sparse->experts);
    const bool has_depths = trains || use.statistics >= Statistics::second_moments;
    const double depths = has_depths ? std::min(rows / 16.0, 96.0) : 0.0;
    experts = std::max(experts, kSizes + depths * kDepth);
  }
  if (experts > 0.0) thread += kExperts;
  return static_cast<double>(mapped_bytes) + kLibraries + (use.sampled_rows > 0 ? kSampling : 0.0) + experts +
         std::max(threads - 2, 0) * thread;
}

double predicted_peak_bytes(const ModelConfig& config, const QuantizationPlan& plan, DType compute,
                            const MemoryUse& use, const Device& device) {
  const auto element = static_cast<double>(size_of(compute));
  const ModelWeights w = weigh(config, plan, element);
  const auto rows = static_cast<double>(std::min(use.batch_tokens, logit_rows(config.vocab_size, device)));
  const double logits = 3.0 * rows * static_cast<double>(config.vocab_size) * kFloat;
  double most = std::max(fitting_bytes(config, w, element, use), sampling_bytes(config, element, use));
  // Each fit is measured while the others are there.
  most = std::max(most, static_cast<double>(use.fits) * student_bytes(w) + logits);
  if (use.learning != Learning::nothing)
    most = std::max(most, training_bytes(config, w, element, use) + logits);
  if (use.learning == Learning::blocks) most = std::max(most, layer_training_bytes(config, w, element, use));
  most += static_cast<double>(use.measured_tokens * config.hidden_size) * element;
  return (use.stream_teacher ? w.layer.floats + w.outside.floats : w.all.floats) + most;
}

}  // namespace mixtape
