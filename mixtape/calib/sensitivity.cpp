#include "mixtape/calib/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "mixtape/calib/module_kl.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/embedding/embedding.h"
#include "mixtape/ops/matmul/matmul.h"
#include "mixtape/ops/quantize/quantize.h"

namespace mixtape {
namespace {

const std::string kStage = "measuring modules";
constexpr std::int64_t kSampledRows = 256;     // of a matrix, whose error stands for that of all
constexpr std::int64_t kLeastOfAnExpert = 16;  // of those, of each expert
constexpr std::int32_t kBits[] = {2, 3, 4, 5, 6, 8}, kGroups[] = {128, 64, 32};

// Rows of w [..., N, K] spread over each matrix: [..., n, K].
Buffer sampled_rows(const Buffer& w) {
  const Shape& s = w.shape();
  const std::int64_t matrices = s.rank() == 3 ? s[0] : 1, rows = s[s.rank() - 2], cols = s.cols();
  const std::int64_t n = std::min(rows, std::max(kSampledRows / matrices, kLeastOfAnExpert));
  std::vector<std::uint32_t> ids;
  for (std::int64_t m = 0; m < matrices; ++m) {
    for (std::int64_t i = 0; i < n; ++i) ids.push_back(static_cast<std::uint32_t>(m * rows + i * rows / n));
  }
  const Buffer sample = w.device().alloc_uninitialized(DType::f32, {matrices * n, cols});
  CommandEncoder encoder(w.device());
  embedding_forward(encoder, w.reshape({matrices * rows, cols}),
                    Buffer::from(w.device(), {matrices * n}, ids), sample);
  encoder.commit_and_wait();
  return s.rank() == 3 ? sample.reshape({matrices, n, cols}) : sample;
}

// d H [..., n, K], of the errors d. H is the sum of x x^T over the tokens, of its diagonal what is known; 1 where there
// are no inputs.
std::vector<float> times_moments(Tape& tape, const Buffer& d, const InputStatistics* inputs) {
  std::vector<float> product = d.to_vector<float>();
  if (inputs == nullptr) return product;
  if (inputs->second_moments) {
    const Buffer y = tape.device().alloc_uninitialized(DType::f32, d.shape());
    matmul_forward(tape.encoder(), d, inputs->second_moments, y);
    tape.encoder().commit_and_wait();
    return y.to_vector<float>();
  }
  const std::vector<float> squares = inputs->mean_squares.to_vector<float>();  // [K] or [E, K]
  const auto cols = static_cast<std::size_t>(d.shape().cols());
  const std::size_t rows = product.size() / cols / inputs->tokens.size();  // of each matrix
  for (std::size_t i = 0; i < product.size(); ++i) {
    const std::size_t e = i / cols / rows;
    product[i] *= squares[e * cols + i % cols] * static_cast<float>(inputs->tokens[e]);
  }
  return product;
}

double output_error(Tape& tape, const Buffer& w, const QuantizedWeight& q, const InputStatistics* inputs) {
  const NoGrad guard(tape);
  const Var decoded =
      dequantize_affine({q.codes, tape.constant(q.scales), tape.constant(q.biases), q.format}, DType::f32);
  const Buffer d = (tape.constant(w) - decoded).value();
  tape.encoder().commit_and_wait();
  const std::vector<float> values = d.to_vector<float>(), weighted = times_moments(tape, d, inputs);
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(weighted[i]);
  return sum;
}

class Measurement {
 public:
  Measurement(const Teacher& teacher, const QuantizationPlan& plan, const ModuleKl& kl,
              const SensitivityOptions& options, const RunHooks& hooks)
      : teacher_(teacher), kl_(kl), o_(options), hooks_(hooks) {
    for (const PlannedModule& m : plan.modules) {
      if (!m.by_default) continue;
      waiting_.emplace(m.path, losses_.size());
      modules_.push_back(m);
      losses_.push_back({m.path, {}});
      for (const AffineParams& f : candidate_formats(m.shape.cols())) losses_.back().formats.push_back({f});
    }
    report();
  }

  // Other modules are left alone.
  void measure(const std::string& path, const InputStatistics* inputs) {
    const auto found = waiting_.find(path);
    if (found == waiting_.end()) return;
    measure(modules_[found->second], losses_[found->second].formats, inputs);
    waiting_.erase(found);
    report();
  }

  // Those that multiply nothing too.
  std::vector<ModuleLosses> finish() {
    while (!waiting_.empty()) measure(std::string(waiting_.begin()->first), nullptr);
    return std::move(losses_);
  }

