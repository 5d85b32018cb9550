// sm_90a alone.
// bf16 or f16 on Hopper's matrix units: two warp groups of 128 threads, each 64 rows of a block's 128 x 128 tile; three
// steps of 64 terms are in shared memory. Two blocks take turns on a multiprocessor: one's copies and ends run beside the
// other's products.
#include "mixtape/backend/gpu/group_products.h"
#include "mixtape/ops/grouped_matmul/grouped_tensor_gpu.h"

namespace mixtape {

struct PanelRows {
  template <class Operand>
  static constexpr int kLine = kPanel;
  template <class Operand>
  MIXTAPE_DEVICE static int place(int line, int chunk) {
    return panel_place<Operand::kLines>(line, chunk);
  }
};

// 16 x 8 tiles of a warp: 16 rows of its group's 64, all columns.
template <class T>
struct GroupSums {
  float sums[kGroupTile / 8][4] = {};

  // += a b^T over the depth.
  template <class A, class B>
  MIXTAPE_DEVICE void add(const A& a, const B& b, Shared<T> memory) {
    over_depth<PanelRows, 2 * kGroupThreads>(
        a, b, memory, [] { publish_copies(); },
        [&](Shared<T> left, Shared<T> right) { multiply<A, B>(left, right); });
  }

  template <class A, class B>
  MIXTAPE_DEVICE void multiply(Shared<T> left, Shared<T> right) {
    // From lane 0, so that the compiler knows that no warp parts by it.
    const int row = lane_shuffle(warp(), 0) / 4 * 64;
    begin_products();
    MIXTAPE_UNROLL
    for (int depth = 0; depth < kTensorDepth; depth += 16)
      multiply_group<T, kGroupTile, A::kIsDense, B::kIsDense>(sums, in_tile<A>(left, row, depth),
                                                              in_tile<B>(right, 0, depth), true);
    commit_products();
    wait_products<0>(sums);
  }

  // An operand's rows from `row`, terms from `depth` on.
  template <class Operand>
  MIXTAPE_DEVICE static InPanels<T> in_tile(Shared<T> tile, int row, int depth) {
    return {tile, Operand::kLines, Operand::kIsDense ? depth : row, Operand::kIsDense ? row : depth};
  }

  template <class C>
  MIXTAPE_DEVICE void store(Global<C> c, std::int64_t rows, std::int64_t cols, std::int64_t step,
                            bool accumulate) const {
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int r = warp() * 16 + half * 8 + lane() / 4;
      store_tiles(sums, half, c + r * step, cols, r < rows, accumulate);
    }
  }
};

MIXTAPE_GROUPED_TYPES(group, 2 * kGroupThreads, GroupSums)

}  // namespace mixtape
