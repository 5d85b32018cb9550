#include "mixtape/quant/affine_of_blocks.h"

#include <algorithm>

#include "mixtape/core/error.h"
#include "mixtape/quant/tensor_providers.h"

namespace mixtape {
namespace {

constexpr std::int32_t kSmallestGroup = 32;

bool has_whole_scales(const WeightFormat& format) { return block_format(format.block).scales.is_stored(); }

template <class T>
bool holds_values(const ModelSource& source, const std::string& name) {
  const DType dtype = dtype_of<T>();
  if (source.stored_dtype(name) == dtype) return true;
  const Device cpu = Device::cpu();
  const std::vector<float> values = source.load(name, DType::f32, cpu).to_vector<float>();
  const std::vector<T> halves = source.load(name, dtype, cpu).template to_vector<T>();
  return std::equal(values.begin(), values.end(), halves.begin(),
                    [](float value, T half) { return value == static_cast<float>(half); });
}

// Whether f16 or bf16 holds the plan's blocks and floats.
template <class T>
bool holds_all(const ModelSource& source, const QuantizationPlan& plan) {
  const bool modules_fit = std::all_of(plan.modules.begin(), plan.modules.end(), [&](const PlannedModule& m) {
    return m.stored ? affine_obstacle(*m.stored, dtype_of<T>()).empty() : holds_values<T>(source, m.source);
  });
  return modules_fit && std::all_of(plan.others.begin(), plan.others.end(),
                                    [&](const std::string& name) { return holds_values<T>(source, name); });
}

}  // namespace

std::string affine_obstacle(const WeightFormat& format, DType value) {
  if (format.group_size < kSmallestGroup)
    return str("groups of ", format.group_size, ", MLX has 32, 64 and 128");
  if (!format.is_blocks() || value == DType::f32) return "";
  if (has_whole_scales(format)) return str("its scales take f32, ", value, " does not hold them");
  return value == DType::f16 ? "" : str("its scales are f16 numbers, which ", value, " does not hold");
}

DType exact_dtype(const ModelSource& source, const QuantizationPlan& plan) {
  const bool is_bf16 = model_dtype(source) == DType::bf16;
  if (is_bf16 && holds_all<bf16>(source, plan)) return DType::bf16;
  if (holds_all<f16>(source, plan)) return DType::f16;
  if (!is_bf16 && holds_all<bf16>(source, plan)) return DType::bf16;
  return DType::f32;
}

QuantizationPlan affine_plan(QuantizationPlan plan, DType value) {
  for (PlannedModule& m : plan.modules) {
    if (!m.stored || !m.stored->is_blocks()) continue;
    const std::string obstacle = affine_obstacle(*m.stored, value);
    if (!obstacle.empty())
      fail(ErrorCode::not_supported, "'", m.path, "' is ", m.stored->name(), ": ", obstacle);
    m.stored = WeightFormat(AffineParams(*m.stored));
  }
  plan.config = config_of(plan.modules);
  return plan;
}

}  // namespace mixtape
