#include "mixtape/calib/calibrate.h"

namespace mixtape {
namespace {

void check_input(const ModelSource& source, const CalibrationData& data, const CalibrationOptions& o) {
  require(o.evaluation_batch > 0, "calibrate: evaluation_batch is ", o.evaluation_batch,
          ", expected 1 or more");
  require(static_cast<bool>(o.method.fit), "calibrate: the method has no initial fit");
  require(!data.report.empty(), "calibrate: found no report row, expected at least one");
  const std::int64_t vocabulary = source.config().vocab_size;
  for (const auto* rows : {&data.train, &data.validation, &data.report}) check_ids(*rows, vocabulary);
  if (o.method.check) o.method.check(source, data);
}

// Null where the caller stops it: what was trained is not lost for that.
std::optional<Evaluation> evaluate_unless_stopped(const Student& student, const Teacher& teacher,
                                                  DType storage, std::span<const TokenRow> rows,
                                                  std::int64_t batch_size, const RunHooks& hooks) {
  try {
    return evaluate_stored(student, teacher, storage, rows, batch_size, hooks, "evaluating result");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::interrupted) throw;
    return std::nullopt;
  }
}

}  // namespace

Evaluation evaluate_stored(const Student& student, const Teacher& teacher, DType storage,
                           std::span<const TokenRow> rows, std::int64_t batch_size, const RunHooks& hooks,
                           const std::string& stage) {
  Tape& tape = teacher.tape();
  const Parameters stored = with_stored_values(student, storage);
  TapeWeights weights(tape, stored, Trainable::nothing);
  const CausalLm model(student.config, weights, teacher.compute());
  return evaluate(model, &teacher.model(), tape, rows, batch_size, hooks, stage);
}

Calibration calibrate(const Teacher& teacher, const QuantizationPlan& plan, const CalibrationData& data,
                      const CalibrationOptions& o, const RunHooks& hooks) {
  check_input(teacher.source(), data, o);
  const DType storage = model_dtype(teacher.source());
  Calibration c;
  CalibrationReport& r = c.report;
  c.student = fit_student(teacher, plan, o.method.fit, o.method.trains_floats, hooks);
  r.initial = evaluate_stored(c.student, teacher, storage, data.report, o.evaluation_batch, hooks,
                              "evaluating initial fit");
  if (!o.method.improve) {
    r.result = r.initial;
    return c;
  }
  r.training = o.method.improve({teacher, plan, data, hooks}, c.student);
  r.result = evaluate_unless_stopped(c.student, teacher, storage, data.report, o.evaluation_batch, hooks);
  r.stopped_early = r.training.stopped_early || !r.result;
  return c;
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
