// Products of up to 8 rows of 16-bit values, in all or of an expert, with a quantized weight on matrix units: codes are
// read once and decoded in registers, where a product has them as 16 of its rows. The decoded weight is rounded to x's
// dtype.
#include "mixtape/backend/gpu/tensor.h"
#include "mixtape/ops/grouped_matmul/group_tile_gpu.h"
#include "mixtape/ops/quantize/codes_gpu.h"
#include "mixtape/ops/quantized_matmul/few_rows_gpu_params.h"

namespace mixtape {

// A lane's 32 neighbouring codes of a row.
template <int Bits>
struct LaneCodes {
  static constexpr int kPack = Bits % 4 == 0 ? 4 : Bits % 2 == 0 ? 2 : 1;
  Pack<std::uint32_t, kPack> packs[Bits / kPack];

  MIXTAPE_DEVICE void load(Global<const std::uint32_t> words) {
    MIXTAPE_UNROLL
    for (int i = 0; i < Bits / kPack; ++i) packs[i] = load_pack<kPack>(words + i * kPack);
  }
  MIXTAPE_DEVICE std::uint64_t word(int i) const {
    return i < Bits ? packs[i / kPack].v[i % kPack] : std::uint64_t{0};
  }
  // Codes 8*chunk .. 8*chunk + 7, the first in the lowest bits.
  MIXTAPE_DEVICE std::uint64_t eight(int chunk) const {
    const int bit = chunk * kCodesAtOnce * Bits;
    return (word(bit / 32) | word(bit / 32 + 1) << 32) >> (bit % 32);
  }
};

// fma(code, scale, bias) of eight codes, two in a word, as they stand beside each other. Codes are taken where they stand
// in the lower bits of a f32's mantissa, so that they are multiplied by a power of two, which the scale makes up for: one
// shift for kTogether codes.
template <class T, class S, int Bits>
struct LaneDecoder {
  static constexpr int kTogether = Bits <= 5 ? 4 : 2;
  float scale[kTogether], bias;

  MIXTAPE_DEVICE void set(S one_scale, S one_bias) {
    MIXTAPE_UNROLL
    for (int i = 0; i < kTogether; ++i)
      scale[i] = to_f32(one_scale) * float_of((127u - static_cast<std::uint32_t>(i * Bits)) << 23);
    bias = to_f32(one_bias);
  }
  MIXTAPE_DEVICE float weight(std::uint64_t codes, int i) const {
    const int place = i % kTogether;
    const auto window = static_cast<std::uint32_t>(codes >> ((i - place) * Bits));
    const std::uint32_t mask = ((1u << Bits) - 1u) << (place * Bits);
    return fma_f32(float_of(and_or(window, mask, 0x4b000000u)) - 8388608.0f, scale[place], bias);
  }
  MIXTAPE_DEVICE std::uint32_t pair(std::uint64_t codes, int i) const {
    return pack_pair<T>(weight(codes, 2 * i), weight(codes, 2 * i + 1));
  }
  MIXTAPE_DEVICE static void order(std::uint32_t (&)[4]) {}
};
// Pairs of 1, and of the power of two whose mantissa counts ones.
template <class T>
struct PairsOf;
template <>
struct PairsOf<bf16> {
  static constexpr std::uint32_t kOne = 0x3f803f80u, kOffset = 0x43004300u;
};
template <>
struct PairsOf<f16> {
  static constexpr std::uint32_t kOne = 0x3c003c00u, kOffset = 0x64006400u;
};
// Of 4 bits with scales in T two at a time, code i beside code i + 4.
template <class T>
struct LaneDecoder<T, T, 4> {
  std::uint32_t scale, bias;

  MIXTAPE_DEVICE void set(T one_scale, T one_bias) {
    scale = pack_pair<T>(to_f32(one_scale), to_f32(one_scale));
    bias = pack_pair<T>(to_f32(one_bias), to_f32(one_bias));
  }
  MIXTAPE_DEVICE std::uint32_t pair(std::uint64_t codes, int i) const {
    using Pairs = PairsOf<T>;
    const auto window = static_cast<std::uint32_t>(codes) >> (4 * i);
    const std::uint32_t above = and_or(window, 0x000f000fu, Pairs::kOffset);
    return fma_pairs<T>(fma_pairs<T>(above, Pairs::kOne, Pairs::kOffset | 0x80008000u), scale, bias);
  }
  // Eight values of x as the codes are.
  MIXTAPE_DEVICE static void order(std::uint32_t (&x)[4]) {
    const std::uint32_t a = x[0], b = x[1], c = x[2], d = x[3];
    x[0] = (a & 0xffffu) | c << 16;
    x[1] = a >> 16 | (c & 0xffff0000u);
    x[2] = (b & 0xffffu) | d << 16;
    x[3] = b >> 16 | (d & 0xffff0000u);
  }
};

// What a lane reads: two rows of the weight, 8 apart, and a row of x, two values in a word. Past the last one it is
// another row, whose sums nobody asks for.
template <class S>
struct LaneRows {
  Global<const std::uint32_t> words[2], x;
  Global<const S> scales[2], biases[2];

