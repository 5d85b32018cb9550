#include "mixtape/calib/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "mixtape/calib/kept_states.h"
#include "mixtape/calib/module_kl.h"
#include "mixtape/calib/state_file.h"
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
constexpr BlockType kBlocks[] = {BlockType::q2_k, BlockType::q3_k, BlockType::q4_0, BlockType::q4_k,
                                 BlockType::q4_1, BlockType::q5_0, BlockType::q5_k, BlockType::q5_1,
                                 BlockType::q6_k, BlockType::q8_0};

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

using Wants = std::function<bool(const ModuleLosses& module, const FormatLoss& format)>;

class Measurement {
 public:
  // Of the modules that have a format to be measured.
  Measurement(const Teacher& teacher, const QuantizationPlan& plan, const ModuleKl& kl,
              const SensitivityOptions& options, const Wants& wants, std::vector<ModuleLosses>& losses,
              const RunHooks& hooks)
      : teacher_(teacher), kl_(kl), o_(options), wants_(wants), hooks_(hooks) {
    for (ModuleLosses& m : losses) {
      const bool has_one = std::any_of(m.formats.begin(), m.formats.end(),
                                       [&](const FormatLoss& f) { return is_to_be_measured(m, f); });
      if (has_one) waiting_.emplace(m.path, Module{*plan.find(m.path), m});
    }
    total_ = std::ssize(waiting_);
    report();
  }

  // Other modules are left alone.
  void measure(const std::string& path, const InputStatistics* inputs) {
    const auto found = waiting_.find(path);
    if (found == waiting_.end()) return;
    measure(found->second, inputs);
    waiting_.erase(found);
    report();
  }

  // Those that multiply nothing too.
  void finish() {
    while (!waiting_.empty()) measure(std::string(waiting_.begin()->first), nullptr);
  }

 private:
  struct Module {
    PlannedModule planned;
    ModuleLosses& losses;
  };

  bool is_to_be_measured(const ModuleLosses& m, const FormatLoss& f) const {
    return !f.is_measured && wants_(m, f);
  }

  // The module's losses change as a whole: what is kept of them when the caller stops is either old or new.
  void measure(Module& module, const InputStatistics* inputs) {
    const Buffer w = teacher_.source().load(module.planned.source, DType::f32, teacher_.tape().device());
    const Buffer sample = sampled_rows(w);
    std::vector<FormatLoss> formats = module.losses.formats;
    for (FormatLoss& f : formats) {
      hooks_.throw_if_stopped(kStage);
      measure(module, w, sample, inputs, f);
    }
    estimate_kl(formats);
    module.losses.formats = std::move(formats);
  }

  void measure(Module& module, const Buffer& w, const Buffer& sample, const InputStatistics* inputs,
               FormatLoss& f) const {
    PlannedModule& planned = module.planned;
    planned.stored = f.format;
    if (f.error < 0.0) {
      const QuantizedWeight q = fitted(planned, sample, inputs, Statistics::importance);
      f.error = output_error(teacher_.tape(), sample, q, inputs);
    }
    if (is_to_be_measured(module.losses, f)) {
      const QuantizedWeight q = fitted(planned, w, inputs, Statistics::second_moments);
      f.kl = mean_of(kl_.with({{planned.path, q}})).value;
      f.is_measured = true;
    }
    require(std::isfinite(f.error) && std::isfinite(f.kl), kStage, ": '", planned.path, "' at ",
            f.format.name(), " has KL ", f.kl, " and error ", f.error, ", expected finite numbers");
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

  void report() const {
    hooks_.report(
        {.stage = kStage, .done = total_ - std::ssize(waiting_), .total = total_, .unit = "modules"});
  }

  const Teacher& teacher_;
  const ModuleKl& kl_;
  const SensitivityOptions& o_;
  const Wants& wants_;
  const RunHooks& hooks_;
  DType storage_ = model_dtype(teacher_.source());
  std::map<std::string, Module> waiting_;  // by path
  std::int64_t total_ = 0;
};

bool is_reference(const std::vector<WeightFormat>& references, const WeightFormat& format,
                  std::int64_t cols) {
  return references.empty() || std::any_of(references.begin(), references.end(), [&](const WeightFormat& r) {
           return fitting_format(cols, r, true) == format;
         });
}

// In the order of `losses`.
void save_losses(const std::filesystem::path& file, const std::vector<ModuleLosses>& losses) {
  nlohmann::json all = nlohmann::json::array();
  for (const ModuleLosses& m : losses) {
    for (const FormatLoss& f : m.formats) all.push_back({f.error, f.kl, f.is_measured});
  }
  StateFile{.figures = {{"losses", all}}}.save(file);
}

void read_losses(const SafetensorsFile& file, std::vector<ModuleLosses>& losses) {
  read_figures(file, [&](const nlohmann::json& json) {
    auto next = json.at("losses").begin();
    for (ModuleLosses& m : losses) {
      for (FormatLoss& f : m.formats) {
        f = {f.format, next->at(0).get<double>(), next->at(1).get<double>(), next->at(2).get<bool>()};
        ++next;
      }
    }
  });
}

bool wants_any(const std::vector<ModuleLosses>& losses, const Wants& wants) {
  for (const ModuleLosses& m : losses) {
    for (const FormatLoss& f : m.formats) {
      if (!f.is_measured && wants(m, f)) return true;
    }
  }
  return false;
}

std::span<const TokenRow> first(const std::vector<TokenRow>& rows, std::int64_t count) {
  return std::span(rows).first(std::min(rows.size(), static_cast<std::size_t>(count)));
}

double log_of(double x) { return std::log(std::max(x, 1e-30)); }

}  // namespace

