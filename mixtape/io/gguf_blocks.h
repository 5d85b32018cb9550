// Element types of GGUF tensors and how their blocks decode to f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>

namespace mixtape {

// The ids that files use. Values come in blocks along the innermost dimension.
enum class GgufType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
  mxfp4 = 39,
};

struct GgufTypeInfo {
  GgufType type;
  const char* name;  // as other programs spell it: "Q4_K"
  std::int64_t block_elements;
  std::int64_t block_bytes;
};

// Null for an id that is not in the enumeration; `gguf_type_name` also knows types that can't be decoded.
const GgufTypeInfo* find_gguf_type(std::uint32_t id);
const GgufTypeInfo& gguf_type_info(GgufType type);
const char* gguf_type_name(std::uint32_t id);
inline std::ostream& operator<<(std::ostream& out, GgufType type) { return out << gguf_type_info(type).name; }

// Decodes whole blocks. Throws invalid_argument unless `values` is a whole number of blocks and `blocks` is
// that many blocks long. Products and sums are rounded to f32 one by one: scale*code, then + minimum.
void decode_gguf_blocks(GgufType type, std::span<const std::byte> blocks, std::span<float> values);

}  // namespace mixtape
