// Weights, config and tokenizer files of one model, whatever they are stored in.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mixtape/core/dtype.h"
#include "mixtape/core/shape.h"
#include "mixtape/io/json_fwd.h"
#include "mixtape/io/model_config.h"
#include "mixtape/runtime/buffer.h"
#include "mixtape/runtime/device.h"

namespace mixtape {

// Tensor names are Hugging Face's ("model.layers.0.self_attn.q_proj.weight"), but for experts, which are
// always stacked and named as MLX names them:
//   model.layers.i.mlp.switch_mlp.{gate,up}_proj.weight [E,F,D], ....down_proj.weight [E,D,F]
// In a quantized MLX directory `<path>.weight` (u32), `<path>.scales` and `<path>.biases` are names like any
// other. Methods that take a name throw format, naming file and tensor, when there is none of that name.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  virtual std::string where() const = 0;  // the path, for messages
  virtual const Json& config_json() const = 0;
  // What is unusual about the files and how it was read, one line each, for people.
  virtual std::vector<std::string> notices() const { return {}; }
  virtual ModelConfig config() const;  // parses config_json() unless overridden

  virtual std::vector<std::string> names() const = 0;  // sorted
  virtual bool has(const std::string& name) const = 0;
  virtual Shape shape(const std::string& name) const = 0;
  // The element type in the file: f32 (also for f64 and for block-quantized GGUF types), bf16, f16 or u32.
  virtual DType stored_dtype(const std::string& name) const = 0;
  // Values as f32, bf16 or f16, rounded once; packed codes as u32. Any other pairing is refused.
  virtual Buffer load(const std::string& name, DType wanted, const Device& device) const = 0;

  // Parsed tokenizer.json, and what read_tokenizer_config gives: tokenizer_config.json with special tokens and
  // chat templates that stand in files of their own; an empty object if there is nothing.
  virtual Json tokenizer_json() const = 0;
  virtual Json tokenizer_config_json() const = 0;
  // Parsed generation_config.json; null if there is none.
  virtual Json generation_config_json() const;
  // Name -> contents of what a written directory takes along unchanged: tokenizer, chat template, licence.
  virtual std::map<std::string, std::string> extra_files() const = 0;
};

// A Hugging Face or MLX directory, or a GGUF file, whatever its name.
std::unique_ptr<ModelSource> open_model(const std::filesystem::path& path);

}  // namespace mixtape
