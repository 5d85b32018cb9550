// bf16 or f16 on matrix units: 128 threads, each of the four warps a quarter of 64 x 64 of a block's 128 x
// 128 tile; three steps of 64 terms are in shared memory.
#include "mixtape/ops/grouped_matmul/grouped_tensor_gpu.h"

namespace mixtape {

struct SwizzledRows {
  template <class Operand>
  static constexpr int kLine = Operand::kWidth;
  template <class Operand>
  MIXTAPE_DEVICE static int place(int line, int chunk) {
    return swizzled<Operand::kWidth>(line, chunk);
  }
};

// The four quarters: 16 x 8 tiles of a warp.
template <class T>
struct WarpSums {
  float sums[4][8][4] = {};

  // += a b^T over the depth.
  template <class A, class B>
  MIXTAPE_DEVICE void add(const A& a, const B& b, Shared<T> memory) {
    over_depth<SwizzledRows, 128>(
        a, b, memory, [] {}, [&](Shared<T> left, Shared<T> right) { multiply<A, B>(left, right); });
  }

  template <class A, class B>
  MIXTAPE_DEVICE void multiply(Shared<T> a, Shared<T> b) {
    const int row = warp() / 2 * 64, col = warp() % 2 * 64;
    const int place_a = left_place<A::kWidth, A::kIsDense>(), place_b = right_place<B::kWidth, B::kIsDense>();
    MIXTAPE_UNROLL
    for (int depth = 0; depth < kTensorDepth; depth += 16) {
      std::uint32_t left[4][4], right[4][4];
      MIXTAPE_UNROLL
      for (int i = 0; i < 4; ++i)
        load_fragment<A::kWidth, A::kIsDense>(a, place_a, row + i * 16, depth, left[i]);
      MIXTAPE_UNROLL
      for (int j = 0; j < 4; ++j)
        load_fragment<B::kWidth, B::kIsDense>(b, place_b, col + j * 16, depth, right[j]);
      MIXTAPE_UNROLL
      for (int i = 0; i < 4; ++i) {
        MIXTAPE_UNROLL
        for (int j = 0; j < 8; ++j)
          multiply_add<T>(sums[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
      }
    }
  }

  template <class C>
  MIXTAPE_DEVICE void store(Global<C> c, std::int64_t rows, std::int64_t cols, std::int64_t step,
                            bool accumulate) const {
    const int row = warp() / 2 * 64 + lane() / 4, col = warp() % 2 * 64;
    MIXTAPE_UNROLL
    for (int i = 0; i < 4; ++i) {
      MIXTAPE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int r = row + i * 16 + half * 8;
        store_tiles(sums[i], half, c + (r * step + col), cols - col, r < rows, accumulate);
      }
    }
  }
};

MIXTAPE_GROUPED_TYPES(tensor, 128, WarpSums)

}  // namespace mixtape