 private:
  void measure(PlannedModule& module, std::vector<FormatLoss>& formats, const InputStatistics* inputs) {
    const Buffer w = teacher_.source().load(module.source, DType::f32, teacher_.tape().device());
    const Buffer sample = sampled_rows(w);
    for (FormatLoss& f : formats) {
      hooks_.throw_if_stopped(kStage);
      module.stored = f.format;
      f.error = output_error(teacher_.tape(), sample, fitted(module, sample, inputs, Statistics::importance),
                             inputs);
      f.is_measured = is_reference(f.format, module.shape.cols());
      if (f.is_measured) f.kl = kl_.with(module.path, fitted(module, w, inputs, Statistics::second_moments));
      require(std::isfinite(f.error) && std::isfinite(f.kl), kStage, ": '", module.path, "' at ",
              f.format.bits, " bits has KL ", f.kl, " and error ", f.error, ", expected finite numbers");
    }
    estimate_kl(formats);
  }

  // By the fits that take no more than these statistics.
  QuantizedWeight fitted(const PlannedModule& module, const Buffer& w, const InputStatistics* inputs,
                         Statistics most) const {
    std::vector<std::string> notes;
    QuantizedWeight q;
    for (const Method& m : o_.fits) {
      if (m.statistics > most) continue;
      const QuantizedWeight previous = q;
      q = m.fit({module, w, inputs, previous.codes ? &previous : nullptr, storage_, notes});
    }
    return q;
  }

  bool is_reference(AffineParams format, std::int64_t cols) const {
    const auto stands_for = [&](const AffineParams& r) {
      const auto group = std::find_if(std::begin(kGroups), std::end(kGroups),
                                      [&](std::int32_t g) { return g <= r.group_size && cols % g == 0; });
      return format.bits == r.bits && group != std::end(kGroups) && format.group_size == *group;
    };
    return o_.references.empty() || std::any_of(o_.references.begin(), o_.references.end(), stands_for);
  }

  void report() const {
    const auto total = std::ssize(modules_);
    hooks_.report({.stage = kStage, .done = total - std::ssize(waiting_), .total = total, .unit = "modules"});
  }

  const Teacher& teacher_;
  const ModuleKl& kl_;
  const SensitivityOptions& o_;
  const RunHooks& hooks_;
  DType storage_ = model_dtype(teacher_.source());
  std::vector<PlannedModule> modules_;
  std::vector<ModuleLosses> losses_;
  std::map<std::string, std::size_t> waiting_;  // number in both, by path
};

double log_of(double x) { return std::log(std::max(x, 1e-30)); }

}  // namespace

std::vector<AffineParams> candidate_formats(std::int64_t cols) {
  std::vector<AffineParams> formats;
  for (const std::int32_t bits : kBits) {
    for (const std::int32_t group : kGroups) {
      if (cols % group == 0) formats.push_back({bits, group});
    }
  }
  return formats;
}

void estimate_kl(std::vector<FormatLoss>& formats) {
  std::vector<FormatLoss> measured;
  std::copy_if(formats.begin(), formats.end(), std::back_inserter(measured),
               [](const FormatLoss& f) { return f.is_measured; });
  require(!measured.empty(), "KL by format: none is measured, expected one or more");
  std::sort(measured.begin(), measured.end(),
            [](const FormatLoss& a, const FormatLoss& b) { return a.error < b.error; });
  for (FormatLoss& f : formats) {
    if (f.is_measured) continue;
    const auto above = std::find_if(measured.begin(), measured.end(),
                                    [&](const FormatLoss& m) { return m.error > f.error; });
    const auto below = above == measured.begin() ? above : above - 1;
    const FormatLoss& a = *below;
    const FormatLoss& b = above == measured.end() ? a : *above;
    const double distance = log_of(b.error) - log_of(a.error);
    const double power = distance > 0.0 ? (log_of(b.kl) - log_of(a.kl)) / distance : 1.0;
    f.kl = a.kl * std::exp(power * (log_of(f.error) - log_of(a.error)));
  }
}

std::vector<ModuleLosses> measure_sensitivity(const Teacher& teacher, const QuantizationPlan& plan,
                                              const CalibrationData& data, const SensitivityOptions& o,
                                              const RunHooks& hooks) {
  require(!o.fits.empty(), kStage, ": no method fits, expected one or more");
  require(o.kl_rows > 0 && o.statistics_rows > 0, kStage, ": rows of KL and statistics are ", o.kl_rows,
          " and ", o.statistics_rows, ", expected 1 or more");
  const auto first = [](const std::vector<TokenRow>& rows, std::int64_t count) {
    return std::span(rows).first(std::min(rows.size(), static_cast<std::size_t>(count)));
  };
  const auto& measured_on = data.validation.empty() ? data.train : data.validation;
  const ModuleKl kl(teacher, first(measured_on, o.kl_rows), o.batch_size, hooks);
  Measurement measurement(teacher, plan, kl, o, hooks);
  Statistics wanted = Statistics::importance;
  for (const Method& m : o.fits) wanted = std::max(wanted, m.statistics);
  const RunHooks silent{.progress = {}, .should_stop = hooks.should_stop};
  visit_input_statistics(teacher, plan, first(data.train, o.statistics_rows), o.batch_size, wanted, silent,
                         [&](const LayerStatistics& layer) {
                           for (const auto& [path, inputs] : layer) measurement.measure(path, &inputs);
                         });
  return measurement.finish();
}

}  // namespace mixtape
