// Speed of DWQ on a model of SmolLM2-135M's shape with random weights: 4 x 512 tokens a step, live teacher,
// bf16. Counts 8 FLOP per matrix weight and token (2 teacher, 2 student, 4 gradients; tied head included,
// attention not), and compares with oneDNN's own bf16 product at 1024^3 in the same run.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <dnnl.hpp>
#include <nlohmann/json.hpp>

#include "mixtape/calib/initialize.h"
#include "mixtape/calib/student.h"
#include "mixtape/calib/trainer.h"
#include "mixtape/core/random.h"
#include "mixtape/nn/tensor_list.h"

namespace mixtape {
namespace {

constexpr std::int64_t kBatch = 4, kLength = 512, kSteps = 3;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Random values under the names of a real model.
class RandomSource final : public ModelSource {
 public:
  explicit RandomSource(nlohmann::json config) : config_(std::move(config)) {
    parameters_ = initial_parameters(ModelSource::config(), 1, Device::cpu());
  }
  std::string where() const override { return "random"; }
  const nlohmann::json& config_json() const override { return config_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, value] : parameters_.dense) names.push_back(name);
    return names;
  }
  bool has(const std::string& name) const override { return parameters_.dense.contains(name); }
  Shape shape(const std::string& name) const override { return parameters_.dense.at(name).shape(); }
  DType stored_dtype(const std::string&) const override { return DType::f32; }
  Buffer load(const std::string& name, DType wanted, const Device& device) const override {
    const Buffer& value = parameters_.dense.at(name);
    if (wanted == DType::f32) return value;
    std::vector<bf16> rounded;
    for (const float v : value.to_vector<float>()) rounded.emplace_back(v);
    return Buffer::from(device, value.shape(), rounded);
  }
  nlohmann::json tokenizer_json() const override { return {}; }
  nlohmann::json tokenizer_config_json() const override { return {}; }
  std::map<std::string, std::string> extra_files() const override { return {}; }
  bool is_mlx() const override { return false; }

 private:
  nlohmann::json config_;
  Parameters parameters_;
};

nlohmann::json smollm2_config() {
  return {{"model_type", "llama"},       {"hidden_size", 576},       {"intermediate_size", 1536},
          {"num_hidden_layers", 30},     {"num_attention_heads", 9}, {"num_key_value_heads", 3},
          {"vocab_size", 49152},         {"rms_norm_eps", 1e-5},     {"rope_theta", 100000.0},
          {"tie_word_embeddings", true}, {"hidden_act", "silu"},     {"torch_dtype", "bfloat16"}};
}

// GFLOP/s of oneDNN with its own threads, best of several looks.
double onednn_bf16_rate() {
  using namespace dnnl;
  const memory::dim n = 1024;
  engine eng(engine::kind::cpu, 0);
  stream st(eng);
  const memory::desc d({n, n}, memory::data_type::bf16, memory::format_tag::ab);
  memory a(d, eng), b(d, eng), c(d, eng);
  matmul product(matmul::primitive_desc(matmul::desc(d, d, d), eng));
  double best = 0.0;
  for (int i = 0; i < 30; ++i) {
    const auto start = std::chrono::steady_clock::now();
    product.execute(st, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    st.wait();
    best = std::max(best, 2.0 * n * n * n / seconds_since(start) / 1e9);
  }
  return best;
}

std::vector<TokenRow> random_rows(std::int64_t count, std::int64_t vocab, std::uint64_t seed) {
  std::vector<TokenRow> rows(static_cast<std::size_t>(count));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::uint64_t i = 0; i <= kLength; ++i) {
      rows[r].push_back(
          static_cast<std::uint32_t>(uniform_index(seed + r, i, static_cast<std::uint64_t>(vocab))));
    }
  }
  return rows;
}

void run() {
  const Device device = Device::cpu();
  const double rate = onednn_bf16_rate();
  auto source = std::make_unique<RandomSource>(smollm2_config());
  const ModelConfig config = source->config();
  const Parameters teacher_parameters = load_parameters(*source, config, DType::bf16, device);
  const QuantizationPlan plan = plan_quantization(*source, QuantizationOptions());
  const Parameters student = quantize_parameters(*source, teacher_parameters, plan, Rounding::gpu, device);
  Tape tape(device);
  TapeWeights weights(tape, teacher_parameters, Trainable::nothing);
  const CausalLm teacher(config, weights, DType::bf16);
  LiveTeacher signal(teacher, tape, {.temperature = 2.0f});
  const std::vector<TokenRow> rows = random_rows(kBatch * (kSteps + 1), config.vocab_size, 1);
  TrainOptions options;
  options.batch_size = kBatch;
  options.steps = kSteps + 1;
  options.validate_every = options.steps;
  std::vector<double> at;
  const auto start = std::chrono::steady_clock::now();
  TrainHooks hooks;
  hooks.progress = [&](const TrainProgress& p) {
    if (p.validation == nullptr) at.push_back(seconds_since(start));
  };
  source.reset();  // its f32 weights are not part of a calibration
  device.reset_peak();
  train(config, student, DType::bf16, signal, tape, rows, std::span(rows).first(1),
        shuffled_batches(rows.size(), kBatch, 1), options, hooks);
  double matrix_weights = 0.0;
  for (const ModelTensor& t : tensor_list(config)) {
    if (t.kind != TensorKind::vector) matrix_weights += static_cast<double>(t.shape.numel());
  }
  const double tokens = static_cast<double>(kBatch * kLength * kSteps) / (at.back() - at.front());
  const double flops = 8.0 * matrix_weights * tokens / 1e9;
  std::printf("oneDNN bf16 1024^3     %8.1f GFLOP/s\n", rate);
  std::printf("calibration            %8.1f tokens/s, %.1f GFLOP/s, %.1f %% of oneDNN\n", tokens, flops,
              100.0 * flops / rate);
  std::printf("peak of buffers        %8.1f MB\n",
              static_cast<double>(device.memory_stats().peak_bytes) / 1e6);
}

}  // namespace
}  // namespace mixtape

int main() { mixtape::run(); }
