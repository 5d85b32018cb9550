// The mixes of GGUF types that llama.cpp's users know, "q4_k_m": which type each matrix of a model has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mixtape/quant/quantization_plan.h"

namespace mixtape {

struct GgufMix {
  std::string name;
  std::uint32_t file_type;  // the number under general.file_type
  BlockType base;           // of most matrices
};

// From the smallest to the largest.
const std::vector<GgufMix>& gguf_mixes();
// Throws invalid_argument for a name that is none of them.
const GgufMix& gguf_mix(const std::string& name);

// Every matrix of `config` but routers in the type that llama-quantize gives it. `has_importance`: it is to be weighted by
// an importance matrix, with which llama-quantize takes larger types for a few matrices of q4_0 and q5_0. Rows that are
// no whole blocks get another type by plan_quantization.
QuantizationOptions mix_options(const GgufMix& mix, const ModelConfig& config, bool has_importance);

}  // namespace mixtape
