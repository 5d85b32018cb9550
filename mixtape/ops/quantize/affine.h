// The affine codec of MLX models: `group_size` neighbouring weights of a row share a scale and a bias.
//   value = fma(code, scale, bias)      code in 0 .. 2^bits-1
// A group's scale and bias come from its extremes, in f32, with IEEE divisions:
//   n = 2^bits - 1;  low = |wmin| > |wmax|;  edge = low ? wmin : wmax
//   s = max((wmax - wmin)/n, 1e-7), negated unless low;  q0 = round(edge/s)
//   q0 != 0: scale = edge/q0, bias = edge    else: scale = s, bias = 0
//   code = clamp(round((w - bias)/scale), 0, n)
// So the scale is often negative, and code 0 is the edge of larger magnitude.
// A row of codes is one little-endian bit stream, element i at bits [i*bits, (i+1)*bits), stored as u32
// words.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>

namespace mixtape {

// Which of the reference's two sets of rounding rules applies.
//   gpu  wmax starts at 0 (a group of negative weights gets the range [wmin, 0]); halves round away from zero
//   cpu  wmax is the true maximum; halves round to even
enum class Rounding : std::uint32_t { gpu = 0, cpu = 1 };

const char* name(Rounding rounding);

// So many codes are whole words, whatever the bits.
inline constexpr std::int32_t kPackedCodes = 32;

// Passed by value to kernels.
struct AffineParams {
  std::int32_t bits = 4;         // 2, 3, 4, 5, 6 or 8
  std::int32_t group_size = 64;  // 16, 32, 64 or 128

  // Throws invalid_argument, beginning with `where`, for any other value.
  void check(const std::string& where) const;
  // Throws invalid_argument unless `cols` is a positive multiple of group_size and kPackedCodes.
  void check_cols(const std::string& where, std::int64_t cols) const;
  std::int32_t max_code() const { return (1 << bits) - 1; }
  std::int64_t groups(std::int64_t cols) const { return cols / group_size; }
  std::int64_t packed_cols(std::int64_t cols) const {
    return cols / kPackedCodes * bits;
  }  // u32 words of a row
  friend bool operator==(const AffineParams&, const AffineParams&) = default;
};

// The bits that a row of `packed_cols` words in `groups` groups has; throws format, beginning with `where`,
// if that is not one of the widths above.
std::int32_t bits_from_shapes(const std::string& where, std::int64_t packed_cols, std::int64_t groups,
                              std::int32_t group_size);

struct ScaleAndBias {
  float scale = 0.0f;
  float bias = 0.0f;
};

// low, high: extremes of a group, finite as is their difference. Rounding::gpu: high is at least 0.
ScaleAndBias fit_range(float low, float high, std::int32_t bits, Rounding rounding);
ScaleAndBias fit_group(std::span<const float> w, std::int32_t bits, Rounding rounding);
std::uint8_t encode(float w, ScaleAndBias group, std::int32_t bits, Rounding rounding);
inline float decode(std::uint8_t code, ScaleAndBias group) {
  return std::fma(static_cast<float>(code), group.scale, group.bias);
}

// The first column whose weight is not finite, or that makes its group's wmax - wmin overflow; -1 if none.
std::int64_t find_non_finite(std::span<const float> w, std::int32_t group_size);
// Throws invalid_argument for what find_non_finite found.
[[noreturn]] void refuse_weight(const std::string& tensor, std::int64_t row, std::int64_t col, float value);

// codes.size() is a multiple of 32; words.size() == codes.size()/32*bits.
void pack_codes(std::span<const std::uint8_t> codes, std::int32_t bits, std::span<std::uint32_t> words);
void unpack_codes(std::span<const std::uint32_t> words, std::int32_t bits, std::span<std::uint8_t> codes);

// One row of finite weights: its words, and an unrounded scale and bias per group.
void quantize_row(std::span<const float> w, AffineParams params, Rounding rounding,
                  std::span<std::uint32_t> words, std::span<float> scales, std::span<float> biases);
void dequantize_row(std::span<const std::uint32_t> words, std::span<const float> scales,
                    std::span<const float> biases, AffineParams params, std::span<float> w);

}  // namespace mixtape
