#include "mixtape/ops/quantize/affine.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

constexpr float kSmallestScale = 1e-7f;

bool is_width(std::int64_t bits) {
  return bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
}

float round_as(float value, Rounding rounding) {
  return rounding == Rounding::gpu ? std::round(value) : std::nearbyint(value);
}

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

const char* name(Rounding rounding) { return rounding == Rounding::gpu ? "gpu" : "cpu"; }

void AffineParams::check(const std::string& where) const {
  require(is_width(bits), where, ": bits is ", bits, ", expected 2, 3, 4, 5, 6 or 8");
  require(group_size == 16 || group_size == 32 || group_size == 64 || group_size == 128, where,
          ": group size is ", group_size, ", expected 16, 32, 64 or 128");
}

void AffineParams::check_cols(const std::string& where, std::int64_t cols) const {
  const std::int32_t unit = std::max(group_size, kPackedCodes);
  require(cols > 0 && cols % unit == 0, where, ": rows have ", cols, " weights, expected a multiple of ",
          unit);
}

std::int32_t bits_from_shapes(const std::string& where, std::int64_t packed_cols, std::int64_t groups,
                              std::int32_t group_size) {
  const std::int64_t cols = groups * group_size;
  const std::int64_t bits = cols > 0 ? 32 * packed_cols / cols : 0;
  if (!is_width(bits) || bits * cols != 32 * packed_cols) {
    fail(ErrorCode::format, where, ": ", packed_cols, " words per row for ", groups, " groups of ",
         group_size, " weights, expected 2, 3, 4, 5, 6 or 8 bits per weight");
  }
  return static_cast<std::int32_t>(bits);
}

ScaleAndBias fit_range(float low, float high, std::int32_t bits, Rounding rounding) {
  const bool low_is_larger = std::fabs(low) > std::fabs(high);
  const float steps = static_cast<float>((1 << bits) - 1);
  const float magnitude = std::max((high - low) / steps, kSmallestScale);
  const float scale = low_is_larger ? magnitude : -magnitude;
  const float edge = low_is_larger ? low : high;
  const float code_of_zero = round_as(edge / scale, rounding);
  if (code_of_zero == 0.0f) return {scale, 0.0f};
  return {edge / code_of_zero, edge};
}

ScaleAndBias fit_group(std::span<const float> w, std::int32_t bits, Rounding rounding) {
  float low = w[0];
  float high = rounding == Rounding::gpu ? 0.0f : w[0];
  for (const float value : w) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  return fit_range(low, high, bits, rounding);
}

std::uint8_t encode(float w, ScaleAndBias group, std::int32_t bits, Rounding rounding) {
  const float code = round_as((w - group.bias) / group.scale, rounding);
  return static_cast<std::uint8_t>(std::clamp(code, 0.0f, static_cast<float>((1 << bits) - 1)));
}

std::int64_t find_non_finite(std::span<const float> w, std::int32_t group_size) {
  float low = 0.0f;
  float high = 0.0f;
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (i % index(group_size) == 0) low = high = w[i];
    low = std::min(low, w[i]);
    high = std::max(high, w[i]);
    if (!std::isfinite(w[i]) || !std::isfinite(high - low)) return static_cast<std::int64_t>(i);
  }
  return -1;
}

void refuse_weight(const std::string& tensor, std::int64_t row, std::int64_t col, float value) {
  fail(ErrorCode::invalid_argument, tensor, ": weight at row ", row, ", column ", col, " is ", value,
       ", expected finite weights whose range within a group is finite");
}

// Eight codes, one per byte, move together in three steps: pairs, fours, all.
void pack_codes(std::span<const std::uint8_t> codes, std::int32_t bits, std::span<std::uint32_t> words) {
  static_assert(std::endian::native == std::endian::little);
  auto* out = reinterpret_cast<std::byte*>(words.data());
  for (std::size_t i = 0; i < codes.size(); i += 8, out += bits) {
    std::uint64_t x;
    std::memcpy(&x, codes.data() + i, 8);
    x = (x & 0x00ff00ff00ff00ffu) | ((x & 0xff00ff00ff00ff00u) >> (8 - bits));
    x = (x & 0x0000ffff0000ffffu) | ((x & 0xffff0000ffff0000u) >> (16 - 2 * bits));
    x = (x & 0x00000000ffffffffu) | ((x & 0xffffffff00000000u) >> (32 - 4 * bits));
    std::memcpy(out, &x, index(bits));
  }
}

void unpack_codes(std::span<const std::uint32_t> words, std::int32_t bits, std::span<std::uint8_t> codes) {
  const std::uint32_t mask = (1u << bits) - 1u;
  std::uint64_t pending = 0;
  std::int32_t filled = 0;
  std::size_t next = 0;
  for (std::uint8_t& code : codes) {
    if (filled < bits) {
      pending |= static_cast<std::uint64_t>(words[next++]) << filled;
      filled += 32;
    }
    code = static_cast<std::uint8_t>(pending & mask);
    pending >>= bits;
    filled -= bits;
  }
}

void quantize_row(std::span<const float> w, AffineParams params, Rounding rounding,
                  std::span<std::uint32_t> words, std::span<float> scales, std::span<float> biases) {
  const std::size_t size = index(params.group_size);
  std::vector<std::uint8_t> codes(w.size());
  for (std::size_t g = 0; g < scales.size(); ++g) {
    const ScaleAndBias group = fit_group(w.subspan(g * size, size), params.bits, rounding);
    for (std::size_t i = g * size; i < (g + 1) * size; ++i)
      codes[i] = encode(w[i], group, params.bits, rounding);
    scales[g] = group.scale;
    biases[g] = group.bias;
  }
  pack_codes(codes, params.bits, words);
}

void dequantize_row(std::span<const std::uint32_t> words, std::span<const float> scales,
                    std::span<const float> biases, AffineParams params, std::span<float> w) {
  std::vector<std::uint8_t> codes(w.size());
  unpack_codes(words, params.bits, codes);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const std::size_t g = i / index(params.group_size);
    w[i] = decode(codes[i], {scales[g], biases[g]});
  }
}

}  // namespace mixtape
