// Tiles that the last warps of a block bring to shared memory for the warp groups before them, which multiply: sm_90a.
// It waits for no product, and those who multiply for no copy but that of the tile that they need.
#pragma once

#include "mixtape/backend/gpu/arrivals.h"
#include "mixtape/backend/gpu/group_products.h"

namespace mixtape {

// `Places` tiles, which take turns. Who brings them and who takes them go through the same items, each with a ring of its
// own. `arrivals` holds kWords.
template <int Places>
struct TileRing {
  static constexpr int kWords = 2 * Places;
  Shared<std::uint64_t> arrivals;
  int item = 0;

  // One thread, and then a barrier. The warps that bring a tile, and those that give it back.
  MIXTAPE_DEVICE void init(int bringers, int takers) const {
    for (int place = 0; place < Places; ++place) {
      init_arrivals(arrivals + place, bringers);
      init_arrivals(arrivals + Places + place, takers);
    }
  }
  MIXTAPE_DEVICE int place() const { return item % Places; }
  MIXTAPE_DEVICE int parity() const { return item / Places % 2; }
  MIXTAPE_DEVICE Shared<std::uint64_t> full() const { return arrivals + place(); }
  MIXTAPE_DEVICE Shared<std::uint64_t> empty() const { return arrivals + Places + place(); }

  // Of who multiplies: until the item is there.
  MIXTAPE_DEVICE void take() const { await_arrivals(full(), parity()); }
  MIXTAPE_DEVICE void pass() { ++item; }
  // No product of this warp reads it any more.
  MIXTAPE_DEVICE void give_back() {
    lane_barrier();
    if (lane() == 0) arrive(empty());
    ++item;
  }
};

// One tile is under way while the place of the next one is waited for.
class TileCarrier {
 public:
  // Until there is a place for the ring's item.
  template <int Places>
  MIXTAPE_DEVICE void await_place(const TileRing<Places>& ring) {
    // Who holds the place may wait for what is under way.
    if (!lane_shuffle(have_arrived(ring.empty(), ring.parity() ^ 1), 0)) land<0>();
    await_arrivals(ring.empty(), ring.parity() ^ 1);
  }
  // The copies of the ring's item have begun.
  template <int Places>
  MIXTAPE_DEVICE void send(TileRing<Places>& ring) {
    commit_copies();
    land<1>();
    full_ = ring.full();
    is_under_way_ = true;
    ++ring.item;
  }
  MIXTAPE_DEVICE void finish() { land<0>(); }

 private:
  template <int Younger>
  MIXTAPE_DEVICE void land() {
    if (!is_under_way_) return;
    wait_copies<Younger>();
    publish_copies();
    lane_barrier();
    if (lane() == 0) arrive(full_);
    is_under_way_ = false;
  }
  Shared<std::uint64_t> full_;
  bool is_under_way_ = false;
};

}  // namespace mixtape
