#include "mixtape/io/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "mixtape/core/bf16.h"
#include "mixtape/core/error.h"
#include "mixtape/core/f16.h"
#include "mixtape/io/mxfp4.h"

namespace mixtape {
namespace {

using BlockBytes = const std::uint8_t*;

constexpr std::array kTypes = {
    GgufTypeInfo{GgufType::f32, "F32", 1, 4},       GgufTypeInfo{GgufType::f16, "F16", 1, 2},
    GgufTypeInfo{GgufType::q4_0, "Q4_0", 32, 18},   GgufTypeInfo{GgufType::q4_1, "Q4_1", 32, 20},
    GgufTypeInfo{GgufType::q5_0, "Q5_0", 32, 22},   GgufTypeInfo{GgufType::q5_1, "Q5_1", 32, 24},
    GgufTypeInfo{GgufType::q8_0, "Q8_0", 32, 34},   GgufTypeInfo{GgufType::q2_k, "Q2_K", 256, 84},
    GgufTypeInfo{GgufType::q3_k, "Q3_K", 256, 110}, GgufTypeInfo{GgufType::q4_k, "Q4_K", 256, 144},
    GgufTypeInfo{GgufType::q5_k, "Q5_K", 256, 176}, GgufTypeInfo{GgufType::q6_k, "Q6_K", 256, 210},
    GgufTypeInfo{GgufType::bf16, "BF16", 1, 2},     GgufTypeInfo{GgufType::mxfp4, "MXFP4", 32, 17},
};

struct OtherType {
  std::uint32_t id;
  const char* name;
};
constexpr std::array kOtherTypes = {
    OtherType{9, "Q8_1"},     OtherType{15, "Q8_K"},   OtherType{16, "IQ2_XXS"}, OtherType{17, "IQ2_XS"},
    OtherType{18, "IQ3_XXS"}, OtherType{19, "IQ1_S"},  OtherType{20, "IQ4_NL"},  OtherType{21, "IQ3_S"},
    OtherType{22, "IQ2_S"},   OtherType{23, "IQ4_XS"}, OtherType{24, "I8"},      OtherType{25, "I16"},
    OtherType{26, "I32"},     OtherType{27, "I64"},    OtherType{28, "F64"},     OtherType{29, "IQ1_M"},
    OtherType{34, "TQ1_0"},   OtherType{35, "TQ2_0"},
};

template <class T>
T load(BlockBytes p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
float load_f16(BlockBytes p) { return static_cast<float>(load<f16>(p)); }

void decode_f32(BlockBytes p, float* y) { *y = load<float>(p); }
void decode_f16(BlockBytes p, float* y) { *y = load_f16(p); }
void decode_bf16(BlockBytes p, float* y) { *y = static_cast<float>(load<bf16>(p)); }

// Types of 32 elements: byte j of the codes holds elements j (low nibble) and j+16; bit j of `high` is
// element j's fifth bit.
void decode_q4_0(BlockBytes p, float* y) {  // d f16, codes[16]: d*(code-8)
  const float d = load_f16(p);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>((p[2 + j] & 15) - 8);
    y[j + 16] = d * static_cast<float>((p[2 + j] >> 4) - 8);
  }
}

void decode_mxfp4(BlockBytes p, float* y) {  // power of two, codes[16]; llama.cpp has no -0
  const float scale = mxfp4_scale(p[0]);
  for (int j = 0; j < 16; ++j) {
    y[j] = mxfp4_value(p[1 + j]) * scale + 0.0f;
    y[j + 16] = mxfp4_value(p[1 + j] >> 4) * scale + 0.0f;
  }
}

void decode_q4_1(BlockBytes p, float* y) {  // d f16, m f16, codes[16]: d*code + m
  const float d = load_f16(p), m = load_f16(p + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(p[4 + j] & 15) + m;
    y[j + 16] = d * static_cast<float>(p[4 + j] >> 4) + m;
  }
}

int low5(BlockBytes codes, std::uint32_t high, int j) {
  return static_cast<int>((codes[j] & 15u) | ((high >> j & 1u) << 4));
}
int high5(BlockBytes codes, std::uint32_t high, int j) {
  return static_cast<int>((codes[j] >> 4) | ((high >> (j + 16) & 1u) << 4));
}

void decode_q5_0(BlockBytes p, float* y) {  // d f16, high u32, codes[16]: d*(code-16)
  const float d = load_f16(p);
  const auto high = load<std::uint32_t>(p + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(low5(p + 6, high, j) - 16);
    y[j + 16] = d * static_cast<float>(high5(p + 6, high, j) - 16);
  }
}

void decode_q5_1(BlockBytes p, float* y) {  // d f16, m f16, high u32, codes[16]: d*code + m
  const float d = load_f16(p), m = load_f16(p + 2);
  const auto high = load<std::uint32_t>(p + 4);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(low5(p + 8, high, j)) + m;
    y[j + 16] = d * static_cast<float>(high5(p + 8, high, j)) + m;
  }
}

void decode_q8_0(BlockBytes p, float* y) {  // d f16, i8[32]
  const float d = load_f16(p);
  for (int j = 0; j < 32; ++j) y[j] = d * static_cast<float>(static_cast<std::int8_t>(p[2 + j]));
}

// Types of 256 elements ("K"): sub-blocks of 16 or 32 share a small scale that multiplies the block's d.

// scales[16] (low nibble scale, high nibble minimum), codes[64] of 2 bits, d f16, dmin f16.
void decode_q2_k(BlockBytes p, float* y) {
  const BlockBytes codes = p + 16;
  const float d = load_f16(p + 80), dmin = load_f16(p + 82);
  for (int sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(p[sub] & 15);
    const float minimum = dmin * static_cast<float>(p[sub] >> 4);
    const int shift = sub % 8 / 2 * 2;
    const BlockBytes c = codes + sub / 8 * 32 + sub % 2 * 16;
    for (int l = 0; l < 16; ++l) y[16 * sub + l] = scale * static_cast<float>(c[l] >> shift & 3) - minimum;
  }
}

// high[32] (bit set: no -4), codes[64] of 2 bits, scales[12] holding 16 of 6 bits, d f16.
void decode_q3_k(BlockBytes p, float* y) {
  const BlockBytes codes = p + 32, scales = p + 96;
  const float d = load_f16(p + 108);
  for (int sub = 0; sub < 16; ++sub) {
    const int low = sub < 8 ? scales[sub] & 15 : scales[sub - 8] >> 4;
    const int scale6 = low | (scales[8 + sub % 4] >> (sub / 4 * 2) & 3) << 4;
    const float scale = d * static_cast<float>(scale6 - 32);
    const int shift = sub % 8 / 2 * 2, bit = sub / 2;
    const BlockBytes c = codes + sub / 8 * 32 + sub % 2 * 16, h = p + sub % 2 * 16;
    for (int l = 0; l < 16; ++l) {
      const int code = (c[l] >> shift & 3) - ((h[l] >> bit & 1) != 0 ? 0 : 4);
      y[16 * sub + l] = scale * static_cast<float>(code);
    }
  }
}

struct ScaleAndMinimum {
  float scale, minimum;
};

// The 8 pairs of 6 bits that Q4_K and Q5_K pack into 12 bytes.
ScaleAndMinimum k_scale(BlockBytes p, int sub, float d, float dmin) {
  int scale, minimum;
  if (sub < 4) {
    scale = p[sub] & 63;
    minimum = p[sub + 4] & 63;
  } else {
    scale = (p[sub + 4] & 15) | (p[sub - 4] >> 6) << 4;
    minimum = (p[sub + 4] >> 4) | (p[sub] >> 6) << 4;
  }
  return {d * static_cast<float>(scale), dmin * static_cast<float>(minimum)};
}

// d f16, dmin f16, scales[12], codes[128]: sub-blocks 2i and 2i+1 are the low and high nibbles of 32 bytes.
void decode_q4_k(BlockBytes p, float* y) {
  const float d = load_f16(p), dmin = load_f16(p + 2);
  for (int sub = 0; sub < 8; ++sub) {
    const auto [scale, minimum] = k_scale(p + 4, sub, d, dmin);
    const BlockBytes c = p + 16 + sub / 2 * 32;
    const int shift = sub % 2 * 4;
    for (int l = 0; l < 32; ++l) y[32 * sub + l] = scale * static_cast<float>(c[l] >> shift & 15) - minimum;
  }
}

// d f16, dmin f16, scales[12], high[32] (bit `sub` of byte l), codes[128] as in Q4_K.
void decode_q5_k(BlockBytes p, float* y) {
  const float d = load_f16(p), dmin = load_f16(p + 2);
  const BlockBytes high = p + 16;
  for (int sub = 0; sub < 8; ++sub) {
    const auto [scale, minimum] = k_scale(p + 4, sub, d, dmin);
    const BlockBytes c = p + 48 + sub / 2 * 32;
    const int shift = sub % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      const int code = (c[l] >> shift & 15) | (high[l] >> sub & 1) << 4;
      y[32 * sub + l] = scale * static_cast<float>(code) - minimum;
    }
  }
}

