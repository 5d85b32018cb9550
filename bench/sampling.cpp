// Speed of sampling with random weights of a real model's shape:
//   sampling [DEVICE] [SHAPE] [ROWS] [TOKENS] [BITS]
// Defaults: cuda smollm2 256 512 16; fewer bits than 16: weights quantized in groups of 64. Every step reads the
// weights once, and of each row the keys and values so far; their bytes over the time are given as a share of the rate
// of a copy, in the same run.
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "bench/random_source.h"
#include "mixtape/autograd/tape.h"
#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/sample.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/core/stopwatch.h"

namespace mixtape {
namespace {

constexpr std::int32_t kGroup = 64;

double copy_rate(const Device& device) {
  const Buffer a = device.alloc(DType::f32, {1 << 26}), b = device.alloc(DType::f32, {1 << 26});
  CommandEncoder encoder(device);
  double best = 0.0;
  for (int i = 0; i < 5; ++i) {
    const Stopwatch watch;
    for (int t = 0; t < 10; ++t) encoder.copy(a, b);
    encoder.commit_and_wait();
    best = std::max(best, 20.0 * static_cast<double>(a.bytes()) / watch.seconds());
  }
  return best;
}

// Of a token's keys and values, over all layers.
double cache_bytes(const ModelConfig& config, DType dtype) {
  double values = 0.0;
  for (const LayerSpec& layer : config.layers) {
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer))
      values += 2.0 * static_cast<double>(a->kv_heads * a->head_dim);
  }
  return values * static_cast<double>(size_of(dtype));
}

// The matrices' bytes, with a scale and a bias in 16 bits for each group.
double weight_bytes(const ModelConfig& config, std::int32_t bits) {
  double values = 0.0;
  for (const ModelTensor& t : tensor_list(config)) values += static_cast<double>(t.shape.numel());
  return values * (bits + (bits < 16 ? 32.0 / kGroup : 0.0)) / 8.0;
}

// As a written directory holds it.
struct QuantizedModel {
  QuantizedModel(const Teacher& teacher, const QuantizationPlan& plan)
      : student(fit_student(teacher, plan, plain_rounding())),
        stored(with_stored_values(student, DType::bf16)),
        weights(teacher.tape(), stored, Trainable::nothing),
        model(student.config, weights, DType::bf16) {}
  Student student;
  Parameters stored;
  TapeWeights weights;
  CausalLm model;
};

void run(const std::string& name, const std::string& shape, std::int64_t rows, std::int64_t tokens,
         std::int32_t bits) {
  const Device device = Device::open(name);
  const RandomSource source(config_of_shape(shape));
  const ModelConfig config = source.config();
  Tape tape(device);
  const double copy = copy_rate(device);
  const Teacher teacher(source, DType::bf16, false, tape);
  std::optional<QuantizedModel> quantized;
  if (bits < 16)
    quantized.emplace(teacher, plan_quantization(source, {.params = WeightFormat(bits, kGroup)}));
  const CausalLm& model = quantized ? quantized->model : teacher.model();
  const std::vector<TokenRow> prompts(static_cast<std::size_t>(rows), TokenRow{1});
  sample(model, tape, prompts, 4, {});  // loads the kernels
  const Stopwatch watch;
  sample(model, tape, prompts, tokens, {});
  const double seconds = watch.seconds(), steps = static_cast<double>(tokens);
  const double bytes =
      steps * (weight_bytes(config, bits) +
               static_cast<double>(rows) * cache_bytes(config, DType::bf16) * (steps + 1.0) / 2.0);
  std::printf("%s: %s in %d bits, %lld rows of %lld tokens\n", device.description().c_str(), shape.c_str(),
              bits, static_cast<long long>(rows), static_cast<long long>(tokens));
  std::printf("sampling %10.0f tokens/s, %.2f ms a step, %.1f GB/s, %.1f %% of a copy's %.0f\n",
              static_cast<double>(rows) * steps / seconds, 1e3 * seconds / steps, bytes / seconds / 1e9,
              100.0 * bytes / seconds / copy, copy / 1e9);
}

}  // namespace
}  // namespace mixtape

int main(int argc, char** argv) {
  try {
    mixtape::run(argc > 1 ? argv[1] : "cuda", argc > 2 ? argv[2] : "smollm2",
                 argc > 3 ? std::atoll(argv[3]) : 256, argc > 4 ? std::atoll(argv[4]) : 512,
                 argc > 5 ? std::atoi(argv[5]) : 16);
  } catch (const mixtape::Error& error) {
    std::fprintf(stderr, "sampling: %s\n", error.what());
    return 1;
  }
}
