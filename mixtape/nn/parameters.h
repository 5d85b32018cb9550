// The tensors of one model as buffers: what is trained, evaluated and written.
#pragma once

#include <map>
#include <string>

#include "mixtape/io/model_config.h"
#include "mixtape/io/model_source.h"
#include "mixtape/quant/quantized_model.h"
#include "mixtape/runtime/buffer.h"

namespace mixtape {

// Copies share their buffers.
struct Parameters {
  std::map<std::string, Buffer> dense;               // by tensor name
  std::map<std::string, QuantizedWeight> quantized;  // by module path
  // Codes that learn, f32 [..., N, K] in units of a code: used instead of those of the quantized matrix of that path.
  std::map<std::string, Buffer> latent = {};

  std::size_t bytes() const;
};

// What becomes of a GGUF file's blocks: floats, or where the device has host memory affine codes with f32 scales, which
// take less room and are read in less time where a text grows token by token.
enum class Blocks { decoded, kept };

// All tensors of the model, float ones in `dtype`; a quantized directory gives quantized matrices, whose
// scales and biases are in `dtype` too. Throws format for a tensor that the source lacks or whose shape
// differs, naming file, tensor, found and wanted.
Parameters load_parameters(const ModelSource& source, const ModelConfig& config, DType dtype,
                           const Device& device, Blocks blocks = Blocks::decoded);

}  // namespace mixtape
