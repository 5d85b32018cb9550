#include "mixtape/calib/student.h"

#include "mixtape/io/tensor_list.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {

ModelConfig student_config(const ModelConfig& teacher, const QuantizationPlan& plan) {
  ModelConfig config = teacher;
  if (plan.unties_embeddings) config.tie_word_embeddings = false;
  return config;
}

Student fit_student(const Teacher& teacher, const QuantizationPlan& plan, const InitialFit& fit,
                    bool floats_train, const RunHooks& hooks) {
  const ModelSource& source = teacher.source();
  const Device& device = teacher.tape().device();
  Student student{student_config(teacher.model().config(), plan), {}, floats_train};
  for (const ModelTensor& t : tensor_list(student.config)) {
    hooks.throw_if_stopped("fitting");
    const PlannedModule* module = t.name.ends_with(".weight") ? plan.find(module_path(t.name)) : nullptr;
    const std::string from = module ? module->source : t.name;
    if (module && module->stored) {
      const Buffer w = source.load(from, DType::f32, device);
      student.parameters.quantized.emplace(module->path, fit(*module, w, Buffer()));
    } else {
      student.parameters.dense.emplace(
          t.name, floats_train ? source.load(from, DType::f32, device) : teacher.tensor(from));
    }
  }
  return student;
}

Parameters with_stored_values(const Student& student, DType dtype) {
  Parameters stored = student.parameters;
  for (auto& [path, q] : stored.quantized) {
    std::vector<Buffer> buffers = affine_codec().buffers(q);
    const std::vector<WeightPart> parts = affine_codec().parts(affine_codec().shape(q), q.format, dtype);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (is_value(parts[i].dtype)) buffers[i] = stored_as(dtype, path + parts[i].suffix, buffers[i]);
    }
    q = affine_codec().weight(buffers, q.format);
  }
  if (student.floats_train) {
    for (auto& [name, value] : stored.dense) value = stored_as(dtype, name, value);
  }
  return stored;
}

void write_student(AtomicDirectory& output, const ModelSource& source, const Student& student,
                   const QuantizationPlan& plan, DType dtype, const RunHooks& hooks) {
  const Parameters& p = student.parameters;
  TensorProvider tensors;
  tensors.quantized = [&](const PlannedModule& m) { return p.quantized.at(m.path); };
  if (student.floats_train) {
    tensors.dense = [&](const std::string& name) { return p.dense.at(name); };
  }
  write_quantized_model(output, source, plan, tensors, dtype, hooks);
}

}  // namespace mixtape
