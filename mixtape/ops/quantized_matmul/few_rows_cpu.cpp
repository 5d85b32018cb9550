#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/quantized_matmul/few_rows_cpu.cpp"
#include "mixtape/ops/quantized_matmul/few_rows_cpu.h"

#include <cstring>
#include <type_traits>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/ops/quantize/decode_rows_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// A group's weights, from its codes by fma ...
struct FmaGroup {
  Floats scale, bias;
  FmaGroup(const Unpacker&, float s, float b) : scale(set(s)), bias(set(b)) {}
  HWY_INLINE Floats at(const Unpacker& u, Block block, std::size_t i) const {
    return fused(codes(u, block, i), scale, bias);
  }
};
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// ... or chosen from a table of all that it can have.
struct TableGroup {
  Floats values;
  TableGroup(const Unpacker& u, float s, float b) : values(values_of_codes(u, s, b)) {}
  HWY_INLINE Floats at(const Unpacker& u, Block block, std::size_t) const {
    const auto pairs = hn::BitCast(UintTag(), hn::TableLookupBytesOr0(block, hn::Load(ByteTag(), u.bytes)));
    const auto choice = hn::Shr(pairs, hn::Load(UintTag(), u.shifts));
    return Floats{_mm512_permutexvar_ps(choice.raw, values.raw)};
  }
};
#endif

HWY_INLINE float scale_at(const void* scales, DType dtype, std::int64_t i) {
  if (dtype == DType::f32) return static_cast<const float*>(scales)[i];
  if (dtype == DType::bf16) return static_cast<float>(static_cast<const bf16*>(scales)[i]);
  return static_cast<float>(static_cast<const f16*>(scales)[i]);
}

// 16 weights by as many elements of each row of x.
template <class Group, int kCount>
HWY_INLINE void add_block(const Unpacker& u, const Group& group, Block block, const float* x,
                          std::int64_t cols, Floats* sums) {
  for (std::size_t i = 0; i < kBlock; i += lanes()) {
    const Floats w = group.at(u, block, i);
    for (int t = 0; t < kCount; ++t) sums[t] = hn::MulAdd(w, load(x + t * cols + i), sums[t]);
  }
}

// kHalves: groups of 16, of which two are taken together. Even and odd blocks add up apart, so that one sum need not
// wait for the other.
template <class Group, int kCount, bool kHalves>
void multiply_row(const cpu::QuantizedRows& w, std::int64_t row, const Unpacker& u, const float* x, float* y,
                  std::int64_t ldy) {
  const std::int64_t groups = w.params.groups(w.cols), first = row * groups;
  const std::size_t step = 2 * static_cast<std::size_t>(w.params.bits);
  const std::int32_t together = kHalves ? 32 : w.params.group_size;
  const auto group_of = [&](std::int64_t g) HWY_ATTR {
    return Group(u, scale_at(w.scales, w.scale_dtype, first + g),
                 scale_at(w.biases, w.scale_dtype, first + g));
  };
  Floats even[kCount], odd[kCount];
  for (int t = 0; t < kCount; ++t) even[t] = odd[t] = zero();
  auto [at, end] = row_bytes(w, row);
  for (std::int64_t g = 0; g < groups; g += kHalves ? 2 : 1) {
    const Group low = group_of(g), high = kHalves ? group_of(g + 1) : low;
    for (std::int32_t done = 0; done < together; done += 32, at += 2 * step, x += 32) {
      add_block<Group, kCount>(u, low, load_block(at, step, end), x, w.cols, even);
      add_block<Group, kCount>(u, high, load_block(at + step, step, end), x + kBlock, w.cols, odd);
    }
  }
  for (int t = 0; t < kCount; ++t) y[t * ldy] = sum_lanes(hn::Add(even[t], odd[t]));
}

template <class Group, int kCount>
void multiply_rows(const cpu::QuantizedRows& w, std::int64_t begin, std::int64_t end, const float* x,
                   float* y, std::int64_t ldy) {
  const Unpacker u(w.params.bits);
  const bool halves = w.params.group_size == static_cast<std::int32_t>(kBlock);
  for (std::int64_t n = begin; n < end; ++n) {
    halves ? multiply_row<Group, kCount, true>(w, n, u, x, y + n - begin, ldy)
           : multiply_row<Group, kCount, false>(w, n, u, x, y + n - begin, ldy);
  }
}

// Calls multiply(integral constant, x, y) for four, two or one of the rows of x at a time.
template <class Multiply>
HWY_INLINE void by_fours(const float* x, std::int64_t cols, std::int64_t count, float* y, std::int64_t ldy,
                         const Multiply& multiply) {
  std::int64_t t = 0;
  for (; t + 4 <= count; t += 4) multiply(std::integral_constant<int, 4>(), x + t * cols, y + t * ldy);
  for (; t + 2 <= count; t += 2) multiply(std::integral_constant<int, 2>(), x + t * cols, y + t * ldy);
  for (; t < count; ++t) multiply(std::integral_constant<int, 1>(), x + t * cols, y + t * ldy);
}

