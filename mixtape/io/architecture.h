// What mixtape knows of one model type. Each file of io/architectures/ registers one; nothing else names a
// type.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mixtape/io/json_fwd.h"

namespace mixtape {

class ConfigReader;
class GgufKeys;
struct ModelConfig;

struct Architecture {
  std::string model_type;  // of config.json
  std::string class_name;  // the entry of "architectures" in config.json
  std::string gguf = "";   // general.architecture; empty: GGUF files store such a model as another type
  // GGUF stores the rows of each head of q and k in pairs (i, i + half of the head).
  bool gguf_interleaves_heads = false;
  std::string gguf_mlp_norm = "ffn_norm";  // how they name the norm before the MLP, behind "blk.0."
  // The type's own keys, and of those that are refused because they would change the model (refused_keys()) the ones
  // that it reads.
  std::vector<std::string_view> reads = {};
  // Modules whose weights Hugging Face stores less 1; MLX and GGUF files, and everything here, have the weights
  // themselves. A name stands for every path that ends with it.
  std::vector<std::string_view> zero_centred = {};
  // Hugging Face stores experts as io/interleaved_experts.h says.
  bool interleaves_experts = false;
  // mlx-lm and llama.cpp have whole pairs between yarn's bounds and run every file of the type so: with `truncate` false
  // one is written all the same, and differs there. A GGUF file does not say which it was: it is read as llama.cpp does.
  bool others_round_yarn = false;
  // Keys that change nothing, beside those of every type.
  std::vector<std::string_view> harmless = {};
  // Keys that are neither read nor harmless are told of and passed over, of types whose files carry all sorts of them;
  // else they are refused.
  bool passes_over_unknown = false;
  // model_type of directories whose text part is such a model, and, as JSON, what that part leaves to defaults.
  std::string multimodal = "";
  std::string text_defaults = "{}";
  // Of the keys "<gguf>.<key>", those that read_gguf reads.
  std::vector<std::string_view> gguf_keys = {};

  // Reads what is the type's own, config.layers above all. What all types share is read already.
  void (*read)(const ConfigReader& in, ModelConfig& config) = nullptr;
  // Adds what mlx-lm's class wants to a config.json; throws not_supported for what the class cannot express.
  void (*write_mlx)(const ModelConfig& config, Json& out, const std::string& where) = nullptr;
  // Adds to a config.json what the type's own keys and tensors say.
  void (*read_gguf)(const GgufKeys& keys, Json& config) = nullptr;
};

// Before main, at namespace scope of the type's file.
bool register_architecture(const Architecture& architecture);

// By model_type, or by that of multimodal directories. Null where there is none.
const Architecture* find_architecture(std::string_view model_type);
const Architecture* find_gguf_architecture(std::string_view gguf);
// By model type.
std::vector<const Architecture*> architectures();
// "llama, qwen3": the model types, or the GGUF names, for messages.
std::string architecture_names();
std::string gguf_architecture_names();

}  // namespace mixtape
