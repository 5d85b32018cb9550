// Quantized matrices, and directories of them that mlx-lm loads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mixtape/core/run_hooks.h"
#include "mixtape/io/atomic_file.h"
#include "mixtape/io/model_source.h"
#include "mixtape/ops/fit_blocks/fit_blocks.h"
#include "mixtape/ops/quantize/quantized_weight.h"
#include "mixtape/quant/quantization_config.h"
#include "mixtape/quant/quantization_plan.h"
#include "mixtape/runtime/buffer.h"

namespace mixtape {

// Plain rounding of `w` [..., N, K]. Errors begin with `name` and name row and column. Blocks have neither a rounding nor
// a dtype to choose.
QuantizedWeight quantize_matrix(const std::string& name, const Buffer& w, const WeightFormat& format,
                                Rounding rounding, DType scale_dtype);
// `w` f32 in blocks (ops/fit_blocks/fit_blocks.h), with scales and biases per group.
QuantizedWeight quantize_blocks(const Buffer& w, const Buffer& importance, BlockType type, BlockFit how);

// Where the tensors of a written directory come from, asked for one by one in the order of writing.
struct TensorProvider {
  std::function<QuantizedWeight(const PlannedModule&)> quantized;
  std::function<Buffer(const std::string& tensor)> dense;  // by its name there; null: loaded from the source
};

// `b` rounded to the value dtype `dtype` as a file stores it, on b's device. Throws invalid_argument, naming
// the tensor and position, for a finite value that overflows it.
Buffer stored_as(DType dtype, const std::string& name, const Buffer& b);

// The dtype of scales, biases and float tensors: what config.json says, else what the embedding is stored in.
DType model_dtype(const ModelSource& source);

// What write_quantized_model refuses of a model and its plan, before any work: throws invalid_argument, naming the first
// module that a directory cannot hold, one in GGUF's blocks, and not_supported for what mlx-lm does not compute.
void refuse_for_mlx(const ModelSource& source, const QuantizationPlan& plan);

// Writes weights, config.json and the source's tokenizer files into `output` and commits it. Scales, biases
// and float tensors are rounded to `dtype`. Throws invalid_argument for a matrix that differs from the plan
// or a value that overflows `dtype`, naming the tensor; interrupted between tensors.
void write_quantized_model(AtomicDirectory& output, const ModelSource& source, const QuantizationPlan& plan,
                           const TensorProvider& tensors, DType dtype, const RunHooks& hooks = {});

// The same with plain rounding, one matrix in memory at a time.
void write_rounded_model(AtomicDirectory& output, const ModelSource& source, const QuantizationPlan& plan,
                         Rounding rounding, DType dtype, const Device& device, const RunHooks& hooks = {});

// The quantized modules of a model directory; none if its config says nothing of quantization. A module that
// the config names is stored as it says; any other is quantized iff its scales are there, and then bits and
// group size follow from its shapes.
class QuantizedReader {
 public:
  // Throws format for a key of the config that matches no module. `source` must outlive the reader.
  explicit QuantizedReader(const ModelSource& source);

  // Throws format for a module whose config contradicts its tensors.
  bool is_quantized(const std::string& path) const;
  // `shape` is the weight's, [..., N, K]. Throws format naming the tensor, found and wanted, if the stored
  // shapes or the config's bits and group size disagree with it.
  AffineParams format(const std::string& path, const Shape& shape) const;
  QuantizedWeight load(const std::string& path, const Shape& shape, DType scale_dtype,
                       const Device& device) const;

 private:
  const ModelSource& source_;
  std::optional<QuantizationConfig> config_;
};

}  // namespace mixtape
