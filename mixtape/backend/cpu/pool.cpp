#include "mixtape/backend/cpu/pool.h"

#include <sys/mman.h>

#include <algorithm>

#include "mixtape/core/error.h"

namespace mixtape::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr std::size_t kRegion = std::size_t{64} << 20;
// Large neighbours start this far apart modulo 4096 bytes: a processor mistakes addresses that agree there
// for the same, and tensors that are walked side by side would wait for each other's stores.
constexpr std::size_t kStagger = 13 * kAlignment;
constexpr std::size_t kLarge = std::size_t{256} << 10;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Pool::~Pool() {
  for (const auto& [begin, region] : regions_) ::munmap(region.mapped, region.bytes);
}

std::byte* Pool::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > std::size_t{1} << 62) {
    fail(ErrorCode::out_of_memory, "cpu: cannot allocate ", bytes, " bytes; ", stats_.live_bytes,
         " are live");
  }
  const std::size_t counted = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  const std::size_t size = counted < kLarge ? counted : round_up(counted, 4096) + kStagger;
  auto fit = free_by_size_.lower_bound({size, nullptr});
  if (fit == free_by_size_.end()) {
    add_region(size);
    fit = free_by_size_.lower_bound({size, nullptr});
  }
  std::byte* block = fit->second;
  take(fit, size, counted);
  stats_.live_bytes += counted;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  return block;
}

// Cuts `size` bytes off the front of a free block. What may throw comes first, so that nothing changes if it
// does.
void Pool::take(Sizes::iterator fit, std::size_t size, std::size_t counted) {
  const auto [block_size, block] = *fit;
  auto spare = new_size_node();
  used_.emplace(block, Entry{size, counted, std::move(spare)});
  auto free_node = free_.extract(block);
  auto size_node = free_by_size_.extract(fit);
  if (block_size > size) {
    insert_free(block + size, block_size - size, std::move(free_node), std::move(size_node));
  }
}

void Pool::release(std::byte* block) noexcept {
  const std::lock_guard lock(mutex_);
  auto node = used_.extract(block);
  auto size_node = std::move(node.mapped().size_node);
  std::byte* begin = block;
  std::size_t size = node.mapped().bytes;
  stats_.live_bytes -= node.mapped().counted;
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + size == next->first && !regions_.contains(next->first)) {
    size += next->second.bytes;
    const auto joined = next++;
    erase_free(joined);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second.bytes == begin && !regions_.contains(begin)) {
      begin = previous->first;
      size += previous->second.bytes;
      erase_free(previous);
    }
  }
  insert_free(begin, size, std::move(node), std::move(size_node));
}

MemoryStats Pool::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::size_t Pool::held_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [begin, region] : regions_) bytes += region.bytes;
  return bytes;
}

void Pool::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.live_bytes;
}

// A region starts on a 2 MB boundary, so that the kernel can back it with large pages.
void Pool::add_region(std::size_t bytes) {
  const std::size_t offset = regions_.size() * kStagger % 4096;
  const std::size_t size = round_up(std::max(bytes + offset, kRegion), kPage);
  Regions regions;  // the nodes first: nothing is mapped if they are not to be had
  regions.emplace(nullptr, Region{nullptr, size});
  Blocks blocks;
  blocks.emplace(nullptr, Entry{});
  auto size_node = new_size_node();
  void* fresh = ::mmap(nullptr, size + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) {
    fail(ErrorCode::out_of_memory, "cpu: cannot allocate ", bytes, " bytes; ", stats_.live_bytes,
         " are live");
  }
  auto* raw = static_cast<std::byte*>(fresh);
  std::byte* begin = raw + (kPage - reinterpret_cast<std::uintptr_t>(raw) % kPage) % kPage;
  if (begin > raw) ::munmap(raw, static_cast<std::size_t>(begin - raw));
  const auto tail = static_cast<std::size_t>(raw + size + kPage - (begin + size));
  if (tail > 0) ::munmap(begin + size, tail);
  ::madvise(begin, size, MADV_HUGEPAGE);
  auto region = regions.extract(nullptr);
  region.key() = begin + offset;
  region.mapped().mapped = begin;
  regions_.insert(std::move(region));
  insert_free(begin + offset, size - offset, blocks.extract(nullptr), std::move(size_node));
}

Pool::Sizes::node_type Pool::new_size_node() {
  Sizes one;
  one.emplace();
  return one.extract(one.begin());
}

void Pool::insert_free(std::byte* begin, std::size_t bytes, Blocks::node_type block, Sizes::node_type size) {
  block.key() = begin;
  block.mapped().bytes = bytes;
  size.value() = {bytes, begin};
  free_.insert(std::move(block));
  free_by_size_.insert(std::move(size));
}

void Pool::erase_free(Blocks::iterator block) {
  free_by_size_.erase({block->second.bytes, block->first});
  free_.erase(block);
}

}  // namespace mixtape::cpu
