#include "mixtape/calib/calibrate.h"

#include <algorithm>
#include <cmath>

#include "mixtape/calib/fit_students.h"
#include "mixtape/core/stopwatch.h"

namespace mixtape {
namespace {

// The methods that fit, which are the first ones.
std::span<const Method> fits_of(const std::vector<Method>& methods) {
  const auto end = std::find_if(methods.begin(), methods.end(), [](const Method& m) { return !m.fit; });
  return {methods.begin(), end};
}

void check_input(const ModelSource& source, const CalibrationData& data, const CalibrationOptions& o) {
  require(o.evaluation_batch > 0, "calibrate: evaluation_batch is ", o.evaluation_batch,
          ", expected 1 or more");
  require(o.statistics_rows > 0, "calibrate: statistics_rows is ", o.statistics_rows, ", expected 1 or more");
  const std::size_t fits = fits_of(o.methods).size();
  require(fits > 0, "calibrate: no method fits a student first");
  require(!data.report.empty(), "calibrate: found no report row, expected at least one");
  const std::int64_t vocabulary = source.config().vocab_size;
  for (const auto* rows : {&data.train, &data.validation, &data.report}) check_ids(*rows, vocabulary);
  for (std::size_t i = 0; i < o.methods.size(); ++i) {
    const Method& m = o.methods[i];
    require(i < fits || m.improve, "calibrate: method '", m.name,
            "' fits, expected before those that improve");
    if (m.check) m.check(source, data);
  }
}

}  // namespace

Evaluation evaluate_stored(const Student& student, const Teacher& teacher, DType storage,
                           std::span<const TokenRow> rows, std::int64_t batch_size, const RunHooks& hooks,
                           const std::string& stage) {
  ModelReference reference(teacher.model(), teacher.tape());
  return evaluate_stored(student, teacher, reference, storage, rows, batch_size, hooks, stage);
}

Evaluation evaluate_stored(const Student& student, const Teacher& teacher, Reference& reference,
                           DType storage, std::span<const TokenRow> rows, std::int64_t batch_size,
                           const RunHooks& hooks, const std::string& stage) {
  Tape& tape = teacher.tape();
  const Parameters stored = with_stored_values(student, storage);
  TapeWeights weights(tape, stored, Trainable::nothing);
  const CausalLm model(student.config, weights, teacher.compute());
  return evaluate(model, reference, tape, rows, batch_size, hooks, stage);
}

namespace {

// One run through all methods.
class Run {
 public:
  Run(const Teacher& teacher, const QuantizationPlan& plan, const CalibrationData& data,
      const CalibrationOptions& options, const RunHooks& hooks)
      : teacher_(teacher), plan_(plan), data_(data), o_(options), hooks_(hooks) {}

  Calibration run() {
    const std::span<const Method> fits = fits_of(o_.methods);
    const bool fits_only = fits.size() == o_.methods.size();
    fit(fits);
    for (const Method& m : std::span(o_.methods).subspan(fits.size())) {
      if (!report_.stopped_early) improve(m);
    }
    if (fits_only && fits.size() == 1) {
      report_.result = report_.initial;
    } else {
      report_.result = report_unless_stopped();
    }
    report_.stopped_early |= !report_.result;
    return {std::move(report_), std::move(best_)};
  }

 private:
  void fit(std::span<const Method> fits) {
    const std::span<const TokenRow> train(data_.train);
    const auto rows = std::min(train.size(), static_cast<std::size_t>(o_.statistics_rows));
    std::vector<FittedStudent> fitted =
        fit_students(teacher_, plan_, fits, train.first(rows), o_.evaluation_batch, hooks_, o_.on_statistics);
    report_.initial = evaluate(fitted.front().student, on_report_, data_.report, "evaluating initial fit");
    for (std::size_t i = 0; i < fits.size(); ++i) {
      report_.stages.push_back({fits[i].name, fitted[i].seconds, {}, {}, false, std::move(fitted[i].notes)});
      if (o_.methods.size() > 1) measure(report_.stages.back(), fitted[i].student);
      offer(report_.stages.back(), std::move(fitted[i].student));
    }
  }

  // A stopped method is judged by its own validation: nothing is measured any more.
  void improve(const Method& method) {
    Student student = copy_of(best_);
    const Stopwatch watch;
    report_.training = method.improve({teacher_, plan_, data_, hooks_, best_kl()}, student);
    const double seconds = watch.seconds();
    report_.stages.push_back({method.name, seconds, {}, {}, false, {}});
    report_.stopped_early = report_.training.stopped_early;
    if (!report_.stopped_early) measure(report_.stages.back(), student);
    offer(report_.stages.back(), std::move(student));
  }

  // As a file would hold it.
  Evaluation evaluate(const Student& student, Reference& reference, std::span<const TokenRow> rows,
                      const std::string& stage) {
    return evaluate_stored(student, teacher_, reference, storage_, rows, o_.evaluation_batch, hooks_, stage);
  }

  // Null where the caller stops it: what was trained is not lost for that.
  std::optional<Evaluation> report_unless_stopped() {
    try {
      return evaluate(best_, on_report_, data_.report, "evaluating result");
    } catch (const Error& error) {
      if (error.code() != ErrorCode::interrupted) throw;
      return std::nullopt;
    }
  }

  void measure(StageReport& stage, const Student& student) {
    if (!o_.gate || data_.validation.empty()) return;
    try {
      measured_ = evaluate(student, on_validation_, data_.validation, "evaluating " + stage.method);
      stage.kl = measured_->kl;
      if (best_measured_) stage.change = kl_difference(*best_measured_, *measured_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::interrupted || report_.stages.size() <= fits_of(o_.methods).size())
        throw;
      report_.stopped_early = true;
    }
  }

  void offer(StageReport& stage, Student student) {
    const std::optional<double> best = best_kl();
    stage.kept = !stage.kl || !best || stage.kl->mean < *best || std::isnan(*best);
    if (!stage.kept) return;
    if (stage.kl) best_measured_ = std::move(measured_);
    best_ = std::move(student);
  }

  std::optional<double> best_kl() const {
    return best_measured_ ? std::optional(best_measured_->kl->mean) : std::nullopt;
  }

  const Teacher& teacher_;
  const QuantizationPlan& plan_;
  const CalibrationData& data_;
  const CalibrationOptions& o_;
  const RunHooks& hooks_;
  DType storage_ = model_dtype(teacher_.source());
  ModelReference on_validation_{teacher_.model(), teacher_.tape(), ModelReference::Keeps::activations};
  ModelReference on_report_{teacher_.model(), teacher_.tape(), ModelReference::Keeps::activations};
  CalibrationReport report_;
  Student best_;
  std::optional<Evaluation> measured_,
      best_measured_;  // on the validation rows: the last stage, the best one
};

}  // namespace

Calibration calibrate(const Teacher& teacher, const QuantizationPlan& plan, const CalibrationData& data,
                      const CalibrationOptions& o, const RunHooks& hooks) {
  check_input(teacher.source(), data, o);
  return Run(teacher, plan, data, o, hooks).run();
}

Calibration calibrate(const ModelSource& source, const QuantizationPlan& plan, const CalibrationData& data,
                      const CalibrationOptions& o, Tape& tape, const RunHooks& hooks) {
  check_input(source, data, o);
  const Teacher teacher(source, o.compute.value_or(compute_dtype(source.config())), o.stream_teacher, tape);
  return calibrate(teacher, plan, data, o, hooks);
}

DType compute_dtype(const ModelConfig& config) {
  return config.dtype.value_or(DType::f32) == DType::f32 ? DType::f32 : DType::bf16;
}

}  // namespace mixtape
