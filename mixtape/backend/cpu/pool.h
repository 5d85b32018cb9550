// Host memory from large regions in 2 MB pages that are kept and reused: a first touch of fresh 4 KB pages
// costs far more than any kernel that writes them.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>

#include "mixtape/runtime/backend.h"

namespace mixtape::cpu {

// Thread-safe. Blocks are aligned to 64 bytes; neighbours that are free are joined.
class Pool {
 public:
  Pool() = default;
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Throws out_of_memory with the bytes asked for and the bytes live.
  std::byte* allocate(std::size_t bytes);
  void release(std::byte* block) noexcept;
  // Bytes of blocks handed out, not of the regions behind them.
  MemoryStats stats() const;
  void reset_peak();
  // Bytes of the regions.
  std::size_t held_bytes() const;

 private:
  using Block = std::pair<std::size_t, std::byte*>;  // size first: best fit
  using Sizes = std::set<Block>;
  struct Entry {
    std::size_t bytes = 0;
    std::size_t counted = 0;     // of them in the statistics: not those that only keep neighbours apart
    Sizes::node_type size_node;  // of a block in use: what release puts back, as it must not allocate
  };
  using Blocks = std::map<std::byte*, Entry>;
  struct Region {
    std::byte* mapped = nullptr;
    std::size_t bytes = 0;
  };
  using Regions = std::map<std::byte*, Region>;  // by the first byte that is handed out

  void add_region(std::size_t bytes);
  static Sizes::node_type new_size_node();
  void take(Sizes::iterator fit, std::size_t size, std::size_t counted);
  void insert_free(std::byte* begin, std::size_t bytes, Blocks::node_type block, Sizes::node_type size);
  void erase_free(Blocks::iterator block);

  mutable std::mutex mutex_;
  Blocks free_;  // by address
  Sizes free_by_size_;
  Blocks used_;
  Regions regions_;
  MemoryStats stats_;
};

}  // namespace mixtape::cpu
