// Rows that a block takes one after the other while the next ones are on their way: bulk copies bring them to shared
// memory, for which no thread waits and which take no instructions of their own. A block is one warp, so that no warp
// waits for another; as many of them share a multiprocessor as have room for their rows. Geometry: rows.h.
//
//   MIXTAPE_FETCHED_KERNEL(name, ...)   as MIXTAPE_KERNEL, of one warp
//   copy_bulk(to, from, count, arrival)
//                                      `count` elements to shared memory, whole packs of 16 bytes; `arrival` (cluster.h)
//                                      counts the bytes. One thread's work
#pragma once

#include "mixtape/backend/gpu/cluster.h"
#include "mixtape/backend/gpu/fetched_rows_params.h"

#define MIXTAPE_FETCHED_KERNEL(name, ...) MIXTAPE_KERNEL(name, 32, __VA_ARGS__)

namespace mixtape {

#if defined(__CUDACC__)
template <class T>
MIXTAPE_DEVICE void copy_bulk(T* to, const T* from, std::int64_t count, std::uint64_t* arrival) {
  const auto bytes = static_cast<std::uint32_t>(count * sizeof(T));
  expect_bytes(arrival, static_cast<int>(bytes));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(arrival))
      : "memory");
}
#else
template <class T>
void copy_bulk(Shared<T> to, Global<const T> from, std::int64_t count, Shared<std::uint64_t>) {
  constexpr int kPack = 16 / sizeof(T);
  for (std::int64_t i = 0; i < count; i += kPack) store_pack(to + i, load_pack<kPack>(from + i));
}
#endif

// Rows block_x, block_x + blocks_x and so on, of `cols` elements, whole packs. `landing` holds kRowsAhead rows, `arrivals`
// as many words. All threads call everything.
template <class T>
class FetchedRows {
 public:
  MIXTAPE_DEVICE FetchedRows(Global<const T> from, std::int64_t rows, std::int64_t cols, Shared<T> landing,
                             Shared<std::uint64_t> arrivals)
      : from_(from), rows_(rows), cols_(cols), landing_(landing), arrivals_(arrivals), row_(block_x()) {
    if (lane() < kRowsAhead) init_bytes(arrivals_ + lane());
    barrier();
    for (int place = 0; place < kRowsAhead; ++place) fetch(place, place);
  }
  MIXTAPE_DEVICE bool has_row() const { return row_ < rows_; }
  MIXTAPE_DEVICE std::int64_t row() const { return row_; }
  // The row, once it is there.
  MIXTAPE_DEVICE Shared<const T> take() const {
    await_bytes(arrivals_ + place_, parity_);
    return landing_ + place_ * cols_;
  }
  // What take() gave has been read.
  MIXTAPE_DEVICE void next() {
    barrier();
    fetch(place_, kRowsAhead);
    row_ += blocks_x();
    if (++place_ < kRowsAhead) return;
    place_ = 0;
    parity_ ^= 1;
  }

 private:
  // The row `ahead` of the current one, to that place.
  MIXTAPE_DEVICE void fetch(int place, int ahead) const {
    const std::int64_t row = row_ + static_cast<std::int64_t>(ahead) * blocks_x();
    if (lane() == 0 && row < rows_)
      copy_bulk(landing_ + place * cols_, from_ + row * cols_, cols_, arrivals_ + place);
  }

  Global<const T> from_;
  std::int64_t rows_, cols_;
  Shared<T> landing_;
  Shared<std::uint64_t> arrivals_;
  std::int64_t row_;
  int place_ = 0, parity_ = 0;
};

}  // namespace mixtape