  MIXTAPE_DEVICE LaneRows(const FewRowsParams& p, Global<const std::uint32_t> all_x,
                          Global<const std::uint32_t> all_words, Global<const S> all_scales,
                          Global<const S> all_biases, std::int64_t row, int bits) {
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::int64_t r = row + lane() / 4 + half * 8;
      const std::int64_t chunk = (r < p.n ? r : p.n - 1) * p.k / kCodesAtOnce;
      words[half] = all_words + chunk / 4 * bits;
      scales[half] = all_scales + (chunk >> p.group_shift);
      biases[half] = all_biases + (chunk >> p.group_shift);
    }
    x = all_x + (lane() / 4 < p.rows ? lane() / 4 : 0) * p.k / 2;
  }
};

// A lane's 32 of a warp's 128 terms of a sum.
template <class T, class S, int Bits>
struct LaneTerms {
  LaneCodes<Bits> codes[2];
  LaneDecoder<T, S, Bits> decoders[2];

  // From term k on, which is none if it is not below p.k.
  MIXTAPE_DEVICE void load(const FewRowsParams& p, const LaneRows<S>& rows, std::uint32_t k) {
    const std::uint32_t group = k / kCodesAtOnce >> p.group_shift;
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      codes[half] = {};
      S scale = from_f32<S>(0.0f), bias = from_f32<S>(0.0f);
      if (k < p.k) {
        codes[half].load(rows.words[half] + k / 32 * Bits);
        scale = rows.scales[half][group];
        bias = rows.biases[half][group];
      }
      decoders[half].set(scale, bias);
    }
  }
  // sum[16 of the weight's rows, 8 rows of x]
  MIXTAPE_DEVICE void add_to(float (&sum)[4], const FewRowsParams& p, const LaneRows<S>& rows,
                             std::uint32_t k) const {
    Pack<std::uint32_t, 4> x[4];
    MIXTAPE_UNROLL
    for (int chunk = 0; chunk < 4; ++chunk) {
      x[chunk] = {};
      if (k < p.k) x[chunk] = load_pack<4>(rows.x + (k / 2 + chunk * 4));
    }
    MIXTAPE_UNROLL
    for (int chunk = 0; chunk < 4; ++chunk) {
      LaneDecoder<T, S, Bits>::order(x[chunk].v);
      const std::uint64_t upper = codes[0].eight(chunk), lower = codes[1].eight(chunk);
      MIXTAPE_UNROLL
      for (int i = 0; i < 4; i += 2) {
        const std::uint32_t a[4] = {decoders[0].pair(upper, i), decoders[1].pair(lower, i),
                                    decoders[0].pair(upper, i + 1), decoders[1].pair(lower, i + 1)};
        multiply_add<T>(sum, a, x[chunk].v[i], x[chunk].v[i + 1]);
      }
    }
  }
};

// A block makes 16 columns of y: its warps take 128 terms each in turn, and their sums are added in order. Codes of
// kAtOnce times as many are under way.
template <class T, class S, class Y, int Bits>
MIXTAPE_DEVICE void few_rows_tensor(const FewRowsParams& p, Global<const std::uint32_t> x,
                                    Global<const std::uint32_t> words, Global<const S> scales,
                                    Global<const S> biases, Global<Y> y, Global<const Y> addend,
                                    Shared<float> sums) {
  constexpr int kAtOnce = Bits <= 4 ? 4 : 2;
  constexpr std::uint32_t kStep = kTensorWarps * kTermsAtOnce;
  const std::int64_t row = static_cast<std::int64_t>(block_x()) * kTensorColumns;
  const LaneRows<S> rows(p, x, words, scales, biases, row, Bits);
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  MIXTAPE_ROLLED
  for (std::uint32_t k = warp() * kTermsAtOnce; k < p.k; k += kAtOnce * kStep) {
    LaneTerms<T, S, Bits> terms[kAtOnce];
    const std::uint32_t mine = k + lane() % 4 * 32;
    MIXTAPE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) terms[i].load(p, rows, mine + i * kStep);
    MIXTAPE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (k + i * kStep >= p.k) break;
      terms[i].add_to(sum, p, rows, mine + i * kStep);
    }
  }
  MIXTAPE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int column = lane() / 4 + i / 2 * 8, r = lane() % 4 * 2 + i % 2;
    sums[(warp() * kTensorColumns + column) * kMostFewRows + r] = sum[i];
  }
  barrier();
  const int r = thread_x() / kTensorColumns, column = thread_x() % kTensorColumns;
  if (r >= p.rows || row + column >= p.n) return;
  float all = 0.0f;
  for (int w = 0; w < kTensorWarps; ++w) all += sums[(w * kTensorColumns + column) * kMostFewRows + r];
  const std::int64_t at = r * p.n + row + column;
  y[at] = from_f32<Y>(p.has_addend != 0 ? to_f32(addend[at]) + all : all);
}

