#include "mixtape/calib/work.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <variant>

#include "mixtape/calib/kl_by_part.h"
#include "mixtape/calib/logit_blocks.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/ops/attention/attention.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/matmul/matmul.h"

namespace mixtape {
namespace {

// Passes through the layers, and of the output layer, that a token costs. A student's weights are decoded on the way.
constexpr double kStudentPass = 1.1;
constexpr double kBackward = 2.2;      // of all gradients
constexpr double kSampledPass = 1.2;   // of what one token takes that sees no others
constexpr double kComparedHead = 2.5;  // both models' logits, and the figures
constexpr double kTrainedHead = 4.5;
constexpr double kPartHead = 1.5;  // the teacher's logits are there
// Operations for each weight.
constexpr double kRounding = 20.0, kLeastSquares = 800.0, kOptimizer = 600.0;
// As many operations as a product would take at its rate. Following the student solves a system in 17 products.
constexpr double kErrorFeedback = 4.0, kFollowing = 34.0, kMoments = 3.0;
constexpr double kCardFit = 6e-9;  // an H200, whose kernels go from column to column

// The mean of a twentieth of a second. The first call compiles or loads kernels and isn't counted.
template <class Work>
double seconds_of(CommandEncoder& encoder, const Work& work) {
  work();
  encoder.commit_and_wait();
  const Stopwatch watch;
  int calls = 0;
  do {
    work();
    encoder.commit_and_wait();
    ++calls;
  } while (watch.seconds() < 0.05);
  return watch.seconds() / calls;
}

// Layers that take about the same time.
using LayerKind = std::tuple<std::size_t, std::int64_t, std::size_t>;
LayerKind kind_of(const LayerSpec& layer) {
  const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
  return {layer.mixer.index(), attention ? attention->window : 0, layer.mlp.index()};
}

struct LayerTime {
  double pass = 0.0, load = 0.0;  // seconds
};

// Of all layers, from the first ones and the first of each kind. Rows go through them one after the other: attention
// takes longer on scores that are alike, as those of the first layer are.
LayerTime layers_time(const CausalLm& model, Tape& tape, Var x) {
  constexpr std::size_t kFirst = 8;
  const std::vector<LayerSpec>& layers = model.config().layers;
  std::map<LayerKind, std::vector<LayerTime>> times;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::vector<LayerTime>& of_kind = times[kind_of(layers[i])];
    if (i >= kFirst && !of_kind.empty()) continue;
    const Stopwatch loading;
    const auto layer = model.layer(static_cast<std::int64_t>(i));
    tape.encoder().commit_and_wait();
    const double load = loading.seconds();
    Var y;
    of_kind.push_back({seconds_of(tape.encoder(), [&] { y = layer(x); }), load});
    x = y;
  }
  LayerTime sum;
  for (const LayerSpec& layer : layers) {
    const std::vector<LayerTime>& of_kind = times[kind_of(layer)];
    for (const LayerTime& t : of_kind) {
      sum.pass += t.pass / static_cast<double>(of_kind.size());
      sum.load += t.load / static_cast<double>(of_kind.size());
    }
  }
  return sum;
}

}  // namespace

double measure_product_rate(const Device& device) {
  const bool is_host = device.caps().has_host_memory;
  // Small models see no other peak of memory for it; many threads want more than 512.
  const std::int64_t n = !is_host ? 8192 : device.caps().threads > 4 ? 1024 : 512;
  const DType dtype = is_host ? DType::f32 : DType::bf16;
  CommandEncoder encoder(device);
  const auto filled = [&] {
    const Buffer b = device.alloc_uninitialized(dtype, {n, n});
    encoder.fill(b, 0.5f);
    return b;
  };
  const Buffer a = filled(), b = filled(), y = device.alloc_uninitialized(dtype, {n, n});
  const auto size = static_cast<double>(n);
  return 2.0 * size * size * size / seconds_of(encoder, [&] { matmul_forward(encoder, a, b, y); });
}

