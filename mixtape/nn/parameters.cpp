#include "mixtape/nn/parameters.h"

#include "mixtape/io/tensor_list.h"
#include "mixtape/quant/tensor_providers.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {

std::size_t Parameters::bytes() const {
  std::size_t total = 0;
  for (const auto& [name, buffer] : dense) total += buffer.bytes();
  for (const auto& [path, q] : quantized) {
    for (const Buffer& part : codec_of(q).buffers(q)) total += part.bytes();
  }
  return total;
}

namespace {

void check_shape(const ModelSource& source, const std::string& name, const Shape& wanted) {
  if (!source.has(name)) fail(ErrorCode::format, source.where(), ": tensor '", name, "' is missing");
  const Shape found = source.shape(name);
  if (!(found == wanted)) {
    fail(ErrorCode::format, source.where(), ": tensor '", name, "' is ", found, ", expected ", wanted);
  }
}

}  // namespace

Parameters load_parameters(const ModelSource& source, const ModelConfig& config, DType dtype,
                           const Device& device, Blocks blocks) {
  const bool keeps_blocks = blocks == Blocks::kept && device.caps().has_host_memory;
  const QuantizedReader reader(source);
  Parameters parameters;
  for (const ModelTensor& t : tensor_list(config)) {
    const std::string path = module_path(t.name);
    if (t.name.ends_with(".weight") && reader.is_quantized(path)) {
      parameters.quantized.emplace(path, reader.load(path, t.shape, dtype, device));
      continue;
    }
    check_shape(source, t.name, t.shape);
    if (auto stored = keeps_blocks ? load_stored_blocks(source, t) : std::nullopt) {
      parameters.quantized.emplace(path, *stored);
      continue;
    }
    parameters.dense.emplace(t.name, source.load(t.name, dtype, device));
  }
  return parameters;
}

}  // namespace mixtape
