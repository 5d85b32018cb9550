// How models of a type are written as GGUF files. Each file of io/architectures/ registers its own; types without have
// no such files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mixtape/io/json_fwd.h"

namespace mixtape {

struct ModelConfig;

// A key "<architecture>.<key>" and the member of config.json that holds the same.
struct GgufKey {
  std::string_view key;
  const char* config;
};

inline std::vector<std::string_view> names_of(const std::vector<GgufKey>& keys) {
  std::vector<std::string_view> names;
  for (const GgufKey& key : keys) names.push_back(key.key);
  return names;
}

struct GgufArchitecture {
  std::string name;               // general.architecture
  bool has_rope_freqs = false;    // llama.cpp reads a tensor of divisors of the rotary frequencies
  bool has_rope_factors = false;  // and, of longrope, one for short and one for long sequences
  bool has_partial_rope = false;  // llama.cpp rotates a part of each head, by rope.dimension_count
  // llama.cpp gives each token several positions, which are alike in text, and wants to know which pairs turn by which.
  std::vector<std::int32_t> rope_sections = {};
  std::vector<GgufKey> keys = {};   // the type's own: whole numbers
  std::vector<GgufKey> reals = {};  // and real ones
  // Adds to a config.json what it leaves to defaults of these keys; throws not_supported for what llama.cpp does not
  // compute.
  void (*write)(const ModelConfig& config, Json& out, const std::string& where) = nullptr;
};

// Before main, at namespace scope of the type's file.
bool register_gguf_architecture(const std::string& model_type, const GgufArchitecture& architecture);

// Null where there is none.
const GgufArchitecture* find_gguf_architecture_of(const std::string& model_type);

}  // namespace mixtape
