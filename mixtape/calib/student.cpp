#include "mixtape/calib/student.h"

#include "mixtape/calib/student_tensors.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {

ModelConfig student_config(const ModelConfig& teacher, const QuantizationPlan& plan) {
  ModelConfig config = teacher;
  if (plan.unties_embeddings) config.tie_word_embeddings = false;
  return config;
}

Student unfitted_student(const Teacher& teacher, const QuantizationPlan& plan) {
  Student student{student_config(teacher.model().config(), plan), {}};
  for (const ModelTensor& t : tensor_list(student.config)) {
    const PlannedModule* module = t.name.ends_with(".weight") ? plan.find(module_path(t.name)) : nullptr;
    if (module && module->stored) continue;
    student.parameters.dense.emplace(t.name, teacher.tensor(module ? module->source : t.name));
  }
  return student;
}

Buffer copy_of(const Buffer& b) {
  CommandEncoder encoder(b.device());
  const Buffer copy = b.device().alloc_uninitialized(b.dtype(), b.shape());
  encoder.copy(b, copy);
  encoder.commit_and_wait();
  return copy;
}

Student copy_of(const Student& student) {
  Student copy = student;
  for (auto& [path, q] : copy.parameters.quantized) {
    std::vector<Buffer> buffers = codec_of(q).buffers(q);
    for (std::size_t i = 1; i < buffers.size(); ++i) buffers[i] = copy_of(buffers[i]);
    q = codec_of(q).weight(buffers, format_of(q));
  }
  if (student.floats_train) {
    for (auto& [name, value] : copy.parameters.dense) value = copy_of(value);
  }
  return copy;
}

void renew_scales(Student& student) {
  for (auto& [path, q] : student.parameters.quantized)
    q = codec_of(q).weight(codec_of(q).buffers(q), format_of(q));
}

void own_floats(Student& student, const Teacher& teacher, const QuantizationPlan& plan) {
  for (auto& [name, value] : student.parameters.dense) {
    const PlannedModule* module = name.ends_with(".weight") ? plan.find(module_path(name)) : nullptr;
    value = teacher.source().load(module ? module->source : name, DType::f32, teacher.tape().device());
  }
  student.floats_train = true;
}

Parameters with_stored_values(const Student& student, DType dtype) {
  Parameters stored = student.parameters;
  for (auto& [path, q] : stored.quantized) q = codec_of(q).stored(path, q, dtype);
  if (student.floats_train) {
    for (auto& [name, value] : stored.dense) value = stored_as(dtype, name, value);
  }
  return stored;
}

TensorProvider tensors_of(const Student& student) {
  const Parameters& p = student.parameters;
  TensorProvider tensors;
  tensors.quantized = [&p](const PlannedModule& m) { return p.quantized.at(m.path); };
  if (student.floats_train) {
    tensors.dense = [&p](const std::string& name) { return p.dense.at(name); };
  }
  return tensors;
}

void write_student(AtomicDirectory& output, const ModelSource& source, const Student& student,
                   const QuantizationPlan& plan, DType dtype, const RunHooks& hooks) {
  write_quantized_model(output, source, plan, tensors_of(student), dtype, hooks);
}

}  // namespace mixtape
