// What `mixtape calibrate` is predicted to take for models of real shapes, as a table:
//   sizes DEVICE [TFLOP/S]
// Memory follows from the shape. Time follows from a layer with random weights that is timed on the device; or, with a
// number, from that rate of training, of 8 operations for each weight and token. Rows as those of bench/recipes: 400 of
// 513 tokens train, 16 validate, 16 make the report; 4 bits in groups of 64.
#include <cstdio>
#include <cstdlib>

#include "bench/random_source.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/memory.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/calib/work.h"

namespace mixtape {
namespace {

constexpr std::int64_t kLength = 512, kRows = 400, kMeasuredRows = 16;

struct Setting {
  const char* name;
  Effort effort;
  bool is_small;  // streamed teacher, activations recomputed
};

// Of a device that trains at that rate. Streamed and fitted on a card: as an H200 does (bench/results/h200_recipes.csv).
Pace pace_at(double rate, const ModelConfig& config, const Device& device) {
  constexpr double kBus = 38e9,
                   kFit = 6e-9;  // bytes per second of a streamed teacher; seconds for each weight
  const double head = static_cast<double>(config.vocab_size * config.hidden_size);
  const double layers = weights_per_token(config) - head;
  Pace pace{.layers = 2.0 * layers / rate, .head = 2.0 * head / rate, .product = 2.0 * rate};
  if (device.caps().has_host_memory) return pace;
  pace.load = 2.0 * layers / kBus;
  pace.fit = kFit;
  return pace;
}

Pace pace_of(const ModelSource& source, const Device& device, std::int64_t batch) {
  Tape tape(device);
  const Teacher teacher(source, compute_dtype(source.config()), true, tape);
  return measure_pace(
      teacher.model(), tape,
      random_rows(static_cast<std::size_t>(batch), kLength + 1, source.config().vocab_size, 1));
}

void print_row(const std::string& shape, const ModelSource& source, const Setting& s, const Pace& pace,
               const Device& device) {
  const ModelConfig config = source.config();
  const Training t = training_of(s.effort, config, kLength, device);
  const QuantizationPlan plan = plan_quantization(source, {.params = {4, 64}});
  const std::int64_t batch = device.caps().has_host_memory ? 4 : 16;
  const std::int64_t statistics = std::min(kRows, statistics_rows_of(config, kLength, device)) * kLength;
  const MemoryUse memory{
      .batch_tokens = batch * kLength,
      .fits = 3,
      .statistics = t.learning <= Learning::scales ? Statistics::cross_moments : Statistics::second_moments,
      .statistics_tokens = statistics,
      .learning = t.learning,
      .held_tokens = (128 + kMeasuredRows) * kLength,
      .measured_tokens = 3 * kMeasuredRows * kLength,
      .checkpoint_blocks = s.is_small,
      .stream_teacher = s.is_small};
  const WorkUse work{.learning = t.learning,
                     .statistics_tokens = statistics,
                     .validation_tokens = kMeasuredRows * kLength,
                     .report_tokens = kMeasuredRows * kLength,
                     .steps = t.steps,
                     .batch_tokens = batch * kLength,
                     .validations = t.steps > 0 ? 1 + t.steps / t.validate_every : 0,
                     .held_tokens = (128 + kMeasuredRows) * kLength,
                     .checkpoint_blocks = s.is_small,
                     .stream_teacher = s.is_small};
  const double bytes = predicted_peak_bytes(config, plan, compute_dtype(config), memory, device);
  const double seconds = Forecast(expected_stages(config, plan, work, pace)).seconds();
  std::printf("| %s | %s | %lld | %.1f GB | %.0f s |\n", shape.c_str(), s.name,
              static_cast<long long>(t.steps), bytes / 1e9, seconds);
  std::fflush(stdout);
}

void run(const std::string& name, double rate) {
  const Device device = Device::open(name);
  std::printf("%s\n\n| shape | recipe | steps | buffers | time |\n|---|---|---|---|---|\n",
              device.description().c_str());
  for (const std::string shape :
       {"smollm2", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"}) {
    const RandomSource source(config_of_shape(shape));
    const ModelConfig config = source.config();
    const Pace pace = rate > 0.0 ? pace_at(rate, config, device)
                                 : pace_of(source, device, device.caps().has_host_memory ? 4 : 16);
    for (const Setting& s :
         {Setting{"fast", Effort::fast, false}, Setting{"good", Effort::good, false},
          Setting{"good, small", Effort::good, true}, Setting{"best", Effort::best, false}})
      print_row(shape, source, s, pace, device);
  }
}

}  // namespace
}  // namespace mixtape

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: sizes DEVICE [TFLOP/S]\n");
    return 2;
  }
  try {
    mixtape::run(argv[1], argc > 2 ? 1e12 * std::atof(argv[2]) : 0.0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sizes: %s\n", error.what());
    return 1;
  }
}
