#include "mixtape/calib/calibrate.h"

#include <algorithm>
#include <cmath>

#include "mixtape/calib/calibration_state.h"
#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/kept_states.h"
#include "mixtape/calib/partners.h"
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

// An error here is one of all processes of the run.
template <class Work>
auto telling_others(const CalibrationOptions& o, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (o.devices && o.devices->processes()) o.devices->processes()->fail(error.code(), error.what());
    throw;
  }
}

// One run through all methods.
class Run {
 public:
  Run(const Teacher& teacher, const QuantizationPlan& plan, const CalibrationData& data,
      const CalibrationOptions& options, const RunHooks& hooks)
      : teacher_(teacher), plan_(plan), data_(data), o_(options), hooks_(hooks) {}

  Calibration run() {
    const std::span<const Method> fits = fits_of(o_.methods);
    const bool fits_only = fits.size() == o_.methods.size();
    const KeptStage kept(hooks_, "methods", [this](const std::filesystem::path& file) { s_.save(file); });
    if (const auto file = kept.find()) s_ = CalibrationState::load(*file, teacher_, plan_);
    if (s_.report.stages.empty()) {
      fit(fits);
      finish_stages(kept, 0);
    }
    for (std::size_t i = s_.report.stages.size(); i < o_.methods.size() && !s_.report.stopped_early; ++i) {
      improve(i);
      if (!s_.report.stopped_early) finish_stages(kept, i);
    }
    partners_.end();
    s_.report.result = fits_only && fits.size() == 1 ? s_.report.initial : report_unless_stopped();
    s_.report.stopped_early |= !s_.report.result;
    return {std::move(s_.report), std::move(s_.best)};
  }

 private:
  // Hooks of the stage that is next, or number i.
  RunHooks hooks_of(std::size_t i) const { return hooks_of_stage(hooks_, i); }

  // What stages from `first` on were made of is of no more use.
  void finish_stages(const KeptStage& kept, std::size_t first) const {
    if (!kept.keep()) return;
    for (std::size_t i = first; i < s_.report.stages.size(); ++i) forget(hooks_of(i), "");
  }

  void fit(std::span<const Method> fits) {
    const std::span<const TokenRow> train(data_.train);
    const auto rows = std::min(train.size(), static_cast<std::size_t>(o_.statistics_rows));
    std::vector<FittedStudent> fitted = fit_students(teacher_, plan_, fits, train.first(rows),
                                                     o_.evaluation_batch, hooks_of(0), o_.on_statistics);
    s_.report.initial =
        evaluate(fitted.front().student, on_report_, data_.report, hooks_of(0), "evaluating initial fit");
    for (std::size_t i = 0; i < fits.size(); ++i) {
      StageReport stage{fits[i].name, fitted[i].seconds, {}, {}, false, std::move(fitted[i].notes)};
      if (o_.methods.size() > 1) measure(stage, fitted[i].student);
      offer(stage, std::move(fitted[i].student));
    }
  }

  // A stopped method is judged by its own validation: nothing is measured any more.
  void improve(std::size_t i) {
    Student student = copy_of(s_.best);
    const Stopwatch watch;
    const RunHooks hooks = hooks_of(i);
    s_.report.training =
        partners_.improve(o_.methods, i, {teacher_, plan_, data_, hooks, best_kl()}, student);
    StageReport stage{o_.methods[i].name, watch.seconds(), {}, {}, false, {}};
    s_.report.stopped_early = s_.report.training.stopped_early;
    if (!s_.report.stopped_early) measure(stage, student);
    offer(stage, std::move(student));
  }

  // As a file would hold it.
  Evaluation evaluate(const Student& student, Reference& reference, std::span<const TokenRow> rows,
                      const RunHooks& hooks, const std::string& stage) {
    return evaluate_stored(student, teacher_, reference, storage_, rows, o_.evaluation_batch, hooks, stage);
  }

  // Null where the caller stops it: what was trained is not lost for that.
  std::optional<Evaluation> report_unless_stopped() {
    if (s_.report.stopped_early) return std::nullopt;
    try {
      return evaluate(s_.best, on_report_, data_.report, hooks_, "evaluating result");
    } catch (const Error& error) {
      if (error.code() != ErrorCode::interrupted) throw;
      return std::nullopt;
    }
  }

  void measure(StageReport& stage, const Student& student) {
    if (!o_.gate || data_.validation.empty()) return;
    const std::size_t i = s_.report.stages.size();
    try {
      measured_ =
          evaluate(student, on_validation_, data_.validation, hooks_of(i), "evaluating " + stage.method);
      stage.kl = measured_->kl;
      if (s_.measured) stage.change = kl_difference(*s_.measured, *measured_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::interrupted || i < fits_of(o_.methods).size()) throw;
      s_.report.stopped_early = true;
    }
  }

  void offer(StageReport& stage, Student student) {
    const std::optional<double> best = best_kl();
    stage.kept = !stage.kl || !best || stage.kl->mean < *best || std::isnan(*best);
    if (stage.kept) {
      if (stage.kl) s_.measured = std::move(measured_);
      s_.best = std::move(student);
    }
    s_.report.stages.push_back(std::move(stage));
  }

  std::optional<double> best_kl() const {
    return s_.measured ? std::optional(s_.measured->kl->mean) : std::nullopt;
  }

  const Teacher& teacher_;
  const QuantizationPlan& plan_;
  const CalibrationData& data_;
  const CalibrationOptions& o_;
  const RunHooks& hooks_;
  DType storage_ = model_dtype(teacher_.source());
  ModelReference on_validation_{teacher_.model(), teacher_.tape(), ModelReference::Keeps::activations};
  ModelReference on_report_{teacher_.model(), teacher_.tape(), ModelReference::Keeps::activations};
  Partners partners_{teacher_, o_.devices};
  CalibrationState s_;
  std::optional<Evaluation> measured_;  // the last stage on the validation rows
};

}  // namespace

Calibration calibrate(const Teacher& teacher, const QuantizationPlan& plan, const CalibrationData& data,
                      const CalibrationOptions& o, const RunHooks& hooks) {
  check_input(teacher.source(), data, o);
  require(o.devices == nullptr || o.devices->is_first(),
          "calibrate: this process is not the first of the run, expected take_part_in_calibration");
  return telling_others(o, [&] { return Run(teacher, plan, data, o, hooks).run(); });
}

void take_part_in_calibration(const Teacher& teacher, const QuantizationPlan& plan,
                              const CalibrationData& data, const CalibrationOptions& o,
                              const RunHooks& hooks) {
  check_input(teacher.source(), data, o);
  require(o.devices != nullptr && !o.devices->is_first(),
          "calibrate: this process is the first of the run, expected calibrate");
  telling_others(o, [&] {
    Partners(teacher, o.devices).follow(o.methods, {teacher, plan, data, hooks, {}});
  });
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

DType common_compute_dtype(const std::vector<const ModelSource*>& models) {
  const bool one_is = std::any_of(models.begin(), models.end(), [](const ModelSource* m) {
    return compute_dtype(m->config()) == DType::f32;
  });
  return one_is ? DType::f32 : DType::bf16;
}

}  // namespace mixtape