std::span<const TokenRow> kl_rows(const CalibrationData& data, const SensitivityOptions& o) {
  return first(data.validation.empty() ? data.train : data.validation, o.kl_rows);
}

std::span<const TokenRow> statistics_rows(const CalibrationData& data, const SensitivityOptions& o) {
  return first(data.train, o.statistics_rows);
}

std::vector<WeightFormat> candidate_formats(std::int64_t cols, bool in_blocks) {
  std::vector<WeightFormat> formats;
  if (in_blocks) {
    formats.assign(std::begin(kBlocks), std::end(kBlocks));
  } else {
    for (const std::int32_t bits : kBits) {
      for (const std::int32_t group : kGroups) formats.push_back({bits, group});
    }
  }
  std::erase_if(formats, [&](const WeightFormat& f) { return cols % f.unit() != 0; });
  return formats;
}

std::vector<WeightFormat> reference_formats(bool in_blocks) {
  if (in_blocks) return {BlockType::q2_k, BlockType::q3_k, BlockType::q4_k};
  return {{2, 64}, {3, 64}, {4, 64}};
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

void measure_more(const Teacher& teacher, const QuantizationPlan& plan, const CalibrationData& data,
                  const SensitivityOptions& o, const Wants& wants, std::vector<ModuleLosses>& losses,
                  const RunHooks& hooks) {
  require(!o.fits.empty(), kStage, ": no method fits, expected one or more");
  require(o.kl_rows > 0 && o.statistics_rows > 0, kStage, ": rows of KL and statistics are ", o.kl_rows,
          " and ", o.statistics_rows, ", expected 1 or more");
  const KeptStage kept(hooks, "losses",
                       [&](const std::filesystem::path& file) { save_losses(file, losses); });
  if (const auto file = kept.find()) read_losses(*file, losses);
  if (!wants_any(losses, wants)) return;
  const ModuleKl kl(teacher, kl_rows(data, o), o.batch_size, hooks);
  Measurement measurement(teacher, plan, kl, o, wants, losses, hooks);
  Statistics wanted = Statistics::importance;
  for (const Method& m : o.fits) wanted = std::max(wanted, m.statistics);
  const RunHooks silent{.progress = {}, .should_stop = hooks.should_stop};
  kept.run([&] {
    visit_input_statistics(teacher, plan, statistics_rows(data, o), o.batch_size, wanted, silent,
                           [&](const LayerStatistics& layer) {
                             for (const auto& [path, inputs] : layer) {
                               measurement.measure(path, &inputs);
                               kept.keep_if_due();
                             }
                           });
    measurement.finish();
  });
}

std::vector<ModuleLosses> measure_sensitivity(const Teacher& teacher, const QuantizationPlan& plan,
                                              const CalibrationData& data, const SensitivityOptions& o,
                                              const RunHooks& hooks) {
  std::vector<ModuleLosses> losses;
  for (const PlannedModule& m : plan.modules) {
    if (!m.by_default) continue;
    losses.push_back({m.path, {}});
    for (const WeightFormat& f : candidate_formats(m.shape.cols(), plan.config.defaults.is_blocks()))
      losses.back().formats.push_back({f});
  }
  const Wants references = [&](const ModuleLosses& m, const FormatLoss& f) {
    return is_reference(o.references, f.format, plan.find(m.path)->shape.cols());
  };
  measure_more(teacher, plan, data, o, references, losses, hooks);
  return losses;
}

}  // namespace mixtape
