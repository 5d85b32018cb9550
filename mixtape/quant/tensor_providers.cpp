#include "mixtape/quant/tensor_providers.h"

#include <memory>

#include "mixtape/core/error.h"

namespace mixtape {

const QuantizedWeight& checked_weight(const QuantizedWeight& q, const PlannedModule& m) {
  require(format_of(q) == *m.stored, m.path, ": got ", format_of(q).name(), ", the plan says ",
          m.stored->name());
  return q;
}

TensorProvider rounded_tensors(const ModelSource& source, Rounding rounding, DType scale_dtype,
                               const Device& device) {
  return {[&source, rounding, scale_dtype, device](const PlannedModule& m) {
            const Buffer w = source.load(m.source, source.stored_dtype(m.source), device);
            return quantize_matrix(m.source, w, *m.stored, rounding, scale_dtype);
          },
          nullptr};
}

QuantizationPlan plan_of_stored(const ModelSource& source) {
  const QuantizedReader reader(source);
  QuantizationPlan plan;
  const std::vector<ModelTensor> tensors = tensor_list(source.config());
  for (const ModelTensor& t : tensors) {
    const std::string path = module_path(t.name);
    if (!source.has(t.name)) fail(ErrorCode::format, source.where(), ": tensor '", t.name, "' is missing");
    const bool is_weight = t.name.ends_with(".weight");
    StoredAs stored;
    if (is_weight && reader.is_quantized(path)) stored = reader.format(path, t.shape);
    if (!stored && source.shape(t.name) != t.shape) {
      fail(ErrorCode::format, source.where(), ": tensor '", t.name, "' is ", source.shape(t.name),
           ", expected ", t.shape);
    }
    if (is_weight) {
      plan.modules.push_back({path, t.name, t.shape, t.kind, stored, ""});
    } else {
      plan.others.push_back(t.name);
    }
  }
  plan.left_out = foreign_tensors(source, tensors);
  return plan;
}

TensorProvider stored_tensors(const ModelSource& source) {
  const auto reader = std::make_shared<QuantizedReader>(source);
  return {
      [reader](const PlannedModule& m) { return reader->load(m.path, m.shape, DType::f32, Device::cpu()); },
      nullptr};
}

}  // namespace mixtape