namespace {

// Seconds for each of `rows` tokens that pass all layers and the output layer together, the first of their rows.
double token_time(const CausalLm& model, Tape& tape, const std::vector<TokenRow>& tokens) {
  const Var x = model.embed(make_batch(tape.device(), tokens).ids);  // [R, 1, D]
  const Var hidden = reshape(model.final_norm(x), {x.shape()[0], x.shape()[2]});
  const double head = seconds_of(tape.encoder(), [&] { model.logits(hidden); });
  return (layers_time(model, tape, x).pass + head) / static_cast<double>(x.shape()[0]);
}

// Seconds for each of `rows` tokens that see `keys` positions before them, in the attention of all layers. The values are
// alike, which attention does not mind where there is one query.
double attention_time(const ModelConfig& config, const Device& device, DType dtype, std::int64_t rows,
                      std::int64_t keys) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>, double> known;
  CommandEncoder encoder(device);
  double sum = 0.0;
  for (const LayerSpec& layer : config.layers) {
    const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
    if (a == nullptr) continue;
    double& seconds = known[{a->heads, a->kv_heads, a->head_dim, a->window}];
    if (seconds == 0.0) {
      const Buffer q = device.alloc(dtype, {rows, 1, a->heads, a->head_dim}),
                   k = device.alloc(dtype, {rows, keys, a->kv_heads, a->head_dim}),
                   y = device.alloc_uninitialized(dtype, q.shape()),
                   lse = device.alloc_uninitialized(DType::f32, {rows, a->heads, 1});
      seconds = seconds_of(encoder, [&] {
        attention_forward(encoder, q, k, k, {.scale = 1.0f, .sliding_window = a->window}, y, lse);
      });
    }
    sum += seconds;
  }
  return sum / static_cast<double>(rows);
}

}  // namespace

Pace measure_pace(const CausalLm& model, Tape& tape, std::span<const TokenRow> rows, std::int64_t sampled) {
  const NoGrad guard(tape);
  const Var x = model.embed(make_batch(tape.device(), rows).ids);  // [B, S, D]
  const std::int64_t positions = x.shape().rows();
  Pace pace;
  const LayerTime layers = layers_time(model, tape, x);
  pace.layers = layers.pass / static_cast<double>(positions);
  if (model.is_streamed()) pace.load = layers.load;
  if (!tape.device().caps().has_host_memory) pace.fit = kCardFit;
  const std::int64_t block = std::min(positions, logit_rows(model.config().vocab_size, tape.device()));
  const Var hidden = reshape(model.final_norm(x), {positions, x.shape().cols()});
  const Var part = tape.constant(hidden.value().slice(0, block));
  pace.head = seconds_of(tape.encoder(), [&] { model.logits(part); }) / static_cast<double>(block);
  pace.product = measure_product_rate(tape.device());
  if (sampled > 0) {
    const std::vector<TokenRow> tokens(static_cast<std::size_t>(sampled), {rows[0][0], rows[0][1]});
    const std::int64_t keys =
        std::max<std::int64_t>(1, std::ssize(rows[0]) / 2);  // on the way, in the middle
    pace.sampled = kSampledPass * token_time(model, tape, tokens) +
                   attention_time(model.config(), tape.device(), x.dtype(), sampled, keys);
  }
  return pace;
}

namespace {

class Expectation {
 public:
  Expectation(const ModelConfig& config, const QuantizationPlan& plan, const WorkUse& use, const Pace& pace)
      : config_(config), plan_(plan), use_(use), pace_(pace) {}

  std::vector<StageTime> stages() {
    if (use_.sampled_tokens > 0) add("sampling", static_cast<double>(use_.sampled_tokens) * pace_.sampled);
    if (use_.formats > 0) add_measuring();
    add("fitting", statistics() + fitting());
    // The teacher's activations of these rows are kept.
    add("evaluating initial fit",
        tokens(use_.report_tokens, 1.0 + kStudentPass, kComparedHead) + reading(use_.report_tokens));
    const std::vector<Method> fits = mixtape::fits(use_.fit, Rounding::gpu, use_.learning);
    const bool is_compared = fits.size() > 1 || use_.learning != Learning::nothing;
    for (const Method& m : fits) {
      if (is_compared) add_measurement(m.name, &m == &fits.front());
    }
    const std::vector<Method> trainings = training_methods(use_.learning, {});
    for (std::size_t i = 0; i < trainings.size(); ++i) {
      const bool is_by_layer = trainings.size() > 1 && i == 0;
      add(is_by_layer ? "learning layers" : "training", is_by_layer ? learning_layers() : training());
      add_measurement(trainings[i].name, false);
    }
    if (is_compared) add("evaluating result", tokens(use_.report_tokens, kStudentPass, kComparedHead));
    if (use_.part_tokens > 0) add("measuring parts", measuring_parts());
    return std::move(stages_);
  }

