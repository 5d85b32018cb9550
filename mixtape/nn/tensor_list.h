// The tensors that a model of a given config consists of.
#pragma once

#include <string>
#include <vector>

#include "mixtape/core/shape.h"
#include "mixtape/io/model_config.h"

namespace mixtape {

enum class TensorKind {
  embedding,  // [V, D]: looked up, and the output matrix of a tied model
  matrix,     // [N, K], or stacked experts [E, N, K]
  router,     // [E, D]: stays in float
  vector,     // norms and biases
};

struct ModelTensor {
  std::string name;  // with .weight or .bias
  Shape shape;
  TensorKind kind;
};

// In the order of the forward pass.
std::vector<ModelTensor> tensor_list(const ModelConfig& config);

// "model.layers.0.mlp.up_proj" for "model.layers.0.mlp.up_proj.weight".
std::string module_path(const std::string& tensor_name);

}  // namespace mixtape
