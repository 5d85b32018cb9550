#include "mixtape/calib/initialize.h"

#include "mixtape/core/random.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape {

Parameters initial_parameters(const ModelConfig& config, std::uint64_t seed, const Device& device) {
  Parameters parameters;
  std::uint64_t stream = seed;
  for (const ModelTensor& t : tensor_list(config)) {
    ++stream;
    std::vector<float> values(static_cast<std::size_t>(t.shape.numel()), t.value);
    for (std::size_t i = 0; i < values.size() && t.deviation > 0.0; ++i)
      values[i] = static_cast<float>(t.deviation * normal(stream, i));
    parameters.dense.emplace(t.name, Buffer::from(device, t.shape, values));
  }
  return parameters;
}

}  // namespace mixtape
