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
  void release(std::byte* block);
  // Bytes of blocks handed out, not of the regions behind them.
  MemoryStats stats() const;
  void reset_peak();

 private:
  using Block = std::pair<std::size_t, std::byte*>;  // size first: best fit
  void add_region(std::size_t bytes);
  void insert_free(std::byte* begin, std::size_t bytes);
  void erase_free(std::map<std::byte*, std::size_t>::iterator block);

  mutable std::mutex mutex_;
  std::map<std::byte*, std::size_t> free_by_address_;
  std::set<Block> free_by_size_;
  std::map<std::byte*, std::size_t> used_;
  std::map<std::byte*, std::size_t> regions_;
  MemoryStats stats_;
};

}  // namespace mixtape::cpu
