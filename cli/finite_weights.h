// Weights that are no finite numbers: named, where a run would fail by what follows from them.
#pragma once

#include <string>

#include "mixtape/core/error.h"
#include "mixtape/io/model_source.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape::cli {

// "; tensor 'model.norm.weight': value at row 0, column 7 is nan, expected a finite number": of the first weight that is
// NaN or infinite; empty where none is. To end an error with.
std::string weight_fault(const ModelSource& source);

// Throws format, naming the model and the tensor, for such a weight in what stays in float: no fit looks at it.
void require_finite_floats(const ModelSource& source, const QuantizationPlan& plan);

// The same for all that is copied as it is stored: scales and biases, as `tensors` give them, too.
void require_finite(const ModelSource& source, const QuantizationPlan& plan, const TensorProvider& tensors);

// While `error` of sampling is handled: throws it, one of logits that are no numbers with the model and such a weight.
[[noreturn]] void blame_logits(const ModelSource& source, const Error& error);

// While `error` is handled: throws it, or where it is about numbers and such a weight is behind it, one of the model.
[[noreturn]] void blame_weights(const ModelSource& source, const Error& error);

// What `work` on the model gives.
template <class Work>
auto blaming_weights(const ModelSource& source, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    blame_weights(source, error);
  }
}

}  // namespace mixtape::cli
