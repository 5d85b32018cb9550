#include "mixtape/calib/calibration_state.h"

#include "mixtape/calib/state_file.h"

namespace mixtape {
namespace {

constexpr const char* kInitial = "initial";    // figures of the first fit on the report rows
constexpr const char* kMeasured = "measured";  // of the best student on the validation rows
const std::string kStudent = "student/", kFloatTensor = "float/";

nlohmann::json to_json(const KlStatistics& s) {
  return {s.mean, s.median, s.p95, s.p99, s.max, s.mean_error, s.p1, s.p5, s.p999};
}

KlStatistics kl_statistics(const nlohmann::json& json) {
  const auto at = [&](std::size_t i) { return number_of(json.at(i)); };
  return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8)};
}

nlohmann::json to_json(const StageReport& s) {
  nlohmann::json json = {{"method", s.method}, {"seconds", s.seconds}, {"kept", s.kept}, {"notes", s.notes}};
  if (s.kl) json["kl"] = to_json(*s.kl);
  if (s.change) json["change"] = {s.change->value, s.change->error};
  return json;
}

StageReport stage_report(const nlohmann::json& json) {
  StageReport s;
  json.at("method").get_to(s.method);
  json.at("seconds").get_to(s.seconds);
  json.at("kept").get_to(s.kept);
  json.at("notes").get_to(s.notes);
  if (json.contains("kl")) s.kl = kl_statistics(json.at("kl"));
  if (json.contains("change"))
    s.change = {number_of(json.at("change").at(0)), number_of(json.at("change").at(1))};
  return s;
}

Student student_of(const SafetensorsFile& file, bool floats_train, const Teacher& teacher,
                   const QuantizationPlan& plan) {
  Student student = unfitted_student(teacher, plan);
  const Device& device = teacher.tape().device();
  for (const PlannedModule& m : plan.modules) {
    if (m.stored) student.parameters.quantized.emplace(m.path, weight_of(file, kStudent + m.path, m, device));
  }
  student.floats_train = floats_train;
  if (!floats_train) return student;
  for (auto& [name, value] : student.parameters.dense)
    value = load(kFloatTensor + name, file.at(kFloatTensor + name), DType::f32, device);
  return student;
}

}  // namespace

void CalibrationState::save(const std::filesystem::path& file) const {
  StateFile state;
  nlohmann::json stages = nlohmann::json::array();
  for (const StageReport& s : report.stages) stages.push_back(to_json(s));
  state.figures = {{"stages", stages},
                   {"training", mixtape::to_json(report.training)},
                   {"floats_train", best.floats_train},
                   {"is_measured", measured.has_value()}};
  state.add(kInitial, report.initial.by_position);
  if (measured) state.add(kMeasured, measured->by_position);
  for (const auto& [path, q] : best.parameters.quantized) state.add(kStudent + path, q);
  if (best.floats_train) {
    for (const auto& [name, value] : best.parameters.dense)
      state.tensors.emplace_back(kFloatTensor + name, value);
  }
  state.save(file);
}

CalibrationState CalibrationState::load(const SafetensorsFile& file, const Teacher& teacher,
                                        const QuantizationPlan& plan) {
  CalibrationState state;
  read_figures(file, [&](const nlohmann::json& json) {
    for (const nlohmann::json& stage : json.at("stages")) state.report.stages.push_back(stage_report(stage));
    state.report.training = train_report(json.at("training"));
    if (json.at("is_measured").get<bool>()) state.measured = summarize(positions_of(file, kMeasured));
    state.best = student_of(file, json.at("floats_train").get<bool>(), teacher, plan);
  });
  state.report.initial = summarize(positions_of(file, kInitial));
  return state;
}

}  // namespace mixtape