// A block's tile of the rows that are sorted by expert, with its expert's weight.
template <class T, class S, class Y, int Bits>
MIXTAPE_DEVICE void few_rows_of_expert(const FewRowsParams& p, const GroupTile& tile,
                                       Global<const std::uint32_t> x, Global<const std::uint32_t> words,
                                       Global<const S> scales, Global<const S> biases, Global<Y> y,
                                       Shared<float> sums) {
  if (tile.begin >= tile.end) return;
  const std::int64_t row = static_cast<std::int64_t>(block_x()) * kTensorColumns;
  if (tile.is_bad) {
    const std::int64_t r = tile.begin + thread_x() / kTensorColumns, n = row + thread_x() % kTensorColumns;
    if (r < tile.end && n < p.n) y[r * p.n + n] = from_f32<Y>(0.0f);
    return;
  }
  FewRowsParams mine = p;
  mine.rows = tile.end - tile.begin;
  const std::int64_t weights = tile.expert * p.n * p.k, group = weights / kCodesAtOnce >> p.group_shift;
  few_rows_tensor<T, S, Y, Bits>(mine, x + tile.begin * p.k / 2, words + weights / 32 * Bits, scales + group,
                                 biases + group, y + tile.begin * p.n, y, sums);
}

#define FEW_ROWS(BITS, T, S, Y)                                                                            \
  MIXTAPE_KERNEL(quantized_few_rows_tensor_##T##_##S##_##Y##_##BITS, kTensorWarps * 32, FewRowsParams p,   \
                 Global<const std::uint32_t> x, Global<const std::uint32_t> words, Global<const S> scales, \
                 Global<const S> biases, Global<Y> y, Global<const Y> addend) {                            \
    await_earlier();                                                                                       \
    MIXTAPE_SHARED(float, sums, kTensorSums);                                                              \
    few_rows_tensor<T, S, Y, BITS>(p, x, words, scales, biases, y, addend, sums);                          \
  }                                                                                                        \
  MIXTAPE_KERNEL(quantized_few_rows_grouped_##T##_##S##_##Y##_##BITS, kTensorWarps * 32, FewRowsParams p,  \
                 Global<const std::uint32_t> x, Global<const std::uint32_t> words, Global<const S> scales, \
                 Global<const S> biases, Global<Y> y, Global<const std::uint32_t> offsets,                 \
                 Global<std::uint64_t> errors) {                                                           \
    await_earlier();                                                                                       \
    MIXTAPE_SHARED(float, sums, kTensorSums);                                                              \
    MIXTAPE_SHARED(std::uint64_t, scratch, kGroupScratch);                                                 \
    const GroupTile tile =                                                                                 \
        find_group_tile(offsets, p.experts, p.rows, block_y(), kMostFewRows, errors, scratch);             \
    few_rows_of_expert<T, S, Y, BITS>(p, tile, x, words, scales, biases, y, sums);                         \
  }
MIXTAPE_CODE_WIDTHS(FEW_ROWS, bf16, bf16, bf16)
MIXTAPE_CODE_WIDTHS(FEW_ROWS, bf16, f32, bf16)
MIXTAPE_CODE_WIDTHS(FEW_ROWS, bf16, bf16, f32)
MIXTAPE_CODE_WIDTHS(FEW_ROWS, bf16, f32, f32)
MIXTAPE_CODE_WIDTHS(FEW_ROWS, f16, f16, f16)
MIXTAPE_CODE_WIDTHS(FEW_ROWS, f16, f16, f32)

}  // namespace mixtape
