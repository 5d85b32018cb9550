#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/adam/adam_cpu.cpp"
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/adam/adam_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {
namespace {

// The buffers' elements cut into blocks, one numbering for all.
struct BlockList {
  explicit BlockList(std::size_t tensors) : first(tensors + 1, 0) {}
  void set_count(std::size_t tensor, std::int64_t elements) {
    first[tensor + 1] = first[tensor] + (elements + kAdamBlock - 1) / kAdamBlock;
  }
  std::size_t tensor_of(std::int64_t block) const {
    return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), block) - first.begin()) - 1;
  }
  std::int64_t blocks() const { return first.back(); }
  std::vector<std::int64_t> first;  // of each tensor, and one past the last
};

struct Block {
  std::size_t tensor;
  std::int64_t begin;
  std::size_t size;
};

Block block_at(const BlockList& list, std::int64_t block, std::int64_t elements, std::size_t tensor) {
  const std::int64_t begin = (block - list.first[tensor]) * kAdamBlock;
  return {tensor, begin, static_cast<std::size_t>(std::min(kAdamBlock, elements - begin))};
}

// Random bits of elements from `index` on.
hn::Vec<UintTag> random_bits(std::uint64_t index, std::uint32_t seed) {
  const UintTag d;
  const auto low = hn::Iota(d, static_cast<std::uint32_t>(index));
  // The upper half grows where the lower one begins anew.
  const auto next = hn::VecFromMask(d, hn::Lt(low, hn::Set(d, static_cast<std::uint32_t>(index))));
  const auto high = hn::Sub(hn::Set(d, static_cast<std::uint32_t>(index >> 32)), next);
  auto x = hn::Add(hn::Add(hn::Mul(low, hn::Set(d, kAdamLow)), hn::Mul(high, hn::Set(d, kAdamHigh))),
                   hn::Set(d, seed));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, kAdamMix0));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<13>(x)), hn::Set(d, kAdamMix1));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

// Moments that are stored in f32 as they are; in bf16 up or down by 16 random bits.
void store_moment(Floats v, float* p, std::size_t n, hn::Vec<UintTag>) { store(v, p, n); }
void store_moment(Floats v, bf16* p, std::size_t n, hn::Vec<UintTag> bits) {
  const UintTag d;
  const auto u = hn::BitCast(d, v), infinite = hn::Set(d, 0x7f800000u);
  const auto rounded = hn::And(hn::Add(u, hn::And(bits, hn::Set(d, 0xffffu))), hn::Set(d, 0xffff0000u));
  store(
      hn::IfThenElse(hn::RebindMask(kF, hn::Eq(hn::And(u, infinite), infinite)), v, hn::BitCast(kF, rounded)),
      p, n);
}

// Of elements that are the tensor's from `first` on.
template <class P, class G, class M>
void update(P* p, const G* g, M* m, M* v, std::int64_t first, std::size_t n, const AdamParams& o,
            float unit) {
  const Floats beta1 = set(o.beta1), beta2 = set(o.beta2), rest1 = set(o.one_minus_beta1),
               rest2 = set(o.one_minus_beta2), grad_scale = set(o.grad_scale),
               correction2 = set(o.correction2), eps = set(o.eps), keep = set(o.keep),
               rate = set(o.lr * unit * o.correction1);
  for (std::size_t i = 0; i < n; i += lanes()) {
    const std::size_t left = n - i;
    const Floats gradient = hn::Mul(grad_scale, load(g + i, left));
    const Floats mean = hn::MulAdd(beta1, load(m + i, left), hn::Mul(rest1, gradient));
    const Floats square = hn::MulAdd(beta2, load(v + i, left), hn::Mul(rest2, hn::Mul(gradient, gradient)));
    const Floats scale = hn::Add(hn::Sqrt(hn::Mul(square, correction2)), eps);
    const Floats step = hn::Div(hn::Mul(rate, mean), scale);
    auto bits = hn::Zero(UintTag());
    if constexpr (sizeof(M) == 2) bits = random_bits(static_cast<std::uint64_t>(first) + i, o.seed);
    store_moment(mean, m + i, left, bits);
    store_moment(square, v + i, left, hn::ShiftRight<16>(bits));
    store(hn::MulSub(keep, load(p + i, left), step), p + i, left);
  }
}

template <class P, class G, class M>
void update_block(const HostCall& call, const Block& b) {
  const float unit = call.read<float>(call.reads.size() - 1)[b.tensor];
  update(call.write<P>(3 * b.tensor) + b.begin, call.read<G>(b.tensor) + b.begin,
         call.write<M>(3 * b.tensor + 1) + b.begin, call.write<M>(3 * b.tensor + 2) + b.begin, b.begin,
         b.size, call.params<AdamParams>(), unit);
}

void update_block(const HostCall& call, const Block& b) {
  with_type(call.writes[3 * b.tensor].dtype(), [&](auto p) {
    with_type(call.reads[b.tensor].dtype(), [&](auto g) {
      if (call.writes[3 * b.tensor + 1].dtype() == DType::f32)
        return update_block<decltype(p), decltype(g), float>(call, b);
      update_block<decltype(p), decltype(g), bf16>(call, b);
    });
  });
}

template <class T>
float squares(const T* x, std::size_t n) {
  const std::size_t step = lanes();
  Floats a = zero(), b = a, c = a, d = a;
  std::size_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    const Floats x0 = load(x + i), x1 = load(x + i + step), x2 = load(x + i + 2 * step),
                 x3 = load(x + i + 3 * step);
    a = hn::MulAdd(x0, x0, a);
    b = hn::MulAdd(x1, x1, b);
    c = hn::MulAdd(x2, x2, c);
    d = hn::MulAdd(x3, x3, d);
  }
  for (; i < n; i += step) {
    const Floats tail = load(x + i, n - i);
    a = hn::MulAdd(tail, tail, a);
  }
  return sum_lanes(hn::Add(hn::Add(a, b), hn::Add(c, d)));
}

float squares(const Buffer& x, const Block& b) {
  return with_type(x.dtype(), [&](auto t) { return squares(x.host_data<decltype(t)>() + b.begin, b.size); });
}

}  // namespace

void adam_step(const HostCall& call) {
  const std::size_t tensors = call.reads.size() - 1;  // the last are the units
  BlockList list(tensors);
  for (std::size_t t = 0; t < tensors; ++t) list.set_count(t, call.reads[t].numel());
  cpu::parallel_for(list.blocks(), 1, [&](std::int64_t begin, std::int64_t) {
    const std::size_t t = list.tensor_of(begin);
    update_block(call, block_at(list, begin, call.reads[t].numel(), t));
  });
}

void sum_of_squares(const HostCall& call) {
  BlockList list(call.reads.size());
  for (std::size_t t = 0; t < call.reads.size(); ++t) list.set_count(t, call.reads[t].numel());
  std::vector<float> sums(static_cast<std::size_t>(list.blocks()));
  cpu::parallel_for(list.blocks(), 1, [&](std::int64_t begin, std::int64_t) {
    const Buffer& x = call.reads[list.tensor_of(begin)];
    sums[static_cast<std::size_t>(begin)] =
        squares(x, block_at(list, begin, x.numel(), list.tensor_of(begin)));
  });
  double total = 0.0;
  for (const float sum : sums) total += static_cast<double>(sum);
  call.write<float>(0)[0] = static_cast<float>(total);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_ONE(adam_step)
MIXTAPE_REGISTER_SIMD_ONE(sum_of_squares)
}  // namespace mixtape
#endif