 private:
  void add(const std::string& stage, double seconds) { stages_.push_back({stage, seconds}); }

  // Of so many passes each.
  double tokens(std::int64_t count, double layers, double head) const {
    return static_cast<double>(count) * (layers * pace_.layers + head * pace_.head);
  }
  double operations(double count) const { return count / pace_.product; }
  // The teacher's layers for each batch of so many tokens.
  double reading(std::int64_t count) const {
    if (!use_.stream_teacher || use_.batch_tokens == 0) return 0.0;
    return pace_.load * static_cast<double>((count + use_.batch_tokens - 1) / use_.batch_tokens);
  }

  void add_measurement(const std::string& method, bool is_first) {
    if (use_.gate && use_.validation_tokens > 0)
      add("evaluating " + method,
          tokens(use_.validation_tokens, kStudentPass + (is_first ? 1.0 : 0.0), kComparedHead) +
              (is_first ? reading(use_.validation_tokens) : 0.0));
  }

  bool follows() const { return use_.fit == InitialFit::gptq && use_.learning <= Learning::scales; }

  template <class Fn>
  double sum_over_matrices(const Fn& fn) const {
    double sum = 0.0;
    for (const PlannedModule& m : plan_.modules) {
      const Shape& s = m.shape;
      if (m.stored) sum += fn(static_cast<double>(s.numel()), static_cast<double>(s.cols()), m);
    }
    return sum;
  }

  double statistics() const {
    if (use_.fit == InitialFit::rounding) return 0.0;
    const auto count = static_cast<double>(use_.statistics_tokens);
    const double passes =
        follows() ? 3.0 : 1.0;  // the teacher's, and of what comes from the student's layers
    double squares = 0.0;       // multiplications of a token's inputs with each other
    if (use_.fit == InitialFit::gptq) squares = moments() * (follows() ? 2.0 : 1.0);
    const double once =
        use_.stream_teacher ? passes * pace_.load : 0.0;  // all rows go through a layer together
    return once + tokens(use_.statistics_tokens, passes, 0.0) + operations(kMoments * 2.0 * count * squares);
  }

  // Inputs that several matrices share count once: q, k and v; gate and up.
  double moments() const {
    std::map<std::pair<std::int64_t, double>, int> seen;
    double sum = 0.0;
    for (const PlannedModule& m : plan_.modules) {
      if (!m.stored || m.kind == TensorKind::embedding) continue;
      const double cols = static_cast<double>(m.shape.cols());
      const double used = m.shape.rank() == 3 ? experts_per_token() : 1.0;
      const bool shares =
          m.path.ends_with("k_proj") || m.path.ends_with("v_proj") || m.path.ends_with("up_proj");
      if (!shares) sum += used * cols * cols;
    }
    return sum;
  }

  double experts_per_token() const {
    for (const LayerSpec& layer : config_.layers) {
      if (const auto* sparse = std::get_if<SparseMlpSpec>(&layer.mlp))
        return static_cast<double>(sparse->experts_per_token);
    }
    return 0.0;
  }

  double fitting() const {
    return sum_over_matrices([&](double weights, double cols, const PlannedModule& m) {
      double each = kRounding;
      if (use_.fit != InitialFit::rounding) each += kLeastSquares;
      if (use_.fit == InitialFit::gptq && m.kind != TensorKind::embedding) each += kErrorFeedback * cols;
      if (follows() && m.kind != TensorKind::embedding) each += kFollowing * cols;
      return weights * std::max(operations(each), pace_.fit);
    });
  }

