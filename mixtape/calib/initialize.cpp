#include "mixtape/calib/initialize.h"

#include <cmath>

#include "mixtape/core/random.h"
#include "mixtape/nn/tensor_list.h"

namespace mixtape {

Parameters initial_parameters(const ModelConfig& config, std::uint64_t seed, const Device& device) {
  const double residual = 1.0 / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
  Parameters parameters;
  std::uint64_t stream = seed;
  for (const ModelTensor& t : tensor_list(config)) {
    ++stream;
    std::vector<float> values(static_cast<std::size_t>(t.shape.numel()),
                              t.name.ends_with(".bias") ? 0.0f : 1.0f);
    if (t.kind != TensorKind::vector) {
      const bool writes_residual = t.name.ends_with("o_proj.weight") || t.name.ends_with("down_proj.weight");
      const double deviation = 0.02 * (writes_residual ? residual : 1.0);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(deviation * normal(stream, i));
    }
    parameters.dense.emplace(t.name, Buffer::from(device, t.shape, values));
  }
  return parameters;
}

}  // namespace mixtape
