#include "mixtape/backend/cpu/pool.h"

#include <sys/mman.h>

#include <algorithm>

#include "mixtape/core/error.h"

namespace mixtape::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr std::size_t kRegion = std::size_t{64} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Pool::~Pool() {
  for (const auto& [begin, bytes] : regions_) ::munmap(begin, bytes);
}

std::byte* Pool::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > std::size_t{1} << 62) {
    fail(ErrorCode::out_of_memory, "cpu: cannot allocate ", bytes, " bytes; ", stats_.live_bytes,
         " are live");
  }
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  auto fit = free_by_size_.lower_bound({size, nullptr});
  if (fit == free_by_size_.end()) {
    add_region(size);
    fit = free_by_size_.lower_bound({size, nullptr});
  }
  const auto [block_size, block] = *fit;
  erase_free(free_by_address_.find(block));
  if (block_size > size) insert_free(block + size, block_size - size);
  used_.emplace(block, size);
  stats_.live_bytes += size;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  return block;
}

void Pool::release(std::byte* block) {
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(block);
  std::byte* begin = block;
  std::size_t size = used->second;
  stats_.live_bytes -= size;
  used_.erase(used);
  auto next = free_by_address_.lower_bound(begin);
  if (next != free_by_address_.end() && begin + size == next->first && !regions_.contains(next->first)) {
    size += next->second;
    const auto joined = next++;
    erase_free(joined);
  }
  if (next != free_by_address_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin && !regions_.contains(begin)) {
      begin = previous->first;
      size += previous->second;
      erase_free(previous);
    }
  }
  insert_free(begin, size);
}

MemoryStats Pool::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Pool::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.live_bytes;
}

// A region starts on a 2 MB boundary, so that the kernel can back it with large pages.
void Pool::add_region(std::size_t bytes) {
  const std::size_t size = round_up(std::max(bytes, kRegion), kPage);
  void* mapped = ::mmap(nullptr, size + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    fail(ErrorCode::out_of_memory, "cpu: cannot allocate ", bytes, " bytes; ", stats_.live_bytes,
         " are live");
  }
  auto* raw = static_cast<std::byte*>(mapped);
  std::byte* begin = raw + (kPage - reinterpret_cast<std::uintptr_t>(raw) % kPage) % kPage;
  if (begin > raw) ::munmap(raw, static_cast<std::size_t>(begin - raw));
  const auto tail = static_cast<std::size_t>(raw + size + kPage - (begin + size));
  if (tail > 0) ::munmap(begin + size, tail);
  ::madvise(begin, size, MADV_HUGEPAGE);
  regions_.emplace(begin, size);
  insert_free(begin, size);
}

void Pool::insert_free(std::byte* begin, std::size_t bytes) {
  free_by_address_.emplace(begin, bytes);
  free_by_size_.emplace(bytes, begin);
}

void Pool::erase_free(std::map<std::byte*, std::size_t>::iterator block) {
  free_by_size_.erase({block->second, block->first});
  free_by_address_.erase(block);
}

}  // namespace mixtape::cpu