// low[128], high[64] of 2 bits, scales i8[16], d f16: d*scale*(code-32).
void decode_q6_k(BlockBytes p, float* y) {
  const float d = load_f16(p + 208);
  for (int sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(static_cast<std::int8_t>(p[192 + sub]));
    const int half = sub / 8, quarter = sub % 8 / 2, start = sub % 2 * 16;
    const BlockBytes low = p + half * 64 + quarter % 2 * 32 + start;
    const BlockBytes high = p + 128 + half * 32 + start;
    for (int l = 0; l < 16; ++l) {
      const int code = (low[l] >> (quarter / 2 * 4) & 15) | (high[l] >> (quarter * 2) & 3) << 4;
      y[16 * sub + l] = scale * static_cast<float>(code - 32);
    }
  }
}

template <void (*decode_block)(BlockBytes, float*)>
void decode_all(const GgufTypeInfo& info, BlockBytes p, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(info.block_elements)) {
    decode_block(p, values.data() + i);
    p += info.block_bytes;
  }
}

}  // namespace

const GgufTypeInfo* find_gguf_type(std::uint32_t id) {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const GgufTypeInfo& info) {
    return static_cast<std::uint32_t>(info.type) == id;
  });
  return found == kTypes.end() ? nullptr : found;
}

const GgufTypeInfo& gguf_type_info(GgufType type) {
  const GgufTypeInfo* info = find_gguf_type(static_cast<std::uint32_t>(type));
  require(info != nullptr, "gguf: type id is ", static_cast<std::uint32_t>(type), ", expected a known one");
  return *info;
}

