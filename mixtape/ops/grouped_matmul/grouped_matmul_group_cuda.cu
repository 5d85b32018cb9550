// sm_90a alone.
// bf16 or f16 on Hopper's matrix units: two warp groups of 128 threads, each 64 rows of a block's 128 x 128 tile, and two warps
// that bring them steps of 64 terms; three are in shared memory. Two blocks share a multiprocessor: one's beginning and
// end run beside the other's products.
#include "mixtape/backend/gpu/tile_ring.h"
#include "mixtape/ops/grouped_matmul/grouped_tensor_gpu.h"

namespace mixtape {

struct PanelRows {
  template <class Operand>
  static constexpr int kLine = kPanel;
  // From the first 64 columns to the next.
  template <class Operand>
  static constexpr int kHalf = Operand::kLines * kPanel;
  template <class Operand>
  MIXTAPE_DEVICE static int place(int line, int chunk) {
    return panel_place<Operand::kLines>(line, chunk);
  }
};

// 16 x 8 tiles of a warp: 16 rows of its group's 64, all columns.
template <class T>
struct GroupSums {
  using Ring = TileRing<kTensorStages>;
  static constexpr int kTakers = 2 * kGroupThreads / kLanes, kBringers = 2;  // warps
  float sums[kGroupTile / 8][4] = {};

  // left right^T over the depth.
  template <class A, class B, class C>
  MIXTAPE_DEVICE static void make(const A& left, const B& right, const TileOfResult<C>& out, Shared<T> memory,
                                  Shared<std::uint64_t> arrivals) {
    const Ring ring{arrivals};
    if (flat_thread() == 0) ring.init(kBringers, kTakers);
    barrier();
    if (lane_shuffle(warp(), 0) >= kTakers) {
      bring(left, right, memory, ring);
    } else {
      GroupSums sums;
      sums.template add<A, B>(steps_of(left), memory, ring);
      sums.store(out);
    }
  }

 private:
  template <class A>
  MIXTAPE_DEVICE static int steps_of(const A& a) {
    return static_cast<int>((a.depth + kTensorDepth - 1) / kTensorDepth);
  }
  template <class A>
  MIXTAPE_DEVICE static Shared<T> left_of(Shared<T> memory, const Ring& ring) {
    return memory + ring.place() * 2 * A::kValues;
  }

  template <class A, class B>
  MIXTAPE_DEVICE static void bring(const A& a, const B& b, Shared<T> memory, Ring ring) {
    TileCopies<T, A::kIsDense, PanelRows, kBringers * kLanes, false> left(a);
    TileCopies<T, B::kIsDense, PanelRows, kBringers * kLanes, false> right(b);
    TileCarrier carrier;
    MIXTAPE_ROLLED
    for (int step = steps_of(a); step > 0; --step) {
      carrier.await_place(ring);
      left.next(left_of<A>(memory, ring));
      right.next(left_of<A>(memory, ring) + A::kValues);
      carrier.send(ring);
    }
    carrier.finish();
  }

  // A step's products run while the next ones begin.
  template <class A, class B>
  MIXTAPE_DEVICE void add(int steps, Shared<T> memory, Ring ring) {
    Ring done = ring;
    // From lane 0, so that the compiler knows that no warp parts by it.
    const int row = lane_shuffle(warp(), 0) / 4 * 64;
    MIXTAPE_ROLLED
    for (int step = 0; step < steps; ++step) {
      const Shared<T> left = left_of<A>(memory, ring), right = left + A::kValues;
      ring.take();
      ring.pass();
      begin_products();
      MIXTAPE_UNROLL
      for (int depth = 0; depth < kTensorDepth; depth += 16)
        multiply_group<T, kGroupTile, A::kIsDense, B::kIsDense>(sums, in_tile<A>(left, row, depth),
                                                                in_tile<B>(right, 0, depth), true);
      commit_products();
      wait_products<1>(sums);
      if (step > 0) done.give_back();
    }
    wait_products<0>(sums);
  }

  // An operand's rows from `row`, terms from `depth` on.
  template <class Operand>
  MIXTAPE_DEVICE static InPanels<T> in_tile(Shared<T> tile, int row, int depth) {
    return {tile, Operand::kLines, Operand::kIsDense ? depth : row, Operand::kIsDense ? row : depth};
  }

  template <class C>
  MIXTAPE_DEVICE void store(const TileOfResult<C>& out) const {
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int r = warp() * 16 + half * 8 + lane() / 4;
      store_tiles(sums, half, out.p + r * out.step, out.cols, r < out.rows, out.accumulate);
    }
  }
};

MIXTAPE_GROUPED_TYPES(group, 2 * kGroupThreads + 64, GroupSums)

}  // namespace mixtape
