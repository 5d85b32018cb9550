#include "mixtape/calib/student.h"

#include <set>

#include "mixtape/io/tensor_list.h"
#include "mixtape/ops/elementwise/cast.h"

namespace mixtape {

ModelConfig student_config(const ModelConfig& teacher, const QuantizationPlan& plan) {
  ModelConfig config = teacher;
  if (plan.unties_embeddings) config.tie_word_embeddings = false;
  return config;
}

Parameters load_float_tensors(const ModelSource& source, const ModelConfig& config,
                              const QuantizationPlan& plan, DType dtype, const Device& device) {
  std::set<std::string> quantized;
  for (const PlannedModule& m : plan.modules) {
    if (m.stored) quantized.insert(m.path + ".weight");
  }
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored) quantized.erase(m.source);
  }
  Parameters parameters;
  for (const ModelTensor& t : tensor_list(config)) {
    if (!quantized.contains(t.name)) parameters.dense.emplace(t.name, source.load(t.name, dtype, device));
  }
  return parameters;
}

Parameters quantize_parameters(const ModelSource& source, const Parameters& teacher,
                               const QuantizationPlan& plan, Rounding rounding, const Device& device) {
  Parameters student;
  student.dense = teacher.dense;
  for (const PlannedModule& m : plan.modules) {
    const std::string weight = m.path + ".weight";
    if (!m.stored) {
      if (m.source != weight) student.dense[weight] = teacher.dense.at(m.source);
      continue;
    }
    const Buffer w = source.load(m.source, DType::f32, device);
    student.quantized.emplace(m.path, quantize_matrix(m.source, w, *m.stored, rounding, DType::f32));
    student.dense.erase(weight);
  }
  return student;
}

Parameters with_stored_scales(const Parameters& student, DType dtype, const Device& device) {
  Tape tape(device);
  Parameters stored = student;
  for (auto& [path, q] : stored.quantized) {
    q.scales = cast(tape.constant(q.scales), dtype).value();
    q.biases = cast(tape.constant(q.biases), dtype).value();
  }
  tape.encoder().commit_and_wait();
  return stored;
}

void write_student(AtomicDirectory& output, const ModelSource& source, const Parameters& student,
                   const QuantizationPlan& plan, DType dtype) {
  TensorProvider tensors;
  tensors.quantized = [&](const PlannedModule& m) { return student.quantized.at(m.path); };
  write_quantized_model(output, source, plan, tensors, dtype);
}

}  // namespace mixtape
