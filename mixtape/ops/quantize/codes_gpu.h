// Codes of quantized weights in GPU kernels: a little-endian bit stream in u32 words.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/quantize/quantize_gpu_params.h"

namespace mixtape {

// X(bits): one kernel per width.
#define MIXTAPE_CODE_WIDTHS(X, ...) \
  X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__) X(8, __VA_ARGS__)

// Codes 8*chunk .. 8*chunk + 7, the first in the lowest bits. They lie in one or two words.
MIXTAPE_DEVICE std::uint64_t load_codes(Global<const std::uint32_t> words, std::int64_t chunk, int bits) {
  const std::int64_t first = chunk * bits / 4;
  const int shift = static_cast<int>(chunk * bits % 4) * 8;
  std::uint64_t loaded = words[first];
  if (shift + kCodesAtOnce * bits > 32) loaded |= static_cast<std::uint64_t>(words[first + 1]) << 32;
  return loaded >> shift;
}
MIXTAPE_DEVICE float code_at(std::uint64_t codes, int i, int bits) {
  return static_cast<float>(static_cast<std::uint32_t>(codes >> (i * bits)) & ((1u << bits) - 1u));
}

}  // namespace mixtape
