// Time and memory of a recipe, from the float model to the quantized student:
//   recipes DEVICE SHAPE [fast|good|best] [kept|streamed] [BITS] [GROUP]
// SHAPE: a model, or smollm2, qwen3-0.6b or qwen3-8b with random weights. 400 rows of 513 random tokens train, 16
// validate and 16 make the report, so KLs mean nothing; work and memory are those of texts. A streamed teacher's
// activations are recomputed. Prints seconds by stage, and the peaks: buffers on the device, resident memory.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "bench/random_source.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/recipe.h"
#include "mixtape/core/resident_memory.h"
#include "mixtape/core/stopwatch.h"

namespace mixtape {
namespace {

constexpr std::size_t kLength = 513;

struct Setup {
  std::string device, shape, recipe = "good", teacher = "kept";
  AffineParams format{4, 64};
};

std::unique_ptr<ModelSource> source_of(const std::string& shape) {
  if (std::filesystem::exists(shape)) return open_model(shape);
  return std::make_unique<RandomSource>(config_of_shape(shape));
}

std::vector<Method> methods_of(const Setup& s, const ModelConfig& config, const Device& device) {
  const Effort effort = s.recipe == "fast" ? Effort::fast : s.recipe == "best" ? Effort::best : Effort::good;
  const Training t = training_of(effort, config, kLength, device);
  std::vector<Method> methods = fits(InitialFit::gptq, Rounding::gpu, t.learning);
  DwqOptions o;
  o.train.steps = t.steps;
  o.train.batch_size = t.batch_size;
  o.train.validate_every = t.validate_every;
  o.train.checkpoint_blocks = s.teacher == "streamed";
  o.rate_from_start = true;
  for (const Method& m : training_methods(t.learning, o)) {
    std::printf("training     %s, %lld steps of %lld rows\n", m.name.c_str(), static_cast<long long>(t.steps),
                static_cast<long long>(t.batch_size));
    methods.push_back(m);
  }
  return methods;
}

void run(const Setup& s) {
  const Device device = Device::open(s.device);
  const auto source = source_of(s.shape);
  const ModelConfig config = source->config();
  const CalibrationData data{random_rows(400, kLength, config.vocab_size, 1),
                             random_rows(16, kLength, config.vocab_size, 2000),
                             random_rows(16, kLength, config.vocab_size, 3000),
                             {}};
  const QuantizationPlan plan = plan_quantization(*source, {.params = s.format});
  std::printf("%s: %s, %d bits, groups of %d, %s teacher\n", device.description().c_str(), s.shape.c_str(),
              s.format.bits, s.format.group_size, s.teacher.c_str());
  CalibrationOptions options{.methods = methods_of(s, config, device)};
  options.statistics_rows = statistics_rows_of(config, kLength, device);
  options.stream_teacher = s.teacher == "streamed";
  options.evaluation_batch = device == Device::cpu() ? 4 : 16;
  Tape tape(device);
  const Stopwatch watch;
  const Calibration result = calibrate(*source, plan, data, options, tape);
  const double seconds = watch.seconds();
  for (const StageReport& stage : result.report.stages)
    std::printf("%-12s %8.1f s\n", stage.method.c_str(), stage.seconds);
  std::printf("%-12s %8.1f s, with measurements and statistics\n", "all", seconds);
  std::printf("%-12s %8.0f MB of buffers, %.0f MB resident\n", "peak",
              static_cast<double>(device.memory_stats().peak_bytes) / 1e6,
              static_cast<double>(peak_resident_bytes()) / 1e6);
}

}  // namespace
}  // namespace mixtape

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: recipes DEVICE SHAPE [fast|good|best] [kept|streamed] [BITS] [GROUP]\n");
    return 2;
  }
  mixtape::Setup setup{argv[1], argv[2]};
  if (argc > 3) setup.recipe = argv[3];
  if (argc > 4) setup.teacher = argv[4];
  if (argc > 5) setup.format.bits = std::atoi(argv[5]);
  if (argc > 6) setup.format.group_size = std::atoi(argv[6]);
  try {
    mixtape::run(setup);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "recipes: %s\n", error.what());
    return 1;
  }
}