const char* gguf_type_name(std::uint32_t id) {
  if (const GgufTypeInfo* info = find_gguf_type(id)) return info->name;
  for (const OtherType& other : kOtherTypes) {
    if (other.id == id) return other.name;
  }
  return "unknown";
}

void decode_gguf_blocks(GgufType type, std::span<const std::byte> blocks, std::span<float> values) {
  const GgufTypeInfo& info = gguf_type_info(type);
  const auto elements = static_cast<std::size_t>(info.block_elements);
  const auto bytes = static_cast<std::size_t>(info.block_bytes);
  require(values.size() % elements == 0, "gguf: ", values.size(), " values of type ", type,
          ", expected a multiple of ", elements);
  require(blocks.size() == values.size() / elements * bytes, "gguf: ", blocks.size(), " bytes for ",
          values.size(), " values of type ", type, ", expected ", values.size() / elements * bytes);
  const auto* p = reinterpret_cast<BlockBytes>(blocks.data());
  switch (type) {
    case GgufType::f32:
      return decode_all<decode_f32>(info, p, values);
    case GgufType::f16:
      return decode_all<decode_f16>(info, p, values);
    case GgufType::bf16:
      return decode_all<decode_bf16>(info, p, values);
    case GgufType::q4_0:
      return decode_all<decode_q4_0>(info, p, values);
    case GgufType::q4_1:
      return decode_all<decode_q4_1>(info, p, values);
    case GgufType::q5_0:
      return decode_all<decode_q5_0>(info, p, values);
    case GgufType::q5_1:
      return decode_all<decode_q5_1>(info, p, values);
    case GgufType::q8_0:
      return decode_all<decode_q8_0>(info, p, values);
    case GgufType::q2_k:
      return decode_all<decode_q2_k>(info, p, values);
    case GgufType::q3_k:
      return decode_all<decode_q3_k>(info, p, values);
    case GgufType::q4_k:
      return decode_all<decode_q4_k>(info, p, values);
    case GgufType::q5_k:
      return decode_all<decode_q5_k>(info, p, values);
    case GgufType::q6_k:
      return decode_all<decode_q6_k>(info, p, values);
    case GgufType::mxfp4:
      return decode_all<decode_mxfp4>(info, p, values);
  }
}

}  // namespace mixtape
