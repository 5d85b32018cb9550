// The tensors that a model of a given config consists of: the one place where their names and shapes stand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mixtape/core/shape.h"
#include "mixtape/io/model_config.h"
#include "mixtape/io/model_source.h"

namespace mixtape {

enum class TensorKind {
  embedding,  // [V, D]: looked up, and the output matrix of a tied model
  matrix,     // [N, K], or stacked experts [E, N, K]
  router,     // [E, D]: stays in float
  vector,     // norms, biases, taps of convolutions, decays
};

struct ModelTensor {
  std::string name;       // with .weight or .bias
  std::string gguf_name;  // in a GGUF file
  Shape shape;
  TensorKind kind = TensorKind::vector;
  // At the start of a training from nothing: normal with this deviation; where it is 0, `value` throughout.
  double deviation = 0.0;
  float value = 0.0f;
  // GGUF stores the rows of each of so many heads in pairs (i, i + half); 0: in order.
  std::int64_t gguf_interleaved_heads = 0;
  float gguf_offset = 0.0f;    // GGUF stores the values plus this
  bool gguf_is_decay = false;  // GGUF stores -e^value

  // Without dimensions of 1, which GGUF files leave out: of taps, and of a router for one expert.
  Shape gguf_shape() const;
  // What GGUF stores for a value, and the value of what it stores.
  float to_gguf(float value) const;
  float from_gguf(float stored) const;
};

// In the order of the forward pass.
std::vector<ModelTensor> tensor_list(const ModelConfig& config);

// The source's tensors that are none of these: nothing reads them. Scales and biases of a quantized matrix
// belong to it. Sorted.
std::vector<std::string> foreign_tensors(const ModelSource& source, const std::vector<ModelTensor>& tensors);

// "model.layers.0.mlp.up_proj" for "model.layers.0.mlp.up_proj.weight".
std::string module_path(const std::string& tensor_name);
// 12 for "model.layers.12.mlp.up_proj", of a tensor too; nothing for what belongs to no decoder layer.
std::optional<std::int64_t> layer_of(const std::string& name);
// "mlp.up_proj": the name behind its layer's number; all of it for what belongs to no decoder layer.
std::string name_in_layer(const std::string& name);

}  // namespace mixtape
