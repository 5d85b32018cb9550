// Rotary settings of GGUF files, their keys and tensors, both ways.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mixtape/io/json_fwd.h"

namespace mixtape {

class GgufKeys;
class GgufMetadata;
struct Architecture;
struct GgufArchitecture;
struct ModelConfig;

// Of the keys below "<architecture>.", those that are read here.
bool is_gguf_rope_key(std::string_view key);
bool is_gguf_rope_tensor(std::string_view name);

// Adds rope_theta, rope_scaling and, where a part of each head is rotated, partial_rotary_factor to a config.json.
// Tensors of divisors are accepted where they follow from the llama3 rule or are longrope's. Throws not_supported by
// name for other scaling, format for missing or contradictory values.
void read_gguf_rope(const GgufKeys& keys, const Architecture& architecture, std::int64_t head_dim,
                    Json& config);

// Adds the same to a file's metadata. Throws not_supported, beginning with `where`, for what llama.cpp does not compute.
void add_gguf_rope(const ModelConfig& config, const GgufArchitecture& written, const std::string& where,
                   GgufMetadata& metadata);

// A tensor of what rotary frequencies are divided by, [rotary dims / 2].
struct GgufRopeTensor {
  std::string name;
  std::vector<float> divisors;
};
std::vector<GgufRopeTensor> gguf_rope_tensors(const ModelConfig& config);

}  // namespace mixtape
