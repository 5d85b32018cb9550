#include "cli/finite_weights.h"

#include <string_view>

#include "mixtape/io/tensor_view.h"

namespace mixtape::cli {
namespace {

// What is wrong with the tensor, or nothing.
std::string fault_of(const std::string& tensor, const Buffer& values) {
  try {
    check_finite(tensor, values);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string fault_of(const ModelSource& source, const std::string& tensor) {
  const DType stored = source.stored_dtype(tensor);
  if (stored == DType::u32) return "";  // codes
  return fault_of(tensor, source.load(tensor, stored, Device::cpu()));
}

void refuse(const ModelSource& source, const std::string& fault) {
  if (!fault.empty()) fail(ErrorCode::format, source.where(), ": ", fault);
}

// As errors of fits and ops say it.
bool is_about_numbers(const Error& error) {
  const std::string_view text = error.what();
  return text.find("finite") != text.npos || text.find("expected numbers") != text.npos;
}

}  // namespace

std::string weight_fault(const ModelSource& source) {
  for (const std::string& tensor : source.names()) {
    const std::string fault = fault_of(source, tensor);
    if (!fault.empty()) return "; " + fault;
  }
  return "";
}

void require_finite_floats(const ModelSource& source, const QuantizationPlan& plan) {
  std::vector<std::string> tensors = plan.others;
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored) tensors.push_back(m.source);
  }
  for (const std::string& tensor : tensors) refuse(source, fault_of(source, tensor));
}

void require_finite(const ModelSource& source, const QuantizationPlan& plan, const TensorProvider& tensors) {
  require_finite_floats(source, plan);
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored) continue;
    const QuantizedWeight weight = tensors.quantized(m);
    refuse(source, fault_of(m.path + ".scales", weight.scales));
    refuse(source, fault_of(m.path + ".biases", weight.biases));
  }
}

void blame_weights(const ModelSource& source, const Error& error) {
  const std::string fault = is_about_numbers(error) ? weight_fault(source) : "";
  if (fault.empty()) throw;
  fail(ErrorCode::format, source.where(), ": ", fault.substr(2));
}

void blame_logits(const ModelSource& source, const Error& error) {
  if (error.code() != ErrorCode::format) throw;
  fail(error.code(), source.where(), ": ", error.what(), weight_fault(source));
}

}  // namespace mixtape::cli