  double training() const {
    const double passes = 1.0 + kStudentPass + kBackward + (use_.checkpoint_blocks ? kStudentPass : 0.0);
    const double weights = use_.learning == Learning::codes
                               ? sum_over_matrices([](double n, double, const PlannedModule&) { return n; })
                               : 0.0;
    const double step = tokens(use_.batch_tokens, passes, kTrainedHead) + operations(kOptimizer * weights);
    return static_cast<double>(use_.steps) * (step + reading(use_.batch_tokens)) +
           static_cast<double>(use_.validations) *
               tokens(use_.validation_tokens, kStudentPass, kComparedHead) +
           tokens(use_.validation_tokens, 1.0, 0.0) + reading(use_.validation_tokens);
  }

  double learning_layers() const {
    const double passes = kStudentPass + kBackward + (use_.checkpoint_blocks ? kStudentPass : 0.0);
    const double weights = sum_over_matrices([](double n, double, const PlannedModule&) { return n; });
    return static_cast<double>(use_.steps) *
               (tokens(use_.batch_tokens, passes, 0.0) + operations(kOptimizer * weights)) +
           tokens(use_.held_tokens, 1.0 + kStudentPass, 0.0) +
           2.0 * tokens(use_.validation_tokens, kStudentPass, 0.0) + (use_.stream_teacher ? pace_.load : 0.0);
  }

  // Half the layers are run again for a layer, all for what all layers have, and what comes after the worst layer for each
  // of its matrices.
  double measuring_parts() const {
    const StudentParts parts = parts_of(plan_);
    const auto layers = static_cast<double>(parts.places.size()),
               kinds = static_cast<double>(parts.kinds.size());
    const double modules = layers > 0.0 ? kinds : 0.0;  // a layer has about one of each
    return tokens(use_.part_tokens, 1.0 + kStudentPass * (1.0 + 0.5 * layers + kinds + 0.5 * modules),
                  kPartHead * (1.0 + layers + kinds + modules));
  }

  void add_measuring() {
    // Half the layers are run again for a module, and the output layer.
    const double modules = sum_over_matrices([](double, double, const PlannedModule&) { return 1.0; });
    const auto formats = static_cast<double>(use_.formats);
    const double measured =
        modules * formats * tokens(use_.measured_tokens, 0.5 * kStudentPass, kComparedHead);
    add("measuring modules", measured + statistics() + formats * fitting());
    add("measuring swaps", 2.0 * (statistics() + fitting()) + measured / formats);
  }

  const ModelConfig& config_;
  const QuantizationPlan& plan_;
  const WorkUse& use_;
  const Pace& pace_;
  std::vector<StageTime> stages_;
};

}  // namespace

std::vector<StageTime> expected_stages(const ModelConfig& config, const QuantizationPlan& plan,
                                       const WorkUse& use, const Pace& pace) {
  return Expectation(config, plan, use, pace).stages();
}

std::int64_t part_tokens_of(const ModelConfig& config, const QuantizationPlan& plan, const WorkUse& use,
                            const Device& device) {
  constexpr double kShare = 0.05, kFewest = 128.0;
  const double head = 2.0 * static_cast<double>(config.vocab_size * config.hidden_size);
  const double layers = std::max(2.0 * weights_per_token(config) - head, 1.0);
  const Pace operations{.layers = layers, .head = head, .product = 1.0, .sampled = layers + head};
  WorkUse work = use;
  work.part_tokens = 0;
  const double all = Forecast(expected_stages(config, plan, work, operations)).seconds();
  work.part_tokens = 1;
  const double one = Forecast(expected_stages(config, plan, work, operations)).seconds() - all;
  const double logits = device.caps().has_host_memory ? 0x1p26 : 0x1p28;
  const double most = std::max(kFewest, logits / static_cast<double>(config.vocab_size));
  return static_cast<std::int64_t>(std::clamp(kShare * all / one, kFewest, most));
}

std::vector<StageTime> expected_training(const WorkUse& use, const Pace& pace) {
  const auto seconds = [&](std::int64_t count, double layers, double head) {
    return static_cast<double>(count) * (layers * pace.layers + head * pace.head);
  };
  const double training = seconds(use.steps * use.batch_tokens, 1.0 + kBackward, kTrainedHead - 1.0) +
                          seconds(use.validations * use.validation_tokens, 1.0, 1.0);
  return {{"training", training}, {"evaluating result", seconds(use.report_tokens, 1.0, 1.0)}};
}

}  // namespace mixtape
