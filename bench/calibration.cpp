// Speed of DWQ on random weights of a real model's shape, bf16:
//   calibration [DEVICES] [SHAPE] [BATCH] [LENGTH] [STEPS] [live|cached|streamed] [times]
// Defaults: cpu smollm2 4 512 3 live. Several devices, cuda:0,cuda:1, share the rows of each batch. live runs the
// teacher beside the student; streamed too, but loads its blocks anew in each pass and recomputes activations: the least
// memory; cached compares with its 64 largest logits, which are there already. Counts 8 FLOP, or 6 without a teacher, per
// matrix weight and token (2 teacher, 2 student, 4 gradients; tied head included, attention not) as a share of a plain
// bf16 matrix product's rate in the same run, times the devices: oneDNN's own at 1024^3 on the CPU, 8192^3 on a GPU. The
// checksum is of the trained scales and biases. times: a last step's dispatches one by one, the slowest first.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dnnl.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>

#include "bench/dispatch_times.h"
#include "bench/random_source.h"
#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/student.h"
#include "mixtape/calib/trainer.h"
#include "mixtape/core/mix.h"
#include "mixtape/core/random.h"
#include "mixtape/core/resident_memory.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/ops/matmul/matmul.h"
#include "mixtape/runtime/device_group.h"

namespace mixtape {
namespace {

struct Setup {
  std::string devices = "cpu", shape = "smollm2";
  std::int64_t batch = 4, length = 512, steps = 3;
  bool live = true, streamed = false, times = false;
};

// FLOP/s of oneDNN with its own threads, best of several looks.
double onednn_bf16_rate() {
  using namespace dnnl;
  const memory::dim n = 1024;
  engine eng(engine::kind::cpu, 0);
  stream st(eng);
  const memory::desc d({n, n}, memory::data_type::bf16, memory::format_tag::ab);
  memory a(d, eng), b(d, eng), c(d, eng);
  dnnl::matmul product(dnnl::matmul::primitive_desc(dnnl::matmul::desc(d, d, d), eng));
  double best = 0.0;
  for (int i = 0; i < 30; ++i) {
    const Stopwatch watch;
    product.execute(st, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    st.wait();
    best = std::max(best, 2.0 * n * n * n / watch.seconds());
  }
  return best;
}

double device_bf16_rate(const Device& device) {
  constexpr std::int64_t n = 8192, kTimes = 10;
  std::vector<bf16> values;
  for (std::uint64_t i = 0; i < n * n; ++i) values.emplace_back(static_cast<float>(uniform(3, i) - 0.5));
  const Buffer a = Buffer::from(device, {n, n}, values);
  const Buffer c = device.alloc(DType::bf16, {n, n});
  CommandEncoder encoder(device);
  double best = 0.0;
  for (int i = 0; i < 3; ++i) {
    const Stopwatch watch;
    for (int t = 0; t < kTimes; ++t) matmul_forward(encoder, a, a, c, false, true);
    encoder.commit_and_wait();
    best = std::max(best, 2.0 * n * n * n * kTimes / watch.seconds());
  }
  return best;
}

// A step that is not recorded.
struct OneByOne final : LossSignal {
  explicit OneByOne(LossSignal& other) : signal(other) {}
  void load(const Batch& batch, std::span<const std::size_t> rows) override { signal.load(batch, rows); }
  void start() override { signal.start(); }
  bool is_recordable() const override { return false; }
  Buffer losses(CommandEncoder& encoder, const Buffer& logits, std::int64_t begin, std::int64_t end,
                const LogitGradient& gradient) override {
    return signal.losses(encoder, logits, begin, end, gradient);
  }
  LossSignal& signal;
};

// Tokens per second over the steps after the first two, validation left out.
double train_rate(
    const Setup& s, Student& student, LossSignal& signal, Tape& tape, Communicator& communicator,
    const std::function<void()>& at_second_step = [] {}) {
  const std::vector<TokenRow> rows =
      random_rows(static_cast<std::size_t>(s.batch * (s.steps + 2)), static_cast<std::size_t>(s.length) + 1,
                  student.config.vocab_size, 1);
  TrainOptions options;
  options.batch_size = s.batch;
  options.steps = s.steps + 2;
  options.validate_every = options.steps;
  options.keep_best = false;
  options.checkpoint_blocks = s.streamed;
  std::vector<double> at;
  const Stopwatch watch;
  TrainHooks hooks{.communicator = &communicator};
  hooks.run.progress = [&](const StageProgress& p) {
    if (!p.validation_loss) at.push_back(watch.seconds());
    if (at.size() == 2) at_second_step();
  };
  train(student.config, student.parameters, DType::bf16, signal, tape,
        {rows, std::span(rows).first(1), shuffled_batches(rows.size(), s.batch, 1)}, options, hooks);
  return static_cast<double>(s.batch * s.length * s.steps) / (at.back() - at[1]);
}

// Of one step and the validation after it.
void print_times(Setup s, Student& student, LossSignal& signal, Tape& tape, Communicator& communicator) {
  s.steps = 1;
  OneByOne plain(signal);
  std::optional<DispatchTimes> times;
  train_rate(s, student, plain, tape, communicator, [&] { times.emplace(); });
  times->print(40);
}

// The K largest logits of a teacher that nobody ran.
class RandomTargets final : public LossSignal {
 public:
  explicit RandomTargets(std::int64_t vocab) : vocab_(vocab) {}
  void load(const Batch& batch, std::span<const std::size_t>) override {
    const std::int64_t positions = batch.ids.numel();
    if (all_.logits && all_.logits.shape()[0] == positions) return;
    std::vector<float> logits;
    std::vector<std::uint32_t> indices;
    for (std::int64_t i = 0; i < positions * kK; ++i) {
      logits.push_back(static_cast<float>(normal(3, static_cast<std::uint64_t>(i))));
      indices.push_back(static_cast<std::uint32_t>(i % kK * (vocab_ / kK) + i / kK % (vocab_ / kK)));
    }
    const Device& device = batch.ids.device();
    all_ = {
        Buffer::from(device, {positions, kK}, logits), Buffer::from(device, {positions, kK}, indices),
        Buffer::from(device, {positions}, std::vector<float>(static_cast<std::size_t>(positions), 10.0f))};
  }
  Buffer losses(CommandEncoder& encoder, const Buffer& logits, std::int64_t begin, std::int64_t end,
                const LogitGradient& gradient) override {
    const TopKTargets part = {all_.logits.slice(begin, end), all_.indices.slice(begin, end),
                              all_.rest_lse.slice(begin, end)};
    return top_k_losses(encoder, part, logits, {.temperature = 2.0f, .top_k = kK, .rest_bucket = true},
                        gradient);
  }

 private:
  static constexpr std::int64_t kK = 64;
  std::int64_t vocab_;
  TopKTargets all_;
};

// Of experts those that a token goes to.
double matrix_weights(const RandomSource& source) {
  const ModelConfig config = source.config();
  const auto& json = source.config_json();
  const double used = json.value("num_experts_per_tok", 1.0) / json.value("num_experts", 1.0);
  double weights = 0.0;
  for (const ModelTensor& t : tensor_list(config)) {
    if (t.kind != TensorKind::vector &&
        (config.tie_word_embeddings || !t.name.ends_with("embed_tokens.weight")))
      weights += (t.shape.rank() == 3 ? used : 1.0) * static_cast<double>(t.shape.numel());
  }
  return weights;
}

std::uint64_t checksum(const Student& student) {
  std::uint64_t sum = 0;
  for (const auto& [path, q] : student.parameters.quantized) {
    for (const Buffer& b : {q.scales, q.biases}) {
      std::vector<std::uint32_t> bits(static_cast<std::size_t>(b.numel()));
      b.read_bytes(bits.data());
      for (const std::uint32_t word : bits) sum = mix_bits(sum ^ word);
    }
  }
  return sum;
}

struct Result {
  double tokens = 0.0;  // per second
  std::uint64_t checksum = 0;
};

// On one of the devices.
Result calibrate_on(const Setup& s, const Device& device, Communicator& communicator) {
  const RandomSource source(config_of_shape(s.shape));
  const QuantizationPlan plan = plan_quantization(source, QuantizationOptions());
  Tape tape(device);
  auto teacher = std::make_unique<Teacher>(source, DType::bf16, s.streamed || !s.live, tape);
  Student student = fit_student(*teacher, plan, plain_rounding());
  std::unique_ptr<LossSignal> signal = std::make_unique<RandomTargets>(source.config().vocab_size);
  if (s.live) {
    signal = std::make_unique<LiveTeacher>(teacher->model(), tape, KlOptions{.temperature = 2.0f});
  } else {
    teacher = nullptr;
  }
  device.reset_peak();
  const double tokens = train_rate(s, student, *signal, tape, communicator);
  if (s.times) print_times(s, student, *signal, tape, communicator);
  return {tokens, checksum(student)};
}

std::vector<Device> devices_of(const Setup& s) {
  std::vector<Device> devices;
  std::istringstream names(s.devices);
  for (std::string name; std::getline(names, name, ',');) devices.push_back(Device::open(name));
  return devices;
}

void run(const Setup& s) {
  DeviceGroup group(devices_of(s));
  const Device& device = group.devices()[0];
  const auto devices = static_cast<double>(group.devices().size());
  const bool on_cpu = device == Device::cpu();
  const double rate = on_cpu ? onednn_bf16_rate() : device_bf16_rate(device);
  Result result;
  group.run([&](Communicator& c) {
    const Result own = calibrate_on(s, group.devices()[static_cast<std::size_t>(c.rank())], c);
    if (c.rank() == 0) result = own;
  });
  const double flops =
      (s.live ? 8.0 : 6.0) * matrix_weights(RandomSource(config_of_shape(s.shape))) * result.tokens;
  std::printf("%.0f x %s: %s, %lld x %lld tokens, %s teacher\n", devices, device.description().c_str(),
              s.shape.c_str(), static_cast<long long>(s.batch), static_cast<long long>(s.length),
              s.streamed ? "streamed"
              : s.live   ? "live"
                         : "cached");
  if (devices > 1.0) std::printf("%-22s %s\n", "gradients through", group.way().c_str());
  std::printf("%-22s %10.1f GFLOP/s\n", on_cpu ? "oneDNN bf16 1024^3" : "bf16 product 8192^3", rate / 1e9);
  std::printf("%-22s %10.1f tokens/s, %.1f GFLOP/s, %.1f %% of that\n", "calibration", result.tokens,
              flops / 1e9, 100.0 * flops / (rate * devices));
  std::printf("%-22s %10.1f MB of buffers, %.1f MB resident\n", "peak",
              static_cast<double>(device.memory_stats().peak_bytes) / 1e6,
              static_cast<double>(peak_resident_bytes()) / 1e6);
  std::printf("%-22s %016llx\n", "checksum", static_cast<unsigned long long>(result.checksum));
}

}  // namespace
}  // namespace mixtape

int main(int argc, char** argv) {
  mixtape::Setup setup;
  if (argc > 1) setup.devices = argv[1];
  if (argc > 2) setup.shape = argv[2];
  if (argc > 3) setup.batch = std::atoll(argv[3]);
  if (argc > 4) setup.length = std::atoll(argv[4]);
  if (argc > 5) setup.steps = std::atoll(argv[5]);
  const std::string teacher = argc > 6 ? argv[6] : "live";
  setup.live = teacher != "cached";
  setup.streamed = teacher == "streamed";
  setup.times = argc > 7 && std::string(argv[7]) == "times";
  try {
    mixtape::run(setup);
  } catch (const mixtape::Error& error) {
    std::fprintf(stderr, "calibration: %s\n", error.what());
    return 1;
  }
}