template <class Group>
void multiply_by(const cpu::QuantizedRows& w, std::int64_t begin, std::int64_t end, const float* x,
                 std::int64_t count, float* y, std::int64_t ldy) {
  by_fours(x, w.cols, count, y, ldy, [&](auto rows, const float* in, float* out) HWY_ATTR {
    multiply_rows<Group, decltype(rows)::value>(w, begin, end, in, out, ldy);
  });
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// Codes of 4 bits, the most usual: 16 of them are two words, which go to the lanes in turn, so that each lane shifts its
// code into place. Even lanes then hold the codes 0 to 7 and odd ones 8 to 15: x is put into that order first.
std::vector<float> in_order_of_lanes(const float* x, std::int64_t count) {
  std::vector<float> ordered(static_cast<std::size_t>(count));
  for (std::size_t block = 0; block < ordered.size(); block += kBlock) {
    for (std::size_t i = 0; i < kBlock / 2; ++i) {
      ordered[block + 2 * i] = x[block + i];
      ordered[block + 2 * i + 1] = x[block + kBlock / 2 + i];
    }
  }
  return ordered;
}

template <int kCount>
HWY_INLINE void add_nibbles(const std::uint8_t* at, Floats values, const float* x, std::int64_t cols,
                            Floats* sums) {
  std::uint64_t pair;
  std::memcpy(&pair, at, sizeof pair);
  const auto shifts = hn::ShiftLeft<2>(hn::ShiftRight<1>(hn::Iota(UintTag(), 0)));  // 0 0 4 4 ... 28 28
  const auto words = hn::BitCast(UintTag(), hn::Set(hn::Repartition<std::uint64_t, UintTag>(), pair));
  const Floats w{_mm512_permutexvar_ps(hn::Shr(words, shifts).raw, values.raw)};
  for (int t = 0; t < kCount; ++t) sums[t] = hn::MulAdd(w, load(x + t * cols), sums[t]);
}

// How far before their use codes are fetched, in bytes.
inline constexpr std::size_t kAhead = 2048;

template <int kCount>
void multiply_nibbles(const cpu::QuantizedRows& w, std::int64_t begin, std::int64_t end, const float* x,
                      float* y, std::int64_t ldy) {
  const std::int64_t groups = w.params.groups(w.cols), group_size = w.params.group_size;
  const Floats all_codes = hn::ConvertTo(kF, hn::Iota(IntTag(), 0));
  for (std::int64_t n = begin; n < end; ++n) {
    Floats even[kCount], odd[kCount];
    for (int t = 0; t < kCount; ++t) even[t] = odd[t] = zero();
    const std::uint8_t* at = row_bytes(w, n).begin;
    const float* in = x;
    for (std::int64_t g = n * groups; g < (n + 1) * groups; ++g) {
      const Floats values = fused(all_codes, set(scale_at(w.scales, w.scale_dtype, g)),
                                  set(scale_at(w.biases, w.scale_dtype, g)));
      __builtin_prefetch(at + kAhead, 0, 0);
      for (std::int64_t done = 0; done < group_size; done += 2 * kBlock, at += kBlock, in += 2 * kBlock) {
        add_nibbles<kCount>(at, values, in, w.cols, even);
        add_nibbles<kCount>(at + kBlock / 2, values, in + kBlock, w.cols, odd);
      }
    }
    for (int t = 0; t < kCount; ++t) y[n - begin + t * ldy] = sum_lanes(hn::Add(even[t], odd[t]));
  }
}
#endif

void multiply_few_rows_simd(const cpu::QuantizedRows& w, std::int64_t begin, std::int64_t end, const float* x,
                            std::int64_t count, float* y, std::int64_t ldy) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if (w.params.bits == 4 && w.params.group_size >= 32) {
    const std::vector<float> ordered = in_order_of_lanes(x, count * w.cols);
    return by_fours(ordered.data(), w.cols, count, y, ldy,
                    [&](auto rows, const float* in, float* out)
                        HWY_ATTR { multiply_nibbles<decltype(rows)::value>(w, begin, end, in, out, ldy); });
  }
  if (w.params.bits <= kTableBits) return multiply_by<TableGroup>(w, begin, end, x, count, y, ldy);
#endif
  multiply_by<FmaGroup>(w, begin, end, x, count, y, ldy);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
HWY_EXPORT(multiply_few_rows_simd);
namespace cpu {

void multiply_few_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, const float* x,
                       std::int64_t count, float* y, std::int64_t ldy) {
  HWY_DYNAMIC_DISPATCH(multiply_few_rows_simd)(w, begin, end, x, count, y, ldy);
}

}  // namespace cpu
}  // namespace mixtape
#endif
